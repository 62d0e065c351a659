//! Exposures: whether the ledger says what happened. It is reconciled with two witnesses that do not see each other: the
//! generator's record of what callers asked and were shown ([`load::record`]), and the emulator's word on which
//! experiments there were.
//!
//! [`oracle`] knows what a row has to be, by other code than the service's; [`records`] reads what callers say; [`mod@reconcile`]
//! holds the rows against both and gives an [`Account`]. The ledger itself is read through [`Rows`], since this crate
//! knows no service.

pub mod account;
pub mod catalogue;
pub mod oracle;
pub mod print;
pub mod reconcile;
pub mod records;
#[cfg(test)]
pub(crate) mod tests;

use std::pin::Pin;

pub use account::{Account, Class, Discrepancies};
pub use catalogue::Catalogue;
pub use reconcile::{ReconcileError, reconcile};

/// A row of the ledger, as whoever read it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Place in the ledger.
    pub sequence: i64,
    /// Event id.
    pub event_id: [u8; 16],
    /// Digest of the body.
    pub body: [u8; 32],
    /// The tenant.
    pub tenant: String,
    /// The subject.
    pub subject: String,
    /// The experiment.
    pub experiment_id: String,
    /// Version of its definition.
    pub experiment_version: i64,
    /// The arm.
    pub variant: String,
    /// The logical operation.
    pub request_id: String,
    /// Where the arm was shown.
    pub surface: String,
    /// Workload class.
    pub class: String,
    /// Region.
    pub region: String,
    /// Origin.
    pub origin: String,
    /// What the reader itself holds against the row.
    pub objection: Option<String>,
}

/// What reading a ledger comes to: how many rows there are, or why it cannot be read.
pub type Scan<'a> = Pin<Box<dyn Future<Output = Result<u64, String>> + Send + 'a>>;

/// A ledger that can be read as often as it takes.
pub trait Rows: Send + Sync {
    /// Hands every row to `each`, a bounded number in memory at a time, and says how many there were. Each call reads the ledger
    /// as it is then; it writes nothing.
    ///
    /// # Errors
    /// Why the ledger cannot be read, naming it.
    fn scan<'a>(&'a self, each: &'a mut (dyn FnMut(Row) + Send)) -> Scan<'a>;
}
