//! Desk: where the migration is moved. Hear every process, judge, write the decision into the ledger, see it arrive.
//!
//! The append to the ledger is the one moment at which a decision counts. Whoever is killed before it has decided nothing;
//! whoever is killed after it has decided, and every process finds the decision there, whenever it was started. So all of
//! them come to be in one phase, the old or the new one. What follows the append, the confirmation, only looks whether they
//! are there: a process that is not says itself that it is not ready, and the decision stands.
//!
//! The ledger is locked from the hearing to the append, so that of two commands one decides and the other is told why not.
//! It is free again while the confirmation is waited for: a way back must not stand in a queue behind it.

mod confirm;
mod error;

use std::{path::PathBuf, sync::Arc, time::Duration};

use ::rollout::{
    Phase, SUBJECT, Standing,
    ledger::{self, Decision, Draft, Entry, Head, Ledger, LedgerError, OWN_SUBJECT},
    report::Counts,
};
use base::WallClock;
use model::migration::Plan;
use serde_json::{Value, json};
use tokio::time;

use super::{
    hearing::{self, HEAR_MAX, Hearing},
    judge::{Case, Heard, Judgement, Question},
};
use crate::verdict::Verdict;

pub use confirm::{Confirmation, Unconfirmed};
pub use error::DeskError;

/// Most processes that are asked.
pub const PROCESSES_MAX: usize = 256;
/// How often a process is asked whether it has arrived.
const POLL: Duration = Duration::from_millis(50);
/// How long a process that reads the ledger may be behind before that speaks against a decision.
const CATCH_UP_MAX: Duration = Duration::from_secs(2);
/// How long a way back waits for a command that holds the ledger: an advance holds it while it hears everybody.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// How long a decision is waited for to arrive.
const CONFIRM_MAX: Duration = Duration::from_secs(10);
/// How long a way back waits for what the processes have to say: it is for the record only.
const REVERSE_HEAR_MAX: Duration = Duration::from_millis(500);
/// What to do once the call is gone.
const FORWARD: &str = "bring the call back as a forward change of its own: mercury rollout begin";

/// Where the migration is moved.
pub struct Desk<H> {
    /// The ledger.
    pub ledger: PathBuf,
    /// Admin ports of all processes that take part; no more than [`PROCESSES_MAX`].
    pub processes: Vec<String>,
    /// The bounds.
    pub plan: Plan,
    /// By their quick extent.
    pub quick: bool,
    /// Who decides.
    pub actor: String,
    /// By which command.
    pub command: String,
    /// When.
    pub wall: Arc<dyn WallClock>,
    /// How processes are asked.
    pub hearing: H,
}

/// Where the migration is, and what would be said to going on.
#[derive(Clone, Debug)]
pub struct Status {
    /// By the ledger; `None` before its first decision.
    pub standing: Option<Standing>,
    /// The last decision, about whatever subject.
    pub head: Option<Head>,
    /// What every process says.
    pub heard: Vec<Heard>,
    /// Figures of those that are where the ledger is, summed.
    pub counts: Counts,
    /// The way to the next phase; `None` after the last.
    pub next: Option<Judgement>,
    /// Now, in milliseconds since the Unix epoch.
    pub now_unix_ms: i64,
}

/// A decision that is in the ledger.
#[derive(Clone, Debug)]
pub struct Decided {
    /// As it stands there.
    pub entry: Entry,
    /// On what grounds; `None` where none were asked for.
    pub judgement: Option<Judgement>,
    /// Whether it arrived.
    pub confirmation: Confirmation,
}

/// The ledger's entries about the migration, all verified.
#[derive(Clone, Debug)]
pub struct History {
    /// In order; its repairs of itself included.
    pub entries: Vec<Entry>,
    /// Bytes of a last line that was never acknowledged; 0 when there is none.
    pub torn_bytes: usize,
}

