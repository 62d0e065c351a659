//! Admin: one bounded request to an admin port.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time};

/// Most bytes of an answer: metrics of one process.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Longest wait for a whole exchange.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug)]
pub struct AskError(String);

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AskError {}

/// Asks for `path` at `address` (host and port).
///
/// # Errors
/// [`AskError`] without a whole answer within two seconds; any status is an answer.
pub async fn get(address: &str, path: &str) -> Result<(StatusCode, Bytes), AskError> {
    ask(Method::GET, address, path).await
}

/// Posts nothing to `path` at `address` (host and port).
///
/// # Errors
/// As [`get`].
pub async fn post(address: &str, path: &str) -> Result<(StatusCode, Bytes), AskError> {
    ask(Method::POST, address, path).await
}

async fn ask(method: Method, address: &str, path: &str) -> Result<(StatusCode, Bytes), AskError> {
    match time::timeout(TIMEOUT, exchange(method.clone(), address, path)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(AskError(format!("{method} http://{address}{path}: {error}"))),
        Err(_) => Err(AskError(format!("{method} http://{address}{path}: no answer within 2 s"))),
    }
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(method: Method, address: &str, path: &str) -> Result<(StatusCode, Bytes), Fault> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::builder().method(method).uri(path).header(header::HOST, address);
    let request = request.body(Empty::<Bytes>::new())?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await?.to_bytes();
        Ok((status, body))
        // Dropping the sender here lets the connection below end.
    };
    let (answer, _closed) = tokio::join!(answer, connection);
    answer
}
