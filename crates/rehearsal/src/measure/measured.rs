//! Measured: one state of one policy in sums and observations. They are added to those of another run of the same state
//! before anything is divided: a figure of several runs is one of all their observations, never a mean of figures.

use std::collections::BTreeMap;

use base::Nanos;
use load::report::{Stage, TimelineSecond};

use super::{
    drive::Driven,
    reading::{Window, add},
    sampler::Samples,
    snapshot::Snapshot,
};
use crate::{
    report::{Arrivals, Bucket, CancelStop, Occupancy, QueueAge, Slow, State, TimelinePoint, ratio},
    scrape::{Histogram, Late},
    suite::Member,
    usage::Usage,
};

/// What the workload declares for a stage, by class.
pub(crate) type Declared = [u64; base::WorkloadClass::ALL.len()];

/// One state of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    stage: Stage,
    declared: Option<Declared>,
    starts_s: f64,
    dilate: f64,
    wall_s: f64,
    late: Late,
    window: Window,
    stops: Option<Histogram>,
    /// Calls that reached each emulated dependency.
    calls: BTreeMap<String, Option<f64>>,
    home_cpu: Option<Nanos>,
    services_cpu: Option<Nanos>,
    resident_peak: Option<u64>,
    /// One point a second of the first run.
    timeline: Vec<TimelinePoint>,
}

impl Driven {
    /// The measured stages, with what the workload declares for all stages.
    pub(crate) fn measured(&self, declared: &[Declared]) -> Vec<Measured> {
        let mut starts_s = 0.0;
        let stages = self.load.stages.iter().enumerate().map(|(at, stage)| {
            let began = starts_s;
            starts_s += stage.duration_s;
            (at, began, stage)
        });
        let measured = stages.filter(|(_, _, stage)| stage.measured);
        let measured = measured.map(|(at, began, stage)| {
            let ends = self.snapshots.get(at).zip(self.snapshots.get(at + 1));
            let declared = declared.get(at).copied();
            Measured::of(self, stage, declared, began, ends)
        });
        measured.collect()
    }
}

impl Measured {
    fn of(
        driven: &Driven,
        stage: &Stage,
        declared: Option<Declared>,
        starts_s: f64,
        ends: Option<(&Snapshot, &Snapshot)>,
    ) -> Self {
        let dilate = f64::from(driven.load.dilate.max(1));
        let timeline = timeline(&driven.load.timeline, &driven.samples, starts_s, stage.duration_s, dilate);
        let mut measured = Self {
            stage: stage.clone(),
            declared,
            starts_s,
            dilate,
            wall_s: 0.0,
            late: Late::default(),
            window: Window::default(),
            stops: None,
            calls: BTreeMap::new(),
            home_cpu: None,
            services_cpu: None,
            resident_peak: None,
            timeline,
        };
        // A stage that a stopped run did not reach has no ends.
        if let Some((before, after)) = ends {
            measured.read(&driven.samples, before, after);
        }
        measured
    }

    fn read(&mut self, samples: &Samples, before: &Snapshot, after: &Snapshot) {
        self.wall_s = (after.at - before.at).as_secs_f64();
        let late = |at: &Snapshot| at.late.get(&Member::HOME_API).copied();
        if let (Some(then), Some(now)) = (late(before), late(after)) {
            self.late = now.since(then);
        }
        if let (Some(then), Some(now)) = (&before.home, &after.home) {
            self.window = now.since(then, self.wall_s);
        }
        self.stops = stops(before, after);
        if let (Some(then), Some(now)) = (&before.emulator, &after.emulator) {
            let grown = |name: &String, calls: &u64| Some(calls.checked_sub(*then.calls.get(name)?)? as f64);
            let calls = now.calls.iter().map(|(name, calls)| (name.clone(), grown(name, calls)));
            self.calls = calls.collect();
        }
        self.home_cpu = cpu(before, after, |member| member == Member::HOME_API);
        self.services_cpu = cpu(before, after, |member| member != Member::Emulator);
        self.resident_peak = samples.resident_peak(before.at, after.at);
    }

