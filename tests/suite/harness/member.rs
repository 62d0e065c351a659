//! Member: one process of the suite, as a thread with a runtime of its own. Killing it drops the runtime, which closes its
//! sockets at once and drains nothing, as SIGKILL would.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener as StdListener},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use ::emulator::Emulator;
use base::{
    Clock as _, Nanos, World,
    clock::{MonotonicClock, SystemWallClock},
    ids::IdSource,
    inject::Points,
    mix,
};
use model::{policy::Policy, policy::ServiceName, scenario::Scenario};
use rehearsal::keys::KeyDir;
use runtime::{HeaderAuthenticator, Host, Policies, link_metrics::Links, policy::Source, process::Process};
use serve::{
    Limits, Routes,
    shell::DrainReport,
    supervisor::Supervisor,
    telemetry::{LogConfig, Telemetry, TelemetryConfig},
};
use tokio::sync::oneshot;

use super::settings::{Options, SEED};

/// A member that does not start or stop within this is a failure, not a wait.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(20);
/// A port that was just given up may for a moment be the source port of somebody's connection.
const REBIND_TIMEOUT: Nanos = Nanos::from_secs(2);
/// Drain bound of members that no policy governs.
const DRAIN: Nanos = Nanos::from_secs(2);

/// A running member.
pub(crate) struct Member {
    pub(crate) at: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) control: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    hasten: Option<oneshot::Sender<()>>,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    report: oneshot::Receiver<Option<DrainReport>>,
    /// What is made to fail in it.
    pub(crate) points: Points,
}

impl Member {
    /// Ends it as SIGKILL would: no drain, every socket closed.
    pub(crate) fn kill(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the member's thread does not panic");
        }
    }

    /// Neither killed nor told to stop.
    pub(crate) const fn is_running(&self) -> bool {
        self.kill.is_some() && self.stop.is_some()
    }

    /// Tells it to stop, as the first signal would.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Hastens its drain, as the second signal would.
    pub(crate) fn hasten(&mut self) {
        drop(self.hasten.take());
    }

    /// Waits for the end of its drain. The runtime of the test goes on meanwhile, and with it the test's connections.
    pub(crate) async fn report(&mut self) -> DrainReport {
        let report = tokio::time::timeout(MEMBER_TIMEOUT, &mut self.report).await.expect("the member stops");
        report.expect("the member's thread does not panic").expect("the member was not killed")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // Its panic has been printed, and a second one would hide the test's own.
        }
    }
}

/// The files of a suite.
pub(crate) struct StateFiles(PathBuf);

impl StateFiles {
    pub(crate) fn new(state: &Path) -> Self {
        Self(state.to_owned())
    }

    pub(crate) fn exposures(&self) -> PathBuf {
        self.0.join("exposures.sqlite")
    }

    /// The policy file of one member.
    pub(crate) fn policy(&self, member: &str) -> PathBuf {
        self.0.join(format!("policy-{member}.toml"))
    }

    pub(crate) fn decisions(&self) -> PathBuf {
        self.0.join(rollout::ledger::FILE)
    }

    pub(crate) fn keys(&self) -> KeyDir {
        KeyDir::new(self.0.join("keys"))
    }

    pub(crate) fn marks(&self) -> PathBuf {
        self.0.join("marks.ndjson")
    }
}

/// Starts a service. `at` is the address that it had before.
pub(crate) fn service(
    options: &Options,
    service: ServiceName,
    emulator: SocketAddr,
    peers: BTreeMap<String, String>,
    state: &Path,
    at: Option<SocketAddr>,
) -> Member {
    let own = options.profile_policy.as_ref().filter(|_| service == ServiceName::Profile);
    let files = StateFiles::new(state);
    let file = files.policy(service.as_str());
    std::fs::write(&file, own.unwrap_or(&options.policy)).expect("a file");
    let (policy, text) = runtime::host::read_policy(&file).expect("a valid policy");
    let follow = options.follow.then(|| files.decisions());
    let ledger = options.ledger.clone();
    let (main, main_at) = bind(at);
    let (admin, admin_at) = bind(None);
    let (scale, dilate) = (options.scale, options.dilate);
    let adjust = move |policy: Policy| policy.scaled(scale).dilated(dilate);
    let policies = Policies::new(adjust(policy));
    let governed = policies.clone();
    let drain = move || governed.current().drain;
    run(service.as_str(), (main_at, admin_at, None), drain, async move |process: &mut Process| {
        let host = Host {
            service,
            world: process.world.clone(),
            policies: policies.clone(),
            registry: process.registry.clone(),
            readiness: process.readiness.clone(),
            authenticator: Arc::new(HeaderAuthenticator),
            emulator: Some(emulator.to_string()),
            peers,
            links: Links::new(&process.registry),
        };
        let mut extra = axum::Router::new();
        let mut with = |(routes, more): (Routes, axum::Router)| {
            extra = more;
            routes
        };
        let routes = match service {
            ServiceName::HomeApi => {
                let (keys, marks) = (Some(files.keys().set_file()), Some(files.marks()));
                home_api::build(&host, &home_api::Files { keys, marks, ledger: follow }).map(&mut with)
            }
            ServiceName::Profile => {
                let key = Some(files.keys().issuer_file());
                profile::build(&host, &profile::Files { key, ledger: follow }).map(&mut with)
            }
            ServiceName::Entitlement => entitlement::build(&host),
            ServiceName::Inventory => inventory::build(&host),
            ServiceName::Pricing => pricing::build(&host),
            ServiceName::Experiment => {
                let file = experiment::ledger::Location::File(files.exposures());
                experiment::build(&host, ledger.as_ref().unwrap_or(&file)).await
            }
            ServiceName::Recommendation => recommendation::build(&host),
            ServiceName::Reputation => reputation::build(&host),
        };
        let routes = routes.expect("a service");
        process.open_service(&host, listener(main), routes).expect("descriptors are complete");
        let source = Source { path: Some(file), adjust: Box::new(adjust) };
        let reloader = runtime::policy::keep(&host, source, text).expect("a handler");
        let shown = |policy: &Policy| serde_json::json!({"generation": policy.generation});
        process.open_admin(listener(admin), extra.merge(runtime::policy::router(policies, reloader, shown)));
    })
}

