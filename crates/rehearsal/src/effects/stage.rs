//! Stage: the suite whose experiment is killed, its callers, its ledger, and a look into each of its processes.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use base::{Nanos, Origin};
use http::StatusCode;
use load::{LoadError, Plan, Rate, Settle, Stop};
use model::{names::HOME_SURFACE, workload, workload::Workload};
use tokio::time;

use super::{EffectsOptions, Ledger};
use crate::{
    Member, admin,
    control::Control,
    exposures::{Account, Catalogue, ReconcileError, reconcile, reconcile::Limits},
    scrape::Scrape,
    slo::RehearsalError,
    suite::{OnChildExit, Replicated, Suite, SuiteOptions},
};

/// Processes of experiment and of home-api, where the ledger can be shared.
const REPLICAS: u8 = 2;
/// Longest wait for what has to come about.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);
/// Longest run of the callers; they are stopped before.
const LOAD_MAX: Nanos = Nanos::from_secs(12 * 3_600);
/// How long callers may go on settling once no further ones come.
const SETTLE_MAX: Nanos = Nanos::from_secs(20);
/// How callers settle: for some seconds, which outlasts a restart, and within a budget of one retry an operation and what has been
/// saved up, which is what fails at once while experiment is away.
const SETTLE: Settle = Settle {
    attempts_max: 12,
    backoff: Nanos::from_millis(25),
    backoff_max: Nanos::from_millis(800),
    budget_percent: 100,
    budget_max: 2_000,
};
/// Connections of the callers to each home-api.
const CONNECTIONS: usize = 2;

/// A generator in a thread of its own.
struct Callers {
    stop: Stop,
    thread: thread::JoinHandle<Result<load::Report, LoadError>>,
}

/// A suite with callers and a ledger.
pub(super) struct Stage {
    pub(super) suite: Suite,
    pub(super) ledger: Box<dyn Ledger>,
    control: Control,
    out: PathBuf,
    replicas: u8,
    callers: Option<Callers>,
}

impl Stage {
    /// Prepares the ledger and starts the suite on it.
    pub(super) async fn start(options: &EffectsOptions) -> Result<Self, RehearsalError> {
        let state_dir = options.out.join("state");
        // What an earlier rehearsal recorded here has no say in this one.
        remove(&state_dir)?;
        let own = state_dir.join("ledger").join("exposures.db").to_string_lossy().into_owned();
        let ledger =
            (options.open)(options.ledger.as_ref().unwrap_or(&own)).map_err(RehearsalError::Usage)?;
        ledger
            .prepare(options.fresh)
            .await
            .map_err(|fault| RehearsalError::Usage(format!("--ledger: {fault}")))?;
        let replicas = if ledger.is_shared() { REPLICAS } else { 1 };
        let suite = Suite::start(
            SuiteOptions {
                executable: options.executable.clone(),
                policy: options.policy.clone(),
                seed: options.seed,
                on_child_exit: OnChildExit::Stop,
                log_filter: options.log_filter.clone(),
                ledger: options.ledger.clone(),
                experiments: replicas,
                home_apis: replicas,
                ..SuiteOptions::new(state_dir)
            },
            |_| {},
        );
        let suite = suite.await.map_err(RehearsalError::Launch)?;
        let control = suite.endpoints().get(Member::Emulator).and_then(|one| one.control.clone());
        let control = Control::new(&control.unwrap_or_default()).map_err(RehearsalError::Control)?;
        let out = options.out.clone();
        Ok(Self { suite, ledger, control, out, replicas, callers: None })
    }

    /// The processes of experiment.
    pub(super) fn experiments(&self) -> Vec<Member> {
        Member::processes(Replicated::Experiment, self.replicas).collect()
    }

    /// Where home pages are asked for.
    pub(super) fn homes(&self) -> Vec<String> {
        let home = |member| Some(self.suite.endpoints().get(member)?.main()?.to_owned());
        Member::processes(Replicated::HomeApi, self.replicas).filter_map(home).collect()
    }

    /// What the callers write down.
    pub(super) fn record(&self) -> PathBuf {
        self.out.join("record.ndjson")
    }

