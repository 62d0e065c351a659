//! Cancellation: a caller that leaves takes its work with it, at every depth and however it leaves, and harms nobody else.

use std::sync::Arc;

use ::wire::{
    emulator::v1::{FaultRule, InjectFaultRequest, fault_rule::Effect},
    home::v2::{GetHomeRequest, home_service_client::HomeServiceClient},
    profile::v1::{GetProfileRequest, profile_service_client::ProfileServiceClient},
};
use base::{Dependency, headers};
use serve::supervisor::Supervisor;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tonic::Code;

use crate::harness::{
    GET_HOME, Suite, bounded, eventually, identified, link, member, patient, spawn,
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
                // What ran beside it may have ended before the caller left, or have ended with it.
                let whole = entry.dependency != dependency.as_str() && entry.outcome == "ok";
                assert!(whole || entry.outcome == "cancelled", "{id}: {entries:?}");
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
/// calls with it. More departures than that, in every state that a call can be in, while others stay.
#[tokio::test]
async fn a_storm_of_departures_ends_no_other_call_and_no_connection() {
    const AT_ONCE: u32 = 50;
    const HANGING: u32 = 1_100;
    const HASTY: u32 = 400;
    let suite = Suite::start().await;
    let own = link(&member::world("storm", Arc::new(Supervisor::new())), suite.at("profile"));
    let client = ProfileServiceClient::new(own.clone());
    let question = |class| identified(GetProfileRequest { response_schema: 1 }, &[(headers::CLASS, class)]);
    let stays =
        async || client.clone().get_profile(question("premium")).await.expect("nobody cancelled this one");
    stays().await;

    // Those who leave are enterprise. The first ones wait in vain.
    let hang = FaultRule {
        dependency: Dependency::Profile.to_string(),
        workload_class: "enterprise".to_owned(),
        share_ppm: 1_000_000,
        effect: Some(Effect::Hang(true)),
        ..FaultRule::default()
    };
    suite.control().inject_fault(bounded(InjectFaultRequest { rule: Some(hang) })).await.expect("a fault");
    for round in 1..=HANGING / AT_ONCE {
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (mut client, question) = (client.clone(), question("enterprise"));
                spawn(async move { client.get_profile(question).await.map(drop) })
            })
            .collect();
        suite.until(Dependency::Profile, "all hang", |of| of.in_service == AT_ONCE).await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        stays().await;
        let gone = u64::from(round * AT_ONCE);
        suite.until(Dependency::Profile, "all are gone", |of| of.cancelled == gone).await;
    }
    suite.clear_faults().await;

    // The others leave about when their answer comes.
    for _ in 0..HASTY / AT_ONCE {
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let (mut client, question) = (client.clone(), question("enterprise"));
                let patience = std::time::Duration::from_micros(u64::from(100 * number));
                spawn(async move { tokio::time::timeout(patience, client.get_profile(question)).await })
            })
            .collect();
        stays().await;
        for call in calls {
            let answer = call.await.expect("no panic");
            assert!(matches!(answer, Err(_) | Ok(Ok(_))), "ended by the departure of another: {answer:?}");
        }
    }
    stays().await;
    let stats = own.stats();
    assert_eq!((stats.connects(), stats.disconnects()), (1, 0), "one connection for all");
    let quiet = [("server", "profile")];
    eventually("nothing is under way", async || {
        let profile = suite.scrape("profile").await;
        profile.sum("mercury_requests_in_flight", &quiet) == 0.0
            && profile.sum("mercury_link_in_flight", &[]) == 0.0
    })
    .await;
    let profile = suite.scrape("profile").await;
    assert_eq!(profile.sum("mercury_link_disconnects_total", &[("link", "link:emulator")]), 0.0);
    let cancelled = [quiet[0], ("outcome", "cancelled")];
    assert!(profile.sum("mercury_requests_finished_total", &cancelled) >= f64::from(HANGING));
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
