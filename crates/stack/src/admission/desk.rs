//! The desk: the gate and the wakers of those in line, behind one lock.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use base::{
    Clock, Nanos, WorkloadClass,
    mix::{below, mix64},
};
use control::admission::{Config, Gate, Reject, WaiterId};

use super::Denied;

/// Most waiters woken between two holds of the lock.
const WAKE_BATCH_MAX: usize = 32;

/// What the clones of one gate, its permits and its futures share.
pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    desk: Mutex<Desk>,
}

/// What the lock is for.
pub(super) struct Desk {
    pub(super) gate: Gate,
    /// By [`WaiterId::index`]: as long as the greatest number of simultaneous waiters so far.
    pub(super) wakers: Vec<Option<Waker>>,
}

impl Shared {
    pub(super) fn new(config: Config, clock: Arc<dyn Clock>) -> Self {
        Self { clock, desk: Mutex::new(Desk { gate: Gate::new(config), wakers: Vec::new() }) }
    }

    /// A panic under the lock would be a bug of the gate's. Permits must come back even then: the others' work goes on.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instant of an offer: `known` while there is plenty, and the clock's once it matters who can still finish.
    ///
    /// Where `known` is used and the arrival waits all the same (its class is at a bound), the line of its class is empty,
    /// so there is nobody to expire, and its own age is looked at when its timer is set.
    #[inline]
    pub(super) fn present(&self, desk: &Desk, known: Nanos) -> Nanos {
        let plenty = desk.gate.waiting() == 0 && desk.gate.held() < desk.gate.config().limit();
        if plenty { known } else { self.clock.now() }
    }

    /// Wakes whom the gate names, outside the lock. It ends every hold under which the gate may have decided about a
    /// waiter.
    #[inline]
    pub(super) fn wake<'a>(&'a self, mut desk: MutexGuard<'a, Desk>) {
        if let Some(first) = desk.next_waker() {
            self.wake_from(desk, first);
        }
    }

    #[inline(never)]
    fn wake_from<'a>(&'a self, mut desk: MutexGuard<'a, Desk>, first: Waker) {
        let mut next = Some(first);
        while next.is_some() {
            let mut batch = [const { None }; WAKE_BATCH_MAX];
            let mut filled = 0;
            while filled < WAKE_BATCH_MAX && next.is_some() {
                batch[filled] = next;
                filled += 1;
                next = if filled < WAKE_BATCH_MAX { desk.next_waker() } else { None };
            }
            drop(desk);
            batch.into_iter().flatten().for_each(Waker::wake);
            if filled < WAKE_BATCH_MAX {
                // There was nobody else. Who decides about somebody later wakes them too.
                return;
            }
            desk = self.lock();
            next = desk.next_waker();
        }
    }
}

impl Desk {
    /// The waker of the next one whom the gate names. One without a waker is being woken already.
    #[inline]
    fn next_waker(&mut self) -> Option<Waker> {
        while let Some(id) = self.gate.next_woken() {
            if let Some(waker) = self.remove(id) {
                return Some(waker);
            }
        }
        None
    }

    /// Keeps the waker of one in line. What it replaces is for the caller to drop, outside the lock: the last waker of a
    /// task drops the task, and that may hold a permit.
    pub(super) fn keep(&mut self, id: WaiterId, waker: &Waker) -> Option<Waker> {
        if self.wakers.len() <= id.index() {
            self.wakers.resize_with(id.index() + 1, || None);
        }
        match &mut self.wakers[id.index()] {
            Some(kept) if kept.will_wake(waker) => None,
            place => place.replace(waker.clone()),
        }
    }

    /// Takes a waker out; for the caller to drop outside the lock.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waker> {
        self.wakers.get_mut(id.index()).and_then(Option::take)
    }

    /// The answer to one that will not wait. The hint is as the gate's own: what the head of the line has waited, and as
    /// much again to spread those refused together.
    pub(super) fn no_permit(&self, class: WorkloadClass, now: Nanos) -> Denied {
        let waited = self.gate.head_age(class, now).unwrap_or(Nanos::ZERO);
        let hint = waited.max(self.gate.config().retry_after());
        let spread = Nanos::new(below(mix64(self.gate.standing(class).books.offered), hint.get()));
        Denied::Rejected { reason: Reject::QueueFull, retry_after: hint + spread }
    }
}
