//! Rollout: `mercury rollout`, where the migration to the signed entitlement summary is looked at and moved.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use base::clock::SystemWallClock;
use model::migration::{self, Plan};
use rehearsal::{
    Verdict,
    migration::{Admin, Desk, DeskError, Phase, desk, hearing, print},
    suite::Endpoints,
};
use serde_json::Value;

use crate::{check, exit::Exit, load::Output, world};

/// Subcommands of `mercury rollout`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print the phase, every process, what was counted, and what would be said to going on. Changes nothing.
    Status(At),
    /// Go on to the next phase, if the phase in force has shown enough.
    ///
    /// Ends 0 once every process is there; 99 when a bound is breached; 98 when there is not enough evidence, or the decision
    /// stands and a process has not confirmed it. Every decision is in the ledger, with what it was decided on.
    Advance(At),
    /// Go back to an earlier phase, whatever the figures and whoever is not heard. Refused after contract.
    Rollback {
        /// The phase: legacy, expand, shadow, canary or cutover [default: the one before].
        #[arg(long, value_name = "PHASE", value_parser = phase)]
        to: Option<Phase>,
        #[command(flatten)]
        at: At,
    },
    /// After contract: bring the entitlement call back, as a migration of its own that begins at cutover.
    Begin(At),
    /// Verify the whole ledger and print every decision about the migration.
    History(Record),
}

/// Where the ledger is.
#[derive(Debug, clap::Args)]
pub(crate) struct Record {
    /// Where `mercury up` keeps its endpoints and its ledger.
    #[arg(long, value_name = "DIR", default_value = ".mercury")]
    state_dir: PathBuf,
    /// The ledger [default: decisions.ndjson in the state directory].
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

/// Where the ledger and the processes are, and by which bounds they are judged.
#[derive(Debug, clap::Args)]
pub(crate) struct At {
    #[command(flatten)]
    record: Record,
    /// The admin port of a process that takes part; once for every home-api and profile [default: those in endpoints.json].
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    process: Vec<String>,
    /// The bounds [default: the shipped ones].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// By the plan's quick extents: smaller samples and shorter soaks, for rehearsals.
    #[arg(long)]
    quick: bool,
}

fn phase(text: &str) -> Result<Phase, String> {
    let names = Phase::ALL.map(Phase::as_str).join(", ");
    Phase::parse(text).ok_or_else(|| format!("expected one of {names}"))
}

/// Nothing is asked of an address that could not be one.
fn address(text: &str) -> Result<String, String> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, for example 127.0.0.1:9464".to_owned()),
    }
}

pub(crate) fn run(command: Command) -> Exit {
    let result = match command {
        Command::Status(at) => status(&at),
        Command::Advance(at) => decide(&at, async |desk| desk.advance().await),
        Command::Rollback { to, at } => decide(&at, async |desk| match to {
            Some(to) => desk.rollback(to).await,
            None => desk.rollback_one().await,
        }),
        Command::Begin(at) => decide(&at, async |desk| desk.begin().await),
        Command::History(record) => history(&record),
    };
    result.unwrap_or_else(|exit| exit)
}

fn status(at: &At) -> Result<Exit, Exit> {
    let desk = at.desk()?;
    let status = world::runtime()?.block_on(desk.status()).map_err(failed)?;
    let (human, json) =
        (|| print::status(&status, &desk.ledger), || print::status_json(&status, &desk.ledger));
    show(at.record.output, human, json);
    Ok(Exit::Pass)
}

fn history(record: &Record) -> Result<Exit, Exit> {
    let history = desk::history(&record.ledger()).map_err(failed)?;
    show(record.output, || print::history(&history), || print::history_json(&history));
    Ok(Exit::Pass)
}

fn decide(
    at: &At,
    decide: impl AsyncFnOnce(&Desk<Admin>) -> Result<rehearsal::migration::Decided, DeskError>,
) -> Result<Exit, Exit> {
    let desk = at.desk()?;
    let decided = world::runtime()?.block_on(decide(&desk)).map_err(failed)?;
    show(at.record.output, || print::decided(&decided), || print::decided_json(&decided));
    Ok(match decided.verdict() {
        Verdict::Pass => Exit::Pass,
        Verdict::Fail => Exit::GateFailed(decided.why()),
        Verdict::Inconclusive | Verdict::NotApplicable => Exit::Inconclusive(decided.why()),
    })
}

fn show(output: Output, human: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
    match output {
        Output::Human => print!("{}", human()),
        Output::Json => println!("{:#}", json()),
    }
}

fn failed(error: DeskError) -> Exit {
    match error.exit_code() {
        2 => Exit::Usage(error.to_string()),
        _ => Exit::Error(error.to_string()),
    }
}

impl Record {
    fn ledger(&self) -> PathBuf {
        self.ledger.clone().unwrap_or_else(|| self.state_dir.join(rehearsal::ledger::FILE))
    }
}

impl At {
    fn desk(&self) -> Result<Desk<Admin>, Exit> {
        let plan = match &self.plan {
            Some(path) => check::read(path, Plan::parse).map_err(Exit::Usage)?,
            None => Plan::parse(migration::SHIPPED.0, migration::SHIPPED.1)
                .map_err(|faults| Exit::Usage(faults.to_string()))?,
        };
        let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        Ok(Desk {
            ledger: self.record.ledger(),
            processes: self.processes()?,
            plan,
            quick: self.quick,
            actor: rehearsal::ledger::operator(),
            command: format!("mercury {words}"),
            wall: Arc::new(SystemWallClock),
            hearing: Admin,
        })
    }

