//! Coalescing: concurrent identical reads share one flight (DESIGN 3.4).
//!
//! A *flight* is one call made on behalf of everybody who waits for it. The caller that starts it is its *leader*, those
//! who join it its *followers*; once it runs they are equals, each a *waiter*. The work belongs to the flight and not to
//! the leader's request, so a leader that goes away harms nobody. This is no cache: an ended flight leaves nothing.
//!
//! **Key.** Two callers may share an answer only if their keys are equal, so the key holds everything that the answer
//! or the right to see it depends on: tenant, subject, authorization policy version, response schema, freshness class.
//! Equal keys are no authorization: the driver checks every caller before it enters and again at delivery.
//!
//! **Joining.** A key has at most one flight that can be joined. A caller joins it unless it is dying, older than the
//! freshness window, without enough time for useful work, or full. Otherwise the caller starts another flight, which
//! becomes the one to join; the older one goes on for those who wait for it.
//!
//! **Time.** A flight has two instants. Its *limit* is fixed when it starts: the longest it may take, whoever waits. Its
//! *deadline* is the latest deadline among all who entered, capped by the limit, so it moves later with a follower that
//! has more time and never earlier. The call upstream must carry the limit: a timeout already sent cannot be extended,
//! and with the leader's own a follower of two seconds would die with a leader of fifty milliseconds. That leaves no late
//! work: a waiter leaves at its own deadline, and the last to leave cancels the flight, at its deadline at the latest.
//!
//! **Ending.** Whichever comes first ends a flight: its work completes, fails, panics or is stopped, it reaches its
//! deadline, or its last waiter leaves. Its key is free at that very moment, so a dying flight is never joined. Everybody
//! who still waits is handed back exactly once, to be told; an error thus reaches that flight's waiters and no one after
//! them. Those who come back for another attempt meet under the key again, and one call is made for all: a failure is no
//! stampede.
//!
//! **Bounds.** [`Rules::waiters_max`] limits how many one failure can hurt; the next caller starts another flight.
//! [`Rules::flights_max`] limits the table; the next flight is refused. Memory is that of the table at its fullest.
//!
//! **Shadow.** Where everybody makes a call of their own and only wants to know what sharing would have saved, a table of
//! `W = ()` is driven by [`Flights::enter`], [`Flights::own_call_ended`] and [`Flights::leave`] alone.
//!
//! The machine starts, awaits and wakes nothing. A driver holds it behind a lock, leaves the value `W` with each waiter
//! (a sender, a request number) and acts on what it is handed back once the lock is released.

mod counts;
mod shadow;
mod slots;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, hash_map},
    hash::{BuildHasher, Hash, RandomState},
};

use base::{Deadline, Nanos};
use smallvec::SmallVec;

use self::slots::{SlotId, Slots};

pub use self::counts::{Counts, NoJoin, Refused};

/// The figures that the rules work with. Each caller brings those of the policy snapshot it was admitted under, so a
/// reload needs no change here, and the freshness classes may differ in theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Greatest age at which a flight is still joined.
    pub freshness_window: Nanos,
    /// Least that must remain of a flight's time, once the caller's own deadline counts, for it to be joined.
    pub useful_min: Nanos,
    /// Longest that a flight may take.
    pub duration_max: Nanos,
    /// Most flights at a time. Lowering it ends none; it refuses new ones until below.
    pub flights_max: u32,
    /// Most callers that wait for one flight at a time, its leader among them. With 1 or 0 nobody joins.
    pub waiters_max: u32,
}

/// Names a flight; worth nothing once the flight has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlightId(SlotId);

impl FlightId {
    /// The flight's place, below the most flights that were ever open at a time. For a driver's table beside this one;
    /// another flight has the place once this one has ended.
    pub const fn index(self) -> usize {
        self.0.index() as usize
    }
}

/// Names a waiter; worth nothing once it was told or has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaiterId {
    flight: FlightId,
    slot: SlotId,
}

impl WaiterId {
    /// The flight it waits for.
    pub const fn flight(self) -> FlightId {
        self.flight
    }
}

