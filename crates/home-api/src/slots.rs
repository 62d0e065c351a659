//! Slots: one boundary of home-api, a pool of slots with a gate before it, and what a piece of work holds of them.
//!
//! Where the admission mechanism acts, work passes the gate first; in shadow the gate is asked and holds no one. A slot of
//! the pool is taken in either case. With the mechanism on for everybody the gate is the smaller of the two, so that
//! nobody ever waits for the pool.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use base::{Clock, Deadline, Nanos, WorkloadClass, trace::TraceContext};
use control::{admission::Arrival, mode::Decision};
use model::policy::{AdmissionPolicy, Boundary, Mechanism};
use stack::admission::{Admission, Denied, OwnedPermit};

use crate::metrics::{AskOutcome, HomeMetrics};

/// A boundary.
pub(crate) struct Slots {
    boundary: Boundary,
    pool: Admission,
    gate: Admission,
    /// Permits of the gate, or slots of the pool where nothing is admitted by the gate.
    slots: AtomicU32,
    meter: Meter,
    clock: Arc<dyn Clock>,
    metrics: Arc<HomeMetrics>,
}

/// Work that asks for a slot.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) class: WorkloadClass,
    /// Its age counts from here.
    pub(crate) arrived: Nanos,
    /// When it asks.
    pub(crate) now: Nanos,
    /// By when it must be over; `None` where nothing bounds it.
    pub(crate) deadline: Option<Deadline>,
    /// Least time in which it can be of use, reserves included.
    pub(crate) useful: Nanos,
    pub(crate) trace: &'a TraceContext,
}

/// The right to go on. Dropping it gives slot and permit back.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    /// How long it took to get, from the ask.
    waited: Nanos,
    _pool: OwnedPermit,
    _gate: Option<OwnedPermit>,
}

impl Slots {
    pub(crate) fn new(
        boundary: Boundary,
        bounds: &AdmissionPolicy,
        clock: Arc<dyn Clock>,
        metrics: Arc<HomeMetrics>,
    ) -> Self {
        let pool = Admission::new(bounds.pool(), Arc::clone(&clock));
        let gate = Admission::new(bounds.gate(), Arc::clone(&clock));
        let slots = AtomicU32::new(bounds.slots);
        Self { boundary, pool, gate, slots, meter: Meter::default(), clock, metrics }
    }

    /// Other bounds from now on. Nobody loses a slot or a place in line by it; a pool or gate that has become smaller lets nobody
    /// in until it is below its bound.
    pub(crate) fn rebound(&self, bounds: &AdmissionPolicy) {
        if self.pool.config() != bounds.pool() {
            self.pool.reconfigure(bounds.pool());
        }
        if self.gate.config() != bounds.gate() {
            self.gate.reconfigure(bounds.gate());
        }
        self.slots.store(bounds.slots, Ordering::Relaxed);
    }

