//! Course: one profile from the start of its suite to the end of it: the generator on its thread, faults and peers begun with
//! their phases, the stop conditions watched all the while.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::{StreamExt, stream::FuturesUnordered};
use load::{LoadError, Plan, Stop, flood::Flooded};
use model::load_profile::{Figure, Profile};
use tokio::time;

use super::{
    bodies::{self, BodyCase},
    flood,
    losses::Losses,
    observed::Observed,
    readers,
    reload::{self, Ear, Edited},
    retained::{self, Retained},
    stopping::{self, Subject},
    watch::{Breach, HomeBounds, Seen, Watchman},
};
use crate::{
    control::Control,
    measure::{Snapshot, scrape, settle, start_generator},
    screen::Screen,
    slo::RehearsalError,
    suite::{ChildExit, Ended, Member, Step, Suite, SuiteOptions},
    up::Signals,
};

/// Longest wait, after the last phase, for peers and for a process that was told to end.
const AFTER_MAX: Duration = Duration::from_secs(30);
/// Longest wait for home-api's books to be empty.
const SETTLE_MAX: Duration = Duration::from_secs(5);
/// Between two looks at them.
const SETTLE_LOOK: Duration = Duration::from_millis(50);
const MIB: f64 = (1 << 20) as f64;

/// What is driven, and how.
pub(super) struct Course<'c> {
    pub(super) profile: &'c Profile,
    pub(super) suite: SuiteOptions,
    pub(super) plan: Plan,
    /// Bounds of the policy that the suite runs by.
    pub(super) bounds: HomeBounds,
    pub(super) body_bytes_max: usize,
    /// Whether the phases are the short ones.
    pub(super) quick: bool,
    /// The policy file that is edited, and what answers say about it, where the profile edits one.
    pub(super) edits: Option<(Edited, Arc<Ear>)>,
    /// What becomes of operations in flight, where the profile stops home-api.
    pub(super) losses: Option<Arc<Losses>>,
    /// The `mercury` binary, for the processes of a flood.
    pub(super) executable: PathBuf,
    pub(super) screen: &'c Screen,
}

/// What it leaves behind.
pub(super) struct Ran {
    pub(super) load: load::Report,
    /// At the beginning of each phase, and at the end.
    pub(super) marks: Vec<Snapshot>,
    pub(super) observed: Observed,
    pub(super) seen: Seen,
    pub(super) breach: Option<Breach>,
    pub(super) bodies: Vec<BodyCase>,
    pub(super) retained: Vec<Retained>,
    pub(super) flood: Option<Flooded>,
}

/// What the peers of a phase found.
enum Found {
    Figures(Observed),
    Bodies(Observed, Vec<BodyCase>),
    Flood(Observed, Flooded),
}

type Peers<'p> = FuturesUnordered<Pin<Box<dyn Future<Output = Result<Found, RehearsalError>> + 'p>>>;

