//! Run, tested: the generator against a real HTTP/2 server whose behaviour the tests choose.

use std::{
    convert::Infallible, net::SocketAddr, sync::atomic::AtomicU64, sync::atomic::Ordering, time::Duration,
};

use base::{Identity, Region, Subject, Tenant, WorkloadClass, headers};
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::draw::Share;
use prost::Message;
use tokio::{net::TcpListener, time};

use super::*;
use crate::{
    Rate, StagePlan, check::tests_support::sound, report::Figures, retry::Retries, schedule::Operation,
    source::Facts,
};

/// What the server does with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// A sound answer at once.
    Sound,
    /// A sound answer without its optional sections.
    Degraded,
    /// An OK answer that is somebody else's.
    Wrong,
    /// A status, in trailers-only form.
    Status(&'static str),
    /// A message, and no trailers.
    NoTrailers,
    /// No answer.
    Hang,
    /// Until this long after the server's first request, no answer; then sound ones.
    Stall(Duration),
    /// A first attempt is unavailable, any other is sound.
    SecondTime,
    /// The stream is cut after the headers.
    Cut,
}

/// A server on loopback, with its own thread and runtime, that ends with the test.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("set");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let counted = Arc::clone(&requests);
        let serve = async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            let began = MonotonicClock.now();
            let mut connections = FuturesUnordered::new();
            let mut stopped = stopped;
            loop {
                tokio::select! {
                    // The end of the test comes first.
                    biased;
                    _ = &mut stopped => return,
                    accepted = listener.accept() => {
                        let (stream, _) = accepted.expect("accepted");
                        let counted = Arc::clone(&counted);
                        let service = service_fn(move |request| {
                            counted.fetch_add(1, Ordering::Relaxed);
                            answer(behaviour, began, request)
                        });
                        let server = http2::Builder::new(TokioExecutor::new());
                        connections.push(server.serve_connection(TokioIo::new(stream), service));
                    }
                    Some(_) = connections.next(), if !connections.is_empty() => {}
                }
            }
        };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(serve);
        });
        Self { address, requests, stop: Some(stop), thread: Some(thread) }
    }
}

impl Server {
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

async fn answer(
    behaviour: Behaviour,
    began: Nanos,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let mut home = sound();
    home.request_id = header(headers::REQUEST_ID);
    let profile = home.profile.as_mut().expect("set");
    profile.tenant = header(headers::TENANT);
    profile.subject = header(headers::SUBJECT);
    let frames = match behaviour {
        Behaviour::Sound => whole(&home),
        Behaviour::SecondTime if header(headers::ATTEMPT) == "2" => whole(&home),
        Behaviour::SecondTime => return Ok(status_only("14")),
        Behaviour::Degraded => {
            home.recommendations = None;
            let optional = home.optional.as_mut().expect("set");
            optional.recommendations = wire::home::v2::Marker::OmittedTimeout.into();
            whole(&home)
        }
        Behaviour::Wrong => {
            home.profile.as_mut().expect("set").subject = "somebody-else".to_owned();
            whole(&home)
        }
        Behaviour::Status(code) => return Ok(status_only(code)),
        Behaviour::NoTrailers => whole(&home).into_iter().take(1).collect(),
        Behaviour::Hang => std::future::pending().await,
        Behaviour::Stall(span) => {
            let end = began + Nanos::from(span);
            time::sleep((end - MonotonicClock.now()).into()).await;
            whole(&home)
        }
        Behaviour::Cut => vec![Err(std::io::Error::other("cut"))],
    };
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames))));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

type Frames = Vec<Result<Frame<Bytes>, std::io::Error>>;

fn whole(home: &wire::home::v2::GetHomeResponse) -> Frames {
    let encoded = home.encode_to_vec();
    let mut data = vec![0];
    data.extend_from_slice(&u32::try_from(encoded.len()).expect("small").to_be_bytes());
    data.extend_from_slice(&encoded);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    vec![Ok(Frame::data(data.into())), Ok(Frame::trailers(trailers))]
}

