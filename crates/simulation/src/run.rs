//! Run: a region through a warm-up and a measured window, second by second, all its domains beside each other.
//!
//! The memory of a run does not grow with its length: pages that are under way, a second of ages, and one point a second of the
//! window are all that it holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Dependency, Nanos, WorkloadClass};
use model::policy::Boundary;

use crate::{
    domain::{Domain, Meters},
    spread::Spread,
    system::System,
    tally::{ClassTally, Metered, SecondTally},
};

/// Longest that the last operations of a window are watched after its end.
const WATCH_MAX: Nanos = Nanos::from_secs(120);

/// The course of a run: how long it goes in which phase of the scenario, and what of it is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// The phase of the warm-up, by its place in the scenario.
    pub warm_up_phase: usize,
    /// How long the warm-up takes, in seconds.
    pub warm_up_s: u32,
    /// The phase of the window.
    pub phase: usize,
    /// How long the window takes, in seconds.
    pub window_s: u32,
}

/// How far the runs are that go on beside each other, and the wish that they stop.
#[derive(Debug, Default)]
pub struct Progress {
    /// Operations that have arrived in all runs.
    pub requests: AtomicU64,
    /// Virtual seconds that have passed in all runs.
    pub seconds: AtomicU64,
    /// Set to have all runs stop at their next second.
    pub stop: AtomicBool,
}

/// One second of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Operations that were to start in it.
    pub offered: u64,
    /// Of those, answered correctly within the objective.
    pub good: u64,
    /// Of those, whose caller left before it.
    pub departed: u64,
    /// Of those, answered correctly with something omitted.
    pub degraded: u64,
    /// 99th percentile of the age at which a slot was got: the worse of the two boundaries.
    pub queue_age_ms: Option<f64>,
    /// Mean share of the slots in use.
    pub occupancy: [f64; 2],
    /// Reads that the profile store was asked for.
    pub profile_calls: u64,
}

/// What a window came to.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Its length, all merged windows together, in seconds.
    pub seconds: u64,
    /// By class.
    pub classes: [ClassTally; WorkloadClass::ALL.len()],
    /// What was metered.
    pub metered: Metered,
    /// Slots of both boundaries, over all domains, and the limits of their gates.
    pub slots: [u64; 2],
    /// See [`Window::slots`].
    pub limits: [u64; 2],
    /// Servers of each dependency, over all domains.
    pub servers: [u64; Dependency::ALL.len()],
    /// Processors, over all domains; zero where there are as many as are needed.
    pub processors: u64,
    /// Operations that had not ended when nobody watched any more.
    pub in_flight: u64,
    /// Operations of the whole run, warm-up included.
    pub requests: u64,
    /// Second by second; of merged windows, the first one's.
    pub timeline: Vec<Second>,
    /// Share of the operations that each domain was offered.
    pub domain_shares: Vec<f64>,
}

impl Window {
    /// Both windows as one.
    pub fn merge(&mut self, other: &Self) {
        self.seconds += other.seconds;
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            class.merge(more);
        }
        self.metered.merge(&other.metered);
        self.in_flight += other.in_flight;
        self.requests += other.requests;
    }

    /// All classes as one.
    pub fn all(&self) -> ClassTally {
        let mut all = ClassTally::default();
        for class in &self.classes {
            all.merge(class);
        }
        all
    }

    /// Mean share of a boundary's slots in use.
    pub fn occupancy(&self, boundary: Boundary) -> f64 {
        let at = boundary.index();
        share(self.metered.held[at], u128::from(self.slots[at]) * nanos(self.seconds))
    }

    /// Mean share of what its gate admits.
    pub fn admitted_occupancy(&self, boundary: Boundary) -> f64 {
        let at = boundary.index();
        share(self.metered.held[at], u128::from(self.limits[at]) * nanos(self.seconds))
    }

    /// Mean share of a dependency's servers in use.
    pub fn utilisation(&self, dependency: Dependency) -> f64 {
        let at = dependency.index();
        share(self.metered.served[at], u128::from(self.servers[at]) * nanos(self.seconds))
    }

    /// Mean share of the hosts' CPU in use; `None` where hosts have as much as they need.
    pub fn cpu(&self) -> Option<f64> {
        (self.processors > 0)
            .then(|| share(self.metered.cpu, u128::from(self.processors) * nanos(self.seconds)))
    }

    /// 99th percentile of the age at which a slot was got, the worse of the two boundaries.
    pub fn queue_age_p99_ms(&self) -> Option<f64> {
        self.metered.ages.iter().filter_map(|ages| ages.quantile_ms(0.99)).reduce(f64::max)
    }

    /// How long a slot of a boundary was held on average, in milliseconds.
    pub fn held_ms(&self, boundary: Boundary) -> Option<f64> {
        let at = boundary.index();
        let got = self.metered.ages[at].len();
        (got > 0).then(|| self.metered.held[at] as f64 / got as f64 / 1e6)
    }
}

const fn nanos(seconds: u64) -> u128 {
    seconds as u128 * 1_000_000_000
}

