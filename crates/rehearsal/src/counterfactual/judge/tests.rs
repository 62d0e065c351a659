//! Tests of the verdicts: the figures that each rule turns on, doctored one at a time.

use model::region::{Hosts, Placement};

use super::*;
use crate::{
    report::Quantiles,
    sweep::{ByClass, Files, Ground, Waits},
};

fn base() -> Base {
    let ground = Ground { hosts: Hosts::UNBOUNDED, placement: Placement::EVEN, scale: None };
    Base::read(&Files::default(), ground).expect("shipped files")
}

fn class(class: &'static str) -> ByClass {
    ByClass {
        class,
        offered: 1_000,
        p99_ms: Some(279.0),
        goodput_ratio: Some(0.99),
        omission_ratio: Some(0.05),
        rejection_ratio: Some(0.0),
        deadline_ratio: Some(0.0),
    }
}

fn figures() -> Figures {
    Figures {
        state: "peak",
        latency_ms: Quantiles { n: 1_000, p50: Some(70.0), p99: Some(400.0), p999: Some(500.0) },
        p95_ms: Some(200.0),
        goodput_ratio: Some(0.99),
        wait_ms: Waits {
            endpoint_p99: Some(10.0),
            connection_p99: Some(1.0),
            store_mean: Some(0.0),
            slot_held_mean: Some(70.0),
        },
        profile_calls_per_operation: Some(0.84),
        joined_per_operation: Some(0.16),
        hedges_per_operation: Some(0.0),
        classes: ["standard", "premium", "enterprise"].map(class).to_vec(),
        ..Figures::default()
    }
}

/// The verdict when every trial but those that `change` touches came to the same.
fn verdict(switch: Switch, change: impl Fn(Trial, At, &mut Figures)) -> Verdict {
    let measured: Vec<(Trial, Measured)> = switch
        .trials()
        .iter()
        .map(|trial| {
            let states = trial.states().iter().map(|state| {
                let mut figures = Figures { state: state.as_str(), ..figures() };
                change(*trial, *state, &mut figures);
                figures
            });
            (*trial, Measured::from(states.collect::<Vec<_>>()))
        })
        .collect();
    judge(switch, &measured, &base()).verdict
}

#[test]
fn nothing_measured_passes_nothing() {
    for switch in Switch::ALL {
        let told = judge(switch, &[], &base());
        assert_eq!(told.verdict, Verdict::Inconclusive, "{switch}");
        assert!(!told.question.is_empty() && !told.expected.is_empty() && !told.rule.is_empty());
    }
    let guard = judge(Switch::ObservationGuard, &[], &base());
    assert!(guard.text.starts_with("not modelled yet"));
}

#[test]
fn capacity_alone_passes_while_it_moves_nothing() {
    assert_eq!(verdict(Switch::Hosts, |_, _, _| {}), Verdict::Pass);
    let faster = |which: Trial| {
        move |trial: Trial, _: At, figures: &mut Figures| {
            if trial == which {
                figures.latency_ms.p99 = Some(350.0);
            }
        }
    };
    assert_eq!(verdict(Switch::Hosts, faster(Trial::OldHosts)), Verdict::Fail);
    assert_eq!(verdict(Switch::Hosts, faster(Trial::Hosts)), Verdict::Fail);
    assert_eq!(verdict(Switch::Pool800, |_, _, _| {}), Verdict::Pass);
    assert_eq!(verdict(Switch::Pool800, faster(Trial::OldPool)), Verdict::Fail);
}

