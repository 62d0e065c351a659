//! Journal: what the emulated dependencies were asked and what became of it. Bounded; the oldest entries leave first.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use wire::emulator::v1::JournalEntry;

/// Entries that are kept.
pub(crate) const ENTRIES_MAX: usize = 10_000;
/// Entries of an answer that asks for no number.
const LIMIT_DEFAULT: usize = 100;

#[derive(Default)]
pub(crate) struct Journal(Mutex<State>);

#[derive(Default)]
struct State {
    entries: VecDeque<JournalEntry>,
    dropped: u64,
}

impl Journal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, entry: JournalEntry) {
        let mut state = self.state();
        if state.entries.len() == ENTRIES_MAX {
            state.entries.pop_front();
            state.dropped += 1;
        }
        state.entries.push_back(entry);
    }

    /// The newest entries, oldest first, and how many have left the journal. `limit` 0 means 100.
    pub(crate) fn newest(&self, limit: usize, request_id: &str) -> (Vec<JournalEntry>, u64) {
        let limit = if limit == 0 { LIMIT_DEFAULT } else { limit };
        let state = self.state();
        let matching = state.entries.iter().rev();
        let matching = matching.filter(|entry| request_id.is_empty() || entry.request_id == request_id);
        let mut entries: Vec<_> = matching.take(limit).cloned().collect();
        entries.reverse();
        (entries, state.dropped)
    }

    pub(crate) fn clear(&self) {
        *self.state() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64) -> JournalEntry {
        JournalEntry { sequence, request_id: format!("r{}", sequence % 3), ..JournalEntry::default() }
    }

    #[test]
    fn the_newest_are_kept_and_the_lost_are_counted() {
        let journal = Journal::default();
        (0..ENTRIES_MAX as u64 + 5).for_each(|sequence| journal.record(entry(sequence)));
        let (entries, dropped) = journal.newest(ENTRIES_MAX + 1, "");
        assert_eq!((entries.len(), dropped), (ENTRIES_MAX, 5));
        assert_eq!(entries[0].sequence, 5);
        let (entries, _) = journal.newest(2, "r1");
        assert_eq!(entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), [10_000, 10_003]);
        assert_eq!(journal.newest(0, "").0.len(), LIMIT_DEFAULT);
        journal.clear();
        assert_eq!(journal.newest(0, ""), (Vec::new(), 0));
    }
}
