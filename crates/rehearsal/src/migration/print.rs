//! Print: where the migration is, what was decided and what went before, for people and as JSON.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use ::rollout::{
    Phase, SUBJECT,
    ledger::{Decision, Entry},
    report::{Count, Counts, ProcessReport},
};
use load::table::{count, grid};
use serde_json::{Value, json};

use super::{
    desk::{Confirmation, Decided, History, Status},
    judge::{Heard, Judgement},
};
use crate::{
    calendar,
    gates::{Gate, evidence::sign},
    rollout::number,
};

/// Schema of the JSON documents.
pub const SCHEMA: &str = "mercury.migration/v1";
/// Samples that people are shown.
const SAMPLES_SHOWN: usize = 5;

/// Where the migration is, for people.
pub fn status(status: &Status, ledger: &Path) -> String {
    let mut text = match &status.standing {
        Some(standing) => format!(
            "{SUBJECT}: {} · generation {} · since {} ({})\n",
            standing.phase,
            standing.generation,
            calendar::utc_seconds(standing.since_unix_ms),
            span(status.now_unix_ms.saturating_sub(standing.since_unix_ms)),
        ),
        None => format!("{SUBJECT}: no decision yet; mercury rollout advance begins the migration\n"),
    };
    let decisions = status.head.as_ref().map_or(0, |head| head.sequence);
    let _ = writeln!(text, "ledger: {} · {decisions} decisions\n", ledger.display());
    let _ = writeln!(text, "{}\n", processes(&status.heard));
    text.push_str(&counts(&status.counts));
    text.push_str(&samples(&status.heard));
    match &status.next {
        Some(next) => text.push_str(&judgement(next)),
        None => text.push_str(
            "next: nothing; the call is gone, and a way back is a forward change: mercury rollout begin\n",
        ),
    }
    text
}

/// The processes, one a line.
fn processes(heard: &[Heard]) -> String {
    let header = ["process", "service", "phase", "generation", "policy", "keys", "revocations"];
    let rows = heard.iter().map(|heard| match &heard.report {
        Err(why) => vec![heard.address.clone(), format!("not heard: {why}")],
        Ok(report) => vec![
            heard.address.clone(),
            report.service.clone(),
            report.phase.to_string(),
            report.generation.to_string(),
            report.policy_generation.to_string(),
            if report.keys.is_empty() { "none".to_owned() } else { report.keys.join(", ") },
            stream(report),
        ],
    });
    let mut text = grid(&header, header.len(), rows);
    for (heard, report) in heard.iter().filter_map(|heard| Some((heard, heard.report.as_ref().ok()?))) {
        for (phase, why) in &report.unable {
            let _ = write!(text, "\n{} could not serve {phase}: {why}", heard.address);
        }
    }
    text
}

fn stream(report: &ProcessReport) -> String {
    match &report.revocations {
        None => "–".to_owned(),
        Some(stream) => {
            let state = if stream.fresh { "fresh" } else { "stale" };
            let silent =
                stream.silent_ms.map_or_else(|| "never heard".to_owned(), |ms| format!("{ms} ms ago"));
            format!("{state}, {silent}")
        }
    }
}

/// What was counted, a line each; nothing that nobody counted.
fn counts(counts: &Counts) -> String {
    let of_maps = [("pages", &counts.pages), ("summaries", &counts.emitted)];
    let of_maps = of_maps.into_iter().map(|(name, map)| (name, map.clone()));
    let of_rows = [("comparisons", &counts.comparisons), ("claims from", &counts.authority)];
    let of_rows = of_rows.into_iter().map(|(name, rows)| (name, by_kind(rows)));
    let mut text = String::new();
    for (name, kinds) in of_maps.chain(of_rows) {
        let kinds = kinds.into_iter().filter(|(_, times)| *times > 0);
        let kinds: Vec<String> = kinds.map(|(kind, times)| format!("{kind} {}", count(times))).collect();
        if !kinds.is_empty() {
            let _ = writeln!(text, "{name:12} {}", kinds.join(" · "));
        }
    }
    if text.is_empty() {
        text.push_str("nothing was counted in this phase yet\n");
    }
    text.push('\n');
    text
}

fn by_kind(rows: &[Count]) -> BTreeMap<String, u64> {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        let known = kinds.entry(row.kind.clone()).or_default();
        *known = known.saturating_add(row.count);
    }
    kinds
}

/// The newest samples of differences.
fn samples(heard: &[Heard]) -> String {
    let reports = heard.iter().filter_map(|heard| heard.report.as_ref().ok());
    let mut samples: Vec<_> = reports.flat_map(|report| &report.samples).collect();
    if samples.is_empty() {
        return String::new();
    }
    samples.sort_by_key(|sample| std::cmp::Reverse(sample.at_unix_ms));
    let mut text = format!("samples of differences, the newest of {}:\n", samples.len());
    for sample in samples.into_iter().take(SAMPLES_SHOWN) {
        let why =
            if sample.rejection.is_empty() { String::new() } else { format!(" ({})", sample.rejection) };
        let _ = writeln!(
            text,
            "  {} {}{why} · {} in {} · version {} beside {} · key {:?} · only in the summary {:?} · only in the call {:?}",
            calendar::utc_seconds(sample.at_unix_ms),
            sample.comparison,
            sample.class,
            sample.region,
            sample.summary_version,
            sample.call_version,
            sample.key_id,
            sample.only_summary,
            sample.only_call,
        );
    }
    text.push('\n');
    text
}

