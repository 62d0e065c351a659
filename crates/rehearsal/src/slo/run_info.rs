//! Run info: `run.json`: what depends on the machine and the hour, and is therefore not in the report.

use std::{collections::BTreeMap, num::NonZero, path::Path};

use base::Nanos;
use load::{LatencyMs, Plan, Priority};
use serde::Serialize;

use crate::{
    measure::{Driven, Snapshot},
    report::ratio,
    revision,
    suite::Member,
    usage::{self, Machine, Usage},
};

/// Schema of [`RunInfo`].
const SCHEMA: &str = "mercury.run/v1";

/// How a rehearsal ran.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// `mercury.run/v1`.
    pub schema: &'static str,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// How long it took in all.
    pub wall_s: f64,
    /// The machine.
    pub machine: Machine,
    /// Version of the binary.
    pub version: &'static str,
    /// Git revision of the working tree, when there is one.
    pub git_revision: Option<String>,
    /// Each suite that was started, in order.
    pub runs: Vec<SuiteRun>,
    /// How fast a simulation was; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<SimulationRun>,
}

/// How fast a simulation was.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SimulationRun {
    /// Operations that were simulated, warm-ups included.
    pub requests: u64,
    /// How long it took.
    pub wall_s: f64,
    /// Runs that went on at once.
    pub threads: usize,
    /// Operations a second on each of them.
    pub requests_per_s_and_thread: f64,
    /// Most resident memory of the process, where the system tells.
    pub memory_peak_mib: Option<f64>,
}

impl SimulationRun {
    /// Of a simulation that has just ended.
    pub(crate) fn of(requests: u64, took: Nanos, threads: Option<NonZero<usize>>) -> Self {
        let threads = threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
        let wall_s = took.as_secs_f64();
        Self {
            requests,
            wall_s,
            threads,
            requests_per_s_and_thread: ratio(requests as f64 / threads as f64, wall_s).unwrap_or_default(),
            memory_peak_mib: usage::read(std::process::id())
                .ok()
                .map(|own| own.rss_peak_bytes as f64 / f64::from(1 << 20)),
        }
    }
}

/// One suite and what was driven through it.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteRun {
    /// Its name on the screen.
    pub name: String,
    /// The policy that it was given.
    pub policy: String,
    /// Seed of arrivals, data and draws.
    pub seed: u64,
    /// How long it took, start and end included.
    pub wall_s: f64,
    /// From the first process to the last readiness.
    pub suite_start_ms: f64,
    /// The generator's threads and clock.
    pub generator: GeneratorInfo,
    /// Each stage.
    pub stages: Vec<StageInfo>,
    /// Most calls in service at once, by emulated dependency.
    pub emulator: BTreeMap<String, Servers>,
    /// How each member ended when it was stopped.
    pub stopped: BTreeMap<String, String>,
}

/// The generator's threads and clock.
#[derive(Clone, Debug, Serialize)]
pub struct GeneratorInfo {
    /// Priority of the schedule's thread.
    pub schedule_priority: Priority,
    /// Priority of the sending thread.
    pub sender_priority: Priority,
    /// Wake-up of the schedule's thread minus intended start.
    pub schedule_error_ms: LatencyMs,
    /// Hand-over to the connection minus intended start, as the wall clock saw it.
    pub clock_error_ms: LatencyMs,
    /// Connections to home-api.
    pub connections: usize,
    /// Connections that were lost.
    pub connections_lost: u64,
    /// Most operations in flight at once.
    pub in_flight_peak: usize,
    /// The bound on them.
    pub in_flight_max: usize,
}

/// One stage.
#[derive(Clone, Debug, Serialize)]
pub struct StageInfo {
    /// Its name.
    pub name: String,
    /// Wall time between the readings at its ends.
    pub wall_s: f64,
    /// Operations offered per second of wall time.
    pub offered_per_s: Option<f64>,
    /// Correct answers per second of wall time.
    pub correct_per_s: Option<f64>,
    /// CPU of the suite, the emulator and the generator over wall time and cores.
    pub cpu_ratio: Option<f64>,
    /// CPU of all of them per operation offered.
    pub cpu_ms_per_operation: Option<f64>,
    /// Each process, this one as `generator`.
    pub processes: BTreeMap<String, ProcessInfo>,
}

/// One process in one stage.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProcessInfo {
    /// CPU over the wall time of one core.
    pub cpu_core_ratio: Option<f64>,
    /// Resident memory at the end of the stage.
    pub rss_mib: f64,
    /// Most resident memory since the process began.
    pub rss_peak_mib: f64,
    /// Late operations during the stage; null when the process has no such series.
    pub late_operations: Option<f64>,
}

