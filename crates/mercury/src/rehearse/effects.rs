//! Effects: `mercury rehearse effects`, exposures that count once whatever becomes of the process that records them.

use std::{path::PathBuf, sync::Arc};

use base::Nanos;
use rehearsal::effects::{EffectsOptions, KILLS, KILLS_MAX, Ledger as Opened};

use super::{concluded, no_evidence};
use crate::{
    duration::{self, Span},
    exit::Exit,
    exposures::ledger::Ledger,
    load::Output,
    world,
};

/// Arguments of `mercury rehearse effects`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Less than two and a half minutes on two cores: short pauses between the kills.
    #[arg(long)]
    quick: bool,
    /// Seed of arrivals, data and draws, and of the moments of the kills.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How often experiment is killed.
    #[arg(long, value_name = "N", default_value_t = KILLS, value_parser = clap::value_parser!(u32).range(1..=i64::from(KILLS_MAX)))]
    kills: u32,
    /// Mean time from a process that records again to its next kill [default: 5s; with --quick: 500ms].
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    pause: Option<Span>,
    /// Operations per second.
    #[arg(long, value_name = "N", default_value_t = 100.0)]
    rate: f64,
    /// The exposure ledger, a file or a PostgreSQL URL, which has to be empty [default: a file of the rehearsal's own]. A
    /// database is shared by two processes of experiment.
    #[arg(long, value_name = "LOCATION")]
    ledger: Option<String>,
    /// Remove the exposures that --ledger holds.
    #[arg(long, requires = "ledger")]
    fresh: bool,
    /// The policy [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Directory of the evidence: report.json, report.html, run.json, the records of the callers, and the catalogue.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

pub(super) fn run(args: Args) -> Exit {
    let options = options(args);
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(rehearsal::effects::effects(options)) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    }
}

fn options(args: Args) -> EffectsOptions {
    let preset = Nanos::from_millis(if args.quick { 500 } else { 5_000 });
    let open = Arc::new(|text: &str| Ledger::parse(text).map(|ledger| Box::new(ledger) as Box<dyn Opened>));
    EffectsOptions {
        seed: args.seed,
        kills: args.kills,
        pause: args.pause.map_or(preset, |Span(pause)| pause),
        rate_per_s: args.rate,
        ledger: args.ledger,
        fresh: args.fresh,
        output: args.output.into(),
        policy: args.policy,
        ..EffectsOptions::new(args.out, open)
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

    fn read(words: &[&str]) -> Result<EffectsOptions, clap::Error> {
        Line::try_parse_from(std::iter::once("effects").chain(words.iter().copied()))
            .map(|line| options(line.args))
    }

    #[test]
    fn what_is_said_is_what_is_rehearsed() {
        let plain = read(&[]).expect("options");
        assert_eq!((plain.seed, plain.kills, plain.pause), (1, 50, Nanos::from_secs(5)));
        let quick = read(&["--quick"]).expect("options");
        assert_eq!((quick.kills, quick.pause, quick.ledger), (50, Nanos::from_millis(500), None));
        let said = read(&["--quick", "--pause", "2s", "--kills", "7", "--ledger", "f.db", "--fresh"]);
        let said = said.expect("options");
        assert_eq!((said.kills, said.pause, said.fresh), (7, Nanos::from_secs(2), true));
        for wrong in [&["--kills", "0"][..], &["--kills", "10001"], &["--fresh"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_password_is_not_shown_with_the_options() {
        let said = read(&["--ledger", "postgres://m:s3cret@db/e"]).expect("options");
        assert!(!format!("{said:?}").contains("s3cret"));
    }
}
