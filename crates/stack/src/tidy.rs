//! Tidy: what a peer sends is checked before a generated client sees it, since tonic takes the peer's word: invalid
//! base64 in the details is a panic there, a message that is not UTF-8 turns any code into UNKNOWN, and a status in the
//! initial headers hides the messages after it.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE, response};

use crate::{
    failure::{LocalFailure, Made},
    status::{Code, FAILURE, GRPC_DETAILS, GRPC_MESSAGE, GRPC_STATUS, escape},
};

/// Base64 as the protocol allows it: padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a response head says about the rest of the response.
pub(crate) enum Head {
    /// Messages and trailers follow.
    Messages,
    /// The head carries the final status.
    Final,
    /// The head is no gRPC response, or carries a status that is none.
    Replaced(Made),
}

/// Checks a head. `ended`: nothing follows it. `expired`: whether the call's own time is up, which is rarely asked.
pub(crate) fn head(parts: &mut response::Parts, ended: bool, expired: impl FnOnce() -> bool) -> Head {
    let headers = &mut parts.headers;
    headers.remove(&FAILURE);
    match status(headers) {
        Sent::Absent if parts.status != StatusCode::OK => Head::Replaced(Made::new(
            Code::from_http(parts.status),
            LocalFailure::NotGrpc,
            format!("HTTP status {} without a gRPC status", parts.status.as_u16()),
        )),
        Sent::Absent if !is_grpc(headers) => Head::Replaced(Made::new(
            Code::Unknown,
            LocalFailure::NotGrpc,
            format!("content type {:?} is not gRPC's", headers.get(CONTENT_TYPE)),
        )),
        Sent::Absent if ended => Head::Replaced(missing_status()),
        Sent::Absent => Head::Messages,
        // OK belongs behind the messages. Believed here, it would hide them, and whatever status really follows.
        Sent::Ok if !ended => {
            headers.remove(&GRPC_STATUS);
            Head::Messages
        }
        Sent::Ok | Sent::Error => {
            tidy_texts(headers);
            Head::Final
        }
        Sent::Cancelled if expired() => Head::Replaced(Made::deadline()),
        Sent::Cancelled => {
            tidy_texts(headers);
            Head::Final
        }
        Sent::Invalid => Head::Replaced(invalid_status(headers)),
    }
}

/// Checks trailers, and overwrites their status where it is none. `complete`: the last message ended.
/// Returns the status that was made here, if one was.
pub(crate) fn trailers(trailers: &mut HeaderMap, complete: bool, expired: bool) -> Option<Made> {
    trailers.remove(&FAILURE);
    let made = match status(trailers) {
        Sent::Ok if !complete => truncated(),
        Sent::Cancelled if expired => Made::deadline(),
        Sent::Ok | Sent::Error | Sent::Cancelled => {
            tidy_texts(trailers);
            return None;
        }
        Sent::Absent => missing_status(),
        Sent::Invalid => invalid_status(trailers),
    };
    made.write(trailers);
    Some(made)
}

/// The response ended without a status.
pub(crate) fn missing_status() -> Made {
    Made::new(Code::Unknown, LocalFailure::Malformed, "the response ended without a grpc-status")
}

fn truncated() -> Made {
    Made::new(Code::Internal, LocalFailure::Malformed, "the response ended within a message")
}

fn invalid_status(headers: &HeaderMap) -> Made {
    let sent = headers.get(&GRPC_STATUS);
    Made::new(Code::Unknown, LocalFailure::Malformed, format!("invalid grpc-status {sent:?}"))
}

/// The peer's status, as far as it matters here.
enum Sent {
    Absent,
    Invalid,
    Ok,
    Cancelled,
    Error,
}

