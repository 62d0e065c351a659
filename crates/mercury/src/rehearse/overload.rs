//! Overload: `mercury rehearse overload`, three times what a policy carries.

use std::path::PathBuf;

use base::Nanos;
use load::Rate;
use model::scale::Scale;
use rehearsal::SloOptions;

use super::{concluded, no_evidence};
use crate::{
    duration::{self, Span},
    exit::Exit,
    load::Output,
    world,
};

/// Arguments of `mercury rehearse overload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seed of arrivals, data and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Size of the system, as a fraction of one admission domain (6,133 requests/s).
    #[arg(long, value_name = "A/B", default_value = "1/24", value_parser = Scale::parse)]
    scale: Scale,
    /// Slow motion: every duration times N and every rate divided by N; reported times are divided back.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    dilate: u32,
    /// Time of each step of the search, of the overload, and of the calm before and after, in model time.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = duration::parse)]
    duration: Span,
    /// The policy [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Directory of the evidence: report.json, report.html, run.json and the policy.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

pub(super) fn run(args: Args) -> Exit {
    let options = match options(args) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(rehearsal::overload::overload(options)) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    }
}

fn options(args: Args) -> Result<SloOptions, Exit> {
    if args.duration.0 < Nanos::from_secs(3) {
        let text = "--duration: expected at least 3s; recovery alone is told from two whole seconds";
        return Err(Exit::Usage(text.to_owned()));
    }
    let mut options = rehearsal::overload::options(args.out);
    options.seed = args.seed;
    options.rate = Rate::Scale(args.scale);
    options.dilate = args.dilate;
    options.extent.state = args.duration.0;
    options.policy = args.policy;
    options.output = args.output.into();
    Ok(options)
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

    fn read(words: &[&str]) -> Result<SloOptions, Exit> {
        let line = Line::try_parse_from(std::iter::once("overload").chain(words.iter().copied()));
        options(line.expect("a line that reads").args)
    }

    #[test]
    fn what_is_said_is_what_is_rehearsed() {
        let plain = read(&[]).expect("options");
        assert_eq!((plain.seed, plain.dilate, plain.extent.state), (1, 1, Nanos::from_secs(10)));
        assert_eq!(plain.only, Some(rehearsal::gates::Role::After));
        let said =
            read(&["--seed", "7", "--scale", "1/12", "--dilate", "2", "--duration", "20s"]).expect("options");
        assert_eq!((said.seed, said.dilate, said.extent.state), (7, 2, Nanos::from_secs(20)));
        assert_eq!(said.rate, Rate::Scale(Scale::parse("1/12").expect("a scale")));
        assert!(
            matches!(read(&["--duration", "2s"]), Err(Exit::Usage(text)) if text.starts_with("--duration: "))
        );
    }
}
