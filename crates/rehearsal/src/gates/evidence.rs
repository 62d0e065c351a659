//! Evidence: whether a run can be relied on, and whether its story is the whole one. Every ratio and quantile that can be
//! made again from counts and buckets is made again here.

use super::{Gate, Role, Rule, states};
use crate::{
    report::{Bucket, Generator, PolicyRef, Report, State},
    verdict::Verdict,
};

/// Largest 99th percentile of the emulator's own timer lateness.
pub const TIMER_LATENESS_P99_MAX_MS: f64 = 3.0;
/// Fewest correct answers of a state: with fewer there is no 99th percentile.
pub const SAMPLES_MIN: f64 = 100.0;
/// How much of the declared schedule must have been offered; a generator that waits for answers falls short.
pub const OFFERED_MIN: f64 = 0.999;
/// A class mix that moved by so much is another workload.
pub const MIX_MOVED_MAX: f64 = 0.15;
/// Most resident memory of home-api. The old policy waits without bound, and this ends such a run before it harms the
/// machine.
pub const MEMORY_MAX_MIB: f64 = 512.0;
/// The quantiles of a state.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
/// A recorded value is exact to 0.1 %, and so are the ends of its bucket.
const QUANTILE_SLACK: f64 = 0.002;
/// Rounding of a ratio of two counts.
const RATIO_SLACK: f64 = 1e-9;

/// The gates of all policies.
pub(super) fn judge(report: &Report) -> Vec<Gate> {
    let all = report.policies.iter().flat_map(|policy| {
        let own: Vec<&State> = states(report, &policy.name).collect();
        of_policy(&own, policy, report)
    });
    all.collect()
}

/// The gates of the states that one policy went through.
pub fn of_policy(states: &[&State], policy: &PolicyRef, report: &Report) -> Vec<Gate> {
    let mut gates = whole_story(states, policy.role, report);
    gates.extend(kept_time(&policy.generator));
    gates.push(memory(states, policy));
    let after = &policy.after_run;
    let held = after.permits_held.zip(after.flights_open).map(|(permits, flights)| permits + flights);
    let held = Gate::at_most("permits_held", "permits", held, 0.0).saying("when the run was over");
    // The policy before works on for callers that left, and may do so for longer than it is waited for: that is what is
    // wrong with it, and no doubt about the run.
    let works_on = policy.role == Role::Before && held.verdict == Verdict::Fail;
    gates.push(if works_on { Gate { verdict: Verdict::NotApplicable, ..held } } else { held });
    gates.into_iter().map(|gate| gate.of(&policy.name)).collect()
}

fn whole_story(states: &[&State], role: Role, report: &Report) -> Vec<Gate> {
    let none = states.is_empty();
    let counted = |name, unit, count: &dyn Fn(&State) -> f64| {
        let sum = (!none).then(|| states.iter().map(|state| count(state)).sum());
        Gate::at_most(name, unit, sum, 0.0)
    };
    // An answer that was never given cannot be wrong: without a sample, zero mismatches say nothing.
    let answers: u64 = states.iter().map(|state| state.latency_ms.n + state.core_mismatch).sum();
    let mismatches = (answers > 0).then(|| states.iter().map(|state| state.core_mismatch as f64).sum());
    // The policy before is compared at peak. That it answers nobody in a slowdown is a finding, and no lack of evidence.
    let needed = states.iter().filter(|state| role == Role::After || state.state == "peak");
    let fewest = needed.map(|state| state.latency_ms.n as f64).reduce(f64::min);
    let offered = least(states, |state| {
        let declared = state.arrivals.declared.filter(|declared| *declared > 0)?;
        Some(state.arrivals.scheduled as f64 / declared as f64)
    });
    let moved = least(states, |state| Some(-class_mix_moved(state)?)).map(|moved| -moved);
    let disorder = f64::from(u8::from(!in_order(states)));
    let whole_timeline = report.runs <= 1;
    let leaked = |state: &State| f64::from(u8::from(!none)) * leaked(state, whole_timeline);
    let leaks = (!none).then(|| disorder + states.iter().map(|state| leaked(state)).sum::<f64>());
    let foreign = f64::from(u8::from(report.histogram != load::HISTOGRAM_SCHEME));
    let unmerged = (answers > 0)
        .then(|| foreign + states.iter().map(|state| quantiles_out_of_place(state) as f64).sum::<f64>());
    vec![
        counted("arrivals_balance", "operations", &State::imbalance),
        Gate::at_most("core_mismatch", "answers", mismatches, 0.0),
        counted("population", "answers", &|state| answers_missing(state) as f64)
            .saying("answers that are in the outcomes and not in the latencies, or the other way round"),
        counted("recomputed", "ratios", &|state| ratios_that_do_not_follow(state) as f64)
            .saying("ratios that do not follow from their counts"),
        Gate::at_most("merged_quantiles", "quantiles", unmerged, 0.0)
            .saying("quantiles that do not lie in the bucket of their rank"),
        Gate::at_most("warm_up", "operations", leaks, 0.0)
            .saying("operations that do not belong to the time of their state"),
        Gate::at_least("open_loop", "ratio", offered, OFFERED_MIN)
            .doubt()
            .saying("offered over what the workload declares for the same time"),
        Gate::below("class_mix", "ratio", moved, MIX_MOVED_MAX)
            .doubt()
            .saying("how far the share of a class is from the declared one"),
        Gate::at_least("samples", "answers", fewest, SAMPLES_MIN).doubt(),
    ]
}

