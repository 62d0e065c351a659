//! Sqlite: an SQLite ledger as it was at one moment.

use std::path::Path;

use sqlx::{Connection as _, SqliteConnection};

use super::{PAGE, Row};
use crate::ledger::sqlite;

/// A read transaction. The writer goes on meanwhile; its log is not cut back until this is gone.
pub(super) struct Snapshot(SqliteConnection);

impl Snapshot {
    /// Opens the file and takes the snapshot. The text says why it cannot be read.
    pub(super) async fn open(path: &Path) -> Result<Self, String> {
        let attempt = async {
            let mut connection = SqliteConnection::connect_with(&sqlite::open::options_to_read(path)).await?;
            sqlx::raw_sql("BEGIN").execute(&mut connection).await?;
            // The first statement that reads takes the snapshot.
            let refused = sqlite::open::refusal_to_read(&mut connection).await?;
            Ok::<_, sqlx::Error>((connection, refused))
        };
        match attempt.await {
            Ok((connection, None)) => Ok(Self(connection)),
            Ok((_, Some(detail))) => Err(detail),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The rows behind `after`, at most `limit` of them.
    pub(super) async fn page(&mut self, after: i64, limit: u32) -> Result<Vec<Row>, sqlx::Error> {
        let rows = sqlx::query(PAGE).bind(after).bind(limit).fetch_all(&mut self.0).await?;
        rows.iter().map(Row::decode).collect()
    }
}
