//! Wheel: what happens when. A timing wheel over integer nanoseconds: scheduling and taking the next event cost the same
//! however many are waiting.
//!
//! Every event has a number of its own and is scheduled once at a time; it can be taken back. The ring holds what is due within
//! a second; the rare event beyond it waits aside and is looked at once a turn. Within a bucket events are put in order when
//! their time comes, by instant and then by number, so that the order is the same on every machine.

use base::Nanos;

/// Nanoseconds of a bucket, as a power of two: 65.5 us.
const BUCKET_BITS: u32 = 16;
/// Buckets of the ring, as a power of two: a turn takes 1.07 s.
const RING_BITS: u32 = 14;
const RING: usize = 1 << RING_BITS;
const WORDS: usize = RING / 64;
/// End of a list.
const NONE: u32 = u32::MAX;
/// Stands for the event before, of an event that is the first of its bucket.
const HEAD: u32 = u32::MAX - 1;
/// Of an event that waits aside.
const ASIDE: u32 = u32::MAX - 2;

/// Number of an event.
pub(crate) type EventId = u32;

/// When an event is due, and its neighbours in the bucket.
#[derive(Clone, Copy, Debug)]
struct Node {
    at: u64,
    prev: u32,
    next: u32,
}

/// Events by time.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// First event of each bucket.
    heads: Box<[u32]>,
    /// Which buckets have an event.
    occupied: Box<[u64]>,
    /// By event.
    nodes: Vec<Node>,
    /// The bucket that is being emptied, counted from the origin.
    cursor: u64,
    /// What is left of it, the earliest last.
    current: Vec<(u64, EventId)>,
    /// Due after the ring's end.
    far: Vec<(u64, EventId)>,
    /// Events in the ring.
    ringed: usize,
}

impl Wheel {
    /// Empty, at the origin.
    pub(crate) fn new() -> Self {
        Self {
            heads: vec![NONE; RING].into_boxed_slice(),
            occupied: vec![0; WORDS].into_boxed_slice(),
            nodes: Vec::new(),
            cursor: 0,
            current: Vec::new(),
            far: Vec::new(),
            ringed: 0,
        }
    }

