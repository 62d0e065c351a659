//! Exchange: one request and its response, from the arrival of its head to the last byte or the cut.
//!
//! The deadline is fixed here, once, and covers the whole exchange: until the response head by a timer of the
//! exchange itself, afterwards by whoever drives its body (see [`crate::connection`]). A long-lived call has no deadline
//! unless its caller asks for one; until its response head it has the default one all the same, and a process that
//! quiesces does not wait for it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use base::{
    Clock, Deadline, Nanos, Phase, Reason, Refusal, headers,
    ids::IdSource,
    inject::{Pass, Point, Points},
    timeout,
    trace::TraceContext,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::{Status, body::Body};

use crate::{
    InForce, Limits, Routes, Snapshot,
    account::{Account, GRPC_STATUS, Panicked},
    body::{self, Bounded},
    lifecycle::{Lifecycle, Share},
    metrics::{ServerMetrics, TraceLabel},
    render::{self, Face},
    routes::{self, Handling},
    telemetry::Tracer,
    work::{Operation, Progress, Work},
    writing::{PIECE_BYTES_MAX, Writers, Writing},
};

/// Suggested to a caller that met a quiescing process.
const QUIESCE_RETRY_AFTER: Nanos = Nanos::from_millis(1_000);
/// Suggested to a caller that met a process with as many requests as it takes.
const FULL_RETRY_AFTER: Nanos = Nanos::from_millis(50);
/// Most calls of a process that may stay as long as their callers like: health watches, reflection, feeds.
pub const LONG_LIVED_MAX: u32 = 256;
/// Attribute of the span: the policy that the request came in under.
const GENERATION_ATTRIBUTE: &str = "mercury.policy.generation";
/// Longest W3C `tracestate` that is passed on; a longer one is dropped, as the recommendation allows.
const TRACESTATE_BYTES_MAX: usize = 512;

// The header map would parse a name that it is given as text, every time.
static GRPC_TIMEOUT: HeaderName = HeaderName::from_static(headers::GRPC_TIMEOUT);
static TRACEPARENT: HeaderName = HeaderName::from_static(headers::TRACEPARENT);
static TRACESTATE: HeaderName = HeaderName::from_static(headers::TRACESTATE);

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
    /// Whether the caller asked for that deadline; otherwise it is the default.
    pub asked: bool,
    /// Where the request is.
    pub progress: Progress,
    /// The span of this hop.
    pub trace: TraceContext,
    /// W3C vendor state, empty when there was none.
    pub tracestate: String,
    /// What the process goes by, as it was when the head arrived.
    pub snapshot: Snapshot,
    work: Work,
}

impl Arrival {
    /// The arrival of a request that comes by no port, as in tests: its work is counted nowhere.
    pub fn unserved(at: Nanos, deadline: Deadline, trace: TraceContext) -> Self {
        Self {
            at,
            deadline,
            asked: false,
            progress: Progress::default(),
            trace,
            tracestate: String::new(),
            snapshot: Snapshot::default(),
            work: Work::default(),
        }
    }

    /// A share of the request's work, for a task that works for it and may outlive it.
    pub fn work(&self) -> Work {
        self.work.clone()
    }

    /// Ends when the process begins to quiesce; never for a request that came by no port. A long-lived stream ends then,
    /// since the drain would wait for it otherwise.
    pub fn quiesced(&self) -> impl Future<Output = ()> + Send + use<> {
        let quiesce = self.work.quiesce_token();
        async move {
            match quiesce {
                Some(quiesce) => quiesce.cancelled_owned().await,
                None => std::future::pending().await,
            }
        }
    }
}

/// The time that an exchange is granted.
#[derive(Clone, Copy)]
struct Grant {
    budget: Nanos,
    /// Of which so much until the response head.
    head: Nanos,
    /// By the caller, not by default.
    asked: bool,
}

/// What every exchange of a port shares.
pub struct Port {
    /// What is served.
    pub routes: Routes,
    /// Bounds.
    pub limits: InForce,
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
    /// Failures on purpose.
    pub points: Points,
}

