//! Pricing: what the items on the page cost the subject, in integer minor units.
//!
//! `decide` holds the rules, `service` the gRPC edge and the call to the dependency behind it.

pub mod decide;
mod service;

use runtime::{Host, StartError};
use serve::Routes;
use wire::pricing::v1::pricing_service_server::PricingServiceServer;

/// The routes of the service.
///
/// # Errors
/// When the host does not say where the dependency is.
pub fn build(host: &Host) -> Result<Routes, StartError> {
    let service = service::Service::new(host.upstream()?);
    Ok(Routes::new().grpc(PricingServiceServer::new(service)))
}
