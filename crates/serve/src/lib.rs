//! Serve: the process shell. Accepts connections under permits, supervises every task, holds each exchange to its
//! deadline, speaks gRPC and HTTP on one port, answers health, reflection and admin, and drains within a bound.
//!
//! It knows no service: what it hosts are [`Routes`]. A refusal is rendered here, on both faces, by one table
//! ([`render`]), because the shell itself must refuse and the emulator needs the same answers.

mod account;
pub mod admin;
pub mod body;
pub mod connection;
mod count;
pub mod exchange;
pub mod health;
pub mod io;
pub mod lifecycle;
pub mod limits;
pub mod listener;
pub mod metrics;
pub mod reflection;
pub mod render;
pub mod routes;
pub mod shell;
pub mod supervisor;
pub mod telemetry;
mod work;
mod writing;

pub use count::{Open, OpenCount};
pub use exchange::Arrival;
pub use limits::{InForce, Limits, Snapshot};
pub use routes::Routes;
pub use work::{Progress, Work};
