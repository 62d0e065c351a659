//! Judge: capacity from the steps of the search, and the gates of an overload. Pure.

use crate::{
    gates::{Action, Gate, evidence, objective},
    report::{Report, State},
};

/// Name of the first run, which looks for the capacity.
pub(super) const SEARCH: &str = "search";
/// Names of the states of the second run; the overload gives the run its own.
pub(super) const CALM: &str = "calm";
pub(super) const OVERLOAD: &str = "overload";
pub(super) const AFTER: &str = "after";
/// How many times the capacity is offered.
pub(super) const TIMES: u32 = 3;

/// Least goodput under overload, over the capacity.
const KEPT_MIN: f64 = 0.90;
/// Longest way back to normal, in seconds.
const RECOVERY_MAX_S: f64 = 1.0;
/// Most that memory may grow by from the calm before to the overload and after it, in MiB. Ten thousand requests more than
/// can be served would show: one that waits holds some 20 KiB.
const GROWTH_MAX_MIB: f64 = 8.0;
/// The search went beyond the capacity when its last step answered less than this of what it was offered.
const SATURATED_MAX: f64 = 0.95;
/// Largest share of the answers that come after the objective under overload.
const LATE_ANSWERS_MAX: f64 = 0.02;
/// The objective's queue age and two ticks of a runtime's timer: under overload those who are turned away for their age are
/// more than one in a hundred.
const QUEUE_AGE_MAX_MS: f64 = objective::QUEUE_AGE_MS + 2.0;
/// Least goodput at half of the capacity.
const CALM_GOODPUT_MIN: f64 = 0.98;

/// How the bounds come about, for the report.
pub(super) const TOLERANCE: &str = "Capacity is the most that any step of the search answered correctly within the objective, \
    per second. Its offered rate is the capacity over the share of callers who stayed; three times that is the overload, and \
    half of it the calm before and after. Back to normal means the first of two consecutive seconds in which queue age, \
    occupancies, goodput and profile reads are inside the bounds of the ordinary peak, which is the first step of the search, \
    with three standard deviations of a second of its size for what is counted. \
    Memory is that of home-api: the most that was seen under overload and after it, less the most in the calm before.";

/// The name of a step of the search.
pub(super) fn step(percent: u32) -> String {
    format!("at {percent} %")
}

/// What a policy carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Capacity {
    /// Correct answers within the objective, per second.
    pub(super) answers_per_s: f64,
    /// The offered rate that would just be answered whole.
    pub(super) offered_per_s: f64,
}

impl Capacity {
    /// The best step; `None` when nothing was answered.
    pub(super) fn of(steps: &[State]) -> Option<Self> {
        let best = steps.iter().max_by(|one, other| answers_per_s(one).total_cmp(&answers_per_s(other)))?;
        let offered = best.arrivals.scheduled as f64;
        let stayed = offered - best.departed_before_objective as f64;
        let answers_per_s = answers_per_s(best);
        (answers_per_s > 0.0 && stayed > 0.0)
            .then(|| Self { answers_per_s, offered_per_s: answers_per_s * offered / stayed })
    }

    /// Its offered rate in percent of the declared one; `None` when that is beyond what can be offered three times.
    pub(super) fn percent(&self, declared_per_s: f64) -> Option<u32> {
        let percent = (100.0 * self.offered_per_s / declared_per_s).round();
        (percent >= 1.0 && percent * f64::from(TIMES) <= f64::from(load::RATE_PERCENT_MAX))
            .then_some(percent as u32)
    }
}

/// Correct answers within the objective, per second of model time.
pub(super) fn answers_per_s(state: &State) -> f64 {
    if state.duration_s > 0.0 { state.within_objective as f64 / state.duration_s } else { 0.0 }
}