/// A caller that waits now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// By this it leaves.
    pub waiter: WaiterId,
    /// The flight's deadline, this caller's own counted.
    pub deadline: Deadline,
    /// What it is to the flight.
    pub role: Role,
}

/// What a caller is to its flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It started the flight: the driver makes the call.
    Leader {
        /// The deadline for the call, fixed.
        limit: Deadline,
        /// Why it did not join the flight that its key had, if there was one.
        instead_of: Option<NoJoin>,
    },
    /// It joined the flight.
    Follower {
        /// Whether it moved the flight's deadline.
        extended: bool,
    },
}

/// A waiter that left.
#[derive(Debug, PartialEq, Eq)]
pub struct Left<W> {
    /// What was left with it.
    pub value: W,
    /// The flight, if this was its last waiter: it has ended, and its work must be cancelled.
    pub cancelled: Option<FlightId>,
}

/// How a flight's work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// With an answer.
    Completed,
    /// With an error.
    Failed,
    /// It panicked.
    Panicked,
    /// It was refused, or let go of unfinished, by whoever runs it: the process is going away.
    Stopped,
}

impl Ending {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Failed, Self::Panicked, Self::Stopped];

    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::Stopped => "stopped",
        }
    }
}

/// Those who are to be told. Most flights have one waiter, for whom nothing is allocated.
pub type Told<W> = SmallVec<[W; 2]>;

/// What became of a flight whose timer fired.
#[derive(Debug, PartialEq, Eq)]
pub enum Expiry<W> {
    /// It has ended, and its work must be cancelled. These are to be told, and may be none but never are twice.
    Ended(Told<W>),
    /// A follower gave it more time: the timer belongs here.
    Until(Deadline),
}

#[derive(Debug)]
struct Flight<K, W> {
    key: K,
    started: Nanos,
    limit: Deadline,
    deadline: Deadline,
    waiters: Slots<W>,
    /// How many ever entered.
    group: u64,
}

impl<K, W> Flight<K, W> {
    /// The deadline that the flight would have with another caller on board.
    fn admit(&self, rules: &Rules, now: Nanos, deadline: Deadline) -> Result<Deadline, NoJoin> {
        let reach = self.deadline.max(deadline).min(self.limit);
        if self.deadline.expired(now) {
            Err(NoJoin::Dying)
        } else if now - self.started > rules.freshness_window {
            Err(NoJoin::Stale)
        } else if reach.remaining(now) < rules.useful_min {
            Err(NoJoin::TooLittleLeft)
        } else if self.waiters.len() >= rules.waiters_max {
            Err(NoJoin::GroupFull)
        } else {
            Ok(reach)
        }
    }
}

/// All flights of one kind of read. `K` is the key, `W` what a driver leaves with each waiter, `S` how keys are hashed: as std
/// does it, where callers choose the keys.
#[derive(Debug)]
pub struct Flights<K, W, S = RandomState> {
    flights: Slots<Flight<K, W>>,
    /// The one flight of each key that can be joined. Always an open one.
    joinable: HashMap<K, SlotId, S>,
    counts: Counts,
}

impl<K, W, S: Default> Default for Flights<K, W, S> {
    fn default() -> Self {
        Self { flights: Slots::new(), joinable: HashMap::default(), counts: Counts::default() }
    }
}

