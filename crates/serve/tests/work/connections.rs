//! Connections: the ways in which a caller really leaves, over HTTP/2 and HTTP/1, and the moment that counts for each.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use h2::client::SendRequest;
use http_body_util::Full;
use serve::{Arrival, Work, connection, exchange::Port, supervisor::Supervisor};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::{mpsc, oneshot},
};

use crate::rig::{Books, Costly, METHOD, Rig, Trickle, call, grpc, ms};

/// Room of a connection's pipe, in bytes.
const PIPE_BYTES: usize = 64 * 1_024;

/// Runs the other end of a connection, which stands outside the process under test.
#[expect(clippy::disallowed_methods, reason = "a peer of the test stands outside the process under test")]
pub(crate) fn outside(future: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(future)
}

/// A port behind a pipe.
pub(crate) struct Open {
    pub(crate) supervisor: Supervisor,
    pub(crate) pipe: DuplexStream,
}

impl Open {
    pub(crate) fn new(port: Port) -> Self {
        let (pipe, theirs) = tokio::io::duplex(PIPE_BYTES);
        let supervisor = Supervisor::new();
        supervisor.start("connection", connection::serve(theirs, Arc::new(port), supervisor.clone()));
        Self { supervisor, pipe }
    }
}

/// The client's side of an HTTP/2 connection.
pub(crate) struct Client {
    pub(crate) requests: SendRequest<Bytes>,
    pub(crate) driver: tokio::task::JoinHandle<()>,
}

impl Client {
    pub(crate) async fn open(pipe: DuplexStream, window: u32) -> Self {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let (requests, connection) = builder.handshake(pipe).await.expect("a connection");
        let driver = outside(async move {
            let _ended = connection.await;
        });
        Self { requests, driver }
    }

    /// Begins a call.
    pub(crate) async fn call(&self, timeout_ms: u64) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut requests = self.requests.clone().ready().await.expect("open");
        let mut request = call::<Full<Bytes>>(Some(ms(timeout_ms))).map(drop);
        *request.uri_mut() = format!("http://test{METHOD}").parse().expect("a URI");
        *request.version_mut() = http::Version::HTTP_2;
        let (response, mut upload) = requests.send_request(request, false).expect("sent");
        upload.send_data(Bytes::from_static(&[0, 0, 0, 0, 0]), true).expect("sent");
        (response, upload)
    }
}

/// Tells what became of a handler.
struct Watched {
    told: mpsc::Sender<&'static str>,
    work: Work,
    knew: Arc<AtomicBool>,
    _costly: Costly,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.knew.store(self.work.caller_gone(), Ordering::Relaxed);
        self.told.try_send("dropped").expect("room");
    }
}

/// How a caller leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// It resets its stream.
    Reset,
    /// It closes its HTTP/2 connection.
    Http2,
    /// It closes its HTTP/1 connection.
    Http1,
    /// It is cut, with every other connection.
    Cut,
}

/// The books after a caller has left a handler that waits, or that waits within its body, after 40 ms; what it works with
/// takes 7 ms to be dropped. And whether it knew by then that its caller was gone.
async fn books_of(leaving: Leaving, within_body: bool) -> (Books, bool) {
    let rig = Rig::new();
    let (told, mut hears) = mpsc::channel(8);
    let knew = Arc::<AtomicBool>::default();
    let (clock, known) = (Arc::clone(&rig.clock), Arc::clone(&knew));
    let run = move |arrival: &Arrival| {
        let costly = Costly { clock: Arc::clone(&clock), cost: ms(7) };
        told.try_send("began").expect("room");
        let (knew, told) = (Arc::clone(&known), told.clone());
        Watched { told, work: arrival.work(), knew, _costly: costly }
    };
    let run = Arc::new(run);
    let of = Arc::clone(&run);
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| async move {
        let watched = of(request.extensions().get::<Arrival>().expect("by the shell"));
        if !within_body {
            std::future::pending::<()>().await;
        }
        Holding::response(watched).map(axum::body::Body::new)
    });
    let port = rig.port(router, move |request| {
        let watched = run(request.extensions().get::<Arrival>().expect("by the shell"));
        async move {
            if !within_body {
                std::future::pending::<()>().await;
            }
            Holding::response(watched)
        }
    });
    let Open { supervisor, mut pipe } = Open::new(port);
    let heard = async |hears: &mut mpsc::Receiver<&str>, what| assert_eq!(hears.recv().await, Some(what));
    if leaving == Leaving::Http1 {
        let head = b"GET /page HTTP/1.1\r\nhost: test\r\ngrpc-timeout: 200m\r\n\r\n";
        pipe.write_all(head).await.expect("written");
        heard(&mut hears, "began").await;
        if within_body {
            assert!(pipe.read_u8().await.is_ok());
        }
        tokio::time::advance(ms(40).into()).await;
        drop(pipe);
    } else {
        let client = Client::open(pipe, 65_535).await;
        let (response, mut upload) = client.call(200).await;
        heard(&mut hears, "began").await;
        if within_body {
            assert!(response.await.is_ok());
        }
        tokio::time::advance(ms(40).into()).await;
        match leaving {
            Leaving::Reset => upload.send_reset(h2::Reason::CANCEL),
            Leaving::Cut => rig.lifecycle.cut(),
            Leaving::Http2 | Leaving::Http1 => client.driver.abort(),
        }
    }
    heard(&mut hears, "dropped").await;
    rig.lifecycle.cut();
    supervisor.idle().await;
    assert_eq!(rig.lifecycle.open_count(), 0);
    (rig.books(), knew.load(Ordering::Relaxed))
}

