//! Profile: `mercury load --profile`, one way to put the suite under load, held to conditions that were set before.
//!
//! A profile ([`model::load_profile`]) has a suite of its own. The generator drives it phase by phase; faults and peers come with
//! their phases; every member is looked at once a second. A stop condition that is breached ends the run at once. Each
//! condition, of either kind, is a gate of the report.

mod bodies;
mod collector;
mod course;
mod deflate;
mod figures;
mod flood;
mod judge;
mod losses;
mod observed;
mod peer;
mod print;
mod readers;
mod reload;
mod retained;
mod section;
mod stopping;
mod watch;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
};

use base::{Clock, Nanos, Origin, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use load::{Plan, Rate, StagePlan};
use model::{load_profile::Profile, policy::Policy, workload::Workload};

use self::{
    collector::Collector,
    course::{Course, Ran},
    judge::Kept,
    losses::Losses,
    reload::{Ear, Edited},
    watch::HomeBounds,
};
use crate::{
    evidence, gates,
    report::{self, Generator, Report},
    screen::{Screen, clock},
    slo::{Conclusion, Output, RehearsalError, RunInfo},
    suite::{OnChildExit, SuiteOptions},
    up::Signals,
};

pub use self::{
    bodies::BodyCase,
    retained::Retained,
    section::{MemoryMib, PhaseReport, ProfileReport},
};

/// What the start and the end of a suite take beside its phases.
const SUITE: Nanos = Nanos::from_secs(2);
const MIB: f64 = (1 << 20) as f64;

/// What is run.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// The profile.
    pub profile: Profile,
    /// Whether its phases are the short ones.
    pub quick: bool,
    /// Seed of arrivals, data and draws.
    pub seed: u64,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
    /// Policy file; `None` is the shipped one.
    pub policy: Option<PathBuf>,
    /// The `mercury` binary; `None` is the one that runs.
    pub executable: Option<PathBuf>,
    /// Log filter of the members; `None` leaves it to the environment.
    pub log_filter: Option<String>,
}

impl ProfileOptions {
    /// A whole run of `profile` with seed 1 and the shipped policy.
    pub fn new(profile: Profile, out: impl Into<PathBuf>) -> Self {
        Self {
            profile,
            quick: false,
            seed: 1,
            out: out.into(),
            output: Output::Human,
            policy: None,
            executable: None,
            log_filter: None,
        }
    }

    /// How long the phases take.
    pub fn wall(&self) -> Nanos {
        self.profile.phases.iter().fold(SUITE, |sum, phase| sum + self.length(phase))
    }

    const fn length(&self, phase: &model::load_profile::Phase) -> Nanos {
        if self.quick { phase.quick } else { phase.duration }
    }
}

/// Runs a profile, writes `report.json`, `report.html` and `run.json`, prints the result to stdout and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn profile(options: ProfileOptions) -> Result<Conclusion, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let report = run(&options).await?;
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, Vec::new());
    evidence::write(&options.out, &report, &run)?;
    let text = match (options.output, &report.profile) {
        (Output::Human, Some(profile)) => print::render(&report, profile, &options.out),
        _ => evidence::json(&report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: report.verdict, why: print::why(&report) })
}

/// As [`profile()`], without writing or printing anything but a line beforehand.
async fn run(options: &ProfileOptions) -> Result<Report, RehearsalError> {
    let (name, text) = document(options)?;
    let policy = Policy::parse(&name, &text).map_err(|faults| RehearsalError::Files(vec![faults]))?;
    let mut plan = plan(options, &policy);
    let mut suite = suite(options);
    let edits = match options.profile.reload {
        Some(_) => {
            let directory = options.out.join("policies");
            let edited = Edited::prepare((name, text), policy.generation, &directory)?;
            suite.policy = Some(edited.file().to_owned());
            let ear = Arc::new(Ear::default());
            plan.observer = Some(Arc::clone(&ear) as Arc<dyn load::Observe>);
            Some((edited, ear))
        }
        None => None,
    };
    let losses = options.profile.stopping.filter(|_| edits.is_none()).map(|_| Arc::new(Losses::default()));
    if let Some(losses) = &losses {
        plan.observer = Some(Arc::clone(losses) as Arc<dyn load::Observe>);
    }
    plan.check().map_err(RehearsalError::Load)?;
    // Somebody has to take the spans, or none could be lost.
    let collector = Collector::start()
        .map_err(|error| RehearsalError::Io { path: "a collector of spans".into(), error })?;
    suite.otlp_endpoint = Some(collector.endpoint());
    let screen = Screen::new(options.output == Output::Human);
    if options.output == Output::Human {
        let Profile { name, scale, .. } = &options.profile;
        let takes = clock(options.wall());
        let _ = writeln!(io::stderr().lock(), "{name} · scale {scale} · takes about {takes}");
    }
    screen.expect(options.wall());
    let io = |error| RehearsalError::Io { path: "signals".into(), error };
    let mut signals = Signals::new().map_err(io)?;
    let executable = match &options.executable {
        Some(executable) => executable.clone(),
        None => std::env::current_exe()
            .map_err(|error| RehearsalError::Io { path: "the running executable".into(), error })?,
    };
    let course = Course {
        profile: &options.profile,
        suite,
        quick: options.quick,
        edits,
        losses,
        bounds: HomeBounds {
            connections_max: policy.limits.connections_max,
            memory_bytes: options.profile.flood.map(|flood| {
                let connections = u64::from(policy.limits.connections_max) * u64::from(flood.connection_kib);
                (u64::from(flood.base_mib) << 20) + (connections << 10)
            }),
        },
        body_bytes_max: policy.limits.body_bytes_max as usize,
        executable,
        plan: plan.clone(),
        screen: &screen,
    };
    let ran = course.run(&mut signals).await;
    screen.clear();
    let mut ran = ran?;
    // Every member has flushed what it had.
    ran.observed.put(model::load_profile::Figure::SpansCollected, collector.spans() as f64);
    Ok(report_of(options, &policy, &plan, ran))
}

