//! Servers: the capacity of a dependency whose calls end at instants that are known when they begin. So many are served at
//! once, so many wait in order of arrival, and a further one is refused, as in the emulator.
//!
//! A call takes the server that comes free first; since the end of every earlier call is known, so is the instant at which
//! this one begins. No event is needed for it, and a call that its caller's deadline cuts gives its server back then.

use base::Nanos;
use model::scenario::Capacity;

/// How a call fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Booking {
    /// It is served from `begin` to `end`; whole unless it was cut.
    Served { begin: Nanos, end: Nanos, whole: bool },
    /// It was cut before a server came free.
    Waited,
    /// The queue is full.
    Refused,
}

/// Servers and the queue before them.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    capacity: Capacity,
    /// When each busy server comes free. Those that are free already are swept out only when there seems to be no room, so
    /// that a call costs a push and, now and then, a walk.
    ends: Vec<u64>,
    /// Until when each call waits that had to.
    waits: Vec<u64>,
    calls: u64,
    served: Nanos,
}

impl Servers {
    pub(crate) fn new(capacity: Capacity) -> Self {
        let ends = Vec::with_capacity(capacity.servers.min(1 << 16) as usize);
        Self { capacity, ends, waits: Vec::new(), calls: 0, served: Nanos::ZERO }
    }

    /// Other bounds from now on. Who is served goes on; servers that are too many go when they come free.
    pub(crate) fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
        let servers = capacity.servers as usize;
        if self.ends.len() > servers {
            self.ends.sort_unstable();
            let surplus = self.ends.len() - servers;
            self.ends.drain(..surplus);
        }
    }

    /// Calls so far, and the time for which servers were taken.
    pub(crate) const fn account(&self) -> (u64, Nanos) {
        (self.calls, self.served)
    }

    /// Books a call that arrives now, needs `service` of a server, and is over at `cut` whether it was served or not.
    #[inline]
    pub(crate) fn book(&mut self, now: Nanos, service: Nanos, cut: Nanos) -> Booking {
        self.calls += 1;
        if self.ends.len() >= self.capacity.servers as usize {
            return self.book_crowded(now, service, cut);
        }
        self.serve(now, service, cut, None)
    }

    #[inline(never)]
    fn book_crowded(&mut self, now: Nanos, service: Nanos, cut: Nanos) -> Booking {
        self.ends.retain(|end| *end > now.get());
        if self.ends.len() < self.capacity.servers as usize {
            return self.serve(now, service, cut, None);
        }
        self.waits.retain(|until| *until > now.get());
        if self.waits.len() >= self.capacity.queue_max as usize {
            return Booking::Refused;
        }
        let first = self.ends.iter().enumerate().min_by_key(|(_, end)| **end);
        let Some((server, begin)) = first.map(|(server, end)| (server, Nanos::new(*end))) else {
            return Booking::Refused; // Without servers nobody is served; a scenario has at least one.
        };
        self.waits.push(begin.min(cut).get());
        if begin >= cut {
            return Booking::Waited;
        }
        self.serve(begin, service, cut, Some(server))
    }

    #[inline]
    fn serve(&mut self, begin: Nanos, service: Nanos, cut: Nanos, server: Option<usize>) -> Booking {
        let done = begin + service;
        // As at the emulator: an answer at the very deadline is none.
        let whole = done < cut;
        let end = if whole { done } else { cut.max(begin) };
        match server {
            Some(server) => self.ends[server] = end.get(),
            None => self.ends.push(end.get()),
        }
        self.served = self.served + (end - begin);
        Booking::Served { begin, end, whole }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Nanos {
        Nanos::new(nanos)
    }

    /// The same, step by step: every nanosecond who is served, and who waits in order.
    struct Slow {
        capacity: Capacity,
        serving: Vec<u64>,
        queue: VecDeque<(usize, u64, u64)>,
        told: Vec<Booking>,
        now: u64,
    }

    impl Slow {
        fn until(&mut self, now: u64) {
            while self.now < now {
                self.now += 1;
                self.serving.retain(|end| *end > self.now);
                self.queue.retain(|(_, _, cut)| *cut > self.now);
                self.admit();
            }
        }

        fn admit(&mut self) {
            while self.serving.len() < self.capacity.servers as usize {
                let Some((call, service, cut)) = self.queue.pop_front() else { return };
                let end = (self.now + service).min(cut);
                self.told[call] =
                    Booking::Served { begin: at(self.now), end: at(end), whole: self.now + service < cut };
                if end > self.now {
                    self.serving.push(end);
                }
            }
        }

        fn book(&mut self, service: u64, cut: u64) {
            let call = self.told.len();
            self.told.push(Booking::Waited);
            if self.serving.len() >= self.capacity.servers as usize
                && self.queue.len() >= self.capacity.queue_max as usize
            {
                self.told[call] = Booking::Refused;
                return;
            }
            self.queue.push_back((call, service, cut));
            self.admit();
        }
    }

    proptest! {
        /// Reckoned at once or lived through, every call fares alike.
        #[test]
        fn booking_foresees_what_happens(
            servers in 1_u32..4, queue_max in 0_u32..4,
            calls in proptest::collection::vec((0_u64..12, 1_u64..30, 1_u64..60), 1..60),
        ) {
            let capacity = Capacity { servers, queue_max };
            let mut fast = Servers::new(capacity);
            let mut slow = Slow { capacity, serving: vec![], queue: VecDeque::new(), told: vec![], now: 0 };
            let (mut booked, mut now) = (Vec::new(), 0);
            for (gap, service, patience) in calls {
                now += gap;
                slow.until(now);
                booked.push(fast.book(at(now), at(service), at(now + patience)));
                slow.book(service, now + patience);
            }
            slow.until(now + 4_000);
            prop_assert_eq!(booked, slow.told);
        }

        #[test]
        fn fewer_servers_serve_no_more_at_once(before in 1_u32..9, after in 1_u32..9, calls in 1_usize..30) {
            let capacity = |servers| Capacity { servers, queue_max: 100 };
            let mut servers = Servers::new(capacity(before));
            for _ in 0..calls {
                let _ = servers.book(at(0), at(10), at(1_000));
            }
            servers.set_capacity(capacity(after));
            prop_assert!(servers.ends.len() <= after as usize);
            let Booking::Served { begin, .. } = servers.book(at(0), at(10), at(1_000)) else {
                return Err(TestCaseError::fail("there is room to wait"));
            };
            let full = calls >= before.min(after) as usize;
            prop_assert!(full || begin == at(0));
        }
    }
}
