//! Memory: a ledger that lasts as long as the process. Tests under paused time use it, since paused time does not wait
//! for the thread that SQLite works on.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use uuid::Uuid;

use super::{Ledger, Patience, Stored, WriteError};
use crate::decide::Exposure;

/// A ledger in memory. Clones share the rows, so that a test keeps a view of what a service recorded.
#[derive(Clone, Debug, Default)]
pub struct MemoryLedger(Arc<Mutex<Rows>>);

/// The rows in the order they were committed, and where each event id is among them.
#[derive(Debug, Default)]
struct Rows {
    kept: Vec<Exposure>,
    places: HashMap<Uuid, usize>,
}

impl MemoryLedger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// The rows, in the order they were committed.
    pub fn rows(&self) -> Vec<Exposure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kept.clone()
    }

    fn write(&self, rows: &[&Exposure]) -> Vec<Stored> {
        let Rows { kept, places } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = rows.iter().map(|row| match places.entry(row.event_id) {
            Entry::Occupied(place) => Stored { body: kept[*place.get()].body, fresh: false },
            Entry::Vacant(vacant) => {
                vacant.insert(kept.len());
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

    async fn probe(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn set_patience(&mut self, _patience: Patience) {}

    async fn close(&mut self) {}
}
