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

use model::policy::ServiceName;
use runtime::{Host, StartError};
use serve::Routes;
use wire::experiment::v1::experiment_service_server::ExperimentServiceServer;

use crate::{
    ledger::{Ledger, Location, PostgresLedger, SqliteLedger, postgres::Patience},
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
    let policy = &host.policy.exposure;
    let wall = Arc::clone(&host.world.wall);
    let refused = |error: ledger::OpenError| StartError::Failed(error.to_string());
    match location {
        Location::File(path) => {
            let ledger = SqliteLedger::open(path, policy.busy_timeout, wall).await;
            build_over(host, ledger.map_err(refused)?)
        }
        Location::Postgres(database) => {
            let patience = Patience { lock: policy.busy_timeout, step: policy.store_timeout };
            let ledger = PostgresLedger::open(database, patience, wall).await;
            build_over(host, ledger.map_err(refused)?)
        }
    }
}

/// The routes of the service over any ledger. Its writer is started under the host's supervisor and ends, with what was
/// accepted written, once the routes are gone.
///
/// # Errors
/// When the host does not say where the catalogue is.
pub fn build_over(host: &Host, ledger: impl Ledger) -> Result<Routes, StartError> {
    let catalog = host.upstream()?;
    let bounds = Bounds {
        queue_rows_max: host.policy.exposure.queue_max as usize,
        batch_rows_max: host.policy.exposure.batch_max as usize,
        probe_interval: host.policy.exposure.probe_interval,
    };
    let metrics = Arc::new(Metrics::new());
    host.registry.with(|registry| metrics.register(registry));
    let clock = Arc::clone(&host.world.clock);
    let standing = Standing::new(host.readiness.condition(CONDITION));
    let (recorder, writer) = recorder::group_commit(ledger, bounds, Arc::clone(&clock), standing, metrics);
    host.world.tasks.spawn("exposure-writer", Box::pin(writer.run()));
    let reserve = host.policy.service(ServiceName::Experiment).reserve;
    let service = service::Service::new(catalog, recorder, clock, reserve);
    Ok(Routes::new().grpc(ExperimentServiceServer::new(service)))
}
