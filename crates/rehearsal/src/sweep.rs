//! Sweep: variants of a simulated region, each through peak, slowdown and recovery, as many at once as there are threads. What
//! comes out depends on the variants and the seed, and never on how many threads there were.

mod figures;
mod jobs;
mod progress;

use std::path::PathBuf;

use model::{
    Scale,
    policy::{self, Policy},
    region::{Hosts, Placement},
    scenario::{self, Scenario},
    workload::{self, Workload},
};
use simulation::{ClaimsPhase, Course, System};

use crate::slo::RehearsalError;

pub use figures::{Busiest, ByClass, Figures, Measured, Occupancies, RecoveryTime, Waits};
pub(crate) use figures::{point, recoveries, recoveries_of};
#[cfg(test)]
pub(crate) use jobs::run;
pub(crate) use jobs::{Cell, Extent, OfRun, Swept};
pub(crate) use progress::watched;

/// Runs of a state at most; their observations are merged.
pub const RUNS_MAX: u32 = 64;
/// Threads at most.
pub const THREADS_MAX: usize = 256;

/// A state of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Peak,
    Slowdown,
    /// The slowdown goes on through the warm-up and ends with it.
    Recovery,
}

impl Swept {
    /// All that was asked for: part of a sweep compares nothing.
    ///
    /// # Errors
    /// [`RehearsalError::Interrupted`] when runs are missing.
    pub(crate) fn whole(self, extent: Extent) -> Result<Vec<Vec<Cell>>, RehearsalError> {
        if self.runs < extent.runs { Err(RehearsalError::Interrupted) } else { Ok(self.cells) }
    }
}

impl At {
    pub(crate) const ALL: [Self; 3] = [Self::Peak, Self::Slowdown, Self::Recovery];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::Slowdown => "slowdown",
            Self::Recovery => "recovery",
        }
    }

    /// The phase of the warm-up and that of the window, by name.
    const fn phases(self) -> [&'static str; 2] {
        match self {
            Self::Peak => ["peak", "peak"],
            Self::Slowdown => ["slowdown", "slowdown"],
            Self::Recovery => ["slowdown", "recovery"],
        }
    }

    fn course(self, scenario: &Scenario, extent: Extent) -> Course {
        // That the phases are there was checked when the files were read.
        let [warm_up_phase, phase] = self.phases().map(|name| scenario.phase_index(name).unwrap_or_default());
        Course { warm_up_phase, warm_up_s: extent.warm_up_s, phase, window_s: extent.window_s }
    }
}

/// A region that is tried, and the states that it is tried in.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) system: System,
    pub(crate) states: &'static [At],
}

/// Files of a sweep; `None` is the shipped one.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The policy before.
    pub before: Option<PathBuf>,
    /// The policy after.
    pub policy: Option<PathBuf>,
    /// The scenario.
    pub scenario: Option<PathBuf>,
    /// The workload.
    pub workload: Option<PathBuf>,
}

/// What lies under the region.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// The hosts.
    pub hosts: Hosts,
    /// Which domain serves whom.
    pub placement: Placement,
    /// The fraction of one admission domain that is simulated, without hosts or placement; `None` is the whole region.
    pub scale: Option<Scale>,
}

/// A policy's document, from which variants are made.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    file: String,
    text: String,
    pub(crate) policy: Policy,
}

impl Document {
    /// The policy with changes in its own form.
    pub(crate) fn with(&self, changes: &str) -> Result<Policy, RehearsalError> {
        let text = policy::overlay((&self.file, &self.text), ("variant", changes));
        let parsed = text.and_then(|text| Policy::parse("variant", &text));
        parsed.map_err(|faults| RehearsalError::Files(vec![faults]))
    }
}

/// What the variants of a sweep are made of.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) before: Document,
    pub(crate) after: Document,
    pub(crate) scenario: Scenario,
    pub(crate) workload: Workload,
    pub(crate) ground: Ground,
}

impl Base {
    /// Reads the files, and reports the faults of all of them at once.
    pub(crate) fn read(files: &Files, ground: Ground) -> Result<Self, RehearsalError> {
        let mut faults = Vec::new();
        let mut document = |path: &Option<PathBuf>, shipped: (&str, &str)| {
            let (file, text) = text(path.as_ref(), shipped)?;
            Ok(match Policy::parse(&file, &text) {
                Ok(policy) => Some(Document { file, text, policy }),
                Err(found) => {
                    faults.push(found);
                    None
                }
            })
        };
        let before = document(&files.before, policy::LEGACY)?;
        let after = document(&files.policy, policy::SHIPPED)?;
        let (file, text_of) = text(files.scenario.as_ref(), scenario::SHIPPED)?;
        let scenario = Scenario::parse(&file, &text_of).map_err(|found| faults.push(found)).ok();
        let (file, text_of) = text(files.workload.as_ref(), workload::SHIPPED)?;
        let workload = Workload::parse(&file, &text_of).map_err(|found| faults.push(found)).ok();
        let (Some(before), Some(after), Some(scenario), Some(workload)) = (before, after, scenario, workload)
        else {
            return Err(RehearsalError::Files(faults));
        };
        let phases = At::ALL.iter().map(|state| state.phases()[1]);
        let missing: Vec<&str> = phases.filter(|name| scenario.phase_index(name).is_none()).collect();
        if !missing.is_empty() {
            let text = format!("scenario {}: it has no phase {}", scenario.name, missing.join(", "));
            return Err(RehearsalError::Usage(text));
        }
        Ok(Self { before, after, scenario, workload, ground })
    }

    /// The region under a policy.
    pub(crate) fn system(&self, policy: Policy, claims: ClaimsPhase) -> System {
        let (scenario, workload) = (self.scenario.clone(), self.workload.clone());
        let system = match self.ground.scale {
            Some(scale) => System::fraction(&policy, &scenario, workload, scale),
            None => {
                let Ground { hosts, placement, .. } = self.ground;
                System::region(policy, scenario, workload, hosts, placement)
            }
        };
        System { claims, ..system }
    }

    /// The region as it was: the policy before, and claims by a call.
    pub(crate) fn old(&self) -> System {
        self.system(self.before.policy.clone(), ClaimsPhase::Call)
    }

    /// The region after the repair: the policy after, and claims with the profile.
    pub(crate) fn repaired(&self) -> System {
        self.system(self.after.policy.clone(), ClaimsPhase::Summary)
    }

    /// Other capacities of the dependencies, of a system of this base.
    pub(crate) fn with_capacity_percent(
        &self,
        system: System,
        percent: impl Fn(base::Dependency) -> u32,
    ) -> System {
        let whole = self.scenario.with_capacity_percent(percent);
        let scenario = match self.ground.scale {
            Some(scale) => whole.scaled(scale),
            None => whole,
        };
        System { scenario, ..system }
    }
}

/// Name and text of a file, or of what is shipped.
pub(crate) fn text(
    path: Option<&PathBuf>,
    shipped: (&str, &str),
) -> Result<(String, String), RehearsalError> {
    let Some(path) = path else { return Ok((shipped.0.to_owned(), shipped.1.to_owned())) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| RehearsalError::Usage(format!("cannot read {}: {error}", path.display())))?;
    Ok((path.display().to_string(), text))
}
