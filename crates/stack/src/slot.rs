//! Slot: the one connection of a link, and who may open streams on it. A state machine behind a lock that is never held
//! across an await.
//!
//! ```text
//! Down ──call, wait over──▶ Connecting ──preface sent──▶ Up ──ended, GOAWAY, PING unanswered──▶ Down
//!   ▲                           │ refused, timed out
//!   └───────────────────────────┘
//! ```
//!
//! All callers share one attempt, and attempts are at least a backoff apart however many calls there are. A connection
//! counts as working once a response head came through it; one that ends before that counts as a failed attempt, or a
//! peer that accepts and hangs up would be dialled once per call.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use base::{Nanos, World};
use bytes::Bytes;
use h2::{
    SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{Request, uri::Authority};
use tokio::sync::Notify;

use crate::{
    backoff,
    call::Shared,
    connect::Connect,
    connection,
    failure::{LocalFailure, Made},
    stats::add,
    status::Code,
};

/// Everything that the clones of one link share.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) world: World,
    pub(crate) label: &'static str,
    pub(crate) authority: Authority,
    pub(crate) connector: Arc<dyn Connect>,
    slot: Mutex<Slot>,
    /// Announces every change of phase to the calls that wait for a connection.
    pub(crate) changed: Notify,
    /// Generation of the last connection through which a response head came.
    proven: AtomicU64,
}

struct Slot {
    phase: Phase,
    /// Attempts are numbered, so that the end of an old connection says nothing about the present one.
    generation: u64,
    /// Attempts in a row without a working connection.
    failures: u32,
    /// Why the last attempt or connection ended.
    cause: Arc<str>,
}

enum Phase {
    Down { until: Nanos },
    Connecting,
    Up { sender: SendRequest<Bytes> },
    Closed,
}

/// How a connection stands that is wanted before there is a call for it.
enum Dialled {
    There,
    UnderWay,
    NotBefore(Nanos),
}

/// An open stream.
pub(crate) struct Opened {
    pub(crate) generation: u64,
    pub(crate) response: ResponseFuture,
    pub(crate) stream: SendStream<Bytes>,
}

/// Why no stream was opened.
pub(crate) enum Blocked {
    /// An attempt is under way; ask again after the next change. The request comes back.
    Connecting(Request<()>),
    /// The call ends here.
    Refused(Made),
}

