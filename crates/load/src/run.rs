//! Run: two threads, one for the schedule and one for sending, and the caller's own, which looks on.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, mpsc as sync},
    thread,
};

use base::{Clock, Nanos, clock::MonotonicClock, clock::process_cpu};
use tokio::sync::mpsc;

use crate::{
    LoadError, Plan, Progress, Report, Stop,
    assemble::assemble,
    call::Template,
    check::Stability,
    clock::{Priority, raise_priority},
    connection::Connections,
    progress::Gauges,
    record::{self, Recorder},
    retry::Budget,
    schedule::{BEHIND_MAX, Course, Due, Followed, follow},
    send::{Lane, Sending, drive},
    source::Source,
    tally::Tally,
};

/// Time between the last preparation and the first arrival that may be due.
const LEAD: Nanos = Nanos::from_millis(20);
/// How often the caller's thread looks.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(250);

/// Drives the plan to its end. Blocks the calling thread, on which `progress` is called when a stage begins and about
/// four times a second.
///
/// # Errors
/// [`LoadError`] when the plan is impossible, or the target is not there when the run begins. What fails later is a
/// result and is counted.
pub fn run(plan: Plan, progress: impl FnMut(Progress)) -> Result<Report, LoadError> {
    run_until(plan, &Stop::default(), progress)
}

/// As [`run`], and ends early when `stop` is set.
///
/// # Errors
/// As [`run`].
pub fn run_until(plan: Plan, stop: &Stop, progress: impl FnMut(Progress)) -> Result<Report, LoadError> {
    plan.check()?;
    let source = Source::of(&plan);
    execute(plan, source, stop, progress)
}

/// What a run leaves behind, before it is made into a report.
pub(crate) struct Remains {
    pub(crate) tally: Tally,
    pub(crate) followed: Followed,
    pub(crate) identities_untracked: u64,
    pub(crate) connections_lost: u64,
    pub(crate) sender_priority: Priority,
    pub(crate) wall: Nanos,
    pub(crate) cpu: Nanos,
    pub(crate) stopped_early: bool,
    pub(crate) recorded: Option<record::End>,
}

/// What the sending thread leaves behind.
struct Sent {
    tally: Tally,
    identities_untracked: u64,
    connections_lost: u64,
    priority: Priority,
}

pub(crate) fn execute(
    plan: Plan,
    source: Source,
    stop: &Stop,
    progress: impl FnMut(Progress),
) -> Result<Report, LoadError> {
    let Source { arrivals, retries, facts } = source;
    let gauges = Arc::new(Gauges::default());
    let (feed, due) = mpsc::channel(BEHIND_MAX);
    let (ready, started) = sync::sync_channel(1);
    let (done, outcome) = sync::sync_channel(1);
    let writer = writer(&plan)?;
    let recorder = writer.as_ref().map(record::Writer::recorder);

    let sending = {
        let (plan, gauges) = (plan.clone(), Arc::clone(&gauges));
        thread::Builder::new().name("load-send".to_owned()).spawn(move || {
            // The receivers outlive this thread, unless the caller's thread panicked; then nobody asks.
            let _ = done.send(send(&plan, retries, recorder, gauges, due, &ready));
        })
    };
    let sending = sending.map_err(LoadError::Thread)?;
    let Ok(course) = started.recv() else {
        return Err(finish(sending, &outcome).err().unwrap_or(LoadError::Panicked("load-send")));
    };

    let (wall_began, cpu_began) = (MonotonicClock.now(), process_cpu());
    let schedule = {
        let (stop, course) = (stop.clone(), Course::clone(&course));
        let follow = move || follow(arrivals, &course, feed, &stop);
        thread::Builder::new().name("load-clock".to_owned()).spawn(follow).map_err(LoadError::Thread)?
    };
    let sent = watch(&course, &gauges, &outcome, progress);
    let followed = schedule.join().map_err(|_| LoadError::Panicked("load-clock"));
    let sent = match sent {
        Some(sent) => sent?,
        None => return Err(finish(sending, &outcome).err().unwrap_or(LoadError::Panicked("load-send"))),
    };
    sending.join().map_err(|_| LoadError::Panicked("load-send"))?;
    let remains = Remains {
        tally: sent.tally,
        followed: followed?,
        identities_untracked: sent.identities_untracked,
        connections_lost: sent.connections_lost,
        sender_priority: sent.priority,
        wall: MonotonicClock.now() - wall_began,
        cpu: process_cpu() - cpu_began,
        stopped_early: stop.is_set(),
        recorded: writer.map(record::Writer::finish).transpose()?,
    };
    Ok(assemble(&plan, facts, remains))
}

