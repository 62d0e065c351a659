//! Rehearsal: the suite's launcher, and the runs that turn it into evidence.
//!
//! [`suite`] starts the processes and watches them; [`mod@up`] keeps them in the foreground; [`mod@slo`] drives them through
//! peak, slowdown and recovery. [`gates`], [`verdict`] and [`report`] are pure: what was observed goes in, what follows
//! comes out.

pub mod admin;
pub mod control;
pub mod gates;

pub mod report;
pub mod revision;
mod scrape;
mod screen;
pub mod slo;
pub mod suite;
pub mod up;
pub mod usage;
pub mod verdict;

pub use slo::{Output, RehearsalError, SloOptions, slo};
pub use suite::{LaunchError, Member, OnChildExit, Suite, SuiteOptions};
pub use up::up;
pub use verdict::Verdict;
