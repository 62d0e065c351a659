//! Emulate: `mercury emulator`, the emulated dependencies from the outside. Draws without a server, and the control port
//! of one that runs.

mod revoking;

use std::{path::PathBuf, sync::Arc};

use base::{Deadline, Dependency, Nanos, WorkloadClass, World};
use serve::supervisor::Supervisor;
use stack::{CallBudget, Link, LinkConfig};
use tonic::{Request, Response, Status};
use wire::emulator::v1::{
    ClearFaultsRequest, FaultRule, GetStatsRequest, GetStatsResponse, InjectFaultRequest, JournalEntry,
    ListJournalRequest, ListJournalResponse, ResetRequest, SetCapacityRequest, SetPhaseRequest,
    emulator_control_service_client::EmulatorControlServiceClient, fault_rule::Effect,
};

use crate::{
    check,
    duration::{self, Span},
    endpoints,
    exit::{self, Exit},
    load::Output,
    world,
};

/// Bound of one call to the control port.
const CALL_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Subcommands of `mercury emulator`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print a digest over the draws of many calls: the same in any order and process, another for another seed.
    Digest {
        /// Seed of the draws.
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// Calls that are drawn.
        #[arg(long, value_name = "M", default_value_t = 100_000)]
        calls: u64,
        /// Draw them in reversed order.
        #[arg(long)]
        reverse: bool,
        /// The scenario [default: the shipped one].
        #[arg(long, value_name = "FILE")]
        scenario: Option<PathBuf>,
    },
    /// Switch to a phase of the loaded scenario.
    Scenario {
        #[command(flatten)]
        at: At,
        /// The phase: peak, slowdown, recovery, or another that the scenario declares.
        #[arg(long, value_name = "NAME")]
        phase: String,
    },
    /// Inject a fault, or clear faults.
    #[command(subcommand)]
    Fault(Fault),
    /// Change the capacity of a dependency while it runs.
    Capacity {
        #[command(flatten)]
        at: At,
        /// The dependency.
        #[arg(long, value_parser = dependency)]
        dependency: Dependency,
        /// Calls served at once.
        #[arg(long, value_name = "N")]
        servers: u32,
        /// Calls that may wait.
        #[arg(long, value_name = "N")]
        queue_max: u32,
    },
    /// Print the newest calls to the dependencies, oldest first.
    Journal {
        #[command(flatten)]
        at: At,
        /// At most this many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Only those of this logical operation.
        #[arg(long, value_name = "ID")]
        request_id: Option<String>,
        /// Only those of logical operations whose id begins so.
        #[arg(long, value_name = "TEXT")]
        request_id_prefix: Option<String>,
        /// Only those to this dependency.
        #[arg(long, value_parser = dependency)]
        dependency: Option<Dependency>,
        /// How they are printed.
        #[arg(long, value_enum, default_value_t = Output::Human)]
        output: Output,
    },
    /// Print the counters of the dependencies.
    Stats {
        #[command(flatten)]
        at: At,
    },
    /// Take claims away from a subject, in every store at once.
    Revoke(revoking::RevokeArgs),
    /// Change what becomes of the feed of revocations.
    Feed {
        #[command(flatten)]
        at: At,
        /// What becomes of it.
        #[arg(value_enum)]
        state: revoking::Feed,
    },
    /// Change how the profile store's copy of the policies differs from the policy store.
    PolicyCopy {
        #[command(flatten)]
        at: At,
        /// How it differs.
        #[arg(value_enum)]
        copy: revoking::Copied,
        /// Share of the subjects that it concerns, in percent.
        #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
        share: f64,
    },
    /// Print a subject's rows as the stores hold them, behind no latency, capacity or fault.
    Subject(revoking::SubjectArgs),
    /// Undo revocations, restore feed and copy, clear faults, journal and counters, and return to the first phase.
    Reset {
        #[command(flatten)]
        at: At,
    },
}