impl Decided {
    /// Passed, and arrived everywhere; failed when it was refused; inconclusive otherwise.
    pub fn verdict(&self) -> Verdict {
        match (self.entry.decision, &self.confirmation) {
            (Decision::Refuse, _) => Verdict::Fail,
            (Decision::Hold, _) | (_, Confirmation::Missing(_)) => Verdict::Inconclusive,
            (_, Confirmation::NotNeeded | Confirmation::ByAll) => Verdict::Pass,
        }
    }

    /// Why it is not a pass; empty when it is.
    pub fn why(&self) -> String {
        match (self.entry.decision, &self.confirmation) {
            (Decision::Refuse | Decision::Hold, _) => {
                let Entry { decision, to, reason, .. } = &self.entry;
                format!("{decision} before {to}: {reason}")
            }
            (decision, Confirmation::Missing(missing)) => {
                let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
                let whom =
                    if names.is_empty() { "anybody: nobody was asked".to_owned() } else { names.join("; ") };
                format!("{decision} to {} is decided, and not confirmed by {whom}", self.entry.to)
            }
            _ => String::new(),
        }
    }
}

impl<H: Hearing> Desk<H> {
    /// Where the migration is, and what would be said to going on now. Changes nothing and waits for nobody.
    ///
    /// # Errors
    /// When the ledger cannot be relied on.
    pub async fn status(&self) -> Result<Status, DeskError> {
        let (standing, head) = Standing::read(&self.ledger).map_err(DeskError::standing)?;
        let heard = hearing::all(&self.hearing, &self.processes, HEAR_MAX).await;
        let now_unix_ms = self.wall.unix_ms();
        let phase = standing.as_ref().map_or(Phase::Legacy, |standing| standing.phase);
        let case = |question| Case {
            plan: &self.plan,
            quick: self.quick,
            standing: standing.as_ref(),
            head: head.as_ref(),
            question,
            processes: &heard,
            now_unix_ms,
        };
        let counts = case(Question::Return).counts();
        let next = Question::after(phase).map(|question| case(question).judge());
        Ok(Status { standing, head, heard, counts, next, now_unix_ms })
    }

    /// Every decision about the migration, after the whole ledger was verified.
    ///
    /// # Errors
    /// When the ledger cannot be relied on.
    pub fn history(&self) -> Result<History, DeskError> {
        history(&self.ledger)
    }

    /// Goes on to the next phase if the phase in force has shown enough, and writes down why not if it has not. A ledger
    /// without a decision about the migration begins at legacy.
    ///
    /// # Errors
    /// [`DeskError`] when nothing could be decided, or written.
    pub async fn advance(&self) -> Result<Decided, DeskError> {
        let mut ledger = self.open()?;
        let standing = match standing(&ledger)? {
            Some(standing) => standing,
            None => {
                let reason = "the migration begins".to_owned();
                let evidence = json!({ "plan": { "name": self.plan.name, "version": self.plan.version } });
                let draft = self.draft(None, Phase::Legacy, Decision::Begin, reason, evidence);
                ledger.append(draft, &*self.wall)?;
                standing(&ledger)?.ok_or_else(|| DeskError::standing("its beginning is not in the ledger"))?
            }
        };
        let Some(question) = Question::after(standing.phase) else {
            let last = standing.phase;
            return Err(DeskError::Usage(format!(
                "the migration is in {last}, and there is nothing after it"
            )));
        };
        self.judged(ledger, &standing, question, Decision::Advance).await
    }

