//! Slo: the rehearsal of the objective: the suite, one schedule through peak, slowdown and recovery, and the evidence.
//!
//! One generator runs through all states without a pause, since recovery has to begin from a state that is in fact
//! impaired. Peak and slowdown are warmed up first; recovery is measured from its first second.

mod drive;
mod print;
mod run_info;
mod snapshot;

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use base::{Clock, Nanos, Origin, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use load::{LoadError, Plan, Rate, StagePlan};
use model::{
    Faults, Scale, policy, policy::Policy, scenario, scenario::Scenario, workload, workload::Workload,
};

use crate::{
    control::ControlError,
    gates,
    report::{self, Generator, PolicyRef, Report, ScenarioRef},
    suite::{ChildExit, LaunchError, OnChildExit, SuiteOptions, write_json},
    verdict::Verdict,
};

pub use print::render;
pub use run_info::RunInfo;

/// The states, in order, and whether each is warmed up.
const STATES: [(&str, bool); 3] = [("peak", true), ("slowdown", true), ("recovery", false)];

/// What is printed at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// A table.
    #[default]
    Human,
    /// `report.json`.
    Json,
}

/// What is rehearsed. Times are model time.
#[derive(Clone, Debug)]
pub struct SloOptions {
    /// Seed of arrivals, data and draws.
    pub seed: u64,
    /// Measured time of each state.
    pub duration: Nanos,
    /// Time before the measured time of peak and slowdown.
    pub warm_up: Nanos,
    /// How much of the workload is offered.
    pub rate: Rate,
    /// Slow motion: the run takes this many times as long, and reports times divided back; 1 is none.
    pub dilate: u32,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
    /// Policy file; `None` is the shipped one.
    pub policy: Option<PathBuf>,
    /// Scenario file; `None` is the shipped one.
    pub scenario: Option<PathBuf>,
    /// Workload file; `None` is the shipped one.
    pub workload: Option<PathBuf>,
    /// Directory of logs and addresses; `None` is `state` below `out`.
    pub state_dir: Option<PathBuf>,
    /// The `mercury` binary; `None` is the one that runs.
    pub executable: Option<PathBuf>,
    /// Log filter of the members; `None` leaves it to the environment.
    pub log_filter: Option<String>,
}

impl SloOptions {
    /// Shipped policy, scenario and workload; seed 1; 10 s of warm-up.
    pub fn new(rate: Rate, duration: Nanos, out: impl Into<PathBuf>) -> Self {
        Self {
            seed: 1,
            duration,
            warm_up: Nanos::from_secs(10),
            rate,
            dilate: 1,
            out: out.into(),
            output: Output::Human,
            policy: None,
            scenario: None,
            workload: None,
            state_dir: None,
            executable: None,
            log_filter: None,
        }
    }
}

/// Why there is no evidence.
#[derive(Debug)]
pub enum RehearsalError {
    /// A file is wrong; a mistake of use.
    Files(Vec<Faults>),
    /// The options contradict each other or a file; a mistake of use.
    Usage(String),
    /// A file could not be read or written.
    Io {
        /// Which one.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// The suite did not start.
    Launch(LaunchError),
    /// A member of the suite died while it was measured.
    Died(Box<ChildExit>),
    /// The generator could not run.
    Load(LoadError),
    /// The emulator could not be controlled.
    Control(ControlError),
    /// A signal ended the rehearsal.
    Interrupted,
}

impl RehearsalError {
    /// The exit code: 2 for a mistake of use, else 1.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Files(_) | Self::Usage(_) | Self::Load(LoadError::Plan(_)) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for RehearsalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(files) => {
                let texts: Vec<String> = files.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("\n"))
            }
            Self::Usage(text) => f.write_str(text),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Launch(error) => error.fmt(f),
            Self::Died(exit) => write!(f, "the rehearsal was ended: {exit}"),
            Self::Load(error) => error.fmt(f),
            Self::Control(error) => error.fmt(f),
            Self::Interrupted => f.write_str("the rehearsal was interrupted; there is no evidence"),
        }
    }
}

impl std::error::Error for RehearsalError {}

/// The evidence of one rehearsal.
#[derive(Debug)]
pub struct Rehearsed {
    /// What `report.json` holds.
    pub report: Report,
    /// What `run.json` holds.
    pub run: RunInfo,
}

/// Rehearses, writes `report.json` and `run.json`, prints the result to stdout and returns the verdict.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence; nothing was written then.
pub async fn slo(options: SloOptions) -> Result<Verdict, RehearsalError> {
    let output = options.output;
    let out = options.out.clone();
    let rehearsed = rehearse(options).await?;
    let text = match output {
        Output::Human => render(&rehearsed, &out),
        Output::Json => {
            let mut text = serde_json::to_string_pretty(&rehearsed.report).unwrap_or_default();
            text.push('\n');
            text
        }
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(rehearsed.report.verdict)
}

/// As [`slo`], without printing.
///
/// # Errors
/// As [`slo`].
pub async fn rehearse(options: SloOptions) -> Result<Rehearsed, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let documents = Documents::read(&options)?;
    let plan = plan(&options, &documents)?;
    fs::create_dir_all(&options.out)
        .map_err(|error| RehearsalError::Io { path: options.out.clone(), error })?;

    let driven = drive::drive(suite_options(&options), plan.clone(), options.output == Output::Human).await?;
    let report = assemble(&options, &documents, &driven);
    let run = RunInfo::of(&plan, &driven, started_unix_ms, MonotonicClock.now() - began);
    for (name, write) in [
        ("report.json", &(|path: &Path| write_json(path, &report)) as &dyn Fn(&Path) -> io::Result<()>),
        ("run.json", &|path: &Path| write_json(path, &run)),
    ] {
        let path = options.out.join(name);
        write(&path).map_err(|error| RehearsalError::Io { path, error })?;
    }
    Ok(Rehearsed { report, run })
}

