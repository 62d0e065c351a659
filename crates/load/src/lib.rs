//! Load: the open-loop generator. It follows a versioned arrival schedule whatever the suite does, measures latency from
//! the intended start, checks every answer, and says when it was itself the bottleneck.
//!
//! It sees the wire and the model only: not the layers that it measures, so that it cannot share a fault with them.
//!
//! [`run`] takes a [`Plan`] and gives a [`Report`]; [`table`] prints one for people. A run balances:
//! scheduled = completed by outcome + unsent + in flight.

mod assemble;
mod call;
pub mod check;
mod clock;
mod connection;
pub mod flood;
pub mod health;
mod latency;
mod observe;
mod outcome;
mod plan;
mod progress;
pub mod record;
pub mod report;
mod retry;
mod run;
mod schedule;
mod send;
mod slow;
mod source;
mod stop;
pub mod table;
mod tally;

pub use clock::Priority;
pub use connection::CONNECTIONS_MAX;
pub use latency::{Latencies, LatencyMs, SCHEME as HISTOGRAM_SCHEME, bucket_bounds_us};
pub use observe::{Lost, Observe, Observed};
pub use outcome::Outcome;
pub use plan::{
    DILATE_MAX, DURATION_MAX, IN_FLIGHT_MAX, LoadError, Plan, RATE_PERCENT_MAX, Rate, STAGES_MAX, Settle,
    StagePlan, TARGETS_MAX,
};
pub use progress::Progress;
pub use report::Report;
pub use run::{run, run_until};
pub use schedule::BEHIND_MAX;
pub use slow::{SlowMs, Slowest};
pub use source::declared;
pub use stop::Stop;
