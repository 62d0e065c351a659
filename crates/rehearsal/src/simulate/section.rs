//! Section: what `report.json` says about a simulation beyond its states. Nothing in it depends on the machine.

use base::Dependency;
use model::region::{Reference, ReferenceFigure, Region};
use serde::Serialize;

use super::{AFTER, BEFORE, states};
use crate::{
    gates::Role,
    report::{Report, State, ratio},
    sweep::{Base, Cell, Extent, OfRun, Swept, Variant, recoveries_of},
};

/// A simulation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimulationReport {
    /// Name of the region.
    pub region: String,
    /// Version of its file.
    pub version: u32,
    /// Digest of its file, in hexadecimal.
    pub digest: String,
    /// Version of the workload.
    pub workload_version: u32,
    /// Digest of the workload's file, in hexadecimal.
    pub workload_digest: String,
    /// Admission domains.
    pub domains: u32,
    /// Runs that were asked for; the report's own count says how many there are.
    pub runs_wanted: u32,
    /// The measured window of a run, in seconds.
    pub window_s: u32,
    /// Time before it, in seconds.
    pub warm_up_s: u32,
    /// Operations that were simulated, warm-ups included.
    pub requests: u64,
    /// Operations in the measured windows.
    pub requests_measured: u64,
    /// The study's figures beside ours; only of a packet at full size.
    pub references: Vec<ReferenceRow>,
    /// How far the runs lie apart.
    pub dispersion: Vec<Dispersion>,
    /// What was used, by policy and state.
    pub use_of: Vec<Use>,
}

/// A figure of the study, and ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReferenceRow {
    /// `before` or `after`.
    pub policy: &'static str,
    /// The state.
    pub state: &'static str,
    /// Name of the figure, which ends with its unit.
    pub figure: &'static str,
    /// The study's.
    pub study: f64,
    /// Ours; null when it was not observed.
    pub ours: Option<f64>,
    /// Ours less the study's, over the study's.
    pub difference_ratio: Option<f64>,
    /// Whether the true figure is at least ours.
    pub at_least: bool,
    /// Why.
    pub explanation: String,
}

/// One state of one policy, run by run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Dispersion {
    /// `before` or `after`.
    pub policy: &'static str,
    /// The state.
    pub state: &'static str,
    /// Median latency.
    pub p50_ms: Extremes,
    /// 99th percentile.
    pub p99_ms: Extremes,
    /// Goodput.
    pub goodput_ratio: Extremes,
    /// Omission.
    pub omission_ratio: Extremes,
    /// Time to recover; only of recovery.
    pub recovery_s: Extremes,
}

/// Least, middle and most of the runs. Null where a run has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Extremes {
    /// The least.
    pub min: Option<f64>,
    /// The middle one.
    pub median: Option<f64>,
    /// The most.
    pub max: Option<f64>,
}

/// What one state of one policy used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Use {
    /// `before` or `after`.
    pub policy: &'static str,
    /// The state.
    pub state: &'static str,
    /// CPU of the hosts; null where hosts have as much as they need.
    pub cpu_ratio: Option<f64>,
    /// Servers of each dependency.
    pub servers_ratio: Vec<(&'static str, f64)>,
    /// Share of the operations that each domain was offered.
    pub domain_shares: Vec<f64>,
    /// How long a page held its slot on average.
    pub slot_held_ms: Option<f64>,
    /// How long a read held its connection on average.
    pub connection_held_ms: Option<f64>,
    /// Reads a second that joined one under way.
    pub joined_per_s: Option<f64>,
    /// Whether more arrived than the system could carry.
    pub overloaded: bool,
}

