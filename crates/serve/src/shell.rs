//! Shell: opens ports, and takes the process through its stages when it is told to stop.

use std::{future::Future, io, sync::Arc, time::Duration};

use base::{Clock, Nanos};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    connection,
    exchange::Port,
    health::Readiness,
    lifecycle::{Lifecycle, OpenCount, Stage},
    listener::Listener,
    supervisor::{Supervisor, TaskCounts},
};

/// Pause after a failed accept (out of descriptors, mostly), so that the loop does not spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// After the last exchange, until written answers have left and connections are closed.
const FLUSH: Duration = Duration::from_millis(250);
/// For background tasks that finish their own work once nothing new can come.
const RECONCILE: Duration = Duration::from_secs(3);

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Exchanges that did not end within the bound and were cut.
    pub cut_exchanges: usize,
    /// Background tasks that did not end within the bound and were told to.
    pub aborted_tasks: usize,
    /// From the signal to the end.
    pub took: Nanos,
    /// A second signal shortened the drain.
    pub escalated: bool,
    /// How all supervised tasks of the process ended.
    pub tasks: TaskCounts,
}

impl DrainReport {
    /// True when everything that was admitted ended by itself.
    pub const fn is_clean(&self) -> bool {
        self.cut_exchanges == 0 && self.aborted_tasks == 0
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
        Self { lifecycle, supervisor, readiness, clock, connections: Vec::new() }
    }

    /// Accepts on a port until quiescing begins. A connection holds a permit from before its task exists.
    pub fn open<L: Listener>(&mut self, listener: L, port: Port) {
        let connections = OpenCount::default();
        self.connections.push(connections.clone());
        let stop = self.lifecycle.quiesce_token().clone();
        let supervisor = self.supervisor.clone();
        let accepting = accept(listener, Arc::new(port), supervisor, connections);
        self.supervisor.start(async move {
            tokio::select! {
                biased; // No connection is accepted after readiness fell.
                () = stop.cancelled() => {}
                () = accepting => {}
            }
        });
    }

    /// Declares the process ready, waits for `stop`, and drains within `drain`, asked for then. `hasten` ends the drain at once; the
    /// ports, and with them their services, are gone when this returns.
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
        self.readiness.quiescing();
        self.lifecycle.advance(Stage::Quiescing);
        self.lifecycle.advance(Stage::Draining);
        let escalated = tokio::select! {
            biased; // A drain that is complete is clean, whatever else happens in the same moment.
            () = self.lifecycle.no_exchange() => false,
            () = hasten => true,
            () = tokio::time::sleep(drain.into()) => false,
        };
        let cut_exchanges = self.lifecycle.open_count();
        if cut_exchanges == 0 {
            // Whether it took the whole grace or not: the kill below ends what is left, idle connections included.
            let _ = tokio::time::timeout(FLUSH, self.no_connection()).await;
        }
        self.lifecycle.cut();

        self.lifecycle.advance(Stage::Reconciling);
        let settled = tokio::time::timeout(RECONCILE, self.supervisor.idle()).await.is_ok();
        let aborted_tasks = if settled { 0 } else { self.supervisor.live() };
        self.lifecycle.advance(Stage::Terminating);
        self.supervisor.abort_all();
        let took = self.clock.now().saturating_sub(began);
        DrainReport { cut_exchanges, aborted_tasks, took, escalated, tasks: self.supervisor.counts() }
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
    loop {
        let io = match listener.accept().await {
            Ok(io) => io,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        // Beyond the bound a connection is closed at once: left in the kernel's queue it would wait unseen.
        let connections_max = port.limits.load().connections_max as usize;
        let Some(permit) = connections.enter_below(connections_max) else {
            port.metrics.connection_refused();
            continue;
        };
        let connection = connection::serve(io, Arc::clone(&port), supervisor.clone());
        supervisor.start(async move {
            connection.await;
            drop(permit);
        });
    }
}
