//! Read: a read of the profile, alone or as a flight that answers everybody who asks for the same one; with its connection,
//! its server at the store, and, where it is hedged, a second read beside it.

use std::{
    hash::{BuildHasherDefault, Hasher},
    ops::{Index, IndexMut},
};

use base::{Deadline, Dependency, Nanos, WorkloadClass, mix};
use control::coalescing::{Ending, FlightId, Role, WaiterId};
use model::policy::Mechanism;

use super::{Domain, PageId, Stage, of_read, outcome, store::Found};
use crate::{
    boundary::{self, Entered, Place, Slot},
    tally::Outcome,
};

/// A read's place in the table.
pub(crate) type ReadId = u32;

/// What pages must have in common to share a read; the rest of home-api's key is the same for all of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    tenant: u32,
    subject: u32,
}

/// Hashes a [`Key`]: both numbers mixed. A simulation meets no caller who chooses its keys.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        mix::mix64(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = mix::fold_bytes(self.0, bytes);
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = self.0 << 32 | u64::from(number);
    }
}

/// Builds [`KeyHasher`]s.
pub(crate) type KeyHash = BuildHasherDefault<KeyHasher>;

/// For whom a read is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    Page(PageId),
    Flight(FlightId),
    /// It is the second read beside another.
    Hedge(ReadId),
}

/// Where a read is.
#[derive(Debug, Default)]
pub(crate) enum At {
    /// Nowhere: between two steps, or over.
    #[default]
    Idle,
    /// It waits in its place for a connection.
    Line,
    /// It waits for a server of the store.
    Store,
    /// It is served; whole unless it will be cut.
    Served { whole: bool },
    /// Its answer is not wanted any more; it holds what it has until it has noticed.
    Stopping,
    /// It waits for the moment at which a hedge is sent for it, while its own call is served until the instant.
    HedgeDue { done: Nanos, whole: bool },
}

/// A read.
#[derive(Debug)]
pub(crate) struct Read {
    whom: For,
    class: WorkloadClass,
    operation: u64,
    /// Distinguishes the draws of a hedge.
    attempt: u32,
    gated: bool,
    /// By when it must be over; `None` where a timeout of its own bounds it from sending.
    limit: Option<Deadline>,
    /// Until when the store may work on it, once it was sent.
    cut: Nanos,
    at: At,
    /// Where it waits for a connection.
    place: Option<Box<Place>>,
    scheduled: bool,
    slot: Option<Slot>,
    /// Whether it was sent to the cell of the hedges.
    in_cell: bool,
    hedge: Option<ReadId>,
    hedgeable: bool,
}

/// Hedges per hundred reads.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget {
    reads: u64,
    hedges: u64,
}

impl HedgeBudget {
    fn take(&mut self, percent_max: u32) -> bool {
        let may = (self.hedges + 1) * 100 <= self.reads * u64::from(percent_max);
        self.hedges += u64::from(may);
        may
    }
}

/// All reads under way.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    table: Vec<Read>,
    free: Vec<ReadId>,
}

impl Reads {
    fn take(&mut self, read: Read) -> ReadId {
        if let Some(id) = self.free.pop() {
            self.table[id as usize] = read;
            return id;
        }
        self.table.push(read);
        (self.table.len() - 1) as ReadId
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.len() == self.free.len()
    }
}

impl Index<ReadId> for Reads {
    type Output = Read;

    fn index(&self, id: ReadId) -> &Read {
        &self.table[id as usize]
    }
}

impl IndexMut<ReadId> for Reads {
    fn index_mut(&mut self, id: ReadId) -> &mut Read {
        &mut self.table[id as usize]
    }
}

