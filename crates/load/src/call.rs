//! Call: one `HomeService/GetHome` exchange, strict about everything that a lenient client would hide.

use base::{Nanos, Origin, headers, timeout};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use prost::Message;
use wire::home::v2::{GetHomeRequest, GetHomeResponse};

use crate::{
    connection::Sender,
    outcome::{Code, Failed, Failure},
};

/// Most bytes that one answer may have.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// A gRPC message is preceded by a flag byte and four bytes of length.
const PREFIX_BYTES: usize = 5;
const METHOD_PATH: &str = "/mercury.home.v2.HomeService/GetHome";
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Says with a status what the reason for it is.
const EFFECT: HeaderName = HeaderName::from_static("x-mercury-effect");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What all calls of a run share.
pub(crate) struct Template {
    uri: Uri,
    base: HeaderMap,
    body: Bytes,
}

/// What one call asks.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) class: &'static str,
    pub(crate) region: &'a str,
    pub(crate) request_id: &'a str,
    pub(crate) attempt: u32,
    /// What remains for the call; sent as `grpc-timeout` when set.
    pub(crate) timeout: Option<Nanos>,
}

impl Template {
    /// The template for `target`, a host and port. `None` when that is not an authority.
    pub(crate) fn new(target: &str, origin: Origin) -> Option<Self> {
        let uri = Uri::builder().scheme("http").authority(target).path_and_query(METHOD_PATH).build().ok()?;
        let mut base = HeaderMap::with_capacity(16);
        base.insert(header::TE, HeaderValue::from_static("trailers"));
        base.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        base.insert(header::USER_AGENT, HeaderValue::from_static("mercury-load"));
        base.insert(headers::ORIGIN, HeaderValue::from_static(origin.as_str()));
        Some(Self { uri, base, body: frame(&GetHomeRequest {}) })
    }

    /// The request. `None` when an identity does not fit a header, or when there is no time left to send.
    pub(crate) fn request(&self, asked: &Asked<'_>) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let map = request.headers_mut();
        *map = self.base.clone();
        map.insert(headers::TENANT, HeaderValue::from_str(asked.tenant).ok()?);
        map.insert(headers::SUBJECT, HeaderValue::from_str(asked.subject).ok()?);
        map.insert(headers::CLASS, HeaderValue::from_static(asked.class));
        map.insert(headers::REGION, HeaderValue::from_str(asked.region).ok()?);
        map.insert(headers::REQUEST_ID, HeaderValue::from_str(asked.request_id).ok()?);
        map.insert(headers::ATTEMPT, HeaderValue::from(asked.attempt));
        if let Some(remaining) = asked.timeout {
            map.insert(headers::GRPC_TIMEOUT, HeaderValue::try_from(timeout::encode(remaining)?).ok()?);
        }
        Some(request)
    }
}

/// A whole answer.
pub(crate) struct Answered {
    pub(crate) home: GetHomeResponse,
    /// Size of the message on the wire.
    pub(crate) bytes: usize,
    /// What it says about where its time went.
    pub(crate) timing: Option<HeaderValue>,
}

/// Sends `request` and reads the whole answer. Dropping the future resets the stream.
pub(crate) async fn exchange(sender: &mut Sender, request: Request<Full<Bytes>>) -> Result<Answered, Failed> {
    let response = sender.send_request(request).await.map_err(|_| lost(sender))?;
    let (mut head, body) = response.into_parts();
    if head.status != StatusCode::OK && !head.headers.contains_key(GRPC_STATUS) {
        return Err(Failure::Http(head.status.as_u16()).into());
    }
    if !speaks_grpc(&head.headers) {
        return Err(Failure::ContentType.into());
    }
    if head.headers.contains_key(GRPC_STATUS) {
        // Headers that are trailers at once: there is no message, so OK would be a lie.
        status(&head.headers)?;
        return Err(Failure::MessageCount.into());
    }
    let message = collect(body, sender).await?;
    let bytes = message.len();
    let home = GetHomeResponse::decode(unframe(message)?).map_err(|_| Failure::Undecodable)?;
    Ok(Answered { home, bytes, timing: head.headers.remove(SERVER_TIMING) })
}

/// Reads data and trailers; the data only counts when the status is OK.
async fn collect(mut body: Incoming, sender: &Sender) -> Result<Bytes, Failed> {
    let mut data = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(read) = body.frame().await {
        let frame = read.map_err(|_| lost(sender))?;
        match frame.into_data() {
            Ok(chunk) if data.len() + joined.len() + chunk.len() > ANSWER_BYTES_MAX => {
                return Err(Failure::TooLarge.into());
            }
            // Nearly every answer is a single frame and is not copied.
            Ok(chunk) if data.is_empty() && joined.is_empty() => data = chunk,
            Ok(chunk) => {
                joined.extend_from_slice(&std::mem::take(&mut data));
                joined.extend_from_slice(&chunk);
            }
            Err(other) => {
                let trailers = other.into_trailers().map_err(|_| Failure::Framing)?;
                status(&trailers)?;
                return Ok(if joined.is_empty() { data } else { joined.freeze() });
            }
        }
    }
    Err(Failure::StatusMissing.into())
}

/// A failure below the answer: of the whole connection, or of this stream alone.
fn lost(sender: &Sender) -> Failure {
    if sender.is_closed() { Failure::ConnectionLost } else { Failure::StreamReset }
}

