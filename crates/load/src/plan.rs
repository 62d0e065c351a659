//! Plan: what a run is asked to do.

use std::{fmt, path::PathBuf, sync::Arc};

use base::{Nanos, Origin};
use model::{
    Scale,
    workload::{Arrivals, Offered, PERCENT, Piece, Workload},
};

use crate::{Observe, connection::CONNECTIONS_MAX, schedule::Course};

/// Default bound on operations in flight.
pub const IN_FLIGHT_MAX: usize = 4_096;
/// Most stages of a plan.
pub const STAGES_MAX: usize = 64;
/// Longest plan, in model time; a timeline keeps one entry a second.
pub const DURATION_MAX: Nanos = Nanos::from_secs(24 * 3_600);
/// Strongest slow motion.
pub const DILATE_MAX: u32 = 1_000;
/// Most operations in flight that a plan may allow.
const IN_FLIGHT_LIMIT: usize = 1 << 20;
/// Highest rate of a stage, in percent of the plan's.
pub const RATE_PERCENT_MAX: u32 = 1_000;
/// Longest prefix, so that prefix and number fit the 64 bytes of a request id.
const PREFIX_BYTES_MAX: usize = 40;
/// Most targets of a plan.
pub const TARGETS_MAX: usize = 16;
/// Most attempts at one operation.
const ATTEMPTS_LIMIT: u32 = 64;

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePlan {
    /// Its name in the report.
    pub name: String,
    /// Its length in model time.
    pub duration: Nanos,
    /// Whether its latencies count. Warm-up is not measured, and is balanced all the same.
    pub measured: bool,
    /// Its rate, in percent of the plan's.
    pub rate_percent: u32,
}

impl StagePlan {
    /// A stage that is not measured.
    pub fn warm_up(name: impl Into<String>, duration: Nanos) -> Self {
        Self { name: name.into(), duration, measured: false, rate_percent: PERCENT }
    }

    /// A measured stage.
    pub fn measured(name: impl Into<String>, duration: Nanos) -> Self {
        Self { name: name.into(), duration, measured: true, rate_percent: PERCENT }
    }

    /// The stage at another rate, in percent of the plan's.
    pub fn at_percent(self, rate_percent: u32) -> Self {
        Self { rate_percent, ..self }
    }
}

/// How much of the declared workload is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// A mean rate in requests per second of model time; waves, classes and keys stay as declared.
    PerSecond(f64),
    /// A smaller system: rates and key space times this fraction.
    Scale(Scale),
}

/// Callers that settle every operation: they try again until they know what became of it, with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Most attempts at one operation, the first included.
    pub attempts_max: u32,
    /// Mean wait before the second attempt, in model time; it doubles from attempt to attempt and is drawn between half
    /// and one and a half of its mean.
    pub backoff: Nanos,
    /// Longest mean wait.
    pub backoff_max: Nanos,
    /// What each operation adds to the retries that all callers share, in percent of one.
    pub budget_percent: u32,
    /// Most retries that they may have saved up.
    pub budget_max: u32,
}

/// A run. Times are model time: with `dilate` they take that many times as long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Host and port of the home API.
    pub target: String,
    /// Further ones. Operations begin at each in turn, and every further attempt goes to the next.
    pub others: Vec<String>,
    /// How callers retry; `None` is as the workload declares.
    pub settle: Option<Settle>,
    /// Where the record of every operation is written ([`crate::record`]); `None` keeps none.
    pub record: Option<PathBuf>,
    /// What arrives.
    pub workload: Workload,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How much of it.
    pub rate: Rate,
    /// Slow motion; 1 is none.
    pub dilate: u32,
    /// The stages, in order.
    pub stages: Vec<StagePlan>,
    /// Operations in flight beyond which an arrival is unsent.
    pub in_flight_max: usize,
    /// Connections to the target.
    pub connections: usize,
    /// Timeout of every operation, sent as `grpc-timeout`; `None` leaves it to the service's default.
    pub timeout: Option<Nanos>,
    /// The objective that goodput refers to.
    pub objective: Nanos,
    /// Origin that the requests declare.
    pub origin: Origin,
    /// Begins every request id, which ends with the number of the operation. Emulated draws are keyed by the id, so
    /// runs that are to be compared share it, and runs that are not to replay each other's exposures do not.
    pub id_prefix: String,
    /// How long the end of the schedule waits for operations in flight.
    pub drain: Nanos,
    /// Who looks at every answer. Answers to one identity are not compared with each other then: what is right may change
    /// during the run, and whoever looks may know how.
    pub observer: Option<Arc<dyn Observe>>,
}

impl Plan {
    /// A plan with the defaults: one measured stage, no timeout, declared load test, `load` as prefix.
    pub fn new(target: impl Into<String>, workload: Workload, rate: Rate, duration: Nanos) -> Self {
        Self {
            target: target.into(),
            others: Vec::new(),
            settle: None,
            record: None,
            workload,
            seed: 1,
            rate,
            dilate: 1,
            stages: vec![StagePlan::measured("measured", duration)],
            in_flight_max: IN_FLIGHT_MAX,
            connections: 2,
            timeout: None,
            objective: Nanos::from_millis(300),
            origin: Origin::LoadTest,
            id_prefix: "load".to_owned(),
            drain: Nanos::from_secs(5),
            observer: None,
        }
    }

