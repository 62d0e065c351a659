//! Bodies: requests whose bodies are at their bound, over it, lied about or compressed, and whether each was answered as it is
//! documented. The cases are a closed list: what is sent, and what has to come back.

use std::{net::SocketAddr, time::Duration};

use base::{Clock, Nanos, clock::MonotonicClock};
use bytes::Bytes;
use futures_util::future::join_all;
use http::header;
use model::load_profile::{Bodies, Figure};
use serde::Serialize;
use tokio::time;

use super::{
    deflate,
    observed::{Observed, share},
    peer::{self, RESOURCE_EXHAUSTED, Told},
};

/// Bytes that the compressed bodies grow to.
const INFLATED_BYTES: usize = 4 << 20;
/// Chunks of a body that does not say how long it is.
const CHUNK_BYTES: usize = 1_000;
/// How often a page is asked for that was turned away for lack of capacity.
const TRIES_MAX: usize = 16;
/// The HTTP status of a refusal for lack of capacity.
const TURNED_AWAY: &str = "503";
/// A compressed message, in the flags of its prefix.
const COMPRESSED: u8 = 1;
/// Status of gRPC for a compression that is not spoken.
const UNIMPLEMENTED: u16 = 12;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Http1AtBound,
    Http1OverBound,
    Http1ChunkedAtBound,
    Http1ChunkedOverBound,
    Http1Announced,
    Http1Broken,
    GrpcAtBound,
    GrpcOverBound,
    GrpcAnnounced,
    GrpcShort,
    GrpcInflates,
}

impl Case {
    const ALL: [Self; 11] = [
        Self::Http1AtBound,
        Self::Http1OverBound,
        Self::Http1ChunkedAtBound,
        Self::Http1ChunkedOverBound,
        Self::Http1Announced,
        Self::Http1Broken,
        Self::GrpcAtBound,
        Self::GrpcOverBound,
        Self::GrpcAnnounced,
        Self::GrpcShort,
        Self::GrpcInflates,
    ];

    /// Its name in the report.
    const fn name(self) -> &'static str {
        match self {
            Self::Http1AtBound => "HTTP/1, at the bound",
            Self::Http1OverBound => "HTTP/1, one byte over it",
            Self::Http1ChunkedAtBound => "HTTP/1 in chunks, at the bound",
            Self::Http1ChunkedOverBound => "HTTP/1 in chunks, one byte over it",
            Self::Http1Announced => "HTTP/1, 10 GB announced and nothing sent",
            Self::Http1Broken => "HTTP/1, over in the middle of a chunk",
            Self::GrpcAtBound => "gRPC, at the bound",
            Self::GrpcOverBound => "gRPC, one byte over it",
            Self::GrpcAnnounced => "gRPC, 4 GiB announced and nothing sent",
            Self::GrpcShort => "gRPC, shorter than announced",
            Self::GrpcInflates => "gRPC, compressed, would be 4 MiB",
        }
    }

    /// What has to come back.
    const fn expected(self) -> &'static str {
        match self {
            Self::Http1AtBound | Self::Http1ChunkedAtBound => "200",
            Self::GrpcAtBound => "OK",
            Self::Http1OverBound | Self::Http1ChunkedOverBound | Self::Http1Announced => "413",
            Self::Http1Broken => "no page",
            Self::GrpcOverBound | Self::GrpcAnnounced => "RESOURCE_EXHAUSTED, body_too_large",
            Self::GrpcShort => "an error that is no overload",
            Self::GrpcInflates => "RESOURCE_EXHAUSTED, body_too_large, or UNIMPLEMENTED",
        }
    }

    /// Whether it is refused; the time to that says something then.
    const fn is_refused(self) -> bool {
        !matches!(self, Self::Http1AtBound | Self::Http1ChunkedAtBound | Self::GrpcAtBound)
    }
}

/// How a case fared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BodyCase {
    /// What was sent.
    pub name: &'static str,
    /// What has to come back.
    pub expected: &'static str,
    /// How often it was sent.
    pub sent: u64,
    /// How often that came back.
    pub as_documented: u64,
    /// The longest time from the bytes that break the bound to the answer; null where nothing is refused.
    pub slowest_ms: Option<f64>,
    /// One of the other answers; null when there was none.
    pub other: Option<String>,
}

/// What came back to one.
struct Came {
    right: bool,
    /// For lack of capacity, which is never what a body is to be answered with.
    turned_away: bool,
    took: Nanos,
    what: String,
}

