//! Tests of judging: every bound at its edge, and what is not known.

use model::rollout::Ladder;

use super::*;
use crate::rollout::example::{EXACT, bounds, canary, evidence, measure, measure_with};

/// One bound of peak alone.
fn only(key: &'static str, figure: Figure, against: Against) -> Bounds {
    Bounds { states: [vec![Bound { key, figure, against }], Vec::new(), Vec::new()], permits_held_max: 0 }
}

fn found<'g>(gates: &'g [Gate], name: &str) -> &'g Gate {
    gates.iter().find(|gate| gate.name == name).unwrap_or_else(|| panic!("no gate {name}: {gates:#?}"))
}

fn verdict(gates: &[Gate]) -> Verdict {
    crate::gates::verdict(gates)
}

/// Sets a figure of a state.
fn set(state: &mut State, figure: Figure, value: Option<f64>) {
    let place = match figure {
        Figure::P50 => &mut state.latency_ms.p50,
        Figure::P99 => &mut state.latency_ms.p99,
        Figure::Goodput => &mut state.core_goodput_ratio,
        Figure::Omission => &mut state.omission_ratio,
        Figure::Rejection => &mut state.rejection_ratio,
        Figure::QueueAgeP99 => &mut state.queue_age_ms.p99,
        Figure::LateWork => &mut state.late_work.ratio,
        Figure::StopDelayP99 => &mut state.cancel_stop_ms.p99,
        Figure::EndpointOccupancy => &mut state.occupancy_ratio.endpoint,
        Figure::ProfileOccupancy => &mut state.occupancy_ratio.profile,
        Figure::ProfileCalls => &mut state.profile_calls_per_operation,
        Figure::Recovery => &mut state.recovery_s,
        Figure::IntendedStops => &mut state.intended_stop_ratio,
    };
    *place = value;
}

const FIGURES: [Figure; 13] = [
    Figure::P50,
    Figure::P99,
    Figure::Goodput,
    Figure::Omission,
    Figure::Rejection,
    Figure::QueueAgeP99,
    Figure::LateWork,
    Figure::StopDelayP99,
    Figure::EndpointOccupancy,
    Figure::ProfileOccupancy,
    Figure::ProfileCalls,
    Figure::Recovery,
    Figure::IntendedStops,
];

#[test]
fn a_healthy_ladder_passes_the_shipped_bounds() {
    let (old, new) = (evidence(false, "deadline"), evidence(true, "admission"));
    for step in Ladder::shipped().steps() {
        let (before, now) = match step.name.as_str() {
            "signals" | "deadline" | "cancellation/canary" => (&old, &old),
            "cancellation" => (&old, &new),
            _ => (&new, &new),
        };
        let now = if step.canary { &canary(std::ptr::eq(now, &new), &step.name) } else { now };
        let gates = measure().step(&step.bounds, before, now);
        assert_eq!(verdict(&gates), Verdict::Pass, "{}: {gates:#?}", step.name);
    }
}

#[test]
fn every_figure_passes_at_its_bound_and_fails_beyond() {
    let measure = measure_with(EXACT);
    for figure in FIGURES {
        for (against, at, beyond) in [
            (Against::AtMost(0.5), 0.5, 0.501),
            (Against::AtLeast(0.5), 0.5, 0.499),
            (Against::RisePercent(25.0), 0.625, 0.626),
            (Against::DropPoints(25.0), 0.25, 0.249),
        ] {
            let (mut before, mut now) = (evidence(true, "before"), evidence(true, "now"));
            set(&mut before.states[0], figure, Some(0.5));
            for (value, expected) in [(at, Verdict::Pass), (beyond, Verdict::Fail)] {
                set(&mut now.states[0], figure, Some(value));
                let gates = measure.step(&only("key", figure, against), &before, &now);
                let gate = found(&gates, "key");
                assert_eq!(gate.verdict, expected, "{figure:?} {against:?} {value}");
                assert_eq!(gate.observed, Some(value));
                assert!((gate.bound - at).abs() < 1e-9, "{gate:?}");
                assert_eq!((gate.policy.as_deref(), gate.state.as_deref()), (Some("now"), Some("peak")));
            }
        }
    }
}

