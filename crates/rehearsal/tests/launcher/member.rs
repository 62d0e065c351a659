//! Member: this binary as a member of the suite. It listens, announces itself, answers on its ports as the real ones do on
//! the outside, and ends on SIGTERM and when its stdin closes.

use std::{
    collections::BTreeMap, convert::Infallible, fs, io, io::Write as _, net::SocketAddr, pin::Pin,
    process::ExitCode, time::Duration,
};

use base::{Clock, Nanos, clock::MonotonicClock, headers};
use bytes::Bytes;
use futures_util::{
    FutureExt, StreamExt,
    stream::{self, FuturesUnordered},
};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time,
};
use wire::{
    emulator::v1::{DependencyStats, GetStatsResponse, SetPhaseResponse},
    home::v2::{
        Entitlement, ExperimentArm, GetHomeResponse, Inventory, ItemAvailability, Marker, OptionalSections,
        PriceLine, Pricing, Profile,
    },
};

/// The member's main.
pub(crate) async fn serve(arguments: &[String]) -> ExitCode {
    let name = arguments[0].clone();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1).cloned()
    };
    let behaviour = std::env::var("RUST_LOG").unwrap_or_default();
    let told = |what: &str| behaviour == format!("{what}={name}");
    if told("die") {
        eprintln!("{name} was told to die");
        return ExitCode::from(7);
    }
    assert!(arguments.iter().any(|argument| argument == "--exit-with-stdin"));
    let mut terminate = signal(SignalKind::terminate()).expect("a handler");
    let (closed, mut stdin) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(closed);
    });
    let mut bound = BTreeMap::new();
    for flag in ["--listen", "--admin", "--control"] {
        let Some(address) = value(flag) else { continue };
        match TcpListener::bind(&address).await {
            Ok(listener) => bound.insert(flag, listener),
            Err(error) => {
                eprintln!("cannot listen on {address}: {error}");
                return ExitCode::FAILURE;
            }
        };
    }
    // Under the old policy it works on for callers that left, and lets some wait.
    let old = value("--policy").is_some_and(|path| {
        let text = fs::read_to_string(path).expect("the policy is there");
        !text.contains("mode = \"on\"")
    });
    let started = MonotonicClock.now();
    announce(&name, &value("--announce").expect("given"), &bound);
    eprintln!("{name} is ready");
    let admin = &bound["--admin"];
    let main = bound.get("--control").unwrap_or(&bound["--listen"]);
    let mut connections: FuturesUnordered<Pin<Box<dyn Future<Output = bool>>>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Being ended comes before being asked.
            biased;
            _ = terminate.recv(), if !told("deaf") => {
                return if told("cut") { ExitCode::from(3) } else { ExitCode::SUCCESS };
            }
            _ = &mut stdin => return ExitCode::SUCCESS,
            accepted = admin.accept() => {
                let (stream, _) = accepted.expect("accepted");
                connections.push(Box::pin(answer_admin(stream, metrics(MonotonicClock.now() - started, old))));
            }
            accepted = main.accept() => {
                let (stream, _) = accepted.expect("accepted");
                let behaviour = behaviour.clone();
                let service = service_fn(move |request| answer(behaviour.clone(), old, request));
                let server = http2::Builder::new(TokioExecutor::new());
                let served = server.serve_connection(TokioIo::new(stream), service);
                connections.push(Box::pin(served.map(|_| false)));
            }
            Some(metrics) = connections.next(), if !connections.is_empty() => {
                if metrics && told("quit") {
                    eprintln!("asked for metrics, and gone");
                    return ExitCode::from(5);
                }
            }
        }
    }
}

