//! Phase: the seven dependencies of the home path, and the places in a request where time can run out.

use std::fmt;

/// A dependency of the home path. The same seven names serve as branch, service and emulated dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// Who the subject is. Mandatory.
    Profile,
    /// What the subject may do. Mandatory.
    Entitlement,
    /// What can be promised. Mandatory.
    Inventory,
    /// What it costs. Mandatory.
    Pricing,
    /// Which arms are shown. Mandatory.
    Experiment,
    /// What the subject may like. Optional.
    Recommendation,
    /// How the subject's reviews stand. Optional.
    Reputation,
}

impl Dependency {
    /// All of them, in the order of the call graph.
    pub const ALL: [Self; 7] = [
        Self::Profile,
        Self::Entitlement,
        Self::Inventory,
        Self::Pricing,
        Self::Experiment,
        Self::Recommendation,
        Self::Reputation,
    ];

    /// The name used in files, metrics, commands and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Entitlement => "entitlement",
            Self::Inventory => "inventory",
            Self::Pricing => "pricing",
            Self::Experiment => "experiment",
            Self::Recommendation => "recommendation",
            Self::Reputation => "reputation",
        }
    }

    /// The dependency of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dependency| dependency.as_str() == name)
    }

    /// Whether a home page without it is still correct.
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::Recommendation | Self::Reputation)
    }

    /// Position in [`Dependency::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a request was when it ended. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Header arrival, before any work.
    Ingress,
    /// Waiting for admission.
    Admission,
    /// Waiting for a profile permit.
    ProfileAcquire,
    /// The profile read.
    Profile,
    /// The serial entitlement hop.
    Entitlement,
    /// One of the parallel branches.
    Fanout(Dependency),
    /// A service's call to the dependency behind it.
    Upstream,
    /// Own computation of a service.
    Handler,
    /// Assembling and writing the response.
    Respond,
}

impl Phase {
    /// All of them. The position is what a running request keeps in a byte.
    pub const ALL: [Self; 15] = [
        Self::Ingress,
        Self::Admission,
        Self::ProfileAcquire,
        Self::Profile,
        Self::Entitlement,
        Self::Fanout(Dependency::Profile),
        Self::Fanout(Dependency::Entitlement),
        Self::Fanout(Dependency::Inventory),
        Self::Fanout(Dependency::Pricing),
        Self::Fanout(Dependency::Experiment),
        Self::Fanout(Dependency::Recommendation),
        Self::Fanout(Dependency::Reputation),
        Self::Upstream,
        Self::Handler,
        Self::Respond,
    ];

    /// Position in [`Phase::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Self::Ingress => 0,
            Self::Admission => 1,
            Self::ProfileAcquire => 2,
            Self::Profile => 3,
            Self::Entitlement => 4,
            Self::Fanout(dependency) => 5 + dependency.index(),
            Self::Upstream => 12,
            Self::Handler => 13,
            Self::Respond => 14,
        }
    }

    /// The name used in spans, metrics and error details.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Admission => "admission",
            Self::ProfileAcquire => "profile_acquire",
            Self::Profile => "profile",
            Self::Entitlement => "entitlement",
            Self::Fanout(Dependency::Profile) => "fanout:profile",
            Self::Fanout(Dependency::Entitlement) => "fanout:entitlement",
            Self::Fanout(Dependency::Inventory) => "fanout:inventory",
            Self::Fanout(Dependency::Pricing) => "fanout:pricing",
            Self::Fanout(Dependency::Experiment) => "fanout:experiment",
            Self::Fanout(Dependency::Recommendation) => "fanout:recommendation",
            Self::Fanout(Dependency::Reputation) => "fanout:reputation",
            Self::Upstream => "upstream",
            Self::Handler => "handler",
            Self::Respond => "respond",
        }
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
    fn names_read_back_and_indices_are_positions() {
        for (position, dependency) in Dependency::ALL.into_iter().enumerate() {
            assert_eq!(Dependency::parse(dependency.as_str()), Some(dependency));
            assert_eq!(dependency.index(), position);
            assert_eq!(Phase::Fanout(dependency).as_str(), format!("fanout:{dependency}"));
        }
        assert_eq!(Dependency::parse("Profile"), None);
        for (position, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase.index(), position);
        }
    }
}
