//! Rejection: why a summary is no authority. A closed set: every reason is a label of a metric and a class of the comparison.

use std::fmt;

/// Why a summary was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// The key set is empty: nobody's signature is known.
    NoKeys,
    /// The key set does not hold the key that is named.
    UnknownKey,
    /// The payload is larger than any legal one.
    TooLarge,
    /// The signature does not have 64 bytes.
    SignatureLength,
    /// The signature is not the key's over these bytes, or not strictly so.
    InvalidSignature,
    /// The payload does not decode, or a field is not what the contract promises.
    Malformed,
    /// A schema that this version does not know; what it restricts is not known either.
    UnsupportedSchema,
    /// Another tenant's.
    WrongTenant,
    /// Another subject's.
    WrongSubject,
    /// For another region.
    WrongRegion,
    /// Of another policy version than the answer that carried it says.
    VersionSkew,
    /// It is past its expiry, or at it.
    Expired,
    /// It was issued further in the future than clocks may differ.
    FutureDated,
    /// It expires before it was issued, or lives longer than the cap.
    Lifetime,
    /// Its policy version is below one that was seen before.
    OutdatedVersion,
    /// Its policy version is above what can be right, and believing it would shut out every later one.
    VersionJump,
    /// Its revocation epoch is below the current one.
    Revoked,
}

impl Rejection {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::NoKeys,
        Self::UnknownKey,
        Self::TooLarge,
        Self::SignatureLength,
        Self::InvalidSignature,
        Self::Malformed,
        Self::UnsupportedSchema,
        Self::WrongTenant,
        Self::WrongSubject,
        Self::WrongRegion,
        Self::VersionSkew,
        Self::Expired,
        Self::FutureDated,
        Self::Lifetime,
        Self::OutdatedVersion,
        Self::VersionJump,
        Self::Revoked,
    ];

    /// Its name in metrics and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoKeys => "no_keys",
            Self::UnknownKey => "unknown_key",
            Self::TooLarge => "too_large",
            Self::SignatureLength => "signature_length",
            Self::InvalidSignature => "invalid_signature",
            Self::Malformed => "malformed",
            Self::UnsupportedSchema => "unsupported_schema",
            Self::WrongTenant => "wrong_tenant",
            Self::WrongSubject => "wrong_subject",
            Self::WrongRegion => "wrong_region",
            Self::VersionSkew => "version_skew",
            Self::Expired => "expired",
            Self::FutureDated => "future_dated",
            Self::Lifetime => "lifetime",
            Self::OutdatedVersion => "outdated_version",
            Self::VersionJump => "version_jump",
            Self::Revoked => "revoked",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Rejection {}
