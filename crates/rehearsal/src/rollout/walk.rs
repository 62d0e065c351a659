//! Walk: the ladder from the old policy up, phase by phase; what is decided at each step, and the way back when a bound is
//! breached. Every decision is in the ledger before anything follows from it.
//!
//! Who runs the suites is handed in, so that all of this is tested without any.

use model::rollout::{Ladder, Phase, PhasePlan, Step};
use serde_json::{Value, json};

use super::{
    RolloutError,
    faults::{Injection, NamedFault},
    judge::{Evidence, Measure},
};
use crate::{
    gates::{self, Gate, evidence},
    ledger::{Decision, Draft, Ledger, PolicyRef},
    verdict::Verdict,
};

/// Where every rollout begins.
pub(super) const LEGACY: &str = "policy-legacy";
/// How often a step is run when the machine did not keep time, which says nothing about the step.
const ATTEMPTS_MAX: u32 = 2;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Request<'r> {
    /// Name of the step; its policy is written under it.
    pub(super) name: &'r str,
    /// The policy document.
    pub(super) policy: &'r str,
    /// Peak alone, and shorter.
    pub(super) canary: bool,
    /// Let loose while it runs.
    pub(super) fault: Option<&'static NamedFault>,
}

/// Who runs suites, and is told how it goes.
pub(super) trait Stage {
    /// Takes a suite of its own through the states.
    async fn run(&mut self, request: &Request<'_>) -> Result<Evidence, RolloutError>;
    /// Something was decided.
    fn decided(&mut self, rung: &Rung);
    /// What the ledger writes down beside every decision.
    fn clock(&self) -> &dyn base::WallClock;
}

/// One decision of the walk.
#[derive(Clone, Debug)]
pub struct Rung {
    /// The phase; `LEGACY` for the run that the first is compared with.
    pub phase: String,
    /// The step, which is the phase or its canary; after a reversal, what was put back.
    pub step: String,
    /// What was decided.
    pub decision: Decision,
    /// On these grounds.
    pub gates: Vec<Gate>,
    /// What was seen; `None` when nothing was run.
    pub evidence: Option<Evidence>,
    /// In one sentence.
    pub reason: String,
}

/// How a walk ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Every phase was gone through, or passed over for a reason.
    Reached,
    /// There was not enough evidence.
    Held {
        /// Where.
        phase: String,
        /// For what.
        why: String,
    },
    /// A bound was breached, and the phase was reversed.
    Aborted {
        /// Where.
        phase: String,
        /// Which bound, what was observed, and against what.
        why: String,
        /// Whether the policy that was put back does what it did before.
        restored: Verdict,
    },
    /// The policy to begin with already fails; there is nothing to reverse.
    Unsound {
        /// Why.
        why: String,
    },
}

impl End {
    /// The verdict of the rehearsal.
    pub const fn verdict(&self) -> Verdict {
        match self {
            Self::Reached => Verdict::Pass,
            Self::Held { .. } => Verdict::Inconclusive,
            Self::Aborted { .. } | Self::Unsound { .. } => Verdict::Fail,
        }
    }
}

/// A whole walk.
#[derive(Clone, Debug)]
pub struct Walked {
    /// Every decision, in order.
    pub rungs: Vec<Rung>,
    /// How it ended.
    pub end: End,
}

/// Where the walk goes, and by what it is judged.
pub(super) struct Walk<'w> {
    pub(super) ladder: &'w Ladder,
    /// The policy to begin with.
    pub(super) legacy: &'w str,
    pub(super) measure: Measure,
    pub(super) injection: Option<Injection>,
    /// Who decides, and by which command, for the ledger.
    pub(super) actor: String,
    pub(super) command: String,
}

/// Where the walk stands.
struct Standing {
    /// The last policy that everybody had, its name and what it showed.
    policy: String,
    name: String,
    evidence: Evidence,
    rungs: Vec<Rung>,
}

