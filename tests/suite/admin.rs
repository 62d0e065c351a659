//! Admin: what probes and scrapers are told, before, while and after a process serves, and that its books balance.

use std::sync::Arc;

use base::{Nanos, headers};
use runtime::process::Process;
use serde_json::json;
use serve::supervisor::Supervisor;
use tokio::{net::TcpListener, sync::oneshot};
use tonic::Code;

use crate::harness::{
    CUSTOMER, GET_HOME, Scrape, Suite, customer, eventually, member, patient, spawn,
    talk::{self, Http2},
};

#[tokio::test]
async fn the_three_probes_tell_starting_serving_and_gone_apart() {
    let mut process = Process::new("probed", |tasks: Arc<Supervisor>| member::world("probed", tasks));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let admin = listener.local_addr().expect("an address");
    process.open_admin(listener, axum::Router::new());
    let probe = async |path: &str| {
        let answer = talk::get(admin, path).await;
        (answer.status.as_u16(), answer.json()["state"].clone())
    };
    assert_eq!(probe("/livez").await, (200, json!("live")));
    assert_eq!(probe("/readyz").await, (503, json!("starting")));
    assert_eq!(probe("/startupz").await, (503, json!("starting")));

    let readiness = process.readiness.clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let running =
        spawn(process.run(async { drop(stopped.await) }, std::future::pending(), || Nanos::from_secs(1)));
    eventually("it serves", async || probe("/readyz").await == (200, json!("serving"))).await;
    assert_eq!(probe("/startupz").await, (200, json!("serving")));

    // Not able to serve, for a reason of its own: not ready, and neither dead nor unstarted.
    let ledger = readiness.condition("ledger");
    ledger.fails("full");
    assert_eq!(probe("/readyz").await, (503, json!("not_serving")));
    assert_eq!(talk::get(admin, "/readyz").await.json()["reason"], "ledger: full");
    assert_eq!(probe("/livez").await, (200, json!("live")));
    assert_eq!(probe("/startupz").await.0, 200);
    ledger.holds();
    assert_eq!(probe("/readyz").await.0, 200);
    assert_eq!(talk::get(admin, "/healthz").await.status, 404);

    drop(stop);
    let report = running.await.expect("no panic");
    assert!(report.is_clean(), "{report:?}");
    eventually("the admin port is closed", async || tokio::net::TcpStream::connect(admin).await.is_err())
        .await;
}

#[tokio::test]
async fn what_was_offered_is_the_sum_of_its_outcomes_and_no_label_tells_who_asked() {
    let suite = Suite::start().await;
    let home = suite.home();
    for number in 0..4 {
        let id = format!("books-{number}");
        suite.both(&patient(&[(headers::REQUEST_ID, &id)])).await.served();
    }
    suite.both(&[]).await; // Two without identity.
    suite.both(&customer(&[(headers::GRPC_TIMEOUT, "1m")])).await; // Two without time.
    suite.both(&customer(&[(headers::GRPC_TIMEOUT, "x")])).await; // Two malformed ones.
    suite.both(&customer(&[("x-attempt", "0")])).await; // Two of bad input.
    assert_eq!(talk::get(home, "/nowhere").await.status, 404);
    assert_eq!(talk::call(home, "/no.Such/Method", &[], &[]).await.code(), Code::Unimplemented);
    assert_eq!(talk::get(home, GET_HOME).await.status, 415);
    suite.fault(base::Dependency::Pricing, ::wire::emulator::v1::fault_rule::Effect::StatusCode(14)).await;
    suite.both(&patient(&[])).await; // Two without a price.
    suite.clear_faults().await;
    suite.until_idle().await;

    let scrape = suite.scrape("home-api").await;
    let server = ("server", "home-api");
    let outcome = |name| scrape.sum("mercury_requests_finished_total", &[server, ("outcome", name)]);
    for (name, expected) in [
        ("ok", 8.0),
        ("unauthenticated", 2.0),
        ("deadline_exceeded", 2.0),
        ("malformed_timeout", 2.0),
        ("invalid_input", 2.0),
        ("unknown_method", 2.0),
        ("unsupported_media_type", 1.0),
        ("dependency_unavailable", 2.0),
        ("cancelled", 0.0),
        ("internal", 0.0),
    ] {
        assert_eq!(outcome(name), expected, "{name}");
    }
    assert_eq!(scrape.sum("mercury_requests_offered_total", &[server]), 21.0);
    assert_eq!(scrape.sum("mercury_requests_finished_total", &[server]), 21.0);
    assert_eq!(scrape.sum("mercury_request_duration_seconds_count", &[server]), 21.0);
    assert_eq!(scrape.sum("mercury_home_optional_sections_total", &[("section", "reputation")]), 8.0);

    // The suite's other books agree: each page asked each service once, the pages without a price as well.
    for dependency in base::Dependency::ALL {
        let name = dependency.as_str();
        let service = suite.scrape(name).await;
        let (asked, calls) = (
            service.sum("mercury_requests_offered_total", &[("server", name)]),
            suite.stats(dependency).await.calls,
        );
        if dependency.is_optional() {
            // The failure of pricing ends these branches, now and then before the service has seen the call.
            assert!((8.0..=10.0).contains(&asked) && (8..=10).contains(&calls), "{name}: {asked}, {calls}");
        } else {
            assert_eq!((asked, calls), (10.0, 10), "{name}");
        }
    }
    for name in suite.members.keys() {
        let scrape = suite.scrape(name).await;
        for secret in ["tenant-007", "user-00042", "books-", "127.0.0.1"] {
            assert!(!scrape.text().contains(secret), "{name}: {secret}");
        }
    }
    suite.finish().await;
}

