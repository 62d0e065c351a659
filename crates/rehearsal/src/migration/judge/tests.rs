//! Tests of the judge: a healthy fleet passes every step, and each harm alone keeps it from passing, in its own way.

use ::rollout::report::StreamReport;

use super::*;
use crate::migration::example::{KEY, NOW_UNIX_MS, SINCE_UNIX_MS, count, fleet, head, spread, standing};
use Verdict::{Fail, Inconclusive, Pass};

/// Judges a fleet in `phase` after `harm` was done to it, by the full extent.
fn judged(phase: Phase, harm: impl FnOnce(&mut Vec<Heard>)) -> Judgement {
    judged_at(phase, NOW_UNIX_MS, false, harm)
}

fn judged_at(phase: Phase, now_unix_ms: i64, quick: bool, harm: impl FnOnce(&mut Vec<Heard>)) -> Judgement {
    let (plan, standing, head) = (Plan::shipped(), standing(phase), head());
    let mut processes = fleet(&standing, &head);
    harm(&mut processes);
    let question = Question::after(phase).unwrap_or(Question::Return);
    let (standing, head) = (Some(&standing), Some(&head));
    Case { plan: &plan, quick, standing, head, question, processes: &processes, now_unix_ms }.judge()
}

fn report(processes: &mut [Heard], at: usize) -> &mut ProcessReport {
    processes[at].report.as_mut().expect("healthy")
}

/// The counts of all home-apis are these rows, on the first of them.
fn saw(
    processes: &mut [Heard],
    comparisons: Vec<::rollout::report::Count>,
    authority: Vec<::rollout::report::Count>,
) {
    for at in 0..3 {
        let counts = &mut report(processes, at).counts;
        (counts.comparisons, counts.authority) = (Vec::new(), Vec::new());
    }
    let counts = &mut report(processes, 0).counts;
    (counts.comparisons, counts.authority) = (comparisons, authority);
}

/// The gate that does not pass, which must be the only one.
#[track_caller]
fn only(judgement: &Judgement, name: &str, verdict: Verdict) -> Gate {
    let open: Vec<&Gate> = judgement.gates.iter().filter(|gate| gate.verdict != Pass).collect();
    let names: Vec<&str> = open.iter().map(|gate| gate.name).collect();
    assert_eq!((names.as_slice(), judgement.verdict), (&[name][..], verdict), "{:#?}", judgement.gates);
    assert_eq!(open[0].verdict, verdict);
    assert!(judgement.reason.starts_with(name), "{}", judgement.reason);
    open[0].clone()
}

const ALL: [Phase; 5] = [Phase::Legacy, Phase::Expand, Phase::Shadow, Phase::Canary, Phase::Cutover];

#[test]
fn a_healthy_fleet_passes_every_step_and_the_return() {
    for phase in ALL.into_iter().chain([Phase::Contract]) {
        let judgement = judged(phase, |_| {});
        assert_eq!(judgement.verdict, Pass, "{phase}: {:#?}", judgement.gates);
        assert_eq!(Some(judgement.target), phase.next().or(Some(Phase::Cutover)));
        assert_eq!(judged_at(phase, NOW_UNIX_MS, true, |_| {}).verdict, Pass);
    }
    for target in Target::ALL {
        assert_eq!(Question::Onward(target).target().as_str(), target.as_str());
    }
    assert_eq!(Question::after(Phase::Contract), None);
}

#[test]
fn without_data_nothing_passes() {
    let nobody = judged(Phase::Shadow, Vec::clear);
    assert_eq!(nobody.verdict, Inconclusive);
    assert!(
        nobody.gates.iter().all(|gate| gate.verdict != Pass || gate.name == "soak"),
        "{:#?}",
        nobody.gates
    );
    for phase in ALL {
        let silent =
            judged(phase, |fleet| (0..4).for_each(|at| report(fleet, at).counts = Counts::default()));
        assert_eq!(silent.verdict, Inconclusive, "{phase}");
        let sample = silent.gates.iter().find(|gate| gate.name == "sample").expect("a gate");
        assert_eq!((sample.observed, sample.verdict), (Some(0.0), Inconclusive), "{phase}");
        let figures = silent.gates.iter().filter(|gate| gate.kind == crate::gates::Kind::Objective);
        let passed: Vec<&str> = figures.filter(|gate| gate.verdict == Pass).map(|gate| gate.name).collect();
        assert_eq!(passed, ["soak"], "{phase}");
    }
}

