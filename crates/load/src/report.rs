//! Report: what a run found, as it is written and printed. A figure that was not measured is null.

use std::collections::BTreeMap;

use base::WorkloadClass;
use serde::Serialize;

use crate::{
    check::Violation,
    clock::Priority,
    latency::{Latencies, LatencyMs},
    outcome::Outcome,
    slow::{SlowMs, Slowest},
    tally::{ClassTally, MARKERS, cause},
};

/// Schema of [`Report`].
pub const SCHEMA: &str = "mercury.load/v1";

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Host and port that was driven.
    pub target: String,
    /// Workload and version that the arrivals came from.
    pub workload: String,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Origin that the requests declared.
    pub origin: &'static str,
    /// Mean rate that was asked for, in requests per second of model time.
    pub rate_per_s: f64,
    /// Scale of the system, as a fraction; null when a rate was given instead.
    pub scale: Option<String>,
    /// Slow motion: every duration was multiplied by this and every rate divided; times below are divided back.
    pub dilate: u32,
    /// The objective that goodput refers to, in milliseconds.
    pub objective_ms: f64,
    /// Timeout sent with every request, in milliseconds; null when none was.
    pub timeout_ms: Option<f64>,
    /// How latencies were recorded.
    pub histogram: &'static str,
    /// Whether the generator kept its own promises.
    pub generator: Generator,
    /// All measured stages together.
    pub total: Stage,
    /// Every stage, warm-up included.
    pub stages: Vec<Stage>,
    /// The run by second of intended start, in model time.
    pub timeline: Vec<TimelineSecond>,
    /// The first mismatches, without the values of a customer.
    pub mismatch_samples: Vec<MismatchSample>,
    /// Answers whose stability could not be compared, since too many identities were seen.
    pub identities_untracked: u64,
    /// Whether the run was ended before its time.
    pub stopped_early: bool,
}

/// The generator's account of itself.
#[derive(Clone, Debug, Serialize)]
pub struct Generator {
    /// False when the generator was the bottleneck; nothing else in the report can then be relied on.
    pub valid: bool,
    /// Why it is not valid, observed and bound.
    pub reasons: Vec<String>,
    /// Hand-over to the connection minus intended start, measured stages, in model time like the objective.
    pub clock_error_ms: LatencyMs,
    /// The same as the wall clock saw it.
    pub clock_error_wall_ms: LatencyMs,
    /// Wake-up of the schedule's thread minus intended start, all stages, as the wall clock saw it.
    pub schedule_error_wall_ms: LatencyMs,
    /// CPU time of this process over wall time and cores.
    pub cpu_ratio: Option<f64>,
    /// Cores that this process may use.
    pub cores: usize,
    /// Wall time of the run in seconds.
    pub wall_s: f64,
    /// Share of the measured schedule that was not sent.
    pub unsent_ratio: Option<f64>,
    /// Most operations in flight at once.
    pub in_flight_peak: usize,
    /// The bound on operations in flight.
    pub in_flight_max: usize,
    /// Connections to the target.
    pub connections: usize,
    /// Connections that were lost during the run.
    pub connections_lost: u64,
    /// Priority of the schedule's thread.
    pub schedule_priority: Priority,
    /// Priority of the sending thread.
    pub sender_priority: Priority,
}

/// One stage of a run, or all measured ones together.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Whether its latencies count.
    pub measured: bool,
    /// Its length in seconds of model time.
    pub duration_s: f64,
    /// All classes.
    pub all: Figures,
    /// Each class, by name.
    pub classes: BTreeMap<&'static str, Figures>,
}

/// Counts and ratios of one population. Ratios of an empty population are null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Operations of the schedule.
    pub scheduled: u64,
    /// How those that ended did.
    pub completed: Completed,
    /// Operations that were never sent.
    pub unsent: Unsent,
    /// Sent and not ended when the drain bound was reached.
    pub in_flight: u64,
    /// Whether scheduled = completed + unsent + in flight.
    pub balanced: bool,
    /// Attempts that were sent for the operations that ended; retries are the excess.
    pub attempts: u64,
    /// Correct answers within the objective.
    pub within_objective: u64,
    /// Callers that left before the objective.
    pub departed_before_objective: u64,
    /// Bytes of the messages of correct answers.
    pub bytes: u64,
    /// Latency of correct answers, degraded ones included; empty outside measured stages.
    pub latency_ms: LatencyMs,
    /// Where the slowest of them spent their time.
    pub slow_ms: SlowMs,
    /// Answered correctly within the objective, over offered without those whose caller left before it.
    pub core_goodput_ratio: Option<f64>,
    /// Rejected over offered.
    pub rejection_ratio: Option<f64>,
    /// Correct answers with at least one section omitted, over correct answers.
    pub omission_ratio: Option<f64>,
    /// Omitted sections of correct answers, by section and cause.
    pub omissions: Omissions,
    /// OK answers that were not correct.
    pub core_mismatch: u64,
    /// Failed operations by kind.
    pub failures: BTreeMap<String, u64>,
    /// The observations behind `latency_ms`.
    #[serde(skip)]
    pub latencies: Latencies,
    /// The answers behind `slow_ms`.
    #[serde(skip)]
    pub slowest: Slowest,
}

