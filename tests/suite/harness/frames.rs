//! Frames: HTTP/2 by hand, for peers that do what no library does.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::talk::soon;

/// A frame type of RFC 9113 section 6.
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const GOAWAY: u8 = 7;
const DATA: u8 = 0;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) const fn ends_stream(&self) -> bool {
        self.flags & END_STREAM != 0 && (self.kind == HEADERS || self.kind == DATA)
    }
}

/// A connection that sends its preface and then only what it is told: it acknowledges no SETTINGS and answers no PING.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) async fn open(at: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(at).await.expect("the port is open");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("written");
        let mut raw = Self(stream);
        raw.send(4, 0, 0, &[]).await;
        raw
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.0.write_all(&bytes).await.expect("written");
    }

    /// A whole gRPC request with an empty message.
    pub(crate) async fn call(&mut self, stream: u32, path: &str, head: &[(&str, &str)]) {
        let fixed = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "home"),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let mut block = Vec::new();
        for (name, value) in fixed.iter().chain(head) {
            block.push(0); // Literal, not indexed, with a new name (RFC 7541 section 6.2.2).
            for text in [name, value] {
                block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("short"));
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.send(HEADERS, END_HEADERS, stream, &block).await;
        self.send(DATA, END_STREAM, stream, &[0; 5]).await;
    }

    /// The next frame, or nothing once the other side has closed.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        soon(self.0.read_exact(&mut head)).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let mut payload = vec![0; length as usize];
        soon(self.0.read_exact(&mut payload)).await.ok()?;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Frames up to the first one that is wanted.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.next().await.expect("the connection is open");
            if wanted(&frame) {
                return frame;
            }
        }
    }
}
