//! Inject: failures on purpose, at the named transitions of a process. Compiled in and off; a point that is not armed costs
//! one relaxed load.
//!
//! A transition is where something changes its owner: a request its admission for its parser, bytes a buffer for a socket,
//! an effect a transaction for an answer. What breaks there shows who cleans up. Whether a point acts is drawn from its seed
//! and a counter, so that a run can be repeated.

mod rule;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

pub use rule::{Action, Injection, MalformedInjection};

use crate::{Reason, Refusal};

/// A transition at which something can be made to fail. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// A request was admitted to its port, and nothing of its body was read.
    Admitted,
    /// A call waits until there is a connection to its dependency.
    AwaitReady,
    /// A call is about to be sent, and no byte of it has been.
    BeforeSend,
    /// Half of a call's message was handed over to be sent.
    PartialWrite,
    /// Exposures are durable, and nobody was told.
    AfterCommit,
    /// A response's head was handed over, and its next frame is due.
    Respond,
    /// A policy was validated, and the one before it is still in force.
    PolicySwap,
    /// Shutdown: readiness fell, and nothing is admitted any more.
    Quiesce,
    /// Shutdown: listeners are closing.
    CloseProducers,
    /// Shutdown: what was admitted is waited for.
    Drain,
    /// Shutdown: background work comes to its end.
    Reconcile,
    /// Shutdown: what is left is about to be aborted.
    Terminate,
}

impl Point {
    /// All of them, in the order in which a request and then a process meets them.
    pub const ALL: [Self; 12] = [
        Self::Admitted,
        Self::AwaitReady,
        Self::BeforeSend,
        Self::PartialWrite,
        Self::AfterCommit,
        Self::Respond,
        Self::PolicySwap,
        Self::Quiesce,
        Self::CloseProducers,
        Self::Drain,
        Self::Reconcile,
        Self::Terminate,
    ];

    /// The name used on the command line, in logs and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::AwaitReady => "await-ready",
            Self::BeforeSend => "before-send",
            Self::PartialWrite => "partial-write",
            Self::AfterCommit => "after-commit",
            Self::Respond => "respond",
            Self::PolicySwap => "policy-swap",
            Self::Quiesce => "quiesce",
            Self::CloseProducers => "close-producers",
            Self::Drain => "drain",
            Self::Reconcile => "reconcile",
            Self::Terminate => "terminate",
        }
    }

    /// The point of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.as_str() == name)
    }

    /// Position in [`Point::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Where.
    pub point: Point,
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "injected failure at {}", self.point)
    }
}

impl std::error::Error for Injected {}

impl From<Injected> for Refusal {
    fn from(injected: Injected) -> Self {
        Self::new(Reason::Internal, injected.to_string())
    }
}

/// The points of one process. Clones share them; the default has none armed.
#[derive(Clone, Debug, Default)]
pub struct Points(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    armed: AtomicU32,
    places: [Place; Point::ALL.len()],
}

#[derive(Debug, Default)]
struct Place {
    rule: Mutex<Rule>,
    reached: AtomicU64,
    acted: AtomicU64,
}

#[derive(Debug, Default)]
struct Rule {
    injection: Option<Injection>,
    /// Times it was asked since it was armed, and times it acted.
    asked: u64,
    acted: u64,
    /// Rises with every release; who was held before goes on.
    releases: u64,
    /// Who is held. Each is a task that exists anyway.
    held: BTreeMap<u64, Waker>,
    next: u64,
    watchers: Vec<Waker>,
}

impl Rule {
    fn draw(&mut self, point: Point) -> Option<Action> {
        let injection = self.injection?;
        let asked = self.asked;
        self.asked += 1;
        let acts = self.acted < injection.times_max && injection.draws(point, asked);
        self.acted += u64::from(acts);
        acts.then_some(injection.action)
    }

    fn wake(&mut self) {
        self.held.values().for_each(Waker::wake_by_ref);
        self.watchers.drain(..).for_each(Waker::wake);
    }
}

impl Points {
    /// Whether anything is asked of the point. One relaxed load.
    #[inline]
    pub fn is_armed(&self, point: Point) -> bool {
        self.0.armed.load(Ordering::Relaxed) & point.bit() != 0
    }