/// Operations that ended, by outcome.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Completed {
    /// All of them.
    pub total: u64,
    /// Correct and whole.
    pub ok: u64,
    /// Correct, with something optional omitted.
    pub ok_degraded: u64,
    /// Refused for lack of capacity.
    pub rejected: u64,
    /// The deadline passed.
    pub deadline: u64,
    /// Service or mandatory dependency unavailable.
    pub unavailable: u64,
    /// Any other failure.
    pub error_other: u64,
    /// The caller left.
    pub departed: u64,
    /// No answer.
    pub transport: u64,
}

impl Completed {
    /// Correct answers.
    pub const fn correct(&self) -> u64 {
        self.ok + self.ok_degraded
    }

    /// Operations that neither were answered correctly nor given up by their caller.
    pub const fn failed(&self) -> u64 {
        self.rejected + self.deadline + self.unavailable + self.error_other + self.transport
    }

    fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.ok += other.ok;
        self.ok_degraded += other.ok_degraded;
        self.rejected += other.rejected;
        self.deadline += other.deadline;
        self.unavailable += other.unavailable;
        self.error_other += other.error_other;
        self.departed += other.departed;
        self.transport += other.transport;
    }
}

/// Operations that were not sent, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Unsent {
    /// All of them.
    pub total: u64,
    /// Too many were in flight.
    pub in_flight_max: u64,
    /// The sending thread was too far behind the schedule.
    pub behind: u64,
}

impl Unsent {
    fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.in_flight_max += other.in_flight_max;
        self.behind += other.behind;
    }
}

/// Omitted sections by cause.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Omissions {
    /// Of the recommendations section.
    pub recommendations: BTreeMap<&'static str, u64>,
    /// Of the reputation section.
    pub reputation: BTreeMap<&'static str, u64>,
}

/// One second of the schedule.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineSecond {
    /// Seconds since the start, in model time.
    pub at_s: u64,
    /// Operations that were due.
    pub offered: u64,
    /// Correct answers.
    pub ok: u32,
    /// Of them, degraded ones.
    pub ok_degraded: u32,
    /// Operations that failed.
    pub failed: u32,
    /// Operations whose caller left.
    pub departed: u32,
    /// Correct answers within the objective.
    pub good: u32,
    /// Callers that left before the objective.
    pub departed_before_objective: u32,
    /// Median latency of correct answers.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the latency of correct answers.
    pub p99_ms: Option<f64>,
    /// Omitted sections by cause.
    pub omitted: BTreeMap<&'static str, u32>,
}

/// An OK answer that was not correct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MismatchSample {
    /// The logical operation.
    pub request_id: String,
    /// What was wrong.
    pub violation: Violation,
    /// Where, by count and position.
    pub detail: String,
}

impl Figures {
    pub(crate) fn of(tally: &ClassTally) -> Self {
        let count = |outcome: Outcome| tally.completed[outcome.index()];
        let completed = Completed {
            total: tally.ended(),
            ok: count(Outcome::Ok),
            ok_degraded: count(Outcome::OkDegraded),
            rejected: count(Outcome::Rejected),
            deadline: count(Outcome::Deadline),
            unavailable: count(Outcome::Unavailable),
            error_other: count(Outcome::ErrorOther),
            departed: count(Outcome::Departed),
            transport: count(Outcome::Transport),
        };
        let unsent = Unsent {
            total: tally.unsent(),
            in_flight_max: tally.unsent_in_flight,
            behind: tally.unsent_channel,
        };
        let figures = Self {
            scheduled: tally.scheduled,
            completed,
            unsent,
            in_flight: tally.in_flight,
            attempts: tally.attempts,
            within_objective: tally.within_objective,
            departed_before_objective: tally.departed_before_objective,
            bytes: tally.bytes,
            omissions: Omissions {
                recommendations: by_cause(&tally.recommendations),
                reputation: by_cause(&tally.reputation),
            },
            core_mismatch: tally.core_mismatch,
            failures: tally.failures.iter().map(|(failure, count)| (failure.to_string(), *count)).collect(),
            latencies: tally.latency.clone().unwrap_or_default(),
            slowest: tally.slowest.clone(),
            ..Self::default()
        };
        figures.derived()
    }

    /// With everything that follows from the counts and the observations.
    fn derived(self) -> Self {
        let stayed = self.scheduled.saturating_sub(self.departed_before_objective);
        let Completed { total, rejected, ok_degraded, .. } = self.completed;
        let correct = self.completed.correct();
        Self {
            balanced: self.scheduled == total + self.unsent.total + self.in_flight,
            latency_ms: self.latencies.summary(),
            slow_ms: self.slowest.means(correct),
            core_goodput_ratio: ratio(self.within_objective, stayed),
            rejection_ratio: ratio(rejected, self.scheduled),
            omission_ratio: ratio(ok_degraded, correct),
            ..self
        }
    }

