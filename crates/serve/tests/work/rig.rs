//! Rig: a port with one scripted method, which is there under the name of a long-lived service as well, a clock that moves with the runtime's paused time and by hand, and its books.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use base::{Clock, Nanos, headers, ids::IdSource, inject::Points};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use serve::{
    Limits, Routes,
    exchange::Port,
    lifecycle::Lifecycle,
    metrics::{Registry, ServerMetrics},
    telemetry::Tracer,
};
use tokio::sync::oneshot;
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

/// The one method of a rig's port, as a long-lived call.
pub(crate) const LASTING: &str = "/test.Lasting/Run";
/// The one method of a rig's port.
pub(crate) const METHOD: &str = "/test.Script/Run";

/// Milliseconds.
pub(crate) const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// The runtime's time, and what was added to it by hand: time that passes while nobody waits, as in a destructor.
pub(crate) struct RigClock {
    origin: tokio::time::Instant,
    added: AtomicU64,
}

impl RigClock {
    /// Starts at a second, so that there is a before. Within a runtime.
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self { origin: tokio::time::Instant::now(), added: AtomicU64::new(ms(1_000).get()) })
    }

    pub(crate) fn pass(&self, span: Nanos) {
        self.added.fetch_add(span.get(), Ordering::Relaxed);
    }

    /// Since the start.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.now() - ms(1_000)
    }
}

impl Clock for RigClock {
    fn now(&self) -> Nanos {
        Nanos::from(self.origin.elapsed()) + Nanos::new(self.added.load(Ordering::Relaxed))
    }
}

/// Takes its time to be dropped.
pub(crate) struct Costly {
    pub(crate) clock: Arc<RigClock>,
    pub(crate) cost: Nanos,
}

impl Drop for Costly {
    fn drop(&mut self) {
        self.clock.pass(self.cost);
    }
}

type Running = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

#[derive(Clone)]
struct Scripted(Arc<dyn Fn(Request<Body>) -> Running + Send + Sync>);

impl NamedService for Scripted {
    const NAME: &'static str = "test.Script";
}

impl Service<Request<Body>> for Scripted {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let running = (self.0)(request);
        Box::pin(async { Ok(running.await) })
    }
}

#[derive(Clone)]
struct Lasting(Scripted);

impl NamedService for Lasting {
    const NAME: &'static str = "test.Lasting";
}

impl Service<Request<Body>> for Lasting {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Scripted as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

/// A port and its books.
pub(crate) struct Rig {
    pub(crate) clock: Arc<RigClock>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) points: Points,
    registry: Registry,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let clock = RigClock::start();
        let lifecycle = Lifecycle::new(Arc::clone(&clock) as Arc<dyn Clock>);
        Self { clock, lifecycle, registry: Registry::new("test"), points: Points::default() }
    }

    /// A port whose method is answered by `script`; HTTP requests go to `router`.
    pub(crate) fn port<F>(
        &self,
        router: axum::Router,
        script: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
    ) -> Port
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let service = Scripted(Arc::new(move |request| Box::pin(script(request))));
        Port {
            routes: Routes::new().grpc(service.clone()).grpc_long_lived(Lasting(service)).http(router),
            limits: Limits { default_timeout: ms(100), timeout_max: ms(1_000), ..Limits::default() }.into(),
            clock: self.clock.clone(),
            ids: Arc::new(IdSource::new(7)),
            lifecycle: self.lifecycle.clone(),
            metrics: ServerMetrics::new(&self.registry, "test"),
            tracer: Tracer::off(),
            points: self.points.clone(),
        }
    }

    /// What the books say now.
    pub(crate) fn books(&self) -> Books {
        let text = self.registry.encode();
        let offered = sum(&text, "mercury_requests_offered_total", "");
        assert_eq!(
            offered,
            sum(&text, "mercury_requests_finished_total", "") + sum(&text, "mercury_requests_in_flight", ""),
            "{text}"
        );
        let millis = |seconds: f64| (seconds * 1e3).round() as u64;
        Books {
            late: sum(&text, "mercury_late_operations_total", "") as u64,
            late_ms: millis(sum(&text, "mercury_late_seconds_total", "")),
            stops: sum(&text, "mercury_cancellation_stop_delay_seconds_count", "") as u64,
            stop_ms: millis(sum(&text, "mercury_cancellation_stop_delay_seconds_sum", "")),
            text,
        }
    }
}