#[test]
fn what_was_not_measured_never_passes_and_never_fails() {
    let measure = measure();
    for figure in FIGURES {
        for against in [
            Against::AtMost(9.0),
            Against::AtLeast(0.0),
            Against::RisePercent(900.0),
            Against::DropPoints(99.0),
        ] {
            for value in [None, Some(f64::NAN), Some(f64::INFINITY)] {
                let mut now = evidence(true, "now");
                set(&mut now.states[0], figure, value);
                let gates = measure.step(&only("key", figure, against), &evidence(true, "before"), &now);
                let shown = found(&gates, "key").verdict;
                assert_eq!(shown, Verdict::Inconclusive, "{figure:?} {against:?} {value:?}");
                assert_ne!(verdict(&gates), Verdict::Pass);
            }
        }
    }
    // A state that was not gone through, and a step before that does not have the figure.
    let rise = only("key", Figure::P99, Against::RisePercent(900.0));
    let mut before = evidence(true, "before");
    before.states.remove(0);
    let gates = measure.step(&rise, &before, &evidence(true, "now"));
    assert_eq!(found(&gates, "key").verdict, Verdict::Inconclusive);
    let mut bounds = rise.clone();
    bounds.states.swap(0, 1);
    let gates = measure.step(&bounds, &evidence(true, "before"), &canary(true, "now"));
    assert_eq!(found(&gates, "key").verdict, Verdict::Inconclusive);
}

#[test]
fn a_machine_that_did_not_keep_time_makes_breaches_inconclusive_but_not_wrong_answers() {
    let mut now = evidence(true, "now");
    now.policy.generator.clock_error_ms.p99 = Some(9.0);
    now.states[0].latency_ms.p99 = Some(900.0);
    let bounds = only("key", Figure::P99, Against::AtMost(300.0));
    let gates = measure().step(&bounds, &evidence(true, "before"), &now);
    assert!(!evidence::in_time(&gates));
    assert_eq!(found(&gates, "key").verdict, Verdict::Inconclusive);
    assert_ne!(verdict(&gates), Verdict::Pass);
    now.policy.after_run.permits_held = Some(3.0);
    let gates = measure().step(&bounds, &evidence(true, "before"), &now);
    assert_eq!(found(&gates, PERMITS_HELD).verdict, Verdict::Inconclusive, "it may just be behind");
    now.states[0].core_mismatch = 1;
    let gates = measure().step(&bounds, &evidence(true, "before"), &now);
    assert_eq!(found(&gates, "core_mismatch").verdict, Verdict::Fail);
    assert_eq!(verdict(&gates), Verdict::Fail);
}

#[test]
fn one_wrong_answer_one_permit_still_held_or_one_conflict_is_a_breach() {
    let none = Bounds::default();
    let before = evidence(true, "before");
    let mut wrong = evidence(true, "now");
    wrong.states[2].core_mismatch = 1;
    let gates = measure().step(&none, &before, &wrong);
    assert_eq!(verdict(&gates), Verdict::Fail);
    let mut held = evidence(true, "now");
    held.policy.after_run.permits_held = Some(1.0);
    let gates = measure().step(&none, &before, &held);
    assert_eq!((found(&gates, PERMITS_HELD).verdict, verdict(&gates)), (Verdict::Fail, Verdict::Fail));
    let one = Bounds { permits_held_max: 1, ..none };
    assert_eq!(verdict(&measure().step(&one, &before, &held)), Verdict::Pass, "where one is allowed");
    let mut conflicting = evidence(true, "now");
    conflicting.policy.after_run.effects_conflicting = Some(1.0);
    assert_eq!(verdict(&measure().step(&one, &before, &conflicting)), Verdict::Fail);
    held.policy.after_run.permits_held = None;
    assert_eq!(found(&measure().step(&one, &before, &held), PERMITS_HELD).verdict, Verdict::Inconclusive);
}

#[test]
fn a_counted_share_has_the_tolerance_of_its_sample() {
    let bounds = only("key", Figure::Rejection, Against::AtMost(0.01));
    let measure = measure_with(Tolerance { sigmas: 3.0, ..EXACT });
    let bound = |scheduled: u64| {
        let mut now = evidence(true, "now");
        now.states[0].arrivals.scheduled = scheduled;
        found(&measure.step(&bounds, &evidence(true, "before"), &now), "key").bound
    };
    // Of 2,500 operations 25 are expected; the deviation is 4.97.
    assert!((bound(2_500) - (0.01 + 3.0 * 4.975 / 2_500.0)).abs() < 1e-6, "{}", bound(2_500));
    assert!(bound(250_000) < 0.0107, "a long run has little");
    assert_eq!(bound(0), 0.01, "no sample, no tolerance");
}

