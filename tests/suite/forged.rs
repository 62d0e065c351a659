//! Forged: a profile that sends summaries which must not be believed. Each is a counted refusal with its reason; the claims come from
//! the call, or from nowhere once it is gone, and never from the summary.

use std::sync::{Arc, Mutex};

use ::summary::{Issuer, KeyId, Rejection, Signed, Summary};
use ::wire::profile::v1::{
    GetProfileRequest, GetProfileResponse,
    profile_service_client::ProfileServiceClient,
    profile_service_server::{ProfileService, ProfileServiceServer},
};
use base::{Dependency, Region, Subject, Tenant, WallClock as _, clock::SystemWallClock};
use http::StatusCode;
use serde_json::Value;
use serve::Routes;
use tonic::{Request, Response, Status};

use crate::harness::{Options, Suite, eventually, identified, member, patient, summary_issuer};

/// What it granted would be seen.
const FORGED: &str = "forged.claim";

/// Answers what it is told to.
#[derive(Clone, Default)]
struct Forger(Arc<Mutex<GetProfileResponse>>);

#[tonic::async_trait]
impl ProfileService for Forger {
    async fn get_profile(
        &self,
        _: Request<GetProfileRequest>,
    ) -> Result<Response<GetProfileResponse>, Status> {
        Ok(Response::new(self.0.lock().expect("no panic").clone()))
    }
}

/// A suite whose profile is a forger, and the answer of the real one.
async fn forged(call: bool) -> (Suite, Forger, member::Member, GetProfileResponse) {
    let forger = Forger::default();
    let stranger = member::stranger("forger", Routes::new().grpc(ProfileServiceServer::new(forger.clone())));
    let changes = format!(
        "[mechanisms.summary]\nmode = \"on\"\npercent = 100\n[summary]\nemit = true\ncall = {call}\n"
    );
    let options = Options::quick().overlaid(&changes).stranger(Dependency::Profile, stranger.at);
    let suite = Suite::start_with(options).await;
    suite.until_fresh().await;
    let mut client = ProfileServiceClient::new(suite.link("profile"));
    let question = identified(GetProfileRequest { response_schema: 1 }, &[]);
    let real = client.get_profile(question).await.expect("a profile").into_inner();
    (suite, forger, stranger, real)
}

/// A summary that differs from a sound one in what `doctor` changes.
fn sound(version: u64) -> Summary {
    let now = SystemWallClock.unix_ms();
    Summary {
        tenant: Tenant::parse("tenant-007").expect("a tenant"),
        subject: Subject::parse("user-00042").expect("a subject"),
        region: Region::parse("eu-west").expect("a region"),
        policy_version: version,
        // Above every epoch of the data set, so that only what is doctored is wrong.
        revocation_epoch: 100,
        issued_unix_ms: now,
        expires_unix_ms: now + 60_000,
        claims: vec![FORGED.to_owned()],
    }
}

type Doctor = fn(&mut Summary);