    /// A slot, now or after a wait. Dropping the future leaves the line.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn enter(self: &Arc<Self>, admission: Decision, ask: Ask<'_>) -> Result<Slot, Denied> {
        let mut counted = Asked { slots: self, class: ask.class, outcome: AskOutcome::Abandoned };
        let arrival = Arrival {
            class: ask.class,
            arrived: ask.arrived,
            deadline: ask.deadline.unwrap_or(Deadline::at(Nanos::MAX)),
            useful: if ask.deadline.is_some() { ask.useful } else { Nanos::ZERO },
        };
        let gate = match self.pass_gate(admission, arrival, ask.now).await {
            Ok(gate) => gate,
            Err(denied) => {
                counted.outcome = AskOutcome::denied(denied);
                return Err(denied);
            }
        };
        let gate_age = gate.as_ref().and_then(OwnedPermit::waited);
        let asked_at = if gate_age.is_some() { self.clock.now() } else { ask.now };
        let pool = match self.pool.acquire_at(arrival, asked_at).await {
            Ok(pool) => pool,
            Err(denied) => {
                counted.outcome = AskOutcome::denied(denied);
                return Err(denied);
            }
        };
        counted.outcome = AskOutcome::Admitted;
        // Whoever had to wait was granted its place at that age; otherwise no time has passed since it asked.
        let begun = match (gate_age, pool.waited()) {
            (None, None) => ask.now,
            _ => self.clock.now(),
        };
        let age = begun.saturating_sub(ask.arrived);
        self.metrics.queue_age(self.boundary, ask.class, age, ask.trace);
        self.meter.begin(begun);
        Ok(Slot { slots: Arc::clone(self), waited: begun.saturating_sub(ask.now), _pool: pool, _gate: gate })
    }

    /// The gate's permit; `None` where the gate has no say, or had a say in shadow that was only recorded.
    async fn pass_gate(
        &self,
        admission: Decision,
        arrival: Arrival,
        now: Nanos,
    ) -> Result<Option<OwnedPermit>, Denied> {
        let record = |intended, actual| self.metrics.decided(Mechanism::Admission, intended, actual);
        if admission.acts() {
            let permit = self.gate.acquire_at(arrival, now).await;
            record(permit.is_err(), permit.is_err());
            return permit.map(Some);
        }
        if admission.computes() {
            // The permit is kept like a real one, so that the gate's figures are those that it would have.
            let intended =
                self.gate.try_admit(arrival.class, arrival.arrived, arrival.deadline, arrival.useful);
            record(intended.is_err(), false);
            return Ok(intended.ok());
        }
        Ok(None)
    }

    /// Which boundary it is.
    pub(crate) const fn boundary(&self) -> Boundary {
        self.boundary
    }

    /// Slots in use, in parts per 10,000 of what the bound in force allows.
    pub(crate) fn occupancy_per_10_000(&self, admission: Decision) -> u32 {
        let bound =
            if admission.acts() { self.gate.config().limit() } else { self.slots.load(Ordering::Relaxed) };
        u32::try_from(self.meter.held() * 10_000 / u64::from(bound.max(1))).unwrap_or(u32::MAX)
    }

    /// What is scraped, at one moment.
    pub(crate) fn observe(&self) -> Standing {
        let (pool, gate) = (self.pool.observe(), self.gate.observe());
        Standing {
            slots: pool.limit,
            limit: gate.limit,
            held: pool.held,
            waiting: pool.waiting + gate.waiting,
            oldest_age: pool.oldest_age.max(gate.oldest_age).unwrap_or(Nanos::ZERO),
            held_time: self.meter.total(self.clock.now()),
        }
    }
}

/// A boundary at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) slots: u32,
    pub(crate) limit: u32,
    pub(crate) held: u32,
    pub(crate) waiting: u32,
    pub(crate) oldest_age: Nanos,
    /// Sum over all slots of the time that each was held.
    pub(crate) held_time: Nanos,
}

impl Slot {
    /// How long it took to get, from the ask.
    pub(crate) const fn waited(&self) -> Nanos {
        self.waited
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.meter.end(self.slots.clock.now());
    }
}

/// Counts an ask by its outcome, wherever it ends.
struct Asked<'a> {
    slots: &'a Slots,
    class: WorkloadClass,
    outcome: AskOutcome,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.slots.metrics.admitted(self.slots.boundary, self.class, self.outcome);
    }
}

/// The exact integral of slots held over time, by two sums: that of all instants at which one was given back, less that of
/// all instants at which one was taken, plus the present once for each that is out. The sums wrap, and their difference
/// does not mind.
#[derive(Debug, Default)]
struct Meter {
    begun: AtomicU64,
    begun_at: AtomicU64,
    ended: AtomicU64,
    ended_at: AtomicU64,
}

impl Meter {
    fn begin(&self, now: Nanos) {
        self.begun_at.fetch_add(now.get(), Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Release);
    }

    fn end(&self, now: Nanos) {
        self.ended_at.fetch_add(now.get(), Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Release);
    }

    fn held(&self) -> u64 {
        let ended = self.ended.load(Ordering::Acquire);
        self.begun.load(Ordering::Acquire).saturating_sub(ended)
    }

    /// Exact while nothing is taken or given back during the read; home-api's own threads are one.
    fn total(&self, now: Nanos) -> Nanos {
        let held = self.held();
        let sums = self.ended_at.load(Ordering::Relaxed).wrapping_sub(self.begun_at.load(Ordering::Relaxed));
        Nanos::new(sums.wrapping_add(held.wrapping_mul(now.get())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meter_integrates_what_is_held() {
        let meter = Meter::default();
        let at = Nanos::from_millis;
        meter.begin(at(1_000));
        meter.begin(at(1_500));
        assert_eq!((meter.held(), meter.total(at(2_000))), (2, at(1_500)));
        meter.end(at(2_000));
        assert_eq!((meter.held(), meter.total(at(3_000))), (1, at(2_500)));
        meter.end(at(3_000));
        assert_eq!((meter.held(), meter.total(at(9_000))), (0, at(2_500)));
    }
}