/// The names of the gates of [`kept_time`].
pub(super) const KEPT_TIME: [&str; 3] = ["generator_valid", "generator_unsent", "emulator_timer"];

/// A run that did not keep time shows nothing about the suite, good or bad.
fn kept_time(generator: &Generator) -> Vec<Gate> {
    let clock_error_max = load::health::CLOCK_ERROR_P99_MAX.as_millis_f64();
    let unsent_max = load::health::UNSENT_RATIO_MAX;
    let timers = generator.emulator_timer_ms.p99;
    vec![
        Gate::at_most("generator_valid", "ms", generator.clock_error_ms.p99, clock_error_max).doubt(),
        Gate::at_most("generator_unsent", "ratio", generator.unsent_ratio, unsent_max).doubt(),
        Gate::at_most("emulator_timer", "ms", timers, TIMER_LATENESS_P99_MAX_MS).doubt(),
    ]
}

/// Whether generator and emulator kept time; otherwise the same run may show something else when it is made again.
pub fn in_time(gates: &[Gate]) -> bool {
    gates.iter().all(|gate| !KEPT_TIME.contains(&gate.name) || gate.verdict == Verdict::Pass)
}

/// Whatever outgrew its bound, the run was ended there and the rest of it was not seen.
fn memory(states: &[&State], policy: &PolicyRef) -> Gate {
    let most = least(states, |state| Some(-state.memory_peak_mib?)).map(|most| -most);
    let gate = Gate::at_most("memory", "MiB", most, MEMORY_MAX_MIB);
    match &policy.after_run.stopped {
        Some(why) => Gate { verdict: Verdict::Fail, ..gate }.saying(why.clone()),
        None => gate,
    }
}

/// The least figure; `None` when any is unknown.
fn least(states: &[&State], figure: impl Fn(&State) -> Option<f64>) -> Option<f64> {
    let figures: Option<Vec<f64>> = states.iter().map(|state| figure(state)).collect();
    figures?.into_iter().reduce(f64::min)
}

/// How many answers the population of the latencies lacks, or has too many of: it is all correct answers, degraded ones
/// included, by class, by bucket and in all.
fn answers_missing(state: &State) -> u64 {
    let buckets: u64 = state.histogram.iter().map(|bucket| bucket.count).sum();
    let classes: u64 = state.classes.values().map(|class| class.latency_ms.n).sum();
    let outcomes: u64 = state.outcomes.values().sum();
    let n = state.latency_ms.n;
    n.abs_diff(state.correct())
        + n.abs_diff(buckets)
        + n.abs_diff(classes)
        + outcomes.abs_diff(state.arrivals.completed)
}

/// Ratios that their counts do not give.
fn ratios_that_do_not_follow(state: &State) -> usize {
    let outcome = |name: &str| state.outcomes.get(name).copied().unwrap_or(0);
    let offered = state.arrivals.scheduled;
    let stayed = offered.saturating_sub(state.departed_before_objective);
    let correct = state.correct();
    let pairs = [
        (state.core_goodput_ratio, state.within_objective, stayed),
        (state.omission_ratio, outcome("ok_degraded"), correct),
        (state.rejection_ratio, outcome("rejected"), offered),
        (state.departure_ratio, outcome("departed"), offered),
        (state.beyond_objective_ratio, correct.saturating_sub(state.within_objective), correct),
    ];
    let wrong = pairs.iter().filter(|(said, part, whole)| match (said, whole) {
        (said, 0) => said.is_some(),
        (Some(said), whole) => (said - *part as f64 / *whole as f64).abs() > RATIO_SLACK,
        (None, _) => true,
    });
    wrong.count()
}

