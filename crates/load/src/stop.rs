//! Stop: ends a run from outside before its time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A flag shared with a running generator. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the schedule within a tenth of a second; what is in flight is drained as at a regular end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
