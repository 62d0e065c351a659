//! Judge: what a step showed against its bounds and against the step before. Pure: evidence goes in, gates come out.
//!
//! The bound of a gate includes its tolerance, so what was observed is compared with one number; the detail takes it apart.
//! A figure that was not measured never passes. When the generator or the emulator did not keep time, no figure says
//! anything about the suite: breaches become inconclusive, but for those of correctness.

use model::rollout::{Against, Bound, Bounds, Figure, STATES, Tolerance};

use crate::{
    gates::{Action, Gate, Kind, evidence},
    report::{Bucket, PolicyRef, Report, State},
    verdict::Verdict,
};

/// The bound of the gate on permits is the rollout's own.
const PERMITS_HELD: &str = "permits_held";
/// Gates of soundness that a machine which is behind fails as well.
const BEHIND: [&str; 2] = [PERMITS_HELD, "memory"];
/// The quantile of [`Figure::P99`].
const P99: f64 = 0.99;

/// What the run of one policy showed.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The states that it was taken through, in order.
    pub states: Vec<State>,
    /// The policy, and what its run left behind.
    pub policy: PolicyRef,
}

impl Evidence {
    /// One state.
    pub fn state(&self, name: &str) -> Option<&State> {
        self.states.iter().find(|state| state.state == name)
    }
}

/// What is needed to judge, and the same for all steps.
#[derive(Clone, Debug)]
pub struct Measure {
    /// How far chance alone may carry a figure.
    pub tolerance: Tolerance,
    /// Slow motion: what the machine adds weighs so much less in model time.
    pub dilate: u32,
    /// The report that the evidence is for, as far as it is the same for all steps.
    pub frame: Report,
}

impl Measure {
    /// Whether a run can be relied on, and whether its answers and effects were correct.
    pub fn soundness(&self, now: &Evidence, permits_held_max: u32) -> Vec<Gate> {
        let states: Vec<&State> = now.states.iter().collect();
        let mut gates = evidence::of_policy(&states, &now.policy, &self.frame);
        for gate in gates.iter_mut().filter(|gate| gate.name == PERMITS_HELD) {
            *gate = Gate::at_most(PERMITS_HELD, gate.unit, gate.observed, permits_held_max.into())
                .of(&now.policy.name);
        }
        // Work that is stopped half-way may be made again, and must then be the same.
        let conflicts = now.policy.after_run.effects_conflicting;
        gates.push(Gate::at_most("effects_conflicting", "effects", conflicts, 0.0).of(&now.policy.name));
        if !evidence::in_time(&gates) {
            // A machine that is behind still holds what a sound one has given back.
            let behind = |gate: &Gate| BEHIND.contains(&gate.name);
            gates = gates.into_iter().map(|gate| if behind(&gate) { gate.doubt() } else { gate }).collect();
        }
        gates
    }

    /// Everything that a step is judged by.
    pub fn step(&self, bounds: &Bounds, before: &Evidence, now: &Evidence) -> Vec<Gate> {
        let mut gates = self.soundness(now, bounds.permits_held_max);
        let in_time = evidence::in_time(&gates);
        for (name, bounds) in STATES.into_iter().zip(&bounds.states) {
            let pair = Pair { before: before.state(name), now: now.state(name) };
            gates.extend(bounds.iter().map(|bound| self.check(bound, &pair)).map(|gate| {
                let gate = gate.during(name).of(&now.policy.name);
                if in_time { gate } else { gate.doubt() }
            }));
        }
        gates
    }

    /// Whether the policy that was put back does what it did before: of the bounds of the step that was reversed, those
    /// that compare, at peak.
    pub fn restored(&self, bounds: &Bounds, before: &Evidence, now: &Evidence) -> Vec<Gate> {
        let compares =
            |bound: &&Bound| matches!(bound.against, Against::RisePercent(_) | Against::DropPoints(_));
        let peak: Vec<Bound> = bounds.states[0].iter().filter(compares).copied().collect();
        let bounds =
            Bounds { states: [peak, Vec::new(), Vec::new()], permits_held_max: bounds.permits_held_max };
        self.step(&bounds, before, now)
    }

