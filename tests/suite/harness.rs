//! Harness: starts the suite, talks to it as strangers would, and takes it down again with its books checked.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use ::emulator::Emulator;
use ::wire::{
    emulator::v1::{
        ClearFaultsRequest, DependencyStats, FaultRule, GetStatsRequest, InjectFaultRequest, JournalEntry,
        ListJournalRequest, SetCapacityRequest, emulator_control_service_client::EmulatorControlServiceClient,
        fault_rule::Effect,
    },
    home::v2::{GetHomeRequest, GetHomeResponse, home_service_client::HomeServiceClient},
};
use base::{
    Clock as _, Deadline, Dependency, Nanos, World,
    clock::{MonotonicClock, SystemWallClock},
    headers,
    ids::IdSource,
};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::{policy::Policy, policy::ServiceName, scale::Scale, scenario::Scenario};
use runtime::{Host, limits, link_metrics::Links, process::Process};
use serve::{Limits, shell::DrainReport, supervisor::Supervisor};
use stack::{CallBudget, Link, LinkConfig};
use tokio::sync::oneshot;
use tonic::Status;

/// Seed of every data set and draw in these tests; printed by the runner when a test fails.
pub(crate) const SEED: u64 = 11;
/// A member that does not start or stop within this is a failure, not a wait.
const MEMBER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// A process of the suite: a thread with a runtime of its own, so that killing it closes its sockets at once.
pub(crate) struct Member {
    pub(crate) at: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) control: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    hasten: Option<oneshot::Sender<()>>,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Option<DrainReport>>>,
}

impl Member {
    /// Ends it as SIGKILL would: no drain, every socket closed.
    pub(crate) fn kill(&mut self) {
        drop(self.kill.take());
        let _ = self.join();
    }

    /// Tells it to stop, as the first signal would.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Hastens its drain, as the second signal would.
    pub(crate) fn hasten(&mut self) {
        drop(self.hasten.take());
    }

    /// Waits for its end. `None` when it was killed.
    pub(crate) fn join(&mut self) -> Option<DrainReport> {
        let thread = self.thread.take()?;
        thread.join().expect("the member's thread does not panic")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.kill.take());
        let _ = self.join();
    }
}

/// What a test may choose.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) policy: String,
    pub(crate) scenario: String,
    pub(crate) seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: model::policy::SHIPPED.1.to_owned(),
            scenario: model::scenario::SHIPPED.1.to_owned(),
            seed: SEED,
        }
    }
}

/// The whole suite.
pub(crate) struct Suite {
    pub(crate) members: BTreeMap<&'static str, Member>,
    options: Options,
    /// Keeps the ledger's directory.
    _state: tempfile::TempDir,
    ledger: std::path::PathBuf,
    control: EmulatorControlServiceClient<Link>,
    world: World,
}

