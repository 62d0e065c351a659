//! Suites: runs each step of the walk by a suite of its own, and shows how far everything is.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base::{Clock, Nanos, Origin, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use load::{Plan, Rate, StagePlan};
use model::{
    policy::Policy,
    rollout::{Ladder, Timing},
    scenario::{self, Scenario},
    workload::Workload,
};

use super::{
    RolloutError, RolloutOptions,
    judge::Evidence,
    print,
    walk::{LEGACY, Request, Rung, Stage},
};
use crate::{
    gates::{Role, evidence::MEMORY_MAX_MIB},
    measure::{Driven, Watch, drive, recovery, state_of, timer_lateness_ms},
    report::{Generator, PolicyRef, State},
    screen::{Screen, clock},
    slo::{Output, RehearsalError, SuiteRun},
    suite::{OnChildExit, SuiteOptions},
    up::Signals,
};

/// Operations in flight that the generator allows: the old policy keeps as many as arrive until their callers give up.
const IN_FLIGHT_MAX: usize = 32_768;
/// What a suite needs beside its plan: the start and the end of nine processes, and what their last callers left.
const SUITE: Nanos = Nanos::from_secs(2);

/// Runs the steps, and keeps what depends on the machine.
pub(super) struct Suites<'o> {
    options: &'o RolloutOptions,
    ladder: &'o Ladder,
    timing: Timing,
    scenario: Scenario,
    workload: Workload,
    signals: Signals,
    pub(super) screen: Screen,
    total: Nanos,
    done: Nanos,
    pub(super) runs: Vec<SuiteRun>,
}

impl<'o> Suites<'o> {
    pub(super) fn new(options: &'o RolloutOptions, ladder: &'o Ladder) -> Result<Self, RehearsalError> {
        let signals = Signals::new().map_err(|error| RehearsalError::Io { path: "signals".into(), error })?;
        let mut suites = Self {
            options,
            ladder,
            timing: if options.quick { ladder.quick } else { ladder.full },
            scenario: Scenario::shipped(),
            workload: Workload::shipped(),
            signals,
            screen: Screen::new(false),
            total: Nanos::ZERO,
            done: Nanos::ZERO,
            runs: Vec::new(),
        };
        suites.plan(false, Nanos::from_millis(1)).check().map_err(RehearsalError::Load)?;
        let steps = ladder.steps().map(|step| suites.wall(step.canary));
        suites.total = steps.fold(suites.wall(false), Nanos::saturating_add);
        if options.output == Output::Human {
            say(&print::opening(options, ladder, &clock(suites.total)));
        }
        suites.show();
        Ok(suites)
    }

    pub(super) const fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub(super) const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// A bar that begins where the last one ended.
    fn show(&mut self) {
        self.screen = Screen::new(self.options.output == Output::Human);
        self.screen.expect(self.total);
        self.screen.at(self.done);
    }

    /// Wall time of one run.
    fn wall(&self, canary: bool) -> Nanos {
        let stages = self.stages(canary).into_iter();
        stages.map(|stage| stage.duration).fold(Nanos::ZERO, Nanos::saturating_add).times(self.options.dilate)
            + SUITE
    }

    fn stages(&self, canary: bool) -> Vec<StagePlan> {
        let Timing { warm_up, peak, slowdown, recovery, canary: short } = self.timing;
        let warmed = |name: &str, measured: Nanos| {
            let warm_up =
                (!warm_up.is_zero()).then(|| StagePlan::warm_up(format!("{name} warm-up"), warm_up));
            warm_up.into_iter().chain([StagePlan::measured(name, measured)])
        };
        if canary {
            return warmed("peak", short).collect();
        }
        let impaired = warmed("peak", peak).chain(warmed("slowdown", slowdown));
        impaired.chain([StagePlan::measured("recovery", recovery)]).collect()
    }

    /// The same seed and schedule for all; a canary sees the beginning of it.
    fn plan(&self, canary: bool, objective: Nanos) -> Plan {
        let rate = Rate::Scale(self.options.scale);
        let plan = Plan::new("", self.workload.clone(), rate, self.timing.peak);
        Plan {
            seed: self.options.seed,
            dilate: self.options.dilate,
            objective,
            // A rehearsal stands for customers: its operations are the objective's population.
            origin: Origin::Customer,
            id_prefix: "rollout".to_owned(),
            in_flight_max: IN_FLIGHT_MAX,
            connections: load::CONNECTIONS_MAX,
            stages: self.stages(canary),
            ..plan
        }
    }

