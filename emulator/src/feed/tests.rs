//! Tests of the feed: everything first, then every rise, a sign of life every second, and an end for every reason to end.

use base::ids::IdSource;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use serve::{
    Limits,
    exchange::Port,
    lifecycle::{Lifecycle, Stage},
    metrics::{Registry, ServerMetrics},
    telemetry::Tracer,
};
use tonic::Code;

use super::*;
use crate::{
    revocations::Who,
    testing::{ByHand, MS, Rig, SEED},
};

type Stream = <Feed as RevocationFeedService>::FollowRevocationsStream;
type Message = FollowRevocationsResponse;

fn open(rig: &Rig) -> Result<Stream, Status> {
    let feed = Feed(Arc::clone(&rig.engine));
    let mut call = ByHand::new(feed.follow_revocations(Request::new(FollowRevocationsRequest {})));
    call.look().expect("opens without waiting").map(Response::into_inner)
}

/// What the stream says without waiting.
fn at_once(stream: &mut Stream) -> Option<Message> {
    let said = ByHand::new(stream.next()).look()?;
    Some(said.expect("open").expect("a message"))
}

fn told(message: &Message) -> Vec<(&str, u64)> {
    message.epochs.iter().map(|epoch| (&*epoch.tenant, epoch.revocation_epoch)).collect()
}

fn revoke(rig: &Rig, tenant: u32) -> u64 {
    let claims = ["home.view".to_owned()];
    rig.engine.revocations.revoke(&rig.engine.data, Who { tenant, subject: 0 }, &claims).expect("room")
}

/// A stream that has told everything.
fn following(rig: &Rig) -> Stream {
    let mut stream = open(rig).expect("a stream");
    assert!(at_once(&mut stream).expect("everything").complete);
    stream
}

fn silent() -> Message {
    Message { epochs: Vec::new(), complete: true }
}

#[test]
fn a_stream_begins_with_every_tenant_as_it_is() {
    let rig = Rig::new();
    let epoch = revoke(&rig, 7);
    let mut stream = open(&rig).expect("a stream");
    let first = at_once(&mut stream).expect("everything");
    assert!(first.complete);
    let policies: Vec<(String, u64)> = (0..names::TENANTS)
        .map(|tenant| {
            let name = names::tenant(tenant);
            let policy = rig.engine.revocations.policy(&rig.engine.data, &name, "user-00000", 1);
            (name, policy.expect("a policy").revocation_epoch)
        })
        .collect();
    let expected: Vec<(&str, u64)> = policies.iter().map(|(tenant, epoch)| (&**tenant, *epoch)).collect();
    assert_eq!(told(&first), expected);
    assert_eq!(expected[7], ("tenant-007", epoch));
    assert_eq!(at_once(&mut stream), None);
}

#[test]
fn what_does_not_fit_a_message_follows_in_the_next_and_the_last_one_completes() {
    let rig = Rig::new();
    let (mut position, mut all) = (Told::nothing(), Vec::new());
    for expected in [90, 90, 20, 0] {
        assert_eq!(position.is_complete(), expected == 0);
        let some = rig.engine.revocations.look(|state| position.news(state, &rig.engine.data, 90));
        assert_eq!(some.len(), expected);
        all.extend(some.into_iter().map(|epoch| epoch.tenant));
    }
    assert_eq!(all, (0..names::TENANTS).map(names::tenant).collect::<Vec<_>>());
}

#[test]
fn a_rise_is_told_at_once_and_a_slow_reader_hears_the_highest() {
    let rig = Rig::new();
    let mut stream = following(&rig);
    let mut next = ByHand::new(stream.next());
    assert!(next.look().is_none());
    let epoch = revoke(&rig, 7);
    let said = next.look().expect("woken").expect("open").expect("a message");
    assert_eq!((told(&said), said.complete), (vec![("tenant-007", epoch)], true));
    for _ in 0..3 {
        revoke(&rig, 9);
    }
    let (seven, nine) = (revoke(&rig, 7), revoke(&rig, 9));
    let said = at_once(&mut stream).expect("both");
    assert_eq!(told(&said), [("tenant-007", seven), ("tenant-009", nine)]);
    assert_eq!(at_once(&mut stream), None, "nothing is told twice");
}

#[test]
fn a_stream_with_nothing_to_say_says_so_every_second() {
    let rig = Rig::new();
    let mut stream = following(&rig);
    for _ in 0..3 {
        let mut next = ByHand::new(stream.next());
        assert!(next.look().is_none());
        rig.advance(BEAT - MS);
        assert!(next.look().is_none(), "a second has not passed");
        rig.advance(MS);
        assert_eq!(next.look().expect("due").expect("open").expect("a message"), silent());
    }
    drop(stream);
    rig.assert_idle();
}

