//! Admission: a process-wide gate that hands out a limited number of permits, partitioned by workload class, and keeps
//! those that must wait in a queue bounded by count and by age (DESIGN 3.3).
//!
//! # What is guaranteed
//! - *The limit.* A permit is handed out only while fewer than the limit are out. Lowering the limit revokes nothing:
//!   new work waits until enough came back.
//! - *Ceilings.* A class that holds its ceiling gets no further permit.
//! - *Floors.* What a class is promised is kept free for it, used or not. While fewer permits than the limit are out, a
//!   class below its floor is neither refused nor kept waiting (but for work that can no longer finish). A floor that is
//!   raised above what is free fills up before any class gets more than its own.
//! - *No lost waiter.* After every call there is no waiter whose class could use a permit that is free.
//! - *Order.* Within a class permits go out in the order of the offers; nobody overtakes.
//! - *No work for nobody.* Who can no longer finish gets no permit: not at the offer, not at dequeue, and not when it
//!   fetches the permit late.
//! - *Books.* Every arrival is accounted for once ([`Standing::balances`]).
//!
//! # What is approximation
//! - *Between classes*, [`Choice::Share`] evens out permits held relative to the ceilings: it is fair by slots at this
//!   moment, not by time, and a class with long work is served as often as its own permits come back. [`Choice::Oldest`]
//!   is one line over all classes, but for those that floors and ceilings hold back.
//! - *Age* counts from header arrival, order from the offer; they differ when arrivals are offered out of turn, so the
//!   oldest waiter reported is the oldest of the heads.
//! - *Expiry* is noticed at dequeue, when the waiter's own timer asks ([`Gate::check`]), when places run out, and in
//!   [`Gate::sweep`]. Until then an expired waiter occupies a place, never a permit.
//! - *The hint* of a rejection is what the head of that line has waited so far, spread over as much again, so that those
//!   refused together do not come back together. It forecasts nothing.
//!
//! # How it is driven
//! The caller holds it behind a lock and gives the time. An arrival asks by [`Gate::offer`], or by [`Gate::try_offer`] if
//! it would not wait; [`Gate::take`] is what either does first. After each call that can decide about a waiter it drains
//! [`Gate::next_woken`] and wakes those named, who then call [`Gate::check`]. Permits and tickets are tokens that cannot
//! be copied: each goes back once, by [`Gate::release`] or by [`Gate::abandon`]. Nothing is allocated, and no clock read,
//! while nobody waits.

mod books;
mod config;
mod line;
mod permit;
mod rules;

use base::{
    Deadline, Nanos, WorkloadClass,
    mix::{below, mix64},
};

use self::line::{Lines, State, Waiter};
pub use self::{
    books::{Books, Expiry, Reject, Standing},
    config::{Bound, Choice, Config, Fault, Faults, LIMIT_MAX, Partition, Settings, WAITERS_MAX, Waiting},
    permit::Permit,
};

/// Number of workload classes.
pub const CLASSES: usize = WorkloadClass::ALL.len();

/// A piece of work that asks for a permit.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its class.
    pub class: WorkloadClass,
    /// When its headers arrived; its age counts from here.
    pub arrived: Nanos,
    /// When it must be over.
    pub deadline: Deadline,
    /// The least time in which the work can be of use, reserves included. Zero: any time left will do.
    pub useful: Nanos,
}

impl Arrival {
    /// First instant at which it can no longer finish. Exactly the useful span is enough, as for a mandatory branch.
    #[inline]
    const fn late_from(&self) -> Nanos {
        let deadline = self.deadline.instant();
        match deadline.get().checked_sub(self.useful.get()) {
            None => Nanos::ZERO,
            Some(_) if self.useful.is_zero() => deadline,
            Some(last_start) => Nanos::new(last_start + 1),
        }
    }
}

/// Names a waiter, for the driver's table of whom to wake. Below the greatest number of simultaneous waiters so far; it
/// is used again once its ticket has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaiterId(u32);

impl WaiterId {
    /// Position in a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A place in the queue. It ends by [`Gate::check`] or [`Gate::abandon`]; one that is dropped instead blocks its place.
#[derive(Debug)]
#[must_use = "a ticket that is neither checked nor abandoned keeps its place, and its permit, for ever"]
pub struct Ticket {
    id: WaiterId,
}

impl Ticket {
    /// The waiter's name.
    pub const fn id(&self) -> WaiterId {
        self.id
    }
}

/// The answer to an arrival.
#[derive(Debug)]
#[must_use]
pub enum Offer {
    /// It may start.
    Admitted(Permit),
    /// It waits.
    Queued {
        /// Its place.
        ticket: Ticket,
        /// Ask again ([`Gate::check`]) when woken, or at this instant.
        give_up_at: Nanos,
    },
    /// It is turned away.
    Rejected(Rejection),
}

/// An arrival that is turned away; it did no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: Reject,
    /// When another attempt makes sense. Never zero.
    pub retry_after: Nanos,
}

