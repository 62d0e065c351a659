//! Recovery: when everything was back inside its bounds after a slowdown. Pure.
//!
//! A window is a second. It is inside when queue age, both occupancies, goodput and the demand on the profile store are;
//! recovery is over with the first of two consecutive windows that are. The bounds are the objective's or, where the
//! policy's own peak was worse, the 90th percentile of the windows of that peak: a policy recovers to its own steady state,
//! however bad that is. What is counted may go beyond its bound by what chance carries a second of that size, or a small
//! system that is well would now and then be called impaired. A signal that was not measured puts a window neither inside nor
//! outside.

use crate::{
    gates::objective,
    report::{RecoveryBounds, TimelinePoint, ratio},
};

/// How many consecutive windows must be inside.
const WINDOWS: usize = 2;
/// How many standard deviations chance is allowed.
const SIGMAS: f64 = 3.0;
/// The window of the own peak that a bound may stretch to.
const PEAK_QUANTILE: f64 = 0.9;

/// What is known about a recovery. Neither is set when nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recovery {
    /// How long it took, in seconds.
    pub(crate) s: Option<f64>,
    /// It took at least this long, when it was not over within what was watched or not everything was measured.
    pub(crate) at_least_s: Option<f64>,
}

/// The bounds, from the windows of the policy's own peak. `None` when a signal that no objective bounds was never measured
/// there.
pub(crate) fn bounds(peak: &[TimelinePoint]) -> Option<RecoveryBounds> {
    let worst = |value: &dyn Fn(&TimelinePoint) -> Option<f64>| {
        quantile(peak.iter().filter_map(value).collect(), PEAK_QUANTILE)
    };
    let or = |own: Option<f64>, bound: f64| own.map_or(bound, |own| own.max(bound));
    Some(RecoveryBounds {
        queue_age_ms: or(worst(&|point| point.queue_age_ms), objective::QUEUE_AGE_MS),
        occupancy_endpoint: worst(&|point| point.occupancy_endpoint)?,
        occupancy_profile: or(worst(&|point| point.occupancy_profile), objective::PROFILE_OCCUPANCY),
        // The other way round: the tenth percentile is the 90th of what is missing.
        goodput_ratio: 1.0 - or(worst(&|point| Some(1.0 - goodput(point)?)), 1.0 - objective::GOODPUT),
        profile_calls_per_s: worst(&|point| point.profile_calls_per_s)?,
    })
}

/// When the windows of the recovery state were inside.
pub(crate) fn judge(points: &[TimelinePoint], bounds: &RecoveryBounds) -> Recovery {
    let inside: Vec<Option<bool>> = points.iter().map(|point| inside(point, bounds)).collect();
    let from = |at: usize| inside.iter().skip(at).take(WINDOWS);
    // The first window from which it may have been over, and the first from which it was.
    let may = (0..=inside.len()).find(|at| from(*at).all(|window| *window != Some(false)));
    let was = (0..inside.len())
        .find(|at| from(*at).count() == WINDOWS && from(*at).all(|window| *window == Some(true)));
    let after = |at: usize| at as f64;
    match (may, was) {
        (Some(may), Some(was)) if may == was => Recovery { s: Some(after(was)), at_least_s: None },
        (Some(may), _) if may > 0 => Recovery { s: None, at_least_s: Some(after(may)) },
        _ => Recovery::default(),
    }
}

/// Whether a window is inside. `None` when a signal is missing and no other is outside.
fn inside(point: &TimelinePoint, bounds: &RecoveryBounds) -> Option<bool> {
    let at_most = |value: Option<f64>, bound: f64| value.map(|value| value <= bound);
    // Occupancy follows the number of arrivals, whose deviation over its mean is one over its root.
    let arrivals = SIGMAS / (point.offered.max(1) as f64).sqrt();
    let calls = bounds.profile_calls_per_s + SIGMAS * bounds.profile_calls_per_s.max(0.0).sqrt();
    let signals = [
        // An age is no count: nobody may wait longer, however few there are.
        at_most(point.queue_age_ms, bounds.queue_age_ms),
        at_most(point.occupancy_endpoint, bounds.occupancy_endpoint * (1.0 + arrivals)),
        at_most(point.occupancy_profile, bounds.occupancy_profile * (1.0 + arrivals)),
        at_most(point.profile_calls_per_s, calls),
        goodput(point).map(|ratio| ratio >= bounds.goodput_ratio - chance(bounds.goodput_ratio, point)),
    ];
    if signals.contains(&Some(false)) {
        return Some(false);
    }
    signals.into_iter().all(|signal| signal.is_some()).then_some(true)
}

