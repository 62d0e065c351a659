//! Tests of the walk by a stage that answers from a script: what is run, what is decided, and what is written down.

use std::path::Path;

use base::WallClock;
use model::policy;
use tempfile::TempDir;

use super::*;
use crate::rollout::{
    example::{canary, evidence, measure, slow, within},
    reporting,
};

/// What a run shows, by name of the step and how often it has been run.
type Script<'s> = dyn FnMut(&str, usize, &mut Evidence) + 's;

/// A stage without suites. Healthy, unless the script doctors it.
struct Scripted<'s> {
    script: Box<Script<'s>>,
    /// Name, fault, and whether it was peak alone.
    ran: Vec<(String, Option<&'static str>, bool)>,
    policies: Vec<String>,
    decided: Vec<Decision>,
    clock: Still,
}

struct Still;

impl WallClock for Still {
    fn unix_ms(&self) -> i64 {
        7
    }
}

impl<'s> Scripted<'s> {
    fn new(script: impl FnMut(&str, usize, &mut Evidence) + 's) -> Self {
        let (ran, policies, decided) = Default::default();
        Self { script: Box::new(script), ran, policies, decided, clock: Still }
    }

    fn names(&self) -> Vec<&str> {
        self.ran.iter().map(|(name, ..)| name.as_str()).collect()
    }
}

impl Stage for Scripted<'_> {
    async fn run(&mut self, request: &Request<'_>) -> Result<Evidence, RolloutError> {
        let times = self.ran.iter().filter(|(name, ..)| name == request.name).count();
        self.ran.push((request.name.to_owned(), request.fault.map(|fault| fault.name), request.canary));
        self.policies.push(request.policy.to_owned());
        let old = [LEGACY, "signals", "deadline", "cancellation/canary"];
        let step = request.name.strip_suffix("/restored").unwrap_or(request.name);
        let repaired = !old.contains(&step);
        let mut seen =
            if request.canary { canary(repaired, request.name) } else { evidence(repaired, request.name) };
        (self.script)(request.name, times, &mut seen);
        Ok(seen)
    }

    fn decided(&mut self, rung: &Rung) {
        self.decided.push(rung.decision);
    }

    fn clock(&self) -> &dyn WallClock {
        &self.clock
    }
}

fn walk<'w>(ladder: &'w Ladder, inject: Option<&str>) -> Walk<'w> {
    Walk {
        ladder,
        legacy: policy::LEGACY.1,
        measure: measure(),
        injection: inject.map(|text| Injection::parse(text).expect("well formed")),
        actor: "ines".to_owned(),
        command: "mercury rehearse rollout".to_owned(),
    }
}

