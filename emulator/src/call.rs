//! Call: the life of one call to an emulated dependency. A fault may strike, a server must be free, service takes its
//! drawn time; whatever happens, the journal and the counters learn of it once.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use base::{
    Clock, Deadline, Dependency, Nanos, WorkloadClass, World, context::BUDGET_TRAIL_HOPS_MAX, headers,
};
use model::{
    draw::{CallDraw, Draws, Purpose},
    fault::FaultEffect,
    scenario::Scenario,
};
use serve::Arrival;
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};
use wire::emulator::v1::{JournalEntry, Timing};

use crate::{
    dataset::DataSet,
    injected::Injected,
    journal::Journal,
    metrics::{Counts, Metrics},
    pool::{Entry, Pool},
    rules::{Applied, Rules},
    timer::Alarms,
};

/// Longest operation id that is journalled; a longer one is cut.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// What all calls share.
pub(crate) struct Core {
    pub(crate) data: DataSet,
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timer: Alarms,
    pub(crate) rules: Rules,
    pub(crate) journal: Journal,
    pub(crate) metrics: Metrics,
    pub(crate) pools: [Arc<Pool>; Dependency::ALL.len()],
    phase: AtomicUsize,
    sequence: AtomicU64,
    draws: Draws,
}

/// What a handler knows of a call once it was served.
pub(crate) struct Served {
    pub(crate) timing: Timing,
    /// Uniform bits for what varies in the answer from call to call.
    pub(crate) payload: u64,
}

impl Core {
    pub(crate) fn new(scenario: Scenario, seed: u64, world: &World, timer: Alarms, metrics: Metrics) -> Self {
        let first = &scenario.phases()[0];
        let pools = Dependency::ALL.map(|dependency| Pool::new(first.dependency(dependency).capacity));
        let core = Self {
            data: DataSet::new(seed),
            draws: Draws::new(seed, scenario.version),
            scenario,
            seed,
            clock: Arc::clone(&world.clock),
            timer,
            rules: Rules::new(),
            journal: Journal::default(),
            metrics,
            pools,
            phase: AtomicUsize::new(0),
            sequence: AtomicU64::new(0),
        };
        core.enter_phase(0);
        core
    }

    pub(crate) fn pool(&self, dependency: Dependency) -> &Arc<Pool> {
        &self.pools[dependency.index()]
    }

    pub(crate) fn phase_name(&self) -> &str {
        &self.scenario.phases()[self.phase.load(Ordering::Relaxed)].name
    }

    /// Switches latency, capacity and scheduled faults to a phase.
    pub(crate) fn enter_phase(&self, index: usize) {
        self.phase.store(index, Ordering::Relaxed);
        let phase = &self.scenario.phases()[index];
        for dependency in Dependency::ALL {
            self.pool(dependency).set_capacity(phase.dependency(dependency).capacity);
        }
        let faults = self.scenario.faults.iter().filter(|fault| fault.phase == index);
        self.rules.schedule(faults.map(|fault| (fault.after, fault.rule)), self.clock.now());
    }

    /// Clears faults, journal and counters, and returns to the first phase.
    pub(crate) fn reset(&self) {
        self.rules.clear(0);
        self.enter_phase(0);
        self.journal.clear();
        self.metrics.reset();
        self.timer.reset_lateness();
        self.pools.iter().for_each(|pool| pool.reset_peak());
    }

    /// Serves a call, then lets `answer` make its message. `key` names what the call is about. Dropping the future ends
    /// the work at once, wherever it is.
    pub(crate) async fn serve<Q, T>(
        self: &Arc<Self>,
        dependency: Dependency,
        operation: &'static str,
        key: u64,
        request: &Request<Q>,
        answer: impl FnOnce(Served) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let caller = Caller::read(request);
        let draw = self.draws.call(dependency, operation, key, &caller.request_id, caller.attempt);
        let mut account =
            Account::open(Arc::clone(self), dependency, caller, request.extensions().get::<Arrival>());
        let now = account.arrived;
        let fault = self.rules.find(dependency, account.class, draw, now);
        if let Some(Applied { effect, .. }) = fault {
            account.entry.fault = effect.as_str().to_owned();
        }
        if matches!(fault, Some(Applied { effect: FaultEffect::Refuse, .. })) {
            account.finish("refused");
            return Err(Status::unavailable("injected: refused"));
        }
        let server = match self.pool(dependency).enter() {
            Entry::Served(permit) => permit,
            Entry::Queued(waiting) => waiting.await,
            Entry::Refused => {
                account.finish("overload");
                return Err(Status::resource_exhausted("the dependency's queue is full"));
            }
        };
        let started = self.clock.now();
        account.entry.queue_wait_us = started.saturating_sub(now).as_micros();
        account.serving_since = Some(started);
        let fault = self.hang(fault).await;
        let latency =
            &self.scenario.phases()[self.phase.load(Ordering::Relaxed)].dependency(dependency).latency;
        let mut service = latency.draw(draw, account.class);
        if let Some(Applied { effect: FaultEffect::Delay(delay), .. }) = fault {
            service = service + delay;
        }
        self.timer.until(self.clock.now() + service).await;
        drop(server);
        self.finish(account, fault, draw, answer)
    }

