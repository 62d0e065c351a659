//! Call: one call over a link, from its budget to its response head.

use std::{
    error::Error,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
};

use base::{Clock, Deadline, Nanos, headers, timeout};
use bytes::Bytes;
use control::budget::{self, Decision, Skip};
use h2::{RecvStream, client::ResponseFuture};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version,
    header::CONTENT_TYPE,
    request,
    uri::{PathAndQuery, Scheme},
};
use http_body::Body;

use crate::{
    body::LinkBody,
    config::LinkConfig,
    failure::{LocalFailure, Made},
    link::{CallBudget, LinkTiming},
    slot::{Blocked, Inner, Opened},
    stats::{LinkStats, add},
    status::{self, Code},
    tidy::{self, Head},
    upload::{self, BodyError, Payload, Upload},
};

static GRPC_TIMEOUT: HeaderName = HeaderName::from_static(headers::GRPC_TIMEOUT);

/// What calls and response bodies need of their link. They hold this and not the link, so that a response that is still
/// being read does not keep a dropped link dialling.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: LinkConfig,
    pub(crate) stats: Arc<LinkStats>,
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>, config: LinkConfig) -> Self {
        Self { clock, config, stats: Arc::default() }
    }
}

/// A call's place among those under way. Given back on drop.
pub(crate) struct Ticket(Arc<Shared>);

impl Ticket {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let stats = &shared.stats;
        let others = stats.in_flight.fetch_add(1, Ordering::Relaxed);
        if others >= u64::from(shared.config.calls_max) {
            stats.in_flight.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        stats.in_flight_peak.fetch_max(others + 1, Ordering::Relaxed);
        Some(Self(Arc::clone(shared)))
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.stats.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes the call.
pub(crate) async fn run<B>(link: Arc<Inner>, request: Request<B>) -> Response<LinkBody>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let shared = Arc::clone(&link.shared);
    add(&shared.stats.calls);
    let called_at = shared.clock.now();
    let (mut head, body) = request.into_parts();
    let budget = head.extensions.remove::<CallBudget>().unwrap_or(CallBudget {
        deadline: Deadline::after(called_at, shared.config.default_timeout),
        reserve: Nanos::ZERO,
    });
    let remaining = match budget::outbound(budget.deadline, called_at, budget.reserve) {
        Decision::Start { budget } => budget,
        Decision::Skip(reason) => return refuse(&shared, &no_budget(reason)),
    };
    let Some(ticket) = Ticket::take(&shared) else {
        let calls_max = shared.config.calls_max;
        return refuse(
            &shared,
            &Made::new(
                Code::ResourceExhausted,
                LocalFailure::Saturated,
                format!("{calls_max} calls are under way, the most that are allowed"),
            ),
        );
    };
    // The link's own bound on the call is what the callee is told.
    let expiry = budget.deadline.less(budget.reserve);
    let exchange = exchange(&link, head, body, called_at, budget);
    let outcome = tokio::select! {
        biased; // The deadline first: an answer that comes with it is late, and both sides must agree on that.
        () = tokio::time::sleep(remaining.into()) => Err(Made::deadline()),
        outcome = exchange => outcome,
    };
    match outcome {
        Ok(answer) => respond(&link, answer, expiry, ticket),
        Err(made) => refuse(&shared, &made),
    }
}

/// A response head, and what is still moving behind it.
struct Answer {
    response: Response<RecvStream>,
    upload: Option<Upload>,
    generation: u64,
    timing: LinkTiming,
}

/// Sends the request and waits for the response head.
async fn exchange<B>(
    link: &Arc<Inner>,
    head: request::Parts,
    body: B,
    called_at: Nanos,
    budget: CallBudget,
) -> Result<Answer, Made>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let template = Template { uri: absolute(head.uri, link)?, method: head.method, headers: head.headers };
    let (data, template) = match upload::look(body).map_err(request_body)? {
        Payload::Whole(data) => (data, template),
        Payload::Streaming { ready, rest } => {
            let (opened, sent_at) = acquire(link, template, false, budget).await?;
            let upload: Upload = Box::pin(upload::upload(ready, rest, opened.stream));
            let timing = LinkTiming { acquire: sent_at - called_at, sent_at };
            return answer(opened.response, Some(upload), opened.generation, timing)
                .await
                .map_err(|failed| failed.made(link, budget));
        }
    };
    let again = template.clone();
    match send_whole(link, template, data.clone(), called_at, budget).await {
        // The peer said that it has not processed the call, so nothing happens twice.
        Err(Failed::Stream(error)) if status::is_unprocessed(&error) => {
            add(&link.shared.stats.replays);
            send_whole(link, again, data, called_at, budget).await
        }
        outcome => outcome,
    }
    .map_err(|failed| failed.made(link, budget))
}