/// The policy's name and text.
fn document(options: &ProfileOptions) -> Result<(String, String), RehearsalError> {
    let Some(path) = &options.policy else {
        return Ok((model::policy::SHIPPED.0.to_owned(), model::policy::SHIPPED.1.to_owned()));
    };
    let text = fs::read_to_string(path)
        .map_err(|error| RehearsalError::Usage(format!("cannot read {}: {error}", path.display())))?;
    Ok((path.display().to_string(), text))
}

fn plan(options: &ProfileOptions, policy: &Policy) -> Plan {
    let profile = &options.profile;
    let workload = profile.callers_of(Workload::shipped());
    let stages = profile.phases.iter().map(|phase| {
        let stage = if phase.measured { StagePlan::measured } else { StagePlan::warm_up };
        stage(phase.name.clone(), options.length(phase)).at_percent(phase.rate_percent)
    });
    Plan {
        seed: options.seed,
        stages: stages.collect(),
        timeout: profile.callers.and_then(|callers| callers.timeout),
        objective: policy.objective,
        // It stands for customers: its operations are the objective's population.
        origin: Origin::Customer,
        id_prefix: format!("p-{}", profile.name.chars().take(32).collect::<String>()),
        ..Plan::new("", workload, Rate::Scale(profile.scale), Nanos::from_secs(1))
    }
}

fn suite(options: &ProfileOptions) -> SuiteOptions {
    SuiteOptions {
        executable: options.executable.clone(),
        policy: options.policy.clone(),
        seed: options.seed,
        scale: options.profile.scale,
        on_child_exit: OnChildExit::Stop,
        fresh_ledger: true,
        log_filter: options.log_filter.clone(),
        ..SuiteOptions::new(options.out.join("state"))
    }
}

fn report_of(options: &ProfileOptions, policy: &Policy, plan: &Plan, ran: Ran) -> Report {
    let profile = &options.profile;
    let mut observed = figures::of_run(profile, &ran.load, &ran.marks);
    observed.take(ran.observed);
    let emulator_timer_ms =
        ran.marks.iter().rev().find_map(|mark| mark.emulator.as_ref()).and_then(|stats| stats.timer_p99_ms);
    let kept = Kept {
        clock_error_ms: ran.load.generator.clock_error_ms.p99,
        unsent_ratio: ran.load.generator.unsent_ratio,
        emulator_timer_ms,
        balanced: ran.load.stages.iter().all(|stage| stage.all.balanced),
    };
    let gates = judge::judge(profile, &observed, ran.breach.as_ref(), kept);
    let in_mib = |bytes: u64| bytes as f64 / MIB;
    let memory: BTreeMap<_, _> = ran
        .seen
        .baseline
        .iter()
        .map(|(member, first)| {
            let peak = ran.seen.peak.get(member).unwrap_or(first);
            let end = ran.seen.now.get(member).copied().map(in_mib);
            (member.as_str(), MemoryMib { baseline: in_mib(*first), peak: in_mib(*peak), end })
        })
        .collect();
    let stopped = ran.breach.map(|breach| {
        let name = breach.condition.figure.name();
        let after = breach.at.as_secs_f64();
        format!("{name} was {} after {after:.1} s", crate::rollout::number(breach.observed))
    });
    Report {
        schema: report::SCHEMA,
        command: format!("load --profile {}", profile.name),
        seed: options.seed,
        runs: 1,
        verdict: gates::verdict(&gates),
        workload: plan.workload.name.clone(),
        scenario: (&model::scenario::Scenario::shipped()).into(),
        scale: Some(profile.scale.to_string()),
        rate_per_s: plan.declared_per_s(),
        dilate: 1,
        histogram: load::HISTOGRAM_SCHEME,
        tolerance: TOLERANCE.to_owned(),
        gates,
        generator: Generator::of(&ran.load, emulator_timer_ms),
        profile: Some(ProfileReport {
            name: profile.name.clone(),
            version: profile.version,
            digest: format!("{:016x}", profile.digest),
            about: profile.about.clone(),
            quick: options.quick,
            policy_generation: policy.generation,
            stopped,
            phases: ran.load.stages.iter().map(PhaseReport::of).collect(),
            memory,
            bodies: ran.bodies,
            retained: ran.retained,
            flood: ran.flood,
        }),
        ..Report::default()
    }
}

/// How the figures come about, for the report.
const TOLERANCE: &str = "Conditions are those of the profile, set before the run. Latency counts from the intended start. \
    Memory is resident memory; its peak is the kernel's high-water mark since the beginning of the first measured phase, \
    and growth counts from there. Ambiguous effects are requests that home-api ended because of one, over requests offered; \
    what another failure says beside its reason is not counted. Recovered \
    means two seconds in a row with the goodput of the first measured phase, less three standard deviations of a second of \
    its size. A breach in a run that did not keep time shows nothing, unless no machine can be blamed for it.";
