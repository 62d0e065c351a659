//! Drive: a suite and the generator side by side, the phases switched at the boundaries of the stages, and readings taken
//! in between.

use std::{cell::RefCell, collections::BTreeMap, thread, time::Duration};

use base::Nanos;
use load::{LoadError, Plan, Progress, Stop};
use tokio::sync::{mpsc, oneshot};

use super::{
    sampler::{Sampler, Samples},
    snapshot::{Snapshot, scrape},
};
use crate::{
    control::Control,
    report::AfterRun,
    screen::Screen,
    slo::RehearsalError,
    suite::{Member, Step, Stopped, Suite, SuiteOptions},
    up::Signals,
};

/// Progress reports that may wait; further ones that begin no stage are dropped.
const REPORTS_MAX: usize = 16;
/// How long work that its callers have left is waited for at the end, in model time: under the old policy a backlog of
/// some seconds goes on after the last of them.
const SETTLE_MAX: Nanos = Nanos::from_secs(10);
/// How often it is looked for.
const SETTLE_INTERVAL: Duration = Duration::from_millis(100);

/// Who looks on, and what ends a run before its time.
pub(crate) struct Watch<'w> {
    pub(crate) screen: &'w Screen,
    pub(crate) signals: &'w mut Signals,
    /// Name of the run on the screen.
    pub(crate) label: &'w str,
    /// What was over of all runs when this one began, in wall time.
    pub(crate) done: Nanos,
    /// Resident memory of home-api beyond which the run is ended, in MiB.
    pub(crate) memory_max_mib: f64,
    /// The phase of the dependencies in a stage; [`state_of`] where stages are named after phases.
    pub(crate) phase_of: fn(&str) -> &str,
}

/// What driving leaves behind.
pub(crate) struct Driven {
    pub(crate) load: load::Report,
    /// At the beginning of each stage that began, and at the end.
    pub(crate) snapshots: Vec<Snapshot>,
    pub(super) samples: Samples,
    pub(crate) after_run: AfterRun,
    pub(crate) start_took: Nanos,
    pub(crate) stopped: Vec<Stopped>,
}

/// Starts the suite, drives the plan through it and stops it.
pub(crate) async fn drive(
    options: SuiteOptions,
    mut plan: Plan,
    watch: &mut Watch<'_>,
) -> Result<Driven, RehearsalError> {
    let label = watch.label;
    watch.screen.at(watch.done);
    watch.screen.say(format!("{label}: starting"));
    let start = Suite::start(options, |step| {
        if let Step::Ready(member) = step {
            watch.screen.say(format!("{label}: {member} is ready"));
        }
    });
    let mut suite = tokio::select! {
        // An interrupted start is given up; dropping it ends what was started.
        biased;
        () = watch.signals.next() => return Err(RehearsalError::Interrupted),
        suite = start => suite.map_err(RehearsalError::Launch)?,
    };
    let home = suite.endpoints().get(Member::HOME_API).and_then(|home| home.main());
    plan.target = home.unwrap_or_default().to_owned();
    let result = run(&mut suite, plan, watch).await;
    watch.screen.say(format!("{label}: stopping"));
    let start_took = suite.start_took();
    let stopped = suite.stop().await;
    let Ran { load, snapshots, samples, after_run } = result?;
    Ok(Driven { load, snapshots, samples, after_run, start_took, stopped })
}

/// What the run itself leaves behind.
struct Ran {
    load: load::Report,
    snapshots: Vec<Snapshot>,
    samples: Samples,
    after_run: AfterRun,
}