impl Domain<'_> {
    /// A page's profile, as the policy says: shared or alone.
    pub(super) fn read_profile(&mut self, page: PageId) {
        if !self.may_run(page, Dependency::Profile) {
            return self.refused(page, Outcome::Deadline);
        }
        let entry = &self.pages[page];
        if entry.acts(Mechanism::Coalescing) {
            return self.share_read(page);
        }
        let enforced = entry.enforced();
        let limit = enforced.map(|deadline| deadline.less(self.terms.rules.response_reserve));
        self.start_read(page, For::Page(page), enforced, limit);
    }

    fn share_read(&mut self, page: PageId) {
        let entry = &self.pages[page];
        let enforced = entry.acts(Mechanism::Deadline);
        let until = if enforced {
            entry.intended.less(self.terms.rules.response_reserve)
        } else {
            Deadline::after(entry.arrived, self.terms.shell)
        };
        let left = until.remaining(self.now);
        if left.is_zero() {
            return self.refused(page, Outcome::Deadline);
        }
        let mut rules = self.system.policy.coalescing;
        rules.duration_max = if enforced { rules.duration_max.min(left) } else { left };
        let key = Key { tenant: entry.tenant, subject: entry.subject };
        let entry = match self.flights.enter(&rules, key, self.now, until, page) {
            Ok(entry) => entry,
            Err(control::coalescing::Refused::Expired) => return self.refused(page, Outcome::Deadline),
            Err(control::coalescing::Refused::FlightsFull) => return self.refused(page, Outcome::Rejected),
        };
        let flight = entry.waiter.flight();
        self.pages[page].stage = Stage::Flight(entry.waiter);
        match entry.role {
            Role::Leader { limit, .. } => {
                // Without a deadline nothing but its own timeout bounds the read, and its waiters leave by themselves.
                if !enforced {
                    self.set_step(page, until.instant());
                }
                let limit = enforced.then_some(limit);
                self.start_read(page, For::Flight(flight), limit, limit);
            }
            Role::Follower { .. } => {
                let read = &self.reads[self.flight_reads[flight.index()]];
                if read.limit.is_none_or(|limit| until < limit) {
                    self.set_step(page, until.instant());
                }
            }
        }
    }

    /// Begins a read in the name of `page`: first of all a connection.
    fn start_read(&mut self, page: PageId, whom: For, ask_by: Option<Deadline>, limit: Option<Deadline>) {
        let entry = &self.pages[page];
        let (class, gated) = (entry.class, entry.acts(Mechanism::Admission));
        let hedgeable = self.system.hedge.is_some_and(|hedge| hedge.classes[class.index()]);
        let read = Read {
            whom,
            class,
            operation: entry.operation,
            attempt: entry.attempt,
            gated,
            limit,
            cut: Nanos::MAX,
            at: At::Idle,
            place: None,
            scheduled: false,
            slot: None,
            in_cell: false,
            hedge: None,
            hedgeable,
        };
        let read = self.reads.take(read);
        match whom {
            For::Page(page) => self.pages[page].stage = Stage::Reading(read),
            For::Flight(flight) => {
                let at = flight.index();
                if self.flight_reads.len() <= at {
                    self.flight_reads.resize(at + 1, 0);
                }
                self.flight_reads[at] = read;
            }
            For::Hedge(_) => {}
        }
        self.hedges.reads += 1;
        let useful = self.terms.worst_useful[Dependency::Profile.index()];
        let ask = boundary::arrival(class, self.now, ask_by, useful);
        let entered = self.profile.enter(gated, ask, self.now, read);
        self.at_connection(read, entered);
    }

    fn at_connection(&mut self, read: ReadId, entered: Entered) {
        match entered {
            Entered::In(slot) => {
                self.reads[read].slot = Some(slot);
                self.send(read);
            }
            Entered::Waits(place) => {
                if place.give_up_at < Nanos::MAX {
                    self.schedule_read(read, place.give_up_at);
                }
                let entry = &mut self.reads[read];
                (entry.at, entry.place) = (At::Line, Some(place));
            }
            Entered::Denied(denied) => self.read_ended(read, Err(outcome(denied))),
        }
    }

    pub(super) fn ask_connection(&mut self, read: ReadId) {
        let Some(place) = self.reads[read].place.take() else { return };
        self.clear_read(read);
        self.reads[read].at = At::Idle;
        let entered = self.profile.check(*place, self.now, read);
        self.at_connection(read, entered);
    }

    /// Until when the store may work on a read that is sent now.
    fn cut(&self, read: ReadId) -> Nanos {
        let profile = Dependency::Profile.index();
        let budget = match self.reads[read].limit {
            Some(limit) => limit,
            None => Deadline::after(self.now, self.terms.independent[profile]),
        };
        budget.less(self.terms.hop_reserve[profile]).instant()
    }

    /// The call leaves.
    fn send(&mut self, read: ReadId) {
        let cut = self.cut(read);
        self.reads[read].cut = cut;
        if cut <= self.now {
            return self.read_ended(read, Err(Outcome::Deadline));
        }
        let now = self.now;
        let found = self.store_of(read).enter(read, now);
        match found {
            Found::Server => self.serve(read),
            Found::Line => {
                self.reads[read].at = At::Store;
                self.schedule_read(read, cut);
            }
            Found::Nothing => self.read_ended(read, Err(Outcome::Unavailable)),
        }
    }

    fn store_of(&mut self, read: ReadId) -> &mut super::Store {
        match &mut self.cell {
            Some(cell) if self.reads[read].in_cell => cell,
            _ => &mut self.store,
        }
    }

    /// A server has the read from now on.
    fn serve(&mut self, read: ReadId) {
        let entry = &self.reads[read];
        let cut = entry.cut;
        let call = self.draws.of_operation(Dependency::Profile, entry.operation, entry.attempt);
        let service = self.phase.dependency(Dependency::Profile).latency.draw(call, entry.class);
        let done = self.now + service;
        let whole = done < cut;
        let end = if whole { done } else { cut };
        if entry.hedgeable
            && let Some(hedge) = &self.system.hedge
            && self.now + hedge.after < end
        {
            let due = self.now + hedge.after;
            self.reads[read].at = At::HedgeDue { done: end, whole };
            return self.schedule_read(read, due);
        }
        self.reads[read].at = At::Served { whole };
        self.schedule_read(read, end);
    }

    /// Serves whoever waits for a server that is free.
    pub(super) fn serve_store(&mut self, cell: bool) {
        loop {
            let now = self.now;
            let store = if cell { self.cell.as_mut() } else { Some(&mut self.store) };
            let Some(read) = store.and_then(|store| store.next(now)) else { return };
            self.clear_read(read);
            self.serve(read);
        }
    }

    /// The read's event.
    pub(super) fn read_step(&mut self, read: ReadId) {
        self.reads[read].scheduled = false;
        match std::mem::take(&mut self.reads[read].at) {
            At::Line => {
                if let Some(place) = self.reads[read].place.take() {
                    let entered = self.profile.check(*place, self.now, read);
                    self.at_connection(read, entered);
                }
            }
            At::Store => {
                self.store_of(read).abandon(read);
                self.read_ended(read, Err(Outcome::Deadline));
            }
            At::Served { whole } => {
                self.release_server(read);
                self.read_ended(read, if whole { Ok(()) } else { Err(Outcome::Deadline) });
            }
            At::HedgeDue { done, whole } => {
                self.reads[read].at = At::Served { whole };
                self.schedule_read(read, done);
                self.send_hedge(read);
            }
            At::Stopping => {
                self.release_server(read);
                self.free_read(read);
            }
            At::Idle => {}
        }
    }

    /// A second read beside `first`, if the budget has one.
    fn send_hedge(&mut self, first: ReadId) {
        let Some(hedge) = self.system.hedge else { return };
        if !self.hedges.take(hedge.percent_max) {
            return;
        }
        let entry = &self.reads[first];
        let (class, gated, limit) = (entry.class, entry.gated, entry.limit);
        let second = Read {
            whom: For::Hedge(first),
            class,
            operation: entry.operation,
            attempt: entry.attempt + (1 << 16),
            gated,
            limit,
            cut: Nanos::MAX,
            at: At::Idle,
            place: None,
            scheduled: false,
            slot: None,
            in_cell: hedge.cell.is_some(),
            hedge: None,
            hedgeable: false,
        };
        let second = self.reads.take(second);
        self.reads[first].hedge = Some(second);
        self.account.hedged();
        if hedge.cell.is_some() {
            return self.send(second);
        }
        let useful = self.terms.worst_useful[Dependency::Profile.index()];
        let ask = boundary::arrival(class, self.now, limit, useful);
        let entered = self.profile.enter(gated, ask, self.now, second);
        self.at_connection(second, entered);
    }

    fn release_server(&mut self, read: ReadId) {
        let (now, in_cell) = (self.now, self.reads[read].in_cell);
        self.store_of(read).release(now);
        self.serve_store(in_cell);
    }

    /// A read is over: what it held is back before anybody is told.
    fn read_ended(&mut self, read: ReadId, result: Result<(), Outcome>) {
        let (whom, hedge) = (self.reads[read].whom, self.reads[read].hedge.take());
        match whom {
            For::Hedge(first) => {
                self.free_read(read);
                self.reads[first].hedge = None;
                if result.is_ok() {
                    let whom = self.reads[first].whom;
                    self.stop_read(first);
                    self.tell(whom, Ok(()));
                }
            }
            _ => {
                if let Some(hedge) = hedge {
                    self.stop_read(hedge);
                }
                self.free_read(read);
                self.tell(whom, result);
            }
        }
    }

    fn tell(&mut self, whom: For, result: Result<(), Outcome>) {
        match whom {
            For::Page(page) => {
                self.pages[page].stage = Stage::Idle;
                self.profile_read(page, result);
            }
            For::Flight(flight) => {
                let ending = if result.is_ok() { Ending::Completed } else { Ending::Failed };
                for page in self.flights.end(flight, ending).into_iter().flatten() {
                    self.clear_step(page);
                    self.pages[page].stage = Stage::Idle;
                    self.profile_read(page, result);
                }
            }
            For::Hedge(_) => {}
        }
    }

    fn profile_read(&mut self, page: PageId, result: Result<(), Outcome>) {
        match result {
            Ok(()) => self.claims(page),
            Err(outcome) => self.refused(page, outcome),
        }
    }

    /// A page takes itself off its flight; the last one ends it.
    pub(super) fn leave_flight(&mut self, waiter: WaiterId) {
        if let Some(left) = self.flights.leave(waiter)
            && let Some(flight) = left.cancelled
        {
            self.cancel_read(self.flight_reads[flight.index()]);
        }
    }

    /// A read that nobody waits for any more, and the one beside it.
    pub(super) fn cancel_read(&mut self, read: ReadId) {
        if let Some(hedge) = self.reads[read].hedge.take() {
            self.cancel_one(hedge);
        }
        self.cancel_one(read);
    }

    /// The loser of two reads: it has to hear of it first.
    fn stop_read(&mut self, read: ReadId) {
        let after = self.system.hedge.map_or(Nanos::ZERO, |hedge| hedge.cancel_after);
        let served = matches!(self.reads[read].at, At::Served { .. } | At::HedgeDue { .. });
        if after.is_zero() || !served {
            return self.cancel_one(read);
        }
        self.clear_read(read);
        self.reads[read].at = At::Stopping;
        self.schedule_read(read, self.now + after);
    }

    fn cancel_one(&mut self, read: ReadId) {
        self.clear_read(read);
        match std::mem::take(&mut self.reads[read].at) {
            At::Line => {
                if let Some(place) = self.reads[read].place.take() {
                    self.profile.abandon(*place, self.now);
                }
            }
            At::Store => self.store_of(read).abandon(read),
            At::Served { .. } | At::HedgeDue { .. } | At::Stopping => self.release_server(read),
            At::Idle => {}
        }
        self.free_read(read);
    }

    fn free_read(&mut self, read: ReadId) {
        if let Some(slot) = self.reads[read].slot.take() {
            self.profile.leave(slot, self.now);
        }
        self.reads.free.push(read);
    }

    fn schedule_read(&mut self, read: ReadId, at: Nanos) {
        self.reads[read].scheduled = true;
        self.wheel.schedule(of_read(read), at);
    }

    fn clear_read(&mut self, read: ReadId) {
        if std::mem::take(&mut self.reads[read].scheduled) {
            self.wheel.cancel(of_read(read));
        }
    }
}
