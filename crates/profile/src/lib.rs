//! Profile: who the authenticated subject is, and under which policy version that was resolved.
//!
//! `decide` holds the rules, `service` the gRPC edge and the call to the dependency behind it.

pub mod decide;
mod service;

use model::policy::ServiceName;
use runtime::{Host, StartError};
use serve::Routes;
use wire::profile::v1::profile_service_server::ProfileServiceServer;

/// The routes of the service.
///
/// # Errors
/// When the host does not say where the dependency is.
pub fn build(host: &Host) -> Result<Routes, StartError> {
    let reserve = host.policy.service(ServiceName::Profile).reserve;
    let service = service::Service::new(host.upstream()?, reserve);
    Ok(Routes::new().grpc(ProfileServiceServer::new(service)))
}
