//! Tasks: the seam through which lower rooms start work that outlives a call. Nothing is fire-and-forget: whoever
//! implements it supervises, and shutdown drains it.

use std::{future::Future, pin::Pin};

/// Work handed to a supervisor.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// A supervisor of tasks.
pub trait Spawn: Send + Sync + 'static {
    /// Starts `task` under `name`, a bounded label. A task that is offered after shutdown began may be dropped unrun.
    fn spawn(&self, name: &'static str, task: Task);
}
