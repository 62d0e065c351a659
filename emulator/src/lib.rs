//! Emulator: deterministic dependencies. Data, latency and faults are keyed draws from a seed; capacity is real; a control
//! port changes what happens and a journal tells what did.
//!
//! The same seed gives the same draws in any process and in any order. Overload queues here, as it would there.

mod call;
mod control;
pub mod dataset;
mod digest;
mod facts;
mod injected;
mod journal;
mod metrics;
mod pool;
mod rules;
#[cfg(test)]
mod testing;
mod timer;

use std::{io, sync::Arc};

use base::World;
use model::{scale::Scale, scenario::Scenario};
use prometheus_client::registry::Unit;
use serve::{Routes, metrics::Registry};
use wire::emulator::v1::{
    emulator_control_service_server::EmulatorControlServiceServer,
    experiment_catalog_service_server::ExperimentCatalogServiceServer,
    model_score_service_server::ModelScoreServiceServer,
    policy_store_service_server::PolicyStoreServiceServer, price_book_service_server::PriceBookServiceServer,
    profile_store_service_server::ProfileStoreServiceServer,
    review_score_service_server::ReviewScoreServiceServer, stock_service_server::StockServiceServer,
};

pub use digest::digest;

use crate::{call::Core, control::Control, facts::Facts, injected::Injecting, timer::Alarms};

/// All emulated dependencies of a suite.
pub struct Emulator {
    core: Arc<Core>,
}

impl Emulator {
    /// Emulates a scenario for a system of `scale`. To be called within a runtime; the timer's task is supervised by
    /// `world`.
    ///
    /// # Errors
    /// When the system refuses a timer.
    pub fn new(
        scenario: Scenario,
        seed: u64,
        scale: Scale,
        world: &World,
        registry: &Registry,
    ) -> io::Result<Self> {
        let timer = Alarms::start(Arc::clone(&world.clock), &*world.tasks)?;
        let core = Core::new(scenario.scaled(scale), seed, world, timer, metrics::Metrics::default());
        let core = Arc::new(core);
        let scraped = metrics::Scraped(Arc::downgrade(&core));
        registry.with(|registry| {
            registry.register_collector(Box::new(scraped));
            let help = "How late the emulator's own timers were";
            registry.register_with_unit("emulated_timer_lateness", help, Unit::Seconds, core.timer.buckets());
        });
        Ok(Self { core })
    }

    /// The dependencies themselves.
    pub fn facts_routes(&self) -> Routes {
        let facts = Facts(Arc::clone(&self.core));
        Routes::new()
            .grpc(self.injecting(ProfileStoreServiceServer::new(facts.clone())))
            .grpc(self.injecting(PolicyStoreServiceServer::new(facts.clone())))
            .grpc(self.injecting(PriceBookServiceServer::new(facts.clone())))
            .grpc(self.injecting(StockServiceServer::new(facts.clone())))
            .grpc(self.injecting(ModelScoreServiceServer::new(facts.clone())))
            .grpc(self.injecting(ReviewScoreServiceServer::new(facts.clone())))
            .grpc(self.injecting(ExperimentCatalogServiceServer::new(facts)))
    }

    /// The control service, for a port of its own.
    pub fn control_routes(&self) -> Routes {
        Routes::new().grpc(EmulatorControlServiceServer::new(Control(Arc::clone(&self.core))))
    }

    fn injecting<S>(&self, inner: S) -> Injecting<S> {
        Injecting { inner, timer: self.core.timer.clone() }
    }
}
