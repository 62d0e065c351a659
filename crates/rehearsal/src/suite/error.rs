//! Error: why the suite did not start, and how a member of it died.

use std::{fmt, io, path::PathBuf};

use super::{Member, process::Ended};

/// A member that ended although nobody asked it to.
#[derive(Clone, Debug)]
pub struct ChildExit {
    /// Which one.
    pub member: Member,
    /// How.
    pub ended: Ended,
    /// Its last log lines.
    pub log_tail: Vec<String>,
    /// Its whole log.
    pub log: PathBuf,
    /// The command that starts it again on the same ports.
    pub restart_command: String,
}

impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} died: {}", self.member, self.ended)?;
        for line in &self.log_tail {
            write!(f, "\n  | {line}")?;
        }
        write!(f, "\n  log: {}\n  restart: {}", self.log.display(), self.restart_command)
    }
}

/// Why the suite did not start, or a member of it did not start again.
#[derive(Debug)]
pub enum LaunchError {
    /// Another launcher runs in this state directory.
    Busy(PathBuf),
    /// A file or directory could not be used.
    Io {
        /// Which one.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// A process could not be started.
    Spawn {
        /// Which one.
        member: Member,
        /// What went wrong.
        error: io::Error,
    },
    /// A process ended before it was ready; its own words say why, a port in use for example.
    Died(ChildExit),
    /// A process announced something that cannot be.
    Announcement {
        /// Which one.
        member: Member,
        /// What is wrong.
        fault: String,
    },
    /// A process was not ready in time.
    NotReady {
        /// Which one.
        member: Member,
        /// Its last log lines.
        log_tail: Vec<String>,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(path) => write!(
                f,
                "{}: another suite runs in this state directory; stop it, or choose another one with --state-dir",
                path.display()
            ),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Spawn { member, error } => write!(f, "cannot start {member}: {error}"),
            Self::Died(exit) => write!(f, "the suite did not start: {exit}"),
            Self::Announcement { member, fault } => {
                write!(f, "the announcement of {member} is wrong: {fault}")
            }
            Self::NotReady { member, log_tail, waited_ms } => {
                write!(f, "{member} was not ready within {waited_ms} ms")?;
                for line in log_tail {
                    write!(f, "\n  | {line}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LaunchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } | Self::Spawn { error, .. } => Some(error),
            Self::Busy(_) | Self::Died(_) | Self::Announcement { .. } | Self::NotReady { .. } => None,
        }
    }
}
