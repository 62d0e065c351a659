//! Supply: where dependencies come from and under which licence (deny.toml is the one list), and that every ban of
//! clippy.toml explains itself.

use std::{env, process::Command};

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::repo::Repo;

/// Every package of Cargo.lock comes from this workspace or from a source that deny.toml allows.
pub(crate) fn sources(repo: &Repo) -> Vec<String> {
    let (Ok(lock), Ok(deny)) =
        (repo.text("Cargo.lock").parse::<Table>(), repo.text("deny.toml").parse::<Table>())
    else {
        return vec!["Cargo.lock or deny.toml: missing or not TOML".to_owned()];
    };
    let allowed: Vec<_> =
        strings(&deny, "sources", "allow-registry").map(|url| format!("registry+{url}")).collect();
    let packages = lock.get("package").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut faults = Vec::new();
    if packages.is_empty() {
        faults.push("Cargo.lock: no packages".to_owned());
    }
    for package in packages {
        let name = package.get("name").and_then(Value::as_str).unwrap_or("?");
        match package.get("source").and_then(Value::as_str) {
            None => {}
            Some(source) if allowed.iter().any(|allowed| allowed == source) => {}
            Some(source) => {
                faults.push(format!("Cargo.lock: {name} comes from {source}, which deny.toml does not allow"))
            }
        }
    }
    faults
}

/// What cargo says about every package that this machine's build uses. Fails the test when cargo does not answer.
pub(crate) fn metadata(repo: &Repo) -> Json {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = |arguments: &[&str]| {
        let output =
            Command::new(&cargo).args(arguments).current_dir(&repo.root).output().expect("cargo starts");
        assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("cargo prints text")
    };
    let version = run(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo names its host");
    let text = run(&["metadata", "--format-version", "1", "--locked", "--filter-platform", host]);
    serde_json::from_str(&text).expect("cargo metadata is JSON")
}

/// Every package of `metadata` has a licence expression that the list of deny.toml satisfies.
pub(crate) fn licences(repo: &Repo, metadata: &Json) -> Vec<String> {
    let deny = repo.text("deny.toml").parse::<Table>().unwrap_or_default();
    let allowed: Vec<_> = strings(&deny, "licenses", "allow").collect();
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut faults = Vec::new();
    if packages.is_empty() {
        faults.push("cargo metadata: no packages".to_owned());
    }
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        match package["license"].as_str() {
            None => faults.push(format!("{name}: states no licence")),
            Some(expression) => match satisfied(expression, &allowed) {
                Some(true) => {}
                Some(false) => faults.push(format!("{name}: {expression} is not allowed by deny.toml")),
                None => faults.push(format!("{name}: {expression:?} is not a licence expression")),
            },
        }
    }
    faults
}

/// Every ban of clippy.toml is `{ path, reason }`, with a reason of the form "why: use this instead".
pub(crate) fn bans(repo: &Repo) -> Vec<String> {
    let Ok(clippy) = repo.text("clippy.toml").parse::<Table>() else {
        return vec!["clippy.toml: missing or not TOML".to_owned()];
    };
    let bans: Vec<_> = clippy
        .iter()
        .filter(|(key, _)| key.starts_with("disallowed-"))
        .flat_map(|(_, value)| value.as_array().cloned().unwrap_or_default())
        .collect();
    let mut faults = Vec::new();
    if bans.is_empty() {
        faults.push("clippy.toml: bans nothing".to_owned());
    }
    for ban in &bans {
        let path = ban.get("path").and_then(Value::as_str).unwrap_or("an entry without path");
        let reason = ban.get("reason").and_then(Value::as_str).unwrap_or_default();
        let complete =
            reason.split_once(": ").is_some_and(|(why, instead)| !why.is_empty() && !instead.is_empty());
        if !complete {
            faults.push(format!(
                "clippy.toml: {path}: the reason {reason:?} is not of the form \"why: what instead\""
            ));
        }
    }
    faults
}

