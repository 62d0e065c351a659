//! Admission's lines: who waits in which order. A slab whose entries are linked into one line for each class and one of
//! those to be woken, so that leaving from the middle costs what leaving from the front does, and nothing is allocated
//! while nobody waits.

use base::{Nanos, WorkloadClass};

use super::{CLASSES, Expiry};

/// No entry.
const NONE: u32 = u32::MAX;
/// The line of those whose verdict is in and who have not been woken.
const READY: usize = CLASSES;

/// Where a waiter stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// The entry is not in use.
    Free,
    /// In the line of its class.
    Queued,
    /// Has a permit that it has not fetched; this old at dequeue.
    Granted(Nanos),
    /// Has none and will not get one; this old when it was dropped.
    Dropped(Expiry, Nanos),
}

/// One waiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) class: WorkloadClass,
    /// Header arrival.
    pub(super) arrived: Nanos,
    /// First instant at which it can no longer finish.
    pub(super) late_from: Nanos,
    /// Counts up from waiter to waiter, over all classes.
    pub(super) turn: u64,
    pub(super) state: State,
    /// Whether it is in a line.
    linked: bool,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

/// All lines of one gate.
#[derive(Debug)]
pub(super) struct Lines {
    slots: Vec<Waiter>,
    free: u32,
    ends: [Ends; CLASSES + 1],
    /// Entries in any of the lines.
    linked: u32,
    turns: u64,
}

impl Lines {
    pub(super) const fn new() -> Self {
        let empty = Ends { head: NONE, tail: NONE, len: 0 };
        Self { slots: Vec::new(), free: NONE, ends: [empty; CLASSES + 1], linked: 0, turns: 0 }
    }

    /// Waiters in the lines of all classes.
    pub(super) const fn waiting(&self) -> u32 {
        self.linked - self.ends[READY].len
    }

    /// Whether nobody waits and nobody is to be woken.
    #[inline]
    pub(super) const fn idle(&self) -> bool {
        self.linked == 0
    }

    /// Waiters in the line of one class.
    pub(super) const fn len(&self, class: WorkloadClass) -> u32 {
        self.ends[class.index()].len
    }

    /// Whether no further waiter can be numbered.
    pub(super) const fn exhausted(&self) -> bool {
        self.free == NONE && self.slots.len() >= NONE as usize
    }

    /// The entry of a ticket. Tickets cannot be copied and end with their entry, so there always is one; a ticket of
    /// another gate is a programmer's error.
    pub(super) fn get(&self, id: u32) -> &Waiter {
        &self.slots[id as usize]
    }

    /// First in the line of its class.
    pub(super) fn head(&self, class: WorkloadClass) -> Option<(u32, &Waiter)> {
        let head = self.ends[class.index()].head;
        self.slots.get(head as usize).map(|waiter| (head, waiter))
    }

    /// Next in the same line.
    pub(super) fn after(&self, id: u32) -> Option<u32> {
        let next = self.get(id).next;
        (next != NONE).then_some(next)
    }

    /// Joins the line of its class at the end. The caller has asked [`Lines::exhausted`].
    pub(super) fn enqueue(&mut self, class: WorkloadClass, arrived: Nanos, late_from: Nanos) -> u32 {
        let turn = self.turns;
        self.turns += 1;
        let waiter = Waiter {
            class,
            arrived,
            late_from,
            turn,
            state: State::Queued,
            linked: false,
            prev: NONE,
            next: NONE,
        };
        let id = if self.free == NONE {
            self.slots.push(waiter);
            (self.slots.len() - 1) as u32
        } else {
            let id = self.free;
            self.free = self.slots[id as usize].next;
            self.slots[id as usize] = waiter;
            id
        };
        self.link(id, class.index());
        id
    }

    /// Takes a waiter out of its class's line with a verdict; it is to be woken.
    pub(super) fn decide(&mut self, id: u32, verdict: State) {
        self.unlink(id);
        self.slots[id as usize].state = verdict;
        self.link(id, READY);
    }

    /// The next one to be woken; its entry stays until it is removed.
    #[inline]
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        let id = self.ends[READY].head;
        if id == NONE {
            return None;
        }
        self.unlink(id);
        Some(id)
    }

    /// Ends an entry, from whatever line it is in.
    pub(super) fn remove(&mut self, id: u32) -> Waiter {
        self.unlink(id);
        let waiter = self.slots[id as usize];
        self.slots[id as usize].state = State::Free;
        self.slots[id as usize].next = self.free;
        self.free = id;
        waiter
    }

    fn link(&mut self, id: u32, line: usize) {
        let ends = &mut self.ends[line];
        let tail = std::mem::replace(&mut ends.tail, id);
        ends.len += 1;
        if tail == NONE {
            ends.head = id;
        } else {
            self.slots[tail as usize].next = id;
        }
        let slot = &mut self.slots[id as usize];
        (slot.prev, slot.next, slot.linked) = (tail, NONE, true);
        self.linked += 1;
    }

    fn unlink(&mut self, id: u32) {
        let Waiter { class, state, linked, prev, next, .. } = self.slots[id as usize];
        if !linked {
            return;
        }
        let line = if matches!(state, State::Queued) { class.index() } else { READY };
        let ends = &mut self.ends[line];
        ends.len -= 1;
        if prev == NONE {
            ends.head = next;
        }
        if next == NONE {
            ends.tail = prev;
        }
        if prev != NONE {
            self.slots[prev as usize].next = next;
        }
        if next != NONE {
            self.slots[next as usize].prev = prev;
        }
        let slot = &mut self.slots[id as usize];
        (slot.prev, slot.next, slot.linked) = (NONE, NONE, false);
        self.linked -= 1;
    }
}