/// Use of the servers of a dependency.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Servers {
    /// Most calls in service at once.
    pub peak_in_service: u32,
    /// Calls that can be served at once.
    pub servers: u32,
}

impl RunInfo {
    pub(crate) fn new(started_unix_ms: i64, wall: Nanos, runs: Vec<SuiteRun>) -> Self {
        Self {
            schema: SCHEMA,
            started_unix_ms,
            wall_s: wall.as_secs_f64(),
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            git_revision: revision::of(Path::new(".")),
            runs,
            simulation: None,
        }
    }

    /// Most resident memory of each process over all runs, in MiB.
    pub fn rss_peaks(&self) -> BTreeMap<&str, f64> {
        let mut peaks: BTreeMap<&str, f64> = BTreeMap::new();
        let stages = self.runs.iter().flat_map(|run| &run.stages);
        for (name, process) in stages.flat_map(|stage| &stage.processes) {
            let peak = peaks.entry(name).or_default();
            *peak = peak.max(process.rss_peak_mib);
        }
        peaks
    }
}

impl SuiteRun {
    pub(crate) fn of(name: &str, policy: &str, plan: &Plan, driven: &Driven, wall: Nanos) -> Self {
        let generator = &driven.load.generator;
        let cores = Machine::this().cores;
        let windows = driven.snapshots.windows(2).zip(&driven.load.stages);
        let stages = windows.map(|(ends, stage)| StageInfo::of(stage, &ends[0], &ends[1], cores));
        let stopped = driven.stopped.iter().map(|one| {
            let forced = if one.forced { ", after its drain bound" } else { "" };
            (one.member.to_string(), format!("{}{forced}", one.ended))
        });
        Self {
            name: name.to_owned(),
            policy: policy.to_owned(),
            seed: plan.seed,
            wall_s: wall.as_secs_f64(),
            suite_start_ms: driven.start_took.as_millis_f64(),
            generator: GeneratorInfo {
                schedule_priority: generator.schedule_priority,
                sender_priority: generator.sender_priority,
                schedule_error_ms: generator.schedule_error_wall_ms,
                clock_error_ms: generator.clock_error_wall_ms,
                connections: plan.connections,
                connections_lost: generator.connections_lost,
                in_flight_peak: generator.in_flight_peak,
                in_flight_max: generator.in_flight_max,
            },
            stages: stages.collect(),
            emulator: driven
                .emulator_peaks()
                .into_iter()
                .map(|(name, (peak_in_service, servers))| (name, Servers { peak_in_service, servers }))
                .collect(),
            stopped: stopped.collect(),
        }
    }
}

impl StageInfo {
    fn of(stage: &load::report::Stage, before: &Snapshot, after: &Snapshot, cores: usize) -> Self {
        let wall = after.at - before.at;
        let wall_s = wall.as_secs_f64();
        let members = after.usage.iter().map(|(member, now)| {
            let late = before.late.get(member).zip(after.late.get(member));
            let late = late.and_then(|(then, now)| Some(now.operations()? - then.operations()?));
            (member.to_string(), before.usage.get(member).copied(), *now, late)
        });
        let own = after.own.map(|now| ("generator".to_owned(), before.own, now, None));
        let used: Vec<_> = members.chain(own).collect();
        let cpu = |then: &Option<Usage>, now: &Usage| then.map(|then| now.cpu - then.cpu);
        let whole: Option<Nanos> = (used.len() == Member::all().count() + 1)
            .then(|| used.iter().try_fold(Nanos::ZERO, |sum, (_, then, now, _)| Some(sum + cpu(then, now)?)))
            .flatten();
        let offered = stage.all.scheduled as f64;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let processes = used.iter().map(|(name, then, now, late)| {
            let info = ProcessInfo {
                cpu_core_ratio: cpu(then, now).and_then(|cpu| ratio(cpu.as_secs_f64(), wall_s)),
                rss_mib: mib(now.rss_bytes),
                rss_peak_mib: mib(now.rss_peak_bytes),
                late_operations: *late,
            };
            (name.clone(), info)
        });
        Self {
            name: stage.name.clone(),
            wall_s,
            offered_per_s: ratio(offered, wall_s),
            correct_per_s: ratio(stage.all.completed.correct() as f64, wall_s),
            cpu_ratio: whole.and_then(|cpu| ratio(cpu.as_secs_f64(), wall_s * cores as f64)),
            cpu_ms_per_operation: whole.and_then(|cpu| ratio(cpu.as_millis_f64(), offered)),
            processes: processes.collect(),
        }
    }
}
