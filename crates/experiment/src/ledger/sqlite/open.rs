//! Open: brings a ledger file into use, creates and migrates it, and refuses what is not a sound ledger.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use crate::ledger::{
    OpenError,
    schema::{Step, Version},
};
use base::Nanos;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};

/// Marks a file as a ledger of this suite, in its header ("Merc").
const APPLICATION_ID: i64 = 0x4d65_7263;

/// The tables, as steps from each version to the next (see [`crate::ledger::schema`]).
///
/// The header's `user_version` says how many of them a program must know, and the table `ledger_schema`, which comes with
/// the second step, how many there are: so that programs that know the first step alone, and the header alone, go on as before.
pub(super) const MIGRATIONS: [Step; 2] = [
    Step::Expand(
        "
    CREATE TABLE exposure (
        sequence           INTEGER PRIMARY KEY, -- in the order of commit
        event_id           BLOB    NOT NULL UNIQUE CHECK (length(event_id) = 16),
        body_sha256        BLOB    NOT NULL CHECK (length(body_sha256) = 32),
        tenant             TEXT    NOT NULL,
        subject            TEXT    NOT NULL,
        experiment_id      TEXT    NOT NULL,
        experiment_version INTEGER NOT NULL,
        variant            TEXT    NOT NULL,
        request_id         TEXT    NOT NULL,
        surface            TEXT    NOT NULL,
        class              TEXT    NOT NULL,
        region             TEXT    NOT NULL,
        origin             TEXT    NOT NULL,
        recorded_unix_ms   INTEGER NOT NULL
    ) STRICT;
",
    ),
    // Where a probe looks for room; empty outside its transaction.
    Step::Expand(
        "
    CREATE TABLE ledger_schema (version INTEGER NOT NULL) STRICT;
    CREATE TABLE room (ballast BLOB NOT NULL) STRICT;
",
    ),
];

/// Largest file that is checked page by page when it is opened, in bytes: about a tenth of a second. Of a larger one,
/// only the schema and both ends of the table and of its index are read.
const FULL_CHECK_BYTES_MAX: i64 = 64 << 20;

/// How long a reader waits while a writer recovers the log that a killed one left behind.
const READER_PATIENCE: Nanos = Nanos::from_secs(5);

/// How the file is opened. Nothing here writes to it.
pub(super) fn options(path: &Path, busy_timeout: Nanos) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(busy_timeout.into())
        .foreign_keys(false)
        // KiB. Inserts touch the end of the table and random pages of the index, which the system caches as well.
        .pragma("cache_size", "-512")
        // Bytes: the log is cut back to this after a checkpoint that had to wait.
        .pragma("journal_size_limit", "4194304")
        .statement_cache_capacity(16)
        .thread_name(|_| "ledger".to_owned())
        .disable_statement_logging()
}

/// How the file is opened by somebody who does not write to it, and who waits for a writer that recovers its log.
pub(in crate::ledger) fn options_to_read(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(READER_PATIENCE.into())
        .pragma("cache_size", "-512")
        .thread_name(|_| "ledger-reader".to_owned())
        .disable_statement_logging()
}

/// Why the file is nothing that can be read as a ledger, if so.
pub(in crate::ledger) async fn refusal_to_read(
    connection: &mut SqliteConnection,
) -> Result<Option<String>, sqlx::Error> {
    Ok(match identity(connection).await? {
        Identity::Empty => Some("the file is empty".into()),
        Identity::Foreign => Some("the file is a database of something else".into()),
        Identity::Ledger(version) => match version.usable(MIGRATIONS.len()) {
            Ok(()) => check(connection).await?.map(|fault| format!("the file is damaged: {fault}")),
            Err(refusal) => Some(refusal),
        },
    })
}

/// Opens the file for the first time in this process.
pub(super) async fn open(path: &Path, options: &SqliteConnectOptions) -> Result<SqliteConnection, OpenError> {
    open_with(path, options, &MIGRATIONS).await
}

/// As [`open`], for a program that knows `steps`.
pub(super) async fn open_with(
    path: &Path,
    options: &SqliteConnectOptions,
    steps: &[Step],
) -> Result<SqliteConnection, OpenError> {
    let fail = |detail: String| OpenError::new(path.display(), detail);
    let attempt = async {
        let mut connection = options.clone().create_if_missing(true).connect().await?;
        let refused = prepare(&mut connection, steps).await?;
        Ok((connection, refused))
    };
    match attempt.await {
        Ok((connection, None)) => Ok(connection),
        Ok((_, Some(detail))) => Err(fail(detail)),
        Err(error) => Err(fail(sqlx::Error::to_string(&error))),
    }
}

