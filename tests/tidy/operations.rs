//! Operations: the page of bounds is the one that the policy makes, every task of the code has an owner on the page of operations,
//! and what stops a container waits longer than the process in it may take.

use std::collections::BTreeSet;

use base::Nanos;
use model::policy::Policy;
use serve::{shell, telemetry};

use crate::repo::Repo;

/// The page that holds the table of bounds.
const BOUNDS: &str = "docs/bounds.md";
/// The page that holds the map of owners.
pub(crate) const OPERATIONS: &str = "docs/operations.md";

/// What starts and stops the suite on one machine.
const LAUNCHER: &str = "crates/rehearsal/src/suite.rs";

/// The table of docs/bounds.md is what `mercury policy bounds` prints for the shipped policy.
pub(crate) fn bounds(repo: &Repo) -> Vec<String> {
    let expected = runtime::bounds::markdown(&Policy::shipped());
    let table: String = repo
        .text(BOUNDS)
        .lines()
        .skip_while(|line| !line.starts_with("| Bound |"))
        .take_while(|line| line.starts_with('|'))
        .map(|line| format!("{line}\n"))
        .collect();
    if table == expected {
        return Vec::new();
    }
    vec![format!(
        "{BOUNDS}: the table is not the policy's; put the output of `cargo run -- policy bounds` in its place:\n{expected}"
    )]
}

/// Every name that a task is started under stands, in backticks, on the page of operations.
pub(crate) fn tasks(repo: &Repo) -> Vec<String> {
    let page = repo.text(OPERATIONS);
    let mut faults: Vec<String> = Vec::new();
    for (path, text) in repo.ending(".rs") {
        if !is_product(path) {
            continue;
        }
        let missing = names(text).into_iter().filter(|name| !page.contains(&format!("`{name}`")));
        faults.extend(missing.map(|name| format!("{path}: the task {name:?} has no owner in {OPERATIONS}")));
    }
    faults
}

fn is_product(path: &str) -> bool {
    let product = path.starts_with("crates/") || path.starts_with("emulator/");
    product && path.contains("/src/") && !path.contains("test") && !path.starts_with("crates/rehearsal/")
}

/// Names of tasks in a source text: constants called `…TASK…`, labels of links, and what `spawn` is given in place.
fn names(text: &str) -> BTreeSet<&str> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = product.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let mut found = BTreeSet::new();
    for line in lines {
        let declares = line.contains("TASK") && line.contains("const ") && line.contains(": &str = \"");
        let starts = line.contains("tasks.spawn(\"") || line.contains("supervisor.start(\"");
        let labels = line.contains("=> \"link:") || line.contains("\"link:emulator\"");
        if declares || starts || labels {
            found.extend(line.split('"').nth(1));
        }
    }
    found
}

/// Every compose file that says how long a container may take to stop says longer than the process may, and so does the launcher.
pub(crate) fn grace(repo: &Repo) -> Vec<String> {
    let policy = Policy::shipped();
    let phases = [policy.drain, shell::FLUSH_MAX, shell::RECONCILE_MAX, shell::TERMINATE_MAX];
    let bound = phases.into_iter().fold(telemetry::SHUTDOWN_MAX, |sum, phase| sum + phase);
    let mut faults = Vec::new();
    let mut said = 0;
    for (path, text) in repo.files.iter().filter(|(path, _)| path.starts_with("docker-compose")) {
        for line in text.lines() {
            let Some(value) = line.trim().strip_prefix("stop_grace_period:") else { continue };
            said += 1;
            let value = value.split('#').next().unwrap_or_default().trim();
            let seconds = value.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
            if seconds.is_none_or(|seconds| Nanos::from_secs(seconds) <= bound) {
                faults
                    .push(format!("{path}: stop_grace_period is {value:?}, and a process may take {bound}"));
            }
        }
    }
    let launcher = repo
        .text(LAUNCHER)
        .lines()
        .find_map(|line| line.strip_prefix("const STOP_MAX: Duration = Duration::from_secs("));
    let seconds = launcher.and_then(|rest| rest.strip_suffix(");")?.parse().ok());
    if repo.files.contains_key(LAUNCHER) && seconds.is_none_or(|seconds| Nanos::from_secs(seconds) <= bound) {
        faults.push(format!("{LAUNCHER}: STOP_MAX is {seconds:?} s, and a process may take {bound}"));
    }
    if said == 0 {
        faults.push("no compose file says how long a container may take to stop".to_owned());
    }
    faults
}

#[test]
fn a_table_that_is_not_the_policys_is_found() {
    let stale = runtime::bounds::markdown(&Policy::shipped()).replacen("1024", "1025", 1);
    assert_eq!(bounds(&Repo::of(&[(BOUNDS, &stale)])).len(), 1);
    assert_eq!(bounds(&Repo::of(&[])).len(), 1);
}

#[test]
fn tasks_without_an_owner_are_found() {
    let source = "const TASK: &str = \"alone\";\n// const TASK: &str = \"told of\";\nhost.world.tasks.spawn(\"lone-writer\", x);\n\
        Dependency::Profile => \"link:profile\",\n#[cfg(test)]\nconst TASK: &str = \"tested\";\n";
    let of = |page: &str| tasks(&Repo::of(&[(OPERATIONS, page), ("crates/a/src/lib.rs", source)]));
    assert_eq!(of("").len(), 3);
    assert_eq!(of("`alone`, `lone-writer` and `link:profile`"), Vec::<String>::new());
}

#[test]
fn a_grace_that_is_too_short_is_found() {
    let of = |line: &str| grace(&Repo::of(&[("docker-compose.yml", line)])).len();
    assert_eq!(of("  stop_grace_period: 20s # more"), 0);
    assert_eq!((of("  stop_grace_period: 16s"), of("  stop_grace_period: 1m"), of("")), (1, 1, 1));
}
