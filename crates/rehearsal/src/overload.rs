//! Overload: `mercury rehearse overload`, how much a policy carries, and what becomes of it under three times as much.
//!
//! Two suites of their own, one after the other. The first is offered more step by step: the most that it answers in time is
//! the capacity. The second goes from half of the rate that belongs to it to three times that rate, and back. It has to go
//! on answering nearly as much as it can, in time and in flat memory, and to be back to normal within a second.

mod judge;
mod print;

use std::io::{self, Write as _};

use base::{Clock, Nanos, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use load::{Plan, Rate, StagePlan};

use crate::{
    evidence,
    gates::{Role, evidence::MEMORY_MAX_MIB},
    measure::{Driven, Watch, drive, recovery, timer_lateness_ms},
    report::{self, Generator, PolicyRef, Report, State},
    screen::{Screen, clock},
    slo::{
        Conclusion, Documents, Extent, Output, Preset, RehearsalError, RunInfo, Side, SloOptions, SuiteRun,
        base_plan, suite_options,
    },
    up::Signals,
};

use judge::{AFTER, CALM, Capacity, OVERLOAD, SEARCH};

/// What is offered step by step, in percent of the declared rate.
const STEPS_PERCENT: [u32; 4] = [100, 135, 170, 205];
/// What a suite needs beside its plan: the start and the end of nine processes, and what their last callers left.
const SUITE: Nanos = Nanos::from_secs(3);

/// The evidence of one rehearsal.
#[derive(Debug)]
struct Rehearsed {
    report: Report,
    run: RunInfo,
}

/// A system of 1/24 in real time, ten seconds a step; the shipped policy unless `options` name another. Waves come every ten
/// seconds, so every step has one.
pub fn options(out: impl Into<std::path::PathBuf>) -> SloOptions {
    let seconds = Nanos::from_secs;
    let extent = Extent { state: seconds(10), warm_up: seconds(3), ..Preset::quick().extent };
    let preset = Preset { extent, ..Preset::quick() };
    SloOptions { only: Some(Role::After), mechanisms: false, ..SloOptions::new(preset, out) }
}

/// Rehearses, writes `report.json`, `report.html` and `run.json`, prints the result to stdout and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn overload(options: SloOptions) -> Result<Conclusion, RehearsalError> {
    let rehearsed = rehearse(&options).await?;
    evidence::write(&options.out, &rehearsed.report, &rehearsed.run)?;
    let text = match options.output {
        Output::Human => print::render(&rehearsed.report, &options.out),
        Output::Json => evidence::json(&rehearsed.report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: rehearsed.report.verdict, why: print::why(&rehearsed.report) })
}

async fn rehearse(options: &SloOptions) -> Result<Rehearsed, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let documents = Documents::read(options)?;
    let Some(side) = documents.judged() else {
        return Err(RehearsalError::Usage("overload needs the policy after".to_owned()));
    };
    let base = base_plan(options, &documents);
    let search = search_plan(&base, options.extent);
    search.check().map_err(RehearsalError::Load)?;
    if options.output == Output::Human {
        announce(options, side);
    }
    let mut course = Course::new(options)?;
    let first = course.drive(side, SEARCH, &search).await?;
    let capacity = Capacity::of(&first.states);
    let mut report = frame(options, &documents);
    report.take(&side.label, first);
    if let Some(rate_percent) = capacity.and_then(|found| found.percent(search.declared_per_s())) {
        let plan = overload_plan(&base, options.extent, rate_percent);
        plan.check().map_err(RehearsalError::Load)?;
        let mut second = course.drive(side, OVERLOAD, &plan).await?;
        // Back to normal is back inside the bounds of the ordinary peak, which is the first step of the search.
        let peak = report.states.first().map(|peak| recovery::bounds(&peak.timeline));
        if let (Some(Some(bounds)), Some(after)) = (peak, second.states.last_mut()) {
            let found = recovery::judge(&after.timeline, &bounds);
            (after.recovery_s, after.recovery_at_least_s) = (found.s, found.at_least_s);
            after.recovery_bounds = Some(bounds);
        }
        report.take(&side.label, second);
    }
    course.screen.clear();
    report.gates = judge::judge(&report, capacity);
    report.verdict = crate::gates::verdict(&report.gates);
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, course.runs);
    Ok(Rehearsed { report, run })
}

/// More and more of the declared rate, without a pause.
fn search_plan(base: &Plan, extent: Extent) -> Plan {
    let warm_up = (!extent.warm_up.is_zero()).then(|| StagePlan::warm_up("warm-up", extent.warm_up));
    let step = |percent: u32| StagePlan::measured(judge::step(percent), extent.state).at_percent(percent);
    Plan { stages: warm_up.into_iter().chain(STEPS_PERCENT.map(step)).collect(), ..base.clone() }
}

/// Half of the capacity, three times as much as it, and half of it again.
fn overload_plan(base: &Plan, extent: Extent, capacity_percent: u32) -> Plan {
    let (calm, much) = (capacity_percent.div_ceil(2), capacity_percent * judge::TIMES);
    let warm_up =
        (!extent.warm_up.is_zero()).then(|| StagePlan::warm_up("warm-up", extent.warm_up).at_percent(calm));
    let stage = |name: &str, percent: u32| StagePlan::measured(name, extent.state).at_percent(percent);
    let stages = [stage(CALM, calm), stage(OVERLOAD, much), stage(AFTER, calm)];
    Plan {
        stages: warm_up.into_iter().chain(stages).collect(),
        id_prefix: format!("{}-overload", base.id_prefix),
        ..base.clone()
    }
}