fn strings<'a>(table: &'a Table, section: &str, key: &str) -> impl Iterator<Item = &'a str> {
    let list = table.get(section).and_then(|section| section.get(key)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether an SPDX expression can be met with `allowed`; `None` when it is not an expression. AND binds closer than OR;
/// the old "/" means OR; "X WITH Y" is one licence.
fn satisfied(expression: &str, allowed: &[&str]) -> Option<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut at = 0;
    let result = any(&words, &mut at, allowed)?;
    (at == words.len()).then_some(result)
}

fn any(words: &[&str], at: &mut usize, allowed: &[&str]) -> Option<bool> {
    let mut result = all(words, at, allowed)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        result |= all(words, at, allowed)?;
    }
    Some(result)
}

fn all(words: &[&str], at: &mut usize, allowed: &[&str]) -> Option<bool> {
    let mut result = one(words, at, allowed)?;
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        result &= one(words, at, allowed)?;
    }
    Some(result)
}

fn one(words: &[&str], at: &mut usize, allowed: &[&str]) -> Option<bool> {
    let word = *words.get(*at)?;
    *at += 1;
    match word {
        "(" => {
            let result = any(words, at, allowed)?;
            (words.get(*at) == Some(&")")).then(|| *at += 1)?;
            Some(result)
        }
        ")" | "AND" | "OR" | "WITH" => None,
        licence if words.get(*at) == Some(&"WITH") => {
            let exception = *words.get(*at + 1)?;
            *at += 2;
            Some(allowed.contains(&format!("{licence} WITH {exception}").as_str()))
        }
        licence => Some(allowed.contains(&licence)),
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
    let cases = [
        ("MIT", Some(true)),
        ("GPL-3.0-only", Some(false)),
        ("GPL-3.0-only OR MIT", Some(true)),
        ("MIT AND GPL-3.0-only", Some(false)),
        ("MIT OR MIT AND GPL-3.0-only", Some(true)),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", Some(false)),
        ("MIT/Apache-2.0", Some(true)),
        ("Apache-2.0 WITH LLVM-exception", Some(false)),
        ("Apache-2.0 WITH LLVM-exception OR MIT", Some(true)),
        ("", None),
        ("MIT OR", None),
        ("(MIT", None),
        ("MIT Apache-2.0", None),
    ];
    for (expression, expected) in cases {
        assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn a_foreign_source_and_a_missing_licence_are_found() {
    let deny = "[sources]\nallow-registry = [\"https://a\"]\n[licenses]\nallow = [\"MIT\"]\n";
    let lock = "[[package]]\nname = \"ours\"\n[[package]]\nname = \"fine\"\nsource = \"registry+https://a\"\n\
                [[package]]\nname = \"forked\"\nsource = \"git+https://a/b\"\n";
    let repo = Repo::of(&[("deny.toml", deny), ("Cargo.lock", lock)]);
    let faults = sources(&repo);
    assert!(faults.len() == 1 && faults[0].contains("forked"), "{faults:?}");
    assert_eq!(sources(&Repo::of(&[("deny.toml", deny), ("Cargo.lock", "")])).len(), 1);

    let metadata = serde_json::json!({"packages": [
        {"name": "fine", "license": "MIT"}, {"name": "silent", "license": null}, {"name": "other", "license": "GPL-2.0"},
    ]});
    assert_eq!(licences(&repo, &metadata).len(), 2);
    assert_eq!(licences(&repo, &serde_json::json!({})).len(), 1);
}

#[test]
fn a_ban_without_a_replacement_is_found() {
    let clippy = "disallowed-methods = [{ path = \"a\", reason = \"bad: use b\" }, { path = \"c\", reason = \"bad\" }, \"d\"]";
    assert_eq!(bans(&Repo::of(&[("clippy.toml", clippy)])).len(), 2);
    assert_eq!(bans(&Repo::of(&[("clippy.toml", "allow-unwrap-in-tests = true")])).len(), 1);
}
