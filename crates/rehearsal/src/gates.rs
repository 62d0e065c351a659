//! Gates: the bounds of a rehearsal, each with what was observed against it.
//!
//! Until the repair exists, a run is judged by the gates of an honest run only: the arrivals balance, the generator and
//! the emulator kept time, there is a sample, and every answer was correct. The bounds of the objective are listed with
//! what was observed, and are not applicable.

use serde::Serialize;

use crate::{
    report::{Generator, State},
    verdict::Verdict,
};

/// One bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// Unit of `observed` and `bound`.
    pub unit: &'static str,
    /// What was observed; null when nothing was.
    pub observed: Option<f64>,
    /// The largest value that passes; for [`SAMPLES_MIN`] the smallest.
    pub bound: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// Largest 99th percentile of the emulator's own timer lateness.
pub const TIMER_LATENESS_P99_MAX_MS: f64 = 3.0;
/// Fewest correct answers of a state.
pub const SAMPLES_MIN: f64 = 1.0;

/// All gates of a run.
pub fn judge(states: &[State], generator: &Generator) -> Vec<Gate> {
    let mut gates = honest(states, generator);
    gates.extend(objective(states));
    gates
}

/// Whether the run can be relied on, and whether its answers were correct.
fn honest(states: &[State], generator: &Generator) -> Vec<Gate> {
    let none = states.is_empty();
    let worst = |value: fn(&State) -> f64| (!none).then(|| states.iter().map(value).fold(0.0, f64::max));
    let fewest = states.iter().map(|state| state.latency_ms.n as f64).reduce(f64::min);
    // An answer that was never given cannot be wrong: without a sample, zero mismatches say nothing.
    let answers: u64 = states.iter().map(|state| state.latency_ms.n + state.core_mismatch).sum();
    let mismatches = (answers > 0).then(|| states.iter().map(|state| state.core_mismatch as f64).sum());
    vec![
        at_most("arrivals_balance", "operations", worst(State::imbalance), 0.0),
        at_most("core_mismatch", "answers", mismatches, 0.0),
        doubt(at_most(
            "generator_valid",
            "ms",
            generator.clock_error_ms.p99,
            load::health::CLOCK_ERROR_P99_MAX.as_millis_f64(),
        )),
        doubt(at_most("generator_unsent", "ratio", generator.unsent_ratio, load::health::UNSENT_RATIO_MAX)),
        doubt(at_most("emulator_timer", "ms", generator.emulator_timer_ms.p99, TIMER_LATENESS_P99_MAX_MS)),
        Gate {
            name: "samples",
            unit: "answers",
            observed: fewest,
            bound: SAMPLES_MIN,
            verdict: if fewest.is_some_and(|n| n >= SAMPLES_MIN) {
                Verdict::Pass
            } else {
                Verdict::Inconclusive
            },
        },
    ]
}

/// A run that did not keep time shows nothing about the suite, good or bad.
fn doubt(gate: Gate) -> Gate {
    let verdict = if gate.verdict == Verdict::Fail { Verdict::Inconclusive } else { gate.verdict };
    Gate { verdict, ..gate }
}

/// The bounds of the objective. Peak is the normal state; a rehearsal without it observed nothing for them.
fn objective(states: &[State]) -> Vec<Gate> {
    let peak = states.iter().find(|state| state.state == "peak");
    let worst = |value: fn(&State) -> Option<f64>| states.iter().filter_map(value).reduce(f64::max);
    let gate =
        |name, unit, observed, bound| Gate { name, unit, observed, bound, verdict: Verdict::NotApplicable };
    vec![
        gate("p99", "ms", worst(|state| state.latency_ms.p99), 300.0),
        gate("queue_age_p99", "ms", worst(|state| state.queue_age_ms.p99), 12.0),
        gate("profile_occupancy", "ratio", worst(|state| state.occupancy_ratio.profile), 0.82),
        gate("late_work", "ratio", worst(|state| state.late_work.ratio), 0.02),
        gate("omission", "ratio", peak.and_then(|state| state.omission_ratio), 0.08),
        gate("recovery", "s", worst(|state| state.recovery_s), 360.0),
    ]
}

