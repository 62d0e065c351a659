//! Location: where a ledger is, as `--ledger` says it: a file, or a PostgreSQL database that several replicas share.
//!
//! A location may carry a password. It is kept for connecting and shown nowhere: `Display` and `Debug` leave it out, and so
//! does every message of this module, malformed ones included.
//!
//! PostgreSQL is spoken to without TLS, since ledger and service share a machine or a private network: a URL that asks
//! for TLS is refused rather than served in the clear.

use std::{fmt, path::PathBuf, str::FromStr as _};

use sqlx::{
    Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgSslMode},
};

/// Where a ledger is. Parsed once, at the edge.
#[derive(Clone, Debug)]
pub enum Location {
    /// An SQLite file, owned by one process.
    File(PathBuf),
    /// A PostgreSQL database.
    Postgres(Box<Database>),
}

/// A PostgreSQL database and how to connect to it.
#[derive(Clone)]
pub struct Database {
    options: Box<PgConnectOptions>,
    shown: String,
}

/// A `--ledger` that names no ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationError(String);

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--ledger: {}", self.0)
    }
}

impl std::error::Error for LocationError {}

/// PostgreSQL's own.
const PORT: u16 = 5_432;

const EXPECTED: &str = "expected FILE or postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE";

impl Location {
    /// Parses the value of `--ledger`. A text without a scheme is the path of a file.
    ///
    /// The password may come from the environment (`PGPASSWORD`) or a password file (`PGPASSFILE`, `~/.pgpass`) instead, where
    /// the list of processes does not show it. The directory of a Unix socket goes into the query: `?host=/run/postgresql`.
    ///
    /// # Errors
    /// [`LocationError`] naming `--ledger` and the part that is wrong, without quoting the text.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        match text.split_once("://") {
            None if text.is_empty() => Err(LocationError(format!("is empty; {EXPECTED}"))),
            None => Ok(Self::File(PathBuf::from(text))),
            Some(("postgres" | "postgresql", rest)) => {
                Database::parse(rest).map(|database| Self::Postgres(Box::new(database)))
            }
            // A path may hold a colon, but a scheme that is not known is a mistake and not a directory.
            Some(_) => Err(LocationError(format!("unknown scheme; {EXPECTED}"))),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(database) => database.fmt(f),
        }
    }
}

impl Database {
    /// Parses what follows the scheme. Host, port, user and database are all taken from it, and from the environment only
    /// a password.
    fn parse(rest: &str) -> Result<Self, LocationError> {
        let wrong = |what: &str| LocationError(format!("{what}; {EXPECTED}"));
        if rest.contains('#') {
            return Err(wrong("a '#' in a password is written %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').ok_or_else(|| wrong("no database is named"))?;
        // The last one, as in any URL: an earlier one belongs to a password that is not encoded.
        let (credentials, host) = authority.rsplit_once('@').ok_or_else(|| wrong("no user is named"))?;
        if credentials.contains('@') {
            return Err(wrong("a '@' in a password is written %40"));
        }
        let user = credentials.split_once(':').map_or(credentials, |(user, _)| user);
        if user.is_empty() {
            return Err(wrong("no user is named"));
        }
        if host.is_empty() || host.starts_with(':') {
            return Err(wrong("no host is named"));
        }
        if database.is_empty() || database.contains('/') {
            return Err(wrong("expected one database after the host"));
        }
        let socket = Self::query(query)?;
        let url = format!("postgres://{authority}/{database}");
        // What the parser says is not repeated: it may quote what it could not read.
        let options = PgConnectOptions::from_str(&url).map_err(|_| wrong("malformed URL"))?;
        let mut options = options.ssl_mode(PgSslMode::Disable).application_name("mercury experiment");
        if !has_port(host) {
            options = options.port(PORT); // And not that of the environment.
        }
        let mut shown = format!("postgres://{user}@{host}/{database}");
        if let Some(directory) = socket {
            shown = format!("{shown}?host={directory}");
            options = options.socket(directory);
        }
        Ok(Self { options: Box::new(options), shown })
    }

    /// The directory of a Unix socket, which is all that may be asked for. `sslmode=disable` says what is done anyway.
    fn query(query: &str) -> Result<Option<String>, LocationError> {
        let mut socket = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("host", directory)) if directory.starts_with('/') && !directory.contains('%') => {
                    socket = Some(directory.to_owned());
                }
                Some(("host", _)) => {
                    return Err(LocationError(
                        "host in the query: expected the directory of a Unix socket".into(),
                    ));
                }
                Some(("sslmode", "disable")) => {}
                Some(("sslmode", _)) => {
                    let message = "sslmode: this program speaks to PostgreSQL without TLS; expected disable";
                    return Err(LocationError(message.into()));
                }
                _ => return Err(LocationError("the query may hold host and sslmode only".into())),
            }
        }
        Ok(socket)
    }

