//! Link: the client handle of one dependency.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use base::{Deadline, Nanos, World};
use bytes::Bytes;
use http::{Request, Response, uri::Authority};
use http_body::Body;
use tokio::sync::watch;
use tower_service::Service;

use crate::{
    body::LinkBody,
    call::{self, Shared},
    config::LinkConfig,
    connect::{Connect, TcpConnect},
    slot::Inner,
    stats::LinkStats,
};

/// A client handle on one dependency: one HTTP/2 connection, made when it is first needed and made anew when it is lost or its
/// bounds change.
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
pub struct Link(Arc<Handle>);

/// What the clones of a link share over all its connections.
struct Handle {
    inner: ArcSwap<Inner>,
    stats: Arc<LinkStats>,
    authority: Authority,
    /// Counts what was asked of [`Link::reconfigure`] and [`Link::close`], so that only the last asked counts, and the others end.
    turn: watch::Sender<u64>,
}

/// A link that is not kept from ending by whoever holds this.
#[derive(Clone)]
pub struct WeakLink(Weak<Handle>);

impl WeakLink {
    /// The link, while somebody else holds it.
    pub fn upgrade(&self) -> Option<Link> {
        self.0.upgrade().map(Link)
    }
}

impl fmt::Debug for WeakLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakLink").field(&self.upgrade()).finish()
    }
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
        let stats = Arc::<LinkStats>::default();
        let shared = Arc::new(Shared::new(Arc::clone(&world.clock), config, Arc::clone(&stats)));
        let inner = Inner::new(shared, world, label, authority.clone(), connector);
        let (inner, turn) = (ArcSwap::from_pointee(inner), watch::Sender::new(0));
        Ok(Self(Arc::new(Handle { inner, stats, authority, turn })))
    }

    /// Other bounds for the link. The new connection is made by them before the old one is retired; then new calls go to the
    /// new one, and the old one ends after those that it has. Both count against the new bound on calls.
    ///
    /// Ends once new calls go by `config`. Until then, or when this is dropped before, the old bounds hold. Of several at a
    /// time the last one counts, and the others end with it.
    pub async fn reconfigure(&self, config: LinkConfig) {
        let handle = &self.0;
        let mut turns = handle.turn.subscribe();
        let mut turn = 0;
        handle.turn.send_modify(|now| {
            *now += 1;
            turn = *now;
        });
        let old = handle.inner.load_full();
        if old.shared.config == config || old.is_closed() {
            return;
        }
        let shared = Shared::new(Arc::clone(&old.shared.clock), config, Arc::clone(&handle.stats));
        let next = Arc::new(old.renewed(Arc::new(shared)));
        drop(old);
        tokio::select! {
            biased;
            _ = turns.wait_for(|now| *now != turn) => return,
            () = next.connect() => {}
        }
        handle.turn.send_if_modified(|now| {
            if *now == turn {
                // Without handles the old connection ends with its last stream; calls that wait for it still hold one.
                handle.inner.store(Arc::clone(&next));
            }
            false
        });
    }

    /// The bounds that new calls go by.
    pub fn config(&self) -> LinkConfig {
        self.0.inner.load().shared.config
    }

    /// A handle that does not keep the link.
    pub fn downgrade(&self) -> WeakLink {
        WeakLink(Arc::downgrade(&self.0))
    }

    /// What the link counts about itself. Holding it does not hold the connection.
    pub fn stats(&self) -> Arc<LinkStats> {
        Arc::clone(&self.0.stats)
    }

    /// Who is called, as `host:port`.
    pub fn address(&self) -> &str {
        self.0.authority.as_str()
    }

    /// Ends the link for all its clones: new calls and those that wait for a connection fail with UNAVAILABLE, calls under
    /// way finish, and the connection ends after the last of them.
    pub fn close(&self) {
        // Whatever is being made to replace it comes too late.
        self.0.turn.send_modify(|turn| {
            *turn += 1;
            self.0.inner.load().close();
        });
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
        let inner = self.0.inner.load_full();
        match call::begin(&inner, request) {
            Ok(begun) => Box::pin(call::finish(inner, begun)),
            Err(made) => Box::pin(ready(Ok(call::refuse(&inner.shared, &made)))),
        }
    }
}
