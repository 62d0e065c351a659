//! Tally: what is counted while a run goes on, per stage and class, and the balance that it must keep:
//! scheduled = completed by outcome + unsent + in flight.

use std::collections::BTreeMap;

use base::{Nanos, WorkloadClass};
use http::HeaderValue;
use wire::home::v2::Marker;

use crate::{
    check::{Finding, Markers, is_omission},
    latency::Latencies,
    outcome::{Failure, Outcome},
    report::MismatchSample,
    slow::Slowest,
};

/// Answers faster than the objective over this are not looked at for where they spent their time.
const SLOW_FROM: u64 = 3;

/// Most mismatches that are kept as samples.
pub(crate) const MISMATCH_SAMPLES_MAX: usize = 10;
const CLASSES: usize = WorkloadClass::ALL.len();
/// Markers by number, the causes of omission among them.
pub(crate) const MARKERS: usize = 8;

/// Where an operation belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stage: usize,
    pub(crate) class: WorkloadClass,
    /// Second of the schedule, in model time.
    pub(crate) second: usize,
}

/// An operation that ended, in model time.
pub(crate) struct Ended {
    pub(crate) place: Place,
    pub(crate) outcome: Outcome,
    pub(crate) failure: Option<Failure>,
    /// From the intended start to the end.
    pub(crate) latency: Nanos,
    pub(crate) attempts: u32,
    pub(crate) markers: Option<Markers>,
    pub(crate) finding: Option<(String, Finding)>,
    /// The `server-timing` of a correct answer.
    pub(crate) timing: Option<HeaderValue>,
    /// The size of a correct answer's message.
    pub(crate) bytes: usize,
}

/// Counts of one class in one stage.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassTally {
    pub(crate) scheduled: u64,
    pub(crate) unsent_channel: u64,
    pub(crate) unsent_in_flight: u64,
    /// Sent and not ended.
    pub(crate) in_flight: u64,
    pub(crate) completed: [u64; Outcome::ALL.len()],
    pub(crate) attempts: u64,
    pub(crate) departed_before_objective: u64,
    pub(crate) within_objective: u64,
    /// Of the messages of correct answers.
    pub(crate) bytes: u64,
    pub(crate) core_mismatch: u64,
    pub(crate) failures: BTreeMap<Failure, u64>,
    /// By marker number.
    pub(crate) recommendations: [u64; MARKERS],
    pub(crate) reputation: [u64; MARKERS],
    /// Made at the first success of a measured stage.
    pub(crate) latency: Option<Latencies>,
    /// Of measured stages.
    pub(crate) slowest: Slowest,
}

impl ClassTally {
    /// Operations that were sent and ended.
    pub(crate) fn ended(&self) -> u64 {
        self.completed.iter().sum()
    }

    /// Operations that were never sent.
    pub(crate) const fn unsent(&self) -> u64 {
        self.unsent_channel + self.unsent_in_flight
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.scheduled += other.scheduled;
        self.unsent_channel += other.unsent_channel;
        self.unsent_in_flight += other.unsent_in_flight;
        self.in_flight += other.in_flight;
        self.attempts += other.attempts;
        self.departed_before_objective += other.departed_before_objective;
        self.within_objective += other.within_objective;
        self.bytes += other.bytes;
        self.core_mismatch += other.core_mismatch;
        add(&mut self.completed, &other.completed);
        add(&mut self.recommendations, &other.recommendations);
        add(&mut self.reputation, &other.reputation);
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        if let Some(latency) = &other.latency {
            self.latency.get_or_insert_default().merge(latency);
        }
        self.slowest.merge(&other.slowest);
    }

    fn end(&mut self, ended: &Ended, objective: Nanos, measured: bool, dilate: u32) {
        self.in_flight -= 1;
        self.completed[ended.outcome.index()] += 1;
        self.attempts += u64::from(ended.attempts);
        if let Some(failure) = ended.failure {
            *self.failures.entry(failure).or_default() += 1;
        }
        if ended.finding.is_some() {
            self.core_mismatch += 1;
        }
        if ended.outcome == Outcome::Departed && ended.latency < objective {
            self.departed_before_objective += 1;
        }
        if ended.outcome.is_success() {
            self.within_objective += u64::from(ended.latency <= objective);
            self.bytes += ended.bytes as u64;
            if measured {
                self.latency.get_or_insert_default().record(ended.latency);
                if ended.latency.get() >= objective.get() / SLOW_FROM {
                    self.slowest.offer(ended.latency, ended.timing.as_ref(), dilate);
                }
            }
        }
        if let Some(markers) = ended.markers {
            self.recommendations[markers.recommendations as usize] += 1;
            self.reputation[markers.reputation as usize] += 1;
        }
    }
}

fn add<const N: usize>(into: &mut [u64; N], from: &[u64; N]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into += from;
    }
}

/// All counts of a run, as the sending thread keeps them.
pub(crate) struct Tally {
    objective: Nanos,
    dilate: u32,
    measured: Vec<bool>,
    pub(crate) stages: Vec<[ClassTally; CLASSES]>,
    pub(crate) timeline: Timeline,
    /// Hand-over to the connection minus intended start, measured stages only, in model time.
    pub(crate) clock_error: Latencies,
    /// The same, undilated.
    pub(crate) clock_error_wall: Latencies,
    pub(crate) samples: Vec<MismatchSample>,
    pub(crate) in_flight_peak: usize,
}

