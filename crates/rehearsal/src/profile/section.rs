//! Section: what `report.json` says about a profile beside its gates, under `profile`.

use std::collections::BTreeMap;

use load::{flood::Flooded, report::Stage};
use serde::Serialize;

use super::{bodies::BodyCase, retained::Retained};
use crate::report::Quantiles;

/// A profile and what its run found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProfileReport {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// Digest of the document, in hexadecimal.
    pub digest: String,
    /// What it is about.
    pub about: String,
    /// Whether the phases were the short ones.
    pub quick: bool,
    /// Generation of the policy at the start.
    pub policy_generation: u64,
    /// The stop condition that ended the run; null when none did.
    pub stopped: Option<String>,
    /// What was offered and what was accepted, phase by phase.
    pub phases: Vec<PhaseReport>,
    /// Memory of each member.
    pub memory: BTreeMap<&'static str, MemoryMib>,
    /// Bodies that were sent, where the profile sends any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bodies: Vec<BodyCase>,
    /// What held requests retain, by size of their body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retained: Vec<Retained>,
    /// The flood of connections, all its processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flooded>,
}

/// One phase. What was offered is told apart from what was accepted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PhaseReport {
    /// Its name.
    pub name: String,
    /// Whether it was measured.
    pub measured: bool,
    /// Its length.
    pub duration_s: f64,
    /// Operations that were due.
    pub offered: u64,
    /// The same per second.
    pub offered_per_s: f64,
    /// Correct answers.
    pub accepted: u64,
    /// The same per second.
    pub accepted_per_s: f64,
    /// Refused for lack of capacity.
    pub rejected: u64,
    /// Past their deadline.
    pub deadline: u64,
    /// Told that a dependency is not there.
    pub unavailable: u64,
    /// Failed in another way.
    pub other: u64,
    /// Whose caller left.
    pub departed: u64,
    /// Never sent.
    pub unsent: u64,
    /// Not ended when the run was over.
    pub in_flight: u64,
    /// Attempts sent.
    pub attempts: u64,
    /// Correct within the objective, over offered whose caller stayed.
    pub goodput_ratio: Option<f64>,
    /// Latency of correct answers.
    pub latency_ms: Quantiles,
    /// Failed operations by kind.
    pub failures: BTreeMap<String, u64>,
}

/// Resident memory of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MemoryMib {
    /// When the first measured phase began.
    pub baseline: f64,
    /// The most since then.
    pub peak: f64,
    /// At the end; null when the process had ended.
    pub end: Option<f64>,
}

impl PhaseReport {
    pub(super) fn of(stage: &Stage) -> Self {
        let all = &stage.all;
        let per_s = |count: u64| if stage.duration_s > 0.0 { count as f64 / stage.duration_s } else { 0.0 };
        let completed = &all.completed;
        Self {
            name: stage.name.clone(),
            measured: stage.measured,
            duration_s: stage.duration_s,
            offered: all.scheduled,
            offered_per_s: per_s(all.scheduled),
            accepted: completed.correct(),
            accepted_per_s: per_s(completed.correct()),
            rejected: completed.rejected,
            deadline: completed.deadline,
            unavailable: completed.unavailable,
            other: completed.error_other + completed.transport,
            departed: completed.departed,
            unsent: all.unsent.total,
            in_flight: all.in_flight,
            attempts: all.attempts,
            goodput_ratio: all.core_goodput_ratio,
            latency_ms: all.latency_ms.into(),
            failures: all.failures.clone(),
        }
    }
}
