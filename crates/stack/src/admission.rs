//! Admission: the async driver of [`control::admission`]: permits that give themselves back, and futures that wait for
//! one.
//!
//! # What is guaranteed, beside what the gate guarantees
//! - *No leak.* A permit goes back in `Drop`, so on every path: return, `?`, panic, task abort. A future that is dropped
//!   leaves the line; one that had been granted a permit and never looked passes it on.
//! - *No lost wake-up.* Every waiter in line has its waker in the table, or is being woken. The gate's word on whom to wake
//!   is taken and the wakers are removed under the same lock under which the gate decided.
//! - *Prompt expiry.* A waiter has its own timer at the instant from which it gets no permit; the timer moves when
//!   [`Admission::reconfigure`] moves the bounds.
//! - *One lock*, never held across an await, and no foreign code under it that could come back for it: wakers are called
//!   and dropped outside.
//!
//! # What it costs
//! Without a wait: one lock to take a permit and one to give it back, one reference count, no allocation, and no look at the
//! clock; about what tokio's semaphore costs, and less where threads meet (`cargo bench -p bench --bench primitives`). A
//! wait costs a boxed timer, and a place in two tables as long as the greatest number of simultaneous waiters so far.

mod acquire;
mod denied;
mod desk;

use std::{fmt, mem, sync::Arc};

use base::{Clock, Deadline, Nanos, WorkloadClass};
use control::admission::{Arrival, CLASSES, Config, Permit, Standing};

use self::desk::Shared;
pub use self::{acquire::Acquire, denied::Denied};

/// A gate of one process. Clones share it and cost one reference count.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

/// The right to hold one slot of a gate, which goes back when this is dropped. It keeps the gate alive.
#[must_use = "a permit that is dropped at once admits nothing"]
pub struct OwnedPermit {
    shared: Arc<Shared>,
    /// Taken in `Drop`, and nowhere else.
    permit: Option<Permit>,
}

/// A gate at one moment, all of it under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Permits in all.
    pub limit: u32,
    /// Permits out, those included that a waiter has not fetched yet. Above the limit only after that was lowered.
    pub held: u32,
    /// Most permits ever out at one moment since [`Admission::reset_peaks`].
    pub peak: u32,
    /// Waiters in line.
    pub waiting: u32,
    /// How long the oldest head of a line has been here, from header arrival; `None` when nobody waits.
    pub oldest_age: Option<Nanos>,
    /// By class, in the order of [`WorkloadClass::ALL`].
    pub classes: [Standing; CLASSES],
}

