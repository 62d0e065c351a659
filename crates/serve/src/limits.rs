//! Limits: the named maximum of everything that a peer can make this process hold, and which ones are in force.

use std::{any::Any, fmt, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use base::Nanos;

/// Bounds of one port. Every field is enforced by the shell and observable as a metric or a refusal.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; a further one is accepted and closed at once.
    pub connections_max: u32,
    /// Requests of the process that are not answered, and answers that are not read, without long-lived calls; a further one is refused. A connection bound alone bounds nothing, since each
    /// carries many streams.
    pub requests_max: u32,
    /// Concurrent streams of one HTTP/2 connection, announced in SETTINGS. Above the admitted bounds, so that it is no
    /// hidden queue.
    pub streams_max: u32,
    /// Request headers, counted as RFC 9113 does (name, value and 32 bytes a field).
    pub header_bytes_max: u32,
    /// Request body, and each message in it.
    pub body_bytes_max: u32,
    /// Until a new connection has sent its first bytes.
    pub first_byte_timeout: Nanos,
    /// A peer that takes less of a response than a piece of it, 16 KiB or what is left, for longer than this is cut.
    pub write_stall_timeout: Nanos,
    /// Between HTTP/2 PINGs, also while idle.
    pub keep_alive_interval: Nanos,
    /// Until a PING must have been answered.
    pub keep_alive_timeout: Nanos,
    /// HTTP/2 flow-control window of a stream.
    pub stream_window_bytes: u32,
    /// HTTP/2 flow-control window of a connection; large, since data of reset streams counts against it.
    pub connection_window_bytes: u32,
    /// Streams that a peer reset before they were accepted, in one connection's lifetime between accepts.
    pub pending_reset_streams_max: u32,
    /// Streams that this side reset, in one connection's lifetime.
    pub local_reset_streams_max: u32,
    /// Deadline of a call that names none.
    pub default_timeout: Nanos,
    /// Longest deadline that a caller can ask for.
    pub timeout_max: Nanos,
    /// From the signal to the end of the last exchange.
    pub drain: Nanos,
    /// Generation of the document that these bounds come from, if one does.
    pub generation: Option<u64>,
    /// What else is decided by the document that these bounds come from. A request keeps it from its head to its end.
    pub snapshot: Snapshot,
}

/// A document in force, of a type that whoever serves knows. Clones share it.
#[derive(Clone, Default)]
pub struct Snapshot(Option<Arc<dyn Any + Send + Sync>>);

impl Snapshot {
    /// The document.
    pub fn of<T: Send + Sync + 'static>(document: Arc<T>) -> Self {
        Self(Some(document))
    }

    /// The document, if there is one of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.clone()?.downcast().ok()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&self.0.is_some()).finish()
    }
}

/// The bounds in force at a port. Clones share them.
///
/// A request takes them once, when its head arrives, and keeps them; a connection takes those of the connection when it is
/// accepted. Whoever replaces them therefore changes neither a request nor a connection that is under way.
#[derive(Clone, Debug)]
pub struct InForce(Arc<ArcSwap<Limits>>);

impl InForce {
    /// The bounds now.
    pub fn load(&self) -> Guard<Arc<Limits>> {
        self.0.load()
    }

    /// Other bounds from now on.
    pub fn replace(&self, limits: Limits) {
        self.0.store(Arc::new(limits));
    }
}

impl From<Limits> for InForce {
    fn from(limits: Limits) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(limits)))
    }
}

impl Limits {
    /// The bounds in slow motion: what a caller may ask for, and gets when it asks for nothing, is `factor` times as long.
    /// What concerns the machine and not the model stays.
    pub fn dilated(self, factor: u32) -> Self {
        Self {
            default_timeout: self.default_timeout.times(factor),
            timeout_max: self.timeout_max.times(factor),
            ..self
        }
    }
}

impl Default for Limits {
    /// Values for tests and for ports that no policy governs.
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            requests_max: 8_192,
            streams_max: 1_024,
            header_bytes_max: 16 * 1_024,
            body_bytes_max: 64 * 1_024,
            first_byte_timeout: Nanos::from_secs(5),
            write_stall_timeout: Nanos::from_secs(5),
            keep_alive_interval: Nanos::from_secs(20),
            keep_alive_timeout: Nanos::from_secs(5),
            stream_window_bytes: 256 * 1_024,
            connection_window_bytes: 4 * 1_024 * 1_024,
            pending_reset_streams_max: 4_096,
            local_reset_streams_max: 1 << 20,
            default_timeout: Nanos::from_secs(1),
            timeout_max: Nanos::from_secs(5),
            drain: Nanos::from_secs(10),
            generation: None,
            snapshot: Snapshot::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_motion_lengthens_deadlines_and_nothing_of_the_machine() {
        let (plain, slow) = (Limits::default(), Limits::default().dilated(20));
        assert_eq!(slow.default_timeout, plain.default_timeout.times(20));
        assert_eq!(slow.timeout_max, plain.timeout_max.times(20));
        assert_eq!((slow.drain, slow.write_stall_timeout), (plain.drain, plain.write_stall_timeout));
        assert_eq!(slow.keep_alive_timeout, plain.keep_alive_timeout);
    }
}
