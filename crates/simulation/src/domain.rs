//! Domain: one admission domain in virtual time: the home path, step for step as home-api takes it, over the same gates,
//! flights, budget and degradation rules. A page goes from its arrival through the endpoint, the profile, the claims and the
//! five branches to its answer; what happens between two events happens at once.
//!
//! Where home-api awaits, a page here has a [`Stage`] and at most one event of its own, and its caller's leaving another.
//! Work that is refused, cut or left gives everything back on the spot, as dropping a future does.

mod caller;
mod fan_out;
mod page;
mod read;
mod store;

use std::collections::VecDeque;

use base::{Deadline, Dependency, Nanos};
use control::{
    budget::Rules,
    coalescing::Flights,
    degradation::{Hold, Observation},
};
use model::{
    draw::Draws,
    policy::{Boundary as Where, Mechanism, ServiceName},
    scenario::Phase,
    workload::{Arrival, Arrivals},
};

use crate::{
    boundary::{self, Boundary, Denied, Entered},
    servers::Servers,
    system::{Acts, System, acts},
    tally::{Account, Outcome},
    wheel::{EventId, Wheel},
};

pub(crate) use self::page::Page;
use self::{
    caller::Shell,
    page::{PageId, Pages, Stage},
    read::{Key, ReadId},
    store::Store,
};

/// Events of a page: its own step, and its caller's leaving. A read has one. Numbers are dealt by threes.
const EVENTS: u32 = 3;

/// What an event is about.
enum About {
    Step(PageId),
    Leaving(PageId),
    Read(ReadId),
}

const fn step(page: PageId) -> EventId {
    page * EVENTS
}

const fn leaving(page: PageId) -> EventId {
    page * EVENTS + 1
}

const fn of_read(read: ReadId) -> EventId {
    read * EVENTS + 2
}

const fn about(event: EventId) -> About {
    match event % EVENTS {
        0 => About::Step(event / EVENTS),
        1 => About::Leaving(event / EVENTS),
        _ => About::Read(event / EVENTS),
    }
}

/// What a request needs of the policy at every step, taken out of it once.
#[derive(Clone, Debug)]
struct Terms {
    rules: Rules,
    acts: [Acts; Mechanism::ALL.len()],
    /// The same, where no mechanism depends on who asks.
    fixed: Option<u8>,
    worst_useful: [Nanos; Dependency::ALL.len()],
    independent: [Nanos; Dependency::ALL.len()],
    enabled: [bool; Dependency::ALL.len()],
    /// What each service keeps for itself of a deadline.
    hop_reserve: [Nanos; Dependency::ALL.len()],
    shell: Nanos,
    requests_max: u32,
}

impl Terms {
    fn of(system: &System) -> Self {
        let policy = &system.policy;
        let acts = acts(policy, system.claims);
        let bits = acts.iter().enumerate().map(|(at, acts)| u8::from(*acts == Acts::Always) << at).sum();
        Self {
            rules: Rules { response_reserve: policy.response_reserve, optional_floor: policy.optional_floor },
            fixed: (!acts.contains(&Acts::Some)).then_some(bits),
            acts,
            worst_useful: Dependency::ALL.map(|name| policy.branch(name).worst_useful),
            independent: Dependency::ALL.map(|name| policy.branch(name).independent_timeout),
            enabled: Dependency::ALL.map(|name| policy.branch(name).enabled),
            hop_reserve: Dependency::ALL.map(|name| policy.service(ServiceName::of(name)).reserve),
            shell: policy.service(ServiceName::HomeApi).default_timeout,
            requests_max: policy.limits.requests_max,
        }
    }
}

