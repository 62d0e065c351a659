//! Stage: one running suite with its keys, its ledger and the desk where it is moved, callers that go on all the time, and the
//! oracle that looks at what they get.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, thread, time::Duration};

use ::rollout::{
    Phase,
    report::{Counts, ProcessReport},
};
use base::{Clock, Nanos, clock::MonotonicClock, clock::SystemWallClock};
use load::{LoadError, Plan as LoadPlan, Rate, Stop};
use model::{
    migration::{Plan, Target},
    workload::Workload,
};
use tokio::time;

use super::{
    Failed, MigrationOptions,
    oracle::{Oracle, Page, Parity, Revocation, Shared, Watcher},
};
use crate::{
    Member,
    control::Control,
    keys::KeyDir,
    ledger,
    migration::{Admin, Decided, Desk, Hearing as _, hearing},
    slo::RehearsalError,
    suite::{MigrationFiles, OnChildExit, Suite, SuiteOptions},
    verdict::Verdict,
};

/// Longest wait for what has to come about.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Longest run of the callers; they are stopped before.
const LOAD_MAX: Nanos = Nanos::from_secs(4 * 3_600);
/// How long a revocation may take to reach every page: the feed tells it at once, and this is room for a busy machine.
pub(super) const REVOCATION_BOUND: Nanos = Nanos::from_secs(2);
/// Secret of the first key; the rehearsal's keys sign nothing but what its own emulator made up.
const FIRST_SEED: [u8; 32] = [1; 32];

/// A generator in a thread of its own.
struct Callers {
    stop: Stop,
    thread: thread::JoinHandle<Result<load::Report, LoadError>>,
}

/// What a stage runs under.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) policy: PathBuf,
    /// `None` is the shipped one.
    pub(super) scenario: Option<PathBuf>,
}

/// A suite that is migrated.
pub(super) struct Stage {
    pub(super) suite: Suite,
    pub(super) desk: Desk<Admin>,
    pub(super) control: Control,
    pub(super) keys: KeyDir,
    pub(super) oracle: Oracle,
    watcher: Shared,
    callers: Vec<Callers>,
    id_prefix: String,
}

/// What callers are there.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub(super) member: Member,
    pub(super) rate: Rate,
}

/// What the callers got, of all generators together.
#[derive(Clone, Debug, Default)]
pub(super) struct Got {
    /// Operations that ended.
    pub(super) ended: u64,
    /// Failed ones by kind.
    pub(super) failures: BTreeMap<String, u64>,
    pub(super) core_mismatch: u64,
    pub(super) reports: Vec<load::Report>,
}