/// Device and inode of the file at `path`. One question to the kernel's own memory, so it is asked in place.
pub(super) fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Opens it again after a failure. A file that is gone is not made anew: that would forget every event that it held.
pub(super) async fn reopen(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut connection = options.clone().create_if_missing(false).connect().await?;
    match identity(&mut connection).await? {
        Identity::Ledger(version) if version.usable(MIGRATIONS.len()).is_ok() => Ok(connection),
        _ => Err(sqlx::Error::Protocol("the file is no longer the ledger that was opened".into())),
    }
}

/// Checks, sets up and migrates. The text says why the file is refused.
async fn prepare(connection: &mut SqliteConnection, steps: &[Step]) -> Result<Option<String>, sqlx::Error> {
    match identity(connection).await? {
        Identity::Foreign => return Ok(Some("the file is a database of something else".into())),
        Identity::Ledger(version) => {
            if let Err(refusal) = version.usable(steps.len()) {
                return Ok(Some(refusal));
            }
            if let Some(fault) = check(connection).await? {
                return Ok(Some(format!("the file is damaged: {fault}")));
            }
        }
        Identity::Empty => {}
    }
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode = WAL").fetch_one(&mut *connection).await?;
    if mode != "wal" {
        return Ok(Some(format!("its file system offers journal mode {mode} and not wal")));
    }
    migrate(connection, steps).await?;
    Ok(None)
}

enum Identity {
    Empty,
    Ledger(Version),
    Foreign,
}

async fn identity(connection: &mut SqliteConnection) -> Result<Identity, sqlx::Error> {
    let application: i64 = number(connection, "PRAGMA application_id").await?;
    let required: i64 = number(connection, "PRAGMA user_version").await?;
    let objects: i64 = number(connection, "SELECT count(*) FROM sqlite_schema").await?;
    Ok(match (application, required, objects) {
        (0, 0, 0) => Identity::Empty,
        (APPLICATION_ID, 0.., _) => {
            let compatible_from = usize::try_from(required).unwrap_or(usize::MAX);
            Identity::Ledger(Version {
                taken: taken(connection).await?.max(compatible_from),
                compatible_from,
            })
        }
        _ => Identity::Foreign,
    })
}

/// Steps that the file has taken beyond what its header asks for.
async fn taken(connection: &mut SqliteConnection) -> Result<usize, sqlx::Error> {
    let is_told = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'ledger_schema'";
    if number(connection, is_told).await? == 0 {
        return Ok(0);
    }
    let version = number(connection, "SELECT coalesce(max(version), 0) FROM ledger_schema").await?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

async fn number(connection: &mut SqliteConnection, sql: &'static str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sql).fetch_one(connection).await
}

/// What is wrong with a ledger, if anything.
async fn check(connection: &mut SqliteConnection) -> Result<Option<String>, sqlx::Error> {
    let pages = number(connection, "PRAGMA page_count").await?;
    let page_bytes = number(connection, "PRAGMA page_size").await?;
    if pages.saturating_mul(page_bytes) <= FULL_CHECK_BYTES_MAX {
        let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut *connection).await?;
        return Ok((verdict != "ok").then_some(verdict));
    }
    for sql in [
        "SELECT coalesce(min(sequence), 0) FROM exposure",
        "SELECT coalesce(max(sequence), 0) FROM exposure",
        "SELECT count(*) FROM (SELECT min(event_id) FROM exposure)",
        "SELECT count(*) FROM (SELECT max(event_id) FROM exposure)",
    ] {
        number(connection, sql).await?;
    }
    Ok(None)
}

/// Takes the steps that the file has not taken yet, all or none.
async fn migrate(connection: &mut SqliteConnection, steps: &[Step]) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Read again under the lock: another process may have been faster.
    let found = match identity(&mut transaction).await? {
        Identity::Ledger(version) => version.taken,
        Identity::Empty | Identity::Foreign => 0,
    };
    if found >= steps.len() {
        return transaction.rollback().await;
    }
    for step in steps.iter().skip(found).copied() {
        sqlx::raw_sql(step.sql()).execute(&mut *transaction).await?;
    }
    let Version { taken, compatible_from } = Version::after(steps);
    let mut mark =
        format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {compatible_from};");
    if taken > 1 {
        mark.push_str(&format!("DELETE FROM ledger_schema; INSERT INTO ledger_schema VALUES ({taken});"));
    }
    sqlx::raw_sql(AssertSqlSafe(mark)).execute(&mut *transaction).await?;
    transaction.commit().await
}
