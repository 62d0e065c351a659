//! Migrate: `mercury rehearse migration`, the summary's migration from legacy to contract under load, and then what has to be
//! survived, refused or taken back on the way. Each story is a scenario with a verdict of its own.
//!
//! The ladder is walked with the figures of a small system at peak, by the plan's bounds. The other stories go by its
//! quick ones; they share one suite with fewer callers, and one that loses processes. The desk is the one that `mercury rollout` has, so what is rehearsed here is what runs there.

mod killed;
mod ladder;
mod oracle;
mod print;
mod probe;
mod scenes;
mod stage;

use std::{
    fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use ::rollout::Phase;
use base::{Clock, Nanos, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use load::Rate;
use model::{Scale, migration::Plan, policy, scenario, workload, workload::Workload};

use crate::{
    Member,
    control::ControlError,
    evidence,
    gates::{self, Gate, Role},
    migration::DeskError,
    report::{self, Generator, Report, Scenario},
    screen::Screen,
    slo::{Conclusion, Output, RehearsalError, RunInfo},
    up::Signals,
    verdict::Verdict,
};

use ladder::Walked;
use stage::{Files, Offered, Stage};

/// The fault that can be let loose: the profile store's policies differ from the policy store's, while in shadow.
pub const CLAIMS_MISMATCH: &str = "claims-mismatch";
/// Requests per second of the second home-api, so that the evidence of the ladder is that of two.
const SECOND_PER_S: f64 = 20.0;
/// Requests per second of the stories.
const STORIES_PER_S: f64 = 60.0;
/// A stream of revocations that is silent for so long vouches for nothing, in the stories. The shipped bound is 30 s.
const STALENESS: Nanos = Nanos::from_secs(4);
/// Share of the subjects that the canary of the stories has.
const CANARY_PERCENT: u32 = 50;

/// What is rehearsed.
#[derive(Clone, Debug)]
pub struct MigrationOptions {
    /// Seed of arrivals, data and draws.
    pub seed: u64,
    /// The ladder by the quick bounds of the plan, instead of those of a live system.
    pub quick: bool,
    /// How long each phase of the ladder is watched.
    pub watch: Nanos,
    /// Size of the system.
    pub scale: Scale,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
    /// Migration plan; `None` is the shipped one.
    pub plan: Option<PathBuf>,
    /// Whether [`CLAIMS_MISMATCH`] is let loose in shadow: the migration has to stop there.
    pub inject: bool,
    /// The `mercury` binary; `None` is the one that runs.
    pub executable: Option<PathBuf>,
    /// Log filter of the members; `None` leaves it to the environment.
    pub log_filter: Option<String>,
    /// The command, as the decisions cite it.
    pub command: String,
}

impl MigrationOptions {
    /// The shipped plan at one twenty-fourth of an admission domain, seed 1.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        Self {
            seed: 1,
            quick: false,
            watch: Nanos::from_secs(8),
            scale: Scale::parse("1/24").expect("a constant that reads"),
            out: out.into(),
            output: Output::Human,
            plan: None,
            inject: false,
            executable: None,
            log_filter: None,
            command: "mercury rehearse migration".to_owned(),
        }
    }
}

/// Why a story did not come to its end.
#[derive(Debug)]
pub(crate) enum Failed {
    /// There is no evidence at all.
    Rehearsal(RehearsalError),
    /// The desk could decide nothing.
    Desk(DeskError),
    /// The phase that the story is about was not reached.
    NotReached {
        /// Which one.
        phase: Phase,
        /// What was decided instead.
        why: String,
    },
}

impl From<RehearsalError> for Failed {
    fn from(error: RehearsalError) -> Self {
        Self::Rehearsal(error)
    }
}

impl From<DeskError> for Failed {
    fn from(error: DeskError) -> Self {
        Self::Desk(error)
    }
}

impl From<ControlError> for Failed {
    fn from(error: ControlError) -> Self {
        Self::Rehearsal(RehearsalError::Control(error))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rehearsal(error) => error.fmt(f),
            Self::Desk(error) => error.fmt(f),
            Self::NotReached { phase, why } => write!(f, "{phase} was not reached: {why}"),
        }
    }
}

