//! Call: the two ends of one call over a link: what is settled before anything waits, and what the caller is handed.

use std::{
    convert::Infallible,
    error::Error,
    sync::{Arc, atomic::Ordering},
};

use base::{Clock, Deadline, Nanos};
use bytes::Bytes;
use control::budget::{self, Skip};
use http::{
    Extensions, HeaderValue, Request, Response, Uri, Version,
    header::CONTENT_TYPE,
    uri::{PathAndQuery, Scheme},
};
use http_body::Body;

use crate::{
    body::LinkBody,
    config::LinkConfig,
    exchange::{self, Answer, Outgoing, Progress, Template},
    failure::{LocalFailure, Made},
    link::CallBudget,
    slot::Inner,
    stats::{LinkStats, add},
    status::Code,
    tidy::{self, Head},
    upload,
};

/// What calls and response bodies need of their link. They hold this and not the link, so that a response that is still
/// being read does not keep a dropped link dialling.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: LinkConfig,
    pub(crate) stats: Arc<LinkStats>,
}

impl Shared {
    pub(crate) const fn new(clock: Arc<dyn Clock>, config: LinkConfig, stats: Arc<LinkStats>) -> Self {
        Self { clock, config, stats }
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

/// When a call began and what it may take.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) called_at: Nanos,
    pub(crate) budget: CallBudget,
}

impl Terms {
    /// When the call is over, as the callee is told.
    pub(crate) const fn expiry(&self) -> Deadline {
        self.budget.deadline.less(self.budget.reserve)
    }
}

/// A call that was sent, or waits for a connection.
pub(crate) struct Begun {
    ticket: Ticket,
    terms: Terms,
    remaining: Nanos,
    progress: Progress,
    /// The request's, emptied, for the response: their map is allocated once a call.
    extensions: Extensions,
}

/// Begins a call, and sends it if there is a connection. Done here rather than in the future, which stays small: a
/// request is several hundred bytes that would otherwise be moved from one state to the next.
pub(crate) fn begin<B>(link: &Arc<Inner>, request: Request<B>) -> Result<Begun, Made>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let shared = &link.shared;
    add(&shared.stats.calls);
    let called_at = shared.clock.now();
    let (mut head, body) = request.into_parts();
    let budget = head.extensions.remove::<CallBudget>().unwrap_or(CallBudget {
        deadline: Deadline::after(called_at, shared.config.default_timeout),
        reserve: Nanos::ZERO,
    });
    let terms = Terms { called_at, budget };
    let remaining =
        budget::outbound(budget.deadline, called_at, budget.reserve).granted().map_err(no_budget)?;
    let Some(ticket) = Ticket::take(shared) else {
        let calls_max = shared.config.calls_max;
        return Err(Made::new(
            Code::ResourceExhausted,
            LocalFailure::Saturated,
            format!("{calls_max} calls are under way, the most that are allowed"),
        ));
    };
    let template = Template { method: head.method, uri: absolute(head.uri, link)?, headers: head.headers };
    let payload = upload::look(body).map_err(|error| request_body(&*error))?;
    let outgoing = Outgoing::new(payload, &template);
    let progress = exchange::begin(link, template, outgoing, &terms)?;
    let mut extensions = head.extensions;
    extensions.clear();
    Ok(Begun { ticket, terms, remaining, progress, extensions })
}

/// Brings a call to its response head, within its time.
pub(crate) async fn finish(link: Arc<Inner>, begun: Begun) -> Result<Response<LinkBody>, Infallible> {
    let Begun { ticket, terms, remaining, progress, extensions } = begun;
    let outcome = tokio::select! {
        biased; // The deadline first: an answer that comes with it is late, and both sides must agree on that.
        () = tokio::time::sleep(remaining.into()) => Err(Made::deadline()),
        outcome = exchange::finish(&link, progress, &terms) => outcome,
    };
    Ok(match outcome {
        Ok(answer) => respond(&link, answer, extensions, terms.expiry(), ticket),
        Err(made) => refuse(&link.shared, &made),
    })
}

/// Turns a response head into what the caller sees.
fn respond(
    link: &Inner,
    answer: Answer,
    mut extensions: Extensions,
    expiry: Deadline,
    ticket: Ticket,
) -> Response<LinkBody> {
    link.prove(answer.generation);
    let (mut parts, stream) = answer.response.into_parts();
    let expired = || expiry.expired(link.shared.clock.now());
    let mut response = match tidy::head(&mut parts, stream.is_end_stream(), expired) {
        Head::Messages => Response::from_parts(parts, LinkBody::new(stream, answer.upload, expiry, ticket)),
        Head::Final => Response::from_parts(parts, LinkBody::empty()),
        Head::Replaced(made) => refuse(&link.shared, &made),
    };
    extensions.insert(answer.timing);
    extensions.extend(std::mem::take(response.extensions_mut()));
    *response.extensions_mut() = extensions;
    response
}

/// A response that is made here: a status and nothing else.
pub(crate) fn refuse(shared: &Shared, made: &Made) -> Response<LinkBody> {
    shared.stats.count(made.failure);
    let mut response = Response::new(LinkBody::empty());
    *response.version_mut() = Version::HTTP_2;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    made.write(headers);
    response.extensions_mut().insert(made.failure);
    response
}

/// Why nothing was sent.
pub(crate) fn no_budget(reason: Skip) -> Made {
    Made::new(
        Code::DeadlineExceeded,
        LocalFailure::NoBudget,
        match reason {
            Skip::Expired => "the deadline had passed before the call was sent",
            _ => "nothing was left for the call beside the reserve",
        },
    )
}

/// The request body failed.
pub(crate) fn request_body(error: &(dyn Error + Send + Sync)) -> Made {
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
