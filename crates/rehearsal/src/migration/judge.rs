//! Judge: whether the phase in force has shown enough for the next one. Pure: what was heard goes in, gates come out.
//!
//! First the hearing itself: every process answered, each kind is there, all are where the ledger is. Then the figures,
//! summed over the processes that are. How the two make one verdict:
//!
//! - What more evidence could not undo fails at once, whoever was not heard: a summary that lied, a request refused for lack
//!   of one, a process that could not serve the next phase, a key that is not accepted. These are [`STANDS`].
//! - Any other breach is a share of what was seen. While a process is missing or behind, or the sample is small, it may be
//!   otherwise, so it is inconclusive, like everything else then.
//! - What was not observed never passes.

mod figures;
mod processes;

use ::rollout::{
    Phase, Standing,
    ledger::Head,
    report::{Counts, ProcessReport},
};
use model::migration::{Plan, Target};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    gates::{self, Gate},
    rollout::{deciding, said},
    verdict::Verdict,
};

/// Gates whose breach stands even if not every process was heard.
pub const STANDS: [&str; 4] = ["able", "keys_accepted", "blocking", "closed"];
/// The services that take part.
pub const SERVICES: [&str; 2] = ["home-api", "profile"];

/// What one process said.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// Its admin port.
    pub address: String,
    /// What it said, or why there is nothing.
    pub report: Result<ProcessReport, String>,
}

/// What is to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the migration goes on, to this phase.
    Onward(Target),
    /// Whether the call, once gone, is brought back: from contract to cutover. No figures of contract speak for or against
    /// it, so the processes alone are looked at.
    Return,
}

impl Question {
    /// The phase that it is about.
    pub fn target(self) -> Phase {
        match self {
            // Every target is a phase of the same name, which a test checks.
            Self::Onward(target) => Phase::parse(target.as_str()).unwrap_or_default(),
            Self::Return => Phase::Cutover,
        }
    }

    /// What is asked of a migration that is in `phase`; `None` at the end.
    pub fn after(phase: Phase) -> Option<Self> {
        phase.next().and_then(|next| Target::parse(next.as_str())).map(Self::Onward)
    }
}

/// Everything that a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Case<'c> {
    /// The bounds.
    pub plan: &'c Plan,
    /// By their quick extent.
    pub quick: bool,
    /// Where the ledger is; `None` before its first decision about the migration.
    pub standing: Option<&'c Standing>,
    /// The last decision of the ledger.
    pub head: Option<&'c Head>,
    /// What is to be decided.
    pub question: Question,
    /// What every process said.
    pub processes: &'c [Heard],
    /// Now, in milliseconds since the Unix epoch.
    pub now_unix_ms: i64,
}

/// A verdict and its grounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The phase that it is about.
    pub target: Phase,
    /// Pass, fail or inconclusive.
    pub verdict: Verdict,
    /// Why, in one sentence.
    pub reason: String,
    /// Every check.
    pub gates: Vec<Gate>,
    /// What it was decided on, as the ledger keeps it.
    pub evidence: Value,
}

impl Case<'_> {
    /// Judges.
    pub fn judge(&self) -> Judgement {
        let mut gates = processes::gates(self);
        let whole = gates
            .iter()
            .all(|gate| gate.verdict == Verdict::Pass || !processes::HEARING.contains(&gate.name));
        let counts = self.counts();
        if let Question::Onward(target) = self.question {
            gates.extend(figures::gates(self, target, &counts));
        }
        if !whole {
            for gate in gates.iter_mut().filter(|gate| !STANDS.contains(&gate.name)) {
                if gate.verdict == Verdict::Fail {
                    let why = "not every process was heard where the ledger is, so it may be otherwise";
                    let detail = joined(&gate.detail, why);
                    *gate = std::mem::take(gate).doubt().saying(detail);
                }
            }
        }
        let verdict = gates::verdict(&gates);
        let target = self.question.target();
        let reason =
            deciding(&gates).map_or_else(|| format!("every bound of the way to {target} was kept"), said);
        let evidence = self.evidence(&gates, &counts);
        Judgement { target, verdict, reason, gates, evidence }
    }

    /// The reports that say what they should, with their addresses.
    fn reports(&self) -> impl Iterator<Item = (&str, &ProcessReport)> + Clone {
        self.processes.iter().filter_map(|heard| {
            let report = heard.report.as_ref().ok()?;
            SERVICES.contains(&report.service.as_str()).then_some((heard.address.as_str(), report))
        })
    }

    /// Those of one service.
    fn of(&self, service: &str) -> impl Iterator<Item = (&str, &ProcessReport)> + Clone {
        self.reports().filter(move |(_, report)| report.service == service)
    }

    /// Whether a process is where the ledger is. One that is not counts for another phase.
    fn is_current(&self, report: &ProcessReport) -> bool {
        self.standing.is_some_and(|at| (at.phase, at.generation) == (report.phase, report.generation))
    }

    /// What all of them saw since the phase began.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for (_, report) in self.reports().filter(|(_, report)| self.is_current(report)) {
            sum.add(&report.counts);
        }
        sum
    }

    /// What the ledger keeps: every check, the figures, and who said them. Of samples their number alone: they expire, and
    /// the ledger does not.
    pub(super) fn evidence(&self, gates: &[Gate], counts: &Counts) -> Value {
        let processes = self.processes.iter().map(|heard| match &heard.report {
            Err(why) => json!({ "address": heard.address, "unheard": why }),
            Ok(report) => json!({
                "address": heard.address,
                "service": report.service,
                "instance": report.instance,
                "phase": report.phase,
                "generation": report.generation,
                "head": report.head.as_ref().map(|head| head.sequence),
                "policy_generation": report.policy_generation,
                "unable": report.unable,
                "keys": report.keys,
                "revocations": report.revocations,
                "counting_since_unix_ms": report.counting_since_unix_ms,
                "samples": report.samples.len(),
            }),
        });
        json!({
            "plan": {
                "name": self.plan.name,
                "version": self.plan.version,
                "digest": format!("{:016x}", self.plan.digest),
                "quick": self.quick,
            },
            "checks": gates,
            "counts": counts,
            "processes": processes.collect::<Vec<_>>(),
        })
    }
}

/// Two remarks as one.
fn joined(first: &str, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { format!("{first}; {second}") }
}

#[cfg(test)]
mod tests;
