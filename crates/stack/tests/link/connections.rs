//! Connections: made when needed, shared, replaced when lost, and never dialled in a storm.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base::Nanos;
use h2::{RecvStream, server::SendResponse};
use http::Request;
use stack::{InvalidAuthority, Link, LinkConfig, LocalFailure};
use tokio::{io::DuplexStream, sync::mpsc};
use tonic::Code;

use crate::{
    frames::{self, Frames},
    support::{
        Accept, CONFIG, Order, Peer, Rig, Route, Tasks, ask, finish, message, outside, reply, request, world,
    },
};

const UNAVAILABLE: i32 = Code::Unavailable as i32;
const SECOND: Nanos = Nanos::from_secs(1);

fn answering() -> Peer {
    Peer::new(|_request, respond| async move { reply(respond, b"answer") })
}

#[tokio::test(start_paused = true)]
async fn nothing_is_dialled_before_the_first_call_and_calls_share_one_attempt() {
    let peer = answering();
    let rig = Rig::new(Route::After(Duration::from_millis(50), peer.accept.clone()));
    assert_eq!((rig.net.dials(), rig.tasks.started("link:test")), (0, 0));
    let mut calls: Vec<_> = (0..20).map(|_| Box::pin(rig.ask(SECOND))).collect();
    for answer in futures_join(&mut calls).await {
        assert_eq!((answer.code, answer.failure), (0, None));
        let acquire = answer.timing.expect("timing").acquire.as_millis();
        assert!((50..=52).contains(&acquire), "waited {acquire} ms for the connection");
    }
    drop(calls);
    assert_eq!((rig.net.dials(), rig.tasks.started("link:test")), (1, 1));
    assert_eq!(rig.ask(SECOND).await.timing.expect("timing").acquire, Nanos::ZERO);
    rig.end().await;
}

