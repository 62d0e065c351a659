//! Serve: `mercury serve`, one process of the suite. Opens its sockets, builds the service on them, and stays until a
//! signal.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use ::emulator::Emulator;
use base::{Nanos, inject::Injection};
use experiment::ledger::{Location, location::LocationError};
use model::{
    policy::{Policy, ServiceName},
    scale::Scale,
};
use runtime::{
    HeaderAuthenticator, Host, Policies, host, link_metrics::Links, policy::Source, process::Process,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use serve::{Limits, Routes, listener, shell::DrainReport, telemetry};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{exit::Exit, world};

/// Descriptors that a process needs beside the connections of its main port: listeners, its own connections, ledger, logs.
const DESCRIPTORS_KEPT: u64 = 128;

/// The emulator drains as fast as it can: what it holds up are its callers.
const EMULATOR_DRAIN: Nanos = Nanos::from_secs(2);

/// What `mercury serve` can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Server {
    /// The ingress: GET /v2/home and its gRPC face.
    HomeApi,
    /// Who the subject is.
    Profile,
    /// What the subject may do.
    Entitlement,
    /// What can be promised.
    Inventory,
    /// What it costs.
    Pricing,
    /// Which arms are shown.
    Experiment,
    /// What the subject may like.
    Recommendation,
    /// How the subject's reviews stand.
    Reputation,
    /// The seven emulated dependencies.
    Emulator,
}

impl Server {
    const fn service(self) -> Option<ServiceName> {
        match self {
            Self::HomeApi => Some(ServiceName::HomeApi),
            Self::Profile => Some(ServiceName::Profile),
            Self::Entitlement => Some(ServiceName::Entitlement),
            Self::Inventory => Some(ServiceName::Inventory),
            Self::Pricing => Some(ServiceName::Pricing),
            Self::Experiment => Some(ServiceName::Experiment),
            Self::Recommendation => Some(ServiceName::Recommendation),
            Self::Reputation => Some(ServiceName::Reputation),
            Self::Emulator => None,
        }
    }

    const fn name(self) -> &'static str {
        match self.service() {
            Some(service) => service.as_str(),
            None => "emulator",
        }
    }

    /// Default port of the main socket (DESIGN section 9).
    const fn port(self) -> u16 {
        if matches!(self, Self::HomeApi) { 8080 } else { 50051 }
    }
}

