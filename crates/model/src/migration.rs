//! Migration: what each phase of the way from the entitlement call to the signed summary must have shown before the next.
//!
//! A step has one set of bounds on shares, which hold always, and two extents, how much evidence and of how long: the full
//! one for a live system and a quick one for a rehearsal. The quick one cannot ask for more, and no bound is looser in it.

use base::{Nanos, mix};

use crate::{
    faults::Faults,
    read::{self, Table},
    scenario::plain_name,
};

/// The plan that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) = (
    "config/migrations/entitlement-summary.toml",
    include_str!("../../../config/migrations/entitlement-summary.toml"),
);

/// Most requests that a step may ask for.
const SAMPLE_MAX: u64 = 1_000_000_000;
/// Longest soak: 30 days.
const SOAK_MS_MAX: u64 = 2_592_000_000;
/// A share of comparisons below this would not call them comparisons.
const MATCH_MIN_PERCENT: f64 = 50.0;

/// The phase that a step leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Profile signs.
    Expand,
    /// Home-api compares.
    Shadow,
    /// The summary serves some.
    Canary,
    /// The summary serves all.
    Cutover,
    /// The call is gone.
    Contract,
}

impl Target {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Expand, Self::Shadow, Self::Canary, Self::Cutover, Self::Contract];

    /// The name used in the file, which is the phase's.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expand => "expand",
            Self::Shadow => "shadow",
            Self::Canary => "canary",
            Self::Cutover => "cutover",
            Self::Contract => "contract",
        }
    }

    /// The target of that name; legacy is none.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.as_str() == name)
    }

    /// Whether the phase before it compares summaries with the call.
    const fn compares(self) -> bool {
        matches!(self, Self::Canary | Self::Cutover)
    }

    /// Whether the phase before it serves by the summary.
    const fn serves(self) -> bool {
        matches!(self, Self::Cutover | Self::Contract)
    }

    /// Whether what the phase before it counts is told apart by class and region.
    const fn has_parts(self) -> bool {
        self.compares() || self.serves()
    }
}

/// One validated plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is migrated.
    pub name: String,
    /// Rises with every change of the file.
    pub version: u32,
    /// Digest of the document's bytes, for decisions.
    pub digest: u64,
    /// In the order of [`Target::ALL`].
    transitions: [Transition; 5],
}

/// What the phase before a target must have shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// How much and how long, in a live system.
    pub full: Extent,
    /// How much and how long, in a rehearsal.
    pub quick: Extent,
    /// Which shares it must keep to, in either.
    pub shares: Shares,
}

/// How much evidence, and of how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Requests of the relevant kind.
    pub sample_min: u64,
    /// The same in each class that was seen; `None` where the phase before does not tell classes apart.
    pub class_sample_min: Option<u64>,
    /// The same in each region that was seen.
    pub region_sample_min: Option<u64>,
    /// Since the phase began.
    pub soak: Nanos,
}

/// Shares of requests, in percent; `None` where the phase before has no such figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Pages refused.
    pub refused_max_percent: f64,
    /// Answers or comparisons without a summary.
    pub missing_max_percent: Option<f64>,
    /// Comparisons left out.
    pub not_run_max_percent: Option<f64>,
    /// Comparisons that agree.
    pub match_min_percent: Option<f64>,
    /// Requests that fell back to the call.
    pub fallback_max_percent: Option<f64>,
}

impl Plan {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        let digest = mix::fold_bytes(0, text.as_bytes());
        read::document(file_name, text, |table| plan(table, digest))
    }

    /// The plan that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped plan is valid, which a test checks")
    }

    /// What must have been shown before `target`.
    pub const fn transition(&self, target: Target) -> &Transition {
        &self.transitions[target as usize]
    }
}

impl Transition {
    /// The extent that applies.
    pub const fn extent(&self, quick: bool) -> &Extent {
        if quick { &self.quick } else { &self.full }
    }
}

fn plan(table: &mut Table<'_>, digest: u64) -> Option<Plan> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let transitions = table.section("transitions", |table| {
        // All of them are read before the first fault ends it.
        read::every(
            Target::ALL.map(|target| table.section(target.as_str(), |table| transition(table, target))),
        )
    });
    Some(Plan { name: name?, version: version?, digest, transitions: transitions? })
}

fn transition(table: &mut Table<'_>, target: Target) -> Option<Transition> {
    let full = extent(table, target);
    let quick = table.section("quick", |table| extent(table, target));
    let shares = shares(table, target);
    let (full, quick) = (full?, quick?);
    let spans = [
        ("sample_min", Some(full.sample_min), Some(quick.sample_min)),
        ("class_sample_min", full.class_sample_min, quick.class_sample_min),
        ("region_sample_min", full.region_sample_min, quick.region_sample_min),
        ("soak_ms", Some(full.soak.as_millis()), Some(quick.soak.as_millis())),
    ];
    let mut shorter = true;
    for (key, full, quick) in spans.into_iter().filter(|(_, full, quick)| quick > full) {
        let (full, quick) = (full.unwrap_or_default(), quick.unwrap_or_default());
        table.fault_in(&["quick", key], format!("{quick} is more than the {full} of a live system"));
        shorter = false;
    }
    shorter.then_some(Transition { full, quick, shares: shares? })
}

fn extent(table: &mut Table<'_>, target: Target) -> Option<Extent> {
    let sample_min = table.integer("sample_min", 1..=SAMPLE_MAX);
    let soak = table.millis("soak_ms", 1..=SOAK_MS_MAX);
    let mut part = |key| if_any(target.has_parts(), || table.integer(key, 1..=SAMPLE_MAX));
    let (class_sample_min, region_sample_min) = (part("class_sample_min"), part("region_sample_min"));
    let extent = Extent {
        sample_min: sample_min?,
        class_sample_min: class_sample_min?,
        region_sample_min: region_sample_min?,
        soak: soak?,
    };
    for (key, part) in
        [("class_sample_min", extent.class_sample_min), ("region_sample_min", extent.region_sample_min)]
    {
        if part.is_some_and(|part| part > extent.sample_min && !target.compares()) {
            table.fault(key, "must not exceed sample_min: a part is no more than the whole");
            return None;
        }
    }
    Some(extent)
}

fn shares(table: &mut Table<'_>, target: Target) -> Option<Shares> {
    let refused_max_percent = table.number("refused_max_percent", 0.0..=100.0);
    let mut share = |key, there, least| if_any(there, || table.number(key, least..=100.0));
    let missing = target == Target::Shadow || target.compares();
    let missing_max_percent = share("missing_max_percent", missing, 0.0);
    let not_run_max_percent = share("not_run_max_percent", target.compares(), 0.0);
    let match_min_percent = share("match_min_percent", target.compares(), MATCH_MIN_PERCENT);
    let fallback_max_percent = share("fallback_max_percent", target.serves(), 0.0);
    Some(Shares {
        refused_max_percent: refused_max_percent?,
        missing_max_percent: missing_max_percent?,
        not_run_max_percent: not_run_max_percent?,
        match_min_percent: match_min_percent?,
        fallback_max_percent: fallback_max_percent?,
    })
}

/// A key that only some tables have: elsewhere it is not asked for, and so unknown.
fn if_any<T>(there: bool, read: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
    if there { read().map(Some) } else { Some(None) }
}

#[cfg(test)]
mod tests;
