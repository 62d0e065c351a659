//! Suite: the real services and the emulator in one process, each on a thread and a runtime of its own, driven over real
//! sockets. One binary, so that it links once.

mod admin;
mod bounds;
mod cancellation;
mod deadlines;
mod degradation;
mod drain;
mod emulator;
mod exposures;
mod faces;
mod harness;
mod recovery;
mod wire;