/// A healthy run whose true 99th percentile is just inside must pass nearly always, and one that doubled never.
#[test]
fn a_quantile_has_the_tolerance_of_its_rank() {
    // 2,000 answers, one percent of which is at 310 to 330 ms: the 99th percentile is on the edge.
    let bucket = |le_ms: f64, count: u64| Bucket { le_ms, count };
    let state = |slow: u64| State {
        histogram: vec![
            bucket(250.0, 1_900 - slow),
            bucket(280.0, 100),
            bucket(310.0, 0),
            bucket(330.0, slow),
        ],
        ..State::default()
    };
    // Deviation of the rank: 4.45 of 2,000, so the tolerance reaches 13 ranks down, out of the slow ones.
    let edge = state(30);
    let p99 = quantile(&edge.histogram, P99).expect("a sample");
    assert!(p99 > 310.0, "{p99}");
    assert!(p99 - sampling(&edge, P99, 3.0) <= 280.0, "30 slow of 2,000 are chance where 20 are expected");
    let breach = state(60);
    let p99 = quantile(&breach.histogram, P99).expect("a sample");
    assert!(p99 - sampling(&breach, P99, 3.0) > 310.0, "60 are not");
    let long = State {
        histogram: edge.histogram.iter().map(|one| bucket(one.le_ms, one.count * 100)).collect(),
        ..State::default()
    };
    let p99 = quantile(&long.histogram, P99).expect("a sample");
    assert!(p99 - sampling(&long, P99, 3.0) > 310.0, "the same share in a long run is none");
    assert_eq!(sampling(&State::default(), P99, 3.0), 0.0);
}

#[test]
fn what_the_machine_adds_weighs_less_in_slow_motion() {
    let bounds = only("key", Figure::QueueAgeP99, Against::AtMost(12.0));
    let mut measure = measure_with(Tolerance { queue_age_ms: 4.0, ..EXACT });
    for (dilate, expected) in [(1, 16.0), (20, 12.2)] {
        measure.dilate = dilate;
        let gates = measure.step(&bounds, &evidence(true, "before"), &evidence(true, "now"));
        assert!((found(&gates, "key").bound - expected).abs() < 1e-9);
    }
}

#[test]
fn a_recovery_that_was_not_over_is_beyond_its_bound_when_the_bound_has_passed() {
    let mut bounds = only("key", Figure::Recovery, Against::AtMost(4.0));
    bounds.states.swap(0, 2);
    let recovery = |s: Option<f64>, at_least: Option<f64>| {
        let mut now = evidence(true, "now");
        (now.states[2].recovery_s, now.states[2].recovery_at_least_s) = (s, at_least);
        let gates = measure_with(EXACT).step(&bounds, &evidence(true, "before"), &now);
        found(&gates, "key").verdict
    };
    assert_eq!(recovery(Some(4.0), None), Verdict::Pass);
    assert_eq!(recovery(Some(5.0), None), Verdict::Fail);
    assert_eq!(recovery(None, Some(5.0)), Verdict::Fail);
    assert_eq!(recovery(None, Some(4.0)), Verdict::Inconclusive, "it may have been over in time");
    assert_eq!(recovery(None, None), Verdict::Inconclusive);
}

#[test]
fn a_restored_policy_is_held_against_what_it_was_and_not_against_the_step_that_was_reversed() {
    // The old policy misses what the last step promises, and is restored all the same.
    let (old, again) = (evidence(false, "deadline"), canary(false, "deadline/restored"));
    let gates = measure().restored(&bounds("expansion"), &old, &again);
    assert_eq!(verdict(&gates), Verdict::Pass, "{gates:#?}");
    let mut worse = again;
    worse.states[0].core_goodput_ratio = Some(0.5);
    let gates = measure().restored(&bounds("expansion"), &old, &worse);
    assert_eq!(found(&gates, "goodput_drop_max_points").verdict, Verdict::Fail);
}

#[test]
fn an_omission_is_a_decision_of_the_product() {
    let mut now = evidence(true, "now");
    set(&mut now.states[0], Figure::Omission, Some(0.5));
    let gates = measure().step(&bounds("expansion"), &evidence(true, "before"), &now);
    let omission = found(&gates, "omission_max_ratio");
    assert_eq!((omission.verdict, omission.action), (Verdict::Fail, Action::ProductDecision));
    assert_eq!(found(&gates, "p99_max_ms").action, Action::Hold);
}

#[test]
fn figures_have_the_places_that_they_need() {
    for (value, text) in [
        (487.4, "487"),
        (11.96, "12"),
        (12.34, "12.3"),
        (0.0215, "0.0215"),
        (1.5, "1.5"),
        (0.0, "0"),
        (1_000.0, "1000"),
    ] {
        assert_eq!(number(value), text);
    }
}
