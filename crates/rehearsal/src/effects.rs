//! Effects: `mercury rehearse effects`: exposures count once, whatever becomes of the process that records them.
//!
//! Callers come by an open schedule and settle every operation: they try again, with the same id, until they know what
//! became of it. Meanwhile experiment is killed, time and again, at moments that a seed draws: some of them with rows
//! submitted that a held lock keeps from the ledger, some of them just as that lock is given up, between commit and answer.
//! Then the ledger is reconciled with what the callers were told and what the emulator served ([`crate::exposures`]).
//!
//! The stories after it are about what else may happen to a ledger, and one about the reconciliation itself: on this very
//! evidence, does it find what is made to be wrong?

mod client;
mod judge;
mod kills;
mod print;
mod stage;
mod stories;

use std::{
    fmt, fs,
    io::{self, Write as _},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
};

use base::{Clock, Nanos, WallClock, clock::MonotonicClock, clock::SystemWallClock};

use crate::{
    evidence,
    exposures::Rows,
    report::{Generator, Report},
    screen::Screen,
    slo::{Conclusion, Output, RehearsalError, RunInfo},
    up::Signals,
};

use stage::Stage;

/// Kills of a rehearsal that nobody said otherwise about.
pub const KILLS: u32 = 50;
/// Most kills.
pub const KILLS_MAX: u32 = 10_000;

/// A future of what is implemented elsewhere.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A ledger, as far as the rehearsal has to do with it from outside the suite.
pub trait Ledger: Rows {
    /// Where it is, without a password.
    fn shown(&self) -> String;

    /// Whether several processes may write to it.
    fn is_shared(&self) -> bool;

    /// Makes sure that it holds no row; `fresh` allows to remove those that it holds.
    ///
    /// # Errors
    /// Why it cannot be used, naming it.
    fn prepare(&self, fresh: bool) -> Doing<'_, Result<(), String>>;

    /// Locks all writers out, as a backup or somebody's forgotten session does.
    ///
    /// # Errors
    /// Why it cannot be locked.
    fn hold(&self) -> Doing<'_, Result<Box<dyn Hold>, String>>;
}

/// A lock on a ledger. Dropping it gives it up as well, at some time.
pub trait Hold: Send {
    /// Gives the lock up.
    ///
    /// # Errors
    /// When nobody knows whether it is given up.
    fn release(self: Box<Self>) -> Doing<'static, Result<(), String>>;
}

/// Opens the ledger of a location.
pub type Open = Arc<dyn Fn(&str) -> Result<Box<dyn Ledger>, String> + Send + Sync>;

/// What is rehearsed.
#[derive(Clone)]
pub struct EffectsOptions {
    /// Seed of arrivals, data, draws and of the moments of the kills.
    pub seed: u64,
    /// How often experiment is killed.
    pub kills: u32,
    /// Mean time from a process that records again to its next kill.
    pub pause: Nanos,
    /// Operations per second.
    pub rate_per_s: f64,
    /// The ledger: a file or a PostgreSQL URL; `None` is a file in the state directory. A database gets two processes of
    /// experiment and of home-api.
    pub ledger: Option<String>,
    /// Whether rows of an earlier run may be removed from the ledger.
    pub fresh: bool,
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
    /// How a ledger is reached.
    pub open: Open,
}

impl fmt::Debug for EffectsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The ledger may carry a password.
        f.debug_struct("EffectsOptions")
            .field("seed", &self.seed)
            .field("kills", &self.kills)
            .finish_non_exhaustive()
    }
}

impl EffectsOptions {
    /// Fifty kills on seed 1, in little more than a minute.
    pub fn new(out: impl Into<PathBuf>, open: Open) -> Self {
        Self {
            seed: 1,
            kills: KILLS,
            pause: Nanos::from_millis(500),
            rate_per_s: 100.0,
            ledger: None,
            fresh: false,
            out: out.into(),
            output: Output::Human,
            policy: None,
            executable: None,
            log_filter: None,
            open,
        }
    }
}

/// Rehearses, writes `report.json`, `report.html`, `run.json`, the records and the catalogue, prints the result and says how it
/// ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn effects(options: EffectsOptions) -> Result<Conclusion, RehearsalError> {
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

async fn rehearse(options: &EffectsOptions) -> Result<(Report, RunInfo), RehearsalError> {
    let (began, started_unix_ms) = (MonotonicClock.now(), SystemWallClock.unix_ms());
    let screen = Screen::new(options.output == Output::Human);
    fs::create_dir_all(&options.out)
        .map_err(|error| RehearsalError::Io { path: options.out.clone(), error })?;
    screen.say("starting the suite");
    let mut stage = Stage::start(options).await?;
    stage.call(options)?;
    let killed = kills::play(options, &mut stage, &screen).await?;
    screen.say("the callers finish");
    let load = stage.hush().await?;
    let catalogue = stage.catalogue().await?;
    let account = stage.account(&catalogue, &[stage.record()]).await?;
    screen.say("the stories");
    let told = stories::play(options, &mut stage, &catalogue).await?;
    let generator = Generator::of(&load, stage.timer_p99_ms().await);
    let shared = stage.ledger.is_shared();
    stage.end().await;
    screen.clear();
    let core_mismatch = load.stages.iter().map(|stage| stage.all.core_mismatch).sum();
    let evidence = judge::Evidence { killed, generator, core_mismatch, account, told, shared };
    let report = judge::report(options, evidence)?;
    Ok((report, RunInfo::new(started_unix_ms, MonotonicClock.now() - began, Vec::new())))
}
