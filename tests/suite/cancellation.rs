//! Cancellation: a caller that leaves takes its work with it, at every depth and however it leaves, and harms nobody else.

use std::sync::Arc;

use ::wire::{
    emulator::v1::fault_rule::Effect,
    home::v2::{GetHomeRequest, home_service_client::HomeServiceClient},
    profile::v1::{GetProfileRequest, profile_service_client::ProfileServiceClient},
};
use base::{Dependency, headers};
use serve::supervisor::Supervisor;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tonic::Code;

use crate::harness::{
    GET_HOME, Suite, eventually, identified, link, member, patient, spawn,
    talk::{self, Http2},
};

/// How a caller leaves.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// It closes its HTTP/1 connection.
    Http1,
    /// It resets its stream of an HTTP/2 connection.
    Reset,
    /// It closes its HTTP/2 connection.
    Http2,
}

#[tokio::test]
async fn a_lost_caller_ends_its_work_in_every_dependency() {
    let suite = Suite::start().await;
    let mut departed = 0.0;
    for dependency in Dependency::ALL {
        suite.fault(dependency, Effect::DelayMs(2_000)).await;
        for leaving in [Leaving::Http1, Leaving::Reset, Leaving::Http2] {
            let id = format!("left-{dependency}-{leaving:?}");
            let before = suite.stats(dependency).await;
            leave(&suite, dependency, leaving, &id).await;
            suite.until_idle().await;
            departed += 1.0;

            let after = suite.stats(dependency).await;
            assert_eq!(after.cancelled, before.cancelled + 1, "{id}: {after:?}");
            let entries = suite.journal(&id).await;
            for entry in &entries {
                let expected = if entry.dependency == dependency.as_str() { "cancelled" } else { "ok" };
                assert_eq!(entry.outcome, expected, "{id}: {entries:?}");
            }
            let ended =
                entries.iter().find(|entry| entry.dependency == dependency.as_str()).expect("it arrived");
            assert!(ended.service_us < 1_900_000, "cut short, not served: {ended:?}");
        }
        suite.clear_faults().await;
    }
    let home = suite.scrape("home-api").await;
    let outcome =
        |name| home.sum("mercury_requests_finished_total", &[("server", "home-api"), ("outcome", name)]);
    assert_eq!((outcome("cancelled"), outcome("ok"), outcome("deadline_exceeded")), (departed, 0.0, 0.0));
    suite.finish().await;
}

/// Asks for the page, waits until the dependency works on it, and leaves.
async fn leave(suite: &Suite, dependency: Dependency, leaving: Leaving, id: &str) {
    let head = patient(&[(headers::REQUEST_ID, id)]);
    let served = || suite.until(dependency, "it serves the call", |of| of.in_service == 1);
    match leaving {
        Leaving::Http1 => {
            let mut stream = TcpStream::connect(suite.home()).await.expect("the port is open");
            let fields: String = head.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let request = format!("GET /v2/home HTTP/1.1\r\nhost: home\r\n{fields}\r\n");
            stream.write_all(request.as_bytes()).await.expect("written");
            served().await;
        }
        Leaving::Reset | Leaving::Http2 => {
            let connection = Http2::open(suite.home()).await;
            let request = talk::grpc(suite.home(), GET_HOME, &head);
            let (response, mut upload) =
                connection.stream(request, Some(talk::frame(&[]))).await.expect("a stream");
            served().await;
            if matches!(leaving, Leaving::Reset) {
                upload.send_reset(h2::Reason::CANCEL);
                assert!(response.await.is_err());
                // The connection itself goes on, and answers.
                let told = connection.call(GET_HOME, &[], &[]).await;
                assert_eq!(told.code(), Code::Unauthenticated);
            } else {
                connection.driver.abort();
            }
        }
    }
}

#[tokio::test]
async fn fifty_departures_in_a_row_leave_every_connection_in_use() {
    let suite = Suite::start().await;
    let own = link(&member::world("departures", Arc::new(Supervisor::new())), suite.home());
    let client = HomeServiceClient::new(own.clone());
    assert!(client.clone().get_home(identified(GetHomeRequest {}, &[])).await.is_ok());
    suite.fault(Dependency::Pricing, Effect::DelayMs(2_000)).await;
    let cancelled = suite.stats(Dependency::Pricing).await.cancelled;
    for number in 1..=50 {
        let mut client = client.clone();
        let call = spawn(async move {
            let _ = client.get_home(identified(GetHomeRequest {}, &[(headers::GRPC_TIMEOUT, "2S")])).await;
        });
        suite.until(Dependency::Pricing, "it serves the call", |of| of.in_service == 1).await;
        call.abort();
        suite.until(Dependency::Pricing, "the call is gone", |of| of.cancelled == cancelled + number).await;
    }
    suite.clear_faults().await;
    let page =
        client.clone().get_home(identified(GetHomeRequest {}, &[])).await.expect("a page").into_inner();
    assert!(page.core_complete);
    suite.until_idle().await;

    let stats = own.stats();
    assert_eq!(
        (stats.connects(), stats.disconnects(), stats.in_flight()),
        (1, 0, 0),
        "one connection for all"
    );
    let home = suite.scrape("home-api").await;
    for dependency in Dependency::ALL {
        let link = format!("link:{dependency}");
        let sum = |name| home.sum(name, &[("link", &link)]);
        assert_eq!(
            (sum("mercury_link_connects_total"), sum("mercury_link_disconnects_total")),
            (1.0, 0.0),
            "{link}"
        );
    }
    assert_eq!(home.sum("mercury_requests_in_flight", &[("server", "home-api")]), 0.0);
    suite.finish().await;
}

