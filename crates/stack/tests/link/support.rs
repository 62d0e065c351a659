//! Support: a world with a counted task set and the runtime's own clock, a network that can refuse, swallow and move,
//! and peers built from a handler.

use std::{
    collections::HashMap,
    future::Future,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base::{
    Clock, Deadline, Nanos, World,
    clock::SystemWallClock,
    ids::IdSource,
    tasks::{Spawn, Task},
};
use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use stack::{
    CallBudget, Connect, Connecting, Io, LOCAL_FAILURE_HEADER, Link, LinkBody, LinkConfig, LinkTiming,
    LocalFailure,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    sync::{Notify, broadcast},
};
use tower_service::Service as _;

/// Longest that a test waits for what must happen; paused time makes it free, and a hang a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits `future`, or fails the test.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// Runs a peer of the test. It ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "a peer of the test stands outside the process under test")]
pub(crate) fn outside(future: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(future);
}

/// The task set of the process under test.
#[derive(Default)]
pub(crate) struct Tasks {
    active: AtomicUsize,
    names: Mutex<HashMap<&'static str, usize>>,
    ended: Notify,
    pub(crate) refuses: std::sync::atomic::AtomicBool,
}

struct Active(Arc<Tasks>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify_waiters();
    }
}

pub(crate) struct Spawner(pub(crate) Arc<Tasks>);

impl Spawn for Spawner {
    fn spawn(&self, name: &'static str, task: Task) {
        if self.0.refuses.load(Ordering::SeqCst) {
            return;
        }
        self.0.active.fetch_add(1, Ordering::SeqCst);
        *self.0.names.lock().expect("names").entry(name).or_default() += 1;
        let active = Active(Arc::clone(&self.0));
        outside(async move {
            let _active = active;
            task.await;
        });
    }
}

impl Tasks {
    pub(crate) fn started(&self, name: &str) -> usize {
        self.names.lock().expect("names").get(name).copied().unwrap_or(0)
    }

    /// Waits until no more than `count` tasks are running.
    pub(crate) async fn down_to(&self, count: usize) {
        soon("tasks to end", async {
            loop {
                let ended = self.ended.notified();
                if self.active.load(Ordering::SeqCst) <= count {
                    return;
                }
                ended.await;
            }
        })
        .await;
    }
}

/// The runtime's clock, so that paused time is paused for everybody.
pub(crate) struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Nanos {
        Nanos::from_secs(1_000) + Nanos::from(self.0.elapsed())
    }
}

pub(crate) fn world(tasks: &Arc<Tasks>) -> World {
    World {
        clock: Arc::new(RuntimeClock(tokio::time::Instant::now())),
        wall: Arc::new(SystemWallClock),
        ids: Arc::new(IdSource::new(7)),
        tasks: Arc::new(Spawner(Arc::clone(tasks))),
        points: base::inject::Points::default(),
    }
}

pub(crate) const CONFIG: LinkConfig = LinkConfig {
    default_timeout: Nanos::from_secs(1),
    connect_timeout: Nanos::from_millis(200),
    backoff_min: Nanos::from_millis(10),
    backoff_max: Nanos::from_millis(500),
    keep_alive_interval: Nanos::from_secs(2),
    keep_alive_timeout: Nanos::from_millis(500),
    calls_max: 256,
    message_bytes_max: 64 * 1024,
    header_bytes_max: 8 * 1024,
    stream_window_bytes: 256 * 1024,
    connection_window_bytes: 1024 * 1024,
    reset_streams_max: 1_024,
    reset_stream_memory: Nanos::from_secs(30),
};

pub(crate) type Accept = Arc<dyn Fn(DuplexStream) + Send + Sync>;

/// What dialling leads to.
#[derive(Clone)]
pub(crate) enum Route {
    To(Accept),
    After(Duration, Accept),
    Refused,
    Nowhere,
}

/// The network between the link and its peer.
pub(crate) struct Net {
    route: Mutex<Route>,
    dials: AtomicUsize,
    dialled: Notify,
}

impl Net {
    pub(crate) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self { route: Mutex::new(route), dials: AtomicUsize::new(0), dialled: Notify::new() })
    }

    pub(crate) fn route(&self, route: Route) {
        *self.route.lock().expect("route") = route;
    }

    pub(crate) fn dials(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }

    pub(crate) async fn dialled(&self, count: usize) {
        soon("a dial", async {
            loop {
                let dialled = self.dialled.notified();
                if self.dials() >= count {
                    return;
                }
                dialled.await;
            }
        })
        .await;
    }
}

pub(crate) struct NetConnect(pub(crate) Arc<Net>);

impl Connect for NetConnect {
    fn connect(&self) -> Connecting {
        let net = Arc::clone(&self.0);
        Box::pin(async move {
            net.dials.fetch_add(1, Ordering::SeqCst);
            net.dialled.notify_waiters();
            let route = net.route.lock().expect("route").clone();
            let accept = match route {
                Route::To(accept) => accept,
                Route::After(delay, accept) => {
                    tokio::time::sleep(delay).await;
                    accept
                }
                Route::Refused => return Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                Route::Nowhere => std::future::pending().await,
            };
            let (near, far) = tokio::io::duplex(1 << 20);
            accept(far);
            Ok(Box::new(near) as Io)
        })
    }
}

/// What a peer is told to do with its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Graceful,
    Abrupt(Reason),
    Vanish,
    /// Stays connected and never moves again.
    Freeze,
}

/// An h2 server that hands every request to one handler.
pub(crate) struct Peer {
    pub(crate) accept: Accept,
    orders: broadcast::Sender<Order>,
}

