//! Assemble: from what was driven to the report. Pure.

use std::collections::BTreeMap;

use model::policy::Mechanism as Name;

use super::{SloOptions, documents::Documents};
use crate::{
    gates::{self, comparison, evidence, mechanism, objective},
    measure::{Driven, Measured, recovery, recovery::Recovery, timer_lateness_ms},
    report::{self, AfterRun, Generator, Mechanism, PolicyRef, RecoveryBounds, Report, State},
    verdict::Verdict,
};

/// What the workload declares for each stage, by class.
type Declared = [[u64; base::WorkloadClass::ALL.len()]];

/// The runs of every policy, by name.
#[derive(Default)]
pub(super) struct Policies(BTreeMap<String, Runs>);

/// All runs of one policy.
struct Runs {
    states: Vec<Measured>,
    /// Of the first run.
    bounds: Option<RecoveryBounds>,
    recoveries: Vec<Recovery>,
    generator: Generator,
    after_run: AfterRun,
    load: load::Report,
}

impl Policies {
    /// Adds a run.
    pub(super) fn add(&mut self, name: &str, driven: Driven, declared: &Declared) {
        let run = Runs::of(driven, declared);
        match self.0.remove(name) {
            Some(runs) => self.0.insert(name.to_owned(), runs.with(run)),
            None => self.0.insert(name.to_owned(), run),
        };
    }
}

impl Runs {
    fn of(driven: Driven, declared: &Declared) -> Self {
        let states = driven.measured(declared);
        let find = |name: &str| {
            states.iter().find(|one| one.name() == name).map(|one| one.state("").timeline).unwrap_or_default()
        };
        let bounds = recovery::bounds(&find("peak"));
        let recovery = bounds.map(|bounds| recovery::judge(&find("recovery"), &bounds)).unwrap_or_default();
        let generator = Generator::of(&driven.load, timer_lateness_ms(&driven));
        Self {
            states,
            bounds,
            recoveries: vec![recovery],
            generator,
            after_run: driven.after_run,
            load: driven.load,
        }
    }

    fn with(self, other: Self) -> Self {
        let states = self.states.into_iter().zip(&other.states).map(|(one, more)| one.with(more));
        Self {
            states: states.collect(),
            recoveries: [self.recoveries, other.recoveries].concat(),
            generator: self.generator.worst(other.generator),
            after_run: worst(self.after_run, other.after_run),
            ..self
        }
    }

    fn states(&self, policy: &str) -> Vec<State> {
        let recovery = slowest(&self.recoveries);
        let states = self.states.iter().map(|measured| {
            let mut state = measured.state(policy);
            if state.state == "recovery" {
                state.recovery_s = recovery.s;
                state.recovery_at_least_s = recovery.at_least_s;
                state.recovery_bounds = self.bounds;
            }
            state
        });
        states.collect()
    }
}

/// Of several recoveries the slowest; of which one is not known, nothing is.
fn slowest(recoveries: &[Recovery]) -> Recovery {
    let known = recoveries.iter().map(|one| one.s.or(one.at_least_s)).collect::<Option<Vec<f64>>>();
    let Some(longest) = known.and_then(|known| known.into_iter().reduce(f64::max)) else {
        return Recovery::default();
    };
    if recoveries.iter().all(|one| one.s.is_some()) {
        Recovery { s: Some(longest), at_least_s: None }
    } else {
        Recovery { s: None, at_least_s: Some(longest) }
    }
}

fn worst(one: AfterRun, other: AfterRun) -> AfterRun {
    let most = |one: Option<f64>, other: Option<f64>| Some(one?.max(other?));
    let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
    AfterRun {
        permits_held: most(one.permits_held, other.permits_held),
        flights_open: most(one.flights_open, other.flights_open),
        effects_replayed: sum(one.effects_replayed, other.effects_replayed),
        effects_conflicting: sum(one.effects_conflicting, other.effects_conflicting),
        stopped: one.stopped.or(other.stopped),
    }
}

/// A mechanism that was run alone.
pub(super) struct Alone {
    name: Name,
    runs: Runs,
}

impl Alone {
    pub(super) fn new(name: Name, driven: Driven, declared: &Declared) -> Self {
        Self { name, runs: Runs::of(driven, declared) }
    }

    /// What it says against the peak before.
    fn judge(self, before: Option<&State>, report: &Report) -> Option<Mechanism> {
        let policy = format!("alone: {}", self.name);
        let state = self.runs.states(&policy).into_iter().next()?;
        let reference = PolicyRef {
            name: policy,
            generator: self.runs.generator,
            after_run: self.runs.after_run,
            ..PolicyRef::default()
        };
        let gates = evidence::of_policy(&[&state], &reference, report);
        let doubt = evidence::first_breach(&gates).map(|gate| gate.name.to_owned());
        Some(mechanism::judge(self.name, before, state, doubt))
    }
}

