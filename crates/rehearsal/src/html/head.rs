//! Head: what was rehearsed and what follows from it, before anything else: the verdict, the few figures that it rests on,
//! and all that is needed to make the run again.

use maud::{Markup, html};

use super::{
    text::{NOT_MEASURED, Unit, badge, clip, cut, mark, name, number, spaced},
    view::{Case, Figure, Group, View, named},
};
use crate::{calendar, gates::Gate, slo::RunInfo, verdict::Verdict};

/// The figures in large print, and the state that they are of: what the repair is for, and what it costs.
const CARDS: [(&str, &str); 6] = [
    ("p99 latency", "peak"),
    ("p99 latency", "slowdown"),
    ("core goodput", "slowdown"),
    ("late work", "peak"),
    ("omission", "slowdown"),
    ("recovery", "recovery"),
];
/// Most bytes of the text on tolerance.
const TOLERANCE_BYTES_MAX: usize = 2_500;
/// Most gates named in the sentence under the verdict.
const NAMED_MAX: usize = 6;

/// The head of the page.
pub(super) fn head(view: &View<'_>) -> Markup {
    let report = view.report;
    html! {
        header {
            p.kicker {
                @if report.is_simulated() { "Mercury · a region in virtual time" }
                @else { "Mercury · evidence of a rehearsal" }
            }
            h1 { (name(&report.command)) }
            div class=(format!("verdict {}", report.verdict.as_str())) {
                span.word { span aria-hidden="true" { (mark(report.verdict)) } " " (spaced(report.verdict.as_str())) }
                p { (sentence(&report.gates)) }
            }
            (cards(view))
            (facts(view))
            @if !report.tolerance.is_empty() { p.tolerance { strong { "Tolerance. " } (cut(&report.tolerance, TOLERANCE_BYTES_MAX)) } }
        }
    }
}

/// The gates in one sentence.
fn sentence(gates: &[Gate]) -> String {
    let of = |verdict: Verdict| gates.iter().filter(move |gate| gate.verdict == verdict);
    let count = |verdict: Verdict| of(verdict).count();
    let named = |verdict: Verdict| {
        let mut names: Vec<String> = of(verdict).take(NAMED_MAX).map(gate_name).collect();
        let more = count(verdict).saturating_sub(NAMED_MAX);
        if more > 0 {
            names.push(format!("{more} more"));
        }
        names.join(", ")
    };
    if gates.is_empty() {
        return "No gate was judged.".to_owned();
    }
    let judged = gates.len() - count(Verdict::NotApplicable);
    let mut text = format!("{} of {judged} gates hold.", count(Verdict::Pass));
    if count(Verdict::Fail) > 0 {
        text.push_str(&format!(" Missed: {}.", named(Verdict::Fail)));
    }
    if count(Verdict::Inconclusive) > 0 {
        text.push_str(&format!(" Open: {}.", named(Verdict::Inconclusive)));
    }
    text
}

/// A gate by its name and its state.
fn gate_name(gate: &Gate) -> String {
    match &gate.state {
        Some(state) => format!("{} ({})", spaced(gate.name), name(state)),
        None => spaced(gate.name),
    }
}