/// What a story found: what was wrong, and what was seen.
#[derive(Debug, Default)]
pub(crate) struct Found {
    wrong: Vec<String>,
    seen: Vec<String>,
}

impl Found {
    /// Something has to hold.
    pub(crate) fn must(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.wrong.push(otherwise.into());
        }
    }

    /// Something was seen.
    pub(crate) fn saw(&mut self, what: impl Into<String>) {
        self.seen.push(what.into());
    }

    /// The story, told.
    pub(crate) fn told(name: &str, found: Result<Self, Failed>) -> Result<Scenario, RehearsalError> {
        let (verdict, detail) = match found {
            Ok(found) if found.wrong.is_empty() => (Verdict::Pass, found.seen.join("; ")),
            Ok(found) => (Verdict::Fail, found.wrong.join("; ")),
            Err(Failed::Rehearsal(error)) => return Err(error),
            Err(failed) => (Verdict::Inconclusive, failed.to_string()),
        };
        Ok(Scenario { name: name.to_owned(), verdict, detail })
    }
}

/// Rehearses, writes `report.json`, `report.html`, `run.json` and the decisions, prints the result and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn migration(options: MigrationOptions) -> Result<Conclusion, RehearsalError> {
    let mut signals = Signals::new().map_err(|error| RehearsalError::Io { path: "signals".into(), error })?;
    let (report, run) = tokio::select! {
        biased;
        // What was started ends with this process, since each holds a pipe to it.
        () = signals.next() => return Err(RehearsalError::Interrupted),
        rehearsed = rehearse(&options) => rehearsed?,
    };
    evidence::write(&options.out, &report, &run)?;
    let text = match options.output {
        Output::Human => print::render(&report, &options.out),
        Output::Json => evidence::json(&report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: report.verdict, why: print::why(&report) })
}

async fn rehearse(options: &MigrationOptions) -> Result<(Report, RunInfo), RehearsalError> {
    let (began, started_unix_ms) = (MonotonicClock.now(), SystemWallClock.unix_ms());
    let plan = plan(options)?;
    let screen = Screen::new(options.output == Output::Human);
    fs::create_dir_all(&options.out)
        .map_err(|error| RehearsalError::Io { path: options.out.clone(), error })?;
    let workload = Workload::parse(workload::SHIPPED.0, workload::SHIPPED.1)
        .map_err(|faults| RehearsalError::Files(vec![faults]))?;
    screen.say("the ladder");
    let walked = ladder::walk(options, &plan, &workload, &write_policy(options, "ladder", "")?).await?;
    let mut report = frame(options, &workload)?;
    let stopped = walked.stopped.is_some();
    take(&mut report, walked);
    if !stopped && !options.inject {
        screen.say("the stories");
        let changes = format!(
            "[mechanisms.summary]\npercent = {CANARY_PERCENT}\n[summary]\nstaleness_max_ms = {}\n",
            STALENESS.as_millis()
        );
        let files = Files {
            policy: write_policy(options, "stories", &changes)?,
            scenario: Some(write_steady(options)?),
        };
        report.scenarios.extend(scenes::play(options, &plan, &workload, &files).await?);
        screen.say("killed processes");
        report.scenarios.push(killed::play(options, &plan, &workload, &files).await?);
    }
    screen.clear();
    report.verdict = verdict(&report);
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, Vec::new());
    Ok((report, run))
}

/// Every gate and every story has to pass; what failed says more than what is not known.
fn verdict(report: &Report) -> Verdict {
    let stories = report.scenarios.iter().map(|story| story.verdict);
    let all: Vec<Verdict> = stories.chain([gates::verdict(&report.gates)]).collect();
    if all.contains(&Verdict::Fail) {
        Verdict::Fail
    } else if all.iter().all(|one| matches!(one, Verdict::Pass | Verdict::NotApplicable)) {
        Verdict::Pass
    } else {
        Verdict::Inconclusive
    }
}