/// One admission domain.
pub(crate) struct Domain<'a> {
    system: &'a System,
    terms: Terms,
    phase: &'a Phase,
    draws: Draws,
    seed: u64,
    arrivals: Arrivals,
    next: Option<Arrival>,
    now: Nanos,
    wheel: Wheel,
    pages: Pages,
    reads: read::Reads,
    pub(crate) endpoint: Boundary,
    pub(crate) profile: Boundary,
    flights: Flights<Key, PageId, read::KeyHash>,
    /// The read of each flight, by the flight's place.
    flight_reads: Vec<ReadId>,
    store: Store,
    /// The hedges' own cell.
    cell: Option<Store>,
    hedges: read::HedgeBudget,
    servers: [Servers; Dependency::ALL.len()],
    processors: Option<Servers>,
    /// One burst of a page's CPU time, and how many there are.
    cpu: Nanos,
    bursts: u32,
    hold: Hold,
    shell: Shell,
    arrived: u64,
    /// Who was woken and is to ask again, in order.
    woken: VecDeque<(Where, u32)>,
    pub(crate) account: Account,
}

impl<'a> Domain<'a> {
    /// Domain number `number` of the system at its beginning, in the scenario's phase `phase`.
    pub(crate) fn new(system: &'a System, phase: &'a Phase, seed: u64, number: u32) -> Self {
        let System { policy, scenario, workload, offered, placement, .. } = system;
        let terms = Terms::of(system);
        let seed = base::mix::fold64(seed, u64::from(number) + 1);
        let gated = terms.acts[Mechanism::Admission.index()] == Acts::Always;
        let boundary = |at| Boundary::new(policy.admission(at), gated);
        let mut arrivals = workload.arrivals_placed(seed, *offered, placement, number, system.domains);
        let bursts = system.hosts.bursts_per_page.max(1);
        let cpu = Nanos::new(Nanos::from_micros(system.hosts.cpu_us_per_page).get() / u64::from(bursts));
        Self {
            phase,
            draws: Draws::new(seed, scenario.version),
            seed,
            next: arrivals.next(),
            arrivals,
            now: Nanos::ZERO,
            wheel: Wheel::new(),
            pages: Pages::default(),
            reads: read::Reads::default(),
            endpoint: boundary(Where::Endpoint),
            profile: boundary(Where::Profile),
            flights: Flights::default(),
            flight_reads: Vec::new(),
            store: Store::new(phase.dependency(Dependency::Profile).capacity),
            cell: system.hedge.and_then(|hedge| hedge.cell).map(Store::new),
            hedges: read::HedgeBudget::default(),
            servers: Dependency::ALL.map(|name| Servers::new(phase.dependency(name).capacity)),
            processors: system.processors().map(Servers::new),
            cpu,
            bursts,
            hold: Hold::new(policy.degradation.bounds, Nanos::ZERO),
            shell: Shell::default(),
            arrived: 0,
            woken: VecDeque::new(),
            account: Account::default(),
            terms,
            system,
        }
    }

    /// Goes on to `until`: everybody who arrives before it arrives.
    pub(crate) fn run_until(&mut self, until: Nanos) {
        loop {
            let limit = match &self.next {
                Some(arrival) if arrival.at < until => arrival.at,
                _ => until,
            };
            while let Some((at, event)) = self.wheel.pop_until(limit) {
                self.now = at;
                match about(event) {
                    About::Step(page) => self.step(page),
                    About::Leaving(page) => self.caller_leaves(page),
                    About::Read(read) => self.read_step(read),
                }
                self.ask_again();
            }
            self.now = limit;
            if limit == until {
                return;
            }
            let Some(arrival) = self.next.take() else { return };
            self.next = self.arrivals.next();
            self.arrive(&arrival);
            self.ask_again();
        }
    }

    /// The dependencies behave as in another phase of the scenario from now on. Calls under way keep the time they drew.
    pub(crate) fn enter_phase(&mut self, phase: &'a Phase) {
        for name in Dependency::ALL {
            let capacity = phase.dependency(name).capacity;
            if capacity != self.phase.dependency(name).capacity {
                self.servers[name.index()].set_capacity(capacity);
            }
        }
        let profile = phase.dependency(Dependency::Profile).capacity;
        self.store.set_capacity(profile);
        self.phase = phase;
        self.serve_store(false);
    }

    /// What happened since the window began is forgotten; who is here stays, uncounted.
    pub(crate) fn begin_window(&mut self, seconds: u32) {
        self.account.begin(self.now, seconds);
        let marks = self.meters();
        self.account.mark(marks);
        for boundary in [&mut self.endpoint, &mut self.profile] {
            boundary.ages.clear();
            boundary.ages_now.clear();
        }
    }

