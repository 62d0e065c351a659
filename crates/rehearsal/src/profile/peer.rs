//! Peer: connections of a profile's own to home-api, below what the generator's client would allow: HTTP/1 by hand, and
//! HTTP/2 whose windows and bodies are ours to withhold.

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use base::headers;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use http::{Request, Response, header, request};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http2,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time,
};

/// The method of the page on the gRPC face.
pub(super) const GET_HOME: &str = "/mercury.home.v2.HomeService/GetHome";
/// Longest wait for any step of a peer that should be answered. Above every deadline of the suite.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of an answer that is read by hand.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Status of gRPC for a refusal for lack of room, of bytes as of capacity.
pub(super) const RESOURCE_EXHAUSTED: u16 = 8;

/// Who asks.
const IDENTITY: [(&str, &str); 5] = [
    (headers::TENANT, "tenant-007"),
    (headers::SUBJECT, "user-00042"),
    (headers::CLASS, "standard"),
    (headers::REGION, "eu-west"),
    (headers::ORIGIN, "load_test"),
];

/// A request body of ours.
pub(super) type Sent = UnsyncBoxBody<Bytes, Infallible>;
/// Sends requests on one HTTP/2 connection.
pub(super) type Sender = http2::SendRequest<Sent>;

/// A connection with as small a receive buffer as the kernel grants, or with its default.
pub(super) async fn connect(address: SocketAddr, receive_bytes: Option<u32>) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    let connecting = time::timeout(PATIENCE, socket.connect(address));
    let stream = connecting.await.map_err(|_elapsed| io::ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// An HTTP/2 connection, and what drives it: nothing moves unless that is polled. `window_bytes` is what a stream may send
/// before it is read; `None` leaves it large.
pub(super) async fn http2(
    address: SocketAddr,
    window_bytes: Option<u32>,
) -> io::Result<(Sender, impl Future<Output = ()>)> {
    let stream = connect(address, None).await?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).initial_stream_window_size(window_bytes.unwrap_or(4 << 20));
    let handshake = time::timeout(PATIENCE, builder.handshake(TokioIo::new(stream)));
    let (sender, connection) =
        handshake.await.map_err(|_elapsed| io::ErrorKind::TimedOut)?.map_err(io::Error::other)?;
    Ok((sender, async move {
        // How it ended is told by whoever waits on one of its streams.
        let _ = connection.await;
    }))
}

/// Does `work` while `drivers` move its connections.
pub(super) async fn driven<T>(
    work: impl Future<Output = T>,
    drivers: impl IntoIterator<Item = impl Future<Output = ()>>,
) -> T {
    let mut drivers: futures_util::stream::FuturesUnordered<_> = drivers.into_iter().collect();
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased; // What was asked for comes before what moves it.
            done = &mut work => return done,
            Some(()) = drivers.next(), if !drivers.is_empty() => {}
        }
    }
}