/// Subcommands of `mercury emulator fault`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Fault {
    /// Add a rule; the first one that matches a call applies.
    Add(Box<FaultArgs>),
    /// Remove a rule, or all of them.
    Clear {
        #[command(flatten)]
        at: At,
        /// The rule [default: all].
        #[arg(long, value_name = "ID", default_value_t = 0)]
        id: u64,
    },
}

/// A fault rule on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct FaultArgs {
    #[command(flatten)]
    at: At,
    /// The dependency that misbehaves.
    #[arg(long, value_parser = dependency)]
    dependency: Dependency,
    /// Only calls of this workload class.
    #[arg(long, value_parser = class)]
    class: Option<WorkloadClass>,
    /// Share of the matching calls, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    share: f64,
    /// Until the rule ends by itself [default: never].
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    duration: Option<Span>,
    #[command(flatten)]
    effect: EffectArgs,
}

/// What a fault does; exactly one.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct EffectArgs {
    /// Add this to the service time.
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    delay: Option<Span>,
    /// Answer with this gRPC status code.
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u32).range(1..=16))]
    status: Option<u32>,
    /// Never answer.
    #[arg(long)]
    hang: bool,
    /// Reset the stream after the service time.
    #[arg(long)]
    reset: bool,
    /// Refuse at once.
    #[arg(long)]
    refuse: bool,
    /// Send the head, then wait this long before the message.
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    slow_body: Option<Span>,
}

/// Where the control port is.
#[derive(Debug, clap::Args)]
pub(crate) struct At {
    /// The control port [default: the one in `endpoints.json`, else 127.0.0.1:50052].
    #[arg(long, value_name = "HOST:PORT")]
    control: Option<String>,
    /// Where `mercury up` keeps its endpoints.
    #[arg(long, value_name = "DIR", default_value = ".mercury")]
    state_dir: PathBuf,
}

fn dependency(text: &str) -> Result<Dependency, String> {
    let names = Dependency::ALL.map(Dependency::as_str).join(", ");
    Dependency::parse(text).ok_or_else(|| format!("expected one of {names}"))
}

fn class(text: &str) -> Result<WorkloadClass, String> {
    WorkloadClass::parse(text).ok_or_else(|| "expected standard, premium or enterprise".to_owned())
}

pub(crate) fn run(command: Command) -> Exit {
    exit::of(match command {
        Command::Digest { seed, calls, reverse, scenario } => {
            check::scenario(scenario.as_deref()).map(|scenario| {
                println!("{:016x}", ::emulator::digest(&scenario, seed, calls, reverse));
            })
        }
        Command::Scenario { at, phase } => control(&at, async |mut client| {
            let message = SetPhaseRequest { phase: phase.clone() };
            let previous = told(client.set_phase(bounded(message)).await)?.previous_phase;
            println!("phase {previous} -> {phase}");
            Ok(())
        }),
        Command::Fault(Fault::Add(args)) => add_fault(*args),
        Command::Fault(Fault::Clear { at, id }) => control(&at, async |mut client| {
            let cleared =
                told(client.clear_faults(bounded(ClearFaultsRequest { fault_id: id })).await)?.cleared;
            println!("{cleared} fault rules cleared");
            Ok(())
        }),
        Command::Capacity { at, dependency, servers, queue_max } => control(&at, async |mut client| {
            let message = SetCapacityRequest { dependency: dependency.to_string(), servers, queue_max };
            told(client.set_capacity(bounded(message)).await)?;
            println!("{dependency}: {servers} servers, queue of {queue_max}");
            Ok(())
        }),
        Command::Journal { at, limit, request_id, request_id_prefix, dependency, output } => {
            let message = ListJournalRequest {
                limit,
                request_id: request_id.unwrap_or_default(),
                dependency: dependency.map_or_else(String::new, |dependency| dependency.to_string()),
                request_id_prefix: request_id_prefix.unwrap_or_default(),
            };
            control(&at, async |mut client| {
                print_journal(&told(client.list_journal(bounded(message)).await)?, output);
                Ok(())
            })
        }
        Command::Stats { at } => control(&at, async |mut client| {
            print_stats(&told(client.get_stats(bounded(GetStatsRequest {})).await)?);
            Ok(())
        }),
        Command::Revoke(args) => revoking::revoke(args),
        Command::Feed { at, state } => revoking::set_feed(&at, state),
        Command::PolicyCopy { at, copy, share } => revoking::set_copy(&at, copy, share),
        Command::Subject(args) => revoking::print_subject(args),
        Command::Reset { at } => control(&at, async |mut client| {
            told(client.reset(bounded(ResetRequest {})).await)?;
            println!("revocations, faults, journal and counters cleared; back in the first phase");
            Ok(())
        }),
    })
}

