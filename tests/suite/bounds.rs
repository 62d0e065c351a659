//! Bounds: what one request may carry, at the limit and one above, declared or not, on both faces.

use std::fmt::Write as _;

use base::{Reason, headers};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tonic::Code;

use crate::harness::{
    CUSTOMER, GET_HOME, SLACK, Suite, customer, eventually, now, patient,
    talk::{self, Http1, Http2},
};

/// Bound of a body in the shipped policy.
const BODY_BYTES_MAX: usize = 65_536;
/// Bound of headers in the shipped policy.
const HEADER_BYTES_MAX: usize = 16_384;

/// A GetHomeRequest of exactly `length` bytes: one field that the schema does not know, which readers skip.
fn message(length: usize) -> Vec<u8> {
    // Field 15, length-delimited; the length takes three bytes for anything from 16,384 to 2,097,151.
    let content = length - 4;
    let low = |shift: usize| u8::try_from(content >> shift & 0x7f).expect("seven bits");
    let mut bytes = vec![15 << 3 | 2, low(0) | 0x80, low(7) | 0x80, low(14)];
    bytes.resize(length, 0);
    bytes
}

/// A page asked for with a body, as text on the wire. `chunk` bytes a chunk; none declares the length instead.
fn with_body(length: usize, chunk: Option<usize>) -> Vec<u8> {
    let mut head = String::from("GET /v2/home HTTP/1.1\r\nhost: home\r\nconnection: close\r\n");
    for (name, value) in patient(&[]) {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let body = vec![b'x'; length];
    let Some(chunk) = chunk else {
        let _ = write!(head, "content-length: {length}\r\n\r\n");
        return [head.as_bytes(), &body].concat();
    };
    let mut bytes = [head.as_bytes(), b"transfer-encoding: chunked\r\n\r\n"].concat();
    for chunk in body.chunks(chunk) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

#[tokio::test]
async fn a_body_over_its_bound_is_refused_on_both_faces_and_one_at_it_is_not() {
    let suite = Suite::start().await;
    let home = suite.home();
    for (length, chunk, status) in [
        (BODY_BYTES_MAX, None, 200),
        (BODY_BYTES_MAX + 1, None, 413),
        (BODY_BYTES_MAX, Some(1_000), 200),
        (BODY_BYTES_MAX + 1, Some(1_000), 413),
        (BODY_BYTES_MAX + 1, Some(BODY_BYTES_MAX + 1), 413),
    ] {
        let answer = talk::raw(home, &with_body(length, chunk)).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{length} in {chunk:?}: {answer}");
        assert_eq!(answer.contains("\"reason\":\"body_too_large\""), status == 413, "{answer}");
    }
    // A length that no body will follow is refused for what it announces, at once.
    let announced =
        "GET /v2/home HTTP/1.1\r\nhost: home\r\nconnection: close\r\ncontent-length: 9999999999\r\n\r\n";
    let began = now();
    let answer = talk::raw(home, announced.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(now() - began < SLACK, "{}", now() - began);

    for (length, code) in [(BODY_BYTES_MAX, Code::Ok), (BODY_BYTES_MAX + 1, Code::ResourceExhausted)] {
        let told = talk::call(home, GET_HOME, &patient(&[]), &message(length)).await;
        assert_eq!(told.code(), code, "{length}: {told:?}");
        if code != Code::Ok {
            assert_eq!(told.details().error_info().expect("details").reason, "BODY_TOO_LARGE");
            assert_eq!(told.header("x-mercury-reason"), Reason::BodyTooLarge.as_str());
        }
    }
    suite.until_idle().await;
    suite.finish().await;
}

/// Nothing here decompresses, so that nothing can inflate: who sends a compressed message is told so before anything is made of it,
/// with the encodings that it may use.
#[tokio::test]
async fn a_compressed_message_is_refused_and_not_inflated() {
    let suite = Suite::start().await;
    let home = suite.home();
    // 16 MiB of zeros, as a gzip of some 16 KiB would be; that it is none is never found out.
    let small = vec![0x1f_u8; 2_000];
    let compressed = |message: &[u8]| {
        let mut frame = talk::frame(message).to_vec();
        frame[0] = 1;
        Bytes::from(frame)
    };
    for encoding in [Some("gzip"), Some("deflate"), Some("zstd"), None] {
        let head: Vec<_> = encoding.map(|name| ("grpc-encoding", name)).into_iter().collect();
        let connection = Http2::open(home).await;
        let request = talk::grpc(home, GET_HOME, &patient(&head));
        let (response, _upload) =
            connection.stream(request, Some(compressed(&small))).await.expect("a stream");
        let told = talk::told(response).await.expect("an answer");
        // A message that is flagged as compressed by no encoding is a broken one.
        let expected = if encoding.is_some() { Code::Unimplemented } else { Code::Internal };
        assert_eq!(told.code(), expected, "{encoding:?}: {told:?}");
    }
    assert_eq!(suite.calls().await, 0, "no dependency was asked");
    let scrape = suite.scrape("home-api").await;
    let largest = [("server", "home-api"), ("part", "body")];
    assert_eq!(scrape.sum("mercury_request_bytes_largest", &largest), 2_000.0, "as it came, and no more");
    // The length of a compressed message is held to the bound as it comes, like any other.
    let connection = Http2::open(home).await;
    let request = talk::grpc(home, GET_HOME, &patient(&[]));
    let over = compressed(&vec![0; BODY_BYTES_MAX + 1]);
    let (response, _upload) = connection.stream(request, Some(over)).await.expect("a stream");
    assert_eq!(talk::told(response).await.expect("an answer").code(), Code::ResourceExhausted);
    // Over HTTP the page takes no body: one that says it is compressed is read past as it comes, within the same bound.
    for (length, status) in [(BODY_BYTES_MAX, "200"), (BODY_BYTES_MAX + 1, "413")] {
        let text = with_body(length, Some(1_000));
        let text = String::from_utf8(text).expect("ASCII").replacen(
            "host: home",
            "content-encoding: gzip\r\nhost: home",
            1,
        );
        let answer = talk::raw(home, text.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
    }
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn a_message_that_claims_four_gibibytes_is_refused_before_it_comes() {
    let suite = Suite::start().await;
    let connection = Http2::open(suite.home()).await;
    let request = talk::grpc(suite.home(), GET_HOME, &patient(&[]));
    let (response, mut upload) = connection.stream(request, None).await.expect("a stream");
    let began = now();
    upload.send_data(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), false).expect("sent");
    let told = talk::told(response).await.expect("an answer, and no reset instead of one");
    assert_eq!(told.code(), Code::ResourceExhausted, "{told:?}");
    assert_eq!(told.details().error_info().expect("details").reason, "BODY_TOO_LARGE");
    assert!(now() - began < SLACK, "refused by what it claims, not at the deadline: {}", now() - began);
    // The other streams of the connection live on.
    assert_eq!(connection.call(GET_HOME, &patient(&[]), &[]).await.code(), Code::Ok);
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn a_message_that_stops_halfway_is_cut_at_the_deadline_and_one_that_is_reset_is_no_message() {
    let suite = Suite::start().await;
    let before = suite.calls().await;
    let connection = Http2::open(suite.home()).await;
    let head = customer(&[(headers::GRPC_TIMEOUT, "200m")]);
    let half = Bytes::from_static(&[0, 0, 0, 0, 10, 1, 2]);

    let (response, mut upload) =
        connection.stream(talk::grpc(suite.home(), GET_HOME, &head), None).await.expect("a stream");
    upload.send_data(half.clone(), false).expect("sent");
    let told = talk::told(response).await.expect("an answer");
    assert_eq!((told.code(), told.info("phase").as_str()), (Code::DeadlineExceeded, "ingress"), "{told:?}");

    let (response, mut upload) =
        connection.stream(talk::grpc(suite.home(), GET_HOME, &patient(&[])), None).await.expect("a stream");
    upload.send_data(half, false).expect("sent");
    eventually("the half has arrived", async || {
        suite.scrape("home-api").await.sum("mercury_requests_in_flight", &[("server", "home-api")]) == 1.0
    })
    .await;
    upload.send_reset(h2::Reason::CANCEL);
    drop(response);
    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    let finished = |outcome| {
        home.sum("mercury_requests_finished_total", &[("server", "home-api"), ("outcome", outcome)])
    };
    assert_eq!(
        (finished("deadline_exceeded"), finished("cancelled"), finished("ok")),
        (1.0, 1.0, 0.0),
        "{}",
        home.text()
    );
    assert_eq!(suite.calls().await, before, "half a message is no request");
    suite.finish().await;
}

/// The customer's headers, filled up so that all headers that `others` count as take `total` bytes, as HTTP/2 counts:
/// name, value and 32 bytes a field.
fn filled(total: usize, others: &[(&str, &str)]) -> String {
    let size = |(name, value): &(&str, &str)| name.len() + value.len() + 32;
    let used: usize = patient(&[]).iter().chain(others).map(size).sum();
    "f".repeat(total - used - size(&("x-fill", "")))
}

#[tokio::test]
async fn headers_over_their_bound_are_refused_on_both_faces_and_those_at_it_are_not() {
    let suite = Suite::start().await;
    let home = suite.home();
    let before = suite.calls().await;
    for over in [1, 1_000, 2 * HEADER_BYTES_MAX] {
        let fill = filled(HEADER_BYTES_MAX + over, &[("host", "home")]);
        let answer = suite.get(&patient(&[("x-fill", &fill)])).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error("reason").as_str()),
            (431, "headers_too_large"),
            "{over}"
        );
        let fill =
            filled(HEADER_BYTES_MAX + over, &[("content-type", "application/grpc"), ("te", "trailers")]);
        let told = suite.call(&patient(&[("x-fill", &fill)])).await;
        assert_eq!(told.code(), Code::ResourceExhausted, "{over}: {told:?}");
        assert_eq!(told.details().error_info().expect("details").reason, "HEADERS_TOO_LARGE");
    }
    assert_eq!(suite.calls().await, before, "no dependency was asked");

    let fill = filled(HEADER_BYTES_MAX, &[("host", "home")]);
    assert_eq!(suite.get(&patient(&[("x-fill", &fill)])).await.status, 200);
    let fill = filled(HEADER_BYTES_MAX, &[("content-type", "application/grpc"), ("te", "trailers")]);
    assert_eq!(suite.call(&patient(&[("x-fill", &fill)])).await.code(), Code::Ok);

    // Far beyond, the transport itself refuses, and goes on serving others.
    let mut request = Request::get("/v2/home").header("host", "home").header("x-fill", "f".repeat(300_000));
    for (name, value) in CUSTOMER {
        request = request.header(name, value);
    }
    let answer = Http1::open(home).await.send(request.body(Full::default()).expect("a request")).await;
    assert_eq!(answer.status, 431);
    assert_eq!(suite.get(&patient(&[])).await.status, 200);
    suite.finish().await;
}
