//! Health: one readiness value a process, and the two faces that tell it: grpc.health.v1 here, `/readyz` in
//! [`admin`](crate::admin).
//!
//! The generated trait of tonic-health is implemented here, since its own service ends a watch on an unknown service
//! with NOT_FOUND and would hold the drain with watches that nobody ends.

use std::{borrow::Cow, collections::BTreeSet, pin::Pin, sync::Arc};

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
    /// Set up, and unable to serve for a reason that an operator can read.
    NotServing(Cow<'static, str>),
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
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<State>>);

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// A process that is starting.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::Starting)))
    }

    /// Requests are wanted.
    pub fn serving(&self) {
        self.set(State::Serving);
    }

    /// Requests are not wanted, for a reason that `/readyz` tells. It is read by operators: no tenant, no secret.
    pub fn not_serving(&self, reason: impl Into<Cow<'static, str>>) {
        self.set(State::NotServing(reason.into()));
    }

    /// The process shuts down. There is no way back from here.
    pub fn quiescing(&self) {
        self.set(State::Quiescing);
    }

    /// Moves to `state`, and tells every watcher if that is news. False, and nothing happens, once the process is
    /// quiescing and `state` is another.
    pub fn set(&self, state: State) -> bool {
        let mut accepted = true;
        self.0.send_if_modified(|current| {
            accepted = *current != State::Quiescing || state == State::Quiescing;
            let changes = accepted && *current != state;
            if changes {
                *current = state;
            }
            changes
        });
        accepted
    }

    /// The state now.
    pub fn get(&self) -> State {
        self.0.borrow().clone()
    }

    /// A receiver that has seen nothing yet. It holds the latest state only, so a slow watcher costs no memory.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        let mut receiver = self.0.subscribe();
        receiver.mark_changed();
        receiver
    }

    /// Returns once the process is quiescing. What must not hold the drain ends then.
    pub async fn quiesced(&self) {
        // An error would mean that no sender is left, and `self` is one.
        let _ = self.0.subscribe().wait_for(|state| *state == State::Quiescing).await;
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
        for (state, expected) in [
            (State::Starting, ServingStatus::NotServing),
            (State::Serving, ServingStatus::Serving),
            (State::NotServing("ledger is full".into()), ServingStatus::NotServing),
            (State::Quiescing, ServingStatus::NotServing),
        ] {
            readiness.set(state);
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
        readiness.set(State::Serving);
        assert_eq!(status(&mut watch).await, ServingStatus::Serving);
        readiness.set(State::NotServing("stale".into()));
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        readiness.set(State::NotServing("still stale".into()));
        assert!(watch.next().now_or_never().is_none(), "an unchanged status is not told again");
        readiness.set(State::Quiescing);
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        assert_eq!(watch.message().await.expect("ends with OK"), None);
    }

    #[tokio::test]
    async fn a_watch_on_an_unknown_service_stays_open_until_quiesce() {
        let readiness = Readiness::new();
        let mut watch = watching(&readiness, "unknown.Service").await;
        assert_eq!(status(&mut watch).await, ServingStatus::ServiceUnknown);
        readiness.set(State::Serving);
        assert!(watch.next().now_or_never().is_none());
        readiness.set(State::Quiescing);
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        assert_eq!(watch.message().await.expect("ends with OK"), None);
    }

    #[tokio::test]
    async fn a_watch_that_begins_after_quiesce_is_told_once() {
        let readiness = Readiness::new();
        readiness.set(State::Quiescing);
        readiness.quiesced().await;
        let mut watch = watching(&readiness, "").await;
        assert_eq!(status(&mut watch).await, ServingStatus::NotServing);
        assert_eq!(watch.message().await.expect("ends with OK"), None);
    }

    #[test]
    fn quiescing_is_final() {
        let readiness = Readiness::new();
        assert!(readiness.set(State::Serving));
        assert!(readiness.set(State::Quiescing));
        assert!(!readiness.set(State::Serving));
        assert_eq!(readiness.get(), State::Quiescing);
    }
}