fn add_fault(args: FaultArgs) -> Result<(), Exit> {
    let EffectArgs { delay, status, hang, reset, refuse, slow_body } = args.effect;
    let effect = match (delay, status, slow_body) {
        (Some(delay), _, _) => Effect::DelayMs(millis(delay)?),
        (_, Some(code), _) => Effect::StatusCode(code),
        (_, _, Some(wait)) => Effect::SlowBodyMs(millis(wait)?),
        _ if hang => Effect::Hang(hang),
        _ if reset => Effect::Reset(reset),
        _ => Effect::Refuse(refuse),
    };
    let share_ppm = ppm(args.share)?;
    let rule = FaultRule {
        dependency: args.dependency.to_string(),
        workload_class: args.class.map_or_else(String::new, |class| class.to_string()),
        share_ppm,
        duration_ms: args.duration.map_or(Ok(0), millis)?,
        effect: Some(effect),
    };
    control(&args.at, async |mut client| {
        let message = InjectFaultRequest { rule: Some(rule) };
        let id = told(client.inject_fault(bounded(message)).await)?.fault_id;
        println!("fault {id} injected; clear it with: mercury emulator fault clear --id {id}");
        Ok(())
    })
}

/// A share in percent, as parts per million; at least one, since 0 says something else.
fn ppm(percent: f64) -> Result<u32, Exit> {
    if !(percent > 0.0 && percent <= 100.0) {
        return Err(Exit::Usage("--share: expected a number above 0 and up to 100".to_owned()));
    }
    Ok(((percent * 10_000.0).round() as u32).max(1))
}

fn millis(span: Span) -> Result<u32, Exit> {
    u32::try_from(span.0.as_millis()).map_err(|_| Exit::Usage("the span is too long".to_owned()))
}

/// A request that is over within [`CALL_TIMEOUT`].
fn bounded<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    let now = base::Clock::now(&base::clock::MonotonicClock);
    request
        .extensions_mut()
        .insert(CallBudget { deadline: Deadline::after(now, CALL_TIMEOUT), reserve: Nanos::ZERO });
    request
}

fn told<M>(result: Result<Response<M>, Status>) -> Result<M, Exit> {
    result.map(Response::into_inner).map_err(|status| {
        let message = format!("the emulator's control port says {:?}: {}", status.code(), status.message());
        if status.code() == tonic::Code::InvalidArgument {
            Exit::Usage(message)
        } else {
            Exit::Error(message)
        }
    })
}

/// Runs calls against the control port.
fn control(
    at: &At,
    calls: impl AsyncFnOnce(EmulatorControlServiceClient<Link>) -> Result<(), Exit>,
) -> Result<(), Exit> {
    let address = match &at.control {
        Some(address) => address.clone(),
        None => endpoints::find(&at.state_dir, "emulator", "control").unwrap_or("127.0.0.1:50052".to_owned()),
    };
    let runtime = world::runtime()?;
    runtime.block_on(async {
        let world: World = world::world(Arc::new(Supervisor::new()), 0);
        let link = Link::tcp("link:control", &address, link_config(), world)
            .map_err(|error| Exit::Usage(format!("--control: {error}")))?;
        calls(EmulatorControlServiceClient::new(link)).await
    })
}

