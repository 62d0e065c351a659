//! Tests of faults: each effect on the answer, on the servers and on the account; and whom a rule hits.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use model::{draw::Share, fault::FaultRule};
use tonic::{body::Body, metadata::GRPC_CONTENT_TYPE};

use super::*;
use crate::{
    body::inject,
    testing::{ByHand, rule},
};

const PRICING: Dependency = Dependency::Pricing;

fn full() -> Full<Bytes> {
    Full::new(Bytes::from_static(b"message"))
}

/// What the layer around the generated servers makes of a response that would have this body.
fn leave(response: Response<Timing>, body: Body) -> http::Response<Body> {
    let (_, _, extensions) = response.into_parts();
    let mut leaving = http::Response::new(body);
    leaving.headers_mut().insert("content-type", GRPC_CONTENT_TYPE);
    *leaving.extensions_mut() = extensions;
    inject(leaving)
}

/// The answer of a call that is due, as it leaves the process.
fn left(call: &mut Call) -> http::Response<Body> {
    leave(call.look().expect("due").expect("a head"), Body::new(full()))
}

#[test]
fn without_a_rule_nothing_happens_to_the_body() {
    let rig = Rig::new();
    let mut call = rig.begin(PRICING, rig.caller("op"));
    rig.advance(SERVICE);
    let body = ByHand::new(left(&mut call).into_body().collect()).look().expect("at once").expect("a body");
    assert_eq!((body.to_bytes().as_ref(), rig.entry("op")), (&b"message"[..], Told::new("ok", 0, 20)));
    rig.assert_idle();
}

#[test]
fn a_delay_is_added_to_the_service_and_holds_the_server() {
    let rig = Rig::new();
    rig.inject(PRICING, FaultEffect::Delay(ms(30)));
    let mut call = rig.begin(PRICING, rig.caller("op"));
    rig.advance(ms(50) - NANO);
    assert!(call.look().is_none());
    assert_eq!(rig.busy(PRICING), (1, 0));
    rig.advance(NANO);
    assert_eq!(timing(call.look()), (0, 50_000));
    assert_eq!(rig.entry("op"), Told::new("ok", 0, 50).by("delay"));
    assert_eq!(rig.counts(PRICING).of(Outcome::Ok), 1, "late, but an answer");
    rig.assert_idle();
}

#[test]
fn every_status_is_answered_after_the_service() {
    for number in 1..=16_u8 {
        let rig = Rig::new();
        rig.inject(PRICING, FaultEffect::Status(number));
        let mut call = rig.begin(PRICING, rig.caller("op"));
        rig.advance(SERVICE);
        let status = call.look().expect("due").expect_err("a failure");
        assert_eq!(status.code() as u8, number);
        assert!(status.details().is_empty(), "a dependency of this kind says no more than its code");
        assert_eq!(rig.entry("op"), Told::new("fault", 0, 20).by("status"));
        assert_eq!(rig.counts(PRICING).of(Outcome::Fault), 1);
        rig.assert_idle();
    }
}

#[test]
fn a_refusal_is_immediate_and_takes_no_server() {
    let rig = Rig::new();
    let held: Vec<Call> = (0..4).map(|at| rig.begin(PRICING, rig.caller(&format!("held-{at}")))).collect();
    rig.inject(PRICING, FaultEffect::Refuse);
    // Not even a full queue is in its way.
    assert_eq!(code(&rig.at_once(PRICING, rig.caller("op"))), Code::Unavailable);
    assert_eq!(rig.busy(PRICING), (2, 2));
    assert_eq!(rig.entry("op"), Told::new("refused", 0, 0).by("refuse"));
    drop(held);
    rig.assert_idle();
}

#[test]
fn a_reset_sends_a_head_and_breaks_the_stream() {
    let rig = Rig::new();
    rig.inject(PRICING, FaultEffect::Reset);
    let mut call = rig.begin(PRICING, rig.caller("op"));
    rig.advance(SERVICE);
    let response = left(&mut call);
    assert_eq!(rig.entry("op"), Told::new("fault", 0, 20).by("reset"));
    rig.assert_idle();
    assert_eq!(response.status(), 200);
    let failure = ByHand::new(response.into_body().collect()).look().expect("at once");
    assert!(failure.is_err(), "an error of the body is what makes the server reset the stream");
}

#[test]
fn a_hang_ends_when_its_rule_is_cleared() {
    let rig = Rig::new();
    let id = rig.inject(PRICING, FaultEffect::Hang);
    let mut call = rig.begin(PRICING, rig.caller("op"));
    rig.advance(Nanos::from_secs(3_600));
    assert!(call.look().is_none());
    assert_eq!(rig.busy(PRICING), (1, 0), "what hangs holds its server");
    // Another rule's end is not its own.
    let other = rig.inject(PRICING, FaultEffect::Hang);
    rig.engine.faults().clear(other, rig.now());
    assert!(call.look().is_none());
    rig.engine.faults().clear(id, rig.now());
    assert_eq!(code(&call.look().expect("let go")), Code::Unavailable);
    assert_eq!(rig.entry("op"), Told::new("fault", 0, 3_600_000).by("hang"));
    rig.assert_idle();
}

