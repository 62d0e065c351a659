//! Audit: reads a whole ledger, beside the service that writes it or after its end, without writing to it.
//!
//! A reader sees the ledger as it was at one moment, that of its first page, however long it reads and whatever is written
//! meanwhile. It holds one page of rows at a time. Every row is sealed again from its own columns, so that a row that
//! the service did not write as it stands is told, with what is wrong about it; it is told and not an error, since an
//! audit must see the rows behind it as well.

mod postgres;
mod sqlite;

use std::fmt;

use base::{Origin, Region, RequestId, Subject, Tenant, WorkloadClass};
use uuid::Uuid;

use super::Location;
use crate::decide::{
    exposure::{BodyDigest, Statement},
    is_name,
};

/// Rows of a page: what a reader holds at a time, less than 1 MiB.
const PAGE_ROWS_MAX: u32 = 1_024;

/// A row of a ledger as it stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Place in the ledger, from 1. Ascending; with gaps where transactions were rolled back.
    pub sequence: i64,
    /// Event id, as recorded.
    pub event_id: Uuid,
    /// Digest of the body, as recorded.
    pub body: BodyDigest,
    /// The tenant.
    pub tenant: String,
    /// The subject.
    pub subject: String,
    /// The experiment.
    pub experiment_id: String,
    /// Version of its definition.
    pub experiment_version: i64,
    /// The arm that was shown.
    pub variant: String,
    /// The logical operation.
    pub request_id: String,
    /// Where it was shown.
    pub surface: String,
    /// The subject's workload class.
    pub class: String,
    /// The caller's region.
    pub region: String,
    /// Who caused it: `customer`, `probe` or `load_test`.
    pub origin: String,
    /// When the transaction was begun that wrote it, in milliseconds since the Unix epoch, by the writer's calendar.
    pub recorded_unix_ms: i64,
}

/// Why a row cannot have been written by the service as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A column holds what the service never writes there.
    Malformed(&'static str),
    /// The event id is not that of the row's tenant, subject, experiment, version, arm and operation.
    EventId,
    /// The digest is not that of what the row states.
    Body,
}

impl fmt::Display for Forgery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(column) => write!(f, "{column} holds what the service never writes"),
            Self::EventId => f.write_str("the event id is not that of what the row states"),
            Self::Body => f.write_str("the body digest is not that of what the row states"),
        }
    }
}

impl Row {
    /// Seals the row again and compares.
    ///
    /// # Errors
    /// The first thing that is wrong, from the columns over the id to the digest.
    pub fn authentic(&self) -> Result<(), Forgery> {
        let columns = [
            ("tenant", Tenant::parse(&self.tenant).is_ok()),
            ("subject", Subject::parse(&self.subject).is_ok()),
            ("experiment_id", is_name(&self.experiment_id)),
            ("variant", is_name(&self.variant)),
            ("request_id", RequestId::parse(&self.request_id).is_ok()),
            ("surface", is_name(&self.surface)),
            ("class", WorkloadClass::parse(&self.class).is_some()),
            ("region", Region::parse(&self.region).is_ok()),
            ("origin", Origin::parse(&self.origin).is_some()),
        ];
        if let Some((column, _)) = columns.iter().find(|(_, sound)| !sound) {
            return Err(Forgery::Malformed(column));
        }
        let version = u32::try_from(self.experiment_version).ok().filter(|version| *version > 0);
        let experiment_version = version.ok_or(Forgery::Malformed("experiment_version"))?;
        let (event_id, body) = self.statement(experiment_version).seal();
        if event_id != self.event_id {
            return Err(Forgery::EventId);
        }
        if body != self.body {
            return Err(Forgery::Body);
        }
        Ok(())
    }

    /// Reads a row of [`PAGE`].
    fn decode<'r, R: sqlx::Row>(row: &'r R) -> Result<Self, sqlx::Error>
    where
        usize: sqlx::ColumnIndex<R>,
        i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
        String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
        &'r [u8]: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    {
        let malformed = |what: &str| sqlx::Error::Decode(format!("malformed {what}").into());
        Ok(Self {
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

    fn statement(&self, experiment_version: u32) -> Statement<'_> {
        Statement {
            tenant: &self.tenant,
            subject: &self.subject,
            experiment_id: &self.experiment_id,
            experiment_version,
            variant: &self.variant,
            request_id: &self.request_id,
            surface: &self.surface,
            class: &self.class,
            region: &self.region,
            origin: &self.origin,
        }
    }
}

/// A ledger that cannot be read, by its location without password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditError {
    location: String,
    detail: String,
}

impl AuditError {
    fn new(location: &Location, detail: impl fmt::Display) -> Self {
        Self { location: location.to_string(), detail: detail.to_string() }
    }
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the exposure ledger {}: {}", self.location, self.detail)
    }
}

impl std::error::Error for AuditError {}

/// Reads the rows of a ledger by sequence ascending.
pub struct Reader {
    location: Location,
    store: Store,
    /// The rows up to here have been read.
    after: i64,
}

/// The stores name their columns alike, so a page is the same question to each.
const PAGE: &str = "SELECT sequence, event_id, body_sha256, tenant, subject, experiment_id, experiment_version, variant, \
                    request_id, surface, class, region, origin, recorded_unix_ms \
                    FROM exposure WHERE sequence > $1 ORDER BY sequence LIMIT $2";

enum Store {
    Sqlite(sqlite::Snapshot),
    Postgres(postgres::Snapshot),
}

/// Opens the ledger at `location` for reading. The service may be writing to it, or may have been killed and left a
/// write-ahead log behind, whose committed rows count.
///
/// # Errors
/// [`AuditError`] when there is no ledger, it is damaged, or its schema is one that this program does not know.
pub async fn open(location: &Location) -> Result<Reader, AuditError> {
    let opened = match location {
        Location::File(path) => sqlite::Snapshot::open(path).await.map(Store::Sqlite),
        Location::Postgres(database) => postgres::Snapshot::open(database).await.map(Store::Postgres),
    };
    let store = opened.map_err(|detail| AuditError::new(location, detail))?;
    Ok(Reader { location: location.clone(), store, after: 0 })
}

impl Reader {
    /// The next rows, in the order of their sequence; none at the end.
    ///
    /// # Errors
    /// [`AuditError`] when the ledger cannot be read further.
    pub async fn next_batch(&mut self) -> Result<Vec<Row>, AuditError> {
        let page = match &mut self.store {
            Store::Sqlite(snapshot) => snapshot.page(self.after, PAGE_ROWS_MAX).await,
            Store::Postgres(snapshot) => snapshot.page(self.after, PAGE_ROWS_MAX).await,
        };
        let page = page.map_err(|error| AuditError::new(&self.location, error))?;
        if let Some(last) = page.last() {
            self.after = last.sequence;
        }
        Ok(page)
    }

    /// Hands every row that is left to `visit`, and says how many there were.
    ///
    /// # Errors
    /// [`AuditError`] when the ledger cannot be read to its end.
    pub async fn for_each(&mut self, mut visit: impl FnMut(Row)) -> Result<u64, AuditError> {
        let mut count = 0;
        loop {
            let page = self.next_batch().await?;
            if page.is_empty() {
                return Ok(count);
            }
            count += page.len() as u64;
            page.into_iter().for_each(&mut visit);
        }
    }
}

#[cfg(test)]
mod tests;
