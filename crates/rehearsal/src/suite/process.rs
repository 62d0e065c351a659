//! Process: one child process with its log. It lives no longer than the pipe that this process holds to its stdin.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fmt, fs,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};

/// Most lines of a log that are shown when its process died.
pub const LOG_LINES_MAX: usize = 20;
/// How far back from its end a log is read for them.
const LOG_TAIL_BYTES: u64 = 32 << 10;
/// Longest line that is shown.
const LINE_CHARS_MAX: usize = 400;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
}

impl Ended {
    pub(crate) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }

    /// Whether it ended by itself and well.
    pub const fn is_clean(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(9) => f.write_str("signal 9 (killed)"),
            Self::Signal(11) => f.write_str("signal 11 (segmentation fault)"),
            Self::Signal(15) => f.write_str("signal 15 (terminated)"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What is needed to start a process, and to start it again.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) executable: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) log: PathBuf,
}

/// A child that runs.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Held for as long as the child is wanted: it ends when this closes, also when this process is killed.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts it, its output appended to its log.
    pub(crate) fn start(launch: &Launch) -> io::Result<Self> {
        let log = fs::File::options().create(true).append(true).open(&launch.log)?;
        let mut child = Command::new(&launch.executable)
            .args(&launch.arguments)
            .arg("--exit-with-stdin")
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Last resort, when this process unwinds without stopping the suite.
            .kill_on_drop(true)
            // A signal that the terminal sends to the foreground goes to this process alone, which then stops the
            // children in order.
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin })
    }

    /// Its id; `None` once it was waited for.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for its end. May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<Ended> {
        self.child.wait().await.map(Ended::of)
    }

    /// Sends a signal. Nothing happens once it was waited for, so that the id is never another process's.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may have ended a moment ago, and is still ours until it was waited for.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The last lines of a log, longest ones cut; empty when there is none.
pub(crate) fn log_tail(path: &Path) -> Vec<String> {
    let read = || -> io::Result<VecDeque<String>> {
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut lines = VecDeque::with_capacity(LOG_LINES_MAX + 1);
        for line in BufReader::new(file).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).chars().take(LINE_CHARS_MAX).collect();
            lines.push_back(line);
            if lines.len() > LOG_LINES_MAX {
                lines.pop_front();
            }
        }
        Ok(lines)
    };
    read().map(Vec::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn launch(home: &Path, script: &str) -> Launch {
        Launch {
            executable: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("GREETING".into(), "hello".into())],
            log: home.join("child.log"),
        }
    }

    #[tokio::test]
    async fn output_goes_to_the_log_and_the_exit_code_is_told() {
        let home = tempfile::tempdir().expect("a directory");
        let launch = launch(home.path(), "echo $GREETING; echo oops >&2; exit 3");
        let mut process = Process::start(&launch).expect("started");
        assert_eq!(process.wait().await.expect("waited"), Ended::Code(3));
        assert_eq!(process.pid(), None);
        process.signal(Signal::KILL);
        assert_eq!(log_tail(&launch.log), ["hello", "oops"]);
    }

    #[tokio::test]
    async fn a_child_ends_when_its_launcher_lets_go() {
        let home = tempfile::tempdir().expect("a directory");
        // `cat` ends at end of file, as a member does.
        let mut process = Process::start(&launch(home.path(), "cat; exit 5")).expect("started");
        process._stdin = None;
        assert_eq!(process.wait().await.expect("waited"), Ended::Code(5));
    }

    #[tokio::test]
    async fn a_signal_reaches_the_child_and_is_named() {
        let home = tempfile::tempdir().expect("a directory");
        let mut process = Process::start(&launch(home.path(), "exec cat")).expect("started");
        process.signal(Signal::KILL);
        let ended = process.wait().await.expect("waited");
        assert_eq!(ended, Ended::Signal(9));
        assert_eq!(ended.to_string(), "signal 9 (killed)");
        assert!(!ended.is_clean());
    }

    #[test]
    fn the_tail_of_a_log_is_bounded() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("long.log");
        let mut file = fs::File::create(&path).expect("created");
        for number in 0..10_000 {
            writeln!(file, "line {number}").expect("written");
        }
        writeln!(file, "{}", "x".repeat(5_000)).expect("written");
        let tail = log_tail(&path);
        assert_eq!(tail.len(), LOG_LINES_MAX);
        assert_eq!(tail[LOG_LINES_MAX - 2], "line 9999");
        assert_eq!(tail[LOG_LINES_MAX - 1].chars().count(), LINE_CHARS_MAX);
        assert!(log_tail(&home.path().join("none.log")).is_empty());
    }
}
