//! Reconcile: every row against the operation that it names, and every operation against its rows.
//!
//! Operations are held in memory, a bounded number at a time: a larger record is gone through several times, each time
//! for the share of the operations, and of the rows, that a hash of their names selects.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::PathBuf,
};

use base::mix::fold_bytes;
use load::record::{Arm, Attempt, Ending, Operation};
use uuid::Uuid;

use super::{
    Account, Catalogue, Class, Row, Rows,
    oracle::{self, Event},
    records::{self, RecordError},
};

/// Operations that are held at a time: some hundred MiB.
pub const OPERATIONS_MAX: u64 = 250_000;
/// Rows of one operation that are told apart; further ones are counted as duplicates.
const ROWS_MAX: usize = 64;

/// What bounds a reconciliation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Operations held at a time.
    pub operations_max: u64,
    /// Examples told of each kind of discrepancy.
    pub examples_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations_max: OPERATIONS_MAX, examples_max: 5 }
    }
}

/// Why there is no account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileError {
    /// A record is none; a mistake of use.
    Record(RecordError),
    /// The ledger cannot be read.
    Ledger(String),
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => write!(f, "--record {}: {}", error.path.display(), error.fault),
            Self::Ledger(detail) => f.write_str(detail),
        }
    }
}

impl std::error::Error for ReconcileError {}

impl From<RecordError> for ReconcileError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// Reconciles a ledger with what callers recorded and what the catalogue served.
///
/// # Errors
/// [`ReconcileError`] when either cannot be read.
pub async fn reconcile(
    ledger: &dyn Rows,
    records: &[PathBuf],
    catalogue: &Catalogue,
    limits: Limits,
) -> Result<Account, ReconcileError> {
    let mut account = Account::new();
    for path in records {
        account.records.push(records::read(path, |_| ())?);
    }
    let operations: u64 = account.records.iter().map(|record| record.operations).sum();
    let passes = operations.div_ceil(limits.operations_max.max(1)).max(1);
    for pass in 0..passes {
        let mut share =
            Share { pass, passes, catalogue, limits, account: &mut account, known: HashMap::new() };
        for path in records {
            records::read(path, |operation| share.take(operation))?;
        }
        let mut each = |row: Row| share.hold(&row);
        ledger.scan(&mut each).await.map_err(ReconcileError::Ledger)?;
        share.settle();
    }
    account.conclude();
    Ok(account)
}

/// Names one logical operation: its tenant, its subject and its id.
type Key = (String, String, String);

/// What callers say of an operation, and what its rows are.
#[derive(Default)]
struct Known {
    /// Class, region and origin, of every time that it was asked.
    asked: Vec<[String; 3]>,
    arms: Vec<Arm>,
    /// A page came, with arms or without.
    answered: bool,
    /// An attempt left its caller not knowing.
    open: bool,
    /// Event and experiment of its rows.
    rows: Vec<([u8; 16], String)>,
}

/// One time through.
struct Share<'a> {
    pass: u64,
    passes: u64,
    catalogue: &'a Catalogue,
    limits: Limits,
    account: &'a mut Account,
    known: HashMap<Key, Known>,
}

