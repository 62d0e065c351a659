//! Simulation: the region in virtual time. A discrete-event model of all admission domains over the very admission, coalescing,
//! budget and degradation code that the live services run, the same policy, scenario and workload files, and the latency model
//! that the emulator draws from.
//!
//! Everything is integer nanoseconds and keyed draws: a seed gives the same digits on every machine, whatever runs beside it.
//! [`run`] takes a [`System`] through a [`Course`]; what a run came to ([`Window`]) is merged with others by its observations.

mod boundary;
mod domain;
mod run;
mod servers;
mod spread;
mod system;
mod tally;
mod wheel;

pub use run::{Course, Progress, Second, Window, run};
pub use spread::{SCHEME, Spread};
pub use system::{BOUNDARIES, ClaimsPhase, Hedge, System};
pub use tally::{CAUSES, ClassTally, LATE_AFTER, Metered, Outcome, SECTIONS, SecondTally};
