//! Suite: the whole suite as child processes of this one: started in order, waited for, watched, stopped in reverse.
//!
//! The suite owns its children. None outlives it: each holds the read end of a pipe to this process as its stdin and
//! ends when that closes, however this process ended. Nothing runs in the background: exits are seen by whoever awaits
//! [`Suite::exited`].

mod announce;
mod error;
mod member;
mod options;
mod process;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::{StreamExt, TryStreamExt, future, stream::FuturesUnordered};
use http::StatusCode;
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use tokio::time;

pub use announce::{Endpoint, Endpoints, write_json};
pub use error::{ChildExit, LaunchError};
pub use member::{Member, REPLICAS_MAX, Replicated};
pub use options::{MigrationFiles, OnChildExit, Step, Stopped, SuiteOptions};
pub use process::{Ended, LOG_LINES_MAX};

use member::{Listen, StateDir, arguments, environment, shell};
use process::{Launch, Process, log_tail};

/// Longest wait for one member to become ready.
const READY_MAX: Duration = Duration::from_secs(15);
/// How often an announcement is looked for.
const READY_INTERVAL: Duration = Duration::from_millis(5);
/// Longest wait for a member to stop, above all bounds of a shutdown together under the shipped policy; then it is killed.
const STOP_MAX: Duration = Duration::from_secs(20);

/// A member that was started at least once.
struct Slot {
    launch: Launch,
    /// `None` once it ended and was waited for.
    process: Option<Process>,
}

/// A running suite.
pub struct Suite {
    options: SuiteOptions,
    executable: PathBuf,
    state: StateDir,
    slots: BTreeMap<Member, Slot>,
    endpoints: Endpoints,
    took: Nanos,
    /// Locked for as long as the suite runs.
    _lock: fs::File,
}

impl Suite {
    /// Starts all members and returns when each has answered that it is ready.
    ///
    /// # Errors
    /// [`LaunchError`]; what had been started is stopped by then.
    pub async fn start(options: SuiteOptions, mut progress: impl FnMut(Step)) -> Result<Self, LaunchError> {
        let began = MonotonicClock.now();
        let mut suite = Self::prepare(options)?;
        for rank in 0..=Member::HOME_API.rank() {
            let members: Vec<Member> =
                suite.options.members().filter(|member| member.rank() == rank).collect();
            if let Err(error) = suite.launch(&members, &mut progress).await {
                suite.stop().await;
                return Err(error);
            }
        }
        suite.publish()?;
        suite.took = MonotonicClock.now() - began;
        Ok(suite)
    }

