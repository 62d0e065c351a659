//! Simulate: the region at full size, in virtual time: one system, or the packet, which is the old policy and the repaired one
//! through peak, slowdown and recovery, several times each.
//!
//! What comes out follows from files, seed and extent, to the last digit; how fast it came is in `run.json`.

mod gates;
mod print;
mod section;
pub mod speed;
mod states;

use std::{
    io::{self, Write as _},
    num::NonZero,
    path::PathBuf,
};

use base::{Clock, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use model::region::{self, Region};
use simulation::ClaimsPhase;

use crate::{
    evidence,
    gates::{Gate, Role, comparison},
    report::{self, PolicyRef, Report},
    slo::{Conclusion, Output, RehearsalError, RunInfo, SimulationRun},
    sweep::{self, At, Base, Extent, Files, Ground, Swept, Variant},
    verdict::Verdict,
};

pub use section::{Dispersion, Extremes, ReferenceRow, SimulationReport};

/// What is simulated, and for how long.
#[derive(Clone, Debug)]
pub struct SimulateOptions {
    /// The old policy and the repaired one, through all states; otherwise one policy in one state.
    pub packet: bool,
    /// The region; `None` is the shipped one.
    pub region: Option<PathBuf>,
    /// The other files.
    pub files: Files,
    /// Where the claims come from under the policy after.
    pub claims: ClaimsPhase,
    /// The state of a single run.
    pub state: region::StateName,
    /// The fraction of one admission domain that is simulated, without hosts or placement; `None` is the whole region.
    pub scale: Option<model::Scale>,
    /// The measured window of a run in minutes; `None` is what the region says. The warm-up keeps its ratio to it.
    pub minutes: Option<u32>,
    /// Runs of every state; `None` is what the region says, and one without a packet.
    pub runs: Option<u32>,
    /// Seed of the first run's arrivals and draws.
    pub seed: u64,
    /// States that are simulated at once; `None` is one a core.
    pub threads: Option<NonZero<usize>>,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
}

/// Names of the policies in the report.
const BEFORE: &str = "before";
const AFTER: &str = "after";

/// Simulates, writes the evidence, prints the result and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn simulate(options: SimulateOptions) -> Result<Conclusion, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let plan = Plan::of(&options)?;
    let shown = options.output == Output::Human;
    let swept =
        sweep::watched(plan.variants.clone(), plan.extent, options.seed, options.threads, shown).await?;
    let took = MonotonicClock.now() - began;
    let report = report_of(&options, &plan, &swept);
    let mut run = RunInfo::new(started_unix_ms, took, Vec::new());
    run.simulation = Some(SimulationRun::of(swept.requests, took, options.threads));
    evidence::write(&options.out, &report, &run)?;
    let text = match (options.output, &report.simulation) {
        (Output::Human, Some(section)) => {
            print::render(section, &report, run.simulation.as_ref(), &options.out)
        }
        _ => evidence::json(&report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: report.verdict, why: why(&report) })
}

/// What is run.
struct Plan {
    base: Base,
    region: Region,
    extent: Extent,
    policies: Vec<(&'static str, Role)>,
    variants: Vec<Variant>,
}

/// The states of a run that is not a packet.
const PEAK: &[At] = &[At::Peak];
const SLOWDOWN: &[At] = &[At::Slowdown];
/// Recovery is judged by the windows of a peak of its own.
const RECOVERY: &[At] = &[At::Peak, At::Recovery];

impl Plan {
    fn of(options: &SimulateOptions) -> Result<Self, RehearsalError> {
        let (file, text) = sweep::text(options.region.as_ref(), region::SHIPPED)?;
        let region = Region::parse(&file, &text).map_err(|faults| RehearsalError::Files(vec![faults]))?;
        let ground = Ground { hosts: region.hosts, placement: region.placement, scale: options.scale };
        let base = Base::read(&options.files, ground)?;
        let minutes = options.minutes.unwrap_or(region.minutes);
        // A shorter run has a shorter warm-up, and always one.
        let warm_up_s =
            u64::from(region.warm_up_minutes) * 60 * u64::from(minutes) / u64::from(region.minutes);
        let extent = Extent {
            window_s: minutes * 60,
            warm_up_s: u32::try_from(warm_up_s.max(1)).unwrap_or(u32::MAX),
            runs: options.runs.unwrap_or(if options.packet { region.runs } else { 1 }).max(1),
        };
        let after = base.system(base.after.policy.clone(), options.claims);
        let (policies, variants) = if options.packet {
            let variant = |system| Variant { system, states: &At::ALL };
            (vec![(BEFORE, Role::Before), (AFTER, Role::After)], vec![variant(base.old()), variant(after)])
        } else {
            let states = match options.state {
                region::StateName::Peak => PEAK,
                region::StateName::Slowdown => SLOWDOWN,
                region::StateName::Recovery => RECOVERY,
            };
            (vec![(AFTER, Role::After)], vec![Variant { system: after, states }])
        };
        Ok(Self { base, region, extent, policies, variants })
    }
}

fn report_of(options: &SimulateOptions, plan: &Plan, swept: &Swept) -> Report {
    let Plan { base, region, extent, policies, variants } = plan;
    let mut report = Report {
        schema: report::SCHEMA,
        command: if options.packet { "simulate --packet" } else { "simulate" }.to_owned(),
        seed: options.seed,
        runs: swept.runs,
        workload: base.workload.name.clone(),
        scenario: (&base.scenario).into(),
        scale: options.scale.map(|scale| scale.to_string()),
        rate_per_s: variants
            .first()
            .map_or(0.0, |variant| variant.system.offered.requests_per_s * f64::from(variant.system.domains)),
        dilate: 1,
        histogram: simulation::SCHEME,
        tolerance: "Simulated: before and after have the same arrivals and draws. Times are the model's own."
            .to_owned(),
        ..Report::default()
    };
    for ((name, role), cells) in policies.iter().zip(&swept.cells) {
        let document = if *role == Role::Before { &base.before } else { &base.after };
        report.policies.push(PolicyRef {
            name: (*name).to_owned(),
            role: *role,
            generation: document.policy.generation,
            digest: format!("{:016x}", document.policy.digest),
            ..PolicyRef::default()
        });
        report.states.extend(states::of(name, cells));
    }
    report.comparison = comparison::compare(&report);
    let section = SimulationReport::of(region, *extent, base, policies, variants, swept, &report);
    report.gates = gates::judge(&report, &section, swept.runs, extent.runs);
    // Part of what was asked for concludes nothing, not even that it failed.
    report.verdict =
        if swept.runs < extent.runs { Verdict::Inconclusive } else { crate::gates::verdict(&report.gates) };
    report.simulation = Some(section);
    report
}

/// What failed or is open, in a line.
fn why(report: &Report) -> String {
    let named = |verdict: Verdict| {
        let of = |gate: &&Gate| gate.verdict == verdict;
        report.gates.iter().filter(of).map(|gate| gate.name).collect::<Vec<_>>().join(", ")
    };
    match report.verdict {
        Verdict::Fail => format!("failed: {}", named(Verdict::Fail)),
        Verdict::Inconclusive => format!("no verdict, open: {}", named(Verdict::Inconclusive)),
        Verdict::Pass | Verdict::NotApplicable => String::new(),
    }
}

#[cfg(test)]
mod tests;
