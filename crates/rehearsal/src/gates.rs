//! Gates: the bounds of a rehearsal, each with what was observed against it. Pure: a report goes in, gates come out.
//!
//! [`evidence`] asks whether the run can be relied on and whether its story is the whole one; it trusts no figure that it
//! can make again from counts and buckets. [`objective`] holds the policy after against the objective, [`comparison`] holds
//! it against the policy before, and [`mechanism`] each mechanism alone. Nothing is averaged into a score.

pub mod comparison;
pub mod evidence;
pub mod mechanism;
pub mod objective;

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod stories;

use serde::Serialize;

use crate::{
    report::{Report, State},
    verdict::Verdict,
};

/// What a gate speaks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Whether the run can be relied on, and whether its story is the whole one.
    #[default]
    Evidence,
    /// The bounds of the objective.
    Objective,
    /// Before against after.
    Comparison,
    /// What had to be true of a load profile's run.
    Acceptance,
    /// What would have ended a load profile's run at once.
    Stop,
}

/// Which side of the bound passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// What was observed is at most the bound.
    #[default]
    AtMost,
    /// What was observed is below the bound.
    Below,
    /// What was observed is at least the bound.
    AtLeast,
}

/// What a breach asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The change does not go in.
    #[default]
    Block,
    /// The rollout stays where it is until the cause is known.
    Hold,
    /// Somebody who answers for the product decides, on record.
    ProductDecision,
    /// The run shows nothing and is made again.
    Repeat,
}

impl Action {
    /// As people say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block the change",
            Self::Hold => "hold and find the cause",
            Self::ProductDecision => "needs a recorded product decision",
            Self::Repeat => "repeat the run",
        }
    }
}

/// One bound. Policy, state and name together tell it apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// What it speaks about.
    pub kind: Kind,
    /// The policy that it judges; null when it is about all of them.
    pub policy: Option<String>,
    /// The state that it judges; null when it is about all of them.
    pub state: Option<String>,
    /// Unit of `observed` and `bound`.
    pub unit: &'static str,
    /// What was observed; null when nothing was.
    pub observed: Option<f64>,
    /// Which side of the bound passes.
    pub rule: Rule,
    /// The bound.
    pub bound: f64,
    /// What follows.
    pub verdict: Verdict,
    /// What a breach asks for.
    pub action: Action,
    /// Why the verdict is not simply observed against bound, or where the worst was; empty when there is nothing to say.
    pub detail: String,
}

impl Gate {
    /// A gate that passes at its bound and below.
    pub fn at_most(name: &'static str, unit: &'static str, observed: Option<f64>, bound: f64) -> Self {
        let verdict = Verdict::at_most(observed, bound);
        Self { name, unit, observed, bound, verdict, ..Self::default() }
    }

    /// A gate that passes below its bound only.
    pub fn below(name: &'static str, unit: &'static str, observed: Option<f64>, bound: f64) -> Self {
        let at_bound = observed.is_some_and(|observed| observed >= bound);
        let verdict = if at_bound { Verdict::Fail } else { Verdict::at_most(observed, bound) };
        Self { name, unit, observed, rule: Rule::Below, bound, verdict, ..Self::default() }
    }

    /// A gate that passes at its bound and above.
    pub fn at_least(name: &'static str, unit: &'static str, observed: Option<f64>, bound: f64) -> Self {
        let verdict = Verdict::at_least(observed, bound);
        Self { name, unit, observed, rule: Rule::AtLeast, bound, verdict, ..Self::default() }
    }

    /// What a breach asks for.
    pub fn on_breach(self, action: Action) -> Self {
        Self { action, ..self }
    }

    /// A breach shows nothing about what was rehearsed: the run is made again.
    pub fn doubt(self) -> Self {
        Self { verdict: self.verdict.doubt(), action: Action::Repeat, ..self }
    }

    /// Of this policy.
    pub fn of(self, policy: &str) -> Self {
        Self { policy: Some(policy.to_owned()), ..self }
    }

    /// In this state.
    pub fn during(self, state: &str) -> Self {
        Self { state: Some(state.to_owned()), ..self }
    }

