//! Measure: one policy driven through the stages of a plan by a suite of its own, and what was counted on the way.
//!
//! [`drive()`] does, [`Driven`] remembers, [`Measured`] is one state of it in sums and observations, which can be added to
//! those of another run before anything is divided, and [`recovery`] reads the seconds after a slowdown.

mod drive;
mod measured;
mod reading;
pub(crate) mod recovery;
mod sampler;
mod snapshot;

pub(crate) use drive::{Driven, Watch, drive, settle, start_generator, state_of};
pub(crate) use measured::{Measured, timer_lateness_ms};
pub(crate) use snapshot::{Snapshot, scrape};
