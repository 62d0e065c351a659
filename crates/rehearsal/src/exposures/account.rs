//! Account: what reconciling a ledger comes to, each kind of discrepancy by name with its count and some examples.

use std::fmt;

use serde::Serialize;

use super::records::Extent;
use crate::verdict::Verdict;

/// Schema of [`Account`].
pub const SCHEMA: &str = "mercury.exposures/v1";

/// The kinds of discrepancy. Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// An arm was shown as recorded, and has no row.
    Lost,
    /// An operation has more than one row of one experiment.
    Duplicated,
    /// A row of an operation that nobody asked for.
    Orphan,
    /// A row whose id or digest is not that of what it states.
    Forged,
    /// A row, or what was shown, is not what the caller's request says.
    Altered,
    /// An arm that the catalogue's definitions do not give to that subject.
    Misallocated,
    /// A row of an operation whose page did not show it.
    Extra,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Lost,
        Self::Duplicated,
        Self::Orphan,
        Self::Forged,
        Self::Altered,
        Self::Misallocated,
        Self::Extra,
    ];

    /// The name used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Orphan => "orphan",
            Self::Forged => "forged",
            Self::Altered => "altered",
            Self::Misallocated => "misallocated",
            Self::Extra => "extra",
        }
    }

    /// What it means, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Lost => "shown as recorded, without a row",
            Self::Duplicated => "more than one row of one experiment in one operation",
            Self::Orphan => "rows of operations that nobody asked for",
            Self::Forged => "rows whose id or digest is not that of what they state",
            Self::Altered => "rows or arms that are not what the caller's request says",
            Self::Misallocated => "arms that the definitions do not give to that subject",
            Self::Extra => "rows that the operation's page did not show",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The discrepancies of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Discrepancies {
    /// Which kind.
    pub class: Class,
    /// How many.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What follows.
    pub verdict: Verdict,
    /// Why nothing can be said; empty when something can.
    pub reasons: Vec<String>,
    /// The records, and whether each is whole.
    pub records: Vec<Extent>,
    /// Distinct operations.
    pub operations: Operations,
    /// Attempts that were sent.
    pub attempts: u64,
    /// Operations that took more than one attempt.
    pub retried: u64,
    /// Attempts whose answer said that the effect is ambiguous, or that had no answer.
    pub ambiguous: u64,
    /// Operations with rows that no attempt owned up to: an attempt before the answered one had recorded them, or there was no page
    /// at all, and the answer to none said, or showed by breaking off, that this might be so.
    pub undeclared: u64,
    /// Arms that callers were shown.
    pub arms: Arms,
    /// Rows of the ledger.
    pub rows: Rows,
    /// Every kind, also those of which there are none.
    pub discrepancies: Vec<Discrepancies>,
}

/// Operations by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// All.
    pub total: u64,
    /// With a page.
    pub answered: u64,
    /// Their last attempt failed.
    pub failed: u64,
    /// Their caller left.
    pub departed: u64,
    /// The run ended first.
    pub in_flight: u64,
}

/// Arms that were shown, by what the page said of their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arms {
    /// All.
    pub shown: u64,
    /// Recorded by the attempt that was answered.
    pub committed: u64,
    /// Recorded by an earlier attempt.
    pub replayed: u64,
    /// Of these, answered by another target than any attempt before.
    pub replayed_elsewhere: u64,
}

/// Rows by whether their arm was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rows {
    /// All.
    pub total: u64,
    /// Of arms that were shown.
    pub shown: u64,
    /// Of operations whose caller left or was not answered; they count as well, and are no discrepancy.
    pub unshown: u64,
}

impl Account {
    /// Nothing yet, with room for so many examples of each kind.
    pub(crate) fn new() -> Self {
        let none = |class| Discrepancies { class, count: 0, examples: Vec::new() };
        Self {
            schema: SCHEMA,
            verdict: Verdict::Inconclusive,
            reasons: Vec::new(),
            records: Vec::new(),
            operations: Operations::default(),
            attempts: 0,
            retried: 0,
            ambiguous: 0,
            undeclared: 0,
            arms: Arms::default(),
            rows: Rows::default(),
            discrepancies: Class::ALL.map(none).into(),
        }
    }

    /// How many discrepancies of a kind there are.
    pub fn count(&self, class: Class) -> u64 {
        self.discrepancies.iter().find(|one| one.class == class).map_or(0, |one| one.count)
    }

    /// Notes a discrepancy.
    pub(crate) fn note(&mut self, class: Class, examples_max: usize, example: impl FnOnce() -> String) {
        if let Some(one) = self.discrepancies.iter_mut().find(|one| one.class == class) {
            one.count += 1;
            if one.examples.len() < examples_max {
                one.examples.push(example());
            }
        }
    }

    /// Draws the conclusion. What a gap in the record may explain is not held against the ledger.
    pub(super) fn conclude(&mut self) {
        let gaps: Vec<String> = self
            .records
            .iter()
            .filter_map(|record| Some(format!("{}: {}", record.path, record.gap.as_ref()?)))
            .collect();
        let known = gaps.is_empty() && !self.records.is_empty();
        let explained = |class| !known && class == Class::Orphan;
        let failed = self.discrepancies.iter().any(|one| one.count > 0 && !explained(one.class));
        if self.records.is_empty() {
            self.reasons.push("there is no record".to_owned());
        }
        if self.arms.shown == 0 {
            self.reasons.push("the record tells of nobody who was shown an arm".to_owned());
        }
        if self.rows.total == 0 {
            self.reasons.push("the ledger is empty".to_owned());
        }
        self.reasons.extend(gaps);
        self.verdict = match (failed, self.reasons.is_empty()) {
            (true, _) => Verdict::Fail,
            (false, true) => Verdict::Pass,
            (false, false) => Verdict::Inconclusive,
        };
    }

    /// Why it is no pass, in one line; empty when it is one.
    pub fn why(&self) -> String {
        let found = self.discrepancies.iter().filter(|one| one.count > 0);
        let found: Vec<String> = found.map(|one| format!("{} {}", one.count, one.class)).collect();
        match self.verdict {
            Verdict::Fail => found.join(", "),
            _ => self.reasons.join("; "),
        }
    }
}
