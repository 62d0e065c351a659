//! Degradation, tested: the causes and their order, the counts, and the hold against what its words say.

use std::collections::BTreeSet;

use base::WorkloadClass;
use proptest::prelude::*;

use super::*;
use crate::budget::{Decision, Skip};

const fn budget(millis: u64) -> Decision {
    Decision::Start { budget: Nanos::from_millis(millis) }
}

const fn pressure(millis: u64) -> Pressure {
    Pressure::On { budget_min: Nanos::from_millis(millis) }
}

#[test]
fn the_first_cause_that_holds_is_named() {
    let short = Decision::Skip(Skip::BelowOptionalFloor);
    let none = Pressure::On { budget_min: Nanos::MAX };
    assert_eq!(start(true, budget(50), Pressure::Off), Ok(Nanos::from_millis(50)));
    assert_eq!(start(false, short, none), Err(Omission::Disabled));
    assert_eq!(start(true, short, none), Err(Omission::DeadlineBudget));
    assert_eq!(start(true, short, Pressure::Off), Err(Omission::DeadlineBudget));
    assert_eq!(start(true, budget(50), none), Err(Omission::Overload));
    let endless = Decision::Start { budget: Nanos::MAX };
    assert_eq!(start(true, endless, none), Err(Omission::Overload), "none starts, really none");
}

#[test]
fn under_pressure_a_section_needs_time_to_spare() {
    assert_eq!(start(true, budget(150), pressure(150)), Ok(Nanos::from_millis(150)));
    assert_eq!(start(true, budget(149), pressure(150)), Err(Omission::Overload));
    assert_eq!(start(true, budget(1), pressure(0)), Ok(Nanos::from_millis(1)));
}

#[test]
fn markers_say_their_cause() {
    for marker in Marker::ALL {
        match marker.omission() {
            Some(cause) => assert_eq!(marker.as_str(), format!("omitted_{cause}")),
            None => assert!(!marker.as_str().contains("omitted")),
        }
    }
    let names: BTreeSet<_> = Marker::ALL.iter().map(|marker| marker.as_str()).collect();
    assert_eq!(names.len(), Marker::ALL.len());
    assert!(Omission::ALL.iter().enumerate().all(|(position, cause)| cause.index() == position));
}