fn status_only(code: &'static str) -> Response<Body> {
    let mut response =
        Response::new(BodyExt::boxed(http_body_util::Empty::new().map_err(|never| match never {})));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert("grpc-status", HeaderValue::from_static(code));
    response
}

/// `count` arrivals, one a millisecond, of callers that wait `patience`.
pub(crate) fn arrivals(count: u64, patience: Option<Nanos>) -> Source {
    let operation = move |number: u64| Operation {
        at: Nanos::from_millis(number),
        number,
        identity: Identity {
            tenant: Tenant::parse("tenant-001").expect("a name"),
            subject: Subject::parse(&format!("user-{number:05}")).expect("a name"),
            class: WorkloadClass::ALL[(number % 3) as usize],
            region: Region::parse("eu-west").expect("a name"),
        },
        patience,
    };
    Source {
        arrivals: Box::new((0..count).map(operation)),
        retries: Retries::declared(1, Share::NONE, 1, Nanos::ZERO),
        facts: Facts { workload: "test".to_owned(), rate_per_s: 1_000.0, scale: None },
    }
}

/// A plan of 20 ms warm-up and the rest of `millis` measured.
pub(crate) fn plan(server: &Server, millis: u64) -> Plan {
    let duration = Nanos::from_millis(millis - 20);
    let rate = Rate::PerSecond(1_000.0);
    let mut plan =
        Plan::new(server.address.to_string(), model::workload::Workload::shipped(), rate, duration);
    plan.stages.insert(0, StagePlan::warm_up("warm-up", Nanos::from_millis(20)));
    // Longer than any answer takes on a crowded machine; a run ends as soon as nothing is in flight.
    plan.drain = Nanos::from_secs(30);
    plan
}

fn drive(plan: Plan, source: Source) -> Report {
    execute(plan, source, &Stop::default(), |_| ()).expect("a run")
}

/// What holds for every run.
fn balanced(report: &Report) -> &Figures {
    for stage in report.stages.iter().chain([&report.total]) {
        assert!(stage.all.balanced, "{stage:?}");
        let classes: u64 = stage.classes.values().map(|class| class.scheduled).sum();
        assert_eq!(classes, stage.all.scheduled);
    }
    let offered: u64 = report.timeline.iter().map(|second| second.offered).sum();
    assert_eq!(offered, report.stages.iter().map(|stage| stage.all.scheduled).sum::<u64>());
    &report.total.all
}

#[test]
fn sound_answers_are_counted_and_warm_up_is_not_measured() {
    let server = Server::start(Behaviour::Sound);
    let report = drive(plan(&server, 100), arrivals(100, None));
    let total = balanced(&report);
    assert_eq!((total.scheduled, total.completed.ok), (80, 80));
    assert_eq!(total.latency_ms.n, 80, "20 were warm-up");
    assert_eq!(total.core_goodput_ratio, Some(1.0));
    assert!(total.bytes >= 80 * 32, "a page is not a few bytes: {}", total.bytes);
    assert_eq!(report.stages[0].all.completed.ok, 20);
    assert_eq!(report.stages[0].all.latency_ms.n, 0);
    assert_eq!(report.generator.clock_error_ms.n, 80);
    assert_eq!(server.requests.load(Ordering::Relaxed), 100);
}

#[test]
fn degraded_answers_stay_in_the_population() {
    let server = Server::start(Behaviour::Degraded);
    let report = drive(plan(&server, 60), arrivals(60, None));
    let total = balanced(&report);
    assert_eq!((total.completed.ok_degraded, total.latency_ms.n), (40, 40));
    assert_eq!(total.omission_ratio, Some(1.0));
    assert_eq!(total.omissions.recommendations["omitted_timeout"], 40);
    assert!(total.omissions.reputation.is_empty());
}

#[test]
fn a_wrong_answer_is_a_failure_and_a_mismatch() {
    let server = Server::start(Behaviour::Wrong);
    let report = drive(plan(&server, 60), arrivals(60, None));
    let total = balanced(&report);
    assert_eq!((total.core_mismatch, total.completed.error_other, total.latency_ms.n), (40, 40, 0));
    assert_eq!(total.failures["core_mismatch"], 40);
    assert_eq!(total.latency_ms.p99, None);
    assert_eq!(report.mismatch_samples.len(), crate::tally::MISMATCH_SAMPLES_MAX);
}

