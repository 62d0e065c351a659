//! Emulated: the dependencies keep their own promises: the same draws in any order, real capacity, live faults, an account
//! of every call, and a clean slate on demand.

use std::sync::Arc;

use ::wire::emulator::v1::{
    ClearFaultsRequest, FaultRule, FetchReviewsRequest, GetStatsRequest, InjectFaultRequest,
    ListJournalRequest, ResetRequest, SetCapacityRequest, SetPhaseRequest, fault_rule::Effect,
    review_score_service_client::ReviewScoreServiceClient,
};
use base::{Dependency, Nanos, headers};
use model::scenario::Scenario;
use serve::supervisor::Supervisor;
use tonic::Code;

use crate::harness::{
    GET_HOME, SEED, Suite, bounded, customer, identified, link, member, now, patient,
    settings::{QUICK_SERVERS, SLOW_PROFILE_MS},
    spawn, talk,
};

#[test]
fn draws_do_not_depend_on_order_and_do_on_seed_and_scenario() {
    const CALLS: u64 = 20_000;
    let scenario = Scenario::shipped();
    let digest = emulator::digest(&scenario, SEED, CALLS, false);
    let again = std::thread::spawn(|| emulator::digest(&Scenario::shipped(), SEED, CALLS, true));
    assert_eq!(again.join().expect("no panic"), digest, "reversed, on another thread");
    assert_ne!(emulator::digest(&scenario, SEED + 1, CALLS, false), digest);
    assert_ne!(emulator::digest(&scenario, SEED, CALLS + 1, false), digest);
    let text = model::scenario::SHIPPED.1.replace("\nversion = 2\n", "\nversion = 3\n");
    let other = Scenario::parse("other.toml", &text).expect("a valid scenario");
    assert_ne!(emulator::digest(&other, SEED, CALLS, false), digest, "another version draws anew");
}

#[tokio::test]
async fn capacity_is_real_and_a_burst_never_exceeds_it() {
    const BURST: u64 = 60;
    let suite = Suite::start().await;
    suite.capacity(Dependency::Profile, 3, 5).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(60)).await;
    let at = suite.home();
    let calls: Vec<_> = (0..BURST)
        .map(|number| {
            let id = format!("burst-{number}");
            spawn(async move {
                talk::call(at, GET_HOME, &patient(&[(headers::REQUEST_ID, &id)]), &[]).await.code()
            })
        })
        .collect();
    let mut served = 0;
    for call in calls {
        match call.await.expect("no panic") {
            Code::Ok => served += 1,
            code => assert_eq!(code, Code::Unavailable),
        }
    }
    suite.until_idle().await;
    let stats = suite.stats(Dependency::Profile).await;
    assert_eq!((stats.calls, stats.peak_in_service, stats.servers), (BURST, 3, 3), "{stats:?}");
    // Three are served at once and five may wait, so eight at least get through and no more than time allows.
    assert!(served >= 8 && stats.ok == served && stats.overloaded == BURST - served, "{served}: {stats:?}");
    let mut waited = 0;
    for number in 0..BURST {
        for entry in suite.journal(&format!("burst-{number}")).await {
            if entry.dependency == "profile" && entry.outcome == "ok" {
                assert!(entry.service_us >= 60_000, "{entry:?}");
                waited += u64::from(entry.queue_wait_us >= 30_000);
            }
        }
    }
    assert!(waited >= 4, "those who waited say so: {waited}");
    suite.finish().await;
}

