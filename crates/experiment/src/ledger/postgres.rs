//! Postgres: the ledger in a database that several replicas share. Each replica has one writer with one connection, so the
//! connections that a ledger needs are as many as there are replicas.
//!
//! **Durability.** A transaction is answered when its commit record is on the server's disk. A server or a role that is set
//! up to answer sooner (`fsync`, `full_page_writes` or `synchronous_commit` off) is refused, at every connect.
//!
//! **Telling new rows from old.** `ON CONFLICT DO NOTHING RETURNING` names exactly the rows that it wrote. Of the others it says
//! nothing, and it could not: a row that another replica was writing meanwhile is waited for and then exists, but not
//! in the snapshot of the statement that waited. A second statement of the same transaction reads them, which under
//! READ COMMITTED has a snapshot of its own.
//!
//! **Deadlocks.** Two replicas that write the same ids in different orders would each wait for the other's row. Every batch is
//! written in the order of its event ids, so one of them waits and goes on. A deadlock or serialization failure that
//! somebody else's transaction causes leaves nothing behind, and is tried again once.
//!
//! **Failures.** The server ends a transaction whose connection is gone, so until `COMMIT` is sent every failure is known absent.
//! After that it is unknown, unless the server itself says that it rolled back. A step that takes longer than the store's
//! timeout is given up together with its connection.

mod open;

use std::{collections::HashMap, sync::Arc, time::Duration};

use base::WallClock;
use sqlx::{
    Connection as _, PgConnection, Row as _,
    postgres::{PgDatabaseError, PgRow},
};
use uuid::Uuid;

use super::{Ledger, OpenError, Patience, Stored, WriteError, location::Database};
use crate::decide::{Exposure, exposure::BodyDigest};

pub(super) use open::{options_to_read, refusal_to_read};

/// Tries of one batch: the second one is for a connection that had died while it was idle, and for a transaction that the
/// server rolled back for the sake of another one.
const TRIES: usize = 2;

/// SQLSTATE `statement_completion_unknown`.
const COMPLETION_UNKNOWN: &str = "40003";

/// A ledger in PostgreSQL.
pub struct PostgresLedger {
    database: Database,
    patience: Patience,
    /// None after a failure that left the connection's state in doubt; the next batch opens another.
    connection: Option<PgConnection>,
    wall: Arc<dyn WallClock>,
}

impl PostgresLedger {
    /// Connects, checks that the server keeps what it acknowledges, and makes the tables or brings them up to date.
    /// Replicas that start at once wait for each other.
    ///
    /// # Errors
    /// [`OpenError`] naming the database, without its password.
    pub async fn open(
        database: &Database,
        patience: Patience,
        wall: Arc<dyn WallClock>,
    ) -> Result<Self, OpenError> {
        let mut connection = open::open(database, patience).await?;
        // Tables that are there say nothing about the right to write to them, nor does a server that only follows another.
        let probed = bounded(patience.step.into(), probe(&mut connection)).await;
        probed.map_err(|failure| OpenError::new(database, failure))?;
        Ok(Self { database: database.clone(), patience, connection: Some(connection), wall })
    }

    /// A connection, and whether it was used before.
    async fn connection(&mut self) -> Result<(PgConnection, bool), Failure> {
        match self.connection.take() {
            Some(connection) => Ok((connection, true)),
            None => Ok((open::reopen(&self.database, self.patience).await?, false)),
        }
    }

    async fn attempt(&mut self, batch: &Batch<'_>) -> Result<Vec<Stored>, Failed> {
        let absent = |failure: Failure, again| Failed { error: absent(&failure), again };
        let (mut connection, used) = self.connection().await.map_err(|failure| absent(failure, false))?;
        let step = Duration::from(self.patience.step);
        let written = bounded(step, batch.write(&mut connection)).await;
        let stored = match written {
            Ok(stored) => stored,
            Err(failure) => {
                let again = failure.is_rolled_back() || (used && failure.is_cut());
                if !failure.is_lost() && bounded(step, run(&mut connection, "ROLLBACK")).await.is_ok() {
                    self.connection = Some(connection);
                }
                return Err(absent(failure, again));
            }
        };
        match bounded(step, run(&mut connection, "COMMIT")).await {
            Ok(()) => {
                self.connection = Some(connection);
                Ok(stored)
            }
            Err(failure) if failure.is_rolled_back() => Err(absent(failure, true)),
            Err(failure) => Err(Failed { error: WriteError::Unknown(failure.to_string()), again: false }),
        }
    }
}

