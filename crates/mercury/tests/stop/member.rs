//! Member: the emulator and experiment as processes of the real binary, on ports of their own, with their logs at hand.

use std::{
    fs,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use base::{
    Clock as _, Deadline, Nanos, World,
    clock::{MonotonicClock, SystemWallClock},
    headers,
    ids::IdSource,
    inject::Points,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use serve::supervisor::Supervisor;
use stack::{CallBudget, Link, LinkConfig};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::watch,
    task::JoinHandle,
};
use wire::emulator::v1::{
    FaultRule, GetStatsRequest, InjectFaultRequest,
    emulator_control_service_client::EmulatorControlServiceClient, fault_rule::Effect,
};

/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks. It orders nothing.
const LOOK: Duration = Duration::from_millis(5);

/// Who asks.
pub(crate) const IDENTITY: [(&str, &str); 4] = [
    (headers::TENANT, "tenant-007"),
    (headers::SUBJECT, "user-00042"),
    (headers::CLASS, "premium"),
    (headers::REGION, "eu-west"),
];

/// Waits for what must come soon.
#[track_caller]
pub(crate) fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let waiter = std::panic::Location::caller();
    async move {
        let result = tokio::time::timeout(PATIENCE, future).await;
        result.unwrap_or_else(|_| panic!("{waiter}: waited in vain"))
    }
}

/// A task of the test, which stands outside the processes under test.
#[expect(clippy::disallowed_methods, reason = "a peer of the test stands outside the process under test")]
pub(crate) fn outside<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// The monotonic clock, as a span since its origin.
pub(crate) fn now() -> Duration {
    MonotonicClock.now().into()
}

/// A call that is not about time.
pub(crate) fn bounded<M>(message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    let deadline = Deadline::after(MonotonicClock.now(), Nanos::from_secs(5));
    request.extensions_mut().insert(CallBudget { deadline, reserve: Nanos::ZERO });
    request
}

/// As [`bounded`], by somebody, as an operation of that id.
pub(crate) fn identified<M>(message: M, id: &str) -> tonic::Request<M> {
    let mut request = bounded(message);
    for (name, value) in IDENTITY.into_iter().chain([(headers::REQUEST_ID, id)]) {
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
    }
    request
}

/// The binary.
pub(crate) fn mercury() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mercury"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// A process of the suite.
pub(crate) struct Member {
    child: Child,
    pub(crate) main: String,
    admin: String,
    control: Option<String>,
    log: Arc<Mutex<String>>,
    drained: watch::Receiver<bool>,
    links: World,
}

impl Member {
    /// Starts it, and waits until it says that it is ready.
    async fn start(state: &TempDir, service: &str, more: &[&str]) -> Self {
        let announce = state.path().join(format!("{service}.json"));
        let mut command = mercury();
        let own = "127.0.0.1:0";
        command.args(["serve", service, "--listen", own, "--admin", own, "--control", own, "--announce"]);
        command.arg(&announce).args(more).args(["--log", "info"]).env("NO_COLOR", "1");
        let mut child = command.spawn().expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (log, (tell, drained)) = (Arc::<Mutex<String>>::default(), watch::channel(false));
        let (ready, mut is_ready) = watch::channel(false);
        let kept = Arc::clone(&log);
        outside(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let is = line.contains("ready") && line.contains("listen=");
                let mut log = kept.lock().expect("sound");
                log.push_str(&line);
                log.push('\n');
                drop(log);
                if is {
                    ready.send_replace(true);
                }
            }
            tell.send_replace(true);
        });
        let came = soon(is_ready.wait_for(|ready| *ready)).await.is_ok();
        assert!(came, "{service}: {}", log.lock().expect("sound"));
        let announced: Value =
            serde_json::from_slice(&fs::read(&announce).expect("announced")).expect("JSON");
        let at = |key: &str| announced[key].as_str().map(str::to_owned);
        let world = World {
            clock: Arc::new(MonotonicClock),
            wall: Arc::new(SystemWallClock),
            ids: Arc::new(IdSource::new(1)),
            tasks: Arc::new(Supervisor::new()),
            points: Points::default(),
        };
        let (main, admin) = (at("grpc").expect("an address"), at("admin").expect("an address"));
        Self { child, main, admin, control: at("control"), log, drained, links: world }
    }

    pub(crate) fn link(&self) -> Link {
        link(&self.main, &self.links)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("it runs");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end. Returns the exit code, unless it was a signal, and all that it said.
    pub(crate) async fn ended(&mut self) -> (Option<i32>, String) {
        let status: ExitStatus = soon(self.child.wait()).await.expect("waited");
        soon(self.drained.wait_for(|drained| *drained)).await.expect("the reader of its log lives");
        (status.code(), self.log.lock().expect("sound").clone())
    }

    /// Waits until a series has a value.
    pub(crate) async fn until_series(&self, line: &str) {
        let give_up = now() + PATIENCE;
        while !self.metrics().await.lines().any(|told| told == line) {
            assert!(now() < give_up, "it never told {line}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until `/lifecycle` says so.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let give_up = now() + PATIENCE;
        loop {
            let (_, body) = self.get("/lifecycle").await;
            let lifecycle: Value = serde_json::from_str(&body).expect("JSON");
            if holds(&lifecycle) {
                return;
            }
            assert!(now() < give_up, "it never came about that {what}: {lifecycle}");
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) async fn readyz(&self) -> u16 {
        self.get("/readyz").await.0
    }

    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await.1
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.admin).await.expect("the admin port is open");
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        soon(stream.read_to_string(&mut answer)).await.expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), body.to_owned())
    }
}

