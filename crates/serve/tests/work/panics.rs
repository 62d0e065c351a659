//! Panics: a handler that panics is answered for as a fault of our own, on both faces, and harms nobody else.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use serve::{Arrival, exchange::Port, supervisor::Supervisor};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::{Status, body::Body};

use crate::{
    connections::{Client, Open},
    rig::{Costly, Rig, grpc, ms},
};

/// Panics when it is read.
struct Broken;

impl http_body::Body for Broken {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        panic!("expected by the test")
    }
}

/// A port whose first call panics, in its handler or in its body, and whose further calls are answered.
fn port(rig: &Rig, in_body: bool) -> Port {
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let router = axum::Router::new().fallback(move || async move {
        assert!(counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0, "expected by the test");
        "fine"
    });
    let clock = Arc::clone(&rig.clock);
    rig.port(router, move |request: Request<Body>| {
        let work = request.extensions().get::<Arrival>().expect("by the shell").work();
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let costly = Costly { clock: Arc::clone(&clock), cost: ms(9) };
        async move {
            let _kept = (work, costly);
            assert!(!first || in_body, "expected by the test");
            if first { grpc(Broken) } else { answered() }
        }
    })
}

fn answered() -> Response<Body> {
    let mut response = grpc(Broken).map(|_broken| Body::empty());
    response.headers_mut().insert(Status::GRPC_STATUS, http::HeaderValue::from_static("0"));
    response
}

/// One request failed, by a panic; one was answered; and nothing was late, though the first handler took its time to be
/// dropped, since its caller waited for the answer.
async fn settled(rig: &Rig, supervisor: &Supervisor) {
    rig.lifecycle.cut();
    supervisor.idle().await;
    let books = rig.books();
    assert_eq!((books.finished("internal"), books.finished("ok")), (1, 1), "{}", books.text);
    assert_eq!((books.total("mercury_handler_panics_total"), books.work()), (1, [0; 4]));
    assert_eq!((supervisor.counts().panicked, rig.lifecycle.open_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_grpc_caller_is_told_internal_and_the_connection_goes_on() {
    for in_body in [false, true] {
        let rig = Rig::new();
        let Open { supervisor, pipe } = Open::new(port(&rig, in_body));
        let client = Client::open(pipe, 65_535).await;
        let (response, _upload) = client.call(500).await;
        if in_body {
            // The head has not left yet, and need not.
            assert_eq!(response.await.expect_err("reset").reason(), Some(h2::Reason::INTERNAL_ERROR));
        } else {
            let response = response.await.expect("a head");
            assert_eq!(response.headers()["grpc-status"], "13");
            assert_eq!(response.headers()["x-mercury-reason"], "internal");
        }
        let (response, _upload) = client.call(500).await;
        assert_eq!(response.await.expect("the connection goes on").headers()["grpc-status"], "0");
        settled(&rig, &supervisor).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_caller_is_told_500_and_the_connection_goes_on() {
    let rig = Rig::new();
    let Open { supervisor, mut pipe } = Open::new(port(&rig, false));
    for expected in ["HTTP/1.1 500", "HTTP/1.1 200"] {
        pipe.write_all(b"GET /page HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("written");
        let mut answer = Vec::new();
        while !answer.ends_with(b"}\n") && !answer.ends_with(b"fine") {
            let more = pipe.read_buf(&mut answer).await.expect("open");
            assert!(more > 0, "the connection has ended: {}", String::from_utf8_lossy(&answer));
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "{answer}");
    }
    settled(&rig, &supervisor).await;
}