/// h2 ends a connection after 1,024 streams that were reset on its side, unless it is told otherwise, and everybody else's
/// calls with it. More departures than that, while one call stays.
#[tokio::test]
async fn a_storm_of_departures_ends_no_other_call_and_no_connection() {
    const DEPARTURES: u64 = 1_300;
    const AT_ONCE: u64 = 50;
    let suite = Suite::start().await;
    let own = link(&member::world("storm", Arc::new(Supervisor::new())), suite.at("profile"));
    let client = ProfileServiceClient::new(own.clone());
    let question = || identified(GetProfileRequest { response_schema: 1 }, &[]);
    client.clone().get_profile(question()).await.expect("a profile");

    suite.fault(Dependency::Profile, Effect::DelayMs(3)).await;
    for _ in 0..DEPARTURES / AT_ONCE {
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let mut client = client.clone();
                let question = question();
                spawn(async move {
                    // Impatience spread over the time that an answer takes, so that resets meet calls in every state.
                    let patience = std::time::Duration::from_micros(200 * (number % 25));
                    let answer = tokio::time::timeout(patience, client.get_profile(question)).await;
                    answer.map(|answer| answer.map(drop).map_err(|status| status.code()))
                })
            })
            .collect();
        let staying = client.clone().get_profile(question()).await;
        staying.expect("a call that nobody cancelled");
        for call in calls {
            let answer = call.await.expect("no panic");
            assert!(
                matches!(answer, Err(_) | Ok(Ok(()))),
                "a call was ended by the departure of another: {answer:?}"
            );
        }
    }
    suite.clear_faults().await;
    client.clone().get_profile(question()).await.expect("a profile");
    let stats = own.stats();
    assert_eq!((stats.connects(), stats.disconnects()), (1, 0), "one connection for all");
    eventually("nothing is under way", async || {
        let profile = suite.scrape("profile").await;
        profile.sum("mercury_requests_in_flight", &[("server", "profile")]) == 0.0
            && profile.sum("mercury_link_in_flight", &[]) == 0.0
    })
    .await;
    let profile = suite.scrape("profile").await;
    let emulator = [("link", "link:emulator")];
    assert_eq!(profile.sum("mercury_link_disconnects_total", &emulator), 0.0);
    let cancelled = [("server", "profile"), ("outcome", "cancelled")];
    assert!(
        profile.sum("mercury_requests_finished_total", &cancelled) > 1_024.0,
        "too few were cut while under way for this test to mean anything: {}",
        profile.sum("mercury_requests_finished_total", &cancelled)
    );
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn the_books_balance_after_departures_at_any_moment() {
    let suite = Suite::start().await;
    let at = suite.home();
    let calls: Vec<_> = (0..120_u64)
        .map(|number| {
            spawn(async move {
                let patience = std::time::Duration::from_micros(400 * (number % 60));
                let head = patient(&[]);
                tokio::time::timeout(patience, talk::call(at, GET_HOME, &head, &[])).await.is_ok()
            })
        })
        .collect();
    let mut answered = 0.0;
    for call in calls {
        answered += f64::from(u8::from(call.await.expect("no panic")));
    }
    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    let server = ("server", "home-api");
    let outcome = |name| home.sum("mercury_requests_finished_total", &[server, ("outcome", name)]);
    let offered = home.sum("mercury_requests_offered_total", &[server]);
    assert_eq!(offered, home.sum("mercury_requests_finished_total", &[server]));
    assert_eq!(offered, outcome("ok") + outcome("cancelled"), "{}", home.text());
    assert!(outcome("ok") >= answered, "{} < {answered}", outcome("ok"));
    eventually("every connection's permit is back", async || {
        suite.scrape("home-api").await.sum("mercury_connections_open", &[server]) == 0.0
    })
    .await;
    suite.finish().await;
}
