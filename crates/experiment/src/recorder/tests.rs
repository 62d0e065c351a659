//! Tests of group commit, driven by handshakes with a ledger that waits to be told how each transaction ends.

mod bounds;

use std::sync::Mutex;

use base::{Nanos, RequestId, clock::MonotonicClock};
use proptest::prelude::*;
use tokio::sync::mpsc::error::TryRecvError;

use serve::health::{Readiness, State};

use super::*;
use crate::{
    decide::{Experiment, Surface, Variant, exposure::tests::context},
    ledger::MemoryLedger,
};

const WIDE: Bounds = Bounds::WIDE;
const NEVER: Deadline = Deadline::at(Nanos::MAX);

/// The exposure of an operation; another surface gives another body under the same event id.
fn exposure(operation: &str, surface: &str) -> Exposure {
    let arm = Variant { name: "a".into(), weight: 1 };
    let experiment = Experiment { id: "e".into(), version: 1, variants: vec![arm.clone()] };
    Exposure::new(
        &context("user-00000", operation),
        &Surface::new(surface.into()).expect("valid"),
        &experiment,
        &arm,
    )
}

fn three(operation: &str) -> Vec<Exposure> {
    (0..3).map(|at| exposure(&format!("{operation}.{at}"), "home")).collect()
}

/// A ledger that announces each transaction by its rows and then waits for its end.
struct Held {
    rows: MemoryLedger,
    began: mpsc::Sender<usize>,
    ends: mpsc::Receiver<End>,
    closed: Arc<Mutex<bool>>,
    fault: Arc<Mutex<Option<String>>>,
    patience: Arc<Mutex<Option<Patience>>>,
}

#[derive(Clone, Copy)]
enum End {
    Commit,
    RollBack,
    /// The rows are there, and nobody learns of it.
    CommitAndLoseTheAnswer,
}

struct Holder {
    rows: MemoryLedger,
    began: mpsc::Receiver<usize>,
    ends: mpsc::Sender<End>,
    closed: Arc<Mutex<bool>>,
    /// What a probe finds.
    fault: Arc<Mutex<Option<String>>>,
    patience: Arc<Mutex<Option<Patience>>>,
}

impl Holder {
    async fn began(&mut self) -> usize {
        self.began.recv().await.expect("the writer runs")
    }

    fn breaks(&self, fault: Option<&str>) {
        *self.fault.lock().expect("no test panics with it") = fault.map(str::to_owned);
    }

    async fn end(&self, end: End) {
        self.ends.send(end).await.expect("the writer runs");
    }
}

impl Ledger for Held {
    async fn record(&mut self, rows: &[&Exposure]) -> Result<Vec<Stored>, WriteError> {
        self.began.send(rows.len()).await.expect("the test watches");
        match self.ends.recv().await.expect("the test says how it ends") {
            End::Commit => self.rows.record(rows).await,
            End::RollBack => Err(WriteError::KnownAbsent("told to".into())),
            End::CommitAndLoseTheAnswer => {
                self.rows.record(rows).await?;
                Err(WriteError::Unknown("told to".into()))
            }
        }
    }

    fn set_patience(&mut self, patience: Patience) {
        *self.patience.lock().expect("no test panics with it") = Some(patience);
    }

    async fn probe(&mut self) -> Result<(), String> {
        self.fault.lock().expect("no test panics with it").clone().map_or(Ok(()), Err)
    }

    async fn close(&mut self) {
        *self.closed.lock().expect("no test panics with it") = true;
    }
}

fn ready() -> (Standing, Readiness) {
    let readiness = Readiness::new();
    readiness.serving();
    (Standing::new(readiness.condition("exposure ledger")), readiness)
}

/// Bounds that never change.
fn fixed(bounds: Bounds) -> watch::Receiver<Bounds> {
    watch::channel(bounds).1
}

fn held(bounds: Bounds) -> (Recorder, Writer<Held>, Holder) {
    held_by(fixed(bounds))
}

fn held_by(bounds: watch::Receiver<Bounds>) -> (Recorder, Writer<Held>, Holder) {
    let (began_sender, began) = mpsc::channel(16);
    let (ends, ends_receiver) = mpsc::channel(16);
    let rows = MemoryLedger::new();
    let closed = Arc::new(Mutex::new(false));
    let fault = Arc::new(Mutex::new(None));
    let patience = Arc::new(Mutex::new(None));
    let ledger = Held {
        rows: rows.clone(),
        began: began_sender,
        ends: ends_receiver,
        closed: Arc::clone(&closed),
        fault: Arc::clone(&fault),
        patience: Arc::clone(&patience),
    };
    let metrics = Arc::new(Metrics::new());
    let (recorder, writer) = group_commit(ledger, bounds, Arc::new(MonotonicClock), ready().0, metrics);
    (recorder, writer, Holder { rows, began, ends, closed, fault, patience })
}

