//! Keys: `mercury keys`, the keys of the signed entitlement summary: made here, kept by whoever runs the suite, never committed.

use std::path::PathBuf;

use rehearsal::keys::{KeyDir, KeysError};
use summary::KeyId;

use crate::{exit::Exit, world};

/// Name of a key that nobody named.
const FIRST: &str = "dev-1";

/// Subcommands of `mercury keys`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a signing key for profile and the set of public keys for whoever checks.
    ///
    /// Writes summary-key.toml, a secret that only its owner may read, and summary-keys.toml. Overwrites neither.
    Init(Init),
    /// First step of a rotation: make another key, accept it from now on, and have it wait.
    ///
    /// Running processes take the set over within a second; `mercury rollout status` lists what each accepts.
    Add(One),
    /// Second step: sign with a key that waits. The secret of the one before is gone then.
    Use(One),
    /// Last step, once nothing that it signed is alive: accept a key no more.
    Remove(One),
}

/// Arguments of `mercury keys init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Directory of the keys.
    #[arg(long, value_name = "DIR", default_value = "keys")]
    dir: PathBuf,
    /// Name of the key: 1 to 32 characters of a-z, 0-9 and '-'. Another key needs another name.
    #[arg(long, value_name = "ID", default_value = FIRST, value_parser = key_id)]
    key_id: KeyId,
}

/// Arguments of the steps of a rotation.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Directory of the keys.
    #[arg(long, value_name = "DIR", default_value = "keys")]
    dir: PathBuf,
    /// Name of the key: 1 to 32 characters of a-z, 0-9 and '-'.
    #[arg(long, value_name = "ID", value_parser = key_id)]
    key_id: KeyId,
}

fn key_id(text: &str) -> Result<KeyId, String> {
    KeyId::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn run(command: Command) -> Exit {
    let done = match command {
        Command::Init(Init { dir, key_id }) => init(dir, &key_id),
        Command::Add(One { dir, key_id }) => KeyDir::new(dir)
            .add(&key_id, &seed())
            .map(|()| format!("key {key_id} is accepted, and waits to sign")),
        Command::Use(One { dir, key_id }) => {
            KeyDir::new(dir).sign_with(&key_id).map(|()| format!("key {key_id} signs"))
        }
        Command::Remove(One { dir, key_id }) => {
            KeyDir::new(dir).remove(&key_id).map(|()| format!("key {key_id} is accepted no more"))
        }
    };
    match done {
        Ok(text) => {
            println!("{text}");
            Exit::Pass
        }
        Err(error) => exit(error),
    }
}

fn init(dir: PathBuf, id: &KeyId) -> Result<String, KeysError> {
    let keys = KeyDir::new(dir);
    keys.init(id, &seed())?;
    Ok(format!(
        "key {id}\n  {}  signs; a secret: profile alone needs it\n  {}  checks",
        keys.issuer_file().display(),
        keys.set_file().display()
    ))
}

/// The keys of a directory, made when there are none.
pub(crate) fn made(dir: PathBuf) -> Result<KeyDir, Exit> {
    let keys = KeyDir::new(dir);
    if !keys.is_made() {
        let first = KeyId::parse(FIRST).map_err(|error| Exit::Error(error.to_string()))?;
        keys.init(&first, &seed()).map_err(exit)?;
    }
    Ok(keys)
}

fn exit(error: KeysError) -> Exit {
    match error {
        KeysError::Io(..) => Exit::Error(error.to_string()),
        _ => Exit::Usage(error.to_string()),
    }
}

/// 244 bits from the operating system in 32 bytes.
pub(crate) fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&world::entropy().to_be_bytes());
    seed[16..].copy_from_slice(&world::entropy().to_be_bytes());
    seed
}
