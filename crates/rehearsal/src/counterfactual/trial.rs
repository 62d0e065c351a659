//! Trial: a region that a switch is thrown in, or the one without it that it is held against. Several switches may need the same.

use base::{Dependency, Nanos, WorkloadClass};
use model::{scenario::Capacity, scenario::Scenario, workload::Workload};
use simulation::{ClaimsPhase, Hedge, System};

use crate::{
    frontier::more_hosts,
    slo::RehearsalError,
    sweep::{At, Base},
};

/// Quantile of the profile read after which a second one is sent.
const HEDGE_QUANTILE: f64 = 0.9;
/// How long the loser of two reads still holds what it has where cancellation is prompt: a hop and the notice of it. Otherwise
/// it goes on for as long as a median read takes: the study's broad hedge is cancelled when both have long begun.
const CANCEL_PROMPT: Nanos = Nanos::from_millis(2);
/// Hedges per hundred reads of the narrow hedge; the broad one has no bound of its own.
const NARROW_PERCENT: u32 = 10;
/// The cell of the narrow hedge, of a whole admission domain: a tenth of enterprise's reads takes some three servers on average.
const NARROW_CELL: Capacity = Capacity { servers: 12, queue_max: 12 };
/// The moderate load, in percent of the declared one.
const MODERATE_PERCENT: f64 = 60.0;
/// Servers of recommendation where they are more, in percent.
const SERVERS_PERCENT: u32 = 150;
/// Longer objectives, in milliseconds: four times the declared one, and as long as the slowest caller waits.
const FOURFOLD_MS: u32 = 1_200;
const LONGEST_MS: u32 = 2_000;
/// Connections of the larger pool.
const LARGER: u32 = 800;

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    Old,
    OldHosts,
    OldPool,
    OldSummary,
    Repaired,
    Hosts,
    Hedged,
    HedgedPrompt,
    Moderate,
    ModerateHedged,
    Narrow,
    NoOverlap,
    Hop,
    Required,
    RequiredServers,
    RequiredFourfold,
    RequiredLongest,
}