#[test]
fn failures_are_told_apart() {
    for (behaviour, kind) in [
        (Behaviour::Status("14"), "status_unavailable"),
        (Behaviour::Status("8"), "status_resource_exhausted"),
        (Behaviour::Status("4"), "status_deadline_exceeded"),
        (Behaviour::Status("00"), "status_malformed"),
        (Behaviour::Status("0"), "message_count"),
        (Behaviour::NoTrailers, "status_missing"),
        (Behaviour::Cut, "stream_reset"),
    ] {
        let server = Server::start(behaviour);
        let report = drive(plan(&server, 40), arrivals(40, None));
        let total = balanced(&report);
        assert_eq!(total.failures.get(kind), Some(&20), "{behaviour:?}: {:?}", total.failures);
        let completed = &total.completed;
        let expected = match kind {
            "status_unavailable" => completed.unavailable,
            "status_resource_exhausted" => completed.rejected,
            "status_deadline_exceeded" => completed.deadline,
            "stream_reset" => completed.transport,
            _ => completed.error_other,
        };
        assert_eq!(expected, 20, "{behaviour:?}");
    }
}

/// Keeps what was lost, and leaves the judging to the generator.
#[derive(Debug, Default)]
struct Losses(std::sync::Mutex<Vec<crate::Lost>>);

impl crate::Observe for Losses {
    fn answered(&self, _page: &crate::Observed<'_>) {}

    fn lost(&self, lost: crate::Lost) {
        self.0.lock().expect("no test panics with it").push(lost);
    }

    fn judges(&self) -> bool {
        false
    }
}

#[test]
fn a_lost_attempt_is_told_with_its_times_and_a_refused_one_is_not() {
    for (behaviour, expected) in [(Behaviour::Cut, true), (Behaviour::Status("14"), false)] {
        let server = Server::start(behaviour);
        let losses = Arc::new(Losses::default());
        let mut plan = plan(&server, 40);
        plan.observer = Some(Arc::clone(&losses) as Arc<dyn crate::Observe>);
        balanced(&drive(plan, arrivals(40, None)));
        let lost = losses.0.lock().expect("no test panics with it");
        assert_eq!(lost.len() >= 20, expected, "{behaviour:?}: {}", lost.len());
        assert_eq!(lost.is_empty(), !expected, "{behaviour:?}");
        assert!(lost.iter().all(|lost| lost.sent_at <= lost.lost_at));
    }
}

#[test]
fn a_stall_is_charged_to_everyone_who_was_due_during_it() {
    // Coordinated omission would show it to one request alone.
    let server = Server::start(Behaviour::Stall(Duration::from_millis(600)));
    let report = drive(plan(&server, 200), arrivals(200, None));
    let total = balanced(&report);
    assert_eq!(total.completed.ok, 180);
    let (p50, p99) = (total.latency_ms.p50.expect("sample"), total.latency_ms.p99.expect("sample"));
    assert!(p99 >= 500.0 && p50 >= 400.0, "p50 {p50} p99 {p99}");
    assert_eq!(report.timeline[0].offered, 200);
    assert!(report.timeline[0].p99_ms.expect("sample") >= 500.0);
}

#[test]
fn callers_depart_and_are_neither_latencies_nor_failures() {
    let server = Server::start(Behaviour::Hang);
    let report = drive(plan(&server, 60), arrivals(60, Some(Nanos::from_millis(15))));
    let total = balanced(&report);
    assert_eq!((total.completed.departed, total.completed.failed(), total.in_flight), (40, 0, 0));
    assert_eq!(total.core_goodput_ratio, None, "all offered callers left before the objective");
    assert_eq!(report.generator.connections_lost, 0, "departures do not cost a connection");
}

#[test]
fn the_bound_on_operations_in_flight_leaves_arrivals_unsent() {
    let server = Server::start(Behaviour::Hang);
    let mut plan = plan(&server, 60);
    plan.in_flight_max = 10;
    plan.drain = Nanos::from_millis(50);
    let report = drive(plan, arrivals(60, None));
    let total = balanced(&report);
    assert_eq!((total.unsent.in_flight_max, total.in_flight), (40, 0), "the first ten were warm-up");
    assert_eq!(report.stages[0].all.in_flight, 10);
    assert_eq!(report.generator.in_flight_peak, 10);
    assert!(!report.generator.valid);
    assert!(report.generator.reasons.iter().any(|reason| reason.contains("not sent")));
}

#[test]
fn a_timeout_is_sent_and_kept_by_the_client_itself() {
    let server = Server::start(Behaviour::Hang);
    let mut plan = plan(&server, 60);
    plan.timeout = Some(Nanos::from_millis(15));
    let report = drive(plan, arrivals(60, None));
    let total = balanced(&report);
    assert_eq!((total.completed.deadline, total.failures["client_deadline"]), (40, 40));
}

#[test]
fn a_retry_is_an_attempt_of_the_same_operation() {
    let server = Server::start(Behaviour::SecondTime);
    let mut source = arrivals(60, None);
    source.retries = Retries::declared(1, Share::ALL, 2, Nanos::from_millis(2));
    let report = drive(plan(&server, 60), source);
    let total = balanced(&report);
    assert_eq!((total.completed.ok, total.attempts), (40, 80));
    assert_eq!(server.requests.load(Ordering::Relaxed), 120);
}

#[test]
fn slow_motion_stretches_the_schedule_and_divides_the_times_back() {
    let server = Server::start(Behaviour::Hang);
    let mut plan = plan(&server, 40);
    plan.dilate = 4;
    let report = drive(plan, arrivals(40, Some(Nanos::from_millis(25))));
    let total = balanced(&report);
    assert_eq!(total.completed.departed, 20);
    assert!(report.generator.wall_s >= 0.16, "40 ms of schedule take 160");
    assert_eq!(report.total.duration_s, 0.02);
}

#[test]
fn a_target_that_is_not_there_is_an_error_and_one_that_goes_away_is_a_result() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let server = Server::start(Behaviour::Sound);
    let mut nowhere = plan(&server, 60);
    nowhere.target = address.to_string();
    let error = execute(nowhere, arrivals(60, None), &Stop::default(), |_| ()).expect_err("nobody listens");
    assert!(matches!(&error, LoadError::Connect { target, .. } if *target == address.to_string()), "{error}");

