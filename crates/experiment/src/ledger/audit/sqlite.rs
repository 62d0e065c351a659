//! Sqlite: an SQLite ledger as it was at one moment.

use std::path::Path;

use sqlx::{Connection as _, Row as _, SqliteConnection, sqlite::SqliteRow};
use uuid::Uuid;

use super::Row;
use crate::{decide::exposure::BodyDigest, ledger::sqlite};

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
        let query = sqlx::query(
            "SELECT sequence, event_id, body_sha256, tenant, subject, experiment_id, experiment_version, variant, \
             request_id, surface, class, region, origin, recorded_unix_ms \
             FROM exposure WHERE sequence > ? ORDER BY sequence LIMIT ?",
        );
        let rows = query.bind(after).bind(limit).fetch_all(&mut self.0).await?;
        rows.iter().map(decode).collect()
    }
}

fn decode(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let malformed = |what: &str| sqlx::Error::Decode(format!("malformed {what}").into());
    Ok(Row {
        sequence: row.try_get(0)?,
        event_id: Uuid::from_slice(row.try_get(1)?).map_err(|_| malformed("event id"))?,
        body: BodyDigest(row.try_get::<&[u8], _>(2)?.try_into().map_err(|_| malformed("body digest"))?),
        tenant: row.try_get(3)?,
        subject: row.try_get(4)?,
        experiment_id: row.try_get(5)?,
        experiment_version: row.try_get(6)?,
        variant: row.try_get(7)?,
        request_id: row.try_get(8)?,
        surface: row.try_get(9)?,
        class: row.try_get(10)?,
        region: row.try_get(11)?,
        origin: row.try_get(12)?,
        recorded_unix_ms: row.try_get(13)?,
    })
}
