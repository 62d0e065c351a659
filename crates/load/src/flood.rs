//! Flood: connections at an offered rate, each with a loopback source address of its process, whatever the target does with them.
//!
//! A connection that is taken is held for a while and then let go; one that is closed before anything was heard of it was
//! refused. The schedule is open: what cannot be attempted, because this process has no descriptor left or is too far
//! behind, is counted as unsent and never made up for.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::{StreamExt, stream::FuturesUnordered};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time,
};

use crate::latency::Latencies;

/// Most source addresses of one process: the last part of an address, without network and broadcast.
pub const SOURCES_MAX: u8 = 250;
/// Descriptors that this process needs beside its connections.
const DESCRIPTORS_KEPT: u64 = 64;
/// Longest wait for a connection: two tries of the kernel, which waits a second before the second one.
const CONNECT_MAX: Duration = Duration::from_millis(2_500);
/// How often the schedule is looked at.
const TICK: Duration = Duration::from_millis(2);
/// An attempt that comes later than this after its instant is unsent.
const BEHIND_MAX: Nanos = Nanos::from_millis(1_000);
/// What a third of the connections begin with and do not end.
const HALF_A_REQUEST: &[u8] = b"GET /v2/home HTTP/1.1\r\nhost: flood\r\nx-half: ";
/// What another third say: the preface of HTTP/2 and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// What one process offers.
#[derive(Clone, Debug)]
pub struct FloodPlan {
    /// The port that is flooded.
    pub target: SocketAddr,
    /// Connections to attempt.
    pub attempts: u32,
    /// Their rate.
    pub attempts_per_s: u32,
    /// Third part of the source addresses, 127.0.this.x, so that processes do not share ports.
    pub network: u8,
    /// How many addresses, from 127.0.network.1 on.
    pub sources: u8,
    /// How long a connection that was taken is held.
    pub hold: Nanos,
}

/// What became of it. Sums of several processes are added, except for the latencies, of which the worst counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flooded {
    /// Attempts of the schedule.
    pub scheduled: u64,
    /// Of them, those that were not made.
    pub unsent: u64,
    /// Made, and no connection came of it.
    pub not_connected: u64,
    /// Connected and heard of, or left open for as long as they were held.
    pub taken: u64,
    /// Connected and closed before anything was heard.
    pub refused: u64,
    /// Most that were open in this process at once.
    pub open_peak: u64,
    /// 99th percentile from a connection to its refusal, in milliseconds; `None` when none was refused.
    pub refusal_p99_ms: Option<f64>,
    /// The longest of them.
    pub refusal_max_ms: Option<f64>,
    /// From the first attempt to the last one, in seconds.
    pub offered_for_s: f64,
}

impl Flooded {
    /// Both processes together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let worse = |one: Option<f64>, two: Option<f64>| one.into_iter().chain(two).reduce(f64::max);
        Self {
            scheduled: self.scheduled + other.scheduled,
            unsent: self.unsent + other.unsent,
            not_connected: self.not_connected + other.not_connected,
            taken: self.taken + other.taken,
            refused: self.refused + other.refused,
            open_peak: self.open_peak + other.open_peak,
            refusal_p99_ms: worse(self.refusal_p99_ms, other.refusal_p99_ms),
            refusal_max_ms: worse(self.refusal_max_ms, other.refusal_max_ms),
            offered_for_s: self.offered_for_s.max(other.offered_for_s),
        }
    }

    /// Whether every attempt of the schedule ended in exactly one way.
    pub const fn is_balanced(&self) -> bool {
        self.scheduled == self.unsent + self.not_connected + self.taken + self.refused
    }
}

/// How one attempt ended.
enum Ended {
    NotConnected,
    Taken,
    Refused(Nanos),
}

/// Raises the number of descriptors that this process may have to what it may raise it to, and says what that is.
///
/// # Errors
/// Whatever the kernel says.
pub fn raise_descriptors() -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    // No maximum at all is more than anybody needs.
    Ok(limit.maximum.unwrap_or(1 << 20))
}

