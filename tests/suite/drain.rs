//! Drain: what a stopping process finishes, what it turns away, and what it never waits for.

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, headers};
use http::StatusCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use crate::harness::{
    CUSTOMER, GET_HOME, Options, SLACK, Suite, bounded, customer, eventually, frames, get_home, now, patient,
    spawn,
    talk::{self, Http1, Http2, soon},
};

/// A watch on the health of a service.
async fn watch(suite: &Suite, service: &str) -> tonic::Streaming<HealthCheckResponse> {
    let request = bounded(HealthCheckRequest { service: service.to_owned() });
    HealthClient::new(suite.link("home-api")).watch(request).await.expect("a watch").into_inner()
}

async fn status(watch: &mut tonic::Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    soon(watch.message()).await.expect("no error").map(|message| message.status())
}

/// Waits until a probe of the member's readiness is answered so.
async fn until_ready_is(suite: &Suite, member: &str, status: u16, state: &str) {
    let admin = suite.members[member].admin;
    eventually(&format!("{member} is {state}"), async || {
        let answer = talk::get(admin, "/readyz").await;
        answer.status == status && answer.json()["state"] == state
    })
    .await;
}

#[tokio::test]
async fn a_drain_finishes_what_was_admitted_and_waits_for_nothing_else() {
    let mut suite = Suite::start().await;
    let home = suite.home();
    // Everything that could hold a drain and must not.
    let mut idle_http1 = Http1::open(home).await;
    assert_eq!(idle_http1.send(get_home(&patient(&[]))).await.status, 200);
    let mut silent = TcpStream::connect(home).await.expect("the port is open");
    let idle_http2 = Http2::open(home).await;
    assert_eq!(idle_http2.call(GET_HOME, &patient(&[]), &[]).await.code(), Code::Ok);
    let mut deaf = frames::Raw::open(home).await;
    let mut known = watch(&suite, "").await;
    assert_eq!(status(&mut known).await, Some(ServingStatus::Serving));
    let mut unknown = watch(&suite, "unknown.Service").await;
    assert_eq!(status(&mut unknown).await, Some(ServingStatus::ServiceUnknown));
    let (ask, asked) = tokio::sync::mpsc::channel(1);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    ask.send(list).await.expect("there is room");
    let mut reflection = ServerReflectionClient::new(suite.link("home-api"))
        .server_reflection_info(bounded(ReceiverStream::new(asked)))
        .await
        .expect("a stream")
        .into_inner();
    assert!(soon(reflection.next()).await.expect("open").is_ok());

    // What was admitted: one request on each face, and one more on the connection that will answer no PING.
    suite.fault(Dependency::Pricing, Effect::DelayMs(1_000)).await;
    let admitted = [
        spawn(async move { talk::http1(home, get_home(&patient(&[]))).await.status }),
        spawn(async move {
            let told = talk::call(home, GET_HOME, &patient(&[]), &[]).await;
            if told.code() == Code::Ok { StatusCode::OK } else { StatusCode::IM_A_TEAPOT }
        }),
    ];
    deaf.call(1, GET_HOME, &patient(&[])).await;
    suite.until(Dependency::Pricing, "all three are under way", |of| of.in_service == 3).await;
    let profiles = suite.stats(Dependency::Profile).await.calls;
    assert_eq!(talk::get(suite.members["home-api"].admin, "/readyz").await.status, 200);

    let told_to_stop = now();
    suite.member("home-api").stop();
    until_ready_is(&suite, "home-api", 503, "quiescing").await;
    let admin = suite.members["home-api"].admin;
    assert_eq!(talk::get(admin, "/livez").await.status, 200, "it is alive, and not to be restarted");
    assert_eq!(talk::get(admin, "/startupz").await.status, 200);
    let draining = suite.scrape("home-api").await;
    assert!(
        draining.sum("mercury_requests_in_flight", &[("server", "home-api")]) >= 3.0,
        "metrics stay readable"
    );

    for mut stream in [known, unknown] {
        assert_eq!(status(&mut stream).await, Some(ServingStatus::NotServing));
        assert_eq!(status(&mut stream).await, None, "and the watch ends");
    }
    assert!(soon(reflection.next()).await.is_none());
    assert_eq!(soon(silent.read(&mut [0; 1])).await.unwrap_or(0), 0, "the silent socket is closed");
    idle_http1.closed().await;
    // Whoever comes now is turned away: new connections, and new streams on a connection that has been told to go.
    eventually("the listener is closed", async || TcpStream::connect(home).await.is_err()).await;
    assert!(idle_http2.stream(talk::grpc(home, GET_HOME, &CUSTOMER), None).await.is_err());
    deaf.until(|frame| frame.kind == frames::GOAWAY).await;
    deaf.call(3, GET_HOME, &patient(&[])).await;
    let turned_away = deaf.until(|frame| frame.stream == 3).await;
    assert!(
        turned_away.kind == frames::RST_STREAM
            || turned_away.kind == frames::HEADERS && turned_away.ends_stream(),
        "{turned_away:?}"
    );
    assert_eq!(suite.stats(Dependency::Pricing).await.in_service, 3, "and those who are in are still in");

    for request in admitted {
        assert_eq!(request.await.expect("no panic"), StatusCode::OK);
    }
    assert!(deaf.until(|frame| frame.stream == 1 && frame.kind == frames::HEADERS).await.payload.len() > 1);
    while let Some(frame) = deaf.next().await {
        assert_ne!(frame.kind, frames::RST_STREAM, "the admitted stream is not cut: {frame:?}");
    }
    let report = suite.member("home-api").report().await;
    assert!(report.is_clean() && !report.escalated, "{report:?}");
    assert_eq!(report.tasks.panicked, 0, "{report:?}");
    assert!(report.took < Nanos::from_millis(1_500) + SLACK, "{report:?}");
    assert!(now() - told_to_stop >= Nanos::from_millis(500), "the admitted requests took their time");
    assert_eq!(
        suite.stats(Dependency::Profile).await.calls,
        profiles,
        "nothing that came later did any work"
    );
    drop(ask);
    suite.clear_faults().await;
    suite.finish_rest().await;
}

