//! Boundary: one of the two places where work waits for a slot, a pool with a gate before it; the live service's own gates,
//! asked in the same order (`home-api`'s slots).

use base::{Deadline, Nanos, WorkloadClass};
use control::admission::{Arrival, Expiry, Gate, Offer, Permit, Reject, Rejection, Ticket, Verdict};
use model::policy::AdmissionPolicy;

use crate::spread::Spread;

/// Who holds a slot or waits for one: a page or a read, by its place in the domain's table.
pub(crate) type Owner = u32;

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// At capacity.
    Overload,
    /// What is left of the deadline is too little.
    CannotFinish,
}

/// The right to go on; it goes back by [`Boundary::leave`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Slot {
    gate: Option<Permit>,
    pool: Option<Permit>,
    begun: Nanos,
}

impl Slot {
    /// When it was got.
    pub(crate) const fn begun(&self) -> Nanos {
        self.begun
    }
}

/// A place in line.
#[derive(Debug)]
#[must_use]
pub(crate) struct Place {
    /// Held while it waits for the pool.
    gate: Option<Permit>,
    at_pool: bool,
    ticket: Ticket,
    arrival: Arrival,
    /// Ask again at this instant at the latest.
    pub(crate) give_up_at: Nanos,
}

/// What an ask comes to.
#[derive(Debug)]
pub(crate) enum Entered {
    In(Slot),
    /// Boxed, for few wait and everybody has room for a place.
    Waits(Box<Place>),
    Denied(Denied),
}

/// A boundary of one admission domain.
#[derive(Debug)]
pub(crate) struct Boundary {
    gate: Gate,
    pool: Gate,
    /// Whether the pool can ever have somebody wait: not while everybody passes a gate that is no larger.
    pool_binds: bool,
    gate_waiters: Vec<Owner>,
    pool_waiters: Vec<Owner>,
    pub(crate) slots: u32,
    pub(crate) limit: u32,
    held: u32,
    /// Slots held over time, up to `metered_at`.
    held_time: u64,
    metered_at: u64,
    /// Ages at which slots were got since the window began, and in this second.
    pub(crate) ages: Spread,
    pub(crate) ages_now: Spread,
}

impl Boundary {
    /// `gated` says that everybody passes the gate.
    pub(crate) fn new(bounds: &AdmissionPolicy, gated: bool) -> Self {
        let (gate, pool) = (bounds.gate(), bounds.pool());
        Self {
            pool_binds: !gated || gate.limit() > pool.limit(),
            slots: pool.limit(),
            limit: gate.limit(),
            gate: Gate::new(gate),
            pool: Gate::new(pool),
            gate_waiters: Vec::new(),
            pool_waiters: Vec::new(),
            held: 0,
            held_time: 0,
            metered_at: 0,
            ages: Spread::default(),
            ages_now: Spread::coarse(),
        }
    }

    /// Asks for a slot; `gated` says whether admission acts on this piece of work.
    pub(crate) fn enter(&mut self, gated: bool, arrival: Arrival, now: Nanos, owner: Owner) -> Entered {
        if !gated {
            return self.enter_pool(None, arrival, now, owner);
        }
        match self.gate.offer(arrival, now) {
            Offer::Admitted(permit) => self.enter_pool(Some(permit), arrival, now, owner),
            Offer::Queued { ticket, give_up_at } => {
                note(&mut self.gate_waiters, &ticket, owner);
                Entered::Waits(Box::new(Place { gate: None, at_pool: false, ticket, arrival, give_up_at }))
            }
            Offer::Rejected(rejection) => Entered::Denied(rejected(rejection)),
        }
    }

    fn enter_pool(&mut self, gate: Option<Permit>, arrival: Arrival, now: Nanos, owner: Owner) -> Entered {
        if !self.pool_binds {
            return self.begin(gate, None, arrival, now);
        }
        match self.pool.offer(arrival, now) {
            Offer::Admitted(permit) => self.begin(gate, Some(permit), arrival, now),
            Offer::Queued { ticket, give_up_at } => {
                note(&mut self.pool_waiters, &ticket, owner);
                Entered::Waits(Box::new(Place { gate, at_pool: true, ticket, arrival, give_up_at }))
            }
            Offer::Rejected(rejection) => {
                self.release_gate(gate, now);
                Entered::Denied(rejected(rejection))
            }
        }
    }

    fn begin(&mut self, gate: Option<Permit>, pool: Option<Permit>, arrival: Arrival, now: Nanos) -> Entered {
        let age = now - arrival.arrived;
        self.ages.record(age);
        self.ages_now.record(age);
        self.meter(now);
        self.held += 1;
        Entered::In(Slot { gate, pool, begun: now })
    }

