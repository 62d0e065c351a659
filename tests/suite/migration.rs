//! Migration: what home-api answers in each phase, with every kind of profile and entitlement beside it (the table of
//! docs/migration.md): claims that the policy gives, or an explicit refusal, and never anything else.

use ::rollout::{Phase, report::ProcessReport};
use ::wire::emulator::v1::{
    FeedState, PolicyCopy, ReadSubjectRequest, RevokeClaimsRequest, SetPolicyCopyRequest,
    SetRevocationFeedRequest,
};
use base::{Dependency, Reason, headers};
use http::StatusCode;
use serde_json::Value;

use crate::harness::{Options, Suite, bounded, eventually, patient, spawn};

const TENANT: &str = "tenant-007";

/// A page of a subject that has all the time in the world.
async fn page(suite: &Suite, subject: &str) -> (StatusCode, Value) {
    let head = patient(&[])
        .into_iter()
        .map(|(name, value)| (name, if name == headers::SUBJECT { subject } else { value }));
    let answer = suite.get(&head.collect::<Vec<_>>()).await;
    (answer.status, answer.json())
}

fn claims(page: &Value) -> Vec<&str> {
    let claims = page["entitlement"]["claims"].as_array().expect("claims");
    claims.iter().map(|claim| claim.as_str().expect("a text")).collect()
}

/// What the subject may do in eu-west, from the stores' own rows and by nobody's code but this.
async fn truth(suite: &Suite, subject: &str) -> Vec<String> {
    let message =
        ReadSubjectRequest { tenant: TENANT.to_owned(), subject: subject.to_owned(), policy_version: 0 };
    let rows = suite.control().read_subject(bounded(message)).await.expect("rows").into_inner();
    let (profile, policy) = (rows.profile.expect("a profile"), rows.policy.expect("a policy"));
    let of = |rules: &[::wire::emulator::v1::ClaimRule], selector: &str| -> Vec<String> {
        rules.iter().filter(|rule| rule.selector == selector).flat_map(|rule| rule.claims.clone()).collect()
    };
    let mut claims = of(&policy.plan_rules, &profile.plan);
    claims.extend(of(&policy.segment_rules, &profile.segment));
    claims.extend(policy.grants);
    let gone = [of(&policy.region_exclusions, "eu-west"), policy.denials].concat();
    claims.retain(|claim| !gone.contains(claim));
    claims.sort();
    claims.dedup();
    claims
}

/// The page answered with the policy's claims, on this authority.
async fn right(suite: &Suite, subject: &str, authority: &str) {
    let (status, page) = page(suite, subject).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    assert_eq!(page["entitlement"]["authority"], authority, "{page}");
    assert_eq!(claims(&page), truth(suite, subject).await, "{subject}");
}

/// The page was refused since there is no authority for its claims, for this reason.
async fn closed(suite: &Suite, subject: &str, why: &str) {
    let (status, page) = page(suite, subject).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{page}");
    assert_eq!(page["error"]["reason"], Reason::DependencyUnavailable.as_str(), "{page}");
    assert!(page["error"]["message"].as_str().is_some_and(|text| text.contains(why)), "{page}");
}

async fn feed(suite: &Suite, state: FeedState) {
    let message = SetRevocationFeedRequest { state: state.into() };
    suite.control().set_revocation_feed(bounded(message)).await.expect("set");
}

async fn copy(suite: &Suite, copy: PolicyCopy) {
    let message = SetPolicyCopyRequest { copy: copy.into(), share_ppm: 0 };
    suite.control().set_policy_copy(bounded(message)).await.expect("set");
}

/// Home-api's report, once it has made so many comparisons.
async fn compared(suite: &Suite, times: u64) -> ProcessReport {
    eventually("comparisons are made", async || {
        let counts = suite.rollout("home-api").await.counts;
        counts.comparisons.iter().map(|count| count.count).sum::<u64>() >= times
    })
    .await;
    suite.rollout("home-api").await
}

fn following() -> Options {
    Options::quick().following()
}

