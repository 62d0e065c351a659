//! Connection: one accepted socket. Tells the protocol apart within a bound, drives hyper, supervises the task of every
//! stream and cuts it when its exchange outlives its deadline.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use base::Deadline;
use bytes::{Bytes, BytesMut};
use hyper::{Request, body::Incoming, rt::Executor, server::conn, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    time::Sleep,
};

use crate::{
    Limits,
    exchange::{Accounted, Exchange, Port, Term},
    io::Guarded,
    metrics::LATE_AFTER,
    supervisor::{Kind, Supervisor},
    writing::Writers,
};

/// First bytes of HTTP/2 (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Name of a stream's task.
const STREAM_TASK: &str = "stream";
/// Bytes that one stream may have waiting for the socket.
pub const SEND_BUFFER_BYTES: usize = 64 * 1_024;
/// Least read buffer that hyper takes for HTTP/1.
const HTTP1_BUFFER_BYTES_MIN: usize = 8 * 1_024;
/// hyper itself enforces this many times the header bound, so that our own refusal, which names its reason, comes first.
const HEADER_SLACK: u32 = 4;

/// Serves one connection until it ends, is told to go, or is cut.
pub async fn serve<I>(io: I, port: Arc<Port>, supervisor: Supervisor)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    port.metrics.connection_opened();
    let _closed = Closed(Arc::clone(&port));
    let limits = Arc::clone(&port.limits.load());
    let quiesce = port.lifecycle.quiesce_token().clone();
    let mut io = io;
    let told = tokio::select! {
        biased; // A socket that has sent nothing yet never holds the drain.
        () = quiesce.cancelled() => return,
        told = tell_protocol(&mut io, limits.first_byte_timeout.into()) => told,
    };
    let (http2, peeked) = match told {
        Ok(told) => told,
        Err(error) => {
            if error.kind() == io::ErrorKind::TimedOut {
                port.metrics.connection_silent();
            }
            tracing::debug!(%error, "connection closed before its first request");
            return;
        }
    };
    let writers = Writers::new(Arc::clone(&port.clock));
    let stalled = Stalled::new(Arc::clone(&port), Arc::clone(&writers));
    let told = stalled.clone();
    let io = Guarded::new(io, peeked, limits.write_stall_timeout.into()).on_stall(move || told.tell());
    let io = TokioIo::new(io);
    let current = Current::default();
    let service = Exchanges { port: Arc::clone(&port), limits, current: current.clone(), writers };
    let result = if http2 {
        serve_http2(io, service, supervisor, &stalled).await
    } else {
        serve_http1(io, service, &stalled).await
    };
    if let Err(error) = result {
        if error.is_timeout() && !stalled.is_told() {
            port.metrics.connection_silent();
        }
        tracing::debug!(%error, "connection ended");
    }
}

/// A peer that stopped reading, told once, while the responses that it does not take can still be counted.
#[derive(Clone)]
struct Stalled {
    port: Arc<Port>,
    writers: Arc<Writers>,
    told: Arc<AtomicBool>,
}

impl Stalled {
    fn new(port: Arc<Port>, writers: Arc<Writers>) -> Self {
        Self { port, writers, told: Arc::default() }
    }

    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let responses = self.writers.open();
            tracing::debug!(responses, "the peer stopped reading");
            self.port.metrics.readers_cut(responses);
            self.port.lifecycle.responses_cut(responses);
        }
    }

    /// The drain has ended, and with it the connection. The shell has counted what is cut; here it is told of the port.
    fn killed(&self) {
        if !self.is_told() {
            self.port.metrics.readers_cut(self.writers.open());
        }
    }

    fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }
}

/// Counts the connection out, however its task ends.
struct Closed(Arc<Port>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.metrics.connection_closed();
    }
}

/// Reads until the bytes are surely HTTP/2's preface or surely not. Returns what was read.
async fn tell_protocol<I: AsyncRead + Unpin>(io: &mut I, bound: Duration) -> io::Result<(bool, Bytes)> {
    let mut peeked = BytesMut::with_capacity(PREFACE.len());
    let reading = async {
        loop {
            let mut rest = [0_u8; PREFACE.len()];
            let count = io.read(&mut rest[peeked.len()..]).await?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            let start = peeked.len();
            peeked.extend_from_slice(&rest[start..start + count]);
            let like = peeked.as_ref() == &PREFACE[..peeked.len()];
            if !like || peeked.len() == PREFACE.len() {
                return Ok(like);
            }
        }
    };
    let http2 = tokio::time::timeout(bound, reading).await.map_err(|_elapsed| io::ErrorKind::TimedOut)??;
    Ok((http2, peeked.freeze()))
}

async fn serve_http2<I>(
    io: I,
    service: Exchanges,
    supervisor: Supervisor,
    stalled: &Stalled,
) -> Result<(), hyper::Error>
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let port = Arc::clone(&service.port);
    let limits = Arc::clone(&service.limits);
    let writers = Arc::clone(&service.writers);
    let streams = supervisor.kind(STREAM_TASK);
    let executor = StreamExecutor { streams, port: Arc::clone(&port), current: service.current.clone() };
    let mut builder = conn::http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        // gRPC has no use for a date, which would cost every hop two headers; HTTP asks for one.
        .auto_date_header(port.routes.has_http())
        .max_concurrent_streams(limits.streams_max)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_header_list_size(limits.header_bytes_max.saturating_mul(HEADER_SLACK))
        .max_pending_accept_reset_streams(limits.pending_reset_streams_max as usize)
        .max_local_error_reset_streams(limits.local_reset_streams_max as usize)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(Duration::from(limits.keep_alive_interval))
        .keep_alive_timeout(limits.keep_alive_timeout.into());
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    let mut going = false;
    loop {
        tokio::select! {
            biased; // The cut comes before all, and going away before more requests.
            () = port.lifecycle.kill_token().cancelled() => {
                stalled.killed();
                return Ok(());
            }
            () = port.lifecycle.quiesce_token().cancelled(), if !going => {
                going = true;
                connection.as_mut().graceful_shutdown();
            }
            result = connection.as_mut() => return result,
            // hyper has no hold any more on a stream whose body it has taken, so the whole connection goes.
            () = writers.stalled(limits.write_stall_timeout) => {
                stalled.tell();
                return Ok(());
            }
        }
    }
}

