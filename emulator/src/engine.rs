//! Engine: what every emulated call goes through, whatever it asks for: fault, queue, service, answer; and the account of
//! it, which is settled on every path.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use base::{Clock, Deadline, Dependency, Nanos, Phase, Reason, Refusal};
use model::{
    draw::{CallDraw, Draws},
    fault::FaultEffect,
    scenario::{self, Scenario},
};
use tonic::{Code, Response, Status};
use wire::emulator::v1::Timing;

use crate::{
    body::{Injected, Note},
    books::{Books, Entry, Opened, Outcome},
    caller::Caller,
    dataset::DataSet,
    faults::{Faults, Hit},
    pool::{self, Permit, Pool},
    revocations::Revocations,
    timer::Alarms,
};

/// Suggested to a caller that met a full queue: about one service time.
const OVERLOAD_RETRY_AFTER: Nanos = Nanos::from_millis(50);

/// The emulated dependencies. Shared behind an `Arc`.
pub(crate) struct Engine {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) alarms: Alarms,
    pub(crate) data: DataSet,
    pub(crate) revocations: Revocations,
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
    draws: Draws,
    pools: [Arc<Pool>; 7],
    /// Position of the current phase.
    phase: AtomicUsize,
    faults: Mutex<Faults>,
    books: Arc<Mutex<Books>>,
}

/// What a call is about: its place in the draws.
pub(crate) struct Subject {
    pub(crate) dependency: Dependency,
    pub(crate) operation: &'static str,
    pub(crate) key: u64,
}

impl Engine {
    /// Starts in the first phase of `scenario`, whose capacities are taken as they are.
    pub(crate) fn new(scenario: Scenario, seed: u64, clock: Arc<dyn Clock>, alarms: Alarms) -> Self {
        let first = &scenario.phases()[0];
        let pools = Dependency::ALL.map(|dependency| Pool::new(first.dependency(dependency).capacity));
        let mut faults = Faults::default();
        faults.enter_phase(&scenario.faults, 0, clock.now());
        Self {
            draws: Draws::new(seed, scenario.version),
            data: DataSet::new(seed),
            revocations: Revocations::default(),
            seed,
            pools,
            phase: AtomicUsize::new(0),
            faults: Mutex::new(faults),
            books: Arc::default(),
            scenario,
            clock,
            alarms,
        }
    }

    /// The faults in force.
    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters and journal.
    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The capacity of a dependency.
    pub(crate) const fn pool(&self, dependency: Dependency) -> &Arc<Pool> {
        &self.pools[dependency.index()]
    }

    /// The current phase.
    pub(crate) fn phase(&self) -> &scenario::Phase {
        &self.scenario.phases()[self.phase.load(Ordering::Relaxed)]
    }

    /// Switches to the phase of that name and returns the one before; `None` when there is none of that name. Calls in
    /// service keep the time they drew. Capacities follow where the two phases declare different ones; a capacity that
    /// was changed live stays otherwise.
    pub(crate) fn set_phase(&self, name: &str) -> Option<&scenario::Phase> {
        let next = self.scenario.phase_index(name)?;
        // Held to the end, so that two changes at once are one after the other.
        let mut faults = self.faults();
        let previous = &self.scenario.phases()[self.phase.swap(next, Ordering::Relaxed)];
        faults.enter_phase(&self.scenario.faults, next, self.clock.now());
        for dependency in Dependency::ALL {
            let declared = self.scenario.phases()[next].dependency(dependency).capacity;
            if declared != previous.dependency(dependency).capacity {
                self.pool(dependency).set_capacity(declared);
            }
        }
        Some(previous)
    }

    /// Undoes revocations and restores feed and copy, clears faults, journal and counters, and returns to the first phase
    /// with its capacities.
    pub(crate) fn reset(&self) {
        let now = self.clock.now();
        // Held to the end, as in a change of phase.
        let mut faults = self.faults();
        self.phase.store(0, Ordering::Relaxed);
        faults.clear(0, now);
        faults.enter_phase(&self.scenario.faults, 0, now);
        for dependency in Dependency::ALL {
            self.pool(dependency).set_capacity(self.phase().dependency(dependency).capacity);
            self.pool(dependency).reset_peak();
        }
        self.revocations.reset();
        self.books().reset();
        self.alarms.reset_lateness();
    }

