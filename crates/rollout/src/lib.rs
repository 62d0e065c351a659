//! Rollout: the one ledger of decisions, the phases of the summary's migration, where a process stands by that ledger, and
//! what a process tells of itself. Who decides writes here; who is decided about reads here; neither sees the other.

pub mod ledger;
mod phase;
pub mod report;
mod standing;

pub use phase::{Phase, SUBJECT};
pub use standing::{Standing, StandingError};
