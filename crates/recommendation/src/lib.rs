//! Recommendation: items that the subject may like, best first. Optional on the home page.
//!
//! `decide` holds the rules, `service` the gRPC edge and the call to the dependency behind it.

pub mod decide;
mod service;

use runtime::{Host, StartError};
use serve::Routes;
use wire::recommendation::v1::recommendation_service_server::RecommendationServiceServer;

/// The routes of the service.
///
/// # Errors
/// When the host does not say where the dependency is.
pub fn build(host: &Host) -> Result<Routes, StartError> {
    let service = service::Service::new(host.upstream()?);
    Ok(Routes::new().grpc(RecommendationServiceServer::new(service)))
}