impl Peer {
    pub(crate) fn new<H, F>(handler: H) -> Self
    where
        H: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + Clone + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::limited(1_000, handler)
    }

    pub(crate) fn limited<H, F>(streams_max: u32, handler: H) -> Self
    where
        H: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + Clone + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (orders, _) = broadcast::channel(8);
        let source = orders.clone();
        let accept: Accept =
            Arc::new(move |io| outside(serve(io, streams_max, handler.clone(), source.subscribe())));
        Self { accept, orders }
    }

    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    pub(crate) fn route(&self) -> Route {
        Route::To(Arc::clone(&self.accept))
    }
}

pub(crate) async fn serve<T, H, F>(
    io: T,
    streams_max: u32,
    handler: H,
    mut orders: broadcast::Receiver<Order>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(streams_max).max_pending_accept_reset_streams(100_000);
    let Ok(mut connection) = builder.handshake(io).await else { return };
    loop {
        tokio::select! {
            biased; // Orders first, so that what a test ordered holds for everything after it.
            order = orders.recv() => match order {
                Ok(Order::Graceful) => connection.graceful_shutdown(),
                Ok(Order::Abrupt(reason)) => connection.abrupt_shutdown(reason),
                Ok(Order::Freeze) => std::future::pending().await,
                Ok(Order::Vanish) | Err(_) => return,
            },
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => outside(handler(request, respond)),
                _ => return,
            },
        }
    }
}

/// A length-prefixed message.
pub(crate) fn message(payload: &[u8]) -> Bytes {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(payload.len()).expect("small").to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes.into()
}

pub(crate) fn grpc_head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).expect("a head")
}

pub(crate) fn trailers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a header value")))
        .collect()
}

/// Answers with one message and OK.
pub(crate) fn reply(mut respond: SendResponse<Bytes>, payload: &[u8]) {
    let Ok(mut stream) = respond.send_response(grpc_head(), false) else { return };
    let _ = stream.send_data(message(payload), false);
    let _ = stream.send_trailers(trailers(&[("grpc-status", "0")]));
}

/// Link, network and task set of one test.
pub(crate) struct Rig {
    pub(crate) link: Link,
    pub(crate) net: Arc<Net>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) world: World,
}

impl Rig {
    pub(crate) fn new(route: Route) -> Self {
        Self::with(CONFIG, route)
    }

    pub(crate) fn with(config: LinkConfig, route: Route) -> Self {
        let tasks = Arc::<Tasks>::default();
        let world = world(&tasks);
        let net = Net::new(route);
        let connector = Arc::new(NetConnect(Arc::clone(&net)));
        let link = Link::new("link:test", "peer.test:50051", config, world.clone(), connector)
            .expect("an authority");
        Self { link, net, tasks, world }
    }

    pub(crate) fn within(&self, budget: Nanos) -> CallBudget {
        CallBudget { deadline: Deadline::after(self.world.clock.now(), budget), reserve: Nanos::ZERO }
    }

    /// A call with `budget` left, and its outcome.
    pub(crate) async fn ask(&self, budget: Nanos) -> Answer {
        ask(&self.link, request("/test.Service/Call", Some(self.within(budget)))).await
    }

    /// Every resource is back: no call is under way, and with the link its tasks end.
    pub(crate) async fn end(self) {
        let stats = self.link.stats();
        assert_eq!(stats.in_flight(), 0, "calls under way");
        drop(self.link);
        self.tasks.down_to(0).await;
    }
}

pub(crate) fn request(path: &str, budget: Option<CallBudget>) -> Request<Full<Bytes>> {
    let mut request = Request::post(path)
        .version(http::Version::HTTP_2)
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(Full::new(message(b"question")))
        .expect("a request");
    if let Some(budget) = budget {
        request.extensions_mut().insert(budget);
    }
    request
}

/// What came out of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) http: StatusCode,
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) failure: Option<LocalFailure>,
    pub(crate) data: Bytes,
    pub(crate) timing: Option<LinkTiming>,
    pub(crate) metadata: HeaderMap,
}

pub(crate) async fn begin(link: &Link, request: Request<Full<Bytes>>) -> Response<LinkBody> {
    let Ok(response) = soon("a response head", link.clone().call(request)).await;
    response
}

pub(crate) async fn ask(link: &Link, request: Request<Full<Bytes>>) -> Answer {
    finish(begin(link, request).await).await
}

/// Reads a response to its end and checks that it has exactly one status.
pub(crate) async fn finish(response: Response<LinkBody>) -> Answer {
    let (parts, mut body) = response.into_parts();
    let mut data = Vec::new();
    let mut last = None;
    while let Some(frame) = soon("a frame", body.frame()).await {
        assert!(last.is_none(), "a frame after the trailers");
        let Ok(frame) = frame;
        match frame.into_data() {
            Ok(bytes) => data.extend_from_slice(&bytes),
            Err(frame) => last = frame.into_trailers().ok(),
        }
    }
    let in_head = parts.headers.contains_key("grpc-status");
    assert_eq!(last.is_none(), in_head, "the status is in the head or in the trailers");
    let metadata = last.unwrap_or_else(|| parts.headers.clone());
    assert_eq!(metadata.get_all("grpc-status").iter().count(), 1, "exactly one status");
    // Read as a generated client reads it, which must neither panic nor see another code.
    let status = tonic::Status::from_header_map(&metadata).expect("a status");
    let failure = metadata
        .get(LOCAL_FAILURE_HEADER)
        .map(|name| LocalFailure::parse(name.to_str().expect("ASCII")).expect("a known name"));
    if in_head {
        assert_eq!(parts.extensions.get::<LocalFailure>().copied(), failure, "extension and header agree");
    }
    Answer {
        http: parts.status,
        code: status.code() as i32,
        message: status.message().to_owned(),
        failure,
        data: data.into(),
        timing: parts.extensions.get::<LinkTiming>().copied(),
        metadata,
    }
}
