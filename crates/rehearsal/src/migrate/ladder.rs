//! Ladder: from legacy to contract under load, each phase left on its evidence; then the way back that is refused, and the way
//! forward that brings the call back.

use std::path::Path;

use ::rollout::Phase;
use base::{Clock, Nanos, clock::MonotonicClock};
use model::{migration::Plan, policy::Policy, workload::Workload};
use tokio::time;
use wire::emulator::v1::PolicyCopy;

use super::{Failed, Files, Found, MigrationOptions, Stage, ladder_callers, oracle::quantiles, parity_gate};
use crate::{
    gates::Gate,
    ledger::Decision,
    migration::Decided,
    report::{Fallback, Hop, Migration, Quantiles, Rung, Scenario},
    slo::RehearsalError,
    verdict::Verdict,
};

/// What the study's p99 fell by.
const REFERENCE_P99_GAIN_MS: f64 = 31.0;
/// Share of the subjects whose copy of the policy differs while the fault is let loose, in parts per million.
const MISMATCH_PPM: u32 = 100_000;

/// What the ladder left behind.
pub(super) struct Walked {
    pub(super) migration: Migration,
    pub(super) gates: Vec<Gate>,
    pub(super) story: Scenario,
    pub(super) got: Vec<load::Report>,
    pub(super) timer_p99_ms: Option<f64>,
    pub(super) policy: Policy,
    /// Why it did not come to its end.
    pub(super) stopped: Option<String>,
}

/// The phases, as they are watched.
struct Watched {
    migration: Migration,
    gates: Vec<Gate>,
}

pub(super) async fn walk(
    options: &MigrationOptions,
    plan: &Plan,
    workload: &Workload,
    policy_file: &Path,
) -> Result<Walked, RehearsalError> {
    let files = Files { policy: policy_file.to_owned(), scenario: None };
    let text = std::fs::read_to_string(policy_file)
        .map_err(|error| RehearsalError::Io { path: policy_file.to_owned(), error })?;
    let policy = Policy::parse("ladder", &text).map_err(|faults| RehearsalError::Files(vec![faults]))?;
    let mut stage = Stage::start(options, plan, "ladder", files, 2, options.quick).await?;
    let mut watched = Watched { migration: Migration::default(), gates: Vec::new() };
    let mut found = Found::default();
    let climbed = climb(options, workload, &mut stage, &mut watched, &mut found).await;
    let stopped = match &climbed {
        Ok(stopped) => stopped.clone(),
        Err(failed) => Some(failed.to_string()),
    };
    let story = Found::told("ladder", climbed.map(|_| found))?;
    watched.migration.hop = hop(&watched.migration.ladder);
    let timer_p99_ms = stage.control.stats().await.map_err(RehearsalError::Control)?.timer_p99_ms;
    let ledger = stage.desk.ledger.clone();
    let got = stage.end().await?;
    watched.gates.push(Gate::at_most("core_mismatch", "pages", Some(got.core_mismatch as f64), 0.0));
    // The decisions are evidence: they stand beside the report.
    let kept = options.out.join("decisions.ndjson");
    std::fs::copy(&ledger, &kept).map_err(|error| RehearsalError::Io { path: kept, error })?;
    Ok(Walked {
        migration: watched.migration,
        gates: watched.gates,
        story,
        got: got.reports,
        timer_p99_ms,
        policy,
        stopped,
    })
}

