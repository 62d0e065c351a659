//! Up: `mercury up`, the whole suite as child processes on loopback until Ctrl-C.

use std::path::PathBuf;

use model::scale::Scale;
use rehearsal::{OnChildExit, SuiteOptions};

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
    /// The key that profile signs entitlement summaries with (`mercury keys init`); needed where the policy has them emitted.
    #[arg(long, value_name = "FILE")]
    summary_key: Option<PathBuf>,
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
        .and_then(|policy| keys::suits(&policy, args.summary_key.as_deref()))
        .and(check::scenario(args.scenario.as_deref()));
    if let Err(exit) = files {
        return exit;
    }
    let options = SuiteOptions {
        port: args.port,
        policy: args.policy,
        summary_key: args.summary_key,
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
