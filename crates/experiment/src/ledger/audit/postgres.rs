//! Postgres: a PostgreSQL ledger as it was at one moment.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};

use super::{PAGE, Row};
use crate::ledger::{location::Database, postgres};

/// Longest wait for a server that does not answer, to connect and for a page.
const PATIENCE: Duration = Duration::from_secs(30);

/// A read transaction. Writers go on meanwhile.
pub(super) struct Snapshot(PgConnection);

impl Snapshot {
    /// Connects and takes the snapshot. The text says why it cannot be read.
    pub(super) async fn open(database: &Database) -> Result<Self, String> {
        let attempt = async {
            let mut connection = PgConnection::connect_with(&postgres::options_to_read(database)).await?;
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            sqlx::raw_sql(begin).execute(&mut connection).await?;
            // The first statement takes the snapshot.
            let refused = postgres::refusal_to_read(&mut connection).await?;
            Ok::<_, sqlx::Error>((connection, refused))
        };
        match bounded(attempt).await {
            Ok((connection, None)) => Ok(Self(connection)),
            Ok((_, Some(detail))) => Err(detail),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The rows behind `after`, at most `limit` of them.
    pub(super) async fn page(&mut self, after: i64, limit: u32) -> Result<Vec<Row>, sqlx::Error> {
        let rows =
            bounded(sqlx::query(PAGE).bind(after).bind(i64::from(limit)).fetch_all(&mut self.0)).await?;
        rows.iter().map(Row::decode).collect()
    }
}

async fn bounded<T>(step: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let silent =
        || sqlx::Error::Protocol(format!("no answer from the server within {} s", PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, step).await.unwrap_or_else(|_| Err(silent()))
}
