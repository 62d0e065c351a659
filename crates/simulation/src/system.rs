//! System: what is simulated. The same policy, scenario and workload that the services, the emulator and the generator read,
//! and what a region adds to them: admission domains, hosts, placement, and the phase of the migration.

use base::{Nanos, WorkloadClass};
use control::mode::Mode;
use model::{
    Scale,
    policy::{Boundary, Mechanism, Policy},
    region::{Hosts, Placement},
    scenario::{Capacity, Scenario},
    workload::{Offered, Workload},
};

/// Where the claims of a page come from: the migration's phase, as far as it costs time (DESIGN 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimsPhase {
    /// The entitlement call is the authority: old, expand and shadow.
    #[default]
    Call,
    /// The summary is it for the share, classes and regions that the policy's mechanism names; the call for the others.
    Canary,
    /// The summary is it for everybody: cut-over and contract.
    Summary,
}

impl ClaimsPhase {
    /// All of them, the oldest first.
    pub const ALL: [Self; 3] = [Self::Call, Self::Canary, Self::Summary];

    /// The name used in commands and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Canary => "canary",
            Self::Summary => "summary",
        }
    }

    /// The phase of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }
}

/// A second read of the same profile, sent while the first is still out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedge {
    /// How long the first one has.
    pub after: Nanos,
    /// Whom it is done for.
    pub classes: [bool; WorkloadClass::ALL.len()],
    /// Reads in a cell of their own: connections and servers that the others do not share. `None` takes both from everybody.
    pub cell: Option<Capacity>,
    /// Hedges per hundred reads that may be sent at most; the token bucket of gRPC's hedging policy in its plainest form.
    pub percent_max: u32,
    /// How long after the winner's answer the loser still holds what it has: cancellation is no teleport.
    pub cancel_after: Nanos,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct System {
    /// The policy, as home-api reads it.
    pub policy: Policy,
    /// The dependencies of one admission domain, as the emulator reads them.
    pub scenario: Scenario,
    /// Who asks.
    pub workload: Workload,
    /// What one admission domain is offered, before placement.
    pub offered: Offered,
    /// Admission domains; what they are offered and what they have is each one's own.
    pub domains: u32,
    /// The hosts under them.
    pub hosts: Hosts,
    /// Which domain serves whom.
    pub placement: Placement,
    /// Where the claims come from.
    pub claims: ClaimsPhase,
    /// A second read of the profile.
    pub hedge: Option<Hedge>,
    /// Classes whose page is not whole without recommendations.
    pub recommendation_required: [bool; WorkloadClass::ALL.len()],
}

impl System {
    /// The region as workload and hosts declare it.
    pub fn region(
        policy: Policy,
        scenario: Scenario,
        workload: Workload,
        hosts: Hosts,
        placement: Placement,
    ) -> Self {
        let offered = workload.at_scale(Scale::ONE);
        let domains = workload.admission_domains;
        Self {
            policy,
            scenario,
            workload,
            offered,
            domains,
            hosts,
            placement,
            claims: ClaimsPhase::Call,
            hedge: None,
            recommendation_required: [false; WorkloadClass::ALL.len()],
        }
    }

    /// The system that a live run at `scale` is: a fraction of one domain, with its pools and capacities by square-root
    /// staffing. Hosts have as much as they need: what a live run costs in CPU is that machine's.
    pub fn fraction(policy: &Policy, scenario: &Scenario, workload: Workload, scale: Scale) -> Self {
        let offered = workload.at_scale(scale);
        let policy = policy.scaled(scale);
        let scenario = scenario.scaled(scale);
        Self {
            domains: 1,
            offered,
            ..Self::region(policy, scenario, workload, Hosts::UNBOUNDED, Placement::EVEN)
        }
    }

    /// Capacity of a domain's processors: how many pages are worked on at once.
    pub(crate) fn processors(&self) -> Option<Capacity> {
        let servers = self.hosts.processors()? / self.domains.max(1);
        Some(Capacity { servers: servers.max(1), queue_max: u32::MAX })
    }
}

/// Whether a mechanism acts on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acts {
    Never,
    Always,
    /// Ask the policy.
    Some,
}

/// Every mechanism's scope in short.
pub(crate) fn acts(policy: &Policy, claims: ClaimsPhase) -> [Acts; Mechanism::ALL.len()] {
    Mechanism::ALL.map(|mechanism| {
        let rollout = policy.mechanism(mechanism);
        if mechanism == Mechanism::Summary {
            return match claims {
                ClaimsPhase::Call => Acts::Never,
                ClaimsPhase::Canary => Acts::Some,
                ClaimsPhase::Summary => Acts::Always,
            };
        }
        match rollout.mode() {
            Mode::Off | Mode::Shadow => Acts::Never,
            Mode::On if rollout.is_everywhere() => Acts::Always,
            Mode::On => Acts::Some,
        }
    })
}

/// Where occupancy and queue age are measured.
pub const BOUNDARIES: [Boundary; 2] = Boundary::ALL;
