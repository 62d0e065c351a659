//! Paced: requests that come when they are due, whether or not the ones before have been answered.

use base::{Clock as _, Nanos, clock::MonotonicClock};
use experiment::{decide::Exposure, recorder::Recorder};

use crate::{recorded::record, spawn};

/// How long each request waited, ascending.
pub(crate) struct Waits(Vec<Nanos>);

impl Waits {
    /// The longest wait of the shortest share of them.
    pub(crate) fn quantile(&self, share: f64) -> Nanos {
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

/// Sends one row a request at `pace` requests a second. A wait begins when its request was due, so whatever held up the
/// sending counts as well.
pub(crate) async fn run(recorder: &Recorder, rows: Vec<Exposure>, pace: usize) -> Waits {
    let period = Nanos::from_secs(1).get() / pace as u64;
    let began = MonotonicClock.now();
    let mut calls = Vec::with_capacity(rows.len());
    for (at, row) in rows.into_iter().enumerate() {
        let due = began + Nanos::new(period * at as u64);
        let early = due.saturating_sub(MonotonicClock.now());
        if early > Nanos::ZERO {
            tokio::time::sleep(early.into()).await;
        }
        let recorder = recorder.clone();
        calls.push(spawn(async move {
            record(&recorder, vec![row]).await;
            MonotonicClock.now() - due
        }));
    }
    let mut waits = Vec::with_capacity(calls.len());
    for call in calls {
        waits.push(call.await.expect("no panic"));
    }
    waits.sort_unstable();
    Waits(waits)
}
