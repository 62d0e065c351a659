//! Tests of the page as a whole: everything is there, nothing is made up, and nothing from outside becomes markup.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{BYTES_MAX, render, sample};
use crate::{
    gates::{Action, Gate, Rule},
    report::{
        Bucket, Class, Effect, Mechanism, Occupancy, PolicyRef, Quantiles, QueueAge, Report, Scenario, Slow,
        State, TimelinePoint,
    },
    verdict::Verdict,
};

fn page(report: &Report) -> String {
    render(report, &sample::run()).replace('\u{a0}', " ")
}

/// What no page may hold, whatever the report.
fn faults(page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if page.len() > BYTES_MAX {
        faults.push(format!("{} bytes", page.len()));
    }
    for tag in ["svg", "text", "table", "section", "figure", "tr", "li"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        let closed = page.matches(&format!("</{tag}>")).count();
        if opened != closed {
            faults.push(format!("{opened} <{tag}>, {closed} of them closed"));
        }
    }
    let lower = page.to_lowercase();
    for never in [
        "<script",
        "nan<",
        "nan ",
        "\"nan",
        ">inf",
        "null<",
        "could not be drawn",
        "src=",
        "@import",
        "url(",
        "http:",
        "https:",
    ] {
        if lower.contains(never) {
            faults.push(format!("holds {never}"));
        }
    }
    faults
}