async fn serve_http1<I>(io: I, service: Exchanges, stalled: &Stalled) -> Result<(), hyper::Error>
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let port = Arc::clone(&service.port);
    let buffer_bytes =
        (service.limits.header_bytes_max.saturating_mul(HEADER_SLACK) as usize).max(HTTP1_BUFFER_BYTES_MIN);
    let connection = conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from(service.limits.keep_alive_interval))
        .max_buf_size(buffer_bytes)
        .serve_connection(io, service);
    tokio::pin!(connection);
    let mut going = false;
    loop {
        tokio::select! {
            biased; // As above.
            () = port.lifecycle.kill_token().cancelled() => {
                stalled.killed();
                return Ok(());
            }
            () = port.lifecycle.quiesce_token().cancelled(), if !going => {
                going = true;
                connection.as_mut().graceful_shutdown();
            }
            result = connection.as_mut() => return result,
        }
    }
}

/// The bound of the exchange that was begun last, handed from the service to the executor.
///
/// hyper calls the service and then, in the same breath, gives the resulting stream to the executor
/// (`proto/h2/server.rs`), so one slot a connection is enough.
#[derive(Clone, Default)]
struct Current(Arc<Mutex<Option<Term>>>);

impl Current {
    fn put(&self, term: Term) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(term);
    }

    fn take(&self) -> Option<Term> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The service of one connection.
struct Exchanges {
    port: Arc<Port>,
    /// Those that the connection was accepted under.
    limits: Arc<Limits>,
    current: Current,
    writers: Arc<Writers>,
}

impl Service<Request<Incoming>> for Exchanges {
    type Response = hyper::Response<Accounted>;
    type Error = std::convert::Infallible;
    type Future = Exchange;

    fn call(&self, request: Request<Incoming>) -> Exchange {
        let (exchange, term) = self.port.begin_on(request, Some(Arc::clone(&self.writers)));
        self.current.put(term);
        exchange
    }
}

/// Puts every stream of a connection under supervision and a time bound.
#[derive(Clone)]
struct StreamExecutor {
    streams: Kind,
    port: Arc<Port>,
    current: Current,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        let term = self.current.take().filter(|term| term.deadline.instant() < base::Nanos::MAX);
        self.streams.start(StreamTask { future, timer: None, term, port: Arc::clone(&self.port) });
    }
}

pin_project! {
    /// A stream's task. hyper polls a response body at most one frame ahead of the window that the peer grants, so a body
    /// could not cut itself; this can, because it is what is polled.
    struct StreamTask<F> {
        #[pin]
        future: F,
        // Set when a response waits for its peer, which few do. Before there is one, the exchange's own timer ends it.
        #[pin]
        timer: Option<Sleep>,
        term: Option<Term>,
        port: Arc<Port>,
    }
}

impl<F: Future> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        // The stream first: at the deadline it still has its own refusal to send.
        if this.future.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if this.timer.is_none()
            && let Some(term) = this.term.as_ref().filter(|term| term.progress.is_answered())
        {
            let cut_at = Deadline::at(term.deadline.instant() + LATE_AFTER);
            this.timer.set(Some(tokio::time::sleep(cut_at.remaining(this.port.clock.now()).into())));
        }
        match this.timer.as_pin_mut().map(|timer| timer.poll(cx)) {
            Some(Poll::Ready(())) => {
                this.port.metrics.stream_cut();
                this.port.lifecycle.responses_cut(1);
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(chunks: &[&[u8]]) -> io::Result<(bool, Bytes)> {
        let (mut near, far) = tokio::io::duplex(64);
        let chunks: Vec<Vec<u8>> = chunks.iter().map(|chunk| chunk.to_vec()).collect();
        let write = async move {
            let mut far = far;
            for chunk in chunks {
                tokio::io::AsyncWriteExt::write_all(&mut far, &chunk).await.expect("open");
                tokio::task::yield_now().await;
            }
            far
        };
        let (told, _far) = tokio::join!(tell_protocol(&mut near, Duration::from_secs(1)), write);
        told
    }

    #[tokio::test(start_paused = true)]
    async fn the_protocol_is_told_within_a_bound() {
        assert!(told(&[PREFACE]).await.expect("http2").0);
        assert!(told(&[&PREFACE[..3], &PREFACE[3..]]).await.expect("http2 in pieces").0);
        assert!(!told(&[b"GET / HTTP/1.1\r\n"]).await.expect("http1").0);
        assert!(!told(&[b"PR", b"OPFIND /"]).await.expect("http1 that begins alike").0);
        for silent in [&[][..], &[&b"PRI"[..]][..]] {
            assert_eq!(told(silent).await.expect_err("nothing more comes").kind(), io::ErrorKind::TimedOut);
        }
    }
}
