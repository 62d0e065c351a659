//! Arrows: which package may import which (docs/architecture.md), and what the pure rooms must do without.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::repo::Repo;

/// What the services may import: everything below them, never each other.
const BELOW_SERVICES: &[&str] =
    &["base", "wire", "control", "model", "summary", "stack", "serve", "runtime", "rollout"];

/// The table of the map. A package without a row is a fault; a row without a package is a room not yet built.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("wire", &[]),
    ("control", &["base"]),
    ("model", &["base", "control"]),
    ("summary", &["base", "wire"]),
    ("stack", &["base", "control"]),
    ("serve", &["base", "wire"]),
    ("rollout", &["base"]),
    ("runtime", &["base", "wire", "control", "model", "stack", "serve", "rollout"]),
    ("home-api", BELOW_SERVICES),
    ("profile", BELOW_SERVICES),
    ("entitlement", BELOW_SERVICES),
    ("pricing", BELOW_SERVICES),
    ("inventory", BELOW_SERVICES),
    ("recommendation", BELOW_SERVICES),
    ("reputation", BELOW_SERVICES),
    ("experiment", BELOW_SERVICES),
    ("emulator", &["base", "wire", "model", "serve"]),
    ("load", &["base", "wire", "model"]),
    ("simulation", &["base", "control", "model"]),
    ("throwaway-postgres", &[]),
    ("rehearsal", &["base", "wire", "model", "summary", "rollout", "load", "simulation"]),
];

/// Where people read it.
const DOCUMENT: &str = "docs/architecture.md";

/// May import everything.
const TOP: [&str; 3] = ["mercury", "tests", "bench"];

/// Nothing imports these, not even for its own tests.
const NEVER_IMPORTED: [&str; 2] = ["tests", "bench"];

/// Names that say nothing about what is inside.
const NAMELESS: [&str; 7] = ["util", "utils", "common", "shared", "helpers", "misc", "lib"];

/// What a room must not depend on: `control` and `model` have no I/O and no runtime, `stack` does not see protobuf,
/// `summary` does not see transport.
const MUST_NOT_SEE: &[(&str, &[&str])] = &[
    ("control", IO),
    ("model", IO),
    ("stack", &["prost", "prost-types", "tonic", "tonic-prost", "tonic-types", "tonic-health", "axum"]),
    ("summary", &["tokio", "hyper", "hyper-util", "http", "tonic", "tower", "axum"]),
];
const IO: &[&str] = &[
    "tokio",
    "tokio-util",
    "tokio-stream",
    "hyper",
    "hyper-util",
    "http",
    "tonic",
    "tower",
    "axum",
    "prost",
    "rustix",
    "mio",
    "libc",
    "notify",
    "sqlx",
    "rand",
    "tracing",
];

/// Modules of std that do I/O, start threads or read the clock. `std::time::Duration` is a plain value.
const IO_MODULES: [&str; 6] = ["fs", "net", "process", "env", "thread", "io"];

struct Package {
    manifest: String,
    name: String,
    imports: BTreeSet<String>,
    dev_imports: BTreeSet<String>,
}

/// Every arrow between packages of the workspace is one of the table.
pub(crate) fn imports(repo: &Repo) -> Vec<String> {
    let mut faults = Vec::new();
    let packages = packages(repo, &mut faults);
    let rows: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    let members: BTreeSet<_> = packages.iter().map(|package| package.name.as_str()).collect();
    for Package { manifest, name, imports, dev_imports } in &packages {
        if NAMELESS.contains(&name.as_str()) {
            faults.push(format!("{manifest}: {name} says nothing about what is inside"));
        }
        if manifest.rsplit('/').nth(1) != Some(name.as_str()) {
            faults.push(format!("{manifest}: package {name} is not in a directory of its name"));
        }
        if let Some(forbidden) =
            imports.union(dev_imports).find(|import| NEVER_IMPORTED.contains(&import.as_str()))
        {
            faults.push(format!("{manifest}: nothing imports {forbidden}"));
        }
        if TOP.contains(&name.as_str()) {
            continue;
        }
        let Some(allowed) = rows.get(name.as_str()) else {
            faults
                .push(format!("{manifest}: {name} has no row in the table of arrows (tests/tidy/arrows.rs)"));
            continue;
        };
        let beyond = imports.iter().filter(|import| members.contains(import.as_str()));
        for import in beyond.filter(|import| !allowed.contains(&import.as_str())) {
            faults.push(format!("{manifest}: {name} may not import {import}; it may import {allowed:?}"));
        }
    }
    faults
}

