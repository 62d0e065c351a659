//! Comparison: the policy before against the policy after, on the same schedule and the same draws.

use std::collections::BTreeMap;

use super::{Action, Gate, Kind, Role, evidence::MIX_MOVED_MAX, state_of};
use crate::{
    report::{Comparison, RecoveryFold, Report, State, ratio},
    verdict::Verdict,
};

/// What the 99th percentile before must reach: otherwise there was no problem to repair, and nothing is shown.
pub const P99_BEFORE_MIN_MS: f64 = 400.0;
/// What the 99th percentile must fall by.
pub const P99_REDUCTION_MIN: f64 = 0.40;
/// How many times less late work there must be.
pub const LATE_WORK_FOLD_MIN: f64 = 20.0;
/// How many times faster recovery must be.
pub const RECOVERY_FOLD_MIN: f64 = 2.0;
/// How full the pools before must have been. Holds at full size only: a smaller pool waits at a lower occupancy.
pub const OCCUPANCY_BEFORE_MIN: f64 = 0.85;
/// Recovery is seen in windows of a second.
const WINDOW_S: f64 = 1.0;

/// Before against after; `None` unless both have a peak.
pub fn compare(report: &Report) -> Option<Comparison> {
    let peaks = state_of(report, Role::Before, "peak").zip(state_of(report, Role::After, "peak"));
    let (before, after) = peaks?;
    let (p99_before, p99_after) = (before.latency_ms.p99, after.latency_ms.p99);
    let reduction = p99_before.zip(p99_after).and_then(|(before, after)| ratio(before - after, before));
    let recoveries =
        state_of(report, Role::Before, "recovery").zip(state_of(report, Role::After, "recovery"));
    Some(Comparison {
        p50_before_ms: before.latency_ms.p50,
        p50_after_ms: after.latency_ms.p50,
        p99_before_ms: p99_before,
        p99_after_ms: p99_after,
        p99_reduction_ratio: reduction,
        late_work_fold: late_work_fold(before, after),
        recovery_fold: recoveries.map(|(before, after)| recovery_fold(before, after)).unwrap_or_default(),
    })
}

/// None after is not infinitely less: it is less than one operation of those that were looked at.
fn late_work_fold(before: &State, after: &State) -> Option<f64> {
    let (late_before, late_after) = (before.late_work.ratio?, after.late_work.ratio?);
    let one = ratio(1.0, after.arrivals.scheduled as f64)?;
    ratio(late_before, late_after.max(one))
}

/// A recovery before that was not over counts for as long as it was watched; one after that was over in its first window
/// counts for that window, the shortest time that can be told.
fn recovery_fold(before: &State, after: &State) -> RecoveryFold {
    let was = before.recovery_s.or(before.recovery_at_least_s);
    let Some((was, is)) = was.zip(after.recovery_s) else { return RecoveryFold::default() };
    RecoveryFold {
        value: ratio(was, is.max(WINDOW_S)),
        at_least: before.recovery_s.is_none() || is < WINDOW_S,
    }
}

/// The gates of a comparison; none when one policy was rehearsed.
pub(super) fn judge(report: &Report) -> Vec<Gate> {
    let both = [Role::Before, Role::After].map(|role| report.policies.iter().any(|one| one.role == role));
    if both != [true, true] {
        return Vec::new();
    }
    let before = state_of(report, Role::Before, "peak");
    let after = state_of(report, Role::After, "peak");
    let figures = compare(report).unwrap_or_default();
    let mut gates = vec![
        Gate::at_least("before_p99", "ms", figures.p99_before_ms, P99_BEFORE_MIN_MS)
            .doubt()
            .saying("below it, the policy before did not show the problem"),
        Gate::at_least("p99_reduction", "ratio", figures.p99_reduction_ratio, P99_REDUCTION_MIN)
            .on_breach(Action::Hold),
        Gate::at_least("late_work_fold", "times", figures.late_work_fold, LATE_WORK_FOLD_MIN)
            .on_breach(Action::Hold),
        recovery(&figures, state_of(report, Role::Before, "recovery")),
    ];
    if report.scale.as_deref() == Some("1") {
        let occupancy = before.map(|state| state.occupancy_ratio).unwrap_or_default();
        for (name, observed) in [
            ("before_endpoint_occupancy", occupancy.endpoint),
            ("before_profile_occupancy", occupancy.profile),
        ] {
            let gate = Gate::at_least(name, "ratio", observed, OCCUPANCY_BEFORE_MIN).doubt();
            gates.push(gate.saying("below it, the policy before did not show the problem"));
        }
    }
    let pair = before.zip(after);
    gates.push(
        Gate::below("answer_mix", "ratio", pair.and_then(|(b, a)| answer_mix_moved(b, a)), MIX_MOVED_MAX)
            .doubt()
            .saying("how far the share of a class among the answers moved"),
    );
    gates.push(
        Gate::below("dependency_mix", "ratio", pair.and_then(|(b, a)| calls_mix_moved(b, a)), MIX_MOVED_MAX)
            .doubt()
            .saying("how far the share of a dependency among the calls moved"),
    );
    let mut gates: Vec<Gate> = gates.into_iter().map(|gate| gate.during("peak")).collect();
    if let Some(at) = gates.iter_mut().find(|gate| gate.name == "recovery_fold") {
        at.state = Some("recovery".to_owned());
    }
    gates.extend(mechanisms(report));
    gates.into_iter().map(|gate| gate.kind(Kind::Comparison)).collect()
}