#[test]
fn a_hang_ends_with_the_duration_of_its_rule() {
    let rig = Rig::new();
    let hang = rule(PRICING, None, Share::ALL, FaultEffect::Hang);
    rig.inject_rule(FaultRule { duration: Some(ms(90)), ..hang });
    rig.advance(ms(30));
    let mut call = rig.begin(PRICING, rig.caller("op"));
    rig.advance(ms(60) - NANO);
    assert!(call.look().is_none());
    rig.advance(NANO);
    assert_eq!(code(&call.look().expect("over")), Code::Unavailable);
    assert_eq!(rig.entry("op"), Told::new("fault", 0, 60).by("hang"));
    rig.assert_idle();
}

#[test]
fn a_hang_ends_at_the_deadline_of_the_call_or_when_the_caller_leaves() {
    let rig = Rig::new();
    rig.inject(PRICING, FaultEffect::Hang);
    let mut call = rig.begin(PRICING, rig.bounded("op", ms(45)));
    let leaver = rig.begin(PRICING, rig.bounded("leaver", ms(45)));
    rig.advance(ms(44));
    assert!(call.look().is_none());
    drop(leaver);
    assert_eq!(rig.entry("leaver"), Told::new("cancelled", 0, 44).by("hang"));
    rig.advance(MS);
    assert_eq!(code(&call.look().expect("due")), Code::DeadlineExceeded);
    assert_eq!(rig.entry("op"), Told::new("deadline", 0, 45).by("hang"));
    rig.assert_idle();
}

#[test]
fn a_slow_body_has_its_head_at_once_and_its_message_later() {
    let rig = Rig::new();
    rig.inject(PRICING, FaultEffect::SlowBody(ms(30)));
    let mut call = rig.begin(PRICING, rig.bounded("op", ms(500)));
    rig.advance(SERVICE);
    let response = left(&mut call);
    assert_eq!((response.status().as_u16(), response.body().is_end_stream()), (200, false));
    assert_eq!(rig.busy(PRICING), (0, 0), "the server is done with it");
    assert!(rig.is_open("op"), "and the call goes on");
    let mut body = ByHand::new(response.into_body().collect());
    assert!(body.look().is_none());
    rig.advance(ms(30) - NANO);
    assert!(body.look().is_none());
    rig.advance(NANO);
    assert_eq!(body.look().expect("due").expect("a body").to_bytes().as_ref(), b"message");
    assert_eq!(rig.entry("op"), Told::new("ok", 0, 20).by("slow_body"));
    rig.assert_idle();
}

#[test]
fn a_slow_body_ends_with_its_deadline_and_without_its_message() {
    let rig = Rig::new();
    rig.inject(PRICING, FaultEffect::SlowBody(ms(300)));
    let mut call = rig.begin(PRICING, rig.bounded("op", ms(50)));
    rig.advance(SERVICE);
    let mut body = ByHand::new(left(&mut call).into_body().collect());
    assert!(body.look().is_none());
    rig.advance(ms(30) - NANO);
    assert!(body.look().is_none());
    rig.advance(NANO);
    let body = body.look().expect("due").expect("trailers");
    assert_eq!(body.trailers().expect("a status")["grpc-status"], "4");
    assert!(body.to_bytes().is_empty());
    assert_eq!(rig.entry("op"), Told::new("deadline", 0, 20).by("slow_body"));
    rig.assert_idle();
}

#[test]
fn a_slow_body_has_ended_with_its_last_frame_however_that_is_told() {
    let trailers = async { Some(Ok(HeaderMap::new())) };
    let frames = [Ok::<_, Status>(Frame::data(Bytes::from_static(b"message")))];
    let bodies = [
        // By the frame itself, which says that none follows.
        (Body::new(full()), 1),
        // By trailers.
        (Body::new(full().with_trailers(trailers)), 2),
        // By the lack of another frame.
        (Body::new(StreamBody::new(futures_util::stream::iter(frames))), 2),
    ];
    for (number, (body, looks)) in bodies.into_iter().enumerate() {
        let rig = Rig::new();
        rig.inject(PRICING, FaultEffect::SlowBody(ms(30)));
        let mut call = rig.begin(PRICING, rig.bounded("op", ms(500)));
        rig.advance(SERVICE);
        let mut body = leave(call.look().expect("due").expect("a head"), body).into_body();
        rig.advance(ms(30));
        for look in 0..looks {
            assert!(rig.is_open("op"), "body {number} before look {look}");
            let frame = ByHand::new(body.frame()).look().expect("at once");
            assert!(frame.is_none_or(|frame| frame.is_ok()));
        }
        assert_eq!(rig.entry("op"), Told::new("ok", 0, 20).by("slow_body"), "body {number}");
        rig.assert_idle();
    }
}