    /// Serves one call. `answer` makes the message once the service time is over; `None` is NOT_FOUND.
    ///
    /// Dropping the future ends the call at once: its server is free and the account settled.
    pub(crate) async fn serve<T>(
        &self,
        subject: Subject,
        caller: Caller,
        answer: impl FnOnce(&DataSet, CallDraw, Timing) -> Option<T>,
    ) -> Result<Response<T>, Status> {
        let Subject { dependency, operation, key } = subject;
        let (class, deadline) = (caller.class, caller.deadline);
        let call = self.draws.call(dependency, operation, key, &caller.request_id, caller.attempt);
        let mut open = self.open(dependency, caller);
        let hit = self.faults().first(dependency, class, call, self.clock.now());
        let effect = hit.as_ref().map(|hit| hit.effect);
        if effect == Some(FaultEffect::Refuse) {
            open.apply(FaultEffect::Refuse);
            return Err(open.fail(Outcome::Refused, Status::unavailable("refused by an injected fault")));
        }
        let permit = match self.acquire(dependency, &mut open, deadline).await {
            Ok(permit) => permit,
            Err((outcome, refusal)) => return Err(open.fail(outcome, serve::render::status(&refusal))),
        };
        let mut service = self.phase().dependency(dependency).latency.draw(call, class);
        if let Some(effect @ FaultEffect::Delay(delay)) = effect {
            open.apply(effect);
            service = service + delay;
        }
        let begin = open.enter(Stage::InService);
        let finished = match hit {
            Some(hit) if hit.effect == FaultEffect::Hang => {
                open.apply(FaultEffect::Hang);
                self.hang(hit, deadline).await
            }
            _ => self.work(begin + service, deadline).await,
        };
        open.enter(Stage::Outside);
        drop(permit);
        if !finished {
            return Err(open.expire());
        }
        let timing = open.timing();
        let answered = answer(&self.data, call, timing);
        self.conclude(open, effect, answered)
    }

    /// Turns an answer and a fault into what leaves the process.
    fn conclude<T>(
        &self,
        mut open: Open,
        effect: Option<FaultEffect>,
        answered: Option<T>,
    ) -> Result<Response<T>, Status> {
        match effect {
            Some(effect @ FaultEffect::Status(code)) => {
                open.apply(effect);
                let status = Status::new(Code::from_i32(code.into()), "an injected fault");
                return Err(open.fail(Outcome::Fault, status));
            }
            Some(FaultEffect::Hang) => {
                return Err(open.fail(Outcome::Fault, Status::unavailable("an injected hang has ended")));
            }
            _ => {}
        }
        let Some(message) = answered else {
            return Err(open.fail(Outcome::NotFound, Status::not_found("not in the data set")));
        };
        let mut response = Response::new(message);
        match effect {
            Some(FaultEffect::Reset) => {
                open.apply(FaultEffect::Reset);
                response.extensions_mut().insert(Note::new(Injected::Reset));
                open.settle(Outcome::Fault);
            }
            Some(effect @ FaultEffect::SlowBody(span)) => {
                open.apply(effect);
                let end = self.clock.now() + span;
                let hold = self.alarms.until(end.min(open.deadline.instant()));
                response.extensions_mut().insert(Note::new(Injected::Slow(hold, Box::new(open))));
            }
            _ => open.settle(Outcome::Ok),
        }
        Ok(response)
    }

    fn open(&self, dependency: Dependency, caller: Caller) -> Open {
        let opened = self.books().open(dependency);
        Open {
            deadline: caller.deadline,
            entry: Entry::arrived(opened.sequence, dependency, caller),
            opened,
            settled: false,
            stage: Stage::Outside,
            since: Nanos::ZERO,
            clock: Arc::clone(&self.clock),
            books: Arc::clone(&self.books),
        }
    }