impl Course<'_> {
    pub(super) async fn run(&self, signals: &mut Signals) -> Result<Ran, RehearsalError> {
        self.screen.say(format!("{}: starting", self.profile.name));
        let start = Suite::start(self.suite.clone(), |step| {
            if let Step::Ready(member) = step {
                self.screen.say(format!("{}: {member} is ready", self.profile.name));
            }
        });
        let mut suite = tokio::select! {
            // An interrupted start is given up; dropping it ends what was started.
            biased;
            () = signals.next() => return Err(RehearsalError::Interrupted),
            suite = start => suite.map_err(RehearsalError::Launch)?,
        };
        let ran = self.drive(&mut suite, signals).await;
        self.screen.say(format!("{}: stopping", self.profile.name));
        suite.stop().await;
        ran
    }

    /// Whom the peers meet.
    fn subject(suite: &Suite) -> Result<Subject, RehearsalError> {
        let home = suite.endpoints().get(Member::HOME_API);
        let running = suite.running().find(|(member, _)| *member == Member::HOME_API);
        let subject = home.zip(running).and_then(|(endpoint, (_, pid))| {
            let home: SocketAddr = endpoint.main()?.parse().ok()?;
            Some(Subject { home, admin: endpoint.admin.clone(), pid })
        });
        subject.ok_or_else(|| RehearsalError::Peers("home-api has no address".to_owned()))
    }

    async fn drive(&self, suite: &mut Suite, signals: &mut Signals) -> Result<Ran, RehearsalError> {
        let subject = Self::subject(suite)?;
        let services: Vec<String> = suite
            .running()
            .filter(|(member, _)| *member != Member::Emulator)
            .filter_map(|(member, _)| Some(suite.endpoints().get(member)?.admin.clone()))
            .collect();
        let control = suite.endpoints().get(Member::Emulator).and_then(|one| one.control.clone());
        let mut control = Control::new(&control.unwrap_or_default()).map_err(RehearsalError::Control)?;
        let mut plan = self.plan.clone();
        plan.target = subject.home.to_string();
        let stop = Stop::default();
        let (signalled, gone, baseline_due) = (Cell::new(None), Cell::new(false), Cell::new(false));
        let ready_until = Cell::new(None);
        let seen = RefCell::new(Seen::default());
        let mut watching = Box::pin(self.watchman(suite, &control, &seen, &gone, &baseline_due).run());
        let mut watched = true;
        let mut peers = Peers::new();
        let (mut observed, mut marks) = (Observed::default(), Vec::new());
        let (mut bodies, mut flooded, mut breach, mut end) = (Vec::new(), None, None, None);
        let (mut generator, mut reports, ended) = start_generator(plan, &stop)?;
        let (mut ended, mut load) = (Some(ended), None);
        let mut patience = None;
        let result = loop {
            let stopped = end.is_some() || self.profile.stopping.is_none() || breach.is_some();
            if stopped && peers.is_empty() {
                if load.is_some() {
                    break Ok(());
                }
                if end.is_some() {
                    stop.set();
                }
            }
            tokio::select! {
                // An order, then a death, then a breach, then a phase: what spoils the run comes first.
                biased;
                () = signals.next() => break Err(RehearsalError::Interrupted),
                exit = suite.exited() => match signalled.get().filter(|_| exit.member == Member::HOME_API) {
                    Some(at) => end = Some(told(&mut observed, &exit, at)),
                    None => break Err(RehearsalError::Died(Box::new(exit))),
                },
                broken = &mut watching, if watched => {
                    watched = false;
                    stop.set();
                    // Nothing is offered any more, by nobody.
                    peers.clear();
                    breach = Some(broken);
                }
                Some(progress) = reports.recv() => {
                    let phase = progress.stage;
                    if progress.stage_began {
                        marks.push(Snapshot::take(suite, &mut control).await);
                        if phase == self.profile.baseline() {
                            baseline_due.set(true);
                        }
                        if let Err(error) = self.faults(phase, &mut control).await {
                            break Err(error);
                        }
                        if self.profile.stopping.is_some_and(|stopping| stopping.phase == phase) {
                            // What it keeps is what it has now; afterwards it is gone.
                            observed.put(Figure::MemoryKept, kept_mib(&seen.borrow()));
                        }
                        if breach.is_none() {
                            self.meet(phase, &subject, &services, (&signalled, &ready_until), &gone, &peers);
                        }
                    }
                    self.screen.at(progress.elapsed);
                    self.screen.show(&self.profile.phases[phase].name, &progress);
                }
                found = peers.next(), if !peers.is_empty() => match found {
                    Some(Ok(Found::Figures(figures))) => observed.take(figures),
                    Some(Ok(Found::Bodies(figures, cases))) => {
                        observed.take(figures);
                        bodies = cases;
                    }
                    Some(Ok(Found::Flood(figures, all))) => {
                        observed.take(figures);
                        flooded = Some(all);
                    }
                    Some(Err(error)) => break Err(error),
                    None => {}
                },
                result = async { ended.as_mut().expect("guarded").await }, if ended.is_some() => {
                    ended = None;
                    match result.unwrap_or(Err(LoadError::Panicked("load"))) {
                        Ok(report) => load = Some(report),
                        Err(error) => break Err(RehearsalError::Load(error)),
                    }
                    patience = Some(Box::pin(time::sleep(AFTER_MAX)));
                }
                () = async { patience.as_mut().expect("guarded").await }, if patience.is_some() => {
                    // A process that does not end has taken at least so long.
                    if let Some(at) = signalled.get() {
                        observed.put(Figure::StopTook, (MonotonicClock.now() - at).as_secs_f64());
                    }
                    break Ok(());
                }
            }
        };
        drop((watching, peers));
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
        result?;
        let load = load.ok_or(RehearsalError::Load(LoadError::Panicked("load")))?;
        if let (Some(losses), Some(at), Some(until)) = (&self.losses, signalled.get(), ready_until.get()) {
            observed.take(losses.at_signal(at, until));
        }
        marks.push(Snapshot::take(suite, &mut control).await);
        if signalled.get().is_none() {
            self.screen.say(format!("{}: waiting for what is left", self.profile.name));
            self.settle(suite, &subject, signals, &mut observed).await?;
        }
        let latest = self.watchman(suite, &control, &seen, &gone, &baseline_due).last_look().await;
        let mut seen = seen.into_inner();
        seen.finish(&latest);
        if signalled.get().is_none() {
            observed.put(Figure::MemoryKept, kept_mib(&seen));
        }
        let retained = match self.profile.bodies.filter(|_| breach.is_none()) {
            Some(bodies) => {
                self.screen.say(format!("{}: weighing held requests", self.profile.name));
                let (figures, retained) = self.weigh(bodies, suite, signals).await?;
                observed.take(figures);
                retained
            }
            None => Vec::new(),
        };
        observed.take(seen.worst.clone());
        Ok(Ran { load, marks, observed, seen, breach, bodies, retained, flood: flooded })
    }

    async fn weigh(
        &self,
        bodies: model::load_profile::Bodies,
        suite: &mut Suite,
        signals: &mut Signals,
    ) -> Result<(Observed, Vec<Retained>), RehearsalError> {
        tokio::select! {
            biased; // Nobody waits for a weighing that was interrupted.
            () = signals.next() => Err(RehearsalError::Interrupted),
            weighed = retained::weigh(bodies, suite) => weighed,
        }
    }

    fn watchman<'w>(
        &'w self,
        suite: &Suite,
        control: &Control,
        seen: &'w RefCell<Seen>,
        home_leaves: &'w Cell<bool>,
        baseline_due: &'w Cell<bool>,
    ) -> Watchman<'w>
    where
        Self: 'w,
    {
        let members = suite.running().filter_map(|(member, pid)| {
            let admin = suite.endpoints().get(member)?.admin.clone();
            Some((member, pid, admin))
        });
        Watchman {
            members: members.collect(),
            control: control.clone(),
            dependency: self.profile.dependency,
            home: self.bounds,
            stop: &self.profile.stop,
            seen,
            home_leaves,
            baseline_due,
        }
    }

    /// The faults of a phase, and of no other.
    async fn faults(&self, phase: usize, control: &mut Control) -> Result<(), RehearsalError> {
        if self.profile.faults.is_empty() {
            return Ok(());
        }
        control.clear_faults().await.map_err(RehearsalError::Control)?;
        for fault in self.profile.faults.iter().filter(|fault| fault.phase == phase) {
            control.inject(&fault.rule).await.map_err(RehearsalError::Control)?;
        }
        Ok(())
    }

    /// Lets the peers of a phase loose.
    fn meet<'p>(
        &'p self,
        phase: usize,
        subject: &'p Subject,
        services: &'p [String],
        (signalled, ready_until): (&'p Cell<Option<Nanos>>, &'p Cell<Option<Nanos>>),
        gone: &'p Cell<bool>,
        peers: &Peers<'p>,
    ) {
        if let Some(readers) = self.profile.readers.filter(|readers| readers.phase == phase) {
            peers.push(Box::pin(async move {
                Ok(Found::Figures(readers::run(readers, subject.home, &subject.admin).await))
            }));
        }
        if let Some(bodies) = self.profile.bodies.filter(|bodies| bodies.phase == phase) {
            let bytes_max = self.body_bytes_max;
            peers.push(Box::pin(async move {
                let (figures, cases) = bodies::run(bodies, subject.home, bytes_max).await;
                Ok(Found::Bodies(figures, cases))
            }));
        }
        if let Some(flood) = self.profile.flood.filter(|flood| flood.phase == phase) {
            let executable = self.executable.clone();
            peers.push(Box::pin(async move {
                let (figures, all) =
                    flood::run(flood, &executable, subject.home).await.map_err(RehearsalError::Peers)?;
                Ok(Found::Flood(figures, all))
            }));
        }
        let reload = self.profile.reload.filter(|reload| reload.phase == phase);
        if let (Some(reload), Some((edited, ear))) = (reload, &self.edits) {
            let edits = if self.quick { reload.quick_edits } else { reload.edits };
            peers.push(Box::pin(async move {
                Ok(Found::Figures(reload::run(reload, edits, edited, services, ear).await?))
            }));
        }
        if let Some(stopping) = self.profile.stopping.filter(|stopping| stopping.phase == phase) {
            gone.set(true);
            peers.push(Box::pin(async move {
                let stopped = stopping::run(stopping, subject, signalled, ready_until).await;
                let stopped = stopped.map_err(|why| RehearsalError::Peers(why.0))?;
                Ok(Found::Figures(stopped))
            }));
        }
    }

    /// Waits, within bounds, until nothing is held any more, and says what still is.
    async fn settle(
        &self,
        suite: &Suite,
        subject: &Subject,
        signals: &mut Signals,
        observed: &mut Observed,
    ) -> Result<(), RehearsalError> {
        let open = async || {
            let home = scrape(&subject.admin).await?;
            home.sum("mercury_requests_in_flight", &[("server", "home-api")], &[])
        };
        let settling = async {
            let after = settle(suite, 1).await;
            let ends = MonotonicClock.now() + Nanos::from(SETTLE_MAX);
            let mut requests = open().await;
            while requests != Some(0.0) && MonotonicClock.now() < ends {
                time::sleep(SETTLE_LOOK).await;
                requests = open().await;
            }
            (after, requests)
        };
        let (after, requests) = tokio::select! {
            // Nobody waits for a settling that was interrupted.
            biased;
            () = signals.next() => return Err(RehearsalError::Interrupted),
            settled = settling => settled,
        };
        observed.put(Figure::PermitsHeld, after.permits_held);
        observed.put(Figure::FlightsOpen, after.flights_open);
        observed.put(Figure::RequestsOpen, requests);
        Ok(())
    }
}

fn kept_mib(seen: &Seen) -> Option<f64> {
    seen.kept_bytes().map(|bytes| bytes as f64 / MIB)
}

/// What the end of home-api says, which was signalled `at`.
fn told(observed: &mut Observed, exit: &ChildExit, at: Nanos) -> Nanos {
    let now = MonotonicClock.now();
    observed.put(Figure::StopTook, (now - at).as_secs_f64());
    observed.put(
        Figure::StopCode,
        match exit.ended {
            Ended::Code(code) => f64::from(code),
            // As a shell says it.
            Ended::Signal(signal) => 128.0 + f64::from(signal),
        },
    );
    now
}
