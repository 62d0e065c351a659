//! Keys: the directory with the keys of the signed entitlement summary, as `mercury keys` makes and rotates them: one that signs, the
//! set that is accepted, and those that are accepted already and wait to sign.
//!
//! A rotation has three steps, with time in between for every process to take them over: add the new key to the set, sign with
//! it, remove the old one once nothing that it signed is alive.

use std::{
    fmt, fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use summary::{Issuer, KeyError, KeyId, KeySet};

/// File of the key that signs.
const ISSUER: &str = "summary-key.toml";
/// File of the accepted keys.
const SET: &str = "summary-keys.toml";
/// Who may read a secret.
const SECRET: u32 = 0o600;
/// Who may read the rest.
const PUBLIC: u32 = 0o644;

/// Why a directory of keys was not changed.
#[derive(Debug)]
pub enum KeysError {
    /// A file cannot be read or written.
    Io(PathBuf, io::Error),
    /// A file is no key or no set.
    Key(PathBuf, KeyError),
    /// It is there already, and is not overwritten.
    Taken(PathBuf),
    /// No such key waits to sign.
    NotWaiting(KeyId),
    /// It is the key that signs.
    Signs(KeyId),
    /// The set does not hold it.
    NotInSet(KeyId),
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Key(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Taken(path) => write!(f, "{}: is there already, and is not overwritten", path.display()),
            Self::NotWaiting(id) => write!(f, "key {id}: does not wait to sign; add it first"),
            Self::Signs(id) => write!(f, "key {id}: it signs; sign with another before it is removed"),
            Self::NotInSet(id) => write!(f, "key {id}: is not in the set"),
        }
    }
}

impl std::error::Error for KeysError {}

/// A directory of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDir(PathBuf);

impl KeyDir {
    /// The directory at `path`, whether or not there is anything yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// File of the key that signs.
    pub fn issuer_file(&self) -> PathBuf {
        self.0.join(ISSUER)
    }

    /// File of the accepted keys.
    pub fn set_file(&self) -> PathBuf {
        self.0.join(SET)
    }

    fn waiting_file(&self, id: &KeyId) -> PathBuf {
        self.0.join(format!("summary-key.{id}.toml"))
    }

    /// Whether there are keys.
    pub fn is_made(&self) -> bool {
        self.issuer_file().exists() && self.set_file().exists()
    }

    /// Makes the first key from `seed`, which signs and is accepted.
    ///
    /// # Errors
    /// [`KeysError::Taken`] when there is one already.
    pub fn init(&self, id: &KeyId, seed: &[u8; 32]) -> Result<(), KeysError> {
        let (issuer_at, set_at) = (self.issuer_file(), self.set_file());
        if let Some(taken) = [&issuer_at, &set_at].into_iter().find(|path| path.exists()) {
            return Err(KeysError::Taken(taken.clone()));
        }
        let set = KeySet::of([&Issuer::from_seed(id.clone(), seed)]);
        let set = set.map_err(|error| KeysError::Key(set_at.clone(), error))?;
        fs::create_dir_all(&self.0).map_err(|error| KeysError::Io(self.0.clone(), error))?;
        create(&issuer_at, &Issuer::file(id, seed), SECRET)?;
        create(&set_at, &set.to_file(), PUBLIC)
    }

    /// Makes another key from `seed`, which is accepted from now on and waits to sign.
    ///
    /// # Errors
    /// [`KeysError::Taken`] when it waits already; [`KeysError::Key`] when its name stands for another key.
    pub fn add(&self, id: &KeyId, seed: &[u8; 32]) -> Result<(), KeysError> {
        let set_at = self.set_file();
        let wrong = |error| KeysError::Key(set_at.clone(), error);
        let set = self.set()?;
        if set.ids().any(|known| known == id) {
            return Err(wrong(KeyError::Twice(id.clone())));
        }
        let added = KeySet::of([&Issuer::from_seed(id.clone(), seed)]).map_err(wrong)?;
        let set = set.with(&added).map_err(wrong)?;
        create(&self.waiting_file(id), &Issuer::file(id, seed), SECRET)?;
        replace(&set_at, &set.to_file())
    }

