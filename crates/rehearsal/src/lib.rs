//! Rehearsal: the suite's launcher, and the runs that turn it into evidence.
//!
//! [`suite`] starts the processes and watches them; [`mod@up`] keeps them in the foreground; [`mod@slo`] drives them through
//! peak, slowdown and recovery, before a repair and after it; [`mod@overload`] offers it three times what it carries. [`gates`], [`verdict`] and [`report`] are pure: what was
//! observed goes in, what follows comes out.

pub mod admin;
mod calendar;
pub mod control;
pub mod counterfactual;
pub mod effects;
mod evidence;
pub mod exposures;
pub mod frontier;
pub mod gates;
pub mod html;
pub mod keys;
pub mod knee;
mod measure;
pub mod migrate;
pub mod migration;
pub mod overload;
pub mod profile;
pub mod report;
pub mod revision;
pub mod rollout;
mod scrape;
mod screen;
pub mod simulate;
pub mod slo;
pub mod suite;
pub mod sweep;
pub mod up;
pub mod usage;
pub mod verdict;

pub use ::rollout::ledger;
pub use slo::{Conclusion, Extent, Output, Preset, RehearsalError, SloOptions, slo};
pub use suite::{LaunchError, Member, MigrationFiles, OnChildExit, Suite, SuiteOptions};
pub use up::up;
pub use verdict::Verdict;