impl Port {
    /// Begins an exchange.
    pub fn begin<B>(self: &Arc<Self>, request: Request<B>) -> (Exchange, Term)
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.begin_on(request, None)
    }

    /// Begins an exchange of a connection, whose responses `writers` watches.
    pub(crate) fn begin_on<B>(
        self: &Arc<Self>,
        request: Request<B>,
        writers: Option<Arc<Writers>>,
    ) -> (Exchange, Term)
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let now = self.clock.now();
        let face = routes::face(&request);
        let (trace, tracestate) = remote_trace(request.headers());
        let mut span = self.tracer.start(request.uri().path(), trace, &self.ids);
        self.metrics.offered();
        // Once for the whole exchange: it never mixes two generations.
        let limits = self.limits.load();
        if let Some(generation) = limits.generation {
            span.set(GENERATION_ATTRIBUTE, i64::try_from(generation).unwrap_or(i64::MAX));
        }
        let share = self.routes.share(request.uri().path());
        let long_lived = share.is_long_lived();
        let grant = self.grant(&request, long_lived, &limits);
        let head_by =
            grant.as_ref().map_or(Deadline::at(Nanos::MAX), |grant| Deadline::after(now, grant.head));
        let deadline =
            grant.as_ref().map_or(Deadline::at(Nanos::MAX), |grant| Deadline::after(now, grant.budget));
        let operation = Operation::begin(Arc::clone(self), deadline, TraceLabel::of(Some(&span.context())));
        let progress = Progress::of(&operation);
        let work = Work::of(&operation);
        let trace = span.context();
        let mut account = Account::open(Arc::clone(self), operation, now, span, share);
        let started = grant.and_then(|Grant { budget, asked, .. }| {
            let progress = progress.clone();
            let snapshot = limits.snapshot.clone();
            let arrival = Arrival { at: now, deadline, asked, progress, trace, tracestate, snapshot, work };
            self.start(request, face, arrival, budget, share, &limits)
        });
        let state = match started {
            Ok(handling) => {
                // The drain waits for what was asked; a call that may stay open for ever is not worth the wait.
                let quiesce = self.lifecycle.quiesce_token();
                let quiesced = long_lived.then(|| Box::pin(quiesce.clone().cancelled_owned()));
                Answer::Handling { handling, timer: self.timer(head_by, now), quiesced }
            }
            Err(refusal) => {
                account.refuse(refusal.reason());
                Answer::Refused(Some(render::response(&refusal, face)))
            }
        };
        (Exchange { state, face, account: Some(account), writers }, Term { deadline, progress })
    }

    /// Checks the head, then hands the request to its handler.
    fn start<B>(
        self: &Arc<Self>,
        request: Request<B>,
        face: Face,
        arrival: Arrival,
        budget: Nanos,
        share: Share,
        limits: &Limits,
    ) -> Result<Handling, Refusal>
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let header_bytes_max = limits.header_bytes_max as usize;
        let header_bytes = header_bytes(request.headers());
        if header_bytes > header_bytes_max {
            let message = format!("request headers exceed {header_bytes_max} bytes");
            return Err(Refusal::new(Reason::HeadersTooLarge, message));
        }
        self.metrics.header_bytes(header_bytes);
        if self.lifecycle.is_quiescing() {
            return Err(quiescing());
        }
        // This one is among them. A response that nobody reads is work as well.
        let full = match share {
            Share::Requests if self.lifecycle.under_way_count() > limits.requests_max as usize => {
                Some((limits.requests_max, "requests"))
            }
            Share::LongLived if self.lifecycle.long_lived_count() > LONG_LIVED_MAX as usize => {
                Some((LONG_LIVED_MAX, "long-lived calls"))
            }
            _ => None,
        };
        if let Some((max, what)) = full {
            let message = format!("{max} {what} are under way, the most that this process takes");
            return Err(Refusal::new(Reason::Overload, message).retry_after(FULL_RETRY_AFTER));
        }
        if budget.is_zero() {
            return Err(Refusal::deadline(Phase::Ingress));
        }
        let bytes_max = limits.body_bytes_max as usize;
        let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        // A gRPC body is prefixed, so its announced length may exceed that of its message.
        if face == Face::Http
            && announced.and_then(|text| text.parse().ok()).is_some_and(|n: u64| n > bytes_max as u64)
        {
            return Err(body::too_large(bytes_max));
        }
        let largest = self.metrics.body_bytes();
        let bounded = |body| Bounded::new(body, bytes_max, face == Face::Grpc).measured(largest.clone());
        let mut request = request.map(|body| Body::new(bounded(body)));
        request.extensions_mut().insert(arrival);
        if self.points.is_armed(Point::Admitted) && !share.is_long_lived() {
            return Ok(Box::pin(Arc::clone(self).start_injected(request, face)));
        }
        self.routes.dispatch(request, face)
    }

    /// As the end of [`Port::start`], past the point between admission and parsing.
    async fn start_injected(self: Arc<Self>, request: Request<Body>, face: Face) -> Response<Body> {
        let passed = self.points.pass(Point::Admitted).await.map_err(Refusal::from);
        match passed.and_then(|()| self.routes.dispatch(request, face)) {
            Ok(handling) => handling.await,
            Err(refusal) => render::response(&refusal, face),
        }
    }

    /// The time that the caller grants, clamped; the default when it names none.
    fn grant<B>(&self, request: &Request<B>, long_lived: bool, limits: &Limits) -> Result<Grant, Refusal> {
        let mut values = request.headers().get_all(&GRPC_TIMEOUT).iter();
        let asked = match (values.next(), values.next()) {
            (None, _) => None,
            (Some(value), None) => Some(timeout::parse(value.as_bytes()).map_err(malformed_timeout)?),
            (Some(_), Some(_)) => return Err(malformed_timeout(timeout::MalformedTimeout)),
        };
        // A watch may last as long as its caller likes, whether it says how long or not.
        let budget = if long_lived {
            asked.unwrap_or(Nanos::MAX)
        } else {
            asked.unwrap_or(limits.default_timeout).min(limits.timeout_max)
        };
        let head = if long_lived { budget.min(limits.default_timeout) } else { budget };
        Ok(Grant { budget, head, asked: asked.is_some() })
    }

    fn timer(&self, deadline: Deadline, now: Nanos) -> Option<Pin<Box<Sleep>>> {
        (deadline.instant() < Nanos::MAX)
            .then(|| Box::pin(tokio::time::sleep(deadline.remaining(now).into())))
    }
}

