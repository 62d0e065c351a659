//! Example: processes of a healthy migration, for the tests to harm.

use ::rollout::{
    Phase, Standing,
    ledger::Head,
    report::{Count, Counts, ProcessReport, StreamReport},
};

use super::judge::Heard;

/// When the phase of every example began.
pub(super) const SINCE_UNIX_MS: i64 = 1_700_000_000_000;
/// Long after every soak.
pub(super) const NOW_UNIX_MS: i64 = SINCE_UNIX_MS + 3_600_000;
/// The key that profile signs with.
pub(super) const KEY: &str = "2026-a";

pub(super) fn standing(phase: Phase) -> Standing {
    Standing { phase, generation: 7, since_unix_ms: SINCE_UNIX_MS }
}

pub(super) fn head() -> Head {
    Head { sequence: 9, digest: "9f".repeat(32) }
}

pub(super) fn count(kind: &str, class: &str, region: &str, count: u64) -> Count {
    Count { kind: kind.to_owned(), class: class.to_owned(), region: region.to_owned(), count }
}

/// So many of a kind, over all classes and two regions.
pub(super) fn spread(kind: &str, each: u64) -> impl Iterator<Item = Count> {
    let classes = ["standard", "premium", "enterprise"];
    let parts = classes.into_iter().flat_map(|class| [(class, "eu-west"), (class, "us-east")]);
    parts.map(move |(class, region)| count(kind, class, region, each))
}

/// A home-api that is in `phase` and saw only what is right.
pub(super) fn home_api(instance: &str, standing: &Standing, head: Option<Head>) -> ProcessReport {
    let phase = standing.phase;
    let mut counts = Counts::default();
    counts.pages.insert("answered".to_owned(), 60_000);
    if matches!(phase, Phase::Shadow | Phase::Canary) {
        counts.comparisons.extend(spread("match", 9_000));
        counts.authority.extend(spread("call", 9_000));
    }
    if phase >= Phase::Canary {
        counts.authority.extend(spread("summary", 1_000));
    }
    if phase >= Phase::Cutover {
        counts.authority.extend(spread("summary", 9_000));
    }
    ProcessReport {
        service: "home-api".to_owned(),
        instance: instance.to_owned(),
        phase,
        generation: standing.generation,
        head,
        policy_generation: 3,
        keys: vec!["2025-z".to_owned(), KEY.to_owned()],
        revocations: phase.reads().then_some(StreamReport { fresh: true, silent_ms: Some(40), heard: 90 }),
        counting_since_unix_ms: standing.since_unix_ms + 150,
        counts,
        ..ProcessReport::default()
    }
}

/// A profile that signed for everybody.
pub(super) fn profile(instance: &str, standing: &Standing, head: Option<Head>) -> ProcessReport {
    let mut counts = Counts::default();
    if standing.phase.emits() {
        counts.emitted.insert("signed".to_owned(), 60_000);
        counts.emitted.insert("policy_missing".to_owned(), 12);
    }
    ProcessReport {
        service: "profile".to_owned(),
        instance: instance.to_owned(),
        keys: vec![KEY.to_owned()],
        revocations: None,
        counts,
        ..home_api(instance, standing, head)
    }
}

/// Three home-apis and a profile.
pub(super) fn fleet(standing: &Standing, head: &Head) -> Vec<Heard> {
    let mut heard: Vec<Heard> = (1..=3)
        .map(|number| Heard {
            address: format!("127.0.0.1:{}", 9_000 + number),
            report: Ok(home_api(&format!("h{number}"), standing, Some(head.clone()))),
        })
        .collect();
    let report = Ok(profile("p1", standing, Some(head.clone())));
    heard.push(Heard { address: "127.0.0.1:9100".to_owned(), report });
    heard
}
