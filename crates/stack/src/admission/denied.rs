//! Denied: why somebody got no permit, and what the caller is told.

use base::{Nanos, Phase, Reason, Refusal};
use control::admission::{Expiry, Reject, Rejection};

/// Least hint for one that waited in vain; zero would invite it back at once.
const RETRY_AFTER_MIN: Nanos = Nanos::from_millis(1);

/// No permit, and why. It did no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Turned away at once.
    Rejected {
        /// Why.
        reason: Reject,
        /// When another attempt makes sense. Never zero.
        retry_after: Nanos,
    },
    /// Dropped from the line.
    Dropped {
        /// Why.
        reason: Expiry,
        /// Its age when it was dropped, from header arrival.
        age: Nanos,
    },
}

impl Denied {
    /// The reason's name in metrics and spans. Bounded.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Rejected { reason, .. } => reason.as_str(),
            Self::Dropped { reason, .. } => reason.as_str(),
        }
    }

    /// What the caller is told: that its deadline ran out in `phase`, or that there is no room and when to come back.
    /// One that waited in vain may come back after as long as it was here; since each grew old at its own time, they do
    /// not come back together.
    pub fn refusal(self, phase: Phase) -> Refusal {
        let overload = |message, retry_after| {
            Refusal::new(Reason::Overload, message).in_phase(phase).retry_after(retry_after)
        };
        match self {
            Self::Rejected { reason: Reject::CannotFinish, .. }
            | Self::Dropped { reason: Expiry::CannotFinish, .. } => Refusal::deadline(phase),
            Self::Rejected { reason: Reject::QueueFull, retry_after } => {
                overload("at capacity, and no place left to wait in", retry_after)
            }
            Self::Rejected { reason: Reject::TooOld, retry_after } => {
                overload("at capacity, and too old to wait", retry_after)
            }
            Self::Dropped { reason: Expiry::TooOld, age } => {
                overload("at capacity, and waited too long", age.max(RETRY_AFTER_MIN))
            }
        }
    }
}

impl From<Rejection> for Denied {
    fn from(Rejection { reason, retry_after }: Rejection) -> Self {
        Self::Rejected { reason, retry_after }
    }
}
