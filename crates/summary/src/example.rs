//! Example: an issuer, a summary and who asks with it, for tests to doctor.

use base::{Identity, Nanos, Region, Subject, Tenant, WorkloadClass};

use crate::{Expected, Issuer, KeyId, KeySet, Mark, Rules, Summary, Verifier};

pub(crate) const NOW_MS: i64 = 1_795_000_000_000;
const RULES: Rules = Rules { leeway: Nanos::from_secs(2), lifetime_max: Nanos::from_secs(300) };

pub(crate) fn issuer(id: &str, seed: u8) -> Issuer {
    Issuer::from_seed(KeyId::parse(id).expect("an id"), &[seed; 32])
}

pub(crate) fn identity() -> Identity {
    Identity {
        tenant: Tenant::parse("tenant-007").expect("a tenant"),
        subject: Subject::parse("user-00042").expect("a subject"),
        class: WorkloadClass::Premium,
        region: Region::parse("eu-west").expect("a region"),
    }
}

pub(crate) fn summary() -> Summary {
    let Identity { tenant, subject, region, .. } = identity();
    Summary {
        tenant,
        subject,
        region,
        policy_version: 6,
        revocation_epoch: 3,
        issued_unix_ms: NOW_MS - 1_000,
        expires_unix_ms: NOW_MS + 59_000,
        claims: vec!["billing.invoice".to_owned(), "home.offers".to_owned()],
    }
}

pub(crate) fn verifier(issuers: &[&Issuer]) -> Verifier {
    Verifier::new(KeySet::of(issuers.iter().copied()).expect("sound keys"))
}

pub(crate) fn expected(identity: &Identity) -> Expected<'_> {
    Expected {
        identity,
        policy_version: 6,
        mark: Mark { policy_version: 6, revocation_epoch: 3 },
        rules: RULES,
        now_unix_ms: NOW_MS,
    }
}
