//! Keys: `mercury keys`, the keys of the signed entitlement summary: made here, kept by whoever runs the suite, never committed.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use model::policy::Policy;
use summary::{Issuer, KeyId, KeySet};

use crate::{exit::Exit, world};

/// File of the signing key.
const ISSUER: &str = "summary-key.toml";
/// File of the public keys.
const SET: &str = "summary-keys.toml";

/// Subcommands of `mercury keys`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a signing key for profile and the set of public keys for whoever checks.
    ///
    /// Writes summary-key.toml, a secret that only its owner may read, and summary-keys.toml. Overwrites neither.
    Init(Init),
}

/// Arguments of `mercury keys init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Directory of both files.
    #[arg(long, value_name = "DIR", default_value = "keys")]
    dir: PathBuf,
    /// Name of the key: 1 to 32 characters of a-z, 0-9 and '-'. Another key needs another name.
    #[arg(long, value_name = "ID", default_value = "dev-1")]
    key_id: String,
}

pub(crate) fn run(command: Command) -> Exit {
    let Command::Init(args) = command;
    match init(&args) {
        Ok(text) => {
            println!("{text}");
            Exit::Pass
        }
        Err(exit) => exit,
    }
}

fn init(args: &Init) -> Result<String, Exit> {
    let id = KeyId::parse(&args.key_id).map_err(|error| Exit::Usage(format!("--key-id: {error}")))?;
    let (issuer_at, set_at) = (args.dir.join(ISSUER), args.dir.join(SET));
    if let Some(taken) = [&issuer_at, &set_at].into_iter().find(|path| path.exists()) {
        return Err(Exit::Usage(format!("{}: is there already, and is not overwritten", taken.display())));
    }
    let seed = seed();
    let issuer = Issuer::from_seed(id.clone(), &seed);
    let set = KeySet::of([&issuer]).map_err(|error| Exit::Error(error.to_string()))?;
    fs::create_dir_all(&args.dir).map_err(|error| failed(&args.dir, &error))?;
    write(&issuer_at, &Issuer::file(&id, &seed), 0o600)?;
    write(&set_at, &set.to_file(), 0o644)?;
    Ok(format!(
        "key {id}\n  {}  signs; a secret: profile alone needs it\n  {}  checks",
        issuer_at.display(),
        set_at.display()
    ))
}

/// The signing key of a file.
pub(crate) fn issuer(path: Option<&Path>) -> Result<Option<Issuer>, Exit> {
    let Some(path) = path else { return Ok(None) };
    let text =
        fs::read_to_string(path).map_err(|error| Exit::Usage(format!("{}: {error}", path.display())))?;
    let issuer = Issuer::parse(&text).map_err(|error| Exit::Usage(format!("{}: {error}", path.display())))?;
    Ok(Some(issuer))
}

/// Whether a key is there where the policy needs one, and is one.
pub(crate) fn suits(policy: &Policy, key: Option<&Path>) -> Result<(), Exit> {
    match issuer(key)? {
        None if policy.summary.emit => {
            let text = "--summary-key: is required, since summary.emit is true in the policy; `mercury keys init` makes one";
            Err(Exit::Usage(text.to_owned()))
        }
        _ => Ok(()),
    }
}

/// 244 bits from the operating system in 32 bytes.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&world::entropy().to_be_bytes());
    seed[16..].copy_from_slice(&world::entropy().to_be_bytes());
    seed
}

/// Writes a file that must not be there yet.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Exit> {
    let file = fs::File::options().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Exit {
    Exit::Error(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_made_once_and_the_secret_is_the_owners() {
        let home = tempfile::tempdir().expect("a directory");
        let args = Init { dir: home.path().join("keys"), key_id: "dev-1".to_owned() };
        init(&args).expect("made");
        let secret = args.dir.join(ISSUER);
        assert_eq!(fs::metadata(&secret).expect("there").permissions().mode() & 0o777, 0o600);
        let issuer = issuer(Some(&secret)).expect("readable").expect("one");
        let set = KeySet::parse(&fs::read_to_string(args.dir.join(SET)).expect("there")).expect("sound");
        assert_eq!(Ok(set), KeySet::of([&issuer]));
        assert!(matches!(init(&args), Err(Exit::Usage(text)) if text.contains("not overwritten")));
    }

    #[test]
    fn what_is_no_key_is_named_and_not_shown() {
        let home = tempfile::tempdir().expect("a directory");
        let bad = home.path().join("bad.toml");
        fs::write(&bad, "key_id = \"a\"\nsecret_seed = \"c2VjcmV0\"\n").expect("written");
        let Err(Exit::Usage(text)) = issuer(Some(&bad)) else { panic!("it was taken") };
        assert!(text.contains("bad.toml: key a: expected 32 bytes") && !text.contains("c2VjcmV0"), "{text}");
        assert!(matches!(issuer(Some(&home.path().join("none"))), Err(Exit::Usage(_))));
        assert!(issuer(None).expect("nothing asked for").is_none());
        let args = Init { dir: home.path().to_owned(), key_id: "A".to_owned() };
        assert!(matches!(init(&args), Err(Exit::Usage(text)) if text.starts_with("--key-id: ")));
    }
}