    /// Both populations as one: counts are added, observations are merged.
    pub fn merged(mut self, other: &Self) -> Self {
        self.scheduled += other.scheduled;
        self.in_flight += other.in_flight;
        self.attempts += other.attempts;
        self.within_objective += other.within_objective;
        self.departed_before_objective += other.departed_before_objective;
        self.bytes += other.bytes;
        self.core_mismatch += other.core_mismatch;
        self.unsent.add(&other.unsent);
        self.completed.add(&other.completed);
        add(&mut self.omissions.recommendations, &other.omissions.recommendations);
        add(&mut self.omissions.reputation, &other.omissions.reputation);
        add(&mut self.failures, &other.failures);
        self.latencies.merge(&other.latencies);
        self.slowest.merge(&other.slowest);
        self.derived()
    }
}

fn add<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(key.clone()).or_default() += count;
    }
}

impl Stage {
    /// The same stage of two runs as one.
    pub fn merged(self, other: &Self) -> Self {
        let classes = self.classes.into_iter().map(|(class, figures)| match other.classes.get(class) {
            Some(more) => (class, figures.merged(more)),
            None => (class, figures),
        });
        Self {
            duration_s: self.duration_s + other.duration_s,
            all: self.all.merged(&other.all),
            classes: classes.collect(),
            ..self
        }
    }

    pub(crate) fn of(name: String, measured: bool, duration_s: f64, tallies: &[ClassTally]) -> Self {
        let mut all = ClassTally::default();
        tallies.iter().for_each(|tally| all.merge(tally));
        let classes = WorkloadClass::ALL.iter().zip(tallies);
        Self {
            name,
            measured,
            duration_s,
            all: Figures::of(&all),
            classes: classes.map(|(class, tally)| (class.as_str(), Figures::of(tally))).collect(),
        }
    }
}

/// `part / whole`, or nothing when there is no whole.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn by_cause(markers: &[u64; MARKERS]) -> BTreeMap<&'static str, u64> {
    markers
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .filter_map(|(number, count)| cause(number).map(|cause| (cause, *count)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_population_has_no_ratios() {
        let figures = Figures::of(&ClassTally::default());
        assert_eq!(figures.core_goodput_ratio, None);
        assert_eq!(figures.rejection_ratio, None);
        assert_eq!(figures.omission_ratio, None);
        let text = serde_json::to_string(&figures).expect("it serialises");
        assert!(text.contains("\"p99\":null") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn a_lost_operation_breaks_the_balance() {
        let mut tally =
            ClassTally { scheduled: 10, unsent_channel: 1, in_flight: 2, ..ClassTally::default() };
        tally.completed[Outcome::Ok.index()] = 6;
        assert!(!Figures::of(&tally).balanced);
        tally.completed[Outcome::Departed.index()] = 1;
        assert!(Figures::of(&tally).balanced);
    }

    #[test]
    fn two_runs_as_one_are_all_their_observations() {
        let tally = |millis: u64| {
            let mut tally = ClassTally { scheduled: 100, within_objective: 50, ..ClassTally::default() };
            tally.completed[Outcome::Ok.index()] = 80;
            tally.completed[Outcome::OkDegraded.index()] = 20;
            tally.recommendations[3] = 20;
            let latency = tally.latency.get_or_insert_default();
            (0..100).for_each(|_| latency.record(base::Nanos::from_millis(millis)));
            tally
        };
        let stage = |millis: u64| Stage::of("peak".to_owned(), true, 3.0, &[1, 2, 3].map(|_| tally(millis)));
        let both = stage(10).merged(&stage(400));
        assert_eq!((both.duration_s, both.all.scheduled, both.all.latency_ms.n), (6.0, 600, 600));
        assert!(both.all.balanced);
        let latency = both.all.latency_ms;
        assert!(latency.p50.expect("observed") < 10.1, "a mean of the medians would be 205 ms: {latency:?}");
        assert!(latency.p99.expect("observed") >= 400.0);
        assert_eq!(both.all.omissions.recommendations["omitted_deadline_budget"], 120);
        assert_eq!(both.all.omission_ratio, Some(0.2));
        assert_eq!(both.classes["premium"].core_goodput_ratio, Some(0.5));
    }

    #[test]
    fn goodput_leaves_out_only_callers_that_left_before_the_objective() {
        let mut tally = ClassTally { scheduled: 10, within_objective: 6, ..ClassTally::default() };
        tally.departed_before_objective = 2;
        tally.completed[Outcome::OkDegraded.index()] = 3;
        tally.completed[Outcome::Ok.index()] = 3;
        let figures = Figures::of(&tally);
        assert_eq!(figures.core_goodput_ratio, Some(0.75));
        assert_eq!(figures.omission_ratio, Some(0.5));
    }
}
