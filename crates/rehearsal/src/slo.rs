//! Slo: the rehearsal of the objective: the policy before and the policy after, each with a suite of its own, on one
//! schedule and the same draws through peak, slowdown and recovery; then each mechanism of the repair alone.
//!
//! One generator runs through all states without a pause, since recovery has to begin from a state that is in fact
//! impaired. Peak and slowdown are warmed up first; recovery is measured from its first second.

mod assemble;
mod documents;
mod error;
mod options;
mod print;
mod run_info;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use base::{Clock, Nanos, Origin, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use load::{Plan, Rate, StagePlan};
use model::{Scale, policy::ServiceName};

use crate::{
    evidence,
    gates::evidence::MEMORY_MAX_MIB,
    measure::{Watch, drive, state_of},
    report::Report,
    screen::{Screen, clock},
    suite::{OnChildExit, SuiteOptions},
    up::Signals,
    verdict::Verdict,
};

use assemble::{Alone, Policies};
pub(crate) use documents::{Documents, Side};

pub use error::RehearsalError;
pub use options::{Extent, Output, Preset, SloOptions};
pub use print::render;
pub use run_info::{GeneratorInfo, ProcessInfo, RunInfo, Servers, SimulationRun, StageInfo, SuiteRun};

/// The states, in order, and whether each is warmed up.
const STATES: [(&str, bool); 3] = [("peak", true), ("slowdown", true), ("recovery", false)];
/// Operations in flight beyond which an arrival is unsent: more than the old policy, which waits without bound, has by the
/// time that its callers give up.
const IN_FLIGHT_MAX: usize = 32_768;

/// The evidence of one rehearsal.
#[derive(Debug)]
pub struct Rehearsed {
    /// What `report.json` holds.
    pub report: Report,
    /// What `run.json` holds.
    pub run: RunInfo,
}

/// How a rehearsal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// What follows from the gates.
    pub verdict: Verdict,
    /// The gates that did not pass, one sentence.
    pub why: String,
}

/// Rehearses, writes `report.json`, `report.html` and `run.json`, prints the result to stdout and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence; nothing was written then but the policies and the logs of the members.
pub async fn slo(options: SloOptions) -> Result<Conclusion, RehearsalError> {
    let output = options.output;
    let out = options.out.clone();
    let rehearsed = rehearse(options).await?;
    let text = match output {
        Output::Human => render(&rehearsed, &out),
        Output::Json => evidence::json(&rehearsed.report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: rehearsed.report.verdict, why: print::why(&rehearsed.report) })
}

/// As [`slo`], without printing.
///
/// # Errors
/// As [`slo`].
pub async fn rehearse(options: SloOptions) -> Result<Rehearsed, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let documents = Documents::read(&options)?;
    plan(&options, &documents, 0).check().map_err(RehearsalError::Load)?;
    if options.output == Output::Human {
        announce(&options, &documents);
    }
    let mut course = Course::new(&options)?;
    let (mut policies, mut alone) = (Policies::default(), Vec::new());
    let result = course.follow(&documents, &mut policies, &mut alone).await;
    course.screen.clear();
    result?;
    let report = assemble::report(&options, &documents, policies, alone);
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, course.runs);
    evidence::write(&options.out, &report, &run)?;
    Ok(Rehearsed { report, run })
}

/// Says what comes and how long it takes; on stderr, so that a pipe has the result alone.
fn announce(options: &SloOptions, documents: &Documents) {
    let names: Vec<&str> = documents.sides.iter().map(|side| side.name.as_str()).collect();
    let alone = match options.alone().len() {
        0 => String::new(),
        count => format!(", then {count} mechanisms alone"),
    };
    let size = match options.rate {
        Rate::Scale(scale) => format!("scale {scale}"),
        Rate::PerSecond(rate) => format!("{rate} requests/s"),
    };
    let slow_motion =
        if options.dilate > 1 { format!(", slow motion × {}", options.dilate) } else { String::new() };
    let runs =
        if options.extent.runs > 1 { format!(", {} runs each", options.extent.runs) } else { String::new() };
    let _ = writeln!(
        io::stderr().lock(),
        "{} through peak, slowdown and recovery{runs}{alone} · {size}{slow_motion} · takes about {}",
        names.join(" and "),
        clock(options.wall())
    );
}

