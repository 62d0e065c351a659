//! Shutdown: told to stop under load, with everything attached that could hold a process, and with readers that take their time
//! or take nothing.

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, headers};
use bytes::Bytes;
use http::StatusCode;
use serve::{lifecycle::Stage, shell};
use tokio::{io::AsyncReadExt as _, net::TcpStream, sync::mpsc};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::harness::{
    GET_HOME, Options, SLACK, Suite, bounded, customer, eventually, get_home, now, patient, spawn,
    talk::{self, Http1, soon},
};

const SERVER: (&str, &str) = ("server", "home-api");

/// A reader over HTTP/2 that grants so many bytes at first, and later what it is told to.
struct Reader {
    response: h2::client::ResponseFuture,
    window: mpsc::Sender<u32>,
    sender: h2::client::SendRequest<Bytes>,
}

impl Reader {
    /// Asks for the page.
    async fn ask(suite: &Suite, window: u32, id: &str) -> Self {
        let stream = TcpStream::connect(suite.home()).await.expect("the port is open");
        let mut builder = h2::client::Builder::new();
        let (sender, mut connection) =
            builder.initial_window_size(window).handshake::<_, Bytes>(stream).await.expect("a handshake");
        let (window, mut granted) = mpsc::channel::<u32>(1);
        spawn(async move {
            loop {
                tokio::select! {
                    biased; // A new window first, or it might wait for the connection to do something.
                    Some(bytes) = granted.recv() => connection.set_initial_window_size(bytes).expect("a window"),
                    ended = &mut connection => return ended,
                }
            }
        });
        let head = customer(&[(headers::REQUEST_ID, id), (headers::GRPC_TIMEOUT, "9S")]);
        let request = talk::grpc(suite.home(), GET_HOME, &head).body(()).expect("a request");
        let mut sender = sender.ready().await.expect("open");
        let (response, mut upload) = sender.send_request(request, false).expect("sent");
        upload.send_data(talk::frame(&[]), true).expect("sent");
        Self { response, window, sender }
    }

    /// Waits for the head alone.
    async fn begin(self) -> (h2::RecvStream, mpsc::Sender<u32>, h2::client::SendRequest<Bytes>) {
        let response = soon(self.response).await.expect("a head");
        assert_eq!(response.status(), StatusCode::OK);
        (response.into_body(), self.window, self.sender)
    }
}

/// The bytes of a body until it ends or breaks off.
async fn rest(body: h2::RecvStream) -> Result<usize, h2::Error> {
    take(body, true).await
}

/// As [`rest`]; a reader that does not give its window back takes no more than that.
async fn take(mut body: h2::RecvStream, gives_back: bool) -> Result<usize, h2::Error> {
    let mut count = 0;
    while let Some(data) = soon(body.data()).await {
        let data = data?;
        count += data.len();
        if gives_back {
            body.flow_control().release_capacity(data.len())?;
        }
    }
    soon(body.trailers()).await?;
    Ok(count)
}

async fn open(suite: &Suite, series: &str) -> f64 {
    suite.scrape("home-api").await.sum(series, &[SERVER])
}

/// The drain's bound in these tests.
const DRAIN: Nanos = Nanos::from_millis(1_500);

fn options() -> Options {
    Options::quick()
        .policy("limits", "write_stall_timeout_ms", "60000")
        .policy("", "drain_ms", "1500")
        .policy("services.home-api", "timeout_max_ms", "10000")
}

/// Everything that could hold a drain and must not, and a load that is under way.
struct Attached {
    idle: Http1,
    silent: TcpStream,
    watch: tonic::Streaming<tonic_health::pb::HealthCheckResponse>,
    load: Vec<tokio::task::JoinHandle<StatusCode>>,
}

impl Attached {
    async fn to(suite: &Suite) -> Self {
        let mut idle = Http1::open(suite.home()).await;
        assert_eq!(idle.send(get_home(&patient(&[]))).await.status, StatusCode::OK);
        let silent = TcpStream::connect(suite.home()).await.expect("the port is open");
        let request = bounded(HealthCheckRequest::default());
        let watch = HealthClient::new(suite.link("home-api")).watch(request).await.expect("a watch");
        let mut watch = watch.into_inner();
        soon(watch.message()).await.expect("no error").expect("the first one");
        suite.fault(Dependency::Pricing, Effect::DelayMs(500)).await;
        let home = suite.home();
        let load = (0..20)
            .map(|number| {
                let id = format!("load-{number}");
                spawn(async move {
                    talk::http1(home, get_home(&patient(&[(headers::REQUEST_ID, &id)]))).await.status
                })
            })
            .collect();
        suite.until(Dependency::Pricing, "the load is under way", |of| of.in_service >= 20).await;
        Self { idle, silent, watch, load }
    }

    /// They are let go of, and who was admitted is answered.
    async fn ended(mut self) {
        self.idle.closed().await;
        assert_eq!(soon(self.silent.read(&mut [0; 1])).await.unwrap_or(0), 0);
        soon(self.watch.message()).await.expect("no error").expect("not serving");
        assert!(soon(self.watch.message()).await.expect("no error").is_none());
        for page in self.load {
            assert_eq!(page.await.expect("no panic"), StatusCode::OK);
        }
    }
}