/// Arguments of `mercury serve`. Each is an environment variable as well, for containers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to serve.
    #[arg(value_enum)]
    server: Server,
    /// Address of the main port [default: 0.0.0.0:50051; home-api: 0.0.0.0:8080].
    #[arg(long, value_name = "IP:PORT", env = "MERCURY_LISTEN")]
    listen: Option<SocketAddr>,
    /// Address of the admin port: /livez, /readyz, /startupz, /metrics, /policy.
    #[arg(long, value_name = "IP:PORT", env = "MERCURY_ADMIN", default_value = "0.0.0.0:9464")]
    admin: SocketAddr,
    /// Address of the emulator's control port.
    #[arg(long, value_name = "IP:PORT", env = "MERCURY_CONTROL", default_value = "0.0.0.0:50052")]
    control: SocketAddr,
    /// The policy [default: the one that this binary ships with]. Taken over anew whenever the file changes, on SIGHUP, and on
    /// POST /policy/reload of the admin port.
    #[arg(long, value_name = "FILE", env = "MERCURY_POLICY")]
    policy: Option<PathBuf>,
    /// Address of the emulated dependencies.
    #[arg(long, value_name = "HOST:PORT", env = "MERCURY_EMULATOR")]
    emulator: Option<String>,
    /// Address of another service; once for each of home-api's seven.
    #[arg(long = "peer", value_name = "NAME=HOST:PORT", env = "MERCURY_PEERS", value_delimiter = ',', value_parser = peer)]
    peers: Vec<(String, String)>,
    /// The exposure ledger of experiment: a file, or a PostgreSQL database that several replicas share. Its password may come
    /// from PGPASSWORD or a password file instead.
    // What is wrong with it is told later: clap would repeat the value, and help the variable's, password included.
    #[arg(
        long,
        value_name = "FILE|postgres://USER@HOST:PORT/DATABASE",
        env = "MERCURY_LEDGER",
        hide_env_values = true,
        default_value = "exposures.sqlite",
        value_parser = ledger
    )]
    ledger: Result<Location, LocationError>,
    /// The key that profile signs entitlement summaries with; taken over anew whenever the file changes.
    #[arg(long, value_name = "FILE", env = "MERCURY_SUMMARY_KEY")]
    summary_key: Option<PathBuf>,
    /// The keys whose entitlement summaries home-api accepts; taken over anew whenever the file changes.
    #[arg(long, value_name = "FILE", env = "MERCURY_SUMMARY_KEYS")]
    summary_keys: Option<PathBuf>,
    /// Where home-api keeps what no summary may go back behind.
    #[arg(long, value_name = "FILE", env = "MERCURY_SUMMARY_MARKS")]
    summary_marks: Option<PathBuf>,
    /// The ledger of decisions whose phase home-api and profile serve; without it the policy says.
    #[arg(long, value_name = "FILE", env = "MERCURY_ROLLOUT_LEDGER")]
    rollout_ledger: Option<PathBuf>,
    /// The emulator's scenario [default: the one that this binary ships with].
    #[arg(long, value_name = "FILE", env = "MERCURY_SCENARIO")]
    scenario: Option<PathBuf>,
    /// Seed of the emulator's data set and draws.
    #[arg(long, value_name = "N", env = "MERCURY_SEED", default_value_t = 1)]
    seed: u64,
    /// Size of the system, as a share of one admission domain: pools, gates and emulated capacity.
    #[arg(long, value_name = "A/B", env = "MERCURY_SCALE", default_value = "1", value_parser = Scale::parse)]
    scale: Scale,
    /// Slow motion: every latency, deadline, reserve and budget times N.
    #[arg(long, value_name = "N", env = "MERCURY_DILATE", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    dilate: u32,
    /// For rehearsals: the calendar of this process is off by so many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0, allow_negative_numbers = true)]
    calendar_offset_ms: i64,
    /// For rehearsals: fail on purpose at a transition, as `POINT=ACTION[@SHARE][/TIMES][,SEED]`, for instance `after-commit=kill` or
    /// before-send=fail@0.25,7. May be given once a point. Points: admitted, await-ready, before-send, partial-write,
    /// after-commit, respond, policy-swap, quiesce, close-producers, drain, reconcile, terminate. Actions: fail, hold, panic, kill.
    #[arg(long, value_name = "WHAT", value_parser = crate::inject::parse)]
    inject: Vec<Injection>,
    /// Write the real addresses to this file once the process is ready.
    #[arg(long, value_name = "FILE")]
    announce: Option<PathBuf>,
    /// Stop when standard input ends, so that no child outlives its launcher.
    #[arg(long)]
    exit_with_stdin: bool,
    /// Log filter, as in RUST_LOG.
    #[arg(long, value_name = "DIRECTIVES", env = "MERCURY_LOG", default_value = "info")]
    log: String,
    /// Log lines for people or for machines.
    #[arg(long, value_enum, env = "MERCURY_LOG_FORMAT", default_value_t = LogFormat::Human)]
    log_format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Human,
    Json,
}

fn peer(text: &str) -> Result<(String, String), String> {
    let (name, address) = text.split_once('=').ok_or("expected NAME=HOST:PORT")?;
    if base::Dependency::parse(name).is_none() {
        return Err(format!("unknown service {name:?}"));
    }
    if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        return Err(format!("{name}: expected HOST:PORT, found {address:?}"));
    }
    Ok((name.to_owned(), address.to_owned()))
}

/// The outer result is clap's, which quotes what it refuses.
fn ledger(text: &str) -> Result<Result<Location, LocationError>, std::convert::Infallible> {
    Ok(Location::parse(text))
}

pub(crate) fn run(args: Args) -> Exit {
    let server = args.server;
    let mut process = Process::new(server.name(), |tasks| world::world(tasks, args.calendar_offset_ms));
    let telemetry = match start_telemetry(&args, &process) {
        Ok(telemetry) => telemetry,
        Err(error) => return Exit::Usage(error.to_string()),
    };
    process.trace(telemetry.tracer());
    crate::inject::arm(&process.world.points, &args.inject);
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let descriptors = raise_descriptors();
    let result = runtime.block_on(serve(args, process, descriptors));
    // Serving has ended and the runtime is gone: whatever the collector does, this returns within its bound.
    // What it has begun on the side, a name that is being resolved for one, is not waited for without bound.
    runtime.shutdown_timeout(serve::shell::TERMINATE_MAX.into());
    if let Err(lost) = telemetry.shutdown(telemetry::SHUTDOWN_MAX) {
        tracing::warn!(%lost, "telemetry");
    }
    match result {
        Ok(report) if report.is_clean() => Exit::Pass,
        Ok(report) => Exit::Cut(format!(
            "{}: after {} the drain cut {} exchanges, {} readers and {} tasks; {} steps of it failed",
            server.name(),
            report.took,
            report.cut_exchanges,
            report.cut_readers,
            report.aborted_tasks,
            report.failed_steps,
        )),
        Err(exit) => exit,
    }
}

