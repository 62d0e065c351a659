//! Decide: what entitlement answers when the store does not know a version. How claims follow from a policy is in
//! `summary::claims`, since profile derives the same ones for the signed summary.

use base::Refusal;

/// The refusal for a version that the store does not know.
///
/// The store kept its contract and the version is the caller's input, so this is `InvalidInput`. Within the home path
/// the version came from profile, and home-api reports a rejected argument as a fault of the suite: two stores that
/// disagree about which versions exist are to be looked into, not retried. Whether the tenant or only the version is
/// unknown is not told.
pub fn unknown_version() -> Refusal {
    Refusal::invalid("policy_version", "policy_version: the tenant has no such policy version")
}
