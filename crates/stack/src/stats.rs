//! Stats: what a link counts about itself. Plain atomics that the process's metrics read when they are scraped.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::LocalFailure;

/// Counters of one link since it was made, and two gauges.
#[derive(Debug, Default)]
pub struct LinkStats {
    pub(crate) calls: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) in_flight_peak: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    pub(crate) disconnects: AtomicU64,
    pub(crate) replays: AtomicU64,
    failures: [AtomicU64; LocalFailure::ALL.len()],
}

impl LinkStats {
    /// Calls that were begun, whatever became of them.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Calls under way: from the call until the response body has ended or was dropped.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Most calls that were under way at one time.
    pub fn in_flight_peak(&self) -> u64 {
        self.in_flight_peak.load(Ordering::Relaxed)
    }

    /// Connections that were made.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Connection attempts that failed.
    pub fn connect_failures(&self) -> u64 {
        self.connect_failures.load(Ordering::Relaxed)
    }

    /// Connections that ended or stopped taking calls, for whatever reason.
    pub fn disconnects(&self) -> u64 {
        self.disconnects.load(Ordering::Relaxed)
    }

    /// Calls that were sent a second time because the peer certainly had not processed them.
    pub fn replays(&self) -> u64 {
        self.replays.load(Ordering::Relaxed)
    }

    /// Calls that ended in a status made here, by cause.
    pub fn failures(&self, failure: LocalFailure) -> u64 {
        self.failures[failure.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, failure: LocalFailure) {
        add(&self.failures[failure.index()]);
    }
}

pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
