//! Options: what is rehearsed, for how long, and how much of it.

use std::path::PathBuf;

use base::Nanos;
use load::Rate;
use model::{Scale, policy::Mechanism};

use crate::gates::{Role, mechanism};

/// What is printed at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Tables.
    #[default]
    Human,
    /// `report.json`.
    Json,
}

/// How long each part is, in model time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Measured time of each state.
    pub state: Nanos,
    /// Time before the measured time of peak and slowdown.
    pub warm_up: Nanos,
    /// Measured time of each mechanism alone.
    pub mechanism: Nanos,
    /// Time before it.
    pub mechanism_warm_up: Nanos,
    /// Runs of each policy, with rising seeds; their observations are merged.
    pub runs: u32,
}

/// Extent, size and slow motion that go together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// How long.
    pub extent: Extent,
    /// How much of the workload.
    pub rate: Rate,
    /// How many times slower than declared.
    pub dilate: u32,
}

impl Preset {
    /// A whole admission domain in slow motion: what two cores can carry, in some 40 minutes. Waves come every ten
    /// seconds, with their period, so each state has one; a mechanism alone has its own just before its end.
    pub fn domain() -> Self {
        let extent = Extent {
            state: Nanos::from_secs(10),
            warm_up: Nanos::from_secs(2),
            mechanism: Nanos::from_secs(6),
            mechanism_warm_up: Nanos::from_secs(4),
            runs: 1,
        };
        Self { extent, rate: Rate::Scale(Scale::ONE), dilate: 20 }
    }

    /// A small system in real time: less than five minutes on two cores. What it shows of a mechanism is rough.
    pub fn quick() -> Self {
        let extent = Extent {
            state: Nanos::from_secs(30),
            warm_up: Nanos::from_secs(3),
            mechanism: Nanos::from_secs(9),
            mechanism_warm_up: Nanos::from_secs(1),
            runs: 1,
        };
        let scale = Scale::parse("1/24").expect("a constant that reads");
        Self { extent, rate: Rate::Scale(scale), dilate: 1 }
    }

    /// The declared rehearsal: a whole admission domain, ten minutes of warm-up and fifteen measured in each state, twelve
    /// runs of either policy.
    pub fn full() -> Self {
        let extent = Extent {
            state: Nanos::from_secs(900),
            warm_up: Nanos::from_secs(600),
            mechanism: Nanos::from_secs(900),
            mechanism_warm_up: Nanos::from_secs(600),
            runs: 12,
        };
        Self { extent, ..Self::domain() }
    }

    /// A system of the operator's own size, in real time.
    pub fn sized(rate: Rate) -> Self {
        let quick = Self::quick();
        let extent = Extent { warm_up: Nanos::from_secs(10), ..quick.extent };
        Self { extent, rate, dilate: 1 }
    }
}

/// What is rehearsed.
#[derive(Clone, Debug)]
pub struct SloOptions {
    /// Seed of arrivals, data and draws, of the first run.
    pub seed: u64,
    /// How long.
    pub extent: Extent,
    /// How much of the workload is offered.
    pub rate: Rate,
    /// Slow motion: the run takes this many times as long, and reports times divided back; 1 is none.
    pub dilate: u32,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
    /// Policy file before; `None` is the shipped old one.
    pub before: Option<PathBuf>,
    /// Policy file after; `None` is the shipped one.
    pub policy: Option<PathBuf>,
    /// One policy alone: there is then no comparison, and no mechanism is run alone.
    pub only: Option<Role>,
    /// Whether each mechanism is run alone.
    pub mechanisms: bool,
    /// Scenario file; `None` is the shipped one.
    pub scenario: Option<PathBuf>,
    /// Workload file; `None` is the shipped one.
    pub workload: Option<PathBuf>,
    /// Directory of logs and addresses; `None` is `state` below `out`.
    pub state_dir: Option<PathBuf>,
    /// The `mercury` binary; `None` is the one that runs.
    pub executable: Option<PathBuf>,
    /// Log filter of the members; `None` leaves it to the environment.
    pub log_filter: Option<String>,
}

/// What a suite needs beside its plan: the start and the end of nine processes, and what their last callers left.
const SUITE: Nanos = Nanos::from_secs(3);

impl SloOptions {
    /// Shipped policies, scenario and workload; seed 1.
    pub fn new(preset: Preset, out: impl Into<PathBuf>) -> Self {
        let Preset { extent, rate, dilate } = preset;
        Self {
            seed: 1,
            extent,
            rate,
            dilate,
            out: out.into(),
            output: Output::Human,
            before: None,
            policy: None,
            only: None,
            mechanisms: true,
            scenario: None,
            workload: None,
            state_dir: None,
            executable: None,
            log_filter: None,
        }
    }

    /// The parts that are rehearsed.
    pub(super) fn roles(&self) -> Vec<Role> {
        self.only.map_or_else(|| vec![Role::Before, Role::After], |only| vec![only])
    }

    /// The mechanisms that are run alone.
    pub(super) fn alone(&self) -> Vec<Mechanism> {
        let wanted = self.mechanisms && self.only.is_none();
        Mechanism::ALL.into_iter().filter(|name| wanted && mechanism::is_available(*name)).collect()
    }

    /// Wall time of one run of one policy.
    pub(super) fn policy_wall(&self) -> Nanos {
        let Extent { state, warm_up, .. } = self.extent;
        (state.times(3) + warm_up.times(2)).times(self.dilate) + SUITE
    }

    /// Wall time of one mechanism alone.
    pub(super) fn mechanism_wall(&self) -> Nanos {
        let Extent { mechanism, mechanism_warm_up, .. } = self.extent;
        (mechanism + mechanism_warm_up).times(self.dilate) + SUITE
    }

    /// Wall time of everything.
    pub fn wall(&self) -> Nanos {
        let policies = self.roles().len() as u32 * self.extent.runs;
        self.policy_wall().times(policies) + self.mechanism_wall().times(self.alone().len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_take_as_long_as_they_say() {
        let minutes = |preset: Preset| SloOptions::new(preset, "out").wall().as_secs_f64() / 60.0;
        assert!((30.0..=40.0).contains(&minutes(Preset::domain())), "{}", minutes(Preset::domain()));
        assert!(minutes(Preset::quick()) <= 5.0, "{}", minutes(Preset::quick()));
        let hours = minutes(Preset::full()) / 60.0;
        assert!((540.0..600.0).contains(&hours), "{hours}");
        let alone = SloOptions { only: Some(Role::After), ..SloOptions::new(Preset::quick(), "out") };
        assert!(alone.alone().is_empty() && alone.roles() == [Role::After]);
    }
}
