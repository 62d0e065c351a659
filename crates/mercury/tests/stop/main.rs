//! Stop: the real binary, told to stop by real signals or killed at a point, with everything attached that could hold it. What it
//! says by its exit code is what it did.

mod descriptors;
mod member;

use std::time::Duration;

use bytes::Bytes;
use member::{Member, Suite, identified, soon};
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_client::HealthClient};
use wire::experiment::v1::{
    AllocateArmsRequest, AllocateArmsResponse, EffectOutcome,
    experiment_service_client::ExperimentServiceClient,
};

/// Drain bound of the service under test, from its policy.
const DRAIN: Duration = Duration::from_millis(2_000);
/// The whole bound: drain, reconcile and terminate of the shell, the flush of telemetry, and what a busy machine adds.
const BOUND: Duration = Duration::from_millis(2_000 + 250 + 3_000 + 250 + 3_000 + 1_000);

async fn allocate(member: &Member, id: &str) -> Result<AllocateArmsResponse, tonic::Status> {
    let question = AllocateArmsRequest { surface: "home".to_owned() };
    let mut client = ExperimentServiceClient::new(member.link());
    client.allocate_arms(identified(question, id)).await.map(tonic::Response::into_inner)
}

/// A reader that grants one byte, and more when it is told to.
struct Reader {
    body: h2::RecvStream,
    grant: tokio::sync::mpsc::Sender<u32>,
    _requests: h2::client::SendRequest<Bytes>,
}

impl Reader {
    async fn begin(member: &Member) -> Self {
        let stream = TcpStream::connect(&member.main).await.expect("the port is open");
        let mut builder = h2::client::Builder::new();
        let (requests, mut connection) =
            builder.initial_window_size(1).handshake::<_, Bytes>(stream).await.expect("a handshake");
        let (grant, mut granted) = tokio::sync::mpsc::channel::<u32>(1);
        member::outside(async move {
            loop {
                tokio::select! {
                    biased; // A new window first, or it might wait for the connection to do something.
                    Some(bytes) = granted.recv() => connection.set_initial_window_size(bytes).expect("a window"),
                    _ended = &mut connection => return,
                }
            }
        });
        let path = "/mercury.experiment.v1.ExperimentService/AllocateArms";
        let request = http::Request::post(format!("http://{}{path}", member.main))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "5S");
        let request =
            member::IDENTITY.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.header(base::headers::REQUEST_ID, "slow-reader").body(()).expect("a request");
        let mut requests = requests.ready().await.expect("open");
        let (response, mut upload) = requests.send_request(request, false).expect("sent");
        // AllocateArmsRequest { surface: "home" }.
        upload.send_data(Bytes::from_static(b"\0\0\0\0\x06\x0a\x04home"), true).expect("sent");
        let response = soon(response).await.expect("a head");
        assert_eq!(response.status().as_u16(), 200);
        Self { body: response.into_body(), grant, _requests: requests }
    }

    /// Reads on; true when all of it came.
    async fn rest(mut self) -> bool {
        while let Some(data) = soon(self.body.data()).await {
            let Ok(data) = data else { return false };
            let _ = self.body.flow_control().release_capacity(data.len());
        }
        soon(self.body.trailers()).await.is_ok_and(|trailers| trailers.is_some())
    }
}

/// What is attached when the signal comes.
struct Attached {
    idle: TcpStream,
    silent: TcpStream,
    watch: tonic::Streaming<HealthCheckResponse>,
    load: Vec<JoinHandle<Result<AllocateArmsResponse, tonic::Status>>>,
}

/// Calls under way when the signal comes.
const LOAD: usize = 16;

