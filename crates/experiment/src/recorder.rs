//! Recorder: group commit. One writer owns the ledger; requests hand it their exposures through a bounded queue and wait.
//!
//! While a transaction is being committed, further requests queue up and become the next one, so an fsync is shared by
//! as many requests as arrive during the one before, and an idle ledger answers at once. A request's exposures are never
//! split between transactions.
//!
//! Once accepted, exposures are written whether or not their caller is still there: leaving does not take back what was
//! shown. What cannot be accepted is refused at once, without waiting. The writer ends when every [`Recorder`] is gone and
//! its queue is empty, so shutdown loses nothing that was accepted; a store that does not take it meanwhile holds the
//! process up for no longer than the supervisor's bound, and what is left is then of unknown outcome.
//!
//! A store that is out of order is found out by the writer and told by [`standing`]: from then on exposures are refused
//! before they are queued, and the writer probes until the store is well.

mod room;
pub mod standing;

use std::{
    collections::{HashMap, hash_map},
    sync::Arc,
};

use base::{
    Clock, Deadline, Nanos,
    inject::{Point, Points},
};
use model::policy::ExposurePolicy;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    decide::Exposure,
    ledger::{Ledger, Patience, Stored, WriteError},
    metrics::Metrics,
    recorder::{
        room::{Place, Room, Size},
        standing::Standing,
    },
};

/// Entries that the channel to the writer takes, whatever the policy says: as many rows as a policy can allow, and an entry has
/// at least one.
const ENTRIES_MAX: usize = 1 << 16;

/// What became of one exposure that the ledger answered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This call wrote the row.
    Committed,
    /// An earlier call of the same operation had written the same row.
    Replayed,
    /// A row with this id and another body exists and was left as it was.
    Conflict,
}

impl Outcome {
    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Replayed => "replayed",
            Self::Conflict => "conflict",
        }
    }
}

/// Exposures that were not answered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The queue is full. Nothing was accepted.
    Full,
    /// The store is out of order. Nothing was accepted.
    Down,
    /// The writer has ended. Nothing was accepted.
    Closed,
    /// The transaction failed and left no row.
    KnownAbsent,
    /// The transaction may have been committed. Recording again settles it.
    Ambiguous,
    /// There was no answer in time. The rows may be written later; recording again settles it.
    Unanswered,
}

/// The bounds of the queue, of a transaction and of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rows that may wait.
    pub queue_rows_max: usize,
    /// Bytes that the rows that wait may occupy.
    pub queue_bytes_max: usize,
    /// A transaction takes no further request once it holds this many rows.
    pub batch_rows_max: usize,
    /// The store is probed after being idle, or out of order, for so long.
    pub probe_interval: Nanos,
    /// What the store is given.
    pub patience: Patience,
}

impl Bounds {
    /// Those of a policy.
    pub fn of(policy: &ExposurePolicy) -> Self {
        Self {
            queue_rows_max: policy.queue_max as usize,
            queue_bytes_max: policy.queue_bytes_max as usize,
            batch_rows_max: policy.batch_max as usize,
            probe_interval: policy.probe_interval,
            patience: Patience { lock: policy.busy_timeout, step: policy.store_timeout },
        }
    }
}

#[cfg(test)]
impl Bounds {
    /// Wide ones, for tests that are not about them.
    pub(crate) const WIDE: Self = Self {
        queue_rows_max: 1_000,
        queue_bytes_max: 1 << 20,
        batch_rows_max: 1_000,
        probe_interval: Nanos::from_secs(1),
        patience: Patience { lock: Nanos::from_secs(30), step: Nanos::from_secs(60) },
    };
}

struct Entry {
    exposures: Vec<Exposure>,
    answer: Waiter,
    /// The entry's place in the queue, given back when it leaves the queue.
    place: Place,
}

/// Hands exposures to the writer. Clones share the queue; the writer ends when the last one is gone.
#[derive(Clone)]
pub struct Recorder {
    entries: mpsc::Sender<Entry>,
    room: Arc<Room>,
    bounds: watch::Receiver<Bounds>,
    standing: Arc<Standing>,
    metrics: Arc<Metrics>,
}

/// The other end: owns the ledger. [`Writer::run`] is started under supervision.
pub struct Writer<L> {
    ledger: L,
    entries: mpsc::Receiver<Entry>,
    bounds: watch::Receiver<Bounds>,
    clock: Arc<dyn Clock>,
    standing: Arc<Standing>,
    metrics: Arc<Metrics>,
    points: Points,
}

