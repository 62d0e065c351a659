//! Flight: the task that makes the call, and the guard that ends the flight whatever becomes of the task.

use std::{future::Future, hash::Hash, sync::Arc, thread};

use control::coalescing::{Ending, FlightId, Told};

use super::{Cancelled, FlightBudget, Missed, Shared, Teller, outcome::Outcome};

/// Makes the call and tells how it ended, or stops when nobody waits any more.
pub(super) async fn fly<K, V, E, C, F>(
    call: C,
    budget: FlightBudget,
    cancelled: Cancelled,
    guard: Guard<K, V, E>,
) where
    K: Eq + Hash + Clone,
    V: Clone,
    E: Clone,
    C: FnOnce(FlightBudget) -> F,
    F: Future<Output = Result<V, E>>,
{
    let result = tokio::select! {
        biased; // Nobody is left to tell once it is cancelled: no further step is worth taking.
        _ = cancelled => return,
        // The closure runs here and not in the leader's request, so that its panic is the flight's too.
        result = async move { call(budget).await } => result,
    };
    guard.land(result);
}

/// Ends its flight exactly once: with a result, or by its drop when the task never runs, panics or is aborted.
pub(super) struct Guard<K: Eq + Hash + Clone, V: Clone, E: Clone> {
    shared: Arc<Shared<K, V, E>>,
    flight: FlightId,
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Guard<K, V, E> {
    pub(super) const fn new(shared: Arc<Shared<K, V, E>>, flight: FlightId) -> Self {
        Self { shared, flight }
    }

    /// Its drop, which follows, finds the flight ended and does nothing.
    fn land(self, result: Result<V, E>) {
        let ending = if result.is_ok() { Ending::Completed } else { Ending::Failed };
        if let Some((tellers, group)) = self.shared.end(self.flight, ending) {
            tell(tellers, &result.map(|value| (value, group)).map_err(Missed::Failed));
        }
    }
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Drop for Guard<K, V, E> {
    fn drop(&mut self) {
        // A panic unwinds through the task and so drops this guard on its way; anything else is a supervisor that lets go
        // of a task.
        let (ending, missed) = if thread::panicking() {
            (Ending::Panicked, Missed::Panicked)
        } else {
            (Ending::Stopped, Missed::Stopped)
        };
        if let Some((tellers, _)) = self.shared.end(self.flight, ending) {
            tell(tellers, &Err(missed));
        }
    }
}

/// Tells those who were handed back, without the lock. One that has gone meanwhile is passed over.
pub(super) fn tell<V: Clone, E: Clone>(tellers: Told<Teller<V, E>>, outcome: &Outcome<V, E>) {
    for teller in tellers {
        let _gone = teller.send(outcome.clone());
    }
}

impl<K: Eq + Hash + Clone, V, E> Shared<K, V, E> {
    /// Ends a flight and hands back who is to be told, with the size of the group; nothing if it has ended.
    fn end(&self, flight: FlightId, ending: Ending) -> Option<(Told<Teller<V, E>>, u64)> {
        let mut table = self.lock();
        let before = table.flights.counts().group_sum;
        let tellers = table.flights.end(flight, ending)?;
        // Ending one flight adds its group, and nothing else, to the sum.
        let group = table.flights.counts().group_sum - before;
        let cancel = table.take_cancel(flight);
        drop(table);
        drop(cancel);
        Some((tellers, group))
    }
}