impl Stage {
    /// Starts a suite of `home_apis` processes of home-api, in the phase that no ledger says yet.
    pub(super) async fn start(
        options: &MigrationOptions,
        plan: &Plan,
        name: &str,
        Files { policy, scenario }: Files,
        home_apis: u8,
        quick: bool,
    ) -> Result<Self, RehearsalError> {
        let state_dir = options.out.join("state").join(name);
        // What an earlier rehearsal decided here has no say in this one.
        match std::fs::remove_dir_all(&state_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(RehearsalError::Io { path: state_dir, error });
            }
            _ => {}
        }
        let keys = KeyDir::new(state_dir.join("keys"));
        let first =
            summary::KeyId::parse("first").map_err(|error| RehearsalError::Usage(error.to_string()))?;
        keys.init(&first, &FIRST_SEED).map_err(|error| RehearsalError::Usage(error.to_string()))?;
        let path = state_dir.join(ledger::FILE);
        let suite = Suite::start(
            SuiteOptions {
                executable: options.executable.clone(),
                policy: Some(policy),
                scenario,
                seed: options.seed,
                scale: options.scale,
                on_child_exit: OnChildExit::Stop,
                fresh_ledger: true,
                log_filter: options.log_filter.clone(),
                migration: Some(MigrationFiles { keys: keys.clone(), ledger: path.clone() }),
                home_apis,
                ..SuiteOptions::new(state_dir)
            },
            |_| {},
        )
        .await
        .map_err(RehearsalError::Launch)?;
        let control = suite.endpoints().get(Member::Emulator).and_then(|one| one.control.clone());
        let control = Control::new(&control.unwrap_or_default()).map_err(RehearsalError::Control)?;
        let desk = Desk {
            ledger: path,
            processes: hearing::taking_part(suite.endpoints()),
            plan: plan.clone(),
            quick,
            actor: ledger::operator(),
            command: options.command.clone(),
            wall: Arc::new(SystemWallClock),
            hearing: Admin,
        };
        let oracle = Oracle::new(control.clone(), REVOCATION_BOUND);
        let (watcher, callers) = (Shared::new(Watcher::default()), Vec::new());
        Ok(Self { suite, desk, control, keys, oracle, watcher, callers, id_prefix: name.to_owned() })
    }

    /// Callers begin to come, and come until the stage is over.
    pub(super) fn call(
        &mut self,
        workload: &Workload,
        seed: u64,
        offered: &[Offered],
    ) -> Result<(), RehearsalError> {
        for (number, one) in offered.iter().enumerate() {
            let home = self.suite.endpoints().get(one.member).and_then(|at| at.main());
            let plan = LoadPlan {
                seed: seed + number as u64,
                origin: base::Origin::Customer,
                id_prefix: format!("{}-{number}", self.id_prefix),
                observer: Some(Arc::clone(&self.watcher) as _),
                ..LoadPlan::new(home.unwrap_or_default(), workload.clone(), one.rate, LOAD_MAX)
            };
            let stop = Stop::default();
            let until = stop.clone();
            let spawned = thread::Builder::new()
                .name("callers".to_owned())
                .spawn(move || load::run_until(plan, &until, |_| {}));
            let thread = spawned.map_err(|error| RehearsalError::Load(LoadError::Thread(error)))?;
            self.callers.push(Callers { stop, thread });
        }
        Ok(())
    }

    /// The callers stop coming.
    pub(super) async fn hush(&mut self) -> Result<Got, RehearsalError> {
        let callers = std::mem::take(&mut self.callers);
        callers.iter().for_each(|one| one.stop.set());
        let mut got = Got::default();
        for one in callers {
            let joined = tokio::task::spawn_blocking(move || one.thread.join()).await;
            let report = joined.ok().and_then(Result::ok).unwrap_or(Err(LoadError::Panicked("callers")));
            let report = report.map_err(RehearsalError::Load)?;
            let all = &report.total.all;
            got.core_mismatch += all.core_mismatch;
            got.ended += all.completed.total;
            for (kind, count) in &all.failures {
                *got.failures.entry(kind.clone()).or_default() += count;
            }
            got.reports.push(report);
        }
        Ok(got)
    }

    /// Ends the stage.
    pub(super) async fn end(mut self) -> Result<Got, RehearsalError> {
        let got = self.hush().await;
        self.suite.stop().await;
        got
    }

    /// Pages that were answered since `from`, and before `until`.
    pub(super) fn pages(&self, from: Nanos, until: Nanos) -> Vec<Page> {
        self.watcher.pages(from, until)
    }

    /// Pages that could not be looked at.
    pub(super) fn unseen(&self) -> u64 {
        self.watcher.beyond()
    }

    /// Notes pages that somebody else asked for.
    pub(super) fn watcher(&self) -> Shared {
        Arc::clone(&self.watcher)
    }

    /// Holds the pages of a window against the stores.
    pub(super) async fn parity(&mut self, from: Nanos, until: Nanos) -> Result<Parity, RehearsalError> {
        let pages = self.pages(from, until);
        self.oracle.check(&pages).await.map_err(RehearsalError::Control)
    }

    /// Takes claims away.
    pub(super) async fn revoke(
        &mut self,
        tenant: &str,
        subject: &str,
        claims: Vec<String>,
    ) -> Result<Nanos, RehearsalError> {
        let from = MonotonicClock.now();
        self.control.revoke(tenant, subject, &claims).await.map_err(RehearsalError::Control)?;
        let at = MonotonicClock.now();
        let (tenant, subject) = (tenant.to_owned(), subject.to_owned());
        self.oracle.revoked(Revocation { tenant, subject, claims, from, at });
        Ok(at)
    }

    /// What every process says.
    pub(super) async fn hear(&self) -> Vec<Result<ProcessReport, String>> {
        let mut heard = Vec::new();
        for address in &self.desk.processes {
            heard.push(self.desk.hearing.hear(address).await);
        }
        heard
    }

    /// Figures of all processes together.
    pub(super) async fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for report in self.hear().await.into_iter().flatten() {
            sum.add(&report.counts);
        }
        sum
    }

    /// Waits until something holds of what the processes say. False when it does not come about.
    pub(super) async fn until(&self, holds: impl Fn(&[ProcessReport]) -> bool) -> bool {
        let wait = async {
            loop {
                let heard: Vec<_> = self.hear().await.into_iter().flatten().collect();
                if heard.len() == self.desk.processes.len() && holds(&heard) {
                    return;
                }
                time::sleep(LOOK).await;
            }
        };
        time::timeout(PATIENCE, wait).await.is_ok()
    }

    /// Waits until something holds of the figures of all processes together.
    pub(super) async fn until_counts(&self, holds: impl Fn(&Counts) -> bool) -> bool {
        self.until(|heard| {
            let mut sum = Counts::default();
            heard.iter().for_each(|report| sum.add(&report.counts));
            holds(&sum)
        })
        .await
    }

    /// Goes on to the next phase once the phase in force has shown enough. One decision is written, not one a look.
    ///
    /// # Errors
    /// [`Failed`] when it does not pass.
    pub(super) async fn advance(&self) -> Result<Decided, Failed> {
        let wait = async {
            loop {
                let status = self.desk.status().await?;
                // Before the first decision nobody is in a phase; the decision itself begins it.
                let begun = status.standing.is_some();
                match status.next.map(|next| next.verdict) {
                    Some(Verdict::Inconclusive) if begun => time::sleep(LOOK).await,
                    _ => return Ok::<_, crate::migration::DeskError>(()),
                }
            }
        };
        // Out of patience, the decision itself says what is missing.
        if let Ok(Err(error)) = time::timeout(self.longest_soak() + PATIENCE, wait).await {
            return Err(error.into());
        }
        Ok(self.desk.advance().await?)
    }

    /// The longest that the plan has a phase last before it is left.
    fn longest_soak(&self) -> Duration {
        let soaks = Target::ALL
            .into_iter()
            .map(|target| Duration::from(self.desk.plan.transition(target).extent(self.desk.quick).soak));
        soaks.max().unwrap_or_default()
    }

    /// Goes on, phase by phase, until `phase`.
    ///
    /// # Errors
    /// [`Failed`] when a step does not pass.
    pub(super) async fn reach(&self, phase: Phase) -> Result<(), Failed> {
        loop {
            let standing = self.desk.status().await?.standing;
            if standing.as_ref().is_some_and(|standing| standing.phase >= phase) {
                return Ok(());
            }
            let decided = self.advance().await?;
            let began = standing.is_none() && decided.verdict() == Verdict::Inconclusive;
            if decided.verdict() != Verdict::Pass && !began {
                return Err(Failed::NotReached { phase, why: decided.why() });
            }
        }
    }
}
