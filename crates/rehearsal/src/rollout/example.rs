//! Example: the evidence of healthy runs, for tests to doctor.

use model::rollout::{Bounds, Ladder, Tolerance};

use super::judge::{Evidence, Measure};
use crate::{
    gates::example::{AFTER, BEFORE, buckets, latencies, report},
    report::{CancelStop, Report, State},
};

/// Of the old policy or the repaired one, under the name of a step.
pub(super) fn evidence(repaired: bool, name: &str) -> Evidence {
    let report = report();
    let policy = if repaired { AFTER } else { BEFORE };
    let own = report.states.into_iter().filter(|state| state.policy == policy);
    let states = own.map(|state| State {
        policy: name.to_owned(),
        cancel_stop_ms: CancelStop { n: 400, p50: Some(0.2), p99: Some(4.0) },
        intended_stop_ratio: (!repaired).then_some(0.03),
        ..state
    });
    let states = states.collect();
    let mut policy =
        report.policies.into_iter().find(|one| one.name == policy).expect("both are in the example");
    policy.name = name.to_owned();
    policy.after_run.effects_conflicting = Some(0.0);
    Evidence { states, policy }
}

/// The same at peak alone.
pub(super) fn canary(repaired: bool, name: &str) -> Evidence {
    let mut evidence = evidence(repaired, name);
    evidence.states.truncate(1);
    evidence
}

/// One answer in fifty takes so long; everything that follows from it fits.
pub(super) fn slow(state: &mut State, millis: u64) {
    let answers = state.latency_ms.n;
    let taken = latencies(answers, millis);
    state.latency_ms = taken.summary().into();
    state.histogram = buckets(&taken);
    let late = if millis > 300 { answers / 50 } else { 0 };
    within(state, answers - late);
}

/// So many answers came within the objective; everything that follows from it fits.
pub(super) fn within(state: &mut State, answers: u64) {
    let correct = state.latency_ms.n;
    let stayed = state.arrivals.scheduled - state.departed_before_objective;
    state.within_objective = answers;
    state.core_goodput_ratio = Some(answers as f64 / stayed as f64);
    state.beyond_objective_ratio = Some((correct - answers) as f64 / correct as f64);
}

/// The example as the shipped rollout measures it.
pub(super) fn measure() -> Measure {
    measure_with(Ladder::shipped().tolerance)
}

/// The example with this tolerance.
pub(super) fn measure_with(tolerance: Tolerance) -> Measure {
    let frame = Report { states: Vec::new(), policies: Vec::new(), ..report() };
    Measure { tolerance, dilate: 1, frame }
}

/// Bounds without tolerance.
pub(super) const EXACT: Tolerance = Tolerance {
    sigmas: 0.0,
    latency_ms: 0.0,
    queue_age_ms: 0.0,
    stop_delay_ms: 0.0,
    occupancy_points: 0.0,
    profile_calls: 0.0,
    recovery_s: 0.0,
};

/// The bounds of a step of the shipped rollout.
pub(super) fn bounds(step: &str) -> Bounds {
    let ladder = Ladder::shipped();
    let found = ladder.steps().find(|one| one.name == step).expect("a step of that name");
    found.bounds.clone()
}
