//! Body: what an injected fault does to the response's body. Unary handlers do not see their body, so they leave a note in
//! the response's extensions, and a layer around the generated servers acts on it.

use std::{
    future::Future as _,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{TryFutureExt as _, future::MapOk};
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

use crate::{books::Outcome, engine::Open, timer::Sleep};

/// What happens to the body.
pub(crate) enum Injected {
    /// The stream is reset after the head.
    Reset,
    /// Nothing until the sleep ends; then the body, or the deadline's status if that has passed. The call is settled when
    /// the body is.
    Slow(Sleep, Box<Open>),
}

/// The note that a handler leaves. Extensions have to be cloneable; whoever takes the note first has it.
#[derive(Clone)]
pub(crate) struct Note(Arc<Mutex<Option<Injected>>>);

impl Note {
    pub(crate) fn new(injected: Injected) -> Self {
        Self(Arc::new(Mutex::new(Some(injected))))
    }

    fn take(&self) -> Option<Injected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A generated server with its notes acted on.
#[derive(Clone)]
pub(crate) struct Injecting<S>(pub(crate) S);

impl<S: NamedService> NamedService for Injecting<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Injecting<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = MapOk<S::Future, fn(Response<Body>) -> Response<Body>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request).map_ok(inject)
    }
}

/// Acts on the note in a response, if there is one.
pub(crate) fn inject(mut response: Response<Body>) -> Response<Body> {
    let Some(note) = response.extensions_mut().remove::<Note>() else { return response };
    match note.take() {
        None => response,
        Some(Injected::Reset) => response.map(|_| Body::new(ResetBody)),
        Some(Injected::Slow(hold, open)) => {
            response.map(|inner| Body::new(SlowBody { hold: Some(hold), inner, open: Some(*open) }))
        }
    }
}

/// Fails at once, which makes the server reset the stream.
struct ResetBody;

impl HttpBody for ResetBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(Some(Err(Status::unavailable("reset by an injected fault"))))
    }
}

/// Keeps the body back. Dropped before its end, it settles the call as abandoned.
struct SlowBody {
    hold: Option<Sleep>,
    inner: Body,
    open: Option<Open>,
}

impl HttpBody for SlowBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(hold) = &mut self.hold {
            ready!(Pin::new(hold).poll(cx));
            self.hold = None;
            if let Some(open) = self.open.take_if(|open| open.expired()) {
                self.inner = Body::empty();
                let mut trailers = HeaderMap::new();
                open.expire().add_header(&mut trailers)?;
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let ended = match &frame {
            None => true,
            Some(Ok(frame)) => frame.is_trailers() || self.inner.is_end_stream(),
            Some(Err(_)) => false,
        };
        if ended && let Some(open) = self.open.take() {
            open.settle(Outcome::Ok);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.hold.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Nothing is promised, since the message may not be sent.
        SizeHint::default()
    }
}