/// The three documents of a rehearsal.
struct Documents {
    policy: Policy,
    scenario: Scenario,
    workload: Workload,
}

impl Documents {
    /// Reads them, and reports the faults of all three at once.
    fn read(options: &SloOptions) -> Result<Self, RehearsalError> {
        let policy = document(options.policy.as_deref(), policy::SHIPPED, Policy::parse)?;
        let scenario = document(options.scenario.as_deref(), scenario::SHIPPED, Scenario::parse)?;
        let workload = document(options.workload.as_deref(), workload::SHIPPED, Workload::parse)?;
        match (policy, scenario, workload) {
            (Ok(policy), Ok(scenario), Ok(workload)) => {
                let missing = STATES.iter().map(|(state, _)| *state);
                let missing: Vec<&str> =
                    missing.filter(|state| scenario.phase_index(state).is_none()).collect();
                if missing.is_empty() {
                    return Ok(Self { policy, scenario, workload });
                }
                let text = format!("scenario {}: it has no phase {}", scenario.name, missing.join(", "));
                Err(RehearsalError::Usage(text))
            }
            (policy, scenario, workload) => {
                let faults = [policy.err(), scenario.err(), workload.err()];
                Err(RehearsalError::Files(faults.into_iter().flatten().collect()))
            }
        }
    }
}

fn document<T>(
    path: Option<&Path>,
    shipped: (&str, &str),
    parse: fn(&str, &str) -> Result<T, Faults>,
) -> Result<Result<T, Faults>, RehearsalError> {
    let Some(path) = path else { return Ok(parse(shipped.0, shipped.1)) };
    let text =
        fs::read_to_string(path).map_err(|error| RehearsalError::Io { path: path.to_owned(), error })?;
    Ok(parse(&path.display().to_string(), &text))
}

fn plan(options: &SloOptions, documents: &Documents) -> Result<Plan, RehearsalError> {
    let mut plan = Plan::new("", documents.workload.clone(), options.rate, options.duration);
    plan.seed = options.seed;
    plan.dilate = options.dilate;
    plan.objective = documents.policy.objective;
    // A rehearsal stands for customers: its operations are the objective's population.
    plan.origin = Origin::Customer;
    plan.id_prefix = "slo".to_owned();
    plan.stages = STATES
        .iter()
        .flat_map(|(state, warmed)| {
            let warm_up = (*warmed && !options.warm_up.is_zero())
                .then(|| StagePlan::warm_up(format!("{state} warm-up"), options.warm_up));
            warm_up.into_iter().chain([StagePlan::measured(*state, options.duration)])
        })
        .collect();
    plan.check().map_err(RehearsalError::Load)?;
    Ok(plan)
}

fn suite_options(options: &SloOptions) -> SuiteOptions {
    let state_dir = options.state_dir.clone().unwrap_or_else(|| options.out.join("state"));
    SuiteOptions {
        executable: options.executable.clone(),
        policy: options.policy.clone(),
        scenario: options.scenario.clone(),
        seed: options.seed,
        scale: match options.rate {
            Rate::Scale(scale) => scale,
            Rate::PerSecond(_) => Scale::ONE,
        },
        dilate: options.dilate,
        on_child_exit: OnChildExit::Stop,
        // The same operations as in the last rehearsal would be replays, and cost less.
        fresh_ledger: true,
        log_filter: options.log_filter.clone(),
        ..SuiteOptions::new(state_dir)
    }
}

fn assemble(options: &SloOptions, documents: &Documents, driven: &drive::Driven) -> Report {
    let load = &driven.load;
    let states = driven.states(&policy_name(options));
    // Lateness is the machine's, in wall time; in model time, which the objective is in, it weighs so much less.
    let timer_p99_ms = driven.emulator_timer_p99_ms().map(|p99| p99 / f64::from(options.dilate.max(1)));
    let generator = Generator::of(load, timer_p99_ms);
    let gates = gates::judge(&states, &generator);
    Report {
        schema: report::SCHEMA,
        command: "rehearse slo".to_owned(),
        seed: options.seed,
        verdict: gates::verdict(&gates),
        workload: load.workload.clone(),
        scenario: ScenarioRef {
            name: documents.scenario.name.clone(),
            version: documents.scenario.version,
            digest: format!("{:016x}", documents.scenario.digest),
        },
        scale: load.scale.clone(),
        rate_per_s: load.rate_per_s,
        dilate: load.dilate,
        histogram: load.histogram,
        gates,
        states,
        generator,
        scenarios: Vec::new(),
        policies: vec![PolicyRef {
            name: policy_name(options),
            generation: documents.policy.generation,
            digest: format!("{:016x}", documents.policy.digest),
        }],
    }
}

/// The name of the policy in reports: of its file, without directory and extension.
fn policy_name(options: &SloOptions) -> String {
    let path = options.policy.as_deref().unwrap_or(Path::new(policy::SHIPPED.0));
    path.file_stem().map_or_else(|| "policy".to_owned(), |stem| stem.to_string_lossy().into_owned())
}
