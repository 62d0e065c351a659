//! Example: a report of an honest comparison whose counts, buckets and quantiles all fit, for tests to doctor.

use std::collections::BTreeMap;

use base::{Nanos, WorkloadClass};
use load::Latencies;

use super::Role;
use crate::report::{
    AfterRun, Arrivals, Bucket, Class, Generator, LateWork, Occupancy, PolicyRef, Quantiles, QueueAge,
    Report, State, TimelinePoint,
};

pub(crate) const BEFORE: &str = "policy-legacy";
pub(crate) const AFTER: &str = "policy";
/// Operations a second, of which a fifth leave.
const OFFERED: u64 = 100;
const SECONDS: u64 = 30;
/// Shares of the classes, and of the answers, in percent.
const SHARES: [u64; 3] = [72, 23, 5];

/// What one state is like.
#[derive(Clone, Copy)]
struct Like {
    slow_ms: u64,
    late: f64,
    age_ms: f64,
    occupancy: f64,
    degraded: u64,
    calls: f64,
}

/// Both policies through all states, on one schedule.
pub(crate) fn report() -> Report {
    let old = Like { slow_ms: 487, late: 0.2, age_ms: 60.0, occupancy: 0.94, degraded: 0, calls: 1.0 };
    let new = Like { slow_ms: 268, late: 0.003, age_ms: 4.0, occupancy: 0.7, degraded: 80, calls: 0.84 };
    let mut states = Vec::new();
    for (policy, like) in [(BEFORE, old), (AFTER, new)] {
        for (name, starts_s) in [("peak", 3.0), ("slowdown", 36.0), ("recovery", 66.0)] {
            states.push(state(policy, name, starts_s, like));
        }
    }
    states[2].recovery_s = Some(20.0);
    states[5].recovery_s = Some(3.0);
    let policy = |name: &str, role| PolicyRef {
        name: name.to_owned(),
        role,
        generator: generator(),
        after_run: AfterRun { permits_held: Some(0.0), flights_open: Some(0.0), ..AfterRun::default() },
        ..PolicyRef::default()
    };
    Report {
        runs: 1,
        scale: Some("1".to_owned()),
        dilate: 1,
        histogram: load::HISTOGRAM_SCHEME,
        states,
        generator: generator(),
        policies: vec![policy(BEFORE, Role::Before), policy(AFTER, Role::After)],
        ..Report::default()
    }
}

fn generator() -> Generator {
    Generator {
        valid: true,
        clock_error_ms: Quantiles { n: 100, p99: Some(0.4), ..Quantiles::default() },
        unsent_ratio: Some(0.0),
        emulator_timer_ms: Quantiles { p99: Some(1.2), ..Quantiles::default() },
        ..Generator::default()
    }
}

fn state(policy: &str, name: &str, starts_s: f64, like: Like) -> State {
    let offered = OFFERED * SECONDS;
    let departed = offered / 5;
    let correct = offered - departed;
    let latencies = latencies(correct, like.slow_ms);
    let slow = slow(correct);
    let within = if like.slow_ms > 300 { correct - slow } else { correct };
    let per = |part: u64, whole: u64| Some(part as f64 / whole as f64);
    State {
        policy: policy.to_owned(),
        state: name.to_owned(),
        starts_s,
        duration_s: SECONDS as f64,
        latency_ms: latencies.summary().into(),
        histogram: buckets(&latencies),
        core_goodput_ratio: per(within, correct),
        omission_ratio: per(like.degraded, correct),
        rejection_ratio: Some(0.0),
        beyond_objective_ratio: per(correct - within, correct),
        late_work: LateWork { ratio: Some(like.late), mean_ms: Some(70.0), concurrent: Some(3.0) },
        occupancy_ratio: Occupancy { endpoint: Some(like.occupancy), profile: Some(like.occupancy) },
        queue_age_ms: QueueAge { p99: Some(like.age_ms), ..QueueAge::default() },
        arrivals: Arrivals {
            declared: Some(offered),
            scheduled: offered,
            completed: offered,
            unsent: 0,
            in_flight: 0,
        },
        within_objective: within,
        departed_before_objective: departed,
        outcomes: BTreeMap::from([
            ("ok", correct - like.degraded),
            ("ok_degraded", like.degraded),
            ("departed", departed),
        ]),
        departure_ratio: per(departed, offered),
        memory_peak_mib: Some(60.0),
        profile_calls_per_operation: Some(like.calls),
        dependency_calls_per_operation: ["profile", "pricing"]
            .map(|dependency| (dependency.to_owned(), Some(like.calls)))
            .into(),
        classes: WorkloadClass::ALL
            .into_iter()
            .zip(SHARES)
            .map(|(class, share)| (class.as_str(), self::class(offered * share / 100, correct * share / 100)))
            .collect(),
        timeline: timeline(starts_s),
        ..State::default()
    }
}

fn class(scheduled: u64, answers: u64) -> Class {
    Class {
        declared: Some(scheduled),
        scheduled,
        latency_ms: Quantiles { n: answers, ..Quantiles::default() },
        ..Class::default()
    }
}

fn timeline(starts_s: f64) -> Vec<TimelinePoint> {
    let point = |at: u64| TimelinePoint {
        at_s: starts_s + at as f64,
        offered: OFFERED,
        good: OFFERED * 4 / 5,
        departed: OFFERED / 5,
        ..TimelinePoint::default()
    };
    (0..SECONDS).map(point).collect()
}

/// One answer in fifty is slow.
const fn slow(answers: u64) -> u64 {
    answers / 50
}

pub(crate) fn latencies(answers: u64, slow_ms: u64) -> Latencies {
    let mut latencies = Latencies::default();
    for number in 0..answers {
        let millis = if number < slow(answers) { slow_ms } else { 80 };
        latencies.record(Nanos::from_millis(millis));
    }
    latencies
}

pub(crate) fn buckets(latencies: &Latencies) -> Vec<Bucket> {
    latencies.buckets().into_iter().map(|(le_ms, count)| Bucket { le_ms, count }).collect()
}
