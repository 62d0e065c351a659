//! Print: counterfactuals for people, one paragraph a switch.

use std::{fmt::Write as _, path::Path};

use load::table::{NOT_MEASURED, ms, percent};

use super::{CounterfactualReport, Figure};
use crate::{frontier::table, report::Report};

/// Every switch: question, expectation, figures, verdict.
pub(super) fn render(section: &CounterfactualReport, report: &Report, out: &Path) -> String {
    let mut text = format!(
        "\n{} · seed {} · {} run(s) of {} s after {} s\n",
        report.command, report.seed, report.runs, section.window_s, section.warm_up_s
    );
    for switch in &section.switches {
        let _ = writeln!(text, "\n{}: {}", switch.name, switch.verdict);
        let _ = writeln!(text, "  {}", switch.question);
        let _ = writeln!(text, "  expected: {}", switch.expected);
        let _ = writeln!(text, "  rule: {}", switch.rule);
        let _ = writeln!(text, "  {}.", switch.text);
        if !switch.figures.is_empty() {
            let rows = switch.figures.iter().map(row);
            table(&mut text, &["", "without", "with"], 1, rows);
        }
    }
    let breached = report.gates.iter().filter(|gate| gate.verdict.exit_code() != 0);
    for gate in breached {
        let _ = writeln!(text, "\n{}: {}: {}", gate.name, gate.verdict, gate.detail);
    }
    let _ = writeln!(text, "\nverdict: {} · evidence in {}", report.verdict, out.display());
    text
}

fn row(figure: &Figure) -> Vec<String> {
    let shown = |value: Option<f64>| match figure.unit {
        "ratio" => percent(value),
        "ms" | "s" => {
            value.map_or_else(|| NOT_MEASURED.to_owned(), |_| format!("{} {}", ms(value), figure.unit))
        }
        unit => value.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{value:.4} {unit}")),
    };
    vec![format!("  {}", figure.what), shown(figure.without), shown(figure.with)]
}
