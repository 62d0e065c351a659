//! Exchange: one request and its response, from the arrival of its head to the last byte or the cut.
//!
//! The deadline is fixed here, once, and covers the whole exchange: until the response head by a timer of the
//! exchange itself, afterwards by whoever drives its body (see [`crate::connection`]).

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
};

use base::{
    Clock, Deadline, Nanos, Phase, Reason, Refusal, headers, ids::IdSource, timeout, trace::TraceContext,
};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use http_body::{Body as _, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tonic::{Status, body::Body};

use crate::{
    Limits, Routes,
    body::{self, Bounded},
    lifecycle::{Lifecycle, OpenExchange},
    metrics::{Outcome, ServerMetrics},
    render::{self, Face, PHASE_HEADER, REASON_HEADER},
    routes::{self, Handling},
    telemetry::{SpanHandle, Tracer},
};

/// Suggested to a caller that met a quiescing process.
const QUIESCE_RETRY_AFTER: Nanos = Nanos::from_millis(1_000);
/// Longest W3C `tracestate` that is passed on; a longer one is dropped, as the recommendation allows.
const TRACESTATE_BYTES_MAX: usize = 512;

// The header map would parse a name that it is given as text, every time.
static GRPC_STATUS: HeaderName = Status::GRPC_STATUS;
static GRPC_TIMEOUT: HeaderName = HeaderName::from_static(headers::GRPC_TIMEOUT);
static TRACEPARENT: HeaderName = HeaderName::from_static(headers::TRACEPARENT);
static TRACESTATE: HeaderName = HeaderName::from_static(headers::TRACESTATE);

/// Where a running request is; read when its deadline passes.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Position>);

#[derive(Debug, Default)]
struct Position {
    phase: AtomicU8,
    answered: AtomicBool,
}

impl Progress {
    /// Notes that the request is now in `phase`.
    pub fn enter(&self, phase: Phase) {
        self.0.phase.store(phase.index() as u8, Ordering::Relaxed);
    }

    /// The phase noted last.
    pub fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.0.phase.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Ingress)
    }

    fn answer(&self) {
        self.0.answered.store(true, Ordering::Relaxed);
    }

    /// Whether the exchange has handed over its response head, and so no longer watches its deadline itself.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.answered.load(Ordering::Relaxed)
    }
}

/// The bound of an exchange, for whoever must cut it.
pub struct Term {
    /// When it must have ended.
    pub deadline: Deadline,
    /// Where it is.
    pub progress: Progress,
}

/// What the shell established when a request's head arrived. In the extensions of every request.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When the head arrived.
    pub at: Nanos,
    /// When the exchange must have ended; never derived again.
    pub deadline: Deadline,
    /// Where the request is.
    pub progress: Progress,
    /// The span of this hop.
    pub trace: TraceContext,
    /// W3C vendor state, empty when there was none.
    pub tracestate: String,
}

/// What every exchange of a port shares.
pub struct Port {
    /// What is served.
    pub routes: Routes,
    /// Bounds.
    pub limits: Limits,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids of spans.
    pub ids: Arc<IdSource>,
    /// The process's stage and its open exchanges.
    pub lifecycle: Lifecycle,
    /// Counters of the port.
    pub metrics: ServerMetrics,
    /// Spans of the process.
    pub tracer: Tracer,
}

