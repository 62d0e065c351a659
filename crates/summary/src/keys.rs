//! Keys: ids, key sets of those who verify, and the signing key of the one who issues, as the files that `mercury keys`
//! writes.
//!
//! A set holds every key whose signatures are accepted. Keys rotate with overlap: the new one is added to the sets, then the
//! issuer signs with it, then the old one is taken out once nothing that it signed is still alive.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::sign::Issuer;

/// Most keys of a set: the current one, its successor and some room.
pub const KEYS_MAX: usize = 16;
/// Longest key id, in bytes.
pub const KEY_ID_BYTES_MAX: usize = 32;

/// The name of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Box<str>);

impl KeyId {
    /// 1 to 32 characters of a-z, 0-9 and '-'.
    ///
    /// # Errors
    /// [`KeyError::Id`] for anything else.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=KEY_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.into()))
        } else {
            Err(KeyError::Id)
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a key or a file of keys. Key material is never part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The file is no TOML of the expected form.
    File(String),
    /// A key id is not 1 to 32 characters of a-z, 0-9 and '-'.
    Id,
    /// The key of this id is not 32 bytes in base64.
    Encoding(KeyId),
    /// The key of this id is no point of the curve, or one whose signatures anybody can make.
    Weak(KeyId),
    /// Two keys have this id.
    Twice(KeyId),
    /// More than [`KEYS_MAX`] keys.
    TooMany(usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(fault) => f.write_str(fault.trim_end()),
            Self::Id => write!(f, "key_id: expected 1 to {KEY_ID_BYTES_MAX} characters of a-z, 0-9 and '-'"),
            Self::Encoding(id) => write!(f, "key {id}: expected 32 bytes in base64"),
            Self::Weak(id) => write!(f, "key {id}: not a public key that can be relied on"),
            Self::Twice(id) => write!(f, "key {id}: the id is taken twice"),
            Self::TooMany(count) => write!(f, "keys: {count} keys, at most {KEYS_MAX}"),
        }
    }
}

impl std::error::Error for KeyError {}

/// The public keys whose signatures are accepted. An empty set accepts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet(BTreeMap<KeyId, VerifyingKey>);

/// The file of a set.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SetFile {
    #[serde(default)]
    keys: Vec<PublicEntry>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PublicEntry {
    key_id: String,
    public_key: String,
}

/// The file of a signing key.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct IssuerFile {
    key_id: String,
    secret_seed: String,
}

impl KeySet {
    /// A set of the issuers' public keys.
    ///
    /// # Errors
    /// As [`KeySet::parse`].
    pub fn of<'i>(issuers: impl IntoIterator<Item = &'i Issuer>) -> Result<Self, KeyError> {
        let keys = issuers.into_iter().map(|issuer| (issuer.key_id().clone(), issuer.public_key()));
        Self::new(keys)
    }

    fn new(keys: impl IntoIterator<Item = (KeyId, [u8; 32])>) -> Result<Self, KeyError> {
        let mut set = BTreeMap::new();
        for (id, bytes) in keys {
            let key = VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak());
            let Some(key) = key else { return Err(KeyError::Weak(id)) };
            if set.contains_key(&id) {
                return Err(KeyError::Twice(id));
            }
            set.insert(id, key);
        }
        if set.len() > KEYS_MAX {
            return Err(KeyError::TooMany(set.len()));
        }
        Ok(Self(set))
    }

    /// Reads the file of a set.
    ///
    /// # Errors
    /// [`KeyError`] when the file or one of its keys cannot be relied on; a set is taken whole or not at all.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let file: SetFile = toml::from_str(text).map_err(|error| KeyError::File(error.to_string()))?;
        let keys = file.keys.iter().map(|entry| {
            let id = KeyId::parse(&entry.key_id)?;
            let bytes = bytes(&id, &entry.public_key)?;
            Ok((id, bytes))
        });
        Self::new(keys.collect::<Result<Vec<_>, KeyError>>()?)
    }

    /// The file of the set.
    pub fn to_file(&self) -> String {
        let keys = self.0.iter().map(|(id, key)| PublicEntry {
            key_id: id.as_str().to_owned(),
            public_key: STANDARD.encode(key.to_bytes()),
        });
        toml::to_string(&SetFile { keys: keys.collect() }).unwrap_or_default()
    }

    /// The key of an id, by the text on the wire.
    pub(crate) fn get(&self, id: &str) -> Option<&VerifyingKey> {
        // Bounded before it is looked for: the text is the sender's.
        (id.len() <= KEY_ID_BYTES_MAX)
            .then(|| self.0.iter().find(|(known, _)| known.as_str() == id))?
            .map(|(_, key)| key)
    }

    /// Whether nobody's signature is accepted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids, in order.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.0.keys()
    }

    /// The set without a key; `None` when it does not hold it.
    pub fn without(&self, id: &KeyId) -> Option<Self> {
        let mut left = self.0.clone();
        left.remove(id).map(|_| Self(left))
    }

    /// Both sets as one, for the time in which keys overlap.
    ///
    /// # Errors
    /// [`KeyError::Twice`] when an id stands for two keys.
    pub fn with(&self, other: &Self) -> Result<Self, KeyError> {
        let mut all = self.0.clone();
        for (id, key) in &other.0 {
            if all.insert(id.clone(), *key).is_some_and(|known| known != *key) {
                return Err(KeyError::Twice(id.clone()));
            }
        }
        if all.len() > KEYS_MAX {
            return Err(KeyError::TooMany(all.len()));
        }
        Ok(Self(all))
    }
}

impl Issuer {
    /// A signing key from 32 random bytes.
    pub fn from_seed(id: KeyId, seed: &[u8; 32]) -> Self {
        Self::new(id, SigningKey::from_bytes(seed))
    }

    /// Reads the file of a signing key.
    ///
    /// # Errors
    /// [`KeyError`] that never repeats what the file holds.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let file: IssuerFile = toml::from_str(text).map_err(|_| {
            KeyError::File("expected TOML with key_id and secret_seed, and nothing else".to_owned())
        })?;
        let id = KeyId::parse(&file.key_id)?;
        let seed = bytes(&id, &file.secret_seed)?;
        Ok(Self::from_seed(id, &seed))
    }

    /// The file of a signing key made from `seed`. It is a secret.
    pub fn file(id: &KeyId, seed: &[u8; 32]) -> String {
        let file = IssuerFile { key_id: id.as_str().to_owned(), secret_seed: STANDARD.encode(seed) };
        toml::to_string(&file).unwrap_or_default()
    }
}

fn bytes(id: &KeyId, text: &str) -> Result<[u8; 32], KeyError> {
    let decoded = STANDARD.decode(text).ok();
    decoded.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| KeyError::Encoding(id.clone()))
}
