//! Connect: how a link gets its transport. A seam, so that tests can refuse, swallow or move the peer.

use std::{future::Future, io, pin::Pin};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// A byte stream that HTTP/2 can run on.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for T {}

/// An open transport.
pub type Io = Box<dyn Transport>;

/// An attempt to open one.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Io>> + Send + 'static>>;

/// Opens transports to one peer.
pub trait Connect: Send + Sync + 'static {
    /// Opens a new transport. Must look the peer up anew each time, since it may have come back under another address.
    /// May take for ever: the link bounds it.
    fn connect(&self) -> Connecting;
}

/// TCP to a `host:port`, without Nagle's delay. Names are resolved on every attempt and their addresses tried in order.
#[derive(Clone, Debug)]
pub struct TcpConnect {
    address: String,
}

impl TcpConnect {
    /// To `address`, a `host:port`.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into() }
    }
}

impl Connect for TcpConnect {
    fn connect(&self) -> Connecting {
        let address = self.address.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Io)
        })
    }
}
