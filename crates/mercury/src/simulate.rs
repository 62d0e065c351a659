//! Simulate: `mercury simulate`, the region at full size in virtual time.

use std::{num::NonZero, path::PathBuf};

use model::{
    Scale,
    region::{MINUTES_MAX, RUNS_MAX, StateName},
};
use rehearsal::simulate::{SimulateOptions, simulate, speed::speed};
use simulation::ClaimsPhase;

use crate::{
    counterfactual,
    exit::Exit,
    frontier::{self, FileArgs, threads},
    load::Output,
    rehearse::{concluded, no_evidence},
    world,
};

/// What else is asked of the region's model.
#[derive(Debug, clap::Subcommand)]
enum Question {
    /// Try pairs of bounds: which carry the home path, and what moves the old design's tail.
    Frontier(frontier::Args),
    /// Throw a switch: what would have been, had one thing been otherwise.
    Counterfactual(counterfactual::Args),
}

/// Arguments of `mercury simulate`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    question: Option<Question>,
    /// The old policy and the repaired one through peak, slowdown and recovery, as often as the region says; otherwise the repaired
    /// one in one state, once.
    #[arg(long)]
    packet: bool,
    /// Only how fast this machine is: one run at peak on one core, of 1, 10 and 100 minutes of the model, with requests per second
    /// and memory. Nothing is judged, and no file is written.
    #[arg(long, conflicts_with_all = ["packet", "state", "minutes", "runs", "threads", "out"])]
    speed: bool,
    /// The region, like config/regions/mercury-home.toml [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    region: Option<PathBuf>,
    #[command(flatten)]
    files: FileArgs,
    /// Where the claims come from under the policy after: call, canary or summary.
    #[arg(long, value_name = "PHASE", default_value = "summary", value_parser = claims)]
    claims: ClaimsPhase,
    /// The state of a single run: peak, slowdown or recovery.
    #[arg(long, value_name = "STATE", default_value = "peak", value_parser = state, conflicts_with = "packet")]
    state: StateName,
    /// A fraction of one admission domain, such as 1/24, as a live run has it: without hosts and placement.
    #[arg(long, value_name = "FRACTION", value_parser = scale)]
    scale: Option<Scale>,
    /// Measured time of each run, in minutes of the model; the warm-up keeps its ratio to it [default: what the region says].
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=i64::from(MINUTES_MAX)))]
    minutes: Option<u32>,
    /// Runs of every state, with seeds of their own; their observations are merged [default: what the region says for a packet, and
    /// one otherwise].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RUNS_MAX)))]
    runs: Option<u32>,
    /// Seed of arrivals and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs that go on at once; the result does not depend on it [default: one a core].
    #[arg(long, value_name = "T", value_parser = threads)]
    threads: Option<NonZero<usize>>,
    /// Directory of the evidence: report.json, report.html and run.json.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

fn claims(name: &str) -> Result<ClaimsPhase, String> {
    ClaimsPhase::parse(name).ok_or_else(|| "expected call, canary or summary".to_owned())
}

fn state(name: &str) -> Result<StateName, String> {
    StateName::parse(name).ok_or_else(|| "expected peak, slowdown or recovery".to_owned())
}

fn scale(text: &str) -> Result<Scale, String> {
    Scale::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn run(mut args: Args) -> Exit {
    match args.question.take() {
        Some(Question::Frontier(args)) => return frontier::run(args),
        Some(Question::Counterfactual(args)) => return counterfactual::run(args),
        None => {}
    }
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    if args.speed {
        return match runtime.block_on(speed(&options(args))) {
            Ok(()) => Exit::Pass,
            Err(error) => no_evidence(error),
        };
    }
    match runtime.block_on(simulate(options(args))) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    }
}

fn options(args: Args) -> SimulateOptions {
    SimulateOptions {
        packet: args.packet,
        region: args.region,
        files: args.files.into(),
        claims: args.claims,
        state: args.state,
        scale: args.scale,
        minutes: args.minutes,
        runs: args.runs,
        seed: args.seed,
        threads: args.threads,
        out: args.out,
        output: args.output.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn line(words: &[&str]) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("simulate").chain(words.iter().copied()))
    }

    #[test]
    fn what_is_said_is_what_is_simulated() {
        let plain = options(line(&[]).expect("it reads").args);
        assert_eq!((plain.packet, plain.minutes, plain.runs, plain.seed), (false, None, None, 1));
        assert_eq!((plain.claims, plain.state), (ClaimsPhase::Summary, StateName::Peak));
        let said =
            line(&["--packet", "--runs", "2", "--minutes", "3", "--claims", "call", "--scale", "1/24"]);
        let said = options(said.expect("it reads").args);
        assert_eq!((said.packet, said.runs, said.minutes), (true, Some(2), Some(3)));
        assert_eq!(said.scale.map(|scale| scale.to_string()).as_deref(), Some("1/24"));
        let question = line(&["frontier", "--minutes", "2"]).expect("it reads").args.question;
        assert!(matches!(question, Some(Question::Frontier(_))));
    }

    #[test]
    fn what_has_no_bound_or_no_name_is_refused() {
        for words in [
            ["--minutes", "0"],
            ["--minutes", "601"],
            ["--runs", "65"],
            ["--runs", "-1"],
            ["--threads", "0"],
            ["--claims", "maybe"],
            ["--state", "calm"],
            ["--scale", "2"],
            ["--seed", "nan"],
        ] {
            assert!(line(&words).is_err(), "{words:?}");
        }
        assert!(line(&["--packet", "--state", "peak"]).is_err());
        for word in [&["--packet"][..], &["--minutes", "3"], &["--threads", "2"], &["--out", "here"]] {
            assert!(line(&[&["--speed"], word].concat()).is_err(), "{word:?}");
        }
        assert!(line(&["--speed", "--scale", "1/24", "--seed", "7"]).expect("it reads").args.speed);
    }
}
