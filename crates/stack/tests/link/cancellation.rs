//! Cancellation: dropping is how a call is cancelled; the peer learns of it, and no other call suffers.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base::Nanos;
use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use stack::{LinkConfig, LocalFailure};
use tokio::{io::DuplexStream, sync::mpsc};
use tonic::Code;
use tower_service::Service as _;

use crate::{
    frames::{self, Frames},
    support::{
        Accept, Answer, CONFIG, Peer, Rig, Route, ask, begin, finish, grpc_head, message, outside, reply,
        request, soon, trailers,
    },
};

/// A peer that never finishes a call, and passes on the reset that it got instead.
fn endless(head_first: bool) -> (Peer, mpsc::Receiver<()>, mpsc::Receiver<Reason>) {
    let (arrived_tx, arrived) = mpsc::channel(8);
    let (reset_tx, reset) = mpsc::channel(8);
    let peer = Peer::new(move |_request, mut respond: SendResponse<Bytes>| {
        let (arrived, reset) = (arrived_tx.clone(), reset_tx.clone());
        async move {
            let stream = head_first.then(|| respond.send_response(grpc_head(), false).expect("a head"));
            arrived.send(()).await.expect("the test listens");
            let reason = match stream {
                Some(mut stream) => std::future::poll_fn(|cx| stream.poll_reset(cx)).await,
                None => std::future::poll_fn(|cx| respond.poll_reset(cx)).await,
            };
            reset.send(reason.expect("a reset")).await.expect("the test listens");
        }
    });
    (peer, arrived, reset)
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_cancelled_at_the_peer() {
    let (peer, mut arrived, mut reset) = endless(false);
    let rig = Rig::new(peer.route());
    let call = rig.ask(Nanos::from_secs(9));
    tokio::select! {
        biased; // The call first, or it would never be sent.
        answer = call => panic!("nobody answers: {answer:?}"),
        _ = arrived.recv() => {}
    }
    assert_eq!(soon("the peer to be told", reset.recv()).await, Some(Reason::CANCEL));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_body_is_cancelled_at_the_peer() {
    let (peer, mut arrived, mut reset) = endless(true);
    let rig = Rig::new(peer.route());
    let response = begin(&rig.link, request("/x", Some(rig.within(Nanos::from_secs(9))))).await;
    arrived.recv().await.expect("a call");
    assert_eq!(rig.link.stats().in_flight(), 1);
    drop(response);
    assert_eq!(soon("the peer to be told", reset.recv()).await, Some(Reason::CANCEL));
    rig.end().await;
}

/// A call that must not notice what happens to others.
async fn innocent(rig: &Rig) {
    let mut call = request("/test.Service/Innocent", Some(rig.within(Nanos::from_secs(1))));
    *call.body_mut() = http_body_util::Full::new(message(b"innocent"));
    let Answer { code, failure, data, message: text, .. } = ask(&rig.link, call).await;
    assert_eq!((code, failure, &data[..]), (0, None, &message(b"answer")[..]), "{text}");
}

/// A09, and its kind: every frame of an answer that arrives after its call was cancelled counts against something for
/// as long as the connection lives. The peer here answers each cancelled call once it has seen the cancellation, in the
/// smallest of DATA frames, and the calls in between must not notice.
async fn late_answers(config: LinkConfig, calls: usize) {
    const BATCH: usize = 50;
    let (told_tx, mut told) = mpsc::channel(BATCH);
    let (goodbye_tx, mut goodbye) = mpsc::channel(1);
    let accept: Accept = Arc::new(move |io: DuplexStream| {
        let (told, goodbye) = (told_tx.clone(), goodbye_tx.clone());
        outside(async move {
            let mut frames = Frames::accept(io).await.expect("a preface");
            while let Some(frame) = frames.next().await {
                match frame.kind {
                    // An innocent call asks for an answer by a body of its own.
                    frames::DATA if frame.payload.ends_with(b"innocent") => {
                        frames.write_answer(frame.stream, &message(b"answer"));
                    }
                    // Not the reset by which a client answers frames for a stream that it has forgotten.
                    frames::RST_STREAM if frame.payload == frames::CANCEL => {
                        frames.write_answer(frame.stream, b"\0");
                        told.send(()).await.expect("the test listens");
                    }
                    frames::GOAWAY => {
                        goodbye.send(frame.payload[4..8] == [0; 4]).await.expect("the test listens");
                    }
                    _ => {}
                }
                frames.flush().await.expect("the link reads");
            }
        });
    });
    let rig = Rig::with(config, Route::To(accept));
    innocent(&rig).await;
    for _ in 0..calls / BATCH {
        let doomed: Vec<_> = (0..BATCH)
            .map(|_| {
                let budget = rig.within(Nanos::from_secs(9));
                let mut link = rig.link.clone();
                let mut call = link.call(request("/test.Service/Doomed", Some(budget)));
                // One poll sends it; after that it is dropped with the others.
                let polled =
                    call.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
                (call, polled.is_ready())
            })
            .collect();
        innocent(&rig).await;
        assert!(doomed.iter().all(|(_, answered)| !answered));
        drop(doomed);
        for _ in 0..BATCH {
            soon("the peer to be told", told.recv()).await.expect("a reset");
        }
    }
    let stats = rig.link.stats();
    assert_eq!((rig.net.dials(), stats.disconnects(), stats.replays()), (1, 0, 0), "one connection for all");
    assert_eq!(LocalFailure::ALL.map(|failure| stats.failures(failure)).iter().sum::<u64>(), 0);
    rig.end().await;
    assert_eq!(soon("the goodbye", goodbye.recv()).await, Some(true), "a GOAWAY that blames nobody");
}

#[tokio::test(start_paused = true)]
async fn late_answers_to_cancelled_calls_do_not_poison_the_connection() {
    late_answers(LinkConfig { reset_streams_max: 10_000, ..CONFIG }, 6_000).await;
}

/// The same when the streams have been forgotten by the time their answers come.
#[tokio::test(start_paused = true)]
async fn late_answers_to_forgotten_calls_do_not_poison_the_connection() {
    late_answers(LinkConfig { reset_streams_max: 1, ..CONFIG }, 6_000).await;
}

/// The storm of A09 as it happens: thousands of calls run into their deadline just before the answer.
#[tokio::test(start_paused = true)]
async fn a_storm_of_expiring_calls_harms_no_patient_one() {
    let peer = Peer::new(|request: Request<RecvStream>, respond| async move {
        if request.uri().path().ends_with("Slow") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        reply(respond, b"answer");
    });
    let rig = Rig::new(peer.route());
    let (mut late, mut answered) = (0, 0);
    for _ in 0..50 {
        let storm = (0..100).map(|_| {
            let budget = rig.within(Nanos::from_millis(5));
            ask(&rig.link, request("/test.Service/Slow", Some(budget)))
        });
        let mut storm: Vec<_> = storm.map(Box::pin).collect();
        let patient = rig.ask(Nanos::from_secs(1));
        let (patient, ()) = tokio::join!(patient, async {
            for call in &mut storm {
                match call.await.code {
                    0 => answered += 1,
                    code => {
                        assert_eq!(code, Code::DeadlineExceeded as i32);
                        late += 1;
                    }
                }
            }
        });
        assert_eq!((patient.code, patient.failure), (0, None));
    }
    assert_eq!(late + answered, 5_000);
    assert!(late > 0, "the storm was one");
    assert_eq!((rig.net.dials(), rig.link.stats().disconnects()), (1, 0));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn calls_are_refused_at_one_above_the_bound_and_places_come_back() {
    for peers in [false, true] {
        let (config, streams_max) =
            if peers { (CONFIG, 3) } else { (LinkConfig { calls_max: 3, ..CONFIG }, 1_000) };
        let arrivals = Arc::new(AtomicUsize::new(0));
        let (tx, mut arrived) = mpsc::channel(8);
        let count = Arc::clone(&arrivals);
        let peer = Peer::limited(streams_max, move |request: Request<RecvStream>, mut respond| {
            let (tx, count) = (tx.clone(), Arc::clone(&count));
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                if request.uri().path() == "/held" {
                    tx.send(()).await.expect("the test listens");
                    let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                } else {
                    reply(respond, b"answer");
                }
            }
        });
        let rig = Rig::with(config, peer.route());
        assert_eq!(rig.ask(Nanos::from_secs(1)).await.code, 0, "the peer's settings have come");
        let mut held: Vec<_> = (0..3)
            .map(|_| Box::pin(ask(&rig.link, request("/held", Some(rig.within(Nanos::from_secs(20)))))))
            .collect();
        let mut fourth = Box::pin(async {
            for _ in 0..3 {
                arrived.recv().await.expect("a held call");
            }
            rig.ask(Nanos::from_secs(1)).await
        });
        let refused = std::future::poll_fn(|cx| {
            for call in &mut held {
                assert!(call.as_mut().poll(cx).is_pending());
            }
            fourth.as_mut().poll(cx)
        })
        .await;
        assert_eq!(
            (refused.code, refused.failure),
            (Code::ResourceExhausted as i32, Some(LocalFailure::Saturated)),
            "by the peer: {peers}"
        );
        assert_eq!(arrivals.load(Ordering::SeqCst), 4, "the refused call was not sent");
        // Two leave and two come before the connection has noticed either.
        held.truncate(1);
        drop(fourth);
        let (one, other) = tokio::join!(rig.ask(Nanos::from_secs(1)), rig.ask(Nanos::from_secs(1)));
        assert_eq!((one.code, other.code), (0, 0), "the places are back: {one:?} {other:?}");
        drop(held);
        rig.end().await;
    }
}

/// A body that comes in pieces, and what a test does with it.
fn pieces(
    receiver: mpsc::Receiver<Result<Bytes, &'static str>>,
) -> impl http_body::Body<Data = Bytes, Error = &'static str> + Send + Unpin + 'static {
    StreamBody::new(Pieces(receiver))
}

struct Pieces(mpsc::Receiver<Result<Bytes, &'static str>>);

impl futures_core::Stream for Pieces {
    type Item = Result<http_body::Frame<Bytes>, &'static str>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(http_body::Frame::data)))
    }
}

/// Reads a request to its end: how many bytes, and whether it ended or was reset.
async fn drain(mut body: RecvStream) -> (usize, Option<Reason>) {
    let mut total = 0;
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                total += data.len();
                let _ = body.flow_control().release_capacity(data.len());
            }
            Err(error) => return (total, error.reason()),
        }
    }
    (total, None)
}

