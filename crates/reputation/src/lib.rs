//! Reputation: how the subject's reviews stand.

pub mod decide;