    /// Makes the state directory ours: locked, and without what an earlier suite left.
    fn prepare(options: SuiteOptions) -> Result<Self, LaunchError> {
        let state = StateDir::new(options.state_dir.clone());
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| LaunchError::Io { path, error }
        };
        // The emulator begins anew, and its revocation epochs with it: marks of an earlier one would refuse everything.
        let marks = state.marks();
        match fs::remove_dir_all(&marks) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(&marks)(error)),
            _ => {}
        }
        for directory in [state.run(), state.logs(), state.ledgers(), state.marks()] {
            fs::create_dir_all(&directory).map_err(fault(&directory))?;
        }
        let lock_path = state.lock();
        let lock =
            fs::File::options().create(true).append(true).open(&lock_path).map_err(fault(&lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            if error == rustix::io::Errno::WOULDBLOCK {
                LaunchError::Busy(state.path().to_owned())
            } else {
                LaunchError::Io { path: lock_path, error: error.into() }
            }
        })?;
        let stale = Member::every().flat_map(|member| [state.announce(member), state.log(member)]);
        for path in stale.chain([state.endpoints()]) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(&path)(error)),
                _ => {}
            }
        }
        if options.fresh_ledger {
            let ledgers = state.ledgers();
            fs::remove_dir_all(&ledgers).and_then(|()| fs::create_dir(&ledgers)).map_err(fault(&ledgers))?;
        }
        let executable = match &options.executable {
            Some(executable) => executable.clone(),
            None => std::env::current_exe().map_err(fault(Path::new("the running executable")))?,
        };
        let (slots, endpoints) = Default::default();
        Ok(Self { options, executable, state, slots, endpoints, took: Nanos::ZERO, _lock: lock })
    }

    /// Starts `members`, which do not call each other, and waits for all of them.
    async fn launch(
        &mut self,
        members: &[Member],
        progress: &mut impl FnMut(Step),
    ) -> Result<(), LaunchError> {
        for member in members {
            let port = if *member == Member::HOME_API { self.options.port } else { 0 };
            let launch = self.launch_of(*member, &Listen::loopback(port));
            let process =
                Process::start(&launch).map_err(|error| LaunchError::Spawn { member: *member, error })?;
            self.slots.insert(*member, Slot { launch, process: Some(process) });
            progress(Step::Started(*member));
        }
        let waiting: FuturesUnordered<_> = self
            .slots
            .iter_mut()
            .filter(|(member, _)| members.contains(member))
            .map(|(member, slot)| await_ready(*member, slot, &self.state))
            .collect();
        let endpoints: Vec<(Member, Endpoint)> =
            waiting.inspect_ok(|(member, _)| progress(Step::Ready(*member))).try_collect().await?;
        for (member, endpoint) in endpoints {
            self.endpoints.set(member, endpoint);
        }
        Ok(())
    }

    fn launch_of(&self, member: Member, listen: &Listen) -> Launch {
        let peers: Vec<(Member, String)> = Member::all()
            .filter(|peer| peer.rank() < member.rank())
            .filter_map(|peer| {
                let asked = self.options.peer_of(member, peer);
                Some((peer, self.endpoints.get(asked)?.main()?.to_owned()))
            })
            .collect();
        Launch {
            executable: self.executable.clone(),
            arguments: arguments(member, listen, &self.options, &self.state, &peers),
            environment: environment(member, &self.options),
            log: self.state.log(member),
        }
    }

    fn publish(&self) -> Result<(), LaunchError> {
        let path = self.state.endpoints();
        write_json(&path, &self.endpoints).map_err(|error| LaunchError::Io { path, error })
    }

    /// Where everything listens. A member that died keeps its entry; it comes back on the same ports.
    pub const fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The published list of endpoints.
    pub fn endpoints_file(&self) -> PathBuf {
        self.state.endpoints()
    }

    /// What happens when a member dies, as the options say; the caller of [`Suite::exited`] carries it out.
    pub const fn on_child_exit(&self) -> OnChildExit {
        self.options.on_child_exit
    }

    /// How long the start took, from the first process to the last readiness.
    pub const fn start_took(&self) -> Nanos {
        self.took
    }

    /// Members that run, with their process ids.
    pub fn running(&self) -> impl Iterator<Item = (Member, u32)> {
        self.slots.iter().filter_map(|(member, slot)| Some((*member, slot.process.as_ref()?.pid()?)))
    }

    /// Waits until a member ends that nobody asked to; never returns while all run. May be dropped and called again.
    pub async fn exited(&mut self) -> ChildExit {
        let mut running: FuturesUnordered<_> = self
            .slots
            .iter_mut()
            .filter_map(|(member, slot)| {
                let process = slot.process.as_mut()?;
                Some(async move { (*member, process.wait().await) })
            })
            .collect();
        let Some((member, ended)) = running.next().await else { return future::pending().await };
        drop(running);
        // Waiting for a child of one's own fails only when it was waited for elsewhere, which nobody does.
        let ended = ended.unwrap_or(Ended::Signal(0));
        self.report_exit(member, ended)
    }

    fn report_exit(&mut self, member: Member, ended: Ended) -> ChildExit {
        let again = self.relaunch_of(member);
        if let Some(slot) = self.slots.get_mut(&member) {
            slot.process = None;
        }
        let command = std::iter::once(again.executable.into_os_string()).chain(again.arguments);
        ChildExit {
            member,
            ended,
            log_tail: log_tail(&again.log),
            log: again.log,
            restart_command: shell(command),
        }
    }

    /// What starts a member again on the ports that it had.
    fn relaunch_of(&self, member: Member) -> Launch {
        let listen = self.endpoints.get(member).map_or_else(
            || Listen::loopback(0),
            |endpoint| Listen {
                main: endpoint.main().unwrap_or_default().to_owned(),
                admin: endpoint.admin.clone(),
                control: endpoint.control.clone().unwrap_or_default(),
            },
        );
        self.launch_of(member, &listen)
    }

    /// How members are started from now on; it concerns those that are started again.
    pub const fn options_mut(&mut self) -> &mut SuiteOptions {
        &mut self.options
    }

    /// Kills a member at once, for a failure test: no drain, no warning. Its end is then reported by
    /// [`Suite::exited`]. False when it does not run.
    pub fn kill(&self, member: Member) -> bool {
        let process = self.slots.get(&member).and_then(|slot| slot.process.as_ref());
        process.inspect(|process| process.signal(Signal::KILL)).is_some()
    }

    /// Starts a member again on the ports that it had, and waits until it is ready. One that still runs is killed
    /// first.
    ///
    /// # Errors
    /// As [`Suite::start`], for this member; the others are left alone.
    pub async fn restart(&mut self, member: Member) -> Result<(), LaunchError> {
        let launch = self.relaunch_of(member);
        let mut old = self.slots.get_mut(&member).and_then(|slot| slot.process.take());
        if let Some(old) = &mut old {
            old.signal(Signal::KILL);
            old.wait().await.map_err(|error| LaunchError::Spawn { member, error })?;
        }
        let process = Process::start(&launch).map_err(|error| LaunchError::Spawn { member, error })?;
        let mut slot = Slot { launch, process: Some(process) };
        let ready = await_ready(member, &mut slot, &self.state).await;
        self.slots.insert(member, slot);
        let (_, endpoint) = ready?;
        self.endpoints.set(member, endpoint);
        self.publish()
    }

    /// Stops all members: home-api first, then the services, then the emulator. Each gets a bounded time to drain and
    /// is killed after it. Says how each of those ended that ran.
    pub async fn stop(mut self) -> Vec<Stopped> {
        let mut stopped = Vec::with_capacity(self.slots.len());
        for rank in (0..=Member::HOME_API.rank()).rev() {
            let ending = self.slots.iter_mut().filter(|(member, _)| member.rank() == rank);
            let ending = ending.filter_map(|(member, slot)| Some(end(*member, slot.process.as_mut()?)));
            stopped.extend(future::join_all(ending).await);
        }
        // Whoever reads it would be sent to ports where nobody listens. A failure leaves a stale file, which the next
        // start removes.
        let _ = fs::remove_file(self.state.endpoints());
        stopped
    }
}

