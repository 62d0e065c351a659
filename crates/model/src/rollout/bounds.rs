//! Bounds: what makes a step be reversed, by state, as keys of the file and as values that a judge goes through.

use std::ops::RangeInclusive;

use crate::read::Table;

/// The states that a phase is taken through; a canary only the first.
pub const STATES: [&str; 3] = ["peak", "slowdown", "recovery"];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// Median latency of correct answers, in milliseconds.
    P50,
    /// 99th percentile of the latency of correct answers, in milliseconds.
    P99,
    /// Core goodput, as a ratio.
    Goodput,
    /// Correct answers with something omitted, as a ratio.
    Omission,
    /// Rejected over offered.
    Rejection,
    /// 99th percentile of the age of the worse queue, in milliseconds.
    QueueAgeP99,
    /// Late operations over offered.
    LateWork,
    /// 99th percentile from cancellation to the end of the work, in milliseconds of wall time.
    StopDelayP99,
    /// Mean occupancy of the endpoint's pool.
    EndpointOccupancy,
    /// Mean occupancy of the profile client's pool.
    ProfileOccupancy,
    /// Upstream profile reads per operation offered.
    ProfileCalls,
    /// Time until everything is back inside its bounds, in seconds.
    Recovery,
    /// Pages that the deadline in shadow would have stopped and that went on, over offered.
    IntendedStops,
}

/// What a figure must keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this many percent above the same figure of the step before.
    RisePercent(f64),
    /// At most this many percentage points below the same figure of the step before.
    DropPoints(f64),
}

/// One bound of one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The key in the file, which is also its name in reports.
    pub key: &'static str,
    /// What is measured.
    pub figure: Figure,
    /// What it must keep to.
    pub against: Against,
}

/// All bounds of a step. Wrong answers and arrivals that do not balance breach always, and cannot be declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// By state, in the order of [`STATES`].
    pub states: [Vec<Bound>; 3],
    /// Permits and flights that may still be held when the run is over and nothing is in flight.
    pub permits_held_max: u32,
}

/// A key of the file.
struct Key {
    name: &'static str,
    figure: Figure,
    against: fn(f64) -> Against,
    range: RangeInclusive<f64>,
}

const fn key(
    name: &'static str,
    figure: Figure,
    against: fn(f64) -> Against,
    range: RangeInclusive<f64>,
) -> Key {
    Key { name, figure, against, range }
}

/// What a bound in milliseconds or seconds may be.
const SPAN: RangeInclusive<f64> = 0.1..=3_600_000.0;
const RATIO: RangeInclusive<f64> = 0.0..=1.0;
const PERCENT: RangeInclusive<f64> = 0.0..=1_000.0;

const KEYS: [Key; 17] = [
    key("p50_rise_max_percent", Figure::P50, Against::RisePercent, PERCENT),
    key("p99_rise_max_percent", Figure::P99, Against::RisePercent, PERCENT),
    key("p99_max_ms", Figure::P99, Against::AtMost, SPAN),
    key("goodput_drop_max_points", Figure::Goodput, Against::DropPoints, 0.0..=100.0),
    key("goodput_min_ratio", Figure::Goodput, Against::AtLeast, RATIO),
    key("omission_max_ratio", Figure::Omission, Against::AtMost, RATIO),
    key("rejection_max_ratio", Figure::Rejection, Against::AtMost, RATIO),
    key("queue_age_p99_max_ms", Figure::QueueAgeP99, Against::AtMost, SPAN),
    key("late_work_max_ratio", Figure::LateWork, Against::AtMost, RATIO),
    key("stop_delay_p99_max_ms", Figure::StopDelayP99, Against::AtMost, SPAN),
    key("endpoint_occupancy_max_ratio", Figure::EndpointOccupancy, Against::AtMost, RATIO),
    key("profile_occupancy_max_ratio", Figure::ProfileOccupancy, Against::AtMost, RATIO),
    key("profile_calls_min", Figure::ProfileCalls, Against::AtLeast, 0.0..=10.0),
    key("profile_calls_max", Figure::ProfileCalls, Against::AtMost, 0.0..=10.0),
    key("profile_calls_rise_max_percent", Figure::ProfileCalls, Against::RisePercent, PERCENT),
    key("recovery_max_s", Figure::Recovery, Against::AtMost, SPAN),
    key("intended_stops_max_ratio", Figure::IntendedStops, Against::AtMost, RATIO),
];

/// What one `[abort]` table says: a value for each key that is there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Read {
    states: [[Option<f64>; KEYS.len()]; 3],
    permits_held_max: Option<u64>,
}

/// A table that says nothing.
pub(super) const NONE: Read = Read { states: [[None; KEYS.len()]; 3], permits_held_max: None };

/// Reads an `[abort]` table; a canary has peak alone.
pub(super) fn read(table: &mut Table<'_>, all_states: bool) -> Option<Read> {
    let mut read = NONE;
    let permits_held_max = table.integer_or("permits_held_max", 0..=10_000, u64::MAX);
    let mut whole = true;
    for (at, state) in STATES.into_iter().enumerate().filter(|(at, _)| *at == 0 || all_states) {
        match table.section_opt(state, |table| values(table, state)) {
            Some(values) => read.states[at] = values.unwrap_or([None; KEYS.len()]),
            None => whole = false,
        }
    }
    read.permits_held_max = permits_held_max.filter(|permits| *permits != u64::MAX);
    (whole && permits_held_max.is_some()).then_some(read)
}

fn values(table: &mut Table<'_>, state: &str) -> Option<[Option<f64>; KEYS.len()]> {
    let mut values = [None; KEYS.len()];
    let mut whole = true;
    for (value, key) in values.iter_mut().zip(&KEYS) {
        // Only there is it measured.
        if key.figure == Figure::Recovery && state != "recovery" {
            continue;
        }
        match table.number_or(key.name, key.range.clone(), f64::NAN) {
            Some(number) => *value = (!number.is_nan()).then_some(number),
            None => whole = false,
        }
    }
    whole.then_some(values)
}

impl Read {
    /// The bounds that follow when `own` is asked first, and these where it is silent.
    pub(super) fn with(&self, own: &Self, canary: bool) -> Bounds {
        let mut bounds = Bounds::default();
        let permits = own.permits_held_max.or(self.permits_held_max).unwrap_or(0);
        bounds.permits_held_max = u32::try_from(permits).unwrap_or(u32::MAX);
        for (at, list) in bounds.states.iter_mut().enumerate().filter(|(at, _)| *at == 0 || !canary) {
            let values = own.states[at].iter().zip(&self.states[at]).map(|(own, common)| own.or(*common));
            *list = KEYS
                .iter()
                .zip(values)
                .filter_map(|(key, value)| {
                    Some(Bound { key: key.name, figure: key.figure, against: (key.against)(value?) })
                })
                .collect();
        }
        bounds
    }
}
