//! Rollout: how the home path goes from the old policy to the repaired one: phases in order, what each changes, and what
//! makes it be reversed.
//!
//! A phase changes one thing. It is declared as steps: an optional canary for a part of the traffic, then everybody. The
//! changes of a step are in the policy's own form and go on top of the step before; the first goes on top of the old
//! policy. A step that would not be a valid policy is a fault of the file.

mod bounds;

use base::{Nanos, mix};

use crate::{
    faults::Faults,
    policy::{self, Policy, overlay},
    read::{self, Table},
    scenario::plain_name,
};

pub use bounds::{Against, Bound, Bounds, Figure, STATES};

/// The rollout that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) =
    ("config/rollouts/home-path.toml", include_str!("../../../config/rollouts/home-path.toml"));

/// Most phases of a rollout.
pub const PHASES_MAX: usize = 32;
/// Longest state of a rehearsal of a phase: an hour.
const STATE_MS_MAX: u64 = 3_600_000;
/// Most characters of a phase's description or reason.
const PROSE_CHARS_MAX: usize = 400;

/// One validated rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// What is rolled out; the subject of the decisions.
    pub name: String,
    /// Rises with every change of the file.
    pub version: u32,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// How long each state of a phase is watched.
    pub full: Timing,
    /// The same for a run that has to be short.
    pub quick: Timing,
    /// How far beyond a bound chance alone may carry a figure.
    pub tolerance: Tolerance,
    /// In order.
    pub phases: Vec<Phase>,
}

/// How long each state of a phase is watched, in model time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Before peak and before slowdown; not measured.
    pub warm_up: Nanos,
    /// Peak.
    pub peak: Nanos,
    /// Slowdown.
    pub slowdown: Nanos,
    /// Recovery.
    pub recovery: Nanos,
    /// Peak of a canary, and of the check after a reversal.
    pub canary: Nanos,
}

/// How far beyond a bound chance alone may carry a figure of a healthy run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of counted shares and quantiles, in standard deviations of a sample of the run's size.
    pub sigmas: f64,
    /// Of latencies, in milliseconds: what a shared machine adds.
    pub latency_ms: f64,
    /// Of queue ages, in milliseconds.
    pub queue_age_ms: f64,
    /// Of cancellation-to-stop delays, in milliseconds.
    pub stop_delay_ms: f64,
    /// Of mean occupancies, in percentage points.
    pub occupancy_points: f64,
    /// Of profile calls per operation.
    pub profile_calls: f64,
    /// Of recovery times, in seconds.
    pub recovery_s: f64,
}

/// One phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// What it changes, in one sentence.
    pub about: String,
    /// What it does.
    pub plan: PhasePlan,
}

/// What a phase does.
#[derive(Clone, Debug, PartialEq)]
pub enum PhasePlan {
    /// It is gone through, step by step.
    Steps(Vec<Step>),
    /// It is passed over, for this reason.
    NotAvailable(String),
}

/// One step of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// `admission/canary`, or the name of the phase for everybody.
    pub name: String,
    /// Whether it is for a part of the traffic.
    pub canary: bool,
    /// The policy of the step, whole; its generation is above that of the step before.
    pub policy: String,
    /// What makes it be reversed.
    pub bounds: Bounds,
}

impl Ladder {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        let digest = mix::fold_bytes(0, text.as_bytes());
        // Only for the tables that are carried, and only used when the document is sound.
        let tree = text.parse().unwrap_or_default();
        read::document(file_name, text, |table| ladder(table, digest, &tree))
    }

    /// The rollout that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped rollout is valid, which a test checks")
    }

    /// All steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.phases.iter().flat_map(Phase::steps)
    }
}

impl Phase {
    /// Its steps; none when it is not available.
    pub fn steps(&self) -> &[Step] {
        match &self.plan {
            PhasePlan::Steps(steps) => steps,
            PhasePlan::NotAvailable(_) => &[],
        }
    }
}

fn ladder(table: &mut Table<'_>, digest: u64, tree: &toml::Table) -> Option<Ladder> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let timings = table.section("timing", |table| {
        let full = table.section("full", timing);
        let quick = table.section("quick", timing);
        Some((full?, quick?))
    });
    let tolerance = table.section("tolerance", tolerance);
    let defaults = table.section("abort", |table| bounds::read(table, true));
    let mut generation = legacy().generation;
    let mut base = policy::LEGACY.1.to_owned();
    let mut position = 0;
    let phases = table.sections("phases", 1..=PHASES_MAX, |table| {
        let carried = tree.get("phases").and_then(|phases| phases.get(position));
        position += 1;
        let defaults = defaults.as_ref().unwrap_or(&bounds::NONE);
        let mut builder = Builder { carried, base: &mut base, generation: &mut generation, defaults };
        builder.phase(table)
    });
    if let Some(phases) = &phases {
        for (at, phase) in phases.iter().enumerate() {
            if phases[..at].iter().any(|earlier| earlier.name == phase.name) {
                table.fault("phases", format!("the name {:?} is taken twice", phase.name));
            }
        }
    }
    let (full, quick) = timings?;
    Some(Ladder {
        name: name?,
        version: version?,
        digest,
        full,
        quick,
        tolerance: tolerance?,
        phases: phases?,
    })
}