fn announce(options: &SloOptions, side: &Side) {
    let size = match options.rate {
        Rate::Scale(scale) => format!("scale {scale}"),
        Rate::PerSecond(rate) => format!("{rate} requests/s"),
    };
    let takes = wall(&[search_stages(options.extent), overload_stages(options.extent)], options.dilate);
    let _ = writeln!(
        io::stderr().lock(),
        "{}: how much it carries, then {} times as much · {size} · takes about {}",
        side.name,
        judge::TIMES,
        clock(takes)
    );
}

fn search_stages(extent: Extent) -> Nanos {
    extent.warm_up + extent.state.times(STEPS_PERCENT.len() as u32)
}

fn overload_stages(extent: Extent) -> Nanos {
    extent.warm_up + extent.state.times(3)
}

fn wall(runs: &[Nanos], dilate: u32) -> Nanos {
    runs.iter().fold(Nanos::ZERO, |sum, stages| sum + stages.times(dilate) + SUITE)
}

/// What is known before anything is run.
fn frame(options: &SloOptions, documents: &Documents) -> Report {
    let plan = base_plan(options, documents);
    Report {
        schema: report::SCHEMA,
        command: "rehearse overload".to_owned(),
        seed: options.seed,
        runs: 1,
        workload: documents.workload.name.clone(),
        scenario: (&documents.scenario).into(),
        scale: match options.rate {
            Rate::Scale(scale) => Some(scale.to_string()),
            Rate::PerSecond(_) => None,
        },
        rate_per_s: plan.declared_per_s(),
        dilate: options.dilate,
        histogram: load::HISTOGRAM_SCHEME,
        tolerance: judge::TOLERANCE.to_owned(),
        ..Report::default()
    }
}

/// What one suite showed.
struct Shown {
    states: Vec<State>,
    policy: PolicyRef,
}

impl Report {
    fn take(&mut self, label: &str, shown: Shown) {
        self.states.extend(shown.states);
        self.add_policy(label, shown.policy);
    }
}

/// The two runs, one after the other.
struct Course<'o> {
    options: &'o SloOptions,
    screen: Screen,
    signals: Signals,
    done: Nanos,
    runs: Vec<SuiteRun>,
}

impl<'o> Course<'o> {
    fn new(options: &'o SloOptions) -> Result<Self, RehearsalError> {
        let signals = Signals::new().map_err(|error| RehearsalError::Io { path: "signals".into(), error })?;
        let screen = Screen::new(options.output == Output::Human);
        screen
            .expect(wall(&[search_stages(options.extent), overload_stages(options.extent)], options.dilate));
        Ok(Self { options, screen, signals, done: Nanos::ZERO, runs: Vec::new() })
    }

    async fn drive(&mut self, side: &Side, name: &str, plan: &Plan) -> Result<Shown, RehearsalError> {
        let began = MonotonicClock.now();
        let file = side.write(&self.options.out.join("policies"))?;
        let suite = suite_options(self.options, file, name, plan.seed);
        let mut watch = Watch {
            screen: &self.screen,
            signals: &mut self.signals,
            label: name,
            done: self.done,
            memory_max_mib: MEMORY_MAX_MIB,
            // The dependencies are as they are in the scenario's first phase: it is the callers who are too many.
            phase_of: |_| "peak",
        };
        let driven = drive(suite, plan.clone(), &mut watch).await?;
        let stages = plan.stages.iter().fold(Nanos::ZERO, |sum, stage| sum + stage.duration);
        self.done = self.done + wall(&[stages], self.options.dilate);
        self.runs.push(SuiteRun::of(name, &side.name, plan, &driven, MonotonicClock.now() - began));
        Ok(shown(name, side, plan, driven))
    }
}

fn shown(name: &str, side: &Side, plan: &Plan, driven: Driven) -> Shown {
    let measured = driven.measured(&load::declared(plan));
    let policy = PolicyRef {
        name: name.to_owned(),
        role: Role::After,
        generation: side.policy.generation,
        digest: format!("{:016x}", side.policy.digest),
        generator: Generator::of(&driven.load, timer_lateness_ms(&driven)),
        after_run: driven.after_run,
    };
    Shown { states: measured.iter().map(|one| one.state(name)).collect(), policy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_plans_are_possible_and_share_no_operation() {
        let options = options("out");
        let documents = Documents::read(&options).expect("the shipped ones are valid");
        let base = base_plan(&options, &documents);
        let (search, overload) =
            (search_plan(&base, options.extent), overload_plan(&base, options.extent, 121));
        search.check().expect("possible");
        overload.check().expect("possible");
        assert_ne!(
            search.id_prefix, overload.id_prefix,
            "or the second would replay the exposures of the first"
        );
        let percents: Vec<u32> = overload.stages.iter().map(|stage| stage.rate_percent).collect();
        assert_eq!(percents, [61, 61, 363, 61]);
        assert_eq!(
            search.stages.iter().map(|stage| stage.rate_percent).collect::<Vec<_>>()[1..],
            STEPS_PERCENT
        );
    }
}
