//! Policy: every bound, budget and reserve of the suite, read from one document and frozen (DESIGN 3.9).

mod admission;
mod audit;
mod mechanisms;
mod overlay;
mod parts;

use base::{Dependency, Nanos, mix};
use control::{coalescing, mode::Rollout};

use crate::{
    Scale,
    faults::Faults,
    read::{self, Table, every},
};

pub(crate) use self::overlay::merged;
pub use self::{
    admission::{AdmissionPolicy, Boundary},
    audit::{Audit, Finding, Rule},
    mechanisms::Mechanism,
    overlay::overlay,
    parts::{BranchPolicy, DegradationPolicy, ExposurePolicy, Limits, ServicePolicy, SummaryPolicy},
};

/// The policy document that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) = ("config/policy.toml", include_str!("../../../config/policy.toml"));
/// The old design as a policy: the same bounds, and no mechanism on.
pub const LEGACY: (&str, &str) =
    ("config/policy-legacy.toml", include_str!("../../../config/policy-legacy.toml"));

/// A process that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceName {
    /// The ingress.
    HomeApi,
    /// Who the subject is.
    Profile,
    /// What the subject may do.
    Entitlement,
    /// What can be promised.
    Inventory,
    /// What it costs.
    Pricing,
    /// Which arms are shown.
    Experiment,
    /// What the subject may like.
    Recommendation,
    /// How the subject's reviews stand.
    Reputation,
}

impl ServiceName {
    /// All of them, ingress first.
    pub const ALL: [Self; 8] = [
        Self::HomeApi,
        Self::Profile,
        Self::Entitlement,
        Self::Inventory,
        Self::Pricing,
        Self::Experiment,
        Self::Recommendation,
        Self::Reputation,
    ];

    /// The name used in files, commands and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HomeApi => "home-api",
            Self::Profile => "profile",
            Self::Entitlement => "entitlement",
            Self::Inventory => "inventory",
            Self::Pricing => "pricing",
            Self::Experiment => "experiment",
            Self::Recommendation => "recommendation",
            Self::Reputation => "reputation",
        }
    }

    /// The service of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == name)
    }

    /// The service in front of a dependency.
    pub const fn of(dependency: Dependency) -> Self {
        match dependency {
            Dependency::Profile => Self::Profile,
            Dependency::Entitlement => Self::Entitlement,
            Dependency::Inventory => Self::Inventory,
            Dependency::Pricing => Self::Pricing,
            Dependency::Experiment => Self::Experiment,
            Dependency::Recommendation => Self::Recommendation,
            Dependency::Reputation => Self::Reputation,
        }
    }
}

impl std::fmt::Display for ServiceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One validated policy. Immutable; a change is another value with a higher generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Rises with every change; a lower one never replaces a higher one.
    pub generation: u64,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// The latency objective at ingress.
    pub objective: Nanos,
    /// What ingress keeps for assembling and writing the response.
    pub response_reserve: Nanos,
    /// An optional branch starts only with at least this much left.
    pub optional_floor: Nanos,
    /// How long a stopping process waits for its work.
    pub drain: Nanos,
    /// Bounds of every listener and connection.
    pub limits: Limits,
    /// How exposures reach the ledger.
    pub exposure: ExposurePolicy,
    /// How identical profile reads share a call.
    pub coalescing: coalescing::Rules,
    /// When optional sections give way to the process's own pressure.
    pub degradation: DegradationPolicy,
    /// The entitlement summary.
    pub summary: SummaryPolicy,
    /// How many times slower than declared everything runs; 1 is real time. Not part of the document.
    pub dilation: u32,
    mechanisms: mechanisms::Rollouts,
    admission: [AdmissionPolicy; 2],
    services: [ServicePolicy; 8],
    branches: [BranchPolicy; 7],
}

impl Policy {
    /// The policy in slow motion: the objective, every deadline, reserve and budget is `factor` times as long. What
    /// concerns the machine and not the model stays: drain, connection bounds, the ledger's busy timeout.
    pub fn dilated(&self, factor: u32) -> Self {
        let mut dilated = self.clone();
        for span in [&mut dilated.objective, &mut dilated.response_reserve, &mut dilated.optional_floor] {
            *span = span.times(factor);
        }
        for service in &mut dilated.services {
            for span in [&mut service.default_timeout, &mut service.timeout_max, &mut service.reserve] {
                *span = span.times(factor);
            }
        }
        for branch in &mut dilated.branches {
            for span in [&mut branch.worst_useful, &mut branch.independent_timeout] {
                *span = span.times(factor);
            }
        }
        let (flights, pressure) = (&mut dilated.coalescing, &mut dilated.degradation);
        for span in [
            &mut dilated.summary.lifetime,
            &mut dilated.summary.lifetime_max,
            &mut dilated.summary.staleness_max,
            &mut flights.freshness_window,
            &mut flights.useful_min,
            &mut flights.duration_max,
            &mut pressure.bounds.queue_age_max,
            &mut pressure.bounds.window,
            &mut pressure.floor,
        ] {
            *span = span.times(factor);
        }
        dilated.admission = dilated.admission.map(|boundary| boundary.dilated(factor));
        dilated.dilation = dilated.dilation.saturating_mul(factor);
        dilated
    }

    /// The policy of a smaller system: pools and gates are those of a fraction of one admission domain (DESIGN 5). Times
    /// and the bounds of connections stay as they are.
    pub fn scaled(&self, scale: Scale) -> Self {
        let admission = self.admission.map(|boundary| boundary.scaled(scale));
        Self { admission, ..self.clone() }
    }
}

