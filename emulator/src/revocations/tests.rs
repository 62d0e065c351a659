//! Tests of the revocations: what is taken away is gone in every store at once, nothing else is touched, room is bounded, and
//! a copy that is wrong is wrong for exactly its share.

use std::collections::BTreeSet;

use proptest::prelude::*;
use wire::emulator::v1::ClaimRule;

use super::*;
use crate::testing::SEED;

const DATA: DataSet = DataSet::new(SEED);
const TENANT: &str = "tenant-007";
const SUBJECT: &str = "user-00042";
const WHO: Who = Who { tenant: 7, subject: 42 };

fn claims<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn newest(revocations: &Revocations, subject: &str) -> FetchPolicyResponse {
    let version = DATA.profile(TENANT, subject).expect("a row").policy_version;
    revocations.policy(&DATA, TENANT, subject, version).expect("a policy")
}

/// What follows from a policy in a region.
fn derived(policy: &FetchPolicyResponse, row: &FetchProfileResponse, region: &str) -> BTreeSet<String> {
    let of = |rules: &[ClaimRule], selector: &str| -> Vec<String> {
        rules.iter().filter(|rule| rule.selector == selector).flat_map(|rule| rule.claims.clone()).collect()
    };
    let mut claims: BTreeSet<String> = of(&policy.plan_rules, &row.plan).into_iter().collect();
    claims.extend(of(&policy.segment_rules, &row.segment));
    claims.extend(policy.grants.clone());
    for lost in of(&policy.region_exclusions, region).iter().chain(&policy.denials) {
        claims.remove(lost);
    }
    claims
}

fn subjects() -> impl Iterator<Item = (String, String)> {
    (0..2_000).map(|n| (names::tenant(n % names::TENANTS), names::subject(n * 7 % names::SUBJECTS)))
}

#[test]
fn a_claim_is_read_as_the_services_read_it() {
    for good in ["a", "home.view", "x-1_2:3", &"z".repeat(64)] {
        assert!(is_claim(good), "{good}");
    }
    for bad in ["", "Home", "a b", "a/b", "ä", &"z".repeat(65)] {
        assert!(!is_claim(bad), "{bad}");
    }
}

#[test]
fn a_revocation_is_in_every_store_and_version_and_concerns_one_subject() {
    let revocations = Revocations::default();
    let (before, other) = (newest(&revocations, SUBJECT), newest(&revocations, "user-00043"));
    let lost = claims(["home.view", "made.up", "home.view"]);
    let epoch = revocations.revoke(&DATA, WHO, &lost).expect("room");
    assert_eq!(epoch, before.revocation_epoch + 1);
    let now = newest(&revocations, SUBJECT);
    assert_eq!(now.denials, [before.denials.clone(), claims(["home.view", "made.up"])].concat());
    assert_eq!((now.revocation_epoch, &now.grants), (epoch, &before.grants));
    assert_eq!(revocations.profile(&DATA, TENANT, SUBJECT, true).expect("a row").policy, Some(now.clone()));
    let first = revocations.policy(&DATA, TENANT, SUBJECT, 1).expect("a policy");
    assert_eq!((first.revocation_epoch, first.denials), (epoch, now.denials.clone()));
    // The tenant's epoch concerns all its subjects, its denials do not.
    let theirs = newest(&revocations, "user-00043");
    assert_eq!(theirs, FetchPolicyResponse { revocation_epoch: epoch, ..other });
    assert_eq!(revocations.policy(&DATA, "tenant-008", SUBJECT, 1), DATA.policy("tenant-008", SUBJECT, 1));
    // The same once more is a revocation all the same.
    assert_eq!(revocations.revoke(&DATA, WHO, &lost), Ok(epoch + 1));
    assert_eq!(newest(&revocations, SUBJECT).denials, now.denials);
    revocations.reset();
    assert_eq!(newest(&revocations, SUBJECT), before);
}

#[test]
fn room_is_bounded_and_what_has_no_room_changes_nothing() {
    let revocations = Revocations::default();
    let many: Vec<String> = (0..CLAIMS_DENIED_MAX).map(|n| format!("claim.{n}")).collect();
    for some in many.chunks(CLAIMS_REVOKED_MAX) {
        revocations.revoke(&DATA, WHO, some).expect("room");
    }
    let before = newest(&revocations, SUBJECT);
    assert_eq!(revocations.revoke(&DATA, WHO, &claims(["claim.0", "one.more"])), Err(Full::Claims));
    assert_eq!(newest(&revocations, SUBJECT), before);
    revocations.revoke(&DATA, WHO, &claims(["claim.0"])).expect("room, since it was lost before");

    let all = (0..names::TENANTS)
        .flat_map(|tenant| (0..names::SUBJECTS).map(move |subject| Who { tenant, subject }));
    let mut others = all.filter(|who| *who != WHO);
    for who in others.by_ref().take(SUBJECTS_DENIED_MAX - 1) {
        revocations.revoke(&DATA, who, &claims(["home.view"])).expect("room");
    }
    let late = others.next().expect("more subjects than room");
    let epoch = revocations.look(|state| state.epoch(&DATA, late.tenant));
    assert_eq!(revocations.revoke(&DATA, late, &claims(["home.view"])), Err(Full::Subjects));
    assert_eq!(revocations.look(|state| state.epoch(&DATA, late.tenant)), epoch);
    revocations.revoke(&DATA, WHO, &claims(["claim.1"])).expect("room, since the subject had lost some");
}

