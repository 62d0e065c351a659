//! Scenes: what a migration has to survive, refuse or take back. They are played one after the other on one suite, each in the
//! phase that it is about, with callers coming all the time.

use std::time::Duration;

use ::rollout::{Phase, report::Counts};
use base::{Clock, Nanos, clock::MonotonicClock};
use load::Rate;
use model::{migration::Plan, policy::ServiceName, workload::Workload};
use summary::KeyId;
use tokio::time;
use wire::emulator::v1::{FeedState, PolicyCopy};

use super::{
    Failed, Files, Found, MigrationOptions, Offered, STORIES_PER_S, Stage,
    probe::{Prober, since, subject},
    stage::REVOCATION_BOUND,
};
use crate::{Member, ledger::Decision, report::Scenario, slo::RehearsalError, verdict::Verdict};

/// Share of the subjects that a fault of the policy's copy concerns, in parts per million.
const COPY_PPM: u32 = 200_000;
/// Differences that are waited for.
const DIFFERENCES: u64 = 5;
/// Requests of one subject at once.
const VOLLEY: u32 = 4;
/// A calendar that is ahead of everybody's leeway, and one that is behind by more than a summary lives.
const CALENDARS_MS: [(i64, &str); 2] = [(10_000, "future_dated"), (-70_000, "expired")];
/// How long callers are watched after a change, for what must not happen.
const WATCH: Duration = Duration::from_millis(1_500);
/// A cut of the stream that is within the bound, with the second that may have passed since its last word.
const CUT_SHORT: Duration = Duration::from_millis(1_500);
/// A way back has to be over within this, from the decision to the last page of the phase before.
const BACK_MAX: Nanos = Nanos::from_secs(3);

const PROFILE: Member = Member::Service(ServiceName::Profile);

pub(super) async fn play(
    options: &MigrationOptions,
    plan: &Plan,
    workload: &Workload,
    files: &Files,
) -> Result<Vec<Scenario>, RehearsalError> {
    let mut stage = Stage::start(options, plan, "stories", files.clone(), 1, true).await?;
    let callers = [Offered { member: Member::HOME_API, rate: Rate::PerSecond(STORIES_PER_S) }];
    stage.call(workload, options.seed + 100, &callers)?;
    let began = MonotonicClock.now();
    let mut told = Vec::new();
    let mut play = |name: &str, found: Result<Found, Failed>| -> Result<(), RehearsalError> {
        told.push(Found::told(name, found)?);
        Ok(())
    };
    play("stale_policy_version", stale_version(&mut stage).await)?;
    play("claims_mismatch", claims_mismatch(&mut stage).await)?;
    play("revocation_in_canary", revocation(&mut stage).await)?;
    play("key_rotation", key_rotation(&mut stage).await)?;
    play("wrong_calendar", wrong_calendar(&mut stage).await)?;
    play("stream_cut_short", stream_cut_short(&mut stage).await)?;
    play("stream_cut_long", stream_cut_long(&mut stage, Phase::Cutover).await)?;
    play("rollback_from_every_phase", rollbacks(&mut stage).await)?;
    play("stream_cut_after_contract", stream_cut_long(&mut stage, Phase::Contract).await)?;
    play("rollback_after_contract", after_contract(&mut stage).await)?;
    let parity = stage.parity(began, MonotonicClock.now()).await?;
    let unseen = stage.unseen();
    let got = stage.end().await?;
    let mut found = Found::default();
    found.must(parity.wrong == 0, format!("{} of {} pages: {}", parity.wrong, parity.pages, parity.first));
    found.must(unseen == 0, format!("{unseen} pages could not be looked at"));
    found.must(got.core_mismatch == 0, format!("{} pages are not correct otherwise", got.core_mismatch));
    found.saw(format!("{} pages through all stories, each with the policy's claims", parity.pages));
    play("claims_parity", Ok(found))?;
    Ok(told)
}

/// What was counted since `before`, of claims that came so.
fn more(before: &Counts, after: &Counts, kind: &str) -> u64 {
    after.authority_of(kind).saturating_sub(before.authority_of(kind))
}

fn refused(before: &Counts, after: &Counts) -> u64 {
    let of = |counts: &Counts| counts.pages.get("refused").copied().unwrap_or_default();
    of(after).saturating_sub(of(before))
}

