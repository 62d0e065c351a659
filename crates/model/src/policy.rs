//! Policy: every bound, budget and reserve of the suite, read from one document and frozen (DESIGN 3.9).

use base::{Dependency, Nanos, mix};

use crate::{
    faults::Faults,
    read::{self, Table, every},
};

/// The policy document that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) = ("config/policy.toml", include_str!("../../../config/policy.toml"));

/// A process that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceName {
    /// The ingress.
    HomeApi,
    /// Who the subject is.
    Profile,
    /// What the subject may do.
    Entitlement,
    /// What can be promised.
    Inventory,
    /// What it costs.
    Pricing,
    /// Which arms are shown.
    Experiment,
    /// What the subject may like.
    Recommendation,
    /// How the subject's reviews stand.
    Reputation,
}

impl ServiceName {
    /// All of them, ingress first.
    pub const ALL: [Self; 8] = [
        Self::HomeApi,
        Self::Profile,
        Self::Entitlement,
        Self::Inventory,
        Self::Pricing,
        Self::Experiment,
        Self::Recommendation,
        Self::Reputation,
    ];

    /// The name used in files, commands and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HomeApi => "home-api",
            Self::Profile => "profile",
            Self::Entitlement => "entitlement",
            Self::Inventory => "inventory",
            Self::Pricing => "pricing",
            Self::Experiment => "experiment",
            Self::Recommendation => "recommendation",
            Self::Reputation => "reputation",
        }
    }

    /// The service of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == name)
    }

    /// The service in front of a dependency.
    pub const fn of(dependency: Dependency) -> Self {
        match dependency {
            Dependency::Profile => Self::Profile,
            Dependency::Entitlement => Self::Entitlement,
            Dependency::Inventory => Self::Inventory,
            Dependency::Pricing => Self::Pricing,
            Dependency::Experiment => Self::Experiment,
            Dependency::Recommendation => Self::Recommendation,
            Dependency::Reputation => Self::Reputation,
        }
    }
}

impl std::fmt::Display for ServiceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One validated policy. Immutable; a change is another value with a higher generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Rises with every change; a lower one never replaces a higher one.
    pub generation: u64,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// The latency objective at ingress.
    pub objective: Nanos,
    /// What ingress keeps for assembling and writing the response.
    pub response_reserve: Nanos,
    /// An optional branch starts only with at least this much left.
    pub optional_floor: Nanos,
    /// How long a stopping process waits for its work.
    pub drain: Nanos,
    /// Bounds of every listener and connection.
    pub limits: Limits,
    /// How exposures reach the ledger.
    pub exposure: ExposurePolicy,
    services: [ServicePolicy; 8],
    branches: [BranchPolicy; 7],
}

impl Policy {
    /// The policy in slow motion: the objective, every deadline, reserve and budget is `factor` times as long. What
    /// concerns the machine and not the model stays: drain, connection bounds, the ledger's busy timeout.
    pub fn dilated(&self, factor: u32) -> Self {
        let mut dilated = self.clone();
        for span in [&mut dilated.objective, &mut dilated.response_reserve, &mut dilated.optional_floor] {
            *span = span.times(factor);
        }
        for service in &mut dilated.services {
            for span in [&mut service.default_timeout, &mut service.timeout_max, &mut service.reserve] {
                *span = span.times(factor);
            }
        }
        for branch in &mut dilated.branches {
            branch.worst_useful = branch.worst_useful.times(factor);
        }
        dilated
    }
}

/// Time bounds of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServicePolicy {
    /// Deadline of a call that sent none.
    pub default_timeout: Nanos,
    /// Longest deadline that is honoured; a longer one is clamped to it.
    pub timeout_max: Nanos,
    /// What this hop keeps of the deadline for itself when it calls on.
    pub reserve: Nanos,
}

/// How the home page treats one of its branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchPolicy {
    /// The longest that useful work of this branch is expected to take; with less left, it is not started.
    pub worst_useful: Nanos,
    /// Whether the branch is called at all. Always true for a mandatory one.
    pub enabled: bool,
}

