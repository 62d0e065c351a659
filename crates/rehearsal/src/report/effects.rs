//! Effects: what a rehearsal of effects adds to the report.

use serde::Serialize;

use super::Quantiles;
use crate::exposures::Account;

/// The kills, and what the ledger says after them.
#[derive(Clone, Debug, Serialize)]
pub struct Effects {
    /// How experiment was killed.
    pub kills: Kills,
    /// The ledger, reconciled with the callers' record, before the stories.
    pub account: Account,
}

/// Kills by the moment that they came at: one that found no row waiting counts as any, whatever it was meant for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Kills {
    /// All.
    pub total: u32,
    /// At any moment.
    pub any: u32,
    /// While a lock kept submitted rows from the ledger.
    pub submitted: u32,
    /// Just after such a lock was given up.
    pub committing: u32,
    /// Rows that had been submitted and not answered for at kills of the latter two kinds.
    pub rows_in_flight: u64,
    /// From a kill to a process that is ready.
    pub restart_ms: Quantiles,
}
