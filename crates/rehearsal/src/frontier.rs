//! Frontier: which pairs of bounds carry the home path, found by trying them in the region's model, and which changes move the
//! 99th percentile of the old design and which do not.
//!
//! Both are questions about where work waits. `knees` is pure: figures go in, the ends of the usable range come out by the
//! rules of the frontier's file. `old_design` tries one change at a time against a control that is known to reach the queue.

mod knees;
mod old_design;
mod print;
mod section;

use std::{
    io::{self, Write as _},
    num::NonZero,
    path::PathBuf,
};

use base::{Clock, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use model::{
    frontier::{Frontier, Pair, SHIPPED},
    policy::Mechanism,
};
use simulation::ClaimsPhase;

use crate::{
    evidence,
    gates::{self, Gate},
    report::{self, Report},
    slo::{Conclusion, Output, RehearsalError, RunInfo},
    sweep::{self, At, Base, Extent, Files, Ground, Measured, Variant},
    verdict::Verdict,
};

pub(crate) use old_design::more_hosts;
pub(crate) use print::table;
pub use section::{FrontierReport, Knees, Limits, OldCase, PairFigures, RulesRef};

/// What is swept, and for how long.
#[derive(Clone, Debug)]
pub struct FrontierOptions {
    /// The pairs and rules; `None` is the shipped file.
    pub frontier: Option<PathBuf>,
    /// The other files.
    pub files: Files,
    /// What lies under the region.
    pub ground: Ground,
    /// The measured window in seconds; `None` is what the file says.
    pub window_s: Option<u32>,
    /// Time before it in seconds; `None` is what the file says.
    pub warm_up_s: Option<u32>,
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

/// Sweeps, writes the evidence, prints the result and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn frontier(options: FrontierOptions) -> Result<Conclusion, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let plan = Plan::of(&options)?;
    let shown = options.output == Output::Human;
    let cells = sweep::watched(plan.variants.clone(), plan.extent, options.seed, options.threads, shown)
        .await?
        .whole(plan.extent)?;
    let gated = plan.gated();
    let measured = cells.iter().zip(gated).map(|(cells, gated)| Measured::of(cells, gated)).collect();
    let report = report_of(&options, &plan, measured);
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, Vec::new());
    evidence::write(&options.out, &report, &run)?;
    let text = match (options.output, &report.frontier) {
        (Output::Human, Some(frontier)) => print::render(frontier, &report, &options.out),
        _ => evidence::json(&report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: report.verdict, why: why(&report) })
}

/// What is tried: the pairs first, then the old design's cases.
struct Plan {
    base: Base,
    frontier: Frontier,
    extent: Extent,
    variants: Vec<Variant>,
}

impl Plan {
    fn of(options: &FrontierOptions) -> Result<Self, RehearsalError> {
        let base = Base::read(&options.files, options.ground)?;
        let (file, text) = sweep::text(options.frontier.as_ref(), SHIPPED)?;
        let frontier = Frontier::parse_for(&file, &text, &base.after.policy)
            .map_err(|faults| RehearsalError::Files(vec![faults]))?;
        if !base.after.policy.mechanism(Mechanism::Admission).is_everywhere() {
            let text = "the policy's mechanisms.admission is not on for everybody: its limits bound nothing, so there is no frontier";
            return Err(RehearsalError::Usage(text.to_owned()));
        }
        let extent = Extent {
            window_s: options.window_s.unwrap_or(frontier.minutes * 60).max(1),
            warm_up_s: options.warm_up_s.unwrap_or(frontier.warm_up_minutes * 60),
            runs: options.runs.clamp(1, sweep::RUNS_MAX),
        };
        let pairs = frontier.pairs.iter().map(|pair| {
            let policy = base.after.with(&changes(*pair))?;
            Ok(Variant { system: base.system(policy, ClaimsPhase::Summary), states: &At::ALL })
        });
        let mut variants = pairs.collect::<Result<Vec<_>, RehearsalError>>()?;
        for case in old_design::Case::ALL {
            variants.push(Variant { system: case.system(&base)?, states: old_design::STATES });
        }
        Ok(Self { base, frontier, extent, variants })
    }

    /// Whether the gates act in each variant: in all pairs, and in the old design where its policy says so.
    fn gated(&self) -> impl Iterator<Item = bool> + use<> {
        let pairs = self.frontier.pairs.len();
        let old = self.base.before.policy.mechanism(Mechanism::Admission).is_everywhere();
        (0..self.variants.len()).map(move |at| at < pairs || old)
    }
}

/// The limits of a pair as changes to a policy.
fn changes(pair: Pair) -> String {
    format!(
        "[admission.endpoint]\nlimit = {}\n[admission.profile]\nlimit = {}\n",
        pair.endpoint, pair.profile
    )
}

fn report_of(options: &FrontierOptions, plan: &Plan, mut measured: Vec<Measured>) -> Report {
    let Plan { base, frontier, extent, .. } = plan;
    let old = measured.split_off(frontier.pairs.len());
    let in_flight: u64 =
        measured.iter().chain(&old).flat_map(Measured::all).map(|figures| figures.in_flight).sum();
    let knees = knees::find(frontier, &measured);
    let mut notes = knees::notes(frontier, &measured, &knees, base);
    notes.push(old_design::floor_note(base));
    let (old_design, mut gates) = old_design::judge(&old, &base.ground);
    let mut all = knees::gates(frontier, &measured);
    all.append(&mut gates);
    all.push(
        Gate::at_most("operations_ended", "operations", Some(in_flight as f64), 0.0)
            .saying("operations of a window that had not ended two minutes after it: the backlog grows"),
    );
    let section = FrontierReport {
        name: frontier.name.clone(),
        version: frontier.version,
        digest: format!("{:016x}", frontier.digest),
        window_s: extent.window_s,
        warm_up_s: extent.warm_up_s,
        rules: frontier.rules.into(),
        pairs: frontier
            .pairs
            .iter()
            .zip(measured)
            .map(|(pair, states)| PairFigures { limits: (*pair).into(), states })
            .collect(),
        knees,
        notes,
        old_design,
    };
    Report {
        schema: report::SCHEMA,
        command: "simulate frontier".to_owned(),
        seed: options.seed,
        runs: extent.runs,
        verdict: gates::verdict(&all),
        workload: base.workload.name.clone(),
        scenario: (&base.scenario).into(),
        scale: options.ground.scale.map(|scale| scale.to_string()),
        rate_per_s: plan
            .variants
            .first()
            .map_or(0.0, |variant| variant.system.offered.requests_per_s * f64::from(variant.system.domains)),
        dilate: 1,
        histogram: simulation::SCHEME,
        tolerance: "Simulated: every pair and every case has the same arrivals and draws.".to_owned(),
        gates: all,
        frontier: Some(section),
        ..Report::default()
    }
}

/// What failed or is open, in a line.
fn why(report: &Report) -> String {
    let named = |verdict: Verdict| {
        let names = report.gates.iter().filter(|gate| gate.verdict == verdict).map(|gate| gate.name);
        names.collect::<Vec<_>>().join(", ")
    };
    match report.verdict {
        Verdict::Fail => format!("failed: {}", named(Verdict::Fail)),
        Verdict::Inconclusive => format!("no verdict, open: {}", named(Verdict::Inconclusive)),
        Verdict::Pass | Verdict::NotApplicable => String::new(),
    }
}

#[cfg(test)]
mod tests;
