//! Figures: what a state of a variant came to, from its merged windows, and how long recovery took.

use base::{Dependency, WorkloadClass};
use model::policy::Boundary;
use serde::Serialize;
use simulation::{ClassTally, Outcome, Second, Window};

use super::{At, jobs::Cell};
use crate::{
    measure::recovery,
    report::{Quantiles, TimelinePoint, ratio},
};

/// One state of one variant. What was not observed is null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// `peak`, `slowdown` or `recovery`.
    pub state: &'static str,
    /// Operations that were offered.
    pub offered: u64,
    /// Those that had not ended when nobody watched any more.
    pub in_flight: u64,
    /// Latency of correct answers.
    pub latency_ms: Quantiles,
    /// 95th percentile of it.
    pub p95_ms: Option<f64>,
    /// Correct within the objective over offered whose caller stayed.
    pub goodput_ratio: Option<f64>,
    /// Turned away over offered.
    pub rejection_ratio: Option<f64>,
    /// Ended by the deadline over offered.
    pub deadline_ratio: Option<f64>,
    /// Correct answers with an omitted section over correct answers.
    pub omission_ratio: Option<f64>,
    /// Mean occupancy of the pools' slots.
    pub occupancy_ratio: Occupancies,
    /// Mean occupancy of what the gates admit; null where a gate does not act.
    pub bound_ratio: Occupancies,
    /// How long work waits for what it needs.
    pub wait_ms: Waits,
    /// Reads that the profile store was asked for, over operations offered.
    pub profile_calls_per_operation: Option<f64>,
    /// Reads that joined one under way, over operations offered.
    pub joined_per_operation: Option<f64>,
    /// Second reads sent beside a first, over operations offered.
    pub hedges_per_operation: Option<f64>,
    /// The dependency whose servers are busiest.
    pub busiest: Busiest,
    /// Use of the profile store's servers.
    pub store_ratio: f64,
    /// Use of the hosts' CPU; null where hosts have as much as they need.
    pub cpu_ratio: Option<f64>,
    /// By class.
    pub classes: Vec<ByClass>,
    /// Only of recovery: how long it took.
    pub recovery: Option<RecoveryTime>,
}

/// Shares of two pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Occupancies {
    /// Of the endpoint.
    pub endpoint: Option<f64>,
    /// Of the profile client.
    pub profile: Option<f64>,
}

/// How long work waits, by where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// 99th percentile of the age at which a page got its slot.
    pub endpoint_p99: Option<f64>,
    /// 99th percentile of the wait for a connection of the profile client.
    pub connection_p99: Option<f64>,
    /// Mean time that a read held its connection beyond its service: the wait for a server of the store.
    pub store_mean: Option<f64>,
    /// How long a page held its slot on average.
    pub slot_held_mean: Option<f64>,
}

impl Waits {
    /// The longest of them, wherever it is; `None` when one is not known.
    pub fn longest(&self) -> Option<f64> {
        Some(self.endpoint_p99?.max(self.connection_p99?).max(self.store_mean?))
    }
}

/// The dependency whose servers are busiest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Busiest {
    /// Which.
    pub dependency: &'static str,
    /// Mean share of its servers in use.
    pub ratio: f64,
}

/// One class of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ByClass {
    /// Which.
    pub class: &'static str,
    /// Operations that were offered.
    pub offered: u64,
    /// 99th percentile of the latency of correct answers.
    pub p99_ms: Option<f64>,
    /// As in [`Figures`].
    pub goodput_ratio: Option<f64>,
    /// As in [`Figures`].
    pub omission_ratio: Option<f64>,
    /// As in [`Figures`].
    pub rejection_ratio: Option<f64>,
    /// As in [`Figures`].
    pub deadline_ratio: Option<f64>,
}

/// How long recovery took: the median of the runs, by the rule of the live rehearsal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RecoveryTime {
    /// In seconds; null when it was not over in every run.
    pub s: Option<f64>,
    /// At least so long, when it was not.
    pub at_least_s: Option<f64>,
    /// Longest of the runs, in seconds; null when one was not over.
    pub longest_s: Option<f64>,
}

/// The states of one variant.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Measured(Vec<Figures>);