async fn stale_version(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    stage.reach(Phase::Shadow).await?;
    // The marks have to know the newer version first.
    found.must(
        stage.until_counts(|counts| counts.comparisons_of("match") >= 100).await,
        "there were no comparisons",
    );
    stage.control.policy_copy(PolicyCopy::Stale, COPY_PPM).await?;
    let seen = stage.until_counts(|counts| counts.comparisons_of("version_skew") >= DIFFERENCES).await;
    stage.control.policy_copy(PolicyCopy::Exact, 0).await?;
    let counts = stage.counts().await;
    let skew = counts.comparisons_of("version_skew");
    found.must(seen, format!("{skew} comparisons of a stale copy were version_skew"));
    let mismatches = counts.comparisons_of("claims_mismatch");
    found.must(mismatches == 0, format!("{mismatches} were taken for mismatches"));
    found.saw(format!("{skew} version_skew, no mismatch"));
    Ok(found)
}

async fn claims_mismatch(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    stage.control.policy_copy(PolicyCopy::Divergent, COPY_PPM).await?;
    stage.until_counts(|counts| counts.comparisons_of("claims_mismatch") >= DIFFERENCES).await;
    let decided = stage.desk.advance().await?;
    found.must(
        decided.entry.decision == Decision::Refuse,
        format!("advance decided {} with mismatches", decided.entry.decision),
    );
    let from = MonotonicClock.now();
    let heard = stage.hear().await;
    let samples: Vec<_> = heard.iter().flatten().flat_map(|report| &report.samples).collect();
    let of = samples.iter().filter(|sample| sample.comparison == "claims_mismatch").count();
    found.must(of > 0, "no mismatch left a sample");
    let named = samples.iter().any(|sample| format!("{sample:?}").contains("user-"));
    found.must(!named, "a sample names a subject");
    time::sleep(WATCH).await;
    let on_summary = stage.pages(from, MonotonicClock.now()).iter().filter(|page| page.on_summary).count();
    found.must(on_summary == 0, format!("{on_summary} pages relied on the summary all the same"));
    stage.control.policy_copy(PolicyCopy::Exact, 0).await?;
    // With its cause mended, shadow is begun anew: what it saw stays in the ledger and counts no more.
    let back = stage.desk.rollback(Phase::Expand).await?;
    found.must(back.verdict() == Verdict::Pass, back.why());
    stage.reach(Phase::Shadow).await?;
    found.saw(format!(
        "refused: {}; {of} samples without a subject; the call stayed the authority",
        decided.entry.reason
    ));
    Ok(found)
}

async fn revocation(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    stage.reach(Phase::Canary).await?;
    let home = stage.suite.endpoints().get(Member::HOME_API).and_then(|at| at.main()).unwrap_or_default();
    let home = home.to_owned();
    // One subject for whom the summary is the authority, and one for whom the call is.
    let mut chosen: [Option<Prober>; 2] = [None, None];
    for identity in (1..200).filter_map(subject) {
        let mut prober = Prober::new(&home, identity, stage.watcher())?;
        let volley = prober.volley(1, "").await;
        let which = usize::from(volley.on_summary > 0);
        if volley.failed == 0 && !volley.claims.is_empty() && chosen[which].is_none() {
            chosen[which] = Some(prober);
        }
        if chosen.iter().all(Option::is_some) {
            break;
        }
    }
    let mut latest = Nanos::ZERO;
    let mut probers: Vec<Prober> = chosen.into_iter().flatten().collect();
    found.must(probers.len() == 2, "no two subjects were found, one on either authority");
    for prober in &mut probers {
        let claim = prober.volley(VOLLEY, "").await.claims.first().cloned().unwrap_or_default();
        let had = prober.volley(VOLLEY, &claim).await;
        found.must(had.with_claim > 0, "the claim was not there before it was taken");
        let identity = prober.identity().clone();
        let (tenant, subject) = (identity.tenant.as_str(), identity.subject.as_str());
        let at = stage.revoke(tenant, subject, vec![claim.clone()]).await?;
        // Volleys that share reads, until well after the bound.
        while since(at) < REVOCATION_BOUND + Nanos::from_millis(500) {
            let asked = since(at);
            let volley = prober.volley(VOLLEY, &claim).await;
            if volley.with_claim > 0 {
                latest = latest.max(asked);
                found.must(
                    asked <= REVOCATION_BOUND,
                    format!("the claim was still there {asked} after it was taken"),
                );
            }
            found.must(volley.failed == 0, format!("{} requests failed", volley.failed));
        }
    }
    let counts = stage.counts().await;
    let last = if latest.is_zero() {
        "no page that was asked for afterwards had it".to_owned()
    } else {
        format!("the last page with it was asked for {latest} afterwards")
    };
    found.saw(format!(
        "taken from a subject on either authority, with four requests at once: {last} (bound {REVOCATION_BOUND}); {} fell back \
         since their summary was of the old epoch",
        counts.authority_of("fallback:revoked")
    ));
    Ok(found)
}

