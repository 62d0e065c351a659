//! Memory: a ledger that lasts as long as the process. Tests under paused time use it, since paused time does not wait
//! for the thread that SQLite works on.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Ledger, Stored, WriteError};
use crate::decide::Exposure;

/// A ledger in memory. Clones share the rows, so that a test keeps a view of what a service recorded.
#[derive(Clone, Debug, Default)]
pub struct MemoryLedger(Arc<Mutex<Vec<Exposure>>>);

impl MemoryLedger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// The rows, in the order they were committed.
    pub fn rows(&self) -> Vec<Exposure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, rows: &[&Exposure]) -> Vec<Stored> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = rows.iter().map(|row| match kept.iter().find(|other| other.event_id == row.event_id) {
            Some(other) => Stored { body: other.body, fresh: false },
            None => {
                kept.push((*row).clone());
                Stored { body: row.body, fresh: true }
            }
        });
        stored.collect()
    }
}

impl Ledger for MemoryLedger {
    async fn record(&mut self, rows: &[&Exposure]) -> Result<Vec<Stored>, WriteError> {
        Ok(self.write(rows))
    }

    async fn close(&mut self) {}
}
