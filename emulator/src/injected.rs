//! Injected: faults of the response body, which a handler cannot commit by itself. The handler leaves a mark in the
//! response's extensions; this layer, around every generated server, acts on it.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use base::Nanos;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

use crate::{
    call::Account,
    timer::{Alarms, Sleep},
};

/// What happens to the body of a response.
#[derive(Clone)]
pub(crate) enum Injected {
    /// The stream is reset after its head.
    Reset,
    /// The head goes out, the message only at this instant. The call's account is settled when it does, or when the caller
    /// gives up before.
    Slow { until: Nanos, account: Arc<Mutex<Option<Account>>> },
}

/// A generated server whose marked responses misbehave.
#[derive(Clone)]
pub(crate) struct Injecting<S> {
    pub(crate) inner: S,
    pub(crate) timer: Alarms,
}

impl<S: NamedService> NamedService for Injecting<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Injecting<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.inner.call(request);
        let timer = self.timer.clone();
        Box::pin(async move {
            let mut response = answer.await?;
            Ok(match response.extensions_mut().remove::<Injected>() {
                None => response,
                Some(Injected::Reset) => response.map(|_body| Body::new(Broken)),
                Some(Injected::Slow { until, account }) => {
                    response.map(|body| Body::new(Slow { body, wait: Some(timer.until(until)), account }))
                }
            })
        })
    }
}

/// A body that breaks as soon as it is read; the transport resets the stream.
struct Broken;

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(Some(Err(Status::internal("injected reset"))))
    }
}

/// A body that waits before its first frame.
struct Slow {
    body: Body,
    wait: Option<Sleep>,
    account: Arc<Mutex<Option<Account>>>,
}

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(wait) = &mut self.wait {
            std::task::ready!(Pin::new(wait).poll(cx));
            self.wait = None;
            if let Some(account) = self.account.lock().unwrap_or_else(PoisonError::into_inner).take() {
                account.finish("fault");
            }
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}
