//! Reporting: from a walk to the report. Pure.

use model::{
    rollout::{Ladder, Phase, PhasePlan},
    scenario::Scenario,
    workload::Workload,
};

use super::{
    RolloutOptions,
    judge::Evidence,
    print,
    walk::{LEGACY, Rung, Walk, Walked},
};
use crate::{
    gates::comparison,
    ledger::Decision,
    report::{self, Report},
    verdict::Verdict,
};

/// What is the same for all steps.
pub(super) fn frame(options: &RolloutOptions, scenario: &Scenario, workload: &Workload) -> Report {
    let domain = workload.region_requests_per_s / f64::from(workload.admission_domains.max(1));
    Report {
        schema: report::SCHEMA,
        command: "rehearse rollout".to_owned(),
        seed: options.seed,
        runs: 1,
        workload: workload.name.clone(),
        scenario: scenario.into(),
        scale: Some(options.scale.to_string()),
        rate_per_s: domain * options.scale.as_f64(),
        dilate: options.dilate,
        histogram: load::HISTOGRAM_SCHEME,
        ..Report::default()
    }
}

/// The whole report.
pub(super) fn report(walk: &Walk<'_>, walked: &Walked) -> Report {
    let mut report = walk.measure.frame.clone();
    for rung in counted(&walked.rungs) {
        report.gates.extend(rung.gates.iter().cloned());
        let Some(evidence) = &rung.evidence else { continue };
        report.states.extend(evidence.states.iter().cloned());
        report.add_policy(&evidence.policy.name, evidence.policy.clone());
    }
    report.comparison = ends(walk.ladder, walked)
        .and_then(|(first, last)| comparison::compare(&of_both(&walk.measure.frame, first, last)));
    report.scenarios = walk.ladder.phases.iter().map(|phase| story(phase, &walked.rungs)).collect();
    report.tolerance = tolerance(walk);
    report.verdict = walked.end.verdict();
    report
}

/// The rungs that count: of a step that was run again since the machine had not kept time, the last.
fn counted(rungs: &[Rung]) -> impl Iterator<Item = &Rung> {
    rungs.iter().enumerate().filter_map(|(at, rung)| {
        let again = rungs.get(at + 1).is_some_and(|next| {
            next.step == rung.step && matches!(rung.decision, Decision::Begin | Decision::Hold)
        });
        (!again).then_some(rung)
    })
}

/// The evidence at both ends of a ladder that was climbed to its top.
fn ends<'w>(ladder: &Ladder, walked: &'w Walked) -> Option<(&'w Evidence, &'w Evidence)> {
    let of = |step: &str| {
        let rung = walked.rungs.iter().rfind(|rung| rung.step == step)?;
        rung.evidence.as_ref()
    };
    let top = ladder.phases.last()?;
    (walked.end.verdict() == Verdict::Pass).then_some(())?;
    of(LEGACY).zip(of(&top.name))
}

fn of_both(frame: &Report, first: &Evidence, last: &Evidence) -> Report {
    Report {
        states: first.states.iter().chain(&last.states).cloned().collect(),
        policies: vec![first.policy.clone(), last.policy.clone()],
        ..frame.clone()
    }
}

/// What became of a phase.
fn story(phase: &Phase, rungs: &[Rung]) -> report::Scenario {
    let own: Vec<&Rung> = rungs.iter().filter(|rung| rung.phase == phase.name).collect();
    let (verdict, detail) = match (own.last(), &phase.plan) {
        (None, PhasePlan::NotAvailable(reason)) => (Verdict::NotApplicable, reason.clone()),
        (None, PhasePlan::Steps(_)) => {
            (Verdict::Inconclusive, "not reached: the rollout ended before".to_owned())
        }
        (Some(last), _) => {
            let verdict = match last.decision {
                Decision::Advance => Verdict::Pass,
                Decision::Skip => Verdict::NotApplicable,
                Decision::Abort | Decision::Refuse | Decision::Reverse => Verdict::Fail,
                Decision::Begin | Decision::Hold | Decision::Repair => Verdict::Inconclusive,
            };
            let before = before(phase, rungs);
            let told: Vec<String> = own.iter().map(|rung| print::told(rung, before)).collect();
            (verdict, told.join("; "))
        }
    };
    report::Scenario { name: phase.name.clone(), verdict, detail }
}

/// What everybody had before a phase.
fn before<'r>(phase: &Phase, rungs: &'r [Rung]) -> Option<&'r Evidence> {
    let first = rungs.iter().position(|rung| rung.phase == phase.name)?;
    let whole = |rung: &&Rung| {
        matches!(rung.decision, Decision::Begin | Decision::Advance) && rung.step == rung.phase
    };
    rungs[..first].iter().rfind(whole)?.evidence.as_ref()
}

/// How the bounds come about.
fn tolerance(walk: &Walk<'_>) -> String {
    let tolerance = &walk.measure.tolerance;
    let mut text = format!(
        "Rollout {} v{}: a bound includes its tolerance, and the detail of a check takes it apart. Counted shares have {} \
         standard deviations of a sample of the run's size; a 99th percentile has the way from the quantile so many \
         deviations of its rank below, and {} ms for the machine; queue ages {} ms, stop delays {} ms of wall time, \
         occupancies {} points, profile calls {} per operation, recovery {} s. ",
        walk.ladder.name,
        walk.ladder.version,
        tolerance.sigmas,
        tolerance.latency_ms,
        tolerance.queue_age_ms,
        tolerance.stop_delay_ms,
        tolerance.occupancy_points,
        tolerance.profile_calls,
        tolerance.recovery_s,
    );
    if walk.measure.frame.scale.as_deref() != Some("1") {
        text.push_str("Scaled: this run speaks for a system of its own size only. ");
    }
    text.push_str(
        "A step whose machine did not keep time is run once more, and held when it does not again.",
    );
    text
}