    /// Goes back to an earlier phase, whatever the figures and whoever is not heard: it has to work in trouble. After
    /// contract there is no way back, and the refusal is written down.
    ///
    /// # Errors
    /// [`DeskError`] when nothing could be decided, or written.
    pub async fn rollback(&self, to: Phase) -> Result<Decided, DeskError> {
        let (mut ledger, standing) = self.begun_soon().await?;
        let from = standing.phase;
        if to >= from {
            let text =
                format!("--to {to}: the migration is in {from}, and a way back leads to an earlier phase");
            return Err(DeskError::Usage(text));
        }
        let heard = hearing::all(&self.hearing, &self.processes, REVERSE_HEAR_MAX).await;
        let case = Case {
            plan: &self.plan,
            quick: self.quick,
            standing: Some(&standing),
            head: None,
            question: Question::Return,
            processes: &heard,
            now_unix_ms: self.wall.unix_ms(),
        };
        let evidence = case.evidence(&[], &case.counts());
        if !from.has_call() {
            let reason = format!(
                "the entitlement call is gone since contract, and what it depended on may be gone too, so no earlier \
                 phase can be put back; {FORWARD}"
            );
            let draft = self.draft(Some(from), to, Decision::Refuse, reason, evidence);
            let entry = ledger.append(draft, &*self.wall)?.clone();
            return Ok(Decided { entry, judgement: None, confirmation: Confirmation::NotNeeded });
        }
        let reason = format!("{} had it put back; a way back asks for no figures", self.actor);
        let draft = self.draft(Some(from), to, Decision::Reverse, reason, evidence);
        self.decided(ledger, draft, None).await
    }

    /// Goes back by one phase.
    ///
    /// # Errors
    /// As [`Desk::rollback`].
    pub async fn rollback_one(&self) -> Result<Decided, DeskError> {
        let (standing, _) = Standing::read(&self.ledger).map_err(DeskError::standing)?;
        let standing = standing.ok_or_else(|| self.not_begun())?;
        // Whether it still is there is looked at once more under the lock.
        match Phase::ALL.into_iter().rev().find(|phase| *phase < standing.phase) {
            Some(to) => self.rollback(to).await,
            None => {
                let first = standing.phase;
                Err(DeskError::Usage(format!("the migration is in {first}, and there is nothing before it")))
            }
        }
    }

    /// Brings the call back after contract, as a migration of its own: to cutover, from where every other way is open again.
    ///
    /// # Errors
    /// [`DeskError`] when nothing could be decided, or written.
    pub async fn begin(&self) -> Result<Decided, DeskError> {
        let (ledger, standing) = self.begun()?;
        if standing.phase != Phase::Contract {
            let text = format!(
                "the migration is in {}, where the call still is: use mercury rollout advance, or rollback --to PHASE",
                standing.phase
            );
            return Err(DeskError::Usage(text));
        }
        self.judged(ledger, &standing, Question::Return, Decision::Begin).await
    }

    /// Hears, judges, and writes down what follows: `on_pass`, a refusal or a hold.
    async fn judged(
        &self,
        ledger: Ledger,
        standing: &Standing,
        question: Question,
        on_pass: Decision,
    ) -> Result<Decided, DeskError> {
        let head = ledger.head().map(|last| Head { sequence: last.sequence, digest: last.digest.clone() });
        let heard = self.hear_caught_up(standing, head.as_ref()).await;
        let case = Case {
            plan: &self.plan,
            quick: self.quick,
            standing: Some(standing),
            head: head.as_ref(),
            question,
            processes: &heard,
            now_unix_ms: self.wall.unix_ms(),
        };
        let judgement = case.judge();
        let decision = match judgement.verdict {
            Verdict::Pass => on_pass,
            Verdict::Fail => Decision::Refuse,
            Verdict::Inconclusive | Verdict::NotApplicable => Decision::Hold,
        };
        let (reason, evidence) = (judgement.reason.clone(), judgement.evidence.clone());
        let draft = self.draft(Some(standing.phase), judgement.target, decision, reason, evidence);
        self.decided(ledger, draft, Some(judgement)).await
    }