fn link(address: &str, world: &World) -> Link {
    let config = LinkConfig {
        default_timeout: Nanos::from_secs(5),
        connect_timeout: Nanos::from_secs(1),
        backoff_min: Nanos::from_millis(5),
        backoff_max: Nanos::from_millis(50),
        keep_alive_interval: Nanos::from_secs(10),
        keep_alive_timeout: Nanos::from_secs(5),
        calls_max: 64,
        message_bytes_max: 1 << 20,
        header_bytes_max: 16 << 10,
        stream_window_bytes: 1 << 20,
        connection_window_bytes: 1 << 20,
        reset_streams_max: 64,
        reset_stream_memory: Nanos::from_secs(10),
    };
    Link::tcp("link:test", address, config, world.clone()).expect("an address")
}

/// The emulator, and what experiment needs beside it.
pub(crate) struct Suite {
    state: TempDir,
    policy: PathBuf,
    emulator: Member,
}

impl Suite {
    pub(crate) async fn start() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let policy = state.path().join("policy.toml");
        let text = model::policy::SHIPPED.1.replace("drain_ms = 10000", "drain_ms = 2000");
        fs::write(&policy, text).expect("written");
        let emulator = Member::start(&state, "emulator", &[]).await;
        Self { state, policy, emulator }
    }

    /// Starts experiment over the suite's ledger.
    pub(crate) async fn experiment(&self, more: &[&str]) -> Member {
        let ledger = self.state.path().join("exposures.sqlite");
        let path = |path: &PathBuf| path.to_str().expect("text").to_owned();
        let (policy, ledger) = (path(&self.policy), path(&ledger));
        let own = ["--policy", &policy, "--ledger", &ledger, "--emulator", &self.emulator.main];
        Member::start(&self.state, "experiment", &[&own, more].concat()).await
    }

    /// Replaces the policy of its services.
    pub(crate) fn write_policy(&self, generation: u64) {
        let shipped = model::policy::SHIPPED.1.lines();
        let line = |line: &str| match line.starts_with("generation = ") {
            true => format!("generation = {generation}\n"),
            false => format!("{line}\n"),
        };
        fs::write(&self.policy, shipped.map(line).collect::<String>()).expect("written");
    }

    pub(crate) const fn emulator(&self) -> &Member {
        &self.emulator
    }

    fn control(&self) -> EmulatorControlServiceClient<Link> {
        let address = self.emulator.control.as_deref().expect("a control port");
        EmulatorControlServiceClient::new(link(address, &self.emulator.links))
    }

    /// Every call of the catalogue of experiments takes so much longer.
    pub(crate) async fn delay_experiment(&self, millis: u32) {
        let rule = FaultRule {
            dependency: "experiment".to_owned(),
            share_ppm: 1_000_000,
            effect: Some(Effect::DelayMs(millis)),
            ..FaultRule::default()
        };
        let message = InjectFaultRequest { rule: Some(rule) };
        self.control().inject_fault(bounded(message)).await.expect("a fault");
    }

    /// Waits until so many calls of it are under way.
    pub(crate) async fn until_experiment_serves(&self, calls: usize) {
        let give_up = now() + PATIENCE;
        loop {
            let stats =
                self.control().get_stats(bounded(GetStatsRequest {})).await.expect("stats").into_inner();
            let of = stats.dependencies.iter().find(|of| of.dependency == "experiment").expect("known");
            if (of.in_service + of.queued) as usize >= calls {
                return;
            }
            assert!(now() < give_up, "it never served {calls} calls: {of:?}");
            tokio::time::sleep(LOOK).await;
        }
    }
}