    /// Whoever arrives from now on is not counted; what is left is only watched to its end.
    pub(crate) fn end_window(&mut self) {
        let marks = self.meters();
        self.account.end(marks, [self.endpoint.ages.clone(), self.profile.ages.clone()]);
    }

    /// Held time of both boundaries, calls and served time of the dependencies, CPU.
    pub(crate) fn meters(&mut self) -> Meters {
        let mut calls = [0; Dependency::ALL.len()];
        let mut served = [Nanos::ZERO; Dependency::ALL.len()];
        for name in Dependency::ALL {
            (calls[name.index()], served[name.index()]) = self.servers[name.index()].account();
        }
        let profile = Dependency::Profile.index();
        (calls[profile], served[profile]) = self.store.account();
        if let Some(cell) = &self.cell {
            let (more, longer) = cell.account();
            calls[profile] += more;
            served[profile] = served[profile] + longer;
        }
        let cpu = self.processors.as_ref().map_or(Nanos::ZERO, |processors| processors.account().1);
        let flights = *self.flights.counts();
        Meters {
            held: [self.endpoint.held_time(self.now), self.profile.held_time(self.now)],
            calls,
            served,
            cpu,
            flights: flights.started,
            joined: flights.joined,
            pressure: self.hold.came_on(),
        }
    }

    /// Operations that arrived since this was asked last.
    pub(crate) const fn arrived_since(&mut self) -> u64 {
        std::mem::replace(&mut self.arrived, 0)
    }

    /// Pages that somebody in the window still waits for.
    pub(crate) const fn open(&self) -> u64 {
        self.account.open()
    }

    /// A page, from its caller's first attempt.
    fn arrive(&mut self, arrival: &Arrival) {
        self.arrived += 1;
        self.shell_deadlines();
        let departs = arrival.patience.map_or(Nanos::MAX, |patience| arrival.at + patience);
        let page = self.pages.take(arrival, departs, self.draws.operation(arrival.number));
        self.account.offered(&mut self.pages[page], arrival.at);
        if departs < Nanos::MAX {
            self.wheel.schedule(leaving(page), departs);
        }
        self.attempt(page);
    }

    /// An attempt at a page begins: the shell, then the endpoint.
    fn attempt(&mut self, page: PageId) {
        let now = self.now;
        self.account.attempt(&self.pages[page]);
        if self.shell.held() >= self.terms.requests_max {
            return self.refused(page, Outcome::Rejected);
        }
        let mechanisms = self.mechanisms(page);
        let entry = &mut self.pages[page];
        entry.arrived = now;
        entry.mechanisms = mechanisms;
        entry.intended = Deadline::after(now, self.system.policy.objective.min(self.terms.shell));
        (entry.working, entry.in_shell) = (true, true);
        self.shell.enter(now + self.terms.shell, page, entry.serial, !entry.acts(Mechanism::Deadline));
        let enforced = entry.enforced();
        let useful = self.terms.worst_useful[Dependency::Profile.index()]
            .saturating_add(self.terms.rules.response_reserve);
        let ask = boundary::arrival(entry.class, now, enforced, useful);
        let entered = self.endpoint.enter(entry.acts(Mechanism::Admission), ask, now, page);
        self.at_endpoint(page, entered);
    }

    fn at_endpoint(&mut self, page: PageId, entered: Entered) {
        match entered {
            Entered::In(slot) => {
                let entry = &mut self.pages[page];
                let waited = slot.begun() - entry.arrived;
                entry.slot = Some(slot);
                if entry.acts(Mechanism::Degradation) {
                    let occupancy = self.endpoint.occupancy_per_10_000(entry.acts(Mechanism::Admission));
                    let seen = Observation { queue_age: waited, occupancy_per_10_000: occupancy };
                    self.hold.observe(seen, self.now);
                }
                self.read_profile(page);
            }
            Entered::Waits(place) => {
                if place.give_up_at < Nanos::MAX {
                    self.set_step(page, place.give_up_at);
                }
                let entry = &mut self.pages[page];
                (entry.stage, entry.place) = (Stage::Queued, Some(place));
            }
            Entered::Denied(denied) => self.refused(page, outcome(denied)),
        }
    }

