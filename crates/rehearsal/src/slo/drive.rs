//! Drive: the suite and the generator side by side, the phases switched at the boundaries of the stages.

use std::{collections::BTreeMap, thread};

use base::Nanos;
use load::{LoadError, Plan, Progress, Stop};
use tokio::sync::{mpsc, oneshot};

use super::{RehearsalError, snapshot::Snapshot};
use crate::{
    control::Control,
    report::{State, ratio},
    screen::Screen,
    suite::{Member, Step, Stopped, Suite, SuiteOptions},
    up::Signals,
};

/// Progress reports that may wait; further ones that begin no stage are dropped.
const REPORTS_MAX: usize = 16;

/// What driving leaves behind.
pub(crate) struct Driven {
    pub(crate) load: load::Report,
    /// At the beginning of each stage, and at the end.
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) start_took: Nanos,
    pub(crate) stopped: Vec<Stopped>,
}

/// Starts the suite, drives the plan through it and stops it.
pub(crate) async fn drive(
    options: SuiteOptions,
    mut plan: Plan,
    show: bool,
) -> Result<Driven, RehearsalError> {
    let mut signals = Signals::new().map_err(|error| RehearsalError::Io { path: "signals".into(), error })?;
    let screen = Screen::new(show);
    let start = Suite::start(options, |step| {
        if let Step::Ready(member) = step {
            screen.say(format!("{member} is ready"));
        }
    });
    let mut suite = tokio::select! {
        // An interrupted start is given up; dropping it ends what was started.
        biased;
        () = signals.next() => return Err(RehearsalError::Interrupted),
        suite = start => suite.map_err(RehearsalError::Launch)?,
    };
    let home = suite.endpoints().get(Member::HOME_API).and_then(|home| home.main());
    plan.target = home.unwrap_or_default().to_owned();
    let result = run(&mut suite, plan, &mut signals, &screen).await;
    screen.say("stopping the suite");
    let start_took = suite.start_took();
    let stopped = suite.stop().await;
    screen.clear();
    let (load, snapshots) = result?;
    Ok(Driven { load, snapshots, start_took, stopped })
}

/// The run itself. However it ends, the generator has ended too.
async fn run(
    suite: &mut Suite,
    plan: Plan,
    signals: &mut Signals,
    screen: &Screen,
) -> Result<(load::Report, Vec<Snapshot>), RehearsalError> {
    let control = suite.endpoints().get(Member::Emulator).and_then(|one| one.control.clone());
    let mut control = Control::new(&control.unwrap_or_default()).map_err(RehearsalError::Control)?;
    let names: Vec<String> = plan.stages.iter().map(|stage| stage.name.clone()).collect();
    // The first phase is in force before the first arrival.
    control.set_phase(state_of(&names[0])).await.map_err(RehearsalError::Control)?;

    let stop = Stop::default();
    let (mut generator, mut reports, ended) = start_generator(plan, &stop)?;
    let mut ended = Some(ended);
    let mut snapshots = Vec::with_capacity(names.len() + 1);
    let result = loop {
        tokio::select! {
            // An order, then a death, then the boundary of a stage: what spoils the run comes first.
            biased;
            () = signals.next() => break Err(RehearsalError::Interrupted),
            exit = suite.exited() => break Err(RehearsalError::Died(Box::new(exit))),
            Some(progress) = reports.recv() => {
                let name = &names[progress.stage];
                if progress.stage_began {
                    if progress.stage > 0
                        && let Err(error) = control.set_phase(state_of(name)).await
                    {
                        break Err(RehearsalError::Control(error));
                    }
                    snapshots.push(Snapshot::take(suite, &mut control).await);
                }
                screen.show(name, &progress);
            }
            result = async { ended.as_mut().expect("awaited once").await } => {
                ended = None;
                break result
                    .unwrap_or(Err(LoadError::Panicked("load")))
                    .map_err(RehearsalError::Load);
            }
        }
    };
    stop.set();
    // Its last reports have no reader any more, so it cannot wait for one.
    drop(reports);
    if let Some(ended) = ended {
        let _ = ended.await;
    }
    // It has sent its result or panicked, so this returns at once.
    if let Some(thread) = generator.take() {
        let _ = thread.join();
    }
    let load = result?;
    snapshots.push(Snapshot::take(suite, &mut control).await);
    Ok((load, snapshots))
}

type Generator = (
    Option<thread::JoinHandle<()>>,
    mpsc::Receiver<Progress>,
    oneshot::Receiver<Result<load::Report, LoadError>>,
);

/// Runs the plan on a thread of its own.
fn start_generator(plan: Plan, stop: &Stop) -> Result<Generator, RehearsalError> {
    let (report, reports) = mpsc::channel(REPORTS_MAX);
    let (done, ended) = oneshot::channel();
    let stop = stop.clone();
    let run = move || {
        let result = load::run_until(plan, &stop, |progress: Progress| {
            if progress.stage_began {
                // Waits for room: a boundary is never lost. A reader that is gone has ended the run.
                let _ = report.blocking_send(progress);
            } else {
                let _ = report.try_send(progress);
            }
        });
        let _ = done.send(result);
    };
    let thread = thread::Builder::new().name("load".to_owned()).spawn(run);
    let thread = thread.map_err(|error| RehearsalError::Load(LoadError::Thread(error)))?;
    Ok((Some(thread), reports, ended))
}

/// The phase of a stage: the warm-up of a state is the state.
fn state_of(stage: &str) -> &str {
    stage.strip_suffix(" warm-up").unwrap_or(stage)
}

impl Driven {
    /// The measured stages as states of `policy`.
    pub(crate) fn states(&self, policy: &str) -> Vec<State> {
        let stages = self.load.stages.iter().enumerate().filter(|(_, stage)| stage.measured);
        stages.map(|(at, stage)| self.state(policy, at, stage)).collect()
    }

    fn state(&self, policy: &str, at: usize, stage: &load::report::Stage) -> State {
        let mut state = State::of_stage(policy, stage);
        let (Some(before), Some(after)) = (self.snapshots.get(at), self.snapshots.get(at + 1)) else {
            return state;
        };
        let offered = stage.all.scheduled as f64;
        if let (Some(then), Some(now)) =
            (before.late.get(&Member::HOME_API), after.late.get(&Member::HOME_API))
        {
            state.late_work = now.since(*then, offered, stage.duration_s);
        }
        if let (Some(then), Some(now)) = (&before.emulator, &after.emulator) {
            state.dependency_calls_per_operation = now
                .calls
                .iter()
                .map(|(name, calls)| {
                    let grown = then.calls.get(name).and_then(|then| calls.checked_sub(*then));
                    (name.clone(), grown.and_then(|grown| ratio(grown as f64, offered)))
                })
                .collect();
        }
        state
    }

    /// Lateness of the emulator's timers over the whole run.
    pub(crate) fn emulator_timer_p99_ms(&self) -> Option<f64> {
        self.snapshots.last()?.emulator.as_ref()?.timer_p99_ms
    }

    /// Most calls in service at once by dependency, and the servers that there are.
    pub(crate) fn emulator_peaks(&self) -> BTreeMap<String, (u32, u32)> {
        let last = self.snapshots.last().and_then(|snapshot| snapshot.emulator.as_ref());
        last.map(|stats| stats.peaks.clone()).unwrap_or_default()
    }
}