/// The table of docs/architecture.md says what [`MAY_IMPORT`] says, for the packages that exist.
pub(crate) fn documented(repo: &Repo) -> Vec<String> {
    let mut faults = Vec::new();
    let members: BTreeSet<_> = packages(repo, &mut faults).into_iter().map(|package| package.name).collect();
    let table = repo.text(DOCUMENT).lines().skip_while(|line| *line != "| Package | May import |").skip(2);
    let mut rows: BTreeMap<&str, &str> = BTreeMap::new();
    for line in table.take_while(|line| line.starts_with('|')) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (names, may) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        rows.extend(names.split(", ").map(|name| (name, may)));
    }
    for (name, allowed) in MAY_IMPORT.iter().filter(|(name, _)| members.contains(*name)) {
        let expected = match *allowed {
            [] => "no crate of the workspace".to_owned(),
            BELOW_SERVICES => continue,
            some => {
                some.iter().copied().filter(|name| members.contains(*name)).collect::<Vec<_>>().join(", ")
            }
        };
        match rows.get(name) {
            Some(may) if *may == expected => {}
            may => faults.push(format!("{DOCUMENT}: {name} may import {expected}; the table says {may:?}")),
        }
    }
    faults
}

/// The rooms of [`MUST_NOT_SEE`] depend on none of what they must not see, and the pure ones name no I/O of std.
pub(crate) fn absences(repo: &Repo) -> Vec<String> {
    let mut faults = Vec::new();
    let packages = packages(repo, &mut faults);
    for (name, unseen) in MUST_NOT_SEE {
        for package in packages.iter().filter(|package| package.name == *name) {
            for import in package.imports.iter().filter(|import| unseen.contains(&import.as_str())) {
                faults.push(format!("{}: {name} must do without {import}", package.manifest));
            }
        }
    }
    for (path, text) in repo.ending(".rs") {
        if path.starts_with("crates/control/src/") || path.starts_with("crates/model/src/") {
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            faults.extend(
                io_modules(product).map(|module| format!("{path}: uses std::{module}, but the room is pure")),
            );
        }
    }
    faults
}

/// The modules of [`IO_MODULES`] that `source` names, by path or in a `use std::{…}` list.
fn io_modules(source: &str) -> impl Iterator<Item = &'static str> {
    let code: String = source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let dense: String =
        code.split_whitespace().collect::<Vec<_>>().join(" ").replace(":: ", "::").replace("{ ", "{");
    let mut listed = BTreeSet::new();
    for (at, opening) in dense.match_indices("std::{") {
        let (mut depth, mut name, mut fresh) = (1, String::new(), true);
        for c in dense[at + opening.len()..].chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 1 && fresh && (c.is_alphanumeric() || c == '_') {
                name.push(c);
            } else {
                listed.insert(std::mem::take(&mut name));
                fresh = depth == 1 && (c == ',' || (fresh && c == ' '));
            }
            if depth == 0 {
                break;
            }
        }
    }
    IO_MODULES.into_iter().filter(move |module| {
        let path = format!("std::{module}");
        listed.contains(*module)
            || dense.match_indices(&path).any(|(at, _)| {
                dense[at + path.len()..].chars().next().is_none_or(|c| !c.is_alphanumeric() && c != '_')
            })
    })
}

fn packages(repo: &Repo, faults: &mut Vec<String>) -> Vec<Package> {
    let mut packages = Vec::new();
    for (path, text) in repo.ending("/Cargo.toml") {
        let table = match text.parse::<Table>() {
            Ok(table) => table,
            Err(error) => {
                faults.push(format!("{path}: {error}"));
                continue;
            }
        };
        let Some(name) = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str)
        else {
            faults.push(format!("{path}: no package.name"));
            continue;
        };
        let mut package = Package {
            manifest: path.to_owned(),
            name: name.to_owned(),
            imports: BTreeSet::new(),
            dev_imports: BTreeSet::new(),
        };
        let targets = table.get("target").and_then(Value::as_table);
        for section in targets.into_iter().flat_map(Table::values).filter_map(Value::as_table).chain([&table])
        {
            package.imports.extend(names(section, "dependencies"));
            package.imports.extend(names(section, "build-dependencies"));
            package.dev_imports.extend(names(section, "dev-dependencies"));
        }
        packages.push(package);
    }
    packages
}