/// Quantiles that are not where the merged observations have them. A mean of percentiles lies in another bucket, unless
/// all are alike.
fn quantiles_out_of_place(state: &State) -> usize {
    let latency = &state.latency_ms;
    let said = [latency.p50, latency.p99, latency.p999];
    let placed =
        QUANTILES.iter().zip(said).filter(|(q, said)| match (bucket_of(&state.histogram, **q), said) {
            (Some((lower, upper)), Some(said)) => {
                *said >= lower * (1.0 - QUANTILE_SLACK) && *said <= upper * (1.0 + QUANTILE_SLACK)
            }
            (None, None) => true,
            _ => false,
        });
    QUANTILES.len() - placed.count()
}

/// The ends of the bucket that holds the `q` quantile.
fn bucket_of(histogram: &[Bucket], q: f64) -> Option<(f64, f64)> {
    let total: u64 = histogram.iter().map(|bucket| bucket.count).sum();
    if total == 0 {
        return None;
    }
    let rank = ((q * total as f64).ceil() as u64).max(1);
    let (mut below, mut lower) = (0, 0.0);
    for bucket in histogram {
        below += bucket.count;
        if below >= rank {
            return Some((lower, bucket.le_ms));
        }
        lower = bucket.le_ms;
    }
    None
}

/// Operations that do not belong to the time of a state: more than the workload declares for it, more answers than
/// operations, or seconds of another time.
fn leaked(state: &State, whole_timeline: bool) -> f64 {
    let scheduled = state.arrivals.scheduled;
    let undeclared = state.arrivals.declared.map_or(0, |declared| scheduled.saturating_sub(declared));
    let unscheduled = state.latency_ms.n.saturating_sub(scheduled);
    let ends_s = state.starts_s + state.duration_s;
    let outside = |at_s: f64| at_s < state.starts_s || at_s + 1.0 > ends_s;
    let foreign: u64 =
        state.timeline.iter().filter(|point| outside(point.at_s)).map(|point| point.offered.max(1)).sum();
    let whole_seconds = state.starts_s.fract() == 0.0 && state.duration_s.fract() == 0.0;
    let uncounted = if whole_timeline && whole_seconds {
        scheduled.abs_diff(state.timeline.iter().map(|point| point.offered).sum())
    } else {
        0
    };
    (undeclared + unscheduled + foreign + uncounted) as f64
}

/// Whether the states follow each other without overlapping.
fn in_order(states: &[&State]) -> bool {
    states.windows(2).all(|pair| pair[0].starts_s + pair[0].duration_s <= pair[1].starts_s + 1e-6)
}

/// How far the share of any class is from its declared share, over that.
fn class_mix_moved(state: &State) -> Option<f64> {
    let declared: Option<Vec<u64>> = state.classes.values().map(|class| class.declared).collect();
    let declared = declared?;
    let (whole_declared, whole) = (declared.iter().sum::<u64>(), state.arrivals.scheduled);
    if whole_declared == 0 || whole == 0 {
        return None;
    }
    let moved = state.classes.values().zip(declared).filter(|(_, declared)| *declared > 0);
    let moved = moved.map(|(class, declared)| {
        let (is, was) = (class.scheduled as f64 / whole as f64, declared as f64 / whole_declared as f64);
        (is - was).abs() / was
    });
    moved.reduce(f64::max)
}

/// Whether a policy's evidence holds: the first gate that does not pass.
pub fn first_breach(gates: &[Gate]) -> Option<&Gate> {
    let rank = |gate: &&Gate| match gate.verdict {
        Verdict::Fail => 0,
        Verdict::Inconclusive => 1,
        Verdict::Pass | Verdict::NotApplicable => 2,
    };
    gates.iter().min_by_key(rank).filter(|gate| rank(gate) < 2)
}

/// As people read it.
pub(crate) const fn sign(rule: Rule) -> &'static str {
    match rule {
        Rule::AtMost => "≤",
        Rule::Below => "<",
        Rule::AtLeast => "≥",
    }
}
