//! Up: the suite in the foreground until somebody ends it.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    io::{self, Write},
};

use base::{Clock, Nanos, clock::MonotonicClock};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    screen::Screen,
    suite::{ChildExit, Endpoints, LaunchError, Member, OnChildExit, Step, Stopped, Suite, SuiteOptions},
};

/// Most times that one member is started again within [`RESTART_WINDOW`]; a member that keeps dying needs a person.
pub const RESTARTS_MAX: usize = 5;
/// See [`RESTARTS_MAX`].
pub const RESTART_WINDOW: Nanos = Nanos::from_secs(60);

/// Runs the suite until SIGINT or SIGTERM, printing to stdout. A second signal ends the members at once. Returns the
/// exit code: 0 when all members ended cleanly after a signal, else 1.
///
/// # Errors
/// [`LaunchError`] when the suite does not start.
pub async fn up(options: SuiteOptions) -> Result<u8, LaunchError> {
    let mut signals = Signals::new().map_err(|error| LaunchError::Io { path: "signals".into(), error })?;
    let screen = Screen::new(true);
    let start = Suite::start(options, |step| {
        screen.say(match step {
            Step::Started(member) => format!("starting {member}"),
            Step::Ready(member) => format!("{member} is ready"),
        });
    });
    let suite = tokio::select! {
        // Whoever interrupts the start does not want it; dropping it ends what was started.
        biased;
        () = signals.next() => {
            screen.clear();
            say("interrupted before the suite was ready");
            return Ok(1);
        }
        suite = start => suite,
    };
    screen.clear();
    let mut suite = suite?;
    say(&endpoints_table(suite.endpoints()));
    say(&format!(
        "\nready in {:.0} ms · addresses in {} · Ctrl-C stops all",
        suite.start_took().as_millis_f64(),
        suite.endpoints_file().display()
    ));
    let asked = watch(&mut suite, &mut signals).await;
    say("stopping: home-api, then the services, then the emulator");
    let stopped = tokio::select! {
        // A second signal does not wait for the drain; dropping the suite kills its members.
        biased;
        () = signals.next() => {
            say("second signal: the members are killed");
            return Ok(1);
        }
        stopped = suite.stop() => stopped,
    };
    say(&stopped_table(&stopped));
    let clean = stopped.iter().all(|one| one.ended.is_clean() && !one.forced);
    Ok(u8::from(!(asked && clean)))
}

/// Watches until a signal (true), or until a death that ends the suite (false).
async fn watch(suite: &mut Suite, signals: &mut Signals) -> bool {
    let mut restarts = Restarts::default();
    loop {
        let exit = tokio::select! {
            // A signal is an order; a death can wait.
            biased;
            () = signals.next() => return true,
            exit = suite.exited() => exit,
        };
        say(&exit.to_string());
        match suite.on_child_exit() {
            OnChildExit::Keep => {}
            OnChildExit::Stop => return false,
            OnChildExit::Restart if restarts.allow(exit.member, MonotonicClock.now()) => {
                tokio::select! {
                    biased;
                    () = signals.next() => return true,
                    again = suite.restart(exit.member) => say(&restarted(&exit, again)),
                }
            }
            OnChildExit::Restart => say(&format!(
                "{} died {RESTARTS_MAX} times within {:.0} s and is left as it is",
                exit.member,
                RESTART_WINDOW.as_secs_f64()
            )),
        }
    }
}

fn restarted(exit: &ChildExit, again: Result<(), LaunchError>) -> String {
    match again {
        Ok(()) => format!("{} runs again on the same ports", exit.member),
        Err(error) => format!("{} could not be started again: {error}", exit.member),
    }
}

/// How often each member was started again lately.
#[derive(Default)]
struct Restarts(BTreeMap<Member, VecDeque<Nanos>>);

impl Restarts {
    fn allow(&mut self, member: Member, now: Nanos) -> bool {
        let lately = self.0.entry(member).or_default();
        lately.retain(|at| now - *at < RESTART_WINDOW);
        let allowed = lately.len() < RESTARTS_MAX;
        if allowed {
            lately.push_back(now);
        }
        allowed
    }
}

/// SIGINT and SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for either. May be dropped and called again.
    pub(crate) async fn next(&mut self) {
        let (interrupt, terminate) = (self.interrupt.recv(), self.terminate.recv());
        tokio::select! {
            // Both mean the same.
            biased;
            _ = interrupt => {}
            _ = terminate => {}
        }
    }
}

/// One row a member.
pub fn endpoints_table(endpoints: &Endpoints) -> String {
    let rows = Member::every().filter_map(|member| {
        let endpoint = endpoints.get(member)?;
        let kind = if endpoint.http.is_some() { "http + grpc" } else { "grpc" };
        Some(vec![
            member.to_string(),
            kind.to_owned(),
            endpoint.main().unwrap_or_default().to_owned(),
            endpoint.admin.clone(),
            endpoint.control.clone().unwrap_or_default(),
            endpoint.pid.to_string(),
        ])
    });
    load::table::grid(&["service", "speaks", "address", "admin", "control", "pid"], 5, rows)
}

/// One line for all clean ends, and one for each that was not.
pub fn stopped_table(stopped: &[Stopped]) -> String {
    let mut text = format!("{} members stopped", stopped.len());
    for one in stopped.iter().filter(|one| one.forced || !one.ended.is_clean()) {
        let how = if one.forced { " (killed after its drain bound)" } else { "" };
        let _ = write!(text, "\n  {}: {}{how}", one.member, one.ended);
    }
    text
}

/// Prints a line; a reader that went away is no reason to stop.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_keeps_dying_is_left_alone_until_the_window_has_passed() {
        let mut restarts = Restarts::default();
        let at = Nanos::from_secs;
        for second in 0..RESTARTS_MAX as u64 {
            assert!(restarts.allow(Member::HOME_API, at(second)));
        }
        assert!(!restarts.allow(Member::HOME_API, at(59)));
        assert!(restarts.allow(Member::Emulator, at(59)), "each has its own count");
        assert!(restarts.allow(Member::HOME_API, at(60)));
        assert!(!restarts.allow(Member::HOME_API, at(60)));
    }
}
