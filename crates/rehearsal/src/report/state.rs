//! State: one state of one policy, and the figures that it is made of. Times are model time unless a field says otherwise.

use std::collections::BTreeMap;

use load::report::Figures;
use serde::Serialize;

use super::ratio;

/// One state of one policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct State {
    /// Name of the policy.
    pub policy: String,
    /// `peak`, `slowdown` or `recovery`.
    pub state: String,
    /// When it began, in seconds since the run of its policy did.
    pub starts_s: f64,
    /// How long it was measured.
    pub duration_s: f64,
    /// Latency of correct answers, degraded ones included.
    pub latency_ms: Quantiles,
    /// The same by bucket, in rising order, without empty ones at the ends.
    pub histogram: Vec<Bucket>,
    /// Answered correctly within the objective, over offered without those whose caller left before it.
    pub core_goodput_ratio: Option<f64>,
    /// Correct answers with something omitted, over correct answers.
    pub omission_ratio: Option<f64>,
    /// Rejected over offered.
    pub rejection_ratio: Option<f64>,
    /// Correct answers that came after the objective, over correct answers.
    pub beyond_objective_ratio: Option<f64>,
    /// Work after the deadline or departure of its caller.
    pub late_work: LateWork,
    /// Mean occupancy of the pools, by the exact integral of held slots.
    pub occupancy_ratio: Occupancy,
    /// The same, of the bound that admission kept.
    pub admitted_occupancy_ratio: Occupancy,
    /// Age of the queues before the endpoint and before the profile client.
    pub queue_age_ms: QueueAge,
    /// From a cancellation to the end of the work that it cancels, all processes; wall time.
    pub cancel_stop_ms: CancelStop,
    /// Branches that the deadline in shadow would have stopped, over those that it looked at; null where it looks at none.
    pub intended_stop_ratio: Option<f64>,
    /// Where the slowest hundredth of the answers spent their time.
    pub slow: Slow,
    /// OK answers that were not correct.
    pub core_mismatch: u64,
    /// The balance: scheduled = completed + unsent + in flight.
    pub arrivals: Arrivals,
    /// Correct answers within the objective.
    pub within_objective: u64,
    /// Callers that left before the objective.
    pub departed_before_objective: u64,
    /// Time until everything was back inside its bounds for two windows.
    pub recovery_s: Option<f64>,
    /// When it was not within the time that was watched: that time.
    pub recovery_at_least_s: Option<f64>,
    /// The bounds that recovery was judged by.
    pub recovery_bounds: Option<RecoveryBounds>,
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
    /// Upstream profile reads, over operations offered.
    pub profile_calls_per_operation: Option<f64>,
    /// Calls that reached each emulated dependency, per operation offered.
    pub dependency_calls_per_operation: BTreeMap<String, Option<f64>>,
    /// CPU of home-api per correct answer; wall time, which slow motion leaves alone.
    pub cpu_ms_per_core_response: Option<f64>,
    /// CPU of all eight services per correct answer; wall time.
    pub suite_cpu_ms_per_core_response: Option<f64>,
    /// Bytes of a correct answer's message.
    pub bytes_per_core_response: Option<f64>,
    /// Most resident memory of home-api that was seen.
    pub memory_peak_mib: Option<f64>,
    /// The same figures by class.
    pub classes: BTreeMap<&'static str, Class>,
    /// One point a second.
    pub timeline: Vec<TimelinePoint>,
}

/// One class of a state.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Class {
    /// Operations that the workload declares for this time.
    pub declared: Option<u64>,
    /// Operations of the schedule.
    pub scheduled: u64,
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

/// One bucket of a distribution. Its lower end is the bound of the one before it, or zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bucket {
    /// Its upper bound, inclusive.
    pub le_ms: f64,
    /// Observations in this bucket alone.
    pub count: u64,
}

/// Work that was done for a caller that could no longer use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LateWork {
    /// Late operations of home-api over operations offered.
    pub ratio: Option<f64>,
    /// Mean time that a late operation went on.
    pub mean_ms: Option<f64>,
    /// Mean number of late operations at once.
    pub concurrent: Option<f64>,
}

/// Mean occupancy of the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Occupancy {
    /// Slots of the endpoint.
    pub endpoint: Option<f64>,
    /// Permits or connections of the profile client.
    pub profile: Option<f64>,
}

/// Age of the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueAge {
    /// 99th percentile of the worse of the two.
    pub p99: Option<f64>,
    /// 99th percentile before the endpoint.
    pub endpoint_p99: Option<f64>,
    /// 99th percentile before the profile client.
    pub profile_p99: Option<f64>,
}

/// How long cancelled work went on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CancelStop {
    /// Cancellations.
    pub n: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// Means over the slowest hundredth of the correct answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slow {
    /// Answers that were looked at.
    pub n: u64,
    /// Latency as the caller saw it.
    pub latency_ms: Option<f64>,
    /// Waiting for a slot of the endpoint.
    pub executor_wait_ms: Option<f64>,
    /// Waiting for a slot of the profile client.
    pub pool_wait_ms: Option<f64>,
    /// Profile and entitlement at work, which the parallel branches wait for.
    pub service_before_fanout_ms: Option<f64>,
    /// The longest of the parallel branches, its wait included.
    pub fanout_ms: Option<f64>,
}

