//! Print: the ladder as it is climbed, and how it ended, for people.

use std::{fmt::Write as _, path::Path};

use load::table::{ms, percent};
use model::rollout::Ladder;

use super::{
    DECISIONS, Rehearsed, RolloutOptions,
    judge::{Evidence, number},
    walk::{End, LEGACY, Rung, deciding, said},
};
use crate::{
    gates::{Gate, Kind, Rule, evidence::sign},
    ledger::Decision,
    report::State,
    verdict::Verdict,
};

/// Width of the names.
const NAME: usize = 22;

/// What comes, before anything is run.
pub(super) fn opening(options: &RolloutOptions, ladder: &Ladder, takes: &str) -> String {
    let timing = if options.quick { "quick" } else { "full" };
    let slow =
        if options.dilate > 1 { format!(" · slow motion × {}", options.dilate) } else { String::new() };
    let mut text = format!(
        "rollout {} v{} · {} phases · {timing} timing · seed {} · scale {}{slow} · takes about {takes}\n",
        ladder.name,
        ladder.version,
        ladder.phases.len(),
        options.seed,
        options.scale,
    );
    if let Some(injection) = &options.inject {
        let _ = writeln!(text, "let loose during {}: {}", injection.phase, injection.fault.about);
    }
    text
}

/// One decision: what was seen at peak, and the check that decided.
pub(super) fn rung(rung: &Rung, ladder: &Ladder) -> String {
    let number = ladder.phases.iter().position(|phase| phase.name == rung.phase);
    let number = number.map_or_else(|| " ".to_owned(), |at| (at + 1).to_string());
    let name = match rung.decision {
        Decision::Reverse => format!("back to {}", rung.step),
        _ => rung.step.clone(),
    };
    let peak = rung.evidence.as_ref().and_then(|evidence| evidence.state("peak"));
    let decision = rung.decision.as_str();
    let mut text =
        format!("{number:>2}  {name:NAME$} {decision:8} {}", peak.map(figures).unwrap_or_default());
    let indent = " ".repeat(4);
    let why = match rung.decision {
        Decision::Begin if deciding(&rung.gates).is_none() => String::new(),
        Decision::Advance => closest(&rung.gates).map_or_else(String::new, |gate| {
            format!("{} checks passed; the closest: {}", rung.gates.len(), short(gate))
        }),
        _ => rung.reason.clone(),
    };
    if !why.is_empty() {
        let _ = write!(text, "\n{indent}{why}");
    }
    text.trim_end().to_owned()
}

/// The figures of a peak.
fn figures(state: &State) -> String {
    let calls =
        state.profile_calls_per_operation.map_or_else(|| "-".to_owned(), |calls| format!("{calls:.2}"));
    format!(
        "p99 {:>4} ms  goodput {:>6}  omitted {:>6}  rejected {:>6}  late {:>6}  queue age {:>5} ms  profile calls {calls}",
        ms(state.latency_ms.p99),
        percent(state.core_goodput_ratio),
        percent(state.omission_ratio),
        percent(state.rejection_ratio),
        percent(state.late_work.ratio),
        ms(state.queue_age_ms.p99),
    )
}

/// The check of the step itself that came closest to its bound.
fn closest(gates: &[Gate]) -> Option<&Gate> {
    let room = |gate: &Gate| {
        let observed = gate.observed?;
        let room = match gate.rule {
            Rule::AtMost | Rule::Below => gate.bound - observed,
            Rule::AtLeast => observed - gate.bound,
        };
        (gate.bound != 0.0).then(|| room / gate.bound.abs())
    };
    let own = gates.iter().filter(|gate| gate.kind != Kind::Evidence);
    let rooms = own.filter_map(|gate| Some((room(gate)?, gate)));
    rooms.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, gate)| gate)
}

/// A check without what its bound is made of.
fn short(gate: &Gate) -> String {
    let state = gate.state.as_deref().map_or_else(String::new, |state| format!(" at {state}"));
    let observed = gate.observed.map_or_else(|| "not measured".to_owned(), number);
    format!("{}{state} {observed} {} {} {}", gate.name, sign(gate.rule), number(gate.bound), gate.unit)
}

/// A decision as part of the story of its phase.
pub(super) fn told(rung: &Rung, before: Option<&Evidence>) -> String {
    let whose = if rung.step == rung.phase { String::new() } else { format!("{}: ", rung.step) };
    match rung.decision {
        Decision::Advance => {
            let pair = before
                .and_then(|before| before.state("peak"))
                .zip(rung.evidence.as_ref().and_then(|evidence| evidence.state("peak")));
            let moved = pair.map(|(was, is)| moved(was, is)).unwrap_or_default();
            let closest =
                closest(&rung.gates).map_or_else(String::new, |gate| format!("; closest {}", short(gate)));
            format!("{whose}advance, {moved}{closest}")
        }
        Decision::Reverse => format!("reverse, {}", rung.reason),
        decision => format!("{whose}{decision}, {}", rung.reason),
    }
}

/// What moved at peak.
fn moved(was: &State, is: &State) -> String {
    format!(
        "p99 {} → {} ms, goodput {} → {}, late work {} → {}",
        ms(was.latency_ms.p99),
        ms(is.latency_ms.p99),
        percent(was.core_goodput_ratio),
        percent(is.core_goodput_ratio),
        percent(was.late_work.ratio),
        percent(is.late_work.ratio)
    )
}

/// How it ended.
pub(super) fn conclusion(rehearsed: &Rehearsed, out: &Path) -> String {
    let Rehearsed { report, walked, .. } = rehearsed;
    let mut text = String::from("\n");
    for phase in &report.scenarios {
        let sign = match phase.verdict {
            Verdict::Pass => "passed",
            Verdict::Fail => "reversed",
            Verdict::Inconclusive if phase.detail.starts_with("not reached") => "not reached",
            Verdict::Inconclusive => "held",
            Verdict::NotApplicable => "passed over",
        };
        let _ = writeln!(text, "  {:NAME$} {sign}", phase.name);
    }
    let failed: Vec<&Gate> = report.gates.iter().filter(|gate| gate.verdict == Verdict::Fail).collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "\nbreached:");
        for gate in failed {
            let whose = gate.policy.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  {whose}: {} · {}", said(gate), gate.action.as_str());
        }
    }
    for reason in &report.generator.reasons {
        let _ = writeln!(text, "not valid: {reason}");
    }
    let why = why(&walked.end);
    if !why.is_empty() {
        let _ = writeln!(text, "\n{why}");
    }
    let _ = writeln!(
        text,
        "\nverdict: {} · evidence in {} · decisions in {} · open {}",
        report.verdict,
        out.display(),
        out.join(DECISIONS).display(),
        out.join("report.html").display()
    );
    text
}

/// Why it did not reach the top; empty when it did.
pub(super) fn why(end: &End) -> String {
    match end {
        End::Reached => String::new(),
        End::Held { phase, why } if phase == LEGACY => format!("no verdict: {why}"),
        End::Held { phase, why } => format!("held at {phase}: {why}"),
        End::Aborted { phase, why, restored } => {
            let back = match restored {
                Verdict::Pass => "the phase before is back in force, with its figures",
                Verdict::Fail => "the phase before is back in force, and its figures are not",
                _ => "the phase before is back in force; whether its figures are was not to be told",
            };
            format!("aborted at {phase}: {why}; {back}")
        }
        End::Unsound { why } => why.clone(),
    }
}
