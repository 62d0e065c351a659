//! Rollout: `mercury rehearse rollout`, the way from the old policy to the repaired one, phase by phase.

use std::path::PathBuf;

use model::scale::Scale;
use rehearsal::rollout::{Injection, RolloutOptions};

use super::concluded;
use crate::{exit::Exit, load::Output, world};

/// Arguments of `mercury rehearse rollout`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// About five minutes on two cores. Short runs have much tolerance: it catches what is broken, not what is a little
    /// worse.
    #[arg(long)]
    quick: bool,
    /// Seed of arrivals, data and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Size of the system, as a fraction of one admission domain (6,133 requests/s).
    #[arg(long, value_name = "A/B", default_value = "1/24", value_parser = Scale::parse)]
    scale: Scale,
    /// Slow motion: every duration times N and every rate divided by N; reported times are divided back.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    dilate: u32,
    /// Let a named fault loose during one phase, for example pricing-slow@admission, to see the rollout stop there; an
    /// unknown one lists all.
    #[arg(long, value_name = "FAULT@PHASE")]
    inject: Option<String>,
    /// The rollout: phases, their changes and what aborts them [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Directory of the evidence: report.json, report.html, run.json, the policies, and the decisions.
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
    match runtime.block_on(rehearsal::rollout::rollout(options)) {
        Ok(ended) => concluded(ended),
        Err(error) if error.exit_code() == 2 => Exit::Usage(error.to_string()),
        Err(error) => Exit::Error(error.to_string()),
    }
}

fn options(args: Args) -> Result<RolloutOptions, Exit> {
    let inject = args.inject.as_deref().map(Injection::parse).transpose();
    let inject = inject.map_err(|fault| Exit::Usage(format!("--inject: {fault}")))?;
    Ok(RolloutOptions {
        quick: args.quick,
        seed: args.seed,
        scale: args.scale,
        dilate: args.dilate,
        inject,
        plan: args.plan,
        output: args.output.into(),
        command: command(std::env::args().skip(1)),
        ..RolloutOptions::new(args.out)
    })
}

/// The command as the decisions cite it.
fn command(words: impl Iterator<Item = String>) -> String {
    std::iter::once("mercury".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
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

    fn read(words: &[&str]) -> Result<RolloutOptions, Exit> {
        let line = Line::try_parse_from(std::iter::once("rollout").chain(words.iter().copied()));
        options(line.expect("a line that reads").args)
    }

    #[test]
    fn what_is_not_said_is_that_of_the_shipped_rollout() {
        let plain = read(&[]).expect("options");
        assert!(!plain.quick && plain.plan.is_none() && plain.inject.is_none());
        assert_eq!((plain.seed, plain.scale.to_string().as_str(), plain.dilate), (1, "1/24", 1));
        let said = read(&[
            "--quick",
            "--seed",
            "7",
            "--scale",
            "1",
            "--dilate",
            "20",
            "--inject",
            "pricing-slow@admission",
        ])
        .expect("options");
        assert!(said.quick);
        assert_eq!((said.seed, said.scale.to_string().as_str(), said.dilate), (7, "1", 20));
        assert_eq!(said.inject.expect("one").to_string(), "pricing-slow@admission");
    }

    #[test]
    fn an_unknown_fault_is_a_mistake_of_use_that_lists_what_there_is() {
        for bad in ["pricing-slow", "nothing@admission"] {
            let Err(Exit::Usage(text)) = read(&["--inject", bad]) else { panic!("{bad} was taken") };
            assert!(text.starts_with("--inject: ") && text.contains("recommendation-hang"), "{text}");
        }
    }

    #[test]
    fn decisions_cite_the_words_of_the_command() {
        let words = ["rehearse", "rollout", "--quick"].map(str::to_owned);
        assert_eq!(command(words.into_iter()), "mercury rehearse rollout --quick");
    }
}
