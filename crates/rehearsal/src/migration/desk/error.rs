//! Error: why nothing was decided about the migration.

use std::fmt;

use crate::ledger::LedgerError;

/// Why nothing was decided.
#[derive(Debug)]
pub enum DeskError {
    /// The ledger cannot be relied on, or does not take the decision.
    Ledger(LedgerError),
    /// The ledger says nothing that can be decided from.
    Standing(String),
    /// What was asked for cannot be asked for here; a mistake of use.
    Usage(String),
}

impl DeskError {
    /// The exit code: 2 for a mistake of use, else 1.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Ledger(_) | Self::Standing(_) => 1,
        }
    }

    pub(super) fn standing(error: impl fmt::Display) -> Self {
        Self::Standing(error.to_string())
    }
}

impl fmt::Display for DeskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(error) => error.fmt(f),
            Self::Standing(text) | Self::Usage(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for DeskError {}

impl From<LedgerError> for DeskError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}
