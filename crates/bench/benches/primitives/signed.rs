//! Signed: checking a signed entitlement summary beside the bare strict verification of the same bytes: what decoding it and
//! holding it against identity, times and marks costs on top.

use std::hint::black_box;

use base::{Identity, Nanos, Region, Subject, Tenant, WorkloadClass};
use ed25519_dalek::{Signature, VerifyingKey};
use summary::{Expected, Issuer, KeyId, KeySet, Mark, Rules, Summary, Verifier};

use crate::contest::{Contest, Side};

/// Beside the bare verification.
const GOAL: Option<f64> = Some(1.15);

const NOW_MS: i64 = 1_795_000_000_000;

/// The contests of the summary.
pub(crate) fn contests() -> Vec<Contest> {
    vec![verified()]
}

fn identity() -> Identity {
    Identity {
        tenant: Tenant::parse("tenant-007").expect("a tenant"),
        subject: Subject::parse("user-00042").expect("a subject"),
        class: WorkloadClass::Premium,
        region: Region::parse("eu-west").expect("a region"),
    }
}

/// A summary of twelve claims, which is an ordinary one.
fn verified() -> Contest {
    let issuer = Issuer::from_seed(KeyId::parse("bench").expect("an id"), &[7; 32]);
    let Identity { tenant, subject, region, .. } = identity();
    let signed = issuer.sign(Summary {
        tenant,
        subject,
        region,
        policy_version: 6,
        revocation_epoch: 3,
        issued_unix_ms: NOW_MS,
        expires_unix_ms: NOW_MS + 60_000,
        claims: (0..12).map(|at| format!("section-{at:02}.view")).collect(),
    });
    let rules = Rules { leeway: Nanos::from_secs(2), lifetime_max: Nanos::from_secs(300) };
    let verifier = Verifier::new(KeySet::of([&issuer]).expect("a sound key"));
    let key = VerifyingKey::from_bytes(&issuer.public_key()).expect("a sound key");
    let bytes = [b"mercury.summary.v1\0", signed.payload.as_slice()].concat();
    let signature = Signature::from_slice(&signed.signature).expect("64 bytes");
    Contest {
        what: "verify a summary",
        count: 20,
        sides: vec![
            Side::ours(move |lap| {
                let identity = identity();
                let mark = Mark { policy_version: 6, revocation_epoch: 3 };
                let expected =
                    Expected { identity: &identity, policy_version: 6, mark, rules, now_unix_ms: NOW_MS };
                for _ in 0..lap.count {
                    black_box(verifier.verify(black_box(&signed), &expected)).expect("it is sound");
                }
            }),
            Side::peer("bare verify_strict", GOAL, move |lap| {
                for _ in 0..lap.count {
                    black_box(key.verify_strict(black_box(&bytes), &signature)).expect("it is sound");
                }
            }),
        ],
    }
}
