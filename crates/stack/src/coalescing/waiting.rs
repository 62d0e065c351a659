//! Waiting: one caller on a flight, from its entry until it is told or leaves.

use std::{hash::Hash, sync::Arc, time::Duration};

use base::Deadline;
use control::coalescing::{Entry, Expiry, Role as Entered, WaiterId};
use tokio::{sync::oneshot, time::sleep};

use super::{Joined, Missed, Role, Shared, flight::tell, outcome::Outcome};

/// A caller that waits. Its drop takes it off the flight, and cancels the flight if it was the last.
pub(super) struct Waiting<K: Eq + Hash + Clone, V, E> {
    shared: Arc<Shared<K, V, E>>,
    waiter: WaiterId,
    role: Role,
    /// The caller's own.
    deadline: Deadline,
    /// The caller's own or the flight's limit, whichever is earlier: a flight's deadline is earlier than that of
    /// somebody aboard only where the limit cut it.
    until: Deadline,
    told: oneshot::Receiver<Outcome<V, E>>,
    /// Whether the table has forgotten the caller, so that its drop need not ask.
    gone: bool,
}

/// What became of a caller whose timer fired.
enum Overdue {
    /// Its own deadline passed, and it has left.
    Left,
    /// It has been told, or is being told by another thread at this moment.
    Told,
    /// The timer was early.
    Until(Deadline),
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Waiting<K, V, E> {
    pub(super) fn new(
        shared: Arc<Shared<K, V, E>>,
        entry: Entry,
        deadline: Deadline,
        told: oneshot::Receiver<Outcome<V, E>>,
    ) -> Self {
        let role = match entry.role {
            Entered::Leader { .. } => Role::Leader,
            Entered::Follower { .. } => Role::Follower,
        };
        let until = deadline.min(entry.deadline);
        Self { shared, waiter: entry.waiter, role, deadline, until, told, gone: false }
    }

    /// Waits for the flight's outcome, and no longer than the caller's own deadline.
    pub(super) async fn landing(mut self) -> Result<Joined<V>, Missed<E>> {
        loop {
            let left = self.until.remaining(self.shared.world.clock.now());
            tokio::select! {
                biased; // An answer that is there is worth more than the deadline that it just missed.
                outcome = &mut self.told => return self.landed(outcome),
                () = sleep(Duration::from(left)) => {}
            }
            match self.overdue() {
                Overdue::Left => return Err(Missed::Deadline),
                Overdue::Told => {
                    let outcome = (&mut self.told).await;
                    return self.landed(outcome);
                }
                Overdue::Until(until) => self.until = until,
            }
        }
    }

    fn landed(
        &mut self,
        outcome: Result<Outcome<V, E>, oneshot::error::RecvError>,
    ) -> Result<Joined<V>, Missed<E>> {
        self.gone = true;
        match outcome {
            Ok(outcome) => outcome.map(|(value, group)| Joined { value, role: self.role, group }),
            // The teller was dropped untold, which only a panic in the clone of an answer does.
            Err(_) => Err(Missed::Panicked),
        }
    }

    fn overdue(&mut self) -> Overdue {
        let now = self.shared.world.clock.now();
        if self.deadline.expired(now) {
            return if self.leave() { Overdue::Left } else { Overdue::Told };
        }
        let flight = self.waiter.flight();
        let mut table = self.shared.lock();
        match table.flights.expire(flight, now) {
            None => Overdue::Told,
            Some(Expiry::Until(deadline)) => Overdue::Until(deadline.min(self.deadline)),
            Some(Expiry::Ended(tellers)) => {
                // Whoever comes first to the limit tells everybody, itself among them.
                let cancel = table.take_cancel(flight);
                drop(table);
                drop(cancel);
                tell(tellers, &Err(Missed::Limit));
                Overdue::Told
            }
        }
    }
}

impl<K: Eq + Hash + Clone, V, E> Waiting<K, V, E> {
    /// Leaves the flight; false if there was nothing to leave. What it frees is dropped without the lock, since that
    /// wakes the flight's task.
    fn leave(&mut self) -> bool {
        self.gone = true;
        let mut table = self.shared.lock();
        let Some(left) = table.flights.leave(self.waiter) else { return false };
        let cancel = left.cancelled.and_then(|flight| table.take_cancel(flight));
        drop(table);
        drop(cancel);
        drop(left);
        true
    }
}

impl<K: Eq + Hash + Clone, V, E> Drop for Waiting<K, V, E> {
    fn drop(&mut self) {
        if !self.gone {
            self.leave();
        }
    }
}
