//! Exchange: from a request to its response head: waiting for a connection, stamping the time that is left, and the one
//! case in which a request goes out twice.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use base::{
    headers,
    inject::{Injected, Point, Points},
    timeout,
};
use bytes::Bytes;
use control::budget::{self, Skip};
use h2::{RecvStream, SendStream, client::ResponseFuture};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use http_body::Body;

use crate::{
    call::{Terms, no_budget, request_body},
    failure::{LocalFailure, Made},
    link::LinkTiming,
    slot::{Blocked, Inner, Opened},
    stats::add,
    status::{self, Code},
    upload::{self, BodyError, Payload, Upload},
};

static GRPC_TIMEOUT: HeaderName = HeaderName::from_static(headers::GRPC_TIMEOUT);

/// A response head, and what is still moving behind it.
pub(crate) struct Answer {
    pub(crate) response: Response<RecvStream>,
    pub(crate) upload: Option<Upload>,
    pub(crate) generation: u64,
    pub(crate) timing: LinkTiming,
}

/// How far a call has come.
pub(crate) enum Progress {
    Sent(Sent),
    /// There is no connection yet, or something is to go wrong before it is sent.
    Waiting(Box<Request<()>>, Outgoing, Point),
}

/// A call on its way.
pub(crate) struct Sent {
    response: ResponseFuture,
    upload: Option<Upload>,
    generation: u64,
    timing: LinkTiming,
    /// Present when it can be sent again: its body was all there.
    again: Option<(Spare, Bytes)>,
}

/// A request body that has not gone out.
pub(crate) enum Outgoing {
    /// All of it is there, so that the call can be sent again.
    Whole(Bytes, Spare),
    /// What starts its upload.
    Streaming(Box<dyn FnOnce(SendStream<Bytes>) -> Upload + Send>),
}

