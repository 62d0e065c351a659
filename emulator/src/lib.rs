//! Emulator: deterministic dependencies. Data, latency and faults are keyed draws from a seed; capacity is real; a control
//! port changes what happens and a journal tells what did.
//!
//! The same seed gives the same draws in any process and in any order. Overload queues here, as it would there.

mod body;
mod books;
mod caller;
mod control;
mod copies;
mod dataset;
mod digest;
mod engine;
mod facts;
mod faults;
mod feed;
mod metrics;
mod pool;
mod revocations;
#[cfg(test)]
mod testing;
mod timer;

use std::{io, sync::Arc};

use base::World;
use model::{scale::Scale, scenario::Scenario};
use serve::{Routes, metrics::Registry};

pub use books::JOURNAL_MAX;
pub use digest::digest;
pub use faults::FAULTS_MAX;
pub use revocations::{CLAIMS_DENIED_MAX, CLAIMS_REVOKED_MAX, SUBJECTS_DENIED_MAX};

use crate::{engine::Engine, timer::Alarms};

/// All emulated dependencies of a suite.
pub struct Emulator {
    engine: Arc<Engine>,
}

impl Emulator {
    /// Emulates a scenario for a system of `scale`, from its first phase on. To be called within a runtime; the timer's
    /// task is supervised by `world` and ends when the emulator and its routes are gone.
    ///
    /// # Errors
    /// When the system refuses a timer.
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        scale: Scale,
        world: &World,
        registry: &Registry,
    ) -> io::Result<Self> {
        let alarms = Alarms::start(Arc::clone(&world.clock), &*world.tasks)?;
        let engine = Arc::new(Engine::new(scenario.scaled(scale), seed, Arc::clone(&world.clock), alarms));
        metrics::register(registry, &engine);
        Ok(Self { engine })
    }

    /// The dependencies themselves.
    pub fn facts_routes(&self) -> Routes {
        facts::routes(&self.engine)
    }

    /// The control service, for a port of its own.
    pub fn control_routes(&self) -> Routes {
        control::routes(&self.engine)
    }
}
