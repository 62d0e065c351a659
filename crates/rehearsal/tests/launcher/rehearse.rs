//! Rehearse: what a rehearsal concludes from a suite that is well, wrong, late, silent or dying.

use std::{fs, path::Path};

use base::Nanos;
use load::Rate;
use rehearsal::{
    Member, RehearsalError, SloOptions, Verdict,
    slo::{Rehearsed, rehearse, render},
};
use serde_json::Value;

/// Half a second a state, at a rate that even a busy machine keeps.
fn options(home: &Path, behaviour: &str) -> SloOptions {
    SloOptions {
        warm_up: Nanos::from_millis(200),
        log_filter: Some(behaviour.to_owned()),
        ..SloOptions::new(Rate::PerSecond(60.0), Nanos::from_millis(500), home.join("out"))
    }
}

/// Rehearses; what is written and what is printed say the same.
async fn verdict_of(options: SloOptions) -> Verdict {
    let out = options.out.clone();
    let rehearsed = rehearse(options).await.expect("evidence");
    let text = render(&rehearsed, &out);
    let Rehearsed { report, .. } = rehearsed;
    assert!(text.contains(&format!("verdict: {}", report.verdict)), "{text}");
    assert!(report.gates.iter().all(|gate| text.contains(gate.name)), "{text}");
    report.verdict
}

fn json(home: &Path, name: &str) -> Value {
    let text = fs::read_to_string(home.join("out").join(name)).expect("written");
    serde_json::from_str(&text).expect("JSON")
}

fn gate<'v>(report: &'v Value, name: &str) -> &'v Value {
    let gates = report["gates"].as_array().expect("a list");
    gates.iter().find(|gate| gate["name"] == name).unwrap_or_else(|| panic!("no gate {name}"))
}

/// On a machine so busy that the generator itself is late, a run is inconclusive whatever the suite did. The story of a
/// test then holds except for that.
fn kept_time(report: &Value) -> bool {
    gate(report, "generator_valid")["verdict"] == "pass"
        && gate(report, "generator_unsent")["verdict"] == "pass"
}

pub(crate) async fn an_honest_rehearsal_passes_and_leaves_its_evidence() {
    let home = tempfile::tempdir().expect("a directory");
    let verdict = verdict_of(options(home.path(), "")).await;
    let (report, run) = (json(home.path(), "report.json"), json(home.path(), "run.json"));
    assert_eq!(verdict, if kept_time(&report) { Verdict::Pass } else { Verdict::Inconclusive }, "{report:#}");
    assert_eq!(report["schema"], "mercury.report/v1");
    assert_eq!(report["verdict"], verdict.as_str());
    let states = report["states"].as_array().expect("a list");
    let names: Vec<&str> = states.iter().filter_map(|state| state["state"].as_str()).collect();
    assert_eq!(names, ["peak", "slowdown", "recovery"]);
    for state in states {
        assert_eq!(state["policy"], "policy");
        assert!(state["latency_ms"]["n"].as_u64().expect("a count") > 0);
        assert_eq!(state["omission_ratio"], 1.0, "one section is switched off");
        assert_eq!(state["late_work"]["ratio"], 0.0, "measured, and none in the window");
        assert!(state["late_work"]["mean_ms"].is_null(), "no late operation has no mean");
        assert!(state["queue_age_ms"]["p99"].is_null(), "not measured");
        assert_eq!(state["dependency_calls_per_operation"]["profile"], 0.0);
    }
    assert_eq!(gate(&report, "core_mismatch")["verdict"], "pass");
    assert_eq!(gate(&report, "arrivals_balance")["verdict"], "pass");
    assert_eq!(gate(&report, "p99")["verdict"], "not_applicable");
    assert_eq!(run["schema"], "mercury.run/v1");
    assert_eq!(run["stages"].as_array().expect("a list").len(), 5, "two are warmed up");
    for member in Member::all().map(Member::as_str).chain(["generator"]) {
        let process = &run["stages"][4]["processes"][member];
        assert!(process["rss_mib"].as_f64().expect("measured") > 0.0, "{member}");
        assert!(process["cpu_core_ratio"].is_number(), "{member}");
    }
    let stopped = run["stopped"].as_object().expect("a map");
    assert_eq!(stopped.len(), 9);
    assert!(stopped.values().all(|ended| ended == "exit code 0"), "{stopped:?}");
}

pub(crate) async fn a_wrong_answer_fails() {
    let home = tempfile::tempdir().expect("a directory");
    let verdict = verdict_of(options(home.path(), "wrong")).await;
    assert_eq!(verdict, Verdict::Fail);
    let report = json(home.path(), "report.json");
    assert_eq!(gate(&report, "core_mismatch")["verdict"], "fail");
    assert!(gate(&report, "core_mismatch")["observed"].as_f64().expect("observed") > 0.0);
}

pub(crate) async fn an_emulator_that_did_not_keep_time_is_inconclusive() {
    let home = tempfile::tempdir().expect("a directory");
    let verdict = verdict_of(options(home.path(), "late")).await;
    assert_eq!(verdict, Verdict::Inconclusive);
    let report = json(home.path(), "report.json");
    assert_eq!(gate(&report, "emulator_timer")["verdict"], "inconclusive");
    assert_eq!(gate(&report, "emulator_timer")["observed"], 9.0);
    assert_eq!(report["generator"]["valid"], false);
}

pub(crate) async fn a_suite_that_answers_nothing_is_inconclusive() {
    let home = tempfile::tempdir().expect("a directory");
    let verdict = verdict_of(options(home.path(), "unavailable")).await;
    assert_eq!(verdict, Verdict::Inconclusive);
    let report = json(home.path(), "report.json");
    assert_eq!(gate(&report, "samples")["verdict"], "inconclusive");
    assert_eq!(gate(&report, "core_mismatch")["verdict"], "inconclusive", "nothing was answered");
    let state = &report["states"][0];
    assert!(state["latency_ms"]["p99"].is_null());
    assert_eq!(state["core_goodput_ratio"], 0.0);
}

pub(crate) async fn a_death_ends_the_rehearsal() {
    let home = tempfile::tempdir().expect("a directory");
    let error = rehearse(options(home.path(), "quit=pricing")).await.expect_err("no evidence");
    let RehearsalError::Died(exit) = &error else { panic!("{error}") };
    assert_eq!(exit.member, Member::parse("pricing").expect("a member"));
    assert!(error.to_string().contains("asked for metrics, and gone"), "{error}");
    assert_eq!(error.exit_code(), 1);
    assert!(!home.path().join("out/report.json").exists());
}

pub(crate) async fn files_that_are_wrong_are_all_named() {
    let home = tempfile::tempdir().expect("a directory");
    let file = |name: &str| {
        let path = home.path().join(name);
        fs::write(&path, "nonsense = 1\n").expect("written");
        Some(path)
    };
    let mut options = options(home.path(), "");
    options.policy = file("p.toml");
    options.workload = file("w.toml");
    let error = rehearse(options).await.expect_err("no evidence");
    let text = error.to_string();
    assert!(text.contains("p.toml:") && text.contains("w.toml:") && text.contains("nonsense"), "{text}");
    assert_eq!(error.exit_code(), 2);
}