async fn answer(pending: Result<Pending, RecordError>) -> Result<Vec<Outcome>, RecordError> {
    pending?.answer(&MonotonicClock, NEVER).await
}

/// Runs a script beside a writer over a plain ledger; the writer ends when the script drops its recorder.
async fn beside_a_writer<T>(script: impl AsyncFnOnce(Recorder, MemoryLedger) -> T) -> T {
    let ledger = MemoryLedger::new();
    let metrics = Arc::new(Metrics::new());
    let (recorder, writer) =
        group_commit(ledger.clone(), fixed(WIDE), Arc::new(MonotonicClock), ready().0, metrics);
    tokio::join!(writer.run(), script(recorder, ledger)).1
}

#[tokio::test]
async fn an_operation_commits_once_replays_and_conflicts() {
    beside_a_writer(async |recorder, ledger| {
        let first = vec![exposure("op", "home")];
        assert_eq!(answer(recorder.submit(first.clone())).await, Ok(vec![Outcome::Committed]));
        assert_eq!(answer(recorder.submit(first.clone())).await, Ok(vec![Outcome::Replayed]));
        let other = vec![exposure("op", "search")];
        assert_eq!(other[0].event_id, first[0].event_id);
        assert_eq!(answer(recorder.submit(other)).await, Ok(vec![Outcome::Conflict]));
        assert_eq!(ledger.rows(), first);
    })
    .await;
}

#[tokio::test]
async fn requests_that_arrive_during_a_commit_share_the_next_one() {
    let (recorder, writer, mut holder) = held(WIDE);
    let script = async {
        let first = recorder.submit(three("first"));
        assert_eq!(holder.began().await, 3);
        let rest: Vec<_> = (0..5).map(|at| recorder.submit(three(&format!("op-{at}")))).collect();
        holder.end(End::Commit).await;
        assert_eq!(holder.began().await, 15);
        holder.end(End::Commit).await;
        for pending in rest.into_iter().chain([first]) {
            assert_eq!(answer(pending).await, Ok(vec![Outcome::Committed; 3]));
        }
        drop(recorder);
        assert_eq!(holder.rows.rows().len(), 18);
    };
    tokio::join!(writer.run(), script);
}

