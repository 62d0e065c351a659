//! Sqlite: the ledger on disk.
//!
//! **Durability.** Write-ahead log with `synchronous = FULL`: the log is fsynced before a commit is answered, so a row that
//! was reported as committed survives a crash of the process and a loss of power. A batch of many requests costs one
//! fsync.
//!
//! **Locking.** Every transaction is `BEGIN IMMEDIATE`, since a deferred one that reads first cannot wait for the write lock:
//! SQLite then fails at once, whatever the busy timeout. Within the process there is one writer; the busy timeout is for
//! other processes on the same file.
//!
//! **Telling new rows from old.** `ON CONFLICT DO NOTHING` says how many rows it wrote, not which. When it wrote all of them,
//! that is the answer. Otherwise the rows are read back by a new statement of the same transaction. Its own are the last ones
//! of the sequence, as many as it wrote: nobody else writes meanwhile, and the sequence has no gaps at its end.
//! (`RETURNING` would leave out exactly the rows that were there before.)
//!
//! **Failures.** Until `COMMIT` is sent, every failure ends in a rollback: known absent. A `COMMIT` that fails because the file is
//! locked leaves the transaction open, which is then rolled back: known absent too. So is one that finds no room for the
//! log: its last page is the one that makes it count, and is written last. After any other failure of `COMMIT` the log may or may not hold the transaction when it is next recovered (a failed fsync, for one, says nothing about what
//! reached the disk), so the outcome is unknown. In doubt about its transaction state a connection is not used again.

pub(super) mod open;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use base::{Nanos, WallClock};
use sqlx::{
    AssertSqlSafe, Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use uuid::Uuid;

use super::{Ledger, OpenError, Patience, Stored, WriteError};
use crate::decide::{Exposure, exposure::BodyDigest};

/// Most rows of one statement: SQLite takes 32,766 parameters, and a row takes [`COLUMNS`] of them.
const ROWS_PER_STATEMENT_MAX: usize = 2_000;
/// Room that a probe asks for: that of a batch of usual size.
const BALLAST_BYTES: i64 = 64 << 10;
/// Parameters of a row.
const COLUMNS: usize = 13;

/// A ledger in an SQLite file.
pub struct SqliteLedger {
    path: PathBuf,
    options: SqliteConnectOptions,
    busy_timeout: Nanos,
    /// Which file the connection has open, by device and inode.
    file: Option<(u64, u64)>,
    /// None after a failure that left the connection's state in doubt; the next batch opens another.
    connection: Option<SqliteConnection>,
    wall: Arc<dyn WallClock>,
}

impl SqliteLedger {
    /// Opens the file, and creates it when it does not exist. An existing file is checked first: that it is a ledger, of a
    /// version that this code knows, and sound.
    ///
    /// # Errors
    /// [`OpenError`] naming the file. A file that is not a ledger is left untouched.
    pub async fn open(path: &Path, busy_timeout: Nanos, wall: Arc<dyn WallClock>) -> Result<Self, OpenError> {
        let options = open::options(path, busy_timeout);
        let mut connection = open::open(path, &options).await?;
        // A file that may only be read is opened all the same, and a transaction on it begins: it is the write that fails.
        probe(&mut connection).await.map_err(|error| OpenError::new(path.display(), error))?;
        Ok(Self {
            path: path.to_owned(),
            options,
            busy_timeout,
            file: open::file_at(path),
            connection: Some(connection),
            wall,
        })
    }

    /// The connection, opened anew if need be. A file that was moved or deleted still takes what its open connection
    /// writes, and nobody would ever read it: the path must lead to the file that is open.
    async fn connection(&mut self) -> Result<SqliteConnection, sqlx::Error> {
        let at_path = open::file_at(&self.path);
        if let Some(connection) = self.connection.take()
            && at_path.is_some()
            && at_path == self.file
        {
            return Ok(connection);
        }
        self.file = at_path;
        open::reopen(&self.options).await
    }
}

impl Ledger for SqliteLedger {
    async fn record(&mut self, rows: &[&Exposure]) -> Result<Vec<Stored>, WriteError> {
        let batch = Batch { rows, recorded_unix_ms: self.wall.unix_ms() };
        let mut connection = self.connection().await.map_err(absent)?;
        let (result, reusable) = batch.commit(&mut connection).await;
        if reusable {
            self.connection = Some(connection);
        }
        result
    }

    async fn probe(&mut self) -> Result<(), String> {
        let text = |error: sqlx::Error| error.to_string();
        let mut connection = self.connection().await.map_err(text)?;
        let result = probe(&mut connection).await;
        // Nothing is lost by opening it anew, and closing it ends whatever is open.
        if result.as_ref().err().is_none_or(is_busy) {
            self.connection = Some(connection);
        }
        result.map_err(text)
    }

    fn set_patience(&mut self, patience: Patience) {
        if self.busy_timeout != patience.lock {
            // It is set when the file is opened.
            (self.busy_timeout, self.connection) = (patience.lock, None);
            self.options = open::options(&self.path, patience.lock);
        }
    }

    async fn close(&mut self) {
        // Also folds the log into the file. A failure loses nothing: the log is read when the file is next opened.
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the ledger was not closed cleanly");
        }
    }
}

/// Takes the lock, finds room for a batch, and commits. The room is given back in the same transaction: the pages stay with
/// the file, and the next batch finds them.
async fn probe(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let ballast = "INSERT INTO room (ballast) VALUES (zeroblob(?))";
    sqlx::query(ballast).bind(BALLAST_BYTES).execute(&mut *transaction).await?;
    sqlx::query("DELETE FROM room").execute(&mut *transaction).await?;
    transaction.commit().await
}