impl Tally {
    pub(crate) fn new(measured: Vec<bool>, objective: Nanos, dilate: u32) -> Self {
        Self {
            objective,
            dilate,
            stages: measured.iter().map(|_| <[ClassTally; CLASSES]>::default()).collect(),
            measured,
            timeline: Timeline::default(),
            clock_error: Latencies::default(),
            clock_error_wall: Latencies::default(),
            samples: Vec::new(),
            in_flight_peak: 0,
        }
    }

    /// An operation was taken off the schedule and is about to be sent.
    pub(crate) fn begin(&mut self, place: Place) {
        self.stages[place.stage][place.class.index()].in_flight += 1;
        self.timeline.begin(place.second);
    }

    /// An operation was not sent, since too many were in flight.
    pub(crate) fn unsent(&mut self, place: Place) {
        self.stages[place.stage][place.class.index()].unsent_in_flight += 1;
    }

    /// An operation was handed to a connection, `error` (wall time) after its intended start.
    pub(crate) fn handed(&mut self, place: Place, error: Nanos) {
        if self.measured[place.stage] {
            self.clock_error.record(Nanos::new(error.get() / u64::from(self.dilate)));
            self.clock_error_wall.record(error);
        }
    }

    /// An operation ended.
    pub(crate) fn end(&mut self, ended: Ended) {
        let Place { stage, class, .. } = ended.place;
        self.stages[stage][class.index()].end(&ended, self.objective, self.measured[stage], self.dilate);
        self.timeline.end(&ended, self.objective);
        if let Some((request_id, found)) = ended.finding
            && self.samples.len() < MISMATCH_SAMPLES_MAX
        {
            let Finding { violation, detail } = found;
            self.samples.push(MismatchSample { request_id, violation, detail });
        }
    }
}

/// One second of the schedule. Its latencies are kept only until every operation of it has ended.
#[derive(Debug, Default)]
pub(crate) struct Second {
    pub(crate) outstanding: u32,
    pub(crate) sent: u32,
    pub(crate) ok: u32,
    pub(crate) ok_degraded: u32,
    pub(crate) failed: u32,
    pub(crate) departed: u32,
    /// Correct within the objective.
    pub(crate) good: u32,
    pub(crate) departed_before_objective: u32,
    pub(crate) omitted: [u32; MARKERS],
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    micros: Vec<u32>,
}

/// The run by second of intended start.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    seconds: Vec<Second>,
    /// All before it are settled.
    open: usize,
}

impl Timeline {
    fn begin(&mut self, second: usize) {
        if self.seconds.len() <= second {
            self.seconds.resize_with(second + 1, Second::default);
        }
        self.seconds[second].outstanding += 1;
        self.seconds[second].sent += 1;
        self.settle(second);
    }

    fn end(&mut self, ended: &Ended, objective: Nanos) {
        let second = &mut self.seconds[ended.place.second];
        second.outstanding -= 1;
        match ended.outcome {
            Outcome::Ok => second.ok += 1,
            Outcome::OkDegraded => second.ok_degraded += 1,
            Outcome::Departed => {
                second.departed += 1;
                second.departed_before_objective += u32::from(ended.latency < objective);
            }
            _ => second.failed += 1,
        }
        if ended.outcome.is_success() {
            second.good += u32::from(ended.latency <= objective);
            second.micros.push(u32::try_from(ended.latency.as_micros()).unwrap_or(u32::MAX));
        }
        for marker in ended.markers.iter().flat_map(|both| [both.recommendations, both.reputation]) {
            second.omitted[marker as usize] += u32::from(is_omission(marker));
        }
    }

    /// Settles the seconds before `current` that have nothing outstanding, in order, so that observations are held for
    /// as long as the slowest operation lasts and no longer.
    fn settle(&mut self, current: usize) {
        while self.open < current && self.seconds[self.open].outstanding == 0 {
            settle(&mut self.seconds[self.open]);
            self.open += 1;
        }
    }

    /// The 99th percentile of the last settled second.
    pub(crate) fn recent_p99_ms(&self) -> Option<f64> {
        self.seconds.get(self.open.checked_sub(1)?)?.p99_ms
    }

    /// All seconds, settled whatever is outstanding.
    pub(crate) fn finish(mut self) -> Vec<Second> {
        self.seconds[self.open..].iter_mut().for_each(settle);
        self.seconds
    }
}

fn settle(second: &mut Second) {
    let mut micros = std::mem::take(&mut second.micros);
    second.p50_ms = crate::latency::quantile_ms(&mut micros, 0.5);
    second.p99_ms = crate::latency::quantile_ms(&mut micros, 0.99);
}

/// The name of an omission, as reports give it. `None` for markers that are none.
pub(crate) fn cause(marker: usize) -> Option<&'static str> {
    let marker = Marker::try_from(i32::try_from(marker).ok()?).ok()?;
    match marker {
        Marker::Unspecified | Marker::Present | Marker::Empty => None,
        Marker::OmittedDeadlineBudget => Some("omitted_deadline_budget"),
        Marker::OmittedTimeout => Some("omitted_timeout"),
        Marker::OmittedOverload => Some("omitted_overload"),
        Marker::OmittedDependencyError => Some("omitted_dependency_error"),
        Marker::OmittedDisabled => Some("omitted_disabled"),
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