/// The runs, one after the other.
struct Course<'o> {
    options: &'o SloOptions,
    screen: Screen,
    signals: Signals,
    done: Nanos,
    runs: Vec<SuiteRun>,
}

/// One run.
struct Run<'r> {
    label: &'r str,
    policy_name: &'r str,
    policy: PathBuf,
    /// Directory of its logs and addresses, below the state directory.
    directory: String,
    plan: Plan,
    wall: Nanos,
}

impl<'o> Course<'o> {
    fn new(options: &'o SloOptions) -> Result<Self, RehearsalError> {
        let signals = Signals::new().map_err(|error| RehearsalError::Io { path: "signals".into(), error })?;
        let screen = Screen::new(options.output == Output::Human);
        screen.expect(options.wall());
        Ok(Self { options, screen, signals, done: Nanos::ZERO, runs: Vec::new() })
    }

    async fn follow(
        &mut self,
        documents: &Documents,
        policies: &mut Policies,
        alone: &mut Vec<Alone>,
    ) -> Result<(), RehearsalError> {
        let options = self.options;
        let files = options.out.join("policies");
        for number in 0..options.extent.runs {
            let plan = plan(options, documents, number);
            let declared = load::declared(&plan);
            for side in &documents.sides {
                let run = Run {
                    label: &side.label,
                    policy_name: &side.name,
                    policy: side.write(&files)?,
                    directory: numbered(&side.name, number),
                    plan: plan.clone(),
                    wall: options.policy_wall(),
                };
                let driven = self.drive(run).await?;
                policies.add(&side.name, driven, &declared);
            }
        }
        let Some(before) = documents.sides.first() else { return Ok(()) };
        let plan = mechanism_plan(options, documents);
        let declared = load::declared(&plan);
        for mechanism in options.alone() {
            let name = format!("alone-{mechanism}");
            let run = Run {
                label: &format!("alone: {mechanism}"),
                policy_name: &name,
                policy: before.write_with(mechanism, &files)?,
                directory: name.clone(),
                plan: plan.clone(),
                wall: options.mechanism_wall(),
            };
            let driven = self.drive(run).await?;
            alone.push(Alone::new(mechanism, driven, &declared));
        }
        Ok(())
    }

    async fn drive(&mut self, run: Run<'_>) -> Result<crate::measure::Driven, RehearsalError> {
        let began = MonotonicClock.now();
        let suite = suite_options(self.options, run.policy, &run.directory, run.plan.seed);
        let mut watch = Watch {
            screen: &self.screen,
            signals: &mut self.signals,
            label: run.label,
            done: self.done,
            memory_max_mib: MEMORY_MAX_MIB,
            phase_of: state_of,
        };
        let driven = drive(suite, run.plan.clone(), &mut watch).await?;
        self.done = self.done + run.wall;
        let took = MonotonicClock.now() - began;
        self.runs.push(SuiteRun::of(run.label, run.policy_name, &run.plan, &driven, took));
        Ok(driven)
    }
}

fn numbered(name: &str, number: u32) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}-{}", number + 1) }
}

/// The plan of a policy, the same for all of them.
fn plan(options: &SloOptions, documents: &Documents, number: u32) -> Plan {
    let extent = options.extent;
    let stages = STATES.iter().flat_map(|(state, warmed)| {
        let warm_up = (*warmed && !extent.warm_up.is_zero())
            .then(|| StagePlan::warm_up(format!("{state} warm-up"), extent.warm_up));
        warm_up.into_iter().chain([StagePlan::measured(*state, extent.state)])
    });
    Plan {
        seed: options.seed.wrapping_add(number.into()),
        stages: stages.collect(),
        ..base_plan(options, documents)
    }
}

