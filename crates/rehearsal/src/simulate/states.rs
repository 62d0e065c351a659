//! States: what a simulated state looks like in a report, in the same terms as a live one.

use std::collections::BTreeMap;

use base::{Dependency, WorkloadClass};
use model::policy::Boundary;
use simulation::{CAUSES, ClassTally, Outcome, SECTIONS, Window};

use crate::{
    measure::recovery,
    report::{
        Arrivals, Bucket, Class, LateWork, Occupancy, Quantiles, QueueAge, RecoveryBounds, State,
        TimelinePoint, ratio,
    },
    sweep::{At, Cell, point, recoveries},
};

/// Seconds of a timeline that are shown: those of the first run's beginning.
const TIMELINE_S_MAX: usize = 180;

/// The states of one policy.
pub(super) fn of(policy: &str, cells: &[Cell]) -> Vec<State> {
    let peak = cells.iter().find(|cell| cell.state == At::Peak);
    let states = cells.iter().map(|cell| {
        let mut state = state(policy, cell);
        if let (At::Recovery, Some(peak)) = (cell.state, peak) {
            let time = recoveries(&peak.timelines, &cell.timelines);
            (state.recovery_s, state.recovery_at_least_s) = (time.s, time.at_least_s);
            state.recovery_bounds = bounds(peak);
        }
        state
    });
    states.collect()
}

/// Those of the first run.
fn bounds(peak: &Cell) -> Option<RecoveryBounds> {
    let points: Vec<TimelinePoint> = peak.timelines.first()?.iter().map(point).collect();
    recovery::bounds(&points)
}

fn state(policy: &str, cell: &Cell) -> State {
    let window = &cell.window;
    let all = window.all();
    let offered = all.offered as f64;
    let count = |outcome: Outcome| all.outcomes[outcome as usize];
    let metered = &window.metered;
    let occupancy = |of: &dyn Fn(Boundary) -> f64| Occupancy {
        endpoint: Some(of(Boundary::Endpoint)),
        profile: Some(of(Boundary::Profile)),
    };
    let class = figures(&all, all.offered);
    State {
        policy: policy.to_owned(),
        state: cell.state.as_str().to_owned(),
        duration_s: window.seconds as f64,
        latency_ms: class.latency_ms,
        histogram: buckets(&all),
        core_goodput_ratio: class.core_goodput_ratio,
        omission_ratio: class.omission_ratio,
        rejection_ratio: class.rejection_ratio,
        beyond_objective_ratio: ratio((all.correct() - all.within_objective) as f64, all.correct() as f64),
        late_work: LateWork {
            ratio: ratio(metered.late as f64, offered),
            mean_ms: ratio(metered.late_time as f64 / 1e6, metered.late as f64),
            concurrent: ratio(metered.late_time as f64 / 1e9, window.seconds as f64),
        },
        occupancy_ratio: occupancy(&|boundary| window.occupancy(boundary)),
        admitted_occupancy_ratio: occupancy(&|boundary| window.admitted_occupancy(boundary)),
        queue_age_ms: QueueAge {
            p99: window.queue_age_p99_ms(),
            endpoint_p99: metered.ages[Boundary::Endpoint.index()].quantile_ms(0.99),
            profile_p99: metered.ages[Boundary::Profile.index()].quantile_ms(0.99),
        },
        arrivals: Arrivals {
            declared: None,
            scheduled: all.offered,
            completed: all.ended(),
            unsent: 0,
            in_flight: window.in_flight,
        },
        within_objective: all.within_objective,
        departed_before_objective: all.departed_before_objective,
        outcomes: Outcome::ALL.iter().map(|outcome| (outcome.as_str(), count(*outcome))).collect(),
        omissions: omissions(&all),
        departure_ratio: ratio(count(Outcome::Departed) as f64, offered),
        attempts_per_operation: ratio(all.attempts as f64, offered),
        profile_calls_per_operation: ratio(metered.calls[Dependency::Profile.index()] as f64, offered),
        dependency_calls_per_operation: Dependency::ALL
            .iter()
            .map(|name| (name.as_str().to_owned(), ratio(metered.calls[name.index()] as f64, offered)))
            .collect(),
        cpu_ms_per_core_response: (window.processors > 0)
            .then(|| ratio(metered.cpu as f64 / 1e6, all.correct() as f64))
            .flatten(),
        classes: WorkloadClass::ALL
            .iter()
            .map(|class| (class.as_str(), figures(&window.classes[class.index()], all.offered)))
            .collect(),
        timeline: timeline(cell),
        ..State::default()
    }
}

fn figures(tally: &ClassTally, offered: u64) -> Class {
    let stayed = tally.offered.saturating_sub(tally.departed_before_objective);
    let of_offered = |outcome: Outcome| ratio(tally.outcomes[outcome as usize] as f64, tally.offered as f64);
    Class {
        declared: None,
        scheduled: tally.offered,
        share: ratio(tally.offered as f64, offered as f64),
        latency_ms: Quantiles {
            n: tally.latency.len(),
            p50: tally.latency.quantile_ms(0.5),
            p99: tally.latency.quantile_ms(0.99),
            p999: tally.latency.quantile_ms(0.999),
        },
        core_goodput_ratio: ratio(tally.within_objective as f64, stayed as f64),
        omission_ratio: ratio(tally.outcomes[Outcome::OkDegraded as usize] as f64, tally.correct() as f64),
        rejection_ratio: of_offered(Outcome::Rejected),
    }
}

fn omissions(all: &ClassTally) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
    let causes = |counts: &[u64; CAUSES.len()]| {
        let counted = CAUSES.iter().copied().zip(counts.iter().copied());
        counted.filter(|(_, count)| *count > 0).collect()
    };
    SECTIONS.iter().zip(&all.omitted).map(|(section, counts)| (*section, causes(counts))).collect()
}

/// By the buckets of the live generator, without empty ones at the ends.
fn buckets(all: &ClassTally) -> Vec<Bucket> {
    let bounds = load::bucket_bounds_us();
    let counts = all.latency.buckets(&bounds);
    let filled = |count: &u64| *count > 0;
    let Some((first, last)) = counts.iter().position(filled).zip(counts.iter().rposition(filled)) else {
        return Vec::new();
    };
    let bucket = |(bound, count): (&u64, &u64)| Bucket { le_ms: *bound as f64 / 1e3, count: *count };
    bounds.iter().zip(&counts).map(bucket).take(last + 1).skip(first).collect()
}

fn timeline(cell: &Cell) -> Vec<TimelinePoint> {
    let first = cell.timelines.first().map_or(&[][..], Vec::as_slice);
    let points = first.iter().take(TIMELINE_S_MAX).enumerate();
    points.map(|(at, second)| TimelinePoint { at_s: at as f64, ..point(second) }).collect()
}

/// Whether a window was more than its system could carry.
pub(super) fn is_overloaded(window: &Window) -> bool {
    window.in_flight > 0 || Boundary::ALL.iter().any(|boundary| window.occupancy(*boundary) > 0.995)
}
