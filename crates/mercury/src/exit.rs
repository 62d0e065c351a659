//! Exit: how a command ends, and the exit codes that scripts rely on (DESIGN section 9).

use std::process::ExitCode;

/// The end of a command.
#[derive(Debug)]
pub(crate) enum Exit {
    /// 0: done, or every gate passed.
    Pass,
    /// 1: something failed.
    Error(String),
    /// 2: what the operator said is wrong.
    Usage(String),
    /// 3: the process ended, and its drain had to cut something.
    Cut(String),
    /// 98: there is not enough evidence for a verdict.
    Inconclusive(String),
    /// 99: a gate failed.
    GateFailed(String),
}

impl Exit {
    /// Says why on stderr and turns into the process's exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, why) = match self {
            Self::Pass => return ExitCode::SUCCESS,
            Self::Error(why) => (1, why),
            Self::Usage(why) => (2, why),
            Self::Cut(why) => (3, why),
            Self::Inconclusive(why) => (98, why),
            Self::GateFailed(why) => (99, why),
        };
        if !why.is_empty() {
            eprintln!("mercury: {}", why.trim_end());
        }
        ExitCode::from(code)
    }
}

/// Runs a command whose failures are already exits.
pub(crate) fn of(result: Result<(), Exit>) -> Exit {
    match result {
        Ok(()) => Exit::Pass,
        Err(exit) => exit,
    }
}
