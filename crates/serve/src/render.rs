//! Render: the one table from a refusal to a status, on both faces (DESIGN section 8).
//!
//! The match over [`Reason`] is exhaustive on purpose: a new reason does not compile until it has a row here, and a
//! dependency's own code can never leak through.

use base::{Nanos, Reason, Refusal, headers};
use http::{HeaderValue, Response, StatusCode, header};
use tonic::{Code, Status, body::Body, metadata::MetadataValue};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Header that carries the reason's name on both faces; metrics read the outcome from it.
pub const REASON_HEADER: &str = "x-mercury-reason";
/// Response header, and trailer, that says what is known of the effect that was asked for; see [`Refusal::effect`].
pub const EFFECT_HEADER: &str = "x-mercury-effect";
/// Header that says on both faces where a request was when it was refused, where that is known.
pub const PHASE_HEADER: &str = "x-mercury-phase";
/// `domain` of every `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "mercury";

/// Codes of a reason on both faces.
pub const fn codes(reason: Reason) -> (Code, StatusCode) {
    match reason {
        Reason::DeadlineExceeded => (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
        // Nobody is left to read it; the code is for logs and for a proxy in between (nginx's convention).
        Reason::Cancelled => (Code::Cancelled, CLIENT_CLOSED_REQUEST),
        Reason::Overload => (Code::ResourceExhausted, StatusCode::SERVICE_UNAVAILABLE),
        Reason::BodyTooLarge => (Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE),
        Reason::HeadersTooLarge => (Code::ResourceExhausted, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        Reason::DependencyUnavailable => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        Reason::DependencyBug => (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR),
        Reason::InvalidInput => (Code::InvalidArgument, StatusCode::BAD_REQUEST),
        Reason::MalformedTimeout => (Code::Internal, StatusCode::BAD_REQUEST),
        Reason::Unauthenticated => (Code::Unauthenticated, StatusCode::UNAUTHORIZED),
        Reason::PermissionDenied => (Code::PermissionDenied, StatusCode::FORBIDDEN),
        Reason::Conflict => (Code::AlreadyExists, StatusCode::CONFLICT),
        Reason::EffectAmbiguousDeadline => (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
        Reason::EffectAmbiguous => (Code::Unknown, StatusCode::INTERNAL_SERVER_ERROR),
        Reason::Quiescing => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        Reason::UnknownMethod => (Code::Unimplemented, StatusCode::NOT_FOUND),
        Reason::MethodNotAllowed => (Code::Unimplemented, StatusCode::METHOD_NOT_ALLOWED),
        Reason::UnsupportedMediaType => (Code::Unknown, StatusCode::UNSUPPORTED_MEDIA_TYPE),
        Reason::Internal => (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR),
    }
}

const CLIENT_CLOSED_REQUEST: StatusCode = match StatusCode::from_u16(499) {
    Ok(status) => status,
    Err(_) => StatusCode::BAD_REQUEST,
};

/// A face that a refusal is rendered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// gRPC: status in trailers or in a trailers-only head.
    Grpc,
    /// JSON over HTTP.
    Http,
}

/// The gRPC status of a refusal, with `google.rpc` details.
pub fn status(refusal: &Refusal) -> Status {
    let reason = refusal.reason();
    let mut details = ErrorDetails::new();
    let mut metadata = std::collections::HashMap::new();
    if let Some(phase) = refusal.phase() {
        metadata.insert("phase".to_owned(), phase.as_str().to_owned());
    }
    if let Some(effect) = refusal.effect() {
        metadata.insert("effect".to_owned(), effect.to_owned());
    }
    details.set_error_info(reason.as_str().to_ascii_uppercase(), ERROR_DOMAIN, metadata);
    if let Some(field) = refusal.field() {
        details.add_bad_request_violation(field, refusal.message());
    }
    if let Some(delay) = refusal.retry_delay() {
        details.set_retry_info(Some(delay.into()));
    }
    let mut status = Status::with_error_details(codes(reason).0, refusal.message(), details);
    status.metadata_mut().insert(REASON_HEADER, MetadataValue::from_static(reason.as_str()));
    if let Some(phase) = refusal.phase() {
        status.metadata_mut().insert(PHASE_HEADER, MetadataValue::from_static(phase.as_str()));
    }
    if let Some(effect) = refusal.effect() {
        status.metadata_mut().insert(EFFECT_HEADER, MetadataValue::from_static(effect));
    }
    if let Some(delay) = refusal.retry_delay() {
        status.metadata_mut().insert(headers::RETRY_PUSHBACK, MetadataValue::from(delay.as_millis()));
    }
    status
}

/// A complete response that refuses, for either face.
pub fn response(refusal: &Refusal, face: Face) -> Response<Body> {
    match face {
        Face::Grpc => grpc(refusal),
        Face::Http => http(refusal),
    }
}

fn grpc(refusal: &Refusal) -> Response<Body> {
    // An HTTP status of its own only where the protocol demands one: a peer that does not speak gRPC reads it.
    if refusal.reason() == Reason::UnsupportedMediaType {
        return http(refusal);
    }
    status(refusal).into_http()
}

fn http(refusal: &Refusal) -> Response<Body> {
    let reason = refusal.reason();
    let mut error = serde_json::Map::new();
    error.insert("reason".into(), reason.as_str().into());
    error.insert("message".into(), refusal.message().into());
    if let Some(field) = refusal.field() {
        error.insert("field".into(), field.into());
    }
    if let Some(phase) = refusal.phase() {
        error.insert("phase".into(), phase.as_str().into());
    }
    if let Some(effect) = refusal.effect() {
        error.insert("effect".into(), effect.into());
    }
    let text = serde_json::json!({ "error": error }).to_string();
    let mut response = Response::new(Body::new(http_body_util::Full::new(bytes::Bytes::from(text + "\n"))));
    *response.status_mut() = codes(reason).1;
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    head.insert(REASON_HEADER, HeaderValue::from_static(reason.as_str()));
    if let Some(effect) = refusal.effect() {
        head.insert(EFFECT_HEADER, HeaderValue::from_static(effect));
    }
    if let Some(phase) = refusal.phase() {
        head.insert(PHASE_HEADER, HeaderValue::from_static(phase.as_str()));
    }
    if let Some(delay) = refusal.retry_delay() {
        head.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_secs(delay)));
    }
    response
}