#[test]
fn before_the_ledger_has_a_decision_nobody_can_be_where_it_is() {
    let (plan, head) = (Plan::shipped(), head());
    let processes = fleet(&standing(Phase::Legacy), &head);
    let question = Question::Onward(Target::Expand);
    let case = Case {
        plan: &plan,
        quick: true,
        standing: None,
        head: None,
        question,
        processes: &processes,
        now_unix_ms: NOW_UNIX_MS,
    };
    let judgement = case.judge();
    assert_eq!(judgement.verdict, Inconclusive);
    assert_eq!(case.counts(), Counts::default());
}

#[test]
fn a_process_that_is_not_heard_makes_it_inconclusive_and_is_named() {
    for at in 0..3 {
        let judgement =
            judged(Phase::Shadow, |fleet| fleet[at].report = Err("connection refused".to_owned()));
        let gate = only(&judgement, "unheard", Inconclusive);
        assert_eq!(gate.observed, Some(1.0));
        assert!(gate.detail.contains(&format!("127.0.0.1:{}", 9_001 + at)), "{}", gate.detail);
    }
    let stranger = judged(Phase::Shadow, |fleet| {
        fleet.push(Heard {
            address: "127.0.0.1:1".to_owned(),
            report: Ok(ProcessReport { service: "pricing".to_owned(), ..ProcessReport::default() }),
        });
    });
    assert!(only(&stranger, "unheard", Inconclusive).detail.contains("\"pricing\""));
}

#[test]
fn each_kind_of_process_is_needed_and_each_process_once() {
    let no_profile = judged(Phase::Legacy, |fleet| drop(fleet.pop()));
    only(&no_profile, "profile_processes", Inconclusive);
    let no_home = judged(Phase::Expand, |fleet| drop(fleet.drain(..3)));
    assert_eq!(no_home.verdict, Inconclusive);
    assert!(
        no_home.gates.iter().any(|gate| gate.name == "home_api_processes" && gate.verdict == Inconclusive)
    );
    let twice = judged(Phase::Shadow, |fleet| {
        fleet[1].report = fleet[0].report.clone();
    });
    assert!(only(&twice, "heard_twice", Inconclusive).detail.contains("h1 again"));
}

#[test]
fn who_is_elsewhere_than_the_ledger_is_named_and_does_not_count() {
    let other_phase = judged(Phase::Canary, |fleet| report(fleet, 1).phase = Phase::Shadow);
    let gate = only(&other_phase, "behind", Inconclusive);
    assert!(
        gate.detail.contains("127.0.0.1:9002 is in shadow of generation 7, the ledger in canary of 7"),
        "{}",
        gate.detail
    );
    let other_generation = judged(Phase::Canary, |fleet| {
        report(fleet, 1).generation = 5;
        // What it saw was in another phase.
        report(fleet, 1).counts.comparisons.push(count("claims_mismatch", "premium", "eu-west", 4));
    });
    only(&other_generation, "behind", Inconclusive);
    let unread = judged(Phase::Canary, |fleet| report(fleet, 3).head = None);
    assert!(only(&unread, "head_unread", Inconclusive).detail.contains("profile at 127.0.0.1:9100"));
    let forked = judged(Phase::Canary, |fleet| {
        report(fleet, 0).head = Some(Head { digest: "0".repeat(64), ..head() })
    });
    only(&forked, "head_unread", Inconclusive);
    let policies = judged(Phase::Canary, |fleet| report(fleet, 2).policy_generation = 4);
    assert!(only(&policies, "policy_generations_apart", Inconclusive).detail.contains("from 3 to 4"));
}

