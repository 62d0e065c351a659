//! Stories, tested: what must not pass. Each test doctors the evidence of an honest run as a false story would.

use super::{
    Action, Gate, Kind, Role,
    example::{self, AFTER, BEFORE, report},
    judge, verdict,
};
use crate::{
    report::{Mechanism, Quantiles, Report, State},
    verdict::Verdict,
};

/// Judges a report after `doctor` had it in hand.
fn doctored(doctor: impl FnOnce(&mut Report)) -> Vec<Gate> {
    let mut report = report();
    doctor(&mut report);
    judge(&report)
}

fn peak_after(report: &mut Report) -> &mut State {
    report.states.iter_mut().find(|one| one.policy == AFTER && one.state == "peak").expect("there")
}

fn peak_before(report: &mut Report) -> &mut State {
    report.states.iter_mut().find(|one| one.policy == BEFORE && one.state == "peak").expect("there")
}

/// The worst verdict of the gates of that name.
fn verdict_of(gates: &[Gate], name: &str) -> Verdict {
    assert!(gates.iter().any(|gate| gate.name == name), "no gate {name}");
    let named = gates.iter().filter(|gate| gate.name == name && gate.verdict != Verdict::NotApplicable);
    Verdict::of_all(named.map(|gate| gate.verdict))
}

#[test]
fn an_honest_comparison_passes_and_the_policy_before_is_not_held_against_the_objective() {
    let gates = judge(&report());
    let open: Vec<_> =
        gates.iter().filter(|gate| !matches!(gate.verdict, Verdict::Pass | Verdict::NotApplicable)).collect();
    assert!(open.is_empty(), "{open:#?}");
    assert_eq!(verdict(&gates), Verdict::Pass);
    for gate in gates.iter().filter(|gate| gate.kind == Kind::Objective) {
        let expected =
            if gate.policy.as_deref() == Some(AFTER) { Verdict::Pass } else { Verdict::NotApplicable };
        assert_eq!(gate.verdict, expected, "{gate:#?}");
    }
    let mut keys: Vec<_> = gates.iter().map(|gate| (gate.name, &gate.policy, &gate.state)).collect();
    keys.sort();
    let count = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), count, "policy, state and name tell a gate apart");
}

#[test]
fn degraded_answers_left_out_of_the_population_are_refused() {
    let gates = doctored(|report| {
        let state = peak_after(report);
        let whole = state.outcomes["ok"];
        let latencies = example::latencies(whole, 90);
        state.latency_ms = latencies.summary().into();
        state.histogram = example::buckets(&latencies);
    });
    assert_eq!((verdict_of(&gates, "population"), verdict(&gates)), (Verdict::Fail, Verdict::Fail));
    // Leaving them out of the outcomes as well does not help: they ended.
    let gates = doctored(|report| {
        let state = peak_after(report);
        state.outcomes.insert("ok_degraded", 0);
        state.omission_ratio = Some(0.0);
    });
    assert_eq!(verdict_of(&gates, "population"), Verdict::Fail);
}

#[test]
fn a_class_mix_that_shifted_is_another_workload() {
    let gates = doctored(|report| {
        let state = peak_after(report);
        // 30 enterprise operations less than declared, of 150.
        state.classes.get_mut("enterprise").expect("there").scheduled -= 30;
        state.classes.get_mut("standard").expect("there").scheduled += 30;
    });
    assert_eq!(verdict_of(&gates, "class_mix"), Verdict::Inconclusive);
    assert_eq!(verdict(&gates), Verdict::Inconclusive);
    // Offered as declared, and answered in another mix: the hard class was turned away.
    let gates = doctored(|report| {
        let state = peak_after(report);
        state.classes.get_mut("enterprise").expect("there").latency_ms.n -= 30;
        state.classes.get_mut("standard").expect("there").latency_ms.n += 30;
    });
    assert_eq!(verdict_of(&gates, "answer_mix"), Verdict::Inconclusive);
    let at_bound = doctored(|report| {
        let class = peak_after(report).classes.get_mut("enterprise").expect("there");
        class.scheduled = class.scheduled * 85 / 100;
    });
    let gate = at_bound.iter().find(|gate| gate.name == "class_mix" && gate.policy.as_deref() == Some(AFTER));
    assert!(gate.expect("there").observed.expect("observed") >= 0.15, "{gate:?}");
    assert_eq!(verdict_of(&at_bound, "class_mix"), Verdict::Inconclusive, "15 % is already too much");
}

