//! Status: the gRPC codes that a client library may make itself, and the two tables by which it makes them.
//!
//! Codes that belong to applications (NOT_FOUND, INVALID_ARGUMENT and their like) are absent: none can be made here.

use std::borrow::Cow;

use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::failure::{LOCAL_FAILURE_HEADER, LocalFailure, Made};

pub(crate) static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) static GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
pub(crate) static FAILURE: HeaderName = HeaderName::from_static(LOCAL_FAILURE_HEADER);

/// Longest `grpc-message` that is written here, before escaping.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// A code that is made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Cancelled,
    Unknown,
    DeadlineExceeded,
    PermissionDenied,
    ResourceExhausted,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl Code {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "1",
            Self::Unknown => "2",
            Self::DeadlineExceeded => "4",
            Self::PermissionDenied => "7",
            Self::ResourceExhausted => "8",
            Self::Unimplemented => "12",
            Self::Internal => "13",
            Self::Unavailable => "14",
            Self::Unauthenticated => "16",
        }
    }

    /// For a response without a gRPC status.
    pub(crate) fn from_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 | 431 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// For a stream that was reset.
    pub(crate) const fn from_reset(reason: Reason) -> Self {
        match reason {
            Reason::REFUSED_STREAM => Self::Unavailable,
            Reason::CANCEL => Self::Cancelled,
            Reason::ENHANCE_YOUR_CALM => Self::ResourceExhausted,
            Reason::INADEQUATE_SECURITY => Self::PermissionDenied,
            _ => Self::Internal,
        }
    }
}

/// What became of a stream that ended in an error. `answered`: the response head had come, so the peer did process the
/// call, whatever it says. `expired`: the call's own time is up.
pub(crate) fn from_h2(error: &h2::Error, answered: bool, expired: bool) -> Made {
    let unprocessed = !answered && is_unprocessed(error);
    if !error.is_reset() {
        // GOAWAY, whoever sent it and why, and every transport error: trouble of the connection, not of the call.
        let failure = if unprocessed { LocalFailure::NotProcessed } else { LocalFailure::ConnectionLost };
        return Made::new(Code::Unavailable, failure, format!("connection lost: {error}"));
    }
    let reason = error.reason().unwrap_or(Reason::INTERNAL_ERROR);
    match Code::from_reset(reason) {
        // The peer cut the call because its time was up; that it says so by CANCEL is a matter of the wire.
        Code::Cancelled if expired => Made::deadline(),
        code => {
            let failure = if unprocessed { LocalFailure::NotProcessed } else { LocalFailure::Reset };
            Made::new(code, failure, format!("stream reset: {reason}"))
        }
    }
}

/// True when the peer itself said that it has not processed the call: it refused the stream, or its GOAWAY named an
/// earlier stream as the last one (h2 gives the streams before it another error when the connection ends).
pub(crate) fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote()
        && (error.is_go_away() || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM))
}

impl Made {
    /// Writes the status over whatever status `headers` hold.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.remove(&GRPC_DETAILS);
        headers.insert(&GRPC_STATUS, HeaderValue::from_static(self.code.as_str()));
        headers.insert(&GRPC_MESSAGE, escape(&self.message));
        headers.insert(&FAILURE, HeaderValue::from_static(self.failure.as_str()));
    }

    /// As trailers.
    pub(crate) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(3);
        self.write(&mut trailers);
        trailers
    }
}

/// Percent-encodes a message as the protocol asks: printable ASCII but `%` stands for itself. Cut at
/// [`MESSAGE_BYTES_MAX`].
pub(crate) fn escape(message: &str) -> HeaderValue {
    let end = (0..=message.len().min(MESSAGE_BYTES_MAX)).rev().find(|at| message.is_char_boundary(*at));
    let message = &message[..end.unwrap_or(0)];
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'%';
    let text = if message.bytes().all(plain) {
        Cow::Borrowed(message)
    } else {
        let mut escaped = String::with_capacity(message.len() * 3);
        for byte in message.bytes() {
            if plain(byte) {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        Cow::Owned(escaped)
    };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