/// Sum over the series of that name whose labels contain `label`.
fn sum(text: &str, name: &str, label: &str) -> f64 {
    let of = format!("{name}{{");
    let lines = text.lines().filter(|line| line.starts_with(&of) && line.contains(label));
    lines
        .map(|line| line.split(" # ").next().unwrap_or(line))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// What the metrics of a rig say.
pub(crate) struct Books {
    pub(crate) late: u64,
    pub(crate) late_ms: u64,
    pub(crate) stops: u64,
    pub(crate) stop_ms: u64,
    pub(crate) text: String,
}

impl Books {
    /// Requests that ended so.
    pub(crate) fn finished(&self, outcome: &str) -> u64 {
        sum(&self.text, "mercury_requests_finished_total", &format!("outcome=\"{outcome}\"")) as u64
    }

    /// The one outcome, if every request has ended the same way.
    pub(crate) fn outcome(&self) -> Option<&str> {
        let of = "mercury_requests_finished_total{";
        let mut ended = self.text.lines().filter(|line| line.starts_with(of) && !line.ends_with(" 0"));
        match (ended.next(), ended.next()) {
            (Some(line), None) => line.split("outcome=\"").nth(1)?.split('"').next(),
            _ => None,
        }
    }

    /// Requests that expired in that phase.
    pub(crate) fn expired(&self, phase: &str) -> u64 {
        sum(&self.text, "mercury_deadline_exceeded_total", &format!("phase=\"{phase}\"")) as u64
    }

    /// The whole of a series, labels or not.
    pub(crate) fn total(&self, name: &str) -> u64 {
        sum(&self.text, name, "") as u64
    }

    /// Operations late, milliseconds late, stop delays and their milliseconds.
    pub(crate) fn work(&self) -> [u64; 4] {
        [self.late, self.late_ms, self.stops, self.stop_ms]
    }
}

/// A body that has one message at once and ends, with status OK, when it is told to.
pub(crate) struct Trickle {
    pub(crate) message: Option<Bytes>,
    pub(crate) end: oneshot::Receiver<()>,
    pub(crate) ended: bool,
    /// Dropped before its end, the body takes its time.
    pub(crate) costly: Option<Costly>,
}

impl Trickle {
    pub(crate) fn new(end: oneshot::Receiver<()>, costly: Option<Costly>) -> Self {
        Self { message: Some(Bytes::from_static(&[0, 0, 0, 0, 0])), end, ended: false, costly }
    }
}

impl http_body::Body for Trickle {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        std::task::ready!(Pin::new(&mut self.end).poll(cx)).expect("told to end");
        self.ended = true;
        if let Some(costly) = &mut self.costly {
            costly.cost = Nanos::ZERO;
        }
        let trailers = HeaderMap::from_iter([(Status::GRPC_STATUS, HeaderValue::from_static("0"))]);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// A response head of status 200 and this body.
pub(crate) fn grpc(
    body: impl http_body::Body<Data = Bytes, Error = Status> + Send + 'static,
) -> Response<Body> {
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

/// A call of the rig's method with an empty message, and the time that it grants.
pub(crate) fn call<B: Default>(timeout: Option<Nanos>) -> Request<B> {
    call_of(METHOD, timeout)
}

/// As [`call`], under either name.
pub(crate) fn call_of<B: Default>(method: &str, timeout: Option<Nanos>) -> Request<B> {
    let mut request =
        Request::post(method).header("content-type", "application/grpc").header("te", "trailers");
    if let Some(timeout) = timeout {
        let text = base::timeout::encode(timeout).unwrap_or_else(|| "0m".to_owned());
        request = request.header(headers::GRPC_TIMEOUT, text);
    }
    request.body(B::default()).expect("a request")
}
