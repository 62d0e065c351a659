//! Options: how a suite is started, and what it tells while it starts and stops.

use std::{collections::BTreeMap, path::PathBuf};

use model::Scale;

use super::{Ended, Member, REPLICAS_MAX, Replicated};
use crate::keys::KeyDir;

/// What happens when a member dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnChildExit {
    /// It is reported, and the others go on.
    #[default]
    Keep,
    /// It is reported, and the suite is stopped.
    Stop,
    /// It is reported, and started again on the same ports.
    Restart,
}

impl OnChildExit {
    /// The choice of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "keep" => Some(Self::Keep),
            "stop" => Some(Self::Stop),
            "restart" => Some(Self::Restart),
            _ => None,
        }
    }
}

/// What the migration of the entitlement summary needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationFiles {
    /// Keys that sign and are accepted.
    pub keys: KeyDir,
    /// The ledger of decisions that the processes follow.
    pub ledger: PathBuf,
}

/// How the suite is started.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    /// The `mercury` binary; `None` is the one that runs.
    pub executable: Option<PathBuf>,
    /// Port of home-api on loopback; 0 picks a free one. All others are picked.
    pub port: u16,
    /// Directory of logs, announcements, the ledger and `endpoints.json`.
    pub state_dir: PathBuf,
    /// Policy file; `None` is the shipped one.
    pub policy: Option<PathBuf>,
    /// What the migration of the entitlement summary needs; without it the policy says, and no summaries are emitted or read.
    pub migration: Option<MigrationFiles>,
    /// Processes of home-api, 1 to 4. All but the first pick their ports.
    pub home_apis: u8,
    /// Processes of experiment, 1 to 4. More than one need a [`Self::ledger`] that they can share. Each process of home-api
    /// asks the one of its own number, or, where there are fewer, the next in turn.
    pub experiments: u8,
    /// The exposure ledger, a file or a PostgreSQL URL; `None` is a file in the state directory.
    pub ledger: Option<String>,
    /// Scenario file; `None` is the shipped one.
    pub scenario: Option<PathBuf>,
    /// Seed of the emulated data and draws.
    pub seed: u64,
    /// Size of the whole system: pools, gates, emulated capacity and key space.
    pub scale: Scale,
    /// Slow motion: every latency, deadline, reserve and budget times this; 1 is none.
    pub dilate: u32,
    /// What happens when a member dies.
    pub on_child_exit: OnChildExit,
    /// Begin with an empty exposure ledger. Otherwise that of an earlier suite in the same directory goes on: an operation
    /// that it knows is then a replay.
    pub fresh_ledger: bool,
    /// Members whose calendar is wrong, by so many milliseconds.
    pub calendar_offsets_ms: BTreeMap<Member, i64>,
    /// Log filter of the members; `None` leaves it to the environment.
    pub log_filter: Option<String>,
    /// OTLP endpoint of the members; `None` leaves it to the environment.
    pub otlp_endpoint: Option<String>,
}

impl SuiteOptions {
    /// Shipped policy and scenario, any ports, seed 1, scale 1.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            executable: None,
            port: 0,
            state_dir: state_dir.into(),
            policy: None,
            migration: None,
            home_apis: 1,
            experiments: 1,
            ledger: None,
            scenario: None,
            seed: 1,
            scale: Scale::ONE,
            dilate: 1,
            on_child_exit: OnChildExit::Keep,
            fresh_ledger: false,
            calendar_offsets_ms: BTreeMap::new(),
            log_filter: None,
            otlp_endpoint: None,
        }
    }
}

impl SuiteOptions {
    /// The processes of the suite, in the order of their start.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> + use<> {
        let experiments = Member::processes(Replicated::Experiment, self.experiments).skip(1);
        let home_apis = Member::processes(Replicated::HomeApi, self.home_apis).skip(1);
        Member::all().chain(experiments).chain(home_apis)
    }

    /// The process of `peer`'s service that `member` calls.
    pub(crate) fn peer_of(&self, member: Member, peer: Member) -> Member {
        if peer != Member::EXPERIMENT {
            return peer;
        }
        let number = (member.number() - 1) % self.experiments.clamp(1, REPLICAS_MAX) + 1;
        Member::process(Replicated::Experiment, number)
    }
}

/// A step of the start, for whoever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The process was started.
    Started(Member),
    /// It answers that it is ready.
    Ready(Member),
}

/// How a member ended when the suite was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Which one.
    pub member: Member,
    /// How.
    pub ended: Ended,
    /// Whether it had to be killed, since it did not end in time.
    pub forced: bool,
}
