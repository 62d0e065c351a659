//! Flood: `mercury flood`, one process of the profile connection-flood. It prints what it found as one line of JSON.

use std::net::SocketAddr;

use base::Nanos;
use load::flood::{FloodPlan, SOURCES_MAX};

use crate::{exit::Exit, world};

/// Arguments of `mercury flood`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port that is flooded.
    #[arg(long, value_name = "HOST:PORT")]
    target: SocketAddr,
    /// Connections to attempt.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    attempts: u32,
    /// Their rate.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    attempts_per_s: u32,
    /// Source addresses are 127.0.this.1 and so on.
    #[arg(long, value_name = "N", default_value_t = 11)]
    network: u8,
    /// How many source addresses.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=i64::from(SOURCES_MAX)))]
    sources: u8,
    /// How long a connection that was taken is held.
    #[arg(long, value_name = "MS", default_value_t = 3_000)]
    hold_ms: u64,
}

pub(crate) fn run(args: Args) -> Exit {
    let plan = FloodPlan {
        target: args.target,
        attempts: args.attempts,
        attempts_per_s: args.attempts_per_s,
        network: args.network,
        sources: args.sources,
        hold: Nanos::from_millis(args.hold_ms),
    };
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let flooded = match runtime.block_on(load::flood::flood(&plan)) {
        Ok(flooded) => flooded,
        Err(error) => return Exit::Error(error.to_string()),
    };
    match serde_json::to_string(&flooded) {
        Ok(line) => {
            println!("{line}");
            Exit::Pass
        }
        Err(error) => Exit::Error(format!("what was found cannot be written: {error}")),
    }
}
