//! Listener: where connections come from. Generic, so that tests hand in memory pipes instead of sockets.

use std::{future::Future, io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};

/// A source of connections.
pub trait Listener: Send + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection. An error concerns one connection or the process's descriptors, never the listener for good.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

impl Listener for TcpListener {
    type Io = tokio::net::TcpStream;

    async fn accept(&mut self) -> io::Result<Self::Io> {
        let (stream, _peer) = TcpListener::accept(self).await?;
        // Small messages must not wait for the peer's acknowledgement.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Binds an address, with an error that names it.
///
/// # Errors
/// Whatever the system says, with the address in front: a port in use is named.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}