#[test]
fn a_slow_body_that_is_let_go_is_a_cancelled_call() {
    let rig = Rig::new();
    rig.inject(PRICING, FaultEffect::SlowBody(ms(30)));
    let mut calls = [
        rig.begin(PRICING, rig.bounded("before its body", ms(500))),
        rig.begin(PRICING, rig.bounded("within its body", ms(500))),
    ];
    rig.advance(SERVICE);
    // The response itself, before the layer has seen it.
    drop(calls[0].look().expect("due").expect("a head"));
    let mut body = ByHand::new(left(&mut calls[1]).into_body().collect());
    assert!(body.look().is_none());
    rig.advance(ms(10));
    drop(body);
    for id in ["before its body", "within its body"] {
        assert_eq!(rig.entry(id), Told::new("cancelled", 0, 20).by("slow_body"));
    }
    rig.assert_idle();
}

#[test]
fn a_fault_that_did_not_come_to_pass_is_not_told() {
    let rig = Rig::new();
    rig.inject(PRICING, FaultEffect::Status(14));
    let held: Vec<Call> = (0..2).map(|at| rig.begin(PRICING, rig.caller(&format!("held-{at}")))).collect();
    let waits = (rig.begin(PRICING, rig.bounded("waits", ms(5))), rig.begin(PRICING, rig.caller("left")));
    assert_eq!(code(&rig.at_once(PRICING, rig.caller("full"))), Code::ResourceExhausted);
    let (mut waits, left) = waits;
    rig.advance(ms(5));
    assert_eq!(code(&waits.look().expect("due")), Code::DeadlineExceeded);
    drop((left, held));
    assert_eq!(rig.entry("waits"), Told::new("deadline", 5, 0));
    assert_eq!(rig.entry("left"), Told::new("cancelled", 5, 0));
    assert_eq!(rig.entry("full"), Told::new("overload", 0, 0));
    assert_eq!(rig.entry("held-0"), Told::new("cancelled", 0, 5));
    rig.assert_idle();
}

#[test]
fn a_rule_hits_its_dependency_and_its_class() {
    let rig = Rig::new();
    rig.inject_rule(rule(PRICING, Some(WorkloadClass::Premium), Share::ALL, FaultEffect::Refuse));
    for dependency in Dependency::ALL {
        for class in WorkloadClass::ALL {
            let id = format!("{dependency}-{class}");
            let mut call = rig.prepare(dependency, Caller { class, ..rig.caller(&id) }, true);
            let refused = call.look().is_some();
            assert_eq!(refused, dependency == PRICING && class == WorkloadClass::Premium, "{id}");
        }
    }
    rig.assert_idle();
}

#[test]
fn a_share_hits_the_same_operations_in_every_run_and_a_larger_one_hits_them_too() {
    const OPERATIONS: usize = 2_000;
    let hit = |ppm| {
        let rig = Rig::new();
        rig.inject_rule(rule(PRICING, None, Share::from_ppm(ppm), FaultEffect::Refuse));
        (0..OPERATIONS)
            .map(|at| rig.prepare(PRICING, rig.caller(&format!("op-{at}")), true).look().is_some())
            .collect::<Vec<bool>>()
    };
    let tenth = hit(100_000);
    let count = tenth.iter().filter(|hit| **hit).count();
    // Binomial: 200 expected, deviation 13.
    assert!((140..260).contains(&count), "{count}");
    assert_eq!(tenth, hit(100_000));
    assert!(tenth.iter().zip(hit(300_000)).all(|(small, large)| large || !small));
}

#[test]
fn the_first_match_wins_and_the_next_one_when_it_is_gone() {
    let rig = Rig::new();
    let first =
        rig.inject_rule(rule(PRICING, Some(WorkloadClass::Standard), Share::ALL, FaultEffect::Status(5)));
    let second = rig.inject(PRICING, FaultEffect::Status(6));
    let answer = |class| {
        let mut call = rig.begin(PRICING, Caller { class, ..rig.caller("op") });
        rig.advance(SERVICE + SERVICE);
        code(&call.look().expect("due"))
    };
    assert_eq!(answer(WorkloadClass::Standard), Code::NotFound);
    assert_eq!(answer(WorkloadClass::Premium), Code::AlreadyExists);
    assert_eq!(rig.engine.faults().clear(first, rig.now()), 1);
    assert_eq!(answer(WorkloadClass::Standard), Code::AlreadyExists);
    assert_eq!(rig.engine.faults().clear(second, rig.now()), 1);
    assert_eq!(answer(WorkloadClass::Standard), Code::Ok);
}
