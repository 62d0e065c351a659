//! Reputation: how the subject's reviews stand, with the uncertainty stated. Optional on the home page.
//!
//! `decide` holds the rules, `service` the gRPC edge and the call to the dependency behind it.

pub mod decide;
mod service;

use runtime::{Host, StartError};
use serve::Routes;
use wire::reputation::v1::reputation_service_server::ReputationServiceServer;

/// The routes of the service.
///
/// # Errors
/// When the host does not say where the dependency is.
pub fn build(host: &Host) -> Result<Routes, StartError> {
    let service = service::Service::new(host.upstream()?);
    Ok(Routes::new().grpc(ReputationServiceServer::new(service)))
}