/// A streaming request larger than any window arrives whole.
#[tokio::test(start_paused = true)]
async fn a_streaming_request_goes_out_as_the_windows_allow() {
    const PIECES: usize = 200;
    const PIECE_BYTES: usize = 10_000;
    let (tx, mut seen) = mpsc::channel(1);
    let peer = Peer::new(move |request: Request<RecvStream>, respond| {
        let tx = tx.clone();
        async move {
            tx.send(drain(request.into_body()).await).await.expect("the test listens");
            reply(respond, b"answer");
        }
    });
    let rig = Rig::new(peer.route());
    let (sender, receiver) = mpsc::channel(1);
    outside(async move {
        for _ in 0..PIECES {
            sender.send(Ok(Bytes::from(vec![7; PIECE_BYTES]))).await.expect("the link reads");
        }
    });
    let call = request("/x", Some(rig.within(Nanos::from_secs(1)))).map(|_| pieces(receiver));
    let Ok(response) = soon("a head", rig.link.clone().call(call)).await;
    assert_eq!(finish(response).await.code, 0);
    assert_eq!(seen.recv().await, Some((PIECES * PIECE_BYTES, None)));
    rig.end().await;
}

/// A response larger than any window is read whole: what was read makes room for more.
#[tokio::test(start_paused = true)]
async fn a_streaming_response_comes_in_as_it_is_read() {
    const MESSAGES: usize = 100;
    const MESSAGE_BYTES: usize = 50_000;
    let peer = Peer::new(|_request, mut respond: SendResponse<Bytes>| async move {
        let mut stream = respond.send_response(grpc_head(), false).expect("a head");
        for _ in 0..MESSAGES {
            stream.send_data(message(&[7; MESSAGE_BYTES]), false).expect("data");
        }
        stream.send_trailers(trailers(&[("grpc-status", "0")])).expect("end");
    });
    let rig = Rig::new(peer.route());
    let answer = rig.ask(Nanos::from_secs(1)).await;
    assert_eq!((answer.code, answer.failure), (0, None));
    assert_eq!(answer.data.len(), MESSAGES * (5 + MESSAGE_BYTES));
    rig.end().await;
}

