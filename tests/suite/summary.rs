//! Summary: the signed summary that profile emits says what entitlement says when it is asked, and is emitted only where the
//! policy has it so. Old receivers are served as before.

use ::summary::{Expected, KeySet, Mark, Rejection, Rules, Verifier};
use ::wire::{
    entitlement::v1::{GetEntitlementRequest, entitlement_service_client::EntitlementServiceClient},
    profile::v1::{GetProfileRequest, GetProfileResponse, profile_service_client::ProfileServiceClient},
};
use base::{
    Dependency, Identity, Nanos, Region, Subject, Tenant, WallClock as _, WorkloadClass,
    clock::SystemWallClock, headers,
};

use crate::harness::{Options, Suite, identified, patient, summary_issuer};

const RULES: Rules = Rules { leeway: Nanos::from_secs(2), lifetime_max: Nanos::from_secs(300) };
/// Subjects of every tenant, tenants and regions that are asked for.
const SUBJECTS: [&str; 6] =
    ["user-00001", "user-00042", "user-00123", "user-00777", "user-01234", "user-04999"];
const TENANTS: [&str; 3] = ["tenant-000", "tenant-007", "tenant-101"];
const REGIONS: [&str; 3] = ["eu-west", "us-east", "ap-south"];

fn identity(tenant: &str, subject: &str, region: &str) -> Identity {
    Identity {
        tenant: Tenant::parse(tenant).expect("a tenant"),
        subject: Subject::parse(subject).expect("a subject"),
        class: WorkloadClass::Premium,
        region: Region::parse(region).expect("a region"),
    }
}

async fn profile(suite: &Suite, who: &Identity) -> GetProfileResponse {
    let mut client = ProfileServiceClient::new(suite.link("profile"));
    let request = identified(GetProfileRequest { response_schema: 1 }, &of(who));
    client.get_profile(request).await.expect("a profile").into_inner()
}

fn of(who: &Identity) -> [(&'static str, &str); 3] {
    [
        (headers::TENANT, who.tenant.as_str()),
        (headers::SUBJECT, who.subject.as_str()),
        (headers::REGION, who.region.as_str()),
    ]
}

fn emitting() -> Options {
    Options::quick().policy("summary", "emit", "true")
}

#[tokio::test]
async fn a_summary_says_what_entitlement_says_for_every_subject_and_region() {
    let suite = Suite::start_with(emitting()).await;
    let verifier = Verifier::new(KeySet::of([&summary_issuer()]).expect("a sound key"));
    let mut asked = 0;
    let mut different = std::collections::BTreeSet::new();
    for (tenant, subject, region) in TENANTS.iter().flat_map(|tenant| {
        SUBJECTS.iter().flat_map(move |subject| REGIONS.iter().map(move |region| (tenant, subject, region)))
    }) {
        let who = identity(tenant, subject, region);
        let answer = profile(&suite, &who).await;
        let row = answer.profile.expect("a profile");
        let signed = answer.entitlement_summary.expect("a summary");
        let now_unix_ms = SystemWallClock.unix_ms();
        let expected = Expected {
            rules: RULES,
            identity: &who,
            policy_version: row.policy_version,
            mark: Mark::default(),
            now_unix_ms,
        };
        let read = verifier.verify(&signed, &expected).unwrap_or_else(|why| panic!("{who:?}: {why}"));
        let question = GetEntitlementRequest {
            plan: row.plan,
            segment: row.segment,
            policy_version: row.policy_version,
        };
        let mut client = EntitlementServiceClient::new(suite.link("entitlement"));
        let told =
            client.get_entitlement(identified(question, &of(&who))).await.expect("claims").into_inner();
        let told = told.entitlement.expect("claims");
        assert_eq!(read.claims, told.claims, "{who:?}");
        assert_eq!(
            (read.policy_version, read.revocation_epoch),
            (told.policy_version, told.revocation_epoch),
            "{who:?}"
        );
        // Another subject's, another region's: the same bytes are authority for nobody else.
        let stranger = identity(tenant, "user-09999", region);
        let refused = verifier.verify(&signed, &Expected { identity: &stranger, ..expected });
        assert_eq!(refused, Err(Rejection::WrongSubject));
        different.insert(read.claims);
        asked += 1;
    }
    assert!(different.len() > 5, "the subjects are not all alike: {different:?}");
    let scrape = suite.scrape("profile").await;
    let signed = scrape.sum("mercury_profile_summaries_total", &[("outcome", "signed")]);
    assert_eq!(signed, f64::from(asked));
    assert_eq!(scrape.sum("mercury_profile_summaries_total", &[]), f64::from(asked), "each was counted once");
    suite.finish().await;
}

#[tokio::test]
async fn a_page_is_the_same_whether_summaries_are_emitted_or_not() {
    let mut pages = Vec::new();
    for options in [Options::quick(), emitting()] {
        let suite = Suite::start_with(options).await;
        let answer = suite.get(&patient(&[(headers::REQUEST_ID, "same")])).await;
        let mut page = answer.json();
        let emitted = profile(&suite, &identity("tenant-007", "user-00042", "eu-west")).await;
        pages.push((
            page["entitlement"].take(),
            page["profile"].take(),
            emitted.entitlement_summary.is_some(),
        ));
        assert_eq!(suite.stats(Dependency::Entitlement).await.calls, 1, "the call is the authority");
        suite.finish().await;
    }
    let [before, after] = <[_; 2]>::try_from(pages).expect("two");
    assert_eq!((&before.0, &before.1), (&after.0, &after.1));
    assert_eq!(before.0["authority"], "call");
    assert_eq!((before.2, after.2), (false, true));
}