async fn key_rotation(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    stage.reach(Phase::Cutover).await?;
    let before = stage.counts().await;
    let [old, new] = ["first", "second"].map(KeyId::parse);
    let (Ok(old), Ok(new)) = (old, new) else { return Ok(found) };
    let wrong = |error: crate::keys::KeysError| Failed::Rehearsal(RehearsalError::Usage(error.to_string()));
    let ids = |service: &'static str, wanted: &'static [&'static str]| {
        move |heard: &[::rollout::report::ProcessReport]| {
            heard.iter().filter(|report| report.service == service).all(|report| report.keys == wanted)
        }
    };
    stage.keys.add(&new, &[2; 32]).map_err(wrong)?;
    found
        .must(stage.until(ids("home-api", &["first", "second"])).await, "home-api did not take the set over");
    stage.keys.sign_with(&new).map_err(wrong)?;
    found.must(stage.until(ids("profile", &["second"])).await, "profile did not take the key over");
    time::sleep(WATCH).await;
    stage.keys.remove(&old).map_err(wrong)?;
    found.must(stage.until(ids("home-api", &["second"])).await, "home-api did not give the old key up");
    time::sleep(WATCH).await;
    let after = stage.counts().await;
    let (relied, fell) = (more(&before, &after, "summary"), more(&before, &after, "fallback:"));
    found.must(fell == 0, format!("{fell} requests fell back"));
    found.must(refused(&before, &after) == 0, format!("{} pages were refused", refused(&before, &after)));
    found.must(relied > 0, "nobody relied on a summary meanwhile");
    found.saw(format!("{relied} pages on the summary through all three steps, no fallback, none refused"));
    Ok(found)
}

async fn wrong_calendar(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    for (offset_ms, reason) in CALENDARS_MS {
        stage.suite.options_mut().calendar_offsets_ms.insert(PROFILE, offset_ms);
        restart(stage, PROFILE).await?;
        let before = stage.counts().await;
        let kind = format!("fallback:{reason}");
        let base = before.authority_of(&kind);
        let seen = stage.until_counts(|counts| counts.authority_of(&kind) >= base + DIFFERENCES).await;
        let after = stage.counts().await;
        found.must(seen, format!("a calendar off by {offset_ms} ms caused no {reason}"));
        found.must(
            refused(&before, &after) == 0,
            format!("{} pages were refused with a calendar off by {offset_ms} ms", refused(&before, &after)),
        );
        found.saw(format!(
            "off by {offset_ms} ms: {} {reason}, answered by the call",
            more(&before, &after, &kind)
        ));
    }
    stage.suite.options_mut().calendar_offsets_ms.clear();
    restart(stage, PROFILE).await?;
    Ok(found)
}

/// Starts a member again, and waits until its callers have found it.
async fn restart(stage: &mut Stage, member: Member) -> Result<(), Failed> {
    stage.suite.restart(member).await.map_err(RehearsalError::Launch)?;
    // Whoever called it meanwhile has failed by then; what is counted afterwards is the story's.
    time::sleep(WATCH).await;
    Ok(())
}

async fn stream_cut_short(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    found.must(stage.until(fresh).await, "the stream was not there to begin with");
    let before = stage.counts().await;
    stage.control.feed(FeedState::Cut).await?;
    time::sleep(CUT_SHORT).await;
    stage.control.feed(FeedState::Live).await?;
    time::sleep(WATCH).await;
    let after = stage.counts().await;
    let fell = more(&before, &after, "fallback:");
    found.must(fell == 0, format!("{fell} requests fell back"));
    found.must(more(&before, &after, "summary") > 0, "nobody relied on a summary meanwhile");
    found.must(refused(&before, &after) == 0, format!("{} pages were refused", refused(&before, &after)));
    found.must(stage.until(fresh).await, "the stream did not come back");
    found.saw(format!(
        "{} pages on the summary through it, no fallback, none refused",
        more(&before, &after, "summary")
    ));
    Ok(found)
}

