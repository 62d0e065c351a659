//! Experiment: deterministic allocation of experiment arms, and the durable record that they were shown.
//!
//! `decide` picks arms and says what is recorded, `recorder` commits many requests' records as one, `ledger` keeps them,
//! `service` is the gRPC edge and the call to the catalogue behind it.

pub mod decide;
pub mod ledger;
pub mod metrics;
pub mod recorder;
mod service;

use std::sync::Arc;

use model::policy::Policy;
use runtime::{Host, StartError};
use serve::Routes;
use tokio::sync::watch;
use wire::experiment::v1::experiment_service_server::ExperimentServiceServer;

use crate::{
    ledger::{Ledger, Location, PostgresLedger, SqliteLedger},
    metrics::Metrics,
    recorder::{Bounds, standing::Standing},
};

/// Names the ledger in the process's readiness.
pub const CONDITION: &str = "exposure ledger";

/// The routes of the service over the ledger at `location`, whose file or tables are made when there are none.
///
/// # Errors
/// When there is something else, something damaged or nothing that answers, naming it without its password; or when the
/// host does not say where the catalogue is.
pub async fn build(host: &Host, location: &Location) -> Result<Routes, StartError> {
    let patience = Bounds::of(&host.policies.current().exposure).patience;
    let wall = Arc::clone(&host.world.wall);
    let refused = |error: ledger::OpenError| StartError::Failed(error.to_string());
    match location {
        Location::File(path) => {
            let ledger = SqliteLedger::open(path, patience.lock, wall).await;
            build_over(host, ledger.map_err(refused)?)
        }
        Location::Postgres(database) => {
            let ledger = PostgresLedger::open(database, patience, wall).await;
            build_over(host, ledger.map_err(refused)?)
        }
    }
}

/// The routes of the service over any ledger. Its writer is started under the host's supervisor and ends, with what was
/// accepted written, once the routes are gone. Recorder and writer go by the policy in force.
///
/// # Errors
/// When the host does not say where the catalogue is.
pub fn build_over(host: &Host, ledger: impl Ledger) -> Result<Routes, StartError> {
    let catalog = host.upstream()?;
    let (bounds, in_force) = watch::channel(Bounds::of(&host.policies.current().exposure));
    host.policies.add(move |next: &Arc<Policy>| {
        bounds.send_replace(Bounds::of(&next.exposure));
    });
    let metrics = Arc::new(Metrics::new());
    host.registry.with(|registry| metrics.register(registry));
    let clock = Arc::clone(&host.world.clock);
    let standing = Standing::new(host.readiness.condition(CONDITION));
    let (recorder, writer) = recorder::group_commit(ledger, in_force, Arc::clone(&clock), standing, metrics);
    host.world.tasks.spawn("exposure-writer", Box::pin(writer.inject(host.world.points.clone()).run()));
    let service = service::Service::new(catalog, recorder, clock);
    Ok(Routes::new().grpc(ExperimentServiceServer::new(service)))
}