    /// What there is to say.
    pub fn saying(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// Which part a policy has in a rehearsal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What there was. It is expected to miss the objective, and is not judged by it.
    Before,
    /// What is to be.
    #[default]
    After,
}

/// All gates of a report.
pub fn judge(report: &Report) -> Vec<Gate> {
    let mut gates = evidence::judge(report);
    for policy in &report.policies {
        let applies = policy.role == Role::After;
        gates.extend(objective::judge(report, &policy.name, applies));
    }
    gates.extend(comparison::judge(report));
    doubt_untimely(&mut gates);
    gates
}

/// A figure that breaches its bound in a run that did not keep time may be the machine's and not the policy's. Wrong answers
/// and books that do not balance are nobody's but ours, and stay.
fn doubt_untimely(gates: &mut [Gate]) {
    let untimely: Vec<Option<String>> = gates
        .iter()
        .filter(|gate| evidence::KEPT_TIME.contains(&gate.name) && gate.verdict != Verdict::Pass)
        .map(|gate| gate.policy.clone())
        .collect();
    for gate in gates.iter_mut().filter(|gate| gate.verdict == Verdict::Fail) {
        let doubtful = match gate.kind {
            // A profile's conditions say themselves what they owe to the machine.
            Kind::Evidence | Kind::Acceptance | Kind::Stop => false,
            Kind::Objective => untimely.contains(&gate.policy),
            Kind::Comparison => !untimely.is_empty(),
        };
        if doubtful {
            gate.verdict = gate.verdict.doubt();
            gate.action = Action::Repeat;
            let why = "the run did not keep time, so the breach may be the machine's";
            gate.detail =
                if gate.detail.is_empty() { why.to_owned() } else { format!("{}; {why}", gate.detail) };
        }
    }
}

/// The verdict of the run.
pub fn verdict(gates: &[Gate]) -> Verdict {
    Verdict::of_all(gates.iter().map(|gate| gate.verdict))
}

/// The states of a policy.
fn states<'r>(report: &'r Report, policy: &str) -> impl Iterator<Item = &'r State> + Clone {
    report.states.iter().filter(move |state| state.policy == policy)
}

/// One state of the policy with a part.
fn state_of<'r>(report: &'r Report, role: Role, name: &str) -> Option<&'r State> {
    let policy = report.policies.iter().find(|policy| policy.role == role)?;
    report.states.iter().find(|state| state.policy == policy.name && state.state == name)
}

/// The largest figure and the state that it is from; `None` when any of them is unknown, since that may be larger.
fn worst<'s>(
    states: impl Iterator<Item = &'s State>,
    figure: impl Fn(&State) -> Option<f64>,
) -> Option<(f64, &'s str)> {
    let mut worst = None;
    for state in states {
        let value = figure(state)?;
        if worst.is_none_or(|(most, _)| value > most) {
            worst = Some((value, state.state.as_str()));
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_on_their_own_side() {
        let verdicts = |gate: fn(&'static str, &'static str, Option<f64>, f64) -> Gate| {
            [Some(0.9), Some(1.0), Some(1.1), None, Some(f64::NAN)]
                .map(|observed| gate("g", "ratio", observed, 1.0).verdict)
        };
        use Verdict::{Fail, Inconclusive, Pass};
        assert_eq!(verdicts(Gate::at_most), [Pass, Pass, Fail, Inconclusive, Inconclusive]);
        assert_eq!(verdicts(Gate::below), [Pass, Fail, Fail, Inconclusive, Inconclusive]);
        assert_eq!(verdicts(Gate::at_least), [Fail, Pass, Pass, Inconclusive, Inconclusive]);
        let doubted = Gate::at_most("g", "ratio", Some(2.0), 1.0).doubt();
        assert_eq!((doubted.verdict, doubted.action), (Inconclusive, Action::Repeat));
    }

    #[test]
    fn a_report_without_anything_passes_nothing() {
        let report = Report::default();
        assert_eq!(verdict(&judge(&report)), Verdict::Inconclusive);
        let mut named = report;
        named.policies = vec![crate::report::PolicyRef { name: "policy".to_owned(), ..Default::default() }];
        let gates = judge(&named);
        assert!(!gates.is_empty());
        assert!(gates.iter().all(|gate| gate.verdict != Verdict::Pass), "{gates:#?}");
    }
}