/// Every way of being wrong, and its reason.
fn cases(version: u64) -> Vec<(Rejection, Signed)> {
    let issuer = summary_issuer();
    let doctored: [(Rejection, Doctor); 11] = [
        (Rejection::WrongTenant, |summary| summary.tenant = Tenant::parse("tenant-008").expect("a tenant")),
        (Rejection::WrongSubject, |summary| {
            summary.subject = Subject::parse("user-00043").expect("a subject")
        }),
        (Rejection::WrongRegion, |summary| summary.region = Region::parse("us-east").expect("a region")),
        (Rejection::Lifetime, |summary| summary.expires_unix_ms += 300_000),
        (Rejection::Lifetime, |summary| summary.expires_unix_ms = summary.issued_unix_ms),
        (Rejection::Expired, |summary| {
            summary.issued_unix_ms -= 120_000;
            summary.expires_unix_ms -= 120_000;
        }),
        (Rejection::FutureDated, |summary| {
            summary.issued_unix_ms += 10_000;
            summary.expires_unix_ms += 10_000;
        }),
        (Rejection::VersionJump, |summary| summary.policy_version = u64::MAX),
        (Rejection::VersionJump, |summary| summary.revocation_epoch = u64::MAX),
        (Rejection::Revoked, |summary| summary.revocation_epoch = 0),
        (Rejection::Malformed, |summary| summary.claims = vec!["NOT A CLAIM".to_owned()]),
    ];
    let mut cases: Vec<_> = doctored
        .into_iter()
        .map(|(reason, doctor)| {
            let mut summary = sound(version);
            doctor(&mut summary);
            (reason, issuer.sign(summary))
        })
        .collect();
    let signed = || issuer.sign(sound(version));
    let other = Issuer::from_seed(KeyId::parse("other").expect("an id"), &[9; 32]);
    let imposter = Issuer::from_seed(KeyId::parse("suite").expect("an id"), &[9; 32]);
    let mut tampered = signed();
    *tampered.payload.last_mut().expect("a payload") ^= 1;
    let mut truncated = signed();
    truncated.signature.truncate(63);
    let large = Signed { payload: vec![0; 30_000], ..signed() };
    let empty = Signed { payload: Vec::new(), key_id: String::new(), signature: Vec::new() };
    cases.extend([
        (Rejection::InvalidSignature, tampered),
        (Rejection::InvalidSignature, imposter.sign(sound(version))),
        (Rejection::UnknownKey, other.sign(sound(version))),
        (Rejection::UnknownKey, empty),
        (Rejection::SignatureLength, truncated),
        (Rejection::TooLarge, large),
    ]);
    cases
}

async fn page(suite: &Suite) -> (StatusCode, Value) {
    let answer = suite.get(&patient(&[])).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn what_must_not_be_believed_is_counted_and_answered_by_the_call() {
    let (suite, forger, mut stranger, real) = forged(true).await;
    let version = real.profile.as_ref().expect("a profile").policy_version;
    for (reason, signed) in cases(version) {
        let kind = format!("fallback:{reason}");
        let before = suite.rollout("home-api").await.counts.authority_of(&kind);
        *forger.0.lock().expect("no panic") =
            GetProfileResponse { entitlement_summary: Some(signed), ..real.clone() };
        let (status, page) = page(&suite).await;
        assert_eq!(status, StatusCode::OK, "{reason}: {page}");
        assert_eq!(page["entitlement"]["authority"], "call", "{reason}: {page}");
        assert!(!page["entitlement"]["claims"].to_string().contains(FORGED), "{reason}: {page}");
        assert_eq!(suite.rollout("home-api").await.counts.authority_of(&kind), before + 1, "{reason}");
    }
    // Nothing of it has poisoned what is sound: the real summary is believed all the same.
    *forger.0.lock().expect("no panic") = real.clone();
    let (status, page) = page(&suite).await;
    assert_eq!((status, &page["entitlement"]["authority"]), (StatusCode::OK, &"summary".into()), "{page}");
    // A set without a key accepts nothing, and says so.
    std::fs::write(suite.files().keys().set_file(), "keys = []\n").expect("written");
    eventually("home-api accepts no key", async || suite.rollout("home-api").await.keys.is_empty()).await;
    let (_, page) = self::page(&suite).await;
    assert_eq!(page["entitlement"]["authority"], "call", "{page}");
    assert_eq!(suite.rollout("home-api").await.counts.authority_of("fallback:no_keys"), 1);
    suite.finish().await;
    stranger.stop();
    assert!(stranger.report().await.is_clean());
}

#[tokio::test]
async fn what_must_not_be_believed_is_refused_once_the_call_is_gone() {
    let (suite, forger, mut stranger, real) = forged(false).await;
    let version = real.profile.as_ref().expect("a profile").policy_version;
    let calls = suite.stats(Dependency::Entitlement).await.calls;
    for (reason, signed) in cases(version) {
        *forger.0.lock().expect("no panic") =
            GetProfileResponse { entitlement_summary: Some(signed), ..real.clone() };
        let (status, page) = page(&suite).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{reason}: {page}");
        assert!(
            page["error"]["message"].as_str().is_some_and(|text| text.contains(reason.as_str())),
            "{page}"
        );
    }
    assert_eq!(suite.stats(Dependency::Entitlement).await.calls, calls, "nobody asked the call");
    suite.finish().await;
    stranger.stop();
    assert!(stranger.report().await.is_clean());
}
