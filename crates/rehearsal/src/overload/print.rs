//! Print: the result of an overload for people.

use std::{fmt::Write as _, path::Path};

use load::table::{NOT_MEASURED, grid, ms, percent};

use super::judge::answers_per_s;
use crate::{
    gates::{Gate, Kind, evidence::sign},
    report::{Report, State},
    verdict::Verdict,
};

/// The whole result.
pub(super) fn render(report: &Report, out: &Path) -> String {
    let mut text = format!("\n{}\n", grid(&HEADER, 1, report.states.iter().map(row)));
    let told = |gate: &&Gate| gate.kind == Kind::Objective || gate.verdict != Verdict::Pass;
    let rows = report.gates.iter().filter(told).map(|gate| {
        vec![
            gate.verdict.as_str().to_owned(),
            gate.name.to_owned(),
            gate.state.clone().unwrap_or_default(),
            figure(gate.observed),
            format!("{} {} {}", sign(gate.rule), figure(Some(gate.bound)), gate.unit),
        ]
    });
    let gates = grid(&["", "gate", "in", "observed", "bound"], 5, rows);
    let gates = gates.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let _ = writeln!(text, "\n{gates}");
    for reason in &report.generator.reasons {
        let _ = writeln!(text, "not valid: {reason}");
    }
    let _ = writeln!(
        text,
        "\nverdict: {} · evidence in {} · open {}",
        report.verdict,
        out.display(),
        out.join("report.html").display()
    );
    text
}

/// The gates that decide, in one sentence; empty when all passed.
pub(super) fn why(report: &Report) -> String {
    let deciding = report.gates.iter().filter(|gate| gate.verdict == report.verdict);
    let named: Vec<String> = deciding
        .map(|gate| {
            let state = gate.state.as_deref().map_or_else(String::new, |state| format!(" ({state})"));
            format!("{}{state} {}", gate.name, figure(gate.observed))
        })
        .collect();
    match report.verdict {
        Verdict::Fail => format!("failed: {}", named.join(", ")),
        Verdict::Inconclusive => format!("no verdict, open: {}", named.join(", ")),
        Verdict::Pass | Verdict::NotApplicable => String::new(),
    }
}

const HEADER: [&str; 11] = [
    "",
    "offered/s",
    "in time/s",
    "goodput",
    "rejected",
    "omitted",
    "p50 ms",
    "p99 ms",
    "queue age p99 ms",
    "endpoint occupancy",
    "MiB",
];

fn row(state: &State) -> Vec<String> {
    let per_s = |count: u64| count as f64 / state.duration_s.max(1e-9);
    vec![
        state.state.clone(),
        format!("{:.0}", per_s(state.arrivals.scheduled)),
        format!("{:.0}", answers_per_s(state)),
        percent(state.core_goodput_ratio),
        percent(state.rejection_ratio),
        percent(state.omission_ratio),
        ms(state.latency_ms.p50),
        ms(state.latency_ms.p99),
        ms(state.queue_age_ms.p99),
        percent(state.occupancy_ratio.endpoint),
        state.memory_peak_mib.map_or_else(|| NOT_MEASURED.to_owned(), |mib| format!("{mib:.1}")),
    ]
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), crate::rollout::number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::example;

    #[test]
    fn every_state_is_a_row_and_what_decides_is_named() {
        let mut report = example::report();
        report.gates = vec![
            Gate::at_most("recovery", "s", Some(4.0), 1.0).during("after"),
            Gate::at_most("memory", "MiB", Some(4.0), 10.0),
        ];
        report.verdict = Verdict::Fail;
        let text = render(&report, Path::new("out"));
        for state in &report.states {
            assert!(text.contains(&state.state), "{text}");
        }
        assert_eq!(why(&report), "failed: recovery (after) 4");
        assert!(text.contains("out/report.html") && !text.contains("memory "), "{text}");
        report.verdict = Verdict::Pass;
        assert_eq!(why(&report), "");
    }
}