/// What is true of at least so much is true of the bound when it reaches it, and otherwise open.
fn recovery(figures: &Comparison, before: Option<&State>) -> Gate {
    let RecoveryFold { value, at_least } = figures.recovery_fold;
    let gate = Gate::at_least("recovery_fold", "times", value, RECOVERY_FOLD_MIN).on_breach(Action::Hold);
    let unimpaired = before.is_some_and(|state| state.recovery_s.is_some_and(|s| s < WINDOW_S));
    match (value, gate.verdict) {
        (None, _) => gate.saying("one of the two was not seen to be over"),
        (_, Verdict::Fail) if unimpaired => {
            gate.doubt().saying("the policy before had nothing to recover from")
        }
        (_, Verdict::Fail) if at_least => {
            gate.doubt().saying("at least so much; the run was too short to tell")
        }
        (_, _) if at_least => gate.saying("at least so much"),
        _ => gate,
    }
}

/// Every mechanism that was run alone must have shown its effect.
fn mechanisms(report: &Report) -> Option<Gate> {
    let run = report.mechanisms.iter().filter(|one| one.verdict != Verdict::NotApplicable);
    let (count, shown) = run.fold((0_u32, 0_u32), |(count, shown), one| {
        (count + 1, shown + u32::from(one.verdict == Verdict::Pass))
    });
    let verdict = Verdict::of_all(report.mechanisms.iter().map(|one| one.verdict));
    let gate = Gate::at_least("mechanisms_shown", "mechanisms", Some(shown.into()), count.into());
    (count > 0).then(|| {
        Gate { verdict, action: Action::Hold, ..gate }
            .during("peak")
            .saying("how many show their effect when they are alone")
    })
}

/// How far the share of any class among the correct answers moved.
fn answer_mix_moved(before: &State, after: &State) -> Option<f64> {
    let answers = |state: &State| {
        let shares = state.classes.iter().map(|(name, class)| (*name, class.latency_ms.n as f64));
        shares.collect::<BTreeMap<_, _>>()
    };
    moved(&answers(before), &answers(after))
}

/// How far the share of any dependency among all calls moved.
fn calls_mix_moved(before: &State, after: &State) -> Option<f64> {
    let calls = |state: &State| {
        let calls = state.dependency_calls_per_operation.iter();
        calls.map(|(name, calls)| Some((name.clone(), (*calls)?))).collect::<Option<BTreeMap<_, _>>>()
    };
    moved(&calls(before)?, &calls(after)?)
}

fn moved<K: Ord>(before: &BTreeMap<K, f64>, after: &BTreeMap<K, f64>) -> Option<f64> {
    if before.is_empty() || !before.keys().eq(after.keys()) {
        return None;
    }
    let share = |part: &f64, of: &BTreeMap<K, f64>| ratio(*part, of.values().sum());
    let each = before.values().zip(after.values()).map(|(was, is)| {
        let (was, is) = (share(was, before)?, share(is, after)?);
        // What was not there before moved without measure, unless it is not there either.
        if was == 0.0 { Some(if is == 0.0 { 0.0 } else { 1.0 }) } else { Some((is - was).abs() / was) }
    });
    each.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
}