impl Suite {
    /// Starts all nine processes with the shipped policy and scenario.
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let ledger = state.path().join("exposures.sqlite");
        let mut members = BTreeMap::new();
        members.insert("emulator", start_emulator(&options, None));
        let emulator = members["emulator"].at;
        let control = members["emulator"].control.expect("the emulator has one");
        for dependency in Dependency::ALL {
            let service = ServiceName::of(dependency);
            let member = start_service(&options, service, emulator, BTreeMap::new(), &ledger, None);
            members.insert(service.as_str(), member);
        }
        let peers = Dependency::ALL.map(|of| (of.as_str().to_owned(), members[of.as_str()].at.to_string()));
        let home = start_service(&options, ServiceName::HomeApi, emulator, BTreeMap::from(peers), &ledger, None);
        members.insert("home-api", home);
        let world = world(Arc::new(Supervisor::new()));
        let control = EmulatorControlServiceClient::new(link(&world, control));
        Self { members, options, _state: state, ledger, control, world }
    }

    pub(crate) fn home(&self) -> SocketAddr {
        self.members["home-api"].at
    }

    pub(crate) fn member(&mut self, name: &str) -> &mut Member {
        self.members.get_mut(name).expect("a member of the suite")
    }

    pub(crate) fn ledger(&self) -> &std::path::Path {
        &self.ledger
    }

    /// A link of this test to one of the members.
    pub(crate) fn link(&self, name: &str) -> Link {
        link(&self.world, self.members[name].at)
    }

    /// Starts a killed service again, on the address that it had.
    pub(crate) fn restart(&mut self, service: ServiceName) {
        let at = self.members[service.as_str()].at;
        let emulator = self.members["emulator"].at;
        let member = start_service(&self.options, service, emulator, BTreeMap::new(), &self.ledger, Some(at));
        self.members.insert(service.as_str(), member);
    }

    /// Starts a killed emulator again, on the address that it had. Its control port moves.
    pub(crate) fn restart_emulator(&mut self) {
        let at = self.members["emulator"].at;
        let member = start_emulator(&self.options, Some(at));
        self.control = EmulatorControlServiceClient::new(link(&self.world, member.control.expect("it has one")));
        self.members.insert("emulator", member);
    }

    /// Injects a fault into every call of a dependency.
    pub(crate) async fn fault(&self, dependency: Dependency, effect: Effect) -> u64 {
        let rule = FaultRule {
            dependency: dependency.to_string(),
            share_ppm: 1_000_000,
            effect: Some(effect),
            ..FaultRule::default()
        };
        let message = InjectFaultRequest { rule: Some(rule) };
        self.control.clone().inject_fault(bounded(message)).await.expect("a fault").into_inner().fault_id
    }

    pub(crate) async fn clear_faults(&self) {
        self.control.clone().clear_faults(bounded(ClearFaultsRequest { fault_id: 0 })).await.expect("cleared");
    }

    pub(crate) async fn capacity(&self, dependency: Dependency, servers: u32, queue_max: u32) {
        let message = SetCapacityRequest { dependency: dependency.to_string(), servers, queue_max };
        self.control.clone().set_capacity(bounded(message)).await.expect("changed");
    }

    /// Calls of one operation to the dependencies, oldest first.
    pub(crate) async fn journal(&self, request_id: &str) -> Vec<JournalEntry> {
        let message = ListJournalRequest { limit: 10_000, request_id: request_id.to_owned() };
        self.control.clone().list_journal(bounded(message)).await.expect("a journal").into_inner().entries
    }

    pub(crate) async fn stats(&self, dependency: Dependency) -> DependencyStats {
        let stats = self.control.clone().get_stats(bounded(GetStatsRequest {})).await.expect("stats").into_inner();
        let of = stats.dependencies.into_iter().find(|of| of.dependency == dependency.as_str());
        of.expect("every dependency has counters")
    }

    /// Waits until a dependency's counters say so. Bounded by the test's own patience, checked by polling the control port
    /// rather than by sleeping.
    pub(crate) async fn until(&self, dependency: Dependency, what: &str, holds: impl Fn(&DependencyStats) -> bool) {
        let give_up = MonotonicClock.now() + Nanos::from_secs(10);
        loop {
            let stats = self.stats(dependency).await;
            if holds(&stats) {
                return;
            }
            assert!(MonotonicClock.now() < give_up, "{dependency} never came to {what}: {stats:?}");
        }
    }

    /// GET /v2/home over HTTP/1.
    pub(crate) async fn get(&self, head: &[(&'static str, &str)]) -> Answer {
        let mut request = Request::get("/v2/home").header("host", "home");
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        http1(self.home(), request.body(Full::default()).expect("a request")).await
    }

    /// GetHome over gRPC, with its metadata.
    pub(crate) async fn get_home(
        &self,
        head: &[(&'static str, &str)],
        timeout: Nanos,
    ) -> Result<tonic::Response<GetHomeResponse>, Status> {
        let mut client = HomeServiceClient::new(self.link("home-api"));
        let mut request = bounded(GetHomeRequest {});
        request.extensions_mut().insert(budget(timeout));
        for (name, value) in head {
            request.metadata_mut().insert(*name, value.parse().expect("ASCII"));
        }
        client.get_home(request).await
    }

    /// Stops everything, home first, and checks that nothing had to be cut and nothing panicked.
    pub(crate) fn finish(mut self) {
        let order = std::iter::once("home-api").chain(Dependency::ALL.map(Dependency::as_str)).chain(["emulator"]);
        for name in order {
            let member = self.member(name);
            member.stop();
            let report = member.join().unwrap_or_else(|| panic!("{name} was killed and not restarted"));
            assert!(report.is_clean(), "{name}: {report:?}");
            assert_eq!(report.tasks.panicked, 0, "{name}: {report:?}");
        }
    }
}

/// Headers of a customer that the data set knows.
pub(crate) const CUSTOMER: [(&str, &str); 4] = [
    (headers::TENANT, "tenant-007"),
    (headers::SUBJECT, "user-00042"),
    (headers::CLASS, "premium"),
    (headers::REGION, "eu-west"),
];

/// [`CUSTOMER`] and more.
pub(crate) fn customer(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    CUSTOMER.iter().chain(more).copied().collect()
}

/// An HTTP answer, read in full.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) head: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.head.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }
}

/// One request over a connection of its own.
pub(crate) async fn http1(at: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    let stream = tokio::net::TcpStream::connect(at).await.expect("the port is open");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
    let driver = spawn(async move {
        let _ = connection.await;
    });
    let response = sender.send_request(request).await.expect("an answer");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    drop(sender);
    driver.await.expect("the connection ends");
    Answer { status: head.status, head: head.headers, body }
}

/// One request over an HTTP/2 connection of its own, with the trailers folded into the head.
pub(crate) async fn http2(at: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    let stream = tokio::net::TcpStream::connect(at).await.expect("the port is open");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a handshake");
    let driver = spawn(async move {
        let _ = connection.await;
    });
    let response = sender.send_request(request).await.expect("an answer");
    let (mut head, body) = response.into_parts();
    let collected = body.collect().await.expect("a whole body");
    head.headers.extend(collected.trailers().cloned().unwrap_or_default());
    drop(sender);
    driver.await.expect("the connection ends");
    Answer { status: head.status, head: head.headers, body: collected.to_bytes() }
}

/// A gRPC request for the home page by hand, so that its headers can be wrong.
pub(crate) fn raw_get_home(at: SocketAddr, head: &[(&'static str, &str)], message: &[u8]) -> Request<Full<Bytes>> {
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).expect("short").to_be_bytes());
    body.extend(message);
    let mut request = Request::post(format!("http://{at}/mercury.home.v2.HomeService/GetHome"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in head {
        request = request.header(*name, *value);
    }
    request.body(Full::from(body)).expect("a request")
}

#[expect(clippy::disallowed_methods, reason = "a test's own task; the test awaits or drops it")]
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(future)
}

pub(crate) fn budget(timeout: Nanos) -> CallBudget {
    CallBudget { deadline: Deadline::after(MonotonicClock.now(), timeout), reserve: Nanos::ZERO }
}

fn bounded<M>(message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(budget(Nanos::from_secs(5)));
    request
}

pub(crate) fn world(tasks: Arc<Supervisor>) -> World {
    World {
        clock: Arc::new(MonotonicClock),
        wall: Arc::new(SystemWallClock),
        ids: Arc::new(IdSource::new(u128::from(SEED))),
        tasks,
    }
}

fn link(world: &World, at: SocketAddr) -> Link {
    let config = LinkConfig {
        default_timeout: Nanos::from_secs(5),
        connect_timeout: Nanos::from_secs(1),
        backoff_min: Nanos::from_millis(5),
        backoff_max: Nanos::from_millis(50),
        keep_alive_interval: Nanos::from_secs(10),
        keep_alive_timeout: Nanos::from_secs(5),
        calls_max: 4_096,
        message_bytes_max: 4 << 20,
        header_bytes_max: 16 << 10,
        stream_window_bytes: 1 << 20,
        connection_window_bytes: 4 << 20,
        reset_streams_max: 1_024,
        reset_stream_memory: Nanos::from_secs(10),
    };
    Link::tcp("link:test", &at.to_string(), config, world.clone()).expect("an address")
}

/// Sockets of a member, bound before its thread starts so that their addresses are known.
fn bind(at: Option<SocketAddr>) -> (StdListener, SocketAddr) {
    let wanted = at.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener = StdListener::bind(wanted).unwrap_or_else(|error| panic!("{wanted}: {error}"));
    listener.set_nonblocking(true).expect("a socket option");
    let at = listener.local_addr().expect("an address");
    (listener, at)
}

fn listener(socket: StdListener) -> tokio::net::TcpListener {
    tokio::net::TcpListener::from_std(socket).expect("a runtime")
}

/// Runs a member on a thread of its own. `setup` opens its ports within the runtime.
fn run_member<F>(
    name: &'static str,
    (at, admin, control): (SocketAddr, SocketAddr, Option<SocketAddr>),
    drain: Nanos,
    setup: F,
) -> Member
where
    F: AsyncFnOnce(&mut Process) + Send + 'static,
{
    let (stop, stopped) = oneshot::channel::<()>();
    let (hasten, hastened) = oneshot::channel::<()>();
    let (kill, killed) = oneshot::channel::<()>();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let mut process = Process::new(name, |tasks| world(tasks));
            setup(&mut process).await;
            ready.send(()).expect("the test waits");
            let closed = async |receiver: oneshot::Receiver<()>| drop(receiver.await);
            tokio::select! {
                biased; // A kill is a kill.
                () = closed(killed) => None,
                report = process.run(closed(stopped), closed(hastened), drain) => Some(report),
            }
        })
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread");
    is_ready.recv_timeout(MEMBER_TIMEOUT).unwrap_or_else(|error| panic!("{name} did not start: {error}"));
    Member { at, admin, control, stop: Some(stop), hasten: Some(hasten), kill: Some(kill), thread: Some(thread) }
}

fn start_service(
    options: &Options,
    service: ServiceName,
    emulator: SocketAddr,
    peers: BTreeMap<String, String>,
    ledger: &std::path::Path,
    at: Option<SocketAddr>,
) -> Member {
    let policy = Policy::parse("policy.toml", &options.policy).expect("a valid policy");
    let (main, main_at) = bind(at);
    let (admin, admin_at) = bind(None);
    let ledger = ledger.to_owned();
    let drain = policy.drain;
    run_member(service.as_str(), (main_at, admin_at, None), drain, async move |process: &mut Process| {
        let bounds = limits::limits(&policy, service);
        let host = Host {
            service,
            world: process.world.clone(),
            policy: Arc::new(policy),
            registry: process.registry.clone(),
            emulator: Some(emulator.to_string()),
            peers,
            links: Links::new(&process.registry),
        };
        let routes = match service {
            ServiceName::HomeApi => home_api::build(&host),
            ServiceName::Profile => profile::build(&host),
            ServiceName::Entitlement => entitlement::build(&host),
            ServiceName::Inventory => inventory::build(&host),
            ServiceName::Pricing => pricing::build(&host),
            ServiceName::Experiment => experiment::build(&host, &ledger).await,
            ServiceName::Recommendation => recommendation::build(&host),
            ServiceName::Reputation => reputation::build(&host),
        };
        process
            .open(service.as_str(), listener(main), routes.expect("a service"), bounds)
            .expect("descriptors are complete");
        process.open_admin(listener(admin), serve_admin());
    })
}

fn serve_admin() -> axum::Router {
    axum::Router::new()
}

fn start_emulator(options: &Options, at: Option<SocketAddr>) -> Member {
    let scenario = Scenario::parse("scenario.toml", &options.scenario).expect("a valid scenario");
    let seed = options.seed;
    let (main, main_at) = bind(at);
    let (admin, admin_at) = bind(None);
    let (control, control_at) = bind(None);
    let addresses = (main_at, admin_at, Some(control_at));
    run_member("emulator", addresses, Nanos::from_secs(2), async move |process: &mut Process| {
        let emulator = Emulator::new(scenario, seed, Scale::ONE, &process.world, &process.registry)
            .expect("an emulator");
        let limits = Limits::default();
        process.open("emulator", listener(main), emulator.facts_routes(), limits.clone()).expect("descriptors");
        process.open("control", listener(control), emulator.control_routes(), limits).expect("descriptors");
        process.open_admin(listener(admin), axum::Router::new());
    })
}