impl Ledger for PostgresLedger {
    async fn record(&mut self, rows: &[&Exposure]) -> Result<Vec<Stored>, WriteError> {
        let batch = Batch::new(rows, self.wall.unix_ms());
        let mut tries = 1;
        loop {
            match self.attempt(&batch).await {
                Ok(stored) => return Ok(stored),
                Err(failed) if failed.again && tries < TRIES => tries += 1,
                Err(failed) => return Err(failed.error),
            }
        }
    }

    async fn probe(&mut self) -> Result<(), String> {
        let step = Duration::from(self.patience.step);
        for _ in 0..TRIES {
            let (mut connection, used) = self.connection().await.map_err(|failure| failure.to_string())?;
            match bounded(step, probe(&mut connection)).await {
                Ok(()) => {
                    self.connection = Some(connection);
                    return Ok(());
                }
                Err(failure) if used && failure.is_cut() => {} // It died while it was idle.
                Err(failure) => {
                    if !failure.is_lost() && bounded(step, run(&mut connection, "ROLLBACK")).await.is_ok() {
                        self.connection = Some(connection);
                    }
                    return Err(failure.to_string());
                }
            }
        }
        Err("the server closes every connection".to_owned())
    }

    fn set_patience(&mut self, patience: Patience) {
        if self.patience != patience {
            // The server is told when a connection is made.
            (self.patience, self.connection) = (patience, None);
        }
    }

    async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            // The server finds out by itself as well, so nothing depends on the farewell.
            let farewell = tokio::time::timeout(self.patience.step.into(), connection.close());
            if !matches!(farewell.await, Ok(Ok(()))) {
                tracing::debug!("the connection to the ledger was not closed cleanly");
            }
        }
    }
}

/// A batch that was not committed, and whether trying again at once makes sense.
struct Failed {
    error: WriteError,
    again: bool,
}

/// Why a step failed.
#[derive(Debug)]
enum Failure {
    Server(sqlx::Error),
    Refused(String),
    TimedOut(Duration),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::Refused(detail) => f.write_str(detail),
            Self::TimedOut(limit) => write!(f, "no answer from the server within {} ms", limit.as_millis()),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Server(error)
    }
}

impl Failure {
    fn answer(&self) -> Option<&PgDatabaseError> {
        match self {
            Self::Server(error) => error.as_database_error()?.try_downcast_ref(),
            Self::Refused(_) | Self::TimedOut(_) => None,
        }
    }

    /// The server says that the transaction is rolled back for the sake of another one (class 40) or for a constraint
    /// (class 23). Anything else that it may say to a `COMMIT` is taken for an unknown outcome, and so is the one code of class 40
    /// that says just that.
    fn is_rolled_back(&self) -> bool {
        self.answer().is_some_and(|answer| {
            matches!(answer.code().get(..2), Some("40" | "23")) && answer.code() != COMPLETION_UNKNOWN
        })
    }

    /// The connection is of no further use: it is gone, going, or in the middle of an exchange.
    fn is_lost(&self) -> bool {
        use sqlx::postgres::PgSeverity;
        match self.answer() {
            Some(answer) => matches!(answer.severity(), PgSeverity::Fatal | PgSeverity::Panic),
            None => true,
        }
    }

    /// The connection is gone, which may have been so for a while. A server that is silent is still there: asking again would only
    /// cost the same time once more.
    fn is_cut(&self) -> bool {
        self.is_lost() && !matches!(self, Self::TimedOut(_))
    }
}

fn absent(failure: &Failure) -> WriteError {
    WriteError::KnownAbsent(failure.to_string())
}

/// Gives a step up after `limit`. Its connection is then in the middle of an exchange.
async fn bounded<T>(limit: Duration, step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(limit, step).await.unwrap_or(Err(Failure::TimedOut(limit)))
}

async fn run(connection: &mut PgConnection, sql: &'static str) -> Result<(), Failure> {
    sqlx::raw_sql(sql).execute(connection).await?;
    Ok(())
}

/// Opens a transaction whatever the server's defaults are.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// What a probe writes and takes back: as many rows as a batch of the shipped policy has, each about as long as a real one.
/// The ids are random, so that two replicas that probe at once do not wait for each other.
const PROBE: &str = "
    SAVEPOINT probe;
    INSERT INTO exposure (event_id, body_sha256, tenant, subject, experiment_id, experiment_version, variant,
                          request_id, surface, class, region, origin, recorded_unix_ms)
    SELECT uuid_send(gen_random_uuid()), decode(repeat('00', 32), 'hex'), 'probe-tenant', 'probe-subject', 'probe', 1, 'probe',
           'probe-of-the-exposure-ledger', 'probe', 'probe', 'probe', 'probe', 0
    FROM generate_series(1, 64);
    ROLLBACK TO SAVEPOINT probe";

