//! Testing: what the tests move by hand: a clock, a small scenario whose service times are exact, and calls that are polled
//! when they were woken and only then, so that a wake-up that got lost shows.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use base::{Clock, Deadline, Dependency, Nanos, WorkloadClass};
use http::Extensions;
use model::{
    draw::Share,
    fault::{FaultEffect, FaultRule},
    scenario::Scenario,
};
use tonic::{Code, Response, Status, metadata::MetadataMap};
use wire::emulator::v1::Timing;

use crate::{
    books::{Counts, Wanted},
    caller::Caller,
    engine::{Engine, Subject},
    pool::Load,
    timer::Alarms,
};

/// A millisecond.
pub(crate) const MS: Nanos = Nanos::from_millis(1);
/// What the clock of a rig shows at first.
pub(crate) const START: Nanos = Nanos::from_secs(1_000);
/// Seed of a rig.
pub(crate) const SEED: u64 = 42;
/// How long every dependency serves in the first phase of a rig.
pub(crate) const SERVICE: Nanos = ms(20);

/// Milliseconds.
pub(crate) const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// A clock that stands still until it is moved.
#[derive(Default)]
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(crate) fn at(start: Nanos) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(start.get())))
    }

    pub(crate) fn advance(&self, span: Nanos) {
        self.0.fetch_add(span.get(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

/// Counts its wakes.
#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    pub(crate) fn rang(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A future that is polled by hand.
pub(crate) struct ByHand<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    /// Wakes that have been answered by a poll.
    answered: Option<usize>,
}

impl<F: Future> ByHand<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Box::pin(future), bell: Arc::default(), answered: None }
    }

    /// Polls, if this is the first time or the future was woken since; the result once it is there.
    pub(crate) fn look(&mut self) -> Option<F::Output> {
        let rang = self.bell.rang();
        if self.answered.replace(rang) == Some(rang) {
            return None;
        }
        let waker = Waker::from(Arc::clone(&self.bell));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}

/// Two servers and a queue of two for each dependency. Every service takes 20 ms, half as much again for enterprise. In
/// the slowdown profile takes 50 ms, pricing has one server, and inventory refuses from 10 ms on, for 30 ms.
const SCENARIO: &str = r#"
name = "by-hand"
version = 1

[domain]
region_requests_per_s = 100
admission_domains = 1
class_shares = { standard = 0.72, premium = 0.23, enterprise = 0.05 }
DEPENDENCIES
[[phases]]
name = "peak"

[[phases]]
name = "slowdown"

[phases.dependencies.profile]
body_median_us = 50000

[phases.dependencies.pricing]
servers = 1

[[phases]]
name = "recovery"

[[faults]]
phase = "slowdown"
after_ms = 10
duration_ms = 30
dependency = "inventory"
share = 1.0
effect = "refuse"
"#;

const DEPENDENCY: &str = r"
body_median_us = 20000
body_sigma = 0.0
slow_probability = 0.0
slow_median_us = 1
slow_sigma = 0.0
servers = 2
queue_max = 2
class_factors = { enterprise = 1.5 }
";

/// A call as a rig makes it. The message is its timing.
pub(crate) type Answer = Result<Response<Timing>, Status>;

/// A boxed future, so that calls of all kinds can be kept together.
pub(crate) type Call = ByHand<Pin<Box<dyn Future<Output = Answer>>>>;

