//! Recorded: the recorder and its writer over a real ledger, and many callers that wait for their answers.

use std::sync::Arc;

use base::{
    Clock as _, Deadline, Nanos,
    clock::{MonotonicClock, SystemWallClock},
};
use experiment::{
    decide::Exposure,
    ledger::{Ledger, Location, PostgresLedger, SqliteLedger},
    metrics::Metrics,
    recorder::{Bounds, Outcome, Recorder, group_commit, standing::Standing},
};
use futures_util::StreamExt as _;
use serve::health::Readiness;

use crate::{CONCURRENCY, REQUEST_ROWS, spawn};

const NEVER: Deadline = Deadline::at(Nanos::MAX);

/// A recorder whose writer runs until it is dropped.
pub(crate) async fn open(location: &Location, bounds: Bounds) -> Recorder {
    let wall = Arc::new(SystemWallClock);
    match location {
        Location::File(path) => {
            start(SqliteLedger::open(path, bounds.patience.lock, wall).await.expect("a ledger"), bounds)
        }
        Location::Postgres(database) => {
            start(PostgresLedger::open(database, bounds.patience, wall).await.expect("a ledger"), bounds)
        }
    }
}

fn start(ledger: impl Ledger, bounds: Bounds) -> Recorder {
    let bounds = tokio::sync::watch::channel(bounds).1;
    let standing = Standing::new(Readiness::new().condition(experiment::CONDITION));
    let clock = Arc::new(MonotonicClock);
    let (recorder, writer) = group_commit(ledger, bounds, clock, standing, Arc::new(Metrics::new()));
    spawn(writer.run());
    recorder
}

/// Rows a second, of callers that each send their next request when the last one is answered.
pub(crate) async fn round(recorder: &Recorder, rows: Vec<Exposure>) -> f64 {
    let count = rows.len();
    let requests: Vec<_> = rows.chunks(REQUEST_ROWS).map(<[Exposure]>::to_vec).collect();
    let began = MonotonicClock.now();
    let calls = requests.into_iter().map(|request| record(recorder, request));
    futures_util::stream::iter(calls).buffer_unordered(CONCURRENCY).collect::<Vec<()>>().await;
    count as f64 / (MonotonicClock.now() - began).as_secs_f64()
}

/// Records a request and waits until it is durable.
pub(crate) async fn record(recorder: &Recorder, request: Vec<Exposure>) {
    let pending = recorder.submit(request).expect("the queue takes as many as there are callers");
    let outcomes = pending.answer(&MonotonicClock, NEVER).await.expect("recorded");
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Committed), "every row is new: {outcomes:?}");
}
