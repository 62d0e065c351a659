//! Books: what was done to which call. Counters by dependency, and a bounded journal of the calls that ended last.
//!
//! The journal is the largest thing in the process, so its entries are kept small and its room is reserved once: a ring
//! that grew by doubling would end with half as much again, all of it in use as the ring turns.

use std::collections::VecDeque;

use base::{Dependency, Nanos, WorkloadClass};

use crate::caller::{Caller, Trail};

/// Entries that the journal keeps; older ones are dropped and counted.
pub const JOURNAL_MAX: usize = 10_000;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered.
    Ok,
    /// The data set has no such thing.
    NotFound,
    /// The call's deadline passed.
    Deadline,
    /// The caller left.
    Cancelled,
    /// The queue was full.
    Overload,
    /// Failed by an injected fault.
    Fault,
    /// Refused at once by an injected fault.
    Refused,
}

impl Outcome {
    /// All of them, for tables.
    pub(crate) const ALL: [Self; 7] = [
        Self::Ok,
        Self::NotFound,
        Self::Deadline,
        Self::Cancelled,
        Self::Overload,
        Self::Fault,
        Self::Refused,
    ];

    /// The name used in the journal and in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotFound => "not_found",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Overload => "overload",
            Self::Fault => "fault",
            Self::Refused => "refused",
        }
    }

    /// Position in [`Outcome::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// A span in whole microseconds, rounded down; above 71 minutes, which only a call that hangs without a deadline takes,
/// the longest that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(u32);

impl Micros {
    /// Microseconds.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

impl From<Nanos> for Micros {
    fn from(span: Nanos) -> Self {
        Self(u32::try_from(span.as_micros()).unwrap_or(u32::MAX))
    }
}

/// One call that has ended.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    pub(crate) dependency: Dependency,
    pub(crate) request_id: Box<str>,
    pub(crate) attempt: u32,
    pub(crate) class: WorkloadClass,
    /// What remained of the deadline on arrival; `None` when the caller sent none.
    pub(crate) budget: Option<Micros>,
    pub(crate) trail: Trail,
    pub(crate) queue_wait: Micros,
    pub(crate) service: Micros,
    pub(crate) outcome: Outcome,
    /// The fault that was applied; empty when none was.
    pub(crate) fault: &'static str,
    pub(crate) arrived: Nanos,
    /// When nothing worked for it any more.
    pub(crate) ended: Nanos,
    /// How long after the deadline the work stopped.
    pub(crate) late: Micros,
}

/// Which entries of the journal are wanted; the default is all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// Only this logical operation.
    pub(crate) request_id: Option<&'a str>,
    /// Only logical operations whose id begins so.
    pub(crate) prefix: &'a str,
    /// Only this dependency.
    pub(crate) dependency: Option<Dependency>,
}

impl<'a> Wanted<'a> {
    /// Entries of one logical operation.
    #[cfg(test)]
    pub(crate) const fn of(request_id: &'a str) -> Self {
        Self { request_id: Some(request_id), prefix: "", dependency: None }
    }

    fn has(&self, entry: &Entry) -> bool {
        self.request_id.is_none_or(|id| *entry.request_id == *id)
            && entry.request_id.starts_with(self.prefix)
            && self.dependency.is_none_or(|dependency| entry.dependency == dependency)
    }
}

/// Counters of one dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Calls that arrived.
    pub(crate) calls: u64,
    /// Calls that ended, by outcome.
    pub(crate) ended: [u64; Outcome::ALL.len()],
}

impl Counts {
    /// Calls that ended so.
    pub(crate) const fn of(&self, outcome: Outcome) -> u64 {
        self.ended[outcome.index()]
    }
}

/// Counters and journal.
#[derive(Debug)]
pub(crate) struct Books {
    /// Since the start or the last reset.
    counts: [Counts; 7],
    /// Calls that ended since the start.
    ended: [[u64; Outcome::ALL.len()]; 7],
    journal: VecDeque<Entry>,
    dropped: u64,
    /// Never reset, so that a call from before a reset cannot be mistaken for one after it.
    last_sequence: u64,
    /// Rises with every reset. Calls that began before it are not counted after it.
    epoch: u64,
}

/// A call that has begun, as the books know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) sequence: u64,
    epoch: u64,
}

impl Default for Books {
    fn default() -> Self {
        Self {
            counts: [Counts::default(); 7],
            ended: [[0; Outcome::ALL.len()]; 7],
            journal: VecDeque::with_capacity(JOURNAL_MAX),
            dropped: 0,
            last_sequence: 0,
            epoch: 0,
        }
    }
}

impl Books {
    /// A call has arrived.
    pub(crate) fn open(&mut self, dependency: Dependency) -> Opened {
        self.counts[dependency.index()].calls += 1;
        self.last_sequence += 1;
        Opened { sequence: self.last_sequence, epoch: self.epoch }
    }

    /// A call has ended. Its id is taken out of `entry`.
    pub(crate) fn close(&mut self, opened: Opened, entry: &mut Entry) {
        self.ended[entry.dependency.index()][entry.outcome.index()] += 1;
        if opened.epoch != self.epoch {
            return;
        }
        self.counts[entry.dependency.index()].ended[entry.outcome.index()] += 1;
        if self.journal.len() == JOURNAL_MAX {
            self.journal.pop_front();
            self.dropped += 1;
        }
        let request_id = std::mem::take(&mut entry.request_id);
        self.journal.push_back(Entry { request_id, ..*entry });
    }

