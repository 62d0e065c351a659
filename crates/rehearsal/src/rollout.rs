//! Rollout: the rehearsal of the way from the old policy to the repaired one, phase by phase.
//!
//! Each step has a suite of its own under its own policy, on the same seed and schedule, and is compared with the phase
//! before. What breaches a bound is reversed: the policy of the phase before is put back, and looked at whether it does what
//! it did. Every decision goes to an append-only ledger beside the evidence.

#[cfg(test)]
mod example;
pub mod faults;
mod judge;
mod print;
mod reporting;
mod suites;
mod walk;

use std::{
    fmt, fs,
    io::{self, Write as _},
    path::PathBuf,
};

use base::{Clock, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use model::{Faults, Scale, policy, rollout, rollout::Ladder};

use crate::{
    evidence,
    ledger::{self, Ledger, LedgerError},
    report::Report,
    slo::{Conclusion, Output, RehearsalError, RunInfo},
};

pub use faults::{FAULTS, Injection, NamedFault};
pub(crate) use judge::number;
pub use judge::{Evidence, Measure};
pub use walk::{End, Rung, Walked};
pub(crate) use walk::{deciding, said};

use suites::Suites;
use walk::Walk;

/// File of the decisions, beside the evidence.
pub const DECISIONS: &str = "decisions.jsonl";

/// What is rehearsed.
#[derive(Clone, Debug)]
pub struct RolloutOptions {
    /// Seed of arrivals, data and draws.
    pub seed: u64,
    /// By the quick timing of the rollout, instead of the full one.
    pub quick: bool,
    /// Size of the system.
    pub scale: Scale,
    /// Slow motion; reported times are divided back.
    pub dilate: u32,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
    /// Rollout file; `None` is the shipped one.
    pub plan: Option<PathBuf>,
    /// A fault to let loose during one phase.
    pub inject: Option<Injection>,
    /// The `mercury` binary; `None` is the one that runs.
    pub executable: Option<PathBuf>,
    /// Log filter of the members; `None` leaves it to the environment.
    pub log_filter: Option<String>,
    /// The command, as the decisions cite it.
    pub command: String,
}

impl RolloutOptions {
    /// The shipped rollout at one twenty-fourth of an admission domain, seed 1.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        Self {
            seed: 1,
            quick: false,
            scale: Scale::parse("1/24").expect("a constant that reads"),
            dilate: 1,
            out: out.into(),
            output: Output::Human,
            plan: None,
            inject: None,
            executable: None,
            log_filter: None,
            command: "mercury rehearse rollout".to_owned(),
        }
    }
}

/// Why there is no evidence.
#[derive(Debug)]
pub enum RolloutError {
    /// A run could not be made.
    Rehearsal(RehearsalError),
    /// The ledger is not sound, or takes no decision.
    Ledger(LedgerError),
}

impl RolloutError {
    /// The exit code: 2 for a mistake of use, else 1.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Rehearsal(error) => error.exit_code(),
            Self::Ledger(_) => 1,
        }
    }
}

