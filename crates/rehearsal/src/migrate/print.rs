//! Print: what a rehearsal of the migration says at its end.

use std::{fmt::Write as _, path::Path};

use crate::{gates, report::Report, rollout::said, verdict::Verdict};

/// The result for people.
pub(super) fn render(report: &Report, out: &Path) -> String {
    let mut text = String::from("Migration of the entitlement summary\n\n");
    // Writing to a String cannot fail.
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let percent =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{:.2} %", value * 100.0));
    if let Some(migration) = &report.migration {
        let _ = writeln!(
            text,
            "  {:<9} {:>7} {:>12} {:>9} {:>9} {:>11} {:>9} {:>9}",
            "phase", "pages", "claims wrong", "p50 ms", "p99 ms", "on summary", "fallback", "match"
        );
        for rung in &migration.ladder {
            let _ = writeln!(
                text,
                "  {:<9} {:>7} {:>12} {:>9} {:>9} {:>11} {:>9} {:>9}",
                rung.phase,
                rung.pages,
                rung.claims_wrong.map_or_else(|| "unknown".to_owned(), |wrong| wrong.to_string()),
                ms(rung.latency_ms.p50),
                ms(rung.latency_ms.p99),
                percent(rung.on_summary_ratio),
                percent(rung.fallback_ratio),
                percent(rung.match_ratio),
            );
        }
        if let Some(hop) = &migration.hop {
            let gain = |with: Option<f64>, without: Option<f64>| {
                ms(with.zip(without).map(|(with, without)| with - without))
            };
            let _ = writeln!(
                text,
                "\n  without the hop: p50 {} ms less, p99 {} ms less (the study: p99 {} ms less)",
                gain(hop.p50_with_ms, hop.p50_without_ms),
                gain(hop.p99_with_ms, hop.p99_without_ms),
                hop.reference_p99_gain_ms,
            );
        }
    }
    text.push('\n');
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
