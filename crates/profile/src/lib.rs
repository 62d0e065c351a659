//! Profile: who the authenticated subject is, and under which policy version that was resolved.
//!
//! `decide` holds the rules, `emit` signs what the subject may do, `service` is the gRPC edge and the call to the dependency behind
//! it.

pub mod decide;
mod emit;
mod service;

use model::policy::ServiceName;
use runtime::{Host, StartError};
use serve::Routes;
use summary::Issuer;
use wire::profile::v1::profile_service_server::ProfileServiceServer;

use emit::Emitter;

/// The routes of the service.
///
/// # Errors
/// When the host does not say where the dependency is, or the policy has summaries emitted and there is no `issuer`.
pub fn build(host: &Host, issuer: Option<Issuer>) -> Result<Routes, StartError> {
    let reserve = host.policy.service(ServiceName::Profile).reserve;
    let emitter = match (host.policy.summary.emit, issuer) {
        (false, _) => None,
        (true, Some(issuer)) => Some(Emitter::new(issuer, host.policy.summary.lifetime)),
        (true, None) => {
            let text = "profile: --summary-key FILE is required, since summary.emit is true in the policy";
            return Err(StartError::Usage(text.to_owned()));
        }
    };
    if let Some(emitter) = &emitter {
        host.registry.with(|registry| emitter.register(registry));
    }
    let wall = std::sync::Arc::clone(&host.world.wall);
    let service = service::Service::new(host.upstream()?, reserve, emitter, wall);
    Ok(Routes::new().grpc(ProfileServiceServer::new(service)))
}
