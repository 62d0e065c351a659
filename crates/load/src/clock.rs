//! Clock: the schedule's own thread waits on `CLOCK_MONOTONIC` here, and raises its priority if it may.
//!
//! A runtime timer errs by milliseconds, which is the size of what is being measured; `clock_nanosleep` with an
//! absolute instant errs by the kernel's wake-up delay only, and does not drift.

use std::num::NonZeroU64;

use base::{Clock, Nanos, clock::MonotonicClock};
use rustix::{
    process::{getpriority_process, setpriority_process},
    thread::{ClockId, Timespec, clock_nanosleep_absolute, gettid, set_current_timer_slack},
};
use serde::Serialize;

/// The nice value that the generator's threads ask for.
pub(crate) const NICE: i32 = -10;

/// What the kernel granted to the generator's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Priority {
    /// The nice value in force.
    pub nice: i32,
    /// Whether that is the one that was asked for.
    pub raised: bool,
}

/// Sleeps until `instant`; returns at once when it has passed. Interruptions by signals are slept through.
pub(crate) fn sleep_until(instant: Nanos) {
    let request = Timespec {
        tv_sec: i64::try_from(instant.get() / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(instant.get() % 1_000_000_000).unwrap_or(0),
    };
    while MonotonicClock.now() < instant {
        if clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err_and(|e| e != rustix::io::Errno::INTR)
        {
            return;
        }
    }
}

/// Asks for [`NICE`] and the finest timer slack for the calling thread. Unprivileged users do not get the first; the
/// run is then as good as the machine is idle, and its clock error says so.
pub(crate) fn raise_priority() -> Priority {
    let thread = gettid();
    // Without this the kernel may add 50 us to every wake-up. A refusal costs exactly that much.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let raised = setpriority_process(Some(thread), NICE).is_ok();
    Priority { nice: getpriority_process(Some(thread)).unwrap_or(0), raised }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_never_ends_early_and_a_past_instant_is_no_sleep() {
        let start = MonotonicClock.now();
        let wake = start + Nanos::from_millis(3);
        sleep_until(wake);
        assert!(MonotonicClock.now() >= wake);
        sleep_until(Nanos::ZERO);
        sleep_until(start);
    }

    #[test]
    fn the_priority_reported_is_the_one_in_force() {
        let granted = std::thread::spawn(|| (raise_priority(), getpriority_process(Some(gettid()))))
            .join()
            .expect("the thread ends");
        assert_eq!(granted.1.expect("readable"), granted.0.nice);
        assert_eq!(granted.0.raised, granted.0.nice == NICE);
    }
}