#[tokio::test]
async fn a_reader_that_takes_its_time_is_waited_for_and_the_drain_is_clean() {
    // As long as it takes: nothing here is about the bound.
    let mut suite = Suite::start_with(options().policy("", "drain_ms", "30000")).await;
    // The whole body is handed over with the first byte of window, and the rest of it waits in this process.
    let (body, window, _sender) = Reader::ask(&suite, 1, "slow").await.begin().await;
    eventually("its bytes wait", async || open(&suite, "mercury_response_bytes_waiting").await > 0.0).await;
    let attached = Attached::to(&suite).await;
    suite.member("home-api").stop();
    eventually("the load is answered, and the reader is waited for", async || {
        let lifecycle = talk::get(suite.members["home-api"].admin, "/lifecycle").await.json();
        lifecycle["stage"] == "draining" && lifecycle["exchanges"] == 0 && lifecycle["responses"] == 1
    })
    .await;
    let accepted = open(&suite, "mercury_connections_accepted_total").await;
    assert!(TcpStream::connect(suite.home()).await.is_err(), "nobody is let in");
    attached.ended().await;
    assert_eq!(open(&suite, "mercury_connections_accepted_total").await, accepted);
    window.send(1 << 16).await.expect("the driver runs");
    let read = rest(body).await.expect("all of it comes");
    assert!(read > 100, "{read}");
    let report = suite.member("home-api").report().await;
    assert!(report.is_clean() && !report.escalated, "{report:?}");
    assert_eq!((report.cut_exchanges, report.cut_readers), (0, 0));
    let phases = [Stage::Quiescing, Stage::Closing, Stage::Draining, Stage::Reconciling];
    let spent = phases.map(|stage| report.spent[stage.index()]);
    assert!(spent.iter().copied().fold(Nanos::ZERO, |a, b| a + b) <= report.took, "{report:?}");
    suite.clear_faults().await;
    suite.finish_rest().await;
}

#[tokio::test]
async fn readers_that_take_nothing_are_cut_at_the_bound_and_counted() {
    let mut suite = Suite::start_with(options()).await;
    // One who grants nothing at all, and one who has granted a byte of what waits in this process.
    let (never, _window, _sender) = Reader::ask(&suite, 0, "never").await.begin().await;
    let (stuck, _window, _sender) = Reader::ask(&suite, 1, "stuck").await.begin().await;
    eventually("their answers wait", async || open(&suite, "mercury_responses_open").await == 2.0).await;
    let attached = Attached::to(&suite).await;
    let told_to_stop = now();
    suite.member("home-api").stop();
    attached.ended().await;
    let report = suite.member("home-api").report().await;
    assert_eq!((report.cut_exchanges, report.cut_readers), (0, 2), "{report:?}");
    assert!(!report.is_clean() && !report.escalated, "{report:?}");
    let bound = DRAIN + shell::RECONCILE_MAX + shell::TERMINATE_MAX;
    assert!(report.took >= DRAIN && report.took < bound, "{report:?}");
    assert!(now() - told_to_stop < bound + SLACK, "and the process is gone");
    for body in [never, stuck] {
        rest(body).await.expect_err("cut");
    }
    assert_eq!(report.tasks.live(), 0, "{report:?}");
    suite.clear_faults().await;
    suite.finish_rest().await;
}

#[tokio::test]
async fn a_reader_that_takes_nothing_loses_its_connection_at_the_stall_bound() {
    let suite = Suite::start_with(Options::quick().policy("limits", "write_stall_timeout_ms", "300")).await;
    let began = now();
    let (stuck, _window, _sender) = Reader::ask(&suite, 1, "stuck").await.begin().await;
    take(stuck, false).await.expect_err("cut");
    let took = now() - began;
    assert!(took >= Nanos::from_millis(290) && took < Nanos::from_millis(300) + SLACK, "{took}");
    eventually("nothing of it is left", async || {
        let home = suite.scrape("home-api").await;
        ["mercury_responses_open", "mercury_response_bytes_waiting", "mercury_connections_open"]
            .iter()
            .all(|series| home.sum(series, &[SERVER]) == 0.0)
    })
    .await;
    assert_eq!(open(&suite, "mercury_readers_cut_total").await, 1.0);
    assert_eq!(suite.get(&patient(&[])).await.status, StatusCode::OK);
    suite.finish().await;
}

#[tokio::test]
async fn a_process_takes_as_many_requests_as_its_bound_and_refuses_the_next_at_once() {
    // The least that the slots and the queue of the endpoint leave room for.
    let suite = Suite::start_with(Options::quick().policy("limits", "requests_max", "740")).await;
    suite.capacity(Dependency::Pricing, 2_000, 0).await;
    suite.fault(Dependency::Pricing, Effect::Hang(true)).await;
    let client =
        ::wire::pricing::v1::pricing_service_client::PricingServiceClient::new(suite.link("pricing"));
    let calls: Vec<_> = (0..745)
        .map(|_| {
            let mut client = client.clone();
            let request = crate::harness::identified(
                ::wire::pricing::v1::GetPricesRequest {
                    item_ids: vec!["item-0001".to_owned()],
                    currency_code: "EUR".to_owned(),
                    ..Default::default()
                },
                &[],
            );
            spawn(async move { client.get_prices(request).await.map(drop) })
        })
        .collect();
    let overload = [("server", "pricing"), ("outcome", "overload")];
    let overloaded = async || suite.scrape("pricing").await.sum("mercury_requests_finished_total", &overload);
    eventually("all have come, and five too many", async || overloaded().await == 5.0).await;
    suite.clear_faults().await;
    let mut refused = 0;
    for call in calls {
        if let Err(status) = call.await.expect("no panic") {
            assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
            refused += 1;
        }
    }
    assert_eq!(refused, 5);
    assert_eq!(overloaded().await, 5.0);
    assert_eq!(suite.scrape("pricing").await.sum("mercury_exchanges_open", &[]), 0.0);
    suite.finish().await;
}