fn plan(options: &MigrationOptions) -> Result<Plan, RehearsalError> {
    let (name, text) = match &options.plan {
        None => (model::migration::SHIPPED.0.to_owned(), model::migration::SHIPPED.1.to_owned()),
        Some(path) => {
            let text =
                fs::read_to_string(path).map_err(|error| RehearsalError::Io { path: path.clone(), error })?;
            (path.display().to_string(), text)
        }
    };
    Plan::parse(&name, &text).map_err(|faults| RehearsalError::Files(vec![faults]))
}

/// The shipped scenario without its slow calls: what is refused in a story is then refused for what the story is about.
fn write_steady(options: &MigrationOptions) -> Result<PathBuf, RehearsalError> {
    let steady = |line: &str| match line.split_once('=') {
        Some((key, _)) if key.trim() == "slow_probability" => format!("{key}= 0.0\n"),
        _ => format!("{line}\n"),
    };
    let text: String = scenario::SHIPPED.1.lines().map(steady).collect();
    write(options, "steady", &text)
}

/// The shipped policy with changes, where its suite reads it and the evidence keeps it.
fn write_policy(options: &MigrationOptions, name: &str, changes: &str) -> Result<PathBuf, RehearsalError> {
    let text = policy::overlay(policy::SHIPPED, (name, changes))
        .map_err(|faults| RehearsalError::Files(vec![faults]))?;
    write(options, name, &text)
}

/// Writes a document where its suite reads it and the evidence keeps it.
fn write(options: &MigrationOptions, name: &str, text: &str) -> Result<PathBuf, RehearsalError> {
    let directory = options.out.join("policies");
    let path = directory.join(format!("{name}.toml"));
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| RehearsalError::Io { path, error }
    };
    fs::create_dir_all(&directory).map_err(at(&directory))?;
    fs::write(&path, text).map_err(at(&path))?;
    Ok(path)
}

fn frame(options: &MigrationOptions, workload: &Workload) -> Result<Report, RehearsalError> {
    let scenario = scenario::Scenario::parse(scenario::SHIPPED.0, scenario::SHIPPED.1)
        .map_err(|faults| RehearsalError::Files(vec![faults]))?;
    let domain = workload.region_requests_per_s / f64::from(workload.admission_domains.max(1));
    Ok(Report {
        schema: report::SCHEMA,
        command: "rehearse migration".to_owned(),
        seed: options.seed,
        runs: 1,
        workload: workload.name.clone(),
        scenario: (&scenario).into(),
        scale: Some(options.scale.to_string()),
        rate_per_s: domain * options.scale.as_f64() + SECOND_PER_S,
        dilate: 1,
        histogram: load::HISTOGRAM_SCHEME,
        tolerance: "A phase is left when the plan's bounds are met. Claims are compared page by page with what an oracle \
                    derives from the emulated stores' rows; there is no tolerance."
            .to_owned(),
        ..Report::default()
    })
}

fn take(report: &mut Report, walked: Walked) {
    for got in &walked.got {
        let generator = Generator::of(got, walked.timer_p99_ms);
        let policy = report::PolicyRef {
            name: "ladder".to_owned(),
            role: Role::After,
            generation: walked.policy.generation,
            digest: format!("{:016x}", walked.policy.digest),
            generator,
            ..report::PolicyRef::default()
        };
        if report.policies.is_empty() {
            report.add_policy("ladder", policy);
        } else {
            let worst = std::mem::take(&mut report.generator).worst(policy.generator);
            report.generator = worst;
        }
    }
    report.gates.extend(walked.gates);
    report.scenarios.push(walked.story);
    report.migration = Some(walked.migration);
}

/// Both home-apis of the ladder.
fn ladder_callers(options: &MigrationOptions) -> [Offered; 2] {
    [
        Offered { member: Member::HOME_API, rate: Rate::Scale(options.scale) },
        Offered { member: Member::HOME_API_2, rate: Rate::PerSecond(SECOND_PER_S) },
    ]
}

/// Nobody got claims that are not the policy's.
fn parity_gate(phase: Phase, wrong: Option<u64>) -> Gate {
    let observed = wrong.map(|wrong| wrong as f64); // Far below 2^52.
    Gate::at_most("claims_wrong", "pages", observed, 0.0).during(phase.as_str())
}
