//! Knees: the ends of the usable range among the pairs, by the rules of the frontier's file, and what the figures say about why
//! they are where they are. Pure.

use base::Dependency;
use load::table::{ms, percent};
use model::frontier::Frontier;

use super::{Knees, Limits};
use crate::{
    gates::Gate,
    sweep::{At, Base, Figures, Measured, Waits},
};

/// Goodput below the best of all pairs, in percentage points; `None` where one is not known, since that may be the best.
fn goodput_losses(pairs: &[Measured]) -> Vec<Option<f64>> {
    let goodput: Vec<Option<f64>> =
        pairs.iter().map(|pair| pair.at(At::Peak).and_then(|peak| peak.goodput_ratio)).collect();
    let known: Option<Vec<f64>> = goodput.iter().copied().collect();
    let best = known.and_then(|known| known.into_iter().reduce(f64::max));
    goodput.into_iter().map(|own| Some((best? - own?) * 100.0)).collect()
}

/// How far each value is above the least of those before it; the first one is above nothing.
fn rises(values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut least: Option<f64> = None;
    values
        .iter()
        .enumerate()
        .map(|(at, value)| {
            let value = (*value)?;
            let rise = if at == 0 { 0.0 } else { value - least? };
            least = Some(least.map_or(value, |least| least.min(value)));
            Some(rise)
        })
        .collect()
}

/// What the waits in the slowdown rose by: that one of them which rose most. They are not added up, since percentiles of
/// different waits are not those of one page.
fn wait_rises(pairs: &[Measured]) -> Vec<Option<f64>> {
    let waits: [fn(&Waits) -> Option<f64>; 3] =
        [|waits| waits.endpoint_p99, |waits| waits.connection_p99, |waits| waits.store_mean];
    let [slot, connection, store] = waits.map(|wait| {
        let of = |pair: &Measured| wait(&pair.at(At::Slowdown)?.wait_ms);
        rises(&pairs.iter().map(of).collect::<Vec<_>>())
    });
    let most = |((slot, connection), store): ((Option<f64>, Option<f64>), Option<f64>)| {
        Some(slot?.max(connection?).max(store?))
    };
    slot.into_iter().zip(connection).zip(store).map(most).collect()
}

/// Recovery, or what it takes at least.
fn recovery_rises(pairs: &[Measured]) -> Vec<Option<f64>> {
    let recovery = |pair: &Measured| {
        let recovery = pair.at(At::Recovery)?.recovery?;
        recovery.s.or(recovery.at_least_s)
    };
    rises(&pairs.iter().map(recovery).collect::<Vec<_>>())
}

/// The first place from which on all are above the bound.
fn first_above_for_good(values: &[Option<f64>], bound: f64) -> Option<usize> {
    let above = |value: &Option<f64>| value.is_some_and(|value| value > bound);
    let last_within = values.iter().rposition(|value| !above(value));
    let first = last_within.map_or(0, |at| at + 1);
    (first < values.len()).then_some(first)
}

/// Finds both ends.
pub(super) fn find(frontier: &Frontier, pairs: &[Measured]) -> Knees {
    let limits = |at: usize| frontier.pairs.get(at).copied().map(Limits::from);
    let losses = goodput_losses(pairs);
    let within = |loss: &Option<f64>| loss.is_some_and(|loss| loss <= frontier.rules.goodput_loss_points);
    // Nothing lies below the first pair, so that it is no end that was found.
    let lower = losses.iter().position(within).filter(|at| *at > 0);
    let ends = [
        first_above_for_good(&wait_rises(pairs), frontier.rules.wait_rise_ms),
        first_above_for_good(&recovery_rises(pairs), frontier.rules.recovery_rise_s),
    ];
    let upper = ends.into_iter().flatten().min();
    let chosen = frontier.pairs.iter().position(|pair| *pair == frontier.chosen);
    let chosen_is_between = chosen.and_then(|chosen| match (lower, upper) {
        (Some(lower), _) if chosen < lower => Some(false),
        (_, Some(upper)) if chosen >= upper => Some(false),
        (Some(_), Some(_)) => Some(true),
        _ => None,
    });
    let [reference_lower, reference_upper] = frontier.reference.map(Limits::from);
    Knees {
        lower: lower.and_then(limits),
        upper: upper.and_then(limits),
        chosen: frontier.chosen.into(),
        chosen_is_between,
        reference_lower,
        reference_upper,
    }
}

