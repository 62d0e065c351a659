//! Suite: the real services and the emulator in one process, each on a thread and a runtime of its own, driven over real
//! sockets. One binary, so that it links once.

mod admin;
mod admission;
mod agreement;
mod bounds;
mod budget;
mod cancellation;
mod coalescing;
mod deadlines;
mod degradation;
mod discovery;
mod drain;
mod effects;
mod emulated;
mod exposures;
mod faces;
mod forged;
mod generator;
mod hang_up;
mod harness;
mod identity;
mod legacy;
mod maps;
mod migration;
mod recovery;
mod reload;
mod revocations;
mod shutdown;
mod sockets;
mod statuses;
mod store;
mod strangers;
mod summary;
mod transitions;
