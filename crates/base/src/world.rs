//! World: what a process is handed from outside, so that tests and simulations can hand it something else.

use std::sync::Arc;

use crate::{Clock, WallClock, ids::IdSource, inject::Points, tasks::Spawn};

/// Clocks, ids, the supervisor of tasks and what is to go wrong.
#[derive(Clone)]
pub struct World {
    /// Monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The calendar.
    pub wall: Arc<dyn WallClock>,
    /// Unique ids.
    pub ids: Arc<IdSource>,
    /// Work that outlives a call.
    pub tasks: Arc<dyn Spawn>,
    /// Failures on purpose; none, unless somebody arms them.
    pub points: Points,
}