    /// The name of the state.
    pub(crate) fn name(&self) -> &str {
        &self.stage.name
    }

    /// Both runs as one. The timeline stays that of the first.
    pub(crate) fn with(self, other: &Self) -> Self {
        let nanos = |one: Option<Nanos>, two: Option<Nanos>| Some(one? + two?);
        let calls = self.calls.into_iter().map(|(name, calls)| {
            let more = other.calls.get(&name).copied().flatten();
            (name, add(calls, more))
        });
        Self {
            stage: self.stage.merged(&other.stage),
            declared: self.declared.zip(other.declared).map(|(mut sum, more)| {
                sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                sum
            }),
            wall_s: self.wall_s + other.wall_s,
            late: self.late.with(other.late),
            window: self.window.with(&other.window),
            stops: self.stops.zip(other.stops.as_ref()).and_then(|(one, two)| one.with(two)),
            calls: calls.collect(),
            home_cpu: nanos(self.home_cpu, other.home_cpu),
            services_cpu: nanos(self.services_cpu, other.services_cpu),
            resident_peak: self.resident_peak.max(other.resident_peak),
            ..self
        }
    }

    /// The figures.
    pub(crate) fn state(&self, policy: &str) -> State {
        let all = &self.stage.all;
        let (offered, correct) = (all.scheduled as f64, all.completed.correct());
        let over = |part: Option<f64>, whole: f64| part.and_then(|part| ratio(part, whole));
        let per_response =
            |cpu: Option<Nanos>| over(cpu.map(Nanos::as_millis_f64), all.completed.correct() as f64);
        let Window { endpoint, profile, profile_calls, .. } = &self.window;
        let mut state = State::of_stage(policy, &self.stage);
        for (class, declared) in base::WorkloadClass::ALL.iter().zip(self.declared.into_iter().flatten()) {
            if let Some(class) = state.classes.get_mut(class.as_str()) {
                class.declared = Some(declared);
            }
        }
        State {
            starts_s: self.starts_s,
            histogram: buckets(&all.latencies),
            beyond_objective_ratio: ratio((correct - all.within_objective) as f64, correct as f64),
            late_work: self.late.figures(offered, self.wall_s, self.dilate),
            occupancy_ratio: Occupancy { endpoint: endpoint.occupancy(), profile: profile.occupancy() },
            admitted_occupancy_ratio: Occupancy {
                endpoint: endpoint.admitted_occupancy(),
                profile: profile.admitted_occupancy(),
            },
            queue_age_ms: QueueAge {
                p99: self.window.queue_age_p99_ms(self.dilate),
                endpoint_p99: endpoint.queue_age_p99_ms(self.dilate),
                profile_p99: profile.queue_age_p99_ms(self.dilate),
            },
            cancel_stop_ms: cancel_stop(self.stops.as_ref()),
            intended_stop_ratio: self.window.intended_stops(),
            slow: Slow::from(all.slow_ms),
            arrivals: Arrivals {
                declared: self.declared.map(|classes| classes.iter().sum()),
                ..state.arrivals
            },
            profile_calls_per_operation: over(*profile_calls, offered),
            dependency_calls_per_operation: self
                .calls
                .iter()
                .map(|(name, calls)| (name.clone(), over(*calls, offered)))
                .collect(),
            cpu_ms_per_core_response: per_response(self.home_cpu),
            suite_cpu_ms_per_core_response: per_response(self.services_cpu),
            memory_peak_mib: self.resident_peak.map(|bytes| bytes as f64 / f64::from(1 << 20)),
            timeline: self.timeline.clone(),
            ..state
        }
    }
}

/// Lateness of the emulator's own timers over the whole run, in model time, which the objective is in.
pub(crate) fn timer_lateness_ms(driven: &Driven) -> Option<f64> {
    let wall = driven.snapshots.last()?.emulator.as_ref()?.timer_p99_ms?;
    Some(wall / f64::from(driven.load.dilate.max(1)))
}