/// Sends every case in every round, `at_once` together. Figures, and the cases for the report.
pub(super) async fn run(bodies: Bodies, home: SocketAddr, bytes_max: usize) -> (Observed, Vec<BodyCase>) {
    let mut cases: Vec<BodyCase> = Vec::with_capacity(Case::ALL.len());
    let inflating = deflate::gzip_of_zeros(INFLATED_BYTES);
    for case in Case::ALL {
        let mut fared = BodyCase { name: case.name(), expected: case.expected(), ..BodyCase::default() };
        for _ in 0..bodies.rounds {
            // What is taken is a page, of which few are admitted at a time; what is refused costs nothing.
            let at_once = if case.is_refused() { bodies.at_once } else { 1 };
            let together = (0..at_once).map(|_| settled(case, home, bytes_max, &inflating));
            for came in join_all(together).await {
                fared.sent += 1;
                if came.right {
                    fared.as_documented += 1;
                } else {
                    fared.other = Some(came.what);
                }
                if case.is_refused() {
                    let took = came.took.as_millis_f64();
                    fared.slowest_ms = Some(fared.slowest_ms.unwrap_or(0.0).max(took));
                }
            }
        }
        cases.push(fared);
    }
    let sum = |count: fn(&BodyCase) -> u64| cases.iter().map(count).sum::<u64>();
    let mut observed = Observed::default();
    observed.put(Figure::BodiesRight, share(sum(|case| case.as_documented), sum(|case| case.sent)));
    observed.put(Figure::BodyRefusal, cases.iter().filter_map(|case| case.slowest_ms).reduce(f64::max));
    (observed, cases)
}

/// One of a case. What is turned away for lack of capacity, which others decide, shows nothing and is sent again.
async fn settled(case: Case, home: SocketAddr, bytes_max: usize, inflating: &[u8]) -> Came {
    let mut came = one(case, home, bytes_max, inflating).await;
    for _ in 1..TRIES_MAX {
        if !came.turned_away {
            break;
        }
        came = one(case, home, bytes_max, inflating).await;
    }
    came
}

async fn one(case: Case, home: SocketAddr, bytes_max: usize, inflating: &[u8]) -> Came {
    let began = MonotonicClock.now();
    let (right, what) = match case {
        Case::Http1AtBound => http1(home, &sized(bytes_max), 200).await,
        Case::Http1OverBound => http1(home, &sized(bytes_max + 1), 413).await,
        Case::Http1ChunkedAtBound => http1(home, &chunked(bytes_max, true), 200).await,
        Case::Http1ChunkedOverBound => http1(home, &chunked(bytes_max + 1, true), 413).await,
        Case::Http1Announced => {
            let head = format!("{}content-length: 10000000000\r\n\r\n", peer::page_head());
            http1(home, head.as_bytes(), 413).await
        }
        Case::Http1Broken => broken(home).await,
        Case::GrpcAtBound => grpc(home, 0, bytes_max, bytes_max, Told::is_ok).await,
        Case::GrpcOverBound => grpc(home, 0, bytes_max + 1, bytes_max + 1, too_large).await,
        Case::GrpcAnnounced => grpc(home, 0, u32::MAX as usize, 0, too_large).await,
        Case::GrpcShort => grpc(home, 0, 100, 10, failed).await,
        Case::GrpcInflates => {
            let bytes = peer::framed(COMPRESSED, length(inflating.len()), inflating);
            send(home, bytes, Some("gzip"), true, not_inflated).await
        }
    };
    let turned_away = what == TURNED_AWAY || what.contains("overload");
    Came { right: right && !turned_away, turned_away, took: MonotonicClock.now() - began, what }
}

fn failed(told: &Told) -> bool {
    !told.is_ok() && !told.reason.contains("overload")
}

/// Refused for its compression or for what it would be; a refusal for lack of capacity has the same status and another reason.
fn not_inflated(told: &Told) -> bool {
    told.grpc == Some(UNIMPLEMENTED) || too_large(told)
}

