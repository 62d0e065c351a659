//! Talk: clients that are not ours, so that heads can be wrong and the wire can be looked at.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Longest that anything here is waited for: a test that meets a fault fails, and does not hang.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Waits for what must come soon.
#[track_caller]
pub(crate) fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let waiter = std::panic::Location::caller();
    async move {
        let result = tokio::time::timeout(PATIENCE, future).await;
        result.unwrap_or_else(|_| panic!("{waiter}: waited in vain"))
    }
}

/// Path of the home page's gRPC face.
pub(crate) const GET_HOME: &str = "/mercury.home.v2.HomeService/GetHome";

/// An HTTP answer, read in full.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) head: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        text(&self.head, name)
    }

    /// A field of the error that a refusal carries; empty when there is none.
    pub(crate) fn error(&self, field: &str) -> String {
        self.json()["error"][field].as_str().unwrap_or_default().to_owned()
    }
}

/// A gRPC answer: head and trailers in one, and the message.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) http: StatusCode,
    pub(crate) head: HeaderMap,
    pub(crate) body: Bytes,
}

impl Told {
    /// The status, which must be there.
    pub(crate) fn status(&self) -> Status {
        Status::from_header_map(&self.head).unwrap_or_else(|| panic!("no grpc-status: {self:?}"))
    }

    pub(crate) fn code(&self) -> Code {
        self.status().code()
    }

    pub(crate) fn details(&self) -> ErrorDetails {
        self.status().get_error_details()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        text(&self.head, name)
    }

    /// A value of the error's `ErrorInfo`; empty when there is none.
    pub(crate) fn info(&self, key: &str) -> String {
        let details = self.details();
        let value = details.error_info().and_then(|info| info.metadata.get(key));
        value.cloned().unwrap_or_default()
    }

    /// The one message of an OK answer.
    pub(crate) fn message<M: Message + Default>(&self) -> M {
        assert_eq!(self.code(), Code::Ok, "{self:?}");
        assert!(self.body.len() >= 5 && self.body[0] == 0, "{self:?}");
        M::decode(&self.body[5..]).expect("a message")
    }
}

fn text<'h>(head: &'h HeaderMap, name: &str) -> &'h str {
    head.get(name).map_or("", |value| value.to_str().expect("ASCII"))
}

/// One request over an HTTP/1 connection of its own.
pub(crate) async fn http1(at: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    Http1::open(at).await.send(request).await
}

/// A GET over a connection of its own.
pub(crate) async fn get(at: SocketAddr, path: &str) -> Answer {
    let request = Request::get(path).header("host", "mercury").body(Full::default());
    http1(at, request.expect("a request")).await
}

/// An HTTP/1 connection.
pub(crate) struct Http1 {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Http1 {
    pub(crate) async fn open(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).await.expect("the port is open");
        let io = TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("a handshake");
        let driver = spawn(async move {
            let _ = connection.await;
        });
        Self { sender, driver }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        let answer = soon(self.sender.send_request(request)).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let body = soon(body.collect()).await.expect("a whole body").to_bytes();
        Answer { status: head.status, head: head.headers, body }
    }

    /// Ends when the other side has closed the connection.
    pub(crate) async fn closed(self) {
        soon(self.driver).await.expect("the driver does not panic");
    }
}

/// An HTTP/2 connection.
pub(crate) struct Http2 {
    pub(crate) sender: SendRequest<Bytes>,
    pub(crate) driver: JoinHandle<Result<(), h2::Error>>,
    at: SocketAddr,
}

impl Http2 {
    pub(crate) async fn open(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).await.expect("the port is open");
        let (sender, connection) = h2::client::handshake(stream).await.expect("a handshake");
        Self { sender, driver: spawn(connection), at }
    }

    /// Opens a stream. `body` ends it; without one it stays open.
    pub(crate) async fn stream(
        &self,
        request: http::request::Builder,
        body: Option<Bytes>,
    ) -> Result<(h2::client::ResponseFuture, h2::SendStream<Bytes>), h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut upload) = sender.send_request(request.body(()).expect("a request"), false)?;
        if let Some(body) = body {
            upload.send_data(body, true)?;
        }
        Ok((response, upload))
    }

    /// A gRPC call with one message.
    pub(crate) async fn call(&self, path: &str, head: &[(&str, &str)], message: &[u8]) -> Told {
        let (response, _upload) =
            self.stream(grpc(self.at, path, head), Some(frame(message))).await.expect("a stream");
        told(response).await.expect("an answer")
    }
}

/// Reads an answer to its end.
pub(crate) async fn told(response: h2::client::ResponseFuture) -> Result<Told, h2::Error> {
    soon(read(response)).await
}

async fn read(response: h2::client::ResponseFuture) -> Result<Told, h2::Error> {
    let (parts, mut body) = response.await?.into_parts();
    let mut head = parts.headers;
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        bytes.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    head.extend(body.trailers().await?.unwrap_or_default());
    Ok(Told { http: parts.status, head, body: bytes.into() })
}

/// One gRPC call over a connection of its own.
pub(crate) async fn call(at: SocketAddr, path: &str, head: &[(&str, &str)], message: &[u8]) -> Told {
    Http2::open(at).await.call(path, head, message).await
}

/// The head of a gRPC request, made by hand. A name that is given twice is sent twice.
pub(crate) fn grpc(at: SocketAddr, path: &str, head: &[(&str, &str)]) -> http::request::Builder {
    let request = Request::post(format!("http://{at}{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    head.iter().fold(request, |request, (name, value)| request.header(*name, value.as_bytes()))
}

/// A message with its prefix.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).expect("short").to_be_bytes());
    body.extend(message);
    body.into()
}

/// Writes bytes to a socket and reads until the other side closes it.
pub(crate) async fn raw(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).await.expect("the port is open");
    stream.write_all(bytes).await.expect("written");
    let mut answer = Vec::new();
    // A reset after the answer is the other side's way of saying that it reads no more.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's own task; the test awaits it, or its runtime ends it"
)]
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}
