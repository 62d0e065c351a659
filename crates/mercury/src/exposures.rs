//! Exposures: `mercury exposures`, whether the ledger says what happened.

pub(crate) mod ledger;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use rehearsal::{
    Verdict,
    control::Control,
    effects::Ledger as _,
    exposures::{Account, Catalogue, ReconcileError, print, reconcile, reconcile::Limits},
};

use crate::{
    endpoints,
    exit::{self, Exit},
    load::Output,
    world,
};

/// Where the suite of a state directory keeps its exposures.
const LEDGER: &str = "ledger/exposures.db";
/// Most examples of a kind of discrepancy.
const EXAMPLES_MAX: u16 = 1_000;

/// Subcommands of `mercury exposures`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Reconcile the exposure ledger with the generator's record and the emulator's catalogue.
    ///
    /// Every arm that was shown has exactly one row, no row is without a request, and no row states what it does not
    /// recompute to. Rows of operations whose caller left or was not answered are counted apart. Exits with 0 when all of it
    /// holds, 99 when something does not, and 98 when there is not enough evidence: an empty ledger, an empty record, or
    /// one that breaks off.
    Verify(Verify),
    /// Keep what the catalogue of experiments serves in a file, to verify with once the emulator is gone.
    Catalogue(Keep),
}

/// Arguments of `mercury exposures verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// The ledger, a file or a PostgreSQL URL [default: that of the suite in the state directory].
    #[arg(long, value_name = "LOCATION", env = "MERCURY_LEDGER", hide_env_values = true)]
    ledger: Option<String>,
    /// What `mercury load --record` wrote; once for every run that went into the ledger.
    #[arg(long = "record", value_name = "FILE", required = true)]
    records: Vec<PathBuf>,
    /// The catalogue that `mercury exposures catalogue` kept, instead of asking the emulator.
    #[arg(long, value_name = "FILE", conflicts_with = "emulator")]
    catalogue: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    /// Examples told of every kind of discrepancy.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=i64::from(EXAMPLES_MAX)))]
    examples: u16,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

/// Arguments of `mercury exposures catalogue`.
#[derive(Debug, clap::Args)]
pub(crate) struct Keep {
    #[command(flatten)]
    at: At,
    /// The file.
    #[arg(long, value_name = "FILE", default_value = "catalogue.json")]
    out: PathBuf,
}

/// Where the suite is.
#[derive(Debug, clap::Args)]
pub(crate) struct At {
    /// The emulator's control port [default: the one in `endpoints.json`, else 127.0.0.1:50052].
    #[arg(long, value_name = "HOST:PORT")]
    emulator: Option<String>,
    /// Where `mercury up` keeps its endpoints.
    #[arg(long, value_name = "DIR", default_value = ".mercury")]
    state_dir: PathBuf,
    /// The surface whose exposures are meant.
    #[arg(long, value_name = "NAME", default_value = model::names::HOME_SURFACE)]
    surface: String,
}

pub(crate) fn run(command: Command) -> Exit {
    let runtime = match world::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match command {
        Command::Verify(args) => runtime.block_on(verify(args)).unwrap_or_else(|exit| exit),
        Command::Catalogue(args) => exit::of(runtime.block_on(keep(args))),
    }
}

async fn verify(args: Verify) -> Result<Exit, Exit> {
    let ledger = match &args.ledger {
        Some(text) => text.clone(),
        None => args.at.state_dir.join(LEDGER).to_string_lossy().into_owned(),
    };
    let ledger = ledger::Ledger::parse(&ledger).map_err(Exit::Usage)?;
    let catalogue = match &args.catalogue {
        Some(path) => Catalogue::read(path)
            .map_err(|fault| Exit::Usage(format!("--catalogue {}: {fault}", path.display())))?,
        None => ask(&args.at).await?,
    };
    let limits = Limits { examples_max: args.examples.into(), ..Limits::default() };
    let account =
        reconcile(&ledger, &args.records, &catalogue, limits).await.map_err(|error| match error {
            ReconcileError::Record(_) => Exit::Usage(error.to_string()),
            ReconcileError::Ledger(_) => Exit::Error(error.to_string()),
        })?;
    match args.output {
        Output::Human => print!("{}", print::render(&account, &ledger.shown())),
        Output::Json => {
            let json = serde_json::to_string_pretty(&account)
                .map_err(|error| Exit::Error(format!("the account cannot be written: {error}")))?;
            println!("{json}");
        }
    }
    Ok(concluded(&account))
}

fn concluded(account: &Account) -> Exit {
    match account.verdict {
        Verdict::Pass => Exit::Pass,
        Verdict::Fail => Exit::GateFailed(account.why()),
        Verdict::Inconclusive | Verdict::NotApplicable => Exit::Inconclusive(account.why()),
    }
}

async fn keep(args: Keep) -> Result<(), Exit> {
    let catalogue = ask(&args.at).await?;
    catalogue
        .write(&args.out)
        .map_err(|error| Exit::Error(format!("cannot write {}: {error}", args.out.display())))
}

async fn ask(at: &At) -> Result<Catalogue, Exit> {
    let known = || endpoints::find(&at.state_dir, "emulator", "control");
    let address = at.emulator.clone().or_else(known).unwrap_or("127.0.0.1:50052".to_owned());
    let mut control = Control::new(&address).map_err(|error| Exit::Usage(format!("--emulator: {error}")))?;
    Catalogue::ask(&mut control, &at.surface).await.map_err(|error| Exit::Error(error.to_string()))
}
