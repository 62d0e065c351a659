//! Connection: the few long-lived HTTP/2 connections of the generator, each kept up by a task of its own.
//!
//! A lost connection is dialled again with backoff, the name resolved anew each time. An operation never waits for a
//! connection: with none up it fails at once and is counted, because waiting would turn an outage into politeness.

use std::{cell::Cell, cell::RefCell, fmt, rc::Rc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, time};

/// Most connections to the target: with a thousand streams each, what a whole admission domain keeps outstanding when its
/// callers wait for two seconds.
pub const CONNECTIONS_MAX: usize = 16;
/// Longest wait for a connection and its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// First wait before another attempt to connect; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest wait before another attempt to connect.
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// Stream and connection window: large enough that an answer never waits for a window update.
const WINDOW_BYTES: u32 = 4 << 20;
/// How long and how many reset streams are remembered. Departing callers reset one stream in five, and an answer that
/// arrives for a forgotten stream would count against the connection.
const RESET_MEMORY: Duration = Duration::from_secs(10);
const RESETS_REMEMBERED_MAX: usize = 8_192;
/// Silence after which the peer is asked whether it is still there, and how long it may take to answer.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends requests on one connection.
pub(crate) type Sender = http2::SendRequest<Full<Bytes>>;
type Driver = http2::Connection<TokioIo<TcpStream>, Full<Bytes>, TokioExecutor>;

/// Why no connection could be made.
#[derive(Debug)]
pub(crate) enum DialError {
    Io(std::io::Error),
    Handshake(hyper::Error),
    TimedOut,
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Handshake(error) => write!(f, "HTTP/2 handshake: {error}"),
            Self::TimedOut => write!(f, "no connection within {} s", CONNECT_TIMEOUT.as_secs()),
        }
    }
}

/// The connections, shared by the operations of one thread.
pub(crate) struct Connections {
    target: String,
    lanes: Vec<RefCell<Option<Sender>>>,
    next: Cell<usize>,
    lost: Cell<u64>,
}

impl Connections {
    /// Opens all connections.
    ///
    /// # Errors
    /// The first failure: a target that is not there when the run starts is a mistake of the caller, not a result.
    pub(crate) async fn open(target: &str, count: usize) -> Result<(Rc<Self>, Vec<Driver>), DialError> {
        let count = count.clamp(1, CONNECTIONS_MAX);
        let mut lanes = Vec::with_capacity(count);
        let mut drivers = Vec::with_capacity(count);
        for _ in 0..count {
            let (sender, driver) = dial(target).await?;
            lanes.push(RefCell::new(Some(sender)));
            drivers.push(driver);
        }
        let target = target.to_owned();
        Ok((Rc::new(Self { target, lanes, next: Cell::new(0), lost: Cell::new(0) }), drivers))
    }

    /// A sender of the next connection that is up, or `None`.
    pub(crate) fn sender(&self) -> Option<Sender> {
        let start = self.next.get();
        self.next.set((start + 1) % self.lanes.len());
        (0..self.lanes.len())
            .map(|offset| &self.lanes[(start + offset) % self.lanes.len()])
            .find_map(|lane| lane.borrow().as_ref().filter(|sender| sender.is_ready()).cloned())
    }

    /// How many connections were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Drives lane `index` for ever, from an open connection on.
    pub(crate) async fn keep_up(self: Rc<Self>, index: usize, driver: Driver) {
        let mut driver = Some(driver);
        let mut backoff = BACKOFF_MIN;
        loop {
            if let Some(driver) = driver.take() {
                // How it ended is told by the operations that were on it.
                let _ = driver.await;
                self.lanes[index].replace(None);
                self.lost.set(self.lost.get() + 1);
            }
            match dial(&self.target).await {
                Ok((sender, fresh)) => {
                    self.lanes[index].replace(Some(sender));
                    driver = Some(fresh);
                    backoff = BACKOFF_MIN;
                }
                Err(_) => {
                    time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }
}

async fn dial(target: &str) -> Result<(Sender, Driver), DialError> {
    let open = async {
        let stream = TcpStream::connect(target).await.map_err(DialError::Io)?;
        stream.set_nodelay(true).map_err(DialError::Io)?;
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_concurrent_reset_streams(RESETS_REMEMBERED_MAX)
            .reset_stream_duration(RESET_MEMORY)
            .max_local_error_reset_streams(None)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(DialError::Handshake)
    };
    time::timeout(CONNECT_TIMEOUT, open).await.unwrap_or(Err(DialError::TimedOut))
}
