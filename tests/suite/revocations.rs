//! Revocations: what is revoked at the store is told to every subscriber of entitlement at once, a lost feed is told as lost,
//! and streams that are open hold up no drain.

use ::wire::{
    emulator::v1::{
        FeedState, FollowRevocationsRequest, FollowRevocationsResponse, ReadSubjectRequest,
        RevokeClaimsRequest, SetRevocationFeedRequest,
        revocation_feed_service_client::RevocationFeedServiceClient,
    },
    entitlement::v1::{
        GetEntitlementRequest, WatchRevocationsRequest, WatchRevocationsResponse,
        entitlement_service_client::EntitlementServiceClient,
        revocation_service_client::RevocationServiceClient,
    },
};
use base::Nanos;
use model::names;
use tonic::{Code, Status, Streaming};

use crate::harness::{SLACK, Suite, bounded, eventually, identified, now, talk::soon};

const TENANT: &str = "tenant-007";
const SUBJECT: &str = "user-00042";
const SECOND: Nanos = Nanos::from_secs(1);

type Watch = Streaming<WatchRevocationsResponse>;

/// Subscribes as home-api would: without an identity, since it concerns every subject.
async fn subscribe(suite: &Suite) -> Result<Watch, Status> {
    let mut client = RevocationServiceClient::new(suite.link("entitlement"));
    client
        .watch_revocations(runtime::outbound_endless(WatchRevocationsRequest {}))
        .await
        .map(|answer| answer.into_inner())
}

async fn next(watch: &mut Watch) -> WatchRevocationsResponse {
    soon(watch.message()).await.expect("a message").expect("the stream is open")
}

/// The next message that has news.
async fn news(watch: &mut Watch) -> Vec<(String, u64)> {
    loop {
        let epochs = next(watch).await.epochs;
        if !epochs.is_empty() {
            return epochs.into_iter().map(|of| (of.tenant, of.revocation_epoch)).collect();
        }
    }
}

/// How the stream ends, after what was still on its way.
async fn end(watch: &mut Watch) -> Code {
    loop {
        match soon(watch.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => return Code::Ok,
            Err(status) => return status.code(),
        }
    }
}

/// A stream that has told everything, and the epoch of [`TENANT`].
async fn subscribed(suite: &Suite) -> (Watch, u64) {
    let mut watch = subscribe(suite).await.expect("a stream");
    let (mut told, mut complete) = (Vec::new(), false);
    while !complete {
        let message = next(&mut watch).await;
        assert!(message.epochs.len() <= 1_024);
        told.extend(message.epochs);
        complete = message.complete;
    }
    assert_eq!(told.len(), names::TENANTS as usize, "every tenant");
    let of = told.iter().find(|of| of.tenant == TENANT).expect("every tenant");
    (watch, of.revocation_epoch)
}

async fn revoke(suite: &Suite, claim: &str) -> u64 {
    let claims = vec![claim.to_owned()];
    let message = RevokeClaimsRequest { tenant: TENANT.to_owned(), subject: SUBJECT.to_owned(), claims };
    suite.control().revoke_claims(bounded(message)).await.expect("revoked").into_inner().revocation_epoch
}

async fn feed(suite: &Suite, state: FeedState) {
    let message = SetRevocationFeedRequest { state: state.into() };
    suite.control().set_revocation_feed(bounded(message)).await.expect("a state");
}

/// The claims of the subject, by a call, and their epoch.
async fn claims(suite: &Suite) -> (Vec<String>, u64) {
    let (tenant, subject) = (TENANT.to_owned(), SUBJECT.to_owned());
    let asked = bounded(ReadSubjectRequest { tenant, subject, policy_version: 0 });
    let row = suite.control().read_subject(asked).await.expect("rows").into_inner().profile.expect("a row");
    let (plan, segment, policy_version) = (row.plan, row.segment, row.policy_version);
    let question = GetEntitlementRequest { plan, segment, policy_version };
    let mut client = EntitlementServiceClient::new(suite.link("entitlement"));
    let told = client.get_entitlement(identified(question, &[])).await.expect("claims").into_inner();
    let told = told.entitlement.expect("claims");
    (told.claims, told.revocation_epoch)
}