/// Whether a batch would be taken: its rows find room in table, index and log, and a commit reaches the disk. No row is kept.
///
/// The rows are taken back by a savepoint and not with the transaction, since the server flushes its log for a commit only
/// when the transaction wrote to it before: what was rolled back to a savepoint counts for that, an id of its own does
/// not. What the probes leave is dead rows and a gap in the sequence; autovacuum clears them as it does any other.
async fn probe(connection: &mut PgConnection) -> Result<(), Failure> {
    run(connection, BEGIN).await?;
    run(connection, PROBE).await?;
    run(connection, "COMMIT").await
}

const INSERT: &str = "
    INSERT INTO exposure (event_id, body_sha256, tenant, subject, experiment_id, experiment_version, variant,
                          request_id, surface, class, region, origin, recorded_unix_ms)
    SELECT batch.*, $13 FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::bigint[],
                                    $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[]) AS batch
    ON CONFLICT (event_id) DO NOTHING
    RETURNING event_id";

const READ_BACK: &str = "SELECT event_id, body_sha256 FROM exposure WHERE event_id = ANY($1)";

/// The rows of one transaction, by event id ascending, and their order in the call.
struct Batch<'a> {
    rows: Vec<&'a Exposure>,
    asked: &'a [&'a Exposure],
    recorded_unix_ms: i64,
}

impl<'a> Batch<'a> {
    fn new(asked: &'a [&'a Exposure], recorded_unix_ms: i64) -> Self {
        let mut rows = asked.to_vec();
        rows.sort_unstable_by_key(|row| row.event_id);
        Self { rows, asked, recorded_unix_ms }
    }

    /// Everything up to the commit.
    async fn write(&self, connection: &mut PgConnection) -> Result<Vec<Stored>, Failure> {
        run(connection, BEGIN).await?;
        let mut found: HashMap<Uuid, Stored> = HashMap::with_capacity(self.rows.len());
        let fresh: Vec<Uuid> =
            self.insert(connection).await?.iter().map(event_id).collect::<Result<_, _>>()?;
        let bodies: HashMap<Uuid, BodyDigest> =
            self.rows.iter().map(|row| (row.event_id, row.body)).collect();
        found.extend(
            fresh.iter().filter_map(|id| Some((*id, Stored { body: *bodies.get(id)?, fresh: true }))),
        );
        if found.len() < self.rows.len() {
            let others: Vec<&[u8]> = self
                .rows
                .iter()
                .filter(|row| !found.contains_key(&row.event_id))
                .map(|row| row.event_id.as_bytes().as_slice())
                .collect();
            for row in sqlx::query(READ_BACK).bind(others).fetch_all(connection).await? {
                let body = row.try_get::<&[u8], _>(1)?.try_into().map_err(|_| malformed("body digest"))?;
                found.insert(event_id(&row)?, Stored { body: BodyDigest(body), fresh: false });
            }
        }
        // A row that was there for the insert and is not for the read was deleted in between: nothing to vouch for.
        let stored =
            self.asked.iter().map(|row| found.get(&row.event_id).copied().ok_or(sqlx::Error::RowNotFound));
        Ok(stored.collect::<Result<_, _>>()?)
    }

    async fn insert(&self, connection: &mut PgConnection) -> Result<Vec<PgRow>, sqlx::Error> {
        let rows = &self.rows;
        let bytes = |of: fn(&Exposure) -> &[u8]| rows.iter().map(|row| of(row)).collect::<Vec<_>>();
        let text = |of: fn(&Exposure) -> &str| rows.iter().map(|row| of(row)).collect::<Vec<_>>();
        let query = sqlx::query(INSERT)
            .bind(bytes(|row| row.event_id.as_bytes()))
            .bind(bytes(|row| &row.body.0))
            .bind(text(|row| row.tenant.as_str()))
            .bind(text(|row| row.subject.as_str()))
            .bind(text(|row| &row.experiment_id))
            .bind(rows.iter().map(|row| i64::from(row.experiment_version)).collect::<Vec<_>>())
            .bind(text(|row| &row.variant))
            .bind(text(|row| row.request_id.as_str()))
            .bind(text(|row| &row.surface))
            .bind(text(|row| row.class.as_str()))
            .bind(text(|row| row.region.as_str()))
            .bind(text(|row| row.origin.as_str()))
            .bind(self.recorded_unix_ms);
        query.fetch_all(connection).await
    }
}

fn event_id(row: &PgRow) -> Result<Uuid, sqlx::Error> {
    Uuid::from_slice(row.try_get(0)?).map_err(|_| malformed("event id"))
}

fn malformed(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("malformed {what}").into())
}

#[cfg(test)]
mod tests;