impl Measured {
    pub(crate) fn of(cells: &[Cell], gated: bool) -> Self {
        let peak = cells.iter().find(|cell| cell.state == At::Peak);
        let figures = cells.iter().map(|cell| {
            let recovery = match (cell.state, peak) {
                (At::Recovery, Some(peak)) => Some(recoveries(&peak.timelines, &cell.timelines)),
                _ => None,
            };
            Figures { recovery, ..figures(cell, gated) }
        });
        Self(figures.collect())
    }

    /// One state, where it was run.
    pub(crate) fn at(&self, state: At) -> Option<&Figures> {
        self.0.iter().find(|figures| figures.state == state.as_str())
    }

    pub(crate) fn all(&self) -> &[Figures] {
        &self.0
    }
}

#[cfg(test)]
impl From<Vec<Figures>> for Measured {
    fn from(figures: Vec<Figures>) -> Self {
        Self(figures)
    }
}

fn figures(cell: &Cell, gated: bool) -> Figures {
    let Cell { state, window, .. } = cell;
    let all = window.all();
    let per_offered = |count: u64| ratio(count as f64, all.offered as f64);
    let read = Dependency::Profile.index();
    let metered = &window.metered;
    let service_ms = ratio(metered.served[read] as f64 / 1e6, metered.calls[read] as f64);
    let [endpoint, profile] = &metered.ages;
    let busiest = Dependency::ALL.into_iter().max_by(|one, other| {
        // Of two that are as busy, the one in front.
        window.utilisation(*one).total_cmp(&window.utilisation(*other)).then(other.index().cmp(&one.index()))
    });
    let occupancies = |of: &dyn Fn(Boundary) -> f64| Occupancies {
        endpoint: Some(of(Boundary::Endpoint)),
        profile: Some(of(Boundary::Profile)),
    };
    Figures {
        state: state.as_str(),
        offered: all.offered,
        in_flight: window.in_flight,
        latency_ms: Quantiles {
            n: all.latency.len(),
            p50: all.latency.quantile_ms(0.5),
            p99: all.latency.quantile_ms(0.99),
            p999: all.latency.quantile_ms(0.999),
        },
        p95_ms: all.latency.quantile_ms(0.95),
        goodput_ratio: goodput(&all),
        rejection_ratio: per_offered(count(&all, Outcome::Rejected)),
        deadline_ratio: per_offered(count(&all, Outcome::Deadline)),
        omission_ratio: omission(&all),
        occupancy_ratio: occupancies(&|boundary| window.occupancy(boundary)),
        bound_ratio: if gated {
            occupancies(&|boundary| window.admitted_occupancy(boundary))
        } else {
            Occupancies::default()
        },
        wait_ms: Waits {
            endpoint_p99: endpoint.quantile_ms(0.99),
            connection_p99: profile.quantile_ms(0.99),
            store_mean: window
                .held_ms(Boundary::Profile)
                .zip(service_ms)
                .map(|(held, service)| (held - service).max(0.0)),
            slot_held_mean: window.held_ms(Boundary::Endpoint),
        },
        profile_calls_per_operation: per_offered(metered.calls[read]),
        joined_per_operation: per_offered(metered.joined),
        hedges_per_operation: per_offered(metered.hedges),
        busiest: busiest.map_or_else(Busiest::default, |name| Busiest {
            dependency: name.as_str(),
            ratio: window.utilisation(name),
        }),
        store_ratio: window.utilisation(Dependency::Profile),
        cpu_ratio: window.cpu(),
        classes: WorkloadClass::ALL.iter().map(|class| by_class(*class, window)).collect(),
        recovery: None,
    }
}

fn by_class(class: WorkloadClass, window: &Window) -> ByClass {
    let tally = &window.classes[class.index()];
    let per_offered = |count: u64| ratio(count as f64, tally.offered as f64);
    ByClass {
        class: class.as_str(),
        offered: tally.offered,
        p99_ms: tally.latency.quantile_ms(0.99),
        goodput_ratio: goodput(tally),
        omission_ratio: omission(tally),
        rejection_ratio: per_offered(count(tally, Outcome::Rejected)),
        deadline_ratio: per_offered(count(tally, Outcome::Deadline)),
    }
}

const fn count(tally: &ClassTally, outcome: Outcome) -> u64 {
    tally.outcomes[outcome as usize]
}

pub(super) fn goodput(tally: &ClassTally) -> Option<f64> {
    let stayed = tally.offered.saturating_sub(tally.departed_before_objective);
    ratio(tally.within_objective as f64, stayed as f64)
}

