//! Switch: the closed set of counterfactuals, each with its question, what the case study expects, and the rule of its verdict.

use super::Trial;

/// A counterfactual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// More hosts and nothing else.
    Hosts,
    /// A larger pool of profile connections.
    Pool800,
    /// A second read for everybody, at peak.
    HedgeBroadPeak,
    /// A second read for everybody, with room to spare.
    HedgeBroadModerate,
    /// A second read for few, on capacity of their own.
    HedgeNarrow,
    /// Nobody asks for what somebody else asks for.
    NoOverlap,
    /// The entitlement call stays.
    HopKept,
    /// Recommendations are mandatory for two classes.
    RecommendationRequired,
    /// Work is admitted by recently observed latencies.
    ObservationGuard,
}

impl Switch {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Hosts,
        Self::Pool800,
        Self::HedgeBroadPeak,
        Self::HedgeBroadModerate,
        Self::HedgeNarrow,
        Self::NoOverlap,
        Self::HopKept,
        Self::RecommendationRequired,
        Self::ObservationGuard,
    ];

    /// The name used in commands and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Pool800 => "pool-800",
            Self::HedgeBroadPeak => "hedge-broad-peak",
            Self::HedgeBroadModerate => "hedge-broad-moderate",
            Self::HedgeNarrow => "hedge-narrow",
            Self::NoOverlap => "no-overlap",
            Self::HopKept => "hop-kept",
            Self::RecommendationRequired => "recommendation-required",
            Self::ObservationGuard => "observation-guard",
        }
    }

    /// The switch of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|switch| switch.as_str() == name)
    }

    /// Whether the region's model can throw it; what it cannot never passes.
    pub const fn is_modelled(self) -> bool {
        !matches!(self, Self::ObservationGuard)
    }

    /// What is asked.
    pub const fn question(self) -> &'static str {
        match self {
            Self::Hosts => "Do a quarter more hosts, and nothing else, bring the 99th percentile down?",
            Self::Pool800 => {
                "Does a pool of 800 profile connections bring the old design's 99th percentile down?"
            }
            Self::HedgeBroadPeak => {
                "What does a second profile read after the 90th percentile, for everybody, from the same pool, and with losers that go on \
                 for a median read, do at peak?"
            }
            Self::HedgeBroadModerate => "And what does it do at 60 % of the load?",
            Self::HedgeNarrow => {
                "What does it do for enterprise alone, from a cell of its own, for a tenth of the reads at most, and with losers that stop \
                 at once?"
            }
            Self::NoOverlap => {
                "What does coalescing save when nobody asks for what others ask for at the time?"
            }
            Self::HopKept => "What does the entitlement call cost if it stays behind the profile?",
            Self::RecommendationRequired => {
                "Can premium and enterprise keep the objective when their pages are not whole without recommendations?"
            }
            Self::ObservationGuard => {
                "Does a guard that admits by recently observed latencies settle or swing?"
            }
        }
    }

    /// What the case study expects.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Hosts => "hardly: slots and placement stay as they are; 11 ms were measured",
            Self::Pool800 => "no: the queue moves, it does not go away",
            Self::HedgeBroadPeak => "more demand, older queues, and less goodput in the slowdown",
            Self::HedgeBroadModerate => "some of the tail is cut",
            Self::HedgeNarrow => "it may help where capacity is its own, and harms nobody else",
            Self::NoOverlap => "almost nothing; with the declared groups it saves 2,944 reads a second",
            Self::HopKept => "31 ms at the 99th percentile, and the branches begin later",
            Self::RecommendationRequired => "no: another objective, more capacity, or less other work",
            Self::ObservationGuard => "nothing is promised: local histories can swing together",
        }
    }

    /// When it passes.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Hosts => {
                "passes when neither the old nor the repaired 99th percentile at peak moves by more than 10 %"
            }
            Self::Pool800 => "passes when the old 99th percentile at peak falls by no more than 10 %",
            Self::HedgeBroadPeak => {
                "passes when there are more reads, a connection is waited for at least 1 ms longer at peak, and goodput in the \
                 slowdown is lower by 0.05 points or more; fails when that goodput is higher by as much; else open"
            }
            Self::HedgeBroadModerate => {
                "passes when the 95th, 99th or 99.9th percentile falls by 1 % or more and goodput by no more than 0.1 points"
            }
            Self::HedgeNarrow => {
                "fails when another class loses 0.1 points of goodput or a connection is waited for 1 ms longer; passes when \
                 nobody else is harmed and enterprise gains 0.1 points or 1 % of its 99th percentile; else open"
            }
            Self::NoOverlap => {
                "passes when without overlap fewer than one read in a hundred operations is shared, and with it ten times as many"
            }
            Self::HopKept => {
                "passes when with the hop the repaired median is 1 ms later or more and the old 99th percentile falls by 1 ms or \
                 more without it; fails when neither holds; else open"
            }
            Self::RecommendationRequired => {
                "passes when one of the two classes misses a 99th percentile of 300 ms or a goodput of 98 % at peak, as expected; \
                 fails when both keep them"
            }
            Self::ObservationGuard => "not modelled yet; never passes",
        }
    }

    /// The regions that it compares.
    pub(super) const fn trials(self) -> &'static [Trial] {
        match self {
            Self::Hosts => &[Trial::Old, Trial::OldHosts, Trial::Repaired, Trial::Hosts],
            Self::Pool800 => &[Trial::Old, Trial::OldPool],
            Self::HedgeBroadPeak => &[Trial::Repaired, Trial::Hedged, Trial::HedgedPrompt],
            Self::HedgeBroadModerate => &[Trial::Moderate, Trial::ModerateHedged],
            Self::HedgeNarrow => &[Trial::Repaired, Trial::Narrow],
            Self::NoOverlap => &[Trial::Repaired, Trial::NoOverlap],
            Self::HopKept => &[Trial::Repaired, Trial::Hop, Trial::Old, Trial::OldSummary],
            Self::RecommendationRequired => &[
                Trial::Repaired,
                Trial::Required,
                Trial::RequiredServers,
                Trial::RequiredFourfold,
                Trial::RequiredLongest,
            ],
            Self::ObservationGuard => &[],
        }
    }
}

impl std::fmt::Display for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