    /// Asks where a place stands: when its owner was woken, and when its time to give up has come.
    pub(crate) fn check(&mut self, place: Place, now: Nanos, owner: Owner) -> Entered {
        let Place { gate, at_pool, ticket, arrival, .. } = place;
        let line = if at_pool { &mut self.pool } else { &mut self.gate };
        match line.check(ticket, now) {
            Verdict::Waiting { ticket, give_up_at } => {
                Entered::Waits(Box::new(Place { gate, at_pool, ticket, arrival, give_up_at }))
            }
            Verdict::Granted { permit, .. } if at_pool => self.begin(gate, Some(permit), arrival, now),
            Verdict::Granted { permit, .. } => self.enter_pool(Some(permit), arrival, now, owner),
            Verdict::Dropped { reason, .. } => {
                self.release_gate(gate, now);
                Entered::Denied(match reason {
                    Expiry::CannotFinish => Denied::CannotFinish,
                    Expiry::TooOld => Denied::Overload,
                })
            }
        }
    }

    /// Gives a slot back.
    pub(crate) fn leave(&mut self, slot: Slot, now: Nanos) {
        self.meter(now);
        self.held -= 1;
        if let Some(permit) = slot.pool {
            self.pool.release(permit, || now);
        }
        self.release_gate(slot.gate, now);
    }

    /// Leaves the line.
    pub(crate) fn abandon(&mut self, place: Place, now: Nanos) {
        let line = if place.at_pool { &mut self.pool } else { &mut self.gate };
        line.abandon(place.ticket, || now);
        self.release_gate(place.gate, now);
    }

    fn release_gate(&mut self, permit: Option<Permit>, now: Nanos) {
        if let Some(permit) = permit {
            self.gate.release(permit, || now);
        }
    }

    /// Whom to ask again now.
    #[inline]
    pub(crate) fn next_woken(&mut self) -> Option<Owner> {
        if self.gate.idle() && self.pool.idle() {
            return None;
        }
        if let Some(waiter) = self.gate.next_woken() {
            return Some(self.gate_waiters[waiter.index()]);
        }
        if !self.pool_binds {
            return None;
        }
        self.pool.next_woken().map(|waiter| self.pool_waiters[waiter.index()])
    }

    #[inline]
    fn meter(&mut self, now: Nanos) {
        self.held_time += u64::from(self.held) * (now.get() - self.metered_at);
        self.metered_at = now.get();
    }

    /// Sum over all slots of the time that each was held.
    pub(crate) fn held_time(&mut self, now: Nanos) -> u64 {
        self.meter(now);
        self.held_time
    }

    /// Slots held, in parts per 10,000 of what the bound in force allows.
    pub(crate) fn occupancy_per_10_000(&self, gated: bool) -> u32 {
        let bound = if gated { self.limit } else { self.slots };
        u32::try_from(u64::from(self.held) * 10_000 / u64::from(bound.max(1))).unwrap_or(u32::MAX)
    }

    /// Slots held.
    #[cfg(test)]
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Who waits, at gate and pool.
    #[cfg(test)]
    pub(crate) const fn waiting(&self) -> u32 {
        self.gate.waiting() + self.pool.waiting()
    }

    /// Whether the books of both lines balance, permits out included.
    #[cfg(test)]
    pub(crate) fn balances(&self) -> bool {
        WorkloadClass::ALL
            .iter()
            .all(|class| self.gate.standing(*class).balances() && self.pool.standing(*class).balances())
    }
}

/// The arrival that a boundary is asked for.
pub(crate) fn arrival(
    class: WorkloadClass,
    arrived: Nanos,
    deadline: Option<Deadline>,
    useful: Nanos,
) -> Arrival {
    Arrival {
        class,
        arrived,
        deadline: deadline.unwrap_or(Deadline::at(Nanos::MAX)),
        useful: if deadline.is_some() { useful } else { Nanos::ZERO },
    }
}

fn note(waiters: &mut Vec<Owner>, ticket: &Ticket, owner: Owner) {
    let at = ticket.id().index();
    if waiters.len() <= at {
        waiters.resize(at + 1, 0);
    }
    waiters[at] = owner;
}

const fn rejected(rejection: Rejection) -> Denied {
    match rejection.reason {
        Reject::CannotFinish => Denied::CannotFinish,
        Reject::QueueFull | Reject::TooOld => Denied::Overload,
    }
}
