//! Control: temporal control as pure state machines. No I/O, no async runtime and no clock of its own: time is an
//! argument, so the same code runs in the live process and in the simulator.
//!
//! Here today: [`budget`], which says whether a piece of work may still start. Its siblings, admission, coalescing,
//! degradation and retry, move in beside it with the issues that bring them; the drivers that await on their behalf live
//! in `stack`.

pub mod budget;
