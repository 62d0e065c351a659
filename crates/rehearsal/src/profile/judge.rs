//! Judge: the conditions of a profile against what was observed. Pure.

use model::load_profile::{Bound, Condition, Figure, Profile};

use super::{observed::Observed, watch::Breach};
use crate::gates::{Action, Gate, Kind, evidence};

/// Conditions that no machine can be blamed for: a breach stands, however late the generator was.
const STANDS: [Figure; 12] = [
    Figure::Mismatch,
    Figure::Conflicts,
    Figure::Panics,
    Figure::BodiesRight,
    Figure::StopAccepted,
    Figure::StopLost,
    Figure::SpansCollected,
    Figure::StopCode,
    Figure::ReloadMixed,
    Figure::ReloadRefused,
    Figure::PermitsHeld,
    Figure::FlightsOpen,
];

/// Whether the generator and the emulator kept time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// 99th percentile of the generator's clock error.
    pub(super) clock_error_ms: Option<f64>,
    /// Share of the measured schedule that was not sent.
    pub(super) unsent_ratio: Option<f64>,
    /// 99th percentile of the lateness of the emulator's timers.
    pub(super) emulator_timer_ms: Option<f64>,
    /// Whether every phase balances: scheduled = completed + unsent + in flight.
    pub(super) balanced: bool,
}

/// All gates: whether the run can be relied on, then what had to be true, then what would have ended it.
pub(super) fn judge(
    profile: &Profile,
    observed: &Observed,
    breach: Option<&Breach>,
    kept: Kept,
) -> Vec<Gate> {
    let clock_max_ms = load::health::CLOCK_ERROR_P99_MAX.as_millis_f64();
    let mut gates = vec![
        Gate::at_most("generator_clock_error", "ms", kept.clock_error_ms, clock_max_ms).doubt(),
        Gate::at_most("generator_unsent", "ratio", kept.unsent_ratio, load::health::UNSENT_RATIO_MAX).doubt(),
        Gate::at_most("emulator_timer", "ms", kept.emulator_timer_ms, evidence::TIMER_LATENESS_P99_MAX_MS)
            .doubt(),
        Gate::at_least("arrivals_balance", "ratio", Some(f64::from(u8::from(kept.balanced))), 1.0),
    ];
    let in_time = gates.iter().all(|gate| gate.verdict == crate::Verdict::Pass);
    for condition in &profile.accept {
        let gate = gate(profile, condition, observed.get(condition.figure, condition.phase));
        let gate = Gate { kind: Kind::Acceptance, action: Action::Hold, ..gate };
        let cut_off = breach.is_some().then_some("the run was ended before it was over");
        let gate = if in_time || STANDS.contains(&condition.figure) { gate } else { gate.doubt() };
        gates.push(match cut_off {
            Some(why) => Gate { verdict: gate.verdict.doubt(), ..gate }.saying(why),
            None => gate,
        });
    }
    for condition in &profile.stop {
        let worst = observed.get(condition.figure, condition.phase);
        let gate = gate(profile, condition, worst);
        let gate = Gate { kind: Kind::Stop, action: Action::Block, ..gate };
        gates.push(match breach.filter(|breach| breach.condition == *condition) {
            Some(breach) => gate.saying(format!("ended the run after {:.1} s", breach.at.as_secs_f64())),
            None => gate,
        });
    }
    gates
}

