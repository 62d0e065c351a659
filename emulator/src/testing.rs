//! Testing: a clock that tests move by hand.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use base::{Clock, Nanos};

/// A clock that stands still until it is moved.
#[derive(Default)]
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(crate) fn at(start: Nanos) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(start.get())))
    }

    pub(crate) fn advance(&self, span: Nanos) {
        self.0.fetch_add(span.get(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}
