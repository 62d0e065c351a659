//! Sockets: what a peer can make a port hold by connecting, by saying nothing, and by reading nothing.

use base::{Nanos, headers};
use bytes::Bytes;
use http::Request;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::Code;

use crate::harness::{
    GET_HOME, Options, SLACK, Suite, customer, eventually, get_home, now, patient, spawn,
    talk::{self, Http1, soon},
};

const HOME: [(&str, &str); 1] = [("server", "home-api")];

#[tokio::test]
async fn a_connection_over_the_bound_is_closed_at_once_and_the_permit_comes_back() {
    let suite = Suite::start_with(Options::quick().policy("limits", "connections_max", "4")).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut connection = Http1::open(suite.home()).await;
        assert_eq!(connection.send(get_home(&patient(&[]))).await.status, 200);
        held.push(connection);
    }
    for refused in 1..=3 {
        let began = now();
        let mut one_more = TcpStream::connect(suite.home()).await.expect("the kernel accepts");
        let read = soon(one_more.read(&mut [0; 16])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "closed, not answered: {read:?}");
        assert!(now() - began < SLACK, "at once, not at the first-byte bound");
        let home = suite.scrape("home-api").await;
        assert_eq!(home.sum("mercury_connections_refused_total", &HOME), f64::from(refused));
        assert_eq!(home.sum("mercury_connections_open", &HOME), 4.0);
    }
    // Those who are in are served all the same.
    assert_eq!(held[0].send(get_home(&patient(&[]))).await.status, 200);

    held.pop();
    eventually("the permit is back", async || {
        suite.scrape("home-api").await.sum("mercury_connections_open", &HOME) == 3.0
    })
    .await;
    assert_eq!(suite.get(&patient(&[])).await.status, 200);
    assert_eq!(suite.scrape("home-api").await.sum("mercury_connections_refused_total", &HOME), 3.0);
    drop(held);
    eventually("no connection is open", async || {
        suite.scrape("home-api").await.sum("mercury_connections_open", &HOME) == 0.0
    })
    .await;
    suite.finish().await;
}

/// The first SETTINGS frame of a port, by identifier.
async fn settings(at: std::net::SocketAddr) -> std::collections::BTreeMap<u16, u32> {
    let mut stream = TcpStream::connect(at).await.expect("the port is open");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("written");
    let mut head = [0; 9];
    soon(stream.read_exact(&mut head)).await.expect("a frame");
    assert_eq!((head[3], head[4]), (4, 0), "the first frame is SETTINGS: {head:?}");
    let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    soon(stream.read_exact(&mut payload)).await.expect("its payload");
    let pairs = payload.chunks_exact(6);
    pairs.map(|p| (u16::from_be_bytes([p[0], p[1]]), u32::from_be_bytes([p[2], p[3], p[4], p[5]]))).collect()
}

#[tokio::test]
async fn http2_limits_are_announced_in_settings() {
    let options = Options::quick()
        .policy("limits", "streams_max", "37")
        .policy("limits", "stream_window_bytes", "70000")
        .policy("limits", "header_bytes_max", "2048");
    let suite = Suite::start_with(options).await;
    for member in ["home-api", "profile", "experiment"] {
        let settings = settings(suite.at(member)).await;
        assert_eq!(settings.get(&3), Some(&37), "{member}: MAX_CONCURRENT_STREAMS in {settings:?}");
        assert_eq!(settings.get(&4), Some(&70_000), "{member}: INITIAL_WINDOW_SIZE in {settings:?}");
        assert!(
            settings.get(&6).is_some_and(|bytes| *bytes >= 2_048),
            "{member}: MAX_HEADER_LIST_SIZE in {settings:?}"
        );
    }
    for port in [suite.at("emulator"), suite.members["emulator"].control.expect("a control port")] {
        assert!(settings(port).await.contains_key(&3), "no port leaves its streams to a default");
    }
    suite.finish().await;
}

