//! Coalescing: pages that ask for the same profile at the same time share one read, and nothing else.

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, headers};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::harness::{
    CUSTOMER, Options, Suite, eventually, get_home, spawn,
    talk::{self, Answer},
};

/// Identical reads that are held.
const READERS: usize = 200;

/// Reads may be joined for as long as a test holds them, by as many as it likes.
fn joinable() -> Options {
    Options::sharing().overlaid(
        "[coalescing]\nfreshness_window_ms = 10000\nwaiters_max = 1000\nduration_max_ms = 2000\n\
         [services.home-api]\ntimeout_max_ms = 5000\n",
    )
}

fn reader(suite: &Suite, tenant: &str, timeout: &str) -> JoinHandle<Answer> {
    let at = suite.home();
    let head: Vec<(String, String)> = CUSTOMER
        .iter()
        .map(|(name, value)| {
            ((*name).to_owned(), if *name == headers::TENANT { tenant } else { value }.to_owned())
        })
        .chain([(headers::GRPC_TIMEOUT.to_owned(), timeout.to_owned())])
        .collect();
    spawn(async move {
        let head: Vec<(&str, &str)> =
            head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        talk::http1(at, get_home(&head)).await
    })
}

async fn figure(suite: &Suite, name: &str) -> f64 {
    suite.scrape("home-api").await.sum(name, &[])
}

async fn until_waiting(suite: &Suite, waiters: usize) {
    eventually(&format!("{waiters} wait for a shared read"), async || {
        figure(suite, "mercury_home_flight_waiters").await == waiters as f64
    })
    .await;
}

/// Everything is back: no flight, no slot, no call.
async fn settled(suite: &Suite) {
    suite.until_idle().await;
    eventually("no flight is open and no slot is held", async || {
        let home = suite.scrape("home-api").await;
        home.sum("mercury_home_flights_open", &[]) == 0.0
            && home.sum("mercury_home_flight_waiters", &[]) == 0.0
            && home.sum("mercury_home_held", &[]) == 0.0
    })
    .await;
}

fn name(page: &Value) -> &str {
    page["profile"]["display_name"].as_str().expect("a name")
}

#[tokio::test]
async fn two_hundred_identical_reads_make_one_call() {
    let suite = Suite::start_with(joinable()).await;
    // All of them go on together.
    for dependency in Dependency::ALL {
        suite.capacity(dependency, 512, 512).await;
    }
    suite.fault(Dependency::Profile, Effect::DelayMs(1_500)).await;
    let readers: Vec<_> = (0..READERS).map(|_| reader(&suite, "tenant-007", "5S")).collect();
    until_waiting(&suite, READERS).await;
    suite.until(Dependency::Profile, "the one call is under way", |of| of.in_service == 1).await;
    let mut names = Vec::new();
    for reader in readers {
        let answer = reader.await.expect("no panic");
        assert_eq!(answer.status, 200, "{answer:?}");
        let page = answer.json();
        assert_eq!(
            (&page["core_complete"], &page["profile"]["subject"]),
            (&true.into(), &"user-00042".into())
        );
        names.push(name(&page).to_owned());
    }
    names.dedup();
    assert_eq!(names.len(), 1);
    settled(&suite).await;
    assert_eq!(suite.stats(Dependency::Profile).await.calls, 1, "one call for all");
    let home = suite.scrape("home-api").await;
    assert_eq!(home.sum("mercury_home_profile_calls_total", &[]), 1.0);
    assert_eq!(home.sum("mercury_home_reads_total", &[]), READERS as f64);
    assert_eq!(home.sum("mercury_home_joined_total", &[]), (READERS - 1) as f64);
    // A second one finds nothing of the first: this is no cache.
    suite.clear_faults().await;
    assert_eq!(reader(&suite, "tenant-007", "1S").await.expect("no panic").status, 200);
    assert_eq!(suite.stats(Dependency::Profile).await.calls, 2);
    suite.finish().await;
}

#[tokio::test]
async fn a_leader_that_leaves_fails_nobody() {
    let suite = Suite::start_with(joinable()).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(1_000)).await;
    let leader = reader(&suite, "tenant-007", "5S");
    suite.until(Dependency::Profile, "the leader's call is under way", |of| of.in_service == 1).await;
    let followers: Vec<_> = (0..20).map(|_| reader(&suite, "tenant-007", "5S")).collect();
    until_waiting(&suite, 21).await;
    leader.abort();
    until_waiting(&suite, 20).await;
    for follower in followers {
        assert_eq!(follower.await.expect("no panic").status, 200);
    }
    settled(&suite).await;
    let stats = suite.stats(Dependency::Profile).await;
    assert_eq!((stats.calls, stats.cancelled), (1, 0), "{stats:?}");
    suite.finish().await;
}

