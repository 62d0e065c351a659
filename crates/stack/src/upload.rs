//! Upload: the request body on its way out. A unary request is one frame that is ready at once and never gets here as a
//! future; a streaming one is, and makes progress while its call or its response body is polled.

use std::{
    error::Error,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use base::inject::Pass;
use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body, Frame};

/// What a request body may fail with.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// A streaming request body being sent. Done when all was sent or the peer wants no more of it.
pub(crate) type Upload = Pin<Box<dyn Future<Output = Result<(), BodyError>> + Send>>;

/// A request body after the first look at it.
pub(crate) enum Payload<B> {
    /// All of it. Cheap to send again.
    Whole(Bytes),
    /// The frames that were ready (two at most), and what is still to come.
    Streaming { ready: Vec<Frame<Bytes>>, rest: B },
}

/// Takes a first look: whatever is ready now, without waiting.
pub(crate) fn look<B>(mut body: B) -> Result<Payload<B>, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    // Nobody needs to be woken: a body that has more to come is polled again by its upload.
    let cx = &mut Context::from_waker(Waker::noop());
    let mut whole = Bytes::new();
    loop {
        match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(Some(frame)) => match frame.map_err(Into::into)?.into_data() {
                Ok(data) if whole.is_empty() => whole = data,
                Ok(data) => return Ok(streaming(whole, Some(Frame::data(data)), body)),
                Err(other) => return Ok(streaming(whole, Some(other), body)),
            },
            Poll::Ready(None) => return Ok(Payload::Whole(whole)),
            Poll::Pending => return Ok(streaming(whole, None, body)),
        }
    }
}

fn streaming<B>(first: Bytes, second: Option<Frame<Bytes>>, rest: B) -> Payload<B> {
    let first = (!first.is_empty()).then(|| Frame::data(first));
    Payload::Streaming { ready: first.into_iter().chain(second).collect(), rest }
}

/// Sends `ready` and then `rest`. A body that fails resets the stream, so that the peer cannot take half a request for
/// a whole one.
pub(crate) async fn upload<B>(
    ready: Vec<Frame<Bytes>>,
    mut rest: B,
    mut stream: SendStream<Bytes>,
) -> Result<(), BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    for frame in ready {
        if !forward(frame, &mut stream).await {
            return Ok(());
        }
    }
    loop {
        match next(&mut rest, &mut stream).await {
            Next::Frame(frame) => {
                if !forward(frame, &mut stream).await {
                    return Ok(());
                }
            }
            Next::End => {
                let _ = stream.send_data(Bytes::new(), true);
                return Ok(());
            }
            Next::Unwanted => return Ok(()),
            Next::Failed(error) => {
                stream.send_reset(Reason::CANCEL);
                return Err(error);
            }
        }
    }
}

/// Sends one half of `data`, passes the point between them, and sends the other. A failure there resets the stream, so that
/// the peer cannot take half a request for a whole one.
pub(crate) fn in_halves(mut data: Bytes, mut stream: SendStream<Bytes>, point: Pass) -> Upload {
    Box::pin(async move {
        let rest = data.split_off(data.len() / 2);
        if !send(data, &mut stream).await {
            return Ok(());
        }
        if let Err(injected) = point.await {
            stream.send_reset(Reason::CANCEL);
            return Err(injected.into());
        }
        if send(rest, &mut stream).await {
            // A stream that takes no data has an error that says why, and the response future reports it.
            let _ = stream.send_data(Bytes::new(), true);
        }
        Ok(())
    })
}

enum Next {
    Frame(Frame<Bytes>),
    End,
    /// The peer has reset the stream. The response says why.
    Unwanted,
    Failed(BodyError),
}

async fn next<B>(body: &mut B, stream: &mut SendStream<Bytes>) -> Next
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    poll_fn(|cx| {
        // The reset first: a body may have a frame for ever.
        if stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Next::Unwanted);
        }
        Pin::new(&mut *body).poll_frame(cx).map(|frame| match frame {
            Some(Ok(frame)) => Next::Frame(frame),
            Some(Err(error)) => Next::Failed(error.into()),
            None => Next::End,
        })
    })
    .await
}

/// Sends a frame. False when the stream takes no more, either because it is closed or because these were the trailers.
async fn forward(frame: Frame<Bytes>, stream: &mut SendStream<Bytes>) -> bool {
    match frame.into_data() {
        Ok(data) => send(data, stream).await,
        Err(frame) => {
            if let Ok(trailers) = frame.into_trailers() {
                let _ = stream.send_trailers(trailers);
            }
            false
        }
    }
}

/// Sends all of `data` as the peer's windows allow. False when the stream is closed.
async fn send(mut data: Bytes, stream: &mut SendStream<Bytes>) -> bool {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(Ok(granted)) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return false;
        };
        let chunk = data.split_to(granted.min(data.len()));
        if !chunk.is_empty() && stream.send_data(chunk, false).is_err() {
            return false;
        }
    }
    true
}
