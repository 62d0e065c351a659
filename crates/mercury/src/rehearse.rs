//! Rehearse: `mercury rehearse`, runs that end in a verdict and leave their evidence behind.

use std::path::PathBuf;

use base::Nanos;
use model::scale::Scale;
use rehearsal::{SloOptions, Verdict};

use crate::{
    duration::{self, Span},
    exit::Exit,
    load::Output,
    world,
};

/// Subcommands of `mercury rehearse`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// The objective: the suite through peak, slowdown and recovery on one seed and schedule.
    Slo(SloArgs),
}

/// Arguments of `mercury rehearse slo`.
#[derive(Debug, clap::Args)]
pub(crate) struct SloArgs {
    /// Seed of arrivals, data and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measured time of each of the three states.
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = duration::parse)]
    duration: Span,
    /// Time before the measured time of peak and of slowdown.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = duration::parse)]
    warm_up: Span,
    /// Size of the system, as a fraction of one admission domain (6,133 requests/s).
    #[arg(long, value_name = "A/B", default_value = "1/60", value_parser = Scale::parse)]
    scale: Scale,
    /// Offer this mean rate instead, in requests per second, to a system of full size.
    #[arg(long, value_name = "N", conflicts_with = "scale")]
    rate: Option<f64>,
    /// Slow motion: every duration times N and every rate divided by N; reported times are divided back.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    dilate: u32,
    /// Directory of the evidence: report.json and run.json.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// The policy [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The scenario [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// The workload [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Directory of logs and addresses [default: state, below the evidence].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

pub(crate) fn run(command: Command) -> Exit {
    let Command::Slo(args) = command;
    let rate = args.rate.map_or(load::Rate::Scale(args.scale), load::Rate::PerSecond);
    let mut options = SloOptions::new(rate, args.duration.0, &args.out);
    options.seed = args.seed;
    options.dilate = args.dilate;
    options.warm_up = args.warm_up.0;
    options.policy = args.policy;
    options.scenario = args.scenario;
    options.workload = args.workload;
    options.state_dir = args.state_dir;
    options.output = match args.output {
        Output::Human => rehearsal::Output::Human,
        Output::Json => rehearsal::Output::Json,
    };
    if options.duration < Nanos::from_secs(1) {
        return Exit::Usage(
            "--duration: expected at least 1s; a shorter state has no steady part".to_owned(),
        );
    }
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(rehearsal::slo(options)) {
        Ok(Verdict::Pass) => Exit::Pass,
        Ok(Verdict::Fail) => Exit::GateFailed("a gate failed; the evidence names it".to_owned()),
        Ok(_) => Exit::Inconclusive("the run is no evidence; the report says why".to_owned()),
        Err(error) if error.exit_code() == 2 => Exit::Usage(error.to_string()),
        Err(error) => Exit::Error(error.to_string()),
    }
}
