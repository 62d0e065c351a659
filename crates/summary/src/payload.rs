//! Payload: what a summary says, and its form as bytes.

use base::{Region, Subject, Tenant};
use prost::Message as _;
use wire::summary::v1::EntitlementSummary;

use crate::{
    Rejection,
    claims::{CLAIMS_MAX, is_claim},
};

/// The schema that this version writes and reads.
pub const SCHEMA_VERSION: u32 = 1;
/// Largest payload: every claim at its longest, the names, and what protobuf adds.
pub const PAYLOAD_BYTES_MAX: usize = 20 * 1_024;

/// What a subject may do in a region, under one policy version, for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whose claims these are.
    pub tenant: Tenant,
    /// Whose claims these are, within the tenant.
    pub subject: Subject,
    /// The region that they hold in.
    pub region: Region,
    /// The version of the tenant's policy that produced them; at least 1.
    pub policy_version: u64,
    /// The tenant's revocation epoch when the policy was read.
    pub revocation_epoch: u64,
    /// When it was issued, in milliseconds since the Unix epoch.
    pub issued_unix_ms: i64,
    /// From when on it says nothing any more.
    pub expires_unix_ms: i64,
    /// Sorted by byte value and unique.
    pub claims: Vec<String>,
}

impl Summary {
    /// The payload. Who receives it never does this: protobuf has no canonical form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let message = EntitlementSummary {
            schema_version: SCHEMA_VERSION,
            tenant: self.tenant.as_str().to_owned(),
            subject: self.subject.as_str().to_owned(),
            region: self.region.as_str().to_owned(),
            policy_version: self.policy_version,
            revocation_epoch: self.revocation_epoch,
            issued_unix_ms: self.issued_unix_ms,
            expires_unix_ms: self.expires_unix_ms,
            claims: self.claims.clone(),
        };
        message.encode_to_vec()
    }

    /// Reads a payload whose signature was verified. The schema is looked at first: of a later one nothing else is known.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Rejection> {
        let message = EntitlementSummary::decode(payload).map_err(|_| Rejection::Malformed)?;
        if message.schema_version != SCHEMA_VERSION {
            return Err(Rejection::UnsupportedSchema);
        }
        let ordered = message.claims.is_sorted_by(|one, next| one < next);
        let sound = message.claims.len() <= CLAIMS_MAX && message.claims.iter().all(|claim| is_claim(claim));
        if !ordered || !sound || message.policy_version == 0 {
            return Err(Rejection::Malformed);
        }
        Ok(Self {
            tenant: Tenant::parse(&message.tenant).map_err(|_| Rejection::Malformed)?,
            subject: Subject::parse(&message.subject).map_err(|_| Rejection::Malformed)?,
            region: Region::parse(&message.region).map_err(|_| Rejection::Malformed)?,
            policy_version: message.policy_version,
            revocation_epoch: message.revocation_epoch,
            issued_unix_ms: message.issued_unix_ms,
            expires_unix_ms: message.expires_unix_ms,
            claims: message.claims,
        })
    }
}