#[test]
fn who_could_not_serve_the_next_phase_fails_it_with_its_reason_even_if_another_is_not_heard() {
    let unable = |fleet: &mut Vec<Heard>| {
        report(fleet, 2).unable.insert(Phase::Shadow, "it accepts no key".to_owned());
    };
    let judgement = judged(Phase::Expand, unable);
    assert!(only(&judgement, "able", Fail).detail.contains("9003 could not serve shadow: it accepts no key"));
    let unheard = judged(Phase::Expand, |fleet| {
        unable(fleet);
        fleet[0].report = Err("gone".to_owned());
    });
    assert_eq!(unheard.verdict, Fail, "the missing one could not undo it");
    // A phase that is not asked about is no matter.
    assert_eq!(judged(Phase::Legacy, unable).verdict, Pass);
}

#[test]
fn a_key_that_is_not_accepted_everywhere_fails_before_anybody_reads() {
    let unknown = |fleet: &mut Vec<Heard>| report(fleet, 1).keys.retain(|key| key != KEY);
    assert_eq!(judged(Phase::Legacy, unknown).verdict, Pass, "nobody reads in expand");
    for phase in &ALL[1..] {
        let gate = only(&judged(*phase, unknown), "keys_accepted", Fail);
        assert!(gate.detail.contains("9002 does not accept \"2026-a\""), "{}", gate.detail);
    }
    let keyless = judged(Phase::Expand, |fleet| report(fleet, 3).keys.clear());
    only(&keyless, "keys_accepted", Inconclusive);
}

#[test]
fn revocations_must_be_heard_of_everywhere_before_a_summary_is_an_authority() {
    let stale = Some(StreamReport { fresh: false, silent_ms: Some(31_000), heard: 5 });
    for (stream, said) in
        [(stale, "for 31000 ms"), (None, "no stream"), (Some(StreamReport::default()), "never")]
    {
        let harm = |fleet: &mut Vec<Heard>| report(fleet, 0).revocations = stream.clone();
        for phase in [Phase::Shadow, Phase::Canary, Phase::Cutover, Phase::Contract] {
            let gate = only(&judged(phase, harm), "revocations_stale", Fail);
            assert!(gate.detail.contains(said), "{}", gate.detail);
        }
        assert_eq!(judged(Phase::Expand, harm).verdict, Pass);
    }
}

#[test]
fn a_sample_is_summed_over_the_processes_and_one_short_is_not_enough() {
    let of_each = |each: [u64; 3]| {
        judged(Phase::Legacy, move |fleet| {
            for (at, pages) in each.into_iter().enumerate() {
                report(fleet, at).counts.pages.insert("answered".to_owned(), pages);
            }
        })
    };
    assert_eq!(of_each([400, 350, 250]).verdict, Pass);
    let gate = only(&of_each([400, 350, 249]), "sample", Inconclusive);
    assert_eq!((gate.observed, gate.bound), (Some(999.0), 1_000.0));
    let signed = judged(Phase::Expand, |fleet| {
        report(fleet, 3).counts.emitted.insert("signed".to_owned(), 999);
    });
    assert!(signed.gates.iter().any(|gate| gate.name == "sample" && gate.observed == Some(999.0)));
    assert_eq!(signed.verdict, Inconclusive);
}

#[test]
fn each_class_and_region_that_was_seen_has_its_own_sample() {
    let mut rows: Vec<_> = spread("match", 5_000).collect();
    rows.push(count("match", "standard", "ap-south", 199));
    rows.push(count("not_run", "standard", "ap-south", 1));
    let gate =
        only(&judged(Phase::Shadow, |fleet| saw(fleet, rows, Vec::new())), "region_sample", Inconclusive);
    assert_eq!(gate.observed, Some(199.0), "what was not compared is no sample");
    assert!(gate.detail.starts_with("ap-south"), "{}", gate.detail);
    // Compared and served ones together, where some are served; a class that the call alone served was seen.
    let rows = || spread("match", 5_000).filter(|row| row.class != "enterprise").collect::<Vec<_>>();
    let mut served: Vec<_> = spread("summary", 1_000).filter(|row| row.class != "enterprise").collect();
    served.push(count("call", "enterprise", "eu-west", 50));
    let none = judged(Phase::Canary, |fleet| saw(fleet, rows(), served.clone()));
    assert_eq!(only(&none, "class_sample", Inconclusive).observed, Some(0.0));
    served.push(count("summary", "enterprise", "eu-west", 198));
    served.push(count("fallback:expired", "enterprise", "eu-west", 2));
    assert_eq!(judged(Phase::Canary, |fleet| saw(fleet, rows(), served)).verdict, Pass);
}