impl Policy {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, |table| policy(table, mix::fold_bytes(0, text.as_bytes())))
    }

    /// The policy that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped policy is valid, which a test checks")
    }

    /// The time bounds of a service.
    pub const fn service(&self, name: ServiceName) -> &ServicePolicy {
        &self.services[name as usize]
    }

    /// A mechanism's mode and scope.
    pub const fn mechanism(&self, mechanism: Mechanism) -> &Rollout {
        &self.mechanisms[mechanism.index()]
    }

    /// The bounds of a boundary.
    pub const fn admission(&self, boundary: Boundary) -> &AdmissionPolicy {
        &self.admission[boundary.index()]
    }

    /// How the home page treats a branch.
    pub const fn branch(&self, dependency: Dependency) -> &BranchPolicy {
        &self.branches[dependency.index()]
    }
}

/// Longest time bound that a policy may hold: a minute.
const SPAN_MS_MAX: u64 = 60_000;

fn policy(table: &mut Table<'_>, digest: u64) -> Option<Policy> {
    let generation = table.integer("generation", 1..=u64::MAX);
    let objective = table.millis("objective_ms", 1..=SPAN_MS_MAX);
    let response_reserve = table.millis("response_reserve_ms", 1..=SPAN_MS_MAX);
    let optional_floor = table.millis("optional_floor_ms", 1..=SPAN_MS_MAX);
    let drain = table.millis("drain_ms", 1..=10 * SPAN_MS_MAX);
    let mechanisms = table.section("mechanisms", mechanisms::mechanisms);
    let admission = table.section("admission", |admission| {
        every(Boundary::ALL.map(|name| admission.section(name.as_str(), admission::boundary)))
    });
    let coalescing = table.section("coalescing", parts::coalescing);
    let degradation = table.section("degradation", parts::degradation);
    let summary = table.section("summary", parts::summary);
    let services = table.section("services", |services| {
        every(ServiceName::ALL.map(|name| services.section(name.as_str(), parts::service)))
    });
    let branches = table.section("branches", |branches| {
        every(Dependency::ALL.map(|name| branches.section(name.as_str(), |table| parts::branch(table, name))))
    });
    let limits = table.section("limits", parts::limits);
    let exposure = table.section("exposure", parts::exposure);

    if let (Some(objective), Some(reserve), Some(floor)) = (objective, response_reserve, optional_floor) {
        if reserve >= floor {
            table.fault("optional_floor_ms", "must be above response_reserve_ms");
        }
        if floor >= objective {
            table.fault("optional_floor_ms", "must be below objective_ms");
        }
        if reserve >= objective {
            table.fault("response_reserve_ms", "must be below objective_ms");
        }
    }
    if let (Some(degradation), Some(floor), Some(objective)) = (&degradation, optional_floor, objective) {
        if degradation.floor < floor {
            let message = "must not be below optional_floor_ms: pressure would let more sections start";
            table.fault_in(&["degradation", "pressure_floor_ms"], message);
        }
        if degradation.floor > objective {
            table.fault_in(&["degradation", "pressure_floor_ms"], "must not exceed objective_ms");
        }
    }
    if let (Some(services), Some(reserve)) = (&services, response_reserve)
        && services[ServiceName::HomeApi as usize].reserve != reserve
    {
        table.fault("response_reserve_ms", "must equal services.home-api.reserve_ms, the hop that keeps it");
    }
    if let (Some(limits), Some([endpoint, _])) = (&limits, &admission) {
        let needed = u64::from(endpoint.slots).saturating_add(endpoint.queue_max());
        if u64::from(limits.requests_max) < needed {
            let message = format!(
                "must be {needed} or more, the slots and the queue of admission.endpoint, which it would overrule"
            );
            table.fault_in(&["limits", "requests_max"], message);
        }
    }
    if let (Some(branches), Some(objective), Some(reserve)) = (&branches, objective, response_reserve) {
        let needed = mandatory_chain(branches) + reserve;
        if needed > objective {
            let message = format!(
                "is too short: profile, entitlement, the longest mandatory branch and the reserve need {} ms",
                needed.as_millis()
            );
            table.fault("objective_ms", message);
        }
    }
    if let (Some(branches), Some(floor), Some(reserve)) = (&branches, optional_floor, response_reserve) {
        for name in Dependency::ALL.into_iter().filter(|name| name.is_optional()) {
            if branches[name.index()].worst_useful + reserve > floor {
                let message = format!("must cover branches.{name}.worst_useful_ms and response_reserve_ms");
                table.fault("optional_floor_ms", message);
            }
        }
    }
    Some(Policy {
        generation: generation?,
        digest,
        objective: objective?,
        response_reserve: response_reserve?,
        optional_floor: optional_floor?,
        drain: drain?,
        limits: limits?,
        exposure: exposure?,
        coalescing: coalescing?,
        degradation: degradation?,
        summary: summary?,
        dilation: 1,
        mechanisms: mechanisms?,
        admission: admission?,
        services: services?,
        branches: branches?,
    })
}

/// The serial part of the call graph: profile, entitlement, then the longest of the mandatory parallel branches.
fn mandatory_chain(branches: &[BranchPolicy; 7]) -> Nanos {
    let serial = [Dependency::Profile, Dependency::Entitlement, longest_mandatory_branch(branches)];
    serial.into_iter().fold(Nanos::ZERO, |sum, name| sum + branches[name.index()].worst_useful)
}

/// The mandatory branch of the fan-out that takes longest.
fn longest_mandatory_branch(branches: &[BranchPolicy; 7]) -> Dependency {
    let parallel = [Dependency::Inventory, Dependency::Pricing, Dependency::Experiment];
    let [first, others @ ..] = parallel;
    others.into_iter().fold(first, |longest, name| {
        let longer = branches[name.index()].worst_useful > branches[longest.index()].worst_useful;
        if longer { name } else { longest }
    })
}

#[cfg(test)]
mod tests;
