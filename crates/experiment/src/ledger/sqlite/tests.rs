//! Tests of the ledger on disk, over real files.

use std::{
    collections::HashSet,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use base::{
    Deadline,
    clock::{MonotonicClock, SystemWallClock},
};
use serve::health::Readiness;
use tempfile::TempDir;

use super::*;
use crate::{
    decide::{Experiment, Surface, Variant, exposure::tests::context},
    ledger::schema::{Step, Version},
    metrics::Metrics,
    recorder::{Bounds, Outcome, group_commit, standing::Standing},
};

const PATIENT: Nanos = Nanos::from_secs(30);
const IMPATIENT: Nanos = Nanos::from_millis(1);

async fn open(path: &Path, busy_timeout: Nanos) -> SqliteLedger {
    SqliteLedger::open(path, busy_timeout, Arc::new(SystemWallClock)).await.expect("a sound ledger")
}

async fn refusal(path: &Path) -> String {
    let error = SqliteLedger::open(path, PATIENT, Arc::new(SystemWallClock))
        .await
        .err()
        .expect("not a ledger")
        .to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
    error
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("exposures.db");
    (directory, path)
}

/// The exposure of an operation; another surface gives another body under the same event id.
fn exposure(operation: usize, surface: &str) -> Exposure {
    let arm = Variant { name: "a".into(), weight: 1 };
    let experiment = Experiment { id: "e".into(), version: 1, variants: vec![arm.clone()] };
    let context = context("user-00000", &format!("op-{operation}"));
    Exposure::new(&context, &Surface::new(surface.into()).expect("valid"), &experiment, &arm)
}

fn exposures(operations: std::ops::Range<usize>) -> Vec<Exposure> {
    operations.map(|operation| exposure(operation, "home")).collect()
}

async fn record(ledger: &mut SqliteLedger, rows: &[Exposure]) -> Result<Vec<Stored>, WriteError> {
    ledger.record(&rows.iter().collect::<Vec<_>>()).await
}

fn fresh(stored: &[Stored]) -> usize {
    stored.iter().filter(|row| row.fresh).count()
}

async fn number(ledger: &mut SqliteLedger, sql: &'static str) -> i64 {
    let connection = ledger.connection.as_mut().expect("open");
    sqlx::query_scalar(sql).fetch_one(connection).await.expect("a number")
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.expect("valid SQL");
}

#[tokio::test]
async fn rows_are_written_once_and_never_changed() {
    let (_directory, path) = place();
    let mut ledger = open(&path, PATIENT).await;
    let rows = exposures(0..3);
    let stored = record(&mut ledger, &rows).await.expect("committed");
    assert_eq!(
        stored.iter().map(|row| row.body).collect::<Vec<_>>(),
        rows.iter().map(|row| row.body).collect::<Vec<_>>()
    );
    assert_eq!(fresh(&stored), 3);

    // Two old rows, one of them with another body, around a new one, and in another order.
    let mixed = [rows[2].clone(), exposure(3, "home"), exposure(0, "search")];
    let stored = record(&mut ledger, &mixed).await.expect("committed");
    assert_eq!(stored.iter().map(|row| row.fresh).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(stored[2].body, rows[0].body, "the row as it was first written");
    assert_eq!(number(&mut ledger, "SELECT count(*) FROM exposure WHERE surface = 'home'").await, 4);
    assert_eq!(number(&mut ledger, "SELECT count(*) FROM exposure").await, 4);
}

#[tokio::test]
async fn rows_outlive_the_process_that_wrote_them() {
    let (_directory, path) = place();
    let rows = exposures(0..100);
    let mut ledger = open(&path, PATIENT).await;
    record(&mut ledger, &rows).await.expect("committed");
    ledger.close().await;
    assert!(!path.with_extension("db-wal").exists(), "a clean close folds the log in");
    let mut ledger = open(&path, PATIENT).await;
    assert_eq!(fresh(&record(&mut ledger, &rows).await.expect("committed")), 0);
    assert_eq!(number(&mut ledger, "SELECT count(*) FROM exposure").await, 100);
}

#[tokio::test]
async fn commits_are_durable_by_configuration() {
    let (_directory, path) = place();
    let mut ledger = open(&path, Nanos::from_millis(1_234)).await;
    let connection = ledger.connection.as_mut().expect("open");
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(connection).await.expect("a mode");
    assert_eq!(mode, "wal");
    assert_eq!(number(&mut ledger, "PRAGMA synchronous").await, 2, "FULL");
    assert_eq!(number(&mut ledger, "PRAGMA busy_timeout").await, 1_234);
    assert_eq!(number(&mut ledger, "PRAGMA cache_size").await, -512);
    assert_eq!(number(&mut ledger, "PRAGMA user_version").await, 1);
    ledger.set_patience(Patience { lock: Nanos::from_millis(4_321), step: PATIENT });
    assert_eq!(ledger.probe().await, Ok(()));
    assert_eq!(number(&mut ledger, "PRAGMA busy_timeout").await, 4_321);
}

#[tokio::test]
async fn a_batch_may_be_larger_than_a_statement() {
    let (_directory, path) = place();
    let mut ledger = open(&path, PATIENT).await;
    let rows = exposures(0..ROWS_PER_STATEMENT_MAX + 1);
    assert_eq!(fresh(&record(&mut ledger, &rows[1..]).await.expect("one statement")), ROWS_PER_STATEMENT_MAX);
    let stored = record(&mut ledger, &rows).await.expect("two statements");
    assert_eq!(stored.len(), ROWS_PER_STATEMENT_MAX + 1);
    assert!(stored[0].fresh && fresh(&stored) == 1);
}

#[tokio::test]
async fn a_lock_held_too_long_is_known_absent_and_leaves_the_connection_in_use() {
    let (_directory, path) = place();
    let mut ledger = open(&path, IMPATIENT).await;
    let mut other = super::open::reopen(&ledger.options).await.expect("a second connection");
    run(&mut other, "BEGIN IMMEDIATE").await;
    let error = record(&mut ledger, &exposures(0..3)).await.expect_err("locked");
    assert!(matches!(&error, WriteError::KnownAbsent(detail) if detail.contains("locked")), "{error}");
    assert!(ledger.connection.is_some());
    run(&mut other, "ROLLBACK").await;
    assert_eq!(fresh(&record(&mut ledger, &exposures(0..3)).await.expect("free")), 3);
}

#[tokio::test]
async fn two_writers_of_one_id_agree_on_who_recorded_it() {
    for first_commits in [true, false] {
        let (_directory, path) = place();
        let mut second = open(&path, PATIENT).await;
        let mut first = super::open::reopen(&second.options).await.expect("a second connection");
        let rows = [exposure(0, "home"), exposure(1, "search")];
        let mut transaction = first.begin_with("BEGIN IMMEDIATE").await.expect("free");
        let kept: Vec<_> = rows.iter().collect();
        let batch = Batch { rows: &kept, recorded_unix_ms: 0 };
        assert_eq!(fresh(&batch.write(&mut transaction).await.expect("written")), 2);

        // The second one waits for the lock; one of its rows has another body than the first one's.
        let own = exposures(0..2);
        let (stored, ()) = tokio::join!(record(&mut second, &own), async {
            let end = if first_commits { transaction.commit().await } else { transaction.rollback().await };
            end.expect("ended");
        });
        let stored = stored.expect("the lock came free");
        assert_eq!(fresh(&stored), if first_commits { 0 } else { 2 });
        assert_eq!(stored[0].body, own[0].body);
        assert_eq!(stored[1].body == own[1].body, !first_commits);
        assert_eq!(number(&mut second, "SELECT count(*) FROM exposure").await, 2);
    }
}

#[tokio::test]
async fn many_callers_beside_a_reader_never_meet_a_lock() {
    let (_directory, path) = place();
    let ledger = open(&path, IMPATIENT).await;
    // A backup reads one snapshot for the whole time.
    let mut reader = super::open::reopen(&ledger.options).await.expect("a second connection");
    run(&mut reader, "BEGIN; SELECT count(*) FROM exposure").await;
    let patience = Patience { lock: IMPATIENT, step: PATIENT };
    let bounds = Bounds { batch_rows_max: 7, probe_interval: PATIENT, patience, ..Bounds::WIDE };
    let bounds = tokio::sync::watch::channel(bounds).1;
    let clock = Arc::new(MonotonicClock);
    let standing = Standing::new(Readiness::new().condition("exposure ledger"));
    let (recorder, writer) = group_commit(ledger, bounds, clock.clone(), standing, Arc::new(Metrics::new()));
    let callers = async {
        // Every operation is sent twice, by 64 callers at once.
        let pending: Vec<_> =
            (0..64).map(|at| recorder.submit(exposures(at / 2 * 3..at / 2 * 3 + 3))).collect();
        drop(recorder);
        let mut seen = Vec::new();
        for pending in pending {
            let pending = pending.expect("room");
            seen.extend(
                pending.answer(&*clock, Deadline::at(Nanos::MAX)).await.expect("no caller meets a lock"),
            );
        }
        seen
    };
    let ((), seen) = tokio::join!(writer.run(), callers);
    let count = |outcome| seen.iter().filter(|seen| **seen == outcome).count();
    assert_eq!((count(Outcome::Committed), count(Outcome::Replayed)), (96, 96));
    let in_snapshot: i64 =
        sqlx::query_scalar("SELECT count(*) FROM exposure").fetch_one(&mut reader).await.expect("a number");
    assert_eq!(in_snapshot, 0, "the reader was not disturbed either");
    run(&mut reader, "COMMIT").await;
    assert_eq!(number(&mut open(&path, PATIENT).await, "SELECT count(*) FROM exposure").await, 96);
}

#[tokio::test]
async fn a_full_disk_is_known_absent_and_the_retry_commits() {
    let (_directory, path) = place();
    let mut ledger = open(&path, PATIENT).await;
    let rows = exposures(0..500);
    let pages = number(&mut ledger, "PRAGMA page_count").await;
    assert_eq!(number(&mut ledger, "PRAGMA max_page_count = 1").await, pages, "no page more than there is");
    let error = record(&mut ledger, &rows).await.expect_err("no room");
    assert!(matches!(&error, WriteError::KnownAbsent(detail) if detail.contains("full")), "{error}");
    if let Some(connection) = ledger.connection.as_mut() {
        run(connection, "PRAGMA max_page_count = 1000000").await;
    }
    assert_eq!(fresh(&record(&mut ledger, &rows).await.expect("room again")), 500);
    assert_eq!(number(&mut ledger, "SELECT count(*) FROM exposure").await, 500);
}

#[tokio::test]
async fn a_commit_that_fails_is_of_unknown_outcome_and_the_retry_settles_it() {
    let (_directory, path) = place();
    let mut ledger = open(&path, PATIENT).await;
    // A deferred constraint that every insert breaks is found at COMMIT and nowhere before, on this connection only.
    let trap = "
        PRAGMA foreign_keys = ON;
        CREATE TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER trap AFTER INSERT ON exposure BEGIN INSERT INTO child VALUES (1); END;
    ";
    run(ledger.connection.as_mut().expect("open"), trap).await;
    let error = record(&mut ledger, &exposures(0..3)).await.expect_err("COMMIT fails");
    assert!(matches!(&error, WriteError::Unknown(detail) if detail.contains("FOREIGN KEY")), "{error}");
    assert!(ledger.connection.is_none(), "its state is in doubt");
    assert_eq!(fresh(&record(&mut ledger, &exposures(0..3)).await.expect("a new connection")), 3);
    assert_eq!(number(&mut ledger, "SELECT count(*) FROM exposure").await, 3);
}

#[tokio::test]
async fn a_ledger_that_vanished_is_not_made_anew() {
    let (_directory, path) = place();
    let mut ledger = open(&path, PATIENT).await;
    record(&mut ledger, &exposures(0..3)).await.expect("committed");
    ledger.close().await;
    fs::remove_file(&path).expect("it is there");
    let error = record(&mut ledger, &exposures(0..3)).await.expect_err("gone");
    assert!(matches!(error, WriteError::KnownAbsent(_)), "{error}");
    assert!(!path.exists());
    // Nor is another file taken for it.
    fs::write(&path, b"").expect("written");
    let error = record(&mut ledger, &exposures(0..3)).await.expect_err("empty");
    assert!(
        matches!(&error, WriteError::KnownAbsent(detail) if detail.contains("no longer the ledger")),
        "{error}"
    );
    assert_eq!(fs::metadata(&path).expect("it is there").len(), 0);
}

#[tokio::test]
async fn what_is_no_ledger_is_refused_by_name_and_left_alone() {
    let (directory, path) = place();
    fs::write(&path, b"these are my notes and no database, however long the file is\n".repeat(200))
        .expect("written");
    let before = fs::read(&path).expect("readable");
    assert!(refusal(&path).await.contains("not a database"));
    assert_eq!(fs::read(&path).expect("readable"), before);

    let foreign = directory.path().join("other.db");
    let options = SqliteConnectOptions::new().filename(&foreign).create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options).await.expect("created");
    run(&mut connection, "CREATE TABLE mine (id INTEGER)").await;
    connection.close().await.expect("closed");
    let before = fs::read(&foreign).expect("readable");
    assert!(refusal(&foreign).await.contains("something else"));
    assert_eq!(fs::read(&foreign).expect("readable"), before);

    refusal(directory.path()).await;
    refusal(&directory.path().join("missing").join("exposures.db")).await;
}

/// Opens the file as a program that knows `steps`.
async fn open_as(path: &Path, steps: &[Step]) -> Result<SqliteConnection, OpenError> {
    super::open::open_with(path, &super::open::options(path, PATIENT), steps).await
}

#[tokio::test]
async fn a_schema_that_only_grew_is_used_and_one_that_lost_something_is_refused() {
    let (_directory, path) = place();
    let mut ledger = open(&path, PATIENT).await;
    record(&mut ledger, &exposures(0..3)).await.expect("committed");
    ledger.close().await;
    let known = super::open::MIGRATIONS.to_vec();
    let grown =
        [&known[..], &[Step::Expand("ALTER TABLE exposure ADD COLUMN note TEXT NOT NULL DEFAULT ''")]]
            .concat();
    open_as(&path, &grown).await.expect("a newer program").close().await.expect("closed");

    // This program goes on, and so does the newer one after it.
    let mut ledger = open(&path, PATIENT).await;
    assert_eq!(fresh(&record(&mut ledger, &exposures(2..5)).await.expect("committed")), 2);
    ledger.close().await;
    open_as(&path, &grown).await.expect("nothing was taken back").close().await.expect("closed");

    let shrunk = [&grown[..], &[Step::Contract("ALTER TABLE exposure DROP COLUMN surface")]].concat();
    open_as(&path, &shrunk).await.expect("a newer program").close().await.expect("closed");
    let refused = refusal(&path).await;
    let version = Version::after(&shrunk).taken.to_string();
    assert!(
        refused.contains(&format!("knows version {version}")) && refused.contains("up to 2"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_file_of_the_first_version_is_taken_on_and_left_usable_for_its_program() {
    let (_directory, path) = place();
    let first = &super::open::MIGRATIONS[..1];
    let mut old = open_as(&path, first).await.expect("made");
    let number = async |connection: &mut SqliteConnection, sql| -> i64 {
        sqlx::query_scalar(sql).fetch_one(connection).await.expect("a number")
    };
    assert_eq!(number(&mut old, "PRAGMA user_version").await, 1);
    assert_eq!(number(&mut old, "SELECT count(*) FROM sqlite_schema WHERE name = 'room'").await, 0);
    old.close().await.expect("closed");
    let mut ledger = open(&path, PATIENT).await;
    assert_eq!(ledger.probe().await, Ok(()));
    record(&mut ledger, &exposures(0..3)).await.expect("committed");
    ledger.close().await;
    // The program of the first version looks at the header alone.
    let mut old = open_as(&path, first).await.expect("its own version");
    assert_eq!(number(&mut old, "PRAGMA user_version").await, 1);
    assert_eq!(number(&mut old, "SELECT count(*) FROM exposure").await, 3);
}

#[tokio::test]
async fn a_probe_leaves_nothing_and_finds_what_a_batch_would_find() {
    let (_directory, path) = place();
    let mut ledger = open(&path, IMPATIENT).await;
    let rows = exposures(0..500);
    assert_eq!(ledger.probe().await, Ok(()));
    assert_eq!(number(&mut ledger, "SELECT count(*) FROM exposure").await, 0);
    assert_eq!(number(&mut ledger, "SELECT count(*) FROM room").await, 0);

    // Somebody else's lock.
    let mut other = super::open::reopen(&ledger.options).await.expect("a second connection");
    run(&mut other, "BEGIN IMMEDIATE").await;
    assert!(ledger.probe().await.expect_err("locked").contains("locked"));
    run(&mut other, "ROLLBACK").await;
    assert_eq!(ledger.probe().await, Ok(()));

    // No room. What the probe before found room for is still there, so it is used up first.
    let limit = |pages: i64| sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
    let connection = ledger.connection.as_mut().expect("open");
    sqlx::raw_sql(limit(1)).execute(&mut *connection).await.expect("as many as there are");
    let mut taken = 0;
    while record(&mut ledger, &rows[taken..taken + 10]).await.is_ok() {
        taken += 10;
    }
    if let Some(connection) = ledger.connection.as_mut() {
        sqlx::raw_sql(limit(1)).execute(connection).await.expect("as many as there are");
    }
    assert!(ledger.probe().await.expect_err("no room").contains("full"));
    assert_eq!(ledger.probe().await, Ok(()), "a new connection has no such limit");

    // Gone, or another file.
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).expect("moved");
    assert!(ledger.probe().await.is_err());
    assert!(
        record(&mut ledger, &rows[490..]).await.is_err(),
        "nothing is written where nobody would read it"
    );
    fs::rename(&aside, &path).expect("moved back");
    assert_eq!(ledger.probe().await, Ok(()));
    assert_eq!(fresh(&record(&mut ledger, &rows[490..]).await.expect("committed")), 10);
}

#[tokio::test]
async fn a_damaged_ledger_is_refused() {
    let (_directory, path) = place();
    let mut ledger = open(&path, PATIENT).await;
    record(&mut ledger, &exposures(0..2_000)).await.expect("committed");
    ledger.close().await;
    let sound = fs::read(&path).expect("readable");
    let page = 4_096;
    assert!(sound.len() > 20 * page);

    let mut damaged = sound.clone();
    damaged[10 * page..11 * page].fill(0xa5);
    fs::write(&path, &damaged).expect("written");
    assert!(refusal(&path).await.contains("damaged"));
    assert_eq!(fs::read(&path).expect("readable"), damaged, "evidence is left as it is");

    fs::write(&path, &sound[..12 * page]).expect("written");
    refusal(&path).await;

    fs::write(&path, &sound).expect("written");
    assert_eq!(
        fresh(&record(&mut open(&path, PATIENT).await, &exposures(0..2_000)).await.expect("sound")),
        0
    );
}

/// Set for the process that a test starts to kill it: the ledger that it writes to.
const CHILD_LEDGER: &str = "EXPERIMENT_TEST_CHILD_LEDGER";

/// Records without end and says what was answered.
async fn write_until_killed(path: &Path) {
    let mut ledger = open(path, PATIENT).await;
    println!(); // Ends what the test harness has begun to write.
    for batch in 0.. {
        record(&mut ledger, &exposures(batch * 5..batch * 5 + 5)).await.expect("committed");
        println!("answered {batch}");
    }
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    if let Some(path) = std::env::var_os(CHILD_LEDGER) {
        return write_until_killed(Path::new(&path)).await;
    }
    let (_directory, path) = place();
    let mut child = Command::new(std::env::current_exe().expect("this test binary"))
        .args(["--exact", "--nocapture", "ledger::sqlite::tests::what_was_answered_survives_a_kill"])
        .env(CHILD_LEDGER, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let answered: HashSet<usize> = lines
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("answered ")?.parse().ok())
        .inspect(|batch| {
            if *batch == 20 {
                child.kill().expect("running"); // In the middle of whatever the next transaction is doing.
            }
        })
        .collect();
    child.wait().expect("killed");
    assert!(answered.len() > 20);

    let mut ledger = open(&path, PATIENT).await;
    for batch in &answered {
        let stored = record(&mut ledger, &exposures(batch * 5..batch * 5 + 5)).await.expect("committed");
        assert_eq!(fresh(&stored), 0, "batch {batch} was answered and is gone");
    }
    // The transaction that was cut is there as a whole or not at all, and repeating it settles it.
    let next = answered.len();
    let stored = record(&mut ledger, &exposures(next * 5..next * 5 + 5)).await.expect("committed");
    assert!(matches!(fresh(&stored), 0 | 5), "{stored:?}");
    let rows = number(&mut ledger, "SELECT count(*) FROM exposure").await;
    let distinct = number(&mut ledger, "SELECT count(DISTINCT event_id) FROM exposure").await;
    assert_eq!((rows % 5, rows), (0, distinct));
}