/// The run itself. However it ends, the generator has ended too.
async fn run(suite: &mut Suite, plan: Plan, watch: &mut Watch<'_>) -> Result<Ran, RehearsalError> {
    let control = suite.endpoints().get(Member::Emulator).and_then(|one| one.control.clone());
    let mut control = Control::new(&control.unwrap_or_default()).map_err(RehearsalError::Control)?;
    let names: Vec<String> = plan.stages.iter().map(|stage| stage.name.clone()).collect();
    // The first phase is in force before the first arrival.
    control.set_phase((watch.phase_of)(&names[0])).await.map_err(RehearsalError::Control)?;

    let dilate = plan.dilate;
    let stop = Stop::default();
    let (mut generator, mut reports, ended) = start_generator(plan, &stop)?;
    let mut ended = Some(ended);
    let mut snapshots = Vec::with_capacity(names.len() + 1);
    let samples = RefCell::default();
    let mut sampling = None;
    let mut outgrown = None;
    let result = loop {
        tokio::select! {
            // An order, then a death, then the boundary of a stage: what spoils the run comes first.
            biased;
            () = watch.signals.next() => break Err(RehearsalError::Interrupted),
            exit = suite.exited() => break Err(RehearsalError::Died(Box::new(exit))),
            Some(progress) = reports.recv() => {
                let name = &names[progress.stage];
                if progress.stage_began {
                    if progress.stage > 0
                        && let Err(error) = control.set_phase((watch.phase_of)(name)).await
                    {
                        break Err(RehearsalError::Control(error));
                    }
                    snapshots.push(Snapshot::take(suite, &mut control).await);
                    if sampling.is_none() {
                        let sampler = sampler(suite, &control, progress.began, dilate, watch.memory_max_mib);
                        sampling = sampler.map(|sampler| Box::pin(sampler.run(&samples)));
                    }
                }
                watch.screen.at(watch.done + progress.elapsed.times(dilate));
                watch.screen.show(&format!("{} {name}", watch.label), &progress);
            }
            result = async { ended.as_mut().expect("awaited once").await } => {
                ended = None;
                break result
                    .unwrap_or(Err(LoadError::Panicked("load")))
                    .map_err(RehearsalError::Load);
            }
            bytes = async { sampling.as_mut().expect("guarded").await }, if sampling.is_some() => {
                outgrown = Some(bytes);
                sampling = None;
                stop.set();
            }
        }
    };
    drop(sampling);
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
    watch.screen.say(format!("{}: waiting for work that its callers left", watch.label));
    let mut after_run = tokio::select! {
        // Nobody waits for a settling that was interrupted.
        biased;
        () = watch.signals.next() => return Err(RehearsalError::Interrupted),
        after_run = settle(suite, dilate) => after_run,
    };
    after_run.stopped = outgrown.map(|bytes| {
        let mib = bytes as f64 / f64::from(1 << 20);
        let max = watch.memory_max_mib;
        format!("home-api had {mib:.0} MiB resident, of {max:.0} at most; the run was ended there")
    });
    Ok(Ran { load, snapshots, samples: samples.into_inner(), after_run })
}

fn sampler(
    suite: &Suite,
    control: &Control,
    began: Nanos,
    dilate: u32,
    memory_max_mib: f64,
) -> Option<Sampler> {
    let admin = suite.endpoints().get(Member::HOME_API)?.admin.clone();
    let (_, pid) = suite.running().find(|(member, _)| *member == Member::HOME_API)?;
    let memory_max_bytes = (memory_max_mib * f64::from(1 << 20)) as u64;
    Some(Sampler { admin, pid, control: control.clone(), began, dilate, memory_max_bytes })
}

/// Waits, within a bound, until nothing is held any more, and says what still is.
pub(crate) async fn settle(suite: &Suite, dilate: u32) -> AfterRun {
    let metrics = async |member: Member| {
        let admin = &suite.endpoints().get(member)?.admin;
        scrape(admin).await
    };
    let home = async || {
        let reading = metrics(Member::HOME_API).await.map(|scrape| super::reading::Reading::of(&scrape));
        let held = reading.as_ref().and_then(super::reading::Reading::held);
        (held, reading.and_then(|reading| reading.flights_open()))
    };
    let waits = Duration::from(SETTLE_MAX.times(dilate)).div_duration_f64(SETTLE_INTERVAL) as u64;
    let (mut held, mut flights) = home().await;
    for _ in 0..waits {
        if held.unwrap_or_default() == 0.0 && flights.unwrap_or_default() == 0.0 {
            break;
        }
        tokio::time::sleep(SETTLE_INTERVAL).await;
        (held, flights) = home().await;
    }
    let experiment = match Member::parse("experiment") {
        Some(experiment) => metrics(experiment).await,
        None => None,
    };
    let exposures =
        |outcome: &str| experiment.as_ref()?.sum("mercury_exposures_total", &[("outcome", outcome)], &[]);
    AfterRun {
        permits_held: held,
        flights_open: flights,
        effects_replayed: exposures("replayed"),
        effects_conflicting: exposures("conflict"),
        stopped: None,
    }
}

pub(crate) type Generator = (
    Option<thread::JoinHandle<()>>,
    mpsc::Receiver<Progress>,
    oneshot::Receiver<Result<load::Report, LoadError>>,
);

/// Runs the plan on a thread of its own.
pub(crate) fn start_generator(plan: Plan, stop: &Stop) -> Result<Generator, RehearsalError> {
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
pub(crate) fn state_of(stage: &str) -> &str {
    stage.strip_suffix(" warm-up").unwrap_or(stage)
}

impl Driven {
    /// Most calls in service at once by dependency, and the servers that there are.
    pub(crate) fn emulator_peaks(&self) -> BTreeMap<String, (u32, u32)> {
        let last = self.snapshots.last().and_then(|snapshot| snapshot.emulator.as_ref());
        last.map(|stats| stats.peaks.clone()).unwrap_or_default()
    }
}
