//! Parts: the sections of a policy that concern one service, one branch, the connections, the ledger, shared reads and
//! pressure.

use base::{Dependency, Nanos};
use control::{coalescing::Rules, degradation::Bounds};

use super::SPAN_MS_MAX;
use crate::read::Table;

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
    /// Timeout of its call where the deadline mechanism does not apply, and nothing else bounds it.
    pub independent_timeout: Nanos,
    /// Whether the branch is called at all. Always true for a mandatory one.
    pub enabled: bool,
}

/// Bounds of every listener and connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one process.
    pub connections_max: u32,
    /// Requests of one process, until their answers are read.
    pub requests_max: u32,
    /// Concurrent streams of one connection.
    pub streams_max: u32,
    /// Bytes of a request's headers.
    pub header_bytes_max: u32,
    /// Bytes of a request's body.
    pub body_bytes_max: u32,
    /// How long a new connection may send nothing.
    pub first_byte_timeout: Nanos,
    /// How long a peer may take nothing of an answer.
    pub write_stall_timeout: Nanos,
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

/// The entitlement summary: how long it lives, and whether profile emits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryPolicy {
    /// Whether profile adds it to its answers. It needs a signing key then.
    pub emit: bool,
    /// From issue to expiry.
    pub lifetime: Nanos,
    /// A longer-lived one is refused.
    pub lifetime_max: Nanos,
    /// How far the clocks of issuer and receiver may differ.
    pub leeway: Nanos,
    /// Whether the entitlement call is there to fall back to.
    pub call: bool,
    /// A stream of revocations that is silent for longer vouches for nothing.
    pub staleness_max: Nanos,
    /// Comparisons under way at a time; further ones are left out and counted.
    pub shadow_max: u32,
    /// Samples of differences that are kept.
    pub samples_max: u32,
    /// For how long.
    pub sample_retention: Nanos,
}

/// How exposures reach the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposurePolicy {
    /// Rows of one transaction.
    pub batch_max: u32,
    /// Rows that may wait for the writer.
    pub queue_max: u32,
    /// Bytes that the rows that wait may occupy.
    pub queue_bytes_max: u32,
    /// How long the ledger waits for a lock that another process holds.
    pub busy_timeout: Nanos,
    /// How long a ledger in another process may take to connect, and for one step of a transaction.
    pub store_timeout: Nanos,
    /// How long a ledger may be idle, or out of order, before it is asked whether it would take a row.
    pub probe_interval: Nanos,
}

pub(super) fn service(table: &mut Table<'_>) -> Option<ServicePolicy> {
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

pub(super) fn branch(table: &mut Table<'_>, name: Dependency) -> Option<BranchPolicy> {
    let worst_useful = table.millis("worst_useful_ms", 1..=SPAN_MS_MAX);
    let independent_timeout = table.millis("independent_timeout_ms", 1..=SPAN_MS_MAX);
    let enabled = table.boolean_or("enabled", true);
    if enabled == Some(false) && !name.is_optional() {
        table.fault("enabled", "must be true: the page is wrong without this branch");
    }
    if let (Some(useful), Some(timeout)) = (worst_useful, independent_timeout)
        && timeout < useful
    {
        table.fault("independent_timeout_ms", "must not be below worst_useful_ms");
    }
    let (worst_useful, independent_timeout) = (worst_useful?, independent_timeout?);
    Some(BranchPolicy { worst_useful, independent_timeout, enabled: enabled? })
}

pub(super) fn limits(table: &mut Table<'_>) -> Option<Limits> {
    /// The largest flow-control window that HTTP/2 knows.
    const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
    let connections_max = table.integer32("connections_max", 1..=65_536);
    let requests_max = table.integer32("requests_max", 1..=1 << 20);
    let streams_max = table.integer32("streams_max", 1..=65_536);
    let header_bytes_max = table.integer32("header_bytes_max", 1_024..=1 << 20);
    let body_bytes_max = table.integer32("body_bytes_max", 1_024..=1 << 24);
    let first_byte_timeout = table.millis("first_byte_timeout_ms", 1..=SPAN_MS_MAX);
    let write_stall_timeout = table.millis("write_stall_timeout_ms", 1..=SPAN_MS_MAX);
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
        requests_max: requests_max?,
        streams_max: streams_max?,
        header_bytes_max: header_bytes_max?,
        body_bytes_max: body_bytes_max?,
        first_byte_timeout: first_byte_timeout?,
        write_stall_timeout: write_stall_timeout?,
        keep_alive_interval: keep_alive_interval?,
        keep_alive_timeout: keep_alive_timeout?,
        stream_window_bytes: stream_window_bytes?,
        connection_window_bytes: connection_window_bytes?,
        pending_reset_streams_max: pending_reset_streams_max?,
        local_reset_streams_max: local_reset_streams_max?,
    })
}

