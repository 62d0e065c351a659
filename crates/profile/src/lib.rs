//! Profile: who the authenticated subject is, and under which policy version that was resolved.
//!
//! `decide` holds the rules, `emit` signs what the subject may do, `expand` says whether it does, `service` is the gRPC edge and the call
//! to the dependency behind it.

pub mod decide;
mod emit;
mod expand;
mod service;

use std::{path::PathBuf, sync::Arc};

use model::policy::Policy;
use runtime::{Host, StartError, policy::Part};
use serve::Routes;
use summary::Issuer;
use wire::profile::v1::profile_service_server::ProfileServiceServer;

use emit::Emitter;
use expand::Expand;

/// Files that profile reads besides its policy. Both are about the entitlement summary and its migration.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The key that signs; taken over anew whenever the file changes.
    pub key: Option<PathBuf>,
    /// The ledger of decisions whose phase is served; without it the policy says.
    pub ledger: Option<PathBuf>,
}

/// The routes of the service, and what it adds to the admin port. To be called within a runtime: what it follows is followed by
/// supervised tasks.
///
/// # Errors
/// `Usage` when the host does not say where the dependency is, a file is wrong, or the policy has summaries emitted and there
/// is no key; `Failed` when the ledger cannot be relied on.
pub fn build(host: &Host, files: &Files) -> Result<(Routes, axum::Router), StartError> {
    let wall = &host.world.wall;
    let fitness = Fitness { has_key: files.key.is_some() };
    fitness.fits(&host.policies.current()).map_err(|why| StartError::Usage(format!("profile: {why}")))?;
    host.policies.add(fitness);
    let parse = |text: &str| Issuer::parse(text).map_err(|error| error.to_string());
    let key =
        files.key.as_deref().map(|path| runtime::watch_file(host, "summary_key", path, parse)).transpose()?;
    let emitter = key.map(Emitter::new);
    if let Some(emitter) = &emitter {
        host.registry.with(|registry| emitter.register(registry));
    }
    let instance = host.world.ids.next_u128();
    let expand = Arc::new(Expand::new(emitter, host.policies.clone(), Arc::clone(wall), instance));
    if let Some(path) = &files.ledger {
        runtime::follow(host, path, Arc::clone(&expand) as _)?;
    }
    let told = Arc::clone(&expand);
    let report = axum::routing::get(async move || axum::Json(told.report()));
    let service = service::Service::new(host.upstream()?, expand, Arc::clone(wall));
    let routes = Routes::new().grpc(ProfileServiceServer::new(service));
    Ok((routes, axum::Router::new().route(rollout::report::PATH, report)))
}

/// Which policies the process can go by.
struct Fitness {
    has_key: bool,
}

impl Part for Fitness {
    fn fits(&self, next: &Policy) -> Result<(), String> {
        if next.summary.emit && !self.has_key {
            return Err(
                "summary.emit: is true, which needs a key: start profile with --summary-key FILE".to_owned()
            );
        }
        Ok(())
    }

    fn adopt(&self, _next: &Arc<Policy>) {}
}

#[cfg(test)]
mod tests {
    use model::policy::{SHIPPED, overlay};

    use super::*;

    #[test]
    fn a_policy_that_has_summaries_emitted_needs_a_key() {
        let text = overlay(SHIPPED, ("changes", "[summary]\nemit = true\n")).expect("valid");
        let policy = Policy::parse("changed", &text).expect("valid");
        let why = Fitness { has_key: false }.fits(&policy).expect_err("no key");
        assert!(why.contains("summary.emit") && why.contains("--summary-key"), "{why}");
        assert_eq!(Fitness { has_key: true }.fits(&policy), Ok(()));
        assert_eq!(Fitness { has_key: false }.fits(&Policy::shipped()), Ok(()));
    }
}