/// The packages of one dependency table, under their own names where they were renamed.
fn names(section: &Table, key: &str) -> Vec<String> {
    let table = section.get(key).and_then(Value::as_table);
    table
        .into_iter()
        .flatten()
        .map(|(key, value)| value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned())
        .collect()
}

#[cfg(test)]
fn manifest(name: &str, rest: &str) -> String {
    format!("[package]\nname = \"{name}\"\n{rest}")
}

#[test]
fn arrows_against_the_map_are_found() {
    let cases = [
        (
            "crates/control/Cargo.toml",
            manifest("control", "[dependencies]\nwire.workspace = true\n"),
            "may not import",
        ),
        (
            "crates/control/Cargo.toml",
            manifest("control", "[build-dependencies]\nwire = \"1\"\n"),
            "may not import",
        ),
        (
            "crates/control/Cargo.toml",
            manifest(
                "control",
                "[target.'cfg(unix)'.dependencies]\nw = { package = \"wire\", path = \"../wire\" }\n",
            ),
            "may not import",
        ),
        ("crates/novel/Cargo.toml", manifest("novel", ""), "no row"),
        ("crates/util/Cargo.toml", manifest("util", ""), "says nothing"),
        (
            "crates/base/Cargo.toml",
            manifest("base", "[dev-dependencies]\ntests.workspace = true\n"),
            "nothing imports",
        ),
        ("crates/odd/Cargo.toml", manifest("base", ""), "not in a directory"),
        ("crates/base/Cargo.toml", "[package".to_owned(), "Cargo.toml"),
    ];
    for (path, text, expected) in &cases {
        let repo = Repo::of(&[(path, text), ("crates/wire/Cargo.toml", &manifest("wire", ""))]);
        let faults = imports(&repo);
        assert!(faults.iter().any(|fault| fault.contains(expected)), "{path} {text:?}: {faults:?}");
    }
}

#[test]
fn arrows_of_the_map_are_accepted() {
    let repo = Repo::of(&[
        ("crates/base/Cargo.toml", &manifest("base", "[dependencies]\nrustix = \"1\"\n")),
        ("crates/control/Cargo.toml", &manifest("control", "[dependencies]\nbase.workspace = true\n")),
        (
            "crates/model/Cargo.toml",
            &manifest("model", "[dev-dependencies]\nemulator = { path = \"../x\" }\n"),
        ),
        ("emulator/Cargo.toml", &manifest("emulator", "[dependencies]\nbase.workspace = true\n")),
    ]);
    assert_eq!(imports(&repo), Vec::<String>::new());
}

#[test]
fn a_table_that_says_something_else_is_found() {
    let (base, control) = (manifest("base", ""), manifest("control", ""));
    let check = |table: &str| {
        let text = format!("| Package | May import |\n|---|---|\n{table}");
        let files = [
            ("crates/base/Cargo.toml", base.as_str()),
            ("crates/control/Cargo.toml", &control),
            ("docs/architecture.md", &text),
        ];
        documented(&Repo::of(&files)).len()
    };
    assert_eq!(check("| base, wire | no crate of the workspace |\n| control | base |\n"), 0);
    assert_eq!(check("| base, wire | no crate of the workspace |\n| control | base, wire |\n"), 1);
    assert_eq!(check("| control | base |\n"), 1);
    assert_eq!(check(""), 2);
}

#[test]
fn impurity_is_found() {
    let control = manifest("control", "[dependencies]\ntokio = \"1\"\n");
    let repo = Repo::of(&[("crates/control/Cargo.toml", &control)]);
    assert_eq!(absences(&repo).len(), 1);
    let bad = [
        "use std::fs;",
        "use std::{fmt, fs};",
        "use std::{\n    collections::{BTreeMap, hash_map},\n    net::IpAddr,\n};",
        "let x = std::env::var(\"A\");",
    ];
    for source in bad {
        assert_eq!(absences(&Repo::of(&[("crates/model/src/lib.rs", source)])).len(), 1, "{source}");
    }
    let good = [
        "use std::{fmt, time::Duration};",
        "// std::fs is somebody else's\nuse std::fmt;",
        "use std::fmt;\n#[cfg(test)]\nmod tests { use std::fs; }",
        "use std::collections::{BTreeMap, fs_like};",
    ];
    for source in good {
        assert_eq!(
            absences(&Repo::of(&[("crates/model/src/lib.rs", source)])),
            Vec::<String>::new(),
            "{source}"
        );
    }
}