/// Polls all of them together.
async fn futures_join<F: Future + Unpin>(futures: &mut [F]) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = std::pin::Pin::new(future).poll(cx)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// The attempt belongs to the link: it outlives the caller that set it off.
#[tokio::test(start_paused = true)]
async fn an_impatient_caller_does_not_spoil_the_attempt() {
    let peer = answering();
    let rig = Rig::new(Route::After(Duration::from_millis(50), peer.accept.clone()));
    assert_eq!(rig.ask(Nanos::from_millis(10)).await.failure, Some(LocalFailure::Deadline));
    assert_eq!(rig.ask(SECOND).await.code, 0);
    assert_eq!(rig.net.dials(), 1);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_fails_at_once_and_is_retried_once_a_backoff() {
    let rig = Rig::new(Route::Refused);
    let began = tokio::time::Instant::now();
    let mut calls = 0_u64;
    while began.elapsed() < Duration::from_secs(20) {
        let asked = tokio::time::Instant::now();
        let answer = rig.ask(SECOND).await;
        assert_eq!((answer.code, answer.failure), (UNAVAILABLE, Some(LocalFailure::Unreachable)));
        assert!(answer.message.contains("refused"), "{}", answer.message);
        assert!(asked.elapsed() < Duration::from_millis(5));
        calls += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let dials = rig.net.dials();
    // 500 ms less up to half, after a run-up of six shorter waits.
    assert!((40..=90).contains(&dials), "{dials} attempts for {calls} calls in 20 s");
    let stats = rig.link.stats();
    assert_eq!((stats.connect_failures(), stats.connects()), (dials as u64, 0));
    assert_eq!(stats.failures(LocalFailure::Unreachable), calls);
    rig.end().await;
}

/// However long the peer was away, it is found within a second of its return, without any help.
#[tokio::test(start_paused = true)]
async fn recovery_takes_less_than_a_second() {
    let peer = answering();
    let rig = Rig::new(peer.route());
    assert_eq!(rig.ask(SECOND).await.code, 0);
    for outage_s in [1, 7, 60] {
        rig.net.route(Route::Refused);
        peer.order(Order::Vanish);
        rig.tasks.down_to(0).await;
        let gone = tokio::time::Instant::now();
        while gone.elapsed() < Duration::from_secs(outage_s) {
            assert_eq!(rig.ask(SECOND).await.code, UNAVAILABLE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rig.net.route(peer.route());
        let back = tokio::time::Instant::now();
        while rig.ask(SECOND).await.code != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let took = back.elapsed();
        assert!(took <= Duration::from_millis(530), "{took:?} after {outage_s} s");
    }
    rig.end().await;
}

/// A lost connection that had worked is replaced at once: the very next call finds the peer.
#[tokio::test(start_paused = true)]
async fn a_connection_that_dies_while_idle_costs_nobody_anything() {
    let peer = answering();
    let rig = Rig::new(peer.route());
    for round in 1..=3 {
        assert_eq!(rig.ask(SECOND).await.code, 0, "round {round}");
        peer.order(Order::Vanish);
        rig.tasks.down_to(0).await;
    }
    assert_eq!((rig.net.dials(), rig.link.stats().disconnects()), (3, 3));
    rig.end().await;
}

/// A46: packets vanish while connecting.
#[tokio::test(start_paused = true)]
async fn a_black_hole_is_unavailable_at_the_connect_timeout() {
    let rig = Rig::new(Route::Nowhere);
    let began = tokio::time::Instant::now();
    let answer = rig.ask(SECOND).await;
    assert_eq!((answer.code, answer.failure), (UNAVAILABLE, Some(LocalFailure::Unreachable)));
    assert!((200..=202).contains(&began.elapsed().as_millis()));
    rig.end().await;
}

/// A46: packets vanish on a connection that exists. Calls that can wait that long learn it from the keep-alive; and an
/// idle connection is given up before the next call finds out.
#[tokio::test(start_paused = true)]
async fn a_frozen_peer_is_noticed_by_the_keep_alive_busy_or_idle() {
    let bound = CONFIG.keep_alive_interval + CONFIG.keep_alive_timeout + Nanos::from_millis(5);
    for busy in [true, false] {
        let peer = answering();
        let rig = Rig::new(peer.route());
        assert_eq!(rig.ask(SECOND).await.code, 0);
        peer.order(Order::Freeze);
        let frozen = tokio::time::Instant::now();
        if busy {
            let answer = rig.ask(Nanos::from_secs(25)).await;
            assert_eq!((answer.code, answer.failure), (UNAVAILABLE, Some(LocalFailure::ConnectionLost)));
        }
        rig.tasks.down_to(0).await;
        assert!(Nanos::from(frozen.elapsed()) <= bound, "noticed after {:?}", frozen.elapsed());
        let after = rig.ask(SECOND).await;
        assert_eq!((after.code, rig.net.dials()), (0, 2));
        rig.end().await;
    }
}

/// A healthy idle connection is kept for as long as its PINGs are answered.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept() {
    let peer = answering();
    let rig = Rig::new(peer.route());
    assert_eq!(rig.ask(SECOND).await.code, 0);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.ask(SECOND).await.code, 0);
    assert_eq!((rig.net.dials(), rig.link.stats().disconnects()), (1, 0));
    rig.end().await;
}

/// A peer that accepts and hangs up is no better than one that refuses, whether it hangs up at once, after the preface or
/// on the first call.
#[tokio::test(start_paused = true)]
async fn a_peer_that_accepts_and_hangs_up_is_not_dialled_once_a_call() {
    let at_once: Accept = Arc::new(|io: DuplexStream| drop(io));
    let after_preface: Accept = Arc::new(|io: DuplexStream| {
        outside(async move { drop(Frames::accept(io).await) });
    });
    let on_the_first_call: Accept = Arc::new(|io: DuplexStream| {
        outside(async move {
            let mut frames = Frames::accept(io).await.expect("a preface");
            let _ = frames.next().await;
        });
    });
    for accept in [at_once, after_preface, on_the_first_call] {
        let rig = Rig::new(Route::To(accept));
        let began = tokio::time::Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            assert_eq!(rig.ask(SECOND).await.code, UNAVAILABLE);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let dials = rig.net.dials();
        assert!((20..=50).contains(&dials), "{dials} attempts in 10 s");
        rig.end().await;
    }
}

/// GOAWAY: what was accepted finishes on the old connection, what comes after goes over a new one.
#[tokio::test(start_paused = true)]
async fn a_draining_peer_fails_no_call() {
    let (held_tx, mut held) = mpsc::channel::<SendResponse<bytes::Bytes>>(1);
    let peer = Peer::new(move |request: Request<RecvStream>, respond| {
        let held = held_tx.clone();
        async move {
            if request.uri().path() == "/held" {
                held.send(respond).await.expect("the test listens");
            } else {
                reply(respond, b"answer");
            }
        }
    });
    let rig = Rig::new(peer.route());
    assert_eq!(rig.ask(SECOND).await.code, 0);
    let accepted = ask(&rig.link, request("/held", Some(rig.within(SECOND))));
    let drained = async {
        let respond = held.recv().await.expect("the held call");
        peer.order(Order::Graceful);
        for _ in 0..20 {
            assert_eq!(rig.ask(SECOND).await.code, 0, "during the drain");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(rig.net.dials(), 2, "one new connection beside the old one");
        reply(respond, b"late answer");
    };
    let (accepted, ()) = tokio::join!(accepted, drained);
    assert_eq!((accepted.code, &accepted.data[..]), (0, &message(b"late answer")[..]));
    // The end of the old connection says nothing about the new one.
    rig.tasks.down_to(1).await;
    assert_eq!((rig.ask(SECOND).await.code, rig.net.dials(), rig.link.stats().disconnects()), (0, 2, 1));
    rig.end().await;
}

/// A GOAWAY that leaves a call out says that it was not processed, so the call is made once more, over a new connection.
/// A call that it does not leave out may have been processed, and so may one whose connection breaks, or is broken off
/// by us because the peer breaks the protocol: they are not made again.
#[tokio::test(start_paused = true)]
async fn only_a_call_that_was_certainly_not_processed_is_made_again() {
    let left_out: fn(&mut Frames<DuplexStream>) = |frames| frames.write_goaway(1, 0);
    let taken_in: fn(&mut Frames<DuplexStream>) = |frames| frames.write_goaway(3, 0);
    let breaks: fn(&mut Frames<DuplexStream>) = |_| {};
    let nonsense: fn(&mut Frames<DuplexStream>) = |frames| frames.write(frames::DATA, 0, 0, b"no stream");
    for (name, unprocessed, end) in [
        ("left out", true, left_out),
        ("taken in", false, taken_in),
        ("breaks", false, breaks),
        ("nonsense", false, nonsense),
    ] {
        let connections = Arc::new(AtomicUsize::new(0));
        let accept: Accept = Arc::new(move |io: DuplexStream| {
            let first = connections.fetch_add(1, Ordering::SeqCst) == 0;
            outside(async move {
                let mut frames = Frames::accept(io).await.expect("a preface");
                while let Some(frame) = frames.next().await {
                    if frame.kind != frames::DATA {
                        continue;
                    }
                    let ends = first && frame.stream == 3;
                    if ends {
                        end(&mut frames);
                    } else {
                        frames.write_answer(frame.stream, &message(b"answer"));
                    }
                    frames.flush().await.expect("the link reads");
                    if ends {
                        return;
                    }
                }
            });
        });
        let rig = Rig::new(Route::To(accept));
        assert_eq!(rig.ask(SECOND).await.code, 0);
        let answer = rig.ask(SECOND).await;
        let replays = rig.link.stats().replays();
        if unprocessed {
            assert_eq!((answer.code, answer.failure, replays, rig.net.dials()), (0, None, 1, 2), "{name}");
        } else {
            assert_eq!((answer.code, replays), (UNAVAILABLE, 0), "{name}");
            assert_eq!(answer.failure, Some(LocalFailure::ConnectionLost), "{name}");
        }
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_link_finishes_what_it_began_and_begins_nothing() {
    let (held_tx, mut held) = mpsc::channel::<SendResponse<bytes::Bytes>>(1);
    let peer = Peer::new(move |_request, respond| {
        let held = held_tx.clone();
        async move { held.send(respond).await.expect("the test listens") }
    });
    let rig = Rig::new(peer.route());
    let begun = rig.ask(SECOND);
    let closing = async {
        let respond = held.recv().await.expect("a call");
        rig.link.close();
        let refused = rig.ask(SECOND).await;
        assert_eq!((refused.code, refused.failure), (UNAVAILABLE, Some(LocalFailure::Closed)));
        reply(respond, b"answer");
    };
    let (begun, ()) = tokio::join!(begun, closing);
    assert_eq!(begun.code, 0);
    rig.tasks.down_to(0).await;
    rig.end().await;

    let rig = Rig::new(Route::Nowhere);
    let waiting = rig.ask(SECOND);
    let closing = async {
        rig.net.dialled(1).await;
        rig.link.close();
    };
    let (waiting, ()) = tokio::join!(waiting, closing);
    assert_eq!(waiting.failure, Some(LocalFailure::Closed), "a waiter is told");
    rig.end().await;

    // A connection that comes up after the end is not taken.
    let rig = Rig::new(Route::After(Duration::from_millis(50), answering().accept));
    let waiting = rig.ask(SECOND);
    let closing = async {
        rig.net.dialled(1).await;
        rig.link.close();
    };
    let (_, ()) = tokio::join!(waiting, closing);
    rig.tasks.down_to(0).await;
    assert_eq!(rig.ask(SECOND).await.failure, Some(LocalFailure::Closed));
    rig.end().await;
}

/// A supervisor that is shutting down drops new tasks unrun.
#[tokio::test(start_paused = true)]
async fn a_refused_task_fails_the_call_at_once() {
    let peer = answering();
    let rig = Rig::new(peer.route());
    rig.tasks.refuses.store(true, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    let answer = rig.ask(SECOND).await;
    assert_eq!((answer.code, answer.failure), (UNAVAILABLE, Some(LocalFailure::Unreachable)));
    assert!(began.elapsed() < Duration::from_millis(5));
    rig.end().await;
}

#[tokio::test]
async fn an_address_is_host_and_port() {
    let tasks = Arc::<Tasks>::default();
    for bad in ["", "host", ":50051", "host:", "host:99999", "http://host:1", "ho st:1", "host:1/path"] {
        let made = Link::tcp("link:test", bad, CONFIG, world(&tasks));
        assert_eq!(made.err(), Some(InvalidAuthority { address: bad.to_owned() }));
    }
    for good in ["127.0.0.1:1", "[::1]:50051", "pricing:50051"] {
        assert_eq!(Link::tcp("link:test", good, CONFIG, world(&tasks)).expect(good).address(), good);
    }
}

#[tokio::test(start_paused = true)]
async fn new_bounds_come_with_a_new_connection_before_the_old_one_goes() {
    let release = Arc::new(tokio::sync::Notify::new());
    let held = Arc::clone(&release);
    let peer = Peer::new(move |request: Request<RecvStream>, respond| {
        let held = Arc::clone(&held);
        async move {
            if request.uri().path().ends_with("Hold") {
                held.notified().await;
            }
            reply(respond, b"answer");
        }
    });
    let rig = Rig::new(peer.route());
    assert_eq!(rig.ask(SECOND).await.code, 0);
    // A call is sent when it is made, whether or not anybody looks at it.
    let held = Some(rig.within(Nanos::from_secs(9)));
    let old = tower_service::Service::call(&mut rig.link.clone(), request("/test.Service/Hold", held));
    let config = LinkConfig { calls_max: 2, ..CONFIG };
    rig.link.reconfigure(config).await;
    assert_eq!((rig.net.dials(), rig.link.config()), (2, config));
    assert_eq!(rig.ask(SECOND).await.code, 0, "one of two, beside the one of the old connection");
    assert_eq!(rig.tasks.started("link:test"), 2);
    release.notify_one();
    let Ok(answer) = old.await;
    assert_eq!(finish(answer).await.code, 0);
    rig.tasks.down_to(1).await;
    assert_eq!(rig.ask(SECOND).await.code, 0);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_new_connection_leaves_the_old_one_in_use() {
    let peer = answering();
    let rig = Rig::new(peer.route());
    assert_eq!(rig.ask(SECOND).await.code, 0);
    rig.net.route(Route::Refused);
    let config = LinkConfig { calls_max: 2, ..CONFIG };
    let change = rig.link.reconfigure(config);
    assert!(tokio::time::timeout(Duration::from_secs(3), change).await.is_err(), "it goes on trying");
    assert_eq!((rig.link.config(), rig.ask(SECOND).await.code), (CONFIG, 0));
    // Asked for other bounds, and then for those that are in force: both end, and nobody goes on trying for the first.
    let first = rig.link.reconfigure(config);
    let withdrawn = async { tokio::join!(first, rig.link.reconfigure(CONFIG)) };
    tokio::time::timeout(SECOND.into(), withdrawn).await.expect("it was withdrawn");
    let dials = rig.net.dials();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((rig.net.dials(), rig.link.config()), (dials, CONFIG));
    // Asked again, and answered.
    rig.net.route(peer.route());
    rig.link.reconfigure(config).await;
    assert_eq!((rig.link.config(), rig.ask(SECOND).await.code), (config, 0));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_changes_the_last_one_counts_and_a_closed_link_stays_closed() {
    let peer = answering();
    let rig = Rig::new(Route::After(Duration::from_millis(50), peer.accept.clone()));
    let (first, last) = (LinkConfig { calls_max: 2, ..CONFIG }, LinkConfig { calls_max: 3, ..CONFIG });
    tokio::join!(rig.link.reconfigure(first), rig.link.reconfigure(last));
    assert_eq!(rig.link.config(), last);
    tokio::join!(rig.link.reconfigure(first), async { rig.link.close() });
    rig.link.reconfigure(first).await;
    assert_eq!(rig.ask(SECOND).await.failure, Some(LocalFailure::Closed));
    rig.end().await;
}
