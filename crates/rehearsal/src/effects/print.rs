//! Print: what a rehearsal of effects says at its end.

use std::{fmt::Write as _, path::Path};

use crate::{exposures, gates, report::Report, rollout::said, verdict::Verdict};

/// The result for people.
pub(super) fn render(report: &Report, out: &Path) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    if let Some(effects) = &report.effects {
        let kills = &effects.kills;
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
        let _ = writeln!(
            text,
            "Effects, seed {}\n\n  {:<12} {:>9}   {} at any moment, {} with rows submitted, {} while committing; {} rows were in \
             flight\n  {:<12} {:>9}   p50 and p99 in ms, from a kill to readiness\n",
            report.seed,
            "kills",
            kills.total,
            kills.any,
            kills.submitted,
            kills.committing,
            kills.rows_in_flight,
            "restart",
            format!("{} {}", ms(kills.restart_ms.p50), ms(kills.restart_ms.p99)),
        );
        text.push_str(&exposures::print::render(&effects.account, "the ledger"));
        text.push('\n');
    }
    for story in &report.scenarios {
        let _ = writeln!(text, "  {:<12} {}: {}", story.verdict.as_str(), story.name, story.detail);
    }
    for gate in report.gates.iter().filter(|gate| gate.verdict != Verdict::Pass) {
        let _ = writeln!(text, "  {:<12} {}", gate.verdict.as_str(), said(gate));
    }
    let _ = writeln!(
        text,
        "\n{}: {} gates, {} stories; evidence in {}",
        report.verdict.as_str(),
        report.gates.len(),
        report.scenarios.len(),
        out.display()
    );
    text
}

/// Why it is no pass, in one sentence.
pub(super) fn why(report: &Report) -> String {
    let story = report.scenarios.iter().find(|story| {
        story.verdict == report.verdict && !matches!(story.verdict, Verdict::Pass | Verdict::NotApplicable)
    });
    match (story, gates::evidence::first_breach(&report.gates)) {
        (Some(story), _) => format!("{}: {}", story.name, story.detail),
        (None, Some(gate)) => said(gate),
        (None, None) => String::new(),
    }
}
