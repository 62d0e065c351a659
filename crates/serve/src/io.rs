//! Io: what a connection's bytes go through. Cuts a peer that stops reading, and gives back the bytes that were read
//! to tell the protocol.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// A connection that fails when written bytes wait longer than a bound, and that first reads what was peeked.
pub struct Guarded<I> {
    io: I,
    peeked: Bytes,
    stall_timeout: Duration,
    /// Armed while a write waits. Boxed, since most connections never wait.
    stall: Option<Pin<Box<Sleep>>>,
    /// Who is told when it ran out: at that moment, while what waits is still there.
    on_stall: Option<Box<dyn FnOnce() + Send>>,
}

impl<I> Guarded<I> {
    /// Wraps a connection whose first bytes were already read.
    pub fn new(io: I, peeked: Bytes, stall_timeout: Duration) -> Self {
        Self { io, peeked, stall_timeout, stall: None, on_stall: None }
    }

    /// Tells when the peer is cut because it stopped reading.
    pub fn on_stall(mut self, told: impl FnOnce() + Send + 'static) -> Self {
        self.on_stall = Some(Box::new(told));
        self
    }

    /// A write that made progress disarms the timer; one that waits arms it, and fails once it ran out.
    fn supervise<T>(&mut self, poll: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stall = None;
            return poll;
        }
        let timeout = self.stall_timeout;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match stall.as_mut().poll(cx) {
            Poll::Ready(()) => {
                if let Some(told) = self.on_stall.take() {
                    told();
                }
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer stopped reading")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Guarded<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peeked.has_remaining() {
            let length = self.peeked.len().min(buf.remaining());
            buf.put_slice(&self.peeked.split_to(length));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Guarded<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write(cx, buf);
        self.supervise(poll, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.supervise(poll, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_flush(cx);
        self.supervise(poll, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_shutdown(cx);
        self.supervise(poll, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_is_cut_and_one_that_reads_is_not() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut guarded = Guarded::new(near, Bytes::from_static(b"peeked"), Duration::from_secs(1));
        let mut first = [0_u8; 6];
        guarded.read_exact(&mut first).await.expect("peeked bytes come first");
        assert_eq!(&first, b"peeked");

        let write = guarded.write_all(&[7; 4_096]);
        let read = async {
            let mut seen = 0;
            while seen < 4_096 {
                // Slow, and yet never idle for the whole bound.
                tokio::time::advance(Duration::from_millis(900)).await;
                seen += far.read(&mut [0; 4]).await.expect("open");
            }
        };
        let (written, ()) = tokio::join!(write, read);
        written.expect("a slow reader is served");

        let cut = guarded.write_all(&[7; 64]).await.expect_err("nobody reads");
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
    }
}