fn at_most(name: &'static str, unit: &'static str, observed: Option<f64>, bound: f64) -> Gate {
    Gate { name, unit, observed, bound, verdict: Verdict::at_most(observed, bound) }
}

/// The verdict of the run.
pub fn verdict(gates: &[Gate]) -> Verdict {
    Verdict::of_all(gates.iter().map(|gate| gate.verdict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Arrivals, Quantiles};

    fn state(name: &str) -> State {
        State {
            state: name.to_owned(),
            latency_ms: Quantiles { n: 100, p50: Some(80.0), p99: Some(250.0), p999: Some(280.0) },
            arrivals: Arrivals { scheduled: 110, completed: 105, unsent: 3, in_flight: 2 },
            omission_ratio: Some(0.01),
            ..State::default()
        }
    }

    fn generator() -> Generator {
        Generator {
            valid: true,
            clock_error_ms: Quantiles { n: 100, p99: Some(0.4), ..Quantiles::default() },
            unsent_ratio: Some(0.0),
            emulator_timer_ms: Quantiles { p99: Some(1.2), ..Quantiles::default() },
            ..Generator::default()
        }
    }

    fn verdict_of(states: &[State], generator: &Generator, gate: &str) -> (Verdict, Verdict) {
        let gates = judge(states, generator);
        let one = gates.iter().find(|found| found.name == gate).expect("listed").verdict;
        (one, verdict(&gates))
    }

    #[test]
    fn an_honest_run_passes_and_lists_the_objective_as_not_applicable() {
        let gates = judge(&[state("peak"), state("slowdown")], &generator());
        assert_eq!(verdict(&gates), Verdict::Pass);
        let p99 = gates.iter().find(|gate| gate.name == "p99").expect("listed");
        assert_eq!((p99.observed, p99.bound, p99.verdict), (Some(250.0), 300.0, Verdict::NotApplicable));
        let queue = gates.iter().find(|gate| gate.name == "queue_age_p99").expect("listed");
        assert_eq!(queue.observed, None);
    }

    #[test]
    fn a_lost_arrival_fails() {
        let mut lost = state("peak");
        lost.arrivals.completed -= 1;
        assert_eq!(verdict_of(&[lost], &generator(), "arrivals_balance"), (Verdict::Fail, Verdict::Fail));
    }

    #[test]
    fn a_wrong_answer_fails_even_in_an_invalid_run() {
        let wrong = State { core_mismatch: 1, ..state("peak") };
        let mut late = generator();
        late.clock_error_ms.p99 = Some(9.0);
        assert_eq!(verdict_of(&[wrong], &late, "core_mismatch"), (Verdict::Fail, Verdict::Fail));
    }

    #[test]
    fn a_generator_or_an_emulator_that_did_not_keep_time_makes_the_run_inconclusive() {
        let open = (Verdict::Inconclusive, Verdict::Inconclusive);
        for value in [Some(3.1), None, Some(f64::NAN)] {
            let mut late = generator();
            late.clock_error_ms.p99 = value;
            assert_eq!(verdict_of(&[state("peak")], &late, "generator_valid"), open, "{value:?}");
            let mut late = generator();
            late.emulator_timer_ms.p99 = value;
            assert_eq!(verdict_of(&[state("peak")], &late, "emulator_timer"), open, "{value:?}");
        }
        let dropping = Generator { unsent_ratio: Some(0.002), ..generator() };
        assert_eq!(verdict_of(&[state("peak")], &dropping, "generator_unsent"), open);
    }

    #[test]
    fn no_sample_never_passes() {
        let open = (Verdict::Inconclusive, Verdict::Inconclusive);
        let mut empty = state("slowdown");
        empty.latency_ms = Quantiles::default();
        assert_eq!(verdict_of(&[state("peak"), empty.clone()], &generator(), "samples"), open);
        assert_eq!(verdict_of(&[empty], &generator(), "core_mismatch"), open);
        assert_eq!(verdict(&judge(&[], &generator())), Verdict::Inconclusive);
    }
}
