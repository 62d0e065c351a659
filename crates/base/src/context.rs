//! Context: what every hop of one request needs to know, made once at header arrival and handed down by value.

use crate::{Deadline, Identity, Nanos, Origin, RequestId, trace::TraceContext};

/// Most hops that a budget trail records; further ones are left out.
pub const BUDGET_TRAIL_HOPS_MAX: usize = 8;

/// The context of one request in one process. Shared behind an `Arc`; never changed after it was made.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// Who the request is for.
    pub identity: Identity,
    /// Where it comes from.
    pub origin: Origin,
    /// The logical operation, the same for every attempt.
    pub request_id: RequestId,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// When the request's head arrived.
    pub arrived: Nanos,
    /// When it must have been answered in full.
    pub deadline: Deadline,
    /// What remained of the deadline at each hop so far, this one last.
    pub budget_trail: Vec<Nanos>,
    /// The span of this hop.
    pub trace: TraceContext,
    /// W3C vendor state, passed on unread; empty when there was none.
    pub tracestate: String,
}
