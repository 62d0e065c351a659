//! Report: `report.json`, schema `mercury.report/v1`. A figure that was not measured is null; keys keep the order in which
//! they are declared here.

mod effects;
mod migration;
mod state;

use load::Report as LoadReport;
use model::scenario::Scenario as Document;
use serde::Serialize;

use crate::{
    counterfactual::CounterfactualReport,
    frontier::FrontierReport,
    gates::{Gate, Role, evidence::TIMER_LATENESS_P99_MAX_MS},
    knee::KneeReport,
    profile::ProfileReport,
    simulate::SimulationReport,
    verdict::Verdict,
};

pub use effects::{Effects, Kills};
pub use migration::{Fallback, Hop, Migration, Rung};
pub use state::{
    Arrivals, Bucket, CancelStop, Class, LateWork, Occupancy, Quantiles, QueueAge, RecoveryBounds, Slow,
    State, TimelinePoint,
};

/// Schema of [`Report`].
pub const SCHEMA: &str = "mercury.report/v1";

/// The evidence of a rehearsal. What depends on the machine and the hour is in `run.json` beside it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The command that made it.
    pub command: String,
    /// Seed of the arrivals, the data and the draws.
    pub seed: u64,
    /// Runs of each policy, with rising seeds, whose observations are merged.
    pub runs: u32,
    /// What follows from the gates.
    pub verdict: Verdict,
    /// Workload and version.
    pub workload: String,
    /// What the dependencies did.
    pub scenario: ScenarioRef,
    /// Scale as a fraction; null when a rate was given instead.
    pub scale: Option<String>,
    /// Mean rate that was asked for, per second of model time.
    pub rate_per_s: f64,
    /// Slow motion; times are divided back.
    pub dilate: u32,
    /// How latencies were recorded.
    pub histogram: &'static str,
    /// How the bounds that are not plain numbers come about, and what a run of this size can and cannot tell.
    pub tolerance: String,
    /// Every gate, observed versus bound.
    pub gates: Vec<Gate>,
    /// Before against after; null when one policy was rehearsed.
    pub comparison: Option<Comparison>,
    /// Each mechanism by itself against the policy that is compared with.
    pub mechanisms: Vec<Mechanism>,
    /// Every state of every policy.
    pub states: Vec<State>,
    /// Whether the generator and the emulator kept time.
    pub generator: Generator,
    /// Named stories with a verdict of their own.
    pub scenarios: Vec<Scenario>,
    /// The migration of the entitlement summary; absent where it was not rehearsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<Migration>,
    /// The load profile that was run; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileReport>,
    /// The rate at which the objective breaks; absent where it was not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee: Option<KneeReport>,
    /// Effects under kills; absent where they were not rehearsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// Which bounds carry the home path; absent where it was not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontier: Option<FrontierReport>,
    /// What would have been, had one thing been otherwise; absent where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counterfactuals: Option<CounterfactualReport>,
    /// What a simulation says beyond its states; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<SimulationReport>,
    /// The policies that were rehearsed.
    pub policies: Vec<PolicyRef>,
}

impl Report {
    /// Whether it is about the region's model, which has no generator and no machine.
    pub const fn is_simulated(&self) -> bool {
        self.simulation.is_some() || self.frontier.is_some() || self.counterfactuals.is_some()
    }
}

/// A policy by name, generation and digest, and what its run left behind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyRef {
    /// Name used in [`State::policy`].
    pub name: String,
    /// Its part in the rehearsal.
    pub role: Role,
    /// Its generation.
    pub generation: u64,
    /// Digest of the document, in hexadecimal.
    pub digest: String,
    /// Whether time was kept while it ran.
    pub generator: Generator,
    /// What was still held when the run was over, and what it cost in effects.
    pub after_run: AfterRun,
}