/// A recorder and its writer. Both go by the bounds as they change; `standing` is told how the store does.
pub fn group_commit<L: Ledger>(
    ledger: L,
    bounds: watch::Receiver<Bounds>,
    clock: Arc<dyn Clock>,
    standing: Standing,
    metrics: Arc<Metrics>,
) -> (Recorder, Writer<L>) {
    let (sender, receiver) = mpsc::channel(ENTRIES_MAX);
    let standing = Arc::new(standing);
    let recorder = Recorder {
        entries: sender,
        room: Room::new(Arc::clone(&metrics)),
        bounds: bounds.clone(),
        standing: Arc::clone(&standing),
        metrics: Arc::clone(&metrics),
    };
    let points = Points::default();
    (recorder, Writer { ledger, entries: receiver, bounds, clock, standing, metrics, points })
}

impl Recorder {
    /// Queues the exposures of one request, or refuses them at once.
    ///
    /// # Errors
    /// [`RecordError::Full`], [`RecordError::Down`] or [`RecordError::Closed`]; nothing was accepted.
    pub fn submit(&self, exposures: Vec<Exposure>) -> Result<Pending, RecordError> {
        let rows = exposures.len();
        self.metrics.offered(rows);
        let (answer, pending) = oneshot::channel();
        let sent = self.enqueue(exposures, answer);
        sent.inspect_err(|error| self.metrics.refused(*error, rows))?;
        Ok(Pending(pending))
    }

    fn enqueue(&self, exposures: Vec<Exposure>, answer: Waiter) -> Result<(), RecordError> {
        if self.standing.is_down() {
            return Err(RecordError::Down);
        }
        let max = {
            let bounds = self.bounds.borrow();
            Size { rows: bounds.queue_rows_max, bytes: bounds.queue_bytes_max }
        };
        let place = self.room.take(Size::of(&exposures), max).ok_or(RecordError::Full)?;
        self.entries.try_send(Entry { exposures, answer, place }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => RecordError::Full,
            mpsc::error::TrySendError::Closed(_) => RecordError::Closed,
        })
    }
}

/// Accepted exposures. Dropping it does not take them back.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Vec<Outcome>, RecordError>>);

impl Pending {
    /// Waits for the outcome of every exposure, in the order they were submitted, until `limit`.
    ///
    /// # Errors
    /// [`RecordError::KnownAbsent`], [`RecordError::Ambiguous`] or [`RecordError::Unanswered`].
    pub async fn answer(self, clock: &dyn Clock, limit: Deadline) -> Result<Vec<Outcome>, RecordError> {
        let patience = tokio::time::sleep(limit.remaining(clock.now()).into());
        tokio::select! {
            biased; // An answer that is there counts, even when the limit has passed as well.
            // A writer that is torn down may have been in the middle of the commit.
            answer = self.0 => answer.unwrap_or(Err(RecordError::Ambiguous)),
            () = patience => Err(RecordError::Unanswered),
        }
    }
}

impl<L: Ledger> Writer<L> {
    /// Lets commits go unanswered on purpose.
    pub fn inject(mut self, points: Points) -> Self {
        self.points = points;
        self
    }

    /// Writes until every recorder is gone and the queue is empty, then closes the ledger.
    pub async fn run(mut self) {
        let mut alive = Alive(Some(Arc::clone(&self.standing)));
        loop {
            let Bounds { probe_interval, patience, .. } = *self.bounds.borrow_and_update();
            self.ledger.set_patience(patience);
            let next = tokio::select! {
                biased; // A transaction says more about the store than a probe does, and a policy more than either.
                Ok(()) = self.bounds.changed() => continue,
                next = self.entries.recv() => next,
                () = tokio::time::sleep(probe_interval.into()) => {
                    self.probe().await;
                    continue;
                }
            };
            match next {
                None => break,
                // Accepted in the moment in which the store was found out.
                Some(entry) if self.standing.is_down() => self.turn_away(entry),
                Some(first) => {
                    let batch = self.gather(first);
                    self.commit(batch).await;
                }
            }
        }
        alive.0 = None;
        self.ledger.close().await;
    }

    fn gather(&mut self, first: Entry) -> Batch {
        let batch_rows_max = self.bounds.borrow().batch_rows_max;
        let mut batch = Batch::default();
        batch.add(first);
        while batch.exposures.len() < batch_rows_max
            && let Ok(next) = self.entries.try_recv()
        {
            batch.add(next);
        }
        batch
    }

