//! Tests of the packet on a fraction of a domain: what it says depends on nothing but its arguments.

use std::{num::NonZero, sync::atomic::Ordering};

use model::region::{ReferenceFigure, StateName};

use super::*;
use crate::sweep::run;

fn options(packet: bool) -> SimulateOptions {
    SimulateOptions {
        packet,
        region: None,
        files: Files::default(),
        claims: ClaimsPhase::Summary,
        state: StateName::Peak,
        scale: Some(model::Scale::parse("1/40").expect("valid")),
        minutes: None,
        runs: Some(2),
        seed: 5,
        threads: None,
        out: PathBuf::new(),
        output: Output::Json,
    }
}

/// A few seconds, whatever the region says.
fn short(options: &SimulateOptions) -> Plan {
    let mut plan = Plan::of(options).expect("the shipped files");
    plan.extent = Extent { window_s: 6, warm_up_s: 3, ..plan.extent };
    plan
}

fn swept(plan: &Plan, threads: usize) -> Swept {
    let progress = simulation::Progress::default();
    run(&plan.variants, plan.extent, 5, NonZero::new(threads), &progress).expect("nobody stops it")
}

#[test]
fn the_report_is_the_same_on_any_number_of_threads_and_knows_no_machine() {
    let options = options(true);
    let plan = short(&options);
    let json = |threads| evidence::json(&report_of(&options, &plan, &swept(&plan, threads)));
    let (one, three) = (json(1), json(3));
    assert_eq!(one, three);
    for word in ["wall_s", "threads", "machine", "revision", "requests_per_s"] {
        assert!(!one.contains(&format!("\"{word}")), "{word} belongs to run.json");
    }
}

/// Whoever makes it again, on another machine and at another hour, has the same page.
#[test]
fn the_page_is_the_same_whenever_and_wherever_it_is_made() {
    let options = options(true);
    let plan = short(&options);
    let report = report_of(&options, &plan, &swept(&plan, 2));
    let page = |began: i64, took: u64, revision: &str| {
        let mut run = RunInfo::new(began, base::Nanos::from_secs(took), Vec::new());
        run.git_revision = Some(revision.to_owned());
        run.machine.cpu_model = Some(format!("cores of {revision}"));
        crate::html::render(&report, &run)
    };
    let one = page(0, 3, "one");
    assert_eq!(one, page(1_700_000_000_000, 900, "two"));
    for word in ["Machine", "Revision", "Began", "run.json", "not measured</text>"] {
        assert!(!one.contains(word), "{word}");
    }
    assert!(one.contains("Queue age") && one.contains("report.json, which holds every figure"));
}

#[tokio::test]
async fn a_longer_run_has_as_many_more_requests() {
    let options = options(false);
    let plan = short(&options);
    let (short, long) = (speed::run(&plan, 2, &options).await, speed::run(&plan, 20, &options).await);
    let (short, long) = (short.expect("nobody stops it"), long.expect("nobody stops it"));
    let times = long.requests as f64 / short.requests as f64;
    // What still ends after the window is simulated too, and the short one has no wave.
    assert!((7.0..14.0).contains(&times), "{short:?} {long:?}");
    assert!(short.requests_per_s.is_some_and(|rate| rate > 0.0));
}

#[test]
fn a_packet_has_every_state_of_both_policies_and_everybody_is_counted() {
    let options = options(true);
    let plan = short(&options);
    let report = report_of(&options, &plan, &swept(&plan, 2));
    let states: Vec<_> = report.states.iter().map(|one| (one.policy.as_str(), one.state.as_str())).collect();
    let expected =
        [BEFORE, AFTER].map(|policy| ["peak", "slowdown", "recovery"].map(|state| (policy, state)));
    assert_eq!(states, expected.concat());
    assert!(report.states.iter().all(|state| state.imbalance() == 0.0 && !state.histogram.is_empty()));
    assert_eq!(report.runs, 2);
    let section = report.simulation.expect("a simulation");
    assert!(section.references.is_empty(), "the study speaks of a whole region");
    assert_eq!(section.dispersion.len(), 6);
    assert!(
        section.dispersion.iter().all(|one| one.p50_ms.min <= one.p50_ms.max && one.p50_ms.min.is_some())
    );
    assert!(section.requests > section.requests_measured);
    for gate in ["imbalance", "runs", "p99", "goodput", "late_work_fold", "recovery_fold"] {
        assert!(report.gates.iter().any(|one| one.name == gate), "{gate}");
    }
}

#[test]
fn after_a_signal_the_runs_that_are_whole_are_told_and_nothing_is_concluded() {
    let options = options(true);
    let plan = short(&options);
    let mut part = swept(&plan, 1);
    part.runs = 1;
    let report = report_of(&options, &plan, &part);
    assert_eq!(report.verdict, Verdict::Inconclusive, "{:?}", report.gates);
    let progress = simulation::Progress::default();
    progress.stop.store(true, Ordering::Relaxed);
    assert!(run(&plan.variants, plan.extent, 5, None, &progress).is_none(), "no run was whole");
}

/// Each figure that a study may state is one that a packet has.
#[test]
fn every_figure_of_a_study_has_its_own_beside_it() {
    let mut options = options(true);
    (options.scale, options.runs) = (None, Some(1));
    let mut plan = Plan::of(&options).expect("the shipped files");
    plan.extent = Extent { window_s: 3, warm_up_s: 1, runs: 1 };
    for variant in &mut plan.variants {
        variant.system.offered.requests_per_s /= 40.0;
    }
    let report = report_of(&options, &plan, &swept(&plan, 2));
    let references = report.simulation.expect("a simulation").references;
    assert_eq!(references.len(), plan.region.references.len());
    for row in &references {
        // Of what is not late there is no mean.
        let may_lack = row.figure == ReferenceFigure::LateMean.as_str() || row.state == "recovery";
        assert!(row.ours.is_some() || may_lack, "{row:?}");
        assert!(!row.explanation.is_empty());
    }
    for figure in ReferenceFigure::ALL {
        assert!(references.iter().any(|row| row.figure == figure.as_str()), "{}", figure.as_str());
    }
}

#[test]
fn a_single_run_is_of_one_policy_and_recovery_brings_its_peak_along() {
    let mut options = options(false);
    options.runs = None;
    for (state, states) in [
        (StateName::Peak, vec!["peak"]),
        (StateName::Slowdown, vec!["slowdown"]),
        (StateName::Recovery, vec!["peak", "recovery"]),
    ] {
        options.state = state;
        let plan = short(&options);
        let report = report_of(&options, &plan, &swept(&plan, 2));
        assert_eq!(report.states.iter().map(|one| one.state.as_str()).collect::<Vec<_>>(), states);
        assert_eq!((report.runs, report.policies.len()), (1, 1));
        assert!(report.gates.iter().all(|gate| gate.name != "p99"));
    }
}

#[test]
fn a_shorter_run_has_a_shorter_warm_up() {
    let mut options = options(true);
    options.minutes = Some(3);
    let plan = Plan::of(&options).expect("the shipped files");
    assert_eq!((plan.extent.window_s, plan.extent.warm_up_s), (180, 120));
    options.minutes = None;
    let plan = Plan::of(&options).expect("the shipped files");
    assert_eq!((plan.extent.window_s, plan.extent.warm_up_s), (900, 600));
}