/// Stop delays of all members in a window; of a member that was not read at both ends nothing is known, and nothing of
/// all of them then.
fn stops(before: &Snapshot, after: &Snapshot) -> Option<Histogram> {
    let windows = after.stops.iter().map(|(member, now)| now.since(before.stops.get(member)?));
    let mut windows = windows.collect::<Option<Vec<_>>>()?.into_iter();
    let first = windows.next()?;
    windows.try_fold(first, |sum, window| sum.with(&window))
}

fn cancel_stop(stops: Option<&Histogram>) -> CancelStop {
    let quantile = |q: f64| Some(stops?.quantile(q)? * 1e3);
    let n = stops.map_or(0.0, Histogram::count);
    CancelStop { n: n as u64, p50: quantile(0.5), p99: quantile(0.99) }
}

/// CPU of the chosen members in a window.
fn cpu(before: &Snapshot, after: &Snapshot, chosen: impl Fn(Member) -> bool) -> Option<Nanos> {
    let mut members = Member::all().filter(|member| chosen(*member));
    members.try_fold(Nanos::ZERO, |sum, member| {
        let (then, now): (&Usage, &Usage) = (before.usage.get(&member)?, after.usage.get(&member)?);
        Some(sum + (now.cpu - then.cpu))
    })
}

/// The distribution as the report shows it.
fn buckets(latencies: &load::Latencies) -> Vec<Bucket> {
    latencies.buckets().into_iter().map(|(le_ms, count)| Bucket { le_ms, count }).collect()
}

/// The whole seconds of a state, the generator's account beside what was read.
fn timeline(
    seconds: &[TimelineSecond],
    samples: &Samples,
    starts_s: f64,
    duration_s: f64,
    dilate: f64,
) -> Vec<TimelinePoint> {
    let first = starts_s.ceil() as usize;
    let end = (starts_s + duration_s).floor() as usize;
    let point = |at: usize| {
        let mut point = TimelinePoint { at_s: at as f64, ..TimelinePoint::default() };
        // A second in which nobody arrived has no entry.
        if let Some(second) = seconds.get(at) {
            point.offered = second.offered;
            point.good = u64::from(second.good);
            point.departed = u64::from(second.departed_before_objective);
            point.p50_ms = second.p50_ms;
            point.p99_ms = second.p99_ms;
            point.omitted = second.omitted.iter().map(|(cause, n)| (*cause, u64::from(*n))).collect();
        }
        if let Some((before, after)) = samples.at(at).zip(samples.at(at + 1)) {
            let wall_s = (after.at - before.at).as_secs_f64();
            let window = after.home.since(&before.home, wall_s);
            point.queue_age_ms = window.queue_age_p99_ms(dilate);
            point.occupancy_endpoint = window.endpoint.occupancy();
            point.occupancy_profile = window.profile.occupancy();
            let calls =
                before.profile_calls.zip(after.profile_calls).and_then(|(then, now)| now.checked_sub(then));
            point.profile_calls_per_s = calls.and_then(|calls| ratio(calls as f64 * dilate, wall_s));
        }
        point
    };
    (first..end).map(point).collect()
}

impl From<load::SlowMs> for Slow {
    fn from(slow: load::SlowMs) -> Self {
        Self {
            n: slow.n,
            latency_ms: slow.latency,
            executor_wait_ms: slow.executor_wait,
            pool_wait_ms: slow.pool_wait,
            service_before_fanout_ms: slow.service_before_fanout,
            fanout_ms: slow.fanout,
        }
    }
}

#[cfg(test)]
mod tests {
    use load::report::Figures;

    use super::*;
    use crate::{measure::sampler::Sample, scrape::Scrape};

    fn sample(at_s: u64, held: f64, profile_calls: Option<u64>) -> Option<Sample> {
        let text = format!(
            "mercury_home_permit_seconds_total{{gate=\"endpoint\"}} {held}\nmercury_home_slots{{gate=\"endpoint\"}} 10\n"
        );
        let home = super::super::reading::Reading::of(&Scrape::new(text));
        Some(Sample { at: Nanos::from_secs(at_s), home, profile_calls })
    }