/// `retry-after` speaks in whole seconds; rounded up, so that nobody comes back too early.
fn retry_after_secs(delay: Nanos) -> u64 {
    delay.get().div_ceil(1_000_000_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DESIGN section 8, row by row.
    #[test]
    fn the_table_is_as_designed() {
        let rows = [
            (Reason::DeadlineExceeded, 4, 504),
            (Reason::Cancelled, 1, 499),
            (Reason::Overload, 8, 503),
            (Reason::BodyTooLarge, 8, 413),
            (Reason::HeadersTooLarge, 8, 431),
            (Reason::DependencyUnavailable, 14, 503),
            (Reason::DependencyBug, 13, 500),
            (Reason::InvalidInput, 3, 400),
            (Reason::MalformedTimeout, 13, 400),
            (Reason::Unauthenticated, 16, 401),
            (Reason::PermissionDenied, 7, 403),
            (Reason::Conflict, 6, 409),
            (Reason::EffectAmbiguousDeadline, 4, 504),
            (Reason::EffectAmbiguous, 2, 500),
            (Reason::Quiescing, 14, 503),
            (Reason::UnknownMethod, 12, 404),
            (Reason::MethodNotAllowed, 12, 405),
            (Reason::UnsupportedMediaType, 2, 415),
            (Reason::Internal, 13, 500),
        ];
        assert_eq!(rows.len(), Reason::ALL.len());
        for (reason, grpc, http) in rows {
            let (code, status) = codes(reason);
            assert_eq!((code as i32, status.as_u16()), (grpc, http), "{reason}");
        }
    }

    #[test]
    fn details_name_the_field_and_the_delay() {
        let refusal =
            Refusal::invalid("x-mercury-class", "unknown class").retry_after(Nanos::from_millis(1_200));
        let status = status(&refusal);
        let details = status.get_error_details();
        assert_eq!(details.bad_request().expect("violation").field_violations[0].field, "x-mercury-class");
        assert_eq!(details.error_info().expect("info").reason, "INVALID_INPUT");
        assert_eq!(status.metadata().get(headers::RETRY_PUSHBACK).expect("pushback"), "1200");
        let response = http(&refusal);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(response.headers()[REASON_HEADER], "invalid_input");
    }

    #[test]
    fn an_ambiguous_effect_says_so_on_the_wire() {
        let status = status(&Refusal::new(Reason::EffectAmbiguousDeadline, "unanswered"));
        assert_eq!(status.get_error_details().error_info().expect("info").metadata["effect"], "ambiguous");
    }
}
