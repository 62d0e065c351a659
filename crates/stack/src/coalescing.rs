//! Coalescing: drives [`control::coalescing`], so that one call upstream answers everybody who asks for the same thing.
//!
//! **Whose work it is.** A call belongs to its flight. It runs as a task of the process's supervisor and never inside
//! the request that started it, so a leader that is cancelled, or out of time, fails nobody. The task holds no waiter
//! and a waiter holds no task; they meet in the table, by ids that are worth nothing once the other has gone.
//!
//! **How long it may take.** The call is told the flight's limit ([`FlightBudget`]), because a timeout that was sent
//! cannot be extended for a follower with more time. What keeps late work away is the other end: each waiter keeps one
//! timer, for its own deadline or for the limit if that is earlier, and the last to leave cancels the task.
//!
//! **How it ends.** The flight is taken out of the table first, which frees its key, and those who wait are told next,
//! with the lock released. The call's future is dropped before either, so what it holds (a permit, a connection's
//! stream) is back by the time that the answer is used. A task that panics, or is dropped by a supervisor that refuses
//! or aborts it, takes the same way through the drop of its guard. Nobody is run again: whoever is told of a failure
//! decides for itself, and those who return meet in a new flight.
//!
//! **What it costs.** A follower: one allocation, one timer, and the lock once, or twice if it leaves. A leader: that,
//! a task and its cancellation. The table is bounded by [`Rules`], everything else by the callers that wait.
//!
//! Equal keys share an answer and authorize nothing: check each caller before it joins and again at delivery. Request
//! ids, trace and budget trail stay the caller's own, so they have no place in a shared value.

mod flight;
mod outcome;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    fmt,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use base::{Deadline, World};
use control::coalescing::{Counts, Entry, FlightId, Flights, Refused, Role as Entered, Rules};
use tokio::sync::oneshot;

use self::{
    flight::{Guard, fly},
    outcome::Outcome,
    waiting::Waiting,
};

pub use self::outcome::{FlightBudget, Joined, Missed, Role};

/// The name that flights have at the supervisor.
pub const TASK_NAME: &str = "flight";

/// One kind of read, shared by all who ask for it at the same time. Clones share the flights and cost one reference
/// count.
///
/// `K` is what callers must have in common to share an answer; its `Eq`, `Hash`, `Clone` and `Drop` run under the lock.
/// `V` and `E` are cloned once per waiter, outside the lock: put what is large behind an `Arc`.
pub struct Coalescer<K, V, E> {
    shared: Arc<Shared<K, V, E>>,
}

impl<K, V, E> Clone for Coalescer<K, V, E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K, V, E> Coalescer<K, V, E>
where
    K: Eq + Hash + Clone + Send + 'static,
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
{
    /// Without flights. Of the world it uses the clock and the supervisor.
    pub fn new(world: World) -> Self {
        let table = Table { flights: Flights::new(), cancels: Vec::new() };
        Self { shared: Arc::new(Shared { world, table: Mutex::new(table) }) }
    }

    /// Waits for the flight of `key`, or starts one with `call`. `deadline` is the caller's own.
    ///
    /// # Guarantees
    /// - `call` is made at most once, by the flight's task, and only for a leader. Nothing happens before the first poll.
    /// - The future ends by `deadline`, at the granularity of the runtime's timer. An answer that is there by the time
    ///   that it is polled is preferred.
    /// - Dropping it takes the caller off the flight. If it was the last, the call's future is dropped the next time
    ///   that its task runs, and its key is free at once.
    /// - It is answered exactly once, whether the call ends, panics, is refused or is aborted.
    ///
    /// # Errors
    /// [`Missed`] when there is no answer.
    pub fn join<C, F>(
        &self,
        rules: Rules,
        key: K,
        deadline: Deadline,
        call: C,
    ) -> impl Future<Output = Result<Joined<V>, Missed<E>>> + Send + use<K, V, E, C, F>
    where
        C: FnOnce(FlightBudget) -> F + Send + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        async move { board(shared, &rules, key, deadline, call)?.landing().await }
    }

    /// What happened so far. Its [`Counts::open`] and [`Counts::waiting`] are those of the same moment.
    pub fn counts(&self) -> Counts {
        *self.shared.lock().flights.counts()
    }

    /// How many flights are open.
    pub fn flights(&self) -> u32 {
        self.shared.lock().flights.len()
    }

    /// How many callers wait.
    pub fn waiters(&self) -> u64 {
        self.counts().waiting()
    }
}