    fn suite(&self, request: &Request<'_>, policy: PathBuf) -> Result<SuiteOptions, RehearsalError> {
        let name = file_name(request.name);
        let scenario = request.fault.map(|fault| {
            let directory = self.options.out.join("scenarios");
            write(&directory, &name, &fault.added_to(scenario::SHIPPED.1))
        });
        Ok(SuiteOptions {
            executable: self.options.executable.clone(),
            policy: Some(policy),
            scenario: scenario.transpose()?,
            seed: self.options.seed,
            scale: self.options.scale,
            dilate: self.options.dilate,
            on_child_exit: OnChildExit::Stop,
            // The same operations as in the last run would be replays, and cost less.
            fresh_ledger: true,
            log_filter: self.options.log_filter.clone(),
            ..SuiteOptions::new(self.options.out.join("state").join(name))
        })
    }
}

impl Stage for Suites<'_> {
    async fn run(&mut self, request: &Request<'_>) -> Result<Evidence, RolloutError> {
        let began = MonotonicClock.now();
        let policy = Policy::parse(request.name, request.policy)
            .map_err(|faults| RehearsalError::Files(vec![faults]))?;
        let plan = self.plan(request.canary, policy.objective);
        let file = write(&self.options.out.join("policies"), &file_name(request.name), request.policy)?;
        let options = self.suite(request, file)?;
        let wall = self.wall(request.canary);
        // What was not foreseen: a run that is made again, or the check after a reversal.
        self.total = self.total.max(self.done + wall);
        self.screen.expect(self.total);
        let fault = request.fault.map_or_else(String::new, |fault| format!(" with {}", fault.name));
        let label = format!("{}{fault}", request.name);
        let mut watch = Watch {
            screen: &self.screen,
            signals: &mut self.signals,
            label: &label,
            done: self.done,
            memory_max_mib: MEMORY_MAX_MIB,
            phase_of: state_of,
        };
        let driven = drive(options, plan.clone(), &mut watch).await?;
        self.done = self.done + wall;
        self.runs.push(SuiteRun::of(&label, request.name, &plan, &driven, MonotonicClock.now() - began));
        Ok(evidence(request.name, &policy, &plan, driven))
    }

    fn decided(&mut self, rung: &Rung) {
        if self.options.output == Output::Human {
            self.screen.clear();
            say(&print::rung(rung, self.ladder));
            self.show();
        }
    }

    fn clock(&self) -> &dyn WallClock {
        &SystemWallClock
    }
}

/// What a run showed.
fn evidence(name: &str, policy: &Policy, plan: &Plan, driven: Driven) -> Evidence {
    let measured = driven.measured(&load::declared(plan));
    let mut states: Vec<State> = measured.iter().map(|measured| measured.state(name)).collect();
    let peak = states.iter().find(|state| state.state == "peak");
    let bounds = peak.and_then(|peak| recovery::bounds(&peak.timeline));
    if let Some(last) = states.iter_mut().find(|state| state.state == "recovery") {
        let found = bounds.map(|bounds| recovery::judge(&last.timeline, &bounds)).unwrap_or_default();
        (last.recovery_s, last.recovery_at_least_s) = (found.s, found.at_least_s);
        last.recovery_bounds = bounds;
    }
    let policy = PolicyRef {
        name: name.to_owned(),
        role: if name == LEGACY { Role::Before } else { Role::After },
        generation: policy.generation,
        digest: format!("{:016x}", policy.digest),
        generator: Generator::of(&driven.load, timer_lateness_ms(&driven)),
        after_run: driven.after_run,
    };
    Evidence { states, policy }
}

/// The name of a step as one of a file.
fn file_name(step: &str) -> String {
    step.replace('/', "-")
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf, RehearsalError> {
    let path = directory.join(format!("{name}.toml"));
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| RehearsalError::Io { path: path.clone(), error })?;
    Ok(path)
}

/// Prints lines; a reader that went away is no reason to stop.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
}