/// Where a waiter stands.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// Its turn has not come.
    Waiting {
        /// Its place.
        ticket: Ticket,
        /// Ask again when woken, or at this instant. It moves when the bound on age does.
        give_up_at: Nanos,
    },
    /// It may start.
    Granted {
        /// The right to.
        permit: Permit,
        /// Its age at dequeue, from header arrival.
        age: Nanos,
    },
    /// It gets no permit.
    Dropped {
        /// Why.
        reason: Expiry,
        /// Its age when it was dropped, from header arrival.
        age: Nanos,
    },
}

/// What the gate knows about one class.
#[derive(Debug, Default)]
struct Class {
    held: u32,
    floor: u32,
    ceiling: u32,
    peak: u32,
    handed: u32,
    /// No waiter of the class gives up before this instant; a lower bound, exact after a sweep.
    none_before: Nanos,
    books: Books,
}

/// The gate.
#[derive(Debug)]
pub struct Gate {
    config: Config,
    held: u32,
    peak: u32,
    /// Permits out plus those kept free for floors: the sum over the classes of what is held or promised, the greater.
    committed: u32,
    classes: [Class; CLASSES],
    lines: Lines,
}

impl Gate {
    /// An empty gate. Allocates nothing.
    pub fn new(config: Config) -> Self {
        let mut gate = Self {
            config,
            held: 0,
            peak: 0,
            committed: 0,
            classes: std::array::from_fn(|_| Class::default()),
            lines: Lines::new(),
        };
        gate.apply(config);
        gate
    }

    /// Asks for a permit. `now` may be the instant of arrival itself, when that has only just been taken: an immediate
    /// answer then needs no further look at the clock.
    #[inline]
    pub fn offer(&mut self, arrival: Arrival, now: Nanos) -> Offer {
        if let Some(permit) = self.take(&arrival, now) {
            return Offer::Admitted(permit);
        }
        let late_from = arrival.late_from();
        self.classes[arrival.class.index()].books.offered += 1;
        if now >= late_from {
            return Offer::Rejected(self.reject(arrival.class, Reject::CannotFinish, now));
        }
        self.enqueue(arrival, late_from, now)
    }

    /// Asks for a permit without a wait. Nobody is overtaken by it and nothing is decided about those who wait, so there
    /// is nobody to wake. The books tell such a caller that found no permit ([`Books::missed`]) from one that was refused
    /// a place.
    ///
    /// # Errors
    /// The rejection. Without a free permit its reason is [`Reject::QueueFull`], for this caller has no place to wait in.
    pub fn try_offer(&mut self, arrival: Arrival, now: Nanos) -> Result<Permit, Rejection> {
        if let Some(permit) = self.take(&arrival, now) {
            return Ok(permit);
        }
        self.classes[arrival.class.index()].books.offered += 1;
        if now >= arrival.late_from() {
            return Err(self.reject(arrival.class, Reject::CannotFinish, now));
        }
        Err(self.miss(arrival.class, now))
    }

    /// A permit, if one is free for the arrival and it can finish. Otherwise nothing has happened and nothing is booked:
    /// it is still to be offered. Nobody of a class waits while a permit is free for it, so nobody is overtaken.
    #[inline]
    pub fn take(&mut self, arrival: &Arrival, now: Nanos) -> Option<Permit> {
        let class = arrival.class;
        if now >= arrival.late_from() || !self.may_take(class) {
            return None;
        }
        self.hand_out(class);
        let books = &mut self.classes[class.index()].books;
        books.offered += 1;
        books.admitted += 1;
        Some(Permit::at_once(class))
    }

    /// Takes a permit back. The clock is read only when somebody waits.
    #[inline]
    pub fn release(&mut self, permit: Permit, now: impl FnOnce() -> Nanos) {
        let class = permit.class();
        self.classes[class.index()].books.released += 1;
        self.give_back(class);
        if !self.lines.idle() && self.lines.waiting() > 0 {
            self.dispatch(now());
        }
    }