#[tokio::test]
async fn a_trace_is_followed_by_every_hop() {
    let suite = Suite::start().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let other = "0af7651916cd43dd8448eb211c80319c";
    suite.both(&patient(&[(headers::TRACEPARENT, &parent)])).await.served();
    for malformed in [
        format!("00-{other}-b7ad6b7169203331"),
        format!("00-{}-b7ad6b7169203331-01", other.to_uppercase()),
        format!("ff-{other}-b7ad6b7169203331-01"),
        format!("00-{other}-0000000000000000-01"),
        format!("00-{other}-b7ad6b7169203331-01-x"),
        "nonsense".to_owned(),
    ] {
        suite.both(&patient(&[(headers::TRACEPARENT, &malformed)])).await.served();
    }
    // Sampled traces leave their id as an exemplar wherever they came by.
    for name in suite.members.keys() {
        let text = suite.scrape(name).await;
        assert!(text.text().contains(&format!("trace_id=\"{trace}\"")), "{name}:\n{}", text.text());
        assert!(!text.text().to_lowercase().contains(other), "{name}: a malformed parent is none");
    }
    suite.finish().await;
}

#[tokio::test]
async fn the_admin_port_answers_while_the_service_is_busy_and_speaks_only_what_it_should() {
    let suite = Suite::start().await;
    let admin = suite.members["home-api"].admin;
    let connection = Http2::open(suite.home()).await;
    suite.fault(base::Dependency::Profile, ::wire::emulator::v1::fault_rule::Effect::Hang(true)).await;
    let mut held = Vec::new();
    for _ in 0..32 {
        let request = talk::grpc(suite.home(), GET_HOME, &patient(&[]));
        held.push(connection.stream(request, Some(talk::frame(&[]))).await.expect("a stream"));
    }
    suite.until(base::Dependency::Profile, "all are under way", |of| of.in_service == 32).await;
    for path in ["/livez", "/readyz", "/startupz"] {
        assert_eq!(talk::get(admin, path).await.status, 200, "{path}");
    }
    let scrape = Scrape::of(admin).await;
    assert_eq!(scrape.sum("mercury_requests_in_flight", &[("server", "home-api")]), 32.0);
    assert_eq!(scrape.sum("mercury_link_in_flight", &[("link", "link:profile")]), 32.0);
    assert_eq!(scrape.sum("mercury_link_in_flight_peak", &[("link", "link:profile")]), 32.0);
    // The admin port is no second way in.
    assert_eq!(talk::call(admin, GET_HOME, &CUSTOMER, &[]).await.code(), Code::Unimplemented);
    assert_eq!(talk::get(admin, "/v2/home").await.status, 404);
    assert_eq!(talk::get(suite.home(), "/metrics").await.status, 404);

    drop(held);
    suite.until_idle().await;
    suite.finish().await;
}