const fn link_config() -> LinkConfig {
    LinkConfig {
        default_timeout: CALL_TIMEOUT,
        connect_timeout: Nanos::from_secs(1),
        backoff_min: Nanos::from_millis(10),
        backoff_max: Nanos::from_millis(500),
        keep_alive_interval: Nanos::from_secs(20),
        keep_alive_timeout: Nanos::from_secs(5),
        calls_max: 8,
        // A whole journal fits.
        message_bytes_max: 4 << 20,
        header_bytes_max: 16 << 10,
        stream_window_bytes: 4 << 20,
        connection_window_bytes: 4 << 20,
        reset_streams_max: 16,
        reset_stream_memory: Nanos::from_secs(1),
    }
}

fn print_journal(journal: &ListJournalResponse, output: Output) {
    if output == Output::Json {
        for entry in &journal.entries {
            println!("{}", json(entry));
        }
        return;
    }
    let header = [
        "#",
        "dependency",
        "request",
        "try",
        "class",
        "budget ms, hop by hop",
        "queue ms",
        "service ms",
        "outcome",
        "fault",
    ];
    let rows = journal.entries.iter().map(|entry| {
        let mut budgets: Vec<String> = entry.budget_trail_us.iter().map(|us| ms(*us)).collect();
        budgets.push(entry.budget_us.map_or_else(|| "none".to_owned(), ms));
        vec![
            entry.sequence.to_string(),
            entry.dependency.clone(),
            entry.request_id.clone(),
            entry.attempt.to_string(),
            entry.workload_class.clone(),
            budgets.join(" > "),
            ms(entry.queue_wait_us),
            ms(entry.service_us),
            entry.outcome.clone(),
            entry.fault.clone(),
        ]
    });
    println!("{}", load::table::grid(&header, 3, rows));
    if journal.dropped > 0 {
        println!("{} older entries have left the bounded journal", journal.dropped);
    }
}

fn json(entry: &JournalEntry) -> serde_json::Value {
    serde_json::json!({
        "sequence": entry.sequence,
        "dependency": entry.dependency,
        "request_id": entry.request_id,
        "attempt": entry.attempt,
        "workload_class": entry.workload_class,
        "budget_us": entry.budget_us,
        "budget_trail_us": entry.budget_trail_us,
        "queue_wait_us": entry.queue_wait_us,
        "service_us": entry.service_us,
        "outcome": entry.outcome,
        "fault": entry.fault,
        "arrived_monotonic_us": entry.arrived_monotonic_us,
        "arrived_monotonic_ns": entry.arrived_monotonic_ns,
        "ended_monotonic_ns": entry.ended_monotonic_ns,
        "late_us": entry.late_us,
    })
}

fn print_stats(stats: &GetStatsResponse) {
    let header = [
        "dependency",
        "calls",
        "ok",
        "not found",
        "faulted",
        "overload",
        "cancelled",
        "expired",
        "in service",
        "peak",
        "servers",
        "queued",
    ];
    let rows = stats.dependencies.iter().map(|of| {
        let counts = [of.calls, of.ok, of.not_found, of.faulted, of.overloaded, of.cancelled, of.expired];
        let gauges = [of.in_service, of.peak_in_service, of.servers, of.queued].map(u64::from);
        let numbers = counts.into_iter().chain(gauges).map(load::table::count);
        std::iter::once(of.dependency.clone()).chain(numbers).collect()
    });
    println!("{}", load::table::grid(&header, 1, rows));
    let lateness =
        stats.timer_lateness_p99_us.map_or_else(|| "none yet".to_owned(), |us| format!("{} ms", ms(us)));
    println!("phase {}, seed {}, own timers late at p99: {lateness}", stats.phase, stats.seed);
}

fn ms(micros: u64) -> String {
    format!("{:.1}", micros as f64 / 1e3)
}
