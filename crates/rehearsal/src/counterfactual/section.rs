//! Section: what `report.json` says about counterfactuals. Everything in it follows from the arguments and the seed.

use serde::Serialize;

use crate::{sweep::Measured, verdict::Verdict};

/// The counterfactuals of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CounterfactualReport {
    /// Measured time of a state, in seconds.
    pub window_s: u32,
    /// Time before it, in seconds.
    pub warm_up_s: u32,
    /// Each switch.
    pub switches: Vec<SwitchReport>,
    /// The regions that were tried for them.
    pub trials: Vec<TrialReport>,
}

/// One switch.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SwitchReport {
    /// Its name.
    pub name: &'static str,
    /// What is asked.
    pub question: &'static str,
    /// What the case study expects.
    pub expected: &'static str,
    /// When it passes.
    pub rule: &'static str,
    /// Whether the model says the same as the case study.
    pub verdict: Verdict,
    /// What the figures say.
    pub text: String,
    /// The figures that the verdict rests on.
    pub figures: Vec<Figure>,
}

/// One figure without and with the switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Which.
    pub what: String,
    /// Its unit; `ratio` is a share from 0 to 1.
    pub unit: &'static str,
    /// Without the switch.
    pub without: Option<f64>,
    /// With it.
    pub with: Option<f64>,
}

/// A region that was tried.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrialReport {
    /// Its name.
    pub name: &'static str,
    /// Each state that it was tried in.
    pub states: Measured,
}