/// Climbs, and says why it stopped before the top.
async fn climb(
    options: &MigrationOptions,
    workload: &Workload,
    stage: &mut Stage,
    watched: &mut Watched,
    found: &mut Found,
) -> Result<Option<String>, Failed> {
    let dataless = stage.desk.advance().await?;
    found.must(
        dataless.verdict() == Verdict::Inconclusive && dataless.entry.decision == Decision::Hold,
        format!("without a single request advance said {}, not hold", dataless.entry.decision),
    );
    let began = MonotonicClock.now();
    stage.call(workload, options.seed, &ladder_callers(options))?;
    watch(options, stage, watched, Phase::Legacy, None, began).await?;
    for phase in Phase::ALL.into_iter().skip(1) {
        if options.inject && phase == Phase::Canary {
            // Let loose in shadow: the next decision is about leaving it.
            stage.control.policy_copy(PolicyCopy::Divergent, MISMATCH_PPM).await?;
            stage.until_counts(|counts| counts.comparisons_of("claims_mismatch") > 0).await;
        }
        let decided = stage.advance().await?;
        if decided.verdict() != Verdict::Pass {
            let why = decided.why();
            if decided.verdict() == Verdict::Inconclusive {
                // It says nothing about the migration that there was too little to decide on.
                return Err(Failed::NotReached { phase, why });
            }
            let standing = stage.desk.status().await?.standing;
            let at = standing.map_or("nowhere", |standing| standing.phase.as_str());
            found.must(false, format!("{why}; it stays at {at}, where the call is the authority"));
            watched.gates.extend(decided.judgement.into_iter().flat_map(|judgement| judgement.gates));
            return Ok(Some(why));
        }
        watch(options, stage, watched, phase, Some(&decided), began).await?;
    }
    let refused = stage.desk.rollback(Phase::Cutover).await?;
    found.must(
        refused.verdict() == Verdict::Fail && refused.entry.reason.contains("mercury rollout begin"),
        format!("a rollback after contract was not refused with the way forward: {}", refused.why()),
    );
    let forward = stage.desk.begin().await?;
    found.must(
        forward.verdict() == Verdict::Pass,
        format!("the call was not brought back: {}", forward.why()),
    );
    found.saw(
        "legacy to contract on evidence, each phase under load; without data it held; after contract a rollback was \
         refused, and begin brought the call back",
    );
    Ok(None)
}

/// Watches a phase for its time and writes down what it showed.
async fn watch(
    options: &MigrationOptions,
    stage: &mut Stage,
    watched: &mut Watched,
    phase: Phase,
    decided: Option<&Decided>,
    began: Nanos,
) -> Result<(), Failed> {
    let entered = MonotonicClock.now();
    time::sleep(options.watch.into()).await;
    let over = MonotonicClock.now();
    let parity = stage.parity(entered, over).await?;
    let pages = stage.pages(entered, over);
    let quantiles = quantiles(&pages.iter().collect::<Vec<_>>());
    let of = |name: &str| quantiles.get(name).copied();
    let counts = stage.counts().await;
    let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let relied = counts.authority_of("summary");
    let (fell, closed) = (counts.authority_of("fallback:"), counts.authority_of("closed:"));
    let matched = counts.comparisons_of("match") + counts.comparisons_of("order_only");
    let compared: u64 = counts.comparisons.iter().map(|count| count.count).sum();
    let due = compared - counts.comparisons_of("not_run") - counts.comparisons_of("missing");
    let wrong = (stage.unseen() == 0).then_some(parity.wrong);
    watched.gates.push(parity_gate(phase, wrong));
    for count in counts.authority.iter().filter(|one| one.kind.contains(':')) {
        let same = |one: &&::rollout::report::Count| one.class == count.class && one.region == count.region;
        let whole: u64 =
            counts.authority.iter().filter(same).filter(|one| one.kind != "call").map(|one| one.count).sum();
        watched.migration.fallbacks.push(Fallback {
            phase: phase.as_str().to_owned(),
            kind: count.kind.clone(),
            class: count.class.clone(),
            region: count.region.clone(),
            count: count.count,
            ratio: ratio(count.count, whole),
        });
    }
    watched.migration.ladder.push(Rung {
        phase: phase.as_str().to_owned(),
        decision: decided.map_or(Decision::Begin, |one| one.entry.decision).as_str().to_owned(),
        generation: decided.map_or(1, |one| one.entry.sequence),
        entered_s: (entered - began).as_secs_f64(),
        watched_s: (over - entered).as_secs_f64(),
        pages: parity.pages,
        claims_wrong: wrong,
        latency_ms: Quantiles { n: parity.pages, p50: of("p50"), p99: of("p99"), p999: of("p999") },
        on_summary_ratio: ratio(pages.iter().filter(|page| page.on_summary).count() as u64, parity.pages),
        fallback_ratio: ratio(fell + closed, relied + fell + closed),
        match_ratio: ratio(matched, due),
    });
    Ok(())
}

/// The last phase where everybody makes the call against the first where nobody does.
fn hop(ladder: &[Rung]) -> Option<Hop> {
    let of = |phase: Phase| ladder.iter().find(|rung| rung.phase == phase.as_str());
    let (with, without) = (of(Phase::Shadow)?, of(Phase::Cutover)?);
    Some(Hop {
        p50_with_ms: with.latency_ms.p50,
        p50_without_ms: without.latency_ms.p50,
        p99_with_ms: with.latency_ms.p99,
        p99_without_ms: without.latency_ms.p99,
        reference_p99_gain_ms: REFERENCE_P99_GAIN_MS,
    })
}