fn timing(table: &mut Table<'_>) -> Option<Timing> {
    let warm_up = table.millis("warm_up_ms", 0..=STATE_MS_MAX);
    let mut measured = |key| table.millis(key, 1_000..=STATE_MS_MAX);
    let (peak, slowdown) = (measured("peak_ms"), measured("slowdown_ms"));
    let (recovery, canary) = (measured("recovery_ms"), measured("canary_ms"));
    Some(Timing { warm_up: warm_up?, peak: peak?, slowdown: slowdown?, recovery: recovery?, canary: canary? })
}

fn tolerance(table: &mut Table<'_>) -> Option<Tolerance> {
    let sigmas = table.number("sigmas", 0.0..=10.0);
    let mut slack = |key| table.number(key, 0.0..=1_000.0);
    let (latency_ms, queue_age_ms) = (slack("latency_ms"), slack("queue_age_ms"));
    let (stop_delay_ms, occupancy_points) = (slack("stop_delay_ms"), slack("occupancy_points"));
    let (profile_calls, recovery_s) = (slack("profile_calls"), slack("recovery_s"));
    Some(Tolerance {
        sigmas: sigmas?,
        latency_ms: latency_ms?,
        queue_age_ms: queue_age_ms?,
        stop_delay_ms: stop_delay_ms?,
        occupancy_points: occupancy_points?,
        profile_calls: profile_calls?,
        recovery_s: recovery_s?,
    })
}

/// Reads phases one after the other, each on top of the ones before.
struct Builder<'l> {
    /// The phase as plain TOML, for the policies that it carries.
    carried: Option<&'l toml::Value>,
    /// The policy of the step before.
    base: &'l mut String,
    generation: &'l mut u64,
    /// Bounds of every step that does not say otherwise.
    defaults: &'l bounds::Read,
}

impl Builder<'_> {
    fn phase(&mut self, table: &mut Table<'_>) -> Option<Phase> {
        let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
        let about = table.text("about", "a sentence of at most 400 characters", prose);
        let reason = table.text_opt("not_available", "a sentence of at most 400 characters", prose);
        let called = name.clone().unwrap_or_default();
        let canary = table.section_opt("canary", |table| self.step(table, &called, true));
        let full = table.section_opt("full", |table| self.step(table, &called, false));
        let (reason, canary, full) = (reason?, canary?, full?);
        let plan = match (reason, canary, full) {
            (None, canary, Some(full)) => PhasePlan::Steps(canary.into_iter().chain([full]).collect()),
            (Some(reason), None, None) => PhasePlan::NotAvailable(reason),
            (None, _, None) => {
                table.fault("full", "missing: a phase ends with everybody, or says why it is not_available");
                return None;
            }
            (Some(_), ..) => {
                table.fault("not_available", "a phase that is not available has no canary and no full");
                return None;
            }
        };
        Some(Phase { name: name?, about: about?, plan })
    }

    fn step(&mut self, table: &mut Table<'_>, phase: &str, canary: bool) -> Option<Step> {
        let kind = if canary { "canary" } else { "full" };
        let whole = table.text_opt("document", "\"repaired\"", |text| (text == "repaired").then_some(()));
        let carries = table.carries("policy");
        let own = table.section_opt("abort", |table| bounds::read(table, !canary));
        let carries = carries?;
        let policy = match (whole?, carries) {
            (None, true) => {
                let step = self.carried.and_then(|phase| phase.get(kind)?.get("policy"));
                let changes = toml::to_string(step?).ok()?;
                let base = std::mem::take(self.base);
                self.next(table, "policy", (policy::LEGACY.0, &base), &changes, base.clone())
            }
            (Some(()), false) => {
                let base = std::mem::take(self.base);
                self.next(table, "document", policy::SHIPPED, "", base)
            }
            _ => {
                table.fault("policy", "a step has either a policy with its changes or a document");
                None
            }
        };
        let bounds = self.defaults.with(&own?.unwrap_or(bounds::NONE), canary);
        let name = if canary { format!("{phase}/canary") } else { phase.to_owned() };
        Some(Step { name, canary, policy: policy?, bounds })
    }

    /// The next policy: `changes` on top of `base`. What is wrong with it is a fault of `key`; the steps that follow then
    /// go on top of the one `before`, so that they are judged by what they say themselves.
    fn next(
        &mut self,
        table: &Table<'_>,
        key: &str,
        base: (&str, &str),
        changes: &str,
        before: String,
    ) -> Option<String> {
        *self.generation += 1;
        if changes.lines().any(|line| line.starts_with("generation =")) {
            table.fault(key, "generation is not the file's to say: it rises with every step");
            *self.base = before;
            return None;
        }
        let changes = format!("generation = {}\n{changes}", self.generation);
        match overlay(base, (key, &changes)) {
            Ok(text) => {
                self.base.clone_from(&text);
                Some(text)
            }
            Err(faults) => {
                for fault in faults.list() {
                    let path: Vec<&str> = [key]
                        .into_iter()
                        .chain(fault.path.split('.').filter(|key| !key.is_empty()))
                        .collect();
                    table.fault_in(&path, format!("makes no valid policy: {}", fault.message));
                }
                *self.base = before;
                None
            }
        }
    }
}

/// Where every rollout begins.
fn legacy() -> Policy {
    Policy::parse(policy::LEGACY.0, policy::LEGACY.1).expect("the old policy is valid, which a test checks")
}

fn prose(text: &str) -> Option<String> {
    let sentence = !text.trim().is_empty() && text.chars().count() <= PROSE_CHARS_MAX;
    sentence.then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