#[tokio::test]
async fn a_drain_that_cannot_finish_cuts_and_says_so() {
    let mut suite = Suite::start_with(Options::quick().policy("", "drain_ms", "300")).await;
    suite.fault(Dependency::Inventory, Effect::Hang(true)).await;
    let home = suite.home();
    let hanging = spawn(async move {
        let connection = Http2::open(home).await;
        let request = talk::grpc(home, GET_HOME, &patient(&[]));
        let (response, _upload) = connection.stream(request, Some(talk::frame(&[]))).await.expect("a stream");
        talk::told(response).await
    });
    suite.until(Dependency::Inventory, "it hangs", |of| of.in_service == 1).await;
    suite.member("home-api").stop();
    let report = suite.member("home-api").report().await;
    assert!(!report.is_clean(), "{report:?}");
    assert_eq!((report.cut_exchanges, report.escalated), (1, false), "{report:?}");
    assert!(
        report.took >= Nanos::from_millis(300) && report.took < Nanos::from_millis(700) + SLACK,
        "{report:?}"
    );
    // Cut is not lost: the caller hears of it, and the work below it ends.
    hanging.await.expect("no panic").expect_err("no answer can come");
    suite
        .until(Dependency::Inventory, "the call is gone", |of| of.in_service == 0 && of.cancelled == 1)
        .await;
    suite.clear_faults().await;
    suite.finish_rest().await;
}

/// Health is open to everybody, and so is half a question about it.
#[tokio::test]
async fn a_health_check_that_is_never_asked_in_full_holds_no_drain() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    let options = Options::quick().policy("services.home-api", "timeout_max_ms", "9000").policy(
        "services.home-api",
        "default_timeout_ms",
        "9000",
    );
    let mut suite = Suite::start_with(options).await;
    let home = suite.home();
    let http2 = Http2::open(home).await;
    let (half, _upload) = http2.stream(talk::grpc(home, CHECK, &[]), None).await.expect("a stream");
    let mut http1 = TcpStream::connect(home).await.expect("the port is open");
    let head = format!(
        "POST {CHECK} HTTP/1.1\r\nhost: home\r\ncontent-type: application/grpc\r\nte: trailers\r\n\
         transfer-encoding: chunked\r\n\r\n2\r\n\0\0\r\n"
    );
    http1.write_all(head.as_bytes()).await.expect("written");
    eventually("both wait for the other half", async || {
        suite.scrape("home-api").await.sum("mercury_exchanges_open", &[]) == 2.0
    })
    .await;
    suite.member("home-api").stop();
    let told = talk::told(half).await.expect("an answer");
    assert_eq!(told.code(), Code::Unavailable, "{told:?}");
    let report = suite.member("home-api").report().await;
    assert!(report.is_clean() && report.took < Nanos::from_secs(5), "{report:?}");
    suite.finish_rest().await;
}

#[tokio::test]
async fn a_second_signal_hastens_the_drain() {
    let mut suite = Suite::start().await;
    suite.fault(Dependency::Profile, Effect::Hang(true)).await;
    let home = suite.home();
    let hanging = spawn(async move {
        let connection = Http2::open(home).await;
        let request = talk::grpc(home, GET_HOME, &patient(&[]));
        let (response, _upload) = connection.stream(request, Some(talk::frame(&[]))).await.expect("a stream");
        talk::told(response).await
    });
    suite.until(Dependency::Profile, "it hangs", |of| of.in_service == 1).await;
    suite.member("home-api").stop();
    until_ready_is(&suite, "home-api", 503, "quiescing").await;
    let hastened = now();
    suite.member("home-api").hasten();
    let report = suite.member("home-api").report().await;
    assert!(report.escalated && report.cut_exchanges == 1 && !report.is_clean(), "{report:?}");
    assert!(now() - hastened < Nanos::from_millis(400) + SLACK, "{}", now() - hastened);
    hanging.await.expect("no panic").expect_err("no answer can come");
    suite.until(Dependency::Profile, "the call is gone", |of| of.in_service == 0).await;
    suite.clear_faults().await;
    suite.finish_rest().await;
}

#[tokio::test]
async fn a_service_that_drains_finishes_the_calls_of_ingress() {
    let mut suite = Suite::start().await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(600)).await;
    let home = suite.home();
    let under_way = spawn(async move { talk::call(home, GET_HOME, &patient(&[]), &[]).await });
    suite.until(Dependency::Pricing, "it is under way", |of| of.in_service == 1).await;
    suite.member("pricing").stop();
    until_ready_is(&suite, "pricing", 503, "quiescing").await;
    let told = under_way.await.expect("no panic");
    assert_eq!(told.code(), Code::Ok, "{told:?}");
    let report = suite.member("pricing").report().await;
    assert!(report.is_clean(), "{report:?}");
    // It is gone: what comes later is unavailable, in time.
    let told = suite.call(&customer(&[(headers::GRPC_TIMEOUT, "1S")])).await;
    assert_eq!(told.code(), Code::Unavailable, "{told:?}");
    suite.clear_faults().await;
    suite.finish_rest().await;
}
