//! Verify: whether a summary is authority for a request. Signature first, over the bytes as they came; then it is decoded,
//! once; then everything that it says is held against what is known.

use base::{Identity, Nanos};
use ed25519_dalek::Signature;

use crate::{KeySet, Mark, PAYLOAD_BYTES_MAX, Rejection, Signed, Summary, signed_bytes};

/// Bounds of a summary's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How far clocks may differ: a summary may be issued so far in the future.
    pub leeway: Nanos,
    /// Longest life from issue to expiry.
    pub lifetime_max: Nanos,
}

/// What a summary has to fit.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'r> {
    /// Who is asking, as authenticated.
    pub identity: &'r Identity,
    /// The policy version of the answer that carried the summary.
    pub policy_version: u64,
    /// What the tenant must not go back behind.
    pub mark: Mark,
    /// How long it may live, and how far clocks may differ.
    pub rules: Rules,
    /// Now, in milliseconds since the Unix epoch.
    pub now_unix_ms: i64,
}

/// Checks summaries.
#[derive(Clone, Debug)]
pub struct Verifier {
    keys: KeySet,
}

impl Verifier {
    /// Accepts what these keys signed.
    pub const fn new(keys: KeySet) -> Self {
        Self { keys }
    }

    /// The keys whose signatures are accepted.
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// The summary, when it is authority for who is asking.
    ///
    /// # Errors
    /// The first [`Rejection`] that applies, in the order of the checks. No field was read before the signature held.
    pub fn verify(&self, signed: &Signed, expected: &Expected<'_>) -> Result<Summary, Rejection> {
        if self.keys.is_empty() {
            return Err(Rejection::NoKeys);
        }
        if signed.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Rejection::TooLarge);
        }
        let key = self.keys.get(&signed.key_id).ok_or(Rejection::UnknownKey)?;
        let signature = Signature::from_slice(&signed.signature).map_err(|_| Rejection::SignatureLength)?;
        key.verify_strict(&signed_bytes(&signed.payload), &signature)
            .map_err(|_| Rejection::InvalidSignature)?;
        let summary = Summary::decode(&signed.payload)?;
        holds(&summary, expected)?;
        Ok(summary)
    }
}

fn holds(summary: &Summary, expected: &Expected<'_>) -> Result<(), Rejection> {
    let Identity { tenant, subject, region, .. } = expected.identity;
    if summary.tenant != *tenant {
        return Err(Rejection::WrongTenant);
    }
    if summary.subject != *subject {
        return Err(Rejection::WrongSubject);
    }
    if summary.region != *region {
        return Err(Rejection::WrongRegion);
    }
    // Whole milliseconds of far apart instants may overflow; saturated, they are still far apart.
    let now = expected.now_unix_ms;
    let lifetime = summary.expires_unix_ms.saturating_sub(summary.issued_unix_ms);
    if lifetime <= 0 || lifetime > millis(expected.rules.lifetime_max) {
        return Err(Rejection::Lifetime);
    }
    if now >= summary.expires_unix_ms {
        return Err(Rejection::Expired);
    }
    if summary.issued_unix_ms > now.saturating_add(millis(expected.rules.leeway)) {
        return Err(Rejection::FutureDated);
    }
    expected.mark.admits(summary.policy_version, summary.revocation_epoch)?;
    if summary.policy_version != expected.policy_version {
        return Err(Rejection::VersionSkew);
    }
    Ok(())
}

fn millis(span: Nanos) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