#[tokio::test]
async fn every_phase_answers_with_the_policys_claims_and_says_on_whose_authority() {
    let suite = Suite::start_with(following()).await;
    let subjects: Vec<String> = (1..=40).map(|number| format!("user-{number:05}")).collect();
    for phase in Phase::ALL {
        suite.decide(phase).await;
        if phase.reads() {
            suite.until_fresh().await;
        }
        let mut on_summary = 0;
        for subject in &subjects {
            let (status, page) = page(&suite, subject).await;
            assert_eq!(status, StatusCode::OK, "{phase}: {page}");
            assert_eq!(claims(&page), truth(&suite, subject).await, "{phase}: {subject}");
            on_summary += u64::from(page["entitlement"]["authority"] == "summary");
        }
        let all = subjects.len() as u64;
        match phase {
            Phase::Legacy | Phase::Expand | Phase::Shadow => assert_eq!(on_summary, 0, "{phase}"),
            // A tenth of the subjects, by a hash of their names.
            Phase::Canary => assert!((1..all).contains(&on_summary), "{on_summary}"),
            Phase::Cutover | Phase::Contract => assert_eq!(on_summary, all, "{phase}"),
        }
        let report = suite.rollout("home-api").await;
        assert_eq!(report.phase, phase);
        assert_eq!(report.counts.pages.get("answered"), Some(&all));
        assert_eq!(report.counts.authority_of("summary"), on_summary);
        assert_eq!(report.counts.authority_of("call"), all - on_summary);
        assert_eq!(
            report.counts.authority_of("closed") + report.counts.authority_of("fallback"),
            0,
            "{report:?}"
        );
        if matches!(phase, Phase::Shadow | Phase::Canary) {
            let report = compared(&suite, all - on_summary).await;
            assert_eq!(report.counts.comparisons_of("match"), all - on_summary, "{report:?}");
        }
        let emitted = suite.rollout("profile").await.counts.emitted;
        let which = if phase.emits() { "signed" } else { "not_emitted" };
        assert_eq!(emitted.get(which), Some(&all), "{phase}: {emitted:?}");
    }
    suite.finish().await;
}

#[tokio::test]
async fn a_profile_without_summaries_falls_back_and_once_the_call_is_gone_is_refused() {
    let old = Options { profile_policy: Some(model::policy::SHIPPED.1.to_owned()), ..Options::quick() };
    // Profile follows no ledger and its policy does not have summaries emitted: an older version of it.
    let on = |call: bool| {
        let changes =
            format!("[mechanisms.summary]\nmode = \"on\"\npercent = 100\n[summary]\ncall = {call}\n");
        old.clone().overlaid(&changes)
    };
    let suite = Suite::start_with(on(true)).await;
    suite.until_fresh().await;
    right(&suite, "user-00042", "call").await;
    assert_eq!(suite.rollout("home-api").await.counts.authority_of("fallback:missing"), 1);
    suite.finish().await;
    let suite = Suite::start_with(on(false)).await;
    suite.until_fresh().await;
    closed(&suite, "user-00042", "missing").await;
    assert_eq!(suite.rollout("home-api").await.counts.authority_of("closed:missing"), 1);
    suite.finish().await;
}

#[tokio::test]
async fn an_old_home_api_ignores_what_a_new_profile_sends() {
    let emits = Options::quick().policy("summary", "emit", "true").policy;
    let suite = Suite::start_with(Options { profile_policy: Some(emits), ..Options::quick() }).await;
    right(&suite, "user-00042", "call").await;
    let counts = suite.rollout("home-api").await.counts;
    assert!(counts.comparisons.is_empty(), "{counts:?}");
    suite.finish().await;
}

