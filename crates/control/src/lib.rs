//! Control: temporal control as pure state machines. No I/O, no async runtime and no clock of its own: time is an
//! argument, so the same code runs in the live process and in the simulator.
//!
//! [`budget`] says whether a piece of work may still start; [`admission`] who may run now, who waits and who is turned
//! away; [`coalescing`] lets identical reads share one flight; [`degradation`] says which optional sections give way, and
//! for how long; [`retry`] whether another attempt is made; [`mode`] whether a mechanism applies to a request at all. The
//! drivers that await on their behalf live in `stack`.

pub mod admission;
pub mod budget;
pub mod coalescing;
pub mod degradation;
pub mod mode;
pub mod retry;