    fn second(at_s: u64, offered: u64, good: u32) -> TimelineSecond {
        TimelineSecond {
            at_s,
            offered,
            ok: good,
            ok_degraded: 0,
            failed: 0,
            departed: 3,
            good,
            departed_before_objective: 2,
            p50_ms: Some(80.0),
            p99_ms: Some(200.0),
            omitted: BTreeMap::from([("omitted_timeout", 1)]),
        }
    }

    #[test]
    fn a_second_has_both_accounts_and_what_was_not_read_is_null() {
        // Twice as slow as declared: a second of the model is two of the wall.
        let samples = Samples {
            seconds: vec![
                sample(0, 0.0, Some(0)),
                sample(2, 10.0, Some(100)),
                None,
                sample(6, 30.0, Some(200)),
                sample(8, 40.0, None),
            ],
            resident: Vec::new(),
        };
        let seconds: Vec<TimelineSecond> = (0..3).map(|at| second(at, 50, 40)).collect();
        let points = timeline(&seconds, &samples, 0.0, 4.0, 2.0);
        let read: Vec<_> =
            points.iter().map(|point| (point.occupancy_endpoint, point.profile_calls_per_s)).collect();
        assert_eq!(read, [(Some(0.5), Some(100.0)), (None, None), (None, None), (Some(0.5), None)]);
        assert_eq!((points[0].offered, points[0].good, points[0].departed), (50, 40, 2));
        assert_eq!(points[0].omitted["omitted_timeout"], 1);
        assert_eq!((points[3].offered, points[3].p99_ms, points[3].at_s), (0, None, 3.0), "nobody arrived");
        assert_eq!(timeline(&seconds, &samples, 0.5, 2.0, 2.0).len(), 1, "whole seconds of the state alone");
        assert!(timeline(&seconds, &samples, 0.0, 0.5, 2.0).is_empty());
    }

    fn measured(millis: u64, wall_s: f64, cpu_ms: Option<u64>) -> Measured {
        let mut all = Figures { scheduled: 100, ..Figures::default() };
        all.completed.total = 100;
        all.completed.ok = 100;
        all.within_objective = if millis <= 300 { 100 } else { 0 };
        (0..100).for_each(|_| all.latencies.record(Nanos::from_millis(millis)));
        // Merging makes everything that follows from the counts.
        let all = all.merged(&Figures::default());
        let stage =
            Stage { name: "peak".to_owned(), measured: true, duration_s: 2.0, all, classes: BTreeMap::new() };
        Measured {
            stage,
            declared: Some([72, 23, 5]),
            starts_s: 3.0,
            dilate: 1.0,
            wall_s,
            late: Late::default(),
            window: Window::default(),
            stops: None,
            calls: BTreeMap::from([("pricing".to_owned(), Some(90.0)), ("profile".to_owned(), None)]),
            home_cpu: cpu_ms.map(Nanos::from_millis),
            services_cpu: None,
            resident_peak: Some(10 << 20),
            timeline: Vec::new(),
        }
    }

    #[test]
    fn two_runs_are_all_their_observations_and_what_one_does_not_know_is_not_known() {
        let state = measured(80, 2.0, Some(100)).with(&measured(500, 2.0, Some(300))).state("policy");
        assert_eq!((state.arrivals.scheduled, state.arrivals.declared), (200, Some(200)));
        assert_eq!((state.duration_s, state.starts_s), (4.0, 3.0));
        assert_eq!(state.beyond_objective_ratio, Some(0.5));
        assert!(state.latency_ms.p99.expect("observed") >= 500.0, "no mean of 80 and 500");
        assert_eq!(state.histogram.iter().map(|bucket| bucket.count).sum::<u64>(), 200);
        assert_eq!(state.cpu_ms_per_core_response, Some(2.0));
        assert_eq!(state.memory_peak_mib, Some(10.0));
        assert_eq!(state.dependency_calls_per_operation["pricing"], Some(0.9));
        assert_eq!(state.dependency_calls_per_operation["profile"], None);
        let half = measured(80, 2.0, Some(100)).with(&measured(80, 2.0, None)).state("policy");
        assert_eq!(half.cpu_ms_per_core_response, None);
    }
}