impl Port {
    /// Begins an exchange.
    pub fn begin<B>(self: &Arc<Self>, request: Request<B>) -> (Exchange, Term)
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let now = self.clock.now();
        let face = routes::face(&request);
        let (trace, tracestate) = remote_trace(request.headers());
        let span = self.tracer.start(request.uri().path(), trace, &self.ids);
        self.metrics.offered();
        let limit = self.time_limit(&request);
        let deadline =
            limit.as_ref().map_or(Deadline::at(Nanos::MAX), |budget| Deadline::after(now, *budget));
        let mut account = Account {
            port: Arc::clone(self),
            arrived: now,
            deadline,
            span,
            outcome: None,
            _open: self.lifecycle.open(),
        };
        let progress = Progress::default();
        let arrival = Arrival {
            at: now,
            deadline,
            progress: progress.clone(),
            trace: account.span.context(),
            tracestate,
        };
        let started = limit.and_then(|budget| self.start(request, face, arrival, budget));
        let state = match started {
            Ok(handling) => Answer::Handling { handling, timer: self.timer(deadline, now) },
            Err(refusal) => {
                account.outcome = Some(Outcome::Refused(refusal.reason()));
                Answer::Refused(Some(render::response(&refusal, face)))
            }
        };
        let term = Term { deadline, progress: progress.clone() };
        (Exchange { state, face, progress, account: Some(account) }, term)
    }

    /// Checks the head, then hands the request to its handler.
    fn start<B>(
        &self,
        request: Request<B>,
        face: Face,
        arrival: Arrival,
        budget: Nanos,
    ) -> Result<Handling, Refusal>
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let header_bytes_max = self.limits.header_bytes_max as usize;
        if header_bytes(request.headers()) > header_bytes_max {
            let message = format!("request headers exceed {header_bytes_max} bytes");
            return Err(Refusal::new(Reason::HeadersTooLarge, message));
        }
        if self.lifecycle.is_quiescing() {
            let refusal = Refusal::new(Reason::Quiescing, "the process is shutting down");
            return Err(refusal.retry_after(QUIESCE_RETRY_AFTER));
        }
        if budget.is_zero() {
            return Err(Refusal::deadline(Phase::Ingress));
        }
        let bytes_max = self.limits.body_bytes_max as usize;
        let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        // A gRPC body is prefixed, so its announced length may exceed that of its message.
        if face == Face::Http
            && announced.and_then(|text| text.parse().ok()).is_some_and(|n: u64| n > bytes_max as u64)
        {
            return Err(body::too_large(bytes_max));
        }
        let mut request = request.map(|body| Body::new(Bounded::new(body, bytes_max, face == Face::Grpc)));
        request.extensions_mut().insert(arrival);
        self.routes.dispatch(request, face)
    }

    /// The time that the caller grants, clamped; the default when it names none.
    fn time_limit<B>(&self, request: &Request<B>) -> Result<Nanos, Refusal> {
        let mut values = request.headers().get_all(&GRPC_TIMEOUT).iter();
        let asked = match (values.next(), values.next()) {
            (None, _) => None,
            (Some(value), None) => Some(timeout::parse(value.as_bytes()).map_err(malformed_timeout)?),
            (Some(_), Some(_)) => return Err(malformed_timeout(timeout::MalformedTimeout)),
        };
        // A watch may last as long as its caller likes, whether it says how long or not.
        if self.routes.is_long_lived(request.uri().path()) {
            return Ok(asked.unwrap_or(Nanos::MAX));
        }
        Ok(asked.unwrap_or(self.limits.default_timeout).min(self.limits.timeout_max))
    }

    fn timer(&self, deadline: Deadline, now: Nanos) -> Option<Pin<Box<Sleep>>> {
        (deadline.instant() < Nanos::MAX)
            .then(|| Box::pin(tokio::time::sleep(deadline.remaining(now).into())))
    }
}

fn malformed_timeout(error: timeout::MalformedTimeout) -> Refusal {
    Refusal::new(Reason::MalformedTimeout, error.to_string()).for_field(headers::GRPC_TIMEOUT)
}

/// The caller's trace position, if it sent a well-formed one, and its vendor state.
fn remote_trace(head: &HeaderMap) -> (Option<TraceContext>, String) {
    let mut parents = head.get_all(&TRACEPARENT).iter();
    let parent = match (parents.next(), parents.next()) {
        (Some(value), None) => value.to_str().ok().and_then(TraceContext::parse),
        _ => None,
    };
    let state = parent.and_then(|_| head.get(&TRACESTATE)).and_then(|value| value.to_str().ok());
    (parent, state.filter(|state| state.len() <= TRACESTATE_BYTES_MAX).unwrap_or_default().to_owned())
}