/// A body that holds what its handler works with, and never ends.
struct Holding {
    trickle: Trickle,
    _watched: Watched,
    _end: oneshot::Sender<()>,
}

impl Holding {
    fn response(watched: Watched) -> http::Response<tonic::body::Body> {
        let (end, never) = oneshot::channel();
        grpc(Self { trickle: Trickle::new(never, None), _watched: watched, _end: end })
    }
}

impl http_body::Body for Holding {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.trickle).poll_frame(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn however_a_caller_leaves_the_moment_is_noted_before_its_work_is_dropped() {
    for leaving in [Leaving::Reset, Leaving::Http2, Leaving::Http1, Leaving::Cut] {
        for within_body in [false, true] {
            let (books, knew) = books_of(leaving, within_body).await;
            let told = (books.outcome(), books.work(), knew);
            assert_eq!(told, (Some("cancelled"), [1, 7, 1, 7], true), "{leaving:?}, body: {within_body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_supervised_task_that_outlives_its_caller_is_late_from_its_departure_to_its_end() {
    let rig = Rig::new();
    let (told, mut hears) = mpsc::channel(8);
    let slot = Arc::<Mutex<Option<Supervisor>>>::default();
    let tasks = Arc::clone(&slot);
    let port = rig.port(axum::Router::new(), move |request| {
        let work = request.extensions().get::<Arrival>().expect("by the shell").work();
        let (told, (answer, answered)) = (told.clone(), oneshot::channel());
        tasks.lock().expect("sound").as_ref().expect("set").start("after", async move {
            told.send("began").await.expect("heard");
            tokio::time::sleep(ms(100).into()).await;
            told.send(if work.caller_gone() { "alone" } else { "attended" }).await.expect("heard");
            drop((work, answer));
        });
        async move {
            let _ended: Result<(), _> = answered.await;
            unreachable!("the caller leaves before")
        }
    });
    let Open { supervisor, pipe } = Open::new(port);
    *slot.lock().expect("sound") = Some(supervisor.clone());
    let client = Client::open(pipe, 65_535).await;
    let (_response, mut upload) = client.call(1_000).await;
    assert_eq!(hears.recv().await, Some("began"));
    tokio::time::advance(ms(40).into()).await;
    upload.send_reset(h2::Reason::CANCEL);
    assert_eq!(hears.recv().await, Some("alone"));
    drop(client);
    rig.lifecycle.cut();
    supervisor.idle().await;
    let books = rig.books();
    assert_eq!((books.outcome(), books.work()), (Some("cancelled"), [1, 60, 1, 60]));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_cut_and_its_work_is_not_late_before() {
    let rig = Rig::new();
    let (end, never) = oneshot::channel();
    let never = Mutex::new(Some(never));
    let port = rig.port(axum::Router::new(), move |_| {
        let never = never.lock().expect("sound").take().expect("one call");
        async { grpc(Trickle::new(never, None)) }
    });
    let Open { supervisor, pipe } = Open::new(port);
    // Not even the five bytes of the message fit.
    let client = Client::open(pipe, 0).await;
    let (response, _upload) = client.call(60).await;
    let mut body = response.await.expect("a head").into_body();
    let error = body.data().await.expect("an end").expect_err("reset");
    assert!(error.is_reset(), "{error}");
    assert_eq!(rig.clock.elapsed(), ms(65));
    drop((client, body, end));
    rig.lifecycle.cut();
    supervisor.idle().await;
    let books = rig.books();
    assert_eq!((books.outcome(), books.work()), (Some("deadline_exceeded"), [0, 0, 1, 5]));
    assert_eq!((books.total("mercury_streams_cut_total"), books.expired("respond")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_cut_at_the_end_of_the_drain_is_told_as_a_reader_that_was_cut() {
    let rig = Rig::new();
    let (end, never) = oneshot::channel();
    let never = Mutex::new(Some(never));
    let port = rig.port(axum::Router::new(), move |_| {
        let never = never.lock().expect("sound").take().expect("one call");
        async { grpc(Trickle::new(never, None)) }
    });
    let Open { supervisor, pipe } = Open::new(port);
    let client = Client::open(pipe, 0).await;
    let (response, _upload) = client.call(60).await;
    let body = response.await.expect("a head").into_body();
    assert_eq!((rig.lifecycle.responding_count(), rig.books().total("mercury_readers_cut_total")), (1, 0));
    rig.lifecycle.cut();
    supervisor.idle().await;
    drop((client, body, end));
    assert_eq!(rig.books().total("mercury_readers_cut_total"), 1);
    assert_eq!((rig.lifecycle.responding_count(), rig.lifecycle.cut_responses_count()), (0, 0));
}