impl Attached {
    async fn to(suite: &Suite, member: &Member) -> Self {
        let mut idle = TcpStream::connect(&member.main).await.expect("the port is open");
        idle.write_all(b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
        let mut head = [0; 12];
        soon(idle.read_exact(&mut head)).await.expect("an answer, and the connection stays open");
        assert_eq!(&head, b"HTTP/1.1 415");
        let silent = TcpStream::connect(&member.main).await.expect("the port is open");
        let request = member::bounded(HealthCheckRequest::default());
        let mut watch = HealthClient::new(member.link()).watch(request).await.expect("a watch").into_inner();
        soon(watch.message()).await.expect("no error").expect("the first one");
        suite.delay_experiment(700).await;
        let load = (0..LOAD).map(|number| {
            let (link, id) = (member.link(), format!("load-{number}"));
            let question = AllocateArmsRequest { surface: "home".to_owned() };
            member::outside(async move {
                let mut client = ExperimentServiceClient::new(link);
                client.allocate_arms(identified(question, &id)).await.map(tonic::Response::into_inner)
            })
        });
        let load = load.collect();
        suite.until_experiment_serves(LOAD).await;
        Self { idle, silent, watch, load }
    }

    async fn ended(mut self) {
        for call in self.load {
            let answer = soon(call).await.expect("no panic").expect("who was admitted is answered");
            assert_eq!(answer.allocations.len(), 3);
        }
        let mut rest = Vec::new();
        soon(self.idle.read_to_end(&mut rest)).await.expect("the idle one is closed");
        assert_eq!(soon(self.silent.read(&mut [0; 1])).await.unwrap_or(0), 0);
        soon(self.watch.message()).await.expect("no error").expect("not serving");
        assert!(soon(self.watch.message()).await.expect("no error").is_none());
    }
}

#[tokio::test]
async fn under_load_with_everything_attached_it_ends_clean_or_says_what_it_cut() {
    for reads in [true, false] {
        let suite = Suite::start().await;
        let mut experiment = suite.experiment(&[]).await;
        let reader = Reader::begin(&experiment).await;
        experiment.until("its answer waits for its reader", |lifecycle| lifecycle["responses"] == 1).await;
        let attached = Attached::to(&suite, &experiment).await;
        let began = member::now();
        experiment.signal(Signal::TERM);
        experiment
            .until("only the reader is waited for", |lifecycle| {
                lifecycle["stage"] == "draining" && lifecycle["exchanges"] == 0
            })
            .await;
        assert_eq!(experiment.readyz().await, 503);
        assert!(TcpStream::connect(&experiment.main).await.is_err(), "nobody is let in after readiness fell");
        attached.ended().await;
        let (code, log) = if reads {
            reader.grant.send(1 << 16).await.expect("the driver runs");
            assert!(reader.rest().await, "all of it came");
            experiment.ended().await
        } else {
            let ended = experiment.ended().await;
            assert!(!reader.rest().await, "it broke off");
            ended
        };
        let took = member::now() - began;
        assert!(took < BOUND, "{took:?}: {log}");
        let expected = if reads { Some(0) } else { Some(3) };
        assert_eq!(code, expected, "{log}");
        if !reads {
            assert!(took >= DRAIN, "{took:?}");
            assert!(log.contains("cut 0 exchanges, 1 readers and 0 tasks"), "{log}");
        }
        for stage in ["quiescing", "closing_producers", "draining", "reconciling", "terminating"] {
            assert!(log.contains(&format!("to=\"{stage}\"")), "{stage} is told: {log}");
        }
    }
}

#[tokio::test]
async fn the_second_signal_does_not_wait_for_the_bound_and_repeated_ones_are_one() {
    let suite = Suite::start().await;
    let mut experiment = suite.experiment(&["--inject", "drain=hold"]).await;
    experiment.signal(Signal::TERM);
    experiment.until("it drains", |lifecycle| lifecycle["stage"] == "draining").await;
    let began = member::now();
    for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
        experiment.signal(signal);
    }
    let (code, log) = experiment.ended().await;
    assert!(member::now() - began < DRAIN, "{log}");
    // Nothing was under way, so nothing had to be cut.
    assert_eq!(code, Some(0), "{log}");
}

/// SIGHUP asks for a look at the policy's file, and ends nobody: not who has none, nor who has it and shuts down.
#[tokio::test]
async fn sighup_reloads_and_ends_nobody() {
    let suite = Suite::start().await;
    let mut experiment = suite.experiment(&[]).await;
    suite.emulator().signal(Signal::HUP);
    suite.write_policy(100);
    experiment.signal(Signal::HUP);
    experiment.until_series("mercury_policy_generation 100").await;
    assert!(allocate(&experiment, "after-hup").await.is_ok(), "the emulator answers as well");
    experiment.signal(Signal::TERM);
    experiment.signal(Signal::HUP);
    assert_eq!(experiment.ended().await.0, Some(0));
}

#[tokio::test]
async fn a_step_that_fails_ends_nothing_and_is_told() {
    let suite = Suite::start().await;
    let mut experiment = suite.experiment(&["--inject", "reconcile=fail"]).await;
    assert!(experiment.metrics().await.contains("mercury_injection_armed{point=\"reconcile\"} 1\n"));
    experiment.signal(Signal::TERM);
    let (code, log) = experiment.ended().await;
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("FAILURES ARE INJECTED") && log.contains("1 steps of it failed"), "{log}");
}

#[tokio::test]
async fn killed_between_commit_and_answer_it_has_recorded_once_and_the_retry_replays() {
    let suite = Suite::start().await;
    let mut experiment = suite.experiment(&["--inject", "after-commit=kill/1,7"]).await;
    let lost = allocate(&experiment, "killed").await.expect_err("nobody is left to answer");
    assert_eq!(lost.code(), Code::Unavailable, "{lost:?}");
    let (code, log) = experiment.ended().await;
    assert_eq!(code, None, "by a signal: {log}");

    let experiment = suite.experiment(&[]).await;
    let answer = allocate(&experiment, "killed").await.expect("answered");
    let outcomes: Vec<_> = answer.allocations.iter().map(|one| one.effect_outcome()).collect();
    assert_eq!(outcomes, [EffectOutcome::Replayed; 3], "the rows were there, once");
    let again = allocate(&experiment, "other").await.expect("answered");
    assert!(again.allocations.iter().all(|one| one.effect_outcome() == EffectOutcome::Committed));
}

#[tokio::test]
async fn what_cannot_be_injected_is_named() {
    let output = member::mercury()
        .args(["serve", "pricing", "--inject", "after-lunch=fail"])
        .output()
        .await
        .expect("started");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("--inject") && text.contains("after-lunch") && text.contains("after-commit"),
        "{text}"
    );
}
