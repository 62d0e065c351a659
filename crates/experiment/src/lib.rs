//! Experiment: deterministic allocation of experiment arms, and the durable record that they were shown.
//!
//! `decide` picks arms and says what is recorded, `recorder` commits many requests' records as one, `ledger` keeps them,
//! `service` is the gRPC edge and the call to the catalogue behind it.

pub mod decide;
pub mod ledger;
pub mod metrics;
pub mod recorder;
mod service;

use std::{path::Path, sync::Arc};

use runtime::{Host, StartError};
use serve::Routes;
use wire::experiment::v1::experiment_service_server::ExperimentServiceServer;

use crate::{
    ledger::{Ledger, SqliteLedger},
    metrics::Metrics,
    recorder::Bounds,
};

/// The routes of the service over the ledger file at `ledger_path`, which is created when it does not exist.
///
/// # Errors
/// When the file cannot be used as a ledger, naming it, or when the host does not say where the catalogue is.
pub async fn build(host: &Host, ledger_path: &Path) -> Result<Routes, StartError> {
    let busy_timeout = host.policies.current().exposure.busy_timeout;
    let ledger = SqliteLedger::open(ledger_path, busy_timeout, Arc::clone(&host.world.wall)).await;
    build_over(host, ledger.map_err(|error| StartError::Failed(error.to_string()))?)
}

/// The routes of the service over any ledger. Its writer is started under the host's supervisor and ends, with what was
/// accepted written, once the routes are gone.
///
/// # Errors
/// When the host does not say where the catalogue is.
pub fn build_over(host: &Host, ledger: impl Ledger) -> Result<Routes, StartError> {
    let catalog = host.upstream()?;
    let exposure = host.policies.current().exposure;
    let bounds =
        Bounds { queue_rows_max: exposure.queue_max as usize, batch_rows_max: exposure.batch_max as usize };
    let metrics = Arc::new(Metrics::new());
    host.registry.with(|registry| metrics.register(registry));
    let clock = Arc::clone(&host.world.clock);
    let (recorder, writer) = recorder::group_commit(ledger, bounds, Arc::clone(&clock), metrics);
    host.world.tasks.spawn("exposure-writer", Box::pin(writer.inject(host.world.points.clone()).run()));
    let service = service::Service::new(catalog, recorder, clock);
    Ok(Routes::new().grpc(ExperimentServiceServer::new(service)))
}
