//! Counterfactual: `mercury simulate counterfactual`, what would have been, had one thing been otherwise.

use std::{num::NonZero, path::PathBuf};

use model::frontier::MINUTES_MAX;
use rehearsal::{
    counterfactual::{CounterfactualOptions, Switch, counterfactual},
    sweep::RUNS_MAX,
};

use crate::{
    exit::Exit,
    frontier::{FileArgs, ground, threads},
    load::Output,
    rehearse::{concluded, no_evidence},
    world,
};

/// Time before the window, in seconds.
const WARM_UP_S: u32 = 60;

/// One name of the command line: a switch, or all of them.
#[derive(Clone, Debug)]
struct Named(Vec<Switch>);

/// Arguments of `mercury simulate counterfactual`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which: hosts, pool-800, hedge-broad-peak, hedge-broad-moderate, hedge-narrow, no-overlap, hop-kept,
    /// recommendation-required, observation-guard, or all of them.
    #[arg(value_name = "NAME", default_value = "all", value_parser = named)]
    names: Vec<Named>,
    /// Measured time of each state, in minutes of the model.
    #[arg(long, value_name = "M", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(MINUTES_MAX)))]
    minutes: u32,
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

fn named(name: &str) -> Result<Named, String> {
    if name == "all" {
        return Ok(Named(Switch::ALL.to_vec()));
    }
    let names = Switch::ALL.map(Switch::as_str).join(", ");
    Switch::parse(name)
        .map(|switch| Named(vec![switch]))
        .ok_or_else(|| format!("expected all, or some of {names}"))
}

pub(crate) fn run(args: Args) -> Exit {
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(counterfactual(options(args))) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    }
}

fn options(args: Args) -> CounterfactualOptions {
    // Each once, in the order in which they are documented.
    let wanted = |switch: &Switch| args.names.iter().any(|Named(switches)| switches.contains(switch));
    CounterfactualOptions {
        switches: Switch::ALL.into_iter().filter(wanted).collect(),
        files: args.files.into(),
        ground: ground(),
        window_s: args.minutes * 60,
        warm_up_s: WARM_UP_S,
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

    fn line(words: &[&str]) -> Result<CounterfactualOptions, clap::Error> {
        let line = Line::try_parse_from(std::iter::once("counterfactual").chain(words.iter().copied()))?;
        Ok(options(line.args))
    }

    #[test]
    fn names_are_switches_each_once_and_none_is_all() {
        assert_eq!(line(&[]).expect("it reads").switches, Switch::ALL);
        let some = line(&["pool-800", "hosts", "pool-800", "--minutes", "2"]).expect("it reads");
        assert_eq!((some.switches, some.window_s), (vec![Switch::Hosts, Switch::Pool800], 120));
        assert_eq!(line(&["hosts", "all"]).expect("it reads").switches, Switch::ALL);
        let told = line(&["hedge"]).expect_err("no such switch").to_string();
        assert!(told.contains("hedge-broad-peak"), "{told}");
    }
}