    async fn commit(&mut self, batch: Batch) {
        let Batch { exposures, waiters } = batch;
        let (unique, places) = deduplicate(&exposures);
        let started = self.clock.now();
        let result = self.ledger.record(&unique).await;
        self.metrics.transaction(unique.len(), self.clock.now() - started);
        // What the store did counts for its standing, and not what is made of it on purpose.
        match &result {
            Ok(_) => self.standing.committed(),
            Err(error) => self.standing.failed(error),
        }
        let failed = result.is_err();
        let result = match (result, self.points.pass(Point::AfterCommit).await) {
            (Ok(_), Err(injected)) => Err(WriteError::Unknown(injected.to_string())),
            (result, _) => result,
        };
        match result {
            Ok(stored) => answer(&self.metrics, &settle(&exposures, &places, &stored), waiters),
            Err(error) => {
                self.metrics.failed(&error, exposures.len());
                fail(&self.metrics, record_error(&error), waiters);
            }
        }
        // Was it one transaction or is it the store? Those who wait would find out one batch after the other.
        if failed && !self.standing.is_down() {
            self.probe().await;
        }
    }

    async fn probe(&mut self) {
        let verdict = self.ledger.probe().await;
        self.metrics.probed(verdict.is_ok());
        self.standing.probed(verdict);
    }

    /// Of the exposures of this entry nothing was sent to the store.
    fn turn_away(&self, entry: Entry) {
        let Entry { exposures, answer, place } = entry;
        drop(place);
        let error = WriteError::KnownAbsent("the store is out of order".to_owned());
        self.metrics.failed(&error, exposures.len());
        fail(&self.metrics, record_error(&error), vec![(exposures.len(), answer)]);
    }
}

const fn record_error(error: &WriteError) -> RecordError {
    match error {
        WriteError::KnownAbsent(_) => RecordError::KnownAbsent,
        WriteError::Unknown(_) => RecordError::Ambiguous,
    }
}

fn fail(metrics: &Metrics, error: RecordError, waiters: Vec<(usize, Waiter)>) {
    for (rows, waiter) in waiters {
        if waiter.send(Err(error)).is_err() {
            metrics.unclaimed(rows);
        }
    }
}

/// Held while the writer runs. One that ends before its recorders do, by a panic, leaves nobody who records: whoever still asks is
/// refused, and the process is not ready.
struct Alive(Option<Arc<Standing>>);

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(standing) = &self.0 {
            standing.broke_off();
        }
    }
}

type Waiter = oneshot::Sender<Result<Vec<Outcome>, RecordError>>;

/// The exposures of one transaction, and who waits for how many of them, in the same order.
#[derive(Default)]
struct Batch {
    exposures: Vec<Exposure>,
    waiters: Vec<(usize, Waiter)>,
}

impl Batch {
    fn add(&mut self, entry: Entry) {
        let Entry { exposures, answer, place } = entry;
        drop(place);
        self.waiters.push((exposures.len(), answer));
        self.exposures.extend(exposures);
    }
}

/// The first exposure of every event id, and for each exposure the place of its id among them.
fn deduplicate(exposures: &[Exposure]) -> (Vec<&Exposure>, Vec<usize>) {
    let mut unique = Vec::with_capacity(exposures.len());
    let mut known = HashMap::with_capacity(exposures.len());
    let places = exposures.iter().map(|exposure| match known.entry(exposure.event_id) {
        hash_map::Entry::Occupied(place) => *place.get(),
        hash_map::Entry::Vacant(vacant) => {
            unique.push(exposure);
            *vacant.insert(unique.len() - 1)
        }
    });
    let places = places.collect();
    (unique, places)
}

/// Compares each exposure with the row that is there. The first one of an id whose row is fresh is the one that was
/// written; an equal one beside it in the same transaction replays, and another body conflicts.
fn settle(exposures: &[Exposure], places: &[usize], stored: &[Stored]) -> Vec<Outcome> {
    let mut taken = vec![false; stored.len()];
    let outcomes = exposures.iter().zip(places).map(|(exposure, place)| {
        let row = stored[*place];
        let first = !std::mem::replace(&mut taken[*place], true);
        match (exposure.body == row.body, row.fresh && first) {
            (false, _) => Outcome::Conflict,
            (true, true) => Outcome::Committed,
            (true, false) => Outcome::Replayed,
        }
    });
    outcomes.collect()
}

fn answer(metrics: &Metrics, outcomes: &[Outcome], waiters: Vec<(usize, Waiter)>) {
    outcomes.iter().for_each(|outcome| metrics.settled(*outcome));
    let mut rest = outcomes;
    for (rows, waiter) in waiters {
        let (own, others) = rest.split_at(rows);
        rest = others;
        if waiter.send(Ok(own.to_vec())).is_err() {
            metrics.unclaimed(rows);
        }
    }
}

#[cfg(test)]
mod tests;
