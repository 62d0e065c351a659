//! Store: the profile store's capacity, by events: a read may be given up before its time, when the last who waits for it has
//! left, and whoever waits for a server comes forward then.

use std::collections::VecDeque;

use base::Nanos;
use model::scenario::Capacity;

use super::read::ReadId;

/// Servers of the profile store, and the line before them.
#[derive(Debug)]
pub(crate) struct Store {
    capacity: Capacity,
    serving: u32,
    line: VecDeque<ReadId>,
    calls: u64,
    /// Servers taken over time.
    served: u64,
    metered_at: u64,
}

/// What an arrival finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Server,
    Line,
    Nothing,
}

impl Store {
    pub(crate) const fn new(capacity: Capacity) -> Self {
        Self { capacity, serving: 0, line: VecDeque::new(), calls: 0, served: 0, metered_at: 0 }
    }

    pub(crate) const fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
    }

    /// A read arrives.
    pub(crate) fn enter(&mut self, read: ReadId, now: Nanos) -> Found {
        self.calls += 1;
        if self.serving < self.capacity.servers && self.line.is_empty() {
            self.take(now);
            return Found::Server;
        }
        if self.line.len() >= self.capacity.queue_max as usize {
            return Found::Nothing;
        }
        self.line.push_back(read);
        Found::Line
    }

    /// The next in line, if a server is free for it; it has it then.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<ReadId> {
        if self.serving >= self.capacity.servers {
            return None;
        }
        let read = self.line.pop_front()?;
        self.take(now);
        Some(read)
    }

    /// A server comes free.
    pub(crate) fn release(&mut self, now: Nanos) {
        self.meter(now);
        self.serving -= 1;
    }

    /// A read leaves the line.
    pub(crate) fn abandon(&mut self, read: ReadId) {
        if let Some(at) = self.line.iter().position(|waiting| *waiting == read) {
            self.line.remove(at);
        }
    }

    fn take(&mut self, now: Nanos) {
        self.meter(now);
        self.serving += 1;
    }

    fn meter(&mut self, now: Nanos) {
        self.served += u64::from(self.serving) * (now.get() - self.metered_at);
        self.metered_at = now.get();
    }

    /// Calls so far, and the time for which servers were taken, up to the last change.
    pub(crate) const fn account(&self) -> (u64, Nanos) {
        (self.calls, Nanos::new(self.served))
    }
}