    /// Arms a point; what it was armed with before is replaced.
    pub fn arm(&self, injection: Injection) {
        let point = injection.point;
        let mut rule = self.rule(point);
        (rule.injection, rule.asked, rule.acted) = (Some(injection), 0, 0);
        self.0.armed.fetch_or(point.bit(), Ordering::Relaxed);
    }

    /// Disarms a point, and lets go who is held there.
    pub fn disarm(&self, point: Point) {
        self.0.armed.fetch_and(!point.bit(), Ordering::Relaxed);
        self.rule(point).injection = None;
        self.release(point);
    }

    /// Lets go who is held at a point now; who comes later is held anew.
    pub fn release(&self, point: Point) {
        let mut rule = self.rule(point);
        rule.releases += 1;
        rule.wake();
    }

    /// Passes a point: at once unless it is armed and acts.
    ///
    /// # Errors
    /// [`Injected`] when it was told to fail. When it was told to, it panics, or ends the process as SIGKILL does.
    #[inline]
    pub fn pass(&self, point: Point) -> Pass {
        Pass { points: self.is_armed(point).then(|| self.clone()), point, held: None }
    }

    /// What is armed.
    pub fn injection(&self, point: Point) -> Option<Injection> {
        self.rule(point).injection
    }

    /// Times that an armed point was reached, in this process's life.
    pub fn reached(&self, point: Point) -> u64 {
        self.0.places[point.index()].reached.load(Ordering::Relaxed)
    }

    /// Times that a point acted, in this process's life.
    pub fn acted(&self, point: Point) -> u64 {
        self.0.places[point.index()].acted.load(Ordering::Relaxed)
    }

    /// Who is held at a point now.
    pub fn holding(&self, point: Point) -> usize {
        self.rule(point).held.len()
    }

    /// Ends when at least `count` are held at a point: the handshake of a test.
    pub async fn held(&self, point: Point, count: usize) {
        std::future::poll_fn(|cx| {
            let mut rule = self.rule(point);
            if rule.held.len() >= count {
                return Poll::Ready(());
            }
            rule.watchers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn rule(&self, point: Point) -> MutexGuard<'_, Rule> {
        // Nothing panics while holding it; were it so, every state of it is still a valid one.
        self.0.places[point.index()].rule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way past a point. See [`Points::pass`].
#[derive(Debug)]
#[must_use = "a point that nobody waits for is not passed"]
pub struct Pass {
    points: Option<Points>,
    point: Point,
    /// Its number among those who are held, and the releases that it has seen.
    held: Option<(u64, u64)>,
}

impl Future for Pass {
    type Output = Result<(), Injected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(points) = &this.points else { return Poll::Ready(Ok(())) };
        let mut rule = points.rule(this.point);
        if let Some((number, releases)) = this.held {
            if rule.releases == releases {
                rule.held.insert(number, cx.waker().clone());
                return Poll::Pending;
            }
            rule.held.remove(&number);
            this.held = None;
            drop(rule);
            this.points = None;
            return Poll::Ready(Ok(()));
        }
        let place = &points.0.places[this.point.index()];
        place.reached.fetch_add(1, Ordering::Relaxed);
        let action = rule.draw(this.point);
        if action.is_some() {
            place.acted.fetch_add(1, Ordering::Relaxed);
        }
        match action {
            Some(Action::Hold) => {
                let number = rule.next;
                rule.next += 1;
                rule.held.insert(number, cx.waker().clone());
                this.held = Some((number, rule.releases));
                rule.watchers.drain(..).for_each(Waker::wake);
                return Poll::Pending;
            }
            Some(Action::Kill) => kill(),
            _ => drop(rule),
        }
        this.points = None;
        match action {
            Some(Action::Panic) => panic!("injected panic at {}", this.point),
            Some(Action::Fail) => Poll::Ready(Err(Injected { point: this.point })),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let (Some(points), Some((number, _))) = (&self.points, self.held) {
            points.rule(self.point).held.remove(&number);
        }
    }
}

/// Ends the process as SIGKILL does: nothing is flushed and no destructor runs.
fn kill() -> ! {
    let _sent = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort() // For a system that lets nobody signal itself.
}

#[cfg(test)]
mod tests;
