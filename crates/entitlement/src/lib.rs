//! Entitlement: what the authenticated subject may do, derived from one version of the tenant's policy.
//!
//! `service` is the gRPC edge and the call to the dependency behind it; the rules are those of `summary::claims`. `relay` is
//! the edge of the stream that tells revocations.

pub mod decide;
mod relay;
mod service;

use runtime::{Host, StartError};
use serve::Routes;
use wire::entitlement::v1::{
    entitlement_service_server::EntitlementServiceServer, revocation_service_server::RevocationServiceServer,
};

/// The routes of the service.
///
/// # Errors
/// When the host does not say where the dependency is.
pub fn build(host: &Host) -> Result<Routes, StartError> {
    let store = host.upstream()?;
    let relay = relay::Relay::new(store.clone());
    let service = service::Service::new(store);
    Ok(Routes::new()
        .grpc(EntitlementServiceServer::new(service))
        .grpc_long_lived(RevocationServiceServer::new(relay)))
}
