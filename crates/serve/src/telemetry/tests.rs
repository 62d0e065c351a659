//! Tests of telemetry against a real OTLP server, and against one that never answers.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Mutex, mpsc},
    time::Duration,
};

use base::{Clock as _, clock::MonotonicClock, clock::SystemWallClock, ids::IdSource, trace::TraceContext};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind as WireKind, status::StatusCode},
};
use tonic::{Request, Response, Status, codegen::Service as _};

use super::*;
use crate::{metrics::Outcome, supervisor::Supervisor};

/// Longest wait for something that must happen; a test that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn world() -> World {
    World {
        clock: Arc::new(MonotonicClock),
        wall: Arc::new(SystemWallClock),
        ids: Arc::new(IdSource::new(42)),
        tasks: Arc::new(Supervisor::new()),
        points: base::inject::Points::default(),
    }
}

fn config(address: SocketAddr) -> TelemetryConfig {
    TelemetryConfig {
        service: "profile",
        instance: "profile-7".to_owned(),
        log: LogConfig::default(),
        // Sent when a batch is full or at shutdown, so that no test waits for a timer.
        export: Some(ExportConfig {
            delay: Nanos::from_secs(3_600),
            ..ExportConfig::to(format!("http://{address}"))
        }),
    }
}

fn value(registry: &Registry, series: &str) -> u64 {
    let text = registry.encode();
    let line = text.lines().find(|line| line.split(' ').next() == Some(series));
    let line = line.unwrap_or_else(|| panic!("{series} is missing from\n{text}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

fn dropped(registry: &Registry, reason: &str) -> u64 {
    value(registry, &format!("mercury_telemetry_dropped_spans_total{{reason=\"{reason}\"}}"))
}

/// Log lines, kept.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(super) fn writer(&self) -> impl Fn() -> Self + Send + Sync + 'static {
        let lines = self.clone();
        move || lines.clone()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("utf-8")
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A collector on a thread of its own, which hands every request on.
struct Collector {
    address: SocketAddr,
    requests: mpsc::Receiver<ExportTraceServiceRequest>,
}

struct Inbox(mpsc::SyncSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Inbox {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0
            .try_send(request.into_inner())
            .map_err(|_| Status::resource_exhausted("the test looks away"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (inbox, requests) = mpsc::sync_channel(64);
        let serve = move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let (stream, _) = listener.accept().expect("the exporter connects");
                stream.set_nonblocking(true).expect("a socket");
                let io = TokioIo::new(tokio::net::TcpStream::from_std(stream).expect("a socket"));
                let server = TraceServiceServer::new(Inbox(inbox));
                let service = hyper::service::service_fn(move |request| {
                    let mut server = server.clone();
                    async move {
                        Ok::<_, Infallible>(server.call(request).await.unwrap_or_else(|never| match never {}))
                    }
                });
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                // Ends with the exporter's connection, in good order or not.
                let _ = http.serve_connection(io, service).await;
            });
        };
        thread::Builder::new().name("collector".to_owned()).spawn(serve).expect("a thread");
        Self { address, requests }
    }

    fn next(&self) -> ExportTraceServiceRequest {
        self.requests.recv_timeout(PATIENCE).expect("the exporter sends")
    }
}

fn spans(request: ExportTraceServiceRequest) -> HashMap<String, Span> {
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).map(|span| (span.name.clone(), span)).collect()
}

fn text(span: &Span, key: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn spans_arrive_with_their_parents_outcomes_and_links() {
    let collector = Collector::start();
    let registry = Registry::new("profile");
    let telemetry = Telemetry::start(&config(collector.address), &world(), &registry).expect("starts");
    let (tracer, ids) = (telemetry.tracer(), IdSource::new(1));
    let parent = TraceContext { trace_id: 0xfeed_beef, span_id: 0xabcd, sampled: true };
    let leader = TraceContext { trace_id: 0x1ead, span_id: 0x1ead, sampled: true };

    let mut server = tracer.start("/mercury.profile.v1.ProfileService/GetProfile", Some(parent), &ids);
    let here = server.context();
    assert_eq!((here.trace_id, here.sampled), (parent.trace_id, true));
    let mut call = tracer.child("fetch", SpanKind::Client, here, &ids);
    call.set("text", "é".repeat(200));
    call.link(leader);
    let there = call.context();
    call.finish(Outcome::Refused(base::Reason::DependencyUnavailable));
    drop(tracer.child("dropped", SpanKind::Internal, here, &ids));
    server.finish(Outcome::Ok);
    drop(server);
    let unsampled = TraceContext { sampled: false, ..parent };
    assert!(!tracer.start("unsampled", Some(unsampled), &ids).recording());
    telemetry.shutdown(Nanos::from_secs(10)).expect("everything is delivered");

    let request = collector.next();
    let resource = request.resource_spans[0].resource.clone().expect("a resource");
    let service = resource.attributes.iter().find(|attribute| attribute.key == "service.instance.id");
    let instance = service.and_then(|attribute| attribute.value.clone()?.value).expect("an instance");
    assert_eq!(instance, Value::StringValue("profile-7".to_owned()));

    let spans = spans(request);
    assert_eq!(spans.len(), 3, "{:?}", spans.keys());
    let server = &spans["/mercury.profile.v1.ProfileService/GetProfile"];
    assert_eq!(server.trace_id, parent.trace_id.to_be_bytes());
    assert_eq!(server.parent_span_id, parent.span_id.to_be_bytes());
    assert_eq!(server.span_id, here.span_id.to_be_bytes());
    assert_eq!(server.kind(), WireKind::Server);
    assert_eq!(text(server, "mercury.outcome").as_deref(), Some("ok"));
    assert!(server.end_time_unix_nano >= server.start_time_unix_nano);
    let now = base::WallClock::unix_ms(&SystemWallClock).unsigned_abs() * 1_000_000;
    assert!(now.abs_diff(server.start_time_unix_nano) < 60_000_000_000, "{}", server.start_time_unix_nano);

    let call = &spans["fetch"];
    assert_eq!(call.parent_span_id, here.span_id.to_be_bytes());
    assert_eq!(call.span_id, there.span_id.to_be_bytes());
    assert_eq!(call.kind(), WireKind::Client);
    assert_eq!(text(call, "mercury.outcome").as_deref(), Some("dependency_unavailable"));
    assert_eq!(text(call, "text").expect("kept").len(), 256);
    assert_eq!(call.links[0].span_id, leader.span_id.to_be_bytes());
    assert_eq!(call.status.as_ref().expect("a status").code(), StatusCode::Error);
    assert_eq!(text(&spans["dropped"], "mercury.outcome").as_deref(), Some("abandoned"));
    assert_eq!(value(&registry, "mercury_telemetry_exported_spans_total"), 3);
}

#[test]
fn a_full_batch_is_sent_at_once_and_nothing_of_the_exporter_itself_ever_is() {
    // The process's logger takes everything, with the name of the thread that said it.
    let lines = Lines::default();
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_thread_names(true);
    let everything = everything.with_ansi(false).with_writer(lines.writer()).finish();
    tracing::subscriber::set_global_default(everything).expect("no other test takes the logger");

    let collector = Collector::start();
    let registry = Registry::new("profile");
    let mut config = config(collector.address);
    config.export.as_mut().expect("set").batch_max = 4;
    let telemetry = Telemetry::start(&config, &world(), &registry).expect("starts");
    let ids = IdSource::new(1);
    for round in 0..3 {
        for _ in 0..4 {
            let mut span = telemetry.tracer().start("mine", None, &ids);
            assert!(span.recording());
            span.finish(Outcome::Ok);
        }
        let request = collector.next();
        let spans: Vec<_> = request.resource_spans.into_iter().flat_map(|one| one.scope_spans).collect();
        let names: Vec<_> = spans.iter().flat_map(|scope| &scope.spans).map(|span| &span.name).collect();
        assert_eq!(names, ["mine"; 4], "round {round}");
    }
    telemetry.shutdown(Nanos::from_secs(10)).expect("nothing waits");
    assert!(collector.requests.try_recv().is_err(), "an idle process exports nothing");
    assert_eq!(value(&registry, "mercury_telemetry_spans_total"), 12);

    let lines = lines.text();
    let said_by =
        |thread: &str| lines.lines().filter(|line| line.contains(&format!(" {thread} h2::"))).count();
    assert!(said_by("collector") > 0, "the collector's HTTP/2 is heard:\n{lines}");
    assert_eq!(said_by("telemetry"), 0, "the exporter's is not:\n{lines}");
}

#[test]
fn the_ratio_decides_for_traces_that_begin_here() {
    let collector = Collector::start();
    let mut config = config(collector.address);
    let recorded = |ratio: f64, config: &mut TelemetryConfig| {
        config.export.as_mut().expect("set").ratio = ratio;
        let telemetry = Telemetry::start(config, &world(), &Registry::new("profile")).expect("starts");
        let (tracer, ids) = (telemetry.tracer(), IdSource::new(3));
        let count = (0..1_000).filter(|_| tracer.start("a", None, &ids).recording()).count();
        let parent = TraceContext { trace_id: 1, span_id: 1, sampled: true };
        assert!(tracer.start("a", Some(parent), &ids).recording(), "the caller decides for its own trace");
        count
    };
    assert_eq!(recorded(0.0, &mut config), 0);
    assert_eq!(recorded(1.0, &mut config), 1_000);
    // The ids are a fixed sequence, so this is one number; the range is five standard deviations.
    let quarter = recorded(0.25, &mut config);
    assert!((182..318).contains(&quarter), "{quarter}");
}

#[test]
fn a_collector_that_never_answers_costs_spans_and_no_time() {
    // The kernel completes the handshake; nobody ever reads.
    let blackhole = TcpListener::bind("127.0.0.1:0").expect("a port");
    let registry = Registry::new("profile");
    let mut config = config(blackhole.local_addr().expect("an address"));
    let export = config.export.as_mut().expect("set");
    (export.queue_max, export.batch_max, export.timeout) = (16, 8, Nanos::from_secs(3_600));
    let telemetry = Telemetry::start(&config, &world(), &registry).expect("starts without a collector");
    let (tracer, ids) = (telemetry.tracer(), IdSource::new(1));
    for _ in 0..1_000 {
        tracer.start("lost", None, &ids).finish(Outcome::Ok);
        assert!(value(&registry, "mercury_telemetry_waiting_spans") <= 16);
    }
    // All but the queue and the one batch that is under way.
    let full = dropped(&registry, "queue_full");
    assert!((976..=984).contains(&full), "{full}");

    let bound = Nanos::from_secs(1);
    let begun = MonotonicClock.now();
    let unflushed = telemetry.shutdown(bound).expect_err("nothing was delivered");
    let took = MonotonicClock.now().saturating_sub(begun);
    assert!(took < Nanos::from_secs(5), "the bound is {bound}, it took {took}");
    assert_eq!(unflushed, Unflushed(1_000 - full));

    tracer.start("after", None, &ids).finish(Outcome::Ok);
    assert_eq!(value(&registry, "mercury_telemetry_spans_total"), 1_001);
    // The batch that was under way is counted by the exporter's thread, which a slow machine may leave behind.
    let begun = MonotonicClock.now();
    while dropped(&registry, "shutdown") != 1_001 - full {
        assert!(MonotonicClock.now().saturating_sub(begun) < PATIENCE.into(), "{}", registry.encode());
        thread::yield_now();
    }
    assert_eq!(value(&registry, "mercury_telemetry_exported_spans_total"), 0);
    assert_eq!(value(&registry, "mercury_telemetry_waiting_spans"), 0);
}

#[test]
fn shutdown_returns_even_when_called_on_the_only_worker_of_a_runtime() {
    let blackhole = TcpListener::bind("127.0.0.1:0").expect("a port");
    let config = config(blackhole.local_addr().expect("an address"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let unflushed = runtime.block_on(async {
        let telemetry = Telemetry::start(&config, &world(), &Registry::new("profile")).expect("starts");
        telemetry.tracer().start("lost", None, &IdSource::new(1)).finish(Outcome::Ok);
        telemetry.shutdown(Nanos::from_millis(200))
    });
    assert_eq!(unflushed, Err(Unflushed(1)));
}

#[test]
fn a_refused_connection_is_a_counted_loss() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let lines = Lines::default();
    let logger = LogConfig::default().dispatch(lines.writer(), false).expect("a filter");
    let registry = Registry::new("profile");
    let mut config = config(address);
    config.export.as_mut().expect("set").batch_max = 1;
    let start = || Telemetry::start(&config, &world(), &registry).expect("starts without a collector");
    let telemetry = tracing::dispatcher::with_default(&logger, start);
    for _ in 0..2 {
        telemetry.tracer().start("lost", None, &IdSource::new(1)).finish(Outcome::Ok);
    }
    assert_eq!(telemetry.shutdown(Nanos::from_secs(15)), Err(Unflushed(2)));
    assert_eq!(dropped(&registry, "export_failed"), 2);
    let text = lines.text();
    assert_eq!(text.matches("spans are not being delivered").count(), 1, "{text}");
}

#[test]
fn an_endpoint_that_is_none_is_refused_at_start() {
    for endpoint in ["collector:4317", "https://collector:4317", "http://", "http://a b"] {
        let mut config = config(([127, 0, 0, 1], 1).into());
        config.export = Some(ExportConfig::to(endpoint));
        let error = Telemetry::start(&config, &world(), &Registry::new("profile")).expect_err("refused");
        assert!(error.to_string().starts_with("OTLP endpoint: "), "{endpoint}: {error}");
    }
}

#[test]
fn without_an_endpoint_there_is_no_exporter_and_the_series_stand_at_zero() {
    let registry = Registry::new("profile");
    let config = TelemetryConfig { export: None, ..config(([127, 0, 0, 1], 1).into()) };
    let telemetry = Telemetry::start(&config, &world(), &registry).expect("starts");
    assert!(telemetry.exporter.is_none());
    assert!(!telemetry.tracer().start("a", None, &IdSource::new(1)).recording());
    assert_eq!(dropped(&registry, "queue_full"), 0);
    assert_eq!(telemetry.shutdown(Nanos::ZERO), Ok(()));
}
