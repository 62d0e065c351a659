//! Clock: the only places where time is read. Everything else is handed a clock.

use rustix::time::{ClockId, clock_gettime};

use crate::Nanos;

/// A monotonic clock.
pub trait Clock: Send + Sync + 'static {
    /// Now, since the clock's own origin. Never goes back.
    fn now(&self) -> Nanos;
}

/// The calendar.
pub trait WallClock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch. May jump, so it never measures a span.
    fn unix_ms(&self) -> i64;
}

/// `CLOCK_MONOTONIC`: comparable between processes of one machine, which std's `Instant` is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        let time = clock_gettime(ClockId::Monotonic);
        Nanos::from_secs(time.tv_sec.unsigned_abs()) + Nanos::new(time.tv_nsec.unsigned_abs())
    }
}

/// `CLOCK_REALTIME`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWallClock;

impl WallClock for SystemWallClock {
    fn unix_ms(&self) -> i64 {
        let time = clock_gettime(ClockId::Realtime);
        time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
    }
}

/// CPU time that this process has used, all threads, user and system.
pub fn process_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos::from_secs(time.tv_sec.unsigned_abs()) + Nanos::new(time.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Marks the line of a child's reading.
    const READING: &str = "monotonic nanoseconds: ";

    #[test]
    fn tells_what_it_reads() {
        println!("{READING}{}", MonotonicClock.now().get());
    }

    #[test]
    fn the_monotonic_clock_of_another_process_is_the_same_one() {
        let before = MonotonicClock.now();
        let mut child = Command::new(std::env::current_exe().expect("a test runs from a file"));
        child.args(["--exact", "clock::tests::tells_what_it_reads", "--nocapture"]);
        let told = String::from_utf8(child.output().expect("run").stdout).expect("text");
        let after = MonotonicClock.now();
        let read = told.lines().find_map(|line| line.split(READING).nth(1)).expect("a reading");
        let read = Nanos::new(read.trim().parse().expect("a number"));
        assert!(before < read && read < after, "{before:?} {read:?} {after:?}");
    }
}
