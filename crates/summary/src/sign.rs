//! Sign: who issues summaries.

use std::fmt;

use ed25519_dalek::{Signer as _, SigningKey};

use crate::{Signed, Summary, keys::KeyId, signed_bytes};

/// A key that signs, under its id.
#[derive(Clone)]
pub struct Issuer {
    id: KeyId,
    key: SigningKey,
}

impl Issuer {
    pub(crate) const fn new(id: KeyId, key: SigningKey) -> Self {
        Self { id, key }
    }

    /// The id that receivers find its public key by.
    pub const fn key_id(&self) -> &KeyId {
        &self.id
    }

    /// The public key, as a key set holds it.
    pub fn public_key(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// Signs. The claims are put in order: byte order, each once.
    pub fn sign(&self, mut summary: Summary) -> Signed {
        summary.claims.sort_unstable();
        summary.claims.dedup();
        self.sign_bytes(summary.encode())
    }

    /// Signs a payload as it is.
    pub(crate) fn sign_bytes(&self, payload: Vec<u8>) -> Signed {
        let signature = self.key.sign(&signed_bytes(&payload));
        Signed { payload, key_id: self.id.as_str().to_owned(), signature: signature.to_bytes().to_vec() }
    }
}

/// The key itself is never shown.
impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("id", &self.id).finish_non_exhaustive()
    }
}
