//! Ledger: the exposure ledger from outside: read as an audit reads it, and handled as a backup or an operator does.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use experiment::ledger::{Location, audit, location::Database};
use rehearsal::{
    effects::{self, Doing, Hold},
    exposures::{Row, Rows, Scan},
};
use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions,
};

/// What SQLite keeps beside a file, by what their names end with.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// A ledger from outside.
pub(crate) struct Ledger {
    location: Location,
}

impl Ledger {
    /// The ledger of a file or a URL.
    ///
    /// # Errors
    /// What is wrong with `--ledger`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { location: Location::parse(text).map_err(|error| error.to_string())? })
    }

    fn fault(&self, error: &dyn std::fmt::Display) -> String {
        format!("{}: {error}", self.location)
    }
}

/// Where the suite writes and nowhere else: what is said of a location is read in one place.
async fn connect(database: &Database) -> Result<PgConnection, sqlx::Error> {
    database.connect_as("mercury rehearse effects").await
}

impl Rows for Ledger {
    fn scan<'a>(&'a self, each: &'a mut (dyn FnMut(Row) + Send)) -> Scan<'a> {
        Box::pin(async move {
            let mut reader = audit::open(&self.location).await.map_err(|error| error.to_string())?;
            reader.for_each(|row| each(held(row))).await.map_err(|error| error.to_string())
        })
    }
}

impl effects::Ledger for Ledger {
    fn shown(&self) -> String {
        self.location.to_string()
    }

    fn is_shared(&self) -> bool {
        matches!(self.location, Location::Postgres(_))
    }

    fn prepare(&self, fresh: bool) -> Doing<'_, Result<(), String>> {
        Box::pin(async move {
            let rows = match &self.location {
                Location::File(path) => empty_file(path, fresh).map_err(|error| self.fault(&error))?,
                Location::Postgres(database) => {
                    empty_database(database, fresh).await.map_err(|error| self.fault(&error))?
                }
            };
            if rows {
                return Err(self.fault(&"it holds exposures of an earlier run; --fresh removes them"));
            }
            Ok(())
        })
    }

    fn hold(&self) -> Doing<'_, Result<Box<dyn Hold>, String>> {
        Box::pin(async move {
            let hold: Result<Box<dyn Hold>, sqlx::Error> = match &self.location {
                Location::File(path) => Lock::of_file(path).await.map(|lock| Box::new(lock) as _),
                Location::Postgres(database) => lock_database(database).await.map(|lock| Box::new(lock) as _),
            };
            hold.map_err(|error| self.fault(&error))
        })
    }
}

/// Whether the database holds rows, once those that may be removed are.
async fn empty_database(database: &Database, fresh: bool) -> Result<bool, sqlx::Error> {
    let mut connection = connect(database).await?;
    let there: bool =
        sqlx::query_scalar("SELECT to_regclass('exposure') IS NOT NULL").fetch_one(&mut connection).await?;
    if !there {
        return Ok(false);
    }
    if fresh {
        sqlx::raw_sql("TRUNCATE exposure").execute(&mut connection).await?;
    }
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM exposure)").fetch_one(&mut connection).await
}

async fn lock_database(database: &Database) -> Result<Lock<PgConnection>, sqlx::Error> {
    let mut connection = connect(database).await?;
    sqlx::raw_sql("BEGIN; LOCK TABLE exposure IN EXCLUSIVE MODE").execute(&mut connection).await?;
    Ok(Lock(connection))
}

/// Whether the file holds anything, once what may be removed is.
fn empty_file(path: &Path, fresh: bool) -> io::Result<bool> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let files = std::iter::once(path.to_owned()).chain(BESIDE.map(beside));
    let mut any = false;
    for file in files {
        match fs::metadata(&file) {
            Ok(_) if fresh => fs::remove_file(&file)?,
            Ok(found) => any |= found.len() > 0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(any)
}

/// An open transaction that keeps all writers out.
struct Lock<C>(C);

impl Lock<SqliteConnection> {
    async fn of_file(path: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(path).disable_statement_logging();
        let mut connection = options.connect().await?;
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await?;
        Ok(Self(connection))
    }
}

impl Hold for Lock<SqliteConnection> {
    fn release(self: Box<Self>) -> Doing<'static, Result<(), String>> {
        Box::pin(async move {
            let mut connection = self.0;
            sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.map_err(|error| error.to_string())?;
            connection.close().await.map_err(|error| error.to_string())
        })
    }
}

impl Hold for Lock<PgConnection> {
    fn release(self: Box<Self>) -> Doing<'static, Result<(), String>> {
        Box::pin(async move {
            let mut connection = self.0;
            sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.map_err(|error| error.to_string())?;
            connection.close().await.map_err(|error| error.to_string())
        })
    }
}

fn held(row: audit::Row) -> Row {
    let objection = row.authentic().err().map(|forgery| forgery.to_string());
    Row {
        sequence: row.sequence,
        event_id: row.event_id.into_bytes(),
        body: row.body.0,
        tenant: row.tenant,
        subject: row.subject,
        experiment_id: row.experiment_id,
        experiment_version: row.experiment_version,
        variant: row.variant,
        request_id: row.request_id,
        surface: row.surface,
        class: row.class,
        region: row.region,
        origin: row.origin,
        objection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ledger_that_holds_something_is_emptied_only_when_that_is_said() {
        use effects::Ledger as _;
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("exposures.db");
        let ledger = Ledger::parse(&path.to_string_lossy()).expect("a file");
        ledger.prepare(false).await.expect("there is none");
        for name in ["exposures.db", "exposures.db-wal"] {
            fs::write(home.path().join(name), b"something").expect("written");
        }
        let refused = ledger.prepare(false).await.expect_err("it is not empty");
        assert!(refused.contains("exposures.db") && refused.contains("--fresh"), "{refused}");
        ledger.prepare(true).await.expect("it is said");
        assert_eq!(fs::read_dir(home.path()).expect("listed").count(), 0);
    }

    #[tokio::test]
    async fn a_lock_keeps_writers_out_until_it_is_given_up() {
        use effects::Ledger as _;
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("exposures.db");
        let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
        let options = options.busy_timeout(std::time::Duration::ZERO);
        let mut writer = options.connect().await.expect("a file");
        sqlx::raw_sql("CREATE TABLE t (a)").execute(&mut writer).await.expect("made");
        let ledger = Ledger::parse(&path.to_string_lossy()).expect("a file");
        let lock = ledger.hold().await.expect("nobody else holds it");
        sqlx::raw_sql("INSERT INTO t VALUES (1)").execute(&mut writer).await.expect_err("locked");
        lock.release().await.expect("given up");
        sqlx::raw_sql("INSERT INTO t VALUES (1)").execute(&mut writer).await.expect("free again");
    }
}
