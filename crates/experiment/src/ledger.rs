//! Ledger: where exposures are kept for good. The trait says what a store must promise; [`sqlite`] keeps the promise on
//! disk, [`postgres`] in a database that several replicas share, [`memory`] for as long as the process lives. [`location`]
//! says where a ledger is, [`audit`] reads it.

pub mod audit;
pub mod location;
pub mod memory;
pub mod postgres;
mod schema;
pub mod sqlite;

use std::{fmt, future::Future};

use base::Nanos;

use crate::decide::{Exposure, exposure::BodyDigest};

pub use location::Location;
pub use memory::MemoryLedger;
pub use postgres::PostgresLedger;
pub use sqlite::SqliteLedger;

/// A file or a database that cannot be used as a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    place: String,
    detail: String,
}

impl OpenError {
    /// `place` is shown to the operator, so it is the one without a password.
    fn new(place: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Self { place: place.to_string(), detail: detail.to_string() }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use the exposure ledger {}: {}", self.place, self.detail)
    }
}

impl std::error::Error for OpenError {}

/// What the ledger holds under an event id, as read after the write in the same transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Body of the row.
    pub body: BodyDigest,
    /// True when this transaction wrote the row, false when it was there before.
    pub fresh: bool,
}

/// A transaction that did not answer for its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// None of its rows was written, for certain. The text is for the operator.
    KnownAbsent(String),
    /// The commit was sent and its outcome is not known. Recording the same rows again settles it.
    Unknown(String),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KnownAbsent(detail) => write!(f, "nothing was recorded: {detail}"),
            Self::Unknown(detail) => write!(f, "the outcome of a commit is not known: {detail}"),
        }
    }
}

impl std::error::Error for WriteError {}

/// For how long the store is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a lock that somebody else holds.
    pub lock: Nanos,
    /// For a store in another process: to connect, and for each step of a transaction.
    pub step: Nanos,
}

/// A durable, idempotent store of exposures, used by one writer at a time.
pub trait Ledger: Send + 'static {
    /// Writes the rows that are not there yet, all in one transaction, and tells what is there afterwards, in the order
    /// of `rows`. Event ids in `rows` are distinct.
    ///
    /// `Ok` means that the transaction is durable. A row that exists is left as it is, whatever its body: comparing is
    /// the caller's part. Claiming an id and writing its row are one act, so an id is never taken without a row.
    ///
    /// # Errors
    /// [`WriteError`]; it concerns every row of the call. A later call starts afresh.
    fn record(&mut self, rows: &[&Exposure]) -> impl Future<Output = Result<Vec<Stored>, WriteError>> + Send;

    /// Whether the store would take a batch now: room for one is taken and given back for real, and the commit of that is on
    /// disk. No row stays.
    ///
    /// # Errors
    /// Why not, for the operator.
    fn probe(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Waits for the store so long from now on. Does nothing when that is no news.
    fn set_patience(&mut self, patience: Patience);

    /// Brings the store to rest. Called once, after the last other call.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}