#[tokio::test]
async fn a_peer_that_says_too_little_is_cut_at_its_bound() {
    let options = Options::quick()
        .policy("limits", "first_byte_timeout_ms", "200")
        .policy("limits", "keep_alive_interval_ms", "400")
        .policy("limits", "keep_alive_timeout_ms", "200");
    let suite = Suite::start_with(options).await;
    let cut = async |said: &'static [u8], after: u64| {
        let began = now();
        let mut stream = TcpStream::connect(suite.home()).await.expect("the port is open");
        stream.write_all(said).await.expect("written");
        let mut rest = Vec::new();
        let _ = soon(stream.read_to_end(&mut rest)).await; // A reset closes it as well.
        let took = now() - began;
        assert!(took >= Nanos::from_millis(after - 10), "{took}: {said:?} was given its time");
        assert!(took < Nanos::from_millis(after) + SLACK, "{took}: {said:?} was cut in time");
        rest
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let (silent, doubtful, halting, _mute) = tokio::join!(
        cut(b"", 200),
        cut(b"PRI * HTTP", 200),
        cut(b"GET /v2/home HTTP/1.1\r\nhost: ", 400),
        // HTTP/2 that answers no PING.
        cut(preface, 600),
    );
    assert!(silent.is_empty() && doubtful.is_empty(), "{silent:?} {doubtful:?}");
    assert!(halting.is_empty() || halting.starts_with(b"HTTP/1.1 408"), "{halting:?}");
    eventually("no connection is open", async || {
        suite.scrape("home-api").await.sum("mercury_connections_open", &HOME) == 0.0
    })
    .await;
    suite.finish().await;
}

#[tokio::test]
async fn a_peer_that_stops_reading_loses_its_stream_at_the_deadline_and_no_other() {
    let suite = Suite::start().await;
    let stream = TcpStream::connect(suite.home()).await.expect("the port is open");
    // No window: the head of an answer arrives, its body never can.
    let (sender, mut connection) = h2::client::Builder::new()
        .initial_window_size(0)
        .handshake::<_, Bytes>(stream)
        .await
        .expect("a handshake");
    let (widen, mut widened) = tokio::sync::mpsc::channel::<u32>(1);
    let driver = spawn(async move {
        loop {
            tokio::select! {
                biased; // A new window first, or it might wait for the connection to do something.
                Some(bytes) = widened.recv() => connection.set_initial_window_size(bytes).expect("a window"),
                result = &mut connection => return result,
            }
        }
    });
    let open = async |request: http::request::Builder, body: Option<Bytes>| {
        let mut sender = sender.clone().ready().await?;
        let (response, mut upload) =
            sender.send_request(request.body(()).expect("a request"), body.is_none())?;
        if let Some(body) = body {
            upload.send_data(body, true)?;
        }
        Ok::<_, h2::Error>(response)
    };
    let page = |timeout: &'static str| {
        let head = customer(&[(headers::GRPC_TIMEOUT, timeout)]);
        let request = Request::get(format!("http://{}/v2/home", suite.home()));
        head.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    };

    let began = now();
    let stalled = [
        open(page("500m"), None).await.expect("a stream"),
        open(
            talk::grpc(suite.home(), GET_HOME, &customer(&[(headers::GRPC_TIMEOUT, "500m")])),
            Some(talk::frame(&[])),
        )
        .await
        .expect("a stream"),
    ];
    for response in stalled {
        let (head, mut body) = soon(response).await.expect("the head comes").into_parts();
        assert_eq!(head.status, 200);
        // Another stream of the same connection, whose answer needs no window, is served meanwhile.
        let refused = open(talk::grpc(suite.home(), GET_HOME, &[]), Some(talk::frame(&[]))).await;
        let refused = talk::told(refused.expect("a stream")).await.expect("an answer");
        assert_eq!(refused.code(), Code::Unauthenticated);
        let error = soon(body.data()).await.expect("not the end").expect_err("cut");
        assert!(error.is_reset() && error.is_remote(), "{error}");
        let took = now() - began;
        assert!(took >= Nanos::from_millis(490) && took < Nanos::from_millis(500) + SLACK, "{took}");
    }
    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    assert_eq!(home.sum("mercury_streams_cut_total", &HOME), 2.0);
    let outcome = |name| home.sum("mercury_requests_finished_total", &[HOME[0], ("outcome", name)]);
    assert_eq!((outcome("deadline_exceeded"), outcome("cancelled")), (2.0, 0.0), "{}", home.text());

    // The connection lives on, and once the peer reads, it gets whole pages.
    widen.send(1 << 20).await.expect("the driver runs");
    let answer = open(page("2S"), None).await.expect("a stream");
    let answer = talk::told(answer).await.expect("a whole page");
    assert_eq!(answer.http, 200);
    assert!(answer.body.starts_with(b"{\"core_complete\":true"), "{:?}", answer.body);
    assert!(!driver.is_finished());
    suite.finish().await;
}
