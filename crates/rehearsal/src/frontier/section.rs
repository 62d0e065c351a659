//! Section: what `report.json` says about a frontier. Everything in it follows from the arguments and the seed.

use model::frontier::{Pair, Rules};
use serde::Serialize;

use crate::sweep::{Figures, Measured};

/// A frontier.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FrontierReport {
    /// Name of its file.
    pub name: String,
    /// Version of its file.
    pub version: u32,
    /// Digest of its file, in hexadecimal.
    pub digest: String,
    /// Measured time of a state, in seconds.
    pub window_s: u32,
    /// Time before it, in seconds.
    pub warm_up_s: u32,
    /// Where the usable range ends.
    pub rules: RulesRef,
    /// What was found by them.
    pub knees: Knees,
    /// Why, from the figures, a sentence each.
    pub notes: Vec<String>,
    /// Every pair, ascending.
    pub pairs: Vec<PairFigures>,
    /// What moves the old design's 99th percentile, and what does not.
    pub old_design: Vec<OldCase>,
}

/// Limits of both gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Of the endpoint.
    pub endpoint: u32,
    /// Of the profile client.
    pub profile: u32,
}

impl From<Pair> for Limits {
    fn from(pair: Pair) -> Self {
        Self { endpoint: pair.endpoint, profile: pair.profile }
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.endpoint, self.profile)
    }
}

/// Where the usable range ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RulesRef {
    /// Goodput at peak that a pair may lose against the best, in percentage points.
    pub goodput_loss_points: f64,
    /// How much longer the wait in the slowdown may be than at the best smaller pair, in milliseconds.
    pub wait_rise_ms: f64,
    /// How much longer recovery may take than at the best smaller pair, in seconds.
    pub recovery_rise_s: f64,
}

impl From<Rules> for RulesRef {
    fn from(rules: Rules) -> Self {
        let Rules { goodput_loss_points, wait_rise_ms, recovery_rise_s } = rules;
        Self { goodput_loss_points, wait_rise_ms, recovery_rise_s }
    }
}

/// The ends of the usable range, ours and the case study's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Knees {
    /// All pairs below it lose too much goodput at peak; null when no pair of the sweep does.
    pub lower: Option<Limits>,
    /// From it on the wait or recovery in the slowdown is too long; null when it is for no pair of the sweep.
    pub upper: Option<Limits>,
    /// The pair in force.
    pub chosen: Limits,
    /// Whether the pair in force is neither below the lower end nor at or above the upper one. Null where an end that would
    /// be needed for it was not found.
    pub chosen_is_between: Option<bool>,
    /// The case study's lower end.
    pub reference_lower: Limits,
    /// The case study's upper end.
    pub reference_upper: Limits,
}

/// One pair.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PairFigures {
    /// Its limits.
    pub limits: Limits,
    /// What it came to.
    pub states: Measured,
}

/// One change of the old design.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OldCase {
    /// Its name.
    pub name: &'static str,
    /// What is changed.
    pub what: &'static str,
    /// 99th percentile at peak.
    pub p99_ms: Option<f64>,
    /// How far that is from the old design's own, over that; negative is shorter.
    pub moved_ratio: Option<f64>,
    /// Why, from the figures.
    pub reason: String,
    /// 99th percentile in the slowdown, where the old design is overloaded and its shell ends what waits too long.
    pub slowdown_p99_ms: Option<f64>,
    /// How far that is from the old design's own, over that.
    pub slowdown_moved_ratio: Option<f64>,
    /// Everything else at peak.
    pub figures: Option<Figures>,
}