impl Outgoing {
    pub(crate) fn new<B>(payload: Payload<B>, template: &Template) -> Self
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BodyError>,
    {
        match payload {
            Payload::Whole(data) => Self::Whole(data, Spare::of(template)),
            Payload::Streaming { ready, rest } => {
                Self::Streaming(Box::new(move |stream| Box::pin(upload::upload(ready, rest, stream))))
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Whole(data, _) if data.is_empty())
    }

    /// Sends it, or starts to, on a stream that was opened for it.
    fn send(self, opened: Opened, timing: LinkTiming, points: &Points) -> Sent {
        let Opened { generation, response, mut stream } = opened;
        match self {
            Self::Whole(data, _) if !data.is_empty() && points.is_armed(Point::PartialWrite) => {
                let upload = Some(upload::in_halves(data, stream, points.pass(Point::PartialWrite)));
                Sent { response, upload, generation, timing, again: None }
            }
            Self::Whole(data, spare) => {
                if !data.is_empty() {
                    // All of it at once: it is in memory already, and h2 sends it as the peer's windows allow. A
                    // stream that takes no data has an error that says why, and the response future reports it.
                    let _ = stream.send_data(data.clone(), true);
                }
                Sent { response, upload: None, generation, timing, again: Some((spare, data)) }
            }
            Self::Streaming(start) => {
                Sent { response, upload: Some(start(stream)), generation, timing, again: None }
            }
        }
    }
}

/// Sends the request if there is a connection.
pub(crate) fn begin(
    link: &Arc<Inner>,
    template: Template,
    outgoing: Outgoing,
    terms: &Terms,
) -> Result<Progress, Made> {
    let request = template.into_request();
    if link.world.points.is_armed(Point::BeforeSend) {
        return Ok(Progress::Waiting(Box::new(request), outgoing, Point::BeforeSend));
    }
    match open(link, request, outgoing.is_empty(), terms) {
        Ok((opened, timing)) => Ok(Progress::Sent(outgoing.send(opened, timing, &link.world.points))),
        Err(Blocked::Connecting(request)) => {
            Ok(Progress::Waiting(Box::new(request), outgoing, Point::AwaitReady))
        }
        Err(Blocked::Refused(made)) => Err(made),
    }
}

/// Brings the call to its response head.
pub(crate) async fn finish(link: &Arc<Inner>, progress: Progress, terms: &Terms) -> Result<Answer, Made> {
    let mut sent = match progress {
        Progress::Sent(sent) => sent,
        // Boxed because it is rare: the state would take room in every call.
        Progress::Waiting(request, outgoing, point) => {
            link.world.points.pass(point).await.map_err(injected)?;
            Box::pin(wait(link, *request, outgoing, terms)).await?
        }
    };
    let mut outcome = answer(&mut sent).await;
    // The peer said that it has not processed the call, so nothing happens twice.
    if let Err(Failed::Stream(error)) = &outcome
        && status::is_unprocessed(error)
        && let Some((spare, data)) = sent.again.take()
    {
        add(&link.shared.stats.replays);
        let request = spare.template().into_request();
        sent = Box::pin(wait(link, request, Outgoing::Whole(data, spare), terms)).await?;
        outcome = answer(&mut sent).await;
    }
    match outcome {
        Ok(response) => {
            Ok(Answer { response, upload: sent.upload, generation: sent.generation, timing: sent.timing })
        }
        Err(Failed::Body(error)) => {
            Err(error.downcast_ref::<Injected>().map_or_else(|| request_body(&*error), broken))
        }
        Err(Failed::Stream(error)) => {
            Err(status::from_h2(&error, false, terms.expiry().expired(link.shared.clock.now())))
        }
    }
}

/// An injected failure before anything was sent: there is no connection that could carry the call.
fn injected(injected: Injected) -> Made {
    Made::new(Code::Unavailable, LocalFailure::Unreachable, injected.to_string())
}

/// An injected failure of the write itself: as if the connection had broken under it.
fn broken(injected: &Injected) -> Made {
    Made::new(Code::Unavailable, LocalFailure::ConnectionLost, injected.to_string())
}

/// Sends the request as soon as there is a connection.
async fn wait(
    link: &Arc<Inner>,
    mut request: Request<()>,
    outgoing: Outgoing,
    terms: &Terms,
) -> Result<Sent, Made> {
    let mut changed = pin!(link.changed.notified());
    loop {
        // Listen before looking, or a change in between would go unnoticed.
        changed.as_mut().enable();
        match open(link, request, outgoing.is_empty(), terms) {
            Ok((opened, timing)) => return Ok(outgoing.send(opened, timing, &link.world.points)),
            Err(Blocked::Refused(made)) => return Err(made),
            Err(Blocked::Connecting(back)) => request = back,
        }
        changed.as_mut().await;
        changed.set(link.changed.notified());
    }
}

/// Opens a stream for the request, stamped with what remains now, less the reserve, as its one `grpc-timeout`.
fn open(
    link: &Arc<Inner>,
    mut request: Request<()>,
    bodiless: bool,
    terms: &Terms,
) -> Result<(Opened, LinkTiming), Blocked> {
    let now = link.shared.clock.now();
    let remaining = budget::outbound(terms.budget.deadline, now, terms.budget.reserve).granted();
    let value = remaining.and_then(|remaining| {
        let text = timeout::encode(remaining).and_then(|text| HeaderValue::try_from(text).ok());
        // Zero alone has no encoding, and zero is not granted.
        text.ok_or(Skip::Expired)
    });
    match value {
        Ok(mut value) => {
            // No two calls have the same, so it has no place in HPACK's tables.
            value.set_sensitive(true);
            request.headers_mut().insert(&GRPC_TIMEOUT, value)
        }
        Err(reason) => return Err(Blocked::Refused(no_budget(reason))),
    };
    let opened = link.open(request, bodiless)?;
    Ok((opened, LinkTiming { acquire: now - terms.called_at, sent_at: now }))
}

/// Why there is no response head.
enum Failed {
    Stream(h2::Error),
    Body(BodyError),
}

/// Waits for the response head, while a streaming body goes out.
async fn answer(sent: &mut Sent) -> Result<Response<RecvStream>, Failed> {
    poll_fn(|cx| {
        if let Some(Poll::Ready(done)) = sent.upload.as_mut().map(|upload| upload.as_mut().poll(cx)) {
            sent.upload = None;
            if let Err(error) = done {
                return Poll::Ready(Err(Failed::Body(error)));
            }
        }
        Pin::new(&mut sent.response).poll(cx).map_err(Failed::Stream)
    })
    .await
}

/// A request without its body.
pub(crate) struct Template {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
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

/// A copy of a request, in case it has to be sent again, which is rare. Packed, since nearly every copy is thrown away:
/// cloning the headers would allocate once a value.
pub(crate) struct Spare {
    method: Method,
    uri: Uri,
    lines: Vec<Line>,
    values: Vec<u8>,
}

struct Line {
    name: HeaderName,
    /// Where the value ends; it begins where the one before it ended.
    end: usize,
    sensitive: bool,
}

impl Spare {
    fn of(template: &Template) -> Self {
        let mut lines = Vec::with_capacity(template.headers.len());
        let mut values = Vec::with_capacity(512);
        for (name, value) in &template.headers {
            values.extend_from_slice(value.as_bytes());
            lines.push(Line { name: name.clone(), end: values.len(), sensitive: value.is_sensitive() });
        }
        Self { method: template.method.clone(), uri: template.uri.clone(), lines, values }
    }

    fn template(&self) -> Template {
        let mut headers = HeaderMap::with_capacity(self.lines.len() + 1);
        let mut start = 0;
        for Line { name, end, sensitive } in &self.lines {
            // It was a header value before.
            if let Ok(mut value) = HeaderValue::from_bytes(&self.values[start..*end]) {
                value.set_sensitive(*sensitive);
                headers.append(name, value);
            }
            start = *end;
        }
        Template { method: self.method.clone(), uri: self.uri.clone(), headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_is_the_same_request() {
        let mut headers = HeaderMap::new();
        headers.insert("te", HeaderValue::from_static("trailers"));
        headers.append("x-many", HeaderValue::from_static("one"));
        headers.append("x-many", HeaderValue::from_static(""));
        let mut secret = HeaderValue::from_bytes(b"\xffopaque").expect("a value");
        secret.set_sensitive(true);
        headers.insert("authorization", secret);
        let template = Template { method: Method::POST, uri: Uri::from_static("http://peer:1/a/b"), headers };
        let copy = Spare::of(&template).template();
        assert_eq!(
            (&copy.method, &copy.uri, &copy.headers),
            (&template.method, &template.uri, &template.headers)
        );
        assert!(copy.headers["authorization"].is_sensitive());
    }
}
