//! Body: the response as the caller reads it. Whatever goes wrong comes out as trailers with a status, never as an
//! error, so that a generated client needs no downcasts; and the call's deadline covers it to its last byte.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use base::Deadline;
use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::time::Sleep;

use crate::{
    call::Ticket,
    failure::{LocalFailure, Made},
    framing::{Framing, TooLarge},
    status::{self, Code},
    tidy,
    upload::Upload,
};

/// The body of a response that came through a [`Link`](crate::Link). Ends with exactly one frame of trailers that hold
/// a valid `grpc-status`, unless the head held it. Dropping it early cancels the call: the peer gets RST_STREAM CANCEL.
#[must_use = "dropping a response body cancels the call"]
pub struct LinkBody {
    /// Absent once the last frame was handed out.
    live: Option<Live>,
}

struct Live {
    stream: RecvStream,
    data_ended: bool,
    /// The rest of a streaming request, which goes out while the response is read.
    upload: Option<Upload>,
    framing: Framing,
    expiry: Deadline,
    /// Set up by the first wait: most responses are there in full when they are first polled.
    timer: Option<Pin<Box<Sleep>>>,
    ticket: Ticket,
}

impl LinkBody {
    pub(crate) const fn empty() -> Self {
        Self { live: None }
    }

    pub(crate) fn new(stream: RecvStream, upload: Option<Upload>, expiry: Deadline, ticket: Ticket) -> Self {
        let framing = Framing::new(ticket.shared().config.message_bytes_max);
        Self { live: Some(Live { stream, data_ended: false, upload, framing, expiry, timer: None, ticket }) }
    }
}

impl Live {
    /// The next piece of data, or the trailers that end the response.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, HeaderMap>> {
        // The deadline first: a peer that always has one more byte must not outlive it.
        let now = self.ticket.shared().clock.now();
        if self.expiry.expired(now) {
            return Poll::Ready(Err(self.fail(Made::deadline())));
        }
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(sent) = upload.as_mut().poll(cx)
        {
            self.upload = None;
            if let Err(error) = sent {
                return Poll::Ready(Err(self.fail(Made::new(
                    Code::Internal,
                    LocalFailure::RequestBody,
                    format!("the request body failed: {error}"),
                ))));
            }
        }
        if let Poll::Ready(next) = self.poll_stream(cx) {
            return Poll::Ready(next.map_err(|ended| self.end(ended)));
        }
        let timer =
            self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.expiry.remaining(now).into())));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(self.fail(Made::deadline())))
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Ended>> {
        if !self.data_ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Fails only for more than was received.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(match self.framing.advance(&data) {
                        Ok(()) => Ok(data),
                        Err(too_large) => Err(Ended::TooLarge(too_large)),
                    });
                }
                Some(Err(error)) => return Poll::Ready(Err(Ended::Broken(error))),
                None => self.data_ended = true,
            }
        }
        Poll::Ready(Err(match ready!(self.stream.poll_trailers(cx)) {
            Ok(Some(trailers)) => Ended::Trailers(trailers),
            Ok(None) => Ended::WithoutTrailers,
            Err(error) => Ended::Broken(error),
        }))
    }

    /// The trailers for a stream that ended.
    fn end(&mut self, ended: Ended) -> HeaderMap {
        let expired = self.expiry.expired(self.ticket.shared().clock.now());
        match ended {
            Ended::Trailers(mut trailers) => {
                let made = tidy::trailers(&mut trailers, self.framing.at_boundary(), expired);
                if let Some(made) = made {
                    self.ticket.shared().stats.count(made.failure);
                }
                trailers
            }
            Ended::WithoutTrailers => self.fail(tidy::missing_status()),
            Ended::Broken(error) => self.fail(status::from_h2(&error, true, expired)),
            Ended::TooLarge(TooLarge { declared_bytes }) => {
                let bound = self.ticket.shared().config.message_bytes_max;
                self.fail(Made::new(
                    Code::ResourceExhausted,
                    LocalFailure::MessageTooLarge,
                    format!(
                        "a response message of {declared_bytes} bytes is larger than the bound of {bound}"
                    ),
                ))
            }
        }
    }

    fn fail(&self, made: Made) -> HeaderMap {
        self.ticket.shared().stats.count(made.failure);
        made.trailers()
    }
}

/// How a stream ended.
enum Ended {
    Trailers(HeaderMap),
    WithoutTrailers,
    Broken(h2::Error),
    TooLarge(TooLarge),
}

impl Body for LinkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(live) = &mut self.live else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Ok(match ready!(live.poll(cx)) {
            Ok(data) => Frame::data(data),
            Err(trailers) => {
                // Gives up the stream, which resets it if the peer has not ended it, and the call's place.
                self.live = None;
                Frame::trailers(trailers)
            }
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.live.is_none()
    }
}

impl fmt::Debug for LinkBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkBody").field("ended", &self.live.is_none()).finish_non_exhaustive()
    }
}
