//! Tests of the summary: what is signed is what is read, and every way in which it is not is refused with its reason.

use base::{Region, Subject, Tenant};
use proptest::prelude::*;
use prost::Message as _;
use wire::summary::v1::EntitlementSummary;

use crate::{
    KeyError, KeySet, Mark, Marks, PAYLOAD_BYTES_MAX, Rejection, Signed, Summary, Verifier,
    example::{NOW_MS, expected, identity, issuer, summary, verifier},
    marks::{JUMP_MAX, VALUE_MAX},
};

fn verify(signed: &Signed) -> Result<Summary, Rejection> {
    verifier(&[&issuer("a", 1)]).verify(signed, &expected(&identity()))
}

/// Signed by the known key with one thing changed.
fn changed(change: impl FnOnce(&mut Summary)) -> Result<Summary, Rejection> {
    let mut summary = summary();
    change(&mut summary);
    verify(&issuer("a", 1).sign(summary))
}

/// A payload of the issuer's own making.
fn payload(change: impl FnOnce(&mut EntitlementSummary)) -> Result<Summary, Rejection> {
    let mut message = EntitlementSummary::decode(summary().encode().as_slice()).expect("ours");
    change(&mut message);
    verify(&issuer("a", 1).sign_bytes(message.encode_to_vec()))
}

#[test]
fn what_was_signed_is_what_is_read_with_claims_in_order() {
    let mut unsorted = summary();
    unsorted.claims = ["home.offers", "billing.invoice", "home.offers"].map(str::to_owned).to_vec();
    assert_eq!(verify(&issuer("a", 1).sign(unsorted)), Ok(summary()));
}

#[test]
fn a_byte_that_changed_anywhere_is_refused() {
    let signed = issuer("a", 1).sign(summary());
    for at in 0..signed.payload.len() {
        let mut tampered = signed.clone();
        tampered.payload[at] ^= 1;
        assert_eq!(verify(&tampered), Err(Rejection::InvalidSignature), "payload byte {at}");
    }
    for at in 0..signed.signature.len() {
        let mut tampered = signed.clone();
        tampered.signature[at] ^= 1;
        assert_eq!(verify(&tampered), Err(Rejection::InvalidSignature), "signature byte {at}");
    }
}

#[test]
fn signatures_of_another_length_key_or_purpose_are_refused() {
    let signed = issuer("a", 1).sign(summary());
    for length in [0, 1, 63, 65, 128] {
        let mut cut = signed.clone();
        cut.signature.resize(length, 0);
        assert_eq!(verify(&cut), Err(Rejection::SignatureLength), "{length}");
    }
    assert_eq!(
        verify(&issuer("b", 1).sign(summary())),
        Err(Rejection::UnknownKey),
        "the key under another id"
    );
    assert_eq!(verify(&issuer("a", 2).sign(summary())), Err(Rejection::InvalidSignature), "another key");
    let endless = Signed { key_id: "a".repeat(1 << 20), ..signed.clone() };
    assert_eq!(verify(&endless), Err(Rejection::UnknownKey));
    let nobody = Verifier::new(KeySet::default());
    assert_eq!(nobody.verify(&signed, &expected(&identity())), Err(Rejection::NoKeys));
    let huge = Signed { payload: vec![0; PAYLOAD_BYTES_MAX + 1], ..signed };
    assert_eq!(verify(&huge), Err(Rejection::TooLarge));
}

/// The order of the curve's prime subgroup, little-endian (RFC 8032, section 5.1).
const L: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

#[test]
fn a_signature_has_one_form() {
    let mut signed = issuer("a", 1).sign(summary());
    // The scalar plus the group order verifies as well wherever it is not looked at.
    let mut carry = 0;
    for (byte, add) in signed.signature[32..].iter_mut().zip(L) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum as u8;
        carry = sum >> 8;
    }
    assert_eq!(verify(&signed), Err(Rejection::InvalidSignature));
}

#[test]
fn keys_that_anybody_can_sign_with_are_no_keys() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let entry =
        |key: [u8; 32]| format!("[[keys]]\nkey_id = \"a\"\npublic_key = \"{}\"\n", STANDARD.encode(key));
    let identity_point = {
        let mut bytes = [0; 32];
        bytes[0] = 1;
        bytes
    };
    for weak in [identity_point, [0; 32]] {
        assert!(matches!(KeySet::parse(&entry(weak)), Err(KeyError::Weak(_))), "{weak:?}");
    }
    let sound = entry(issuer("a", 1).public_key());
    assert!(KeySet::parse(&sound).is_ok());
    assert!(matches!(KeySet::parse(&(sound.clone() + &sound)), Err(KeyError::Twice(_))));
    assert!(KeySet::parse("").expect("no keys is a set").is_empty());
    for (bad, message) in [
        ("[[keys]]\nkey_id = \"A\"\npublic_key = \"\"\n", "key_id"),
        ("[[keys]]\nkey_id = \"a\"\npublic_key = \"?\"\n", "key a"),
        ("[[keys]]\nkey_id = \"a\"\n", "public_key"),
        ("[[keys]]\nkey_id = \"a\"\npublic_key = \"\"\nsecret = 1\n", "secret"),
    ] {
        let error = KeySet::parse(bad).expect_err("faulty").to_string();
        assert!(error.contains(message), "{error}");
    }
    let many: Vec<_> = (0..17).map(|at| issuer(&format!("k{at}"), at)).collect();
    assert_eq!(KeySet::of(&many), Err(KeyError::TooMany(17)));
}