fn announce(name: &str, path: &str, bound: &BTreeMap<&str, TcpListener>) {
    let address = |flag: &str| bound.get(flag).map(|listener| listener.local_addr().expect("bound"));
    let kind = if name == "home-api" { "http" } else { "grpc" };
    let pair = |key: &str, address: Option<SocketAddr>| {
        address.map_or_else(String::new, |address| format!(r#""{key}":"{address}","#))
    };
    let text = format!(
        r#"{{"service":"{name}",{}{}{}"pid":{}}}"#,
        pair(kind, address("--listen")),
        pair("admin", address("--admin")),
        pair("control", address("--control")),
        std::process::id()
    );
    let temporary = format!("{path}.new");
    fs::File::create(&temporary).expect("created").write_all(text.as_bytes()).expect("written");
    fs::rename(temporary, path).expect("renamed");
}

/// Answers one request of HTTP/1; true when it was for metrics. A connection that asks nothing is held.
async fn answer_admin(mut stream: TcpStream, metrics: String) -> bool {
    let mut request = [0; 1_024];
    let length = stream.read(&mut request).await.unwrap_or(0);
    let (status, body) = match &request[..length] {
        asked if asked.starts_with(b"GET /readyz ") => ("200 OK", "ok"),
        asked if asked.starts_with(b"GET /metrics ") => ("200 OK", metrics.as_str()),
        _ => ("404 Not Found", ""),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).await;
    body == metrics
}

/// Counters that rise evenly, so that every window has the same figures: half of the slots held, everybody admitted at
/// once, and under the old policy 40 late operations a second and a queue.
fn metrics(since: Nanos, old: bool) -> String {
    let seconds = since.as_secs_f64();
    let late = if old { 40.0 * seconds } else { 0.0 };
    let mut text = format!(
        "mercury_late_operations_total{{server=\"home\"}} {late}\n\
         mercury_late_seconds_total{{server=\"home\"}} {}\n\
         mercury_home_profile_calls_total {}\n\
         mercury_home_flights_open 0\n\
         mercury_exposures_total{{outcome=\"replayed\"}} 0\n\
         mercury_exposures_total{{outcome=\"conflict\"}} 0\n\
         mercury_cancellation_stop_delay_seconds_bucket{{le=\"0.001\",server=\"home\"}} {seconds}\n\
         mercury_cancellation_stop_delay_seconds_bucket{{le=\"+Inf\",server=\"home\"}} {seconds}\n",
        late * 0.07,
        100.0 * seconds,
    );
    for gate in ["endpoint", "profile"] {
        let at_once = if old { 50.0 * seconds } else { 100.0 * seconds };
        text.push_str(&format!(
            "mercury_home_queue_age_seconds_bucket{{le=\"0.002\",gate=\"{gate}\",class=\"standard\"}} {at_once}\n\
             mercury_home_queue_age_seconds_bucket{{le=\"0.1\",gate=\"{gate}\",class=\"standard\"}} {}\n\
             mercury_home_queue_age_seconds_bucket{{le=\"+Inf\",gate=\"{gate}\",class=\"standard\"}} {}\n\
             mercury_home_permit_seconds_total{{gate=\"{gate}\"}} {}\n\
             mercury_home_slots{{gate=\"{gate}\"}} 100\n\
             mercury_home_limit{{gate=\"{gate}\"}} 80\n\
             mercury_home_held{{gate=\"{gate}\"}} 0\n",
            100.0 * seconds,
            100.0 * seconds,
            50.0 * seconds,
        ));
    }
    text + "# EOF\n"
}

type Frames = Vec<Result<Frame<Bytes>, io::Error>>;
type Body = BoxBody<Bytes, io::Error>;

/// One unary call.
async fn answer(
    behaviour: String,
    old: bool,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    // One page in ten, by the number that ends its id.
    let id = request.headers().get(headers::REQUEST_ID).map(HeaderValue::as_bytes);
    if old && id.is_some_and(|id| id.ends_with(b"7")) {
        time::sleep(Duration::from_millis(450)).await;
    }
    let message = match request.uri().path() {
        "/mercury.home.v2.HomeService/GetHome" => match behaviour.as_str() {
            "unavailable" => None,
            _ => Some(home(request.headers(), behaviour == "wrong").encode_to_vec()),
        },
        "/mercury.emulator.v1.EmulatorControlService/SetPhase" => {
            Some(SetPhaseResponse { previous_phase: "peak".to_owned() }.encode_to_vec())
        }
        "/mercury.emulator.v1.EmulatorControlService/GetStats" => Some(stats(&behaviour).encode_to_vec()),
        _ => None,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(if message.is_some() { "0" } else { "14" }));
    let mut frames: Frames = Vec::new();
    if let Some(message) = message {
        let length = u32::try_from(message.len()).expect("small").to_be_bytes();
        frames.push(Ok(Frame::data([&[0], length.as_slice(), &message].concat().into())));
    }
    frames.push(Ok(Frame::trailers(trailers)));
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(stream::iter(frames))));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn stats(behaviour: &str) -> GetStatsResponse {
    let dependency = DependencyStats { dependency: "profile".to_owned(), calls: 7, ..Default::default() };
    GetStatsResponse {
        dependencies: vec![dependency],
        timer_lateness_p99_us: Some(if behaviour == "late" { 9_000 } else { 1_200 }),
        phase: "peak".to_owned(),
        seed: 1,
    }
}

fn home(asked: &HeaderMap, wrong: bool) -> GetHomeResponse {
    let header =
        |name: &str| asked.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let text = str::to_owned;
    GetHomeResponse {
        core_complete: true,
        profile: Some(Profile {
            tenant: header(headers::TENANT),
            subject: if wrong { text("somebody-else") } else { header(headers::SUBJECT) },
            display_name: text("Ada L."),
            locale: text("en-GB"),
            segment: text("consumer"),
            plan: text("plus"),
        }),
        entitlement: Some(Entitlement {
            authority: text("call"),
            policy_version: 1,
            claims: vec![text("home.view")],
        }),
        inventory: Some(Inventory {
            items: vec![ItemAvailability {
                item_id: text("item-0001"),
                available_units: 1,
                status: text("low_stock"),
            }],
            as_of_unix_ms: 1,
        }),
        pricing: Some(Pricing {
            currency_code: text("EUR"),
            lines: vec![PriceLine {
                item_id: text("item-0001"),
                list_minor_units: 100,
                net_minor_units: 90,
                discount_basis_points: 1_000,
            }],
        }),
        experiments: vec![ExperimentArm {
            experiment_id: text("layout"),
            experiment_version: 1,
            variant: text("a"),
            event_id: text("e"),
            effect: text("committed"),
        }],
        optional: Some(OptionalSections {
            recommendations: Marker::OmittedDisabled.into(),
            reputation: Marker::Empty.into(),
        }),
        recommendations: None,
        reputation: None,
        request_id: header(headers::REQUEST_ID),
        policy_generation: 1,
    }
}