fn start_telemetry(
    args: &Args,
    process: &Process,
) -> Result<telemetry::Telemetry, telemetry::TelemetryError> {
    let format = match args.log_format {
        LogFormat::Human => telemetry::LogFormat::Human,
        LogFormat::Json => telemetry::LogFormat::Json,
    };
    let config = telemetry::TelemetryConfig {
        service: args.server.name(),
        instance: format!("{:032x}", process.world.ids.next_u128()),
        log: telemetry::LogConfig { filter: args.log.clone(), format },
        export: telemetry::ExportConfig::from_env(|name| std::env::var(name).ok())?,
    };
    telemetry::init(&config, &process.world, &process.registry)
}

/// Raises the number of descriptors that this process may have to what it may raise it to, and says what it may have then.
fn raise_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, most) {
            Ok(()) => limit = most,
            Err(error) => tracing::warn!(%error, "the limit of descriptors stays as it was"),
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// Whether so many connections, and what a process needs beside them, fit into its descriptors.
fn fits(connections_max: u32, descriptors: u64) -> bool {
    u64::from(connections_max) + DESCRIPTORS_KEPT <= descriptors
}

fn warn_of_descriptors(connections_max: u32, descriptors: u64) {
    if !fits(connections_max, descriptors) {
        tracing::warn!(
            connections_max,
            descriptors,
            "limits.connections_max does not fit into the descriptors that this process may have: raise the hard limit of open \
             files (ulimit -Hn), or lower the bound"
        );
    }
}

async fn serve(args: Args, mut process: Process, descriptors: u64) -> Result<DrainReport, Exit> {
    let signals = serve::shell::Signals::install().map_err(|error| Exit::Error(error.to_string()))?;
    // Taken over from the start and for good, since its default action ends the process; who goes by a policy listens as well.
    let _hangups = signal(SignalKind::hangup()).map_err(|error| Exit::Error(error.to_string()))?;
    let server = args.server;
    let listen = args.listen.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], server.port())));
    let (main, main_at) = bind(listen).await?;
    let (admin, admin_at) = bind(args.admin).await?;
    let mut announced = json!({
        "service": server.name(),
        "admin": admin_at.to_string(),
        "pid": std::process::id(),
    });
    announced[if server == Server::HomeApi { "http" } else { "grpc" }] = main_at.to_string().into();

    let governed = if let Some(service) = server.service() {
        let (policy, text) = policy(args.policy.as_deref())?;
        let (scale, dilate) = (args.scale, args.dilate);
        warn_of_descriptors(policy.limits.connections_max, descriptors);
        let adjust = move |policy: Policy| policy.scaled(scale).dilated(dilate);
        let host = Host {
            service,
            world: process.world.clone(),
            policies: Policies::new(adjust(policy)),
            registry: process.registry.clone(),
            readiness: process.readiness.clone(),
            emulator: args.emulator.clone(),
            peers: args.peers.iter().cloned().collect::<BTreeMap<_, _>>(),
            authenticator: Arc::new(HeaderAuthenticator),
            links: Links::new(&process.registry),
        };
        let (routes, extra) = build(&host, &args).await?;
        process.open_service(&host, main, routes)?;
        // From here on the policy may change; everything that goes by it is there.
        let source = Source { path: args.policy.clone(), adjust: Box::new(adjust) };
        let reloader = runtime::policy::keep(&host, source, text)?;
        let policies = host.policies.clone();
        let shown = runtime::policy::router(policies.clone(), reloader, crate::policy::shown);
        process.open_admin(admin, extra.merge(shown));
        Some(policies)
    } else {
        raise_priority();
        let emulator = emulator(&args, &process)?;
        let (control, control_at) = bind(args.control).await?;
        announced["control"] = control_at.to_string().into();
        // Otherwise the longest deadline cuts slow calls short, in a run that is slow enough.
        let limits = Limits::default().dilated(args.dilate);
        warn_of_descriptors(limits.connections_max, descriptors);
        process.open("emulator", main, emulator.facts_routes(), limits)?;
        process.open("control", control, emulator.control_routes(), Limits::default())?;
        process.open_admin(admin, axum::Router::new());
        None
    };
    let drain = || governed.map_or(EMULATOR_DRAIN, |policies| policies.current().drain);

    if let Some(path) = &args.announce {
        announce(path, &announced)?;
    }
    tracing::info!(listen = %main_at, admin = %admin_at, "ready");
    let stop = Stop::new(signals, args.exit_with_stdin);
    let hasten = stop.clone();
    let report = process.run(stop.first(), hasten.second(), drain).await;
    tracing::info!(
        clean = report.is_clean(),
        took = %report.took,
        cut_exchanges = report.cut_exchanges,
        cut_readers = report.cut_readers,
        aborted_tasks = report.aborted_tasks,
        "stopped"
    );
    Ok(report)
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Exit> {
    let bound = async {
        let listener = listener::bind(address).await?;
        let at = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, at))
    };
    bound.await.map_err(|error| Exit::Error(error.to_string()))
}

