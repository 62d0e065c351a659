//! Stack: what drives `control` inside a tokio process, and the client handles that calls leave through. It knows HTTP/2
//! and gRPC's framing and status headers, and no protobuf.
//!
//! Here today: [`Link`], one long-lived HTTP/2 connection to one dependency; [`admission`], the process-wide gate whose
//! permits give themselves back; and [`coalescing`], which makes one call for all who ask for the same thing at the same
//! time.
//!
//! `Link` stands directly on `h2`, the engine under hyper and tonic. Three things that a deadline-keeping client needs
//! are out of reach above it: the budget for small late DATA frames, which otherwise kills a connection after enough
//! cancelled calls; a stream limit in place of an unbounded dispatch queue; and streams that are not tasks, so that a
//! draining process can still finish the calls of the requests that it admitted.

pub mod admission;
pub mod coalescing;

mod backoff;
mod body;
mod call;
mod config;
mod connect;
mod connection;
mod exchange;
mod failure;
mod framing;
mod link;
mod slot;
mod stats;
mod status;
mod tidy;
mod upload;

pub use body::LinkBody;
pub use config::LinkConfig;
pub use connect::{Connect, Connecting, Io, TcpConnect, Transport};
pub use failure::{LOCAL_FAILURE_HEADER, LocalFailure};
pub use link::{CallBudget, InvalidAuthority, Link, LinkTiming, WeakLink};
pub use stats::LinkStats;
