//! Mechanisms: the parts of the repair, each with a mode and a scope of its own, so that one causal change at a time can
//! be shadowed, switched, measured and reversed (DESIGN 3.9).

use base::{Region, WorkloadClass};
use control::mode::{Classes, Mode, REGIONS_MAX, Regions, Rollout, Scope, Share};

use crate::read::{Table, every};

/// One mechanism of the repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// The request's deadline governs it and travels with every call; otherwise each branch has a timeout of its own.
    Deadline,
    /// Work ends with its caller; otherwise it goes on to its end.
    Cancellation,
    /// Bounded gates stand before the pools; otherwise work waits for a slot without bound.
    Admission,
    /// Concurrent identical profile reads share one call.
    Coalescing,
    /// Claims come signed with the profile; otherwise from a call of their own.
    Summary,
    /// Optional sections give way when little time is left or the process is under pressure; otherwise they are waited for.
    Degradation,
}

impl Mechanism {
    /// All of them, in the order in which they are rolled out.
    pub const ALL: [Self; 6] = [
        Self::Deadline,
        Self::Cancellation,
        Self::Admission,
        Self::Coalescing,
        Self::Summary,
        Self::Degradation,
    ];

    /// The name used in files, headers, metrics and reports. It is the key of the mechanism's subjects, so it never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Cancellation => "cancellation",
            Self::Admission => "admission",
            Self::Coalescing => "coalescing",
            Self::Summary => "summary",
            Self::Degradation => "degradation",
        }
    }

    /// The mechanism of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.as_str() == name)
    }

    /// Position in [`Mechanism::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Mechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Every mechanism's mode and scope, in the order of [`Mechanism::ALL`].
pub(super) type Rollouts = [Rollout; Mechanism::ALL.len()];

pub(super) fn mechanisms(table: &mut Table<'_>) -> Option<Rollouts> {
    every(
        Mechanism::ALL.map(|mechanism| table.section(mechanism.as_str(), |table| rollout(table, mechanism))),
    )
}

fn rollout(table: &mut Table<'_>, mechanism: Mechanism) -> Option<Rollout> {
    let mode = table.text("mode", "\"off\", \"shadow\" or \"on\"", Mode::parse);
    let percent = table.number_or("percent", 0.0..=100.0, 100.0);
    let classes = table.texts_opt(
        "classes",
        WorkloadClass::ALL.len(),
        "standard, premium or enterprise",
        WorkloadClass::parse,
    );
    let regions =
        table.texts_opt("regions", REGIONS_MAX, "a region: 1 to 32 characters of a-z, 0-9 and '-'", |text| {
            Region::parse(text).ok()
        });
    let share = percent.and_then(|percent| {
        let share = share(percent);
        if share.is_none() {
            table.fault("percent", "expected at most two decimals");
        }
        share
    });
    let regions = match regions? {
        None => Regions::ALL,
        Some(named) => Regions::only(named).ok()?, // `texts_opt` has bounded their number.
    };
    let classes = classes?.map_or(Classes::ALL, Classes::only);
    let scope = Scope { share: share?, classes, regions };
    Some(Rollout::new(mechanism.as_str(), mode?, scope))
}

/// A share of the subjects; `None` for what is finer than a ten-thousandth.
fn share(percent: f64) -> Option<Share> {
    let parts = percent * 100.0;
    let whole = parts.round();
    // Two decimals are not exact in binary; a slack far below a part tells them from a third decimal.
    if (parts - whole).abs() > 1e-6 {
        return None;
    }
    Share::per_10_000(whole as u16)
}
