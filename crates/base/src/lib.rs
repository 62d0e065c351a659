//! Base: the vocabulary that every room shares. Plain values, closed enums and the seams to the outside world;
//! no I/O, no async runtime, no transport types.

pub mod clock;
pub mod context;
pub mod deadline;
pub mod headers;
pub mod identity;
pub mod ids;
pub mod inject;
pub mod mix;
pub mod nanos;
pub mod phase;
pub mod refusal;
pub mod tasks;
pub mod timeout;
pub mod trace;
pub mod world;

pub use clock::{Clock, WallClock};
pub use context::CallContext;
pub use deadline::Deadline;
pub use identity::{Identity, Origin, Region, RequestId, Subject, Tenant, WorkloadClass};
pub use nanos::Nanos;
pub use phase::{Dependency, Phase};
pub use refusal::{Reason, Refusal};
pub use world::World;
