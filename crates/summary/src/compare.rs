//! Compare: a summary beside what the entitlement call said for the same request. One class for every outcome, so that the
//! classes of a time add up to its requests; which of them block a migration is said here and nowhere else.

use std::fmt;

use crate::{Rejection, Summary, claims::Entitlement};

/// What a summary was, beside the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Comparison {
    /// The same claims in the same order, of the same version.
    Match,
    /// The same claims in another order.
    OrderOnly,
    /// Of another policy version, or of one that was left behind. Says nothing about the claims.
    VersionSkew,
    /// Other claims of the same version.
    ClaimsMismatch,
    /// Not provably the issuer's.
    InvalidSignature,
    /// Past its expiry.
    Expired,
    /// Somebody else's.
    WrongIdentity,
    /// Of an epoch before the last revocation.
    Revoked,
    /// There was none.
    Missing,
    /// There was one that could not be used for another reason.
    CandidateError,
    /// The comparison was left out: the process had no room for it, or the call gave no answer to compare with.
    NotRun,
}

impl Comparison {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Match,
        Self::OrderOnly,
        Self::VersionSkew,
        Self::ClaimsMismatch,
        Self::InvalidSignature,
        Self::Expired,
        Self::WrongIdentity,
        Self::Revoked,
        Self::Missing,
        Self::CandidateError,
        Self::NotRun,
    ];

    /// The class of a summary as it was checked, `None` when there was none, beside the answer of the call.
    pub fn of(candidate: Option<Result<&Summary, Rejection>>, call: &Entitlement) -> Self {
        match candidate {
            None => Self::Missing,
            Some(Err(rejection)) => Self::of_rejection(rejection),
            Some(Ok(summary)) if summary.policy_version != call.policy_version => Self::VersionSkew,
            // The tenant lost claims between the two answers: that is a summary to be refused, and no difference of the rules.
            Some(Ok(summary)) if summary.revocation_epoch < call.revocation_epoch => Self::Revoked,
            Some(Ok(summary)) if summary.claims == call.claims => Self::Match,
            Some(Ok(summary)) => {
                // The summary's own are in order and unique, which was checked.
                let mut claims: Vec<&str> = call.claims.iter().map(String::as_str).collect();
                claims.sort_unstable();
                if summary.claims.iter().eq(claims) { Self::OrderOnly } else { Self::ClaimsMismatch }
            }
        }
    }

    /// The class of a refused summary.
    pub const fn of_rejection(rejection: Rejection) -> Self {
        match rejection {
            Rejection::UnknownKey
            | Rejection::SignatureLength
            | Rejection::InvalidSignature
            | Rejection::TooLarge => Self::InvalidSignature,
            Rejection::WrongTenant | Rejection::WrongSubject | Rejection::WrongRegion => Self::WrongIdentity,
            Rejection::Expired => Self::Expired,
            Rejection::Revoked => Self::Revoked,
            Rejection::VersionSkew | Rejection::OutdatedVersion => Self::VersionSkew,
            // The receiver has no keys: nothing is known about the summary.
            Rejection::NoKeys
            | Rejection::Malformed
            | Rejection::UnsupportedSchema
            | Rejection::FutureDated
            | Rejection::Lifetime
            | Rejection::VersionJump => Self::CandidateError,
        }
    }

    /// Whether a single one stops a migration: the summary would have said something else, or cannot be trusted.
    pub const fn blocks(self) -> bool {
        matches!(self, Self::ClaimsMismatch | Self::InvalidSignature | Self::WrongIdentity)
    }

    /// Its name in metrics and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::OrderOnly => "order_only",
            Self::VersionSkew => "version_skew",
            Self::ClaimsMismatch => "claims_mismatch",
            Self::InvalidSignature => "invalid_signature",
            Self::Expired => "expired",
            Self::WrongIdentity => "wrong_identity",
            Self::Revoked => "revoked",
            Self::Missing => "missing",
            Self::CandidateError => "candidate_error",
            Self::NotRun => "not_run",
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::example::summary;

    fn call(claims: &[&str]) -> Entitlement {
        let claims = claims.iter().map(|claim| (*claim).to_owned()).collect();
        Entitlement { policy_version: 6, revocation_epoch: 3, claims }
    }

    #[test]
    fn equal_claims_match_and_order_is_told_apart_from_content() {
        let summary = summary();
        let of = |claims: &[&str]| Comparison::of(Some(Ok(&summary)), &call(claims));
        assert_eq!(of(&["billing.invoice", "home.offers"]), Comparison::Match);
        assert_eq!(of(&["home.offers", "billing.invoice"]), Comparison::OrderOnly);
        assert_eq!(of(&["billing.invoice"]), Comparison::ClaimsMismatch);
        assert_eq!(of(&["billing.invoice", "home.offers", "x"]), Comparison::ClaimsMismatch);
        assert_eq!(of(&["billing.invoice", "billing.invoice"]), Comparison::ClaimsMismatch);
        assert_eq!(of(&[]), Comparison::ClaimsMismatch);
    }

    #[test]
    fn another_version_is_skew_whatever_the_claims() {
        let summary = summary();
        for claims in [&["billing.invoice", "home.offers"][..], &["other"]] {
            let newer = Entitlement { policy_version: 7, ..call(claims) };
            assert_eq!(Comparison::of(Some(Ok(&summary)), &newer), Comparison::VersionSkew);
        }
    }

    #[test]
    fn what_the_call_knows_to_be_revoked_is_no_mismatch() {
        let summary = summary();
        let later = Entitlement { revocation_epoch: summary.revocation_epoch + 1, ..call(&[]) };
        assert_eq!(Comparison::of(Some(Ok(&summary)), &later), Comparison::Revoked);
        let earlier = Entitlement { revocation_epoch: summary.revocation_epoch - 1, ..call(&[]) };
        assert_eq!(Comparison::of(Some(Ok(&summary)), &earlier), Comparison::ClaimsMismatch);
    }

    #[test]
    fn what_is_missing_or_refused_is_no_match_and_only_what_lies_blocks() {
        let call = call(&["billing.invoice"]);
        assert_eq!(Comparison::of(None, &call), Comparison::Missing);
        for rejection in Rejection::ALL {
            let class = Comparison::of(Some(Err(rejection)), &call);
            assert!(!matches!(class, Comparison::Match | Comparison::OrderOnly), "{rejection}");
        }
        let blocking: Vec<_> = Comparison::ALL.into_iter().filter(|class| class.blocks()).collect();
        assert_eq!(
            blocking,
            [Comparison::ClaimsMismatch, Comparison::InvalidSignature, Comparison::WrongIdentity]
        );
        let names: std::collections::BTreeSet<_> =
            Comparison::ALL.map(Comparison::as_str).into_iter().collect();
        assert_eq!(names.len(), Comparison::ALL.len());
    }

    proptest! {
        #[test]
        fn the_same_set_is_a_match_or_a_matter_of_order(mut claims in proptest::collection::btree_set("[a-d]{1,2}", 0..6)
            .prop_map(|set| set.into_iter().collect::<Vec<String>>()).prop_shuffle())
        {
            let shuffled = Entitlement { policy_version: 6, revocation_epoch: 3, claims: claims.clone() };
            claims.sort_unstable();
            let ordered = shuffled.claims == claims;
            let summary = Summary { claims, ..summary() };
            let class = Comparison::of(Some(Ok(&summary)), &shuffled);
            prop_assert_eq!(class, if ordered { Comparison::Match } else { Comparison::OrderOnly });
        }
    }
}