impl fmt::Display for RolloutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rehearsal(error) => error.fmt(f),
            Self::Ledger(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RolloutError {}

impl From<RehearsalError> for RolloutError {
    fn from(error: RehearsalError) -> Self {
        Self::Rehearsal(error)
    }
}

/// The evidence of one rehearsal.
#[derive(Debug)]
pub struct Rehearsed {
    /// What `report.json` holds.
    pub report: Report,
    /// What `run.json` holds.
    pub run: RunInfo,
    /// Every decision, and how it ended.
    pub walked: Walked,
}

/// Rehearses, writes `report.json`, `report.html`, `run.json` and the decisions, prints how it goes and says how it ended.
///
/// # Errors
/// [`RolloutError`] when there is no evidence; the decisions up to then are in the ledger.
pub async fn rollout(options: RolloutOptions) -> Result<Conclusion, RolloutError> {
    let (output, out) = (options.output, options.out.clone());
    let rehearsed = rehearse(options).await?;
    let text = match output {
        Output::Human => print::conclusion(&rehearsed, &out),
        Output::Json => evidence::json(&rehearsed.report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: rehearsed.report.verdict, why: print::why(&rehearsed.walked.end) })
}

/// As [`rollout()`], without printing the conclusion.
///
/// # Errors
/// As [`rollout()`].
pub async fn rehearse(options: RolloutOptions) -> Result<Rehearsed, RolloutError> {
    let began = MonotonicClock.now();
    let started_unix_ms = SystemWallClock.unix_ms();
    let ladder = read(&options)?;
    check(&options, &ladder)?;
    fs::create_dir_all(&options.out)
        .map_err(|error| RehearsalError::Io { path: options.out.clone(), error })?;
    let path = options.out.join(DECISIONS);
    let mut ledger = Ledger::open(&path, &SystemWallClock).map_err(RolloutError::Ledger)?;
    let mut suites = Suites::new(&options, &ladder)?;
    let walk = Walk {
        ladder: &ladder,
        legacy: policy::LEGACY.1,
        measure: Measure {
            tolerance: ladder.tolerance,
            dilate: options.dilate,
            frame: reporting::frame(&options, suites.scenario(), suites.workload()),
        },
        injection: options.inject.clone(),
        actor: ledger::operator(),
        command: options.command.clone(),
    };
    let walked = walk.go(&mut suites, &mut ledger).await;
    suites.screen.clear();
    let walked = walked?;
    let report = reporting::report(&walk, &walked);
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, suites.runs);
    evidence::write(&options.out, &report, &run)?;
    Ok(Rehearsed { report, run, walked })
}

/// The rollout of the options.
fn read(options: &RolloutOptions) -> Result<Ladder, RehearsalError> {
    let parsed: Result<Ladder, Faults> = match &options.plan {
        None => Ladder::parse(rollout::SHIPPED.0, rollout::SHIPPED.1),
        Some(path) => {
            let text =
                fs::read_to_string(path).map_err(|error| RehearsalError::Io { path: path.clone(), error })?;
            Ladder::parse(&path.display().to_string(), &text)
        }
    };
    parsed.map_err(|faults| RehearsalError::Files(vec![faults]))
}

/// An injection needs a phase that is gone through.
fn check(options: &RolloutOptions, ladder: &Ladder) -> Result<(), RehearsalError> {
    let Some(injection) = &options.inject else { return Ok(()) };
    let phases: Vec<&str> = ladder
        .phases
        .iter()
        .filter(|phase| !phase.steps().is_empty())
        .map(|phase| phase.name.as_str())
        .collect();
    if phases.contains(&injection.phase.as_str()) {
        return Ok(());
    }
    let known = phases.join(", ");
    Err(RehearsalError::Usage(format!("{injection}: no phase {:?}; the phases are {known}", injection.phase)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(inject: &str) -> RolloutOptions {
        let inject = Some(Injection::parse(inject).expect("well formed"));
        RolloutOptions { inject, ..RolloutOptions::new("out") }
    }

    #[test]
    fn an_injection_needs_a_phase_that_is_gone_through() {
        let ladder = read(&RolloutOptions::new("out")).expect("shipped");
        check(&options("pricing-slow@admission"), &ladder).expect("a phase");
        for bad in ["pricing-slow@summary", "pricing-slow@admissions", "pricing-slow@policy-legacy"] {
            let error = check(&options(bad), &ladder).expect_err("not gone through");
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(
                text.contains("signals, deadline, cancellation, admission, coalescing, degradation"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_faulty_rollout_is_a_mistake_of_use() {
        let home = tempfile::tempdir().expect("a directory");
        let plan = home.path().join("r.toml");
        fs::write(&plan, "name = \"x\"\n").expect("written");
        let error = read(&RolloutOptions { plan: Some(plan), ..RolloutOptions::new("out") });
        assert_eq!(error.expect_err("faulty").exit_code(), 2);
    }
}
