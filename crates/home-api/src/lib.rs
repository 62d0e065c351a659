//! Home-api: assembles the home page of a subject from seven services within one deadline, on two faces of one port.

mod applied;
mod authority;
mod clients;
mod decide;
mod edge;
mod entitle;
mod era;
mod marks_file;
mod metrics;
mod migration;
mod observe;
mod page;
mod read_profile;
mod request;
mod revocations;
mod serve_page;
mod shadow;
mod slots;
mod stack;
mod tally;

use std::{
    path::PathBuf,
    sync::{Arc, Weak},
};

use base::Dependency;
use control::mode::Mode;
use model::policy::{Mechanism, Policy};
use runtime::{Host, StartError, policy::Part};
use serve::Routes;
use summary::{KeySet, Verifier};
use wire::home::v2::home_service_server::HomeServiceServer;

/// Files that home-api reads besides its policy. All of them are about the entitlement summary and its migration.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The keys whose signatures are accepted; taken over anew whenever the file changes.
    pub keys: Option<PathBuf>,
    /// Where the tenants' marks are kept.
    pub marks: Option<PathBuf>,
    /// The ledger of decisions whose phase is served; without it the policy says.
    pub ledger: Option<PathBuf>,
}

/// The service, ready to be hosted: gRPC and HTTP by one function, and what it adds to the admin port. To be called within a
/// runtime: what it follows is followed by supervised tasks.
///
/// # Errors
/// `Usage` when the address of a peer or a needed file is missing, or a file is wrong; `Failed` when marks or ledger cannot
/// be relied on.
pub fn build(host: &Host, files: &Files) -> Result<(Routes, axum::Router), StartError> {
    let fitness = Fitness { has_keys: files.keys.is_some(), has_marks: files.marks.is_some() };
    fitness.fits(&host.policies.current()).map_err(|why| StartError::Usage(format!("home-api: {why}")))?;
    host.policies.add(fitness);
    let verifier = |text: &str| KeySet::parse(text).map(Verifier::new).map_err(|error| error.to_string());
    let keys = files.keys.as_deref().map(|path| runtime::watch_file(host, "summary_keys", path, verifier));
    let keys = keys.transpose()?;
    let opened = files.marks.as_deref().map(marks_file::open).transpose();
    let opened = opened.map_err(|error| StartError::Failed(format!("home-api: {error}")))?;
    let persists = opened.is_some();
    let (marks, lock) = opened.map_or_else(Default::default, |(marks, lock)| (marks, Some(lock)));
    let known = stack::Known { keys, persists, marks };
    let clients = clients::Clients::new(host)?;
    let home = Arc::new(stack::build(host, clients, known));
    follow(host, files, lock, &home)?;
    host.policies.add(Follows(Arc::downgrade(&home)));
    let observer = observe::Observer::of(&home);
    host.registry.with(|registry| registry.register_collector(Box::new(observer)));
    let http = edge::HttpFace {
        home: Arc::clone(&home),
        authenticator: Arc::clone(&host.authenticator),
        ids: Arc::clone(&host.world.ids),
    };
    let migration = Arc::clone(&home.migration);
    let report = axum::routing::get(async move || axum::Json(migration.report()));
    let routes = Routes::new().grpc(HomeServiceServer::new(edge::GrpcFace { home })).http(edge::router(http));
    Ok((routes, axum::Router::new().route(rollout::report::PATH, report)))
}

/// Starts what keeps the service up to date about the migration.
fn follow(
    host: &Host,
    files: &Files,
    lock: Option<marks_file::Lock>,
    home: &Arc<serve_page::Home>,
) -> Result<(), StartError> {
    let tasks = &host.world.tasks;
    if let (Some(path), Some(lock)) = (files.marks.clone(), lock) {
        let keep = marks_file::keep(path, lock, Arc::clone(&home.authority), host.readiness.clone());
        tasks.spawn(marks_file::TASK, Box::pin(keep));
    }
    if let Some(path) = &files.ledger {
        runtime::follow(host, path, Arc::clone(&home.migration) as _)?;
    }
    let watch = revocations::watch_revocations(
        host.peer(Dependency::Entitlement)?,
        Arc::clone(&home.authority),
        host.policies.clone(),
        home.migration.reads(),
        host.readiness.clone(),
    );
    tasks.spawn(revocations::TASK, Box::pin(watch));
    Ok(())
}

/// Which policies the process can go by.
struct Fitness {
    has_keys: bool,
    has_marks: bool,
}

impl Part for Fitness {
    fn fits(&self, next: &Policy) -> Result<(), String> {
        let mode = next.mechanism(Mechanism::Summary).mode();
        let needs =
            |file: &str| format!("mechanisms.summary.mode: is \"{mode}\", which needs --summary-{file} FILE");
        if !self.has_keys && mode != Mode::Off {
            return Err(needs("keys"));
        }
        if !self.has_marks && mode == Mode::On {
            return Err(needs("marks"));
        }
        Ok(())
    }

    fn adopt(&self, _next: &Arc<Policy>) {}
}

/// What home-api made by its policy and can change while it is in use. Everything else is read from a page's own policy.
struct Follows(Weak<serve_page::Home>);

impl Part for Follows {
    fn adopt(&self, next: &Arc<Policy>) {
        let Some(home) = self.0.upgrade() else { return };
        for slots in home.boundaries() {
            slots.rebound(next.admission(slots.boundary()));
        }
        home.bound_pressure(next.degradation.bounds);
        home.migration.adopt(next);
    }
}

#[cfg(test)]
mod tests {
    use model::policy::{SHIPPED, overlay};

    use super::*;

    #[test]
    fn a_policy_that_needs_files_is_refused_where_they_are_missing() {
        let policy = |mode: &str| {
            let changes = format!("[mechanisms.summary]\nmode = \"{mode}\"\n");
            let text = overlay(SHIPPED, ("changes", &changes)).expect("valid");
            Policy::parse("changed", &text).expect("valid")
        };
        let missing = |has_keys, has_marks, mode: &str| {
            let why = Fitness { has_keys, has_marks }.fits(&policy(mode)).err();
            why.map(|why| why.split("--").nth(1).expect("a flag").to_owned())
        };
        assert_eq!(missing(false, false, "off"), None);
        assert_eq!(missing(false, false, "shadow").as_deref(), Some("summary-keys FILE"));
        assert_eq!(missing(true, false, "shadow"), None);
        assert_eq!(missing(true, false, "on").as_deref(), Some("summary-marks FILE"));
        assert_eq!(missing(true, true, "on"), None);
    }
}