/// The pair in force, held against the rules.
pub(super) fn gates(frontier: &Frontier, pairs: &[Measured]) -> Vec<Gate> {
    let chosen = frontier.pairs.iter().position(|pair| *pair == frontier.chosen);
    let of = |values: Vec<Option<f64>>| values.get(chosen?).copied().flatten();
    let rules = frontier.rules;
    let name = frontier.chosen.to_string();
    vec![
        Gate::at_most(
            "chosen_goodput_loss",
            "percentage points",
            of(goodput_losses(pairs)),
            rules.goodput_loss_points,
        )
        .of(&name)
        .during("peak")
        .saying("goodput below that of the best pair"),
        Gate::at_most("chosen_wait_rise", "ms", of(wait_rises(pairs)), rules.wait_rise_ms)
            .of(&name)
            .during("slowdown")
            .saying("the wait that rose most above that of the best smaller pair"),
        Gate::at_most("chosen_recovery_rise", "s", of(recovery_rises(pairs)), rules.recovery_rise_s)
            .of(&name)
            .during("recovery")
            .saying("recovery above that of the best smaller pair"),
    ]
}

/// Why the ends are where they are.
pub(super) fn notes(frontier: &Frontier, pairs: &[Measured], knees: &Knees, base: &Base) -> Vec<String> {
    let mut notes = vec![lower_note(frontier, pairs, knees), upper_note(frontier, pairs, knees, base)];
    let ceiling = |at: &Figures| {
        let worst = at.classes.iter().filter_map(|class| Some((class.rejection_ratio?, class.class)));
        worst.max_by(|one, other| one.0.total_cmp(&other.0))
    };
    let smallest = pairs.first().and_then(|pair| ceiling(pair.at(At::Peak)?));
    if let (Some((ratio, class)), Some(pair)) = (smallest, frontier.pairs.first()) {
        notes.push(format!(
            "Partitions decide who is turned away first: at {pair} and peak, {} of {class} are, the most of any class; \
             the floors keep the smaller classes' share of every limit.",
            percent(Some(ratio)),
        ));
    }
    notes
}

fn lower_note(frontier: &Frontier, pairs: &[Measured], knees: &Knees) -> String {
    let points = frontier.rules.goodput_loss_points;
    let Some(lower) = knees.lower else {
        return format!(
            "No lower end: no pair of the sweep loses more than {points} points of the best goodput at peak; the case study has {}.",
            knees.reference_lower,
        );
    };
    let place = frontier.pairs.iter().position(|pair| Limits::from(*pair) == lower).unwrap_or_default();
    let same = if lower == knees.reference_lower { "as" } else { "other than" };
    let below = place.checked_sub(1);
    let peak = below.and_then(|at| Some((frontier.pairs[at], pairs.get(at)?.at(At::Peak)?)));
    let idle = peak.map_or_else(String::new, |(pair, peak)| {
        format!(
            " At {pair}, the pair below, {} are turned away while {} of the slots, {} of the store's servers and at least {} of every \
             dependency's servers and of the CPU are free: capacity is left idle.",
            percent(peak.rejection_ratio),
            percent(peak.occupancy_ratio.endpoint.map(|busy| 1.0 - busy)),
            percent(Some(1.0 - peak.store_ratio)),
            percent(Some(1.0 - peak.busiest.ratio.max(peak.cpu_ratio.unwrap_or_default()))),
        )
    });
    format!("Lower end {lower}, {same} in the case study ({}).{idle}", knees.reference_lower)
}

