//! Up: `mercury up`, the whole suite as child processes on loopback until Ctrl-C.

use std::path::PathBuf;

use model::scale::Scale;
use rehearsal::{MigrationFiles, OnChildExit, SuiteOptions};

use crate::{check, exit::Exit, keys, serve, world};

/// Arguments of `mercury up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Port of home-api on loopback; 0 picks a free one. All other ports are picked and printed.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Directory of endpoints.json, logs and the exposure ledger.
    #[arg(long, value_name = "DIR", default_value = ".mercury")]
    state_dir: PathBuf,
    /// The policy [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Directory of the keys that sign and check entitlement summaries [default: keys in the state directory; made when there
    /// are none].
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Processes of home-api; all but the first pick their ports.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    home_apis: u8,
    /// The emulator's scenario [default: the shipped one].
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Seed of the emulator's data set and draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Size of the emulated dependencies, as a fraction of one admission domain.
    #[arg(long, value_name = "A/B", default_value = "1", value_parser = Scale::parse)]
    scale: Scale,
    /// Slow motion: every latency, deadline, reserve and budget times N; for `mercury load --dilate N`.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    dilate: u32,
    /// What happens when a child dies.
    #[arg(long, value_enum, default_value_t = ChildExit::Keep)]
    on_child_exit: ChildExit,
    /// Log filter of the children, as in RUST_LOG.
    #[arg(long, value_name = "DIRECTIVES")]
    log: Option<String>,
    /// OTLP endpoint that the children export their spans to.
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// What happens when a child dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ChildExit {
    /// Report it; the others go on.
    Keep,
    /// Report it, and stop the suite.
    Stop,
    /// Report it, and start it again on the same ports.
    Restart,
}

pub(crate) fn run(args: Args) -> Exit {
    // A wrong file is reported here, once, and not by each child in its log.
    let files = serve::policy(args.policy.as_deref())
        .map(drop)
        .and_then(|()| check::scenario(args.scenario.as_deref()).map(drop))
        .and_then(|()| keys::made(args.keys.clone().unwrap_or_else(|| args.state_dir.join("keys"))));
    let keys = match files {
        Ok(keys) => keys,
        Err(exit) => return exit,
    };
    let ledger = args.state_dir.join(rehearsal::ledger::FILE);
    let options = SuiteOptions {
        port: args.port,
        policy: args.policy,
        migration: Some(MigrationFiles { keys, ledger }),
        home_apis: args.home_apis,
        scenario: args.scenario,
        seed: args.seed,
        scale: args.scale,
        dilate: args.dilate,
        on_child_exit: match args.on_child_exit {
            ChildExit::Keep => OnChildExit::Keep,
            ChildExit::Stop => OnChildExit::Stop,
            ChildExit::Restart => OnChildExit::Restart,
        },
        log_filter: args.log,
        otlp_endpoint: args.otlp_endpoint,
        ..SuiteOptions::new(args.state_dir)
    };
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match runtime.block_on(rehearsal::up(options)) {
        Ok(0) => Exit::Pass,
        Ok(_) => Exit::Error("the suite did not end cleanly, see above".to_owned()),
        Err(error) => Exit::Error(error.to_string()),
    }
}
