//! Collector: a throw-away receiver of spans (OTLP over gRPC) on a thread of its own, so that a lost span can show. It counts
//! what it gets and keeps nothing.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use super::peer::{self, Sent};

/// Most bytes of one export; a whole queue of spans is below.
const EXPORT_BYTES_MAX: usize = 16 << 20;
/// Bytes before a message of gRPC.
const PREFIX_BYTES: usize = 5;
/// Place of the groups by resource in an export, of those by scope in such a group, and of the spans in those.
const NESTING: [u64; 3] = [1, 2, 2];

/// A collector that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Collector {
    address: SocketAddr,
    spans: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Listens on loopback.
    ///
    /// # Errors
    /// Whatever the kernel says to a socket or a thread.
    pub(super) fn start() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let spans = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let counted = Arc::clone(&spans);
        let collect = move || {
            runtime.block_on(async {
                // It was bound and made non-blocking above, so that this cannot fail; nothing is collected if it does.
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, &counted) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("collector".to_owned()).spawn(collect)?;
        Ok(Self { address, spans, stop: Some(stop), thread: Some(thread) })
    }

    /// Where spans are sent to.
    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Spans so far.
    pub(super) fn spans(&self) -> u64 {
        self.spans.load(Ordering::Relaxed)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Dropping the sender ends the thread.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, spans: &Arc<AtomicU64>) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Whoever could not be accepted comes again.
                if let Ok((stream, _)) = accepted {
                    connections.push(connection(stream, Arc::clone(spans)));
                }
            }
            Some(()) = connections.next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, spans: Arc<AtomicU64>) {
    let service = service_fn(move |request| taken(request, Arc::clone(&spans)));
    // A member that ends takes its connection with it.
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// Counts the spans of an export and takes them; one that does not read is refused, which its sender counts as lost.
async fn taken(request: Request<Incoming>, spans: Arc<AtomicU64>) -> Result<Response<Sent>, Infallible> {
    let body = Limited::new(request.into_body(), EXPORT_BYTES_MAX).collect().await;
    let export = body.ok().map(http_body_util::Collected::to_bytes);
    let count = export.and_then(|bytes| count(bytes.get(PREFIX_BYTES..)?));
    let status = if let Some(count) = count {
        spans.fetch_add(count, Ordering::Relaxed);
        HeaderValue::from_static("0")
    } else {
        // INVALID_ARGUMENT: it is not sent again.
        HeaderValue::from_static("3")
    };
    let trailers = HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), status)]);
    let nothing: Bytes = peer::framed(0, 0, &[]);
    let frames = [Ok(Frame::data(nothing)), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// Spans of an `ExportTraceServiceRequest`; `None` when it does not read.
fn count(export: &[u8]) -> Option<u64> {
    let mut messages = vec![export];
    for field in NESTING {
        let mut within = Vec::new();
        for message in messages {
            within.extend(fields(message, field)?);
        }
        messages = within;
    }
    Some(messages.len() as u64)
}

/// The messages in one field of a message; `None` when it does not read.
fn fields(mut message: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let length = match key & 7 {
            0 => {
                varint(&mut message)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (field, rest) = message.split_at_checked(length)?;
        message = rest;
        if key == number << 3 | 2 {
            found.push(field);
        }
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that holds a message of fewer than 128 bytes.
    fn field(number: u8, message: &[u8]) -> Vec<u8> {
        let length = u8::try_from(message.len()).expect("short");
        assert!(length < 128);
        [&[number << 3 | 2, length], message].concat()
    }

    /// Two resources, three scopes, and `1 + 0 + 2` spans beside what else there is.
    fn export() -> Vec<u8> {
        let name = field(5, b"a span");
        let scope = |spans: usize| [field(1, b""), field(2, &name).repeat(spans)].concat();
        let one = [field(1, b"r"), field(2, &scope(1)), field(2, &scope(0))].concat();
        // A number, eight bytes and four bytes, which are skipped.
        let other = [
            vec![4 << 3, 0x96, 0x01, 6 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0, 7 << 3 | 5, 0, 0, 0, 0],
            field(2, &scope(2)),
        ];
        [field(1, &one), field(1, &other.concat())].concat()
    }

    #[test]
    fn spans_are_counted_and_nothing_else() {
        assert_eq!(count(&export()), Some(3));
        assert_eq!(count(&[]), Some(0));
        assert_eq!(count(&export()[..9]), None, "cut short");
        assert_eq!(count(&[1 << 3 | 3]), None, "not a message");
    }

    #[tokio::test]
    async fn an_export_is_taken_and_one_that_does_not_read_is_refused() {
        let collector = Collector::start().expect("started");
        let (mut sender, driver) = peer::http2(collector.address, None).await.expect("connected");
        let mut send = async |message: Vec<u8>| {
            let length = u32::try_from(message.len()).expect("short");
            let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
            let body = peer::whole(peer::framed(0, length, &message));
            let request = peer::call(collector.address, path).body(body).expect("a request");
            peer::told(sender.send_request(request).await).await.expect("told")
        };
        let work = async {
            assert!(send(export()).await.is_ok());
            assert_eq!(collector.spans(), 3);
            assert_eq!(send(vec![1 << 3 | 3]).await.grpc, Some(3));
            assert_eq!(collector.spans(), 3);
        };
        peer::driven(work, [driver]).await;
    }
}