    /// Events that have not been taken.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.ringed + self.current.len() + self.far.len()
    }

    /// Schedules an event that is not scheduled now. What lies before the bucket that is being emptied comes next.
    #[inline]
    pub(crate) fn schedule(&mut self, event: EventId, at: Nanos) {
        let at = at.get();
        let needed = event as usize + 1;
        if self.nodes.len() < needed {
            self.nodes.resize(needed, Node { at: 0, prev: NONE, next: NONE });
        }
        self.nodes[event as usize].at = at;
        let bucket = at >> BUCKET_BITS;
        if bucket <= self.cursor {
            let place = self.current.partition_point(|entry| *entry > (at, event));
            self.current.insert(place, (at, event));
        } else if bucket < self.cursor + RING as u64 {
            self.link(event, bucket);
        } else {
            self.nodes[event as usize].prev = ASIDE;
            self.far.push((at, event));
        }
    }

    #[inline]
    fn link(&mut self, event: EventId, bucket: u64) {
        let slot = bucket as usize & (RING - 1);
        let next = std::mem::replace(&mut self.heads[slot], event);
        let node = &mut self.nodes[event as usize];
        (node.prev, node.next) = (HEAD, next);
        if next != NONE {
            self.nodes[next as usize].prev = event;
        }
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.ringed += 1;
    }

    /// Takes an event back that is scheduled.
    pub(crate) fn cancel(&mut self, event: EventId) {
        let Node { at, prev, next } = self.nodes[event as usize];
        let bucket = at >> BUCKET_BITS;
        if bucket <= self.cursor {
            if let Ok(place) = self.current.binary_search_by(|entry| (at, event).cmp(entry)) {
                self.current.remove(place);
            }
            return;
        }
        if prev == ASIDE {
            self.far.retain(|entry| entry.1 != event);
            return;
        }
        self.ringed -= 1;
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        if prev == HEAD {
            let slot = bucket as usize & (RING - 1);
            self.heads[slot] = next;
            if next == NONE {
                self.occupied[slot / 64] &= !(1 << (slot % 64));
            }
        } else {
            self.nodes[prev as usize].next = next;
        }
    }

    /// The earliest event that is due at `limit` or before.
    #[inline]
    pub(crate) fn pop_until(&mut self, limit: Nanos) -> Option<(Nanos, EventId)> {
        loop {
            if let Some(&(at, event)) = self.current.last() {
                if at > limit.get() {
                    return None;
                }
                self.current.pop();
                return Some((Nanos::new(at), event));
            }
            if !self.advance(limit.get() >> BUCKET_BITS) {
                return None;
            }
        }
    }

    /// Moves on to the next bucket with an event, at most to `last`. Whether there is one.
    fn advance(&mut self, last: u64) -> bool {
        while self.cursor < last {
            if self.ringed == 0 {
                // Nothing before the turn in which the first of those aside is due.
                let first = self.far.iter().map(|(at, _)| at >> BUCKET_BITS).min();
                let turn = first.map_or(u64::MAX, |bucket| bucket & !(RING as u64 - 1));
                self.cursor = self.cursor.max(last.min(turn.saturating_sub(1)));
                if self.cursor == last {
                    return false;
                }
            }
            let next = self.cursor + 1;
            // A turn begins: what has come within reach is put into the ring.
            if next & (RING as u64 - 1) == 0 && !self.far.is_empty() {
                self.cursor = next;
                self.reach();
                if self.take(next) || !self.current.is_empty() {
                    return true;
                }
                continue;
            }
            let turn_end = (next | (RING as u64 - 1)).min(last);
            match self.occupied_from(next as usize & (RING - 1), turn_end as usize & (RING - 1)) {
                Some(slot) => {
                    self.cursor = (next & !(RING as u64 - 1)) + slot as u64;
                    return self.take(self.cursor);
                }
                None => self.cursor = turn_end,
            }
        }
        false
    }

    /// The first occupied bucket from `from` to `to`, both included and in one turn.
    fn occupied_from(&self, from: usize, to: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                return (slot <= to).then_some(slot);
            }
            word += 1;
            if word > to / 64 {
                return None;
            }
            bits = self.occupied[word];
        }
    }

    /// Empties the ring's bucket into the current one. Whether it had an event.
    fn take(&mut self, bucket: u64) -> bool {
        let slot = bucket as usize & (RING - 1);
        let mut event = std::mem::replace(&mut self.heads[slot], NONE);
        if event == NONE {
            return false;
        }
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        while event != NONE {
            self.ringed -= 1;
            let Node { at, next, .. } = self.nodes[event as usize];
            self.current.push((at, event));
            event = next;
        }
        self.current.sort_unstable_by(|one, other| other.cmp(one));
        true
    }

    /// Puts into the ring what its coming turn holds.
    fn reach(&mut self) {
        let end = self.cursor + RING as u64;
        let mut far = std::mem::take(&mut self.far);
        far.retain(|&(at, event)| {
            let bucket = at >> BUCKET_BITS;
            let near = bucket < end;
            if near && bucket <= self.cursor {
                let place = self.current.partition_point(|entry| *entry > (at, event));
                self.current.insert(place, (at, event));
            } else if near {
                self.link(event, bucket);
            }
            !near
        });
        self.far = far;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const TURN: u64 = (RING as u64) << BUCKET_BITS;

    fn drain(wheel: &mut Wheel, limit: u64) -> Vec<(u64, EventId)> {
        std::iter::from_fn(|| wheel.pop_until(Nanos::new(limit))).map(|(at, id)| (at.get(), id)).collect()
    }

    #[test]
    fn what_lies_turns_ahead_comes_at_its_time() {
        let mut wheel = Wheel::new();
        for (event, at) in [(0, 5 * TURN + 7), (1, TURN), (2, 0), (3, TURN - 1), (4, 5 * TURN + 6)] {
            wheel.schedule(event, Nanos::new(at));
        }
        assert_eq!(drain(&mut wheel, TURN - 2), [(0, 2)]);
        assert_eq!(drain(&mut wheel, 5 * TURN + 6), [(TURN - 1, 3), (TURN, 1), (5 * TURN + 6, 4)]);
        assert_eq!(wheel.len(), 1);
        assert_eq!(drain(&mut wheel, u64::MAX >> 1), [(5 * TURN + 7, 0)]);
        assert_eq!(wheel.len(), 0);
    }

    proptest! {
        /// Beside an ordered set: the same events at the same time in the same order, scheduled or taken back in between.
        #[test]
        fn it_is_an_ordered_set(
            steps in proptest::collection::vec(
                (0_u64..3 * TURN, 0_u64..TURN / 4, any::<bool>(), any::<prop::sample::Index>()), 1..200,
            ),
        ) {
            let (mut wheel, mut set) = (Wheel::new(), BTreeSet::new());
            let (mut now, mut free): (u64, Vec<EventId>) = (0, (0..64).collect());
            for (ahead, step, near, which) in steps {
                if let Some(event) = free.pop() {
                    let at = now + if near { ahead % (4 << BUCKET_BITS) } else { ahead };
                    wheel.schedule(event, Nanos::new(at));
                    set.insert((at, event));
                }
                if step % 3 == 0 && !set.is_empty() {
                    let taken_back = *set.iter().nth(which.index(set.len())).expect("within");
                    set.remove(&taken_back);
                    wheel.cancel(taken_back.1);
                    free.push(taken_back.1);
                }
                now += step;
                while let Some(first) = set.first().copied().filter(|(at, _)| *at <= now) {
                    set.pop_first();
                    let popped = wheel.pop_until(Nanos::new(now)).map(|(at, id)| (at.get(), id));
                    prop_assert_eq!(popped, Some(first));
                    free.push(first.1);
                    prop_assert_eq!(wheel.len(), set.len());
                }
                prop_assert_eq!(wheel.pop_until(Nanos::new(now)), None);
            }
        }
    }
}