fn gate(profile: &Profile, condition: &Condition, observed: Option<f64>) -> Gate {
    let (name, unit) = (condition.figure.name(), condition.figure.unit());
    let gate = match condition.bound {
        Bound::AtMost(bound) => Gate::at_most(name, unit, observed, bound),
        Bound::AtLeast(bound) => Gate::at_least(name, unit, observed, bound),
    };
    match condition.phase.and_then(|phase| profile.phases.get(phase)) {
        Some(phase) => gate.during(&phase.name),
        None => gate,
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;
    use crate::{gates, verdict::Verdict};

    const KEPT: Kept = Kept {
        clock_error_ms: Some(0.4),
        unsent_ratio: Some(0.0),
        emulator_timer_ms: Some(1.0),
        balanced: true,
    };

    /// Every figure exactly at its bound.
    fn at_bounds(profile: &Profile) -> Observed {
        let mut observed = Observed::default();
        // Acceptance last: its bounds are the narrower ones.
        for condition in profile.stop.iter().chain(&profile.accept) {
            let (Bound::AtMost(bound) | Bound::AtLeast(bound)) = condition.bound;
            match condition.phase {
                Some(phase) => observed.put_in(phase, condition.figure, bound),
                None => observed.put(condition.figure, bound),
            }
        }
        observed
    }

    fn verdict_of(profile: &Profile, observed: &Observed, kept: Kept) -> Verdict {
        gates::verdict(&judge(profile, observed, None, kept))
    }

    #[test]
    fn every_shipped_profile_passes_at_its_bounds_and_fails_one_beyond_each() {
        for name in Profile::names() {
            let profile = Profile::shipped(name).expect("shipped");
            // A figure with a lower and an upper bound cannot be at both.
            let twice = |one: &Condition| {
                profile.accept.iter().filter(|o| (o.figure, o.phase) == (one.figure, one.phase)).count() > 1
            };
            let sound = at_bounds(&profile);
            let fails: Vec<_> = judge(&profile, &sound, None, KEPT)
                .into_iter()
                .filter(|g| g.verdict != Verdict::Pass)
                .collect();
            assert!(
                fails.iter().all(|g| profile.accept.iter().any(|c| c.figure.name() == g.name && twice(c))),
                "{fails:?}"
            );
            for condition in profile.accept.iter().filter(|condition| !twice(condition)) {
                let beyond = match condition.bound {
                    Bound::AtMost(bound) => bound + 0.5,
                    Bound::AtLeast(bound) => bound - 0.5,
                };
                let mut broken = sound.clone();
                match condition.phase {
                    Some(phase) => broken.put_in(phase, condition.figure, beyond),
                    None => broken.put(condition.figure, beyond),
                }
                assert_eq!(verdict_of(&profile, &broken, KEPT), Verdict::Fail, "{name}: {condition:?}");
                let mut late = KEPT;
                late.clock_error_ms = Some(9.0);
                let expected =
                    if STANDS.contains(&condition.figure) { Verdict::Fail } else { Verdict::Inconclusive };
                let stopped = profile.stop.iter().any(|stop| {
                    stop.figure == condition.figure
                        && matches!(stop.bound, Bound::AtMost(most) if beyond > most)
                });
                if !stopped && fails.is_empty() {
                    assert_eq!(verdict_of(&profile, &broken, late), expected, "{name}: {condition:?}");
                }
            }
        }
    }

    #[test]
    fn what_was_not_measured_never_passes() {
        let profile = Profile::shipped("steady").expect("shipped");
        assert_eq!(verdict_of(&profile, &Observed::default(), KEPT), Verdict::Inconclusive);
        assert_eq!(verdict_of(&profile, &at_bounds(&profile), KEPT), Verdict::Pass);
        assert_ne!(verdict_of(&profile, &at_bounds(&profile), Kept::default()), Verdict::Pass);
    }

    #[test]
    fn a_breach_of_a_stop_condition_fails_and_is_named_and_nothing_else_is_blamed() {
        let profile = Profile::shipped("steady").expect("shipped");
        let condition = profile.stop[0];
        let breach = Breach { condition, observed: 70.0, at: Nanos::from_millis(2_500) };
        let mut observed = Observed::default();
        observed.put(Figure::MemoryGrowth, 70.0);
        let gates = judge(&profile, &observed, Some(&breach), KEPT);
        assert_eq!(gates::verdict(&gates), Verdict::Fail);
        let failed: Vec<_> = gates.iter().filter(|gate| gate.verdict == Verdict::Fail).collect();
        assert_eq!(failed.len(), 1, "{failed:#?}");
        assert_eq!((failed[0].name, failed[0].kind), ("memory_growth_mib", Kind::Stop));
        assert!(failed[0].detail.contains("2.5 s"), "{}", failed[0].detail);
    }
}
