//! Migration: what a rehearsal of the summary's migration adds to the report.

use serde::Serialize;

use super::Quantiles;

/// The migration, phase by phase.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Migration {
    /// Every phase that was entered, in order.
    pub ladder: Vec<Rung>,
    /// Requests that did not get their claims from the summary though it was the authority, by phase, reason, class and region.
    pub fallbacks: Vec<Fallback>,
    /// What the entitlement hop costs: the last phase where everybody makes the call against the first where nobody does.
    pub hop: Option<Hop>,
}

/// One phase.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rung {
    /// The phase.
    pub phase: String,
    /// The decision that put it there.
    pub decision: String,
    /// The number of that decision in the ledger.
    pub generation: u64,
    /// When that was decided, in seconds since the callers began to come.
    pub entered_s: f64,
    /// How long it was watched.
    pub watched_s: f64,
    /// Correct pages.
    pub pages: u64,
    /// Pages whose claims are not the policy's, as the oracle knows it; null when it could not look at all of them.
    pub claims_wrong: Option<u64>,
    /// Latency of correct pages.
    pub latency_ms: Quantiles,
    /// Pages whose claims came from the summary, over pages.
    pub on_summary_ratio: Option<f64>,
    /// Requests that fell back to the call, over requests for which the summary was the authority.
    pub fallback_ratio: Option<f64>,
    /// Comparisons that found the call's claims, over those that found a summary.
    pub match_ratio: Option<f64>,
}

/// Requests that fell back to the call, or were refused once it was gone.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fallback {
    /// Where they happened: a phase of the ladder.
    pub phase: String,
    /// `fallback` or `closed`, and why.
    pub kind: String,
    /// Workload class.
    pub class: String,
    /// Region.
    pub region: String,
    /// How many.
    pub count: u64,
    /// Over all requests of that class and region for which the summary was the authority.
    pub ratio: Option<f64>,
}

/// Latency with the serial hop and without it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Hop {
    /// Median with it.
    pub p50_with_ms: Option<f64>,
    /// Median without it.
    pub p50_without_ms: Option<f64>,
    /// 99th percentile with it.
    pub p99_with_ms: Option<f64>,
    /// 99th percentile without it.
    pub p99_without_ms: Option<f64>,
    /// What the study's 99th percentile fell by when it took the hop out.
    pub reference_p99_gain_ms: f64,
}