impl Admission {
    /// An empty gate, timed by `clock`: the one that arrivals and deadlines were taken from.
    pub fn new(config: Config, clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared::new(config, clock)) }
    }

    /// A permit, now or after a wait. The place in line is taken when the future is first polled.
    ///
    /// `arrived`: when the headers arrived; age counts from here. `useful`: the least time in which the work can be of
    /// use, reserves included. While permits are free `arrived` also serves as the present, which spares a look at the
    /// clock; who asks a while after the arrival says so by [`Admission::acquire_at`].
    ///
    /// # Errors
    /// The future ends with [`Denied`] when the arrival is turned away, or when its time to wait is up.
    ///
    /// # Panics
    /// A future that has to wait panics outside a tokio runtime with timers.
    #[inline]
    pub fn acquire(
        &self,
        class: WorkloadClass,
        arrived: Nanos,
        deadline: Deadline,
        useful: Nanos,
    ) -> Acquire {
        self.acquire_at(Arrival { class, arrived, deadline, useful }, arrived)
    }

    /// [`Admission::acquire`] for work that asks at `now`, some time after it arrived: a permit that comes too late for
    /// it is not handed out.
    #[inline]
    pub fn acquire_at(&self, arrival: Arrival, now: Nanos) -> Acquire {
        Acquire::new(Arc::clone(&self.shared), arrival, now)
    }

    /// A permit if one is free for the class now. Nobody is overtaken by it: while somebody of the class waits, none is.
    /// The arguments are those of [`Admission::acquire`]. The books count a refusal for want of a permit by itself
    /// ([`Books::missed`](control::admission::Books::missed)).
    ///
    /// # Errors
    /// [`Denied::Rejected`]; without a free permit the reason is [`Reject::QueueFull`](control::admission::Reject), for
    /// this caller has no place to wait in.
    #[inline]
    pub fn try_admit(
        &self,
        class: WorkloadClass,
        arrived: Nanos,
        deadline: Deadline,
        useful: Nanos,
    ) -> Result<OwnedPermit, Denied> {
        // Counted before the lock is taken: they share a cache line, which two threads would otherwise lose twice.
        let shared = Arc::clone(&self.shared);
        let arrival = Arrival { class, arrived, deadline, useful };
        match shared.take(&arrival, arrived) {
            Some(permit) => Ok(OwnedPermit::new(shared, permit)),
            None => Self::try_offer(shared, arrival),
        }
    }

    #[inline(never)]
    fn try_offer(shared: Arc<Shared>, arrival: Arrival) -> Result<OwnedPermit, Denied> {
        let mut desk = shared.lock();
        let now = shared.present(&desk, arrival.arrived);
        // Nothing is decided about anybody else: there is nobody to wake.
        let answer = desk.gate.try_offer(arrival, now);
        drop(desk);
        match answer {
            Ok(permit) => Ok(OwnedPermit::new(shared, permit)),
            Err(rejection) => Err(rejection.into()),
        }
    }

    /// Changes limit, partitions, bounds and choice while the gate is in use. Nothing is revoked: who holds a permit keeps
    /// it, who waits keeps the place unless the new bound on age has passed. Whom the new bounds let in is woken. When the
    /// bounds on waiting change every waiter is, so that its timer follows.
    pub fn reconfigure(&self, config: Config) {
        let shared = &self.shared;
        let mut desk = shared.lock();
        let rearm = desk.gate.config().waiting() != config.waiting();
        desk.gate.reconfigure(config, shared.clock.now());
        // Those that are decided about are named by the gate as well; a waker is removed and called once.
        let everyone = if rearm { mem::take(&mut desk.wakers) } else { Vec::new() };
        shared.wake(desk);
        everyone.into_iter().flatten().for_each(std::task::Waker::wake);
    }

    /// The bounds in force.
    pub fn config(&self) -> Config {
        *self.shared.lock().gate.config()
    }

    /// Everything that there is to see, at one moment. The clock is read only when somebody waits.
    pub fn observe(&self) -> Observed {
        let desk = self.shared.lock();
        let gate = &desk.gate;
        let oldest_age = match gate.waiting() {
            0 => None,
            _ => gate.oldest_age(self.shared.clock.now()),
        };
        Observed {
            limit: gate.config().limit(),
            held: gate.held(),
            peak: gate.peak(),
            waiting: gate.waiting(),
            oldest_age,
            classes: WorkloadClass::ALL.map(|class| gate.standing(class)),
        }
    }

    /// Starts peaks anew from what is out now.
    pub fn reset_peaks(&self) {
        self.shared.lock().gate.reset_peaks();
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Observed { limit, held, waiting, .. } = self.observe();
        let mut admission = f.debug_struct("Admission");
        admission
            .field("limit", &limit)
            .field("held", &held)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl OwnedPermit {
    #[inline]
    const fn new(shared: Arc<Shared>, permit: Permit) -> Self {
        Self { shared, permit: Some(permit) }
    }

    fn permit(&self) -> &Permit {
        self.permit.as_ref().expect("it is taken when this is dropped, and not before")
    }

    /// The class that it is charged to.
    pub fn class(&self) -> WorkloadClass {
        self.permit().class()
    }

    /// How old the work was, from header arrival, when a permit came free for it; `None` when it did not have to wait.
    pub fn waited(&self) -> Option<Nanos> {
        self.permit().age()
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.shared.release(permit);
        }
    }
}

impl fmt::Debug for OwnedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit")
            .field("class", &self.class())
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