/// The balance of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arrivals {
    /// Operations that the workload declares for this time, from the schedule made again; null when it was not.
    pub declared: Option<u64>,
    /// Operations of the schedule.
    pub scheduled: u64,
    /// Operations that ended.
    pub completed: u64,
    /// Operations that were never sent.
    pub unsent: u64,
    /// Sent and not ended.
    pub in_flight: u64,
}

/// What a window must be inside of for recovery: the objective's bounds or, where the policy's own peak was worse, the
/// 90th percentile of the windows of that peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RecoveryBounds {
    /// Largest queue age.
    pub queue_age_ms: f64,
    /// Largest occupancy of the endpoint.
    pub occupancy_endpoint: f64,
    /// Largest occupancy of the profile client.
    pub occupancy_profile: f64,
    /// Smallest goodput.
    pub goodput_ratio: f64,
    /// Most upstream profile reads a second.
    pub profile_calls_per_s: f64,
}

/// One second of a state. What was not measured is null, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimelinePoint {
    /// Its beginning, in seconds since the run of its policy began, warm-up included.
    pub at_s: f64,
    /// Operations that were due.
    pub offered: u64,
    /// Correct answers within the objective.
    pub good: u64,
    /// Callers that left before the objective.
    pub departed: u64,
    /// Median latency of correct answers.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the latency of correct answers.
    pub p99_ms: Option<f64>,
    /// 99th percentile of the queue age, the worse of the two queues.
    pub queue_age_ms: Option<f64>,
    /// Mean occupancy of the endpoint.
    pub occupancy_endpoint: Option<f64>,
    /// Mean occupancy of the profile client.
    pub occupancy_profile: Option<f64>,
    /// Upstream profile reads a second.
    pub profile_calls_per_s: Option<f64>,
    /// Omitted sections by cause.
    pub omitted: BTreeMap<&'static str, u64>,
}

impl State {
    /// How many operations the balance is off by.
    pub fn imbalance(&self) -> f64 {
        let Arrivals { scheduled, completed, unsent, in_flight, .. } = self.arrivals;
        scheduled.abs_diff(completed + unsent + in_flight) as f64
    }

    /// Correct answers, degraded ones included.
    pub fn correct(&self) -> u64 {
        let count = |outcome: &str| self.outcomes.get(outcome).copied().unwrap_or(0);
        count("ok") + count("ok_degraded")
    }

    /// The figures that the generator alone can tell.
    pub fn of_stage(policy: &str, stage: &load::report::Stage) -> Self {
        let all = &stage.all;
        let completed = &all.completed;
        let per_offered = |count: u64| ratio(count as f64, all.scheduled as f64);
        Self {
            policy: policy.to_owned(),
            state: stage.name.clone(),
            duration_s: stage.duration_s,
            within_objective: all.within_objective,
            departed_before_objective: all.departed_before_objective,
            latency_ms: all.latency_ms.into(),
            core_goodput_ratio: all.core_goodput_ratio,
            omission_ratio: all.omission_ratio,
            rejection_ratio: all.rejection_ratio,
            core_mismatch: all.core_mismatch,
            arrivals: Arrivals {
                declared: None,
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
            bytes_per_core_response: ratio(all.bytes as f64, completed.correct() as f64),
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
            declared: None,
            scheduled: figures.scheduled,
            share: ratio(figures.scheduled as f64, offered as f64),
            latency_ms: figures.latency_ms.into(),
            core_goodput_ratio: figures.core_goodput_ratio,
            omission_ratio: figures.omission_ratio,
            rejection_ratio: figures.rejection_ratio,
        }
    }
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
            ("/admitted_occupancy_ratio/profile", true),
            ("/queue_age_ms/p99", true),
            ("/core_mismatch", false),
            ("/arrivals/scheduled", false),
            ("/arrivals/completed", false),
            ("/arrivals/unsent", false),
            ("/arrivals/in_flight", false),
            ("/recovery_s", true),
            ("/recovery_at_least_s", true),
            ("/departure_ratio", true),
            ("/slow/n", false),
            ("/slow/executor_wait_ms", true),
            ("/cancel_stop_ms/p99", true),
            ("/profile_calls_per_operation", true),
            ("/memory_peak_mib", true),
            ("/cpu_ms_per_core_response", true),
            ("/duration_s", false),
            ("/histogram", false),
            ("/timeline", false),
        ] {
            let value = state.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is missing"));
            assert_eq!(value.is_null(), null, "{pointer}");
        }
        let point = serde_json::to_value(TimelinePoint::default()).expect("it serialises");
        for key in ["queue_age_ms", "occupancy_endpoint", "occupancy_profile", "profile_calls_per_s"] {
            assert!(point[key].is_null(), "{key}");
        }
    }
}
