//! Shell: opens ports, and takes the process through its stages when it is told to stop.

use std::{
    future::Future,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use base::{
    Clock, Nanos,
    inject::{Point, Points},
};
use futures_util::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    connection,
    count::OpenCount,
    exchange::Port,
    health::Readiness,
    lifecycle::{Lifecycle, Stage},
    listener::Listener,
    supervisor::{Supervisor, TaskCounts},
};

/// Pause after a failed accept (out of descriptors, mostly), so that the loop does not spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// After the last answer has left, until connections are closed.
pub const FLUSH_MAX: Nanos = Nanos::from_millis(250);
/// For background tasks that finish their own work once nothing new can come.
pub const RECONCILE_MAX: Nanos = Nanos::from_secs(3);
/// For aborted tasks to be gone.
pub const TERMINATE_MAX: Nanos = Nanos::from_millis(250);
/// Name of a listener's task.
const ACCEPT_TASK: &str = "accept";
/// Name of a connection's task.
const CONNECTION_TASK: &str = "connection";

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Exchanges that were not answered within the bound and were cut.
    pub cut_exchanges: usize,
    /// Answers that their readers had not taken within a bound, and that were cut: the stall bound or their deadline while the
    /// process drained, or the end of the drain.
    pub cut_readers: usize,
    /// Background tasks that did not end within the bound and were told to.
    pub aborted_tasks: usize,
    /// From the signal to the end.
    pub took: Nanos,
    /// Time spent in each stage, by [`Stage::index`].
    pub spent: [Nanos; Stage::ALL.len()],
    /// A second signal shortened the drain.
    pub escalated: bool,
    /// Steps of the shutdown that failed; those after them were taken all the same.
    pub failed_steps: u32,
    /// How all supervised tasks of the process ended.
    pub tasks: TaskCounts,
}

impl DrainReport {
    /// True when everything that was admitted ended by itself, and every answer was taken.
    pub const fn is_clean(&self) -> bool {
        self.cut_exchanges == 0 && self.cut_readers == 0 && self.aborted_tasks == 0 && self.failed_steps == 0
    }
}

/// SIGTERM and SIGINT, either of which stops the process; the second one hastens it.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over from the default action.
    ///
    /// # Errors
    /// When the system refuses to install a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            biased; // Either will do; no order matters.
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The ports of a process and what they share.
pub struct Shell {
    /// Stage and open exchanges.
    pub lifecycle: Lifecycle,
    /// Owner of connection and stream tasks, and of what services start.
    pub supervisor: Supervisor,
    /// What health and readiness answer.
    pub readiness: Readiness,
    clock: Arc<dyn Clock>,
    points: Points,
    connections: Vec<OpenCount>,
}

impl Shell {
    /// A shell without ports.
    pub fn new(
        lifecycle: Lifecycle,
        supervisor: Supervisor,
        readiness: Readiness,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let points = Points::default();
        Self { lifecycle, supervisor, readiness, clock, points, connections: Vec::new() }
    }

    /// Lets the steps of the shutdown fail on purpose.
    pub fn inject(mut self, points: Points) -> Self {
        self.points = points;
        self
    }

    /// Accepts on a port until quiescing begins. A connection holds a permit from before its task exists.
    pub fn open<L: Listener>(&mut self, listener: L, port: Port) {
        let connections = OpenCount::default();
        self.connections.push(connections.clone());
        let stop = self.lifecycle.quiesce_token().clone();
        let supervisor = self.supervisor.clone();
        let listening = self.lifecycle.listen();
        let accepting = accept(listener, Arc::new(port), supervisor, connections);
        self.supervisor.start(ACCEPT_TASK, async move {
            tokio::select! {
                biased; // No connection is accepted after readiness fell.
                () = stop.cancelled() => {}
                () = accepting => {}
            }
            // The listener is closed: it belonged to what was dropped with the other branch.
            drop(listening);
        });
    }

