//! Home-api: assembles the home page of a subject from seven services within one deadline, on two faces of one port.

mod applied;
mod clients;
mod decide;
mod edge;
mod metrics;
mod observe;
mod page;
mod read_profile;
mod request;
mod serve_page;
mod slots;
mod stack;

use std::sync::Arc;

use runtime::{Host, StartError};
use serve::Routes;
use wire::home::v2::home_service_server::HomeServiceServer;

/// The service, ready to be hosted: gRPC and HTTP by one function.
///
/// # Errors
/// `Usage` when the address of a peer is missing.
pub fn build(host: &Host) -> Result<Routes, StartError> {
    let clients = clients::Clients::new(host)?;
    let home = Arc::new(stack::build(host, clients));
    let observer = observe::Observer::of(&home);
    host.registry.with(|registry| registry.register_collector(Box::new(observer)));
    let http = edge::HttpFace {
        home: Arc::clone(&home),
        authenticator: Arc::clone(&host.authenticator),
        ids: Arc::clone(&host.world.ids),
    };
    Ok(Routes::new().grpc(HomeServiceServer::new(edge::GrpcFace { home })).http(edge::router(http)))
}