    /// Lets those ask again whom a permit that came back, or a bound that was reached, concerns.
    fn ask_again(&mut self) {
        loop {
            while let Some(owner) = self.endpoint.next_woken() {
                self.woken.push_back((Where::Endpoint, owner));
            }
            while let Some(owner) = self.profile.next_woken() {
                self.woken.push_back((Where::Profile, owner));
            }
            match self.woken.pop_front() {
                None => return,
                Some((Where::Endpoint, page)) => self.ask_endpoint(page),
                Some((Where::Profile, read)) => self.ask_connection(read),
            }
        }
    }

    fn ask_endpoint(&mut self, page: PageId) {
        // Who has left meanwhile is somebody else, or nobody.
        let Some(place) = self.pages[page].place.take() else { return };
        self.clear_step(page);
        self.pages[page].stage = Stage::Idle;
        let entered = self.endpoint.check(*place, self.now, page);
        self.at_endpoint(page, entered);
    }

    /// The page's own event.
    fn step(&mut self, page: PageId) {
        self.pages[page].stepping = false;
        match self.pages[page].take_stage() {
            Stage::Queued => {
                if let Some(place) = self.pages[page].place.take() {
                    let entered = self.endpoint.check(*place, self.now, page);
                    self.at_endpoint(page, entered);
                }
            }
            // Its own time is up before the flight's is.
            Stage::Flight(waiter) => {
                self.leave_flight(waiter);
                self.refused(page, Outcome::Deadline);
            }
            Stage::Claims { whole: true } => self.fan_out(page),
            Stage::FanOut { whole: true } => self.answered(page),
            Stage::Claims { whole: false } | Stage::FanOut { whole: false } => {
                self.refused(page, Outcome::Deadline);
            }
            Stage::Backoff => self.attempt(page),
            // A read has an event of its own, and whoever is done has none.
            Stage::Reading(_) | Stage::Idle => {}
        }
    }

    fn set_step(&mut self, page: PageId, at: Nanos) {
        self.pages[page].stepping = true;
        self.wheel.schedule(step(page), at);
    }

    fn clear_step(&mut self, page: PageId) {
        if std::mem::take(&mut self.pages[page].stepping) {
            self.wheel.cancel(step(page));
        }
    }

    fn mechanisms(&self, page: PageId) -> u8 {
        if let Some(fixed) = self.terms.fixed {
            return fixed;
        }
        let identity = self.pages[page].identity();
        let applies = Mechanism::ALL.iter().enumerate().map(|(at, mechanism)| {
            let rollout = self.system.policy.mechanism(*mechanism);
            let acts = match self.terms.acts[at] {
                Acts::Never => false,
                Acts::Always => true,
                Acts::Some => rollout.covers(&identity),
            };
            u8::from(acts) << at
        });
        applies.sum()
    }

    /// Nobody waits, holds or flies any more.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.endpoint.held() == 0
            && self.profile.held() == 0
            && self.endpoint.waiting() + self.profile.waiting() == 0
            && self.flights.is_empty()
            && self.pages.is_empty()
            && self.reads.is_empty()
            && self.endpoint.balances()
            && self.profile.balances()
            && self.wheel.len() == 0
            && self.shell.held() == 0
    }

    /// Stops the schedule, for a test that watches everything end.
    #[cfg(test)]
    pub(crate) fn stop_arrivals(&mut self) {
        self.next = None;
    }
}

/// What is metered, since the domain began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meters {
    pub(crate) held: [u64; 2],
    pub(crate) calls: [u64; Dependency::ALL.len()],
    pub(crate) served: [Nanos; Dependency::ALL.len()],
    pub(crate) cpu: Nanos,
    pub(crate) flights: u64,
    pub(crate) joined: u64,
    pub(crate) pressure: u64,
}

const fn outcome(denied: Denied) -> Outcome {
    match denied {
        Denied::Overload => Outcome::Rejected,
        Denied::CannotFinish => Outcome::Deadline,
    }
}

#[cfg(test)]
mod tests;