    /// A hanging call waits until its rule is cleared or has ended, and is then served like any other.
    async fn hang(&self, fault: Option<Applied>) -> Option<Applied> {
        let Some(Applied { id, effect: FaultEffect::Hang, until }) = fault else { return fault };
        tokio::select! {
            biased; // Either ends it.
            () = self.rules.cleared(id) => {}
            () = self.timer.until(until), if until < Nanos::MAX => {}
        }
        None
    }

    fn finish<T>(
        &self,
        mut account: Account,
        fault: Option<Applied>,
        draw: CallDraw,
        answer: impl FnOnce(Served) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        account.note_service();
        let timing = Timing {
            queue_wait_us: u32::try_from(account.entry.queue_wait_us).unwrap_or(u32::MAX),
            service_us: u32::try_from(account.entry.service_us).unwrap_or(u32::MAX),
        };
        if let Some(Applied { effect: FaultEffect::Status(code), .. }) = fault {
            account.finish("fault");
            return Err(Status::new(Code::from_i32(i32::from(code)), "injected: status"));
        }
        let message = match answer(Served { timing, payload: draw.bits(Purpose::Payload) }) {
            Ok(message) => message,
            Err(status) => {
                account.finish("not_found");
                return Err(status);
            }
        };
        let mut response = Response::new(message);
        match fault.map(|fault| fault.effect) {
            Some(FaultEffect::Reset) => {
                response.extensions_mut().insert(Injected::Reset);
                account.finish("fault");
            }
            Some(FaultEffect::SlowBody(wait)) => {
                let until = self.clock.now() + wait;
                let account = Arc::new(Mutex::new(Some(account)));
                response.extensions_mut().insert(Injected::Slow { until, account });
            }
            Some(FaultEffect::Delay(_)) => account.finish("fault"),
            _ => account.finish("ok"),
        }
        Ok(response)
    }
}

/// What the caller said about itself. A caller that says nothing is served all the same.
struct Caller {
    request_id: String,
    attempt: u32,
    class: WorkloadClass,
    trail: Vec<u64>,
}

impl Caller {
    fn read<Q>(request: &Request<Q>) -> Self {
        let metadata = request.metadata();
        let mut request_id = text(metadata, headers::REQUEST_ID).to_owned();
        request_id.truncate(REQUEST_ID_BYTES_MAX); // ASCII, so any byte is a boundary.
        let trail = text(metadata, headers::BUDGET_TRAIL).split(',');
        Self {
            request_id,
            attempt: text(metadata, headers::ATTEMPT).parse().unwrap_or(1),
            class: WorkloadClass::parse(text(metadata, headers::CLASS)).unwrap_or(WorkloadClass::Standard),
            trail: trail.filter_map(|part| part.parse().ok()).take(BUDGET_TRAIL_HOPS_MAX).collect(),
        }
    }
}

fn text<'m>(metadata: &'m MetadataMap, name: &str) -> &'m str {
    metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The books of one call: settled once, by its end or by its drop.
pub(crate) struct Account {
    core: Arc<Core>,
    dependency: Dependency,
    class: WorkloadClass,
    arrived: Nanos,
    deadline: Option<Deadline>,
    serving_since: Option<Nanos>,
    entry: JournalEntry,
    settled: bool,
}

impl Account {
    fn open(core: Arc<Core>, dependency: Dependency, caller: Caller, arrival: Option<&Arrival>) -> Self {
        core.metrics.counts(dependency).calls.inc();
        let arrived = arrival.map_or_else(|| core.clock.now(), |arrival| arrival.at);
        let deadline = arrival.map(|arrival| arrival.deadline);
        let entry = JournalEntry {
            sequence: core.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            dependency: dependency.as_str().to_owned(),
            request_id: caller.request_id,
            attempt: caller.attempt,
            workload_class: caller.class.as_str().to_owned(),
            budget_us: deadline.map(|deadline| deadline.remaining(arrived).as_micros()),
            budget_trail_us: caller.trail,
            arrived_monotonic_us: arrived.as_micros(),
            ..JournalEntry::default()
        };
        let class = caller.class;
        Self { core, dependency, class, arrived, deadline, serving_since: None, entry, settled: false }
    }

    fn note_service(&mut self) {
        if let Some(since) = self.serving_since {
            self.entry.service_us = self.core.clock.now().saturating_sub(since).as_micros();
        }
    }

    /// Settles the call with an outcome.
    pub(crate) fn finish(mut self, outcome: &'static str) {
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: &'static str) {
        self.settled = true;
        let counts: &Counts = self.core.metrics.counts(self.dependency);
        counts.outcome(outcome).inc();
        let now = self.core.clock.now();
        let mut entry = std::mem::take(&mut self.entry);
        entry.outcome = outcome.to_owned();
        entry.late_us =
            self.deadline.map_or(0, |deadline| now.saturating_sub(deadline.instant()).as_micros());
        self.core.journal.record(entry);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        // The future was dropped: the deadline ended it, or the caller left.
        self.note_service();
        let expired = self.deadline.is_some_and(|deadline| deadline.expired(self.core.clock.now()));
        self.settle(if expired { "deadline" } else { "cancelled" });
    }
}
