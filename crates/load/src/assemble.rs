//! Assemble: turns what a run left behind into its report, and checks the balance across the two threads.

use std::collections::BTreeMap;

use base::{Nanos, WorkloadClass};

use crate::{
    Plan, Report, health, latency,
    report::{Generator, SCHEMA, Stage, TimelineSecond, ratio},
    run::Remains,
    schedule::Counts,
    source::Facts,
    tally::{ClassTally, Second, cause},
};

const CLASSES: usize = WorkloadClass::ALL.len();

pub(crate) fn assemble(plan: &Plan, facts: Facts, remains: Remains) -> Report {
    let Remains { mut tally, followed, .. } = remains;
    for (stage, counts) in tally.stages.iter_mut().zip(&followed.counts) {
        reconcile(stage, counts);
    }
    let total = total(plan, &tally.stages);
    let stages: Vec<Stage> = plan
        .stages
        .iter()
        .zip(&tally.stages)
        .map(|(stage, tallies)| {
            Stage::of(stage.name.clone(), stage.measured, stage.duration.as_secs_f64(), tallies)
        })
        .collect();
    let unsent_ratio = ratio(total.all.unsent.total, total.all.scheduled);
    let mut reasons = health::faults(&tally.clock_error, unsent_ratio);
    let missed = remains.recorded.map_or(0, |end| end.missed);
    if missed > 0 {
        reasons.push(format!("{missed} operations are missing from the record"));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wall_s = remains.wall.as_secs_f64();
    let generator = Generator {
        valid: reasons.is_empty(),
        reasons,
        clock_error_ms: tally.clock_error.summary(),
        clock_error_wall_ms: tally.clock_error_wall.summary(),
        schedule_error_wall_ms: followed.error.summary(),
        cpu_ratio: (wall_s > 0.0).then(|| remains.cpu.as_secs_f64() / (wall_s * cores as f64)),
        cores,
        wall_s,
        unsent_ratio,
        in_flight_peak: tally.in_flight_peak,
        in_flight_max: plan.in_flight_max,
        connections: plan.connections,
        connections_lost: remains.connections_lost,
        schedule_priority: followed.priority,
        sender_priority: remains.sender_priority,
    };
    Report {
        schema: SCHEMA,
        target: plan.targets().collect::<Vec<_>>().join(", "),
        workload: facts.workload,
        seed: plan.seed,
        origin: plan.origin.as_str(),
        rate_per_s: facts.rate_per_s,
        scale: facts.scale,
        dilate: plan.dilate,
        objective_ms: plan.objective.as_millis_f64(),
        timeout_ms: plan.timeout.map(Nanos::as_millis_f64),
        histogram: latency::SCHEME,
        generator,
        total,
        stages,
        timeline: timeline(&followed.offered, tally.timeline.finish()),
        mismatch_samples: tally.samples,
        identities_untracked: remains.identities_untracked,
        stopped_early: remains.stopped_early,
    }
}

/// Takes over what the schedule's thread counted.
fn reconcile(stage: &mut [ClassTally; CLASSES], counts: &[Counts; CLASSES]) {
    for (tally, counts) in stage.iter_mut().zip(counts) {
        tally.scheduled = counts.scheduled;
        tally.unsent_channel = counts.behind;
    }
}

/// The measured stages as one.
fn total(plan: &Plan, stages: &[[ClassTally; CLASSES]]) -> Stage {
    let mut classes = <[ClassTally; CLASSES]>::default();
    let mut duration = Nanos::ZERO;
    for (stage, tallies) in plan.stages.iter().zip(stages).filter(|(stage, _)| stage.measured) {
        duration = duration + stage.duration;
        for (into, from) in classes.iter_mut().zip(tallies) {
            into.merge(from);
        }
    }
    Stage::of("total".to_owned(), true, duration.as_secs_f64(), &classes)
}

fn timeline(offered: &[u64], seconds: Vec<Second>) -> Vec<TimelineSecond> {
    let mut seconds = seconds;
    seconds.resize_with(seconds.len().max(offered.len()), Second::default);
    let second = |(at, second): (usize, Second)| TimelineSecond {
        at_s: at as u64,
        offered: offered.get(at).copied().unwrap_or(0),
        ok: second.ok + second.ok_degraded,
        ok_degraded: second.ok_degraded,
        failed: second.failed,
        departed: second.departed,
        good: second.good,
        departed_before_objective: second.departed_before_objective,
        p50_ms: second.p50_ms,
        p99_ms: second.p99_ms,
        omitted: omitted(&second),
    };
    seconds.into_iter().enumerate().map(second).collect()
}

fn omitted(second: &Second) -> BTreeMap<&'static str, u32> {
    let counted = second.omitted.iter().enumerate().filter(|(_, count)| **count > 0);
    counted.filter_map(|(marker, count)| cause(marker).map(|cause| (cause, *count))).collect()
}
