//! Legacy: what the old design does under the same binary, so that before and after measure what they say they do.

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, headers};

use crate::harness::{
    CUSTOMER, GET_HOME, Options, SLACK, Suite, customer, eventually, now,
    talk::{self, Http2},
};

#[tokio::test]
async fn nothing_ends_a_page_at_its_objective() {
    let suite = Suite::start_with(Options::legacy()).await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(450)).await;
    let began = now();
    let answer = suite.get(&CUSTOMER).await;
    let took = now() - began;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(took >= Nanos::from_millis(450), "{took}");
    assert_eq!(answer.header(headers::MECHANISMS), "", "no mechanism applied");
    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    // It ran past what its caller could use, which is late work even though it was answered.
    let server = [("server", "home-api")];
    assert_eq!(home.sum("mercury_late_operations_total", &server), 1.0);
    assert!(home.sum("mercury_late_seconds_total", &server) > 0.1);
    suite.finish().await;
}

#[tokio::test]
async fn a_branch_has_a_timeout_of_its_own() {
    let suite = Suite::start_with(Options::legacy()).await;
    let id = "independent";
    suite.fault(Dependency::Recommendation, Effect::Hang(true)).await;
    let began = now();
    let page = suite.get(&customer(&[(headers::REQUEST_ID, id)])).await;
    let took = now() - began;
    assert_eq!(page.json()["optional"]["recommendations"], "omitted_timeout", "{page:?}");
    assert!(took >= Nanos::from_millis(400) && took < Nanos::from_millis(400) + SLACK, "{took}");
    suite.until_idle().await;
    for entry in suite.journal(id).await {
        // The hop behind home-api was granted the same, whatever had passed of the page's time.
        let granted = entry.budget_trail_us[1];
        let optional = Dependency::parse(&entry.dependency).expect("a name").is_optional();
        let timeout = if optional { 400_000 } else { 500_000 };
        assert!(granted <= timeout && granted > timeout - 100_000, "{entry:?}");
    }
    suite.finish().await;
}

#[tokio::test]
async fn work_goes_on_after_its_caller_left_and_is_counted_as_late() {
    let suite = Suite::start_with(Options::legacy()).await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(400)).await;
    let connection = Http2::open(suite.home()).await;
    let request = talk::grpc(suite.home(), GET_HOME, &CUSTOMER);
    let (response, mut upload) = connection.stream(request, Some(talk::frame(&[]))).await.expect("a stream");
    suite.until(Dependency::Pricing, "it serves the call", |of| of.in_service == 1).await;
    upload.send_reset(h2::Reason::CANCEL);
    assert!(response.await.is_err());
    suite.until(Dependency::Pricing, "the call is answered all the same", |of| of.ok == 1).await;
    suite.until_idle().await;
    assert_eq!(suite.all_stats().await.iter().map(|of| of.cancelled).sum::<u64>(), 0);
    let server = ("server", "home-api");
    eventually("the work has ended", async || {
        suite.scrape("home-api").await.sum("mercury_late_operations_total", &[server]) == 1.0
    })
    .await;
    let home = suite.scrape("home-api").await;
    assert!(home.sum("mercury_late_seconds_total", &[server]) > 0.2, "{}", home.text());
    let outcome = |name| home.sum("mercury_requests_finished_total", &[server, ("outcome", name)]);
    assert_eq!((outcome("cancelled"), outcome("ok")), (1.0, 0.0));
    assert_eq!(home.sum("mercury_home_held", &[]), 0.0);
    drop(connection);
    suite.finish().await;
}

#[tokio::test]
async fn a_caller_that_waits_for_a_slot_waits_without_bound() {
    let changes = "[admission.endpoint]\nslots = 24\nlimit = 20\n";
    let suite = Suite::start_with(Options::legacy().overlaid(changes)).await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(300)).await;
    let at = suite.home();
    let pages: Vec<_> = (0..60)
        .map(|_| crate::harness::spawn(async move { talk::call(at, GET_HOME, &CUSTOMER, &[]).await.code() }))
        .collect();
    eventually("the others wait", async || {
        let home = suite.scrape("home-api").await;
        home.sum("mercury_home_waiting", &[("gate", "endpoint")]) > 20.0
            && home.sum("mercury_home_held", &[("gate", "endpoint")]) == 24.0
    })
    .await;
    for page in pages {
        assert_eq!(page.await.expect("no panic"), tonic::Code::Ok);
    }
    suite.until_idle().await;
    suite.finish().await;
}