proptest! {
    /// Every section that was counted is found again, once, where it belongs.
    #[test]
    fn a_tally_is_the_sum_of_what_was_counted(
        sections in proptest::collection::vec((0_usize..3, 0_usize..Marker::ALL.len()), 0..200),
    ) {
        let mut tally = Tally::default();
        for (class, marker) in &sections {
            tally.count(WorkloadClass::ALL[*class], Marker::ALL[*marker]);
        }
        for (position, class) in WorkloadClass::ALL.into_iter().enumerate() {
            let of_class = || sections.iter().filter(|(class, _)| *class == position);
            prop_assert_eq!(tally.sections(class), of_class().count() as u64);
            let omitted = of_class().filter(|(_, marker)| Marker::ALL[*marker].omission().is_some()).count();
            prop_assert_eq!(tally.omitted(class), omitted as u64);
            for (index, marker) in Marker::ALL.into_iter().enumerate() {
                let counted = of_class().filter(|(_, marker)| *marker == index).count();
                prop_assert_eq!(tally.of(class, marker), counted as u64);
            }
        }
    }

    /// Pressure only ever takes sections away, and those it takes are counted as overload.
    #[test]
    fn pressure_only_takes_away(enabled: bool, granted in 0_u64..200, least in 0_u64..200) {
        let budget = if granted == 0 { Decision::Skip(Skip::ReserveReached) } else { budget(granted) };
        match (start(enabled, budget, Pressure::Off), start(enabled, budget, pressure(least))) {
            (without, with) if without == with => {}
            (Ok(_), Err(cause)) => prop_assert_eq!(cause, Omission::Overload),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

const BOUNDS: Bounds = Bounds {
    queue_age_max: Nanos::from_millis(12),
    occupancy_max_per_10_000: 8_200,
    window: Nanos::from_secs(10),
};
const INSIDE: Observation = Observation { queue_age: Nanos::from_millis(12), occupancy_per_10_000: 8_200 };
const OLD: Observation = Observation { queue_age: Nanos::new(12_000_001), ..INSIDE };
const FULL: Observation = Observation { occupancy_per_10_000: 8_201, ..INSIDE };

/// The hold begins at second 100, so its windows end at 110, 120, …
const fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(100 + seconds)
}

#[test]
fn either_bound_brings_pressure_on_and_only_beyond_it() {
    for outside in [OLD, FULL] {
        let mut hold = Hold::new(BOUNDS, at(0));
        assert!(!hold.observe(INSIDE, at(1)));
        assert!(hold.observe(outside, at(2)), "at once, not at the end of the window");
        assert_eq!(hold.came_on(), 1);
    }
}

#[test]
fn pressure_goes_at_the_end_of_the_second_good_window() {
    let mut hold = Hold::new(BOUNDS, at(0));
    hold.observe(OLD, at(1));
    assert!(hold.observe(INSIDE, at(9)), "the rest of a bad window is no good one");
    assert!(hold.observe(INSIDE, at(15)));
    assert!(hold.observe(INSIDE, at(25)), "one good window is not enough");
    assert!(hold.is_on(Nanos::new(at(30).get() - 1)));
    assert!(!hold.is_on(at(30)));
}

#[test]
fn a_bad_window_starts_the_count_again() {
    let mut hold = Hold::new(BOUNDS, at(0));
    hold.observe(OLD, at(1));
    hold.observe(INSIDE, at(11));
    hold.observe(INSIDE, at(21));
    assert!(hold.observe(FULL, at(29)));
    assert!(hold.observe(INSIDE, at(31)));
    assert!(hold.is_on(at(41)), "one good window since");
    assert!(hold.observe(INSIDE, at(42)));
    assert!(!hold.is_on(at(50)));
    assert_eq!(hold.came_on(), 1, "it never went in between");
}

#[test]
fn no_data_is_not_health_and_not_its_end() {
    let mut hold = Hold::new(BOUNDS, at(0));
    hold.observe(OLD, at(1));
    assert!(hold.is_on(at(100_000)), "silence is no good window");
    hold.observe(INSIDE, at(100_001));
    assert!(hold.is_on(at(200_000)), "one window was seen");
    hold.observe(INSIDE, at(200_001));
    assert!(!hold.is_on(at(200_010)));
}

#[test]
fn other_bounds_hold_from_the_next_observation() {
    let mut hold = Hold::new(BOUNDS, at(0));
    hold.observe(INSIDE, at(1));
    hold.set_bounds(Bounds { occupancy_max_per_10_000: 8_000, window: Nanos::from_secs(2), ..BOUNDS });
    assert!(!hold.is_on(at(2)), "what was seen stays judged");
    assert!(hold.observe(INSIDE, at(3)));
    let good = Observation { occupancy_per_10_000: 8_000, ..INSIDE };
    assert!(hold.observe(good, at(9)), "the bad window ends when it would have");
    assert!(hold.observe(good, at(10)));
    assert!(hold.observe(good, at(12)));
    assert!(!hold.is_on(at(14)));
}

#[test]
fn a_window_of_no_length_is_one_of_a_nanosecond() {
    let mut hold = Hold::new(Bounds { window: Nanos::ZERO, ..BOUNDS }, Nanos::ZERO);
    assert!(hold.observe(OLD, Nanos::ZERO));
    assert!(hold.observe(INSIDE, Nanos::new(1)));
    assert!(hold.observe(INSIDE, Nanos::new(2)));
    assert!(!hold.is_on(Nanos::new(3)));
    assert!(hold.observe(OLD, Nanos::MAX));
}

fn seen() -> impl Strategy<Value = Observation> {
    prop_oneof![3 => Just(INSIDE), 1 => Just(OLD), 1 => Just(FULL)]
}

/// Observations, or none, after spans near the window's own length and now and then far beyond it.
fn history() -> impl Strategy<Value = (u64, Vec<(u64, Option<Observation>)>)> {
    let pass = prop_oneof![6 => 0_u64..8, 1 => 8_u64..100];
    (1_u64..8, proptest::collection::vec((pass, proptest::option::of(seen())), 1..80))
}

fn with_window(nanos: u64) -> Bounds {
    Bounds { window: Nanos::new(nanos), ..BOUNDS }
}

/// What the words say, from the whole history: pressure is on while fewer than two windows with observations have
/// closed since the window of the last observation outside.
fn as_said(window: u64, observed: &[(u64, bool)], now: u64) -> bool {
    let Some(last_bad) = observed.iter().filter(|(_, inside)| !inside).map(|(at, _)| at / window).max()
    else {
        return false;
    };
    let windows: BTreeSet<u64> = observed.iter().map(|(at, _)| at / window).collect();
    let closed = windows.into_iter().filter(|seen| *seen > last_bad && (seen + 1) * window <= now).count();
    closed < HEALTHY_WINDOWS as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_hold_is_what_its_words_say((window, steps) in history()) {
        let mut hold = Hold::new(with_window(window), Nanos::ZERO);
        let mut observed = Vec::new();
        let mut now = 0;
        for (pass, seen) in steps {
            now += pass;
            let answer = match seen {
                Some(seen) => {
                    observed.push((now, seen == INSIDE));
                    hold.observe(seen, Nanos::new(now))
                }
                None => hold.is_on(Nanos::new(now)),
            };
            prop_assert_eq!(answer, as_said(window, &observed, now), "at {}", now);
        }
    }

    /// Whatever the input, pressure that came on stays for more than two whole windows: those of the count, and what
    /// was left of the one it came on in. Watched at every nanosecond, so nothing in between is missed.
    #[test]
    fn flapping_input_does_not_flap_the_hold(
        window in 1_u64..8, input in proptest::collection::vec(proptest::option::of(seen()), 1..200),
    ) {
        let mut hold = Hold::new(with_window(window), Nanos::ZERO);
        let mut since = None;
        let mut times = 0;
        for (now, seen) in input.into_iter().enumerate() {
            let now = now as u64;
            let before = hold.is_on(Nanos::new(now));
            if let (Some(came_on), false) = (since, before) {
                prop_assert!(now - came_on > u64::from(HEALTHY_WINDOWS) * window, "{came_on} to {now}");
                prop_assert_eq!(now % window, 0, "it goes at the end of a window");
                since = None;
            }
            let Some(seen) = seen else { continue };
            let after = hold.observe(seen, Nanos::new(now));
            prop_assert!(after || !before, "an observation takes no pressure away");
            prop_assert!(after || seen == INSIDE);
            if after && !before {
                prop_assert_eq!(since, None);
                since = Some(now);
                times += 1;
            }
        }
        prop_assert_eq!(hold.came_on(), times);
    }

    /// Once the window that was observed last is closed, no time without observations changes anything: neither the
    /// answer nor what it takes to change it.
    #[test]
    fn silence_changes_nothing(
        (window, steps) in history(),
        silence in proptest::collection::vec(0_u64..1_000, 1..20),
        rest in proptest::collection::vec((0_u64..8, seen()), 0..20),
    ) {
        let mut hold = Hold::new(with_window(window), Nanos::ZERO);
        let mut now = 0;
        for (pass, seen) in steps {
            now += pass;
            seen.map(|seen| hold.observe(seen, Nanos::new(now)));
        }
        now += window;
        let settled = hold.is_on(Nanos::new(now));
        let mut unsilenced = hold.clone();
        // Whole windows, so that both go on at the same place in theirs.
        let mut later = now;
        for windows in silence {
            later += windows * window;
            prop_assert_eq!(hold.is_on(Nanos::new(later)), settled);
        }
        for (pass, seen) in rest {
            now += pass;
            later += pass;
            prop_assert_eq!(
                hold.observe(seen, Nanos::new(later)),
                unsilenced.observe(seen, Nanos::new(now))
            );
        }
    }
}