    /// Writes a decision down, which is when it counts, and sees it arrive.
    async fn decided(
        &self,
        mut ledger: Ledger,
        draft: Draft,
        judgement: Option<Judgement>,
    ) -> Result<Decided, DeskError> {
        let entry = ledger.append(draft, &*self.wall)?.clone();
        drop(ledger);
        let moved = !matches!(entry.decision, Decision::Hold | Decision::Refuse);
        let confirmation = if moved { self.confirm(entry.sequence).await } else { Confirmation::NotNeeded };
        Ok(Decided { entry, judgement, confirmation })
    }

    /// Hears all of them, and once more while one that can be heard has only not read the ledger to its end.
    async fn hear_caught_up(&self, standing: &Standing, head: Option<&Head>) -> Vec<Heard> {
        let mut heard = hearing::all(&self.hearing, &self.processes, HEAR_MAX).await;
        let behind = |heard: &Heard| match &heard.report {
            Ok(report) => report.generation != standing.generation || report.head.as_ref() != head,
            Err(_) => false,
        };
        // Whoever is still behind then stays as it was last heard.
        let _ = time::timeout(CATCH_UP_MAX, async {
            while heard.iter().any(behind) {
                time::sleep(POLL).await;
                heard = hearing::all(&self.hearing, &self.processes, HEAR_MAX).await;
            }
        })
        .await;
        heard
    }

    fn open(&self) -> Result<Ledger, DeskError> {
        Ok(Ledger::open(&self.ledger, &*self.wall)?)
    }

    /// The ledger of a migration that has begun. One that has not is not made here.
    fn begun(&self) -> Result<(Ledger, Standing), DeskError> {
        if !self.ledger.exists() && ledger::head(&self.ledger)?.is_none() {
            return Err(self.not_begun());
        }
        let ledger = self.open()?;
        let standing = standing(&ledger)?.ok_or_else(|| self.not_begun())?;
        Ok((ledger, standing))
    }

    /// As [`Desk::begun`], after a while if another command holds the ledger: a way back does not give up at once.
    async fn begun_soon(&self) -> Result<(Ledger, Standing), DeskError> {
        let soon = async {
            loop {
                match self.begun() {
                    Err(DeskError::Ledger(LedgerError::Busy(_))) => time::sleep(POLL).await,
                    other => return other,
                }
            }
        };
        match time::timeout(BUSY_MAX, soon).await {
            Ok(begun) => begun,
            Err(_) => self.begun(),
        }
    }

    fn not_begun(&self) -> DeskError {
        let path = self.ledger.display();
        DeskError::Usage(format!(
            "{path}: no decision about the migration yet: mercury rollout advance begins it"
        ))
    }

    fn draft(
        &self,
        from: Option<Phase>,
        to: Phase,
        decision: Decision,
        reason: String,
        evidence: Value,
    ) -> Draft {
        Draft {
            actor: self.actor.clone(),
            command: self.command.clone(),
            subject: SUBJECT.to_owned(),
            from: from.map(|phase| phase.as_str().to_owned()),
            to: to.as_str().to_owned(),
            decision,
            reason,
            policy: None,
            evidence,
        }
    }
}

/// Every decision about the migration in the ledger at `path`, after all of it was verified. A ledger that is not there yet
/// has none.
///
/// # Errors
/// When the ledger cannot be relied on.
pub fn history(path: &std::path::Path) -> Result<History, DeskError> {
    if !path.exists() && ledger::head(path)?.is_none() {
        return Ok(History { entries: Vec::new(), torn_bytes: 0 });
    }
    let verified = ledger::verify(path)?;
    let own = |entry: &Entry| entry.subject == SUBJECT || entry.subject == OWN_SUBJECT;
    let entries = verified.entries.into_iter().filter(own).collect();
    Ok(History { entries, torn_bytes: verified.torn_bytes })
}

/// Where an open ledger is.
fn standing(ledger: &Ledger) -> Result<Option<Standing>, DeskError> {
    let entries: Vec<&Entry> = ledger.history(None).collect();
    Standing::of(entries.into_iter()).map_err(DeskError::standing)
}