/// The given policy, or the shipped one, and its text.
pub(crate) fn policy(path: Option<&Path>) -> Result<(Policy, String), Exit> {
    match path {
        Some(path) => Ok(host::read_policy(path)?),
        None => Ok((Policy::shipped(), model::policy::SHIPPED.1.to_owned())),
    }
}

/// The routes of a service, and what it adds to the admin port.
async fn build(host: &Host, args: &Args) -> Result<(Routes, axum::Router), Exit> {
    let routes = match host.service {
        ServiceName::HomeApi => {
            let files = home_api::Files {
                keys: args.summary_keys.clone(),
                marks: args.summary_marks.clone(),
                ledger: args.rollout_ledger.clone(),
            };
            return Ok(home_api::build(host, &files)?);
        }
        ServiceName::Profile => {
            let (key, ledger) = (args.summary_key.clone(), args.rollout_ledger.clone());
            return Ok(profile::build(host, &profile::Files { key, ledger })?);
        }
        ServiceName::Entitlement => entitlement::build(host)?,
        ServiceName::Inventory => inventory::build(host)?,
        ServiceName::Pricing => pricing::build(host)?,
        ServiceName::Experiment => {
            let ledger = args.ledger.as_ref().map_err(|error| Exit::Usage(error.to_string()))?;
            experiment::build(host, ledger).await?
        }
        ServiceName::Recommendation => recommendation::build(host)?,
        ServiceName::Reputation => reputation::build(host)?,
    };
    Ok((routes, axum::Router::new()))
}

fn emulator(args: &Args, process: &Process) -> Result<Emulator, Exit> {
    let scenario = crate::check::scenario(args.scenario.as_deref())?.dilated(args.dilate);
    Emulator::new(&scenario, args.seed, args.scale, &process.world, &process.registry)
        .map_err(|error| Exit::Error(error.to_string()))
}

/// The emulated dependencies stand for machines of their own: on a crowded one their service times must not stretch
/// because the services are busy. Best effort; an unprivileged process keeps its priority, and the emulator reports its
/// lateness either way.
fn raise_priority() {
    const NICE: i32 = -10;
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "the emulator keeps its priority");
    }
}

/// Written beside its place and moved there, so that a reader sees all of it or nothing.
fn announce(path: &Path, announced: &serde_json::Value) -> Result<(), Exit> {
    let beside = path.with_extension("tmp");
    fs::write(&beside, format!("{announced}\n"))
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| Exit::Error(format!("cannot write {}: {error}", path.display())))
}

/// What tells a process to stop: a signal, or the end of standard input.
#[derive(Clone)]
struct Stop {
    told: tokio::sync::watch::Receiver<u8>,
}

impl Stop {
    fn new(mut signals: serve::shell::Signals, exit_with_stdin: bool) -> Self {
        let (tell, told) = tokio::sync::watch::channel(0_u8);
        if exit_with_stdin {
            let tell = tell.clone();
            // Reading standard input blocks, so it has a thread of its own, which ends with the process.
            std::thread::spawn(move || {
                let mut sink = [0_u8; 64];
                let mut stdin = std::io::stdin().lock();
                while stdin.read(&mut sink).is_ok_and(|count| count > 0) {}
                tell.send_modify(|times| *times = (*times).max(1));
            });
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "waits for signals until the process ends; the drain must not wait for it"
        )]
        tokio::spawn(async move {
            loop {
                signals.next().await;
                tell.send_modify(|times| *times = times.saturating_add(1));
            }
        });
        Self { told }
    }

    async fn first(self) {
        self.reached(1).await;
    }

    async fn second(self) {
        self.reached(2).await;
    }

    async fn reached(mut self, times: u8) {
        if self.told.wait_for(|told| *told >= times).await.is_err() {
            // Nobody is left to tell: wait for ever rather than stop unasked.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn connections_fit_when_there_are_descriptors_for_all_else_as_well() {
        assert!(fits(1_024, 1_024 + DESCRIPTORS_KEPT) && fits(u32::MAX, u64::MAX));
        assert!(!fits(1_024, 1_024));
    }

    #[test]
    fn names_on_the_command_line_are_those_of_the_suite() {
        for server in Server::value_variants() {
            let value = server.to_possible_value().expect("every server can be named");
            assert_eq!(server.name(), value.get_name());
        }
        assert_eq!(Server::value_variants().len(), ServiceName::ALL.len() + 1);
    }

    #[test]
    fn a_peer_names_a_service_and_an_address() {
        assert_eq!(peer("pricing=10.0.0.1:50051"), Ok(("pricing".into(), "10.0.0.1:50051".into())));
        for bad in ["pricing", "price=h:1", "pricing=h", "pricing=:1", "pricing=h:x", "pricing=h:70000"] {
            assert!(peer(bad).is_err(), "{bad}");
        }
    }
}