    /// Checks everything that can be known before the target is asked.
    ///
    /// # Errors
    /// [`LoadError::Plan`] with every fault, one a line.
    pub fn check(&self) -> Result<(), LoadError> {
        let mut faults = Vec::new();
        let mut check = |sound: bool, fault: &str| {
            if !sound {
                faults.push(fault.to_owned());
            }
        };
        let total = self.stages.iter().fold(Nanos::ZERO, |sum, stage| sum + stage.duration);
        check(!self.stages.is_empty() && self.stages.len() <= STAGES_MAX, "stages: expected 1 to 64");
        check(self.stages.iter().any(|stage| stage.measured), "stages: none is measured");
        check(
            self.stages.iter().all(|stage| stage.duration >= Nanos::from_millis(1)),
            "stages: each lasts at least 1 ms",
        );
        check(
            self.stages.iter().all(|stage| (1..=RATE_PERCENT_MAX).contains(&stage.rate_percent)),
            "stages: the rate of each is 1 to 1000 percent of the plan's",
        );
        check(total <= DURATION_MAX, "stages: the whole run lasts at most 24 h");
        check((1..=DILATE_MAX).contains(&self.dilate), "dilate: expected 1 to 1000");
        check((1..=CONNECTIONS_MAX).contains(&self.connections), "connections: expected 1 to 16");
        check((1..=IN_FLIGHT_LIMIT).contains(&self.in_flight_max), "in_flight_max: expected 1 to 1048576");
        check(self.timeout.is_none_or(|timeout| !timeout.is_zero()), "timeout: must not be zero");
        check(!self.objective.is_zero(), "objective: must not be zero");
        check(
            self.id_prefix.len() <= PREFIX_BYTES_MAX && base::RequestId::parse(&self.id_prefix).is_ok(),
            "id_prefix: expected 1 to 40 characters that a request id may have",
        );
        check(self.others.len() < TARGETS_MAX, "targets: expected 1 to 16");
        check(
            self.settle.is_none_or(|settle| (1..=ATTEMPTS_LIMIT).contains(&settle.attempts_max)),
            "settle: expected 1 to 64 attempts",
        );
        if let Rate::PerSecond(rate) = self.rate {
            // NaN is in no range.
            check((0.001..=1e6).contains(&rate), "rate: expected 0.001 to 1000000 requests a second");
        }
        if faults.is_empty() { Ok(()) } else { Err(LoadError::Plan(faults.join("\n"))) }
    }

    /// All targets, in order.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.target).chain(&self.others).map(String::as_str)
    }

    /// The mean rate at 100 percent, in requests per second of model time.
    pub fn declared_per_s(&self) -> f64 {
        self.offered().requests_per_s
    }

    /// How much of the workload is offered, at 100 percent.
    pub(crate) fn offered(&self) -> Offered {
        match self.rate {
            Rate::PerSecond(rate) => self.workload.at_rate(rate),
            Rate::Scale(scale) => self.workload.at_scale(scale),
        }
    }

    /// The schedule, each stage at its rate.
    pub(crate) fn arrivals(&self) -> Arrivals {
        let course = self.course(Nanos::ZERO);
        let stages = self.stages.iter().zip(course.ends);
        let pieces = stages.map(|(stage, until)| Piece { until, rate_percent: stage.rate_percent });
        self.workload.arrivals_by(self.seed, self.offered(), &pieces.collect::<Vec<_>>())
    }

    /// The course of the run, beginning at a wall instant.
    pub(crate) fn course(&self, start: Nanos) -> Course {
        let mut end = Nanos::ZERO;
        let ends = self.stages.iter().map(|stage| {
            end = end + stage.duration;
            end
        });
        Course { start, dilate: self.dilate, ends: ends.collect() }
    }
}

/// Why a run could not be made.
#[derive(Debug)]
pub enum LoadError {
    /// The plan is impossible; a mistake of use.
    Plan(String),
    /// The target could not be reached when the run began.
    Connect {
        /// Host and port.
        target: String,
        /// What went wrong.
        reason: String,
    },
    /// The record could not be written.
    Record {
        /// Where.
        path: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
    /// A thread or its runtime could not be started.
    Thread(std::io::Error),
    /// A thread of the generator ended in a panic; its name.
    Panicked(&'static str),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(faults) => f.write_str(faults),
            Self::Connect { target, reason } => write!(f, "cannot connect to {target}: {reason}"),
            Self::Record { path, error } => write!(f, "cannot write the record {}: {error}", path.display()),
            Self::Thread(error) => write!(f, "cannot start a thread of the generator: {error}"),
            Self::Panicked(thread) => write!(f, "the generator's thread {thread} panicked"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) | Self::Record { error, .. } => Some(error),
            Self::Plan(_) | Self::Connect { .. } | Self::Panicked(_) => None,
        }
    }
}