#[test]
fn a_dependency_mix_that_shifted_compares_two_workloads() {
    let gates = doctored(|report| {
        let calls = &mut peak_after(report).dependency_calls_per_operation;
        calls.insert("pricing".to_owned(), Some(0.4));
    });
    assert_eq!(
        (verdict_of(&gates, "dependency_mix"), verdict(&gates)),
        (Verdict::Inconclusive, Verdict::Inconclusive)
    );
    let unknown = doctored(|report| {
        peak_after(report).dependency_calls_per_operation.insert("pricing".to_owned(), None);
    });
    assert_eq!(verdict_of(&unknown, "dependency_mix"), Verdict::Inconclusive);
}

#[test]
fn a_closed_loop_offers_less_than_is_declared() {
    let gates = doctored(|report| {
        let state = peak_after(report);
        // What an impatient generator does: one operation in ten waits for another's answer and is never due.
        let lost = state.arrivals.scheduled / 10;
        state.arrivals.scheduled -= lost;
        state.arrivals.completed -= lost;
    });
    assert_eq!(verdict_of(&gates, "open_loop"), Verdict::Inconclusive);
    assert_ne!(verdict(&gates), Verdict::Pass);
    let unknown = doctored(|report| peak_after(report).arrivals.declared = None);
    assert_eq!(verdict_of(&unknown, "open_loop"), Verdict::Inconclusive);
}

#[test]
fn warm_up_that_leaked_in_is_refused() {
    let more = doctored(|report| peak_after(report).arrivals.scheduled += 300);
    assert_eq!((verdict_of(&more, "warm_up"), verdict(&more)), (Verdict::Fail, Verdict::Fail));
    let earlier = doctored(|report| {
        let state = peak_after(report);
        state.timeline[0].at_s = state.starts_s - 1.0;
    });
    assert_eq!(verdict_of(&earlier, "warm_up"), Verdict::Fail);
    let overlapping = doctored(|report| peak_after(report).starts_s = 10.0);
    assert_eq!(verdict_of(&overlapping, "warm_up"), Verdict::Fail);
    let answers = doctored(|report| {
        let state = peak_after(report);
        state.latency_ms.n = state.arrivals.scheduled + 1;
    });
    assert_eq!(verdict_of(&answers, "warm_up"), Verdict::Fail);
}

#[test]
fn averaged_percentiles_are_refused() {
    let gates = doctored(|report| {
        let state = peak_before(report);
        // Two halves of the run, one of them quiet: the mean of 80 and 487 ms.
        state.latency_ms.p99 = Some((80.0 + 487.0) / 2.0);
    });
    assert_eq!((verdict_of(&gates, "merged_quantiles"), verdict(&gates)), (Verdict::Fail, Verdict::Fail));
    let scheme = doctored(|report| report.histogram = "mean of the minutes' percentiles");
    assert_eq!(verdict_of(&scheme, "merged_quantiles"), Verdict::Fail);
    let absent = doctored(|report| peak_after(report).histogram.clear());
    assert_eq!(verdict_of(&absent, "merged_quantiles"), Verdict::Fail);
}

#[test]
fn a_ratio_must_follow_from_its_counts() {
    for doctor in [
        (|state| state.core_goodput_ratio = Some(0.999)) as fn(&mut State),
        |state| state.omission_ratio = Some(0.0),
        |state| state.rejection_ratio = None,
        |state| state.departure_ratio = Some(0.1),
        |state| state.beyond_objective_ratio = Some(0.5),
    ] {
        let gates = doctored(|report| doctor(peak_after(report)));
        assert_eq!((verdict_of(&gates, "recomputed"), verdict(&gates)), (Verdict::Fail, Verdict::Fail));
    }
}

#[test]
fn a_lost_arrival_and_a_wrong_answer_block_even_in_a_run_that_did_not_keep_time() {
    let late = |report: &mut Report| report.policies[1].generator.clock_error_ms.p99 = Some(9.0);
    let gates = doctored(|report| {
        late(report);
        peak_after(report).arrivals.completed -= 1;
    });
    assert_eq!((verdict_of(&gates, "arrivals_balance"), verdict(&gates)), (Verdict::Fail, Verdict::Fail));
    let gates = doctored(|report| {
        late(report);
        peak_after(report).core_mismatch = 1;
    });
    let gate = gates.iter().find(|gate| gate.name == "core_mismatch" && gate.verdict == Verdict::Fail);
    assert_eq!(gate.expect("failed").action, Action::Block);
}