    /// Waits for a server, at most until the deadline.
    async fn acquire(
        &self,
        dependency: Dependency,
        open: &mut Open,
        deadline: Deadline,
    ) -> Result<Permit, (Outcome, Refusal)> {
        let permit = match self.pool(dependency).enter() {
            pool::Entry::Served(permit) => Some(permit),
            pool::Entry::Queued(waiting) => {
                open.enter(Stage::Queued);
                tokio::select! {
                    biased; // A server that was granted in the last moment is used.
                    permit = waiting => Some(permit),
                    () = self.alarms.until(deadline.instant()) => None,
                }
            }
            pool::Entry::Refused => {
                let refusal = Refusal::new(Reason::Overload, "the emulated dependency's queue is full");
                return Err((Outcome::Overload, refusal.retry_after(OVERLOAD_RETRY_AFTER)));
            }
        };
        permit.ok_or_else(|| (Outcome::Deadline, Refusal::deadline(Phase::Handler)))
    }

    /// Works until `end`; false when the deadline came first.
    async fn work(&self, end: Nanos, deadline: Deadline) -> bool {
        let in_time = end < deadline.instant();
        self.alarms.until(end.min(deadline.instant())).await;
        in_time
    }

    /// Hangs until the rule ends; false when the deadline came first.
    async fn hang(&self, hit: Hit, deadline: Deadline) -> bool {
        let until = hit.until;
        tokio::select! {
            biased; // A cleared rule ends the call even at its deadline.
            () = hit.cleared() => true,
            () = self.alarms.until(until) => true,
            () = self.alarms.until(deadline.instant()) => false,
        }
    }
}

/// Where a call's time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Outside,
    Queued,
    InService,
}

/// The account of a call that has not ended. Dropped unsettled, the call was cut at its deadline or abandoned.
pub(crate) struct Open {
    entry: Entry,
    opened: Opened,
    deadline: Deadline,
    settled: bool,
    stage: Stage,
    /// When the stage began.
    since: Nanos,
    clock: Arc<dyn Clock>,
    books: Arc<Mutex<Books>>,
}

impl Open {
    /// Charges the time since the last change to the stage that ends, and returns now.
    fn enter(&mut self, next: Stage) -> Nanos {
        let now = self.clock.now();
        let spent = now.saturating_sub(self.since);
        match std::mem::replace(&mut self.stage, next) {
            Stage::Outside => {}
            Stage::Queued => self.entry.queue_wait = spent.into(),
            Stage::InService => self.entry.service = spent.into(),
        }
        self.since = now;
        now
    }

    fn timing(&self) -> Timing {
        Timing { queue_wait_us: self.entry.queue_wait.get(), service_us: self.entry.service.get() }
    }

    /// Notes the fault that takes part in the call from here on.
    fn apply(&mut self, effect: FaultEffect) {
        self.entry.fault = effect.as_str();
    }

    /// Whether the deadline has passed.
    pub(crate) fn expired(&self) -> bool {
        self.deadline.expired(self.clock.now())
    }

    /// Settles the call with its outcome.
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.entry.outcome = outcome;
        self.settled = true;
    }

    /// Settles a call that failed, and passes its status on.
    fn fail(self, outcome: Outcome, status: Status) -> Status {
        self.settle(outcome);
        status
    }

    /// Settles a call whose deadline passed.
    pub(crate) fn expire(self) -> Status {
        self.fail(Outcome::Deadline, serve::render::status(&Refusal::deadline(Phase::Handler)))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let now = self.enter(Stage::Outside);
        if !self.settled && self.deadline.expired(now) {
            self.entry.outcome = Outcome::Deadline;
        }
        self.entry.ended = now;
        self.entry.late = now.saturating_sub(self.deadline.instant()).into();
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        books.close(self.opened, &mut self.entry);
    }
}

#[cfg(test)]
mod tests;