#[test]
fn a_silent_feed_says_nothing_and_catches_up_when_it_is_live_again() {
    let rig = Rig::new();
    let (mut old, mut idle) = (following(&rig), following(&rig));
    rig.engine.revocations.set_feed(FeedState::Silent);
    let mut new = open(&rig).expect("a stream");
    let (mut old_next, mut new_next) = (ByHand::new(old.next()), ByHand::new(new.next()));
    let mut idle_next = ByHand::new(idle.next());
    assert!(old_next.look().is_none() && new_next.look().is_none() && idle_next.look().is_none());
    rig.advance(BEAT.times(30));
    assert!(old_next.look().is_none() && new_next.look().is_none());
    assert_eq!(rig.engine.revocations.set_feed(FeedState::Live), FeedState::Silent);
    assert_eq!(idle_next.look().expect("woken").expect("open").expect("a message"), silent());
    rig.engine.revocations.set_feed(FeedState::Silent);
    let epoch = revoke(&rig, 7);
    assert!(old_next.look().is_none() && new_next.look().is_none());
    rig.engine.revocations.set_feed(FeedState::Live);
    let said = old_next.look().expect("woken").expect("open").expect("a message");
    assert_eq!(told(&said), [("tenant-007", epoch)]);
    let said = new_next.look().expect("woken").expect("open").expect("a message");
    assert_eq!((said.epochs.len(), said.complete), (names::TENANTS as usize, true));
}

#[test]
fn a_cut_ends_every_stream_and_refuses_new_ones_until_it_is_mended() {
    let rig = Rig::new();
    let (mut waiting, mut away) = (following(&rig), following(&rig));
    let mut next = ByHand::new(waiting.next());
    assert!(next.look().is_none());
    rig.engine.revocations.set_feed(FeedState::Cut);
    let status = next.look().expect("woken").expect("an end").expect_err("cut");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(ByHand::new(waiting.next()).look().expect("at once").is_none(), "the end is the last thing");
    assert_eq!(open(&rig).err().map(|status| status.code()), Some(Code::Unavailable));
    rig.engine.revocations.set_feed(FeedState::Live);
    // One that was not looking ends all the same.
    let said = ByHand::new(away.next()).look().expect("at once").expect("an end");
    assert_eq!(said.expect_err("cut").code(), Code::Unavailable);
    assert_eq!(at_once(&mut following(&rig)), None, "a new one tells everything again");
}

#[test]
fn a_reset_ends_the_streams_that_would_see_epochs_fall_and_no_others() {
    let rig = Rig::new();
    let mut stream = following(&rig);
    rig.engine.revocations.set_feed(FeedState::Silent);
    assert_eq!(at_once(&mut stream), None);
    rig.engine.reset();
    assert_eq!(at_once(&mut stream), Some(silent()), "live again, and nothing was revoked");
    revoke(&rig, 7);
    assert!(at_once(&mut stream).is_some());
    rig.engine.reset();
    let said = ByHand::new(stream.next()).look().expect("at once").expect("an end");
    assert_eq!(said.expect_err("ended").code(), Code::Unavailable);
}

#[test]
fn a_reader_that_leaves_leaves_nothing_behind() {
    let rig = Rig::new();
    let mut stream = following(&rig);
    assert!(at_once(&mut stream).is_none());
    assert!(Arc::strong_count(&rig.engine) > 1);
    drop(stream);
    assert_eq!(Arc::strong_count(&rig.engine), 1);
    rig.assert_idle();
}

#[tokio::test]
async fn a_drain_ends_the_streams_of_the_port() {
    let rig = Rig::new();
    let registry = Registry::new("emulator");
    let lifecycle = Lifecycle::new(Arc::new(base::clock::MonotonicClock));
    let port = Arc::new(Port {
        routes: crate::facts::routes(&rig.engine),
        limits: Limits::default().into(),
        clock: rig.clock.clone(),
        ids: Arc::new(IdSource::new(SEED.into())),
        lifecycle: lifecycle.clone(),
        metrics: ServerMetrics::new(&registry, "emulator"),
        tracer: Tracer::off(),
        points: base::inject::Points::default(),
    });
    let head = http::Request::post("/mercury.emulator.v1.RevocationFeedService/FollowRevocations")
        .header("content-type", "application/grpc");
    let empty_message = Full::new(Bytes::from_static(&[0; 5]));
    let (exchange, term) = port.begin(head.body(empty_message).expect("a request"));
    assert_eq!(term.deadline.instant(), Nanos::MAX, "it lasts as long as its reader likes");
    let response = ByHand::new(exchange).look().expect("a head at once").expect("a response");
    let mut reading = ByHand::new(response.into_body().collect());
    assert!(reading.look().is_none());
    assert_eq!((lifecycle.open_count(), lifecycle.responding_count()), (0, 1), "it is answered, and goes on");
    lifecycle.advance(Stage::Quiescing);
    let body = reading.look().expect("woken").expect("a body");
    drop(reading);
    let status = body.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
    assert_eq!(status, Some(http::HeaderValue::from_static("14")));
    drop(body); // Its bytes are the response's until their reader gives them up.
    assert_eq!(lifecycle.responding_count(), 0);
    rig.assert_idle();
}
