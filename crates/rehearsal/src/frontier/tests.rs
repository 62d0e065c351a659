//! Tests of a whole small sweep: a thirtieth of one domain for some seconds, so that they are quick in a debug build.

use model::{
    Scale,
    region::{Hosts, Placement},
};
use simulation::Progress;

use super::*;

fn options(scale: &str) -> FrontierOptions {
    FrontierOptions {
        frontier: None,
        files: Files::default(),
        ground: Ground {
            hosts: Hosts::UNBOUNDED,
            placement: Placement::EVEN,
            scale: Some(Scale::parse(scale).expect("a scale")),
        },
        window_s: Some(3),
        warm_up_s: Some(1),
        runs: 2,
        seed: 7,
        threads: None,
        out: PathBuf::new(),
        output: Output::Json,
    }
}

fn report(threads: usize) -> Report {
    let options = options("1/60");
    let plan = Plan::of(&options).expect("a plan");
    let progress = Progress::default();
    let cells = sweep::run(&plan.variants, plan.extent, options.seed, NonZero::new(threads), &progress)
        .and_then(|swept| swept.whole(plan.extent).ok())
        .expect("nobody stops it");
    let measured = cells.iter().zip(plan.gated()).map(|(cells, gated)| Measured::of(cells, gated)).collect();
    report_of(&options, &plan, measured)
}

#[test]
fn the_report_is_the_same_however_many_threads_there_are_and_holds_every_figure() {
    let one = evidence::json(&report(1));
    assert!(one == evidence::json(&report(3)), "one thread and three");
    let told: serde_json::Value = serde_json::from_str(&one).expect("it reads");
    assert_eq!(told["command"], "simulate frontier");
    let frontier = &told["frontier"];
    assert_eq!(frontier["pairs"].as_array().map(Vec::len), Some(9));
    assert_eq!(frontier["old_design"].as_array().map(Vec::len), Some(8));
    for pair in frontier["pairs"].as_array().into_iter().flatten() {
        for (at, state) in ["peak", "slowdown", "recovery"].into_iter().enumerate() {
            let figures = &pair["states"][at];
            assert_eq!(figures["state"], state);
            for pointer in [
                "/latency_ms/p99",
                "/goodput_ratio",
                "/rejection_ratio",
                "/occupancy_ratio/endpoint",
                "/bound_ratio/profile",
                "/wait_ms/endpoint_p99",
                "/profile_calls_per_operation",
                "/busiest/ratio",
                "/store_ratio",
            ] {
                assert!(figures.pointer(pointer).is_some_and(serde_json::Value::is_number), "{pointer}");
            }
        }
        assert!(pair["states"][2]["recovery"].is_object());
    }
    for machine in ["wall_s", "machine", "git_revision", "started_unix_ms", "threads"] {
        assert!(!one.contains(&format!("\"{machine}\"")), "{machine} belongs to run.json");
    }
    let text = print::render(report(2).frontier.as_ref().expect("a section"), &report(2), "out".as_ref());
    for words in ["520/340 *", "lower end", "upper end", "pool-800", "old_control_moves_p99"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
}

#[test]
fn who_is_asked_to_stop_has_no_figures() {
    let options = options("1/60");
    let plan = Plan::of(&options).expect("a plan");
    let progress = Progress::default();
    progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(sweep::run(&plan.variants, plan.extent, 1, NonZero::new(2), &progress).is_none());
}

#[test]
fn a_policy_without_gates_has_no_frontier() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("policy.toml");
    std::fs::write(&file, model::policy::LEGACY.1).expect("written");
    let files = Files { policy: Some(file), ..Files::default() };
    let told = Plan::of(&FrontierOptions { files, ..options("1/60") }).err().expect("refused");
    assert!(told.to_string().contains("mechanisms.admission"), "{told}");
    assert_eq!(told.exit_code(), 2);
}

#[test]
fn every_pair_is_the_policy_with_its_limits() {
    let plan =
        Plan::of(&FrontierOptions { ground: Ground { scale: None, ..options("1").ground }, ..options("1") })
            .expect("a plan");
    for (pair, variant) in plan.frontier.pairs.iter().zip(&plan.variants) {
        let limits = model::policy::Boundary::ALL
            .map(|boundary| variant.system.policy.admission(boundary).gate().limit());
        assert_eq!(limits, [pair.endpoint, pair.profile]);
        assert_eq!(variant.system.claims, ClaimsPhase::Summary);
    }
}
