//! Print: a frontier for people, on a hundred columns.

use std::{fmt::Write as _, path::Path};

use load::table::{NOT_MEASURED, grid, ms, percent};

use super::{FrontierReport, Limits, OldCase};
use crate::{
    report::Report,
    sweep::{At, Figures, RecoveryTime},
    verdict::Verdict,
};

const HEADER: [&str; 10] =
    ["pair", "state", "goodput", "p99 ms", "refused", "slots", "of bound", "wait ms", "reads", "store"];

/// The sweep, the ends, the old design and the gates.
pub(super) fn render(frontier: &FrontierReport, report: &Report, out: &Path) -> String {
    let mut text = format!(
        "\n{} · {} v{} · seed {} · {} run(s) of {} s after {} s\n\n",
        report.command,
        frontier.name,
        frontier.version,
        report.seed,
        report.runs,
        frontier.window_s,
        frontier.warm_up_s
    );
    let rows = frontier.pairs.iter().flat_map(|pair| {
        let states = [At::Peak, At::Slowdown].into_iter().filter_map(|state| pair.states.at(state));
        states.enumerate().map(|(at, figures)| {
            let name = if at == 0 { marked(pair.limits, frontier) } else { String::new() };
            row(name, figures)
        })
    });
    table(&mut text, &HEADER, 2, rows);
    let _ = writeln!(
        text,
        "  slots, of bound: busy share of the endpoint's slots and of the profile gate's limit · wait: the longest, p99\n"
    );
    let rows = frontier.pairs.iter().map(|pair| {
        let recovery = pair.states.at(At::Recovery);
        vec![
            marked(pair.limits, frontier),
            seconds(recovery.and_then(|recovery| recovery.recovery)),
            percent(recovery.and_then(|recovery| recovery.goodput_ratio)),
        ]
    });
    table(&mut text, &["pair", "recovery s", "goodput meanwhile"], 1, rows);
    ends(&mut text, frontier);
    let _ = writeln!(text, "\nThe old design, one change at a time");
    let rows = frontier.old_design.iter().map(old);
    table(&mut text, &["change", "peak p99 ms", "moved", "slowdown p99 ms", "moved"], 1, rows);
    for case in &frontier.old_design {
        let _ = writeln!(text, "  {}, {}: {}", case.name, case.what, case.reason);
    }
    gates(&mut text, report);
    let _ = writeln!(text, "verdict: {} · evidence in {}", report.verdict, out.display());
    text
}

/// A pair with a mark if it is the one in force.
fn marked(limits: Limits, frontier: &FrontierReport) -> String {
    let mark = if limits == frontier.knees.chosen { " *" } else { "" };
    format!("{limits}{mark}")
}

fn row(name: String, figures: &Figures) -> Vec<String> {
    vec![
        name,
        figures.state.to_owned(),
        percent(figures.goodput_ratio),
        ms(figures.latency_ms.p99),
        percent(figures.rejection_ratio),
        percent(figures.occupancy_ratio.endpoint),
        percent(figures.bound_ratio.profile),
        ms(figures.wait_ms.longest()),
        figures
            .profile_calls_per_operation
            .map_or_else(|| NOT_MEASURED.to_owned(), |calls| format!("{calls:.3}")),
        percent(Some(figures.store_ratio)),
    ]
}

/// How long recovery took, or that it took longer than was watched.
fn seconds(recovery: Option<RecoveryTime>) -> String {
    match recovery {
        Some(RecoveryTime { s: Some(s), .. }) => format!("{s:.0}"),
        Some(RecoveryTime { at_least_s: Some(s), .. }) => format!("≥ {s:.0}"),
        _ => NOT_MEASURED.to_owned(),
    }
}

fn ends(text: &mut String, frontier: &FrontierReport) {
    let knees = frontier.knees;
    let end = |found: Option<Limits>| {
        found.map_or_else(|| "none in the sweep".to_owned(), |limits| limits.to_string())
    };
    let rows = [
        vec!["lower end".to_owned(), end(knees.lower), knees.reference_lower.to_string()],
        vec!["in force *".to_owned(), knees.chosen.to_string(), String::new()],
        vec!["upper end".to_owned(), end(knees.upper), knees.reference_upper.to_string()],
    ];
    text.push('\n');
    table(text, &["", "found", "case study"], 3, rows);
    let between = match knees.chosen_is_between {
        Some(true) => "it is between both ends",
        Some(false) => "it is beyond an end",
        None => "an end beside it was not found",
    };
    let _ = writeln!(text, "{} in force: {between}", knees.chosen);
    for note in &frontier.notes {
        let _ = writeln!(text, "  {note}");
    }
}

fn old(case: &OldCase) -> Vec<String> {
    let moved = |ratio: Option<f64>| {
        ratio.map_or_else(|| NOT_MEASURED.to_owned(), |moved| format!("{:+.1} %", moved * 100.0))
    };
    vec![
        format!("{}: {}", case.name, case.what),
        ms(case.p99_ms),
        moved(case.moved_ratio),
        ms(case.slowdown_p99_ms),
        moved(case.slowdown_moved_ratio),
    ]
}

/// Every gate, those that did not pass with what there is to say.
fn gates(text: &mut String, report: &Report) {
    let rows = report.gates.iter().map(|gate| {
        let observed = gate.observed.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{value:.3}"));
        let bound = format!("{} {}", gate.bound, gate.unit);
        vec![gate.name.to_owned(), gate.verdict.to_string(), observed, bound]
    });
    text.push('\n');
    table(text, &["gate", "verdict", "observed", "bound"], 4, rows);
    for gate in report.gates.iter().filter(|gate| gate.verdict != Verdict::Pass) {
        let _ = writeln!(text, "  {}: {}", gate.name, gate.detail);
    }
}

/// A grid without blanks at the ends of its lines.
pub(crate) fn table(
    text: &mut String,
    header: &[&str],
    left: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) {
    for line in grid(header, left, rows).lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
