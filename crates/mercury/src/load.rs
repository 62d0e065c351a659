//! Load: `mercury load`, the open-loop generator against a suite that already runs; with `--profile`, against one of its own
//! and with a verdict ([`profile`]).

pub(crate) mod flood;
mod profile;

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
};

use base::{Nanos, Origin};
use indicatif::{ProgressBar, ProgressStyle};
use load::{LoadError, Plan, Progress, Rate, StagePlan, Stop};
use model::scale::Scale;

use crate::{
    check,
    duration::{self, Span},
    endpoints,
    exit::Exit,
    world,
};

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Tables.
    #[default]
    Human,
    /// One JSON document.
    Json,
}

impl From<Output> for rehearsal::Output {
    fn from(output: Output) -> Self {
        match output {
            Output::Human => Self::Human,
            Output::Json => Self::Json,
        }
    }
}

/// Arguments of `mercury load`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    profile: profile::ProfileArgs,
    /// The home port [default: the one in `endpoints.json`, else 127.0.0.1:8080].
    #[arg(long, value_name = "HOST:PORT")]
    target: Option<String>,
    /// Where `mercury up` keeps its endpoints.
    #[arg(long, value_name = "DIR", default_value = ".mercury")]
    state_dir: PathBuf,
    /// The workload [default: mercury-home-peak-v4, which this binary ships with].
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Seed of the arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Mean rate in requests per second; waves, classes and keys stay as declared.
    #[arg(long, value_name = "N", conflicts_with = "scale", default_value_t = 100.0)]
    rate: f64,
    /// Instead of a rate: a fraction of one admission domain, rates and key space alike.
    #[arg(long, value_name = "A/B", value_parser = Scale::parse)]
    scale: Option<Scale>,
    /// Slow motion: every duration times N, every rate divided by N; reported times are divided back. The suite has to
    /// run at the same N.
    #[arg(long, value_name = "N", default_value_t = 1)]
    dilate: u32,
    /// Measured time.
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = duration::parse)]
    duration: Span,
    /// Time before it that is not measured.
    #[arg(long, value_name = "SPAN", default_value = "3s", value_parser = duration::parse)]
    warm_up: Span,
    /// Operations in flight beyond which an arrival is counted as unsent.
    #[arg(long, value_name = "N", default_value_t = load::IN_FLIGHT_MAX)]
    in_flight_max: usize,
    /// Connections to the target.
    #[arg(long, value_name = "N", default_value_t = 2)]
    connections: usize,
    /// Deadline sent with every request [default: none; the service's own applies].
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    timeout: Option<Span>,
    /// Who the requests say they come from; only customers are in the objective's population.
    #[arg(long, value_enum, default_value_t = OriginName::LoadTest)]
    origin: OriginName,
    /// Beginning of every request id; two runs with the same one replay each other's exposures.
    #[arg(long, value_name = "TEXT")]
    id_prefix: Option<String>,
    /// Write down every operation with its attempts and the arms that it was shown, for `mercury exposures verify`.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write the report to this file as well; with --profile, the directory of the evidence [default there: out].
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

/// Names of the origins on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum OriginName {
    Customer,
    Probe,
    LoadTest,
}

pub(crate) fn run(args: Args) -> Exit {
    if let Some(exit) = profile::run(&args) {
        return exit;
    }
    let plan = match plan(&args) {
        Ok(plan) => plan,
        Err(exit) => return exit,
    };
    let stop = Stop::default();
    if let Err(error) = stop_on_signal(&stop) {
        return Exit::Error(format!("cannot listen for signals: {error}"));
    }
    let bar = bar(&args, &plan);
    let report = load::run_until(plan, &stop, |progress| show(bar.as_ref(), &progress));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let report = match report {
        Ok(report) => report,
        Err(LoadError::Plan(faults)) => return Exit::Usage(faults),
        Err(error) => return Exit::Error(error.to_string()),
    };
    match present(&args, &report) {
        Err(exit) => exit,
        Ok(()) if !report.generator.valid => {
            Exit::Inconclusive(format!("the run is invalid: {}", report.generator.reasons.join("; ")))
        }
        Ok(()) => Exit::Pass,
    }
}

fn plan(args: &Args) -> Result<Plan, Exit> {
    let workload = check::workload(args.workload.as_deref())?;
    let rate = args.scale.map_or(Rate::PerSecond(args.rate), Rate::Scale);
    let target = match &args.target {
        Some(target) => target.clone(),
        None => endpoints::find(&args.state_dir, "home-api", "http").unwrap_or("127.0.0.1:8080".to_owned()),
    };
    let mut stages = Vec::new();
    if !args.warm_up.0.is_zero() {
        stages.push(StagePlan::warm_up("warm-up", args.warm_up.0));
    }
    stages.push(StagePlan::measured("measured", args.duration.0));
    // Fresh by default, since a repeated id is a retry to the exposure ledger.
    let prefix = || format!("load-{:08x}", world::entropy() as u32);
    Ok(Plan {
        seed: args.seed,
        dilate: args.dilate,
        stages,
        in_flight_max: args.in_flight_max,
        record: args.record.clone(),
        connections: args.connections,
        timeout: args.timeout.map(|span| span.0),
        origin: match args.origin {
            OriginName::Customer => Origin::Customer,
            OriginName::Probe => Origin::Probe,
            OriginName::LoadTest => Origin::LoadTest,
        },
        id_prefix: args.id_prefix.clone().unwrap_or_else(prefix),
        ..Plan::new(target, workload, rate, args.duration.0)
    })
}

/// The first signal ends the run early with what there is; the second one ends the process.
fn stop_on_signal(stop: &Stop) -> std::io::Result<()> {
    let stop = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let Ok(mut signals) = serve::shell::Signals::install() else { return };
            signals.next().await;
            stop.set();
            signals.next().await;
            #[expect(
                clippy::disallowed_methods,
                reason = "whoever asks twice wants it gone; nothing is left to drain"
            )]
            std::process::exit(1);
        });
    })?;
    Ok(())
}

fn bar(args: &Args, plan: &Plan) -> Option<ProgressBar> {
    if args.output == Output::Json || !std::io::stderr().is_terminal() {
        return None;
    }
    let total = plan.stages.iter().fold(Nanos::ZERO, |sum, stage| sum + stage.duration);
    let template = "{bar:30} {pos}/{len} s  {msg}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    Some(ProgressBar::new(total.as_millis() / 1_000).with_style(style))
}

fn show(bar: Option<&ProgressBar>, progress: &Progress) {
    let Some(bar) = bar else { return };
    bar.set_position(progress.elapsed.as_millis() / 1_000);
    let p99 = progress.recent_p99_ms.map_or_else(String::new, |p99| format!("  p99 {p99:.0} ms"));
    bar.set_message(format!(
        "{} ok  {} failed  {} unsent  {} in flight{p99}",
        progress.ok, progress.failed, progress.unsent, progress.in_flight
    ));
}

fn present(args: &Args, report: &load::Report) -> Result<(), Exit> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| Exit::Error(format!("the report cannot be written: {error}")))?;
    if let Some(path) = &args.out {
        write(path, &json)?;
    }
    match args.output {
        Output::Human => println!("{}", load::table::render(report)),
        Output::Json => println!("{json}"),
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Exit> {
    std::fs::write(path, format!("{text}\n"))
        .map_err(|error| Exit::Error(format!("cannot write {}: {error}", path.display())))
}