#[tokio::test]
async fn without_entitlement_the_summary_serves_until_its_word_on_revocations_is_old() {
    let short = following().policy("summary", "staleness_max_ms", "3000");
    let mut suite = Suite::start_with(short).await;
    for phase in [Phase::Shadow, Phase::Contract] {
        suite.decide(phase).await;
    }
    suite.until_fresh().await;
    right(&suite, "user-00042", "summary").await;
    suite.member("entitlement").kill();
    // The process is gone and the bound is not over.
    right(&suite, "user-00043", "summary").await;
    eventually("the word is old", async || {
        suite.rollout("home-api").await.revocations.is_some_and(|stream| !stream.fresh)
    })
    .await;
    closed(&suite, "user-00044", "stale_revocations").await;
    suite.restart(Dependency::Entitlement);
    suite.until_fresh().await;
    right(&suite, "user-00045", "summary").await;
    // Before contract the call is asked instead, and without entitlement says that it is not there.
    suite.decide(Phase::Cutover).await;
    suite.member("entitlement").kill();
    eventually("the word is old", async || {
        suite.rollout("home-api").await.revocations.is_some_and(|stream| !stream.fresh)
    })
    .await;
    let (status, refused) = page(&suite, "user-00046").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    suite.finish_rest().await;
}

#[tokio::test]
async fn a_stream_that_is_cut_for_less_than_its_bound_harms_nobody_and_for_longer_falls_back() {
    let suite = Suite::start_with(following().policy("summary", "staleness_max_ms", "3000")).await;
    suite.decide(Phase::Cutover).await;
    suite.until_fresh().await;
    for state in [FeedState::Cut, FeedState::Silent] {
        feed(&suite, state).await;
        right(&suite, "user-00042", "summary").await;
        eventually("the word is old", async || {
            suite.rollout("home-api").await.revocations.is_some_and(|stream| !stream.fresh)
        })
        .await;
        right(&suite, "user-00042", "call").await;
        feed(&suite, FeedState::Live).await;
        suite.until_fresh().await;
        right(&suite, "user-00042", "summary").await;
    }
    let counts = suite.rollout("home-api").await.counts;
    assert_eq!(counts.authority_of("fallback:stale_revocations"), 2);
    suite.finish().await;
}

#[tokio::test]
async fn a_revocation_reaches_every_page_those_of_a_shared_read_included() {
    // Shared reads that take a while: a page may have joined before the revocation and be answered after it.
    let suite = Suite::start_with(Options::sharing().following()).await;
    suite.decide(Phase::Cutover).await;
    suite.until_fresh().await;
    let before = truth(&suite, "user-00042").await;
    let taken = before.first().expect("a claim").clone();
    suite.phase("slow").await;
    // A leader reads before the revocation: its summary is of the old epoch.
    let home = suite.home();
    let head = patient(&[]);
    let head: Vec<(String, String)> =
        head.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let asked = |head: Vec<(String, String)>| {
        spawn(async move {
            let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            crate::harness::talk::http1(home, crate::harness::get_home(&head)).await
        })
    };
    let calls = suite.stats(Dependency::Profile).await.calls;
    let leader = asked(head.clone());
    suite
        .until(Dependency::Profile, "the leader's read is in service", |stats| {
            stats.calls > calls && stats.in_service == 1
        })
        .await;
    let follower = asked(head);
    eventually("the second page shares the read", async || {
        suite.scrape("home-api").await.sum("mercury_home_flight_waiters", &[]) == 2.0
    })
    .await;
    let heard = suite.rollout("home-api").await.revocations.expect("a stream").heard;
    let message = RevokeClaimsRequest {
        tenant: TENANT.to_owned(),
        subject: "user-00042".to_owned(),
        claims: vec![taken.clone()],
    };
    suite.control().revoke_claims(bounded(message)).await.expect("revoked");
    eventually("the revocation is heard of", async || {
        suite.rollout("home-api").await.revocations.is_some_and(|stream| stream.heard > heard)
    })
    .await;
    for answer in [leader.await.expect("answered"), follower.await.expect("answered")] {
        let page = answer.json();
        assert_eq!(answer.status, StatusCode::OK, "{page}");
        assert!(!claims(&page).contains(&taken.as_str()), "{page}");
    }
    let counts = suite.rollout("home-api").await.counts;
    // The read may have been made on either side of the revocation; nobody got the claim in either case.
    assert_eq!(counts.authority_of("fallback:revoked") + counts.authority_of("summary"), 2, "{counts:?}");
    suite.finish().await;
}