pub(super) fn summary(table: &mut Table<'_>) -> Option<SummaryPolicy> {
    /// An hour: a claim that was taken away must not live on in a signature for longer, whatever the revocations say.
    const LIFETIME_MS_MAX: u64 = 3_600_000;
    let emit = table.boolean_or("emit", false);
    let lifetime = table.millis("lifetime_ms", 1_000..=LIFETIME_MS_MAX);
    let lifetime_max = table.millis("lifetime_max_ms", 1_000..=LIFETIME_MS_MAX);
    let leeway = table.millis("leeway_ms", 0..=SPAN_MS_MAX);
    let call = table.boolean_or("call", true);
    let staleness_max = table.millis("staleness_max_ms", 1_000..=LIFETIME_MS_MAX);
    let shadow_max = table.integer32("shadow_max", 1..=4_096);
    let samples_max = table.integer32("samples_max", 0..=1_024);
    let sample_retention = table.millis("sample_retention_ms", 1_000..=7 * 86_400_000);
    if let (Some(lifetime), Some(max)) = (lifetime, lifetime_max)
        && lifetime > max
    {
        table.fault("lifetime_ms", "must not exceed lifetime_max_ms: every summary would be refused");
    }
    let (lifetime, lifetime_max) = (lifetime?, lifetime_max?);
    Some(SummaryPolicy {
        emit: emit?,
        lifetime,
        lifetime_max,
        leeway: leeway?,
        call: call?,
        staleness_max: staleness_max?,
        shadow_max: shadow_max?,
        samples_max: samples_max?,
        sample_retention: sample_retention?,
    })
}

pub(super) fn exposure(table: &mut Table<'_>) -> Option<ExposurePolicy> {
    let batch_max = table.integer32("batch_max", 1..=4_096);
    let queue_max = table.integer32("queue_max", 1..=65_536);
    let queue_bytes_max = table.integer32("queue_bytes_max", 65_536..=1 << 26);
    let busy_timeout = table.millis("busy_timeout_ms", 1..=SPAN_MS_MAX);
    if let (Some(batch), Some(queue)) = (batch_max, queue_max)
        && queue < batch
    {
        table.fault("queue_max", "must not be below batch_max");
    }
    let store_timeout = table.millis("store_timeout_ms", 1..=SPAN_MS_MAX);
    let probe_interval = table.millis("probe_interval_ms", 10..=SPAN_MS_MAX);
    if let (Some(store), Some(busy)) = (store_timeout, busy_timeout)
        && store <= busy
    {
        // Otherwise nobody would be told that it was a lock that took so long.
        table.fault("store_timeout_ms", "must be above busy_timeout_ms");
    }
    Some(ExposurePolicy {
        batch_max: batch_max?,
        queue_max: queue_max?,
        queue_bytes_max: queue_bytes_max?,
        busy_timeout: busy_timeout?,
        store_timeout: store_timeout?,
        probe_interval: probe_interval?,
    })
}

/// When optional sections give way to pressure on the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DegradationPolicy {
    /// Inside what the endpoint must be for two windows before pressure goes.
    pub bounds: Bounds,
    /// What an optional section needs instead of the optional floor while pressure is on, of the request's own time.
    pub floor: Nanos,
}

pub(super) fn degradation(table: &mut Table<'_>) -> Option<DegradationPolicy> {
    let queue_age_max = table.millis("queue_age_max_ms", 1..=SPAN_MS_MAX);
    let occupancy_max = table.integer32("occupancy_max_percent", 1..=100);
    let window = table.millis("window_ms", 10..=SPAN_MS_MAX);
    let floor = table.millis("pressure_floor_ms", 1..=SPAN_MS_MAX);
    let bounds = Bounds {
        queue_age_max: queue_age_max?,
        occupancy_max_per_10_000: occupancy_max? * 100,
        window: window?,
    };
    Some(DegradationPolicy { bounds, floor: floor? })
}

pub(super) fn coalescing(table: &mut Table<'_>) -> Option<Rules> {
    let freshness_window = table.millis("freshness_window_ms", 1..=SPAN_MS_MAX);
    let useful_min = table.millis("useful_min_ms", 1..=SPAN_MS_MAX);
    let duration_max = table.millis("duration_max_ms", 1..=SPAN_MS_MAX);
    let flights_max = table.integer32("flights_max", 1..=1 << 20);
    let waiters_max = table.integer32("waiters_max", 1..=1 << 16);
    if let (Some(useful), Some(longest)) = (useful_min, duration_max)
        && useful >= longest
    {
        table.fault("useful_min_ms", "must be below duration_max_ms: no flight could be joined");
    }
    Some(Rules {
        freshness_window: freshness_window?,
        useful_min: useful_min?,
        duration_max: duration_max?,
        flights_max: flights_max?,
        waiters_max: waiters_max?,
    })
}
