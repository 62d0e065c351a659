//! Frontier: `mercury simulate frontier`, which pairs of bounds carry the home path in the region's model.

use std::{num::NonZero, path::PathBuf};

use model::{frontier::MINUTES_MAX, region::Region};
use rehearsal::{
    frontier::{FrontierOptions, frontier},
    sweep::{Files, Ground, RUNS_MAX, THREADS_MAX},
};

use crate::{
    exit::Exit,
    load::Output,
    rehearse::{concluded, no_evidence},
    world,
};

/// What lies under the region that this version ships with.
pub(crate) fn ground() -> Ground {
    let region = Region::shipped();
    Ground { hosts: region.hosts, placement: region.placement, scale: None }
}

/// The files of a sweep.
#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// The policy before [default: the shipped old one].
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// The policy after [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The scenario [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// The workload [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
}

impl From<FileArgs> for Files {
    fn from(args: FileArgs) -> Self {
        let FileArgs { before, policy, scenario, workload } = args;
        Self { before, policy, scenario, workload }
    }
}

/// Arguments of `mercury simulate frontier`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The pairs and the rules, like config/frontiers/mercury-home.toml [default: the shipped ones].
    #[arg(long, value_name = "FILE")]
    frontier: Option<PathBuf>,
    /// Measured time of each state, in minutes of the model [default: what the frontier's file says].
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=i64::from(MINUTES_MAX)))]
    minutes: Option<u32>,
    /// Runs of every state, with seeds of their own; their observations are merged.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(RUNS_MAX)))]
    runs: u32,
    /// Seed of arrivals and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// States that are simulated at once; the result does not depend on it [default: one a core].
    #[arg(long, value_name = "T", value_parser = threads)]
    threads: Option<NonZero<usize>>,
    #[command(flatten)]
    files: FileArgs,
    /// Directory of the evidence: report.json, report.html and run.json.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

/// Reads a number of threads.
pub(crate) fn threads(text: &str) -> Result<NonZero<usize>, String> {
    let count = text.parse().ok().and_then(NonZero::new).filter(|count| count.get() <= THREADS_MAX);
    count.ok_or_else(|| format!("expected a whole number from 1 to {THREADS_MAX}"))
}

pub(crate) fn run(args: Args) -> Exit {
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(frontier(options(args))) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    }
}

fn options(args: Args) -> FrontierOptions {
    FrontierOptions {
        frontier: args.frontier,
        files: args.files.into(),
        ground: ground(),
        window_s: args.minutes.map(|minutes| minutes * 60),
        warm_up_s: None,
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
        Line::try_parse_from(std::iter::once("frontier").chain(words.iter().copied()))
    }

    #[test]
    fn what_is_said_is_what_is_swept() {
        let plain = options(line(&[]).expect("it reads").args);
        assert_eq!((plain.window_s, plain.warm_up_s, plain.runs, plain.seed), (None, None, 1, 1));
        let said =
            line(&["--minutes", "2", "--runs", "3", "--seed", "7", "--threads", "2", "--policy", "p.toml"]);
        let said = options(said.expect("it reads").args);
        assert_eq!((said.window_s, said.runs, said.seed, said.threads), (Some(120), 3, 7, NonZero::new(2)));
        assert_eq!(said.files.policy, Some("p.toml".into()));
    }

    #[test]
    fn what_has_no_bound_is_refused() {
        for words in [
            ["--minutes", "0"],
            ["--minutes", "601"],
            ["--runs", "65"],
            ["--threads", "0"],
            ["--threads", "x"],
        ] {
            assert!(line(&words).is_err(), "{words:?}");
        }
    }
}