impl<K, V, E> fmt::Debug for Coalescer<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").finish_non_exhaustive()
    }
}

/// Lets a caller in, and starts the flight if the caller leads one. Apart from the future, so that a follower does not
/// keep its unused call for as long as it waits.
fn board<K, V, E, C, F>(
    shared: Arc<Shared<K, V, E>>,
    rules: &Rules,
    key: K,
    deadline: Deadline,
    call: C,
) -> Result<Waiting<K, V, E>, Missed<E>>
where
    K: Eq + Hash + Clone + Send + 'static,
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
    C: FnOnce(FlightBudget) -> F + Send + 'static,
    F: Future<Output = Result<V, E>> + Send + 'static,
{
    let (teller, told) = oneshot::channel();
    let (entry, cancelled) = shared.enter(rules, key, deadline, teller)?;
    // Before anything else can go wrong: whoever has entered leaves.
    let waiting = Waiting::new(Arc::clone(&shared), entry, deadline, told);
    if let (Entered::Leader { limit, .. }, Some(cancelled)) = (entry.role, cancelled) {
        let guard = Guard::new(Arc::clone(&shared), entry.waiter.flight());
        let task = fly(call, FlightBudget { limit }, cancelled, guard);
        shared.world.tasks.spawn(TASK_NAME, Box::pin(task));
    }
    Ok(waiting)
}

/// Where a waiter is told.
type Teller<V, E> = oneshot::Sender<Outcome<V, E>>;

/// Dropping it cancels a flight's task; nothing is ever sent.
type Cancel = oneshot::Sender<std::convert::Infallible>;

/// The receiving end of [`Cancel`], held by the task.
type Cancelled = oneshot::Receiver<std::convert::Infallible>;

struct Shared<K, V, E> {
    world: World,
    /// Held for a few map operations, never across an await, a wake or a clone of an answer.
    table: Mutex<Table<K, V, E>>,
}

struct Table<K, V, E> {
    flights: Flights<K, Teller<V, E>>,
    /// By [`FlightId::index`]; there is one exactly while the flight is open. As long as the table at its fullest.
    cancels: Vec<Option<Cancel>>,
}

impl<K, V, E> Table<K, V, E> {
    fn set_cancel(&mut self, flight: FlightId, cancel: Cancel) {
        let index = flight.index();
        if self.cancels.len() <= index {
            self.cancels.resize_with(index + 1, || None);
        }
        let before = self.cancels[index].replace(cancel);
        debug_assert!(before.is_none(), "the flight that had this place took its cancellation along");
    }

    /// Takes what cancels a flight that has just ended, to be dropped outside the lock.
    fn take_cancel(&mut self, flight: FlightId) -> Option<Cancel> {
        self.cancels.get_mut(flight.index()).and_then(Option::take)
    }
}

impl<K, V, E> Shared<K, V, E> {
    /// A panic under the lock can only come from the key's own code, and leaves a table that is still consistent.
    fn lock(&self) -> MutexGuard<'_, Table<K, V, E>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone, V, E> Shared<K, V, E> {
    /// Enters, and for a leader leaves behind what will cancel its task.
    fn enter(
        &self,
        rules: &Rules,
        key: K,
        deadline: Deadline,
        teller: Teller<V, E>,
    ) -> Result<(Entry, Option<Cancelled>), Missed<E>> {
        let now = self.world.clock.now();
        let mut table = self.lock();
        let entry =
            table.flights.enter(rules, key, now, deadline, teller).map_err(|refused| match refused {
                Refused::Expired => Missed::Deadline,
                Refused::FlightsFull => Missed::Overload,
            })?;
        if matches!(entry.role, Entered::Follower { .. }) {
            return Ok((entry, None));
        }
        // Under the same lock: from here on, another thread's follower may be the one to leave last.
        let (cancel, cancelled) = oneshot::channel();
        table.set_cancel(entry.waiter.flight(), cancel);
        Ok((entry, Some(cancelled)))
    }
}
