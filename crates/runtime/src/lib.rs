//! Runtime: what the eight services share on top of `serve` and `stack`. The policy snapshot, the authenticator, the
//! context of a call and its way out to the next hop, the ledger and the files that a process follows, and its start.

pub mod authenticate;
pub mod bounds;
pub mod call;
pub mod follow;
pub mod host;
pub mod limits;
pub mod link_metrics;
mod names;
pub mod policy;
pub mod process;
pub mod watched;

pub use authenticate::{Authenticator, HeaderAuthenticator};
pub use call::{
    answer, context, outbound, outbound_endless, outbound_within, progress, quiesced, upstream_error,
};
pub use follow::{Followed, Follower, follow};
pub use host::{Host, StartError};
pub use policy::{Policies, policy};
pub use watched::watch_file;