#[tokio::test]
async fn a_revocation_is_told_within_a_second_on_a_stream_that_outlives_every_deadline() {
    let suite = Suite::start().await;
    let (mut watch, before) = subscribed(&suite).await;
    // Longer than entitlement grants a call by default.
    for _ in 0..2 {
        let began = now();
        let message = next(&mut watch).await;
        assert_eq!((message.epochs.len(), message.complete), (0, true), "a sign of life");
        assert!(now() - began < SECOND + SLACK);
    }
    assert!(claims(&suite).await.0.contains(&"home.view".to_owned()));
    let revoked_at = now();
    let epoch = revoke(&suite, "home.view").await;
    assert_eq!(news(&mut watch).await, [(TENANT.to_owned(), epoch)]);
    assert!(now() - revoked_at < SECOND, "told at once, and not with the next sign of life at best");
    assert_eq!(epoch, before + 1);
    let (left, told_epoch) = claims(&suite).await;
    assert!(!left.contains(&"home.view".to_owned()) && told_epoch == epoch, "{left:?} {told_epoch}");
    // Who leaves takes the store's stream along.
    drop(watch);
    eventually("nothing is under way in entitlement", async || {
        let scrape = suite.scrape("entitlement").await;
        scrape.sum("mercury_requests_in_flight", &[("server", "entitlement")]) == 0.0
            && scrape.sum("mercury_link_in_flight", &[]) == 0.0
    })
    .await;
    suite.finish().await;
}

#[tokio::test]
async fn a_feed_that_is_cut_is_told_as_lost_and_everything_is_told_again_afterwards() {
    let suite = Suite::start().await;
    let (mut first, before) = subscribed(&suite).await;
    let (mut second, _) = subscribed(&suite).await;
    feed(&suite, FeedState::Cut).await;
    assert_eq!(end(&mut first).await, Code::Unavailable);
    assert_eq!(end(&mut second).await, Code::Unavailable);
    let refused = subscribe(&suite).await.map(|_| ()).expect_err("refused");
    assert_eq!(refused.code(), Code::Unavailable);
    // Not told by anybody, and yet in force: who relies on the feed must not when it is lost.
    let epoch = revoke(&suite, "home.view").await;
    feed(&suite, FeedState::Live).await;
    let (_watch, after) = subscribed(&suite).await;
    assert_eq!((epoch, after), (before + 1, before + 1));
    suite.finish().await;
}

#[tokio::test]
async fn the_loss_of_the_store_is_the_loss_of_the_stream() {
    let mut suite = Suite::start().await;
    let (mut watch, _) = subscribed(&suite).await;
    suite.member("emulator").kill();
    assert_eq!(end(&mut watch).await, Code::Unavailable);
    suite.restart_emulator();
    let mut again = None;
    eventually("the store is found again", async || {
        again = subscribe(&suite).await.ok();
        again.is_some()
    })
    .await;
    assert!(next(&mut again.expect("a stream")).await.complete);
    suite.finish().await;
}

#[tokio::test]
async fn open_streams_hold_up_no_drain() {
    let mut suite = Suite::start().await;
    let (mut watch, _) = subscribed(&suite).await;
    let mut store = RevocationFeedServiceClient::new(suite.link("emulator"));
    let follow = runtime::outbound_endless(FollowRevocationsRequest {});
    let mut follow: Streaming<FollowRevocationsResponse> =
        store.follow_revocations(follow).await.expect("a stream").into_inner();
    assert!(soon(follow.message()).await.expect("a message").expect("open").complete);
    // One that has nothing to say, for good, ends as well.
    feed(&suite, FeedState::Silent).await;
    suite.member("entitlement").stop();
    assert_eq!(end(&mut watch).await, Code::Unavailable);
    let report = suite.member("entitlement").report().await;
    assert!(report.is_clean() && report.took < SECOND, "{report:?}");
    suite.finish_rest().await;
    let ended = loop {
        match soon(follow.message()).await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(ended.expect_err("it ended").code(), Code::Unavailable);
}