    /// Who is asked.
    fn processes(&self) -> Result<Vec<String>, Exit> {
        let processes =
            if self.process.is_empty() { listed(&self.record.state_dir)? } else { self.process.clone() };
        if processes.len() > desk::PROCESSES_MAX {
            let (given, most) = (processes.len(), desk::PROCESSES_MAX);
            return Err(Exit::Usage(format!("--process: {given} processes, at most {most} are asked")));
        }
        if let Some(twice) = (1..processes.len()).find(|at| processes[..*at].contains(&processes[*at])) {
            return Err(Exit::Usage(format!("--process: {} is given twice", processes[twice])));
        }
        Ok(processes)
    }
}

/// The processes of the suite of `state_dir`.
fn listed(state_dir: &Path) -> Result<Vec<String>, Exit> {
    let path = state_dir.join("endpoints.json");
    let name = path.display();
    let endpoints = Endpoints::read(&path).map_err(|error| {
        Exit::Usage(format!(
            "{name}: {error}: start a suite with mercury up, or name the processes by --process"
        ))
    })?;
    let processes = hearing::taking_part(&endpoints);
    if processes.is_empty() {
        return Err(Exit::Usage(format!("{name}: it has no home-api and no profile")));
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn line(words: &[&str]) -> Result<Command, clap::Error> {
        Line::try_parse_from(std::iter::once("rollout").chain(words.iter().copied())).map(|line| line.command)
    }

    #[test]
    fn what_cannot_be_is_a_mistake_of_use() {
        for words in [
            &["rollback", "--to", "contracted"][..],
            &["rollback", "--to"],
            &["advance", "--process", "9464"],
            &["advance", "--process", ":9464"],
            &["advance", "--process", "host:0"],
            &["advance", "--process", "host:65536"],
            &["history", "--quick"],
            &["status", "--output", "yaml"],
        ] {
            assert!(line(words).is_err(), "{words:?}");
        }
        let Ok(Command::Rollback { to, at }) =
            line(&["rollback", "--to", "shadow", "--process", "[::1]:9464"])
        else {
            panic!("a line that reads");
        };
        assert_eq!((to, at.process), (Some(Phase::Shadow), vec!["[::1]:9464".to_owned()]));
    }

    #[test]
    fn processes_are_those_named_or_those_of_the_state_directory() {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().display().to_string();
        let at = |words: &[&str]| match line(&[&["status", "--state-dir", &dir], words].concat()) {
            Ok(Command::Status(at)) => at,
            other => panic!("{other:?}"),
        };
        let Err(Exit::Usage(text)) = at(&[]).processes() else { panic!("there is no suite") };
        assert!(text.contains("endpoints.json") && text.contains("--process"), "{text}");
        std::fs::write(home.path().join("endpoints.json"), "{}").expect("written");
        assert!(matches!(at(&[]).processes(), Err(Exit::Usage(_))));
        let endpoints = r#"{"home-api":{"http":"h:1","admin":"h:2","pid":1},"profile":{"grpc":"h:3","admin":"h:4","pid":2}}"#;
        std::fs::write(home.path().join("endpoints.json"), endpoints).expect("written");
        assert_eq!(at(&[]).processes().expect("listed"), ["h:2", "h:4"]);
        let named = at(&["--process", "a:1", "--process", "b:2", "--ledger", "l.ndjson"]);
        assert_eq!(named.processes().expect("named"), ["a:1", "b:2"]);
        assert_eq!(named.record.ledger(), Path::new("l.ndjson"));
        assert_eq!(at(&[]).record.ledger(), home.path().join("decisions.ndjson"));
        let twice = at(&["--process", "a:1", "--process", "b:2", "--process", "a:1"]);
        let Err(Exit::Usage(text)) = twice.processes() else { panic!("it would count twice") };
        assert!(text.contains("a:1 is given twice"), "{text}");
    }

    /// Nobody is up: every command says so by its exit, and asking makes no ledger.
    #[test]
    fn without_anybody_the_exits_are_those_that_scripts_rely_on() {
        let home = tempfile::tempdir().expect("a directory");
        let ledger = home.path().join("decisions.ndjson");
        let path = ledger.display().to_string();
        let words = |words: &[&'static str]| {
            let given = [words, &["--ledger", &path]].concat();
            run(line(&given).expect("a line that reads"))
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let nobody = free.local_addr().expect("bound").to_string();
        drop(free);
        let nobody: &'static str = nobody.leak();
        assert!(matches!(words(&["status", "--process", nobody]), Exit::Pass));
        assert!(matches!(words(&["history"]), Exit::Pass));
        assert!(matches!(words(&["rollback", "--to", "legacy", "--process", nobody]), Exit::Usage(_)));
        assert!(matches!(words(&["rollback", "--process", nobody]), Exit::Usage(_)));
        assert!(matches!(words(&["begin", "--process", nobody]), Exit::Usage(_)));
        assert!(!ledger.exists());
        let Exit::Inconclusive(why) = words(&["advance", "--quick", "--process", nobody]) else {
            panic!("nobody was heard");
        };
        assert!(why.contains("hold before expand") && why.contains(nobody), "{why}");
        std::fs::write(&ledger, "x\n").expect("written");
        for command in [&["status", "--process", nobody][..], &["advance", "--process", nobody], &["history"]]
        {
            let Exit::Error(why) = words(command) else { panic!("{command:?} took it") };
            assert!(why.contains("decisions.ndjson:1"), "{why}");
        }
    }
}