/// Offers the plan's connections and waits for the last of them.
///
/// # Errors
/// When the plan cannot be: no sources, no rate, or no descriptors.
pub async fn flood(plan: &FloodPlan) -> io::Result<Flooded> {
    if plan.sources == 0 || plan.sources > SOURCES_MAX || plan.attempts_per_s == 0 {
        let text = format!("sources: expected 1 to {SOURCES_MAX}; attempts_per_s: expected at least 1");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let descriptors = raise_descriptors()?;
    let open_max = usize::try_from(descriptors.saturating_sub(DESCRIPTORS_KEPT)).unwrap_or(usize::MAX);
    if open_max == 0 {
        return Err(io::Error::other(format!("{descriptors} descriptors are too few")));
    }
    let mut flooded = Flooded::default();
    let mut refusals = Latencies::default();
    let mut open = FuturesUnordered::new();
    let mut tick = time::interval(TICK);
    tick.set_missed_tick_behavior(time::MissedTickBehavior::Skip);
    let began = MonotonicClock.now();
    let mut last = began;
    let mut next: u32 = 0;
    let due_at = |number: u32| {
        let nanos = u64::from(number) * 1_000_000_000 / u64::from(plan.attempts_per_s);
        began + Nanos::new(nanos)
    };
    while next < plan.attempts || !open.is_empty() {
        tokio::select! {
            // What is due goes out before any answer is looked at.
            biased;
            _ = tick.tick(), if next < plan.attempts => {
                let now = MonotonicClock.now();
                while next < plan.attempts && due_at(next) <= now {
                    flooded.scheduled += 1;
                    if open.len() >= open_max || now - due_at(next) > BEHIND_MAX {
                        flooded.unsent += 1;
                    } else {
                        open.push(attempt(plan, next));
                        last = now;
                    }
                    next += 1;
                }
                flooded.open_peak = flooded.open_peak.max(open.len() as u64);
            }
            Some(ended) = open.next(), if !open.is_empty() => match ended {
                Ended::NotConnected => flooded.not_connected += 1,
                Ended::Taken => flooded.taken += 1,
                Ended::Refused(after) => {
                    flooded.refused += 1;
                    refusals.record(after);
                }
            },
        }
    }
    let summary = refusals.summary();
    (flooded.refusal_p99_ms, flooded.refusal_max_ms) = (summary.p99, summary.max);
    flooded.offered_for_s = (last - began).as_secs_f64();
    Ok(flooded)
}

async fn attempt(plan: &FloodPlan, number: u32) -> Ended {
    let last_part = 1 + u8::try_from(number % u32::from(plan.sources)).unwrap_or(0);
    let source = SocketAddr::from((Ipv4Addr::new(127, 0, plan.network, last_part), 0));
    let Ok(Ok(mut stream)) = time::timeout(CONNECT_MAX, connect(source, plan.target)).await else {
        return Ended::NotConnected;
    };
    let connected = MonotonicClock.now();
    let greeting = match number % 3 {
        0 => &b""[..],
        1 => HALF_A_REQUEST,
        _ => PREFACE,
    };
    // One that was refused may be gone before it is greeted; the read says so.
    let _ = stream.write_all(greeting).await;
    let mut heard = [0; 64];
    match time::timeout(plan.hold.into(), stream.read(&mut heard)).await {
        // Nothing for as long as it is held: it was taken, and nobody had anything to say.
        Err(_elapsed) => Ended::Taken,
        Ok(Ok(count)) if count > 0 => {
            let left = (connected + plan.hold).saturating_sub(MonotonicClock.now());
            // What is said until the end does not matter; it is read, so that the peer is not held up.
            let _ = time::timeout(left.into(), async {
                while matches!(stream.read(&mut heard).await, Ok(count) if count > 0) {}
            })
            .await;
            Ended::Taken
        }
        Ok(Ok(_) | Err(_)) => Ended::Refused(MonotonicClock.now() - connected),
    }
}

async fn connect(source: SocketAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(source)?;
    socket.connect(target).await
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn plan(target: SocketAddr, attempts: u32) -> FloodPlan {
        let hold = Nanos::from_millis(300);
        FloodPlan { target, attempts, attempts_per_s: 2_000, network: 77, sources: 3, hold }
    }

    /// Takes the first `room` connections for good and closes all others at once.
    async fn bounded(listener: TcpListener, room: usize) {
        let mut taken = Vec::new();
        loop {
            let (stream, peer) = listener.accept().await.expect("a connection");
            assert!(peer.ip().to_string().starts_with("127.0.77."), "{peer}");
            if taken.len() < room {
                taken.push(stream);
            }
        }
    }

    #[tokio::test]
    async fn who_is_taken_is_told_from_who_is_refused_and_all_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let target = listener.local_addr().expect("an address");
        let plan = plan(target, 200);
        let flooded = tokio::select! {
            biased; // The server never ends.
            flooded = flood(&plan) => flooded.expect("a flood"),
            () = bounded(listener, 50) => unreachable!("it serves for ever"),
        };
        assert_eq!((flooded.scheduled, flooded.taken, flooded.refused), (200, 50, 150), "{flooded:?}");
        assert!(flooded.is_balanced() && flooded.unsent == 0, "{flooded:?}");
        assert!(flooded.refusal_p99_ms.expect("some were refused") < 250.0, "{flooded:?}");
        assert!(flooded.offered_for_s >= 0.09, "no faster than its rate: {flooded:?}");
    }

    #[tokio::test]
    async fn nobody_there_is_no_refusal() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let target = listener.local_addr().expect("an address");
        drop(listener);
        let flooded = flood(&plan(target, 10)).await.expect("a flood");
        assert_eq!((flooded.not_connected, flooded.refused, flooded.refusal_p99_ms), (10, 0, None));
        let faulty = FloodPlan { sources: 0, ..plan(target, 1) };
        assert!(flood(&faulty).await.is_err());
    }

    #[test]
    fn of_two_processes_the_worse_latency_counts() {
        let one =
            Flooded { scheduled: 2, refused: 1, taken: 1, refusal_p99_ms: Some(2.0), ..Flooded::default() };
        let two = Flooded { scheduled: 1, unsent: 1, ..Flooded::default() };
        let both = one.with(two);
        assert!(both.is_balanced());
        assert_eq!((both.scheduled, both.refusal_p99_ms), (3, Some(2.0)));
    }
}