#[tokio::test]
async fn a_transaction_closes_at_its_bound_without_splitting_a_request() {
    // Bound 4 with requests of 3: the second request is taken at 3 rows, the third is not at 6.
    let (recorder, writer, mut holder) = held(Bounds { batch_rows_max: 4, ..WIDE });
    let script = async {
        let first = recorder.submit(three("first"));
        assert_eq!(holder.began().await, 3);
        let rest: Vec<_> = (0..3).map(|at| recorder.submit(three(&format!("op-{at}")))).collect();
        for rows in [6, 3] {
            holder.end(End::Commit).await;
            assert_eq!(holder.began().await, rows);
        }
        holder.end(End::Commit).await;
        for pending in rest.into_iter().chain([first]) {
            assert_eq!(answer(pending).await, Ok(vec![Outcome::Committed; 3]));
        }
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_has_room_again_after_the_commit() {
    let (recorder, writer, mut holder) = held(Bounds { queue_rows_max: 6, ..WIDE });
    let metrics = Arc::clone(&recorder.metrics);
    let script = async {
        let mut accepted = vec![recorder.submit(three("in-commit"))];
        assert_eq!(holder.began().await, 3);
        // At the limit, and one row above it.
        accepted.push(recorder.submit(three("waits-1")));
        accepted.push(recorder.submit(three("waits-2")));
        assert_eq!(recorder.submit(vec![exposure("one-more", "home")]).err(), Some(RecordError::Full));
        assert_eq!(metrics.count("refused"), 1);
        holder.end(End::Commit).await;
        assert_eq!(holder.began().await, 6);
        accepted.push(recorder.submit(three("fits-again")));
        holder.end(End::Commit).await;
        assert_eq!(holder.began().await, 3);
        holder.end(End::Commit).await;
        for pending in accepted {
            assert_eq!(answer(pending).await, Ok(vec![Outcome::Committed; 3]));
        }
        drop(recorder);
        assert_eq!(holder.rows.rows().len(), 12);
    };
    tokio::join!(writer.run(), script);
    assert_eq!(metrics.count("committed"), 12);
}

#[tokio::test]
async fn equal_and_different_bodies_of_one_id_in_one_transaction() {
    let (recorder, writer, mut holder) = held(WIDE);
    let script = async {
        let gate = recorder.submit(three("gate"));
        holder.began().await;
        let same = exposure("op", "home");
        let pending = [
            recorder.submit(vec![same.clone(), exposure("other-op", "home")]),
            recorder.submit(vec![same.clone()]),
            recorder.submit(vec![exposure("op", "search")]),
            recorder.submit(vec![same.clone(), same.clone()]),
        ];
        holder.end(End::Commit).await;
        assert_eq!(holder.began().await, 2, "distinct ids only");
        holder.end(End::Commit).await;
        let mut seen = Vec::new();
        for pending in pending {
            seen.push(answer(pending).await.expect("committed"));
        }
        assert_eq!(
            seen,
            [
                vec![Outcome::Committed, Outcome::Committed],
                vec![Outcome::Replayed],
                vec![Outcome::Conflict],
                vec![Outcome::Replayed, Outcome::Replayed],
            ]
        );
        answer(gate).await.expect("committed");
        drop(recorder);
        let kept = holder.rows.rows();
        assert_eq!(kept.iter().filter(|row| row.event_id == same.event_id).collect::<Vec<_>>(), [&same]);
    };
    tokio::join!(writer.run(), script);
}

#[tokio::test]
async fn a_rolled_back_transaction_is_known_absent_to_all_and_a_retry_commits() {
    let (recorder, writer, mut holder) = held(WIDE);
    let metrics = Arc::clone(&recorder.metrics);
    let script = async {
        let steps = [
            (End::RollBack, Err(RecordError::KnownAbsent), 1),
            (End::Commit, Ok(vec![Outcome::Committed; 3]), 7),
            (End::Commit, Ok(vec![Outcome::Replayed; 3]), 7),
        ];
        for (end, expected, rows) in steps {
            let gate = recorder.submit(vec![exposure("gate", "home")]);
            holder.began().await;
            let pending = [recorder.submit(three("a")), recorder.submit(three("b"))];
            holder.end(End::Commit).await;
            answer(gate).await.expect("committed");
            assert_eq!(holder.began().await, 6);
            holder.end(end).await;
            for pending in pending {
                assert_eq!(answer(pending).await, expected);
            }
            assert_eq!(holder.rows.rows().len(), rows);
        }
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
    assert_eq!(metrics.count("known_absent"), 6);
}

#[tokio::test]
async fn a_lost_answer_is_ambiguous_and_the_retry_settles_it() {
    let (recorder, writer, mut holder) = held(WIDE);
    let script = async {
        let lost = recorder.submit(three("op"));
        holder.began().await;
        holder.end(End::CommitAndLoseTheAnswer).await;
        assert_eq!(answer(lost).await, Err(RecordError::Ambiguous));
        let retry = recorder.submit(three("op"));
        holder.began().await;
        holder.end(End::Commit).await;
        assert_eq!(answer(retry).await, Ok(vec![Outcome::Replayed; 3]));
        drop(recorder);
        assert_eq!(holder.rows.rows().len(), 3);
    };
    tokio::join!(writer.run(), script);
}

#[tokio::test]
async fn a_caller_that_leaves_takes_nothing_back() {
    let (recorder, writer, mut holder) = held(WIDE);
    let metrics = Arc::clone(&recorder.metrics);
    let script = async {
        let committing = recorder.submit(three("committing"));
        holder.began().await;
        let queued = recorder.submit(three("queued"));
        drop((committing, queued));
        holder.end(End::Commit).await;
        assert_eq!(holder.began().await, 3);
        holder.end(End::Commit).await;
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
    assert_eq!(holder.rows.rows().len(), 6);
    assert_eq!((metrics.count("committed"), metrics.unclaimed_count()), (6, 6));
}

#[tokio::test]
async fn shutdown_flushes_what_was_accepted_and_closes_the_ledger() {
    let (recorder, writer, holder) = held(Bounds { batch_rows_max: 10, ..WIDE });
    let pending: Vec<_> =
        (0..100).map(|at| recorder.submit(vec![exposure(&format!("op-{at}"), "home")])).collect();
    drop(recorder);
    for _ in 0..10 {
        holder.end(End::Commit).await;
    }
    writer.run().await;
    assert_eq!(holder.rows.rows().len(), 100);
    assert!(*holder.closed.lock().expect("nobody panicked with it"));
    for pending in pending {
        assert_eq!(answer(pending).await, Ok(vec![Outcome::Committed]));
    }
}

#[tokio::test]
async fn after_the_writer_has_gone_nothing_is_accepted() {
    let (recorder, writer, _holder) = held(WIDE);
    let in_queue = recorder.submit(three("op"));
    drop(writer);
    assert_eq!(answer(in_queue).await, Err(RecordError::Ambiguous));
    assert_eq!(recorder.submit(three("op")).err(), Some(RecordError::Closed));
}

/// The runtime's clock, which tests can pause.
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_at_the_limit_and_the_row_lands_all_the_same() {
    let (recorder, writer, mut holder) = held(WIDE);
    let clock = RuntimeClock(tokio::time::Instant::now());
    let script = async {
        let pending = recorder.submit(three("op")).expect("room");
        holder.began().await;
        let limit = Deadline::at(Nanos::from_millis(50));
        assert_eq!(pending.answer(&clock, limit).await, Err(RecordError::Unanswered));
        assert_eq!(clock.now(), Nanos::from_millis(50));
        holder.end(End::Commit).await;
        let retry = recorder.submit(three("op")).expect("room");
        holder.began().await;
        holder.end(End::Commit).await;
        let limit = Deadline::at(Nanos::from_millis(100));
        assert_eq!(retry.answer(&clock, limit).await, Ok(vec![Outcome::Replayed; 3]));
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
    assert_eq!(holder.rows.rows().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_counts_after_the_limit_too() {
    let (recorder, writer, holder) = held(WIDE);
    let clock = RuntimeClock(tokio::time::Instant::now());
    let pending = recorder.submit(three("op")).expect("room");
    holder.end(End::Commit).await;
    drop(recorder);
    writer.run().await;
    assert_eq!(pending.answer(&clock, Deadline::at(Nanos::ZERO)).await, Ok(vec![Outcome::Committed; 3]));
}

#[tokio::test]
async fn fifty_equal_operations_at_once_leave_one_row() {
    beside_a_writer(async |recorder, ledger| {
        let pending: Vec<_> = (0..50).map(|_| recorder.submit(vec![exposure("op", "home")])).collect();
        let mut committed = 0;
        for pending in pending {
            match answer(pending).await.expect("recorded").as_slice() {
                [Outcome::Committed] => committed += 1,
                seen => assert_eq!(seen, [Outcome::Replayed]),
            }
        }
        assert_eq!((committed, ledger.rows().len()), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn offered_is_the_sum_of_its_outcomes() {
    let (recorder, writer, mut holder) = held(Bounds { queue_rows_max: 3, ..WIDE });
    let metrics = Arc::clone(&recorder.metrics);
    let script = async {
        for end in [End::Commit, End::RollBack, End::CommitAndLoseTheAnswer, End::Commit] {
            let pending = recorder.submit(three("op"));
            holder.began().await;
            let waiting = recorder.submit(three("next"));
            assert_eq!(recorder.submit(three("too-many")).err(), Some(RecordError::Full));
            holder.end(end).await;
            let _ = answer(pending).await;
            holder.began().await;
            holder.end(End::Commit).await;
            let _ = answer(waiting).await;
        }
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
    let outcomes = ["refused", "down", "committed", "replayed", "conflict", "known_absent", "ambiguous"];
    let counts = outcomes.map(|outcome| metrics.count(outcome));
    assert_eq!(counts, [12, 0, 6, 12, 0, 3, 3]);
    assert_eq!(metrics.offered_count(), counts.iter().sum::<u64>());
    assert_eq!(holder.began.try_recv(), Err(TryRecvError::Disconnected));
}

proptest! {
    /// However operations are batched, the outcomes are those of a ledger that takes one after the other.
    #[test]
    fn batching_is_invisible(
        operations in proptest::collection::vec((0_u8..5, 0_u8..2), 1..40),
        cuts in proptest::collection::vec(1_usize..6, 40),
    ) {
        let exposures: Vec<_> = operations
            .iter()
            .map(|(operation, body)| {
                let operation = RequestId::parse(&format!("op-{operation}")).expect("valid");
                exposure(operation.as_str(), if *body == 0 { "home" } else { "search" })
            })
            .collect();
        let record = |ledger: &mut MemoryLedger, batch: &[Exposure]| {
            let (unique, places) = deduplicate(batch);
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let stored = runtime.block_on(ledger.record(&unique)).expect("memory does not fail");
            settle(batch, &places, &stored)
        };
        let (mut one_by_one, mut batched) = (MemoryLedger::new(), MemoryLedger::new());
        let expected: Vec<_> = exposures.iter().flat_map(|one| record(&mut one_by_one, std::slice::from_ref(one))).collect();
        let mut seen = Vec::new();
        let mut rest = exposures.as_slice();
        for cut in cuts {
            let (batch, later) = rest.split_at(cut.min(rest.len()));
            rest = later;
            seen.extend(record(&mut batched, batch));
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(seen, expected);
        prop_assert_eq!(batched.rows(), one_by_one.rows());
    }
}