impl Inner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        world: World,
        label: &'static str,
        authority: Authority,
        connector: Arc<dyn Connect>,
    ) -> Self {
        Self {
            shared,
            world,
            label,
            authority,
            connector,
            slot: Mutex::new(Slot {
                phase: Phase::Down { until: Nanos::ZERO },
                generation: 0,
                failures: 0,
                cause: Arc::from("never connected"),
            }),
            changed: Notify::new(),
            proven: AtomicU64::new(0),
        }
    }

    /// The same peer by other bounds, without a connection yet.
    pub(crate) fn renewed(&self, shared: Arc<Shared>) -> Self {
        Self::new(shared, self.world.clone(), self.label, self.authority.clone(), Arc::clone(&self.connector))
    }

    /// Makes a connection before there is a call for it. Ends when it is there, or the link was closed; a peer that does not
    /// answer is dialled again, at the pace of the backoff.
    pub(crate) async fn connect(self: &Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the phase is read, so that no change is missed in between.
            changed.as_mut().enable();
            let pause = self.dial();
            match pause {
                Dialled::There => return,
                Dialled::UnderWay => changed.await,
                Dialled::NotBefore(pause) => tokio::time::sleep(pause.into()).await,
            }
        }
    }

    fn dial(self: &Arc<Self>) -> Dialled {
        let mut slot = self.slot();
        match slot.phase {
            Phase::Up { .. } | Phase::Closed => Dialled::There,
            Phase::Connecting => Dialled::UnderWay,
            Phase::Down { until } => {
                let pause = until.saturating_sub(self.world.clock.now());
                if !pause.is_zero() {
                    return Dialled::NotBefore(pause);
                }
                slot.phase = Phase::Connecting;
                slot.generation += 1;
                let generation = slot.generation;
                drop(slot);
                // Not under the lock, as below.
                connection::start(self, generation);
                Dialled::UnderWay
            }
        }
    }

    /// Opens a stream for `request` if there is a connection, and sees to it that there will be one if there is none.
    /// `ended`: the request has no body.
    pub(crate) fn open(self: &Arc<Self>, request: Request<()>, ended: bool) -> Result<Opened, Blocked> {
        let mut slot = self.slot();
        let generation = slot.generation;
        if let Phase::Up { sender } = &mut slot.phase {
            match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(())) => return self.send(sender, generation, request, ended),
                // The stream that this handle opened last is still queued, for an instant: streams that have ended make
                // room when the connection is polled next. A new handle may open another; `calls_max` and the peer's
                // limit bound how many there are.
                Poll::Pending => {
                    *sender = sender.clone();
                    return self.send(sender, generation, request, ended);
                }
                Poll::Ready(Err(error)) => self.lost(&mut slot, &error.to_string()),
            }
        }
        match slot.phase {
            Phase::Down { until } if self.world.clock.now() >= until => {
                slot.phase = Phase::Connecting;
                slot.generation += 1;
                let generation = slot.generation;
                drop(slot);
                // Not under the lock: a supervisor that is shutting down drops the task, which reports back here.
                connection::start(self, generation);
                Err(Blocked::Connecting(request))
            }
            Phase::Down { .. } => Err(Blocked::Refused(Made::new(
                Code::Unavailable,
                LocalFailure::Unreachable,
                format!("no connection to {}: {}", self.authority, slot.cause),
            ))),
            Phase::Closed => Err(Blocked::Refused(Made::new(
                Code::Unavailable,
                LocalFailure::Closed,
                "the link was closed",
            ))),
            Phase::Connecting | Phase::Up { .. } => Err(Blocked::Connecting(request)),
        }
    }

    fn send(
        &self,
        sender: &mut SendRequest<Bytes>,
        generation: u64,
        request: Request<()>,
        ended: bool,
    ) -> Result<Opened, Blocked> {
        let in_flight = self.shared.stats.in_flight();
        let peer_max = sender.current_max_send_streams();
        if usize::try_from(in_flight).is_ok_and(|calls| calls > peer_max) {
            return Err(Blocked::Refused(Made::new(
                Code::ResourceExhausted,
                LocalFailure::Saturated,
                format!("the peer allows {peer_max} calls at one time"),
            )));
        }
        match sender.send_request(request, ended) {
            Ok((response, stream)) => Ok(Opened { generation, response, stream }),
            // The connection was ready a moment ago: this is a request that HTTP/2 cannot carry, or, on a runtime with
            // several threads, a connection that ended in between.
            Err(error) if error.is_io() || error.is_go_away() => {
                Err(Blocked::Refused(crate::status::from_h2(&error, false, false)))
            }
            Err(error) => Err(Blocked::Refused(Made::new(
                Code::Internal,
                LocalFailure::RequestBody,
                format!("the request cannot be sent: {error}"),
            ))),
        }
    }

    /// A response head came through connection `generation`: it works.
    pub(crate) fn prove(&self, generation: u64) {
        if self.proven.load(Ordering::Relaxed) < generation {
            self.proven.store(generation, Ordering::Relaxed);
        }
    }

    /// Ends the link: calls under way may finish, no new one is sent.
    pub(crate) fn close(&self) {
        self.slot().phase = Phase::Closed;
        self.changed.notify_waiters();
    }

    /// Whether the link was ended.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.slot().phase, Phase::Closed)
    }

    /// The connection of the slot takes no more streams.
    fn lost(&self, slot: &mut Slot, cause: &str) {
        add(&self.shared.stats.disconnects);
        if self.proven.load(Ordering::Relaxed) == slot.generation {
            slot.failures = 0;
            slot.phase = Phase::Down { until: Nanos::ZERO };
        } else {
            self.fail(slot);
        }
        slot.cause = Arc::from(cause);
    }

    fn fail(&self, slot: &mut Slot) {
        slot.failures = slot.failures.saturating_add(1);
        let config = &self.shared.config;
        let random = self.world.ids.next_u64();
        let wait = backoff::wait(config.backoff_min, config.backoff_max, slot.failures, random);
        slot.phase = Phase::Down { until: self.world.clock.now() + wait };
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        // Nothing panics while holding it; were it so, every state of the slot is still a valid one.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the task of attempt `generation`. Whatever ends the task, its dropping included, is reported through it.
pub(crate) struct Attempt {
    link: Weak<Inner>,
    generation: u64,
    cause: &'static str,
    detail: Option<String>,
}

impl Attempt {
    pub(crate) fn new(link: &Arc<Inner>, generation: u64) -> Self {
        Self {
            link: Arc::downgrade(link),
            generation,
            cause: "the connection task was dropped",
            detail: None,
        }
    }

    /// Says why the task is about to end.
    pub(crate) fn explain(&mut self, cause: &'static str, detail: Option<String>) {
        self.cause = cause;
        self.detail = detail;
    }

    /// The connection is there. False when nobody wants it any more.
    pub(crate) fn up(&self, sender: SendRequest<Bytes>) -> bool {
        let Some(link) = self.link.upgrade() else {
            return false;
        };
        let mut slot = link.slot();
        if slot.generation != self.generation || !matches!(slot.phase, Phase::Connecting) {
            return false;
        }
        slot.phase = Phase::Up { sender };
        drop(slot);
        add(&link.shared.stats.connects);
        link.changed.notify_waiters();
        true
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(link) = self.link.upgrade() else {
            return;
        };
        let mut slot = link.slot();
        if slot.generation != self.generation {
            return;
        }
        let cause = match &self.detail {
            Some(detail) => format!("{}: {detail}", self.cause),
            None => self.cause.to_owned(),
        };
        match slot.phase {
            Phase::Connecting => {
                add(&link.shared.stats.connect_failures);
                link.fail(&mut slot);
                slot.cause = Arc::from(cause);
            }
            Phase::Up { .. } => link.lost(&mut slot, &cause),
            // Noticed by a call before the task was polled, or closed.
            Phase::Down { .. } | Phase::Closed => return,
        }
        drop(slot);
        link.changed.notify_waiters();
    }
}