#[tokio::test]
async fn the_last_to_leave_ends_the_call() {
    let suite = Suite::start_with(joinable()).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(2_000)).await;
    let readers: Vec<_> = (0..5).map(|_| reader(&suite, "tenant-007", "5S")).collect();
    until_waiting(&suite, 5).await;
    readers.iter().for_each(JoinHandle::abort);
    settled(&suite).await;
    let stats = suite.stats(Dependency::Profile).await;
    assert_eq!((stats.calls, stats.cancelled), (1, 1), "{stats:?}");
    suite.finish().await;
}

#[tokio::test]
async fn a_failing_read_is_no_stampede() {
    let mut suite = Suite::start_with(joinable()).await;
    suite.fault(Dependency::Profile, Effect::Hang(true)).await;
    let readers: Vec<_> = (0..50).map(|_| reader(&suite, "tenant-007", "5S")).collect();
    until_waiting(&suite, 50).await;
    suite.member("profile").kill();
    for reader in readers {
        let answer = reader.await.expect("no panic");
        assert_eq!(
            (answer.status.as_u16(), answer.error("reason").as_str()),
            (503, "dependency_unavailable")
        );
    }
    eventually("no flight is open", async || figure(&suite, "mercury_home_flights_open").await == 0.0).await;
    let home = suite.scrape("home-api").await;
    assert_eq!(home.sum("mercury_home_profile_calls_total", &[]), 1.0, "nobody tried on behalf of fifty");
    assert_eq!(home.sum("mercury_home_flights_total", &[("outcome", "failed")]), 1.0);
    suite.finish_rest().await;
}

#[tokio::test]
async fn tenants_never_share_a_read() {
    let suite = Suite::start_with(joinable()).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(500)).await;
    let readers = ["tenant-007", "tenant-008"].map(|tenant| (tenant, reader(&suite, tenant, "5S")));
    until_waiting(&suite, 2).await;
    assert_eq!(figure(&suite, "mercury_home_flights_open").await, 2.0);
    let mut names = Vec::new();
    for (tenant, reader) in readers {
        let page = reader.await.expect("no panic").json();
        assert_eq!(
            (&page["profile"]["tenant"], &page["profile"]["subject"]),
            (&tenant.into(), &"user-00042".into())
        );
        names.push(name(&page).to_owned());
    }
    settled(&suite).await;
    assert_eq!(suite.stats(Dependency::Profile).await.calls, 2);
    assert_eq!(figure(&suite, "mercury_home_joined_total").await, 0.0);
    suite.finish().await;
}

#[tokio::test]
async fn a_follower_ends_at_its_own_deadline_and_shortens_nobodys() {
    let suite = Suite::start_with(joinable()).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(1_000)).await;
    let leader = reader(&suite, "tenant-007", "5S");
    suite.until(Dependency::Profile, "the leader's call is under way", |of| of.in_service == 1).await;
    let hasty = reader(&suite, "tenant-007", "400m");
    let answer = hasty.await.expect("no panic");
    assert_eq!((answer.status.as_u16(), answer.error("reason").as_str()), (504, "deadline_exceeded"));
    assert_eq!(leader.await.expect("no panic").status, 200);
    settled(&suite).await;
    assert_eq!(suite.stats(Dependency::Profile).await.calls, 1);
    suite.finish().await;
}

#[tokio::test]
async fn in_shadow_every_page_reads_for_itself_and_what_could_be_shared_is_counted() {
    let options = joinable().overlaid("[mechanisms.coalescing]\nmode = \"shadow\"\n");
    let suite = Suite::start_with(options).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(500)).await;
    let readers: Vec<_> = (0..10).map(|_| reader(&suite, "tenant-007", "5S")).collect();
    suite.until(Dependency::Profile, "each page reads", |of| of.in_service == 10).await;
    for reader in readers {
        let answer = reader.await.expect("no panic");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.header(headers::MECHANISMS).contains("coalescing=shadow"), "{answer:?}");
    }
    let home = suite.scrape("home-api").await;
    let decided = |intended| {
        let labels = [("mechanism", "coalescing"), ("intended", intended), ("actual", "call")];
        home.sum("mercury_home_decisions_total", &labels)
    };
    assert_eq!((decided("call"), decided("join")), (1.0, 9.0));
    settled(&suite).await;
    suite.finish().await;
}
