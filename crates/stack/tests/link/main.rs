//! The link against peers that misbehave in every way that the rules name. Peers are h2 servers, or bare frames where a
//! server library would hide the fault; time is paused wherever no real socket is involved.

mod cancellation;
mod connections;
mod deadlines;
mod frames;
mod sockets;
mod statuses;
mod support;