/// How far chance alone may carry a share of those who stayed in a window.
fn chance(ratio: f64, point: &TimelinePoint) -> f64 {
    let stayed = point.offered.saturating_sub(point.departed).max(1) as f64;
    SIGMAS * (ratio * (1.0 - ratio) / stayed).max(0.0).sqrt()
}

/// Goodput of one window.
pub(crate) fn goodput(point: &TimelinePoint) -> Option<f64> {
    ratio(point.good as f64, point.offered.checked_sub(point.departed)? as f64)
}

/// The `q` quantile by nearest rank.
fn quantile(mut values: Vec<f64>, q: f64) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let rank = (q * values.len() as f64).ceil() as usize;
    values.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn good() -> TimelinePoint {
        TimelinePoint {
            // So many that chance carries them nowhere.
            offered: 1_000_000,
            good: 800_000,
            departed: 200_000,
            queue_age_ms: Some(3.0),
            occupancy_endpoint: Some(0.7),
            occupancy_profile: Some(0.6),
            profile_calls_per_s: Some(900_000.0),
            ..TimelinePoint::default()
        }
    }

    fn bad() -> TimelinePoint {
        TimelinePoint { queue_age_ms: Some(80.0), ..good() }
    }

    fn unknown() -> TimelinePoint {
        TimelinePoint { occupancy_profile: None, ..good() }
    }

    fn recovery(points: &[TimelinePoint]) -> (Option<f64>, Option<f64>) {
        let bounds = bounds(&[good()]).expect("a whole peak");
        let Recovery { s, at_least_s } = judge(points, &bounds);
        (s, at_least_s)
    }

    #[test]
    fn it_takes_two_windows_in_a_row() {
        assert_eq!(recovery(&[good(), good(), bad()]), (Some(0.0), None));
        assert_eq!(recovery(&[bad(), good(), bad(), good(), good()]), (Some(3.0), None));
        assert_eq!(recovery(&[bad(), bad(), good()]), (None, Some(2.0)), "the second was not seen any more");
        assert_eq!(recovery(&[bad(), bad(), bad()]), (None, Some(3.0)));
        assert_eq!(recovery(&[]), (None, None));
    }

    #[test]
    fn every_signal_counts() {
        for spoilt in [
            TimelinePoint { queue_age_ms: Some(12.1), ..good() },
            TimelinePoint { occupancy_endpoint: Some(0.71), ..good() },
            TimelinePoint { occupancy_profile: Some(0.83), ..good() },
            TimelinePoint { profile_calls_per_s: Some(910_000.0), ..good() },
            TimelinePoint { good: 770_000, ..good() },
        ] {
            assert_eq!(recovery(&[spoilt, good(), good()]), (Some(1.0), None));
        }
    }

    #[test]
    fn a_small_system_is_allowed_what_chance_does_to_it_and_no_wait() {
        let small = |offered: u64, occupancy, calls, late| TimelinePoint {
            offered,
            good: offered * 4 / 5 - late,
            departed: offered / 5,
            occupancy_endpoint: Some(occupancy),
            profile_calls_per_s: Some(calls),
            ..good()
        };
        let bounds = bounds(&[small(250, 0.7, 200.0, 0)]).expect("a whole peak");
        let first = |point: TimelinePoint| inside(&point, &bounds);
        assert_eq!(
            first(small(250, 0.82, 240.0, 8)),
            Some(true),
            "200 stayed: three deviations are 5.9 of them"
        );
        assert_eq!(first(small(250, 0.84, 240.0, 8)), Some(false));
        assert_eq!(first(small(250, 0.82, 243.0, 8)), Some(false));
        assert_eq!(first(small(250, 0.82, 240.0, 10)), Some(false));
        let waits = TimelinePoint { queue_age_ms: Some(12.1), ..small(250, 0.7, 200.0, 0) };
        assert_eq!(first(waits), Some(false));
    }

    #[test]
    fn what_was_not_measured_is_neither_inside_nor_outside() {
        assert_eq!(recovery(&[unknown(), good(), good()]), (None, None), "it may have been over at once");
        assert_eq!(recovery(&[bad(), unknown(), good(), good()]), (None, Some(1.0)));
        assert_eq!(recovery(&[good(), good(), unknown()]), (Some(0.0), None), "it was over before");
        assert_eq!(recovery(&[unknown(), unknown()]), (None, None));
        let idle = TimelinePoint { offered: 0, good: 0, departed: 0, ..good() };
        assert_eq!(recovery(&[bad(), idle, good()]), (None, Some(1.0)), "no goodput without customers");
        let worse = TimelinePoint { queue_age_ms: Some(99.0), ..unknown() };
        assert_eq!(recovery(&[worse, good(), good()]), (Some(1.0), None), "one signal outside is enough");
    }

    #[test]
    fn a_policy_recovers_to_its_own_peak_where_that_is_worse_than_the_objective() {
        let strained = TimelinePoint {
            good: 600_000,
            queue_age_ms: Some(70.0),
            occupancy_profile: Some(0.95),
            ..good()
        };
        let wave =
            TimelinePoint { queue_age_ms: Some(300.0), occupancy_profile: Some(1.0), ..strained.clone() };
        let peak: Vec<_> = (0..10).map(|at| if at == 9 { wave.clone() } else { strained.clone() }).collect();
        let own = bounds(&peak).expect("a whole peak");
        assert_eq!((own.queue_age_ms, own.occupancy_profile), (70.0, 0.95), "the wave is the tenth window");
        assert!((own.goodput_ratio - 0.75).abs() < 1e-9, "{own:?}");
        let objective = bounds(&[good()]).expect("a whole peak");
        assert_eq!((objective.queue_age_ms, objective.occupancy_profile), (12.0, 0.82));
        assert!((objective.goodput_ratio - 0.98).abs() < 1e-9);
        assert_eq!((objective.occupancy_endpoint, objective.profile_calls_per_s), (0.7, 900_000.0));
        let silent = TimelinePoint { occupancy_endpoint: None, ..good() };
        assert_eq!(bounds(&[silent]), None);
        assert_eq!(bounds(&[]), None);
    }

    proptest! {
        #[test]
        fn it_is_the_first_pair_and_a_missing_signal_never_makes_it_shorter(
            states in proptest::collection::vec(0_u8..2, 0..12), lost in 0_usize..12,
        ) {
            let point = |state: &u8| if *state == 1 { good() } else { bad() };
            let mut points: Vec<TimelinePoint> = states.iter().map(point).collect();
            let whole = recovery(&points);
            let pair = states.windows(2).position(|pair| pair == [1, 1]);
            prop_assert_eq!(whole.0, pair.map(|at| at as f64));
            prop_assert!(whole.0.is_none() || whole.1.is_none());
            if whole.0.is_none() && states.contains(&0) {
                let outside = states.iter().rposition(|state| *state == 0).expect("contained");
                prop_assert_eq!(whole.1, Some((outside + 1) as f64), "since the last window outside");
            }
            if let Some(point) = points.get_mut(lost) {
                *point = unknown();
                let (s, at_least) = recovery(&points);
                // What is said without it is still true with it.
                if let Some(s) = s {
                    prop_assert_eq!(Some(s), whole.0);
                }
                if let (Some(at_least), Some(true_s)) = (at_least, whole.0) {
                    prop_assert!(at_least <= true_s, "{} {}", at_least, true_s);
                }
            }
        }
    }
}