impl<K: Eq + Hash + Clone, W> Flights<K, W> {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<K: Eq + Hash + Clone, W, S: BuildHasher> Flights<K, W, S> {
    /// Lets a caller join the flight of its key, or start one. `deadline` is the caller's own.
    ///
    /// # Errors
    /// [`Refused`] when it can do neither; `value` is dropped.
    pub fn enter(
        &mut self,
        rules: &Rules,
        key: K,
        now: Nanos,
        deadline: Deadline,
        value: W,
    ) -> Result<Entry, Refused> {
        if deadline.expired(now) {
            return Err(self.refuse(Refused::Expired));
        }
        let place = self.joinable.entry(key);
        let mut instead_of = None;
        if let hash_map::Entry::Occupied(current) = &place
            && let Some(flight) = self.flights.get_mut(*current.get())
        {
            match flight.admit(rules, now, deadline) {
                Ok(reach) => {
                    let extended = reach > flight.deadline;
                    flight.deadline = reach;
                    flight.group += 1;
                    let slot = flight.waiters.insert(value);
                    self.counts.joined += 1;
                    let waiter = WaiterId { flight: FlightId(*current.get()), slot };
                    return Ok(Entry { waiter, deadline: reach, role: Role::Follower { extended } });
                }
                Err(reason) => {
                    self.counts.not_joined[reason.index()] += 1;
                    instead_of = Some(reason);
                }
            }
        }
        if self.flights.len() >= rules.flights_max {
            return Err(self.refuse(Refused::FlightsFull));
        }
        let limit = Deadline::after(now, rules.duration_max);
        let deadline = deadline.min(limit);
        let mut waiters = Slots::new();
        let slot = waiters.insert(value);
        let flight = Flight { key: place.key().clone(), started: now, limit, deadline, waiters, group: 1 };
        let id = self.flights.insert(flight);
        place.insert_entry(id);
        self.counts.started += 1;
        let waiter = WaiterId { flight: FlightId(id), slot };
        Ok(Entry { waiter, deadline, role: Role::Leader { limit, instead_of } })
    }

    /// Takes a waiter off its flight: it was cancelled, or its own deadline passed. The last one ends the flight.
    /// `None`, and nothing happens, when it was told or has left.
    pub fn leave(&mut self, waiter: WaiterId) -> Option<Left<W>> {
        let flight = self.flights.get_mut(waiter.flight.0)?;
        let value = flight.waiters.remove(waiter.slot)?;
        self.counts.left += 1;
        let last = flight.waiters.len() == 0;
        if last {
            self.close(waiter.flight);
            self.counts.cancelled += 1;
        }
        Some(Left { value, cancelled: last.then_some(waiter.flight) })
    }

    /// Ends a flight with its work and hands back everybody who waits for it, in no order that means anything.
    /// `None`, and nothing happens, when it has ended: a late answer is for nobody.
    pub fn end(&mut self, flight: FlightId, ending: Ending) -> Option<Told<W>> {
        let told = self.close(flight)?;
        match ending {
            Ending::Completed => self.counts.completed += 1,
            Ending::Failed => self.counts.failed += 1,
            Ending::Panicked => self.counts.panicked += 1,
            Ending::Stopped => self.counts.stopped += 1,
        }
        Some(told)
    }

    /// Ends a flight whose deadline has passed, and says when to ask again otherwise. `None` when it has ended.
    ///
    /// A driver whose waiters all leave at their own deadlines needs this for the limit alone.
    pub fn expire(&mut self, flight: FlightId, now: Nanos) -> Option<Expiry<W>> {
        let deadline = self.deadline(flight)?;
        if !deadline.expired(now) {
            return Some(Expiry::Until(deadline));
        }
        let told = self.close(flight)?;
        self.counts.expired += 1;
        Some(Expiry::Ended(told))
    }

    /// The deadline of an open flight; it only ever moves later.
    pub fn deadline(&self, flight: FlightId) -> Option<Deadline> {
        self.flights.get(flight.0).map(|flight| flight.deadline)
    }

    /// How many wait for an open flight; never zero.
    pub fn waiters(&self, flight: FlightId) -> Option<u32> {
        self.flights.get(flight.0).map(|flight| flight.waiters.len())
    }

    /// How many flights are open.
    pub const fn len(&self) -> u32 {
        self.flights.len()
    }

    /// Whether no flight is open. Then no key and no waiter's value is held either.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    fn refuse(&mut self, reason: Refused) -> Refused {
        self.counts.refused[reason.index()] += 1;
        reason
    }

    /// Takes a flight out of the table, frees its key unless a younger flight has it, and counts who is to be told.
    fn close(&mut self, id: FlightId) -> Option<Told<W>> {
        let flight = self.flights.remove(id.0)?;
        if let hash_map::Entry::Occupied(current) = self.joinable.entry(flight.key)
            && *current.get() == id.0
        {
            current.remove();
        }
        self.counts.group_sum += flight.group;
        self.counts.told += u64::from(flight.waiters.len());
        Some(flight.waiters.into_values())
    }
}
