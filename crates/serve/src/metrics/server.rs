//! Server: the series of one port. What the shell counts for every request, connection and stream.
//!
//! `requests_offered` equals the sum of `requests_finished` over all outcomes whenever `requests_in_flight` is zero.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{Registry, TraceLabel, TracedHistogram, delay_histogram, latency_histogram};
use base::{Nanos, Phase, Reason, trace::TraceContext};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry as Registrations, Unit},
};

/// Work that ran longer than this past its deadline or its cancellation is late.
pub const LATE_AFTER: Nanos = Nanos::from_millis(5);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was answered.
    Ok,
    /// It was not, for this reason.
    Refused(Reason),
}

impl Outcome {
    /// Number of outcomes, for tables.
    const COUNT: usize = Reason::ALL.len() + 1;

    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused(reason) => reason.as_str(),
        }
    }

    /// Position in a table of [`Outcome::COUNT`].
    const fn index(self) -> usize {
        match self {
            Self::Ok => 0,
            Self::Refused(reason) => reason as usize + 1,
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Ok).chain(Reason::ALL.into_iter().map(Self::Refused))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Server {
    server: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    server: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPhase {
    server: &'static str,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPart {
    server: &'static str,
    part: &'static str,
}

/// A size as gauges count it.
pub(crate) fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

type Seconds = Counter<f64, AtomicU64>;
type Histograms<L> = Family<L, TracedHistogram, fn() -> TracedHistogram>;

/// The families behind every [`ServerMetrics`] of a registry.
#[derive(Clone, Debug)]
pub(super) struct Families {
    offered: Family<Server, Counter>,
    finished: Family<ByOutcome, Counter>,
    in_flight: Family<Server, Gauge>,
    duration: Histograms<ByOutcome>,
    expired: Family<ByPhase, Counter>,
    connections: Family<Server, Gauge>,
    accepted: Family<Server, Counter>,
    refused: Family<Server, Counter>,
    streams_cut: Family<Server, Counter>,
    readers_cut: Family<Server, Counter>,
    silent: Family<Server, Counter>,
    responses: Family<Server, Gauge>,
    response_bytes: Family<Server, Gauge>,
    largest: Family<ByPart, Gauge>,
    panics: Family<Server, Counter>,
    late_operations: Family<Server, Counter>,
    late_seconds: Family<Server, Seconds>,
    stop_delay: Histograms<Server>,
}

impl Families {
    pub(super) fn register(registry: &mut Registrations) -> Self {
        let families = Self {
            offered: Family::default(),
            finished: Family::default(),
            in_flight: Family::default(),
            duration: Family::new_with_constructor(latency_histogram),
            expired: Family::default(),
            connections: Family::default(),
            accepted: Family::default(),
            refused: Family::default(),
            streams_cut: Family::default(),
            readers_cut: Family::default(),
            silent: Family::default(),
            responses: Family::default(),
            response_bytes: Family::default(),
            largest: Family::default(),
            panics: Family::default(),
            late_operations: Family::default(),
            late_seconds: Family::default(),
            stop_delay: Family::new_with_constructor(delay_histogram),
        };
        let all = families.clone();
        registry.register("requests_offered", "Requests whose head arrived", all.offered);
        registry.register("requests_finished", "Requests by outcome", all.finished);
        registry.register("requests_in_flight", "Requests that have no outcome yet", all.in_flight);
        let help = "From the request's head to the end of its response, answered or refused";
        registry.register_with_unit("request_duration", help, Unit::Seconds, all.duration);
        registry.register("deadline_exceeded", "Expired requests by the phase they were in", all.expired);
        registry.register("connections_open", "Open connections", all.connections);
        registry.register("connections_accepted", "Connections that got a permit", all.accepted);
        registry.register("connections_refused", "Connections closed for want of a permit", all.refused);
        registry.register(
            "streams_cut",
            "Streams reset because their peer outstayed a bound",
            all.streams_cut,
        );
        let help = "Responses that lost their connection: a reader took less than 16 KiB within the stall bound, or the drain ended";
        registry.register("readers_cut", help, all.readers_cut);
        let help = "Connections closed because their peer said nothing in time";
        registry.register("connections_silent", help, all.silent);
        let help = "Responses that were begun and that their readers have not taken";
        registry.register("responses_open", help, all.responses);
        let help = "Bytes of responses that were handed over to be written and have not been";
        registry.register("response_bytes_waiting", help, all.response_bytes);
        let help = "Largest part of a request that was taken, in bytes";
        registry.register("request_bytes_largest", help, all.largest);
        let help = "Handlers that panicked; their callers were told INTERNAL";
        registry.register("handler_panics", help, all.panics);
        let help = "Operations that ran more than 5 ms past their deadline or cancellation";
        registry.register("late_operations", help, all.late_operations);
        let help = "Time that late operations spent past their deadline or cancellation; its rate is their mean number";
        registry.register_with_unit("late", help, Unit::Seconds, all.late_seconds);
        let help =
            "From the caller's departure, or the deadline, to the end of the work that it found running";
        registry.register_with_unit("cancellation_stop_delay", help, Unit::Seconds, all.stop_delay);
        families
    }
}

/// Responses on their way to their readers.
#[derive(Debug)]
pub(crate) struct ResponseGauges {
    open: Gauge,
    bytes: Gauge,
}

impl ResponseGauges {
    /// A response's head was handed over.
    pub(crate) fn begun(&self) {
        self.open.inc();
    }

    /// Its reader has taken all of it, or never will.
    pub(crate) fn ended(&self) {
        self.open.dec();
    }

    /// Bytes were handed over to be written.
    pub(crate) fn held(&self, bytes: usize) {
        self.bytes.inc_by(signed(bytes));
    }

    /// They were written, or never will be.
    pub(crate) fn left(&self, bytes: usize) {
        self.bytes.dec_by(signed(bytes));
    }
}

/// The series of one port, resolved: no method looks anything up or allocates.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    offered: Counter,
    finished: [Counter; Outcome::COUNT],
    in_flight: Gauge,
    duration_answered: TracedHistogram,
    duration_refused: TracedHistogram,
    expired: [Counter; Phase::ALL.len()],
    connections: Gauge,
    accepted: Counter,
    refused: Counter,
    streams_cut: Counter,
    readers_cut: Counter,
    silent: Counter,
    responses: Arc<ResponseGauges>,
    header_bytes_largest: Gauge,
    body_bytes_largest: Gauge,
    panics: Counter,
    late_operations: Counter,
    late_seconds: Seconds,
    stop_delay: TracedHistogram,
}

impl ServerMetrics {
    /// The series of the port named `server` (`grpc`, `home`, `admin`, …). All of them exist from now on, at zero.
    pub fn new(registry: &Registry, server: &'static str) -> Self {
        let families = &registry.0.servers;
        let label = Server { server };
        let duration = |outcome| families.duration.get_or_create_owned(&ByOutcome { server, outcome });
        let largest = |part| families.largest.get_or_create_owned(&ByPart { server, part });
        let mut outcomes = Outcome::all().map(Outcome::as_str);
        Self {
            offered: families.offered.get_or_create_owned(&label),
            finished: std::array::from_fn(|_| {
                let outcome = outcomes.next().expect("there are as many outcomes as places");
                families.finished.get_or_create_owned(&ByOutcome { server, outcome })
            }),
            in_flight: families.in_flight.get_or_create_owned(&label),
            duration_answered: duration("ok"),
            duration_refused: duration("refused"),
            expired: std::array::from_fn(|index| {
                families.expired.get_or_create_owned(&ByPhase { server, phase: Phase::ALL[index].as_str() })
            }),
            connections: families.connections.get_or_create_owned(&label),
            accepted: families.accepted.get_or_create_owned(&label),
            refused: families.refused.get_or_create_owned(&label),
            streams_cut: families.streams_cut.get_or_create_owned(&label),
            readers_cut: families.readers_cut.get_or_create_owned(&label),
            silent: families.silent.get_or_create_owned(&label),
            responses: Arc::new(ResponseGauges {
                open: families.responses.get_or_create_owned(&label),
                bytes: families.response_bytes.get_or_create_owned(&label),
            }),
            header_bytes_largest: largest("headers"),
            body_bytes_largest: largest("body"),
            panics: families.panics.get_or_create_owned(&label),
            late_operations: families.late_operations.get_or_create_owned(&label),
            late_seconds: families.late_seconds.get_or_create_owned(&label),
            stop_delay: families.stop_delay.get_or_create_owned(&label),
        }
    }

    /// A request's head arrived. Exactly one [`ServerMetrics::finished`] must follow, on every path.
    pub fn offered(&self) {
        self.offered.inc();
        self.in_flight.inc();
    }

    /// A request ended, `elapsed` after its head arrived. The trace becomes the exemplar if it is sampled.
    pub fn finished(&self, outcome: Outcome, elapsed: Nanos, trace: Option<&TraceContext>) {
        self.finished[outcome.index()].inc();
        self.in_flight.dec();
        let histogram = match outcome {
            Outcome::Ok => &self.duration_answered,
            Outcome::Refused(_) => &self.duration_refused,
        };
        histogram.observe(elapsed.as_secs_f64(), TraceLabel::of(trace), None);
    }

    /// A deadline passed while the request was in `phase`. In addition to [`ServerMetrics::finished`].
    pub fn expired(&self, phase: Phase) {
        self.expired[phase.index()].inc();
    }

    /// A connection got its permit.
    pub fn connection_opened(&self) {
        self.accepted.inc();
        self.connections.inc();
    }

    /// A connection that was opened is gone.
    pub fn connection_closed(&self) {
        self.connections.dec();
    }

    /// A connection was closed at once because every permit was taken.
    pub fn connection_refused(&self) {
        self.refused.inc();
    }

    /// A stream was reset by this side because its peer did not read, or did not send, in time.
    pub fn stream_cut(&self) {
        self.streams_cut.inc();
    }

    /// A connection was closed because its peer said nothing in time: no first byte, half a head, no answer to a PING.
    pub fn connection_silent(&self) {
        self.silent.inc();
    }

    /// So many responses lost their connection, because their reader took too little of one of them in time.
    pub fn readers_cut(&self, responses: usize) {
        self.readers_cut.inc_by(responses as u64);
    }

    /// What counts the responses on their way. Cheap to share.
    pub(crate) const fn responses(&self) -> &Arc<ResponseGauges> {
        &self.responses
    }

    /// The head of a request within its bound was so large.
    pub(crate) fn header_bytes(&self, bytes: usize) {
        self.header_bytes_largest.inner().fetch_max(signed(bytes), Ordering::Relaxed);
    }

    /// The largest body of a request, or message of it, that was taken. For whoever reads it.
    pub(crate) const fn body_bytes(&self) -> &Gauge {
        &self.body_bytes_largest
    }

    /// A handler panicked.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Work ended `by` after the moment at which it had become useless. Counts it, and all of that time, if it is late by the
    /// rule of [`LATE_AFTER`]; otherwise nothing.
    pub fn late(&self, by: Nanos) {
        if by > LATE_AFTER {
            self.late_operations.inc();
            self.late_seconds.inc_by(by.as_secs_f64());
        }
    }

    /// Work stopped `delay` after its caller was gone or its deadline had passed. The label becomes the exemplar.
    pub fn stopped(&self, delay: Nanos, exemplar: Option<TraceLabel>) {
        self.stop_delay.observe(delay.as_secs_f64(), exemplar, None);
    }

    /// Requests that have no outcome yet.
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.in_flight.get()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use base::Dependency;

    use super::*;

    fn sum(text: &str, name: &str, server: &str) -> f64 {
        let start = format!("{name}{{server=\"{server}\"");
        let lines = text.lines().filter(|line| line.starts_with(&start));
        lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
    }

    #[test]
    fn positions_are_unique_and_complete() {
        for (position, outcome) in Outcome::all().enumerate() {
            assert_eq!(outcome.index(), position, "{outcome:?}");
        }
    }

    #[test]
    fn what_was_offered_is_the_sum_of_the_outcomes() {
        let registry = Registry::new("profile");
        let metrics = ServerMetrics::new(&registry, "grpc");
        for (count, outcome) in Outcome::all().enumerate() {
            for _ in 0..=count {
                metrics.offered();
                metrics.finished(outcome, Nanos::from_millis(3), None);
            }
        }
        metrics.offered();
        assert_eq!(metrics.in_flight(), 1);
        metrics.finished(Outcome::Refused(Reason::Cancelled), Nanos::ZERO, None);
        let text = registry.encode();
        let offered = sum(&text, "mercury_requests_offered_total", "grpc");
        assert_eq!(offered, (1..=Outcome::COUNT).sum::<usize>() as f64 + 1.0);
        assert_eq!(sum(&text, "mercury_requests_finished_total", "grpc"), offered);
        assert_eq!(sum(&text, "mercury_request_duration_seconds_count", "grpc"), offered);
        assert_eq!(sum(&text, "mercury_requests_in_flight", "grpc"), 0.0);
        assert!(text.contains("mercury_requests_finished_total{server=\"grpc\",outcome=\"internal\"} 20\n"));
    }

    #[test]
    fn ports_share_families_and_not_values() {
        let registry = Registry::new("home-api");
        let home = ServerMetrics::new(&registry, "home");
        let admin = ServerMetrics::new(&registry, "admin");
        let again = ServerMetrics::new(&registry, "home");
        home.offered();
        again.offered();
        admin.connection_opened();
        let text = registry.encode();
        assert_eq!(sum(&text, "mercury_requests_offered_total", "home"), 2.0);
        assert_eq!(sum(&text, "mercury_requests_offered_total", "admin"), 0.0);
        assert_eq!(sum(&text, "mercury_connections_open", "admin"), 1.0);
        assert_eq!(text.matches("# TYPE mercury_requests_offered ").count(), 1);
    }

    #[test]
    fn five_milliseconds_are_in_time_and_more_is_late() {
        let registry = Registry::new("profile");
        let metrics = ServerMetrics::new(&registry, "grpc");
        metrics.late(LATE_AFTER);
        metrics.late(LATE_AFTER + Nanos::new(1_000_000));
        metrics.expired(Phase::Fanout(Dependency::Pricing));
        metrics.stopped(Nanos::from_micros(200), None);
        let text = registry.encode();
        assert_eq!(sum(&text, "mercury_late_operations_total", "grpc"), 1.0);
        assert_eq!(sum(&text, "mercury_late_seconds_total", "grpc"), 0.006);
        let expired = "mercury_deadline_exceeded_total{server=\"grpc\",phase=\"fanout:pricing\"} 1\n";
        assert!(text.contains(expired), "{text}");
        let stopped = "mercury_cancellation_stop_delay_seconds_bucket{le=\"0.00025\",server=\"grpc\"} 1\n";
        assert!(text.contains(stopped), "{text}");
    }
}