/// A29, from the sending side: a request that failed half-way cannot be taken for a whole one.
#[tokio::test(start_paused = true)]
async fn a_request_body_that_fails_resets_the_stream() {
    for head_first in [false, true] {
        let (tx, mut seen) = mpsc::channel(1);
        let peer = Peer::new(move |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let tx = tx.clone();
            async move {
                let _stream = head_first.then(|| respond.send_response(grpc_head(), false).expect("a head"));
                tx.send(drain(request.into_body()).await).await.expect("the test listens");
            }
        });
        let rig = Rig::new(peer.route());
        let (sender, receiver) = mpsc::channel(1);
        outside(async move {
            for _ in 0..3 {
                sender.send(Ok(message(b"item"))).await.expect("the link reads");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            sender.send(Err("disk gone")).await.expect("the link reads");
        });
        let call = request("/x", Some(rig.within(Nanos::from_secs(1)))).map(|_| pieces(receiver));
        let Ok(response) = soon("a head", rig.link.clone().call(call)).await;
        let answer = finish(response).await;
        assert_eq!((answer.code, answer.failure), (Code::Internal as i32, Some(LocalFailure::RequestBody)));
        assert!(answer.message.contains("disk gone"));
        assert_eq!(seen.recv().await, Some((27, Some(Reason::CANCEL))), "head first: {head_first}");
        rig.end().await;
    }
}

