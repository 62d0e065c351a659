//! Open: connects to a database, refuses a server that acknowledges before it keeps, and makes and migrates the tables.

use std::time::Duration;

use base::Nanos;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};

use super::{BEGIN, Failure, bounded, run};
use crate::ledger::{
    OpenError, Patience,
    location::Database,
    schema::{Step, Version},
};

/// The tables, as steps from each version to the next (see [`crate::ledger::schema`]).
pub(super) const MIGRATIONS: [Step; 1] = [Step::Expand(
    "
    CREATE TABLE exposure (
        sequence           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of writing; with gaps
        event_id           BYTEA  NOT NULL UNIQUE CHECK (octet_length(event_id) = 16),
        body_sha256        BYTEA  NOT NULL CHECK (octet_length(body_sha256) = 32),
        tenant             TEXT   NOT NULL,
        subject            TEXT   NOT NULL,
        experiment_id      TEXT   NOT NULL,
        experiment_version BIGINT NOT NULL,
        variant            TEXT   NOT NULL,
        request_id         TEXT   NOT NULL,
        surface            TEXT   NOT NULL,
        class              TEXT   NOT NULL,
        region             TEXT   NOT NULL,
        origin             TEXT   NOT NULL,
        recorded_unix_ms   BIGINT NOT NULL
    )
",
)];

/// The lock that replicas take turns by while they make and migrate the tables ("MercLedg").
const MIGRATION_LOCK: i64 = 0x4d65_7263_4c65_6467;
/// How long a replica that starts waits for another one's migration.
const MIGRATION_PATIENCE: Nanos = Nanos::from_secs(60);
/// Statements of a connection that are kept prepared; there are three.
const STATEMENTS: usize = 8;

/// How a writer connects. The server bounds what it does for us as well, so that nothing goes on there that was given up here.
fn options(database: &Database, patience: Patience) -> PgConnectOptions {
    let millis = |span: Nanos| span.as_millis().to_string();
    database.options().clone().statement_cache_capacity(STATEMENTS).disable_statement_logging().options([
        ("lock_timeout", millis(patience.lock)),
        ("statement_timeout", millis(patience.step)),
        // Later than we give up ourselves, so that it is ours to say why.
        ("idle_in_transaction_session_timeout", millis(patience.step + patience.step)),
    ])
}

/// How somebody connects who only reads.
pub(in crate::ledger) fn options_to_read(database: &Database) -> PgConnectOptions {
    let options = database.options().clone().disable_statement_logging();
    options.options([("default_transaction_read_only", "on")])
}

/// Why the database cannot be read as a ledger, if so.
pub(in crate::ledger) async fn refusal_to_read(
    connection: &mut PgConnection,
) -> Result<Option<String>, sqlx::Error> {
    if !is_there(connection, "exposure_schema").await? {
        return Ok(Some("the database holds no exposure ledger".into()));
    }
    Ok(version(connection).await?.usable(MIGRATIONS.len()).err())
}

/// Connects for the first time in this process.
pub(super) async fn open(database: &Database, patience: Patience) -> Result<PgConnection, OpenError> {
    open_with(database, patience, &MIGRATIONS).await
}

/// As [`open`], for a program that knows `steps`.
pub(super) async fn open_with(
    database: &Database,
    patience: Patience,
    steps: &[Step],
) -> Result<PgConnection, OpenError> {
    let attempt = async {
        let mut connection = connect(database, patience).await?;
        let patience = Duration::from(MIGRATION_PATIENCE);
        bounded(patience, migrate(&mut connection, steps)).await?;
        Ok::<_, Failure>(connection)
    };
    attempt.await.map_err(|failure| OpenError::new(database, failure))
}

/// Connects again after a failure. Tables that are gone are not made anew: that would forget every event that they held.
pub(super) async fn reopen(database: &Database, patience: Patience) -> Result<PgConnection, Failure> {
    let mut connection = connect(database, patience).await?;
    let check = async {
        if !is_there(&mut connection, "exposure_schema").await?
            || !is_there(&mut connection, "exposure").await?
        {
            return Err(Failure::Refused("the database no longer holds the ledger that was opened".into()));
        }
        version(&mut connection).await?.usable(MIGRATIONS.len()).map_err(Failure::Refused)
    };
    bounded(patience.step.into(), check).await?;
    Ok(connection)
}

async fn connect(database: &Database, patience: Patience) -> Result<PgConnection, Failure> {
    let attempt = async {
        let mut connection = PgConnection::connect_with(&options(database, patience)).await?;
        refuse_to_forget(&mut connection).await?;
        Ok(connection)
    };
    bounded(patience.step.into(), attempt).await
}

/// What the server must have on for a commit to be a promise.
const KEPT: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

async fn refuse_to_forget(connection: &mut PgConnection) -> Result<(), Failure> {
    for name in KEPT {
        let setting: String =
            sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(&mut *connection).await?;
        if setting == "off" {
            let message =
                format!("the server has {name} = off and may forget what it acknowledged; set it on");
            return Err(Failure::Refused(message));
        }
    }
    Ok(())
}

async fn is_there(connection: &mut PgConnection, table: &'static str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table).fetch_one(connection).await
}

/// What the ledger says of its tables; zero steps when it says nothing.
async fn version(connection: &mut PgConnection) -> Result<Version, sqlx::Error> {
    let query = sqlx::query_as("SELECT version, compatible_from FROM exposure_schema");
    let row: Option<(i64, i64)> = query.fetch_optional(connection).await?;
    let number = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    let (taken, compatible_from) = row.unwrap_or((0, 0));
    Ok(Version { taken: number(taken), compatible_from: number(compatible_from) })
}

/// Takes the steps that the database has not taken yet, all or none. Replicas take turns.
async fn migrate(connection: &mut PgConnection, steps: &[Step]) -> Result<(), Failure> {
    run(connection, BEGIN).await?;
    let patience = MIGRATION_PATIENCE.as_millis().to_string();
    for name in ["lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"] {
        let set = sqlx::query("SELECT set_config($1, $2, true)").bind(name).bind(&patience);
        set.execute(&mut *connection).await?;
    }
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).execute(&mut *connection).await?;
    let known = is_there(connection, "exposure_schema").await?;
    if !known && is_there(connection, "exposure").await? {
        return Err(Failure::Refused(
            "the database has a table exposure that belongs to something else".into(),
        ));
    }
    if !known {
        run(connection, BOOKKEEPING).await?;
    }
    let found = version(connection).await?;
    found.usable(steps.len()).map_err(Failure::Refused)?;
    for step in steps.iter().skip(found.taken) {
        run(connection, step.sql()).await?;
    }
    if found.taken < steps.len() {
        let Version { taken, compatible_from } = Version::after(steps);
        let sql = "UPDATE exposure_schema SET version = $1, compatible_from = $2";
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        sqlx::query(sql).bind(number(taken)).bind(number(compatible_from)).execute(&mut *connection).await?;
    }
    run(connection, "COMMIT").await
}

/// Where the version is kept: one row, never a second one.
const BOOKKEEPING: &str = "
    CREATE TABLE exposure_schema (
        sole            BOOLEAN PRIMARY KEY DEFAULT true CHECK (sole),
        version         BIGINT  NOT NULL,
        compatible_from BIGINT  NOT NULL
    );
    INSERT INTO exposure_schema (version, compatible_from) VALUES (0, 0)
";