#[tokio::test]
async fn what_differs_is_told_apart_and_leaves_samples_that_name_nobody() {
    let suite = Suite::start_with(following()).await;
    suite.decide(Phase::Shadow).await;
    suite.until_fresh().await;
    right(&suite, "user-00001", "call").await;
    compared(&suite, 1).await;
    copy(&suite, PolicyCopy::Stale).await;
    let (status, _) = page(&suite, "user-00002").await;
    assert_eq!(status, StatusCode::OK);
    let report = compared(&suite, 2).await;
    assert_eq!(report.counts.comparisons_of("version_skew"), 1, "{report:?}");
    assert_eq!(report.counts.comparisons_of("claims_mismatch"), 0, "{report:?}");
    copy(&suite, PolicyCopy::Divergent).await;
    right(&suite, "user-00003", "call").await;
    let report = compared(&suite, 3).await;
    assert_eq!(report.counts.comparisons_of("claims_mismatch"), 1, "{report:?}");
    let sample =
        report.samples.iter().find(|sample| sample.comparison == "claims_mismatch").expect("a sample");
    assert_eq!((sample.only_summary.len(), sample.only_call.len()), (1, 0), "{sample:?}");
    let text = serde_json::to_string(&report.samples).expect("plain data");
    assert!(!text.contains("user-") && !text.contains(TENANT), "{text}");
    suite.finish().await;
}

#[tokio::test]
async fn keys_rotate_under_a_running_suite_without_a_fallback() {
    let suite = Suite::start_with(following()).await;
    suite.decide(Phase::Contract).await;
    suite.until_fresh().await;
    let keys = suite.files().keys();
    let [old, new] = ["suite", "next"].map(|id| ::summary::KeyId::parse(id).expect("an id"));
    let accepts = async |wanted: &[&str]| {
        eventually("home-api accepts the keys", async || suite.rollout("home-api").await.keys == wanted)
            .await;
    };
    right(&suite, "user-00001", "summary").await;
    keys.add(&new, &[7; 32]).expect("added");
    accepts(&["next", "suite"]).await;
    right(&suite, "user-00002", "summary").await;
    keys.sign_with(&new).expect("it waits");
    eventually("profile signs with it", async || suite.rollout("profile").await.keys == ["next"]).await;
    right(&suite, "user-00003", "summary").await;
    keys.remove(&old).expect("it does not sign");
    accepts(&["next"]).await;
    right(&suite, "user-00004", "summary").await;
    // A set that is broken changes nothing.
    std::fs::write(keys.set_file(), "[[keys]]\nkey_id = \"next\"\npublic_key = \"AA==\"\n").expect("written");
    eventually("it is refused", async || {
        let told = suite.scrape("home-api").await;
        told.sum("mercury_summary_keys_reloads_total", &[("outcome", "refused")]) == 1.0
    })
    .await;
    right(&suite, "user-00005", "summary").await;
    suite.finish().await;
}

