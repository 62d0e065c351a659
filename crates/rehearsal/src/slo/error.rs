//! Error: why there is no evidence.

use std::{fmt, io, path::PathBuf};

use load::LoadError;
use model::Faults;

use crate::{
    control::ControlError,
    suite::{ChildExit, LaunchError},
};

/// Why there is no evidence.
#[derive(Debug)]
pub enum RehearsalError {
    /// A file is wrong; a mistake of use.
    Files(Vec<Faults>),
    /// The options contradict each other or a file; a mistake of use.
    Usage(String),
    /// A file could not be read or written.
    Io {
        /// Which one.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// The suite did not start.
    Launch(LaunchError),
    /// A member of the suite died while it was measured.
    Died(Box<ChildExit>),
    /// The generator could not run.
    Load(LoadError),
    /// The emulator could not be controlled.
    Control(ControlError),
    /// What a profile sets beside the callers could not be set up.
    Peers(String),
    /// A signal ended the rehearsal.
    Interrupted,
}

impl RehearsalError {
    /// The exit code: 2 for a mistake of use, else 1.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Files(_) | Self::Usage(_) | Self::Load(LoadError::Plan(_)) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for RehearsalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(files) => {
                let texts: Vec<String> = files.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("\n"))
            }
            Self::Usage(text) | Self::Peers(text) => f.write_str(text),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Launch(error) => error.fmt(f),
            Self::Died(exit) => write!(f, "the rehearsal was ended: {exit}"),
            Self::Load(error) => error.fmt(f),
            Self::Control(error) => error.fmt(f),
            Self::Interrupted => f.write_str("the rehearsal was interrupted; there is no evidence"),
        }
    }
}

impl std::error::Error for RehearsalError {}