    /// Declares the process ready, waits for `stop`, and takes it through the five phases of its end: quiesce, close
    /// producers, drain, reconcile, terminate. The first three have `drain` together, which is asked
    /// for when `stop` has come, and `hasten` ends them at once; the
    /// last two have [`RECONCILE_MAX`], which a later `hasten` ends as well, and [`TERMINATE_MAX`]. The ports, and with them
    /// their services, are gone when this returns.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        hasten: impl Future<Output = ()>,
        drain: impl FnOnce() -> Nanos,
    ) -> DrainReport {
        self.lifecycle.advance(Stage::Serving);
        self.readiness.serving();
        stop.await;

        let (began, drain) = (self.clock.now(), drain());
        let failed = AtomicU32::new(0);
        let mut hasten = pin!(hasten.fuse());
        self.readiness.quiescing();
        self.lifecycle.advance(Stage::Quiescing);
        let drained = async {
            self.step(Point::Quiesce, &failed, async {}).await;
            self.lifecycle.advance(Stage::Closing);
            self.step(Point::CloseProducers, &failed, self.lifecycle.no_listener()).await;
            self.lifecycle.advance(Stage::Draining);
            self.step(Point::Drain, &failed, self.lifecycle.no_exchange()).await;
        };
        let mut escalated = tokio::select! {
            biased; // A drain that is complete is clean, whatever else happens in the same moment.
            () = drained => false,
            () = &mut hasten => true,
            () = tokio::time::sleep(drain.into()) => false,
        };
        let (cut_exchanges, unread) = (self.lifecycle.open_count(), self.lifecycle.responding_count());
        let cut_readers = unread + self.lifecycle.cut_responses_count();
        if cut_exchanges == 0 && unread == 0 {
            // Whether it took the whole grace or not: the kill below ends what is left, idle connections included.
            let _ = tokio::time::timeout(FLUSH_MAX.into(), self.no_connection()).await;
        }
        self.lifecycle.cut();

        self.lifecycle.advance(Stage::Reconciling);
        let settled = tokio::select! {
            biased; // As above.
            () = self.step(Point::Reconcile, &failed, self.supervisor.idle()) => self.supervisor.live() == 0,
            () = &mut hasten, if !escalated => {
                escalated = true;
                false
            }
            () = tokio::time::sleep(RECONCILE_MAX.into()) => false,
        };
        let aborted_tasks = if settled { 0 } else { self.supervisor.live() };
        self.lifecycle.advance(Stage::Terminating);
        self.supervisor.abort_all();
        let terminated = self.step(Point::Terminate, &failed, self.supervisor.idle());
        let _left = tokio::time::timeout(TERMINATE_MAX.into(), terminated).await;
        DrainReport {
            cut_exchanges,
            cut_readers,
            aborted_tasks,
            took: self.clock.now().saturating_sub(began),
            spent: self.lifecycle.spent(),
            escalated,
            failed_steps: failed.into_inner(),
            tasks: self.supervisor.counts(),
        }
    }

    /// Takes one step of the shutdown. One that fails is counted and left out, and ends nothing: the next one follows.
    async fn step(&self, point: Point, failed: &AtomicU32, step: impl Future<Output = ()>) {
        match self.points.pass(point).await {
            Ok(()) => step.await,
            Err(error) => {
                failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, stage = self.lifecycle.stage().as_str(), "a step of the shutdown failed");
            }
        }
    }

    /// Ends when no connection is left; the listeners are closed by then.
    async fn no_connection(&self) {
        for connections in &self.connections {
            connections.none().await;
        }
    }
}

async fn accept<L: Listener>(
    mut listener: L,
    port: Arc<Port>,
    supervisor: Supervisor,
    connections: OpenCount,
) {
    let tasks = supervisor.kind(CONNECTION_TASK);
    loop {
        let io = match listener.accept().await {
            Ok(io) => io,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        // Between the look at the token and the accept the process may have begun to quiesce, on another thread.
        if port.lifecycle.is_quiescing() {
            return;
        }
        // Beyond the bound a connection is closed at once: left in the kernel's queue it would wait unseen.
        let connections_max = port.limits.load().connections_max as usize;
        let Some(permit) = connections.enter_below(connections_max) else {
            port.metrics.connection_refused();
            continue;
        };
        let connection = connection::serve(io, Arc::clone(&port), supervisor.clone());
        tasks.start(async move {
            connection.await;
            drop(permit);
        });
    }
}