    /// Connects as anybody may who knows the URL: no bounds, no checks, no tables.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.options).await
    }

    /// As [`Database::connect`], for a program that the server shows by this name.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn connect_as(&self, name: &str) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.options.clone().application_name(name)).await
    }

    /// How to connect. Holds the password.
    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.options
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// An address of version 6 stands in brackets, and its colons are no port.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Location::parse(text).expect("a location").to_string()
    }

    #[test]
    fn a_text_without_a_scheme_is_a_file() {
        for path in ["exposures.sqlite", "/var/lib/mercury/exposures.sqlite", "a:b", "postgres"] {
            assert!(
                matches!(Location::parse(path), Ok(Location::File(file)) if file == std::path::Path::new(path)),
                "{path}"
            );
        }
    }

    #[test]
    fn a_password_is_used_and_never_shown() {
        for text in [
            "postgres://mercury:s3cret@db:5433/exposures",
            "postgresql://mercury:s3cret@db:5433/exposures?sslmode=disable",
            "postgres://mercury:s%33cret@db:5433/exposures",
        ] {
            let location = Location::parse(text).expect("a location");
            assert_eq!(location.to_string(), "postgres://mercury@db:5433/exposures");
            assert!(!format!("{location:?}").contains("cret"), "{location:?}");
            let Location::Postgres(database) = location else { panic!("no file") };
            assert!(format!("{:?}", database.options).contains("s3cret"), "it is used to connect");
        }
        assert_eq!(shown("postgres://mercury@db/exposures"), "postgres://mercury@db/exposures");
        assert_eq!(shown("postgres://m@localhost/e?host=/run/pg"), "postgres://m@localhost/e?host=/run/pg");
    }

    #[test]
    fn what_names_no_ledger_is_refused_naming_the_flag_and_keeping_the_secret() {
        for (text, part) in [
            ("", "empty"),
            ("mysql://u:s3cret@h/d", "scheme"),
            ("http://s3cret", "scheme"),
            ("postgres://u:s3cret@h", "no database"),
            ("postgres://u:s3cret@h/", "one database"),
            ("postgres://u:s3cret@h/d/e", "one database"),
            ("postgres://h:5432/d", "no user"),
            ("postgres://:s3cret@h/d", "no user"),
            ("postgres://u:s3cret@/d", "no host"),
            ("postgres://u:s3cret@:5432/d", "no host"),
            ("postgres://u:s3cret@h:port/d", "malformed"),
            ("postgres://u:s3cret@h:99999/d", "malformed"),
            ("postgres://u:s3c@cret@h/d", "%40"),
            ("postgres://u:s3c#cret@h/d", "%23"),
            ("postgres://u:s3cret@h/d?sslmode=require", "without TLS"),
            ("postgres://u:s3cret@h/d?host=elsewhere", "Unix socket"),
            ("postgres://u:s3cret@h/d?password=s3cret", "host and sslmode"),
            ("postgres://u:s3cret@h/d?options", "host and sslmode"),
        ] {
            let error = Location::parse(text).expect_err(text).to_string();
            assert!(error.starts_with("--ledger: ") && error.contains(part), "{text}: {error}");
            assert!(!error.contains("cret"), "{error}");
        }
    }
}
