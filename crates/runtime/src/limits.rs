//! Limits: from the policy a user edits to the bounds that the shell enforces.

use std::sync::Arc;

use model::policy::{Policy, ServiceName};
use serve::Snapshot;

/// The bounds of a service's main port, and with them the policy that they come from.
pub fn limits(policy: &Arc<Policy>, service: ServiceName) -> serve::Limits {
    let (limits, times) = (&policy.limits, policy.service(service));
    serve::Limits {
        connections_max: limits.connections_max,
        requests_max: limits.requests_max,
        streams_max: limits.streams_max,
        header_bytes_max: limits.header_bytes_max,
        body_bytes_max: limits.body_bytes_max,
        first_byte_timeout: limits.first_byte_timeout,
        write_stall_timeout: limits.write_stall_timeout,
        keep_alive_interval: limits.keep_alive_interval,
        keep_alive_timeout: limits.keep_alive_timeout,
        stream_window_bytes: limits.stream_window_bytes,
        connection_window_bytes: limits.connection_window_bytes,
        pending_reset_streams_max: limits.pending_reset_streams_max,
        local_reset_streams_max: limits.local_reset_streams_max,
        default_timeout: times.default_timeout,
        timeout_max: times.timeout_max,
        drain: policy.drain,
        generation: Some(policy.generation),
        snapshot: Snapshot::of(Arc::clone(policy)),
    }
}
