//! Figures: what a run's books say, phase by phase and as a whole. Pure.

use base::Dependency;
use load::report::{Stage, TimelineSecond};
use model::load_profile::{Figure, Profile};

use super::observed::{Observed, share};
use crate::{measure::Snapshot, scrape::Late};

/// Goodput that counts as recovered, whatever the one before was.
const RECOVERED_MIN: f64 = 0.98;
/// Deviations by which the goodput of one second may lie below.
const DEVIATIONS: f64 = 3.0;
/// Seconds in a row that must be good.
const WINDOWS: usize = 2;

/// Everything that the generator and the readings at the boundaries of the phases know.
pub(super) fn of_run(profile: &Profile, load: &load::Report, marks: &[Snapshot]) -> Observed {
    let mut observed = Observed::default();
    for (phase, stage) in load.stages.iter().enumerate().filter(|(_, stage)| stage.measured) {
        of_phase(&mut observed, phase, stage);
        if let (Some(from), Some(to)) = (marks.get(phase), marks.get(phase + 1)) {
            between(&mut observed, phase, stage, from, to, profile.dependency);
        }
    }
    observed
        .put(Figure::Mismatch, load.stages.iter().map(|stage| stage.all.core_mismatch).sum::<u64>() as f64);
    observed.put(Figure::Recovery, recovery(profile, load));
    observed
}

fn of_phase(observed: &mut Observed, phase: usize, stage: &Stage) {
    let all = &stage.all;
    let offered = all.scheduled;
    let per_s = |count: u64| (stage.duration_s > 0.0).then(|| count as f64 / stage.duration_s);
    let mut put = |figure, value: Option<f64>| observed.put_in(phase, figure, value);
    put(Figure::Offered, per_s(offered));
    put(Figure::Accepted, per_s(all.completed.correct()));
    put(Figure::P50, all.latency_ms.p50);
    put(Figure::P99, all.latency_ms.p99);
    let correct = all.completed.correct();
    put(Figure::BeyondObjective, share(correct.saturating_sub(all.within_objective), correct));
    put(Figure::Goodput, all.core_goodput_ratio);
    put(Figure::Rejection, all.rejection_ratio);
    let other = all.completed.unavailable + all.completed.error_other + all.completed.transport;
    put(Figure::OtherFailure, share(other, offered));
    put(Figure::Failure, share(all.completed.failed(), offered));
    put(Figure::Attempts, share(all.attempts, all.completed.total));
}

fn between(
    observed: &mut Observed,
    phase: usize,
    stage: &Stage,
    from: &Snapshot,
    to: &Snapshot,
    dependency: Option<Dependency>,
) {
    let wall_s = (to.at - from.at).as_secs_f64();
    let age = from.home.as_ref().zip(to.home.as_ref());
    let age = age.and_then(|(from, to)| to.since(from, wall_s).queue_age_p99_ms(1.0));
    observed.put_in(phase, Figure::QueueAge, age);
    // A member that was not read at both ends is not known, and neither is the sum.
    let late = to.late.iter().map(|(member, late)| Some(late.since(*from.late.get(member)?)));
    let late = late.reduce(|sum, late| Some(sum?.with(late?))).flatten().and_then(Late::operations);
    let offered = stage.all.scheduled as f64;
    if offered > 0.0 {
        observed.put_in(phase, Figure::LateWork, late.map(|late| late / offered));
        let calls = dependency.and_then(|dependency| {
            let at = |mark: &Snapshot| mark.emulator.as_ref()?.calls.get(dependency.as_str()).copied();
            at(to)?.checked_sub(at(from)?)
        });
        observed.put_in(phase, Figure::DependencyCalls, calls.map(|calls| calls as f64 / offered));
    }
}

/// Seconds from the beginning of the last measured phase to the first two in a row whose goodput is that of the first
/// measured phase, less what chance makes of so few; the length of the phase when there are none, which is a lower bound.
fn recovery(profile: &Profile, load: &load::Report) -> Option<f64> {
    let first = load.stages.get(profile.baseline())?;
    let last =
        load.stages.iter().rposition(|stage| stage.measured).filter(|last| *last > profile.baseline())?;
    let calm = first.all.core_goodput_ratio?.min(RECOVERED_MIN);
    let from: f64 = load.stages[..last].iter().map(|stage| stage.duration_s).sum();
    let length = load.stages[last].duration_s;
    // Only whole seconds of the phase.
    let seconds: Vec<&TimelineSecond> = load
        .timeline
        .iter()
        .filter(|second| second.at_s as f64 >= from && (second.at_s + 1) as f64 <= from + length)
        .collect();
    let good = |second: &&TimelineSecond| {
        let stayed = second.offered.saturating_sub(u64::from(second.departed_before_objective));
        let deviation = (calm * (1.0 - calm) / stayed.max(1) as f64).sqrt();
        share(u64::from(second.good), stayed).is_some_and(|goodput| goodput >= calm - DEVIATIONS * deviation)
    };
    let found = seconds.windows(WINDOWS).position(|window| window.iter().all(good));
    match found {
        Some(at) => Some(seconds[at].at_s as f64 - from),
        None => (!seconds.is_empty()).then_some(length),
    }
}
