//! View: a report as the page shows it: states in order, the policies of each side by side, and the figures that are
//! compared. How they are drawn is not known here, but for the mark and the ink of a policy.

use super::{
    ink::{self, Ink, POLICIES_TOLD_APART},
    plot::{Drawn, Sheet},
    text::{self, Unit},
};
use crate::{
    gates::{Gate, Role, Rule, evidence::sign},
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
    /// Absent where the page must not depend on the machine and the hour: of a simulation.
    pub(super) run: Option<&'a RunInfo>,
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
    /// The gates whose bound it has, by their names in a comparison and in a rollout; none when it has none.
    gates: [&'static str; 2],
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
    Figure { name, unit, value, gates: ["", ""], place: Place::Anywhere }
}

/// What is compared, in the order in which it is read.
pub(super) static FIGURES: [Figure; 14] = [
    figure("p50 latency", Unit::Ms, |state| state.latency_ms.p50),
    figure("p99 latency", Unit::Ms, |state| state.latency_ms.p99).bound_by(["p99", "p99_max_ms"]),
    figure("p99.9 latency", Unit::Ms, |state| state.latency_ms.p999),
    figure("core goodput", Unit::Ratio, |state| state.core_goodput_ratio)
        .bound_by(["goodput", "goodput_min_ratio"])
        .only_in("peak"),
    figure("rejected", Unit::Ratio, |state| state.rejection_ratio).bound_by(["", "rejection_max_ratio"]),
    figure("omission", Unit::Ratio, |state| state.omission_ratio)
        .bound_by(["omission", "omission_max_ratio"])
        .only_in("peak"),
    figure("late work", Unit::Ratio, |state| state.late_work.ratio)
        .bound_by(["late_work", "late_work_max_ratio"])
        .not_in("recovery"),
    figure("late operations at once", Unit::Number, |state| state.late_work.concurrent),
    figure("endpoint occupancy", Unit::Ratio, |state| state.occupancy_ratio.endpoint)
        .bound_by(["", "endpoint_occupancy_max_ratio"]),
    figure("profile occupancy", Unit::Ratio, |state| state.occupancy_ratio.profile)
        .bound_by(["profile_occupancy", "profile_occupancy_max_ratio"])
        .not_in("recovery"),
    figure("queue age p99", Unit::Ms, |state| state.queue_age_ms.p99)
        .bound_by(["queue_age_p99", "queue_age_p99_max_ms"])
        .not_in("recovery"),
    figure("profile calls per operation", Unit::Number, |state| state.profile_calls_per_operation),
    figure("callers that left", Unit::Ratio, |state| state.departure_ratio),
    figure(RECOVERY, Unit::Seconds, |state| state.recovery_s.or(state.recovery_at_least_s))
        .bound_by(["recovery", "recovery_max_s"])
        .only_in("recovery"),
];

/// The figure that may be known only from below.
const RECOVERY: &str = "recovery";

impl Figure {
    const fn bound_by(self, gates: [&'static str; 2]) -> Self {
        Self { gates, ..self }
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

    /// What was observed, in words.
    pub(super) fn words(&self, state: &State) -> Option<String> {
        if self.name == RECOVERY { text::recovery(state) } else { self.unit.write(self.of(state)) }
    }

    /// The gate that bounds it for a policy in a state: that state's own, else the one for all states.
    fn gate<'g>(&self, gates: &'g [Gate], state: &State) -> Option<&'g Gate> {
        let held = match self.place {
            Place::Anywhere => true,
            Place::In(only) => only == state.state,
            Place::NotIn(exempt) => exempt != state.state,
        };
        let of_policy = |gate: &&Gate| gate.policy.as_ref().is_none_or(|policy| *policy == state.policy);
        let named = |gate: &&Gate| self.gates.contains(&gate.name) && gate.bound.is_finite();
        let own = || gates.iter().filter(|_| held).filter(named).filter(of_policy);
        own()
            .find(|gate| gate.state.as_ref() == Some(&state.state))
            .or_else(|| own().find(|gate| gate.state.is_none()))
    }

    /// The gate that bounds it in a group: that of the policy that was rehearsed last.
    fn gate_of<'g>(&self, gates: &'g [Gate], group: &Group<'_>) -> Option<&'g Gate> {
        group.cases.iter().rev().find_map(|case| self.gate(gates, case.state))
    }

    /// Its bound in a group, as an amount.
    pub(super) fn bound_in(&self, gates: &[Gate], group: &Group<'_>) -> Option<f64> {
        self.gate_of(gates, group).map(|gate| gate.bound)
    }

    /// Its bound in a group when that is a largest value.
    pub(super) fn most_in(&self, gates: &[Gate], group: &Group<'_>) -> Option<f64> {
        self.gate_of(gates, group).filter(|gate| gate.rule != Rule::AtLeast).map(|gate| gate.bound)
    }

    /// Its bound in words, with the states where it holds when it does not hold in all.
    pub(super) fn bound_words(&self, view: &View<'_>) -> Option<String> {
        let gates = &view.report.gates;
        let found = view.groups.iter().filter_map(|group| Some((&group.title, self.gate_of(gates, group)?)));
        let bounds: Vec<(&String, &Gate)> = found.collect();
        let (_, first) = bounds.first()?;
        let bound = format!("{} {}", sign(first.rule), self.unit.write(Some(first.bound))?);
        let alike = bounds.iter().all(|(_, gate)| gate.bound == first.bound && gate.rule == first.rule);
        if !alike {
            return Some("by state".to_owned());
        }
        if bounds.len() == view.groups.len() || self.name == RECOVERY {
            return Some(bound);
        }
        let states: Vec<&str> = bounds.iter().map(|(state, _)| state.as_str()).collect();
        Some(format!("{bound} ({})", states.join(", ")))
    }

    /// Whether what was observed misses the bound that holds for that policy there.
    pub(super) fn misses(&self, gates: &[Gate], state: &State) -> bool {
        self.gate(gates, state).zip(self.of(state)).is_some_and(|(gate, value)| match gate.rule {
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
        let run = (!report.is_simulated()).then_some(run);
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

    /// Whether there is a before and an after, and nothing else.
    pub(super) fn is_comparison(&self) -> bool {
        self.policies.len() == 2
            && matches!(self.report.policies.as_slice(), [first, _] if first.role == Role::Before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Quantiles;

    fn state(policy: &str, name: &str) -> State {
        State {
            policy: policy.to_owned(),
            state: name.to_owned(),
            latency_ms: Quantiles { n: 1, p99: Some(310.0), ..Quantiles::default() },
            ..State::default()
        }
    }

    #[test]
    fn a_bound_holds_for_its_own_policy_and_state() {
        let p99 = named("p99 latency").expect("a figure");
        let gate = |bound, name: &str| Gate::at_most("p99", "ms", None, bound).during(name).of("new");
        let gates = [gate(300.0, "peak"), gate(400.0, "slowdown")];
        assert!(p99.misses(&gates, &state("new", "peak")));
        assert!(!p99.misses(&gates, &state("new", "slowdown")), "another bound");
        assert!(!p99.misses(&gates, &state("new", "recovery")), "no bound");
        assert!(!p99.misses(&gates, &state("old", "peak")), "the bound of another policy");
        let everywhere = [Gate::at_most("p99_max_ms", "ms", None, 300.0)];
        assert!(p99.misses(&everywhere, &state("old", "recovery")));
    }

    #[test]
    fn a_smallest_value_is_missed_from_below_and_only_where_it_holds() {
        let goodput = named("core goodput").expect("a figure");
        let gates = [Gate::at_least("goodput", "ratio", None, 0.98)];
        let at = |name: &str, value| State { core_goodput_ratio: Some(value), ..state("new", name) };
        assert!(goodput.misses(&gates, &at("peak", 0.97)) && !goodput.misses(&gates, &at("peak", 0.98)));
        assert!(!goodput.misses(&gates, &at("slowdown", 0.5)));
        assert!(!goodput.misses(&gates, &State { core_goodput_ratio: None, ..state("new", "peak") }));
    }

    #[test]
    fn states_are_grouped_and_policies_keep_their_order() {
        let states =
            vec![state("b", "peak"), state("b", "slowdown"), state("a", "peak"), state("a", "recovery")];
        let report = Report { states, ..Report::default() };
        let run = super::super::sample::run();
        let view = View::of(&report, &run);
        assert_eq!(view.policies, ["b", "a"]);
        let groups: Vec<_> = view.groups.iter().map(|group| (group.name, group.cases.len())).collect();
        assert_eq!(groups, [("peak", 2), ("slowdown", 1), ("recovery", 1)]);
    }
}