fn quiescing() -> Refusal {
    Refusal::new(Reason::Quiescing, "the process is shutting down").retry_after(QUIESCE_RETRY_AFTER)
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

enum Answer {
    /// The handler runs.
    Handling {
        handling: Handling,
        timer: Option<Pin<Box<Sleep>>>,
        /// Of a long-lived call, which does not outlast it unanswered.
        quiesced: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    },
    /// No handler runs.
    Refused(Option<Response<Body>>),
}

impl Answer {
    /// Ready with the handler's response, or with the refusal that takes its place.
    fn poll(&mut self, account: &Account, cx: &mut Context<'_>) -> Poll<Result<Response<Body>, Refusal>> {
        let (handling, timer, quiesced) = match self {
            Self::Refused(response) => return Poll::Ready(Ok(response.take().unwrap_or_default())),
            Self::Handling { handling, timer, quiesced } => (handling, timer, quiesced),
        };
        let expired = || account.operation().settle(Refusal::deadline(account.operation().phase()));
        Poll::Ready(match account.guard(|| handling.as_mut().poll(cx)) {
            // An answer that is ready after the deadline is no answer, unless it says more about the failure.
            Ok(Poll::Ready(response)) if account.expired() && succeeded(&response) => Err(expired()),
            Ok(Poll::Ready(response)) => Ok(response),
            Ok(Poll::Pending) => {
                if quiesced.as_mut().is_some_and(|quiesced| quiesced.as_mut().poll(cx).is_ready()) {
                    return Poll::Ready(Err(quiescing()));
                }
                let Some(timer) = timer else { return Poll::Pending };
                ready!(timer.as_mut().poll(cx));
                Err(expired())
            }
            Err(Panicked) => {
                let refusal = Refusal::new(Reason::Internal, "the handler panicked");
                Err(account.operation().settle(refusal))
            }
        })
    }
}

/// The future of a response head.
pub struct Exchange {
    state: Answer,
    face: Face,
    /// Until the response takes it over.
    account: Option<Account>,
    writers: Option<Arc<Writers>>,
}

impl Future for Exchange {
    type Output = Result<Response<Accounted>, std::convert::Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(account) = &mut this.account else {
            return Poll::Pending; // Polled after its end, which hyper does not do.
        };
        let response = ready!(this.state.poll(account, cx)).unwrap_or_else(|refusal| {
            // Dropping the handler's future cancels everything below it.
            this.state = Answer::Refused(None);
            account.stop();
            render::response(&refusal, this.face)
        });
        account.note(response.headers(), Some(response.status()));
        let (head, inner) = response.into_parts();
        if inner.is_end_stream() {
            account.complete();
        }
        match this.account.take() {
            Some(mut account) => {
                let writing = account.answer(this.writers.take());
                let body = Accounted { inner, account, writing, rest: Bytes::new(), pass: Due::Frame };
                Poll::Ready(Ok(Response::from_parts(head, body)))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Before the handler's future, which is dropped after this.
        if let Some(account) = &mut self.account {
            account.leave();
        }
    }
}

fn succeeded(response: &Response<Body>) -> bool {
    response.status().is_success() && response.headers().get(&GRPC_STATUS).is_none_or(|status| status == "0")
}

/// Whether the injection point before the next frame of a response was passed.
enum Due {
    Frame,
    Pass(Pass),
    Passed,
}

pin_project! {
    /// A response body that settles the exchange's accounts when it ends or is dropped.
    pub struct Accounted {
        #[pin]
        inner: Body,
        account: Account,
        writing: Arc<Writing>,
        // Of a frame that is larger than what is handed over at once.
        rest: Bytes,
        pass: Due,
    }

    impl PinnedDrop for Accounted {
        fn drop(this: Pin<&mut Self>) {
            // Before the handler's body, which is dropped after this.
            this.project().account.leave();
        }
    }
}

impl Accounted {
    /// Passes the point before the next frame, once a frame.
    fn pass(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let this = self.project();
        if matches!(this.pass, Due::Frame) && this.account.points().is_armed(Point::Respond) {
            *this.pass = Due::Pass(this.account.points().pass(Point::Respond));
        }
        let Due::Pass(pass) = this.pass else { return Poll::Ready(Ok(())) };
        let passed = match this.account.guard(|| Pin::new(pass).poll(cx)) {
            Ok(poll) => ready!(poll).map_err(|injected| render::status(&injected.into())),
            Err(Panicked) => Err(Status::internal("the handler panicked")),
        };
        *this.pass = Due::Passed;
        Poll::Ready(passed)
    }
}

impl http_body::Body for Accounted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            if let Err(status) = ready!(self.as_mut().pass(cx)) {
                self.project().account.fail();
                return Poll::Ready(Some(Err(status)));
            }
            let mut this = self.as_mut().project();
            let Ok(polled) = this.account.guard(|| this.inner.as_mut().poll_frame(cx)) else {
                this.account.fail();
                return Poll::Ready(Some(Err(Status::internal("the handler panicked"))));
            };
            let frame = ready!(polled);
            *this.pass = Due::Frame;
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(frame) => {
                        if let Some(trailers) = frame.trailers_ref() {
                            this.account.note(trailers, None);
                        }
                        this.account.complete();
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
                Some(Err(status)) => {
                    this.account.fail();
                    return Poll::Ready(Some(Err(status)));
                }
                None => {
                    this.account.complete();
                    return Poll::Ready(None);
                }
            }
        }
        let this = self.project();
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES_MAX));
        if this.rest.is_empty() && this.inner.is_end_stream() {
            this.account.complete();
        }
        Poll::Ready(Some(Ok(Frame::data(this.writing.mark(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