#[tokio::test]
async fn a_changed_capacity_interrupts_nobody_and_holds_from_then_on() {
    let suite = Suite::start().await;
    suite.fault(Dependency::Profile, Effect::DelayMs(400)).await;
    let at = suite.home();
    let ask = || spawn(async move { talk::call(at, GET_HOME, &patient(&[]), &[]).await.code() });
    let first: Vec<_> = (0..6).map(|_| ask()).collect();
    suite.until(Dependency::Profile, "six are in service", |of| of.in_service == 6).await;
    suite.capacity(Dependency::Profile, 1, 8).await;
    let second: Vec<_> = (0..2).map(|_| ask()).collect();
    suite.until(Dependency::Profile, "two wait", |of| of.queued == 2 && of.in_service == 6).await;
    for call in first {
        assert_eq!(call.await.expect("no panic"), Code::Ok, "what was in service stays in service");
    }
    suite.until(Dependency::Profile, "one at a time", |of| of.in_service == 1 && of.queued == 1).await;
    for call in second {
        assert_eq!(call.await.expect("no panic"), Code::Ok);
    }
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn those_whose_time_runs_out_in_the_queue_are_never_served() {
    let suite = Suite::start().await;
    suite.capacity(Dependency::Profile, 1, 20).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(800)).await;
    let at = suite.home();
    let first = spawn(async move { talk::call(at, GET_HOME, &patient(&[]), &[]).await.code() });
    suite.until(Dependency::Profile, "the server is taken", |of| of.in_service == 1).await;
    let late: Vec<_> = (0..5)
        .map(|number| {
            let id = format!("queued-{number}");
            spawn(async move {
                let head = customer(&[(headers::GRPC_TIMEOUT, "250m"), (headers::REQUEST_ID, &id)]);
                talk::call(at, GET_HOME, &head, &[]).await.code()
            })
        })
        .collect();
    for call in late {
        assert_eq!(call.await.expect("no panic"), Code::DeadlineExceeded);
    }
    suite
        .until(Dependency::Profile, "the queue is empty before the server is free", |of| {
            of.queued == 0 && of.in_service == 1
        })
        .await;
    assert_eq!(first.await.expect("no panic"), Code::Ok);
    suite.clear_faults().await;
    // The server did nothing for them, and is there for the next.
    suite.both(&patient(&[])).await.served();
    for number in 0..5 {
        for entry in suite.journal(&format!("queued-{number}")).await {
            assert!(["deadline", "cancelled"].contains(&entry.outcome.as_str()), "{entry:?}");
            assert!(entry.service_us == 0 && entry.queue_wait_us > 100_000, "{entry:?}");
        }
    }
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn phases_change_latency_and_reset_returns_to_the_first() {
    let suite = Suite::start().await;
    let set = async |phase: &str| {
        let message = SetPhaseRequest { phase: phase.to_owned() };
        suite.control().set_phase(bounded(message)).await.map(|answer| answer.into_inner().previous_phase)
    };
    let served_us = async |id: &str| {
        assert_eq!(suite.call(&patient(&[(headers::REQUEST_ID, id)])).await.code(), Code::Ok);
        let entries = suite.journal(id).await;
        entries.iter().find(|entry| entry.dependency == "profile").expect("asked").service_us
    };
    assert!(served_us("steady").await < SLOW_PROFILE_MS * 1_000);
    assert_eq!(set("slow").await.expect("a phase"), "steady");
    assert!(served_us("slow").await >= SLOW_PROFILE_MS * 1_000);
    assert_eq!(set("nowhere").await.expect_err("no such phase").code(), Code::InvalidArgument);

    suite.fault(Dependency::Pricing, Effect::Refuse(true)).await;
    suite.capacity(Dependency::Profile, 2, 0).await;
    assert_eq!(suite.call(&patient(&[])).await.code(), Code::Unavailable);
    suite.until_idle().await;
    suite.control().reset(bounded(ResetRequest {})).await.expect("reset");
    let stats = suite.control().get_stats(bounded(GetStatsRequest {})).await.expect("stats").into_inner();
    assert_eq!((stats.phase.as_str(), stats.seed), ("steady", SEED));
    for of in &stats.dependencies {
        let counts = [of.calls, of.ok, of.faulted, of.overloaded, of.cancelled, of.expired];
        assert_eq!(counts, [0; 6], "{of:?}");
        assert_eq!(
            (of.in_service, of.queued, of.peak_in_service, of.servers),
            (0, 0, 0, QUICK_SERVERS),
            "{of:?}"
        );
    }
    assert!(suite.journal("").await.is_empty());
    let cleared = suite.control().clear_faults(bounded(ClearFaultsRequest { fault_id: 0 })).await;
    assert_eq!(cleared.expect("cleared").into_inner().cleared, 0, "no rule outlived the reset");
    assert!(served_us("after").await < SLOW_PROFILE_MS * 1_000);
    suite.finish().await;
}

#[tokio::test]
async fn rules_apply_in_order_by_share_and_for_their_time() {
    let suite = Suite::start().await;
    let inject = async |rule: FaultRule| {
        let message = InjectFaultRequest { rule: Some(rule) };
        suite.control().inject_fault(bounded(message)).await.map(|answer| answer.into_inner().fault_id)
    };
    let pricing = FaultRule {
        dependency: "pricing".to_owned(),
        share_ppm: 1_000_000,
        effect: Some(Effect::StatusCode(14)),
        ..FaultRule::default()
    };
    // The first match wins, and the next one does when it is cleared.
    let first = inject(pricing.clone()).await.expect("a rule");
    let second =
        inject(FaultRule { effect: Some(Effect::StatusCode(13)), ..pricing.clone() }).await.expect("a rule");
    assert!(second != first);
    assert_eq!(suite.call(&patient(&[])).await.code(), Code::Unavailable);
    for (rule, then) in [(first, Code::Internal), (second, Code::Ok)] {
        let cleared = suite.control().clear_faults(bounded(ClearFaultsRequest { fault_id: rule })).await;
        assert_eq!(cleared.expect("cleared").into_inner().cleared, 1);
        assert_eq!(suite.call(&patient(&[])).await.code(), then);
    }
    // A share is the same operations in every run.
    inject(FaultRule { share_ppm: 500_000, ..pricing.clone() }).await.expect("a rule");
    let hit = async || {
        let mut hit = Vec::new();
        for number in 0..40 {
            let id = format!("share-{number}");
            hit.push(suite.call(&patient(&[(headers::REQUEST_ID, &id)])).await.code() != Code::Ok);
        }
        hit
    };
    let (one, two) = (hit().await, hit().await);
    assert_eq!(one, two);
    let hits = one.iter().filter(|hit| **hit).count();
    assert!((8..=32).contains(&hits), "of 40 at one half: {hits}"); // Beyond four deviations either way.
    suite.clear_faults().await;

    // A rule ends by itself, and what hung because of it with it.
    inject(FaultRule { duration_ms: 250, effect: Some(Effect::Hang(true)), ..pricing.clone() })
        .await
        .expect("a rule");
    let began = now();
    assert_eq!(suite.call(&patient(&[])).await.code(), Code::Unavailable);
    let took = now() - began;
    assert!(took >= Nanos::from_millis(200) && took < Nanos::from_millis(1_500), "{took}");
    assert_eq!(suite.call(&patient(&[])).await.code(), Code::Ok);

    for bad in [
        FaultRule { dependency: "price".to_owned(), ..pricing.clone() },
        FaultRule { share_ppm: 0, ..pricing.clone() },
        FaultRule { share_ppm: 1_000_001, ..pricing.clone() },
        FaultRule { workload_class: "gold".to_owned(), ..pricing.clone() },
        FaultRule { effect: None, ..pricing.clone() },
        FaultRule { effect: Some(Effect::StatusCode(0)), ..pricing.clone() },
        FaultRule { effect: Some(Effect::StatusCode(17)), ..pricing.clone() },
        FaultRule { effect: Some(Effect::DelayMs(0)), ..pricing.clone() },
        FaultRule { effect: Some(Effect::Hang(false)), ..pricing },
    ] {
        let status = inject(bad.clone()).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{bad:?}");
    }
    for (dependency, servers) in [("profile", 0), ("price", 1)] {
        let message = SetCapacityRequest { dependency: dependency.to_owned(), servers, queue_max: 1 };
        let status = suite.control().set_capacity(bounded(message)).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{dependency} {servers}");
    }
    suite.both(&patient(&[])).await.served();
    suite.finish().await;
}

#[tokio::test]
async fn the_journal_is_bounded_and_counts_what_it_lost() {
    const KEPT: u64 = emulator::JOURNAL_MAX as u64;
    const CALLS: u64 = KEPT + 200;
    const AT_ONCE: u64 = 60;
    let suite = Suite::start().await;
    let world = member::world("journal", Arc::new(Supervisor::new()));
    let client = ReviewScoreServiceClient::new(link(&world, suite.at("emulator")));
    for _ in 0..CALLS / AT_ONCE {
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let mut client = client.clone();
                let question =
                    FetchReviewsRequest { tenant: "tenant-001".to_owned(), subject: "user-00001".to_owned() };
                spawn(async move { client.fetch_reviews(identified(question, &[])).await.map(drop) })
            })
            .collect();
        for call in calls {
            call.await.expect("no panic").expect("reviews");
        }
    }
    let message = ListJournalRequest { limit: u32::MAX, ..Default::default() };
    let journal = suite.control().list_journal(bounded(message)).await.expect("a journal").into_inner();
    assert_eq!((journal.entries.len() as u64, journal.dropped), (KEPT, CALLS - KEPT));
    assert_eq!(journal.entries.last().expect("some").sequence, CALLS);
    let newest = ListJournalRequest { limit: 3, ..Default::default() };
    let newest = suite.control().list_journal(bounded(newest)).await.expect("a journal").into_inner().entries;
    assert_eq!(newest, journal.entries[journal.entries.len() - 3..]);
    assert_eq!(suite.stats(Dependency::Reputation).await.calls, CALLS, "counters forget nothing");
    suite.finish().await;
}