impl Share<'_> {
    fn is_mine(&self, tenant: &str, subject: &str, id: &str) -> bool {
        let hash = [tenant, subject, id].iter().fold(0, |state, part| fold_bytes(state, part.as_bytes()));
        hash % self.passes == self.pass
    }

    /// An operation, as its caller tells of it.
    fn take(&mut self, operation: Operation) {
        let Operation { id, tenant, subject, class, region, origin, ended, attempts, arms } = operation;
        if !self.is_mine(&tenant, &subject, &id) {
            return;
        }
        self.account.attempts += attempts.len() as u64;
        self.account.ambiguous += attempts.iter().filter(|attempt| is_open(attempt)).count() as u64;
        self.account.retried += u64::from(attempts.len() > 1);
        let replayed = arms.iter().filter(|arm| arm.effect == "replayed").count() as u64;
        if let Some((last, before)) =
            attempts.split_last().filter(|(_, before)| replayed > 0 && !before.is_empty())
        {
            self.account.undeclared += u64::from(!before.iter().any(is_open));
            if before.iter().all(|attempt| attempt.target != last.target) {
                self.account.arms.replayed_elsewhere += replayed;
            }
        }
        let known = self.known.entry((tenant, subject, id)).or_default();
        if known.asked.is_empty() {
            let operations = &mut self.account.operations;
            operations.total += 1;
            *match ended {
                Ending::Answered => &mut operations.answered,
                Ending::Failed => &mut operations.failed,
                Ending::Departed => &mut operations.departed,
                Ending::InFlight => &mut operations.in_flight,
            } += 1;
        }
        let asked = [class, region, origin];
        if !known.asked.contains(&asked) {
            known.asked.push(asked);
        }
        known.answered |= ended == Ending::Answered || !arms.is_empty();
        known.open |= attempts.iter().any(is_open);
        for arm in arms {
            match arm.effect.as_str() {
                "committed" => self.account.arms.committed += 1,
                _ => self.account.arms.replayed += 1,
            }
            self.account.arms.shown += 1;
            // A page of the same operation that was asked for again shows the same.
            if !known.arms.iter().any(|other| other.event_id == arm.event_id) {
                known.arms.push(arm);
            }
        }
    }

    /// A row, as it stands in the ledger.
    fn hold(&mut self, row: &Row) {
        if !self.is_mine(&row.tenant, &row.subject, &row.request_id) {
            return;
        }
        let Self { account, catalogue, limits, .. } = self;
        let examples_max = limits.examples_max;
        account.rows.total += 1;
        let forgery = row.objection.clone().or_else(|| oracle::forgery(row));
        if let Some(what) = &forgery {
            account.note(Class::Forged, examples_max, || format!("{}: {what}", named(row)));
        }
        let key = (row.tenant.clone(), row.subject.clone(), row.request_id.clone());
        let Some(known) = self.known.get_mut(&key) else {
            return account.note(Class::Orphan, examples_max, || named(row));
        };
        let mut altered = |what: &str| {
            account.note(Class::Altered, examples_max, || format!("{}: {what}", named(row)));
        };
        if row.surface != catalogue.surface {
            altered("the surface is another one");
        }
        let body = [&row.class, &row.region, &row.origin];
        if !known.asked.iter().any(|asked| asked.iter().eq(body)) {
            altered("class, region or origin are not those of the request");
        }
        if let Some(what) = misallocated(
            catalogue,
            (&row.tenant, &row.subject),
            (&row.experiment_id, row.experiment_version, &row.variant),
        ) {
            account.note(Class::Misallocated, examples_max, || format!("{}: {what}", named(row)));
        }
        let again =
            known.rows.iter().any(|(id, experiment)| *id == row.event_id || *experiment == row.experiment_id);
        if again || known.rows.len() >= ROWS_MAX {
            account.note(Class::Duplicated, examples_max, || named(row));
        }
        let shown = known.arms.iter().any(|arm| is(arm, &row.event_id));
        if shown {
            account.rows.shown += 1;
        } else if known.answered {
            if !again {
                account.note(Class::Extra, examples_max, || named(row));
            }
        } else {
            account.rows.unshown += 1;
        }
        if known.rows.len() < ROWS_MAX {
            known.rows.push((row.event_id, row.experiment_id.clone()));
        }
    }

    /// What every caller was shown, once all rows are known.
    fn settle(self) {
        let Self { account, known, catalogue, limits, .. } = self;
        let examples_max = limits.examples_max;
        for ((tenant, subject, request_id), known) in known {
            // Nobody answered and everybody said that there is nothing.
            account.undeclared += u64::from(!known.rows.is_empty() && !known.answered && !known.open);
            let mut experiments = HashSet::new();
            for arm in &known.arms {
                let name =
                    || format!("{} of operation {request_id}, event {}", arm.experiment_id, arm.event_id);
                if !known.rows.iter().any(|(id, _)| is(arm, id)) {
                    account.note(Class::Lost, examples_max, name);
                }
                let event = Event {
                    tenant: &tenant,
                    subject: &subject,
                    experiment_id: &arm.experiment_id,
                    experiment_version: arm.experiment_version,
                    variant: &arm.variant,
                    request_id: &request_id,
                };
                if !is(arm, &event.id()) {
                    account.note(Class::Altered, examples_max, || {
                        format!("{}: the id that was shown is not that of what was shown", name())
                    });
                }
                if let Some(what) = misallocated(
                    catalogue,
                    (&tenant, &subject),
                    (&arm.experiment_id, arm.experiment_version.into(), &arm.variant),
                ) {
                    account.note(Class::Misallocated, examples_max, || format!("{}: {what}", name()));
                }
                if !experiments.insert(arm.experiment_id.as_str()) {
                    account.note(Class::Altered, examples_max, || {
                        format!("{}: the operation was shown two arms of it", name())
                    });
                }
            }
            let missing = catalogue.experiments.iter().filter(|one| !experiments.contains(one.id.as_str()));
            for experiment in missing.filter(|_| known.answered) {
                account.note(Class::Misallocated, examples_max, || {
                    format!("{} of operation {request_id}: no arm of it was shown", experiment.id)
                });
            }
        }
    }
}

/// Whether an attempt leaves its caller without knowing what became of the effect, and says so or shows it by breaking off.
fn is_open(attempt: &Attempt) -> bool {
    attempt.ambiguous || matches!(attempt.outcome.as_str(), "unanswered" | "connection_lost" | "stream_reset")
}

/// Whether the arm's event has this id. What is no id has none.
fn is(arm: &Arm, id: &[u8; 16]) -> bool {
    Uuid::parse_str(&arm.event_id).is_ok_and(|told| told.as_bytes() == id)
}

/// What is wrong with an arm for a subject, by the definitions that were served.
fn misallocated(
    catalogue: &Catalogue,
    (tenant, subject): (&str, &str),
    (experiment_id, version, variant): (&str, i64, &str),
) -> Option<String> {
    let Some(experiment) = catalogue.get(experiment_id) else {
        return Some("the catalogue has no such experiment".to_owned());
    };
    if i64::from(experiment.version) != version {
        return Some(format!("version {version}, and the catalogue has version {}", experiment.version));
    }
    let right = oracle::arm(tenant, subject, experiment);
    if right.contains(&Some(variant)) {
        return None;
    }
    Some(format!("arm {variant}, and the definitions give {}", right[0].unwrap_or("none")))
}

/// A row by which it is found again, without whom it is about.
fn named(row: &Row) -> String {
    let id = Uuid::from_bytes(row.event_id);
    format!("row {} ({id}), {} of operation {}", row.sequence, row.experiment_id, row.request_id)
}