fn upper_note(frontier: &Frontier, pairs: &[Measured], knees: &Knees, base: &Base) -> String {
    let slowdown = |at: usize| pairs.get(at).and_then(|pair| pair.at(At::Slowdown));
    let last = frontier.pairs.len().saturating_sub(1);
    let wait = |at: usize| ms(slowdown(at).and_then(|slowdown| slowdown.wait_ms.longest()));
    let reference = knees.reference_upper;
    if let Some(upper) = knees.upper {
        let place = frontier.pairs.iter().position(|pair| Limits::from(*pair) == upper).unwrap_or_default();
        let same = if upper == reference { "as" } else { "other than" };
        return format!(
            "Upper end {upper}, {same} in the case study ({reference}): from it on a wait in the slowdown is longer by more than {} ms, \
             or recovery by more than {} s; there a page waits {} ms for a slot and {} ms for a connection at p99, and {} ms at the store.",
            frontier.rules.wait_rise_ms,
            frontier.rules.recovery_rise_s,
            ms(slowdown(place).and_then(|slowdown| slowdown.wait_ms.endpoint_p99)),
            ms(slowdown(place).and_then(|slowdown| slowdown.wait_ms.connection_p99)),
            ms(slowdown(place).and_then(|slowdown| slowdown.wait_ms.store_mean)),
        );
    }
    let servers = base
        .scenario
        .phases()
        .iter()
        .map(|phase| phase.dependency(Dependency::Profile).capacity.servers)
        .min()
        .unwrap_or_default();
    let most = frontier.pairs[last].profile;
    let below = if servers >= most {
        format!(
            "Below the gates nothing queues either: the store has {servers} servers, more than the {most} reads of the largest pair, \
             is {} busy there, and makes a read wait {} ms on average. An upper end would need a store that serves fewer reads at \
             once than the gate lets through; there the wait would move behind the gate.",
            percent(slowdown(last).map(|slowdown| slowdown.store_ratio)),
            ms(slowdown(last).and_then(|slowdown| slowdown.wait_ms.store_mean)),
        )
    } else {
        format!(
            "The store has {servers} servers, fewer than the {most} reads of the largest pair, and makes a read wait {} ms on average \
             there: not so much longer than with smaller limits.",
            ms(slowdown(last).and_then(|slowdown| slowdown.wait_ms.store_mean)),
        )
    };
    format!(
        "No upper end up to {}, where the limits meet the pools' slots; the case study has {reference}. The gate turns a waiter away \
         at {} ms, so a wait cannot grow beyond that: in the slowdown it is {} ms at {} and {} ms at {}. {below}",
        frontier.pairs[last],
        ms(Some(
            base.after.policy.admission(model::policy::Boundary::Endpoint).queue_age_max().as_millis_f64()
        )),
        wait(0),
        frontier.pairs[0],
        wait(last),
        frontier.pairs[last],
    )
}

#[cfg(test)]
mod tests {
    use model::frontier::SHIPPED;
    use proptest::prelude::*;

    use super::*;
    use crate::sweep::RecoveryTime;

    fn frontier() -> Frontier {
        Frontier::parse(SHIPPED.0, SHIPPED.1).expect("it is valid")
    }

    fn pair(goodput: f64, wait_ms: f64, recovery_s: f64) -> Measured {
        let wait = Waits {
            endpoint_p99: Some(wait_ms),
            connection_p99: Some(0.0),
            store_mean: Some(0.0),
            slot_held_mean: Some(70.0),
        };
        let of = |state: At| Figures {
            state: state.as_str(),
            goodput_ratio: Some(goodput),
            wait_ms: wait,
            recovery: (state == At::Recovery)
                .then(|| RecoveryTime { s: Some(recovery_s), ..RecoveryTime::default() }),
            ..Figures::default()
        };
        Measured::from(At::ALL.map(of).to_vec())
    }

    /// Nine pairs whose goodput, wait and recovery are given.
    fn pairs(goodput: [f64; 9], wait_ms: [f64; 9], recovery_s: [f64; 9]) -> Vec<Measured> {
        (0..9).map(|at| pair(goodput[at], wait_ms[at], recovery_s[at])).collect()
    }

    const GOOD: [f64; 9] = [0.88, 0.96, 0.985, 0.99, 0.995, 0.997, 0.998, 0.998, 0.998];
    const CALM: [f64; 9] = [11.0; 9];

