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

/// Looks on. Called on the sending thread between two operations, so it must neither wait nor take long.
pub trait Observe: fmt::Debug + Send + Sync {
    /// A page was answered.
    fn answered(&self, page: &Observed<'_>);
}
