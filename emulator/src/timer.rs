//! Timer: sleeps that end within some tens of microseconds of their time, and a record of how late they were.
//!
//! The runtime's own timer ticks in milliseconds, which is a tenth of the latencies that are emulated here. This one is a
//! single timerfd, armed for the earliest of all sleeps, and an ordered map of the sleepers. What it cannot hide is a
//! machine that was busy: so every sleep measures how long after its time it was polled.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use base::{Clock, Nanos, tasks::Spawn};
use hdrhistogram::Histogram;
use prometheus_client::metrics::histogram::Histogram as Buckets;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use serve::metrics::DELAY_BUCKETS;
use tokio::io::unix::AsyncFd;

/// Largest lateness that is told apart, in microseconds: a minute.
const LATENESS_US_MAX: u64 = 60_000_000;

/// The sleepers of a process. Clones share them.
#[derive(Clone)]
pub(crate) struct Alarms(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    /// `None` in tests, which call `fire` themselves.
    kernel: Option<Arc<OwnedFd>>,
    sleepers: Mutex<Sleepers>,
    lateness: Mutex<Histogram<u64>>,
    buckets: Buckets,
}

#[derive(Default)]
struct Sleepers {
    /// By time, then by order of arrival. As many as there are calls in the process.
    waiting: BTreeMap<(Nanos, u64), Waker>,
    next_id: u64,
}

impl Alarms {
    /// Starts the timer's task, which ends when the last handle is gone.
    pub(crate) fn start(clock: Arc<dyn Clock>, tasks: &dyn Spawn) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let kernel = Arc::new(rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?);
        #[expect(
            deprecated,
            reason = "the replacement is unsafe: it asks that the descriptor stay open, which the Arc inside does"
        )]
        let readable = AsyncFd::new(Arc::clone(&kernel))?;
        let alarms = Self::new(clock, Some(kernel));
        tasks.spawn("emulator-timer", Box::pin(drive(readable, Arc::downgrade(&alarms.0))));
        Ok(alarms)
    }

    /// Without a kernel timer: whoever moves the clock calls `fire`.
    #[cfg(test)]
    pub(crate) fn manual(clock: Arc<dyn Clock>) -> Self {
        Self::new(clock, None)
    }

    fn new(clock: Arc<dyn Clock>, kernel: Option<Arc<OwnedFd>>) -> Self {
        Self(Arc::new(Shared {
            clock,
            kernel,
            sleepers: Mutex::default(),
            lateness: Mutex::new(empty_lateness()),
            buckets: Buckets::new(DELAY_BUCKETS),
        }))
    }

    /// Sleeps until an instant of the clock. Cancelled by being dropped.
    pub(crate) fn until(&self, at: Nanos) -> Sleep {
        Sleep { alarms: self.clone(), at, id: None }
    }

    /// Wakes whoever is due.
    #[cfg(test)]
    pub(crate) fn fire(&self) {
        self.0.fire();
    }

    /// Sleepers now.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.0.sleepers().waiting.len()
    }

    /// 99th percentile of the lateness since the start or the last reset; `None` before the first sleep.
    pub(crate) fn lateness_p99(&self) -> Option<Nanos> {
        let lateness = self.0.lateness();
        (!lateness.is_empty()).then(|| Nanos::from_micros(lateness.value_at_quantile(0.99)))
    }

    /// Forgets the lateness so far.
    pub(crate) fn reset_lateness(&self) {
        self.0.lateness().reset();
    }

    /// The lateness as a metric, since the start.
    pub(crate) fn buckets(&self) -> Buckets {
        self.0.buckets.clone()
    }
}

fn empty_lateness() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENESS_US_MAX, 2).expect("constant bounds are valid")
}

impl Shared {
    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lateness(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.lateness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms the kernel for the time from now to `at`, at least a nanosecond: zero would disarm it.
    fn arm(&self, at: Nanos) {
        if let Some(kernel) = &self.kernel {
            set(kernel, at.saturating_sub(self.clock.now()).max(Nanos::new(1)));
        }
    }

    /// Wakes whoever is due and arms the kernel for the next one.
    fn fire(&self) {
        let now = self.clock.now();
        loop {
            let mut sleepers = self.sleepers();
            match sleepers.waiting.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let waker = first.remove();
                    // Woken outside of the lock: a waker may run anything.
                    drop(sleepers);
                    waker.wake();
                }
                Some(first) => return self.arm(first.key().0),
                None => return,
            }
        }
    }

    fn record(&self, lateness: Nanos) {
        self.lateness().saturating_record(lateness.as_micros());
        self.buckets.observe(lateness.as_secs_f64());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Lets the task see that nobody is left.
        if let Some(kernel) = &self.kernel {
            set(kernel, Nanos::new(1));
        }
    }
}

/// Arms a timer once, after `span`.
fn set(kernel: &OwnedFd, span: Nanos) {
    let second = Nanos::from_secs(1).get();
    let value = Timespec { tv_sec: (span.get() / second) as i64, tv_nsec: (span.get() % second) as i64 };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    if let Err(error) = rustix::time::timerfd_settime(kernel, TimerfdTimerFlags::empty(), &once) {
        // The descriptor is ours and the span is in range, so the kernel has no reason to refuse.
        tracing::error!(%error, "the emulator's timer cannot be armed");
    }
}

/// Fires the alarms whenever the kernel's timer expires.
async fn drive(readable: AsyncFd<Arc<OwnedFd>>, alarms: Weak<Shared>) {
    loop {
        let Ok(mut ready) = readable.readable().await else {
            // Only when the runtime shuts down.
            return;
        };
        // The count of expiries does not matter, nor does a failure, which means that the timer was armed anew before it
        // was read. Either way it is unreadable until the next expiry; to find that out by a second read would double the
        // cost of an alarm.
        let mut count = [0_u8; 8];
        let _expiries = rustix::io::read(&**readable.get_ref(), &mut count);
        ready.clear_ready();
        drop(ready);
        let Some(alarms) = alarms.upgrade() else { return };
        alarms.fire();
    }
}

/// A sleep. Ready at its time or at once when that has passed.
pub(crate) struct Sleep {
    alarms: Alarms,
    at: Nanos,
    /// Set while it is among the sleepers.
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.alarms.0);
        let now = shared.clock.now();
        if now >= self.at {
            if self.leave() {
                shared.record(now.saturating_sub(self.at));
            }
            return Poll::Ready(());
        }
        let mut sleepers = shared.sleepers();
        let id = match self.id {
            Some(id) => id,
            None => {
                let id = sleepers.next_id;
                sleepers.next_id += 1;
                id
            }
        };
        let key = (self.at, id);
        let known = sleepers.waiting.get(&key).is_some_and(|waker| waker.will_wake(cx.waker()));
        if !known {
            sleepers.waiting.insert(key, cx.waker().clone());
        }
        if self.id.is_none() && sleepers.waiting.first_key_value().is_some_and(|(first, _)| *first == key) {
            shared.arm(self.at);
        }
        drop(sleepers);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Sleep {
    /// Leaves the sleepers; true if it was ever among them.
    fn leave(&mut self) -> bool {
        let Some(id) = self.id.take() else { return false };
        self.alarms.0.sleepers().waiting.remove(&(self.at, id));
        true
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
