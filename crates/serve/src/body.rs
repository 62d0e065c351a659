//! Body: bounds on what a request may carry, checked while it accumulates.

use std::{
    pin::Pin,
    sync::atomic::Ordering,
    task::{Context, Poll, ready},
};

use base::{Reason, Refusal};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use prometheus_client::metrics::gauge::Gauge;
use tonic::{Status, metadata::MetadataValue};

use crate::{metrics::signed, render};

/// Length of the prefix of a gRPC message: one byte of flags, four of length.
const PREFIX_BYTES: usize = 5;

/// A request body that fails with a typed status once it exceeds its bound.
///
/// On the gRPC face the declared length of each message is checked before anything is allocated for it: the decoder
/// would otherwise answer OUT_OF_RANGE, or reserve what the peer claims.
pub struct Bounded<B> {
    inner: B,
    bytes_max: usize,
    seen: usize,
    grpc: Option<Framing>,
    /// The largest that was taken.
    largest: Option<Gauge>,
}

/// Position within the stream of length-prefixed messages.
#[derive(Default)]
struct Framing {
    prefix: [u8; PREFIX_BYTES],
    have: usize,
    message_left: usize,
    largest: usize,
}

impl<B> Bounded<B> {
    /// Bounds the whole body (HTTP), or each message of it (gRPC, where a stream may go on).
    pub fn new(inner: B, bytes_max: usize, grpc: bool) -> Self {
        Self { inner, bytes_max, seen: 0, grpc: grpc.then(Framing::default), largest: None }
    }

    /// Tells how large the bodies are that were taken, or their messages.
    pub(crate) fn measured(mut self, largest: Gauge) -> Self {
        self.largest = Some(largest);
        self
    }
}

/// The refusal of a body over its bound.
pub fn too_large(bytes_max: usize) -> Refusal {
    Refusal::new(Reason::BodyTooLarge, format!("request body exceeds {bytes_max} bytes"))
}

/// The end of a body whose caller is gone. Not CANCELLED: tonic takes that from a request for the end of its stream, and
/// so half a request for a whole one.
fn caller_gone() -> Status {
    let mut status = Status::aborted("the request ended before its body was complete");
    status
        .metadata_mut()
        .insert(render::REASON_HEADER, MetadataValue::from_static(Reason::Cancelled.as_str()));
    status
}

/// Reads a request's body to its end and forgets it, for a handler that takes no input from one: whoever sends more than
/// the bound hears of it all the same.
///
/// # Errors
/// What the body was refused for, see [`Bounded`].
pub async fn discard<B>(mut body: B) -> Result<(), Refusal>
where
    B: Body + Unpin,
    B::Error: std::error::Error + 'static,
{
    while let Some(frame) = body.frame().await {
        if let Err(error) = frame {
            return Err(refusal(&error));
        }
    }
    Ok(())
}

/// The refusal within the error of a body, under whatever a router has put around it.
fn refusal(error: &(dyn std::error::Error + 'static)) -> Refusal {
    let status = std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<Status>());
    let reason = status.and_then(|status| status.metadata().get(render::REASON_HEADER));
    match (status, reason.and_then(|name| name.to_str().ok()).and_then(Reason::parse)) {
        (Some(status), Some(reason)) => Refusal::new(reason, status.message().to_owned()),
        _ => Refusal::new(Reason::Cancelled, "the request ended before its body was complete"),
    }
}

impl Framing {
    /// Follows `data`; false once a message declares more than `bytes_max`.
    fn within(&mut self, mut data: &[u8], bytes_max: usize) -> bool {
        while !data.is_empty() {
            if self.message_left > 0 {
                let step = self.message_left.min(data.len());
                self.message_left -= step;
                data = &data[step..];
                continue;
            }
            let step = (PREFIX_BYTES - self.have).min(data.len());
            self.prefix[self.have..self.have + step].copy_from_slice(&data[..step]);
            self.have += step;
            data = &data[step..];
            if self.have == PREFIX_BYTES {
                let [_flags, a, b, c, d] = self.prefix;
                let declared = u32::from_be_bytes([a, b, c, d]) as usize;
                if declared > bytes_max {
                    return false;
                }
                self.message_left = declared;
                self.largest = self.largest.max(declared);
                self.have = 0;
            }
        }
        true
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            None => return Poll::Ready(None),
            // The peer reset the stream or the connection broke: the caller is gone, whatever the transport calls it.
            Some(Err(error)) => {
                let error: Box<dyn std::error::Error + Send + Sync> = error.into();
                tracing::debug!(%error, "request body ended early");
                return Poll::Ready(Some(Err(caller_gone())));
            }
            Some(Ok(frame)) => frame,
        };
        if let Some(data) = frame.data_ref() {
            let bytes_max = self.bytes_max;
            self.seen = self.seen.saturating_add(data.len());
            let seen = self.seen;
            let within = match &mut self.grpc {
                Some(framing) => framing.within(data, bytes_max),
                None => seen <= bytes_max,
            };
            if !within {
                return Poll::Ready(Some(Err(render::status(&too_large(bytes_max)))));
            }
            if let Some(largest) = &self.largest {
                let taken = self.grpc.as_ref().map_or(seen, |framing| framing.largest);
                largest.inner().fetch_max(signed(taken), Ordering::Relaxed);
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    fn message(length: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(length).expect("short").to_be_bytes());
        bytes.extend(vec![1; length]);
        bytes
    }

    #[tokio::test]
    async fn at_the_bound_and_one_above() {
        for (grpc, length, fits) in [(true, 10, true), (true, 11, false), (false, 5, true), (false, 6, false)]
        {
            let full = Full::new(Bytes::from(message(length)));
            let result = Bounded::new(full, 10, grpc).collect().await;
            assert_eq!(result.is_ok(), fits, "grpc {grpc}, {length} bytes");
            if let Err(status) = result {
                assert_eq!(status.code(), tonic::Code::ResourceExhausted);
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_nobody_wants_is_bounded_too() {
        for (length, fits) in [(5, true), (6, false)] {
            let body =
                axum::body::Body::new(Bounded::new(Full::new(Bytes::from(message(length))), 10, false));
            let reason = discard(body).await.map_err(|refusal| refusal.reason());
            assert_eq!(reason, if fits { Ok(()) } else { Err(Reason::BodyTooLarge) });
        }
    }

    #[test]
    fn a_declared_length_is_refused_before_the_message_arrives() {
        assert!(!Framing::default().within(&[0, 0xff, 0xff, 0xff, 0xff], 1 << 20));
    }

    proptest! {
        #[test]
        fn cutting_a_stream_anywhere_changes_nothing(
            lengths in proptest::collection::vec(0_usize..40, 0..6), step in 1_usize..9,
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let mut framing = Framing::default();
            let whole = lengths.iter().all(|length| *length <= 20);
            let pieces = bytes.chunks(step).all(|chunk| framing.within(chunk, 20));
            prop_assert_eq!(whole, pieces);
        }
    }
}