#[test]
fn keys_rotate_with_overlap() {
    let (old, new) = (issuer("a", 1), issuer("b", 2));
    let (before, after) = (KeySet::of([&old]).expect("sound"), KeySet::of([&new]).expect("sound"));
    let both = Verifier::new(before.with(&after).expect("two ids"));
    for issuer in [&old, &new] {
        assert_eq!(both.verify(&issuer.sign(summary()), &expected(&identity())), Ok(summary()));
    }
    let later = Verifier::new(after);
    let refused = later.verify(&old.sign(summary()), &expected(&identity()));
    assert_eq!(refused, Err(Rejection::UnknownKey));
    let impostor = KeySet::of([&issuer("a", 3)]).expect("sound");
    assert!(matches!(before.with(&impostor), Err(KeyError::Twice(_))));
}

#[test]
fn files_of_keys_are_read_as_they_were_written_and_secrets_stay_in_them() {
    let known = issuer("a", 1);
    let file = crate::Issuer::file(known.key_id(), &[1; 32]);
    let read = crate::Issuer::parse(&file).expect("ours");
    assert_eq!(read.public_key(), known.public_key());
    let set = KeySet::of([&known, &issuer("b", 2)]).expect("sound");
    assert_eq!(KeySet::parse(&set.to_file()), Ok(set));
    let secret = file.lines().find_map(|line| line.strip_prefix("secret_seed = ")).expect("a seed");
    let error = crate::Issuer::parse(&format!("{file}more = 1\n")).expect_err("faulty").to_string();
    assert!(!error.contains(secret.trim_matches('"')), "{error}");
    assert!(!format!("{known:?}").contains("key:"), "{known:?}");
}

#[test]
fn somebody_elses_summary_is_refused_by_whose_it_is() {
    let tenant = changed(|summary| summary.tenant = Tenant::parse("tenant-008").expect("a tenant"));
    assert_eq!(tenant, Err(Rejection::WrongTenant));
    let subject = changed(|summary| summary.subject = Subject::parse("user-00043").expect("a subject"));
    assert_eq!(subject, Err(Rejection::WrongSubject));
    let region = changed(|summary| summary.region = Region::parse("us-east").expect("a region"));
    assert_eq!(region, Err(Rejection::WrongRegion));
}

#[test]
fn times_are_kept_to_the_millisecond() {
    let at = |issued: i64, expires: i64| {
        changed(|summary| {
            summary.issued_unix_ms = NOW_MS + issued;
            summary.expires_unix_ms = NOW_MS + expires;
        })
        .map(|_| ())
    };
    assert_eq!(at(-1_000, 1), Ok(()));
    assert_eq!(at(-1_000, 0), Err(Rejection::Expired), "now at the expiry is expired");
    assert_eq!(at(2_000, 60_000), Ok(()), "as far as clocks may differ");
    assert_eq!(at(2_001, 60_000), Err(Rejection::FutureDated));
    assert_eq!(at(0, 300_000), Ok(()));
    assert_eq!(at(0, 300_001), Err(Rejection::Lifetime));
    assert_eq!(at(10, 10), Err(Rejection::Lifetime));
    assert_eq!(at(20, 10), Err(Rejection::Lifetime));
    for (issued, expires) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (i64::MIN, i64::MIN)] {
        let extreme = changed(|summary| {
            summary.issued_unix_ms = issued;
            summary.expires_unix_ms = expires;
        });
        assert_eq!(extreme, Err(Rejection::Lifetime));
    }
}