fn status(headers: &HeaderMap) -> Sent {
    match headers.get(&GRPC_STATUS).map(http::HeaderValue::as_bytes) {
        None => Sent::Absent,
        Some(b"0") => Sent::Ok,
        Some(b"1") => Sent::Cancelled,
        // 2 to 16, decimal, no leading zeros.
        Some([b'2'..=b'9'] | [b'1', b'0'..=b'6']) => Sent::Error,
        Some(_) => Sent::Invalid,
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"))
        .is_some_and(
            // A subtype or parameter may follow; `application/grpc-web` is another protocol.
            |rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')),
        )
}

/// Makes message and details safe to read, and keeps them where they can be kept.
fn tidy_texts(headers: &mut HeaderMap) {
    if let Some(details) = headers.get(&GRPC_DETAILS)
        && BASE64.decode(details.as_bytes()).is_err()
    {
        headers.remove(&GRPC_DETAILS);
    }
    // An undecodable message is neither an error nor discarded: what can be read of it stays.
    if let Some(readable) = headers.get(&GRPC_MESSAGE).and_then(|message| repaired(message.as_bytes())) {
        headers.insert(&GRPC_MESSAGE, escape(&readable));
    }
}

/// The message with what is not UTF-8 replaced, or `None` when it can be read as it is.
fn repaired(message: &[u8]) -> Option<String> {
    if message.iter().all(|byte| byte.is_ascii() && *byte != b'%') {
        return None;
    }
    let mut decoded = Vec::with_capacity(message.len());
    let mut rest = message;
    while let Some((first, tail)) = rest.split_first() {
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            _ => {
                decoded.push(*first);
                rest = tail;
            }
        }
    }
    match String::from_utf8_lossy(&decoded) {
        std::borrow::Cow::Borrowed(_) => None,
        std::borrow::Cow::Owned(repaired) => Some(repaired),
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn sent(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("a header value"))
            })
            .collect()
    }

    fn text(headers: &HeaderMap, name: &str) -> Option<String> {
        headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    #[test]
    fn a_status_is_two_digits_at_most_without_leading_zero_and_known() {
        for good in [&b"0"[..], b"1", b"2", b"9", b"10", b"16"] {
            let mut headers = HeaderMap::new();
            headers.insert(&GRPC_STATUS, HeaderValue::from_bytes(good).expect("digits"));
            assert!(trailers(&mut headers, true, false).is_none(), "{good:?}");
        }
        for bad in [&b""[..], b"00", b"01", b"17", b"99", b"-1", b"+1", b"1 ", b"ok", b"100", b"\xff"] {
            let mut headers = HeaderMap::new();
            headers.insert(&GRPC_STATUS, HeaderValue::from_bytes(bad).expect("a header value"));
            let made = trailers(&mut headers, true, false).expect("replaced");
            assert_eq!((made.code, made.failure), (Code::Unknown, LocalFailure::Malformed), "{bad:?}");
            assert_eq!(text(&headers, "grpc-status").as_deref(), Some("2"));
        }
    }

    #[test]
    fn details_that_are_no_base64_are_dropped_and_others_kept_padded_or_not() {
        for (details, kept) in [
            (&b"***"[..], false),
            (b"aGk=", true),
            (b"aGk", true),
            (b"aGl", false),
            (b"aGk=,aGk=", false),
            (b"a", false),
            (b"", true),
            (b"\xff\xfe", false),
        ] {
            let mut headers = sent(&[("grpc-status", b"5")]);
            headers.insert(&GRPC_DETAILS, HeaderValue::from_bytes(details).expect("a header value"));
            assert!(trailers(&mut headers, true, false).is_none());
            assert_eq!(headers.contains_key(&GRPC_DETAILS), kept, "{details:?}");
            // The reader behind this one must agree, or it panics.
            let _ = tonic::Status::from_header_map(&headers).expect("a status");
        }
    }

    #[test]
    fn a_message_that_is_not_utf8_keeps_the_code_and_what_can_be_read() {
        for (message, read) in [
            (&b"plain"[..], "plain"),
            (b"50%25 off", "50% off"),
            (b"100% sure", "100% sure"),
            (b"caf%C3%A9", "café"),
            (b"bad %FF byte", "bad \u{fffd} byte"),
            (b"raw \xff byte", "raw \u{fffd} byte"),
            (b"cut %C3", "cut \u{fffd}"),
        ] {
            let mut headers = sent(&[("grpc-status", b"14")]);
            headers.insert(&GRPC_MESSAGE, HeaderValue::from_bytes(message).expect("a header value"));
            assert!(trailers(&mut headers, true, false).is_none());
            let status = tonic::Status::from_header_map(&headers).expect("a status");
            assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, read));
        }
    }

    #[test]
    fn a_peer_cannot_pretend_that_a_status_was_made_here() {
        let mut headers = sent(&[("grpc-status", b"14"), ("x-mercury-link-failure", b"unreachable")]);
        assert!(trailers(&mut headers, true, false).is_none());
        assert!(!headers.contains_key(&FAILURE));
    }

    #[test]
    fn cancelled_after_the_own_deadline_is_the_deadline() {
        let mut headers = sent(&[("grpc-status", b"1")]);
        assert!(trailers(&mut headers.clone(), true, false).is_none());
        assert_eq!(trailers(&mut headers, true, true).map(|made| made.code), Some(Code::DeadlineExceeded));
        assert_eq!(text(&headers, "grpc-status").as_deref(), Some("4"));
    }

    #[test]
    fn ok_within_a_message_is_internal_and_an_error_there_stays_itself() {
        let made = trailers(&mut sent(&[("grpc-status", b"0")]), false, false).expect("replaced");
        assert_eq!(made.code, Code::Internal);
        assert!(trailers(&mut sent(&[("grpc-status", b"8")]), false, false).is_none());
    }

    #[test]
    fn content_types_of_grpc_and_of_its_likes() {
        for (value, grpc) in [
            (&b"application/grpc"[..], true),
            (b"application/grpc+proto", true),
            (b"application/grpc;charset=utf-8", true),
            (b"application/grpc-web", false),
            (b"application/grpcx", false),
            (b"text/html", false),
            (b"", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(value).expect("a header value"));
            assert_eq!(is_grpc(&headers), grpc, "{value:?}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
