//! Gates: what a packet has to show. Pure.

use model::region::ReferenceFigure;

use super::{AFTER, BEFORE, SimulationReport};
use crate::{
    gates::{Action, Gate, comparison},
    report::{Report, State},
};

/// How far the old design's latency may lie from the study's, over the study's.
const BEFORE_OFF_MAX: f64 = 0.15;
/// The objective's bound on latency, in milliseconds.
const P99_MAX_MS: f64 = 300.0;
/// Goodput that the repaired policy has at peak.
const GOODPUT_MIN: f64 = 0.98;
/// Omission that product allows at peak.
const OMISSION_MAX: f64 = 0.08;
/// How many times less late work there must be.
const LATE_FOLD_MIN: f64 = 50.0;
/// How many times faster recovery must be.
const RECOVERY_FOLD_MIN: f64 = 3.0;

/// The gates: those of a packet, and that everybody was counted.
pub(super) fn judge(report: &Report, section: &SimulationReport, runs: u32, wanted: u32) -> Vec<Gate> {
    let imbalance = report.states.iter().map(State::imbalance).fold(0.0, f64::max);
    let mut gates = vec![
        Gate::at_most("imbalance", "operations", Some(imbalance), 0.0)
            .doubt()
            .saying("offered less ended and in flight"),
        Gate::at_least("runs", "runs", Some(f64::from(runs)), f64::from(wanted))
            .doubt()
            .saying("after a signal only the runs that were whole are told"),
    ];
    if report.policies.len() == 2 {
        gates.extend(packet(report, section));
    }
    gates
}

fn packet(report: &Report, section: &SimulationReport) -> Vec<Gate> {
    let find = |policy: &str, state: &str| {
        report.states.iter().find(|one| one.policy == policy && one.state == state)
    };
    let (before, after) = (find(BEFORE, "peak"), find(AFTER, "peak"));
    let figures = comparison::compare(report).unwrap_or_default();
    let off = |figure: ReferenceFigure| {
        let row = section.references.iter().find(|row| row.policy == BEFORE && row.figure == figure.as_str());
        row.and_then(|row| row.difference_ratio).map(f64::abs)
    };
    let mut gates = Vec::new();
    if !section.references.is_empty() {
        for (name, figure) in
            [("before_p50_off", ReferenceFigure::P50), ("before_p99_off", ReferenceFigure::P99)]
        {
            let gate = Gate::at_most(name, "ratio", off(figure), BEFORE_OFF_MAX).doubt();
            gates.push(gate.of(BEFORE).during("peak").saying("from the study's figure, over it"));
        }
    }
    let p50 = before.and_then(|before| before.latency_ms.p50);
    let peak = |gate: Gate| gate.of(AFTER).during("peak").on_breach(Action::Hold);
    let median = after.and_then(|after| after.latency_ms.p50);
    // Without a median before there is none to be held to.
    let median = median.filter(|_| p50.is_some());
    gates.extend([
        peak(Gate::at_most("p50", "ms", median, p50.unwrap_or_default())).saying("no higher than before"),
        peak(Gate::at_most("p99", "ms", after.and_then(|after| after.latency_ms.p99), P99_MAX_MS)),
        peak(Gate::at_least(
            "goodput",
            "ratio",
            after.and_then(|after| after.core_goodput_ratio),
            GOODPUT_MIN,
        )),
        peak(Gate::at_most("omission", "ratio", after.and_then(|after| after.omission_ratio), OMISSION_MAX))
            .on_breach(Action::ProductDecision),
        peak(Gate::at_least("late_work_fold", "times", figures.late_work_fold, LATE_FOLD_MIN))
            .saying("none after counts as one late operation: the fold is then at least this"),
    ]);
    let fold = figures.recovery_fold;
    let recovery =
        Gate::at_least("recovery_fold", "times", fold.value, RECOVERY_FOLD_MIN).on_breach(Action::Hold);
    let recovery = recovery.of(AFTER).during("recovery");
    // What is at least so much may be enough.
    gates.push(if fold.at_least {
        recovery.doubt().saying("at least: an end lies beyond what was watched")
    } else {
        recovery
    });
    gates
}