    /// Asks where a waiter stands: when it was woken, and when its time to give up has come.
    pub fn check(&mut self, ticket: Ticket, now: Nanos) -> Verdict {
        let Ticket { id: WaiterId(id) } = ticket;
        let waiter = *self.lines.get(id);
        let Waiter { class, arrived, late_from, .. } = waiter;
        match waiter.state {
            State::Queued if now < self.give_up_at(&waiter) => {
                Verdict::Waiting { give_up_at: self.give_up_at(&waiter), ticket }
            }
            State::Queued => {
                let (reason, age) = (self.expiry(&waiter), now - arrived);
                self.lines.remove(id);
                self.classes[class.index()].books.expired[reason as usize] += 1;
                Verdict::Dropped { reason, age }
            }
            State::Granted(age) => {
                self.lines.remove(id);
                let entry = &mut self.classes[class.index()];
                entry.handed -= 1;
                if now < late_from {
                    entry.books.admitted += 1;
                    return Verdict::Granted { permit: Permit::after(age, class), age };
                }
                // It was woken in time and came too late: the permit goes to somebody who can still use it.
                entry.books.expired[Expiry::CannotFinish as usize] += 1;
                self.give_back(class);
                self.dispatch(now);
                Verdict::Dropped { reason: Expiry::CannotFinish, age: now - arrived }
            }
            State::Dropped(reason, age) => {
                self.lines.remove(id);
                Verdict::Dropped { reason, age }
            }
            State::Free => unreachable!("a ticket outlives its entry only in another gate"),
        }
    }

    /// Leaves the queue, whatever became of the place: a permit that came meanwhile goes on to the next. The clock is
    /// read only then, and only when somebody waits.
    pub fn abandon(&mut self, ticket: Ticket, now: impl FnOnce() -> Nanos) {
        let Waiter { class, state, .. } = self.lines.remove(ticket.id.0);
        let entry = &mut self.classes[class.index()];
        match state {
            State::Granted(_) => {
                entry.handed -= 1;
                entry.books.abandoned += 1;
                self.give_back(class);
                if self.lines.waiting() > 0 {
                    self.dispatch(now());
                }
            }
            State::Queued => entry.books.abandoned += 1,
            // It had been dropped, and counted, before it left.
            State::Dropped(..) | State::Free => {}
        }
    }

    /// Whom to wake next, in the order in which they were decided about. Each waiter is named once at most; one whose
    /// ticket has ended meanwhile is not named.
    #[inline]
    pub fn next_woken(&mut self) -> Option<WaiterId> {
        self.lines.next_ready().map(WaiterId)
    }

    /// Drops every waiter whose time is up, in all classes; they are to be woken. Costs a walk of the queue only when
    /// somebody's time may be up.
    pub fn sweep(&mut self, now: Nanos) {
        for class in WorkloadClass::ALL {
            self.sweep_class(class, now);
        }
    }

    /// Changes limit, partitions, bounds and choice while the gate is in use. Nothing is revoked: who holds a permit
    /// keeps it, who waits keeps the place unless the new bound on age has passed. Whom the new bounds let in is to be
    /// woken.
    pub fn reconfigure(&mut self, config: Config, now: Nanos) {
        self.apply(config);
        self.sweep(now);
        self.dispatch(now);
    }

    /// The bounds in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Permits out, in all classes. Above the limit only after that was lowered.
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Whether fewer permits than the limit are out. A class may be at a bound of its own all the same.
    #[inline]
    pub const fn has_room(&self) -> bool {
        self.held < self.config.limit()
    }

    /// Most permits ever out at one moment since [`Gate::reset_peaks`].
    pub const fn peak(&self) -> u32 {
        self.peak
    }

    /// Waiters, in all classes.
    pub const fn waiting(&self) -> u32 {
        self.lines.waiting()
    }

    /// Whether nobody waits and nobody is to be woken: a permit that comes back now is nobody's but the next arrival's.
    #[inline]
    pub const fn idle(&self) -> bool {
        self.lines.idle()
    }

    /// One class at this moment.
    pub const fn standing(&self, class: WorkloadClass) -> Standing {
        let Class { held, peak, handed, books, .. } = &self.classes[class.index()];
        Standing { held: *held, peak: *peak, waiting: self.lines.len(class), handed: *handed, books: *books }
    }

    /// How long the oldest head of a line has been here, from header arrival; `None` when nobody waits.
    pub fn oldest_age(&self, now: Nanos) -> Option<Nanos> {
        WorkloadClass::ALL.into_iter().filter_map(|class| self.head_age(class, now)).max()
    }

    /// How long the head of that class's line has been here, from header arrival; `None` when nobody waits.
    pub fn head_age(&self, class: WorkloadClass, now: Nanos) -> Option<Nanos> {
        self.lines.head(class).map(|(_, waiter)| now - waiter.arrived)
    }

    /// Starts peaks anew from what is out now.
    pub fn reset_peaks(&mut self) {
        self.peak = self.held;
        for class in &mut self.classes {
            class.peak = class.held;
        }
    }
}

#[cfg(test)]
mod tests;