fn absent(error: sqlx::Error) -> WriteError {
    WriteError::KnownAbsent(error.to_string())
}

/// The rows of one transaction.
struct Batch<'a> {
    rows: &'a [&'a Exposure],
    recorded_unix_ms: i64,
}

impl Batch<'_> {
    /// Runs the transaction. The second value tells whether the connection is in a known state.
    async fn commit(&self, connection: &mut SqliteConnection) -> (Result<Vec<Stored>, WriteError>, bool) {
        let mut transaction = match connection.begin_with("BEGIN IMMEDIATE").await {
            Ok(transaction) => transaction,
            // A lock that somebody else held to the end of the busy timeout is no reason to give up the connection.
            Err(error) => {
                let reusable = is_busy(&error);
                return (Err(absent(error)), reusable);
            }
        };
        let stored = match self.write(&mut transaction).await {
            Ok(stored) => stored,
            Err(error) => {
                let reusable = transaction.rollback().await.is_ok();
                return (Err(absent(error)), reusable);
            }
        };
        match transaction.commit().await {
            Ok(()) => (Ok(stored), true),
            // Closing the connection rolls back what is open.
            Err(error) if is_busy(&error) || is_full(&error) => (Err(absent(error)), false),
            Err(error) => (Err(WriteError::Unknown(error.to_string())), false),
        }
    }

    async fn write(&self, connection: &mut SqliteConnection) -> Result<Vec<Stored>, sqlx::Error> {
        let mut written = 0_u64;
        for chunk in self.rows.chunks(ROWS_PER_STATEMENT_MAX) {
            written += self.insert(connection, chunk).await?;
        }
        if written == self.rows.len() as u64 {
            return Ok(self.rows.iter().map(|row| Stored { body: row.body, fresh: true }).collect());
        }
        let mut stored = Vec::with_capacity(self.rows.len());
        for chunk in self.rows.chunks(ROWS_PER_STATEMENT_MAX) {
            read_back(connection, chunk, written, &mut stored).await?;
        }
        Ok(stored)
    }

    async fn insert(
        &self,
        connection: &mut SqliteConnection,
        rows: &[&Exposure],
    ) -> Result<u64, sqlx::Error> {
        let mut query = sqlx::query(AssertSqlSafe(insert_sql(rows.len())));
        for row in rows {
            query = query
                .bind(row.event_id.as_bytes().as_slice())
                .bind(row.body.0.as_slice())
                .bind(row.tenant.as_str())
                .bind(row.subject.as_str())
                .bind(row.experiment_id.as_str())
                .bind(i64::from(row.experiment_version))
                .bind(row.variant.as_str())
                .bind(row.request_id.as_str())
                .bind(row.surface.as_str())
                .bind(row.class.as_str())
                .bind(row.region.as_str())
                .bind(row.origin.as_str())
                .bind(self.recorded_unix_ms);
        }
        Ok(query.execute(connection).await?.rows_affected())
    }
}

/// Reads `rows` back; of the whole table, the last `written` are this transaction's.
async fn read_back(
    connection: &mut SqliteConnection,
    rows: &[&Exposure],
    written: u64,
    stored: &mut Vec<Stored>,
) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(select_sql(rows.len()))).bind(written.cast_signed());
    for row in rows {
        query = query.bind(row.event_id.as_bytes().as_slice());
    }
    let found = query.fetch_all(connection).await?;
    let found: HashMap<Uuid, Stored> = found.iter().map(decode).collect::<Result<_, sqlx::Error>>()?;
    for row in rows {
        stored.push(*found.get(&row.event_id).ok_or(sqlx::Error::RowNotFound)?);
    }
    Ok(())
}

fn decode(row: &SqliteRow) -> Result<(Uuid, Stored), sqlx::Error> {
    let malformed = |what: &str| sqlx::Error::Decode(format!("malformed {what}").into());
    let event_id = Uuid::from_slice(row.try_get(0)?).map_err(|_| malformed("event id"))?;
    let body = row.try_get::<&[u8], _>(1)?.try_into().map_err(|_| malformed("body digest"))?;
    Ok((event_id, Stored { body: BodyDigest(body), fresh: row.try_get(2)? }))
}

/// Somebody else holds the lock.
fn is_busy(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: u32 = 5;
    kind(error) == Some(SQLITE_BUSY)
}

/// There is no room, on the disk or below the limit of the file.
fn is_full(error: &sqlx::Error) -> bool {
    const SQLITE_FULL: u32 = 13;
    kind(error) == Some(SQLITE_FULL)
}

/// The low byte of the extended code.
fn kind(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}

/// Plain placeholders: numbered ones cost a search each, every time the statement is bound.
fn insert_sql(rows: usize) -> String {
    let row = format!("(?{})", ", ?".repeat(COLUMNS - 1));
    let mut sql = String::with_capacity(320 + rows * (row.len() + 2));
    sql.push_str(
        "INSERT INTO exposure (event_id, body_sha256, tenant, subject, experiment_id, experiment_version, variant, \
         request_id, surface, class, region, origin, recorded_unix_ms) VALUES ",
    );
    for at in 0..rows {
        sql.push_str(if at == 0 { "" } else { ", " });
        sql.push_str(&row);
    }
    sql.push_str(" ON CONFLICT (event_id) DO NOTHING");
    sql
}

fn select_sql(rows: usize) -> String {
    let mut sql = String::with_capacity(160 + rows * 3);
    sql.push_str(
        "SELECT event_id, body_sha256, sequence > (SELECT max(sequence) FROM exposure) - ? FROM exposure \
         WHERE event_id IN (?",
    );
    sql.extend(std::iter::repeat_n(", ?", rows - 1));
    sql.push(')');
    sql
}

#[cfg(test)]
mod tests;
