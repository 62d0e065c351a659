//! The desk: the gate and the wakers of those in line, behind one lock.

use std::{
    hint,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    task::Waker,
};

use base::{Clock, Nanos};
use control::admission::{Arrival, Config, Gate, Permit, WaiterId};

/// Most waiters woken between two holds of the lock.
const WAKE_BATCH_MAX: usize = 32;

/// Pauses before the first look at a lock that was taken; some ten nanoseconds each.
const BACKOFF_PAUSES: u32 = 4;
/// How often that is doubled before the thread goes to sleep, after some microseconds in all.
const BACKOFF_DOUBLINGS: u32 = 6;

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
        match self.desk.try_lock() {
            Ok(desk) => desk,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_contended(),
        }
    }

    /// Whoever finds the lock taken looks again after ever longer pauses. Looking takes the cache line away from the
    /// holder, who has only some nanoseconds' work to do with it; the mutex's own spinning looks all the time, and makes
    /// threads that meet about four times slower. It sleeps when the holder has been put to sleep.
    #[cold]
    #[inline(never)]
    fn lock_contended(&self) -> MutexGuard<'_, Desk> {
        for doubled in 0..BACKOFF_DOUBLINGS {
            for _ in 0..BACKOFF_PAUSES << doubled {
                hint::spin_loop();
            }
            match self.desk.try_lock() {
                Ok(desk) => return desk,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for an arrival, while there are plenty; otherwise nothing has happened. The word that it returns fits a
    /// register, and what becomes of it is put together by the caller, so that it is not copied through memory.
    #[inline(never)]
    pub(super) fn take(&self, arrival: &Arrival, known: Nanos) -> Option<Permit> {
        let mut desk = self.lock();
        if desk.plenty() { desk.gate.take(arrival, known) } else { None }
    }

    /// The instant of an offer: `known` while there is plenty, and the clock's once it matters who can still finish.
    ///
    /// Where `known` is used and the arrival waits all the same (its class is at a bound), the line of its class is empty,
    /// so there is nobody to expire, and its own age is looked at when its timer is set.
    pub(super) fn present(&self, desk: &Desk, known: Nanos) -> Nanos {
        if desk.plenty() { known } else { self.clock.now() }
    }

    /// Gives a permit back, and wakes who got it.
    #[inline]
    pub(super) fn release(&self, permit: Permit) {
        let mut desk = self.lock();
        if !desk.gate.idle() {
            return self.release_to_others(desk, permit);
        }
        desk.gate.release(permit, || self.clock.now());
    }

    #[inline(never)]
    fn release_to_others<'a>(&'a self, mut desk: MutexGuard<'a, Desk>, permit: Permit) {
        desk.gate.release(permit, || self.clock.now());
        self.wake(desk);
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
    /// Whether permits are free and nobody is after one.
    #[inline]
    const fn plenty(&self) -> bool {
        self.gate.idle() && self.gate.has_room()
    }

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
}
