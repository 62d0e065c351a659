//! Report: what a process says of itself on its admin port (`GET /rollout`), for who decides: where it stands, what it could
//! serve next, and what it saw since it stands there. Figures are counts, so that those of several processes add up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Phase, ledger::Head};

/// Path of the report on the admin port.
pub const PATH: &str = "/rollout";

/// What a process says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessReport {
    /// The service: `home-api` or `profile`.
    pub service: String,
    /// Tells this process from any other, one that had its address before included.
    pub instance: String,
    /// The phase that it serves.
    pub phase: Phase,
    /// The decision that put it there; 0 where it follows its policy and no ledger.
    pub generation: u64,
    /// The last decision of the ledger that it has read, about whatever subject.
    pub head: Option<Head>,
    /// Generation of its policy.
    pub policy_generation: u64,
    /// Phases that it could not serve, and why not.
    pub unable: BTreeMap<Phase, String>,
    /// Keys that it signs with (profile, one) or accepts (home-api).
    pub keys: Vec<String>,
    /// The stream of revocations; null where it has none.
    pub revocations: Option<StreamReport>,
    /// Since when it counts for this generation, in milliseconds since the Unix epoch.
    pub counting_since_unix_ms: i64,
    /// What it saw since then.
    pub counts: Counts,
    /// Newest summaries that were not what the call said, without whom they were about.
    pub samples: Vec<Sample>,
}

/// A stream of revocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamReport {
    /// Whether it is heard from within its bound and has told every tenant's epoch.
    pub fresh: bool,
    /// For how long nothing was heard; null before the first message.
    pub silent_ms: Option<u64>,
    /// Messages so far, empty ones included.
    pub heard: u64,
}

/// Counts by what, class and region. Each request is counted once in `pages`, once in `authority` when it came that far,
/// and once in `comparisons` where the summary was in shadow for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Home-api: pages by how they ended: `answered`, `refused`, `left`.
    pub pages: BTreeMap<String, u64>,
    /// Home-api: comparisons by class.
    pub comparisons: Vec<Count>,
    /// Home-api: where claims came from: `summary`, `call` (never the summary's business), `fallback:<reason>`,
    /// `closed:<reason>` (no claims: refused).
    pub authority: Vec<Count>,
    /// Profile: answers by what became of their summary: `signed`, `policy_missing`, `policy_refused`, `not_emitted`.
    pub emitted: BTreeMap<String, u64>,
}

/// A count of a kind among one class of one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Of what.
    pub kind: String,
    /// Workload class.
    pub class: String,
    /// Region; `other` beyond the number that is told apart.
    pub region: String,
    /// How many.
    pub count: u64,
}

/// A summary that was not what the call said. Redacted: no tenant, no subject, and of the claims only those that one of
/// both has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// Class of the comparison.
    pub comparison: String,
    /// Why the summary was refused; empty when it was not.
    pub rejection: String,
    /// Keyed digest of tenant and subject: equal within one process, and nothing else.
    pub subject_digest: String,
    /// Workload class.
    pub class: String,
    /// Region.
    pub region: String,
    /// The summary's policy version; 0 when it could not be read.
    pub summary_version: u64,
    /// The call's.
    pub call_version: u64,
    /// Key that signed it, as it says; cut at 32 bytes.
    pub key_id: String,
    /// Claims that only the summary has.
    pub only_summary: Vec<String>,
    /// Claims that only the call has.
    pub only_call: Vec<String>,
}

impl Counts {
    /// Adds those of another process.
    pub fn add(&mut self, other: &Self) {
        let sum = |into: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>| {
            for (kind, count) in from {
                let total = into.entry(kind.clone()).or_default();
                *total = total.saturating_add(*count);
            }
        };
        sum(&mut self.pages, &other.pages);
        sum(&mut self.emitted, &other.emitted);
        add(&mut self.comparisons, &other.comparisons);
        add(&mut self.authority, &other.authority);
    }

    /// Comparisons of a class, whatever else.
    pub fn comparisons_of(&self, class: &str) -> u64 {
        total(&self.comparisons, |count| count.kind == class)
    }

    /// Requests whose claims came so; `kind` may be a prefix like `fallback:`.
    pub fn authority_of(&self, kind: &str) -> u64 {
        total(&self.authority, |count| count.kind.starts_with(kind))
    }
}

/// Sum of the counts that are meant.
pub fn total(counts: &[Count], meant: impl Fn(&Count) -> bool) -> u64 {
    counts.iter().filter(|count| meant(count)).fold(0, |sum, count| sum.saturating_add(count.count))
}

fn add(into: &mut Vec<Count>, from: &[Count]) {
    for count in from {
        let same = |known: &&mut Count| {
            known.kind == count.kind && known.class == count.class && known.region == count.region
        };
        match into.iter_mut().find(same) {
            Some(known) => known.count = known.count.saturating_add(count.count),
            None => into.push(count.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_processes_add_up_by_kind_class_and_region() {
        let count = |kind: &str, region: &str, count| Count {
            kind: kind.to_owned(),
            class: "premium".to_owned(),
            region: region.to_owned(),
            count,
        };
        let one = Counts {
            pages: BTreeMap::from([("answered".to_owned(), 3)]),
            comparisons: vec![count("match", "eu-west", 2), count("missing", "eu-west", 1)],
            authority: vec![count("fallback:expired", "eu-west", 1)],
            ..Counts::default()
        };
        let other = Counts {
            pages: BTreeMap::from([("answered".to_owned(), 4), ("left".to_owned(), 1)]),
            comparisons: vec![count("match", "us-east", 4), count("match", "eu-west", u64::MAX)],
            authority: vec![count("fallback:revoked", "eu-west", 2), count("summary", "eu-west", 9)],
            ..Counts::default()
        };
        let mut sum = one.clone();
        sum.add(&other);
        assert_eq!(sum.pages, BTreeMap::from([("answered".to_owned(), 7), ("left".to_owned(), 1)]));
        assert_eq!(sum.comparisons.len(), 3);
        assert_eq!(sum.comparisons_of("match"), u64::MAX, "it saturates");
        assert_eq!((sum.authority_of("fallback:"), sum.authority_of("summary")), (3, 9));
        let text = serde_json::to_string(&sum).expect("plain data");
        assert_eq!(serde_json::from_str::<Counts>(&text).expect("reads back"), sum);
    }
}
