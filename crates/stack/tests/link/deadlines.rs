//! Deadlines: one budget covers connecting, head and body; it leaves as one header; without budget nothing leaves.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use base::{Deadline, Nanos, timeout};
use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use stack::{CallBudget, LocalFailure};
use tokio::sync::{Notify, mpsc};
use tonic::Code;
use wire::profile::v1::{GetProfileRequest, profile_service_client::ProfileServiceClient};

use crate::support::{
    CONFIG, Peer, Rig, Route, ask, begin, finish, grpc_head, message, reply, request, soon,
};

const OK: i32 = Code::Ok as i32;
const DEADLINE: i32 = Code::DeadlineExceeded as i32;

/// A peer that answers at once and passes on the `grpc-timeout` headers that it was sent.
fn timeouts() -> (Peer, mpsc::Receiver<Vec<Bytes>>) {
    let (tx, rx) = mpsc::channel(16);
    let peer = Peer::new(move |request: Request<h2::RecvStream>, respond| {
        let tx = tx.clone();
        async move {
            let values = request.headers().get_all("grpc-timeout").iter();
            let values = values.map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
            tx.send(values).await.expect("the test listens");
            reply(respond, b"answer");
        }
    });
    (peer, rx)
}

#[tokio::test(start_paused = true)]
async fn what_remains_less_the_reserve_leaves_as_exactly_one_header() {
    let (peer, mut seen) = timeouts();
    let rig = Rig::new(peer.route());
    let budget = CallBudget { reserve: Nanos::from_millis(20), ..rig.within(Nanos::from_millis(300)) };
    let mut call = request("/test.Service/Call", Some(budget));
    call.headers_mut().append("grpc-timeout", "99S".parse().expect("a value"));
    call.headers_mut().append("grpc-timeout", "bogus".parse().expect("a value"));
    let answer = ask(&rig.link, call).await;
    assert_eq!((answer.code, &answer.data[..]), (OK, &message(b"answer")[..]));
    let values = soon("the peer to see it", seen.recv()).await.expect("a call");
    assert_eq!(values, ["280000u"], "paused time: nothing was spent on the way");
    // Queueing before the call counts: the header holds what remains when it is sent.
    tokio::time::advance(std::time::Duration::from_millis(100)).await;
    assert_eq!(ask(&rig.link, request("/test.Service/Call", Some(budget))).await.code, OK);
    assert_eq!(soon("the second call", seen.recv()).await.expect("a call"), ["180000u"]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_budget_gets_the_default_and_is_never_unlimited() {
    let (peer, mut seen) = timeouts();
    let rig = Rig::new(peer.route());
    assert_eq!(ask(&rig.link, request("/test.Service/Call", None)).await.code, OK);
    assert_eq!(soon("the call", seen.recv()).await.expect("a call"), ["1000000u"]);
    rig.end().await;
}

/// A03: the end of time neither wraps nor panics, and no time at all is not "no limit".
#[tokio::test(start_paused = true)]
async fn extreme_deadlines_are_legal_and_no_budget_sends_nothing() {
    let (peer, mut seen) = timeouts();
    let rig = Rig::new(peer.route());
    for (deadline, reserve) in [
        (Deadline::at(Nanos::ZERO), Nanos::ZERO),
        (rig.within(Nanos::ZERO).deadline, Nanos::ZERO),
        (rig.within(Nanos::from_millis(5)).deadline, Nanos::from_millis(5)),
        (rig.within(Nanos::from_millis(5)).deadline, Nanos::MAX),
        (Deadline::at(Nanos::MAX), Nanos::MAX),
    ] {
        let answer =
            ask(&rig.link, request("/test.Service/Call", Some(CallBudget { deadline, reserve }))).await;
        assert_eq!((answer.code, answer.failure), (DEADLINE, Some(LocalFailure::NoBudget)), "{deadline:?}");
    }
    assert_eq!(rig.net.dials(), 0, "nothing was even dialled");
    let endless = CallBudget { deadline: Deadline::at(Nanos::MAX), reserve: Nanos::ZERO };
    assert_eq!(ask(&rig.link, request("/test.Service/Call", Some(endless))).await.code, OK);
    let sent = soon("the call", seen.recv()).await.expect("a call");
    assert_eq!(sent.len(), 1);
    assert!(timeout::parse(&sent[0]).expect("legal") > Nanos::from_secs(1_000_000_000));
    // Time stands still here, so one nanosecond is enough, and must not be rounded to none.
    let smallest = rig.within(Nanos::new(1));
    assert_eq!(ask(&rig.link, request("/test.Service/Call", Some(smallest))).await.code, OK);
    assert_eq!(soon("the call", seen.recv()).await.expect("a call"), ["1n"]);
    assert_eq!(rig.link.stats().failures(LocalFailure::NoBudget), 5);
    rig.end().await;
}

/// A01: a caller's deadline that passes is DEADLINE_EXCEEDED and never CANCELLED, also through a generated client.
#[tokio::test(start_paused = true)]
async fn a_slow_handler_ends_as_deadline_exceeded_in_a_generated_client() {
    let reset = Arc::new(Notify::new());
    let seen = Arc::clone(&reset);
    let peer = Peer::new(move |_request, mut respond| {
        let seen = Arc::clone(&seen);
        async move {
            let reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            assert_eq!(reason.expect("a reset"), Reason::CANCEL);
            seen.notify_one();
        }
    });
    let rig = Rig::new(peer.route());
    let mut client = ProfileServiceClient::new(rig.link.clone());
    let mut call = tonic::Request::new(GetProfileRequest { response_schema: 1 });
    call.extensions_mut().insert(rig.within(Nanos::from_millis(100)));
    let began = tokio::time::Instant::now();
    let status = soon("the deadline", client.get_profile(call)).await.expect_err("nobody answers");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.metadata().get(stack::LOCAL_FAILURE_HEADER).expect("made here"), "deadline");
    let elapsed = began.elapsed().as_millis();
    assert!((100..=102).contains(&elapsed), "cut after {elapsed} ms");
    soon("the peer to be told", reset.notified()).await;
    drop(client);
    rig.end().await;
}

/// A31: a head and then nothing; and one byte at a time, each well within any per-frame timer.
#[tokio::test(start_paused = true)]
async fn the_deadline_covers_the_body_to_its_last_byte() {
    for trickles in [false, true] {
        let (tx, mut ended) = mpsc::channel(1);
        let peer = Peer::new(move |_request, mut respond: h2::server::SendResponse<Bytes>| {
            let tx = tx.clone();
            async move {
                let mut stream = respond.send_response(grpc_head(), false).expect("a head");
                if trickles {
                    while stream.send_data(Bytes::from_static(b"\0"), false).is_ok() {
                        tokio::time::sleep(std::time::Duration::from_millis(9)).await;
                    }
                }
                let reason = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
                tx.send(reason.expect("a reset")).await.expect("the test listens");
            }
        });
        let rig = Rig::new(peer.route());
        let began = tokio::time::Instant::now();
        let response = begin(&rig.link, request("/x", Some(rig.within(Nanos::from_millis(100))))).await;
        assert!(began.elapsed().as_millis() < 5, "the head is there at once");
        assert_eq!(rig.link.stats().in_flight(), 1, "the body is part of the call");
        let answer = finish(response).await;
        assert_eq!((answer.code, answer.failure), (DEADLINE, Some(LocalFailure::Deadline)));
        assert_eq!(answer.data.is_empty(), !trickles);
        let elapsed = began.elapsed().as_millis();
        assert!((100..=102).contains(&elapsed), "trickles: {trickles}; cut after {elapsed} ms");
        assert_eq!(soon("the peer to be told", ended.recv()).await, Some(Reason::CANCEL));
        assert_eq!(rig.link.stats().failures(LocalFailure::Deadline), 1);
        rig.end().await;
    }
}

/// A stream whose deadline is the end of time is cut by nothing, least of all by the default.
#[tokio::test(start_paused = true)]
async fn an_endless_stream_outlives_the_default() {
    const MESSAGES: usize = 100;
    let peer = Peer::new(|_request, mut respond: h2::server::SendResponse<Bytes>| async move {
        let mut stream = respond.send_response(grpc_head(), false).expect("a head");
        for _ in 0..MESSAGES {
            tokio::time::sleep(CONFIG.default_timeout.into()).await;
            stream.send_data(message(b"beat"), false).expect("the stream is open");
        }
        stream.send_trailers(crate::support::trailers(&[("grpc-status", "0")])).expect("open to its end");
    });
    let rig = Rig::new(peer.route());
    let endless = CallBudget { deadline: Deadline::at(Nanos::MAX), reserve: Nanos::ZERO };
    let answer = ask(&rig.link, request("/x", Some(endless))).await;
    assert_eq!((answer.code, answer.failure), (OK, None));
    assert_eq!(answer.data.len(), MESSAGES * message(b"beat").len());
    rig.end().await;
}

/// A body that is read only after the deadline is late, even if all of it has been there for long.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_read_after_the_deadline_is_late() {
    let (peer, _seen) = timeouts();
    let rig = Rig::new(peer.route());
    let response = begin(&rig.link, request("/x", Some(rig.within(Nanos::from_millis(100))))).await;
    tokio::time::advance(std::time::Duration::from_millis(100)).await;
    let answer = finish(response).await;
    assert_eq!((answer.code, answer.data.len()), (DEADLINE, 0));
    rig.end().await;
}

