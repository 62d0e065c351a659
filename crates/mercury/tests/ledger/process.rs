//! Process: members of the suite as child processes, which end with the test.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use base::{
    Clock as _, Deadline, Nanos, World,
    clock::{MonotonicClock, SystemWallClock},
    headers,
    ids::IdSource,
    inject::Points,
};
use serve::supervisor::Supervisor;
use stack::{CallBudget, Link, LinkConfig};
use tonic::{Request, Status};
use wire::experiment::v1::{AllocateArmsRequest, experiment_service_client::ExperimentServiceClient};

/// How long a test waits for what must come to pass.
const PATIENCE: Nanos = Nanos::from_secs(20);

/// What a process is run within.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapper {
    None,
    /// A write beyond the limit of file sizes fails, as on a full disk, and does not kill.
    ShortWritesFail,
    /// What a file's mode says holds, for root as well.
    HeldToPermissions,
}

fn command(wrapper: Wrapper, arguments: &[&str]) -> Command {
    let mercury = env!("CARGO_BIN_EXE_mercury");
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|process| std::os::unix::fs::MetadataExt::uid(&process) == 0);
    let mut command = match wrapper {
        Wrapper::ShortWritesFail => {
            let mut shell = Command::new("sh");
            shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", mercury]);
            shell
        }
        Wrapper::HeldToPermissions if is_root => {
            let without = "-dac_override,-dac_read_search";
            let mut setpriv = Command::new("setpriv");
            setpriv.args(["--bounding-set", without, "--inh-caps", without, mercury]);
            setpriv
        }
        Wrapper::None | Wrapper::HeldToPermissions => Command::new(mercury),
    };
    command.args(arguments).env_remove("MERCURY_LEDGER");
    command
}

/// Runs it to its end. It gets addresses of its own, and there is nobody at the emulator's.
pub(crate) fn run(wrapper: Wrapper, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = command(wrapper, arguments);
    command.envs(environment.iter().copied());
    command.envs([
        ("MERCURY_LISTEN", "127.0.0.1:0"),
        ("MERCURY_ADMIN", "127.0.0.1:0"),
        ("MERCURY_EMULATOR", "127.0.0.1:1"),
    ]);
    // Whoever starts by mistake ends here.
    command.arg("--exit-with-stdin").stdin(Stdio::null()).output().expect("it runs")
}

/// Between two looks. It orders nothing; it leaves the processors to who is looked at.
#[expect(clippy::disallowed_methods, reason = "there is no runtime here, and nothing is synchronised by it")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(5));
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = MonotonicClock.now() + PATIENCE;
    while !holds() {
        assert!(MonotonicClock.now() < give_up, "it never came about that {what}");
        pause();
    }
}

/// A member that runs. Killed when dropped, and by the end of its standard input if the test is killed itself.
pub(crate) struct Process {
    child: Child,
    pub(crate) main: String,
    admin: String,
    world: World,
}

impl Process {
    pub(crate) fn start(service: &str, wrapper: Wrapper, more: &[&str], directory: &Path) -> Self {
        let announce = directory.join(format!("{service}.json"));
        let mut command = command(wrapper, &["serve", service]);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--control", "127.0.0.1:0"]);
        command.args(["--exit-with-stdin", "--announce"]).arg(&announce).args(more);
        if matches!(wrapper, Wrapper::ShortWritesFail) {
            // What it says goes to the disk that fills up as well, as a log does that is kept in a file.
            let log = directory.join(format!("{service}.log"));
            fs::write(&log, [b'\n'; 8_192]).expect("written");
            command.stderr(fs::File::options().append(true).open(&log).expect("a file"));
        }
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it runs");
        eventually(&format!("{service} announces itself"), || {
            assert_eq!(child.try_wait().expect("a child"), None, "{service} ended");
            announce.exists()
        });
        let text = fs::read_to_string(&announce).expect("announced");
        let announced: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let at = |name: &str| announced[name].as_str().expect("an address").to_owned();
        let world = World {
            clock: Arc::new(MonotonicClock),
            wall: Arc::new(SystemWallClock),
            ids: Arc::new(IdSource::new(7)),
            tasks: Arc::new(Supervisor::new()),
            points: Points::default(),
        };
        Self { child, main: at("grpc"), admin: at("admin"), world }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    /// Status and body of `/readyz`.
    pub(crate) fn readyz(&self) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.admin).expect("the admin port");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket option");
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let status = answer.split(' ').nth(1).expect("a status line").parse().expect("a status");
        (status, answer)
    }

    /// Event ids of the exposures that the service says are recorded for an operation.
    pub(crate) async fn allocate(&self, operation: &str) -> Result<Vec<String>, Status> {
        let mut request = Request::new(AllocateArmsRequest { surface: "home".into() });
        let identity = [
            (headers::TENANT, "tenant-007"),
            (headers::SUBJECT, "user-00042"),
            (headers::CLASS, "premium"),
            (headers::REGION, "eu-west"),
            (headers::REQUEST_ID, operation),
        ];
        for (name, value) in identity {
            request.metadata_mut().insert(name, value.parse().expect("ASCII"));
        }
        let deadline = Deadline::after(MonotonicClock.now(), Nanos::from_millis(1_900));
        request.extensions_mut().insert(CallBudget { deadline, reserve: Nanos::ZERO });
        let answer = ExperimentServiceClient::new(self.link()).allocate_arms(request).await?.into_inner();
        assert!(!answer.allocations.is_empty());
        Ok(answer.allocations.into_iter().map(|one| one.event_id).collect())
    }

    fn link(&self) -> Link {
        let config = LinkConfig {
            default_timeout: PATIENCE,
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
        Link::tcp("link:test", &self.main, config, self.world.clone()).expect("an address")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}