impl SimulationReport {
    pub(super) fn of(
        region: &Region,
        extent: Extent,
        base: &Base,
        policies: &[(&'static str, Role)],
        variants: &[Variant],
        swept: &Swept,
        report: &Report,
    ) -> Self {
        let cells = policies.iter().zip(&swept.cells).flat_map(|((name, _), cells)| {
            let peak = cells.first();
            cells.iter().map(move |cell| (*name, cell, peak))
        });
        let mut section = Self {
            region: region.name.clone(),
            version: region.version,
            digest: format!("{:016x}", region.digest),
            workload_version: base.workload.version,
            workload_digest: format!("{:016x}", base.workload.digest),
            domains: variants.first().map_or(0, |variant| variant.system.domains),
            runs_wanted: extent.runs,
            window_s: extent.window_s,
            warm_up_s: extent.warm_up_s,
            requests: swept.requests,
            ..Self::default()
        };
        for (policy, cell, peak) in cells {
            section.requests_measured += cell.window.all().offered;
            section.dispersion.push(dispersion(policy, cell, peak));
            section.use_of.push(used(policy, cell));
        }
        // What the study says of its region is not about a fraction of it, nor about one policy alone.
        if base.ground.scale.is_none() && policies.len() == 2 {
            let rows = region.references.iter().map(|reference| row(reference, report, &section.use_of));
            section.references = rows.collect();
        }
        section
    }
}

fn dispersion(policy: &'static str, cell: &Cell, peak: Option<&Cell>) -> Dispersion {
    let extremes = |of: fn(&OfRun) -> Option<f64>| Extremes::of(cell.each.iter().map(of));
    let times = peak.map(|peak| recoveries_of(&peak.timelines, &cell.timelines)).unwrap_or_default();
    let recovery = cell.state.as_str() == "recovery";
    Dispersion {
        policy,
        state: cell.state.as_str(),
        p50_ms: extremes(|run| run.p50_ms),
        p99_ms: extremes(|run| run.p99_ms),
        goodput_ratio: extremes(|run| run.goodput_ratio),
        omission_ratio: extremes(|run| run.omission_ratio),
        recovery_s: if recovery { Extremes::of(times.into_iter()) } else { Extremes::default() },
    }
}

impl Extremes {
    fn of(values: impl Iterator<Item = Option<f64>>) -> Self {
        let Some(mut values) = values.collect::<Option<Vec<f64>>>() else { return Self::default() };
        values.sort_by(f64::total_cmp);
        let middle = values.len().checked_sub(1).map(|last| last / 2);
        Self {
            min: values.first().copied(),
            median: middle.and_then(|at| values.get(at)).copied(),
            max: values.last().copied(),
        }
    }
}

fn used(policy: &'static str, cell: &Cell) -> Use {
    let window = &cell.window;
    Use {
        policy,
        state: cell.state.as_str(),
        cpu_ratio: window.cpu(),
        servers_ratio: Dependency::ALL
            .iter()
            .map(|name| (name.as_str(), window.utilisation(*name)))
            .collect(),
        domain_shares: window.domain_shares.clone(),
        slot_held_ms: window.held_ms(model::policy::Boundary::Endpoint),
        connection_held_ms: window.held_ms(model::policy::Boundary::Profile),
        joined_per_s: ratio(window.metered.joined as f64, window.seconds as f64),
        overloaded: states::is_overloaded(window),
    }
}

fn row(reference: &Reference, report: &Report, used: &[Use]) -> ReferenceRow {
    let policy = if reference.after { AFTER } else { BEFORE };
    let state = reference.state.as_str();
    let found = report.states.iter().find(|one| one.policy == policy && one.state == state);
    let used = used.iter().find(|one| one.policy == policy && one.state == state);
    let both = found.zip(used);
    let (ours, at_least) = both.map_or((None, false), |(found, used)| ours(reference.figure, found, used));
    ReferenceRow {
        policy,
        state,
        figure: reference.figure.as_str(),
        study: reference.value,
        ours,
        difference_ratio: ours.and_then(|ours| ratio(ours - reference.value, reference.value)),
        at_least,
        explanation: reference.explanation.clone(),
    }
}

/// Our figure in the study's unit, and whether it is only a lower bound.
fn ours(figure: ReferenceFigure, state: &State, used: &Use) -> (Option<f64>, bool) {
    let percent = |value: Option<f64>| value.map(|value| value * 100.0);
    let value = match figure {
        ReferenceFigure::P50 => state.latency_ms.p50,
        ReferenceFigure::P99 => state.latency_ms.p99,
        ReferenceFigure::Goodput => percent(state.core_goodput_ratio),
        ReferenceFigure::Omission => percent(state.omission_ratio),
        ReferenceFigure::Late => percent(state.late_work.ratio),
        ReferenceFigure::LateMean => state.late_work.mean_ms,
        ReferenceFigure::LateConcurrent => state.late_work.concurrent,
        ReferenceFigure::Endpoint => percent(state.occupancy_ratio.endpoint),
        ReferenceFigure::Profile => percent(state.occupancy_ratio.profile),
        ReferenceFigure::Cpu => percent(used.cpu_ratio),
        ReferenceFigure::AvoidedReads => used.joined_per_s,
        ReferenceFigure::Recovery => {
            let minutes = |s: Option<f64>| s.map(|s| s / 60.0);
            return match (minutes(state.recovery_s), minutes(state.recovery_at_least_s)) {
                (Some(took), _) => (Some(took), false),
                (None, at_least) => (at_least, true),
            };
        }
    };
    (value, false)
}