    /// Has a key sign that waits for it. The secret of the one that signed until now is gone then.
    ///
    /// # Errors
    /// [`KeysError::NotWaiting`].
    pub fn sign_with(&self, id: &KeyId) -> Result<(), KeysError> {
        let waiting = self.waiting_file(id);
        if !waiting.exists() {
            return Err(KeysError::NotWaiting(id.clone()));
        }
        if !self.set()?.ids().any(|known| known == id) {
            return Err(KeysError::NotInSet(id.clone()));
        }
        let issuer_at = self.issuer_file();
        fs::rename(&waiting, &issuer_at).map_err(|error| KeysError::Io(waiting, error))
    }

    /// Takes a key out of the set: what it signed is refused from now on.
    ///
    /// # Errors
    /// [`KeysError::Signs`] for the key that signs, [`KeysError::NotInSet`] for one that is not accepted.
    pub fn remove(&self, id: &KeyId) -> Result<(), KeysError> {
        let issuer_at = self.issuer_file();
        let issuer = Issuer::parse(&read(&issuer_at)?).map_err(|error| KeysError::Key(issuer_at, error))?;
        if issuer.key_id() == id {
            return Err(KeysError::Signs(id.clone()));
        }
        let left = self.set()?.without(id).ok_or_else(|| KeysError::NotInSet(id.clone()))?;
        replace(&self.set_file(), &left.to_file())?;
        match fs::remove_file(self.waiting_file(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(KeysError::Io(self.waiting_file(id), error))
            }
            _ => Ok(()),
        }
    }

    fn set(&self) -> Result<KeySet, KeysError> {
        let path = self.set_file();
        KeySet::parse(&read(&path)?).map_err(|error| KeysError::Key(path, error))
    }
}

fn read(path: &Path) -> Result<String, KeysError> {
    fs::read_to_string(path).map_err(|error| KeysError::Io(path.to_owned(), error))
}

/// Writes a file that must not be there yet.
fn create(path: &Path, text: &str, mode: u32) -> Result<(), KeysError> {
    let file = fs::File::options().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeysError::Taken(path.to_owned()),
        _ => KeysError::Io(path.to_owned(), error),
    })
}

/// Writes a file so that a reader finds the old content or the new.
fn replace(path: &Path, text: &str) -> Result<(), KeysError> {
    let beside = path.with_extension("tmp");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| KeysError::Io(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn id(text: &str) -> KeyId {
        KeyId::parse(text).expect("an id")
    }

    fn signs(keys: &KeyDir) -> String {
        let text = read(&keys.issuer_file()).expect("there");
        Issuer::parse(&text).expect("a key").key_id().to_string()
    }

    fn accepted(keys: &KeyDir) -> Vec<String> {
        keys.set().expect("a set").ids().map(ToString::to_string).collect()
    }

    #[test]
    fn keys_are_made_once_and_the_secret_is_the_owners() {
        let home = tempfile::tempdir().expect("a directory");
        let keys = KeyDir::new(home.path().join("keys"));
        assert!(!keys.is_made());
        keys.init(&id("one"), &[1; 32]).expect("made");
        assert!(keys.is_made());
        let mode = fs::metadata(keys.issuer_file()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!((signs(&keys).as_str(), accepted(&keys)), ("one", vec!["one".to_owned()]));
        assert!(matches!(keys.init(&id("two"), &[2; 32]), Err(KeysError::Taken(_))));
    }

    #[test]
    fn a_rotation_overlaps_and_its_steps_cannot_be_taken_out_of_order() {
        let home = tempfile::tempdir().expect("a directory");
        let keys = KeyDir::new(home.path());
        keys.init(&id("one"), &[1; 32]).expect("made");
        assert!(matches!(keys.sign_with(&id("two")), Err(KeysError::NotWaiting(_))));
        keys.add(&id("two"), &[2; 32]).expect("added");
        let waiting = fs::metadata(home.path().join("summary-key.two.toml")).expect("there");
        assert_eq!(waiting.permissions().mode() & 0o777, 0o600);
        assert_eq!((signs(&keys).as_str(), accepted(&keys).len()), ("one", 2));
        assert!(matches!(keys.add(&id("two"), &[3; 32]), Err(KeysError::Key(_, KeyError::Twice(_)))));
        assert!(matches!(keys.remove(&id("one")), Err(KeysError::Signs(_))));
        keys.sign_with(&id("two")).expect("it waits");
        assert_eq!(signs(&keys), "two");
        let mode = fs::metadata(keys.issuer_file()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        keys.remove(&id("one")).expect("it does not sign");
        assert!(matches!(keys.remove(&id("one")), Err(KeysError::NotInSet(_))));
        assert_eq!(accepted(&keys), ["two"]);
    }
}