/// The checks of a step, and what follows.
fn judgement(judgement: &Judgement) -> String {
    let header = ["verdict", "check", "observed", "bound", "unit", ""];
    let rows = judgement.gates.iter().map(gate);
    format!(
        "to {}:\n{}\n\nverdict: {} · {}\n",
        judgement.target,
        grid(&header, header.len(), rows),
        judgement.verdict,
        judgement.reason
    )
}

fn gate(gate: &Gate) -> Vec<String> {
    vec![
        gate.verdict.to_string(),
        gate.name.to_owned(),
        gate.observed.map_or_else(|| "–".to_owned(), number),
        format!("{} {}", sign(gate.rule), number(gate.bound)),
        gate.unit.to_owned(),
        gate.detail.clone(),
    ]
}

/// What was decided, for people.
pub fn decided(decided: &Decided) -> String {
    let Decided { entry, judgement: grounds, confirmation } = decided;
    let mut text = grounds.as_ref().map(judgement).unwrap_or_default();
    if !text.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(text, "{}", line(entry));
    match confirmation {
        Confirmation::NotNeeded => {}
        Confirmation::ByAll => text.push_str("confirmed by every process\n"),
        Confirmation::Missing(missing) => {
            text.push_str("decided, and not confirmed by:\n");
            for one in missing {
                let _ = writeln!(text, "  {one}");
            }
        }
    }
    text
}

/// All decisions, for people.
pub fn history(history: &History) -> String {
    let mut text: String = history.entries.iter().map(|entry| line(entry) + "\n").collect();
    if history.entries.is_empty() {
        text.push_str("no decision about the migration yet\n");
    }
    if history.torn_bytes > 0 {
        let _ = writeln!(text, "{} bytes of a line that was never acknowledged follow", history.torn_bytes);
    }
    text
}

/// One decision.
fn line(entry: &Entry) -> String {
    let from = entry.from.as_deref().unwrap_or("nothing");
    let way = match entry.decision {
        Decision::Hold | Decision::Refuse => format!("at {from}, before {}", entry.to),
        Decision::Repair => "the ledger itself".to_owned(),
        _ => format!("{from} → {}", entry.to),
    };
    format!(
        "{:>4}  {}  {:8} {way} · {} by {:?} · {}",
        entry.sequence,
        calendar::utc_seconds(entry.at_unix_ms),
        entry.decision.as_str(),
        entry.actor,
        entry.command,
        entry.reason
    )
}

/// Where the migration is, as JSON.
pub fn status_json(status: &Status, ledger: &Path) -> Value {
    let processes = status.heard.iter().map(|heard| match &heard.report {
        Ok(report) => json!({ "address": heard.address, "report": report, "unheard": null }),
        Err(why) => json!({ "address": heard.address, "report": null, "unheard": why }),
    });
    json!({
        "schema": SCHEMA,
        "subject": SUBJECT,
        "ledger": ledger.display().to_string(),
        "head": status.head,
        "phase": status.standing.as_ref().map(|standing| standing.phase),
        "generation": status.standing.as_ref().map(|standing| standing.generation),
        "since_unix_ms": status.standing.as_ref().map(|standing| standing.since_unix_ms),
        "now_unix_ms": status.now_unix_ms,
        "processes": processes.collect::<Vec<_>>(),
        "counts": status.counts,
        "next": status.next,
    })
}

/// What was decided, as JSON.
pub fn decided_json(decided: &Decided) -> Value {
    let (confirmed, unconfirmed) = match &decided.confirmation {
        Confirmation::NotNeeded => (Value::Null, json!([])),
        Confirmation::ByAll => (json!(true), json!([])),
        Confirmation::Missing(missing) => (json!(false), json!(missing)),
    };
    json!({
        "schema": SCHEMA,
        "subject": SUBJECT,
        "verdict": decided.verdict(),
        "why": decided.why(),
        "phase": decided.entry.position().and_then(Phase::parse),
        "decision": decided.entry,
        "gates": decided.judgement.as_ref().map(|judgement| &judgement.gates),
        "confirmed": confirmed,
        "unconfirmed": unconfirmed,
    })
}

/// All decisions, as JSON.
pub fn history_json(history: &History) -> Value {
    json!({
        "schema": SCHEMA,
        "subject": SUBJECT,
        "entries": history.entries,
        "torn_bytes": history.torn_bytes,
    })
}

/// A span as people say it.
fn span(millis: i64) -> String {
    match millis {
        ..0 => "begins in the future: a clock was set back".to_owned(),
        0..60_000 => format!("for {}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("for {} min {} s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!("for {} h {} min", millis / 3_600_000, millis % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_said_in_what_fits_them() {
        let said = [-1, 0, 12_345, 60_000, 3_599_999, 7_260_000].map(span);
        assert_eq!(
            said,
            [
                "begins in the future: a clock was set back",
                "for 0.0 s",
                "for 12.3 s",
                "for 1 min 0 s",
                "for 59 min 59 s",
                "for 2 h 1 min"
            ]
        );
    }
}
