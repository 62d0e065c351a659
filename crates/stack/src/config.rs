//! Config: every bound of a [`Link`](crate::Link), explicit. There is no default: the policy document decides.

use base::Nanos;

/// The bounds of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Budget of a call that brings none of its own; a call is never unlimited.
    pub default_timeout: Nanos,
    /// Longest that one connection attempt takes: resolution, connect and the connection preface.
    pub connect_timeout: Nanos,
    /// Wait after the first failed connection attempt; doubles with each further one, less jitter.
    pub backoff_min: Nanos,
    /// Longest wait between connection attempts; bounds the time to recovery after the peer is back.
    pub backoff_max: Nanos,
    /// How often a PING is sent, idle or not. Not zero.
    pub keep_alive_interval: Nanos,
    /// How long its answer may take before the connection counts as dead.
    pub keep_alive_timeout: Nanos,
    /// Most calls at one time, those that wait for a connection included. One more is refused. The peer's own limit
    /// applies when it is lower.
    pub calls_max: u32,
    /// Largest response message. Above tonic's own limit (4 MiB unless set on the client) tonic's comes first and reads
    /// OUT_OF_RANGE.
    pub message_bytes_max: u32,
    /// Largest header list that is accepted from the peer, as HTTP/2 counts it.
    pub header_bytes_max: u32,
    /// Flow-control window of one response; more than 2³¹ − 1 is taken as that.
    pub stream_window_bytes: u32,
    /// Flow-control window of the connection; more than 2³¹ − 1 is taken as that.
    pub connection_window_bytes: u32,
    /// Most cancelled streams that are remembered, so that their late frames are recognised cheaply.
    pub reset_streams_max: u32,
    /// How long they are remembered.
    pub reset_stream_memory: Nanos,
}