/// The whole report.
pub(super) fn report(
    options: &SloOptions,
    documents: &Documents,
    mut policies: Policies,
    alone: Vec<Alone>,
) -> Report {
    let mut report = Report {
        schema: report::SCHEMA,
        command: "rehearse slo".to_owned(),
        seed: options.seed,
        runs: options.extent.runs,
        scenario: (&documents.scenario).into(),
        dilate: options.dilate,
        ..Report::default()
    };
    for side in &documents.sides {
        let Some(runs) = policies.0.remove(&side.name) else { continue };
        report.workload.clone_from(&runs.load.workload);
        report.scale.clone_from(&runs.load.scale);
        report.rate_per_s = runs.load.rate_per_s;
        report.histogram = runs.load.histogram;
        report.states.extend(runs.states(&side.name));
        let policy = PolicyRef {
            name: side.name.clone(),
            role: side.role,
            generation: side.policy.generation,
            digest: format!("{:016x}", side.policy.digest),
            generator: runs.generator,
            after_run: runs.after_run,
        };
        report.add_policy(&side.label, policy);
    }
    if !alone.is_empty() {
        let before = documents.sides.first().and_then(|side| {
            report.states.iter().find(|state| state.policy == side.name && state.state == "peak").cloned()
        });
        let mut judged: Vec<Mechanism> =
            alone.into_iter().filter_map(|one| one.judge(before.as_ref(), &report)).collect();
        judged.extend(
            Name::ALL
                .into_iter()
                .filter(|name| !mechanism::is_available(*name))
                .map(mechanism::not_available),
        );
        judged.sort_by_key(|one| Name::parse(&one.name).map(Name::index));
        report.mechanisms = judged;
    }
    report.comparison = comparison::compare(&report);
    report.tolerance = tolerance(&report);
    report.gates = gates::judge(&report);
    report.verdict = gates::verdict(&report.gates);
    debug_assert!(report.verdict != Verdict::NotApplicable, "a verdict of all is never that");
    report
}

/// How the bounds that are not plain numbers come about.
fn tolerance(report: &Report) -> String {
    let slowdown = report.states.iter().rfind(|state| state.state == "slowdown");
    let bound = objective::recovery_bound_s(slowdown);
    let mut text = format!(
        "Recovery: over with the first of two consecutive seconds in which queue age, occupancy of endpoint and profile \
         client, goodput and profile reads are all inside their bounds. Those are the objective's or, where the policy's \
         own peak was worse, the 90th percentile of the seconds of that peak (recovery_bounds of the state); what is counted has \
         three standard deviations of a second of its size beyond that, queue age none. Its bound is \
         six minutes after a slowdown of fifteen, and in proportion after a shorter one, at least two seconds: here \
         {bound:.1} s. "
    );
    if report.scale.as_deref() != Some("1") {
        text.push_str(
            "Scaled: this run speaks for a system of its own size only; pools and gates are staffed by the square root, so \
             that the occupancy before is lower than at full size and has no gate. The bound of goodput is 98 % less three \
             standard deviations of a sample of this size. ",
        );
    }
    if report.dilate > 1 {
        text.push_str(
            "Slow motion: reported times are divided back, except CPU and stop delays, which do not dilate. ",
        );
    }
    text.push_str(
        "Late work after that was not seen counts as one operation, so its fold is at least what is said. Mixes count as \
         moved from 15 % on, relative to what they were.",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_recoveries_the_slowest_counts_and_an_unknown_one_spoils_all() {
        let took = |s: f64| Recovery { s: Some(s), at_least_s: None };
        let at_least = |s: f64| Recovery { s: None, at_least_s: Some(s) };
        assert_eq!(slowest(&[took(3.0), took(5.0), took(4.0)]), took(5.0));
        assert_eq!(slowest(&[took(3.0), at_least(30.0)]), at_least(30.0));
        assert_eq!(slowest(&[took(40.0), at_least(30.0)]), at_least(40.0), "of which one was not over");
        assert_eq!(slowest(&[took(3.0), Recovery::default()]), Recovery::default());
        assert_eq!(slowest(&[]), Recovery::default());
    }

    #[test]
    fn what_is_left_behind_is_the_most_of_all_runs_and_effects_add_up() {
        let run = |permits: Option<f64>, replayed: f64, stopped: Option<&str>| AfterRun {
            permits_held: permits,
            effects_replayed: Some(replayed),
            stopped: stopped.map(str::to_owned),
            ..AfterRun::default()
        };
        let both = worst(run(Some(0.0), 3.0, None), run(Some(2.0), 4.0, Some("memory")));
        assert_eq!((both.permits_held, both.effects_replayed), (Some(2.0), Some(7.0)));
        assert_eq!(both.stopped.as_deref(), Some("memory"));
        assert_eq!(worst(run(None, 0.0, None), run(Some(0.0), 0.0, None)).permits_held, None);
    }
}