#[test]
fn a_stale_row_is_one_version_old_and_says_so() {
    let revocations = Revocations::default();
    assert_eq!(revocations.set_copy(PolicyCopy::Stale, Share::ALL), PolicyCopy::Exact);
    let epoch = revocations.revoke(&DATA, WHO, &claims(["home.view"])).expect("room");
    for (tenant, subject) in subjects() {
        let exact = DATA.profile(&tenant, &subject).expect("a row");
        let stale = revocations.profile(&DATA, &tenant, &subject, true).expect("a row");
        let policy = stale.policy.expect("a policy");
        assert_eq!(stale.policy_version, exact.policy_version - 1);
        assert_eq!(policy.policy_version, stale.policy_version);
        let kept = revocations.policy(&DATA, &tenant, &subject, stale.policy_version);
        assert_eq!(Some(policy), kept, "that version as it is");
        let alone = revocations.profile(&DATA, &tenant, &subject, false).expect("a row");
        assert_eq!((alone.policy_version, alone.policy), (stale.policy_version, None));
    }
    let told = revocations.profile(&DATA, TENANT, SUBJECT, true).expect("a row").policy.expect("a policy");
    assert_eq!(told.revocation_epoch, epoch, "a revocation is in every store");
    assert_eq!(revocations.set_copy(PolicyCopy::Exact, Share::ALL), PolicyCopy::Stale);
}

#[test]
fn a_divergent_copy_has_one_grant_too_many_in_every_region() {
    let revocations = Revocations::default();
    revocations.set_copy(PolicyCopy::Divergent, Share::ALL);
    let everything: Vec<String> = crate::dataset::vocabulary().map(str::to_owned).collect();
    revocations.revoke(&DATA, WHO, &everything).expect("room");
    revocations.revoke(&DATA, WHO, &claims(["copy.only.0"])).expect("room");
    for (tenant, subject) in subjects().chain([(TENANT.to_owned(), SUBJECT.to_owned())]) {
        let row = revocations.profile(&DATA, &tenant, &subject, true).expect("a row");
        let kept = revocations.policy(&DATA, &tenant, &subject, row.policy_version).expect("a policy");
        let copy = row.policy.clone().expect("a policy");
        assert_eq!(copy.grants.len(), kept.grants.len() + 1);
        assert_eq!(FetchPolicyResponse { grants: kept.grants.clone(), ..copy.clone() }, kept);
        for region in names::REGIONS {
            let (wrong, right) = (derived(&copy, &row, region), derived(&kept, &row, region));
            assert!(wrong.is_superset(&right), "{tenant} {subject} {region}");
            assert_eq!(wrong.len(), right.len() + 1, "{tenant} {subject} {region}: {copy:?}");
        }
    }
    let lost = revocations.profile(&DATA, TENANT, SUBJECT, true).expect("a row").policy.expect("a policy");
    assert_eq!(lost.grants.last().map(String::as_str), Some("copy.only.1"));
}

#[test]
fn a_copy_is_wrong_for_its_share_and_for_the_same_subjects_every_time() {
    let concerned = |ppm: u32, data: &DataSet| -> BTreeSet<(String, String)> {
        let revocations = Revocations::default();
        revocations.set_copy(PolicyCopy::Stale, Share::from_ppm(ppm));
        let version = |row: Option<FetchProfileResponse>| row.expect("a row").policy_version;
        let wrong = |(tenant, subject): &(String, String)| {
            version(revocations.profile(data, tenant, subject, false))
                != version(data.profile(tenant, subject))
        };
        subjects().filter(wrong).collect()
    };
    let some = concerned(100_000, &DATA);
    assert_eq!(some, concerned(100_000, &DATA));
    assert_ne!(some, concerned(100_000, &DataSet::new(SEED + 1)));
    assert!((130..270).contains(&some.len()), "a tenth of 2,000: {}", some.len());
    assert_eq!(concerned(1_000_000, &DATA).len(), 2_000);
}

proptest! {
    #[test]
    fn nothing_is_given_back_by_taking_more(
        taken in proptest::collection::vec((0_u32..4, proptest::collection::vec("[a-c]{1,2}", 1..5)), 0..12),
    ) {
        let revocations = Revocations::default();
        let denials = |subject: u32| -> Vec<String> {
            let row = revocations.profile(&DATA, TENANT, &names::subject(subject), true).expect("a row");
            row.policy.expect("a policy").denials
        };
        for (subject, claims) in taken {
            let before: Vec<Vec<String>> = (0..4).map(denials).collect();
            revocations.revoke(&DATA, Who { tenant: 7, subject }, &claims).expect("room");
            for (at, before) in (0..4).zip(before) {
                let now = denials(at);
                prop_assert!(now.starts_with(&before));
                prop_assert_eq!(now.iter().collect::<BTreeSet<_>>().len(), now.len(), "each once");
                prop_assert!(at != subject || claims.iter().all(|claim| now.contains(claim)));
                prop_assert!(at == subject || now == before);
            }
        }
    }

    #[test]
    fn a_larger_share_holds_the_smaller_one(
        tenant in 0..names::TENANTS, subject in 0..names::SUBJECTS, one in 0_u32..=1_000_000, two in 0_u32..=1_000_000,
    ) {
        let (small, large) = (Share::from_ppm(one.min(two)), Share::from_ppm(one.max(two)));
        prop_assert!(!DATA.copies(tenant, subject, small) || DATA.copies(tenant, subject, large));
    }
}
