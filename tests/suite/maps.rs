//! Maps: what the pages of bounds and of operations point at is there in a running suite, and nothing is there that they leave out.

use std::collections::{BTreeMap, BTreeSet};

use base::headers;
use runtime::bounds::{BOUNDS, Of};

use crate::harness::{Suite, patient};

/// A series as it is scraped, without its values: name, and labels as text.
type Series = BTreeMap<String, Vec<String>>;

/// Every series of every member, after each has done something.
async fn series(suite: &Suite) -> BTreeMap<&'static str, Series> {
    suite.both(&patient(&[(headers::REQUEST_ID, "maps")])).await.served();
    suite.until_idle().await;
    let mut all = BTreeMap::new();
    for name in suite.members.keys() {
        let scrape = suite.scrape(name).await;
        let mut own = Series::new();
        for line in scrape.text().lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).expect("a name");
            let labels = line[end..].strip_prefix('{').and_then(|rest| rest.split('}').next());
            own.entry(line[..end].to_owned()).or_default().push(labels.unwrap_or_default().to_owned());
        }
        all.insert(*name, own);
    }
    all
}

/// Whether a member has a series that is written as `name` or `name{label="value"}`.
fn has(own: &Series, wanted: &str) -> bool {
    let (name, labels) = wanted.split_once('{').unwrap_or((wanted, ""));
    let labels: Vec<_> = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()).collect();
    own.get(name).is_some_and(|all| all.iter().any(|one| labels.iter().all(|label| one.contains(label))))
}

/// The names of all `mercury_` and `process_` series on a page.
fn mentioned(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in page.split('`').skip(1).step_by(2) {
        let name = text.split('{').next().unwrap_or_default();
        if (name.starts_with("mercury_") || name.starts_with("process_"))
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        {
            found.insert(name.to_owned());
        }
    }
    found
}

fn page(name: &str) -> String {
    let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The family of a series: a histogram is one thing.
fn family(name: &str) -> &str {
    ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name)
}

#[tokio::test]
async fn every_bound_is_a_gauge_with_its_limit_and_what_is_used_and_beyond_can_be_seen() {
    let suite = Suite::start().await;
    let all = series(&suite).await;
    let mut missing = Vec::new();
    for bound in BOUNDS {
        let holders: Vec<_> = match bound.of {
            Of::Every => all.keys().copied().filter(|name| *name != "emulator").collect(),
            Of::Only(service) => vec![service.as_str()],
            // The suite exports no spans; that its queue tells is tested where it lives.
            Of::Exporting => continue,
        };
        for member in holders {
            let limit = format!("mercury_bound_limit{{bound=\"{}\"}}", bound.name);
            // A service without a call of its own has no link, and home-api has no ledger.
            for wanted in [limit.as_str(), bound.used, bound.told] {
                if !wanted.is_empty() && !has(&all[member], wanted) {
                    missing.push(format!("{member}: {wanted} of {}", bound.name));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let scrape = suite.scrape("home-api").await;
    let limit = |bound| scrape.sum("mercury_bound_limit", &[("bound", bound)]);
    assert_eq!((limit("connections_max"), limit("endpoint_slots_max")), (1_024.0, 640.0));
    suite.finish().await;
}

#[tokio::test]
async fn the_map_of_observation_names_what_is_there_and_all_of_it() {
    let suite = Suite::start().await;
    let all = series(&suite).await;
    let there: BTreeSet<String> =
        all.values().flat_map(Series::keys).map(|name| family(name).to_owned()).collect();
    let operations = page("operations.md");
    let named: BTreeSet<String> = mentioned(&operations).iter().map(|name| family(name).to_owned()).collect();
    let ghosts: Vec<_> = named.difference(&there).collect();
    assert!(ghosts.is_empty(), "docs/operations.md names series that no process has: {ghosts:#?}");
    let unknown: Vec<_> = there.difference(&named).collect();
    assert!(unknown.is_empty(), "docs/operations.md does not say what these are for: {unknown:#?}");
    // Every task that runs has an owner there, by the name that it is counted under.
    for (member, own) in &all {
        for labels in &own["mercury_tasks_live"] {
            let task =
                labels.split("task=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a name");
            assert!(operations.contains(&format!("`{task}`")), "{member}: {task}");
        }
    }
    suite.finish().await;
}
