//! Progress: a look at a running generator from another thread, by counters that cost the sender one store each.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;

use crate::outcome::Outcome;

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Index of the current stage in the plan.
    pub stage: usize,
    /// True in the first report of a stage, which is made at its very start.
    pub stage_began: bool,
    /// The start on the monotonic clock: the wall instant of model time zero.
    pub began: Nanos,
    /// Model time since the start.
    pub elapsed: Nanos,
    /// Model time of the whole run.
    pub total: Nanos,
    /// Operations sent so far.
    pub sent: u64,
    /// Operations that were not sent.
    pub unsent: u64,
    /// Correct answers so far.
    pub ok: u64,
    /// Failures so far.
    pub failed: u64,
    /// Callers that left so far.
    pub departed: u64,
    /// Operations in flight.
    pub in_flight: u64,
    /// 99th percentile of the last second that is settled.
    pub recent_p99_ms: Option<f64>,
}

/// Counters shared between the sending thread and whoever looks.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    sent: AtomicU64,
    unsent: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
    departed: AtomicU64,
    recent_p99_micros: AtomicU64,
}

impl Gauges {
    pub(crate) fn begin(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unsent(&self) {
        self.unsent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        let counter = match outcome {
            _ if outcome.is_success() => &self.ok,
            Outcome::Departed => &self.departed,
            _ => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn recent_p99(&self, millis: Option<f64>) {
        // Zero stands for none: no answer takes less than a microsecond.
        let micros = millis.map_or(0, |millis| (millis * 1e3) as u64);
        self.recent_p99_micros.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn look(
        &self,
        stage: usize,
        stage_began: bool,
        began: Nanos,
        elapsed: Nanos,
        total: Nanos,
    ) -> Progress {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Ends are read before begins, so that nothing is ever in flight less than nothing.
        let (ok, failed, departed) = (read(&self.ok), read(&self.failed), read(&self.departed));
        let sent = read(&self.sent);
        let recent = read(&self.recent_p99_micros);
        Progress {
            stage,
            stage_began,
            began,
            elapsed,
            total,
            sent,
            unsent: read(&self.unsent),
            ok,
            failed,
            departed,
            in_flight: sent.saturating_sub(ok + failed + departed),
            recent_p99_ms: (recent > 0).then(|| recent as f64 / 1e3),
        }
    }
}
