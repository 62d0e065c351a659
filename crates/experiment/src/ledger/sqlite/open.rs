//! Open: brings a ledger file into use, creates and migrates it, and refuses what is not a sound ledger.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use base::Nanos;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};

/// Marks a file as a ledger of this suite, in its header ("Merc").
const APPLICATION_ID: i64 = 0x4d65_7263;

/// The schema, as steps from each version to the next; the file's `user_version` counts the steps that it has taken.
/// A step that has been released is never edited.
const MIGRATIONS: [&str; 1] = ["
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
"];

/// Largest file that is checked page by page when it is opened, in bytes: about a tenth of a second. Of a larger one,
/// only the schema and both ends of the table and of its index are read.
const FULL_CHECK_BYTES_MAX: i64 = 64 << 20;

/// How long a reader waits while a writer recovers the log that a killed one left behind.
const READER_PATIENCE: Nanos = Nanos::from_secs(5);

/// A file that cannot be used as a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    path: PathBuf,
    detail: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use the exposure ledger {}: {}", self.path.display(), self.detail)
    }
}

impl std::error::Error for OpenError {}

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
    let known = MIGRATIONS.len();
    Ok(match identity(connection).await? {
        Identity::Empty => Some("the file is empty".into()),
        Identity::Foreign => Some("the file is a database of something else".into()),
        Identity::Ledger { version } if version > known => {
            Some(format!("its schema has version {version}, this program knows up to {known}"))
        }
        Identity::Ledger { .. } => {
            check(connection).await?.map(|fault| format!("the file is damaged: {fault}"))
        }
    })
}

/// Opens the file for the first time in this process.
pub(super) async fn open(path: &Path, options: &SqliteConnectOptions) -> Result<SqliteConnection, OpenError> {
    let fail = |detail: String| OpenError { path: path.to_owned(), detail };
    let attempt = async {
        let mut connection = options.clone().create_if_missing(true).connect().await?;
        let refused = prepare(&mut connection).await?;
        Ok((connection, refused))
    };
    match attempt.await {
        Ok((connection, None)) => Ok(connection),
        Ok((_, Some(detail))) => Err(fail(detail)),
        Err(error) => Err(fail(sqlx::Error::to_string(&error))),
    }
}

/// Opens it again after a failure. A file that is gone is not made anew: that would forget every event that it held.
pub(super) async fn reopen(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut connection = options.clone().create_if_missing(false).connect().await?;
    match identity(&mut connection).await? {
        Identity::Ledger { version } if version == MIGRATIONS.len() => Ok(connection),
        _ => Err(sqlx::Error::Protocol("the file is no longer the ledger that was opened".into())),
    }
}

/// Checks, sets up and migrates. The text says why the file is refused.
async fn prepare(connection: &mut SqliteConnection) -> Result<Option<String>, sqlx::Error> {
    let known = MIGRATIONS.len();
    match identity(connection).await? {
        Identity::Foreign => return Ok(Some("the file is a database of something else".into())),
        Identity::Ledger { version } if version > known => {
            return Ok(Some(format!("its schema has version {version}, this program knows up to {known}")));
        }
        Identity::Ledger { .. } => {
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
    migrate(connection).await?;
    Ok(None)
}

enum Identity {
    Empty,
    Ledger { version: usize },
    Foreign,
}

async fn identity(connection: &mut SqliteConnection) -> Result<Identity, sqlx::Error> {
    let application: i64 = number(connection, "PRAGMA application_id").await?;
    let version: i64 = number(connection, "PRAGMA user_version").await?;
    let objects: i64 = number(connection, "SELECT count(*) FROM sqlite_schema").await?;
    Ok(match (application, version, objects) {
        (0, 0, 0) => Identity::Empty,
        (APPLICATION_ID, 0.., _) => {
            Identity::Ledger { version: usize::try_from(version).unwrap_or(usize::MAX) }
        }
        _ => Identity::Foreign,
    })
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
async fn migrate(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Read again under the lock: another process may have been faster.
    let taken = usize::try_from(number(&mut transaction, "PRAGMA user_version").await?).unwrap_or(usize::MAX);
    if taken >= MIGRATIONS.len() {
        return transaction.rollback().await;
    }
    for step in MIGRATIONS.iter().skip(taken).copied() {
        sqlx::raw_sql(step).execute(&mut *transaction).await?;
    }
    let mark = format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version}",
        version = MIGRATIONS.len()
    );
    sqlx::raw_sql(AssertSqlSafe(mark)).execute(&mut *transaction).await?;
    transaction.commit().await
}