/// The head of a call on the gRPC face.
pub(super) fn call(address: SocketAddr, path: &str) -> request::Builder {
    Request::post(format!("http://{address}{path}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
}

/// The same with an identity and a timeout in the form of `grpc-timeout`.
pub(super) fn page_call(address: SocketAddr, timeout: &str) -> request::Builder {
    let request = call(address, GET_HOME).header(headers::GRPC_TIMEOUT, timeout);
    IDENTITY.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

/// A question for the health of the whole process, which is answered at once.
pub(super) fn health_check(address: SocketAddr, timeout: &str) -> http::Result<Request<Sent>> {
    let request = call(address, "/grpc.health.v1.Health/Check").header(headers::GRPC_TIMEOUT, timeout);
    request.body(whole(framed(0, 0, &[])))
}

/// A message behind its prefix, which says `declared` whatever there is.
pub(super) fn framed(flags: u8, declared: u32, message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 5);
    bytes.put_u8(flags);
    bytes.put_u32(declared);
    bytes.put_slice(message);
    bytes.freeze()
}

/// A message of one field that the schema does not know, which readers skip, `length` bytes in all; at least 4.
pub(super) fn message(length: usize) -> Vec<u8> {
    // Field 15, length-delimited; its length is always written in three bytes.
    let content = length.saturating_sub(5);
    let part = |shift: usize| u8::try_from(content >> shift & 0x7f).unwrap_or(0);
    let mut bytes = vec![15 << 3 | 2, part(0) | 0x80, part(7) | 0x80, part(14) | 0x80, 0];
    bytes.resize(length.max(bytes.len()), 0);
    bytes
}

/// A body that is sent whole.
pub(super) fn whole(bytes: Bytes) -> Sent {
    Full::new(bytes).boxed_unsync()
}

/// A body that never ends after what is there.
pub(super) fn endless(bytes: Bytes) -> Sent {
    let there = futures_util::stream::iter([Ok(Frame::data(bytes))]);
    StreamBody::new(there.chain(futures_util::stream::pending())).boxed_unsync()
}

/// What a call on the gRPC face ended with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// HTTP status.
    pub(super) http: u16,
    /// gRPC status, from trailers or head.
    pub(super) grpc: Option<u16>,
    /// The reason that our own refusals carry.
    pub(super) reason: String,
}

impl Told {
    pub(super) fn is_ok(&self) -> bool {
        self.http == 200 && self.grpc == Some(0)
    }
}

/// Reads a response of the gRPC face to its end. `None` when there is none, or it breaks off.
pub(super) async fn told(response: Result<Response<Incoming>, hyper::Error>) -> Option<Told> {
    let (head, mut body) = response.ok()?.into_parts();
    let status = |headers: &http::HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
    let reason = |headers: &http::HeaderMap| {
        headers.get("x-mercury-reason").and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let mut told = Told {
        http: head.status.as_u16(),
        grpc: status(&head.headers),
        reason: reason(&head.headers).unwrap_or_default(),
    };
    while let Some(frame) = body.frame().await {
        if let Ok(trailers) = frame.ok()?.into_trailers() {
            told.grpc = status(&trailers).or(told.grpc);
            told.reason = reason(&trailers).unwrap_or(told.reason);
        }
    }
    Some(told)
}

/// The head of a page on the HTTP/1 face, as text, up to where further headers go.
pub(super) fn page_head() -> String {
    let identity = IDENTITY.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    // The longest that the policy grants, so that a busy machine is not what ends it.
    format!("GET /v2/home HTTP/1.1\r\nhost: home\r\n{}: 2S\r\n{identity}", headers::GRPC_TIMEOUT)
}

/// An answer that was read by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// HTTP status.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Vec<u8>,
}

/// Reads one answer with a content length, `step` bytes at a time with `pause` in between. `None` when the connection ends
/// before the answer does.
pub(super) async fn answer(stream: &mut TcpStream, step: usize, pause: Duration) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; step.max(1)];
    loop {
        if let Some(answer) = whole_answer(&bytes) {
            return Some(answer);
        }
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > ANSWER_BYTES_MAX {
            return None;
        }
        if !pause.is_zero() {
            time::sleep(pause).await;
        }
    }
}

/// The answer that `bytes` begin with; `None` while it is not whole.
fn whole_answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body = bytes.get(end..end + length.unwrap_or(0))?;
    Some(Answer { status, body: body.to_vec() })
}

/// Sends a request by hand and reads its answer; what could not be sent any more does not matter when there is one.
pub(super) async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Option<Answer> {
    let (mut read, mut write) = stream.split();
    let mut bytes = Vec::new();
    let reading = async {
        let mut piece = [0; 4_096];
        loop {
            if let Some(answer) = whole_answer(&bytes) {
                return Some(answer);
            }
            let count = read.read(&mut piece).await.ok().filter(|count| *count > 0)?;
            bytes.extend_from_slice(&piece[..count]);
        }
    };
    let writing = async {
        let _ = write.write_all(request).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased; // The answer may come before the request is over, and ends it.
        answer = time::timeout(PATIENCE, reading) => answer.ok().flatten(),
        () = writing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_length_has_come() {
        let text = b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..text.len() {
            assert_eq!(whole_answer(&text[..end]), None, "{end}");
        }
        let answer = whole_answer(text).expect("whole");
        assert_eq!((answer.status, answer.body.as_slice()), (413, &b"abc"[..]));
        assert_eq!(whole_answer(b"HTTP/1.1 204 No Content\r\n\r\n").expect("no body").status, 204);
    }

    #[test]
    fn a_message_has_the_length_that_was_asked_for_and_decodes() {
        use prost::Message as _;
        for length in [5, 100, 1_024, 65_536] {
            let bytes = message(length);
            assert_eq!(bytes.len(), length);
            wire::home::v2::GetHomeRequest::decode(bytes.as_slice()).expect("readers skip it");
        }
    }
}