/// Waits until a member has announced itself and says that it is ready, or has died, or time is up.
async fn await_ready(
    member: Member,
    slot: &mut Slot,
    state: &StateDir,
) -> Result<(Member, Endpoint), LaunchError> {
    let Slot { launch, process } = slot;
    let Some(running) = process.as_mut() else { return future::pending().await };
    let Some(pid) = running.pid() else { return future::pending().await };
    let path = state.announce(member);
    let ready = async {
        let mut ticks = time::interval(READY_INTERVAL);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let announced = announce::read(&path, member, pid)
                .map_err(|fault| LaunchError::Announcement { member, fault })?;
            if let Some(endpoint) = announced
                && matches!(crate::admin::get(&endpoint.admin, "/readyz").await, Ok((StatusCode::OK, _)))
            {
                return Ok((member, endpoint));
            }
        }
    };
    tokio::select! {
        // A death explains everything that follows from it.
        biased;
        ended = running.wait() => {
            let ended = ended.unwrap_or(Ended::Signal(0));
            *process = None;
            let command = std::iter::once(launch.executable.as_os_str());
            Err(LaunchError::Died(ChildExit {
                member,
                ended,
                log_tail: log_tail(&launch.log),
                log: launch.log.clone(),
                restart_command: shell(command.chain(launch.arguments.iter().map(OsString::as_os_str))),
            }))
        }
        ready = time::timeout(READY_MAX, ready) => ready.unwrap_or_else(|_| Err(LaunchError::NotReady {
            member,
            log_tail: log_tail(&launch.log),
            waited_ms: u64::try_from(READY_MAX.as_millis()).unwrap_or(u64::MAX),
        })),
    }
}

/// Asks a process to end, and makes it when it does not.
async fn end(member: Member, process: &mut Process) -> Stopped {
    process.signal(Signal::TERM);
    if let Ok(Ok(ended)) = time::timeout(STOP_MAX, process.wait()).await {
        return Stopped { member, ended, forced: false };
    }
    process.signal(Signal::KILL);
    let ended = process.wait().await.unwrap_or(Ended::Signal(9));
    Stopped { member, ended, forced: true }
}
