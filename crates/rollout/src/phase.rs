//! Phase: where the migration from the entitlement call to the signed summary stands (DESIGN 3.6), and what that means for
//! those who serve.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The subject of the migration's decisions in the ledger.
pub const SUBJECT: &str = "entitlement-summary";

/// A phase. In order: each but the last may go one on, and each before contract may go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The call alone.
    #[default]
    Legacy,
    /// Profile emits summaries; nobody looks at them.
    Expand,
    /// Home-api checks them and compares them with the call, which stays the authority.
    Shadow,
    /// For a share of the subjects the summary is the authority, with the call to fall back to. The others are in shadow.
    Canary,
    /// For everybody the summary is the authority, with the call to fall back to.
    Cutover,
    /// The call is gone.
    Contract,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Legacy, Self::Expand, Self::Shadow, Self::Canary, Self::Cutover, Self::Contract];

    /// The name used in the ledger, in metrics and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Expand => "expand",
            Self::Shadow => "shadow",
            Self::Canary => "canary",
            Self::Cutover => "cutover",
            Self::Contract => "contract",
        }
    }

    /// The phase of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }

    /// The phase after it; `None` after the last.
    pub fn next(self) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| *phase > self)
    }

    /// Whether profile adds summaries to its answers.
    pub fn emits(self) -> bool {
        self >= Self::Expand
    }

    /// Whether home-api reads summaries.
    pub fn reads(self) -> bool {
        self >= Self::Shadow
    }

    /// Whether the entitlement call is there.
    pub fn has_call(self) -> bool {
        self < Self::Contract
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_spelt_alike_everywhere_and_lead_on() {
        for phase in Phase::ALL {
            assert_eq!(Phase::parse(phase.as_str()), Some(phase));
            assert_eq!(serde_json::json!(phase), phase.as_str());
        }
        assert_eq!(Phase::parse("contracted"), None);
        let ladder: Vec<_> = std::iter::successors(Some(Phase::Legacy), |phase| phase.next()).collect();
        assert_eq!(ladder, Phase::ALL);
        assert!(Phase::Cutover.has_call() && !Phase::Contract.has_call());
        assert!(!Phase::Legacy.emits() && Phase::Expand.emits() && !Phase::Expand.reads());
    }
}