    /// Callers begin to come.
    pub(super) fn call(&mut self, options: &EffectsOptions) -> Result<(), RehearsalError> {
        let workload = Workload::parse(workload::SHIPPED.0, workload::SHIPPED.1)
            .map_err(|faults| RehearsalError::Files(vec![faults]))?;
        let mut homes = self.homes().into_iter();
        let first = homes.next().unwrap_or_default();
        let plan = Plan {
            others: homes.collect(),
            seed: options.seed,
            origin: Origin::Customer,
            id_prefix: "effects".to_owned(),
            settle: Some(SETTLE),
            record: Some(self.record()),
            drain: SETTLE_MAX,
            connections: CONNECTIONS,
            ..Plan::new(first, workload, Rate::PerSecond(options.rate_per_s), LOAD_MAX)
        };
        let stop = Stop::default();
        let until = stop.clone();
        let spawned = thread::Builder::new()
            .name("callers".to_owned())
            .spawn(move || load::run_until(plan, &until, |_| {}));
        let thread = spawned.map_err(|error| RehearsalError::Load(LoadError::Thread(error)))?;
        self.callers = Some(Callers { stop, thread });
        Ok(())
    }

    /// No further callers come; those that are there settle what they have begun.
    pub(super) async fn hush(&mut self) -> Result<load::Report, RehearsalError> {
        let Some(Callers { stop, thread }) = self.callers.take() else {
            return Err(RehearsalError::Load(LoadError::Panicked("callers")));
        };
        stop.set();
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        let report = joined.ok().and_then(Result::ok).unwrap_or(Err(LoadError::Panicked("callers")));
        report.map_err(RehearsalError::Load)
    }

    /// Whether the callers still come.
    pub(super) fn is_called(&self) -> bool {
        self.callers.as_ref().is_some_and(|callers| !callers.thread.is_finished())
    }

    /// What the emulator served, kept beside the evidence.
    pub(super) async fn catalogue(&mut self) -> Result<Catalogue, RehearsalError> {
        let asked = Catalogue::ask(&mut self.control, HOME_SURFACE).await;
        let catalogue = asked.map_err(RehearsalError::Control)?;
        let path = self.out.join("catalogue.json");
        catalogue.write(&path).map_err(|error| RehearsalError::Io { path, error })?;
        Ok(catalogue)
    }

    /// Reconciles the ledger with records.
    pub(super) async fn account(
        &self,
        catalogue: &Catalogue,
        records: &[PathBuf],
    ) -> Result<Account, RehearsalError> {
        reconcile(self.ledger.as_ref(), records, catalogue, Limits::default()).await.map_err(no_account)
    }

    /// Lateness of the emulator's timers.
    pub(super) async fn timer_p99_ms(&mut self) -> Option<f64> {
        self.control.stats().await.ok()?.timer_p99_ms
    }

    /// What a process says at its admin port.
    pub(super) async fn get(&self, member: Member, path: &str) -> Option<(StatusCode, String)> {
        let endpoint = self.suite.endpoints().get(member)?;
        let (status, body) = admin::get(&endpoint.admin, path).await.ok()?;
        Some((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Rows that a process of experiment has been handed and has not answered for; `None` when it does not say.
    pub(super) async fn waiting(&self, member: Member) -> Option<f64> {
        let scrape = Scrape::new(self.get(member, "/metrics").await?.1);
        let offered = scrape.sum("mercury_exposures_offered_total", &[], &[])?;
        Some(offered - scrape.sum("mercury_exposures_total", &[], &[])?)
    }

    /// Rows that a process of experiment has answered for since it was started.
    pub(super) async fn answered(&self, member: Member) -> Option<f64> {
        let scrape = Scrape::new(self.get(member, "/metrics").await?.1);
        let of = |outcome| scrape.sum("mercury_exposures_total", &[("outcome", outcome)], &[]);
        Some(of("committed")? + of("replayed")?)
    }

    /// Waits until something holds, for `patience` at most. False when it does not come about.
    pub(super) async fn until(&self, patience: Duration, mut holds: impl AsyncFnMut(&Self) -> bool) -> bool {
        let wait = async {
            while !holds(self).await {
                time::sleep(LOOK).await;
            }
        };
        time::timeout(patience, wait).await.is_ok()
    }

    /// Ends it.
    pub(super) async fn end(self) {
        self.suite.stop().await;
    }
}

/// Why there is no account, as a rehearsal says it.
pub(super) fn no_account(error: ReconcileError) -> RehearsalError {
    let path = match &error {
        ReconcileError::Record(record) => record.path.clone(),
        ReconcileError::Ledger(_) => "ledger".into(),
    };
    RehearsalError::Io { path, error: std::io::Error::other(error.to_string()) }
}

fn remove(path: &Path) -> Result<(), RehearsalError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RehearsalError::Io { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}
