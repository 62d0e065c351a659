//! Admin: one bounded GET to an admin port.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, header};
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
pub struct GetError(String);

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GetError {}

/// Asks for `path` at `address` (host and port).
///
/// # Errors
/// [`GetError`] without a whole answer within two seconds; any status is an answer.
pub async fn get(address: &str, path: &str) -> Result<(StatusCode, Bytes), GetError> {
    match time::timeout(TIMEOUT, exchange(address, path)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(GetError(format!("GET http://{address}{path}: {error}"))),
        Err(_) => Err(GetError(format!("GET http://{address}{path}: no answer within 2 s"))),
    }
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(address: &str, path: &str) -> Result<(StatusCode, Bytes), Fault> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header(header::HOST, address).body(Empty::<Bytes>::new())?;
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
