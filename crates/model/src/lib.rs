//! Model: what a user edits, parsed and validated, and the latency model with its keyed draws. Pure: no clock, no I/O,
//! no async runtime.

pub mod draw;
pub mod drill;
pub mod fault;
pub mod faults;
pub mod frontier;
pub mod latency;
pub mod load_profile;
pub mod migration;
pub mod names;
pub mod packet;
pub mod policy;
pub mod read;
pub mod region;
pub mod rollout;
pub mod scale;
pub mod scenario;
pub mod workload;

pub use faults::{Fault, Faults};
pub use scale::Scale;