/// All gates.
pub(super) fn judge(report: &Report, capacity: Option<Capacity>) -> Vec<Gate> {
    let mut gates = Vec::new();
    for policy in &report.policies {
        let own: Vec<&State> = report.states.iter().filter(|state| state.policy == policy.name).collect();
        gates.extend(evidence::of_policy(&own, policy, report));
    }
    let state = |name: &str| report.states.iter().find(|state| state.state == name);
    let (calm, overload, after) = (state(CALM), state(OVERLOAD), state(AFTER));
    let last_step = report.states.iter().rfind(|state| state.policy == SEARCH);
    let saturated = last_step.and_then(|state| state.core_goodput_ratio);
    gates.push(
        Gate::at_most("capacity_found", "ratio", saturated, SATURATED_MAX)
            .doubt()
            .saying("goodput of the last step of the search, which must be beyond the capacity"),
    );
    let offered = overload
        .zip(capacity)
        .map(|(state, capacity)| state.arrivals.scheduled as f64 / state.duration_s / capacity.offered_per_s);
    // Arrivals are random, and come in waves.
    gates.push(Gate::at_least("overload_offered", "times", offered, f64::from(TIMES) * 0.9).doubt());
    let kept = overload.zip(capacity).map(|(state, capacity)| answers_per_s(state) / capacity.answers_per_s);
    let grown = |state: Option<&State>| Some(state?.memory_peak_mib? - calm?.memory_peak_mib?);
    let growth = grown(overload).zip(grown(after)).map(|(during, after)| during.max(after));
    let recovery = {
        let took = after.and_then(|state| state.recovery_s);
        let at_least = after.and_then(|state| state.recovery_at_least_s);
        let gate = Gate::at_most("recovery", "s", took, RECOVERY_MAX_S);
        match (took, at_least) {
            (None, Some(at_least)) if at_least > RECOVERY_MAX_S => {
                Gate::at_most("recovery", "s", Some(at_least), RECOVERY_MAX_S).saying("at least so long")
            }
            _ => gate,
        }
    };
    let objective = [
        Gate::at_least("goodput", "ratio", calm.and_then(|calm| calm.core_goodput_ratio), CALM_GOODPUT_MIN)
            .during(CALM),
        Gate::at_least("capacity_kept", "ratio", kept, KEPT_MIN)
            .during(OVERLOAD)
            .saying("answers in time per second, over the capacity"),
        Gate::at_most(
            "late_answers",
            "ratio",
            overload.and_then(|state| state.beyond_objective_ratio),
            LATE_ANSWERS_MAX,
        )
        .during(OVERLOAD)
        .saying("answers after the objective; callers who are refused come again, and their time counts from the first try"),
        Gate::at_most("queue_age_p99", "ms", overload.and_then(|state| state.queue_age_ms.p99), QUEUE_AGE_MAX_MS)
            .during(OVERLOAD)
            .saying("who waits longer is turned away, to the tick of a timer"),
        Gate::at_most(
            "late_work",
            "ratio",
            overload.and_then(|state| state.late_work.ratio),
            objective::LATE_WORK,
        )
        .during(OVERLOAD),
        recovery.during(AFTER),
        Gate::at_most("memory_growth", "MiB", growth, GROWTH_MAX_MIB).during(OVERLOAD),
    ];
    let in_time = evidence::in_time(&gates);
    gates.extend(objective.into_iter().map(|gate| {
        let gate = Gate { kind: crate::gates::Kind::Objective, ..gate }.on_breach(Action::Hold);
        // A breach of a run that did not keep time may be the machine's.
        if in_time { gate } else { gate.doubt() }
    }));
    gates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gates, gates::example, report::PolicyRef, verdict::Verdict};

    /// A search that ends at 70 % of what it is offered, and an overload of the capacity that it finds.
    fn evidence() -> Report {
        let mut report = example::report();
        let peak = report.states[3].clone();
        let stays = |state: &State| state.arrivals.scheduled - state.departed_before_objective;
        let like = |policy: &str, name: &str, times: u64, answered: u64| {
            let mut state = peak.clone();
            (state.policy, state.state) = (policy.to_owned(), name.to_owned());
            for figure in [&mut state.arrivals.scheduled, &mut state.arrivals.completed] {
                *figure *= times;
            }
            state.departed_before_objective *= times;
            state.core_goodput_ratio = Some(answered as f64 / stays(&state) as f64);
            state.within_objective = answered;
            state.memory_peak_mib = Some(20.0);
            state
        };
        let most = stays(&peak);
        let mut after = like(OVERLOAD, AFTER, 1, most);
        after.recovery_s = Some(1.0);
        let states = vec![
            like(SEARCH, "at 100 %", 1, most),
            like(SEARCH, "at 200 %", 2, most),
            like(OVERLOAD, CALM, 1, most),
            like(OVERLOAD, OVERLOAD, 3, most * 95 / 100),
            after,
        ];
        let policy = report.policies.remove(1);
        let named = |name: &str| PolicyRef { name: name.to_owned(), ..policy.clone() };
        Report { states, policies: vec![named(SEARCH), named(OVERLOAD)], ..report }
    }

    fn gate(report: &Report, name: &str) -> Gate {
        let gates = judge(report, Capacity::of(&report.states[..2]));
        gates.into_iter().find(|gate| gate.name == name).expect("a gate of that name")
    }

    #[test]
    fn the_best_step_is_the_capacity_and_its_offer_counts_those_who_leave() {
        let report = evidence();
        let capacity = Capacity::of(&report.states[..2]).expect("answers");
        assert!((capacity.answers_per_s - 80.0).abs() < 1e-9, "{capacity:?}");
        assert!((capacity.offered_per_s - 100.0).abs() < 1e-9, "a fifth leave: {capacity:?}");
        assert_eq!(capacity.percent(80.0), Some(125));
        assert_eq!(capacity.percent(20.0), None, "three times 500 % cannot be offered");
        assert_eq!(Capacity::of(&[State::default()]), None);
        assert_eq!(Capacity::of(&[]), None);
    }

    #[test]
    fn each_promise_is_a_gate_of_its_own() {
        let sound = evidence();
        for name in [
            "capacity_kept",
            "recovery",
            "memory_growth",
            "queue_age_p99",
            "late_answers",
            "late_work",
            "goodput",
        ] {
            assert_eq!(gate(&sound, name).verdict, Verdict::Pass, "{name}");
        }
        let doctored = |name: &str, doctor: &dyn Fn(&mut Report)| {
            let mut report = evidence();
            doctor(&mut report);
            gate(&report, name).verdict
        };
        assert_eq!(doctored("capacity_kept", &|r| r.states[3].within_objective /= 2), Verdict::Fail);
        assert_eq!(doctored("recovery", &|r| r.states[4].recovery_s = Some(2.0)), Verdict::Fail);
        assert_eq!(
            doctored("recovery", &|r| {
                (r.states[4].recovery_s, r.states[4].recovery_at_least_s) = (None, Some(9.0));
            }),
            Verdict::Fail
        );
        assert_eq!(doctored("recovery", &|r| r.states[4].recovery_s = None), Verdict::Inconclusive);
        assert_eq!(doctored("memory_growth", &|r| r.states[4].memory_peak_mib = Some(40.0)), Verdict::Fail);
        assert_eq!(doctored("memory_growth", &|r| r.states[3].memory_peak_mib = None), Verdict::Inconclusive);
        assert_eq!(
            doctored("overload_offered", &|r| r.states[3].arrivals.scheduled /= 2),
            Verdict::Inconclusive
        );
        assert_eq!(
            doctored("capacity_found", &|r| r.states[1].core_goodput_ratio = Some(0.99)),
            Verdict::Inconclusive,
            "the capacity may be larger"
        );
    }

    #[test]
    fn without_a_second_run_nothing_is_promised_and_a_late_machine_breaches_nothing() {
        let mut report = evidence();
        report.states.truncate(2);
        report.policies.truncate(1);
        assert_eq!(gate(&report, "capacity_kept").verdict, Verdict::Inconclusive);
        let mut late = evidence();
        late.states[3].within_objective = 0;
        late.policies[1].generator.emulator_timer_ms.p99 = Some(9.0);
        assert_eq!(gate(&late, "capacity_kept").verdict, Verdict::Inconclusive);
        let gates = judge(&late, None);
        assert_ne!(gates::verdict(&gates), Verdict::Pass);
    }
}
