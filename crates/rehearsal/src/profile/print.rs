//! Print: the result of a profile for people: what was offered and accepted, then every condition.

use std::{fmt::Write as _, path::Path};

use load::table::{NOT_MEASURED, grid, ms, percent};

use super::section::{PhaseReport, ProfileReport};
use crate::{
    gates::{Gate, Kind, evidence::sign},
    report::Report,
    verdict::Verdict,
};

const PHASES: [&str; 11] = [
    "",
    "offered/s",
    "accepted/s",
    "rejected",
    "deadline",
    "unavailable",
    "other",
    "attempts",
    "goodput",
    "p50 ms",
    "p99 ms",
];

/// The whole result.
pub(super) fn render(report: &Report, profile: &ProfileReport, out: &Path) -> String {
    let mut text = format!("\n{}: {}\n\n", profile.name, profile.about);
    let _ = writeln!(text, "{}", trimmed(&grid(&PHASES, 1, profile.phases.iter().map(phase))));
    if !profile.bodies.is_empty() {
        let rows = profile.bodies.iter().map(|case| {
            let right = format!("{} of {}", case.as_documented, case.sent);
            let other = case.other.clone().unwrap_or_default();
            vec![case.name.to_owned(), case.expected.to_owned(), right, ms(case.slowest_ms), other]
        });
        let header = ["body", "answered with", "so", "slowest ms", "otherwise"];
        let _ = writeln!(text, "\n{}", trimmed(&grid(&header, 2, rows)));
    }
    for one in &profile.retained {
        let _ = writeln!(
            text,
            "{:>6} bytes of a held body: {:.0} bytes a request ({:.0} to {:.0}, {} times {} requests)",
            one.body_bytes, one.bytes_per_request, one.least, one.most, one.rounds, one.requests
        );
    }
    if let Some(flood) = &profile.flood {
        let _ = writeln!(
            text,
            "\nflood: {} scheduled, {} taken, {} refused, {} not connected, {} unsent, in {:.1} s",
            flood.scheduled,
            flood.taken,
            flood.refused,
            flood.not_connected,
            flood.unsent,
            flood.offered_for_s
        );
    }
    let _ = writeln!(
        text,
        "\n{}",
        trimmed(&grid(&["", "", "condition", "in", "observed", "bound"], 6, report.gates.iter().map(gate)))
    );
    for reason in &report.generator.reasons {
        let _ = writeln!(text, "not valid: {reason}");
    }
    if let Some(stopped) = &profile.stopped {
        let _ = writeln!(text, "stopped: {stopped}");
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

fn trimmed(table: &str) -> String {
    table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn phase(phase: &PhaseReport) -> Vec<String> {
    let name = if phase.measured { phase.name.clone() } else { format!("({})", phase.name) };
    let mut row = vec![name, format!("{:.0}", phase.offered_per_s), format!("{:.0}", phase.accepted_per_s)];
    row.extend(
        [phase.rejected, phase.deadline, phase.unavailable, phase.other].map(|count| count.to_string()),
    );
    let attempts = if phase.offered > 0 { phase.attempts as f64 / phase.offered as f64 } else { 0.0 };
    row.push(format!("{attempts:.2}"));
    row.push(percent(phase.goodput_ratio));
    row.extend([ms(phase.latency_ms.p50), ms(phase.latency_ms.p99)]);
    row
}

fn gate(gate: &Gate) -> Vec<String> {
    let kind = match gate.kind {
        Kind::Acceptance => "accept",
        Kind::Stop => "stop",
        _ => "evidence",
    };
    vec![
        gate.verdict.as_str().to_owned(),
        kind.to_owned(),
        gate.name.to_owned(),
        gate.state.clone().unwrap_or_default(),
        gate.observed.map_or_else(|| NOT_MEASURED.to_owned(), crate::rollout::number),
        format!("{} {} {}", sign(gate.rule), crate::rollout::number(gate.bound), gate.unit),
    ]
}

/// The conditions that decide, in one sentence; empty when all passed.
pub(super) fn why(report: &Report) -> String {
    let deciding: Vec<String> = report
        .gates
        .iter()
        .filter(|gate| gate.verdict == report.verdict)
        .map(|gate| {
            let state = gate.state.as_deref().map_or_else(String::new, |state| format!(" ({state})"));
            let observed = gate.observed.map_or_else(|| NOT_MEASURED.to_owned(), crate::rollout::number);
            format!(
                "{}{state} {observed}, must be {} {}",
                gate.name,
                sign(gate.rule),
                crate::rollout::number(gate.bound)
            )
        })
        .collect();
    match report.verdict {
        Verdict::Fail => format!("failed: {}", deciding.join("; ")),
        Verdict::Inconclusive => format!("no verdict, open: {}", deciding.join("; ")),
        Verdict::Pass | Verdict::NotApplicable => String::new(),
    }
}