#[test]
fn a_run_that_did_not_keep_time_shows_nothing() {
    for value in [Some(3.1), None, Some(f64::NAN)] {
        let gates = doctored(|report| report.policies[0].generator.clock_error_ms.p99 = value);
        assert_eq!(verdict_of(&gates, "generator_valid"), Verdict::Inconclusive, "{value:?}");
        let gates = doctored(|report| report.policies[1].generator.emulator_timer_ms.p99 = value);
        assert_eq!(
            (verdict_of(&gates, "emulator_timer"), verdict(&gates)),
            (Verdict::Inconclusive, Verdict::Inconclusive)
        );
    }
    let gates = doctored(|report| report.policies[1].generator.unsent_ratio = Some(0.002));
    assert_eq!(verdict_of(&gates, "generator_unsent"), Verdict::Inconclusive);
}

#[test]
fn what_was_not_measured_never_passes() {
    let blank = |state: &mut State| {
        let State { policy, state: name, .. } = state;
        *state = State { policy: policy.clone(), state: name.clone(), ..State::default() };
    };
    let gates = doctored(|report| report.states.iter_mut().for_each(blank));
    for gate in gates {
        // Counts of nothing are zero, and are what they are.
        let counts = ["arrivals_balance", "population", "recomputed", "warm_up", "permits_held"];
        let timing = ["generator_valid", "generator_unsent", "emulator_timer"];
        if !counts.contains(&gate.name) && !timing.contains(&gate.name) {
            assert_ne!(gate.verdict, Verdict::Pass, "{gate:#?}");
        }
    }
    let few = doctored(|report| peak_after(report).latency_ms = Quantiles { n: 99, ..Quantiles::default() });
    assert_eq!(verdict_of(&few, "samples"), Verdict::Inconclusive, "no 99th percentile of 99");
    let none = |at: usize| doctored(|report| report.states[at].latency_ms = Quantiles::default());
    assert_eq!(verdict_of(&none(0), "samples"), Verdict::Inconclusive, "the peak before is compared with");
    assert_eq!(verdict_of(&none(1), "samples"), Verdict::Pass, "it answers nobody in a slowdown: a finding");
    assert_eq!(verdict_of(&none(4), "samples"), Verdict::Inconclusive);
    let permits = doctored(|report| report.policies[1].after_run.permits_held = None);
    assert_eq!(verdict_of(&permits, "permits_held"), Verdict::Inconclusive);
}

/// Changes one figure of a state.
type Doctor = fn(&mut State);

#[test]
fn a_breach_in_a_run_that_did_not_keep_time_is_no_verdict_and_a_wrong_answer_is() {
    let late = |report: &mut Report| report.policies[1].generator.clock_error_ms.p99 = Some(9.0);
    let slow = doctored(|report| {
        late(report);
        peak_after(report).core_goodput_ratio = Some(0.5);
    });
    let goodput = slow.iter().find(|gate| gate.name == "goodput" && gate.policy.as_deref() == Some(AFTER));
    assert_eq!(goodput.expect("listed").verdict, Verdict::Inconclusive);
    let wrong = doctored(|report| {
        late(report);
        peak_after(report).core_mismatch = 1;
    });
    assert_eq!(verdict_of(&wrong, "core_mismatch"), Verdict::Fail);
}

