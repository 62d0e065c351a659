//! View: a report as the page shows it: states in order, the policies of each side by side, and the figures that are
//! compared. How they are drawn is not known here, but for the mark and the ink of a policy.

use super::{
    ink::{self, Ink, POLICIES_TOLD_APART},
    plot::{Drawn, Sheet},
    text::{self, Unit},
};
use crate::{
    gates::{Gate, Rule, evidence::sign},
    report::{Report, State},
    slo::RunInfo,
};

/// Most cases, that is states of policies, on the page. The others are in `report.json`.
const CASES_MAX: usize = 48;
/// Most policies by name where they are listed.
pub(super) const POLICIES_MAX: usize = 48;
/// Most bytes of a name in a plot.
const NAME_BYTES_MAX: usize = 26;

/// A report, arranged.
pub(super) struct View<'a> {
    pub(super) report: &'a Report,
    pub(super) run: &'a RunInfo,
    /// Policies in the order in which they were rehearsed.
    pub(super) policies: Vec<String>,
    /// States in order.
    pub(super) groups: Vec<Group<'a>>,
    /// Cases beyond [`CASES_MAX`].
    pub(super) left_out: usize,
}

/// One state under every policy.
pub(super) struct Group<'a> {
    /// By which it is known.
    pub(super) name: &'a str,
    /// As it is written.
    pub(super) title: String,
    pub(super) cases: Vec<Case<'a>>,
}

/// One state of one policy.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    /// Index into [`View::policies`].
    pub(super) policy: usize,
    pub(super) state: &'a State,
}

/// A figure that is compared.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) value: fn(&State) -> Option<f64>,
    /// The gate whose bound it has.
    gate: Option<&'static str>,
    /// Where that bound holds.
    place: Place,
}

/// The states that a bound holds in.
#[derive(Clone, Copy)]
enum Place {
    Anywhere,
    In(&'static str),
    NotIn(&'static str),
}

const fn figure(name: &'static str, unit: Unit, value: fn(&State) -> Option<f64>) -> Figure {
    Figure { name, unit, value, gate: None, place: Place::Anywhere }
}

/// What is compared, in the order in which it is read.
pub(super) static FIGURES: [Figure; 14] = [
    figure("p50 latency", Unit::Ms, |state| state.latency_ms.p50),
    figure("p99 latency", Unit::Ms, |state| state.latency_ms.p99).bound_by("p99"),
    figure("p99.9 latency", Unit::Ms, |state| state.latency_ms.p999),
    figure("core goodput", Unit::Ratio, |state| state.core_goodput_ratio).bound_by("goodput").only_in("peak"),
    figure("rejected", Unit::Ratio, |state| state.rejection_ratio),
    figure("omission", Unit::Ratio, |state| state.omission_ratio).bound_by("omission").only_in("peak"),
    figure("late work", Unit::Ratio, |state| state.late_work.ratio).bound_by("late_work").not_in("recovery"),
    figure("late operations at once", Unit::Number, |state| state.late_work.concurrent),
    figure("endpoint occupancy", Unit::Ratio, |state| state.occupancy_ratio.endpoint),
    figure("profile occupancy", Unit::Ratio, |state| state.occupancy_ratio.profile)
        .bound_by("profile_occupancy")
        .not_in("recovery"),
    figure("queue age p99", Unit::Ms, |state| state.queue_age_ms.p99)
        .bound_by("queue_age_p99")
        .not_in("recovery"),
    figure("profile calls per operation", Unit::Number, |state| state.profile_calls_per_operation),
    figure("callers that left", Unit::Ratio, |state| state.departure_ratio),
    figure("recovery", Unit::Seconds, |state| state.recovery_s.or(state.recovery_at_least_s))
        .bound_by("recovery")
        .only_in("recovery"),
];

impl Figure {
    const fn bound_by(self, gate: &'static str) -> Self {
        Self { gate: Some(gate), ..self }
    }

    const fn only_in(self, state: &'static str) -> Self {
        Self { place: Place::In(state), ..self }
    }

    const fn not_in(self, state: &'static str) -> Self {
        Self { place: Place::NotIn(state), ..self }
    }

    /// What was observed, if anything was.
    pub(super) fn of(&self, state: &State) -> Option<f64> {
        (self.value)(state).filter(|value| value.is_finite())
    }

    /// What was observed, in words; a recovery may be known only from below.
    pub(super) fn words(&self, state: &State) -> Option<String> {
        if self.is_recovery() { text::recovery(state) } else { self.unit.write(self.of(state)) }
    }

    fn is_recovery(&self) -> bool {
        self.gate == Some("recovery")
    }

    /// The gate that bounds it in `state`: that state's own, else the one for all states.
    fn gate_in<'g>(&self, gates: &'g [Gate], state: &str) -> Option<&'g Gate> {
        let name = self.gate.filter(|_| match self.place {
            Place::Anywhere => true,
            Place::In(only) => only == state,
            Place::NotIn(exempt) => exempt != state,
        })?;
        let named = || gates.iter().filter(|gate| gate.name == name && gate.bound.is_finite());
        named()
            .find(|gate| gate.state.as_deref() == Some(state))
            .or_else(|| named().find(|gate| gate.state.is_none()))
    }

