//! Print: a simulation for people, on a hundred columns.

use std::{fmt::Write as _, path::Path};

use load::table::{NOT_MEASURED, ms, percent};

use super::{Extremes, ReferenceRow, SimulationReport};
use crate::{
    frontier::table,
    report::{Report, State},
    slo::SimulationRun,
    verdict::Verdict,
};

const HEADER: [&str; 11] = [
    "policy",
    "state",
    "p50 ms",
    "p99 ms",
    "goodput",
    "omitted",
    "refused",
    "late at once",
    "slots",
    "profile",
    "recovery",
];

/// What came out, the study beside it, and the gates.
pub(super) fn render(
    section: &SimulationReport,
    report: &Report,
    run: Option<&SimulationRun>,
    out: &Path,
) -> String {
    let mut text = format!(
        "\n{} · region {} v{} · seed {} · {} of {} run(s) of {} s after {} s · {} domain(s)\n",
        report.command,
        section.region,
        section.version,
        report.seed,
        report.runs,
        section.runs_wanted,
        section.window_s,
        section.warm_up_s,
        section.domains,
    );
    let _ = writeln!(
        text,
        "{:.1} million requests, {:.1} million of them measured\n",
        section.requests as f64 / 1e6,
        section.requests_measured as f64 / 1e6
    );
    table(&mut text, &HEADER, 2, report.states.iter().map(state));
    for used in section.use_of.iter().filter(|used| used.overloaded) {
        let _ = writeln!(
            text,
            "  {} {}: more arrives than can be carried; what is shown is the overload, not a steady state",
            used.policy, used.state
        );
    }
    if !section.references.is_empty() {
        let _ = writeln!(text, "\nbeside the case study");
        let header = ["policy", "state", "figure", "study", "ours", "off"];
        table(&mut text, &header, 3, section.references.iter().map(reference));
        let _ = writeln!(text, "  why: report.html and report.json say it figure by figure");
    }
    if report.runs > 1 {
        let _ = writeln!(text, "\nover the runs: least, middle, most");
        let rows = section.dispersion.iter().map(|one| {
            let spread = |extremes: Extremes, write: fn(Option<f64>) -> String| {
                [extremes.min, extremes.median, extremes.max].map(write).join(" ")
            };
            vec![
                one.policy.to_owned(),
                one.state.to_owned(),
                spread(one.p50_ms, ms),
                spread(one.p99_ms, ms),
                spread(one.goodput_ratio, percent),
                spread(one.recovery_s, |s| s.map_or_else(|| NOT_MEASURED.to_owned(), |s| format!("{s:.0}"))),
            ]
        });
        table(&mut text, &["policy", "state", "p50 ms", "p99 ms", "goodput", "recovery s"], 2, rows);
    }
    let rows = report.gates.iter().map(|gate| {
        let about = if gate.verdict == Verdict::Pass { String::new() } else { gate.detail.clone() };
        let observed = gate.observed.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{value:.3}"));
        let place = [gate.policy.as_deref(), gate.state.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        vec![
            gate.name.to_owned(),
            place.join(" "),
            gate.verdict.to_string(),
            observed,
            format!("{:.3} {}", gate.bound, gate.unit),
            about,
        ]
    });
    text.push('\n');
    table(&mut text, &["gate", "of", "verdict", "observed", "bound", ""], 3, rows);
    if let Some(run) = run {
        let _ = writeln!(
            text,
            "{:.2} million requests/s and core, {} core(s), {:.1} s",
            run.requests_per_s_and_thread / 1e6,
            run.threads,
            run.wall_s
        );
    }
    let _ = writeln!(text, "verdict: {} · evidence in {}", report.verdict, out.display());
    text
}

fn state(state: &State) -> Vec<String> {
    let recovery = match (state.recovery_s, state.recovery_at_least_s) {
        (Some(s), _) => format!("{s:.0} s"),
        (None, Some(s)) => format!("≥ {s:.0} s"),
        (None, None) => String::new(),
    };
    vec![
        state.policy.clone(),
        state.state.clone(),
        ms(state.latency_ms.p50),
        ms(state.latency_ms.p99),
        percent(state.core_goodput_ratio),
        percent(state.omission_ratio),
        percent(state.rejection_ratio),
        state.late_work.concurrent.map_or_else(|| NOT_MEASURED.to_owned(), |late| format!("{late:.1}")),
        percent(state.occupancy_ratio.endpoint),
        percent(state.occupancy_ratio.profile),
        recovery,
    ]
}

fn reference(row: &ReferenceRow) -> Vec<String> {
    let least = if row.at_least { "≥ " } else { "" };
    let none = || NOT_MEASURED.to_owned();
    vec![
        row.policy.to_owned(),
        row.state.to_owned(),
        row.figure.to_owned(),
        format!("{}", row.study),
        row.ours.map_or_else(none, |ours| format!("{least}{ours:.2}")),
        row.difference_ratio.map_or_else(none, |off| format!("{:+.1} %", off * 100.0)),
    ]
}
