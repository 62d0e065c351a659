//! Counterfactuals: what would have been, had one thing been otherwise: a switch thrown in the region's model, held against what
//! the case study expects of it. Each passes when the model says the same, fails when it says the opposite, and is open when the
//! figures do not tell.

mod judge;
mod print;
mod section;
mod switch;
mod trial;

use std::{
    io::{self, Write as _},
    num::NonZero,
    path::PathBuf,
};

use base::{Clock, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use model::policy::Mechanism;

use crate::{
    evidence,
    gates::Gate,
    report::{self, Report, Scenario},
    slo::{Conclusion, Output, RehearsalError, RunInfo},
    sweep::{self, Base, Extent, Files, Ground, Measured, Variant},
    verdict::Verdict,
};
use trial::Trial;

pub use section::{CounterfactualReport, Figure, SwitchReport, TrialReport};
pub use switch::Switch;

/// Which switches are thrown, and for how long.
#[derive(Clone, Debug)]
pub struct CounterfactualOptions {
    /// The switches, in the order in which they are told.
    pub switches: Vec<Switch>,
    /// The files.
    pub files: Files,
    /// What lies under the region.
    pub ground: Ground,
    /// The measured window in seconds.
    pub window_s: u32,
    /// Time before it in seconds.
    pub warm_up_s: u32,
    /// Runs of every state, whose observations are merged; at most [`sweep::RUNS_MAX`].
    pub runs: u32,
    /// Seed of the first run's arrivals and draws.
    pub seed: u64,
    /// States that are simulated at once; `None` is one a core.
    pub threads: Option<NonZero<usize>>,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
}

/// Throws the switches, writes the evidence, prints the result and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn counterfactual(options: CounterfactualOptions) -> Result<Conclusion, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let plan = Plan::of(&options)?;
    let shown = options.output == Output::Human;
    let variants = plan.variants.clone();
    let cells = sweep::watched(variants, plan.extent, options.seed, options.threads, shown)
        .await?
        .whole(plan.extent)?;
    let report = report_of(&options, &plan, plan.measured(&cells));
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, Vec::new());
    evidence::write(&options.out, &report, &run)?;
    let text = match (options.output, &report.counterfactuals) {
        (Output::Human, Some(section)) => print::render(section, &report, &options.out),
        _ => evidence::json(&report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: report.verdict, why: why(&report) })
}

/// What is tried: every trial that a switch needs, once.
struct Plan {
    base: Base,
    extent: Extent,
    trials: Vec<Trial>,
    variants: Vec<Variant>,
}

impl Plan {
    fn of(options: &CounterfactualOptions) -> Result<Self, RehearsalError> {
        let base = Base::read(&options.files, options.ground)?;
        let needed = |trial: &Trial| options.switches.iter().any(|switch| switch.trials().contains(trial));
        let trials: Vec<Trial> = Trial::ALL.into_iter().filter(needed).collect();
        let variant = |trial: &Trial| Ok(Variant { system: trial.system(&base)?, states: trial.states() });
        let variants = trials.iter().map(variant).collect::<Result<Vec<_>, RehearsalError>>()?;
        let extent = Extent {
            window_s: options.window_s.max(1),
            warm_up_s: options.warm_up_s,
            runs: options.runs.clamp(1, sweep::RUNS_MAX),
        };
        Ok(Self { base, extent, trials, variants })
    }

    fn measured(&self, cells: &[Vec<sweep::Cell>]) -> Vec<(Trial, Measured)> {
        let acts = |trial: Trial| {
            let side = if trial.is_old() { &self.base.before } else { &self.base.after };
            side.policy.mechanism(Mechanism::Admission).is_everywhere()
        };
        self.trials
            .iter()
            .zip(cells)
            .map(|(trial, cells)| (*trial, Measured::of(cells, acts(*trial))))
            .collect()
    }
}

fn report_of(options: &CounterfactualOptions, plan: &Plan, measured: Vec<(Trial, Measured)>) -> Report {
    let Plan { base, extent, .. } = plan;
    let in_flight: u64 =
        measured.iter().flat_map(|(_, measured)| measured.all()).map(|figures| figures.in_flight).sum();
    let switches: Vec<SwitchReport> =
        options.switches.iter().map(|switch| judge::judge(*switch, &measured, base)).collect();
    let mut gates = Vec::new();
    if !measured.is_empty() {
        gates.push(
            Gate::at_most("operations_ended", "operations", Some(in_flight as f64), 0.0)
                .saying("operations of a window that had not ended two minutes after it: the backlog grows"),
        );
    }
    let modelled = options.switches.iter().zip(&switches).filter(|(switch, _)| switch.is_modelled());
    let verdicts = modelled.map(|(_, told)| told.verdict).chain(gates.iter().map(|gate| gate.verdict));
    let verdict = Verdict::of_all(verdicts);
    let told = |switch: &SwitchReport| Scenario {
        name: switch.name.to_owned(),
        verdict: switch.verdict,
        detail: switch.text.clone(),
    };
    Report {
        schema: report::SCHEMA,
        command: "simulate counterfactual".to_owned(),
        seed: options.seed,
        runs: extent.runs,
        verdict,
        workload: base.workload.name.clone(),
        scenario: (&base.scenario).into(),
        scale: options.ground.scale.map(|scale| scale.to_string()),
        rate_per_s: {
            let system = base.repaired();
            system.offered.requests_per_s * f64::from(system.domains)
        },
        dilate: 1,
        histogram: simulation::SCHEME,
        tolerance: "Simulated: with and without a switch the arrivals and draws are the same. What is not modelled takes no part in \
                    the verdict and never passes."
            .to_owned(),
        gates,
        scenarios: switches.iter().map(told).collect(),
        counterfactuals: Some(CounterfactualReport {
            window_s: extent.window_s,
            warm_up_s: extent.warm_up_s,
            switches,
            trials: measured
                .into_iter()
                .map(|(trial, states)| TrialReport { name: trial.as_str(), states })
                .collect(),
        }),
        ..Report::default()
    }
}

/// What contradicts the study or is open, in a line.
fn why(report: &Report) -> String {
    let named = |verdict: Verdict| {
        let switches = report.scenarios.iter().filter(|one| one.verdict == verdict);
        let gates = report.gates.iter().filter(|gate| gate.verdict == verdict).map(|gate| gate.name);
        switches.map(|one| one.name.as_str()).chain(gates).collect::<Vec<_>>().join(", ")
    };
    match report.verdict {
        Verdict::Fail => format!("otherwise than expected: {}", named(Verdict::Fail)),
        Verdict::Inconclusive => format!("no verdict, open: {}", named(Verdict::Inconclusive)),
        Verdict::Pass | Verdict::NotApplicable => String::new(),
    }
}

#[cfg(test)]
mod tests;
