//! Rehearse: `mercury rehearse`, runs that end in a verdict and leave their evidence behind.

mod effects;
mod migration;
mod overload;
mod rollout;

use std::path::PathBuf;

use base::Nanos;
use load::Rate;
use model::scale::Scale;
use rehearsal::{Conclusion, Preset, RehearsalError, SloOptions, Verdict, gates::Role};

use crate::{
    duration::{self, Span},
    exit::Exit,
    load::Output,
    world,
};

/// Subcommands of `mercury rehearse`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// The objective: the old policy, then the repaired one through peak, slowdown and recovery on one seed and schedule,
    /// then each mechanism alone.
    ///
    /// Without --quick, --full, --scale or --rate: one whole admission domain, twenty times slower than declared, which
    /// two cores carry and which takes about 40 minutes.
    Slo(SloArgs),
    /// The rollout: from the old policy to the repaired one in eight phases, each with its own abort thresholds; what
    /// breaches one is reversed.
    ///
    /// Every decision goes to decisions.jsonl beside the evidence, with what it was decided on.
    Rollout(rollout::Args),
    /// The migration: from the entitlement call to the signed summary, phase by phase under load, and everything that has to
    /// be refused, survived or taken back on the way.
    ///
    /// The desk is that of mercury rollout. Every decision of the ladder goes to decisions.ndjson beside the evidence.
    Migration(migration::Args),
    /// The effects: experiment is killed fifty times under load, at moments that the seed draws, while callers retry.
    ///
    /// Afterwards the ledger is reconciled with what callers were told: no exposure may be lost, duplicated, or acknowledged
    /// without a row. `mercury exposures verify` says the same of the evidence that is left.
    Effects(effects::Args),
    /// The overload: looks for the rate that the policy carries, then offers three times as much for ten seconds.
    ///
    /// It must go on answering nine tenths of what it can, in time and in flat memory, and be back to normal within a
    /// second. Takes about two minutes.
    Overload(overload::Args),
}

/// Arguments of `mercury rehearse slo`. A length, a size or a slow motion that is given goes before that of --quick and
/// --full.
#[derive(Debug, clap::Args)]
pub(crate) struct SloArgs {
    /// Less than five minutes on two cores: a system of 1/24 in real time, 30 s a state.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The declared length: 10 min of warm-up and 15 min measured in each state, 12 runs of either policy. Says first how
    /// long that takes.
    #[arg(long)]
    full: bool,
    /// Seed of arrivals, data and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measured time of each of the three states, in model time [default: 10s; with --quick, --scale or --rate: 30s].
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    duration: Option<Span>,
    /// Time before the measured time of peak and of slowdown [default: 2s; with --quick: 3s; with --scale or --rate: 10s].
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    warm_up: Option<Span>,
    /// Size of the system, as a fraction of one admission domain (6,133 requests/s) [default: 1; with --quick: 1/24].
    #[arg(long, value_name = "A/B", value_parser = Scale::parse)]
    scale: Option<Scale>,
    /// Offer this mean rate instead, in requests per second, to a system of full size.
    #[arg(long, value_name = "N", conflicts_with = "scale")]
    rate: Option<f64>,
    /// Slow motion: every duration times N and every rate divided by N; reported times are divided back [default: 20;
    /// with --quick, --scale or --rate: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    dilate: Option<u32>,
    /// Directory of the evidence: report.json, report.html, run.json and the policies.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// The policy after [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The policy before [default: the shipped old one].
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Rehearse one of the two policies alone, without a comparison.
    #[arg(long, value_enum, value_name = "WHICH")]
    only: Option<Only>,
    /// Leave out the runs of each mechanism alone.
    #[arg(long)]
    no_mechanisms: bool,
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

/// One of the two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// The policy before; the objective is not held against it.
    Before,
    /// The policy after.
    After,
}

pub(crate) fn run(command: Command) -> Exit {
    match command {
        Command::Slo(args) => slo(args),
        Command::Rollout(args) => rollout::run(args),
        Command::Migration(args) => migration::run(args),
        Command::Effects(args) => effects::run(args),
        Command::Overload(args) => overload::run(args),
    }
}

fn slo(args: SloArgs) -> Exit {
    let options = match slo_options(args) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(rehearsal::slo(options)) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    }
}