#[test]
fn a_phase_soaks_however_much_traffic_there_was() {
    for (quick, soak_ms) in [(false, 300_000), (true, 2_000)] {
        let at = |after_ms| judged_at(Phase::Shadow, SINCE_UNIX_MS + after_ms, quick, |_| {});
        // The processes of the example have counted since 150 ms after the decision.
        assert_eq!(at(soak_ms + 150).verdict, Pass);
        only(&at(soak_ms + 149), "soak", Inconclusive);
        only(&at(-5), "soak", Inconclusive);
    }
}

#[test]
fn one_summary_in_a_million_that_lied_stops_it_whoever_is_not_heard() {
    for kind in ["claims_mismatch", "invalid_signature", "wrong_identity"] {
        let harm = |fleet: &mut Vec<Heard>| {
            let mut rows: Vec<_> = spread("match", 200_000).collect();
            rows.push(count(kind, "premium", "eu-west", 1));
            saw(fleet, rows, Vec::new());
        };
        let judgement = judged(Phase::Shadow, harm);
        let gate = only(&judgement, "blocking", Fail);
        assert_eq!((gate.observed, gate.bound, gate.detail), (Some(1.0), 0.0, format!("{kind} 1")));
        let unheard = judged(Phase::Shadow, |fleet| {
            harm(fleet);
            fleet[2].report = Err("gone".to_owned());
        });
        assert_eq!(unheard.verdict, Fail, "{kind}");
        // A single one is enough when there is nothing else, too.
        let alone =
            judged(Phase::Shadow, |fleet| saw(fleet, vec![count(kind, "premium", "eu-west", 1)], Vec::new()));
        assert_eq!(alone.verdict, Fail, "{kind}");
    }
}

#[test]
fn where_the_summary_serves_the_reason_of_a_fallback_tells_of_lies_too() {
    for (reason, verdict) in [
        ("invalid_signature", Fail),
        ("wrong_subject", Fail),
        ("unknown_key", Fail),
        ("expired", Pass),
        ("stale_revocations", Pass),
    ] {
        let harm = |fleet: &mut Vec<Heard>| {
            report(fleet, 1).counts.authority.push(count(
                &format!("fallback:{reason}"),
                "premium",
                "eu-west",
                1,
            ));
        };
        for phase in [Phase::Canary, Phase::Cutover] {
            assert_eq!(judged(phase, harm).verdict, verdict, "{reason} in {phase}");
        }
    }
}

#[test]
fn a_request_refused_for_lack_of_a_summary_fails_while_the_call_is_there() {
    let judgement = judged(Phase::Cutover, |fleet| {
        report(fleet, 0).counts.authority.push(count("closed:expired", "standard", "eu-west", 1));
    });
    assert_eq!(only(&judgement, "closed", Fail).detail, "closed:expired 1");
}

