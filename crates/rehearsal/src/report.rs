//! Report: `report.json`, schema `mercury.report/v1`. A figure that was not measured is null; keys keep the order in which
//! they are declared here.

use std::collections::BTreeMap;

use load::{Report as LoadReport, report::Figures};
use serde::Serialize;

use crate::{gates::Gate, verdict::Verdict};

/// Schema of [`Report`].
pub const SCHEMA: &str = "mercury.report/v1";

/// The evidence of a rehearsal. What depends on the machine and the hour is in `run.json` beside it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The command that made it.
    pub command: String,
    /// Seed of the arrivals, the data and the draws.
    pub seed: u64,
    /// What follows from the gates.
    pub verdict: Verdict,
    /// Workload and version.
    pub workload: String,
    /// What the dependencies did.
    pub scenario: ScenarioRef,
    /// Scale as a fraction; null when a rate was given instead.
    pub scale: Option<String>,
    /// Mean rate that was asked for, per second of model time.
    pub rate_per_s: f64,
    /// Slow motion; times are divided back.
    pub dilate: u32,
    /// How latencies were recorded.
    pub histogram: &'static str,
    /// Every gate, observed versus bound.
    pub gates: Vec<Gate>,
    /// Every state of every policy.
    pub states: Vec<State>,
    /// Whether the generator and the emulator kept time.
    pub generator: Generator,
    /// Named stories with a verdict of their own.
    pub scenarios: Vec<Scenario>,
    /// The policies that were rehearsed.
    pub policies: Vec<PolicyRef>,
}

/// A policy by name, generation and digest.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyRef {
    /// Name used in [`State::policy`].
    pub name: String,
    /// Its generation.
    pub generation: u64,
    /// Digest of the document, in hexadecimal.
    pub digest: String,
}

/// A scenario by name, version and digest.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioRef {
    /// Its name.
    pub name: String,
    /// Its version, which takes part in every draw.
    pub version: u32,
    /// Digest of the document, in hexadecimal.
    pub digest: String,
}

/// One state of one policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct State {
    /// Name of the policy.
    pub policy: String,
    /// `peak`, `slowdown` or `recovery`.
    pub state: String,
    /// Latency of correct answers, degraded ones included.
    pub latency_ms: Quantiles,
    /// Answered correctly within the objective, over offered without those whose caller left before it.
    pub core_goodput_ratio: Option<f64>,
    /// Correct answers with something omitted, over correct answers.
    pub omission_ratio: Option<f64>,
    /// Rejected over offered.
    pub rejection_ratio: Option<f64>,
    /// Work after the deadline or departure of its caller.
    pub late_work: LateWork,
    /// Occupancy of the pools.
    pub occupancy_ratio: Occupancy,
    /// Age of the admission queue.
    pub queue_age_ms: QueueAge,
    /// OK answers that were not correct.
    pub core_mismatch: u64,
    /// The balance: scheduled = completed + unsent + in flight.
    pub arrivals: Arrivals,
    /// Time until everything was back inside its bounds.
    pub recovery_s: Option<f64>,
    /// Operations that ended, by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Failed operations by kind.
    pub failures: BTreeMap<String, u64>,
    /// Omitted sections by section and cause.
    pub omissions: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Callers that left, over offered.
    pub departure_ratio: Option<f64>,
    /// Attempts per operation that ended.
    pub attempts_per_operation: Option<f64>,
    /// Calls that reached each emulated dependency, per operation offered.
    pub dependency_calls_per_operation: BTreeMap<String, Option<f64>>,
    /// The same figures by class.
    pub classes: BTreeMap<&'static str, Class>,
}

/// One class of a state.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Class {
    /// Its share of what was offered.
    pub share: Option<f64>,
    /// Latency of correct answers.
    pub latency_ms: Quantiles,
    /// As in [`State`].
    pub core_goodput_ratio: Option<f64>,
    /// As in [`State`].
    pub omission_ratio: Option<f64>,
    /// As in [`State`].
    pub rejection_ratio: Option<f64>,
}

/// Quantiles of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Size of the sample.
    pub n: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
}

impl From<load::LatencyMs> for Quantiles {
    fn from(latency: load::LatencyMs) -> Self {
        Self { n: latency.n, p50: latency.p50, p99: latency.p99, p999: latency.p999 }
    }
}

/// Work that was done for a caller that could no longer use it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LateWork {
    /// Late operations over operations.
    pub ratio: Option<f64>,
    /// Mean time that a late operation went on.
    pub mean_ms: Option<f64>,
    /// Mean number of late operations at once.
    pub concurrent: Option<f64>,
}

/// Mean occupancy of the pools.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Occupancy {
    /// Slots of the endpoint.
    pub endpoint: Option<f64>,
    /// Permits or connections of the profile client.
    pub profile: Option<f64>,
}

/// Age of the admission queue.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct QueueAge {
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// The balance of a state.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Arrivals {
    /// Operations of the schedule.
    pub scheduled: u64,
    /// Operations that ended.
    pub completed: u64,
    /// Operations that were never sent.
    pub unsent: u64,
    /// Sent and not ended.
    pub in_flight: u64,
}

