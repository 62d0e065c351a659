//! Host: what a service is built from, so that it opens no socket, reads no clock and finds no peer by itself.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use base::{Dependency, Nanos, World};
use model::policy::{Policy, ServiceName};
use serve::{health::Readiness, metrics::Registry};
use stack::{Link, LinkConfig};

use crate::{authenticate::Authenticator, link_metrics::Links, policy::Policies, watched};

/// A channel to another process.
pub type Channel = Link;

/// A connection attempt that takes longer has met a host that is gone.
pub(crate) const CONNECT_TIMEOUT: Nanos = Nanos::from_millis(1_000);
/// First pause between connection attempts.
const BACKOFF_MIN: Nanos = Nanos::from_millis(10);
/// Longest pause; a peer that is back is found again within it.
const BACKOFF_MAX: Nanos = Nanos::from_millis(500);
/// Largest answer of a service or of an emulated dependency.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Cancelled streams whose late frames are still recognised.
const RESET_STREAMS_MAX: u32 = 1_024;
/// For how long they are.
const RESET_STREAM_MEMORY: Nanos = Nanos::from_secs(30);

/// Name of the task that replaces a link's connection by one with other bounds.
const REPLACE_TASK: &str = "replace link";

/// A service could not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// What the operator said is wrong; exit code 2.
    Usage(String),
    /// The environment refused; exit code 1.
    Failed(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for StartError {}

/// The world, the policy and the neighbours of one service.
pub struct Host {
    /// Which service this is.
    pub service: ServiceName,
    /// Clocks, ids and supervision.
    pub world: World,
    /// The policy that the process goes by, and what follows it when it changes.
    pub policies: Policies,
    /// Where the service registers its own series.
    pub registry: Registry,
    /// What the process answers when it is asked whether it is ready.
    pub readiness: Readiness,
    /// Address of the emulated dependencies, `host:port`.
    pub emulator: Option<String>,
    /// Addresses of other services, `host:port`, by name.
    pub peers: BTreeMap<String, String>,
    /// Who says whom a request is for.
    pub authenticator: Arc<dyn Authenticator>,
    /// The channels that were opened, for the process's metrics.
    pub links: Links,
}

impl Host {
    /// A channel to the emulated dependency behind this service.
    ///
    /// # Errors
    /// When no address was given.
    pub fn upstream(&self) -> Result<Channel, StartError> {
        let address = self.emulator.as_deref().ok_or_else(|| {
            StartError::Usage(format!("{}: --emulator HOST:PORT is required", self.service.as_str()))
        })?;
        self.channel("link:emulator", address)
    }

    /// A channel to another service.
    ///
    /// # Errors
    /// When no address was given.
    pub fn peer(&self, peer: Dependency) -> Result<Channel, StartError> {
        let address = self.peers.get(peer.as_str()).ok_or_else(|| {
            StartError::Usage(format!("{}: --peer {peer}=HOST:PORT is required", self.service.as_str()))
        })?;
        self.channel(link_label(peer), address)
    }

    fn channel(&self, label: &'static str, address: &str) -> Result<Channel, StartError> {
        let config = link_config(&self.policies.current(), self.service);
        let link = Link::tcp(label, address, config, self.world.clone())
            .map_err(|error| StartError::Usage(format!("{}: {label}: {error}", self.service.as_str())))?;
        self.links.add(label, link.stats());
        self.policies.add(self.follower(&link));
        Ok(link)
    }

    /// Has a link go by the policy when it changes. Whoever uses the link decides how long it lives.
    fn follower(&self, link: &Link) -> impl Fn(&Arc<Policy>) + Send + Sync + 'static {
        let (link, service, tasks) = (link.downgrade(), self.service, Arc::clone(&self.world.tasks));
        let readiness = self.readiness.clone();
        move |next| {
            let Some(link) = link.upgrade() else { return };
            // Also where nothing changes: it withdraws what was asked before and has not come about.
            let config = link_config(next, service);
            let readiness = readiness.clone();
            let replace = async move {
                tokio::select! {
                    biased;
                    () = readiness.quiesced() => {}
                    () = link.reconfigure(config) => {}
                }
            };
            tasks.spawn(REPLACE_TASK, Box::pin(replace));
        }
    }
}

/// The bounds of every link of a service.
fn link_config(policy: &Policy, service: ServiceName) -> LinkConfig {
    let limits = &policy.limits;
    LinkConfig {
        default_timeout: policy.service(service).default_timeout,
        connect_timeout: CONNECT_TIMEOUT,
        backoff_min: BACKOFF_MIN,
        backoff_max: BACKOFF_MAX,
        keep_alive_interval: limits.keep_alive_interval,
        keep_alive_timeout: limits.keep_alive_timeout,
        calls_max: limits.streams_max,
        message_bytes_max: MESSAGE_BYTES_MAX,
        header_bytes_max: limits.header_bytes_max,
        stream_window_bytes: limits.stream_window_bytes,
        connection_window_bytes: limits.connection_window_bytes,
        reset_streams_max: RESET_STREAMS_MAX,
        reset_stream_memory: RESET_STREAM_MEMORY,
    }
}

/// Reads and validates a policy file: the policy, and the text that it was read from.
///
/// # Errors
/// `Usage` with every fault of the file, or naming the file that cannot be read.
pub fn read_policy(path: &Path) -> Result<(Policy, String), StartError> {
    let name = path.display().to_string();
    let text = watched::read(path)
        .map_err(|error| StartError::Usage(format!("cannot read the policy file {name}: {error}")))?;
    let policy = Policy::parse(&name, &text).map_err(|faults| StartError::Usage(faults.to_string()))?;
    Ok((policy, text))
}

/// Names the connection's task and its series.
const fn link_label(peer: Dependency) -> &'static str {
    match peer {
        Dependency::Profile => "link:profile",
        Dependency::Entitlement => "link:entitlement",
        Dependency::Inventory => "link:inventory",
        Dependency::Pricing => "link:pricing",
        Dependency::Experiment => "link:experiment",
        Dependency::Recommendation => "link:recommendation",
        Dependency::Reputation => "link:reputation",
    }
}
