//! Recovery: services and dependencies that die and come back, on the address that they had, while home-api stays.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, Reason};
use tonic::Code;

use tokio::net::TcpListener;

use crate::harness::{
    CUSTOMER, GET_HOME, Options, SLACK, Suite, eventually, get_home, now, patient, spawn, talk,
};

/// From the return of a service to correct pages again.
const RECOVERY_MAX: Nanos = Nanos::from_secs(2);

fn section(dependency: Dependency) -> &'static str {
    if dependency == Dependency::Recommendation { "recommendations" } else { "reputation" }
}

/// Asks for the page, one after the other, until told to stop. Returns how many there were, and the first that failed.
fn ask_on(
    at: std::net::SocketAddr,
    stop: &Arc<AtomicBool>,
) -> tokio::task::JoinHandle<(u32, Option<String>)> {
    let stop = Arc::clone(stop);
    spawn(async move {
        let (mut asked, mut failed) = (0, None);
        while !stop.load(Ordering::Relaxed) {
            let answer = talk::http1(at, get_home(&patient(&[]))).await;
            asked += 1;
            if answer.status != 200 || answer.json()["core_complete"] != true {
                failed.get_or_insert_with(|| format!("{answer:?}"));
            }
        }
        (asked, failed)
    })
}

#[tokio::test]
async fn no_page_fails_while_an_optional_service_dies_and_returns() {
    let mut suite = Suite::start().await;
    for dependency in [Dependency::Recommendation, Dependency::Reputation] {
        let section = section(dependency);
        let marker = async |suite: &Suite| {
            let answer = suite.get(&patient(&[])).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()["optional"][section].as_str().expect("a marker").to_owned()
        };
        let healthy = marker(&suite).await;
        assert!(["present", "empty"].contains(&healthy.as_str()), "{healthy}");
        let stop = Arc::new(AtomicBool::new(false));
        let asking = ask_on(suite.home(), &stop);

        suite.member(dependency.as_str()).kill();
        for _ in 0..20 {
            let began = now();
            assert_eq!(marker(&suite).await, "omitted_dependency_error", "{dependency}");
            assert!(
                now() - began < Nanos::from_secs(1),
                "told at once, not at the deadline: {}",
                now() - began
            );
        }
        suite.restart(dependency);
        let back = now();
        eventually("the section is back", async || marker(&suite).await == healthy).await;
        assert!(now() - back < RECOVERY_MAX, "{dependency}: {}", now() - back);
        for _ in 0..20 {
            assert_eq!(marker(&suite).await, healthy, "{dependency}: back for good");
        }
        stop.store(true, Ordering::Relaxed);
        let (asked, failed) = asking.await.expect("no panic");
        assert!(asked > 20 && failed.is_none(), "{dependency}: of {asked} pages: {failed:?}");
    }
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn a_mandatory_service_that_dies_makes_pages_unavailable_until_it_returns() {
    let mut suite = Suite::start().await;
    for dependency in Dependency::ALL.into_iter().filter(|of| !of.is_optional()) {
        suite.both(&patient(&[])).await.served();
        // A call that is under way when it happens is told so then, and not at its deadline.
        suite.fault(dependency, Effect::DelayMs(1_500)).await;
        let at = suite.home();
        let under_way = spawn(async move { talk::call(at, GET_HOME, &patient(&[]), &[]).await });
        suite.until(dependency, "the call is under way", |of| of.in_service == 1).await;
        suite.member(dependency.as_str()).kill();
        let killed = now();
        let told = under_way.await.expect("no panic");
        // Experiment may have recorded before it went, and beside another that went.
        let alone = matches!(dependency, Dependency::Profile | Dependency::Entitlement);
        let expected = if dependency == Dependency::Experiment { Code::Unknown } else { Code::Unavailable };
        assert_eq!(told.code(), expected, "{dependency}: {told:?}");
        assert_eq!(told.info("effect"), if alone { "" } else { "ambiguous" }, "{dependency}: {told:?}");
        assert!(now() - killed < Nanos::from_millis(300) + SLACK, "{dependency}: {}", now() - killed);
        suite.clear_faults().await;

        for _ in 0..5 {
            let began = now();
            suite.both(&CUSTOMER).await.refused(Reason::DependencyUnavailable);
            assert!(now() - began < Nanos::from_millis(300) + SLACK, "{dependency}: {}", now() - began);
        }
        suite.restart(dependency);
        let back = now();
        eventually("pages are back", async || suite.get(&patient(&[])).await.status == 200).await;
        assert!(now() - back < RECOVERY_MAX, "{dependency}: {}", now() - back);
        for _ in 0..10 {
            suite.both(&patient(&[])).await.served();
        }
    }
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn an_emulator_that_dies_makes_pages_unavailable_and_returns_with_the_same_facts() {
    let mut suite = Suite::start().await;
    let head = patient(&[("x-request-id", "same")]);
    let mut before = suite.get(&head).await.json();
    suite.member("emulator").kill();
    for _ in 0..5 {
        let began = now();
        suite.both(&CUSTOMER).await.refused(Reason::DependencyUnavailable);
        assert!(now() - began < Nanos::from_millis(300) + SLACK, "{}", now() - began);
    }
    suite.restart_emulator();
    let back = now();
    // All seven links must be back, those of the optional sections as well.
    let mut after = serde_json::Value::Null;
    eventually("pages are whole", async || {
        let answer = suite.get(&head).await;
        after = answer.json();
        answer.status == 200 && after["optional"] == before["optional"]
    })
    .await;
    assert!(now() - back < RECOVERY_MAX, "{}", now() - back);
    for (page, effect) in [(&mut before, "committed"), (&mut after, "replayed")] {
        page["inventory"]["as_of_unix_ms"].take();
        for shown in page["experiments"].as_array_mut().expect("a list") {
            assert_eq!(shown["effect"].take(), effect);
        }
    }
    assert_eq!(before, after, "facts are a function of the seed, and an operation replays");
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn a_peer_that_went_silent_is_given_up_before_the_deadline() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let at = listener.local_addr().expect("an address");
    // It accepts and never says a word, like a host that fell off the network.
    let _accepting = spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    let options = Options::quick()
        .policy("limits", "keep_alive_interval_ms", "300")
        .policy("limits", "keep_alive_timeout_ms", "300")
        .stranger(Dependency::Pricing, at);
    let suite = Suite::start_with(options).await;
    for _ in 0..2 {
        let began = now();
        suite.both(&patient(&[])).await.refused(Reason::DependencyUnavailable);
        assert!(now() - began < Nanos::from_millis(600) + Nanos::from_secs(1), "{}", now() - began);
    }
    let home = suite.scrape("home-api").await;
    assert!(home.sum("mercury_link_disconnects_total", &[("link", "link:pricing")]) >= 1.0);
    suite.until_idle().await;
    suite.finish().await;
}