/// An answer that was there before the deadline and is only looked at after it is late as well, a bare status included.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_noticed_after_the_deadline_is_late() {
    let (tx, mut answered) = mpsc::channel(1);
    let peer = Peer::new(move |_request, mut respond: h2::server::SendResponse<Bytes>| {
        let tx = tx.clone();
        async move {
            let mut head = grpc_head();
            head.headers_mut().insert("grpc-status", "5".parse().expect("a value"));
            respond.send_response(head, true).expect("a head");
            tx.send(()).await.expect("the test listens");
        }
    });
    let rig = Rig::new(peer.route());
    assert_eq!(rig.ask(Nanos::from_millis(100)).await.code, Code::NotFound as i32);
    answered.recv().await.expect("the first call");
    // Whether timer or answer is looked at first must not be left to chance.
    for _ in 0..20 {
        let mut call = Box::pin(rig.ask(Nanos::from_millis(100)));
        let waker = std::task::Waker::noop();
        assert!(call.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        answered.recv().await.expect("a call");
        tokio::time::advance(std::time::Duration::from_millis(101)).await;
        let answer = call.await;
        assert_eq!((answer.code, answer.failure), (DEADLINE, Some(LocalFailure::Deadline)));
    }
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_connecting() {
    let rig = Rig::new(Route::Nowhere);
    let began = tokio::time::Instant::now();
    let answer = rig.ask(Nanos::from_millis(50)).await;
    assert_eq!((answer.code, answer.failure), (DEADLINE, Some(LocalFailure::Deadline)));
    assert!((50..=52).contains(&began.elapsed().as_millis()));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_connection_is_told_apart_from_service() {
    let (peer, mut seen) = timeouts();
    let rig = Rig::new(Route::Nowhere);
    let first = rig.ask(Nanos::from_millis(900));
    let second = async {
        rig.net.dialled(1).await;
        rig.net.route(peer.route());
    };
    // The first attempt leads nowhere and times out; the caller's next one finds the peer.
    let (lost, ()) = tokio::join!(first, second);
    assert_eq!((lost.code, lost.failure), (Code::Unavailable as i32, Some(LocalFailure::Unreachable)));
    tokio::time::advance(std::time::Duration::from_millis(20)).await;
    let found = rig.ask(Nanos::from_millis(900)).await;
    assert_eq!(found.code, OK);
    let cold = found.timing.expect("timing");
    assert_eq!(cold.acquire, Nanos::ZERO, "an in-memory connection takes no time");
    assert_eq!(cold.sent_at, rig.world.clock.now());
    assert_eq!(soon("the call", seen.recv()).await.expect("a call"), ["900000u"]);
    rig.end().await;
}

/// The peer cuts a call at its own deadline by a bare RST CANCEL. Before our deadline that is CANCELLED, after it the
/// deadline, whichever of the two is noticed first.
#[tokio::test(start_paused = true)]
async fn cancelled_by_the_peer_is_cancelled_only_before_the_own_deadline() {
    for (cut_after_ms, code) in [(50, Code::Cancelled as i32), (100, DEADLINE), (150, DEADLINE)] {
        for head_first in [false, true] {
            let peer = Peer::new(move |_request, mut respond: h2::server::SendResponse<Bytes>| async move {
                let stream = head_first.then(|| respond.send_response(grpc_head(), false).expect("a head"));
                tokio::time::sleep(std::time::Duration::from_millis(cut_after_ms)).await;
                match stream {
                    Some(mut stream) => stream.send_reset(Reason::CANCEL),
                    None => respond.send_reset(Reason::CANCEL),
                }
            });
            let rig = Rig::new(peer.route());
            let answer = rig.ask(Nanos::from_millis(100)).await;
            assert_eq!(answer.code, code, "cut after {cut_after_ms} ms, head first: {head_first}");
            rig.end().await;
        }
    }
}

/// The budget spans both attempts of a call that is sent twice, and the second header says so.
#[tokio::test(start_paused = true)]
async fn a_replayed_call_keeps_its_deadline() {
    let (tx, mut seen) = mpsc::channel(4);
    let calls = Arc::new(AtomicUsize::new(0));
    let peer = Peer::new(move |request: Request<h2::RecvStream>, mut respond| {
        let (tx, first) = (tx.clone(), calls.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            tx.send(request.headers()["grpc-timeout"].clone()).await.expect("the test listens");
            if first {
                tokio::time::sleep(std::time::Duration::from_millis(40)).await;
                respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                reply(respond, b"answer");
            }
        }
    });
    let rig = Rig::new(peer.route());
    let answer = rig.ask(Nanos::from_millis(100)).await;
    assert_eq!((answer.code, answer.failure), (OK, None));
    assert_eq!(seen.recv().await.expect("first"), "100000u");
    let second = timeout::parse(seen.recv().await.expect("second").as_bytes()).expect("legal");
    assert!((Nanos::from_millis(58)..=Nanos::from_millis(60)).contains(&second), "{second}");
    assert_eq!(rig.link.stats().replays(), 1);
    assert!(answer.timing.expect("timing").acquire >= Nanos::from_millis(40));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_response_head_is_passed_on_untouched_otherwise() {
    let peer = Peer::new(|_request, mut respond: h2::server::SendResponse<Bytes>| async move {
        let head = Response::builder()
            .header("content-type", "application/grpc+proto")
            .header("x-served-by", "peer")
            .body(())
            .expect("a head");
        let mut stream = respond.send_response(head, false).expect("a head");
        let _ = stream.send_data(message(b"one"), false);
        let _ = stream.send_trailers(crate::support::trailers(&[("grpc-status", "0"), ("x-cost", "3")]));
    });
    let rig = Rig::new(peer.route());
    let response = begin(&rig.link, request("/x", None)).await;
    assert_eq!(response.headers()["x-served-by"], "peer");
    let answer = finish(response).await;
    assert_eq!(
        (answer.http.as_u16(), answer.code, &answer.metadata["x-cost"]),
        (200, OK, &"3".parse().expect("3"))
    );
    assert!(u64::from(CONFIG.calls_max) > rig.link.stats().in_flight_peak());
    rig.end().await;
}