/// Begins the record, where one is kept.
fn writer(plan: &Plan) -> Result<Option<record::Writer>, LoadError> {
    let Some(path) = &plan.record else { return Ok(None) };
    let run = record::Run {
        schema: record::SCHEMA.to_owned(),
        targets: plan.targets().map(str::to_owned).collect(),
        id_prefix: plan.id_prefix.clone(),
        seed: plan.seed,
    };
    record::Writer::create(path, run, plan.origin).map(Some)
}

/// Joins the sending thread and gives its result.
fn finish(
    sending: thread::JoinHandle<()>,
    outcome: &sync::Receiver<Result<Sent, LoadError>>,
) -> Result<Sent, LoadError> {
    sending.join().map_err(|_| LoadError::Panicked("load-send"))?;
    outcome.try_recv().unwrap_or(Err(LoadError::Panicked("load-send")))
}

/// The sending thread: opens the connections, says when the course starts, and drives it.
fn send(
    plan: &Plan,
    retries: crate::retry::Retries,
    recorder: Option<Recorder>,
    gauges: Arc<Gauges>,
    due: mpsc::Receiver<Due>,
    ready: &sync::SyncSender<Course>,
) -> Result<Sent, LoadError> {
    let priority = raise_priority();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LoadError::Thread)?;
    runtime.block_on(async {
        let (mut lanes, mut keepers) = (Vec::new(), Vec::new());
        for target in plan.targets() {
            let refused = |error: crate::connection::DialError| LoadError::Connect {
                target: target.to_owned(),
                reason: error.to_string(),
            };
            let (connections, drivers) =
                Connections::open(target, plan.connections).await.map_err(refused)?;
            let template = Template::new(target, plan.origin)
                .ok_or_else(|| LoadError::Plan(format!("target: {target:?} is not a host and port")))?;
            let kept = drivers.into_iter().enumerate();
            keepers.extend(kept.map(|(place, driver)| Rc::clone(&connections).keep_up(place, driver)));
            lanes.push(Lane { template, connections });
        }
        let course = plan.course(MonotonicClock.now() + LEAD);
        let sending = Rc::new(Sending {
            course: course.clone(),
            lanes,
            retries,
            budget: plan.settle.as_ref().map(Budget::new),
            recorder,
            timeout: plan.timeout,
            id_prefix: plan.id_prefix.clone(),
            in_flight_max: plan.in_flight_max,
            drain: course.wall(plan.drain),
            tally: RefCell::new(Tally::new(
                plan.stages.iter().map(|stage| stage.measured).collect(),
                plan.objective,
                plan.dilate,
            )),
            stability: RefCell::default(),
            gauges,
            observer: plan.observer.clone(),
        });
        // The caller's thread waits for it; if it is gone, the feed is too, and driving ends at once.
        let _ = ready.send(course);
        drive(Rc::clone(&sending), due, keepers).await;
        let sending = Rc::try_unwrap(sending).map_err(|_| LoadError::Panicked("load-send"))?;
        Ok(Sent {
            tally: sending.tally.into_inner(),
            identities_untracked: Stability::untracked(&sending.stability.borrow()),
            connections_lost: sending.lanes.iter().map(|lane| lane.connections.lost()).sum(),
            priority,
        })
    })
}

/// Looks on until the sending thread is done; `None` when it died.
fn watch(
    course: &Course,
    gauges: &Gauges,
    outcome: &sync::Receiver<Result<Sent, LoadError>>,
    mut progress: impl FnMut(Progress),
) -> Option<Result<Sent, LoadError>> {
    let total = *course.ends.last()?;
    let starts = std::iter::once(Nanos::ZERO).chain(course.ends.iter().copied());
    let starts: Vec<Nanos> = starts.take(course.ends.len()).map(|at| course.instant(at)).collect();
    let mut begun = 0;
    loop {
        let now = MonotonicClock.now();
        let elapsed = course.model(now - course.start).min(total);
        let due = starts.partition_point(|start| *start <= now);
        for stage in begun..due {
            progress(gauges.look(stage, true, course.start, elapsed, total));
        }
        if begun == due && due > 0 {
            progress(gauges.look(due - 1, false, course.start, elapsed, total));
        }
        begun = due;
        let next = starts.get(begun).map_or(LOOK_INTERVAL, |start| LOOK_INTERVAL.min(*start - now));
        match outcome.recv_timeout(next.into()) {
            Ok(sent) => return Some(sent),
            Err(sync::RecvTimeoutError::Timeout) => {}
            Err(sync::RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
pub(crate) mod tests;