fn speaks_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// `Ok` when the one `grpc-status` is OK.
fn status(headers: &HeaderMap) -> Result<(), Failed> {
    let mut values = headers.get_all(GRPC_STATUS).iter();
    let value = values.next().ok_or(Failure::StatusMissing)?;
    match (Code::parse(value.as_bytes()), values.next()) {
        (Some(Code::OK), None) => Ok(()),
        (Some(code), None) => {
            let ambiguous = headers.get(EFFECT).is_some_and(|value| value.as_bytes() == b"ambiguous");
            Err(Failed { failure: Failure::Status(code), ambiguous })
        }
        _ => Err(Failure::StatusMalformed.into()),
    }
}

fn frame(message: &impl Message) -> Bytes {
    let encoded = message.encode_to_vec();
    let length = u32::try_from(encoded.len()).expect("a request of ours is far below 4 GiB");
    let mut framed = Vec::with_capacity(PREFIX_BYTES + encoded.len());
    framed.push(0);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(&encoded);
    framed.into()
}

/// The one message of a body.
fn unframe(mut body: Bytes) -> Result<Bytes, Failure> {
    if body.is_empty() {
        return Err(Failure::MessageCount);
    }
    if body.len() < PREFIX_BYTES || body[0] != 0 {
        return Err(Failure::Framing);
    }
    body.advance(1);
    let length = body.get_u32() as usize;
    match body.len().cmp(&length) {
        std::cmp::Ordering::Less => Err(Failure::Framing),
        std::cmp::Ordering::Equal => Ok(body),
        std::cmp::Ordering::Greater => Err(Failure::MessageCount),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exactly_one_uncompressed_message_is_read() {
        let sent = GetHomeResponse { request_id: "r-1".to_owned(), ..Default::default() };
        let framed = frame(&sent);
        let read = unframe(framed.clone()).expect("one message");
        assert_eq!(GetHomeResponse::decode(read).expect("own output"), sent);

        assert_eq!(unframe(Bytes::new()), Err(Failure::MessageCount));
        assert_eq!(unframe(framed.slice(..4)), Err(Failure::Framing));
        assert_eq!(unframe(framed.slice(..framed.len() - 1)), Err(Failure::Framing));
        let twice = [framed.as_ref(), framed.as_ref()].concat();
        assert_eq!(unframe(twice.into()), Err(Failure::MessageCount));
        let mut compressed = framed.to_vec();
        compressed[0] = 1;
        assert_eq!(unframe(compressed.into()), Err(Failure::Framing));
    }

    #[test]
    fn the_status_must_be_there_once() {
        let mut trailers = HeaderMap::new();
        let status = |trailers: &HeaderMap| status(trailers).map_err(|failed| failed.failure);
        assert_eq!(status(&trailers), Err(Failure::StatusMissing));
        trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
        assert_eq!(status(&trailers), Ok(()));
        trailers.append(GRPC_STATUS, HeaderValue::from_static("0"));
        assert_eq!(status(&trailers), Err(Failure::StatusMalformed));
        trailers.insert(GRPC_STATUS, HeaderValue::from_static("00"));
        assert_eq!(status(&trailers), Err(Failure::StatusMalformed));
        trailers.insert(GRPC_STATUS, HeaderValue::from_static("14"));
        assert!(matches!(status(&trailers), Err(Failure::Status(code)) if code.as_str() == "unavailable"));
    }

    #[test]
    fn an_effect_that_nobody_knows_is_told_from_a_failure_that_had_none() {
        for (effect, ambiguous) in [
            (Some("ambiguous"), true),
            (Some("conflict"), false),
            (Some("something else"), false),
            (None, false),
        ] {
            let mut trailers = HeaderMap::new();
            trailers.insert(GRPC_STATUS, HeaderValue::from_static("4"));
            if let Some(effect) = effect {
                trailers.insert(EFFECT, HeaderValue::from_static(effect));
            }
            let failed = status(&trailers).expect_err("a failure");
            assert_eq!(failed.ambiguous, ambiguous, "{effect:?}");
        }
    }

    #[test]
    fn only_grpc_content_types_pass() {
        for (value, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("text/html", false),
        ] {
            let mut map = HeaderMap::new();
            map.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(speaks_grpc(&map), expected, "{value}");
        }
        assert!(!speaks_grpc(&HeaderMap::new()));
    }

    #[test]
    fn a_request_carries_the_identity_and_a_timeout_only_when_asked() {
        let template = Template::new("127.0.0.1:8080", Origin::LoadTest).expect("an authority");
        let mut asked = Asked {
            tenant: "tenant-001",
            subject: "user-00007",
            class: "premium",
            region: "eu-west",
            request_id: "peak-7",
            attempt: 2,
            timeout: None,
        };
        let request = template.request(&asked).expect("it fits");
        assert_eq!(request.uri().to_string(), format!("http://127.0.0.1:8080{METHOD_PATH}"));
        assert_eq!(request.headers()[headers::ORIGIN], "load_test");
        assert_eq!(request.headers()[headers::ATTEMPT], "2");
        assert!(!request.headers().contains_key(headers::GRPC_TIMEOUT));
        asked.timeout = Some(Nanos::from_millis(300));
        let request = template.request(&asked).expect("it fits");
        assert_eq!(request.headers()[headers::GRPC_TIMEOUT], "300000u");
        asked.timeout = Some(Nanos::ZERO);
        assert!(template.request(&asked).is_none(), "a call without any time is not sent");
        assert!(Template::new("not an authority", Origin::Customer).is_none());
    }

    proptest! {
        #[test]
        fn no_body_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = unframe(bytes.into()).map(GetHomeResponse::decode);
        }
    }
}