fn fresh(heard: &[::rollout::report::ProcessReport]) -> bool {
    heard.iter().all(|report| report.revocations.as_ref().is_none_or(|stream| stream.fresh))
}

/// For longer than the bound: the call is asked before contract; after it, pages are refused.
async fn stream_cut_long(stage: &mut Stage, phase: Phase) -> Result<Found, Failed> {
    let mut found = Found::default();
    stage.reach(phase).await?;
    stage.until(fresh).await;
    let before = stage.counts().await;
    stage.control.feed(FeedState::Silent).await?;
    let kind = if phase.has_call() { "fallback:stale_revocations" } else { "closed:stale_revocations" };
    let base = before.authority_of(kind);
    let seen = stage.until_counts(|counts| counts.authority_of(kind) >= base + DIFFERENCES).await;
    found.must(seen, format!("a stream that is silent for too long caused no {kind}"));
    // Now and until the stream is back nobody may rely on a summary.
    let from = MonotonicClock.now();
    time::sleep(WATCH).await;
    let on_summary = stage
        .pages(from, MonotonicClock.now())
        .iter()
        .filter(|page| page.asked_at >= from)
        .filter(|page| page.on_summary)
        .count();
    found.must(on_summary == 0, format!("{on_summary} pages relied on a summary meanwhile"));
    stage.control.feed(FeedState::Live).await?;
    found.must(stage.until(fresh).await, "the stream did not come back");
    let after = stage.counts().await;
    let refused = refused(&before, &after);
    let told = more(&before, &after, kind);
    if phase.has_call() {
        found.must(refused == 0, format!("{refused} pages were refused though the call was there"));
        found.saw(format!("{told} pages by the call, none refused"));
    } else {
        found.must(refused >= told, format!("{told} pages had no claims and {refused} were refused"));
        found.saw(format!("{told} pages refused, none granted"));
    }
    let base = after.authority_of("summary");
    found.must(
        stage.until_counts(|counts| counts.authority_of("summary") > base).await,
        "nobody relies on summaries after it",
    );
    Ok(found)
}

async fn rollbacks(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    let mut slowest = Nanos::ZERO;
    for phase in [Phase::Cutover, Phase::Canary, Phase::Shadow, Phase::Expand] {
        stage.reach(phase).await?;
        let at = MonotonicClock.now();
        let back = stage.desk.rollback(Phase::Legacy).await?;
        let took = since(at);
        found.must(back.verdict() == Verdict::Pass, back.why());
        slowest = slowest.max(took);
        found.must(took <= BACK_MAX, format!("from {phase} it took {took}"));
        // All processes have said that they are back: whoever asks from now on is answered by the call.
        let confirmed = MonotonicClock.now();
        time::sleep(WATCH).await;
        let pages = stage.pages(confirmed, MonotonicClock.now());
        let asked: Vec<_> = pages.iter().filter(|page| page.asked_at >= confirmed).collect();
        let on_summary = asked.iter().filter(|page| page.on_summary).count();
        found.must(!asked.is_empty(), format!("nobody was answered after the way back from {phase}"));
        found.must(
            on_summary == 0,
            format!("{on_summary} pages were on the summary after the way back from {phase}"),
        );
    }
    found
        .saw(format!("from cutover, canary, shadow and expand, in force everywhere after {slowest} at most"));
    Ok(found)
}

async fn after_contract(stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    stage.reach(Phase::Contract).await?;
    let refused = stage.desk.rollback(Phase::Shadow).await?;
    found.must(refused.entry.decision == Decision::Refuse, "it was not refused");
    found.must(refused.entry.reason.contains("mercury rollout begin"), "the way forward is not told");
    let phase = stage.desk.status().await?.standing.map(|standing| standing.phase);
    found.must(phase == Some(Phase::Contract), "the phase moved");
    let forward = stage.desk.begin().await?;
    found.must(forward.verdict() == Verdict::Pass, forward.why());
    let back = stage.desk.rollback(Phase::Shadow).await?;
    found.must(back.verdict() == Verdict::Pass, back.why());
    found.saw(format!(
        "refused: {}; begin brought the call back, and the way back from there is open",
        refused.entry.reason
    ));
    Ok(found)
}