/// A peer that has answered and wants no more of the request (trailers, then RST NO_ERROR) has answered.
#[tokio::test(start_paused = true)]
async fn an_early_answer_ends_a_streaming_request() {
    let peer = Peer::new(|request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
        let mut stream = respond.send_response(grpc_head(), false).expect("a head");
        stream.send_data(message(b"enough"), false).expect("data");
        stream.send_trailers(trailers(&[("grpc-status", "0")])).expect("end");
        drop(request);
    });
    let rig = Rig::new(peer.route());
    let (sender, receiver) = mpsc::channel::<Result<Bytes, &'static str>>(1);
    let call = request("/x", Some(rig.within(Nanos::from_secs(1)))).map(|_| pieces(receiver));
    let Ok(response) = soon("a head", rig.link.clone().call(call)).await;
    let answer = finish(response).await;
    assert_eq!((answer.code, answer.failure, &answer.data[..]), (0, None, &message(b"enough")[..]));
    soon("the request body to be dropped", sender.closed()).await;
    rig.end().await;
}

/// Requests and responses of a bidirectional call take turns over one call.
#[tokio::test(start_paused = true)]
async fn a_bidirectional_call_moves_while_its_response_is_read() {
    let peer = Peer::new(|request: Request<RecvStream>, mut respond: SendResponse<Bytes>| async move {
        let mut stream = respond.send_response(grpc_head(), false).expect("a head");
        let mut body = request.into_body();
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
            stream.send_data(data, false).expect("data");
        }
        stream.send_trailers(trailers(&[("grpc-status", "0")])).expect("end");
    });
    let rig = Rig::new(peer.route());
    let (sender, receiver) = mpsc::channel(1);
    let call = request("/x", Some(rig.within(Nanos::from_secs(1)))).map(|_| pieces(receiver));
    let Ok(response) = soon("a head", rig.link.clone().call(call)).await;
    let mut body = response.into_body();
    for round in 0..5_u8 {
        sender.send(Ok(message(&[round]))).await.expect("the link reads");
        let Ok::<_, Infallible>(frame) = soon("an echo", body.frame()).await.expect("a frame");
        assert_eq!(frame.into_data().expect("data"), message(&[round]));
    }
    drop(sender);
    let Ok(frame) = soon("the end", body.frame()).await.expect("a frame");
    assert_eq!(frame.into_trailers().expect("trailers")["grpc-status"], "0");
    drop(body);
    rig.end().await;
}
