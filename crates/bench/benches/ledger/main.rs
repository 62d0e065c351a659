//! Ledger: durable exposures per second through the recorder, beside a bare `INSERT` loop of the same library over the same table
//! with the same rows to a transaction, and how long a caller waits at a steady rate.
//!
//! The two take turns round by round, each on tables that grow alike, so that the machine's noise harms both; figures are
//! medians. The bare loop keeps what makes a row durable and leaves out what makes it an exposure ledger: it has no
//! queue and no callers, finds no replays and answers nobody.
//!
//! Without an argument the ledger is an SQLite file in a directory of its own, beside what was built: where temporary files are kept
//! may be memory, and a commit to memory costs nothing. `--ledger FILE`, `--ledger postgres://…` measure
//! another one, which must hold nothing of value; `--ledger throwaway` starts a PostgreSQL server for the while.
//! `--rounds N` sets how long, and `--goals` ends with a failure when a goal is missed, or when nothing was measured.

mod bare;
mod paced;
mod recorded;
mod rows;

use std::process::ExitCode;

use base::Nanos;
use experiment::ledger::Location;
use model::policy::Policy;

/// Rounds of each side, after one that is not counted.
const ROUNDS: usize = 7;
/// Rows of a round.
const ROUND_ROWS: usize = 12_000;
/// Rows of a request, as a home page has them.
const REQUEST_ROWS: usize = 3;
/// Requests under way at once.
const CONCURRENCY: usize = 256;
/// Rows a second, and for how long, when it is about waiting.
const PACE: usize = 1_000;
const PACED: Nanos = Nanos::from_secs(10);

/// Rows a second that a store must take.
const SQLITE_GOAL: f64 = 5_000.0;
const POSTGRES_GOAL: f64 = 2_000.0;
/// Longest wait of 99 in 100 at [`PACE`].
const P99_GOAL: Nanos = Nanos::from_millis(25);

fn main() -> ExitCode {
    let rounds = argument("--rounds").map_or(ROUNDS, |text| text.parse().expect("a number")).max(1);
    let goals = std::env::args().any(|argument| argument == "--goals");
    let directory =
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory beside what was built");
    let file = directory.path().join("exposures.sqlite").display().to_string();
    let (server, text) = match argument("--ledger") {
        None => (None, file),
        Some(text) if text == "throwaway" => match throwaway_postgres::Server::start(&[]) {
            Some(server) => {
                let url = server.database("exposures");
                (Some(server), url)
            }
            None if goals => {
                eprintln!("nothing was measured, so no goal was met");
                return ExitCode::FAILURE;
            }
            None => return ExitCode::SUCCESS,
        },
        Some(text) => (None, text),
    };
    let location = match Location::parse(&text) {
        Ok(location) => location,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let missed = runtime.block_on(measure(&location, rounds));
    drop(server);
    if missed > 0 && goals {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The value behind `name` on the command line. Cargo adds arguments of its own, which are nobody's business here.
fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// Measures and prints; goals that were missed.
async fn measure(location: &Location, rounds: usize) -> usize {
    let bounds = experiment::recorder::Bounds::of(&Policy::shipped().exposure);
    // The recorder takes whole requests until a batch has its rows.
    let batch_rows = bounds.batch_rows_max.div_ceil(REQUEST_ROWS) * REQUEST_ROWS;
    let (store, goal) = match location {
        Location::File(_) => ("SQLite", SQLITE_GOAL),
        Location::Postgres(_) => ("PostgreSQL", POSTGRES_GOAL),
    };
    println!(
        "{store}, {location}, every commit on disk; transactions of {batch_rows} rows, {CONCURRENCY} callers:"
    );
    let recorder = recorded::open(location, bounds).await;
    let mut bare = bare::Loop::open(location).await;
    let mut numbers = 0..;
    let mut next = |count: usize| rows::exposures(numbers.by_ref().take(count));
    let mut pairs = Vec::with_capacity(rounds);
    for number in 0..=rounds {
        let (own, theirs) = (next(ROUND_ROWS), next(ROUND_ROWS));
        // Whoever goes second finds a warmer disk, so they take turns.
        let (own, theirs) = if number % 2 == 0 {
            let own = recorded::round(&recorder, own).await;
            (own, bare.round(&theirs, batch_rows).await)
        } else {
            let theirs = bare.round(&theirs, batch_rows).await;
            (recorded::round(&recorder, own).await, theirs)
        };
        if number > 0 {
            pairs.push((own, theirs));
        }
    }
    let rate = median(pairs.iter().map(|pair| pair.0));
    println!("  recorder     {rate:>8.0} rows/s (goal: at least {goal:.0})");
    println!("  bare INSERT  {:>8.0} rows/s", median(pairs.iter().map(|pair| pair.1)));
    println!("  ratio        {:>8.3}", median(pairs.iter().map(|(own, theirs)| own / theirs)));
    let waits = paced::run(&recorder, next(PACE * PACED.as_secs_f64() as usize), PACE).await;
    let p99 = waits.quantile(0.99);
    println!(
        "  at {PACE} rows/s, one to a request, from the moment each was due: p50 {:.2} ms, p99 {:.2} ms (goal: at most {} ms), \
         longest {:.2} ms",
        waits.quantile(0.5).as_millis_f64(),
        p99.as_millis_f64(),
        P99_GOAL.as_millis(),
        waits.quantile(1.0).as_millis_f64()
    );
    bare.close().await;
    usize::from(rate < goal) + usize::from(p99 > P99_GOAL)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a bench has no drain; its tasks end with the process")]
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}