#[test]
fn every_plot_of_a_full_report_is_there_and_has_a_name() {
    let page = page(&sample::full());
    assert_eq!(faults(&page), Vec::<String>::new());
    for title in [
        "Every figure with a largest value, as a share of it",
        "Latency in peak",
        "Latency in slowdown",
        "Latency in recovery",
        "p99 latency by class",
        "Timeline of the measured states",
        "Parts of the latency of slow answers",
        "Omitted sections by cause",
        "coalescing: upstream profile reads per operation without 1.2, with 0.86",
    ] {
        assert!(page.contains(&format!("<title>{title}</title>")), "{title}");
    }
    let svgs = page.matches("<svg ").count();
    assert_eq!(page.matches("<svg role=\"img\" aria-label=\"").count(), svgs, "every drawing has a name");
    for text in [
        "Queue age",
        "Profile occupancy",
        "Goodput",
        "objective 300 ms",
        "deadline budget",
        "waiting for the endpoint",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn a_rollout_has_a_ladder_of_its_phases() {
    let page = page(&sample::rollout());
    assert_eq!(faults(&page), Vec::<String>::new());
    assert!(page.contains("<title>p99 latency and goodput, phase by phase</title>"));
    assert!(page.contains("rolled back") && page.contains("<ol class=\"ladder\">"));
}

#[test]
fn missed_gates_come_first_and_are_marked_by_more_than_colour() {
    let page = page(&sample::full());
    let gates = page.split("<h2>Gates</h2>").nth(1).expect("the gates");
    let at =
        |word: &str| gates.find(&format!("</span> {word}</span>")).unwrap_or_else(|| panic!("no {word}"));
    assert!(at("fail") < at("inconclusive") && at("inconclusive") < at("pass"));
    assert!(page.contains("✕ 363 ms"), "a figure that misses its bound");
    assert!(page.contains("Missed: profile occupancy (slowdown)."));
}

#[test]
fn what_was_not_measured_is_said_in_words_and_never_is_a_zero() {
    let page = page(&sample::sparse());
    assert_eq!(faults(&page), Vec::<String>::new());
    assert!(page.matches("not measured").count() > 10);
    for zero in [">0 ms<", ">0 %<", ">0 s<", ">0 MiB<"] {
        assert!(!page.contains(zero), "{zero}");
    }
    for words in ["No distribution was measured.", "No timeline was measured.", "lateness is not known"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn a_report_without_anything_is_a_page() {
    let page = page(&Report::default());
    assert_eq!(faults(&page), Vec::<String>::new());
    assert!(page.contains("No gate was judged.") && page.contains("No state was measured."));
}

const HOSTILE: &str = "\"><script>alert('1')</script><svg onload=x>&amp;{}";

#[test]
fn no_text_from_outside_becomes_markup() {
    let mut report = sample::full();
    let text = || HOSTILE.to_owned();
    report.command = text();
    report.workload = text();
    report.scale = Some(text());
    report.tolerance = text();
    report.scenario.name = text();
    report.scenario.digest = text();
    report.generator.reasons = vec![text()];
    report.scenarios = vec![Scenario { name: text(), verdict: Verdict::Fail, detail: text() }];
    for policy in &mut report.policies {
        policy.name = text();
        policy.digest = text();
        policy.after_run.stopped = Some(text());
    }
    for (at, state) in report.states.iter_mut().enumerate() {
        state.policy = format!("{at}{HOSTILE}");
        state.state = format!("{}{HOSTILE}", at % 2);
    }
    for mechanism in &mut report.mechanisms {
        mechanism.name = text();
        mechanism.detail = text();
        mechanism.effect.what = text();
        mechanism.effect.unit = text();
    }
    for gate in &mut report.gates {
        gate.detail = text();
        gate.policy = Some(text());
        gate.state = Some(text());
    }
    let mut run = sample::run();
    run.git_revision = Some(text());
    run.machine.cpu_model = Some(text());
    run.machine.kernel = text();
    let page = render(&report, &run);
    assert_eq!(faults(&page), Vec::<String>::new());
    assert!(!page.contains("<svg onload"), "markup from outside");
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn a_report_beyond_all_bounds_still_fits() {
    let long = |at: usize| format!("{at}-{}", "\"".repeat(2_000));
    let base = sample::full();
    let timeline: Vec<_> = (0..20_000)
        .map(|second| TimelinePoint {
            at_s: f64::from(second),
            offered: 100,
            good: u64::from(second as u32 % 100),
            p99_ms: Some(f64::from(second % 977)),
            queue_age_ms: (second % 2 == 0).then_some(f64::from(second % 13)),
            ..TimelinePoint::default()
        })
        .collect();
    let histogram: Vec<_> = (1..20_000).map(|at| Bucket { le_ms: f64::from(at) * 0.25, count: 3 }).collect();
    let mut report = base.clone();
    report.states = (0..60)
        .map(|at| {
            let mut state = base.states[at % 3].clone();
            state.policy = long(at / 3);
            state.timeline.clone_from(&timeline);
            state.histogram.clone_from(&histogram);
            state
        })
        .collect();
    report.gates =
        (0..5_000).map(|at| Gate { detail: long(at), ..base.gates[at % base.gates.len()].clone() }).collect();
    report.scenarios =
        (0..2_000).map(|at| Scenario { name: long(at), detail: long(at), ..Scenario::default() }).collect();
    report.policies = (0..2_000).map(|at| PolicyRef { name: long(at), ..PolicyRef::default() }).collect();
    report.mechanisms = (0..500)
        .map(|at| Mechanism { name: long(at), detail: long(at), ..base.mechanisms[0].clone() })
        .collect();
    report.generator.reasons = (0..5_000).map(long).collect();
    let page = page(&report);
    assert_eq!(faults(&page), Vec::<String>::new());
    assert!(page.contains("more states in report.json") && page.contains("more gates in report.json"));
}

/// Any number at all, those that are none included.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..2_000.0,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE]),
    ]
}

fn figure() -> impl Strategy<Value = Option<f64>> {
    prop::option::of(number())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["peak", "slowdown", "recovery", "policy", "policy-legacy", "", HOSTILE]).prop_map(str::to_owned),
        1 => "\\PC{0,80}",
    ]
}

fn quantiles() -> impl Strategy<Value = Quantiles> {
    (any::<u32>(), figure(), figure(), figure()).prop_map(|(n, p50, p99, p999)| Quantiles {
        n: n.into(),
        p50,
        p99,
        p999,
    })
}

fn points() -> impl Strategy<Value = Vec<TimelinePoint>> {
    let point = (number(), any::<u32>(), any::<u32>(), figure(), figure(), figure()).prop_map(
        |(at_s, offered, good, p99_ms, queue_age_ms, occupancy_profile)| TimelinePoint {
            at_s,
            offered: offered.into(),
            good: good.into(),
            p99_ms,
            queue_age_ms,
            occupancy_profile,
            ..TimelinePoint::default()
        },
    );
    prop::collection::vec(point, 0..12)
}

fn buckets() -> impl Strategy<Value = Vec<Bucket>> {
    prop::collection::vec(
        (number(), any::<u32>()).prop_map(|(le_ms, count)| Bucket { le_ms, count: count.into() }),
        0..12,
    )
}

fn state() -> impl Strategy<Value = State> {
    let figures = prop::collection::vec(figure(), 8);
    (text(), text(), number(), quantiles(), figures, points(), buckets(), quantiles()).prop_map(
        |(policy, state, duration_s, latency_ms, figures, timeline, histogram, class)| State {
            policy,
            state,
            duration_s,
            latency_ms,
            core_goodput_ratio: figures[0],
            omission_ratio: figures[1],
            occupancy_ratio: Occupancy { endpoint: figures[2], profile: figures[3] },
            queue_age_ms: QueueAge { p99: figures[4], ..QueueAge::default() },
            recovery_s: figures[5],
            recovery_at_least_s: figures[6],
            slow: Slow {
                latency_ms: figures[6],
                executor_wait_ms: figures[7],
                fanout_ms: figures[0],
                ..Slow::default()
            },
            omissions: BTreeMap::from([("reputation", BTreeMap::from([("omitted_timeout", class.n)]))]),
            classes: BTreeMap::from([(
                "premium",
                Class { share: figures[2], latency_ms: class, ..Class::default() },
            )]),
            dependency_calls_per_operation: BTreeMap::from([("pricing".to_owned(), figures[3])]),
            timeline,
            histogram,
            ..State::default()
        },
    )
}

fn gate() -> impl Strategy<Value = Gate> {
    let names =
        vec!["p99", "queue_age_p99", "profile_occupancy", "late_work", "omission", "goodput", "recovery"];
    let rules = vec![Rule::AtMost, Rule::Below, Rule::AtLeast];
    let verdicts = vec![Verdict::Pass, Verdict::Fail, Verdict::Inconclusive, Verdict::NotApplicable];
    let chosen = (prop::sample::select(names), prop::sample::select(rules), prop::sample::select(verdicts));
    (chosen, figure(), number(), prop::option::of(text()), text()).prop_map(
        |((name, rule, verdict), observed, bound, state, detail)| Gate {
            name,
            unit: "ms",
            state,
            observed,
            rule,
            bound,
            verdict,
            action: Action::Hold,
            detail,
            ..Gate::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_is_a_sound_page(
        states in prop::collection::vec(state(), 0..9),
        gates in prop::collection::vec(gate(), 0..9),
        effects in prop::collection::vec((text(), text(), figure(), figure()), 0..4),
        command in text(),
    ) {
        let mechanisms = effects.into_iter().map(|(what, unit, without, with)| Mechanism {
            name: "deadline".to_owned(),
            effect: Effect { what, unit, without, with },
            ..Mechanism::default()
        });
        let report = Report { command, states, gates, mechanisms: mechanisms.collect(), ..Report::default() };
        let found = faults(&page(&report));
        prop_assert!(found.is_empty(), "{found:?}");
    }
}
