//! Objective: what the policy after must keep. Peak is the normal state; a rehearsal without it observed nothing for it.

use super::{Action, Gate, Kind, states, worst};
use crate::{
    report::{Report, State},
    verdict::Verdict,
};

/// The latency objective at the 99th percentile.
pub const P99_MS: f64 = 300.0;
/// The age of the queue at the 99th percentile.
pub const QUEUE_AGE_MS: f64 = 12.0;
/// Occupancy of the profile pool.
pub const PROFILE_OCCUPANCY: f64 = 0.82;
/// Late operations over operations.
pub const LATE_WORK: f64 = 0.02;
/// Omission at peak.
pub const OMISSION: f64 = 0.08;
/// Core goodput at peak.
pub const GOODPUT: f64 = 0.98;
/// Recovery after a slowdown of the declared length.
pub const RECOVERY_S: f64 = 360.0;
/// The declared length of a state.
pub const STATE_S: f64 = 900.0;
/// How many standard deviations chance is allowed.
const SIGMAS: f64 = 3.0;
/// Nothing shorter can be told apart: recovery is seen in windows of a second, two in a row.
const RECOVERY_MIN_S: f64 = 2.0;

/// The gates of one policy. Where the objective does not apply, its bounds are listed with what was observed.
pub(super) fn judge(report: &Report, policy: &str, applies: bool) -> Vec<Gate> {
    let own = states(report, policy);
    let state = |name: &str| own.clone().find(|state| state.state == name);
    let (peak, slowdown, recovery) = (state("peak"), state("slowdown"), state("recovery"));
    let impaired = || own.clone().filter(|state| state.state != "recovery");
    let p99 = |name: &'static str, state: Option<&State>| {
        let observed = state.and_then(|state| state.latency_ms.p99);
        Gate::at_most("p99", "ms", observed, P99_MS).on_breach(Action::Hold).during(name)
    };
    let most = |name, unit, bound, figure: fn(&State) -> Option<f64>| {
        let worst = worst(impaired(), figure);
        let gate = Gate::at_most(name, unit, worst.map(|(value, _)| value), bound).on_breach(Action::Hold);
        match worst {
            Some((_, state)) => gate.saying(format!("the worst of peak and slowdown: {state}")),
            None => gate,
        }
    };
    let at_peak = |figure: fn(&State) -> Option<f64>| peak.and_then(figure);
    let gates = vec![
        p99("peak", peak),
        p99("slowdown", slowdown),
        most("queue_age_p99", "ms", QUEUE_AGE_MS, |state| state.queue_age_ms.p99),
        most("profile_occupancy", "ratio", PROFILE_OCCUPANCY, |state| state.occupancy_ratio.profile),
        most("late_work", "ratio", LATE_WORK, |state| state.late_work.ratio),
        Gate::at_most("omission", "ratio", at_peak(|state| state.omission_ratio), OMISSION)
            .on_breach(Action::ProductDecision)
            .during("peak"),
        goodput(report, peak),
        self::recovery(recovery, slowdown),
    ];
    let judged = gates.into_iter().map(|gate| {
        let verdict = if applies { gate.verdict } else { Verdict::NotApplicable };
        Gate { verdict, ..gate }.kind(Kind::Objective).of(policy)
    });
    judged.collect()
}

/// Goodput at peak. A run of a smaller system is a smaller sample, and is allowed what chance takes away.
fn goodput(report: &Report, peak: Option<&State>) -> Gate {
    let observed = peak.and_then(|state| state.core_goodput_ratio);
    let chance = goodput_tolerance(report, peak);
    let gate =
        Gate::at_least("goodput", "ratio", observed, GOODPUT - chance).on_breach(Action::Hold).during("peak");
    if chance > 0.0 {
        gate.saying(format!("{GOODPUT} less {SIGMAS} standard deviations of a sample of this size"))
    } else {
        gate
    }
}

/// What chance takes away from [`GOODPUT`] in a sample of the size of this peak; nothing at full size.
pub fn goodput_tolerance(report: &Report, peak: Option<&State>) -> f64 {
    let full_size = report.scale.as_deref() == Some("1");
    let offered =
        peak.map_or(0, |state| state.arrivals.scheduled.saturating_sub(state.departed_before_objective));
    if full_size || offered == 0 {
        return 0.0;
    }
    SIGMAS * (GOODPUT * (1.0 - GOODPUT) / offered as f64).sqrt()
}

/// The bound of recovery: six minutes after a slowdown of the declared fifteen, and in proportion after a shorter one,
/// which leaves so much less behind.
pub fn recovery_bound_s(slowdown: Option<&State>) -> f64 {
    let share = slowdown.map_or(1.0, |slowdown| (slowdown.duration_s / STATE_S).min(1.0));
    (RECOVERY_S * share).max(RECOVERY_MIN_S)
}

fn recovery(recovery: Option<&State>, slowdown: Option<&State>) -> Gate {
    let bound = recovery_bound_s(slowdown);
    let took = recovery.and_then(|state| state.recovery_s);
    let at_least = recovery.and_then(|state| state.recovery_at_least_s);
    let gate = Gate::at_most("recovery", "s", took, bound).on_breach(Action::Hold).during("recovery");
    match (took, at_least) {
        // It was not over when the bound had passed, so it is beyond it, however long it took.
        (None, Some(at_least)) if at_least > bound => {
            Gate { observed: Some(at_least), verdict: Verdict::Fail, ..gate }.saying("at least so long")
        }
        (None, Some(at_least)) => {
            gate.saying(format!("at least {at_least} s, and it was not seen to be over"))
        }
        (None, None) => gate.saying("a signal that it is read from was not measured"),
        (Some(_), _) => gate,
    }
}