/// An engine and its clock.
pub(crate) struct Rig {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Arc<Engine>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let dependencies =
            Dependency::ALL.map(|name| format!("\n[dependencies.{name}]{DEPENDENCY}")).concat();
        let text = SCENARIO.replace("DEPENDENCIES", &dependencies);
        let scenario = Scenario::parse("by-hand.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
        let clock = ManualClock::at(START);
        let engine = Engine::new(scenario, SEED, clock.clone(), Alarms::manual(clock.clone()));
        Self { clock, engine: Arc::new(engine) }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Moves the clock and wakes whoever is due.
    pub(crate) fn advance(&self, span: Nanos) {
        self.clock.advance(span);
        self.engine.alarms.fire();
    }

    /// A standard caller without a deadline, arriving now.
    pub(crate) fn caller(&self, request_id: &str) -> Caller {
        let caller = Caller::read(&MetadataMap::new(), &Extensions::new(), self.clock.now());
        Caller { request_id: request_id.into(), ..caller }
    }

    /// One that grants so much time.
    pub(crate) fn bounded(&self, request_id: &str, budget: Nanos) -> Caller {
        let deadline = Deadline::after(self.clock.now(), budget);
        Caller { deadline, sent_deadline: true, ..self.caller(request_id) }
    }

    /// Begins a call, as far as it goes without waiting.
    pub(crate) fn begin(&self, dependency: Dependency, caller: Caller) -> Call {
        let mut call = self.prepare(dependency, caller, true);
        assert!(call.look().is_none(), "a call that ends at once is made with `at_once`");
        call
    }

    /// A call that ends without waiting.
    pub(crate) fn at_once(&self, dependency: Dependency, caller: Caller) -> Answer {
        self.prepare(dependency, caller, true).look().expect("ends at once")
    }

    /// A call that has not begun. `known`: whether the data set has what it asks for.
    pub(crate) fn prepare(&self, dependency: Dependency, caller: Caller, known: bool) -> Call {
        let engine = Arc::clone(&self.engine);
        let subject = Subject { dependency, operation: "Fetch", key: 7 };
        let answer =
            async move { engine.serve(subject, caller, |_, _, timing| known.then_some(timing)).await };
        ByHand::new(Box::pin(answer))
    }

    /// Injects a rule for every call to a dependency and returns its id.
    pub(crate) fn inject(&self, dependency: Dependency, effect: FaultEffect) -> u64 {
        self.inject_rule(FaultRule { dependency, class: None, share: Share::ALL, duration: None, effect })
    }

    pub(crate) fn inject_rule(&self, rule: FaultRule) -> u64 {
        self.engine.faults().inject(rule, self.clock.now()).expect("room")
    }

    pub(crate) fn load(&self, dependency: Dependency) -> Load {
        self.engine.pool(dependency).load()
    }

    /// In service and waiting.
    pub(crate) fn busy(&self, dependency: Dependency) -> (u32, u32) {
        let load = self.load(dependency);
        (load.in_service, load.queued)
    }

    pub(crate) fn counts(&self, dependency: Dependency) -> Counts {
        self.engine.books().counts(dependency)
    }

    /// The one journal entry of a request id.
    pub(crate) fn entry(&self, request_id: &str) -> Told {
        let books = self.engine.books();
        let (entries, _) = books.journal(2, &Wanted::of(request_id));
        let [entry] = entries[..] else { panic!("expected one entry of {request_id}: {entries:?}") };
        Told {
            outcome: entry.outcome.as_str(),
            fault: entry.fault,
            queue_wait_us: entry.queue_wait.get(),
            service_us: entry.service.get(),
            late_us: entry.late.get(),
        }
    }

    /// Whether a request id has no entry, since its call goes on.
    pub(crate) fn is_open(&self, request_id: &str) -> bool {
        self.engine.books().journal(1, &Wanted::of(request_id)).0.is_empty()
    }

    /// Nothing is held: no server, no place, no sleeper, and every call that arrived is accounted for.
    pub(crate) fn assert_idle(&self) {
        for dependency in Dependency::ALL {
            assert_eq!(self.busy(dependency), (0, 0), "{dependency}");
            let counts = self.counts(dependency);
            assert_eq!(counts.calls, counts.ended.iter().sum::<u64>(), "{dependency}: {counts:?}");
        }
        assert_eq!(self.engine.alarms.waiting(), 0, "sleepers");
    }
}

/// What the journal tells of how a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) outcome: &'static str,
    pub(crate) fault: &'static str,
    pub(crate) queue_wait_us: u32,
    pub(crate) service_us: u32,
    pub(crate) late_us: u32,
}

impl Told {
    /// A call that ended so after a wait and a service of so many milliseconds, in time and without a fault.
    pub(crate) const fn new(outcome: &'static str, queue_wait_ms: u32, service_ms: u32) -> Self {
        let (queue_wait_us, service_us) = (queue_wait_ms * 1_000, service_ms * 1_000);
        Self { outcome, fault: "", queue_wait_us, service_us, late_us: 0 }
    }

    /// The same with a fault.
    pub(crate) const fn by(self, fault: &'static str) -> Self {
        Self { fault, ..self }
    }
}

/// The code of an answer.
pub(crate) fn code(answer: &Answer) -> Code {
    answer.as_ref().map_or_else(Status::code, |_| Code::Ok)
}

/// A rule for a class and a share.
pub(crate) const fn rule(
    dependency: Dependency,
    class: Option<WorkloadClass>,
    share: Share,
    effect: FaultEffect,
) -> FaultRule {
    FaultRule { dependency, class, share, duration: None, effect }
}