/// What a run left behind when nothing was in flight any more. Null is not known.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AfterRun {
    /// Permits of both gates.
    pub permits_held: Option<f64>,
    /// Profile flights.
    pub flights_open: Option<f64>,
    /// Exposures that had been recorded before, as a retry of the same operation finds them.
    pub effects_replayed: Option<f64>,
    /// Exposures of one event with two contents.
    pub effects_conflicting: Option<f64>,
    /// Why the run was ended before its time.
    pub stopped: Option<String>,
}

/// A scenario by name, version and digest.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScenarioRef {
    /// Its name.
    pub name: String,
    /// Its version, which takes part in every draw.
    pub version: u32,
    /// Digest of the document, in hexadecimal.
    pub digest: String,
}

/// Before against after, at peak unless a field says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Median before.
    pub p50_before_ms: Option<f64>,
    /// Median after.
    pub p50_after_ms: Option<f64>,
    /// 99th percentile before.
    pub p99_before_ms: Option<f64>,
    /// 99th percentile after.
    pub p99_after_ms: Option<f64>,
    /// What the 99th percentile fell by, over what it was.
    pub p99_reduction_ratio: Option<f64>,
    /// Late work before over late work after. When there was none after, as if there had been one late operation: the
    /// fold is then at least this.
    pub late_work_fold: Option<f64>,
    /// Recovery before over recovery after.
    pub recovery_fold: RecoveryFold,
}

/// How much faster recovery is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RecoveryFold {
    /// Before over after.
    pub value: Option<f64>,
    /// Whether the true one may be larger: recovery before was not over when the run was, or that after was too short
    /// to be seen.
    pub at_least: bool,
}

/// One mechanism alone: the policy before with just this one switched on, at peak.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Mechanism {
    /// Its name.
    pub name: String,
    /// Whether its effect shows; not applicable for one that is judged elsewhere.
    pub verdict: Verdict,
    /// One sentence.
    pub detail: String,
    /// What it is there for, without and with it.
    pub effect: Effect,
    /// Everything else that was measured with it; null when it was not run.
    pub state: Option<State>,
}

/// The measure that a mechanism is there to move.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Effect {
    /// Which one.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// Under the policy before.
    pub without: Option<f64>,
    /// With the mechanism as well.
    pub with: Option<f64>,
}

/// Whether time was kept.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Generator {
    /// Whether the generator and the emulator kept their bounds.
    pub valid: bool,
    /// Hand-over to the connection minus intended start.
    pub clock_error_ms: Quantiles,
    /// CPU of the generating process over wall time and cores.
    pub cpu_ratio: Option<f64>,
    /// Share of the measured schedule that was not sent.
    pub unsent_ratio: Option<f64>,
    /// Lateness of the emulator's own timers.
    pub emulator_timer_ms: Quantiles,
    /// Why it is not valid.
    pub reasons: Vec<String>,
}

/// A named story with a verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What follows.
    pub verdict: Verdict,
    /// One sentence.
    pub detail: String,
}

impl Report {
    /// Adds a policy. Whether time was kept is then the worst of all; `label` tells whose reasons are whose.
    pub(crate) fn add_policy(&mut self, label: &str, policy: PolicyRef) {
        let of_policy = |reason: &String| format!("{label}: {reason}");
        let told = Generator {
            reasons: policy.generator.reasons.iter().map(of_policy).collect(),
            ..policy.generator.clone()
        };
        self.generator =
            if self.policies.is_empty() { told } else { std::mem::take(&mut self.generator).worst(told) };
        self.policies.push(policy);
    }
}

impl From<&Document> for ScenarioRef {
    fn from(scenario: &Document) -> Self {
        Self {
            name: scenario.name.clone(),
            version: scenario.version,
            digest: format!("{:016x}", scenario.digest),
        }
    }
}

