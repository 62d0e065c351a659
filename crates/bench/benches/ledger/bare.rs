//! Bare: what one would write without a ledger: transactions of one multi-row `INSERT` each, one after the other, by the same
//! library, as durable, into a table with the same columns and the same unique id.

use base::{Clock as _, Nanos, clock::MonotonicClock};
use experiment::{decide::Exposure, ledger::Location};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

const COLUMNS: &str = "event_id, body_sha256, tenant, subject, experiment_id, experiment_version, variant, request_id, \
                       surface, class, region, origin, recorded_unix_ms";
const COLUMN_COUNT: usize = 13;

/// A connection that only inserts.
pub(crate) enum Loop {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Loop {
    /// A table of its own beside the ledger: in a file of its own, or in the same database.
    pub(crate) async fn open(location: &Location) -> Self {
        let table = |sequence: &str, bytes: &str| {
            format!(
                "DROP TABLE IF EXISTS bare_exposure; CREATE TABLE bare_exposure (sequence {sequence} PRIMARY KEY, \
                 event_id {bytes} NOT NULL UNIQUE, body_sha256 {bytes} NOT NULL, tenant TEXT NOT NULL, \
                 subject TEXT NOT NULL, experiment_id TEXT NOT NULL, experiment_version BIGINT NOT NULL, \
                 variant TEXT NOT NULL, request_id TEXT NOT NULL, surface TEXT NOT NULL, class TEXT NOT NULL, \
                 region TEXT NOT NULL, origin TEXT NOT NULL, recorded_unix_ms BIGINT NOT NULL)"
            )
        };
        match location {
            Location::File(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path.with_extension("bare"))
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full);
                let mut connection = SqliteConnection::connect_with(&options).await.expect("a file");
                let sql = table("INTEGER", "BLOB");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("a table");
                Self::Sqlite(connection)
            }
            Location::Postgres(database) => {
                let mut connection = database.connect().await.expect("a server");
                let sql = table("BIGINT GENERATED ALWAYS AS IDENTITY", "BYTEA");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("a table");
                Self::Postgres(connection)
            }
        }
    }

    /// Rows a second.
    pub(crate) async fn round(&mut self, rows: &[Exposure], batch_rows: usize) -> f64 {
        let began = MonotonicClock.now();
        for batch in rows.chunks(batch_rows) {
            match self {
                Self::Sqlite(connection) => insert_sqlite(connection, batch).await,
                Self::Postgres(connection) => insert_postgres(connection, batch).await,
            }
            .expect("committed");
        }
        let took: Nanos = MonotonicClock.now() - began;
        rows.len() as f64 / took.as_secs_f64()
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(connection) => connection.close().await.expect("closed"),
            Self::Postgres(mut connection) => {
                let drop = sqlx::raw_sql("DROP TABLE bare_exposure").execute(&mut connection).await;
                drop.expect("its own table");
            }
        }
    }
}

/// `(place, place, …), (…), …`, where `place` says how the store counts its parameters.
fn insert_sql(rows: usize, place: impl Fn(usize) -> String) -> String {
    let tuple = |row: usize| {
        let places: Vec<_> = (1..=COLUMN_COUNT).map(|column| place(row * COLUMN_COUNT + column)).collect();
        format!("({})", places.join(", "))
    };
    let tuples: Vec<_> = (0..rows).map(tuple).collect();
    format!("INSERT INTO bare_exposure ({COLUMNS}) VALUES {}", tuples.join(", "))
}

macro_rules! insert {
    ($connection:expr, $rows:expr, $begin:expr, $place:expr) => {{
        let mut transaction = $connection.begin_with($begin).await?;
        let mut query = sqlx::query(AssertSqlSafe(insert_sql($rows.len(), $place)));
        for row in $rows {
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
                .bind(0_i64);
        }
        query.execute(&mut *transaction).await?;
        transaction.commit().await
    }};
}

async fn insert_sqlite(connection: &mut SqliteConnection, rows: &[Exposure]) -> Result<(), sqlx::Error> {
    insert!(connection, rows, "BEGIN IMMEDIATE", |_| "?".to_owned())
}

async fn insert_postgres(connection: &mut PgConnection, rows: &[Exposure]) -> Result<(), sqlx::Error> {
    insert!(connection, rows, "BEGIN", |number| format!("${number}"))
}