#[test]
fn nothing_goes_back_behind_a_mark_nor_far_beyond_it() {
    assert_eq!(changed(|summary| summary.policy_version = 5), Err(Rejection::OutdatedVersion));
    assert_eq!(changed(|summary| summary.policy_version = 7), Err(Rejection::VersionSkew));
    assert_eq!(changed(|summary| summary.revocation_epoch = 2), Err(Rejection::Revoked));
    assert!(changed(|summary| summary.revocation_epoch = 4).is_ok(), "a newer epoch outdates nothing of it");
    assert_eq!(changed(|summary| summary.policy_version = u64::MAX), Err(Rejection::VersionJump));
    assert_eq!(changed(|summary| summary.revocation_epoch = u64::MAX), Err(Rejection::VersionJump));
    let unknown = Mark::default();
    assert_eq!(unknown.admits(VALUE_MAX, VALUE_MAX), Ok(()));
    assert_eq!(unknown.admits(VALUE_MAX + 1, 0), Err(Rejection::VersionJump));
    let known = Mark { policy_version: 6, revocation_epoch: 3 };
    assert_eq!(known.admits(6 + JUMP_MAX, 3), Ok(()));
    assert_eq!(known.admits(7 + JUMP_MAX, 3), Err(Rejection::VersionJump));
}

#[test]
fn payloads_of_an_issuer_that_is_ahead_or_wrong_are_refused() {
    assert_eq!(payload(|message| message.schema_version = 2), Err(Rejection::UnsupportedSchema));
    assert_eq!(payload(|message| message.schema_version = 0), Err(Rejection::UnsupportedSchema));
    assert_eq!(payload(|message| message.policy_version = 0), Err(Rejection::Malformed));
    assert_eq!(payload(|message| message.claims.reverse()), Err(Rejection::Malformed));
    assert_eq!(payload(|message| message.claims.push("home.offers".to_owned())), Err(Rejection::Malformed));
    assert_eq!(payload(|message| message.claims = vec!["A".to_owned()]), Err(Rejection::Malformed));
    let many = |message: &mut EntitlementSummary| {
        message.claims = (0..257).map(|at| format!("c{at:03}")).collect();
    };
    assert_eq!(payload(many), Err(Rejection::Malformed));
    assert_eq!(payload(|message| message.tenant.clear()), Err(Rejection::Malformed));
}

#[test]
fn the_bytes_are_what_is_signed_and_not_what_they_mean() {
    // A field that this version does not know, a number with a byte too many, and a single field twice: the same meaning
    // in other bytes. Verified as they came they hold; encoded again they would not.
    let known = summary().encode();
    let unknown_field = [known.as_slice(), &[0x7a, 0x01, 0x2a]].concat();
    let long_number = [known.as_slice(), &[0x28, 0x86, 0x00]].concat();
    for bytes in [unknown_field, long_number] {
        assert_eq!(verify(&issuer("a", 1).sign_bytes(bytes)), Ok(summary()));
    }
    let cut = known[..known.len() - 1].to_vec();
    assert_eq!(verify(&issuer("a", 1).sign_bytes(cut)), Err(Rejection::Malformed));
}

#[test]
fn marks_only_rise_and_survive_a_restart() {
    let (one, other) = (identity().tenant, Tenant::parse("tenant-008").expect("a tenant"));
    let mut marks = Marks::default();
    let mark = |policy_version, revocation_epoch| Mark { policy_version, revocation_epoch };
    assert!(marks.raise(&one, mark(8, 1)));
    assert!(!marks.raise(&one, mark(7, 1)), "it does not sink");
    assert!(marks.raise(&one, mark(7, 5)), "each value rises by itself");
    assert_eq!((marks.of(&one), marks.of(&other)), (mark(8, 5), Mark::default()));
    let again = Marks::restored(marks.iter().map(|(tenant, mark)| (tenant.clone(), *mark)));
    assert_eq!(again.of(&one).admits(7, 5), Err(Rejection::OutdatedVersion));
    assert_eq!(again.of(&one).admits(8, 4), Err(Rejection::Revoked));
    assert_eq!(again.forgotten(), 0);
}

#[test]
fn every_rejection_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Rejection::ALL.map(Rejection::as_str).into_iter().collect();
    assert_eq!(names.len(), Rejection::ALL.len());
}

proptest! {
    #[test]
    fn bytes_from_anywhere_are_refused_and_never_a_panic(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        signature in proptest::collection::vec(any::<u8>(), 0..80),
        key_id in ".{0,40}",
    ) {
        let refused = verify(&Signed { payload, key_id, signature });
        prop_assert!(refused.is_err());
    }

    #[test]
    fn signed_garbage_is_refused_or_a_sound_summary(garbage in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(read) = verify(&issuer("a", 1).sign_bytes(garbage)) {
            prop_assert_eq!(read.tenant, identity().tenant);
        }
    }

    #[test]
    fn a_mark_admits_exactly_what_is_not_behind(
        version in 1_u64..20, epoch in 0_u64..20, marked in 1_u64..20, known in 0_u64..20,
    ) {
        let mark = Mark { policy_version: marked, revocation_epoch: known };
        prop_assert_eq!(mark.admits(version, epoch).is_ok(), version >= marked && epoch >= known);
    }
}
