//! Peers: what else meets the suite in a profile, beside the callers of the workload. Each table belongs to one phase.

use base::Nanos;

use crate::read::Table;

/// Longest pause or hold that a table may ask for.
const SPAN_MS_MAX: u64 = 600_000;
/// Most peers of one kind; each has a descriptor on both sides.
const PEERS_MAX: u32 = 8_192;
/// Body sizes at which held requests are weighed, in bytes.
pub const RETAINED_BODY_BYTES: [u32; 3] = [1_024, 16_384, 65_536];

/// `[readers]`: peers that stop reading, or read as slowly as they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    /// Position of its phase.
    pub phase: usize,
    /// HTTP/2 streams whose peer opens no window.
    pub stalled_streams: u32,
    /// HTTP/1 connections that ask and never read.
    pub stalled_connections: u32,
    /// HTTP/1 connections that read a byte at a time.
    pub trickling: u32,
    /// Between two bytes of those.
    pub trickle: Nanos,
}

/// `[bodies]`: bodies at their bound and over it, announced, lied about, and compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bodies {
    /// Position of its phase.
    pub phase: usize,
    /// How often each case is sent.
    pub rounds: u32,
    /// How many of a case are sent at once.
    pub at_once: u32,
    /// Requests that are held open together to be weighed.
    pub retained_requests: u32,
    /// How often each size is weighed.
    pub retained_rounds: u32,
}

/// `[flood]`: far more connections than the bound, at a rate of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Position of its phase.
    pub phase: usize,
    /// Connections that are attempted, over all processes.
    pub attempts: u32,
    /// Their rate, over all processes; what the target does changes nothing in it.
    pub attempts_per_s: u32,
    /// Generating processes.
    pub processes: u32,
    /// Loopback source addresses of each.
    pub sources: u32,
    /// A connection that was taken is kept for so long, at most to the end of the phase.
    pub hold: Nanos,
    /// Resident memory that home-api may have beside its connections.
    pub base_mib: u32,
    /// What each connection may add to it.
    pub connection_kib: u32,
}

/// `[stopping]`: SIGTERM to home-api at the beginning of a phase, with everything open that could hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// Position of its phase, which must be the last.
    pub phase: usize,
    /// HTTP/1 connections that were answered once and are kept alive.
    pub idle: u32,
    /// Connections that have sent nothing.
    pub silent: u32,
    /// Health watches.
    pub watches: u32,
    /// HTTP/2 streams whose peer does not read its answer.
    pub slow_readers: u32,
    /// Requests that are in flight and whose peer reads.
    pub in_flight: u32,
}

/// `[reload]`: edits of the policy file, some of them broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Position of its phase.
    pub phase: usize,
    /// How many edits; a run with short phases makes `quick_edits` of them.
    pub edits: u32,
    /// Edits of a short run.
    pub quick_edits: u32,
    /// Every so many-th is broken.
    pub broken_every: u32,
    /// From one edit to the next.
    pub interval: Nanos,
}

fn phase(table: &mut Table<'_>, phases: &[String]) -> Option<usize> {
    let expected = format!("one of {}", phases.join(", "));
    table.text("phase", &expected, |name| phases.iter().position(|phase| phase == name))
}

pub(super) fn readers(table: &mut Table<'_>, phases: &[String]) -> Option<Readers> {
    let phase = phase(table, phases);
    let stalled_streams = table.integer32("stalled_streams", 0..=PEERS_MAX);
    let stalled_connections = table.integer32("stalled_connections", 0..=PEERS_MAX);
    let trickling = table.integer32("trickling", 0..=PEERS_MAX);
    let trickle = table.millis("trickle_ms", 1..=SPAN_MS_MAX);
    if stalled_streams == Some(0) && stalled_connections == Some(0) {
        table.fault("stalled_streams", "neither streams nor connections stop reading");
        return None;
    }
    Some(Readers {
        phase: phase?,
        stalled_streams: stalled_streams?,
        stalled_connections: stalled_connections?,
        trickling: trickling?,
        trickle: trickle?,
    })
}

pub(super) fn bodies(table: &mut Table<'_>, phases: &[String]) -> Option<Bodies> {
    let phase = phase(table, phases);
    let rounds = table.integer32("rounds", 1..=1_000);
    let at_once = table.integer32("at_once", 1..=256);
    let retained_requests = table.integer32("retained_requests", 1..=1_024);
    let retained_rounds = table.integer32("retained_rounds", 2..=32);
    Some(Bodies {
        phase: phase?,
        rounds: rounds?,
        at_once: at_once?,
        retained_requests: retained_requests?,
        retained_rounds: retained_rounds?,
    })
}

pub(super) fn flood(table: &mut Table<'_>, phases: &[String]) -> Option<Flood> {
    let phase = phase(table, phases);
    let attempts = table.integer32("attempts", 1..=1_000_000);
    let attempts_per_s = table.integer32("attempts_per_s", 1..=100_000);
    let processes = table.integer32("processes", 1..=16);
    let sources = table.integer32("sources", 1..=250);
    let hold = table.millis("hold_ms", 1..=SPAN_MS_MAX);
    let base_mib = table.integer32("base_mib", 1..=4_096);
    let connection_kib = table.integer32("connection_kib", 1..=1_024);
    Some(Flood {
        phase: phase?,
        attempts: attempts?,
        attempts_per_s: attempts_per_s?,
        processes: processes?,
        sources: sources?,
        hold: hold?,
        base_mib: base_mib?,
        connection_kib: connection_kib?,
    })
}

pub(super) fn stopping(table: &mut Table<'_>, phases: &[String]) -> Option<Stopping> {
    let phase = phase(table, phases);
    let mut peers = |key| table.integer32(key, 0..=PEERS_MAX);
    let (idle, silent, watches) = (peers("idle"), peers("silent"), peers("watches"));
    let slow_readers = peers("slow_readers");
    let in_flight = table.integer32("in_flight", 1..=512);
    let phase = phase?;
    if phase + 1 != phases.len() {
        table.fault("phase", "must be the last one: after it home-api is gone");
        return None;
    }
    Some(Stopping {
        phase,
        idle: idle?,
        silent: silent?,
        watches: watches?,
        slow_readers: slow_readers?,
        in_flight: in_flight?,
    })
}

pub(super) fn reload(table: &mut Table<'_>, phases: &[String]) -> Option<Reload> {
    let phase = phase(table, phases);
    let edits = table.integer32("edits", 1..=10_000);
    let quick_edits = table.integer32("quick_edits", 1..=10_000);
    let broken_every = table.integer32("broken_every", 2..=1_000);
    let interval = table.millis("interval_ms", 1..=SPAN_MS_MAX);
    if let (Some(edits), Some(quick)) = (edits, quick_edits)
        && quick > edits
    {
        table.fault("quick_edits", format!("{quick} is more than the {edits} of a whole run"));
        return None;
    }
    Some(Reload {
        phase: phase?,
        edits: edits?,
        quick_edits: quick_edits?,
        broken_every: broken_every?,
        interval: interval?,
    })
}