/// A request without its body, to be sent once or twice.
#[derive(Clone)]
struct Template {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl Template {
    fn into_request(self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers;
        request
    }
}

/// How an attempt failed.
enum Failed {
    Made(Made),
    Stream(h2::Error),
}

impl From<Made> for Failed {
    fn from(made: Made) -> Self {
        Self::Made(made)
    }
}

impl Failed {
    fn made(self, link: &Inner, budget: CallBudget) -> Made {
        match self {
            Self::Made(made) => made,
            Self::Stream(error) => {
                let expired = budget.deadline.less(budget.reserve).expired(link.shared.clock.now());
                status::from_h2(&error, false, expired)
            }
        }
    }
}

/// One attempt at a request whose body is all there.
async fn send_whole(
    link: &Arc<Inner>,
    template: Template,
    data: Bytes,
    called_at: Nanos,
    budget: CallBudget,
) -> Result<Answer, Failed> {
    let bodiless = data.is_empty();
    let (mut opened, sent_at) = acquire(link, template, bodiless, budget).await?;
    if !bodiless {
        // All of it at once: it is in memory already, and h2 sends it as the peer's windows allow. A stream that
        // takes no data has an error that says why, and the response future reports it.
        let _ = opened.stream.send_data(data, true);
    }
    drop(opened.stream);
    let timing = LinkTiming { acquire: sent_at - called_at, sent_at };
    answer(opened.response, None, opened.generation, timing).await
}

/// Opens a stream, waiting for a connection if need be. With it comes the moment of sending.
async fn acquire(
    link: &Arc<Inner>,
    template: Template,
    bodiless: bool,
    budget: CallBudget,
) -> Result<(Opened, Nanos), Made> {
    let mut request = template.into_request();
    let sent_at = stamp(request.headers_mut(), link, budget)?;
    match link.open(request, bodiless) {
        Ok(opened) => return Ok((opened, sent_at)),
        Err(Blocked::Refused(made)) => return Err(made),
        Err(Blocked::Connecting(back)) => request = back,
    }
    let mut changed = pin!(link.changed.notified());
    loop {
        // Listen before looking, or a change in between would go unnoticed.
        changed.as_mut().enable();
        let sent_at = stamp(request.headers_mut(), link, budget)?;
        match link.open(request, bodiless) {
            Ok(opened) => return Ok((opened, sent_at)),
            Err(Blocked::Refused(made)) => return Err(made),
            Err(Blocked::Connecting(back)) => request = back,
        }
        changed.as_mut().await;
        changed.set(link.changed.notified());
    }
}

/// Writes what remains now, less the reserve, as the one `grpc-timeout`. Returns now.
fn stamp(headers: &mut HeaderMap, link: &Inner, budget: CallBudget) -> Result<Nanos, Made> {
    let now = link.shared.clock.now();
    let remaining = budget::outbound(budget.deadline, now, budget.reserve).granted().map_err(no_budget)?;
    let value = timeout::encode(remaining).and_then(|text| HeaderValue::try_from(text).ok());
    // Zero alone has no encoding, and zero was not granted.
    let value = value.ok_or_else(|| no_budget(Skip::Expired))?;
    headers.insert(&GRPC_TIMEOUT, value);
    Ok(now)
}

/// Waits for the response head, while a streaming body goes out.
async fn answer(
    mut response: ResponseFuture,
    mut upload: Option<Upload>,
    generation: u64,
    timing: LinkTiming,
) -> Result<Answer, Failed> {
    let response = poll_fn(|cx| {
        if let Some(Poll::Ready(sent)) = upload.as_mut().map(|upload| upload.as_mut().poll(cx)) {
            upload = None;
            if let Err(error) = sent {
                return Poll::Ready(Err(Failed::Made(request_body(error))));
            }
        }
        Pin::new(&mut response).poll(cx).map_err(Failed::Stream)
    })
    .await?;
    Ok(Answer { response, upload, generation, timing })
}

/// Turns a response head into what the caller sees.
fn respond(link: &Inner, answer: Answer, expiry: Deadline, ticket: Ticket) -> Response<LinkBody> {
    link.prove(answer.generation);
    let (mut parts, stream) = answer.response.into_parts();
    let expired = expiry.expired(link.shared.clock.now());
    let mut response = match tidy::head(&mut parts, stream.is_end_stream(), expired) {
        Head::Messages => Response::from_parts(parts, LinkBody::new(stream, answer.upload, expiry, ticket)),
        Head::Final => Response::from_parts(parts, LinkBody::empty()),
        Head::Replaced(made) => refuse(&link.shared, &made),
    };
    response.extensions_mut().insert(answer.timing);
    response
}

/// A response that is made here: a status and nothing else.
fn refuse(shared: &Shared, made: &Made) -> Response<LinkBody> {
    shared.stats.count(made.failure);
    let mut response = Response::new(LinkBody::empty());
    *response.version_mut() = Version::HTTP_2;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    made.write(headers);
    response.extensions_mut().insert(made.failure);
    response
}

fn no_budget(reason: Skip) -> Made {
    Made::new(
        Code::DeadlineExceeded,
        LocalFailure::NoBudget,
        match reason {
            Skip::Expired => "the deadline had passed before the call was sent",
            _ => "nothing was left for the call beside the reserve",
        },
    )
}

fn request_body(error: BodyError) -> Made {
    Made::new(Code::Internal, LocalFailure::RequestBody, format!("the request body failed: {error}"))
}

/// The URI as HTTP/2 wants it: generated clients give the path alone.
fn absolute(uri: Uri, link: &Inner) -> Result<Uri, Made> {
    let mut parts = uri.into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(link.authority.clone());
    parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    Uri::from_parts(parts).map_err(|error| {
        Made::new(
            Code::Internal,
            LocalFailure::RequestBody,
            format!("the request has no valid path: {error}"),
        )
    })
}
