//! Deadline: one absolute instant on the monotonic clock, set at header arrival and never derived again.

use crate::Nanos;

/// The instant by which a request must be answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Nanos);

impl Deadline {
    /// At an instant of the process's [`Clock`](crate::Clock).
    pub const fn at(instant: Nanos) -> Self {
        Self(instant)
    }

    /// `budget` after `now`.
    pub const fn after(now: Nanos, budget: Nanos) -> Self {
        Self(now.saturating_add(budget))
    }

    /// The instant itself.
    pub const fn instant(self) -> Nanos {
        self.0
    }

    /// What is left at `now`; zero once the deadline has passed.
    pub const fn remaining(self, now: Nanos) -> Nanos {
        self.0.saturating_sub(now)
    }

    /// True from the very instant on: a deadline that equals `now` has passed.
    pub const fn expired(self, now: Nanos) -> bool {
        now.get() >= self.0.get()
    }

    /// This deadline moved `reserve` earlier, so that the caller keeps that much for itself.
    pub const fn less(self, reserve: Nanos) -> Self {
        Self(self.0.saturating_sub(reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_equals_now_has_passed() {
        let deadline = Deadline::after(Nanos::from_millis(10), Nanos::from_millis(5));
        assert!(!deadline.expired(Nanos::new(14_999_999)));
        assert!(deadline.expired(Nanos::from_millis(15)));
        assert_eq!(deadline.remaining(Nanos::from_millis(20)), Nanos::ZERO);
    }

    #[test]
    fn the_end_of_time_does_not_wrap() {
        assert!(!Deadline::after(Nanos::from_secs(1), Nanos::MAX).expired(Nanos::from_secs(9)));
    }
}