pub(super) fn omission(tally: &ClassTally) -> Option<f64> {
    ratio(count(tally, Outcome::OkDegraded) as f64, tally.correct() as f64)
}

/// The median of the runs.
pub(crate) fn recoveries(peaks: &[Vec<Second>], after: &[Vec<Second>]) -> RecoveryTime {
    of_runs(&each(peaks, after))
}

/// Every run's own time, in seconds.
pub(crate) fn recoveries_of(peaks: &[Vec<Second>], after: &[Vec<Second>]) -> Vec<Option<f64>> {
    each(peaks, after).iter().map(|run| run.s).collect()
}

/// Each run against the windows of its own peak.
fn each(peaks: &[Vec<Second>], recoveries: &[Vec<Second>]) -> Vec<recovery::Recovery> {
    let points = |seconds: &[Second]| seconds.iter().map(point).collect::<Vec<_>>();
    peaks
        .iter()
        .zip(recoveries)
        .map(|(peak, after)| {
            let bounds = recovery::bounds(&points(peak));
            bounds.map_or_else(recovery::Recovery::default, |bounds| recovery::judge(&points(after), &bounds))
        })
        .collect()
}

fn of_runs(runs: &[recovery::Recovery]) -> RecoveryTime {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len().checked_sub(1)? / 2).copied()
    };
    let whole: Option<Vec<f64>> = runs.iter().map(|run| run.s).collect();
    match whole {
        Some(whole) => RecoveryTime {
            longest_s: whole.iter().copied().reduce(f64::max),
            s: middle(whole),
            at_least_s: None,
        },
        // A run that was not over took at least as long as was watched; one of which nothing is known says nothing.
        None => {
            let least: Option<Vec<f64>> = runs.iter().map(|run| run.s.or(run.at_least_s)).collect();
            RecoveryTime { s: None, at_least_s: least.and_then(middle), longest_s: None }
        }
    }
}

/// A second as the live rule of recovery knows it.
pub(crate) fn point(second: &Second) -> TimelinePoint {
    let [endpoint, profile] = second.occupancy;
    TimelinePoint {
        offered: second.offered,
        good: second.good,
        departed: second.departed,
        queue_age_ms: second.queue_age_ms,
        occupancy_endpoint: Some(endpoint),
        occupancy_profile: Some(profile),
        profile_calls_per_s: Some(second.profile_calls as f64),
        ..TimelinePoint::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measure::recovery::Recovery;

    #[test]
    fn recovery_of_several_runs_is_their_median_and_no_more_than_is_known() {
        let took = |s| Recovery { s: Some(s), at_least_s: None };
        let beyond = |s| Recovery { s: None, at_least_s: Some(s) };
        let time = of_runs(&[took(9.0), took(1.0), took(4.0)]);
        assert_eq!((time.s, time.longest_s, time.at_least_s), (Some(4.0), Some(9.0), None));
        let time = of_runs(&[took(9.0), beyond(60.0), took(4.0)]);
        assert_eq!((time.s, time.longest_s, time.at_least_s), (None, None, Some(9.0)));
        assert_eq!(of_runs(&[took(9.0), Recovery::default()]), RecoveryTime::default());
        assert_eq!(of_runs(&[]), RecoveryTime::default());
    }

    #[test]
    fn the_longest_wait_is_wherever_it_is_and_unknown_when_one_is() {
        let waits = Waits {
            endpoint_p99: Some(1.0),
            connection_p99: Some(2.0),
            store_mean: Some(7.0),
            slot_held_mean: Some(90.0),
        };
        assert_eq!(waits.longest(), Some(7.0));
        assert_eq!(Waits { connection_p99: None, ..waits }.longest(), None);
    }

    proptest! {
        #[test]
        fn a_second_is_judged_as_it_was(offered in 0_u64..9_000, good in 0_u64..9_000, calls in 0_u64..9_000) {
            let second = Second {
                offered, good, profile_calls: calls, occupancy: [0.5, 0.25], queue_age_ms: Some(3.0),
                ..Second::default()
            };
            let point = point(&second);
            prop_assert_eq!((point.offered, point.good, point.queue_age_ms), (offered, good, Some(3.0)));
            prop_assert_eq!(point.profile_calls_per_s, Some(calls as f64));
            prop_assert_eq!((point.occupancy_endpoint, point.occupancy_profile), (Some(0.5), Some(0.25)));
        }
    }
}
