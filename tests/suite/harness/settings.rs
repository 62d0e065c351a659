//! Settings: the policy and the scenario that a test runs under.

use std::fmt::Write as _;

use base::Dependency;
use model::Scale;

/// Seed of every data set and draw in these tests.
pub(crate) const SEED: u64 = 11;

/// What a test may choose.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) policy: String,
    pub(crate) scenario: String,
    pub(crate) seed: u64,
    /// Strangers that home-api finds in place of a service.
    pub(crate) strangers: Vec<(Dependency, std::net::SocketAddr)>,
    /// Home-api and profile follow the suite's ledger of decisions.
    pub(crate) follow: bool,
    /// Profile has this policy instead: an older or a newer version of it beside the others.
    pub(crate) profile_policy: Option<String>,
    /// Experiment keeps exposures here and not in the suite's own file.
    pub(crate) ledger: Option<experiment::ledger::Location>,
    /// The fraction of an admission domain that the suite is.
    pub(crate) scale: Scale,
    /// How many times slower than declared everything runs.
    pub(crate) dilate: u32,
}

impl Options {
    /// The shipped policy over dependencies that always take a millisecond, so that what is slow or broken in a test is what
    /// the test made so. Pages share no reads, so that each makes its own seven calls.
    pub(crate) fn quick() -> Self {
        Self::sharing().policy("mechanisms.coalescing", "mode", "\"off\"")
    }

    /// As [`Options::quick`], with shared reads as shipped.
    pub(crate) fn sharing() -> Self {
        Self {
            policy: model::policy::SHIPPED.1.to_owned(),
            scenario: quick_scenario(),
            seed: SEED,
            strangers: Vec::new(),
            follow: false,
            profile_policy: None,
            ledger: None,
            scale: Scale::ONE,
            dilate: 1,
        }
    }

    /// The policy of the old design over the quick dependencies.
    pub(crate) fn legacy() -> Self {
        Self { policy: model::policy::LEGACY.1.to_owned(), ..Self::sharing() }
    }

    /// The shipped policy over the shipped scenario.
    pub(crate) fn shipped() -> Self {
        Self { scenario: model::scenario::SHIPPED.1.to_owned(), ..Self::sharing() }
    }

    /// Changes the policy as an overlay does.
    pub(crate) fn overlaid(mut self, changes: &str) -> Self {
        let merged = model::policy::overlay(("policy.toml", &self.policy), ("changes", changes));
        self.policy = merged.unwrap_or_else(|faults| panic!("{faults}"));
        self
    }

    /// Home-api and profile are in the phase that the suite's ledger says.
    pub(crate) fn following(mut self) -> Self {
        self.follow = true;
        self
    }

    /// Changes one value of the policy: `section` as in the file, empty for the keys above all sections.
    pub(crate) fn policy(mut self, section: &str, key: &str, value: &str) -> Self {
        self.policy = replace(&self.policy, section, key, value);
        self
    }

    /// Puts a stranger in the place of a service.
    pub(crate) fn stranger(mut self, dependency: Dependency, at: std::net::SocketAddr) -> Self {
        self.strangers.push((dependency, at));
        self
    }
}

/// Servers of every dependency of the quick scenario.
pub(crate) const QUICK_SERVERS: u32 = 64;
/// Length of its queues.
pub(crate) const QUICK_QUEUE_MAX: u32 = 64;
/// Service time of a profile read in its phase `slow`, in milliseconds.
pub(crate) const SLOW_PROFILE_MS: u64 = 150;

fn quick_scenario() -> String {
    let mut text = String::from(
        "name = \"quick\"\nversion = 1\n[domain]\nregion_requests_per_s = 300\nadmission_domains = 1\n\
         class_shares = { standard = 0.72, premium = 0.23, enterprise = 0.05 }\n",
    );
    for dependency in Dependency::ALL {
        let _ = write!(
            text,
            "[dependencies.{dependency}]\nbody_median_us = 1000\nbody_sigma = 0.0\nslow_probability = 0.0\n\
             slow_median_us = 1000\nslow_sigma = 0.0\nservers = {QUICK_SERVERS}\nqueue_max = {QUICK_QUEUE_MAX}\n"
        );
    }
    let _ = write!(
        text,
        "[[phases]]\nname = \"steady\"\n[[phases]]\nname = \"slow\"\n\
         [phases.dependencies.profile]\nbody_median_us = {}\n",
        SLOW_PROFILE_MS * 1_000
    );
    text
}

/// Replaces the value of a key that is there exactly once in its section.
fn replace(text: &str, section: &str, key: &str, value: &str) -> String {
    let mut current = "";
    let mut replaced = 0;
    let lines = text.lines().map(|line| {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            current = name;
        }
        let hit = current == section && line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
        replaced += u32::from(hit);
        if hit { format!("{key} = {value}\n") } else { format!("{line}\n") }
    });
    let text = lines.collect();
    assert_eq!(replaced, 1, "[{section}] {key}");
    text
}
