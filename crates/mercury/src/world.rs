//! World: the real clocks, the entropy and the runtime of a process. The only place where they are made.

use std::sync::Arc;

use base::{
    WallClock, World, clock::MonotonicClock, clock::SystemWallClock, ids::IdSource, inject::Points,
    tasks::Spawn,
};
use tokio::runtime::{Builder, Runtime};

use crate::exit::Exit;

/// A calendar that is wrong by so many milliseconds.
struct Off(i64);

impl WallClock for Off {
    fn unix_ms(&self) -> i64 {
        SystemWallClock.unix_ms().saturating_add(self.0)
    }
}

/// The world of a process whose tasks `tasks` supervises, with a calendar that is off by `calendar_offset_ms`.
pub(crate) fn world(tasks: Arc<dyn Spawn>, calendar_offset_ms: i64) -> World {
    World {
        clock: Arc::new(MonotonicClock),
        wall: Arc::new(Off(calendar_offset_ms)),
        ids: Arc::new(IdSource::new(entropy())),
        tasks,
        points: Points::default(),
    }
}

/// 122 bits from the operating system, to seed a process's ids with.
#[expect(clippy::disallowed_methods, reason = "this is the composition root that the ban points to")]
pub(crate) fn entropy() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}

/// A runtime of one thread: eight services and their emulator share few cores, and a second thread would only move
/// work between them.
pub(crate) fn runtime() -> Result<Runtime, Exit> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::Error(format!("cannot start the async runtime: {error}")))
}
