//! Tables: every figure behind the plots, for whoever wants the number: gates with the missed ones first, before beside
//! after, classes, costs, and whether the generator kept time.

use std::collections::BTreeSet;

use base::WorkloadClass;
use load::table::count;
use maud::{Markup, html};

use super::{
    text::{NOT_MEASURED, Unit, badge, clip, more, name, number, spaced},
    view::{Case, FIGURES, Figure, POLICIES_MAX, View},
};
use crate::{
    gates::{Gate, Kind, evidence::sign, objective::P99_MS},
    report::State,
    slo::SuiteRun,
    verdict::Verdict,
};

/// Most columns of figures beside each other; with more, every case is a row.
const COLUMNS_MAX: usize = 8;
/// Most gates of a table. The others are in `report.json`.
const ROWS_MAX: usize = 200;
/// Most dependencies.
const DEPENDENCIES_MAX: usize = 12;
/// Most runs.
const RUNS_MAX: usize = 48;
/// Most stages of a run.
const STAGES_MAX: usize = 8;
/// Most reasons why the generator is not valid.
const REASONS_MAX: usize = 24;

/// Every compared figure: beside each other, or below each other when they are many.
pub(super) fn figures(view: &View<'_>) -> Markup {
    let cases: Vec<(&str, Case<'_>)> = view.cases().collect();
    html! {
        section {
            h2 { @if view.is_comparison() { "Before and after" } @else { "Figures" } }
            @if cases.is_empty() {
                p.none { "No state was measured." }
            } @else if cases.len() <= COLUMNS_MAX {
                (beside(view, &cases))
            } @else {
                (below(view))
            }
            (more(view.left_out, "states"))
        }
    }
}

fn beside(view: &View<'_>, cases: &[(&str, Case<'_>)]) -> Markup {
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th rowspan="2" { "figure" }
                        th.figure rowspan="2" { "bound" }
                        @for group in &view.groups { th.group colspan=(group.cases.len()) scope="colgroup" { (group.title) } }
                    }
                    tr {
                        @for (at, case) in each_with_edge(view) {
                            th.figure.edge[at] { (policy(view, case)) }
                        }
                    }
                }
                tbody {
                    @for figure in &FIGURES {
                        tr {
                            th scope="row" { (figure.name) }
                            td.figure.bound { (figure.bound_words(view).unwrap_or_else(|| "–".to_owned())) }
                            @for ((_, case), (edge, _)) in cases.iter().zip(each_with_edge(view)) {
                                td.figure.edge[edge] { (value(view, figure, case.state)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Every case, and whether it begins a state.
fn each_with_edge<'v>(view: &'v View<'_>) -> impl Iterator<Item = (bool, Case<'v>)> {
    view.groups.iter().flat_map(|group| group.cases.iter().enumerate().map(|(at, case)| (at == 0, *case)))
}

fn below(view: &View<'_>) -> Markup {
    let (seen, unseen): (Vec<&Figure>, Vec<&Figure>) =
        FIGURES.iter().partition(|figure| view.cases().any(|(_, case)| figure.words(case.state).is_some()));
    html! {
        div.wide {
            table.many {
                thead { tr {
                    th { "state" } th { "policy" }
                    @for figure in &seen {
                        th.figure { (figure.name) @if let Some(bound) = figure.bound_words(view) { div.bound { (bound) } } }
                    }
                } }
                tbody {
                    @for (edge, case) in each_with_edge(view) {
                        tr.edge[edge] {
                            th scope="row" { @if edge { (name(&case.state.state)) } }
                            td.name { (policy(view, case)) }
                            @for figure in &seen { td.figure { (value(view, figure, case.state)) } }
                        }
                    }
                }
            }
        }
        @if !unseen.is_empty() {
            p.note { "Not measured: " (unseen.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ")) "." }
        }
    }
}

/// A policy by its name, with its ink.
fn policy(view: &View<'_>, case: Case<'_>) -> Markup {
    html! {
        span.swatch style=(view.ink(case.policy).swatch()) {} (view.policies[case.policy])
    }
}

fn value(view: &View<'_>, figure: &Figure, state: &State) -> Markup {
    let missed = figure.misses(&view.report.gates, state);
    html! {
        @match figure.words(state) {
            Some(words) if missed => span.miss title="misses its bound" { "✕ " (words) },
            Some(words) => (words),
            None => span.none { (NOT_MEASURED) },
        }
    }
}

/// Every gate, the missed ones first; those that judge nothing are folded away.
pub(super) fn gates(view: &View<'_>) -> Markup {
    let idle = |gate: &&Gate| gate.verdict == Verdict::NotApplicable;
    let (idle, mut judged): (Vec<&Gate>, Vec<&Gate>) = view.report.gates.iter().partition(idle);
    judged.sort_by_key(|gate| {
        let verdict = match gate.verdict {
            Verdict::Fail => 0,
            Verdict::Inconclusive => 1,
            Verdict::Pass | Verdict::NotApplicable => 2,
        };
        let kind = match gate.kind {
            Kind::Objective | Kind::Acceptance => 0,
            Kind::Comparison | Kind::Stop => 1,
            Kind::Evidence => 2,
        };
        (verdict, kind)
    });
    html! {
        section {
            h2 { "Gates" }
            @if view.report.gates.is_empty() { p.none { "No gate was judged." } }
            (gate_table(&judged))
            @if !idle.is_empty() {
                details {
                    summary { (idle.len()) " that judge nothing here, with what was observed" }
                    (gate_table(&idle))
                }
            }
        }
    }
}

fn gate_table(gates: &[&Gate]) -> Markup {
    html! {
        @if !gates.is_empty() {
            div.wide {
                table {
                    thead { tr {
                        th { "verdict" } th { "gate" } th { "state" } th { "policy" } th.figure { "observed" }
                        th.figure { "bound" } th { "on a breach" } th { "detail" }
                    } }
                    tbody { @for gate in gates.iter().take(ROWS_MAX) { (gate_row(gate)) } }
                }
            }
            (more(gates.len().saturating_sub(ROWS_MAX), "gates"))
        }
    }
}

fn gate_row(gate: &Gate) -> Markup {
    html! {
        tr {
            td { (badge(gate.verdict)) }
            th.name scope="row" { (spaced(gate.name)) }
            td.quiet.name { (gate.state.as_deref().map_or_else(|| "all".to_owned(), name)) }
            td.quiet.name { (gate.policy.as_deref().map_or_else(|| "all".to_owned(), name)) }
            td.figure { (amount(gate.unit, gate.observed)) }
            td.figure.bound { (sign(gate.rule)) " " (amount(gate.unit, Some(gate.bound))) }
            td class=(if gate.verdict == Verdict::Fail { "loud" } else { "quiet" }) { (gate.action.as_str()) }
            td.quiet { (clip(&gate.detail)) }
        }
    }
}

/// A value in the unit that a gate names.
fn amount(unit: &str, value: Option<f64>) -> Markup {
    match (Unit::named(unit), value.filter(|value| value.is_finite())) {
        (Unit::Number, Some(value)) => html! { (number(value)) " " (spaced(unit)) },
        (unit, value) => unit.show(value),
    }
}

/// A table with a row for every case, folded away where there are many.
fn fold(view: &View<'_>, table: Markup) -> Markup {
    let cases = view.cases().count();
    html! {
        @if cases > COLUMNS_MAX && !table.0.is_empty() {
            details { summary { "All " (cases) " states" } (table) }
        } @else { (table) }
    }
}

/// The same figures by class.
pub(super) fn classes(view: &View<'_>) -> Markup {
    let classed = view.cases().any(|(_, case)| !case.state.classes.is_empty());
    html! {
        @if classed {
            section {
                h2 { "By class" }
                (fold(view, html! { div.wide {
                    table {
                        thead { tr {
                            th { "state" } th { "policy" } th { "class" } th.figure { "share" } th.figure { "answers" }
                            th.figure { "p50" } th.figure { "p99" } th.figure { "p99.9" } th.figure { "goodput" }
                            th.figure { "omission" } th.figure { "rejected" }
                        } }
                        tbody { @for (edge, case) in each_with_edge(view) { (class_rows(view, case, edge)) } }
                    }
                } }))
            }
        }
    }
}

fn class_rows(view: &View<'_>, case: Case<'_>, edge: bool) -> Markup {
    let known =
        WorkloadClass::ALL.iter().filter_map(|class| case.state.classes.get_key_value(class.as_str()));
    html! {
        @for (at, (class_name, class)) in known.enumerate() {
            @let latency = &class.latency_ms;
            tr.edge[edge && at == 0] {
                th scope="row" { @if at == 0 && edge { (name(&case.state.state)) } }
                td.name { @if at == 0 { (policy(view, case)) } }
                td { (class_name) }
                td.figure { (Unit::Ratio.show(class.share)) }
                td.figure { (count(latency.n)) }
                td.figure { (Unit::Ms.show(latency.p50)) }
                td.figure {
                    @if latency.p99.is_some_and(|p99| p99 > P99_MS) {
                        span.miss title="misses the objective" { "✕ " (Unit::Ms.show(latency.p99)) }
                    } @else { (Unit::Ms.show(latency.p99)) }
                }
                td.figure { (Unit::Ms.show(latency.p999)) }
                td.figure { (Unit::Ratio.show(class.core_goodput_ratio)) }
                td.figure { (Unit::Ratio.show(class.omission_ratio)) }
                td.figure { (Unit::Ratio.show(class.rejection_ratio)) }
            }
        }
    }
}

/// What it cost, and where the cost went.
pub(super) fn costs(view: &View<'_>) -> Markup {
    html! {
        section {
            h2 { "Cost" }
            @if view.groups.is_empty() { p.none { "No state was measured." } } @else { (fold(view, cost_table(view))) }
            (fold(view, dependencies(view)))
            // Nothing is left behind in virtual time: a test of the model sees to that.
            @if !view.report.is_simulated() { (left_behind(view)) }
        }
    }
}

fn cost_table(view: &View<'_>) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr {
                    th { "state" } th { "policy" }
                    th.figure { "CPU per correct answer" div.bound { "home-api" } }
                    th.figure { "CPU per correct answer" div.bound { "all services" } }
                    th.figure { "memory peak" div.bound { "home-api" } }
                    th.figure { "attempts" div.bound { "per operation" } }
                    th.figure { "profile calls" div.bound { "per operation" } }
                    th.figure { "cancelled work" div.bound { "stops in, p50 / p99" } }
                } }
                tbody { @for (edge, case) in each_with_edge(view) { (cost_row(view, case, edge)) } }
            }
        }
    }
}

fn cost_row(view: &View<'_>, case: Case<'_>, edge: bool) -> Markup {
    let state = case.state;
    let stop = &state.cancel_stop_ms;
    html! {
        tr.edge[edge] {
            th scope="row" { @if edge { (clip(&state.state)) } }
            td.name { (policy(view, case)) }
            td.figure { (Unit::Ms.show(state.cpu_ms_per_core_response)) }
            td.figure { (Unit::Ms.show(state.suite_cpu_ms_per_core_response)) }
            td.figure { (Unit::Mib.show(state.memory_peak_mib)) }
            td.figure { (Unit::Number.show(state.attempts_per_operation)) }
            td.figure { (Unit::Number.show(state.profile_calls_per_operation)) }
            td.figure {
                @if stop.p50.is_some() || stop.p99.is_some() {
                    (Unit::Ms.show(stop.p50)) " / " (Unit::Ms.show(stop.p99))
                } @else { span.none { (NOT_MEASURED) } }
            }
        }
    }
}

/// Calls that reached each dependency, per operation offered.
fn dependencies(view: &View<'_>) -> Markup {
    let all = view.cases().flat_map(|(_, case)| case.state.dependency_calls_per_operation.keys());
    let names: Vec<&String> = all.collect::<BTreeSet<_>>().into_iter().take(DEPENDENCIES_MAX).collect();
    html! {
        @if !names.is_empty() {
            h3 { "Calls that reached each dependency, per operation" }
            div.wide {
                table {
                    thead { tr { th { "state" } th { "policy" } @for one in &names { th.figure { (name(one)) } } } }
                    tbody {
                        @for (edge, case) in each_with_edge(view) {
                            tr.edge[edge] {
                                th scope="row" { @if edge { (name(&case.state.state)) } }
                                td.name { (policy(view, case)) }
                                @for one in &names {
                                    @let calls = case.state.dependency_calls_per_operation.get(*one);
                                    td.figure { (Unit::Number.show(calls.copied().flatten())) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What every policy still held when its run was over, and what it did twice.
fn left_behind(view: &View<'_>) -> Markup {
    let policies = &view.report.policies;
    html! {
        @if !policies.is_empty() {
            h3 { "After the run" }
            div.wide {
                table {
                    thead { tr {
                        th { "policy" } th.figure { "permits still held" } th.figure { "flights still open" }
                        th.figure { "exposures recorded before" } th.figure { "exposures in conflict" } th { "ended early" }
                    } }
                    tbody {
                        @for policy in policies.iter().take(POLICIES_MAX) {
                            @let after = &policy.after_run;
                            tr {
                                th scope="row" { (name(&policy.name)) }
                                td.figure { (Unit::Number.show(after.permits_held)) }
                                td.figure { (Unit::Number.show(after.flights_open)) }
                                td.figure { (Unit::Number.show(after.effects_replayed)) }
                                td.figure { (Unit::Number.show(after.effects_conflicting)) }
                                td.quiet { (after.stopped.as_deref().map_or_else(|| "no".to_owned(), clip)) }
                            }
                        }
                    }
                }
            }
            (more(policies.len().saturating_sub(POLICIES_MAX), "policies"))
        }
    }
}

/// Whether the generator and the emulator kept time, and whether the arrivals balance.
pub(super) fn generator(view: &View<'_>) -> Markup {
    let generator = &view.report.generator;
    let own = || suites(view).iter().map(|run| &run.generator);
    let in_flight = own().map(|own| own.in_flight_peak).max().zip(own().map(|own| own.in_flight_max).max());
    let lost = (!suites(view).is_empty()).then(|| own().map(|own| own.connections_lost).sum());
    html! {
        section {
            h2 { "The generator and the machine" }
            p {
                @if generator.valid {
                    (badge(Verdict::Pass)) " The generator and the emulator kept time: the figures above are the suite's."
                } @else {
                    (badge(Verdict::Inconclusive)) " The figures above cannot be relied on:"
                }
            }
            @if !generator.reasons.is_empty() {
                ul { @for reason in generator.reasons.iter().take(REASONS_MAX) { li { (clip(reason)) } } }
                (more(generator.reasons.len().saturating_sub(REASONS_MAX), "reasons"))
            }
            dl.facts {
                div { dt { "Clock error p99" } dd { (Unit::Ms.show(generator.clock_error_ms.p99)) } }
                div { dt { "Emulator timer p99" } dd { (Unit::Ms.show(generator.emulator_timer_ms.p99)) } }
                div { dt { "CPU" } dd { (Unit::Ratio.show(generator.cpu_ratio)) } }
                div { dt { "Not sent" } dd { (Unit::Ratio.show(generator.unsent_ratio)) } }
                div { dt { "In flight at most" } dd {
                    @match in_flight {
                        Some((peak, bound)) => { (count(peak as u64)) " of " (count(bound as u64)) }
                        None => span.none { (NOT_MEASURED) },
                    }
                } }
                div { dt { "Connections lost" } dd {
                    @match lost { Some(lost) => (count(lost)), None => span.none { (NOT_MEASURED) } }
                } }
            }
            @if !view.groups.is_empty() { (fold(view, balance(view))) }
            (runs(view))
            @if !view.report.histogram.is_empty() { p.note { "Latencies: " (clip(view.report.histogram)) "." } }
        }
    }
}

/// The suites that were started.
fn suites<'a>(view: &View<'a>) -> &'a [SuiteRun] {
    view.run.map_or(&[], |run| &run.runs)
}

fn balance(view: &View<'_>) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr {
                    th { "state" } th { "policy" } th.figure { "declared" } th.figure { "scheduled" } th.figure { "completed" }
                    th.figure { "not sent" } th.figure { "in flight" } th.figure { "off by" } th.figure { "wrong answers" }
                } }
                tbody {
                    @for (edge, case) in each_with_edge(view) {
                        @let arrivals = &case.state.arrivals;
                        tr.edge[edge] {
                            th scope="row" { @if edge { (name(&case.state.state)) } }
                            td.name { (policy(view, case)) }
                            td.figure { @match arrivals.declared { Some(n) => (count(n)), None => span.none { (NOT_MEASURED) } } }
                            td.figure { (count(arrivals.scheduled)) }
                            td.figure { (count(arrivals.completed)) }
                            td.figure { (count(arrivals.unsent)) }
                            td.figure { (count(arrivals.in_flight)) }
                            td.figure { (number(case.state.imbalance())) }
                            td.figure { (count(case.state.core_mismatch)) }
                        }
                    }
                }
            }
        }
    }
}

/// Every suite that was started, and how busy the machine was.
fn runs(view: &View<'_>) -> Markup {
    let runs = suites(view);
    html! {
        @if !runs.is_empty() {
            h3 { "Runs" }
            div.wide {
                table {
                    thead { tr {
                        th { "run" } th { "policy" } th.figure { "seed" } th.figure { "took" } th.figure { "ready in" }
                        th.figure { "in flight at most" } th { "CPU of the machine" }
                    } }
                    tbody {
                        @for run in runs.iter().take(RUNS_MAX) {
                            tr {
                                th scope="row" { (name(&run.name)) }
                                td { (name(&run.policy)) }
                                td.figure { (run.seed) }
                                td.figure { (Unit::Seconds.show(Some(run.wall_s))) }
                                td.figure { (Unit::Ms.show(Some(run.suite_start_ms))) }
                                td.figure { (count(run.generator.in_flight_peak as u64)) }
                                td.quiet {
                                    @for (at, stage) in run.stages.iter().take(STAGES_MAX).enumerate() {
                                        @if at > 0 { " · " } (name(&stage.name)) " " (Unit::Ratio.words(stage.cpu_ratio))
                                    }
                                }
                            }
                        }
                    }
                }
            }
            (more(runs.len().saturating_sub(RUNS_MAX), "runs"))
        }
    }
}