#[tokio::test]
async fn a_process_that_cannot_read_the_ledger_is_not_ready_and_serves_on() {
    let suite = Suite::start_with(following()).await;
    suite.decide(Phase::Cutover).await;
    suite.until_fresh().await;
    let path = suite.files().decisions();
    let text = std::fs::read_to_string(&path).expect("a ledger");
    std::fs::remove_file(&path).expect("removed");
    let ready = async || {
        let request = http::Request::get("/readyz").header("host", "admin");
        let request = request.body(http_body_util::Full::default()).expect("a request");
        crate::harness::talk::http1(suite.members["home-api"].admin, request).await
    };
    eventually("it is not ready", async || ready().await.status == StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(ready().await.json()["reason"].as_str().is_some_and(|why| !why.is_empty()));
    right(&suite, "user-00001", "summary").await;
    std::fs::write(&path, text).expect("written");
    eventually("it is ready again", async || ready().await.status == StatusCode::OK).await;
    suite.finish().await;
}

#[tokio::test]
async fn a_decision_whose_command_was_killed_before_it_was_acknowledged_counts_for_everybody() {
    use ::rollout::ledger::{self, Decision, Draft, Ledger};
    let suite = Suite::start_with(following()).await;
    suite.decide(Phase::Expand).await;
    // What the command had written when it was killed: the line, and not the head beside it.
    let path = suite.files().decisions();
    let beside = tempfile::tempdir().expect("a directory");
    let copy = beside.path().join(ledger::FILE);
    let home = path.parent().expect("a directory");
    for entry in std::fs::read_dir(home).expect("listed") {
        let name = entry.expect("an entry").file_name();
        if name.to_string_lossy().starts_with(ledger::FILE) {
            std::fs::copy(home.join(&name), beside.path().join(&name)).expect("copied");
        }
    }
    let clock = base::clock::SystemWallClock;
    let draft = Draft {
        actor: "test".to_owned(),
        command: "test".to_owned(),
        subject: ::rollout::SUBJECT.to_owned(),
        from: Some(Phase::Expand.to_string()),
        to: Phase::Shadow.to_string(),
        decision: Decision::Advance,
        reason: "a test wants it".to_owned(),
        policy: None,
        evidence: serde_json::json!({}),
    };
    let sequence =
        Ledger::open(&copy, &clock).expect("opened").append(draft, &clock).expect("decided").sequence;
    std::fs::copy(&copy, &path).expect("copied");
    let known = ledger::head(&path).expect("a head").expect("acknowledged").sequence;
    assert!(known < sequence, "the head is behind");
    for member in ["home-api", "profile"] {
        eventually("it follows the line", async || suite.rollout(member).await.generation == sequence).await;
    }
    suite.finish().await;
}

/// What home-api is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Version {
    /// It reads no summary.
    Old,
    /// It compares.
    Shadow,
    /// It relies on summaries, with the call to fall back to.
    Cutover,
    /// It relies on summaries, and the call is gone.
    Contract,
}

#[tokio::test]
async fn every_cell_of_the_table_of_versions_answers_rightly_or_refuses() {
    for home in [Version::Old, Version::Shadow, Version::Cutover, Version::Contract] {
        let changes = match home {
            Version::Old => "[mechanisms.summary]\nmode = \"off\"\n",
            Version::Shadow => "[mechanisms.summary]\nmode = \"shadow\"\npercent = 100\n",
            Version::Cutover => "[mechanisms.summary]\nmode = \"on\"\npercent = 100\n",
            Version::Contract => {
                "[mechanisms.summary]\nmode = \"on\"\npercent = 100\n[summary]\ncall = false\n"
            }
        };
        for emits in [false, true] {
            let profile = Options::quick().policy("summary", "emit", &emits.to_string()).policy;
            let options = Options { profile_policy: Some(profile), ..Options::quick().overlaid(changes) };
            let mut suite = Suite::start_with(options).await;
            if home != Version::Old {
                suite.until_fresh().await;
            }
            for there in [true, false] {
                if !there {
                    suite.member("entitlement").kill();
                }
                let cell = format!("home-api {home:?}, profile emits {emits}, entitlement there {there}");
                let (status, page) = page(&suite, "user-00042").await;
                let authority = match home {
                    Version::Cutover | Version::Contract if emits => Some("summary"),
                    Version::Contract => None,
                    _ => there.then_some("call"),
                };
                match authority {
                    Some(authority) => {
                        assert_eq!(status, StatusCode::OK, "{cell}: {page}");
                        assert_eq!(page["entitlement"]["authority"], authority, "{cell}: {page}");
                        assert_eq!(claims(&page), truth(&suite, "user-00042").await, "{cell}");
                    }
                    None => {
                        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{cell}: {page}");
                        let reason = Reason::DependencyUnavailable.as_str();
                        assert_eq!(page["error"]["reason"], reason, "{cell}: {page}");
                    }
                }
            }
            suite.finish_rest().await;
        }
    }
}
