//! Migration: `mercury rehearse migration`, from the entitlement call to the signed summary.

use std::path::PathBuf;

use base::Nanos;
use model::scale::Scale;
use rehearsal::migrate::{CLAIMS_MISMATCH, MigrationOptions};

use super::{concluded, no_evidence};
use crate::{
    duration::{self, Span},
    exit::Exit,
    load::Output,
    world,
};

/// Arguments of `mercury rehearse migration`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Less than four minutes on two cores: the plan's quick bounds, with small samples and short soaks.
    #[arg(long)]
    quick: bool,
    /// Seed of arrivals, data and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long each phase of the ladder is watched, beyond what the plan asks for [default: 60s; with --quick: 8s].
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    watch: Option<Span>,
    /// Size of the system, as a fraction of one admission domain (6,133 requests/s).
    #[arg(long, value_name = "A/B", default_value = "1/24", value_parser = Scale::parse)]
    scale: Scale,
    /// Let a fault loose in shadow, to see the migration stop there: the profile store's policies then differ from the policy
    /// store's.
    #[arg(long, value_name = "FAULT", value_parser = [CLAIMS_MISMATCH])]
    inject: Option<String>,
    /// The plan: what each phase must have shown before the next [default: the shipped one].
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
    let options = options(args);
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(rehearsal::migrate::migration(options)) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    }
}

fn options(args: Args) -> MigrationOptions {
    let preset = Nanos::from_secs(if args.quick { 8 } else { 60 });
    MigrationOptions {
        seed: args.seed,
        quick: args.quick,
        watch: args.watch.map_or(preset, |Span(watch)| watch),
        scale: args.scale,
        output: args.output.into(),
        plan: args.plan,
        inject: args.inject.is_some(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        ..MigrationOptions::new(args.out)
    }
}