    let plan = plan(&server, 200);
    let mut server = Some(server);
    let report = execute(plan, arrivals(200, None), &Stop::default(), |progress| {
        // The measured stage began: the server goes away under load.
        if progress.stage_began && progress.stage == 1 {
            drop(server.take());
        }
    })
    .expect("a run");
    let total = balanced(&report);
    assert!(total.completed.transport > 0 && total.failures.contains_key("not_connected"), "{total:?}");
    assert!(report.generator.connections_lost > 0);
}

#[test]
fn a_run_can_be_ended_early_and_still_balances() {
    let server = Server::start(Behaviour::Sound);
    let mut plan = plan(&server, 40);
    plan.stages[1].duration = Nanos::from_secs(600);
    let stop = Stop::default();
    let mut source = arrivals(40, None);
    let last = Operation { at: Nanos::from_secs(500), number: 40, ..source.arrivals.next().expect("one") };
    source.arrivals = Box::new(source.arrivals.chain([last]));
    let report = execute(plan, source, &stop, |progress| {
        if progress.ok == 39 {
            stop.set();
        }
    })
    .expect("a run");
    assert!(report.stopped_early);
    let offered: u64 = report.stages.iter().map(|stage| stage.all.scheduled).sum();
    assert_eq!(offered, 39);
    balanced(&report);
}

#[test]
fn every_stage_is_announced_once_and_in_order() {
    let server = Server::start(Behaviour::Sound);
    let mut begun = Vec::new();
    execute(plan(&server, 60), arrivals(60, None), &Stop::default(), |progress| {
        if progress.stage_began {
            begun.push(progress.stage);
        }
    })
    .expect("a run");
    assert_eq!(begun, [0, 1]);
}