impl Trial {
    /// All of them, in the order in which they are run and told.
    pub(super) const ALL: [Self; 17] = [
        Self::Old,
        Self::OldHosts,
        Self::OldPool,
        Self::OldSummary,
        Self::Repaired,
        Self::Hosts,
        Self::Hedged,
        Self::HedgedPrompt,
        Self::Moderate,
        Self::ModerateHedged,
        Self::Narrow,
        Self::NoOverlap,
        Self::Hop,
        Self::Required,
        Self::RequiredServers,
        Self::RequiredFourfold,
        Self::RequiredLongest,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::OldHosts => "old-hosts",
            Self::OldPool => "old-pool-800",
            Self::OldSummary => "old-without-hop",
            Self::Repaired => "repaired",
            Self::Hosts => "repaired-hosts",
            Self::Hedged => "hedged",
            Self::HedgedPrompt => "hedged-prompt",
            Self::Moderate => "moderate",
            Self::ModerateHedged => "moderate-hedged",
            Self::Narrow => "hedged-narrowly",
            Self::NoOverlap => "no-overlap",
            Self::Hop => "hop-kept",
            Self::Required => "recommendation-required",
            Self::RequiredServers => "recommendation-required-servers",
            Self::RequiredFourfold => "recommendation-required-1200-ms",
            Self::RequiredLongest => "recommendation-required-2000-ms",
        }
    }

    /// Whether it is the old design with a change.
    pub(super) const fn is_old(self) -> bool {
        matches!(self, Self::Old | Self::OldHosts | Self::OldPool | Self::OldSummary)
    }

    /// The states that it is tried in.
    pub(super) const fn states(self) -> &'static [At] {
        match self {
            Self::Old | Self::OldPool => &At::ALL,
            Self::Repaired
            | Self::Hedged
            | Self::HedgedPrompt
            | Self::Narrow
            | Self::NoOverlap
            | Self::Hop => &[At::Peak, At::Slowdown],
            _ => &[At::Peak],
        }
    }

    /// The region.
    pub(super) fn system(self, base: &Base) -> Result<System, RehearsalError> {
        let quantile = |classes, q| read_quantile(&base.scenario, &base.workload, classes, q);
        let broad = Hedge {
            after: quantile([true; 3], HEDGE_QUANTILE),
            classes: [true; 3],
            cell: None,
            percent_max: 100,
            cancel_after: quantile([true; 3], 0.5),
        };
        let mut system = if self.is_old() { base.old() } else { base.repaired() };
        match self {
            Self::Old | Self::Repaired => {}
            Self::OldHosts | Self::Hosts => system = more_hosts(system),
            Self::OldPool => {
                let policy = base.before.with(&format!("[admission.profile]\nslots = {LARGER}\n"))?;
                system = base.system(policy, ClaimsPhase::Call);
            }
            Self::OldSummary => system.claims = ClaimsPhase::Summary,
            Self::Hedged => system.hedge = Some(broad),
            Self::HedgedPrompt => system.hedge = Some(Hedge { cancel_after: CANCEL_PROMPT, ..broad }),
            Self::Moderate => system.offered.requests_per_s *= MODERATE_PERCENT / 100.0,
            Self::ModerateHedged => {
                system.offered.requests_per_s *= MODERATE_PERCENT / 100.0;
                system.hedge = Some(broad);
            }
            Self::Narrow => {
                let classes = WorkloadClass::ALL.map(|class| class == WorkloadClass::Enterprise);
                system.hedge = Some(Hedge {
                    after: quantile(classes, HEDGE_QUANTILE),
                    classes,
                    cell: Some(NARROW_CELL),
                    percent_max: NARROW_PERCENT,
                    cancel_after: CANCEL_PROMPT,
                });
            }
            Self::NoOverlap => system.workload.coalescing.share = 0.0,
            Self::Hop => system.claims = ClaimsPhase::Call,
            Self::Required => system.recommendation_required = DEMANDING,
            Self::RequiredServers => {
                let percent = |name| if name == Dependency::Recommendation { SERVERS_PERCENT } else { 100 };
                system = base.with_capacity_percent(system, percent);
                system.recommendation_required = DEMANDING;
            }
            Self::RequiredFourfold => system = longer(base, FOURFOLD_MS)?,
            Self::RequiredLongest => system = longer(base, LONGEST_MS)?,
        }
        Ok(system)
    }
}

/// The classes that demand recommendations.
const DEMANDING: [bool; 3] = [false, true, true];

/// The region in which recommendations are demanded, with a longer objective.
fn longer(base: &Base, objective_ms: u32) -> Result<System, RehearsalError> {
    let changes = format!(
        "objective_ms = {objective_ms}\n[services.home-api]\ndefault_timeout_ms = {objective_ms}\ntimeout_max_ms = {objective_ms}\n"
    );
    let mut system = base.system(base.after.with(&changes)?, ClaimsPhase::Summary);
    system.recommendation_required = DEMANDING;
    Ok(system)
}

/// The `q` quantile of a profile read's service time at peak, over the reads of some classes by their shares.
pub(super) fn read_quantile(scenario: &Scenario, workload: &Workload, classes: [bool; 3], q: f64) -> Nanos {
    let Some(phase) = scenario.phases().first() else { return Nanos::ZERO };
    let latency = &phase.dependency(Dependency::Profile).latency;
    let slow = latency.slow_share().as_ratio();
    let mut points = Vec::new();
    for class in WorkloadClass::ALL.into_iter().filter(|class| classes[class.index()]) {
        let share = workload.class_share(class);
        for (mode, part) in [(latency.body(), 1.0 - slow), (latency.slow(), slow)] {
            let weighted = mode
                .cells()
                .map(|(value, weight)| (latency.for_class(value, class), share * part * weight as f64));
            points.extend(weighted);
        }
    }
    points.sort_by_key(|(value, _)| *value);
    let rank = points.iter().map(|(_, weight)| weight).sum::<f64>() * q;
    let mut below = 0.0;
    let found = points.iter().find(|(_, weight)| {
        below += weight;
        below >= rank
    });
    found.or(points.last()).map_or(Nanos::ZERO, |(value, _)| *value)
}