    fn at(endpoint: u32, profile: u32) -> Option<Limits> {
        Some(Limits { endpoint, profile })
    }

    #[test]
    fn both_ends_are_found_where_the_figures_break() {
        let wait = [11.0, 11.0, 10.0, 10.0, 10.0, 11.0, 14.0, 19.0, 30.0];
        let knees = find(&frontier(), &pairs(GOOD, wait, CALM));
        assert_eq!((knees.lower, knees.upper), (at(480, 310), at(560, 370)));
        assert_eq!(knees.chosen_is_between, Some(true));
        let recovery = [3.0, 3.0, 3.0, 3.0, 3.0, 9.0, 20.0, 30.0, 40.0];
        let knees = find(&frontier(), &pairs(GOOD, CALM, recovery));
        assert_eq!(knees.upper, at(540, 355), "recovery alone is enough");
        // A full gate hides no wait behind it.
        let mut behind = pairs(GOOD, CALM, CALM);
        for (place, pair) in behind.iter_mut().enumerate().skip(7) {
            let mut states = pair.all().to_vec();
            states.iter_mut().for_each(|figures| figures.wait_ms.store_mean = Some(place as f64));
            *pair = Measured::from(states);
        }
        assert_eq!(
            find(&frontier(), &behind).upper,
            at(600, 395),
            "it is shorter than the gate's, and it rose"
        );
    }

    #[test]
    fn an_end_that_is_not_in_the_sweep_is_not_made_up() {
        let knees = find(&frontier(), &pairs([0.99; 9], CALM, CALM));
        assert_eq!((knees.lower, knees.upper, knees.chosen_is_between), (None, None, None));
        let knees = find(&frontier(), &pairs(GOOD, CALM, CALM));
        assert_eq!((knees.lower, knees.upper, knees.chosen_is_between), (at(480, 310), None, None));
    }

    #[test]
    fn a_pair_beyond_an_end_is_not_between_and_misses_its_gate() {
        let goodput = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995, 0.995];
        let measured = pairs(goodput, CALM, CALM);
        assert_eq!(find(&frontier(), &measured).chosen_is_between, Some(false));
        let verdicts: Vec<&str> =
            gates(&frontier(), &measured).iter().map(|gate| gate.verdict.as_str()).collect();
        assert_eq!(verdicts, ["fail", "pass", "pass"]);
        let wait = [11.0, 11.0, 11.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0];
        let measured = pairs(GOOD, wait, CALM);
        assert_eq!(find(&frontier(), &measured).upper, at(500, 325));
        assert_eq!(find(&frontier(), &measured).chosen_is_between, Some(false));
        let verdicts: Vec<&str> =
            gates(&frontier(), &measured).iter().map(|gate| gate.verdict.as_str()).collect();
        assert_eq!(verdicts, ["pass", "fail", "pass"]);
    }

    #[test]
    fn what_was_not_measured_is_no_end_and_no_pass() {
        let silent = vec![Measured::default(); 9];
        let knees = find(&frontier(), &silent);
        assert_eq!((knees.lower, knees.upper), (None, None));
        assert!(gates(&frontier(), &silent).iter().all(|gate| gate.verdict.as_str() == "inconclusive"));
    }

    proptest! {
        /// An end is where all before it are on one side and all from it on are on the other.
        #[test]
        fn the_upper_end_holds_for_good(values in proptest::collection::vec(0.0_f64..20.0, 1..12), bound in 0.0_f64..20.0) {
            let options: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
            match first_above_for_good(&options, bound) {
                Some(at) => {
                    prop_assert!(values[at..].iter().all(|value| *value > bound));
                    prop_assert!(at == 0 || values[at - 1] <= bound);
                }
                None => prop_assert!(values.last().is_some_and(|last| *last <= bound)),
            }
            let rises = rises(&options);
            for at in 1..values.len() {
                let least = values[..at].iter().copied().fold(f64::INFINITY, f64::min);
                prop_assert_eq!(rises[at], Some(values[at] - least));
            }
        }
    }
}