/// Shares at their bound pass, beyond it fail; with a process missing, or too few, they show nothing.
#[test]
fn shares_are_kept_on_their_own_side_and_doubted_when_not_all_was_seen() {
    type Harm = fn(&mut Vec<Heard>, u64);
    let cases: [(&str, Phase, Harm); 6] = [
        ("refused", Phase::Legacy, |fleet, more| {
            // 180,000 answered: 5 % of 189,473.68.
            report(fleet, 0).counts.pages.insert("refused".to_owned(), 9_473 + more);
        }),
        ("missing", Phase::Expand, |fleet, more| {
            let emitted = &mut report(fleet, 3).counts.emitted;
            emitted.clear();
            emitted.extend([("signed".to_owned(), 99_000), ("policy_refused".to_owned(), 1_000 + more)]);
        }),
        ("missing", Phase::Shadow, |fleet, more| {
            let rows = spread("match", 16_500).chain([count("missing", "standard", "eu-west", 1_000 + more)]);
            saw(fleet, rows.collect(), Vec::new());
        }),
        ("not_run", Phase::Shadow, |fleet, more| {
            let rows =
                spread("match", 15_833).chain([count("not_run", "standard", "eu-west", 4_999 + 2 * more)]);
            saw(fleet, rows.collect(), Vec::new());
        }),
        ("match", Phase::Shadow, |fleet, more| {
            let rows = spread("match", 16_000).chain(spread("order_only", 500)).chain([count(
                "version_skew",
                "standard",
                "eu-west",
                1_000 + more,
            )]);
            saw(fleet, rows.collect(), Vec::new());
        }),
        ("fallback", Phase::Cutover, |fleet, more| {
            let rows = spread("summary", 16_583).chain(spread("call", 70)).chain([count(
                "fallback:expired",
                "standard",
                "eu-west",
                499 + 2 * more,
            )]);
            saw(fleet, Vec::new(), rows.collect());
        }),
    ];
    for (name, phase, harm) in cases {
        let at_bound = judged(phase, |fleet| harm(fleet, 0));
        assert_eq!(at_bound.verdict, Pass, "{name}: {:#?}", at_bound.gates);
        only(&judged(phase, |fleet| harm(fleet, 1)), name, Fail);
        let unheard = judged(phase, |fleet| {
            harm(fleet, 1);
            fleet[2].report = Err("gone".to_owned());
        });
        assert_eq!(unheard.verdict, Inconclusive, "{name}: {:#?}", unheard.gates);
        let gate = unheard.gates.iter().find(|gate| gate.name == name).expect("a gate");
        assert!(gate.detail.contains("not every process was heard"), "{}", gate.detail);
    }
    let few = judged(Phase::Shadow, |fleet| {
        saw(
            fleet,
            vec![count("match", "standard", "eu-west", 1), count("expired", "standard", "eu-west", 1)],
            Vec::new(),
        );
    });
    assert_eq!(few.verdict, Inconclusive, "half of two is no share");
}

#[test]
fn counts_that_no_process_could_have_are_no_panic() {
    for phase in ALL {
        let judgement = judged(phase, |fleet| {
            for at in 0..4 {
                let counts = &mut report(fleet, at).counts;
                counts
                    .pages
                    .values_mut()
                    .chain(counts.emitted.values_mut())
                    .for_each(|count| *count = u64::MAX);
                counts.pages.insert("refused".to_owned(), u64::MAX);
                counts
                    .comparisons
                    .iter_mut()
                    .chain(&mut counts.authority)
                    .for_each(|row| row.count = u64::MAX);
                report(fleet, at).policy_generation = u64::MAX * (at as u64 % 2);
            }
        });
        assert_ne!(judgement.verdict, Pass, "{phase}");
    }
}

#[test]
fn the_evidence_names_plan_figures_and_speakers_and_keeps_no_sample() {
    let judgement = judged(Phase::Shadow, |fleet| {
        report(fleet, 0).samples = vec![::rollout::report::Sample {
            at_unix_ms: 1,
            comparison: "claims_mismatch".to_owned(),
            rejection: String::new(),
            subject_digest: "d1".to_owned(),
            class: "premium".to_owned(),
            region: "eu-west".to_owned(),
            summary_version: 1,
            call_version: 1,
            key_id: KEY.to_owned(),
            only_summary: vec!["secret.claim".to_owned()],
            only_call: Vec::new(),
        }];
        fleet[1].report = Err("connection refused".to_owned());
    });
    let evidence = &judgement.evidence;
    assert_eq!(evidence["plan"]["version"], 1);
    assert_eq!(evidence["processes"][0]["samples"], 1);
    assert_eq!(evidence["processes"][1]["unheard"], "connection refused");
    assert_eq!(evidence["checks"].as_array().map(Vec::len), Some(judgement.gates.len()));
    assert!(evidence["counts"]["comparisons"].as_array().is_some_and(|rows| rows.len() == 6));
    assert!(!evidence.to_string().contains("secret.claim"), "samples expire, the ledger does not");
}