    /// Its bound in `state`.
    pub(super) fn bound_in(&self, gates: &[Gate], state: &str) -> Option<f64> {
        self.gate_in(gates, state).map(|gate| gate.bound)
    }

    /// Its bound in `state` when that is a largest value.
    pub(super) fn most_in(&self, gates: &[Gate], state: &str) -> Option<f64> {
        self.gate_in(gates, state).filter(|gate| gate.rule != Rule::AtLeast).map(|gate| gate.bound)
    }

    /// Its bound in words, with the states where it holds when it does not hold in all.
    pub(super) fn bound_words(&self, view: &View<'_>) -> Option<String> {
        let gates = &view.report.gates;
        let bounds: Vec<(&str, &Gate)> = view
            .groups
            .iter()
            .filter_map(|group| Some((group.name, self.gate_in(gates, group.name)?)))
            .collect();
        let (_, first) = bounds.first()?;
        let sign = sign(first.rule);
        let bound = self.unit.write(Some(first.bound))?;
        let alike = bounds.iter().all(|(_, gate)| gate.bound == first.bound && gate.rule == first.rule);
        match bounds.as_slice() {
            _ if !alike => Some("by state".to_owned()),
            all if all.len() == view.groups.len() || self.is_recovery() => Some(format!("{sign} {bound}")),
            some => {
                let states: Vec<&str> = some.iter().map(|(state, _)| *state).collect();
                Some(format!("{sign} {bound} ({})", states.join(", ")))
            }
        }
    }

    /// Whether what was observed misses the bound that holds there.
    pub(super) fn misses(&self, gates: &[Gate], state: &State) -> bool {
        self.gate_in(gates, &state.state).zip(self.of(state)).is_some_and(|(gate, value)| match gate.rule {
            Rule::AtMost => value > gate.bound,
            Rule::Below => value >= gate.bound,
            Rule::AtLeast => value < gate.bound,
        })
    }
}

/// The figure of a name.
pub(super) fn named(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

/// A name that fits beside a plot.
fn short(name: &str) -> String {
    text::cut(name, NAME_BYTES_MAX)
}

impl<'a> View<'a> {
    pub(super) fn of(report: &'a Report, run: &'a RunInfo) -> Self {
        let mut policies: Vec<&str> = Vec::new();
        let mut groups: Vec<Group<'_>> = Vec::new();
        for state in report.states.iter().take(CASES_MAX) {
            let policy = policies.iter().position(|policy| *policy == state.policy).unwrap_or_else(|| {
                policies.push(&state.policy);
                policies.len() - 1
            });
            let case = Case { policy, state };
            match groups.iter_mut().find(|group| group.name == state.state) {
                Some(group) => group.cases.push(case),
                None => {
                    groups.push(Group { name: &state.state, title: short(&state.state), cases: vec![case] })
                }
            }
        }
        let policies = policies.into_iter().map(short).collect();
        Self { report, run, policies, groups, left_out: report.states.len().saturating_sub(CASES_MAX) }
    }

    /// All cases, state by state.
    pub(super) fn cases(&self) -> impl Iterator<Item = (&'a str, Case<'a>)> {
        self.groups.iter().flat_map(|group| group.cases.iter().map(|case| (group.name, *case)))
    }

    /// The ink of a policy.
    pub(super) fn ink(&self, policy: usize) -> Ink {
        ink::policy(policy, self.policies.len())
    }

    /// The policies by ink, those that are drawn.
    pub(super) fn legend(&self) -> Vec<(Ink, String)> {
        let named = self.policies.iter().enumerate().filter(|(at, _)| self.draws(*at));
        named.map(|(at, name)| (self.ink(at), name.clone())).collect()
    }

    /// Whether a policy has lines of its own: all when they can be told apart, else the first and the last.
    pub(super) fn draws(&self, policy: usize) -> bool {
        self.policies.len() <= POLICIES_TOLD_APART || policy == 0 || policy + 1 == self.policies.len()
    }

    /// The mark of a policy: a ring for what is compared with, a dot for the others, a small one for those between.
    pub(super) fn mark(&self, sheet: &Sheet<'_>, policy: usize, at: (f64, f64)) -> Drawn {
        match policy {
            0 if self.policies.len() > 1 => sheet.ring(at, 4.5, self.ink(policy)),
            drawn if self.draws(drawn) => sheet.dot(at, 5.0, self.ink(policy)),
            between => sheet.dot(at, 2.5, self.ink(between)),
        }
    }

    /// What to say when some policies have no lines.
    pub(super) fn drawn_note(&self) -> &'static str {
        if self.policies.len() > POLICIES_TOLD_APART { "The first and the last policy." } else { "" }
    }

    /// The bound of the first gate of a name.
    pub(super) fn bound(&self, gate: &str) -> Option<f64> {
        self.report
            .gates
            .iter()
            .find(|one| one.name == gate)
            .map(|gate| gate.bound)
            .filter(|bound| bound.is_finite())
    }

    /// Whether there is a before and an after, and nothing else.
    pub(super) fn is_comparison(&self) -> bool {
        self.policies.len() == 2
    }
}
