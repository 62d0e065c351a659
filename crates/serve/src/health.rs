//! Health: one readiness value a process, and the two faces that tell it: grpc.health.v1 here, `/readyz` in
//! [`admin`](crate::admin).
//!
//! The generated trait of tonic-health is implemented here, since its own service ends a watch on an unknown service
//! with NOT_FOUND and would hold the drain with watches that nobody ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_core::Stream;
use futures_util::stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server,
};

/// The generated server around [`Health`].
pub use tonic_health::pb::health_server::HealthServer;

/// Name of the health service itself, which can be asked for as well.
pub const SERVICE_NAME: &str = health_server::SERVICE_NAME;

/// Whether the process wants requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet set up. Not ready, and not started.
    Starting,
    /// Ready.
    Serving,
    /// Set up, and unable to serve for reasons that an operator can read, each after the name of its owner.
    NotServing(String),
    /// Shutting down. Final.
    Quiescing,
}

impl State {
    /// The name used by `/readyz`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::NotServing(_) => "not_serving",
            Self::Quiescing => "quiescing",
        }
    }

    /// True when requests are wanted.
    pub const fn is_serving(&self) -> bool {
        matches!(self, Self::Serving)
    }

    /// True once the process was set up, whatever became of it since.
    pub const fn has_started(&self) -> bool {
        !matches!(self, Self::Starting)
    }

    const fn status(&self) -> ServingStatus {
        if self.is_serving() { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

/// The readiness of the process. Clones share it.
///
/// Whether the process has started and whether it shuts down is one thing; what keeps it from serving meanwhile is another, and
/// there may be several such things at a time, each with an owner that alone takes it back: see [`Condition`].
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    told: watch::Sender<State>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    stage: Stage,
    /// What keeps the process from serving, by owner.
    faults: BTreeMap<&'static str, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Starting,
    Started,
    Quiescing,
}

impl Book {
    fn state(&self) -> State {
        match self.stage {
            Stage::Starting => State::Starting,
            Stage::Quiescing => State::Quiescing,
            Stage::Started if self.faults.is_empty() => State::Serving,
            Stage::Started => {
                let faults = self.faults.iter().map(|(owner, reason)| format!("{owner}: {reason}"));
                State::NotServing(faults.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// Something without which the process cannot serve, such as a ledger. Made by [`Readiness::condition`].
#[derive(Clone, Debug)]
pub struct Condition {
    readiness: Readiness,
    owner: &'static str,
}

impl Condition {
    /// Requests are not wanted, for a reason that `/readyz` tells. It is read by operators: no tenant, no secret.
    pub fn fails(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.readiness.change(|book| {
            book.faults.insert(self.owner, reason);
        });
    }

    /// It is met again. Conditions of other owners stay as they are.
    pub fn holds(&self) {
        self.readiness.change(|book| {
            book.faults.remove(self.owner);
        });
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// A process that is starting.
    pub fn new() -> Self {
        Self(Arc::new(Shared { told: watch::Sender::new(State::Starting), book: Mutex::default() }))
    }

    /// The process is set up. It serves from now on, as long as every condition holds.
    pub fn serving(&self) {
        self.change(|book| book.stage = book.stage.max(Stage::Started));
    }

    /// The process shuts down. There is no way back from here.
    pub fn quiescing(&self) {
        self.change(|book| book.stage = Stage::Quiescing);
    }

    /// A condition of serving, which holds until its owner says otherwise. Owners of one name share it.
    pub fn condition(&self, owner: &'static str) -> Condition {
        Condition { readiness: self.clone(), owner }
    }

    /// Every watcher is told if the change is news. Told under the lock, so that no watcher ends with an older state.
    fn change(&self, change: impl FnOnce(&mut Book)) {
        let mut book = self.0.book.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut book);
        let state = book.state();
        self.0.told.send_if_modified(|told| {
            let news = *told != state;
            if news {
                *told = state;
            }
            news
        });
    }

    /// The state now.
    pub fn get(&self) -> State {
        self.0.told.borrow().clone()
    }

    /// A receiver that has seen nothing yet. It holds the latest state only, so a slow watcher costs no memory.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        let mut receiver = self.0.told.subscribe();
        receiver.mark_changed();
        receiver
    }

    /// Returns once the process is quiescing. What must not hold the drain ends then.
    pub async fn quiesced(&self) {
        // An error would mean that no sender is left, and `self` is one.
        let _ = self.0.told.subscribe().wait_for(|state| *state == State::Quiescing).await;
    }
}

/// grpc.health.v1 over a [`Readiness`].
#[derive(Clone, Debug)]
pub struct Health {
    readiness: Readiness,
    services: Arc<BTreeSet<&'static str>>,
}

/// The health service of a port that serves `services` (exact names; health itself is added). The empty name stands
/// for the whole process.
pub fn service(
    readiness: &Readiness,
    services: impl IntoIterator<Item = &'static str>,
) -> HealthServer<Health> {
    let services = services.into_iter().chain([SERVICE_NAME]).collect();
    HealthServer::new(Health { readiness: readiness.clone(), services: Arc::new(services) })
}

impl Health {
    fn knows(&self, service: &str) -> bool {
        service.is_empty() || self.services.contains(service)
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// What one watch remembers between messages.
struct Watch {
    states: watch::Receiver<State>,
    known: bool,
    told: Option<ServingStatus>,
    over: bool,
}

impl Watch {
    /// The next message: the current status at once, then every status that differs from the last one told. Quiescing
    /// is told as NOT_SERVING in any case, and is the last message: the watcher goes elsewhere and the drain is free.
    async fn next(mut self) -> Option<(Result<HealthCheckResponse, Status>, Self)> {
        while !self.over {
            self.states.changed().await.ok()?;
            let (status, last) = {
                let state = self.states.borrow_and_update();
                let last = *state == State::Quiescing;
                let status = if self.known || last { state.status() } else { ServingStatus::ServiceUnknown };
                (status, last)
            };
            self.over = last;
            if last || self.told != Some(status) {
                self.told = Some(status);
                return Some((Ok(response(status)), self));
            }
        }
        None
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !self.knows(&request.get_ref().service) {
            return Err(Status::not_found("this port serves no service of that name"));
        }
        Ok(Response::new(response(self.readiness.get().status())))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = self.knows(&request.get_ref().service);
        let watch = Watch { states: self.readiness.subscribe(), known, told: None, over: false };
        Ok(Response::new(Box::pin(stream::unfold(watch, Watch::next))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};
    use tonic_health::pb::health_client::HealthClient;

    use super::*;

    const PROFILE: &str = "mercury.profile.v1.ProfileService";

    /// A client that calls the server in place: everything but the sockets is real.
    fn client(readiness: &Readiness) -> HealthClient<HealthServer<Health>> {
        HealthClient::new(service(readiness, [PROFILE]))
    }

    fn asking(service: &str) -> HealthCheckRequest {
        HealthCheckRequest { service: service.to_owned() }
    }

    async fn watching(readiness: &Readiness, service: &str) -> tonic::Streaming<HealthCheckResponse> {
        client(readiness).watch(asking(service)).await.expect("a watch opens").into_inner()
    }

    async fn status(stream: &mut tonic::Streaming<HealthCheckResponse>) -> ServingStatus {
        stream.message().await.expect("a message").expect("the stream is open").status()
    }

    #[tokio::test]
    async fn check_answers_for_the_process_and_for_exact_names() {
        let readiness = Readiness::new();
        let ledger = readiness.condition("ledger");
        let steps: [(&dyn Fn(), ServingStatus); 4] = [
            (&|| {}, ServingStatus::NotServing),
            (&|| readiness.serving(), ServingStatus::Serving),
            (&|| ledger.fails("full"), ServingStatus::NotServing),
            (&|| readiness.quiescing(), ServingStatus::NotServing),
        ];
        for (step, expected) in steps {
            step();
            for name in ["", PROFILE, SERVICE_NAME] {
                let answer = client(&readiness).check(asking(name)).await.expect("known").into_inner();
                assert_eq!(answer.status(), expected, "{name:?} while {:?}", readiness.get());
            }
        }
        for name in ["mercury.profile.v1", "mercury.profile.v1.profileservice", "/", "other.v1.Service"] {
            let refusal = client(&readiness).check(asking(name)).await.expect_err("unknown");
            assert_eq!(refusal.code(), tonic::Code::NotFound, "{name}");
        }
    }

    #[tokio::test]
    async fn a_watch_tells_the_current_state_then_changes_then_ends_at_quiesce() {
        let readiness = Readiness::new();
        let mut watch = watching(&readiness, PROFILE).await;
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        readiness.serving();
        assert_eq!(status(&mut watch).await, ServingStatus::Serving);
        readiness.condition("ledger").fails("stale");
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        readiness.condition("ledger").fails("still stale");
        assert!(watch.next().now_or_never().is_none(), "an unchanged status is not told again");
        readiness.quiescing();
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        assert_eq!(watch.message().await.expect("ends with OK"), None);
    }

    #[tokio::test]
    async fn a_watch_on_an_unknown_service_stays_open_until_quiesce() {
        let readiness = Readiness::new();
        let mut watch = watching(&readiness, "unknown.Service").await;
        assert_eq!(status(&mut watch).await, ServingStatus::ServiceUnknown);
        readiness.serving();
        assert!(watch.next().now_or_never().is_none());
        readiness.quiescing();
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        assert_eq!(watch.message().await.expect("ends with OK"), None);
    }

    #[tokio::test]
    async fn a_watch_that_begins_after_quiesce_is_told_once() {
        let readiness = Readiness::new();
        readiness.quiescing();
        readiness.quiesced().await;
        let mut watch = watching(&readiness, "").await;
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        assert_eq!(watch.message().await.expect("ends with OK"), None);
    }

    #[test]
    fn quiescing_is_final() {
        let readiness = Readiness::new();
        readiness.serving();
        readiness.quiescing();
        readiness.serving();
        readiness.condition("ledger").fails("full");
        assert_eq!(readiness.get(), State::Quiescing);
    }

    #[test]
    fn every_owner_takes_back_its_own_condition_alone() {
        let readiness = Readiness::new();
        let (ledger, migration) = (readiness.condition("ledger"), readiness.condition("migration"));
        ledger.fails("full");
        assert_eq!(readiness.get(), State::Starting, "not set up comes first");
        readiness.serving();
        migration.fails("lost");
        assert_eq!(readiness.get(), State::NotServing("ledger: full; migration: lost".into()));
        ledger.holds();
        assert_eq!(readiness.get(), State::NotServing("migration: lost".into()));
        migration.holds();
        migration.holds();
        assert_eq!(readiness.get(), State::Serving);
    }
}