impl Walk<'_> {
    /// Walks until the top, a breach or a hold.
    ///
    /// # Errors
    /// When there is no evidence at all, or the ledger does not take a decision.
    pub(super) async fn go(
        &self,
        stage: &mut impl Stage,
        ledger: &mut Ledger,
    ) -> Result<Walked, RolloutError> {
        let mut standing = Standing {
            policy: self.legacy.to_owned(),
            name: LEGACY.to_owned(),
            evidence: Evidence::default(),
            rungs: Vec::new(),
        };
        let end = match self.begin(&mut standing, stage, ledger).await? {
            Some(end) => end,
            None => self.climb(&mut standing, stage, ledger).await?,
        };
        Ok(Walked { rungs: standing.rungs, end })
    }

    /// The old policy, with which the first phase is compared.
    async fn begin(
        &self,
        standing: &mut Standing,
        stage: &mut impl Stage,
        ledger: &mut Ledger,
    ) -> Result<Option<End>, RolloutError> {
        let request = Request { name: LEGACY, policy: self.legacy, canary: false, fault: None };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let evidence = stage.run(&request).await?;
            let gates = self.measure.soundness(&evidence, 0);
            let (verdict, again) =
                (gates::verdict(&gates), attempts < ATTEMPTS_MAX && !evidence::in_time(&gates));
            let decision = if attempts == 1 { Decision::Begin } else { Decision::Hold };
            let reason = match deciding(&gates) {
                None => "the old policy, which the first phase is compared with".to_owned(),
                Some(gate) => format!("the old policy is no evidence: {}", said(gate)),
            };
            let rung = Rung {
                phase: LEGACY.to_owned(),
                step: LEGACY.to_owned(),
                decision,
                gates,
                evidence: Some(evidence.clone()),
                reason: reason.clone(),
            };
            self.record(standing, stage, ledger, rung)?;
            match verdict {
                Verdict::Pass => {
                    standing.evidence = evidence;
                    return Ok(None);
                }
                Verdict::Fail => return Ok(Some(End::Unsound { why: reason })),
                _ if again => {}
                _ => return Ok(Some(End::Held { phase: LEGACY.to_owned(), why: reason })),
            }
        }
    }

    async fn climb(
        &self,
        standing: &mut Standing,
        stage: &mut impl Stage,
        ledger: &mut Ledger,
    ) -> Result<End, RolloutError> {
        for phase in &self.ladder.phases {
            if let PhasePlan::NotAvailable(reason) = &phase.plan {
                let rung = Rung {
                    phase: phase.name.clone(),
                    step: phase.name.clone(),
                    decision: Decision::Skip,
                    gates: Vec::new(),
                    evidence: None,
                    reason: format!("passed over: {reason}"),
                };
                self.record(standing, stage, ledger, rung)?;
            }
            for step in phase.steps() {
                if let Some(end) = self.step(phase, step, standing, stage, ledger).await? {
                    return Ok(end);
                }
            }
        }
        Ok(End::Reached)
    }

    /// One step. The end of the walk, unless it goes on.
    async fn step(
        &self,
        phase: &Phase,
        step: &Step,
        standing: &mut Standing,
        stage: &mut impl Stage,
        ledger: &mut Ledger,
    ) -> Result<Option<End>, RolloutError> {
        let injected = self.injection.as_ref().filter(|injection| injection.phase == phase.name);
        let fault = injected.map(|injection| injection.fault);
        let request = Request { name: &step.name, policy: &step.policy, canary: step.canary, fault };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let evidence = stage.run(&request).await?;
            let gates = self.measure.step(&step.bounds, &standing.evidence, &evidence);
            let verdict = gates::verdict(&gates);
            let again = attempts < ATTEMPTS_MAX && !evidence::in_time(&gates);
            let why = deciding(&gates).map(said).unwrap_or_default();
            let (decision, reason) = match verdict {
                Verdict::Pass => (Decision::Advance, format!("all {} checks passed", gates.len())),
                Verdict::Fail => (Decision::Abort, why.clone()),
                _ if again => (Decision::Hold, format!("{why}; it is run once more")),
                _ => (Decision::Hold, why.clone()),
            };
            let rung = Rung {
                phase: phase.name.clone(),
                step: step.name.clone(),
                decision,
                gates,
                evidence: Some(evidence.clone()),
                reason,
            };
            self.record(standing, stage, ledger, rung)?;
            match decision {
                Decision::Advance => {
                    if !step.canary {
                        standing.policy.clone_from(&step.policy);
                        standing.name.clone_from(&step.name);
                        standing.evidence = evidence;
                    }
                    return Ok(None);
                }
                Decision::Abort => {
                    let restored = self.reverse(phase, step, standing, stage, ledger).await?;
                    return Ok(Some(End::Aborted { phase: step.name.clone(), why, restored }));
                }
                _ if again => {}
                _ => return Ok(Some(End::Held { phase: step.name.clone(), why })),
            }
        }
    }

    /// Puts the last policy that everybody had back in force, and looks whether it does what it did.
    async fn reverse(
        &self,
        phase: &Phase,
        step: &Step,
        standing: &mut Standing,
        stage: &mut impl Stage,
        ledger: &mut Ledger,
    ) -> Result<Verdict, RolloutError> {
        let (name, policy) = (standing.name.clone(), standing.policy.clone());
        let restored = format!("{name}/restored");
        // The fault belonged to the phase.
        let request = Request { name: &restored, policy: &policy, canary: true, fault: None };
        let evidence = stage.run(&request).await?;
        let gates = self.measure.restored(&step.bounds, &standing.evidence, &evidence);
        let verdict = gates::verdict(&gates);
        let reason = match deciding(&gates) {
            None => format!("{name} is back in force, and its figures are back"),
            Some(gate) => format!("{name} is back in force, and its figures are not: {}", said(gate)),
        };
        let rung = Rung {
            phase: phase.name.clone(),
            step: name,
            decision: Decision::Reverse,
            gates,
            evidence: Some(evidence),
            reason,
        };
        self.record(standing, stage, ledger, rung)?;
        Ok(verdict)
    }

    /// Writes a decision down, and only then acts on it.
    fn record(
        &self,
        standing: &mut Standing,
        stage: &mut impl Stage,
        ledger: &mut Ledger,
        rung: Rung,
    ) -> Result<(), RolloutError> {
        let subject = self.ladder.name.clone();
        let policy = rung.evidence.as_ref().map(|evidence| PolicyRef {
            generation: evidence.policy.generation,
            digest: evidence.policy.digest.clone(),
        });
        let draft = Draft {
            actor: self.actor.clone(),
            command: self.command.clone(),
            from: ledger.position(&subject).map(str::to_owned),
            to: rung.step.clone(),
            subject,
            decision: rung.decision,
            reason: rung.reason.clone(),
            policy,
            evidence: self.evidence_of(&rung),
        };
        ledger.append(draft, stage.clock()).map_err(RolloutError::Ledger)?;
        stage.decided(&rung);
        standing.rungs.push(rung);
        Ok(())
    }

    /// What the ledger keeps: every check, and the figures without their distributions.
    fn evidence_of(&self, rung: &Rung) -> Value {
        let injection = self.injection.as_ref().filter(|injection| injection.phase == rung.phase);
        let fault = injection.filter(|_| rung.decision != Decision::Reverse).map(|one| one.fault.name);
        let states = rung.evidence.iter().flat_map(|evidence| &evidence.states).map(|state| {
            json!({
                "state": state.state,
                "duration_s": state.duration_s,
                "latency_ms": state.latency_ms,
                "core_goodput_ratio": state.core_goodput_ratio,
                "omission_ratio": state.omission_ratio,
                "rejection_ratio": state.rejection_ratio,
                "late_work": state.late_work,
                "occupancy_ratio": state.occupancy_ratio,
                "queue_age_ms": state.queue_age_ms,
                "core_mismatch": state.core_mismatch,
                "arrivals": state.arrivals,
            })
        });
        json!({
            "rollout": { "name": self.ladder.name, "version": self.ladder.version },
            "seed": self.measure.frame.seed,
            "scale": self.measure.frame.scale,
            "dilate": self.measure.dilate,
            "scenario": self.measure.frame.scenario,
            "workload": self.measure.frame.workload,
            "fault": fault,
            "checks": rung.gates,
            "states": states.collect::<Vec<_>>(),
            "after_run": rung.evidence.as_ref().map(|evidence| &evidence.policy.after_run),
        })
    }
}

/// The gate that decides: the first that fails, else the first that says nothing.
pub(crate) fn deciding(gates: &[Gate]) -> Option<&Gate> {
    evidence::first_breach(gates)
}

/// A gate as a sentence.
pub(crate) fn said(gate: &Gate) -> String {
    let state = gate.state.as_deref().map_or_else(String::new, |state| format!(" at {state}"));
    let observed = gate.observed.map_or_else(|| "not measured".to_owned(), super::judge::number);
    let sign = evidence::sign(gate.rule);
    let bound = super::judge::number(gate.bound);
    let detail = if gate.detail.is_empty() { String::new() } else { format!(" ({})", gate.detail) };
    format!("{}{state}: {observed}, must be {sign} {bound} {}{detail}", gate.name, gate.unit)
}

#[cfg(test)]
mod tests;