fn share(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Runs the system through the course. `None` when it was asked to stop before the end.
pub fn run(system: &System, course: &Course, seed: u64, progress: &Progress) -> Option<Window> {
    let phases = system.scenario.phases();
    let phase = |at: usize| &phases[at.min(phases.len() - 1)];
    let mut domains: Vec<Domain<'_>> = (0..system.domains)
        .map(|number| Domain::new(system, phase(course.warm_up_phase), seed, number))
        .collect();
    let mut region = Region::of(&mut domains);
    let second = |at: u32| Nanos::from_secs(at.into());
    for at in 1..=course.warm_up_s {
        region.pass(&mut domains, second(at), progress)?;
    }
    for domain in &mut domains {
        domain.begin_window(course.window_s);
        domain.enter_phase(phase(course.phase));
    }
    let mut timeline = Vec::with_capacity(course.window_s as usize);
    let ends = course.warm_up_s.saturating_add(course.window_s);
    for at in course.warm_up_s + 1..=ends {
        timeline.push(region.pass(&mut domains, second(at), progress)?);
    }
    domains.iter_mut().for_each(Domain::end_window);
    // The schedule goes on, uncounted, while the window's last operations end.
    let mut now = second(ends);
    let last = now + WATCH_MAX;
    while now < last && domains.iter().any(|domain| domain.open() > 0) {
        now = now + Nanos::from_secs(1);
        region.pass(&mut domains, now, progress)?;
    }
    Some(collect(system, course, &domains, timeline, region.requests))
}

/// The domains together, second by second.
struct Region {
    meters: Vec<Meters>,
    slots: [u64; 2],
    requests: u64,
}

impl Region {
    fn of(domains: &mut [Domain<'_>]) -> Self {
        let slots = domains.iter().fold([0, 0], |[endpoint, profile], domain| {
            [endpoint + u64::from(domain.endpoint.slots), profile + u64::from(domain.profile.slots)]
        });
        let meters = domains.iter_mut().map(Domain::meters).collect();
        Self { meters, slots, requests: 0 }
    }

    fn pass(&mut self, domains: &mut [Domain<'_>], until: Nanos, progress: &Progress) -> Option<Second> {
        if progress.stop.load(Ordering::Relaxed) {
            return None;
        }
        let mut second = Second::default();
        let mut ages = [Spread::coarse(), Spread::coarse()];
        let mut held = [0_u64; 2];
        let mut requests = 0;
        for (domain, before) in domains.iter_mut().zip(&mut self.meters) {
            domain.run_until(until);
            let meters = domain.meters();
            for (sum, (now, then)) in held.iter_mut().zip(meters.held.iter().zip(before.held)) {
                *sum += now - then;
            }
            let profile = Dependency::Profile.index();
            second.profile_calls += meters.calls[profile] - before.calls[profile];
            requests += domain.arrived_since();
            for (sum, boundary) in ages.iter_mut().zip([&mut domain.endpoint, &mut domain.profile]) {
                sum.merge(&boundary.ages_now);
                boundary.ages_now.clear();
            }
            *before = meters;
        }
        second.queue_age_ms = ages.iter().filter_map(|ages| ages.quantile_ms(0.99)).reduce(f64::max);
        second.occupancy =
            std::array::from_fn(|at| share(held[at].into(), u128::from(self.slots[at]) * nanos(1)));
        self.requests += requests;
        progress.requests.fetch_add(requests, Ordering::Relaxed);
        progress.seconds.fetch_add(1, Ordering::Relaxed);
        Some(second)
    }
}

fn collect(
    system: &System,
    course: &Course,
    domains: &[Domain<'_>],
    mut timeline: Vec<Second>,
    requests: u64,
) -> Window {
    let mut window = Window { seconds: course.window_s.into(), requests, ..Window::default() };
    let mut seconds = vec![SecondTally::default(); timeline.len()];
    let mut offered = Vec::with_capacity(domains.len());
    for domain in domains {
        let account = &domain.account;
        for (class, more) in window.classes.iter_mut().zip(&account.classes) {
            class.merge(more);
        }
        window.metered.merge(&account.metered);
        window.in_flight += account.open();
        for (sum, more) in seconds.iter_mut().zip(&account.seconds) {
            *sum += *more;
        }
        offered.push(account.classes.iter().map(|class| class.offered).sum::<u64>());
        for (at, boundary) in [&domain.endpoint, &domain.profile].into_iter().enumerate() {
            window.slots[at] += u64::from(boundary.slots);
            window.limits[at] += u64::from(boundary.limit);
        }
    }
    for (point, tally) in timeline.iter_mut().zip(&seconds) {
        point.offered = tally.offered.into();
        point.good = tally.good.into();
        point.departed = tally.departed.into();
        point.degraded = tally.degraded.into();
    }
    let phases = system.scenario.phases();
    let phase = &phases[course.phase.min(phases.len() - 1)];
    for name in Dependency::ALL {
        let servers = u64::from(phase.dependency(name).capacity.servers);
        window.servers[name.index()] = servers * u64::from(system.domains);
    }
    let processors = system.processors().map_or(0, |capacity| u64::from(capacity.servers));
    window.processors = processors * u64::from(system.domains);
    let whole: u64 = offered.iter().sum();
    window.domain_shares = offered.iter().map(|part| share((*part).into(), whole.into())).collect();
    window.timeline = timeline;
    window
}
