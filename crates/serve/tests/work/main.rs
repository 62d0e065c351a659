//! Work: when the work of a request ends, on every path that a request can take, and what is told of it.

mod connections;
mod long_lived;
mod panics;
mod paths;
mod rig;