/// Starts the emulator. `at` is the address that it had before.
pub(crate) fn emulator(options: &Options, at: Option<SocketAddr>) -> Member {
    let scenario = Scenario::parse("scenario.toml", &options.scenario).expect("a valid scenario");
    let scenario = scenario.dilated(options.dilate);
    let (seed, scale) = (options.seed, options.scale);
    let (main, main_at) = bind(at);
    let (admin, admin_at) = bind(None);
    let (control, control_at) = bind(None);
    run(
        "emulator",
        (main_at, admin_at, Some(control_at)),
        || DRAIN,
        async move |process: &mut Process| {
            let emulator = Emulator::new(&scenario, seed, scale, &process.world, &process.registry)
                .expect("an emulator");
            let limits = Limits::default();
            process
                .open("emulator", listener(main), emulator.facts_routes(), limits.clone())
                .expect("descriptors");
            process
                .open("control", listener(control), emulator.control_routes(), limits)
                .expect("descriptors");
            process.open_admin(listener(admin), axum::Router::new());
        },
    )
}

/// Starts a member that serves whatever a test wants.
pub(crate) fn stranger(name: &'static str, routes: Routes) -> Member {
    let (main, main_at) = bind(None);
    let (admin, admin_at) = bind(None);
    run(
        name,
        (main_at, admin_at, None),
        || DRAIN,
        async move |process: &mut Process| {
            process.open(name, listener(main), routes, Limits::default()).expect("descriptors are complete");
            process.open_admin(listener(admin), axum::Router::new());
        },
    )
}

/// Clocks, ids and supervision of the process `name`; no two processes make the same ids.
pub(crate) fn world(name: &str, tasks: Arc<Supervisor>) -> World {
    let seed = mix::fold_bytes(SEED, name.as_bytes());
    World {
        clock: Arc::new(MonotonicClock),
        wall: Arc::new(SystemWallClock),
        points: Points::default(),
        ids: Arc::new(IdSource::new(u128::from(seed) << 64 | u128::from(SEED))),
        tasks,
    }
}

/// A socket, bound before its member's thread starts so that its address is known.
fn bind(at: Option<SocketAddr>) -> (StdListener, SocketAddr) {
    let wanted = at.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let give_up = MonotonicClock.now() + REBIND_TIMEOUT;
    let listener = loop {
        match StdListener::bind(wanted) {
            Ok(listener) => break listener,
            Err(error) => assert!(MonotonicClock.now() < give_up, "{wanted}: {error}"),
        }
        std::thread::yield_now();
    };
    listener.set_nonblocking(true).expect("a socket option");
    let at = listener.local_addr().expect("an address");
    (listener, at)
}

fn listener(socket: StdListener) -> tokio::net::TcpListener {
    tokio::net::TcpListener::from_std(socket).expect("a runtime")
}

/// Runs a member on a thread of its own. `setup` opens its ports within the runtime.
fn run<F>(
    name: &'static str,
    (at, admin, control): (SocketAddr, SocketAddr, Option<SocketAddr>),
    drain: impl FnOnce() -> Nanos + Send + 'static,
    setup: F,
) -> Member
where
    F: AsyncFnOnce(&mut Process) + Send + 'static,
{
    let (stop, stopped) = oneshot::channel::<()>();
    let (hasten, hastened) = oneshot::channel::<()>();
    let (kill, killed) = oneshot::channel::<()>();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let (reported, report) = oneshot::channel();
    let points = Points::default();
    let armed = points.clone();
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ended = runtime.block_on(async move {
            let mut process = Process::new(name, |tasks| World { points: armed, ..world(name, tasks) });
            // Nothing is exported; its series are there all the same.
            let config = TelemetryConfig {
                service: name,
                instance: String::new(),
                log: LogConfig::default(),
                export: None,
            };
            Telemetry::start(&config, &process.world, &process.registry).expect("nothing to connect to");
            setup(&mut process).await;
            ready.send(()).expect("the test waits");
            let closed = async |receiver: oneshot::Receiver<()>| drop(receiver.await);
            tokio::select! {
                biased; // A kill is a kill.
                () = closed(killed) => None,
                report = process.run(closed(stopped), closed(hastened), drain) => Some(report),
            }
        });
        drop(runtime);
        let _ = reported.send(ended); // Nobody asks for the report of a member that was killed.
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread");
    is_ready.recv_timeout(MEMBER_TIMEOUT).unwrap_or_else(|error| panic!("{name} did not start: {error}"));
    let (stop, hasten, kill, thread) = (Some(stop), Some(hasten), Some(kill), Some(thread));
    Member { at, admin, control, stop, hasten, kill, thread, report, points }
}