fn too_large(told: &Told) -> bool {
    told.grpc == Some(RESOURCE_EXHAUSTED) && told.reason == "body_too_large"
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A page asked for with a body that says how long it is.
fn sized(bytes: usize) -> Vec<u8> {
    let head = format!("{}content-length: {bytes}\r\n\r\n", peer::page_head());
    [head.into_bytes(), vec![b'x'; bytes]].concat()
}

/// The same in chunks, with its end or without.
fn chunked(bytes: usize, ends: bool) -> Vec<u8> {
    let mut text = format!("{}transfer-encoding: chunked\r\n\r\n", peer::page_head()).into_bytes();
    let mut left = bytes;
    while left > 0 {
        let chunk = left.min(CHUNK_BYTES);
        text.extend_from_slice(format!("{chunk:x}\r\n").as_bytes());
        text.resize(text.len() + chunk, b'x');
        text.extend_from_slice(b"\r\n");
        left -= chunk;
    }
    if ends {
        text.extend_from_slice(b"0\r\n\r\n");
    }
    text
}

async fn http1(home: SocketAddr, request: &[u8], expected: u16) -> (bool, String) {
    let Ok(mut stream) = peer::connect(home, None).await else { return (false, "no connection".to_owned()) };
    match peer::exchange(&mut stream, request).await {
        Some(answer) => (answer.status == expected, answer.status.to_string()),
        None => (false, "no answer".to_owned()),
    }
}

/// Half a chunk and the end of the connection's sending side: there is no request, and nothing may wait for the rest.
async fn broken(home: SocketAddr) -> (bool, String) {
    let Ok(mut stream) = peer::connect(home, None).await else { return (false, "no connection".to_owned()) };
    let mut request = chunked(CHUNK_BYTES, false);
    request.extend_from_slice(b"3e8\r\nhalf");
    let sent = tokio::io::AsyncWriteExt::write_all(&mut stream, &request).await;
    if sent.and(tokio::io::AsyncWriteExt::shutdown(&mut stream).await).is_err() {
        return (true, "closed".to_owned());
    }
    match time::timeout(peer::PATIENCE, peer::answer(&mut stream, 4_096, Duration::ZERO)).await {
        Ok(Some(answer)) => (answer.status != 200, answer.status.to_string()),
        Ok(None) => (true, "closed".to_owned()),
        Err(_elapsed) => (false, "still open".to_owned()),
    }
}

/// A message of `bytes`, of which `declared` are announced. One that is shorter than announced ends, unless it is to be refused
/// for what it announces.
async fn grpc(
    home: SocketAddr,
    flags: u8,
    declared: usize,
    bytes: usize,
    right: impl Fn(&Told) -> bool,
) -> (bool, String) {
    let message = if bytes == 0 { Vec::new() } else { peer::message(bytes) };
    let ends = bytes > 0;
    send(home, peer::framed(flags, length(declared), &message), None, ends, right).await
}

async fn send(
    home: SocketAddr,
    bytes: Bytes,
    encoding: Option<&str>,
    ends: bool,
    right: impl Fn(&Told) -> bool,
) -> (bool, String) {
    let Ok((mut sender, driver)) = peer::http2(home, None).await else {
        return (false, "no connection".to_owned());
    };
    let mut request = peer::page_call(home, "2S");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding).header(header::ACCEPT_ENCODING, "identity");
    }
    let body = if ends { peer::whole(bytes) } else { peer::endless(bytes) };
    let Ok(request) = request.body(body) else { return (false, "no request".to_owned()) };
    let asking = async { peer::told(sender.send_request(request).await).await };
    match time::timeout(peer::PATIENCE, peer::driven(asking, [driver])).await {
        Ok(Some(told)) => (right(&told), format!("{told:?}")),
        Ok(None) => (false, "broken off".to_owned()),
        Err(_elapsed) => (false, "no answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_add_up_to_the_body() {
        let text = String::from_utf8(chunked(2_500, true)).expect("text");
        let body = text.split_once("\r\n\r\n").expect("a head").1;
        assert_eq!(body.matches('x').count(), 2_500);
        assert!(body.starts_with("3e8\r\n") && body.contains("\r\n1f4\r\n") && body.ends_with("0\r\n\r\n"));
        assert!(!chunked(10, false).ends_with(b"0\r\n\r\n"));
    }

    #[test]
    fn a_refusal_for_lack_of_capacity_is_not_what_is_documented_for_a_body() {
        let told = |grpc, reason: &str| Told { http: 200, grpc: Some(grpc), reason: reason.to_owned() };
        let overloaded = told(RESOURCE_EXHAUSTED, "overload_queue_full");
        assert!(!not_inflated(&overloaded) && !too_large(&overloaded) && !failed(&overloaded));
        assert!(not_inflated(&told(RESOURCE_EXHAUSTED, "body_too_large")));
        assert!(not_inflated(&told(UNIMPLEMENTED, "")) && failed(&told(13, "")));
        assert!(!not_inflated(&told(0, "")) && !failed(&told(0, "")));
    }

    #[test]
    fn every_case_says_what_it_expects() {
        for case in Case::ALL {
            assert!(!case.name().is_empty() && !case.expected().is_empty());
        }
        assert_eq!(Case::ALL.iter().filter(|case| case.is_refused()).count(), 8);
    }
}
