//! Rehearse: what a rehearsal concludes from a suite that is well, wrong, late, silent or dying.

use std::{fs, path::Path};

use base::Nanos;
use load::Rate;
use rehearsal::{
    Extent, Member, Preset, RehearsalError, SloOptions, Verdict,
    gates::Role,
    slo::{Rehearsed, rehearse, render},
};
use serde_json::Value;

/// A second a state of the policy before alone, at a rate that even a busy machine keeps and that gives every state a 99th
/// percentile.
fn options(home: &Path, behaviour: &str) -> SloOptions {
    let second = Nanos::from_secs(1);
    let extent = Extent {
        state: second,
        warm_up: Nanos::ZERO,
        mechanism: second,
        mechanism_warm_up: Nanos::ZERO,
        runs: 1,
    };
    SloOptions {
        extent,
        only: Some(Role::Before),
        log_filter: Some(behaviour.to_owned()),
        ..SloOptions::new(Preset::sized(Rate::PerSecond(200.0)), home.join("out"))
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
    let gates = report["gates"].as_array().expect("a list");
    let machine = ["generator_valid", "generator_unsent", "samples"];
    let machine = gates.iter().filter(|gate| machine.iter().any(|name| gate["name"] == *name));
    machine.into_iter().all(|gate| gate["verdict"] == "pass")
}

pub(crate) async fn an_honest_rehearsal_passes_and_leaves_its_evidence() {
    let home = tempfile::tempdir().expect("a directory");
    let verdict = verdict_of(options(home.path(), "")).await;
    let (report, run) = (json(home.path(), "report.json"), json(home.path(), "run.json"));
    assert_eq!(verdict, if kept_time(&report) { Verdict::Pass } else { Verdict::Inconclusive }, "{report:#}");
    assert_eq!(report["schema"], "mercury.report/v1");
    assert_eq!(report["verdict"], verdict.as_str());
    assert!(report["comparison"].is_null() && report["mechanisms"] == serde_json::json!([]));
    let states = report["states"].as_array().expect("a list");
    let names: Vec<&str> = states.iter().filter_map(|state| state["state"].as_str()).collect();
    assert_eq!(names, ["peak", "slowdown", "recovery"]);
    for state in states {
        assert_eq!(state["policy"], "policy-legacy");
        assert!(state["latency_ms"]["n"].as_u64().expect("a count") > 0);
        assert_eq!(state["omission_ratio"], 1.0, "one section is switched off");
        assert!(state["late_work"]["ratio"].as_f64().expect("measured") > 0.0);
        let mean_ms = state["late_work"]["mean_ms"].as_f64().expect("measured");
        assert!((mean_ms - 70.0).abs() < 0.1, "{mean_ms}");
        assert_eq!(state["dependency_calls_per_operation"]["profile"], 0.0);
        let share = state["occupancy_ratio"]["endpoint"].as_f64().expect("measured");
        assert!((0.4..0.6).contains(&share), "{share}");
        let age_ms = state["queue_age_ms"]["p99"].as_f64().expect("measured");
        assert!((90.0..=100.0).contains(&age_ms), "{age_ms}");
        assert_eq!(state["timeline"].as_array().expect("a list").len(), 1);
        assert_eq!(state["arrivals"]["declared"], state["arrivals"]["scheduled"]);
    }
    assert_eq!(gate(&report, "core_mismatch")["verdict"], "pass");
    assert_eq!(gate(&report, "arrivals_balance")["verdict"], "pass");
    assert_eq!(gate(&report, "p99")["verdict"], "not_applicable");
    assert_eq!(run["schema"], "mercury.run/v1");
    let suite = &run["runs"][0];
    assert_eq!(suite["name"], "legacy");
    assert_eq!(suite["stages"].as_array().expect("a list").len(), 3);
    for member in Member::all().map(Member::as_str).chain(["generator"]) {
        let process = &suite["stages"][2]["processes"][member];
        assert!(process["rss_mib"].as_f64().expect("measured") > 0.0, "{member}");
        assert!(process["cpu_core_ratio"].is_number(), "{member}");
    }
    let stopped = suite["stopped"].as_object().expect("a map");
    assert_eq!(stopped.len(), 9);
    assert!(stopped.values().all(|ended| ended == "exit code 0"), "{stopped:?}");
}

pub(crate) async fn before_and_after_are_compared_and_each_mechanism_runs_alone() {
    let home = tempfile::tempdir().expect("a directory");
    let mut options = SloOptions { only: None, ..options(home.path(), "") };
    options.extent.state = Nanos::from_secs(2);
    verdict_of(options).await;
    let (report, run) = (json(home.path(), "report.json"), json(home.path(), "run.json"));
    let states = report["states"].as_array().expect("a list");
    let names: Vec<String> = states
        .iter()
        .map(|state| format!("{} {}", state["policy"], state["state"]).replace('"', ""))
        .collect();
    assert_eq!(
        names,
        [
            "policy-legacy peak",
            "policy-legacy slowdown",
            "policy-legacy recovery",
            "policy peak",
            "policy slowdown",
            "policy recovery"
        ]
    );
    let scheduled = |at: usize| states[at]["arrivals"]["scheduled"].as_u64().expect("a count");
    assert_eq!([0, 1, 2].map(scheduled), [3, 4, 5].map(scheduled), "the same schedule");
    // Every tenth page waits under the old policy, which no machine makes faster.
    assert!(report["comparison"]["p99_before_ms"].as_f64().expect("measured") >= 400.0);
    assert_eq!(gate(&report, "before_p99")["verdict"], "pass");
    assert_eq!(gate(&report, "late_work_fold")["verdict"], "pass", "{report:#}");
    let policies: Vec<_> =
        report["policies"].as_array().expect("a list").iter().map(|one| one["role"].clone()).collect();
    assert_eq!(policies, ["before", "after"]);
    assert_eq!(report["policies"][1]["after_run"]["permits_held"], 0.0);
    let mechanisms = report["mechanisms"].as_array().expect("a list");
    let verdicts: Vec<_> =
        mechanisms.iter().map(|one| (one["name"].clone(), one["verdict"].clone())).collect();
    assert_eq!(verdicts.len(), 6);
    assert_eq!(verdicts[4], ("summary".into(), "not_applicable".into()));
    assert_eq!(mechanisms[1]["effect"]["what"], "late operations");
    assert!(mechanisms[1]["effect"]["without"].as_f64().expect("measured") > 0.0);
    assert_eq!(mechanisms[1]["effect"]["with"], 0.0);
    let runs = run["runs"].as_array().expect("a list");
    let names: Vec<&str> = runs.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "legacy",
            "repaired",
            "alone: deadline",
            "alone: cancellation",
            "alone: admission",
            "alone: coalescing",
            "alone: degradation"
        ]
    );
    for name in ["policy-legacy", "policy", "alone-coalescing"] {
        assert!(home.path().join(format!("out/policies/{name}.toml")).exists(), "{name}");
        assert!(home.path().join(format!("out/state/{name}/log/home-api.log")).exists(), "{name}");
    }
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
    let mut options = SloOptions { only: None, ..options(home.path(), "") };
    options.before = file("b.toml");
    options.policy = file("p.toml");
    options.workload = file("w.toml");
    let error = rehearse(options).await.expect_err("no evidence");
    let text = error.to_string();
    for named in ["b.toml:", "p.toml:", "w.toml:", "nonsense"] {
        assert!(text.contains(named), "{text}");
    }
    assert_eq!(error.exit_code(), 2);
}
