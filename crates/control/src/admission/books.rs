//! Admission's books: what was offered and what became of it, by class. They balance after every step.

use std::fmt;

/// Why an arrival was turned away at once. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// The places to wait in are taken, or there are none: the class has none, or the caller would not wait.
    QueueFull,
    /// The deadline has passed, or leaves less than the useful work takes.
    CannotFinish,
    /// It would have to wait, and is as old as a waiter may get: the time went by before it was offered.
    TooOld,
}

impl Reject {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::CannotFinish, Self::TooOld];

    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::CannotFinish => "cannot_finish",
            Self::TooOld => "too_old",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a waiter was dropped without a permit. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// The deadline has passed, or leaves less than the useful work takes.
    CannotFinish,
    /// It reached the greatest age for a waiter.
    TooOld,
}

impl Expiry {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 2] = [Self::CannotFinish, Self::TooOld];

    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CannotFinish => "cannot_finish",
            Self::TooOld => "too_old",
        }
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of the arrivals of one class since the gate was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Arrivals.
    pub offered: u64,
    /// Permits handed to somebody who took them, at once or after a wait.
    pub admitted: u64,
    /// Arrivals that had to wait, whatever became of them. Not an outcome, so not part of the balance.
    pub queued: u64,
    /// Turned away at once, in the order of [`Reject::ALL`].
    pub rejected: [u64; Reject::ALL.len()],
    /// Found no permit and would not wait ([`Gate::try_offer`](super::Gate::try_offer)). They are told
    /// [`Reject::QueueFull`], and are not among those rejected for it.
    pub missed: u64,
    /// Dropped from the queue, in the order of [`Expiry::ALL`].
    pub expired: [u64; Expiry::ALL.len()],
    /// Left the queue by themselves, or had left when their permit came.
    pub abandoned: u64,
    /// Permits that came back from those admitted.
    pub released: u64,
}

/// One class at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Permits out, those included that a waiter has not fetched yet.
    pub held: u32,
    /// Most permits ever out at one moment since [`Gate::reset_peaks`](super::Gate::reset_peaks).
    pub peak: u32,
    /// Waiters in the queue.
    pub waiting: u32,
    /// Waiters that have been granted a permit and have not fetched it.
    pub handed: u32,
    /// What became of the arrivals.
    pub books: Books,
}

impl Standing {
    /// Whether every arrival is accounted for exactly once, and every permit too.
    pub fn balances(&self) -> bool {
        let Books { offered, admitted, rejected, missed, expired, abandoned, released, .. } = self.books;
        let refused = rejected.iter().sum::<u64>() + missed;
        let settled = admitted + refused + expired.iter().sum::<u64>() + abandoned;
        offered == settled + u64::from(self.waiting) + u64::from(self.handed)
            && u64::from(self.held) + released == admitted + u64::from(self.handed)
    }
}