#[test]
fn each_bound_of_the_objective_is_kept_by_the_policy_after_alone() {
    let cases: [(&str, Doctor, Action); 6] = [
        ("queue_age_p99", |state| state.queue_age_ms.p99 = Some(12.1), Action::Hold),
        ("profile_occupancy", |state| state.occupancy_ratio.profile = Some(0.821), Action::Hold),
        ("late_work", |state| state.late_work.ratio = Some(0.021), Action::Hold),
        ("p99", |state| state.latency_ms.p99 = Some(301.0), Action::Hold),
        ("omission", |state| state.omission_ratio = Some(0.081), Action::ProductDecision),
        ("goodput", |state| state.core_goodput_ratio = Some(0.979), Action::Hold),
    ];
    for (name, doctor, action) in cases {
        let gates = doctored(|report| doctor(peak_after(report)));
        let failed = gates.iter().find(|gate| gate.name == name && gate.verdict == Verdict::Fail);
        assert_eq!(failed.unwrap_or_else(|| panic!("{name} passes")).action, action);
    }
    let slow = doctored(|report| {
        let state = report.states.iter_mut().find(|one| one.policy == AFTER && one.state == "slowdown");
        state.expect("there").latency_ms.p99 = Some(310.0);
    });
    let failed = slow.iter().find(|gate| gate.name == "p99" && gate.verdict == Verdict::Fail);
    assert_eq!(failed.expect("failed").state.as_deref(), Some("slowdown"));
    let held = doctored(|report| report.policies[1].after_run.flights_open = Some(1.0));
    assert_eq!(verdict_of(&held, "permits_held"), Verdict::Fail);
}

#[test]
fn recovery_has_a_bound_in_proportion_and_an_unfinished_one_is_open_or_beyond_it() {
    let recovery = |took: Option<f64>, at_least: Option<f64>| {
        let gates = doctored(|report| {
            let state = report.states.last_mut().expect("there");
            (state.recovery_s, state.recovery_at_least_s) = (took, at_least);
        });
        let gate =
            gates.into_iter().find(|gate| gate.name == "recovery" && gate.policy.as_deref() == Some(AFTER));
        gate.expect("there")
    };
    let passed = recovery(Some(12.0), None);
    assert_eq!((passed.verdict, passed.bound), (Verdict::Pass, 12.0), "30 of 900 s of slowdown");
    assert_eq!(recovery(Some(13.0), None).verdict, Verdict::Fail);
    let beyond = recovery(None, Some(30.0));
    assert_eq!((beyond.verdict, beyond.observed), (Verdict::Fail, Some(30.0)));
    assert_eq!(recovery(None, Some(5.0)).verdict, Verdict::Inconclusive);
    assert_eq!(recovery(None, None).verdict, Verdict::Inconclusive);
}

#[test]
fn a_smaller_system_is_a_smaller_sample_and_says_so() {
    let goodput = |scale: &str, ratio: f64| {
        let gates = doctored(|report| {
            report.scale = Some(scale.to_owned());
            peak_after(report).core_goodput_ratio = Some(ratio);
        });
        gates
            .into_iter()
            .find(|gate| gate.name == "goodput" && gate.policy.as_deref() == Some(AFTER))
            .expect("there")
    };
    let whole = goodput("1", 0.975);
    assert_eq!((whole.verdict, whole.bound), (Verdict::Fail, 0.98));
    // 2,400 stayed: a standard deviation is 0.286 points.
    let scaled = goodput("1/24", 0.975);
    assert!((scaled.bound - 0.971_43).abs() < 1e-5, "{}", scaled.bound);
    assert_eq!(scaled.verdict, Verdict::Pass);
    assert!(scaled.detail.contains("3 standard deviations"), "{}", scaled.detail);
    assert_eq!(goodput("1/24", 0.971).verdict, Verdict::Fail);
}

#[test]
fn a_policy_before_without_the_problem_shows_no_repair() {
    let quiet = doctored(|report| peak_before(report).latency_ms.p99 = Some(390.0));
    assert_eq!(verdict_of(&quiet, "before_p99"), Verdict::Inconclusive);
    let empty = doctored(|report| peak_before(report).occupancy_ratio.profile = Some(0.6));
    assert_eq!(verdict_of(&empty, "before_profile_occupancy"), Verdict::Inconclusive);
    let scaled = doctored(|report| {
        peak_before(report).occupancy_ratio.profile = Some(0.6);
        report.scale = Some("1/24".to_owned());
    });
    assert_eq!(verdict(&scaled), Verdict::Pass, "a smaller pool waits at a lower occupancy");
}