    /// Counters of a dependency.
    pub(crate) const fn counts(&self, dependency: Dependency) -> Counts {
        self.counts[dependency.index()]
    }

    /// Calls that ended so since the start, whatever was reset.
    pub(crate) const fn ended(&self, dependency: Dependency, outcome: Outcome) -> u64 {
        self.ended[dependency.index()][outcome.index()]
    }

    /// The newest entries that are wanted, by order of arrival, and how many the journal has dropped.
    pub(crate) fn journal(&self, limit: usize, wanted: &Wanted<'_>) -> (Vec<&Entry>, u64) {
        let matches = |entry: &&Entry| wanted.has(entry);
        let mut entries: Vec<&Entry> = self.journal.iter().rev().filter(matches).take(limit).collect();
        entries.sort_unstable_by_key(|entry| entry.sequence);
        (entries, self.dropped)
    }

    /// Begins anew.
    pub(crate) fn reset(&mut self) {
        self.counts = [Counts::default(); 7];
        self.journal.clear();
        self.dropped = 0;
        self.epoch += 1;
    }
}

impl Entry {
    /// The entry of a call that has just arrived and is taken for abandoned until it is told otherwise.
    pub(crate) fn arrived(sequence: u64, dependency: Dependency, caller: Caller) -> Self {
        let budget = caller.budget().map(Micros::from);
        let Caller { class, request_id, attempt, trail, arrived, .. } = caller;
        Self {
            sequence,
            dependency,
            request_id,
            attempt,
            class,
            budget,
            trail,
            queue_wait: Micros::default(),
            service: Micros::default(),
            outcome: Outcome::Cancelled,
            fault: "",
            arrived,
            ended: arrived,
            late: Micros::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Extensions;
    use tonic::metadata::MetadataMap;

    use super::*;

    fn call(books: &mut Books, id: &str) -> u64 {
        let opened = books.open(Dependency::Profile);
        let mut caller = Caller::read(&MetadataMap::new(), &Extensions::new(), Nanos::ZERO);
        caller.request_id = id.into();
        let mut entry = Entry::arrived(opened.sequence, Dependency::Profile, caller);
        entry.outcome = Outcome::Ok;
        books.close(opened, &mut entry);
        opened.sequence
    }

    #[test]
    fn the_journal_is_bounded_and_tells_what_it_dropped() {
        let mut books = Books::default();
        for number in 0..JOURNAL_MAX + 3 {
            call(&mut books, if number % 2 == 0 { "even" } else { "odd" });
        }
        let (entries, dropped) = books.journal(usize::MAX, &Wanted::default());
        assert_eq!((entries.len(), dropped), (JOURNAL_MAX, 3));
        assert_eq!(entries[0].sequence, 4);
        let (odd, _) = books.journal(2, &Wanted::of("odd"));
        let sequences: Vec<u64> = odd.iter().map(|entry| entry.sequence).collect();
        assert_eq!(sequences, [JOURNAL_MAX as u64, JOURNAL_MAX as u64 + 2], "the newest two, oldest first");
        assert_eq!(books.counts(Dependency::Profile).of(Outcome::Ok), JOURNAL_MAX as u64 + 3);
        books.reset();
        assert_eq!(books.journal(usize::MAX, &Wanted::default()).1, 0);
    }

    #[test]
    fn an_entry_stays_small_and_the_room_of_the_journal_does_not_grow() {
        // With an id of 36 bytes on the heap, a full journal is 1.7 MB.
        assert!(size_of::<Entry>() <= 120, "{}", size_of::<Entry>());
        let mut books = Books::default();
        let room = books.journal.capacity();
        assert_eq!(room, JOURNAL_MAX);
        for _ in 0..=JOURNAL_MAX {
            call(&mut books, "x");
        }
        books.reset();
        assert_eq!(books.journal.capacity(), room);
    }

    #[test]
    fn spans_are_whole_microseconds_and_saturate() {
        assert_eq!(Micros::from(Nanos::new(1_999)).get(), 1);
        assert_eq!(Micros::from(Nanos::from_micros(u32::MAX.into())).get(), u32::MAX);
        assert_eq!(Micros::from(Nanos::MAX).get(), u32::MAX);
    }

    #[test]
    fn a_call_from_before_a_reset_is_not_counted_after_it() {
        let mut books = Books::default();
        let before = books.open(Dependency::Pricing);
        books.reset();
        let caller = Caller::read(&MetadataMap::new(), &Extensions::new(), Nanos::ZERO);
        books.close(before, &mut Entry::arrived(before.sequence, Dependency::Pricing, caller));
        assert_eq!(books.counts(Dependency::Pricing), Counts::default());
        assert_eq!(books.journal(9, &Wanted::default()).0.len(), 0);
        assert!(call(&mut books, "x") > before.sequence);
        assert_eq!(books.ended(Dependency::Pricing, Outcome::Cancelled), 1, "metrics know it");
    }
}
