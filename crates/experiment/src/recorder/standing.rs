//! Standing: whether the store takes exposures, as the writer found out, as readiness tells, and as recorders act on.
//!
//! The store is *down* once a probe failed, or once [`FAILURES_MAX`] transactions in a row did, whatever the probes between
//! them said. A single failed transaction is not enough: somebody else's lock or a restarted server passes, and the
//! probe that follows every failure tells such a thing from a store that is out of order. The transactions count by
//! themselves because a probe can be content where a batch is not.
//!
//! It is *up* again when a probe succeeds. Nothing but a committed transaction makes the failures before it forgotten, so a
//! store that deceives its probes is down again after one more of them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serve::health::Condition;

use crate::ledger::WriteError;

/// Transactions that fail in a row before the store is down without a probe having failed.
pub const FAILURES_MAX: u32 = 3;

/// How the store does. One writer tells it, many recorders ask.
#[derive(Debug)]
pub struct Standing {
    down: AtomicBool,
    /// Transactions that failed since one was committed, as far as they count. Changed by the writer alone.
    failures: AtomicU32,
    condition: Condition,
}

impl Standing {
    /// Up. `condition` is the part of the process's readiness that this decides.
    pub const fn new(condition: Condition) -> Self {
        Self { down: AtomicBool::new(false), failures: AtomicU32::new(0), condition }
    }

    /// Whether exposures are refused at once.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    pub(super) fn committed(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.up();
    }

    pub(super) fn failed(&self, error: &WriteError) {
        // Every one of them, and yet few: a store that is down is sent no further ones.
        tracing::error!(%error, "exposures cannot be recorded");
        let failures = self.failures.load(Ordering::Relaxed) + 1;
        if failures == FAILURES_MAX {
            self.fall(&error.to_string());
        } else {
            self.failures.store(failures, Ordering::Relaxed);
        }
    }

    pub(super) fn probed(&self, verdict: Result<(), String>) {
        match verdict {
            Ok(()) => self.up(),
            Err(reason) => self.fall(&reason),
        }
    }

    fn up(&self) {
        if self.down.swap(false, Ordering::AcqRel) {
            self.condition.holds();
            tracing::info!("the exposure ledger takes rows again");
        }
    }

    /// What writes is gone, and does not come back.
    pub(super) fn broke_off(&self) {
        self.fall("what records has ended; the process has to be started again");
    }

    fn fall(&self, reason: &str) {
        self.condition.fails(reason);
        if !self.down.swap(true, Ordering::AcqRel) {
            tracing::error!(reason, "the exposure ledger is out of order");
        }
    }
}

#[cfg(test)]
mod tests {
    use serve::health::{Readiness, State};

    use super::*;

    fn standing() -> (Standing, Readiness) {
        let readiness = Readiness::new();
        readiness.serving();
        (Standing::new(readiness.condition("exposure ledger")), readiness)
    }

    fn failed(standing: &Standing) -> bool {
        standing.failed(&WriteError::KnownAbsent("no room".into()));
        standing.is_down()
    }

    #[test]
    fn readiness_tells_why_the_store_is_down_and_follows_it_up() {
        let (standing, readiness) = standing();
        standing.probed(Err("the disk is full".into()));
        assert!(standing.is_down());
        assert_eq!(readiness.get(), State::NotServing("exposure ledger: the disk is full".into()));
        standing.probed(Err("the disk is gone".into()));
        assert_eq!(readiness.get(), State::NotServing("exposure ledger: the disk is gone".into()));
        standing.probed(Ok(()));
        assert!(!standing.is_down());
        assert_eq!(readiness.get(), State::Serving);
    }

    #[test]
    fn transactions_count_in_a_row_whatever_probes_say_between_them() {
        let (standing, readiness) = standing();
        for _ in 1..FAILURES_MAX {
            assert!(!failed(&standing));
            standing.probed(Ok(()));
        }
        standing.committed();
        for _ in 1..FAILURES_MAX {
            assert!(!failed(&standing), "a commit in between starts the count anew");
        }
        assert!(failed(&standing));
        let reason = "exposure ledger: nothing was recorded: no room";
        assert_eq!(readiness.get(), State::NotServing(reason.into()));
        // A probe brings it up; that it deceived once is remembered until something is committed.
        standing.probed(Ok(()));
        assert!(!standing.is_down());
        assert!(failed(&standing));
        standing.probed(Ok(()));
        standing.committed();
        assert!(!failed(&standing));
    }
}