    fn check(&self, bound: &Bound, pair: &Pair<'_>) -> Gate {
        let Bound { key, figure, against } = *bound;
        let (observed, unit) = (pair.observed(figure), unit(figure));
        let gate = match against {
            Against::AtMost(most) => {
                let slack = self.slack(figure, most, pair);
                Gate::at_most(key, unit, observed, most + slack).saying(taken_apart(most, slack, unit))
            }
            Against::AtLeast(least) => {
                let slack = self.slack(figure, least, pair);
                Gate::at_least(key, unit, observed, least - slack).saying(taken_apart(least, -slack, unit))
            }
            Against::RisePercent(percent) => match pair.before(figure) {
                None => unknown_before(key, unit),
                Some(before) => {
                    let most = before * (1.0 + percent / 100.0);
                    let slack = self.slack(figure, most, pair);
                    Gate::at_most(key, unit, observed, most + slack).saying(format!(
                        "{} before and {percent} % more: {}",
                        number(before),
                        taken_apart(most, slack, unit)
                    ))
                }
            },
            Against::DropPoints(points) => match pair.before(figure) {
                None => unknown_before(key, unit),
                Some(before) => {
                    let least = before - points / 100.0;
                    // Both runs are samples.
                    let slack = self.slack(figure, least, pair) * std::f64::consts::SQRT_2;
                    Gate::at_least(key, unit, observed, least - slack).saying(format!(
                        "{} before and {points} points less: {}",
                        number(before),
                        taken_apart(least, -slack, unit)
                    ))
                }
            },
        };
        let gate = match (figure, pair.now.and_then(|state| state.recovery_at_least_s)) {
            // It was not over when the bound had passed, so it is beyond it, however long it took.
            (Figure::Recovery, Some(at_least)) if observed.is_none() && at_least > gate.bound => {
                Gate { observed: Some(at_least), verdict: Verdict::Fail, ..gate }.saying("at least so long")
            }
            _ => gate,
        };
        let kind = match against {
            Against::AtMost(_) | Against::AtLeast(_) => Kind::Objective,
            Against::RisePercent(_) | Against::DropPoints(_) => Kind::Comparison,
        };
        let action = if figure == Figure::Omission { Action::ProductDecision } else { Action::Hold };
        Gate { kind, ..gate }.on_breach(action)
    }

    /// How far beyond `bound` chance may carry a figure, in its unit.
    fn slack(&self, figure: Figure, bound: f64, pair: &Pair<'_>) -> f64 {
        let Tolerance { sigmas, latency_ms, queue_age_ms, stop_delay_ms, .. } = self.tolerance;
        let Tolerance { occupancy_points, profile_calls, recovery_s, .. } = self.tolerance;
        let machine = |millis: f64| millis / f64::from(self.dilate.max(1));
        let Some(state) = pair.now else { return 0.0 };
        let counted = |population: u64| sigmas * deviation(bound, population);
        match figure {
            Figure::P50 => sampling(state, 0.5, sigmas) + machine(latency_ms),
            Figure::P99 => sampling(state, P99, sigmas) + machine(latency_ms),
            Figure::Goodput => {
                counted(state.arrivals.scheduled.saturating_sub(state.departed_before_objective))
            }
            Figure::Omission => counted(state.correct()),
            Figure::Rejection | Figure::LateWork | Figure::IntendedStops => counted(state.arrivals.scheduled),
            Figure::QueueAgeP99 => machine(queue_age_ms),
            Figure::StopDelayP99 => stop_delay_ms,
            Figure::EndpointOccupancy | Figure::ProfileOccupancy => occupancy_points / 100.0,
            Figure::ProfileCalls => profile_calls,
            Figure::Recovery => recovery_s,
        }
    }
}

/// One state before and now.
struct Pair<'e> {
    before: Option<&'e State>,
    now: Option<&'e State>,
}