#[test]
fn a_broad_hedge_loses_or_gains_or_does_not_tell() {
    let hedged = |goodput: f64, wait_ms: f64| {
        move |trial: Trial, state: At, figures: &mut Figures| {
            if trial == Trial::Hedged {
                figures.profile_calls_per_operation = Some(0.92);
                figures.wait_ms.connection_p99 = Some(wait_ms);
                if state == At::Slowdown {
                    figures.goodput_ratio = Some(goodput);
                }
            }
        }
    };
    assert_eq!(verdict(Switch::HedgeBroadPeak, hedged(0.98, 7.0)), Verdict::Pass);
    assert_eq!(verdict(Switch::HedgeBroadPeak, hedged(0.98, 1.5)), Verdict::Inconclusive);
    assert_eq!(verdict(Switch::HedgeBroadPeak, hedged(0.99, 7.0)), Verdict::Inconclusive);
    assert_eq!(verdict(Switch::HedgeBroadPeak, hedged(0.995, 7.0)), Verdict::Fail);
    let moderate = |p95: f64, goodput: f64| {
        move |trial: Trial, _: At, figures: &mut Figures| {
            if trial == Trial::ModerateHedged {
                (figures.p95_ms, figures.goodput_ratio) = (Some(p95), Some(goodput));
            }
        }
    };
    assert_eq!(verdict(Switch::HedgeBroadModerate, moderate(180.0, 0.99)), Verdict::Pass);
    assert_eq!(verdict(Switch::HedgeBroadModerate, moderate(199.0, 0.99)), Verdict::Fail);
    assert_eq!(verdict(Switch::HedgeBroadModerate, moderate(180.0, 0.98)), Verdict::Fail);
}

#[test]
fn a_narrow_hedge_may_harm_nobody() {
    let narrow = |own: f64, others: f64| {
        move |trial: Trial, _: At, figures: &mut Figures| {
            if trial == Trial::Narrow {
                figures.classes[2].goodput_ratio = Some(own);
                figures.classes[0].goodput_ratio = Some(others);
            }
        }
    };
    assert_eq!(verdict(Switch::HedgeNarrow, narrow(0.995, 0.99)), Verdict::Pass);
    assert_eq!(verdict(Switch::HedgeNarrow, narrow(0.99, 0.99)), Verdict::Inconclusive);
    assert_eq!(verdict(Switch::HedgeNarrow, narrow(0.995, 0.98)), Verdict::Fail);
}

#[test]
fn overlap_and_hop_are_told_by_what_they_save() {
    let without_overlap = |joined: f64| {
        move |trial: Trial, _: At, figures: &mut Figures| {
            if trial == Trial::NoOverlap {
                figures.joined_per_operation = Some(joined);
            }
        }
    };
    assert_eq!(verdict(Switch::NoOverlap, without_overlap(0.001)), Verdict::Pass);
    assert_eq!(verdict(Switch::NoOverlap, without_overlap(0.1)), Verdict::Fail);
    let hop = |p50: f64, old_p99: f64| {
        move |trial: Trial, _: At, figures: &mut Figures| match trial {
            Trial::Hop => figures.latency_ms.p50 = Some(p50),
            Trial::Old => figures.latency_ms.p99 = Some(old_p99),
            _ => {}
        }
    };
    assert_eq!(verdict(Switch::HopKept, hop(75.0, 425.0)), Verdict::Pass);
    assert_eq!(verdict(Switch::HopKept, hop(75.0, 400.0)), Verdict::Inconclusive);
    assert_eq!(verdict(Switch::HopKept, hop(70.0, 400.0)), Verdict::Fail);
}

#[test]
fn a_class_that_keeps_its_objective_contradicts_the_study() {
    let kept = |goodput: f64, p99: f64| {
        move |_: Trial, _: At, figures: &mut Figures| {
            figures.classes[1].goodput_ratio = Some(goodput);
            figures.classes[2].p99_ms = Some(p99);
        }
    };
    assert_eq!(verdict(Switch::RecommendationRequired, kept(0.99, 279.0)), Verdict::Fail);
    assert_eq!(verdict(Switch::RecommendationRequired, kept(0.96, 279.0)), Verdict::Pass);
    assert_eq!(verdict(Switch::RecommendationRequired, kept(0.99, 310.0)), Verdict::Pass);
}
