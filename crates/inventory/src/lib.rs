//! Inventory: how many of each item can still be promised, after reservations.
//!
//! `decide` holds the rules, `service` the gRPC edge and the call to the dependency behind it.

pub mod decide;
mod service;

use std::sync::Arc;

use runtime::{Host, StartError};
use serve::Routes;
use wire::inventory::v1::inventory_service_server::InventoryServiceServer;

/// The routes of the service.
///
/// # Errors
/// When the host does not say where the dependency is.
pub fn build(host: &Host) -> Result<Routes, StartError> {
    let service = service::Service::new(host.upstream()?, Arc::clone(&host.world.wall));
    Ok(Routes::new().grpc(InventoryServiceServer::new(service)))
}
