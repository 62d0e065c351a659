//! Text: rules for every file by itself: what it opens with, how long it may be, what it must not name.

use crate::repo::Repo;

/// A file of about 400 lines can be held in the head. This is where "about" ends: half as much again is more than one
/// idea, and splits by idea.
const LINES_MAX: usize = 600;

/// A first line shorter than this names the room without saying what it is for.
const HEADER_CHARS_MIN: usize = 24;

/// Kept as they are made or given, not written to be read in one go.
const UNBOUNDED: [&str; 4] = ["Cargo.lock", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Every Rust file opens with a `//!` line that says what the room is for.
pub(crate) fn headers(repo: &Repo) -> Vec<String> {
    let says = |text: &str| {
        let first = text.lines().next().unwrap_or_default();
        first.strip_prefix("//! ").is_some_and(|rest| rest.trim().chars().count() >= HEADER_CHARS_MIN)
    };
    repo.ending(".rs")
        .filter(|(_, text)| !says(text))
        .map(|(path, _)| format!("{path}:1: opens with no `//!` line that says what the file is for"))
        .collect()
}

/// No file has more than [`LINES_MAX`] lines.
pub(crate) fn sizes(repo: &Repo) -> Vec<String> {
    repo.files
        .iter()
        .filter(|(path, _)| !UNBOUNDED.contains(&path.as_str()))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines, at most {LINES_MAX}: split it by idea"))
        .collect()
}

/// No file names a directory of somebody's machine, the place of this checkout, or a package registry's host.
pub(crate) fn places(repo: &Repo) -> Vec<String> {
    let root = format!("{}/", repo.root.display());
    // In two pieces each, so that this file does not name them either.
    let directories =
        [("/wo", "rk/"), ("/far", "m/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Use", "rs/"), ("/tm", "p/")]
            .map(|(left, right)| format!("{left}{right}"));
    let mut faults = Vec::new();
    for (path, text) in &repo.files {
        for (number, line) in text.lines().enumerate() {
            let at = format!("{path}:{}", number + 1);
            if line.contains(&root) || directories.iter().any(|directory| names_directory(line, directory)) {
                faults.push(format!("{at}: names a directory of one machine: {}", line.trim()));
            }
            if let Some(host) = registry_host(line) {
                faults.push(format!("{at}: names the registry host {host}"));
            }
        }
    }
    faults
}

/// True when `directory` stands in `line` as the start of an absolute path, not inside a longer one.
fn names_directory(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + directory.len()..].chars().next();
        let starts =
            before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '-' | '}' | '>' | '*'));
        starts && after.is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '<' | '$'))
    })
}

/// The host of a URL in `line` that serves packages or images.
fn registry_host(line: &str) -> Option<&str> {
    const WORDS: [&str; 7] = ["registry", "artifact", "mirror", "nexus", "pypi", "npmjs", "index."];
    line.match_indices("://")
        .map(|(at, separator)| {
            let rest = &line[at + separator.len()..];
            &rest[..rest
                .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_'))
                .unwrap_or(rest.len())]
        })
        .find(|host| WORDS.iter().any(|word| host.contains(word)))
}

#[test]
fn a_missing_or_empty_header_is_found() {
    let repo = Repo::of(&[
        ("a.rs", "use std::fmt;\n"),
        ("b.rs", "//! placeholder\n"),
        ("c.rs", "//! Clock: the only place where time is read.\n"),
        ("d.rs", ""),
    ]);
    let faults = headers(&repo);
    assert_eq!(faults.len(), 3, "{faults:?}");
}

#[test]
fn the_length_limit_holds_at_the_limit_and_one_above() {
    let text = |lines: usize| "x\n".repeat(lines);
    let repo = Repo::of(&[
        ("at.rs", &text(LINES_MAX)),
        ("above.rs", &text(LINES_MAX + 1)),
        ("Cargo.lock", &text(9_999)),
    ]);
    let faults = sizes(&repo);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("above.rs: 601 lines"));
}

#[test]
fn places_are_found_and_look_alikes_are_not() {
    let bad = [
        format!("see {}{}notes.md", "/wo", "rk/"),
        format!("path = \"{}{}alice/mercury\"", "/ho", "me/"),
        format!("COPY {}{}x /y", "/tm", "p/"),
        format!("url = https://{}.example.com/simple", "registry"),
        "built in /nowhere/crates".to_owned(),
    ];
    for line in &bad {
        assert_eq!(places(&Repo::of(&[("f", line)])).len(), 1, "{line}");
    }
    let good = [
        "GET /v2/home/ and crates/work/src",
        "https://github.com/rust-lang/crates.io-index",
        "$HOME/.docker/cli-plugins",
        "the first home / work address",
    ];
    for line in good {
        assert_eq!(places(&Repo::of(&[("f", line)])), Vec::<String>::new(), "{line}");
    }
}
