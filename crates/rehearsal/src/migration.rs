//! Migration: the desk where the phases of the summary's migration are decided, on what every process says of itself.
//!
//! [`mod@judge`] is pure: what was heard goes in, gates and a verdict come out. [`mod@desk`] asks the processes, judges, and
//! writes the decision into the ledger, which is the one moment at which it counts; the processes follow the ledger by
//! themselves. [`mod@hearing`] is how they are asked, [`mod@print`] what people are shown.

pub mod desk;
pub mod hearing;
pub mod judge;
pub mod print;

#[cfg(test)]
mod example;
#[cfg(test)]
mod tests;

pub use ::rollout::{Phase, SUBJECT, Standing};
pub use desk::{Confirmation, Decided, Desk, DeskError, History, Status, Unconfirmed};
pub use hearing::{Admin, Hearing};
pub use judge::{Case, Heard, Judgement, Question};
