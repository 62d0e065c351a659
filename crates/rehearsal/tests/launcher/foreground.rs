//! Foreground: `up` as a process of its own, ended politely, impatiently and not at all politely.

use std::{fs, path::Path, process::ExitCode, process::Stdio};

use rehearsal::{Member, OnChildExit, SuiteOptions, suite::Endpoints, up};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout, Command},
};

/// This binary's main when it is called as `up STATE_DIR POLICY`.
pub(crate) async fn main(arguments: &[String]) -> ExitCode {
    let options = SuiteOptions {
        on_child_exit: OnChildExit::parse(&arguments[1]).expect("a choice"),
        ..SuiteOptions::new(&arguments[0])
    };
    match up(options).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A launcher that runs, and what it prints.
struct Foreground {
    launcher: Child,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

impl Foreground {
    /// Starts it and waits until it says that the suite is ready.
    async fn start(home: &Path, on_child_exit: &str, behaviour: &str) -> Self {
        let mut launcher = Command::new(std::env::current_exe().expect("this binary"))
            .args(["up".as_ref(), home.as_os_str(), on_child_exit.as_ref()])
            .env("RUST_LOG", behaviour)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("started");
        let lines = BufReader::new(launcher.stdout.take().expect("piped")).lines();
        let mut foreground = Self { launcher, lines, seen: Vec::new() };
        foreground.until("ready in ").await;
        foreground
    }

    /// Reads on until a line contains `text`.
    async fn until(&mut self, text: &str) {
        while let Some(line) = self.lines.next_line().await.expect("read") {
            let found = line.contains(text);
            self.seen.push(line);
            if found {
                return;
            }
        }
        panic!("it ended without {text:?}: {:#?}", self.seen);
    }

    fn signal(&self, signal: Signal) {
        send(self.launcher.id().expect("it runs"), signal);
    }

    /// Waits for its end and returns the exit code.
    async fn ended(mut self) -> (Option<i32>, String) {
        while let Some(line) = self.lines.next_line().await.expect("read") {
            self.seen.push(line);
        }
        (self.launcher.wait().await.expect("waited").code(), self.seen.join("\n"))
    }
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("a process id");
    kill_process(pid, signal).expect("it runs");
}

fn endpoints(home: &Path) -> Endpoints {
    Endpoints::read(&home.join("endpoints.json")).expect("published")
}

pub(crate) async fn a_signal_stops_all_in_order_and_cleanly() {
    let home = tempfile::tempdir().expect("a directory");
    let foreground = Foreground::start(home.path(), "keep", "").await;
    let table = foreground.seen.join("\n");
    let published = endpoints(home.path());
    for member in Member::all() {
        let endpoint = published.get(member).expect("published");
        assert!(table.contains(endpoint.main().expect("an address")), "{member}: {table}");
    }
    foreground.signal(Signal::TERM);
    let (code, text) = foreground.ended().await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("9 members stopped"), "{text}");
    assert!(!home.path().join("endpoints.json").exists());
}

pub(crate) async fn a_drain_that_was_cut_is_not_clean() {
    let home = tempfile::tempdir().expect("a directory");
    let foreground = Foreground::start(home.path(), "keep", "cut=profile").await;
    foreground.signal(Signal::INT);
    let (code, text) = foreground.ended().await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("profile: exit code 3"), "{text}");
}

pub(crate) async fn a_second_signal_does_not_wait() {
    let home = tempfile::tempdir().expect("a directory");
    let mut foreground = Foreground::start(home.path(), "keep", "deaf=home-api").await;
    foreground.signal(Signal::TERM);
    foreground.until("stopping").await;
    foreground.signal(Signal::TERM);
    let (code, text) = foreground.ended().await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("second signal"), "{text}");
}

pub(crate) async fn a_dead_member_is_reported_and_started_again() {
    let home = tempfile::tempdir().expect("a directory");
    let mut foreground = Foreground::start(home.path(), "restart", "").await;
    let pricing = Member::parse("pricing").expect("a member");
    let before = endpoints(home.path()).get(pricing).expect("published").clone();
    send(before.pid, Signal::KILL);
    foreground.until("pricing runs again on the same ports").await;
    let text = foreground.seen.join("\n");
    assert!(text.contains("pricing died: signal 9 (killed)"), "{text}");
    assert!(text.contains("restart: ") && text.contains("serve pricing --listen"), "{text}");
    let after = endpoints(home.path()).get(pricing).expect("published").clone();
    assert_eq!((after.grpc, after.admin), (before.grpc, before.admin));
    assert_ne!(after.pid, before.pid);
    foreground.signal(Signal::TERM);
    assert_eq!(foreground.ended().await.0, Some(0));
}

pub(crate) async fn a_dead_member_ends_the_suite_when_asked_to() {
    let home = tempfile::tempdir().expect("a directory");
    let foreground = Foreground::start(home.path(), "stop", "").await;
    send(endpoints(home.path()).get(Member::Emulator).expect("published").pid, Signal::KILL);
    let (code, text) = foreground.ended().await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("emulator died") && text.contains("8 members stopped"), "{text}");
}

pub(crate) async fn no_member_outlives_a_launcher_that_is_killed() {
    let home = tempfile::tempdir().expect("a directory");
    let foreground = Foreground::start(home.path(), "keep", "").await;
    let published = endpoints(home.path());
    let mut held = Vec::new();
    for (_, endpoint) in published.iter() {
        held.push(TcpStream::connect(&endpoint.admin).await.expect("connected"));
    }
    foreground.signal(Signal::KILL);
    assert_eq!(foreground.ended().await.0, None, "by a signal");
    for mut connection in held {
        // Ends, by a close or a reset, when the member at its other end does.
        let _ = connection.read_to_end(&mut Vec::new()).await;
    }
    // What it left is no obstacle to the next one.
    assert!(fs::exists(home.path().join("endpoints.json")).expect("known"));
    let next = Foreground::start(home.path(), "keep", "").await;
    next.signal(Signal::TERM);
    assert_eq!(next.ended().await.0, Some(0));
}