/// Walks the shipped ladder; returns the report as well.
async fn go(
    stage: &mut Scripted<'_>,
    home: &Path,
    inject: Option<&str>,
) -> (Walked, crate::report::Report, Vec<crate::ledger::Entry>) {
    let ladder = Ladder::shipped();
    let walk = walk(&ladder, inject);
    let path = home.join("decisions.jsonl");
    let mut ledger = Ledger::open(&path, &Still).expect("opened");
    let walked = walk.go(stage, &mut ledger).await.expect("walked");
    drop(ledger);
    let entries = crate::ledger::verify(&path).expect("sound").entries;
    (walked.clone(), reporting::report(&walk, &walked), entries)
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn verdict_of(report: &crate::report::Report, phase: &str) -> Verdict {
    report.scenarios.iter().find(|one| one.name == phase).expect("a phase").verdict
}

const CLIMB: [&str; 12] = [
    LEGACY,
    "signals",
    "deadline",
    "cancellation/canary",
    "cancellation",
    "admission/canary",
    "admission",
    "coalescing/canary",
    "coalescing",
    "degradation",
    "expansion/canary",
    "expansion",
];

#[tokio::test]
async fn a_healthy_walk_reaches_the_top_and_passes_over_what_is_not_available() {
    let home = home();
    let mut stage = Scripted::new(|_, _, _| {});
    let (walked, report, entries) = go(&mut stage, home.path(), None).await;
    assert_eq!(walked.end, End::Reached, "{walked:#?}");
    assert_eq!(stage.names(), CLIMB);
    for (name, _, short) in &stage.ran {
        assert_eq!(*short, name.ends_with("/canary"), "{name}");
    }
    assert_eq!(report.verdict, Verdict::Pass);
    assert_eq!(report.scenarios.len(), 8);
    for phase in &report.scenarios {
        let expected = if phase.name == "summary" { Verdict::NotApplicable } else { Verdict::Pass };
        assert_eq!(phase.verdict, expected, "{phase:?}");
    }
    assert!(report.scenarios[5].detail.contains("passed over: the migration has phases"), "{report:#?}");
    let comparison = report.comparison.expect("both ends");
    assert!(comparison.p99_before_ms > comparison.p99_after_ms);
    assert_eq!(report.policies.len(), 12);

    let decisions: Vec<Decision> = entries.iter().map(|entry| entry.decision).collect();
    let mut expected = vec![Decision::Advance; 13];
    expected[0] = Decision::Begin;
    expected[9] = Decision::Skip;
    assert_eq!(decisions, expected);
    assert_eq!(stage.decided, expected, "told as they were written");
    assert_eq!(entries[0].from, None);
    let last = entries.last().expect("an entry");
    assert_eq!((last.from.as_deref(), last.to.as_str()), (Some("expansion/canary"), "expansion"));
    assert_eq!(last.subject, "home-path");
    let checks = last.evidence["checks"].as_array().expect("checks");
    assert!(checks.iter().any(|check| check["name"] == "p99_max_ms" && check["verdict"] == "pass"));
    assert!(last.policy.is_some() && last.evidence["states"][0].get("timeline").is_none());
}

#[tokio::test]
async fn a_breach_is_reversed_to_the_phase_before_and_its_figures_are_looked_at() {
    let home = home();
    let mut stage = Scripted::new(|name, _, seen| {
        if name == "admission" {
            slow(&mut seen.states[0], 702);
        }
    });
    let (walked, report, entries) = go(&mut stage, home.path(), None).await;
    let End::Aborted { phase, why, restored } = &walked.end else { panic!("{:?}", walked.end) };
    assert_eq!((phase.as_str(), *restored), ("admission", Verdict::Pass));
    for part in ["p99_rise_max_percent", "702", "peak"] {
        assert!(why.contains(part), "{why}");
    }
    let (climbed, back) = stage.ran.split_at(stage.ran.len() - 1);
    assert_eq!(climbed.len(), 7, "nothing beyond: {climbed:?}");
    assert_eq!(back, [("cancellation/restored".to_owned(), None, true)], "not to the canary, and peak alone");
    assert_eq!(stage.policies.last(), stage.policies.get(4), "the policy of the cancellation phase");
    assert_eq!(report.verdict, Verdict::Fail);
    assert_eq!(verdict_of(&report, "cancellation"), Verdict::Pass);
    assert_eq!(verdict_of(&report, "admission"), Verdict::Fail);
    let later = report.scenarios.iter().find(|one| one.name == "coalescing").expect("a phase");
    assert_eq!((later.verdict, later.detail.starts_with("not reached")), (Verdict::Inconclusive, true));
    assert!(report.comparison.is_none());

    let [.., abort, reverse] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(
        (abort.decision, abort.from.as_deref(), abort.to.as_str()),
        (Decision::Abort, Some("admission/canary"), "admission")
    );
    assert_eq!(
        (reverse.decision, reverse.from.as_deref(), reverse.to.as_str()),
        (Decision::Reverse, Some("admission"), "cancellation")
    );
    assert!(reverse.reason.contains("its figures are back"), "{}", reverse.reason);
    assert_eq!(crate::ledger::replay(&entries).get("home-path"), Some(&"cancellation"));
}

#[tokio::test]
async fn a_breach_of_a_canary_ends_there() {
    let home = home();
    let mut stage = Scripted::new(|name, _, seen| {
        if name == "coalescing/canary" {
            seen.states[0].core_mismatch = 1;
        }
    });
    let (walked, ..) = go(&mut stage, home.path(), None).await;
    let End::Aborted { phase, why, .. } = &walked.end else { panic!("{:?}", walked.end) };
    assert_eq!(phase, "coalescing/canary");
    assert!(why.starts_with("core_mismatch"), "{why}");
    assert_eq!(stage.names().last(), Some(&"admission/restored"));
}

#[tokio::test]
async fn a_first_phase_that_breaches_goes_back_to_the_old_policy() {
    let home = home();
    let mut stage = Scripted::new(|name, _, seen| {
        if name == "signals" {
            within(&mut seen.states[1], 480);
        }
    });
    let (walked, _, entries) = go(&mut stage, home.path(), None).await;
    assert!(matches!(&walked.end, End::Aborted { phase, .. } if phase == "signals"), "{:?}", walked.end);
    assert_eq!(stage.names(), [LEGACY, "signals", "policy-legacy/restored"]);
    assert_eq!(stage.policies[2], policy::LEGACY.1);
    assert_eq!(entries.last().expect("an entry").to, LEGACY);
}

#[tokio::test]
async fn figures_that_do_not_come_back_are_said_and_change_nothing_else() {
    let home = home();
    let mut stage = Scripted::new(|name, _, seen| {
        if name.starts_with("degradation") || name.ends_with("/restored") {
            within(&mut seen.states[0], 960);
        }
    });
    let (walked, report, entries) = go(&mut stage, home.path(), None).await;
    assert!(matches!(walked.end, End::Aborted { restored: Verdict::Fail, .. }), "{:?}", walked.end);
    assert_eq!(report.verdict, Verdict::Fail);
    let last = entries.last().expect("an entry");
    assert_eq!(last.decision, Decision::Reverse);
    assert!(last.reason.contains("its figures are not"), "{}", last.reason);
}

#[tokio::test]
async fn a_figure_that_was_not_measured_holds_and_is_not_run_again() {
    let home = home();
    let mut stage = Scripted::new(|name, _, seen| {
        if name == "admission" {
            seen.states[0].queue_age_ms.p99 = None;
        }
    });
    let (walked, report, entries) = go(&mut stage, home.path(), None).await;
    let End::Held { phase, why } = &walked.end else { panic!("{:?}", walked.end) };
    assert_eq!(phase, "admission");
    assert!(why.contains("queue_age_p99_max_ms at peak: not measured"), "{why}");
    assert_eq!(stage.names().last(), Some(&"admission"), "once, and nothing after it");
    assert_eq!(
        (report.verdict, verdict_of(&report, "admission")),
        (Verdict::Inconclusive, Verdict::Inconclusive)
    );
    assert_eq!(crate::ledger::replay(&entries).get("home-path"), Some(&"admission/canary"));
}

#[tokio::test]
async fn a_machine_that_did_not_keep_time_gets_a_second_run_and_no_third() {
    let late = |seen: &mut Evidence| seen.policy.generator.clock_error_ms.p99 = Some(30.0);
    let home_once = home();
    let mut stage = Scripted::new(|name, times, seen| {
        if times == 0 && (name == LEGACY || name == "deadline") {
            late(seen);
        }
    });
    let (walked, report, entries) = go(&mut stage, home_once.path(), None).await;
    assert_eq!(walked.end, End::Reached);
    assert_eq!(stage.names()[..5], [LEGACY, LEGACY, "signals", "deadline", "deadline"]);
    assert_eq!(report.policies.len(), 12, "only the run that counts");
    assert!(report.gates.iter().all(|gate| gate.verdict == Verdict::Pass));
    let held = entries.iter().filter(|entry| entry.decision == Decision::Hold).count();
    assert_eq!(held, 2, "both runs are on record, of the old policy and of the deadline");

    let home_twice = home();
    let mut stage = Scripted::new(|name, _, seen| {
        if name == "deadline" {
            late(seen);
            slow(&mut seen.states[0], 5_000);
        }
    });
    let (walked, ..) = go(&mut stage, home_twice.path(), None).await;
    assert!(matches!(&walked.end, End::Held { phase, .. } if phase == "deadline"), "{:?}", walked.end);
    assert_eq!(stage.names(), [LEGACY, "signals", "deadline", "deadline"]);
}

#[tokio::test]
async fn a_fault_is_let_loose_in_its_phase_alone() {
    let home = home();
    let mut stage = Scripted::new(|name, _, seen| {
        if name == "admission/canary" {
            within(&mut seen.states[0], 0);
        }
    });
    let (walked, _, entries) = go(&mut stage, home.path(), Some("pricing-slow@admission")).await;
    assert!(matches!(&walked.end, End::Aborted { phase, .. } if phase == "admission/canary"));
    let with: Vec<&str> =
        stage.ran.iter().filter(|(_, fault, _)| fault.is_some()).map(|(name, ..)| name.as_str()).collect();
    assert_eq!(with, ["admission/canary"], "not in the check of what was put back");
    let cited = |at: usize| entries[entries.len() - at].evidence["fault"].clone();
    assert_eq!((cited(2), cited(1)), ("pricing-slow".into(), Value::Null));
}

#[tokio::test]
async fn steps_are_compared_with_the_last_policy_that_everybody_had() {
    let home = home();
    // The canary is slower than all before; the step for everybody is judged against the phase before the canary.
    let mut stage = Scripted::new(|name, _, seen| {
        if name == "coalescing/canary" {
            slow(&mut seen.states[0], 290);
        }
    });
    let (walked, ..) = go(&mut stage, home.path(), None).await;
    assert_eq!(walked.end, End::Reached);
    let rung = walked.rungs.iter().find(|rung| rung.step == "coalescing").expect("run");
    let rise = rung.gates.iter().find(|gate| gate.name == "p99_rise_max_percent").expect("judged");
    assert!(rise.detail.starts_with("268 before"), "{}", rise.detail);
}

#[tokio::test]
async fn an_old_policy_that_answers_wrongly_is_not_rolled_out_from() {
    let home = home();
    let mut stage = Scripted::new(|_, _, seen| seen.states[0].core_mismatch = 2);
    let (walked, report, _) = go(&mut stage, home.path(), None).await;
    assert!(matches!(&walked.end, End::Unsound { why } if why.contains("core_mismatch")), "{:?}", walked.end);
    assert_eq!((stage.names(), report.verdict), (vec![LEGACY], Verdict::Fail));
}

#[tokio::test]
async fn a_second_rehearsal_begins_anew_in_the_same_ledger() {
    let home = home();
    for (round, from) in [None, Some("admission/canary")].into_iter().enumerate() {
        let mut stage = Scripted::new(|name, _, seen| {
            if name == "admission" {
                seen.states[0].queue_age_ms.p99 = None;
            }
        });
        let (walked, _, entries) = go(&mut stage, home.path(), None).await;
        assert!(matches!(walked.end, End::Held { .. }), "{:?}", walked.end);
        let begun: Vec<_> = entries.iter().filter(|entry| entry.decision == Decision::Begin).collect();
        assert_eq!(begun.len(), round + 1);
        assert_eq!(begun[round].from.as_deref(), from);
    }
}
