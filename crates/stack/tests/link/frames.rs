//! Frames: a peer that writes HTTP/2 frames by hand, for behaviour that no server library has.

use std::{collections::VecDeque, io};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;

/// Payload of a RST_STREAM with that reason.
pub(crate) const CANCEL: [u8; 4] = [0, 0, 0, 8];

pub(crate) const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// A frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// One connection of such a peer. Settings and pings are answered; everything else is the test's.
pub(crate) struct Frames<T> {
    io: T,
    /// What was written and not yet sent, so that a test decides what leaves together.
    queued: VecDeque<u8>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Frames<T> {
    /// Takes the client's preface and sends ours.
    pub(crate) async fn accept(mut io: T) -> io::Result<Self> {
        let mut preface = [0; PREFACE.len()];
        io.read_exact(&mut preface).await?;
        assert_eq!(preface, PREFACE);
        let mut frames = Self { io, queued: VecDeque::new() };
        frames.write(SETTINGS, 0, 0, &[]);
        // All the connection window that there is: requests are small, and nothing here accounts for them.
        frames.write(WINDOW_UPDATE, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
        frames.flush().await?;
        Ok(frames)
    }

    /// The next frame that is the test's business, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.io.read_exact(&mut head).await.ok()?;
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
            let mut payload = vec![0; len];
            self.io.read_exact(&mut payload).await.ok()?;
            match kind {
                SETTINGS if flags & ACK == 0 => {
                    self.write(SETTINGS, ACK, 0, &[]);
                    self.flush().await.ok()?;
                }
                PING if flags & ACK == 0 => {
                    self.write(PING, ACK, 0, &payload);
                    self.flush().await.ok()?;
                }
                SETTINGS | PING | WINDOW_UPDATE => {}
                _ => return Some(Frame { kind, stream, payload }),
            }
        }
    }

    pub(crate) fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).expect("small").to_be_bytes();
        self.queued.extend(&len[1..]);
        self.queued.extend([kind, flags]);
        self.queued.extend(stream.to_be_bytes());
        self.queued.extend(payload);
    }

    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let bytes: Vec<u8> = self.queued.drain(..).collect();
        self.io.write_all(&bytes).await
    }

    /// A gRPC response head: status 200 and the content type, without the dynamic table.
    pub(crate) fn write_head(&mut self, stream: u32) {
        let mut block = vec![0x88];
        literal(&mut block, b"content-type", b"application/grpc");
        self.write(HEADERS, END_HEADERS, stream, &block);
    }

    /// Trailers that end the stream with OK.
    pub(crate) fn write_ok(&mut self, stream: u32) {
        let mut block = Vec::new();
        literal(&mut block, b"grpc-status", b"0");
        self.write(HEADERS, END_HEADERS | END_STREAM, stream, &block);
    }

    /// A whole answer with `message` as its DATA.
    pub(crate) fn write_answer(&mut self, stream: u32, message: &[u8]) {
        self.write_head(stream);
        self.write(DATA, 0, stream, message);
        self.write_ok(stream);
    }

    pub(crate) fn write_goaway(&mut self, last_stream: u32, code: u32) {
        let payload: Vec<u8> = last_stream.to_be_bytes().into_iter().chain(code.to_be_bytes()).collect();
        self.write(GOAWAY, 0, 0, &payload);
    }
}

fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0x00);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).expect("short enough for one length byte"));
        block.extend_from_slice(text);
    }
}