/// Bounds of every listener and connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one process.
    pub connections_max: u32,
    /// Concurrent streams of one connection.
    pub streams_max: u32,
    /// Bytes of a request's headers.
    pub header_bytes_max: u32,
    /// Bytes of a request's body.
    pub body_bytes_max: u32,
    /// How long a new connection may send nothing.
    pub first_byte_timeout: Nanos,
    /// Silence after which a connection is probed.
    pub keep_alive_interval: Nanos,
    /// How long the answer to a probe may take.
    pub keep_alive_timeout: Nanos,
    /// Flow-control window of a stream.
    pub stream_window_bytes: u32,
    /// Flow-control window of a connection.
    pub connection_window_bytes: u32,
    /// Streams that a peer reset before they were accepted.
    pub pending_reset_streams_max: u32,
    /// Streams that this side reset, over the life of a connection.
    pub local_reset_streams_max: u32,
}

/// How exposures reach the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposurePolicy {
    /// Rows of one transaction.
    pub batch_max: u32,
    /// Rows that may wait for the writer.
    pub queue_max: u32,
    /// How long the ledger waits for a lock that another process holds.
    pub busy_timeout: Nanos,
}

impl Policy {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, |table| policy(table, mix::fold_bytes(0, text.as_bytes())))
    }

    /// The policy that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped policy is valid, which a test checks")
    }

    /// The time bounds of a service.
    pub const fn service(&self, name: ServiceName) -> &ServicePolicy {
        &self.services[name as usize]
    }

    /// How the home page treats a branch.
    pub const fn branch(&self, dependency: Dependency) -> &BranchPolicy {
        &self.branches[dependency.index()]
    }
}

/// Longest time bound that a policy may hold: a minute.
const SPAN_MS_MAX: u64 = 60_000;

fn policy(table: &mut Table<'_>, digest: u64) -> Option<Policy> {
    let generation = table.integer("generation", 1..=u64::MAX);
    let objective = table.millis("objective_ms", 1..=SPAN_MS_MAX);
    let response_reserve = table.millis("response_reserve_ms", 1..=SPAN_MS_MAX);
    let optional_floor = table.millis("optional_floor_ms", 1..=SPAN_MS_MAX);
    let drain = table.millis("drain_ms", 1..=10 * SPAN_MS_MAX);
    let services = table.section("services", |services| {
        every(ServiceName::ALL.map(|name| services.section(name.as_str(), service)))
    });
    let branches = table.section("branches", |branches| {
        every(Dependency::ALL.map(|name| branches.section(name.as_str(), |table| branch(table, name))))
    });
    let limits = table.section("limits", limits);
    let exposure = table.section("exposure", exposure);

    if let (Some(objective), Some(reserve), Some(floor)) = (objective, response_reserve, optional_floor) {
        if reserve >= floor {
            table.fault("optional_floor_ms", "must be above response_reserve_ms");
        }
        if floor >= objective {
            table.fault("optional_floor_ms", "must be below objective_ms");
        }
    }
    if let (Some(services), Some(reserve)) = (&services, response_reserve)
        && services[ServiceName::HomeApi as usize].reserve != reserve
    {
        table.fault("response_reserve_ms", "must equal services.home-api.reserve_ms, the hop that keeps it");
    }
    if let (Some(branches), Some(objective), Some(reserve)) = (&branches, objective, response_reserve) {
        let needed = mandatory_chain(branches) + reserve;
        if needed > objective {
            let message = format!(
                "is too short: profile, entitlement, the longest mandatory branch and the reserve need {} ms",
                needed.as_millis()
            );
            table.fault("objective_ms", message);
        }
    }
    if let (Some(branches), Some(floor), Some(reserve)) = (&branches, optional_floor, response_reserve) {
        for name in Dependency::ALL.into_iter().filter(|name| name.is_optional()) {
            if branches[name.index()].worst_useful + reserve > floor {
                let message = format!("must cover branches.{name}.worst_useful_ms and response_reserve_ms");
                table.fault("optional_floor_ms", message);
            }
        }
    }
    Some(Policy {
        generation: generation?,
        digest,
        objective: objective?,
        response_reserve: response_reserve?,
        optional_floor: optional_floor?,
        drain: drain?,
        limits: limits?,
        exposure: exposure?,
        services: services?,
        branches: branches?,
    })
}