/// Size of a header list as RFC 9113 section 6.5.2 counts it.
fn header_bytes(head: &HeaderMap) -> usize {
    head.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

/// Settles the accounts of an exchange when it is dropped, wherever that happens.
struct Account {
    port: Arc<Port>,
    arrived: Nanos,
    deadline: Deadline,
    span: SpanHandle,
    outcome: Option<Outcome>,
    _open: OpenExchange,
}

impl Account {
    fn now(&self) -> Nanos {
        self.port.clock.now()
    }

    /// Reads the outcome off a response head, or off trailers. A success may still be overruled by its trailers.
    fn note(&mut self, head: &HeaderMap, http: Option<StatusCode>) {
        let grpc = head.get(&GRPC_STATUS).map(|status| status.as_bytes() == b"0");
        let failed = grpc == Some(false) || http.is_some_and(|status| status.as_u16() >= 400);
        if failed {
            let text = |name| head.get(name).and_then(|value| value.to_str().ok());
            let reason = text(REASON_HEADER).and_then(Reason::parse).unwrap_or(Reason::Internal);
            if matches!(reason, Reason::DeadlineExceeded | Reason::EffectAmbiguousDeadline) {
                // Whoever noticed it, the handler or the timer, named the phase.
                let phase = text(PHASE_HEADER)
                    .and_then(|name| Phase::ALL.into_iter().find(|phase| phase.as_str() == name));
                self.port.metrics.expired(phase.unwrap_or(Phase::Handler));
            }
            self.outcome = Some(Outcome::Refused(reason));
        } else if grpc == Some(true) {
            self.outcome = Some(Outcome::Ok);
        }
    }

    /// The response was handed over in full.
    fn complete(&mut self) {
        self.outcome.get_or_insert(Outcome::Ok);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let now = self.now();
        let outcome = match self.outcome {
            Some(refused @ Outcome::Refused(_)) => refused,
            // hyper takes one frame of the body ahead of the peer's window, so a body that has ended may not have left.
            Some(Outcome::Ok) | None if self.deadline.expired(now) => {
                self.port.metrics.expired(Phase::Respond);
                Outcome::Refused(Reason::DeadlineExceeded)
            }
            Some(Outcome::Ok) => Outcome::Ok,
            None => Outcome::Refused(Reason::Cancelled),
        };
        self.port.metrics.late(now.saturating_sub(self.deadline.instant()));
        self.span.finish(outcome);
        self.port.metrics.finished(outcome, now.saturating_sub(self.arrived), Some(&self.span.context()));
    }
}

enum Answer {
    /// The handler runs.
    Handling { handling: Handling, timer: Option<Pin<Box<Sleep>>> },
    /// No handler ran.
    Refused(Option<Response<Body>>),
}

/// The future of a response head.
pub struct Exchange {
    state: Answer,
    face: Face,
    progress: Progress,
    account: Option<Account>,
}

impl Exchange {
    /// Refuses at the deadline. Replacing the handler's future drops it, which cancels everything below it.
    fn expire(&mut self) -> Response<Body> {
        let refusal = Refusal::deadline(self.progress.phase());
        self.state = Answer::Refused(None);
        render::response(&refusal, self.face)
    }
}

impl Future for Exchange {
    type Output = Result<Response<Accounted>, std::convert::Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let response = match &mut this.state {
            Answer::Refused(response) => response.take().unwrap_or_else(|| Response::new(Body::empty())),
            Answer::Handling { handling, timer } => match handling.as_mut().poll(cx) {
                Poll::Ready(response) => {
                    // An answer that is ready after the deadline is no answer, unless it says more about the failure.
                    let expired =
                        this.account.as_ref().is_some_and(|account| account.deadline.expired(account.now()));
                    if expired && succeeded(&response) { this.expire() } else { response }
                }
                Poll::Pending => {
                    let Some(timer) = timer else { return Poll::Pending };
                    ready!(timer.as_mut().poll(cx));
                    this.expire()
                }
            },
        };
        let Some(mut account) = this.account.take() else {
            return Poll::Pending; // Polled after its end, which hyper does not do.
        };
        this.progress.answer();
        account.note(response.headers(), Some(response.status()));
        let (head, inner) = response.into_parts();
        if inner.is_end_stream() {
            account.complete();
        }
        Poll::Ready(Ok(Response::from_parts(head, Accounted { inner, account })))
    }
}

fn succeeded(response: &Response<Body>) -> bool {
    response.status().is_success() && response.headers().get(&GRPC_STATUS).is_none_or(|status| status == "0")
}

pin_project! {
    /// A response body that settles the exchange's accounts when it ends or is dropped.
    pub struct Accounted {
        #[pin]
        inner: Body,
        account: Account,
    }
}

impl http_body::Body for Accounted {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Status>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.account.note(trailers, None);
                }
                if this.inner.is_end_stream() {
                    this.account.complete();
                }
            }
            Some(Err(_)) => this.account.outcome = Some(Outcome::Refused(Reason::Internal)),
            None => this.account.complete(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
