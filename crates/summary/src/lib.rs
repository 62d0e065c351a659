//! Summary: the entitlement summary, signed by who issues the claims and checked by who relies on them. Pure: keys, bytes and
//! the time are arguments; there is no transport, no file and no clock here.
//!
//! [`claims`] derives them from a policy, [`Issuer`] signs, [`keys`] reads key sets, [`Verifier`] checks, [`marks`] remembers
//! per tenant what must not be gone back behind, and [`Comparison`] holds a summary beside the entitlement call. Every refusal has
//! a reason of a closed set, [`Rejection`]; nothing that is refused was read as a grant.

pub mod claims;
mod compare;
pub mod keys;
pub mod marks;
mod payload;
mod rejection;
mod sign;
mod verify;

pub use compare::Comparison;
pub use keys::{KeyError, KeyId, KeySet};
pub use marks::{Mark, Marks};
pub use payload::{PAYLOAD_BYTES_MAX, SCHEMA_VERSION, Summary};
pub use rejection::Rejection;
pub use sign::Issuer;
pub use verify::{Expected, Rules, Verifier};

/// The envelope on the wire.
pub use wire::summary::v1::SignedEntitlementSummary as Signed;

/// What is signed before the payload, so that a signature for another purpose is never one for this.
const DOMAIN: &[u8] = b"mercury.summary.v1\0";

/// The bytes that are signed.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    [DOMAIN, payload].concat()
}

#[cfg(test)]
mod example;
#[cfg(test)]
mod tests;