/// Whether time was kept.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Generator {
    /// Whether the generator and the emulator kept their bounds.
    pub valid: bool,
    /// Hand-over to the connection minus intended start.
    pub clock_error_ms: Quantiles,
    /// CPU of the generating process over wall time and cores.
    pub cpu_ratio: Option<f64>,
    /// Share of the measured schedule that was not sent.
    pub unsent_ratio: Option<f64>,
    /// Lateness of the emulator's own timers.
    pub emulator_timer_ms: Quantiles,
    /// Why it is not valid.
    pub reasons: Vec<String>,
}

/// A named story with a verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What follows.
    pub verdict: Verdict,
    /// One sentence.
    pub detail: String,
}

impl State {
    /// How many operations the balance is off by.
    pub fn imbalance(&self) -> f64 {
        let Arrivals { scheduled, completed, unsent, in_flight } = self.arrivals;
        scheduled.abs_diff(completed + unsent + in_flight) as f64
    }

    /// The figures that the generator alone can tell.
    pub fn of_stage(policy: &str, stage: &load::report::Stage) -> Self {
        let all = &stage.all;
        let completed = &all.completed;
        let per_offered = |count: u64| ratio(count as f64, all.scheduled as f64);
        Self {
            policy: policy.to_owned(),
            state: stage.name.clone(),
            latency_ms: all.latency_ms.into(),
            core_goodput_ratio: all.core_goodput_ratio,
            omission_ratio: all.omission_ratio,
            rejection_ratio: all.rejection_ratio,
            core_mismatch: all.core_mismatch,
            arrivals: Arrivals {
                scheduled: all.scheduled,
                completed: completed.total,
                unsent: all.unsent.total,
                in_flight: all.in_flight,
            },
            outcomes: BTreeMap::from([
                ("ok", completed.ok),
                ("ok_degraded", completed.ok_degraded),
                ("rejected", completed.rejected),
                ("deadline", completed.deadline),
                ("unavailable", completed.unavailable),
                ("error_other", completed.error_other),
                ("departed", completed.departed),
                ("transport", completed.transport),
            ]),
            failures: all.failures.clone(),
            omissions: BTreeMap::from([
                ("recommendations", all.omissions.recommendations.clone()),
                ("reputation", all.omissions.reputation.clone()),
            ]),
            departure_ratio: per_offered(completed.departed),
            attempts_per_operation: ratio(all.attempts as f64, completed.total as f64),
            classes: stage
                .classes
                .iter()
                .map(|(name, class)| (*name, Class::of(class, all.scheduled)))
                .collect(),
            ..Self::default()
        }
    }
}

impl Class {
    fn of(figures: &Figures, offered: u64) -> Self {
        Self {
            share: ratio(figures.scheduled as f64, offered as f64),
            latency_ms: figures.latency_ms.into(),
            core_goodput_ratio: figures.core_goodput_ratio,
            omission_ratio: figures.omission_ratio,
            rejection_ratio: figures.rejection_ratio,
        }
    }
}

impl Generator {
    /// The generator's account, with the emulator's beside it.
    pub fn of(load: &LoadReport, emulator_timer_p99_ms: Option<f64>) -> Self {
        let own = &load.generator;
        let mut reasons = own.reasons.clone();
        let bound = crate::gates::TIMER_LATENESS_P99_MAX_MS;
        match emulator_timer_p99_ms {
            Some(p99) if p99 <= bound => {}
            Some(p99) => {
                reasons.push(format!("the emulator's timers were late: p99 {p99:.3} ms, bound {bound} ms"))
            }
            None => reasons.push("the emulator's timer lateness is not known".to_owned()),
        }
        Self {
            valid: reasons.is_empty(),
            clock_error_ms: own.clock_error_ms.into(),
            cpu_ratio: own.cpu_ratio,
            unsent_ratio: own.unsent_ratio,
            emulator_timer_ms: Quantiles { p99: emulator_timer_p99_ms, ..Quantiles::default() },
            reasons,
        }
    }
}

/// A ratio, or nothing when there is no whole.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_others_rely_on_are_there_and_what_was_not_measured_is_null() {
        let state = serde_json::to_value(State::default()).expect("it serialises");
        for (pointer, null) in [
            ("/policy", false),
            ("/state", false),
            ("/latency_ms/n", false),
            ("/latency_ms/p50", true),
            ("/latency_ms/p99", true),
            ("/latency_ms/p999", true),
            ("/core_goodput_ratio", true),
            ("/omission_ratio", true),
            ("/rejection_ratio", true),
            ("/late_work/ratio", true),
            ("/late_work/mean_ms", true),
            ("/late_work/concurrent", true),
            ("/occupancy_ratio/endpoint", true),
            ("/occupancy_ratio/profile", true),
            ("/queue_age_ms/p99", true),
            ("/core_mismatch", false),
            ("/arrivals/scheduled", false),
            ("/arrivals/completed", false),
            ("/arrivals/unsent", false),
            ("/arrivals/in_flight", false),
            ("/recovery_s", true),
        ] {
            let value = state.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is missing"));
            assert_eq!(value.is_null(), null, "{pointer}");
        }
        let generator = serde_json::to_value(Generator::default()).expect("it serialises");
        for pointer in ["/valid", "/clock_error_ms/p99", "/cpu_ratio"] {
            assert!(generator.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
