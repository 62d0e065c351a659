//! Error: why a ledger is refused, or a decision.

use std::{fmt, io, path::PathBuf};

use super::{FILE_BYTES_MAX, Head, LINE_BYTES_MAX};

/// Why a ledger cannot be used, or takes no decision. Lines count from 1.
#[derive(Debug)]
pub enum LedgerError {
    /// A file could not be read or written.
    Io {
        /// Which one.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// Another process appends to it.
    Busy(PathBuf),
    /// The bytes of a line are not those that its digest was made of.
    Edited {
        /// The ledger.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// The digest that the line carries.
        expected: String,
        /// The digest of its bytes.
        found: String,
    },
    /// A line does not follow the one before it: one was taken out, put in, or moved.
    Chain {
        /// The ledger.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// The digest of the line before.
        expected: String,
        /// The digest that the line names as the one before.
        found: String,
    },
    /// A line is no decision.
    Malformed {
        /// The ledger.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Acknowledged decisions are missing at the end.
    Truncated {
        /// The ledger.
        path: PathBuf,
        /// Whole lines that there are.
        entries: usize,
        /// The last one that was acknowledged.
        head: Head,
    },
    /// The acknowledged decision is another one now.
    Replaced {
        /// The ledger.
        path: PathBuf,
        /// Which line.
        line: u64,
        /// The digest that was acknowledged.
        expected: String,
        /// The digest that the line has.
        found: String,
    },
    /// There are decisions, and the head that acknowledges them is gone.
    NoHead {
        /// The ledger.
        path: PathBuf,
    },
    /// The head is there and cannot be understood.
    Head {
        /// The head.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The file is longer than a ledger may be.
    TooLarge(PathBuf),
    /// A decision begins where its subject is not.
    OutOfOrder {
        /// What the decision is about.
        subject: String,
        /// Where it stands.
        position: Option<String>,
        /// Where the decision begins.
        from: Option<String>,
    },
    /// A decision is longer than a line may be.
    TooLong {
        /// How long.
        bytes: usize,
    },
    /// The ledger has no room for the decision.
    Full(PathBuf),
    /// An earlier write failed; the ledger has to be opened again, which verifies it.
    Reopen(PathBuf),
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |position: &Option<String>| position.as_deref().unwrap_or("the beginning").to_owned();
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Busy(path) => write!(f, "{}: another process has it open", path.display()),
            Self::Edited { path, line, expected, found } => write!(
                f,
                "{}:{line}: this line was edited: it carries the digest {expected}, its bytes have {found}",
                path.display()
            ),
            Self::Chain { path, line, expected, found } => write!(
                f,
                "{}:{line}: a line before this one was taken out, put in or moved: the line before has the digest \
                 {expected}, this one was written after {found}",
                path.display()
            ),
            Self::Malformed { path, line, what } => {
                write!(f, "{}:{line}: not a decision: {what}", path.display())
            }
            Self::Truncated { path, entries, head } => write!(
                f,
                "{}: decisions are missing at the end: it has {entries} whole lines, and decision {} with the digest \
                 {} was acknowledged",
                path.display(),
                head.sequence,
                head.digest
            ),
            Self::Replaced { path, line, expected, found } => write!(
                f,
                "{}:{line}: this is not the decision that was acknowledged: that had the digest {expected}, this has \
                 {found}",
                path.display()
            ),
            Self::NoHead { path } => write!(
                f,
                "{}: the file that acknowledges its last decision is gone, so decisions may be missing at the end",
                path.display()
            ),
            Self::Head { path, what } => write!(f, "{}: not the head of a ledger: {what}", path.display()),
            Self::TooLarge(path) => {
                write!(f, "{}: larger than the {FILE_BYTES_MAX} bytes of a ledger", path.display())
            }
            Self::OutOfOrder { subject, position, from } => write!(
                f,
                "{subject} stands at {}, so no decision about it can begin at {}",
                place(position),
                place(from)
            ),
            Self::TooLong { bytes } => {
                write!(f, "the decision has {bytes} bytes, more than the {LINE_BYTES_MAX} of a line")
            }
            Self::Full(path) => write!(
                f,
                "{}: no room for another decision within {FILE_BYTES_MAX} bytes; begin a new ledger",
                path.display()
            ),
            Self::Reopen(path) => {
                write!(f, "{}: an earlier write failed; open the ledger again", path.display())
            }
        }
    }
}

impl std::error::Error for LedgerError {}