/// The plan of a mechanism alone: the beginning of the same schedule, at peak.
fn mechanism_plan(options: &SloOptions, documents: &Documents) -> Plan {
    let extent = options.extent;
    let warm_up = (!extent.mechanism_warm_up.is_zero())
        .then(|| StagePlan::warm_up("peak warm-up", extent.mechanism_warm_up));
    let stages = warm_up.into_iter().chain([StagePlan::measured("peak", extent.mechanism)]);
    Plan { stages: stages.collect(), ..base_plan(options, documents) }
}

pub(crate) fn base_plan(options: &SloOptions, documents: &Documents) -> Plan {
    let plan = Plan::new("", documents.workload.clone(), options.rate, options.extent.state);
    Plan {
        seed: options.seed,
        dilate: options.dilate,
        objective: documents.judged().map_or(plan.objective, |side: &Side| side.policy.objective),
        // A rehearsal stands for customers: its operations are the objective's population.
        origin: Origin::Customer,
        id_prefix: "slo".to_owned(),
        in_flight_max: IN_FLIGHT_MAX,
        connections: connections(options, documents),
        ..plan
    }
}

/// As many connections as the streams of all callers that home-api may keep waiting need: with fewer, they would wait in
/// the generator, where nobody measures their queue.
fn connections(options: &SloOptions, documents: &Documents) -> usize {
    let workload = &documents.workload;
    let offered = match options.rate {
        Rate::Scale(scale) => workload.at_scale(scale),
        Rate::PerSecond(rate) => workload.at_rate(rate),
    };
    let needed = documents.sides.iter().map(|side| {
        let waiting_max = side.policy.service(ServiceName::HomeApi).timeout_max;
        let outstanding = offered.requests_per_s * waiting_max.as_secs_f64();
        (outstanding / f64::from(side.policy.limits.streams_max)).ceil()
    });
    // A float-to-integer cast saturates.
    let needed = needed.fold(0.0, f64::max) as usize;
    (needed + 1).min(load::CONNECTIONS_MAX)
}

pub(crate) fn suite_options(
    options: &SloOptions,
    policy: PathBuf,
    directory: &str,
    seed: u64,
) -> SuiteOptions {
    let state_dir = options.state_dir.clone().unwrap_or_else(|| options.out.join("state"));
    SuiteOptions {
        executable: options.executable.clone(),
        policy: Some(policy),
        scenario: options.scenario.clone(),
        seed,
        scale: match options.rate {
            Rate::Scale(scale) => scale,
            Rate::PerSecond(_) => Scale::ONE,
        },
        dilate: options.dilate,
        on_child_exit: OnChildExit::Stop,
        // The same operations as in the last run would be replays, and cost less.
        fresh_ledger: true,
        log_filter: options.log_filter.clone(),
        ..SuiteOptions::new(state_dir.join(directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(preset: Preset) -> (Plan, Plan) {
        let options = SloOptions::new(preset, "out");
        let documents = Documents::read(&options).expect("the shipped ones are valid");
        (plan(&options, &documents, 2), mechanism_plan(&options, &documents))
    }

    #[test]
    fn every_plan_is_possible_and_runs_differ_by_their_seed_alone() {
        for preset in
            [Preset::quick(), Preset::domain(), Preset::full(), Preset::sized(Rate::PerSecond(40.0))]
        {
            let (policy, alone) = planned(preset);
            policy.check().expect("possible");
            alone.check().expect("possible");
            assert_eq!((policy.seed, alone.seed), (3, 1));
            assert_eq!(
                (&policy.id_prefix, policy.timeout, policy.origin),
                (&alone.id_prefix, None, Origin::Customer)
            );
        }
    }

    #[test]
    fn there_is_a_stream_for_everybody_whom_the_old_policy_keeps_waiting() {
        assert_eq!(planned(Preset::quick()).0.connections, 2);
        let streams = planned(Preset::domain()).0.connections * 1_024;
        assert!(streams as f64 > 18_400.0 / 3.0 * 2.0, "{streams}");
    }
}
