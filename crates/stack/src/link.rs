//! Link: the client handle of one dependency.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use base::{Deadline, Nanos, World};
use bytes::Bytes;
use http::{Request, Response, uri::Authority};
use http_body::Body;
use tower_service::Service;

use crate::{
    body::LinkBody,
    call::{self, Shared},
    config::LinkConfig,
    connect::{Connect, TcpConnect},
    slot::Inner,
    stats::LinkStats,
};

/// A client handle on one dependency: one HTTP/2 connection, made when it is first needed and made anew when it is lost.
/// Clones share it and cost one reference count. A [`Service`] as tonic's generated clients take it:
/// `ProfileServiceClient::new(link)`.
///
/// # Guarantees
/// - Every call has a deadline ([`CallBudget`], or the configured default) that covers connecting, the response head and
///   the whole body. It leaves as exactly one `grpc-timeout`, written at the moment of sending; with nothing left, no
///   call is sent.
/// - The service never fails, nor does its body: what goes wrong becomes a gRPC status, told apart from the peer's own by
///   [`LocalFailure`](crate::LocalFailure).
/// - Dropping a call, or its response body, cancels it at the peer (RST_STREAM CANCEL) and harms no other call.
/// - A call is sent a second time, once and within its deadline, only when the peer itself said that it has not processed
///   it. There are no other retries.
/// - Calls are bounded, and refused beyond the bound: nothing queues. While there is no connection, calls wait for the
///   attempt under way and fail at once between attempts.
///
/// A streaming request body moves while the call, and after it the response body, is polled.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

/// Request extension: the deadline of the request that this call is made for, and what its hop keeps of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallBudget {
    /// When the caller's own answer is due.
    pub deadline: Deadline,
    /// How much earlier than that the call must be over.
    pub reserve: Nanos,
}

/// Response extension: waiting for the connection, told apart from the peer's own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTiming {
    /// From the call to the moment of sending.
    pub acquire: Nanos,
    /// The moment of sending, on the process's clock. A call that was sent twice counts from the second time.
    pub sent_at: Nanos,
}

/// The address of a dependency is no `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAuthority {
    /// What was given.
    pub address: String,
}

impl fmt::Display for InvalidAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected host:port, found {:?}", self.address)
    }
}

impl Error for InvalidAuthority {}

impl Link {
    /// A link to `address`, a `host:port`, over TCP. Nothing is dialled yet. `label` names the connection's task at the
    /// supervisor, for instance `link:profile`.
    ///
    /// # Errors
    /// [`InvalidAuthority`] when the address is no `host:port`.
    pub fn tcp(
        label: &'static str,
        address: &str,
        config: LinkConfig,
        world: World,
    ) -> Result<Self, InvalidAuthority> {
        Self::new(label, address, config, world, Arc::new(TcpConnect::new(address)))
    }

    /// A link over transports that `connector` opens; `address` is what the peer is called in `:authority`.
    ///
    /// # Errors
    /// [`InvalidAuthority`] when the address is no `host:port`.
    pub fn new(
        label: &'static str,
        address: &str,
        config: LinkConfig,
        world: World,
        connector: Arc<dyn Connect>,
    ) -> Result<Self, InvalidAuthority> {
        let authority: Option<Authority> = address.parse().ok();
        let Some(authority) =
            authority.filter(|authority| authority.port_u16().is_some() && !authority.host().is_empty())
        else {
            return Err(InvalidAuthority { address: address.to_owned() });
        };
        let shared = Arc::new(Shared::new(Arc::clone(&world.clock), config));
        Ok(Self { inner: Arc::new(Inner::new(shared, world, label, authority, connector)) })
    }

    /// What the link counts about itself. Holding it does not hold the connection.
    pub fn stats(&self) -> Arc<LinkStats> {
        Arc::clone(&self.inner.shared.stats)
    }

    /// Who is called, as `host:port`.
    pub fn address(&self) -> &str {
        self.inner.authority.as_str()
    }

    /// Ends the link for all its clones: new calls and those that wait for a connection fail with UNAVAILABLE, calls under
    /// way finish, and the connection ends after the last of them.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for Link
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<LinkBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    /// Always ready: whether a call can be made is decided when it is made, within its deadline.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Sends the request now if there is a connection, whether or not the future is polled; dropping it cancels the call.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        match call::begin(&self.inner, request) {
            Ok(begun) => Box::pin(call::finish(Arc::clone(&self.inner), begun)),
            Err(made) => Box::pin(ready(Ok(call::refuse(&self.inner.shared, &made)))),
        }
    }
}
