//! Pool: the real capacity of a dependency. So many calls are in service at once, so many may wait in order of arrival,
//! and a further one is refused.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use model::scenario::Capacity;
use tokio::sync::oneshot;

/// Servers and the queue before them. Shared behind an `Arc`.
#[derive(Debug)]
pub(crate) struct Pool(Mutex<State>);

#[derive(Debug)]
struct State {
    capacity: Capacity,
    in_service: u32,
    peak_in_service: u32,
    /// In order of arrival; at most `capacity.queue_max`, unless that was lowered under those who waited already.
    waiting: VecDeque<Waiter>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    grant: oneshot::Sender<Permit>,
}

/// What a pool is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Its bounds.
    pub(crate) capacity: Capacity,
    /// Calls in service.
    pub(crate) in_service: u32,
    /// Calls that wait.
    pub(crate) queued: u32,
    /// Most calls in service at once since the last reset.
    pub(crate) peak_in_service: u32,
}

/// The right to be served. Given back by being dropped, on every path.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Pool>);

/// What became of an arrival.
pub(crate) enum Entry {
    /// A server was free.
    Served(Permit),
    /// Every server is busy; wait for a permit.
    Queued(Waiting),
    /// The queue is full.
    Refused,
}

impl Pool {
    /// An idle pool.
    pub(crate) fn new(capacity: Capacity) -> Arc<Self> {
        let waiting = VecDeque::new();
        Arc::new(Self(Mutex::new(State {
            capacity,
            in_service: 0,
            peak_in_service: 0,
            waiting,
            next_ticket: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free server or a place in the queue.
    pub(crate) fn enter(self: &Arc<Self>) -> Entry {
        let mut state = self.state();
        // A server that is free while somebody waits is about to be granted: nobody overtakes the queue.
        if state.in_service < state.capacity.servers && state.waiting.is_empty() {
            state.take();
            return Entry::Served(Permit(Arc::clone(self)));
        }
        if state.waiting.len() >= state.capacity.queue_max as usize {
            return Entry::Refused;
        }
        let (grant, granted) = oneshot::channel();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(Waiter { ticket, grant });
        Entry::Queued(Waiting { pool: Arc::clone(self), ticket, granted })
    }

    /// Changes the bounds. Lowering them revokes nothing: new work waits until enough has ended.
    pub(crate) fn set_capacity(self: &Arc<Self>, capacity: Capacity) {
        self.state().capacity = capacity;
        self.serve_waiting();
    }

    /// Serves from the head of the queue while servers are free.
    fn serve_waiting(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            if state.in_service >= state.capacity.servers {
                return;
            }
            let Some(waiter) = state.waiting.pop_front() else { return };
            state.take();
            drop(state);
            // Outside of the lock. A waiter that has just gone leaves the permit here, and dropping it serves the next.
            drop(waiter.grant.send(Permit(Arc::clone(self))));
        }
    }

    /// What the pool is doing now.
    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        Load {
            capacity: state.capacity,
            in_service: state.in_service,
            queued: state.waiting.len() as u32,
            peak_in_service: state.peak_in_service,
        }
    }

    /// Begins a new observation of the peak.
    pub(crate) fn reset_peak(&self) {
        let mut state = self.state();
        state.peak_in_service = state.in_service;
    }
}

impl State {
    fn take(&mut self) {
        self.in_service += 1;
        self.peak_in_service = self.peak_in_service.max(self.in_service);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.state().in_service -= 1;
        self.0.serve_waiting();
    }
}

/// A place in the queue. Left by being dropped.
pub(crate) struct Waiting {
    pool: Arc<Pool>,
    ticket: u64,
    granted: oneshot::Receiver<Permit>,
}

impl Future for Waiting {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        Pin::new(&mut self.granted)
            .poll(cx)
            .map(|granted| granted.expect("the queue outlives its waiters, and only a grant takes one out"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        // Tickets rise, so the queue is sorted by them. Not found: granted already, and then a permit that nobody took
        // is dropped with the channel, which serves the next.
        let left = match state.waiting.binary_search_by_key(&self.ticket, |waiter| waiter.ticket) {
            Ok(position) => state.waiting.remove(position),
            Err(_) => None,
        };
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests;
