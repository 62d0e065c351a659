//! Observe: somebody who looks at every answered page besides the generator, and who may know what is right.

use std::fmt;

use base::{Identity, Nanos};
use wire::home::v2::GetHomeResponse;

/// A page as its caller got it.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Who asked.
    pub identity: &'a Identity,
    /// When the operation was to begin, on the monotonic clock.
    pub asked_at: Nanos,
    /// When its answer was there.
    pub answered_at: Nanos,
    /// The answer.
    pub answer: &'a GetHomeResponse,
}

/// An attempt whose connection or stream was lost before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// When it was sent, on the monotonic clock.
    pub sent_at: Nanos,
    /// When it was lost.
    pub lost_at: Nanos,
}

/// Looks on. Called on the sending thread between two operations, so it must neither wait nor take long.
pub trait Observe: fmt::Debug + Send + Sync {
    /// A page was answered.
    fn answered(&self, page: &Observed<'_>);

    /// An attempt was lost. Nothing is done unless somebody wants to know.
    fn lost(&self, _lost: Lost) {}

    /// Whether it judges the pages. Otherwise the generator goes on holding those of one identity against each other.
    fn judges(&self) -> bool {
        true
    }
}