/// The serial part of the call graph: profile, entitlement, then the longest of the mandatory parallel branches.
fn mandatory_chain(branches: &[BranchPolicy; 7]) -> Nanos {
    let serial = [Dependency::Profile, Dependency::Entitlement];
    let useful = |name: Dependency| branches[name.index()].worst_useful;
    let parallel = Dependency::ALL
        .into_iter()
        .filter(|name| !name.is_optional() && !serial.contains(name))
        .map(useful)
        .max();
    useful(serial[0]) + useful(serial[1]) + parallel.unwrap_or_default()
}

fn service(table: &mut Table<'_>) -> Option<ServicePolicy> {
    let default_timeout = table.millis("default_timeout_ms", 1..=SPAN_MS_MAX);
    let timeout_max = table.millis("timeout_max_ms", 1..=SPAN_MS_MAX);
    let reserve = table.millis("reserve_ms", 0..=1_000);
    if let (Some(default), Some(max)) = (default_timeout, timeout_max)
        && default > max
    {
        table.fault("default_timeout_ms", "must not exceed timeout_max_ms");
    }
    if let (Some(default), Some(reserve)) = (default_timeout, reserve)
        && reserve >= default
    {
        table.fault("reserve_ms", "must be below default_timeout_ms");
    }
    Some(ServicePolicy { default_timeout: default_timeout?, timeout_max: timeout_max?, reserve: reserve? })
}

fn branch(table: &mut Table<'_>, name: Dependency) -> Option<BranchPolicy> {
    let worst_useful = table.millis("worst_useful_ms", 1..=SPAN_MS_MAX);
    let enabled = table.boolean_or("enabled", true);
    if enabled == Some(false) && !name.is_optional() {
        table.fault("enabled", "must be true: the page is wrong without this branch");
    }
    Some(BranchPolicy { worst_useful: worst_useful?, enabled: enabled? })
}

fn limits(table: &mut Table<'_>) -> Option<Limits> {
    /// The largest flow-control window that HTTP/2 knows.
    const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
    let connections_max = table.integer32("connections_max", 1..=65_536);
    let streams_max = table.integer32("streams_max", 1..=65_536);
    let header_bytes_max = table.integer32("header_bytes_max", 1_024..=1 << 20);
    let body_bytes_max = table.integer32("body_bytes_max", 1_024..=1 << 24);
    let first_byte_timeout = table.millis("first_byte_timeout_ms", 1..=SPAN_MS_MAX);
    let keep_alive_interval = table.millis("keep_alive_interval_ms", 100..=10 * SPAN_MS_MAX);
    let keep_alive_timeout = table.millis("keep_alive_timeout_ms", 100..=SPAN_MS_MAX);
    let stream_window_bytes = table.integer32("stream_window_bytes", 65_535..=WINDOW_BYTES_MAX);
    let connection_window_bytes = table.integer32("connection_window_bytes", 65_535..=WINDOW_BYTES_MAX);
    let pending_reset_streams_max = table.integer32("pending_reset_streams_max", 1..=u32::MAX);
    let local_reset_streams_max = table.integer32("local_reset_streams_max", 1..=u32::MAX);
    if let (Some(stream), Some(connection)) = (stream_window_bytes, connection_window_bytes)
        && stream > connection
    {
        table.fault("stream_window_bytes", "must not exceed connection_window_bytes");
    }
    Some(Limits {
        connections_max: connections_max?,
        streams_max: streams_max?,
        header_bytes_max: header_bytes_max?,
        body_bytes_max: body_bytes_max?,
        first_byte_timeout: first_byte_timeout?,
        keep_alive_interval: keep_alive_interval?,
        keep_alive_timeout: keep_alive_timeout?,
        stream_window_bytes: stream_window_bytes?,
        connection_window_bytes: connection_window_bytes?,
        pending_reset_streams_max: pending_reset_streams_max?,
        local_reset_streams_max: local_reset_streams_max?,
    })
}

fn exposure(table: &mut Table<'_>) -> Option<ExposurePolicy> {
    let batch_max = table.integer32("batch_max", 1..=4_096);
    let queue_max = table.integer32("queue_max", 1..=65_536);
    let busy_timeout = table.millis("busy_timeout_ms", 1..=SPAN_MS_MAX);
    if let (Some(batch), Some(queue)) = (batch_max, queue_max)
        && queue < batch
    {
        table.fault("queue_max", "must not be below batch_max");
    }
    Some(ExposurePolicy { batch_max: batch_max?, queue_max: queue_max?, busy_timeout: busy_timeout? })
}

#[cfg(test)]
mod tests;