#[test]
fn the_repair_must_be_worth_it() {
    let p99 = doctored(|report| peak_after(report).latency_ms.p99 = Some(299.0));
    assert_eq!(verdict_of(&p99, "p99_reduction"), Verdict::Fail);
    let late = doctored(|report| peak_after(report).late_work.ratio = Some(0.011));
    assert_eq!(verdict_of(&late, "late_work_fold"), Verdict::Fail);
    let none = doctored(|report| peak_after(report).late_work.ratio = Some(0.0));
    let gate = none.iter().find(|gate| gate.name == "late_work_fold").expect("there");
    assert_eq!(gate.verdict, Verdict::Pass);
    assert_eq!(gate.observed, Some(0.2 * 3_000.0), "less than one of 3,000");
    let nothing = doctored(|report| {
        peak_before(report).late_work.ratio = Some(0.0);
        peak_after(report).late_work.ratio = Some(0.0);
    });
    assert_ne!(verdict_of(&nothing, "late_work_fold"), Verdict::Pass, "nothing became less");
}

#[test]
fn recovery_is_compared_by_what_is_known_of_both() {
    let fold = |before: (Option<f64>, Option<f64>), after: Option<f64>| {
        let gates = doctored(|report| {
            let state = &mut report.states[2];
            (state.recovery_s, state.recovery_at_least_s) = before;
            report.states[5].recovery_s = after;
        });
        let gate = gates.into_iter().find(|gate| gate.name == "recovery_fold").expect("there");
        (gate.verdict, gate.observed)
    };
    assert_eq!(fold((Some(20.0), None), Some(4.0)), (Verdict::Pass, Some(5.0)));
    assert_eq!(fold((Some(6.0), None), Some(4.0)), (Verdict::Fail, Some(1.5)));
    assert_eq!(fold((None, Some(30.0)), Some(4.0)), (Verdict::Pass, Some(7.5)));
    assert_eq!(
        fold((None, Some(30.0)), Some(20.0)),
        (Verdict::Inconclusive, Some(1.5)),
        "the run was too short"
    );
    assert_eq!(fold((Some(3.0), None), Some(0.0)), (Verdict::Pass, Some(3.0)), "a window is the least");
    assert_eq!(
        fold((Some(0.0), None), Some(0.0)),
        (Verdict::Inconclusive, Some(0.0)),
        "nothing to recover from"
    );
    assert_eq!(fold((Some(20.0), None), None).0, Verdict::Inconclusive);
    assert_eq!(fold((None, None), Some(4.0)).0, Verdict::Inconclusive);
}

#[test]
fn a_mechanism_that_does_not_show_its_effect_is_not_passed_over() {
    let gates = |verdicts: &[Verdict]| {
        doctored(|report| {
            let one = |verdict: &Verdict| Mechanism { verdict: *verdict, ..Mechanism::default() };
            report.mechanisms = verdicts.iter().map(one).collect();
        })
    };
    use Verdict::{Fail, Inconclusive, NotApplicable, Pass};
    assert_eq!(verdict(&gates(&[Pass, NotApplicable])), Pass);
    assert_eq!(verdict(&gates(&[Pass, Inconclusive])), Inconclusive);
    assert_eq!(verdict(&gates(&[Pass, Inconclusive, Fail])), Fail);
    assert!(gates(&[]).iter().all(|gate| gate.name != "mechanisms_shown"));
}

#[test]
fn a_run_that_was_ended_for_its_memory_says_so() {
    let gates = doctored(|report| {
        report.policies[0].after_run.stopped = Some("home-api had 600 MiB".to_owned());
        peak_before(report).memory_peak_mib = Some(600.0);
    });
    let gate =
        gates.iter().find(|gate| gate.name == "memory" && gate.verdict == Verdict::Fail).expect("failed");
    assert_eq!((gate.policy.as_deref(), gate.observed), (Some(BEFORE), Some(600.0)));
    assert!(gate.detail.contains("600 MiB"), "{}", gate.detail);
}

#[test]
fn one_policy_alone_has_no_comparison_and_is_judged_by_its_part() {
    for (role, policy, expected) in
        [(Role::After, AFTER, Verdict::Pass), (Role::Before, BEFORE, Verdict::NotApplicable)]
    {
        let gates = doctored(|report| {
            report.states.retain(|state| state.policy == policy);
            report.policies.retain(|one| one.role == role);
        });
        assert!(gates.iter().all(|gate| gate.kind != Kind::Comparison));
        assert!(
            gates.iter().filter(|gate| gate.kind == Kind::Objective).all(|gate| gate.verdict == expected)
        );
        assert_eq!(verdict(&gates), Verdict::Pass);
    }
}