fn cards(view: &View<'_>) -> Markup {
    let found: Vec<(&Figure, &Group<'_>)> = CARDS
        .iter()
        .filter_map(|(figure, state)| {
            let figure = named(figure)?;
            let group = view.groups.iter().find(|group| group.name == *state)?;
            group.cases.iter().any(|case| figure.words(case.state).is_some()).then_some((figure, group))
        })
        .collect();
    html! {
        @if !found.is_empty() {
            ul.cards { @for (figure, group) in found { (card(view, figure, group)) } }
        }
    }
}

fn card(view: &View<'_>, figure: &Figure, group: &Group<'_>) -> Markup {
    let gates = &view.report.gates;
    let words = |case: &Case<'_>| figure.words(case.state).unwrap_or_else(|| NOT_MEASURED.to_owned());
    let (first, last) = (group.cases.first(), group.cases.last());
    let missed = last.is_some_and(|case| figure.misses(gates, case.state));
    html! {
        li class=[missed.then_some("missed")] {
            p.what { (figure.name) }
            p.during { @if figure.name == group.name { "after the slowdown" } @else { "during " (group.title) } }
            @if let (Some(first), true) = (first, group.cases.len() > 1) {
                p.was { (words(first)) span.arrow { " →" } }
            }
            @if let Some(last) = last {
                p.now { (words(last)) @if missed { " " span.miss { "✕" } } }
            }
            @for remark in remarks(view, figure, group) { p.than { (remark) } }
        }
    }
}

/// The bound, and how far the figure moved.
fn remarks(view: &View<'_>, figure: &Figure, group: &Group<'_>) -> impl Iterator<Item = String> {
    let bound = figure.bound_in(&view.report.gates, group);
    let bound = bound.and_then(|bound| figure.unit.write(Some(bound))).map(|bound| format!("bound {bound}"));
    let comparison = view.report.comparison.as_ref().filter(|_| view.is_comparison());
    let moved = comparison.and_then(|comparison| match (figure.name, group.name) {
        ("late work", "peak") => fold(comparison.late_work_fold, false, "less"),
        ("recovery", _) => fold(comparison.recovery_fold.value, comparison.recovery_fold.at_least, "faster"),
        ("p99 latency", "peak") => {
            let reduction = comparison.p99_reduction_ratio.filter(|ratio| ratio.is_finite())?;
            Some(format!(
                "{} % {}",
                number((reduction * 100.0).abs()),
                if reduction < 0.0 { "more" } else { "less" }
            ))
        }
        _ => None,
    });
    bound.into_iter().chain(moved)
}

fn fold(value: Option<f64>, at_least: bool, what: &str) -> Option<String> {
    let value = value.filter(|value| value.is_finite())?;
    Some(format!("{}{} × {what}", if at_least { "at least " } else { "" }, number(value)))
}

/// What is needed to make the run again, and where it was made.
fn facts(view: &View<'_>) -> Markup {
    let report = view.report;
    let scale = report.scale.as_deref().map_or_else(String::new, |scale| format!("scale {} · ", name(scale)));
    let slow = match report.dilate {
        0 | 1 => String::new(),
        times => format!(" · slow motion × {times}, times divided back"),
    };
    let runs = match report.runs {
        0 | 1 => String::new(),
        runs if report.is_simulated() => format!(" ({runs} runs, each with a seed made from it, merged)"),
        runs => format!(" to {} ({runs} runs, merged)", report.seed.saturating_add(u64::from(runs) - 1)),
    };
    let kept_time = if report.generator.valid { Verdict::Pass } else { Verdict::Inconclusive };
    html! {
        dl.facts {
            div { dt { "Seed" } dd { (report.seed) (runs) } }
            div { dt { "Size" } dd { (scale) (number(report.rate_per_s)) " requests/s" (slow) } }
            @if !report.workload.is_empty() { div { dt { "Workload" } dd { (name(&report.workload)) } } }
            @if !report.scenario.name.is_empty() {
                div {
                    dt { "Scenario" }
                    dd {
                        (name(&report.scenario.name)) " v" (report.scenario.version) " "
                        code { (name(&report.scenario.digest)) }
                    }
                }
            }
            @for policy in report.policies.iter().take(super::view::POLICIES_MAX) {
                div {
                    dt { "Policy" }
                    dd { (name(&policy.name)) " · generation " (policy.generation) " " code { (name(&policy.digest)) } }
                }
            }
            @if let Some(run) = view.run { (machine(run)) }
            // A simulation has none, and keeps whatever time it says.
            @if !report.is_simulated() { div { dt { "Generator" } dd { (badge(kept_time)) } } }
        }
    }
}

/// Where and when it was made.
fn machine(run: &RunInfo) -> Markup {
    let revision = run.git_revision.as_deref().map_or_else(|| "unknown".to_owned(), name);
    let machine = &run.machine;
    let memory =
        machine.memory_bytes.map(|bytes| format!("{} GiB", number(bytes as f64 / f64::from(1 << 30))));
    let cores = Some(format!("{} cores", machine.cores));
    let machine: Vec<String> = machine
        .cpu_model
        .clone()
        .into_iter()
        .chain(cores)
        .chain(memory)
        .chain([machine.kernel.clone()])
        .collect();
    html! {
        div { dt { "Revision" } dd { code { (revision) } " · version " (run.version) } }
        div { dt { "Machine" } dd { (clip(&machine.join(" · "))) } }
        div { dt { "Began" } dd { (calendar::utc(run.started_unix_ms)) " · took " (Unit::Seconds.words(Some(run.wall_s))) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_what_missed_and_what_is_open() {
        let gate = |name, verdict| Gate { name, verdict, ..Gate::default() };
        let gates = [
            gate("p99", Verdict::Fail),
            gate("late_work", Verdict::Pass),
            gate("recovery", Verdict::Inconclusive),
            gate("omission", Verdict::NotApplicable),
        ];
        assert_eq!(sentence(&gates), "1 of 3 gates hold. Missed: p99. Open: recovery.");
        assert_eq!(sentence(&[]), "No gate was judged.");
    }
}
