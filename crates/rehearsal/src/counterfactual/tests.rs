//! Tests of a whole small run: a sixtieth of one domain for some seconds, so that they are quick in a debug build.

use base::{Nanos, WorkloadClass};
use model::{
    Scale,
    policy::Boundary,
    region::{Hosts, Placement},
};
use simulation::Progress;

use super::*;

fn options(switches: &[Switch], scale: Option<&str>) -> CounterfactualOptions {
    let hosts = Hosts { workers: 24, vcpus_per_worker: 8, cpu_us_per_page: 4_700, bursts_per_page: 8 };
    CounterfactualOptions {
        switches: switches.to_vec(),
        files: Files::default(),
        ground: Ground {
            hosts,
            placement: Placement::EVEN,
            scale: scale.map(|scale| Scale::parse(scale).expect("a scale")),
        },
        window_s: 3,
        warm_up_s: 1,
        runs: 1,
        seed: 7,
        threads: None,
        out: PathBuf::new(),
        output: Output::Json,
    }
}

fn report(switches: &[Switch], threads: usize) -> Report {
    let options = options(switches, Some("1/60"));
    let plan = Plan::of(&options).expect("a plan");
    let progress = Progress::default();
    let cells = sweep::run(&plan.variants, plan.extent, options.seed, NonZero::new(threads), &progress)
        .and_then(|swept| swept.whole(plan.extent).ok())
        .expect("nobody stops it");
    report_of(&options, &plan, plan.measured(&cells))
}

#[test]
fn every_switch_has_its_figures_whatever_the_number_of_threads() {
    let one = report(&Switch::ALL, 1);
    assert!(evidence::json(&one) == evidence::json(&report(&Switch::ALL, 3)), "one thread and three");
    let section = one.counterfactuals.as_ref().expect("a section");
    assert_eq!(section.switches.len(), Switch::ALL.len());
    assert_eq!(section.trials.len(), Trial::ALL.len(), "each is run once, and none for nothing");
    for (switch, told) in Switch::ALL.into_iter().zip(&section.switches) {
        assert_eq!(told.name, switch.as_str());
        assert_eq!(told.figures.is_empty(), !switch.is_modelled(), "{switch}");
    }
    let text = print::render(section, &one, "out".as_ref());
    assert!(text.contains("observation-guard: inconclusive") && text.contains("not modelled yet"), "{text}");
}

#[test]
fn what_is_not_modelled_never_passes() {
    let alone = report(&[Switch::ObservationGuard], 1);
    assert_eq!(alone.verdict, Verdict::Inconclusive);
    assert!(alone.gates.is_empty(), "nothing ran");
    let beside = report(&[Switch::NoOverlap, Switch::ObservationGuard], 2);
    assert_eq!(beside.verdict, Verdict::Pass, "{:?}", beside.scenarios);
    assert_eq!(beside.scenarios[1].verdict, Verdict::Inconclusive);
}

#[test]
fn names_are_read_as_they_are_written() {
    for switch in Switch::ALL {
        assert_eq!(Switch::parse(switch.as_str()), Some(switch));
    }
    assert_eq!(Switch::parse("hedge"), None);
    for (at, trial) in Trial::ALL.into_iter().enumerate() {
        assert_eq!(trial as usize, at);
    }
}

#[test]
fn every_trial_differs_where_it_says() {
    let plan = Plan::of(&options(&Switch::ALL, None)).expect("a plan");
    let of = |trial: Trial| &plan.variants[trial as usize].system;
    assert_eq!((of(Trial::Old).hosts.workers, of(Trial::OldHosts).hosts.workers), (24, 30));
    assert_eq!(of(Trial::OldPool).policy.admission(Boundary::Profile).slots, 800);
    assert_eq!(of(Trial::NoOverlap).workload.coalescing.share, 0.0);
    let moderate = of(Trial::Moderate).offered.requests_per_s / of(Trial::Repaired).offered.requests_per_s;
    assert!((moderate - 0.6).abs() < 1e-9, "{moderate}");
    let narrow = of(Trial::Narrow).hedge.expect("a hedge");
    assert_eq!((narrow.classes, narrow.percent_max), ([false, false, true], 10));
    assert!(narrow.cell.is_some() && of(Trial::Hedged).hedge.is_some_and(|hedge| hedge.cell.is_none()));
    let cancel_after = |trial| of(trial).hedge.expect("a hedge").cancel_after;
    assert_eq!(cancel_after(Trial::HedgedPrompt), Nanos::from_millis(2));
    assert!(cancel_after(Trial::Hedged) > Nanos::from_millis(40), "a median read");
    assert_eq!(of(Trial::Required).recommendation_required, [false, true, true]);
    assert_eq!(of(Trial::RequiredLongest).policy.objective, Nanos::from_secs(2));
}

#[test]
fn the_hedge_waits_as_long_as_nine_reads_in_ten_take() {
    let base = &Plan::of(&options(&[Switch::HedgeNarrow], None)).expect("a plan").base;
    let quantile = |classes, q| trial::read_quantile(&base.scenario, &base.workload, classes, q);
    let phase = &base.scenario.phases()[0];
    let latency = &phase.dependency(base::Dependency::Profile).latency;
    let draws = model::draw::Draws::new(3, 1);
    let class = WorkloadClass::Enterprise;
    let only = WorkloadClass::ALL.map(|one| one == class);
    let after = quantile(only, 0.9);
    let slower = (0..20_000_u64).filter(|number| {
        let call = draws.of_operation(base::Dependency::Profile, draws.operation(*number), 1);
        latency.draw(call, class) > after
    });
    let share = slower.count() as f64 / 20_000.0;
    assert!((share - 0.1).abs() < 0.01, "{share}");
    assert!(quantile([true; 3], 0.5) < quantile([true; 3], 0.9), "the tail is longer");
    assert!(quantile([true; 3], 0.9) < after, "enterprise reads take longer");
    assert_eq!(quantile([false; 3], 0.9), Nanos::ZERO);
}