impl Pair<'_> {
    fn observed(&self, figure: Figure) -> Option<f64> {
        self.now.and_then(|state| value(figure, state))
    }

    fn before(&self, figure: Figure) -> Option<f64> {
        self.before.and_then(|state| value(figure, state)).filter(|value| value.is_finite())
    }
}

/// A figure of a state.
fn value(figure: Figure, state: &State) -> Option<f64> {
    match figure {
        Figure::P50 => state.latency_ms.p50,
        Figure::P99 => state.latency_ms.p99,
        Figure::Goodput => state.core_goodput_ratio,
        Figure::Omission => state.omission_ratio,
        Figure::Rejection => state.rejection_ratio,
        Figure::QueueAgeP99 => state.queue_age_ms.p99,
        Figure::LateWork => state.late_work.ratio,
        Figure::StopDelayP99 => state.cancel_stop_ms.p99,
        Figure::EndpointOccupancy => state.occupancy_ratio.endpoint,
        Figure::ProfileOccupancy => state.occupancy_ratio.profile,
        Figure::ProfileCalls => state.profile_calls_per_operation,
        Figure::Recovery => state.recovery_s,
        Figure::IntendedStops => state.intended_stop_ratio,
    }
}

const fn unit(figure: Figure) -> &'static str {
    match figure {
        Figure::P50 | Figure::P99 | Figure::QueueAgeP99 | Figure::StopDelayP99 => "ms",
        Figure::ProfileCalls => "calls",
        Figure::Recovery => "s",
        Figure::Goodput
        | Figure::Omission
        | Figure::Rejection
        | Figure::LateWork
        | Figure::EndpointOccupancy
        | Figure::ProfileOccupancy
        | Figure::IntendedStops => "ratio",
    }
}

/// What the step before did not show cannot be compared with.
fn unknown_before(key: &'static str, unit: &'static str) -> Gate {
    Gate::at_most(key, unit, None, 0.0).saying("the step before does not have this figure")
}

/// Standard deviation of a share of `ratio` in a sample of `population`. Of a bound at 0 or 1 it is that of a single case.
fn deviation(ratio: f64, population: u64) -> f64 {
    if population == 0 {
        return 0.0;
    }
    let n = population as f64;
    let ratio = ratio.clamp(1.0 / n, (1.0 - 1.0 / n).max(1.0 / n));
    (ratio * (1.0 - ratio) / n).max(0.0).sqrt()
}

/// How far the `q` quantile of a sample of the state's size may lie above the true one: from the quantile to the one so
/// many deviations of its rank below.
fn sampling(state: &State, q: f64, sigmas: f64) -> f64 {
    let n: u64 = state.histogram.iter().map(|bucket| bucket.count).sum();
    let low = q - sigmas * deviation(q, n);
    match (quantile(&state.histogram, q), quantile(&state.histogram, low)) {
        (Some(at), Some(low)) => (at - low).max(0.0),
        _ => 0.0,
    }
}

/// The `q` quantile of a histogram, evenly spread within its bucket.
fn quantile(histogram: &[Bucket], q: f64) -> Option<f64> {
    let total: u64 = histogram.iter().map(|bucket| bucket.count).sum();
    let rank = q.clamp(0.0, 1.0) * total as f64;
    let (mut below, mut lower) = (0_u64, 0.0);
    for bucket in histogram {
        if bucket.count > 0 && (below + bucket.count) as f64 >= rank {
            let within = (rank - below as f64) / bucket.count as f64;
            return Some(lower + within * (bucket.le_ms - lower));
        }
        below += bucket.count;
        lower = bucket.le_ms;
    }
    None
}

/// A bound and its tolerance.
fn taken_apart(bound: f64, slack: f64, unit: &str) -> String {
    let sign = if slack < 0.0 { "less" } else { "and" };
    format!("{} {unit} {sign} {} for chance", number(bound), number(slack.abs()))
}

/// A figure with as many places as it needs.
pub(crate) fn number(value: f64) -> String {
    let places = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 4,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.to_owned()
}

#[cfg(test)]
mod tests;
