//! Drill: what a release shows at a matched peak beside what it showed before, and what may be behind it. Hypotheses are ranked by
//! readings that tell them apart, and actions are judged by whether their own constraint was shown. Pure.
//!
//! The rules are in `rank`. A figure that was not measured speaks neither for nor against anything.

mod file;
mod rank;
#[cfg(test)]
mod tests;

use base::{Dependency, WorkloadClass};

pub use self::rank::{Action, Decision, Diagnosis, Hypothesis, Judged, Ranked, SHOWN, Standing, Verdict};

/// The drill that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) =
    ("config/drills/pricing-wait.toml", include_str!("../../../config/drills/pricing-wait.toml"));

/// A figure before and now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// At the matched peak of the release.
    pub now: f64,
    /// At the peak that it is matched with.
    pub before: f64,
}

impl Moved {
    /// How much it grew; not below zero.
    pub fn growth(self) -> f64 {
        (self.now - self.before).max(0.0)
    }

    /// How far it moved, either way, over what it was; infinitely from nothing to something.
    pub fn drift_ratio(self) -> f64 {
        let by = (self.now - self.before).abs();
        if by > 0.0 { by / self.before } else { 0.0 }
    }
}

/// A client's pool of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// In use.
    pub active: u32,
    /// At most in use.
    pub limit: u32,
    /// Waiting for one.
    pub pending: u32,
}

/// A dependency as it was seen. What is `None` was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// 99th percentile of the wait before its clients' calls, in milliseconds.
    pub wait_ms: Option<Moved>,
    /// 99th percentile of its own service time, in milliseconds.
    pub service_ms: Option<Moved>,
    /// Its clients' pool.
    pub pool: Option<Pool>,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budgets {
    /// 99th percentile at ingress, in milliseconds.
    pub p99_ms: f64,
    /// 99th percentile of the age of the endpoint's queue, in milliseconds.
    pub queue_age_ms: f64,
    /// Occupancy of the profile pool, in percent.
    pub profile_percent: f64,
    /// Late work, in percent.
    pub late_percent: f64,
    /// Omitted sections, in percent.
    pub omission_percent: f64,
    /// How far a class may move before nothing is comparable, in percent.
    pub drift_percent: f64,
    /// From where on CPU makes a tail of its own, in percent.
    pub cpu_percent: f64,
}

/// One validated drill.
#[derive(Clone, Debug, PartialEq)]
pub struct Drill {
    /// The name, for reports.
    pub name: String,
    /// Rises with every change of the file.
    pub version: u32,
    /// What it is about, in a sentence.
    pub about: String,
    /// What must hold.
    pub budgets: Budgets,
    /// 99th percentile at ingress, in milliseconds.
    pub p99_ms: f64,
    /// CPU of the fleet, in percent.
    pub cpu_percent: Option<f64>,
    /// 99th percentile of the age of the endpoint's queue, in milliseconds.
    pub queue_age_ms: Option<f64>,
    /// Occupancy of the profile pool, in percent.
    pub profile_percent: Option<f64>,
    /// Late work, in percent.
    pub late_percent: Option<f64>,
    /// Omitted sections, in percent.
    pub omission_percent: Option<f64>,
    /// The dependencies.
    pub dependencies: [Seen; Dependency::ALL.len()],
    /// Shares of the classes, in percent.
    pub classes: [Option<Moved>; WorkloadClass::ALL.len()],
}