impl Generator {
    /// The generator's account, with the emulator's beside it.
    pub fn of(load: &LoadReport, emulator_timer_p99_ms: Option<f64>) -> Self {
        let own = &load.generator;
        let mut reasons = own.reasons.clone();
        let bound = TIMER_LATENESS_P99_MAX_MS;
        match emulator_timer_p99_ms {
            Some(p99) if p99 <= bound => {}
            Some(p99) => {
                reasons.push(format!("the emulator's timers were late: p99 {p99:.3} ms, bound {bound} ms"))
            }
            None => reasons.push("the emulator's timer lateness is not known".to_owned()),
        }
        Self {
            valid: reasons.is_empty(),
            clock_error_ms: own.clock_error_ms.into(),
            cpu_ratio: own.cpu_ratio,
            unsent_ratio: own.unsent_ratio,
            emulator_timer_ms: Quantiles { p99: emulator_timer_p99_ms, ..Quantiles::default() },
            reasons,
        }
    }

    /// Of two runs, what was worse in either.
    pub fn worst(self, other: Self) -> Self {
        let later = |one: Quantiles, two: Quantiles| {
            // What is not known may be worse than anything.
            let known = one.p99.zip(two.p99);
            if known.map_or(one.p99.is_none(), |(one, two)| one >= two) { one } else { two }
        };
        let more = |one: Option<f64>, two: Option<f64>| Some(one?.max(two?));
        let mut reasons = self.reasons;
        reasons
            .extend(other.reasons.into_iter().filter(|reason| !reasons.contains(reason)).collect::<Vec<_>>());
        Self {
            valid: self.valid && other.valid,
            clock_error_ms: later(self.clock_error_ms, other.clock_error_ms),
            cpu_ratio: more(self.cpu_ratio, other.cpu_ratio),
            unsent_ratio: more(self.unsent_ratio, other.unsent_ratio),
            emulator_timer_ms: later(self.emulator_timer_ms, other.emulator_timer_ms),
            reasons,
        }
    }
}

/// A ratio, or nothing when there is no whole.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_whole_are_there() {
        let report = serde_json::to_value(Report {
            comparison: Some(Comparison::default()),
            mechanisms: vec![Mechanism::default()],
            ..Report::default()
        })
        .expect("it serialises");
        for pointer in [
            "/schema",
            "/command",
            "/seed",
            "/verdict",
            "/gates",
            "/states",
            "/generator/valid",
            "/generator/clock_error_ms/p99",
            "/generator/cpu_ratio",
            "/scenarios",
            "/tolerance",
            "/comparison/p50_before_ms",
            "/comparison/p50_after_ms",
            "/comparison/p99_before_ms",
            "/comparison/p99_after_ms",
            "/comparison/p99_reduction_ratio",
            "/comparison/late_work_fold",
            "/comparison/recovery_fold/value",
            "/comparison/recovery_fold/at_least",
            "/mechanisms/0/name",
            "/mechanisms/0/verdict",
            "/mechanisms/0/effect/what",
            "/mechanisms/0/effect/unit",
            "/mechanisms/0/effect/without",
            "/mechanisms/0/effect/with",
            "/mechanisms/0/state",
        ] {
            assert!(report.pointer(pointer).is_some(), "{pointer}");
        }
        assert_eq!(report["verdict"], "inconclusive", "nothing was judged yet");
    }

    #[test]
    fn of_two_runs_the_worse_one_counts_and_an_unknown_is_worse_than_anything() {
        let run = |p99: Option<f64>, reason: &str| Generator {
            valid: reason.is_empty(),
            clock_error_ms: Quantiles { p99, ..Quantiles::default() },
            unsent_ratio: Some(0.0),
            reasons: (!reason.is_empty()).then(|| reason.to_owned()).into_iter().collect(),
            ..Generator::default()
        };
        let worse = run(Some(0.3), "").worst(run(Some(4.0), "late"));
        assert_eq!(
            (worse.valid, worse.clock_error_ms.p99, worse.unsent_ratio),
            (false, Some(4.0), Some(0.0))
        );
        assert_eq!(worse.cpu_ratio, None);
        let unknown =
            [run(Some(4.0), "late").worst(run(None, "late")), run(None, "late").worst(run(Some(4.0), ""))];
        for one in unknown {
            assert_eq!((one.clock_error_ms.p99, one.reasons.len()), (None, 1));
        }
    }
}