/// The exit of a rehearsal that has no evidence.
pub(crate) fn no_evidence(error: RehearsalError) -> Exit {
    match error.exit_code() {
        2 => Exit::Usage(error.to_string()),
        _ => Exit::Error(error.to_string()),
    }
}

/// The exit of a rehearsal that has a verdict.
pub(crate) fn concluded(ended: Conclusion) -> Exit {
    match ended.verdict {
        Verdict::Pass => Exit::Pass,
        Verdict::Fail => Exit::GateFailed(ended.why),
        Verdict::Inconclusive | Verdict::NotApplicable => Exit::Inconclusive(ended.why),
    }
}

fn slo_options(args: SloArgs) -> Result<SloOptions, Exit> {
    let own = args.rate.map(Rate::PerSecond).or_else(|| args.scale.map(Rate::Scale));
    let mut preset = match (args.quick, args.full, own) {
        (true, _, _) => Preset::quick(),
        (_, true, _) => Preset::full(),
        (_, _, Some(rate)) => Preset::sized(rate),
        _ => Preset::domain(),
    };
    preset.rate = own.unwrap_or(preset.rate);
    preset.dilate = args.dilate.unwrap_or(preset.dilate);
    let extent = &mut preset.extent;
    if let Some(Span(duration)) = args.duration {
        if duration < Nanos::from_secs(1) {
            let text = "--duration: expected at least 1s; a shorter state has no steady part";
            return Err(Exit::Usage(text.to_owned()));
        }
        extent.state = duration;
        extent.mechanism = extent.mechanism.min(duration);
    }
    if let Some(Span(warm_up)) = args.warm_up {
        extent.warm_up = warm_up;
        extent.mechanism_warm_up = extent.mechanism_warm_up.min(warm_up);
    }
    let mut options = SloOptions::new(preset, args.out);
    options.seed = args.seed;
    options.policy = args.policy;
    options.before = args.before;
    options.only = args.only.map(|only| match only {
        Only::Before => Role::Before,
        Only::After => Role::After,
    });
    options.mechanisms = !args.no_mechanisms;
    options.scenario = args.scenario;
    options.workload = args.workload;
    options.state_dir = args.state_dir;
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
        args: SloArgs,
    }

    fn options(words: &[&str]) -> SloOptions {
        let line = Line::try_parse_from(std::iter::once("slo").chain(words.iter().copied()));
        slo_options(line.expect("a line that reads").args).expect("options")
    }

    #[test]
    fn what_is_given_goes_before_what_is_preset() {
        let seconds = Nanos::from_secs;
        let plain = options(&[]);
        assert_eq!((plain.rate, plain.dilate), (Rate::Scale(Scale::ONE), 20));
        let quick = options(&["--quick"]);
        assert_eq!((quick.dilate, quick.extent.state, quick.extent.runs), (1, seconds(30), 1));
        let small = options(&["--duration", "5s", "--warm-up", "3s", "--scale", "1/60"]);
        assert_eq!((small.dilate, small.extent.state, small.extent.warm_up), (1, seconds(5), seconds(3)));
        assert_eq!(small.extent.mechanism, seconds(5), "no longer than a state");
        assert_eq!(small.rate, Rate::Scale(Scale::parse("1/60").expect("a scale")));
        let slow = options(&["--quick", "--dilate", "5", "--scale", "1/4"]);
        assert_eq!((slow.dilate, slow.rate), (5, Rate::Scale(Scale::parse("1/4").expect("a scale"))));
        let full = options(&["--full", "--dilate", "1"]);
        assert_eq!((full.dilate, full.extent.runs, full.extent.state), (1, 12, seconds(900)));
        let alone = options(&["--only", "after", "--rate", "40"]);
        assert_eq!((alone.only, alone.rate), (Some(Role::After), Rate::PerSecond(40.0)));
    }

    #[test]
    fn what_cannot_be_is_a_mistake_of_use() {
        for words in [&["--quick", "--full"][..], &["--rate", "1", "--scale", "1"], &["--only", "both"]] {
            assert!(Line::try_parse_from(std::iter::once(&"slo").chain(words)).is_err(), "{words:?}");
        }
        let line = Line::try_parse_from(["slo", "--duration", "900ms"]).expect("it reads");
        assert!(matches!(slo_options(line.args), Err(Exit::Usage(_))));
    }
}
