//! Ledger: the append-only record of decisions: what was decided about a subject, from which phase to which, on what evidence.
//!
//! One JSON line a decision. Each line ends with the digest of its own bytes and carries that of the line before, so a line
//! that was edited, moved or taken out is found and named. A small file beside it, the head, holds the number and digest of
//! the last decision that was acknowledged: without it, lines missing at the end could not be told from lines never
//! written. Whoever can rewrite both files can forge both; a copy of the head elsewhere is the remedy.
//!
//! A decision counts once [`Ledger::append`] has returned: line and head are on the disk by then. A crash before that may
//! leave a part of a line at the end. It is cut off when the ledger is next opened, and the cut is itself a decision of the
//! ledger ([`Decision::Repair`]). Nothing else is ever repaired: a ledger with any other fault is refused.

mod check;
mod entry;
mod error;
mod file;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base::WallClock;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

pub use check::{Head, Verified, check};
pub use entry::{Decision, Draft, Entry, NO_DIGEST, PolicyRef, SCHEMA};
pub use error::LedgerError;

/// Name of a suite's ledger in its state directory.
pub const FILE: &str = "decisions.ndjson";
/// Most bytes of one line: evidence is figures, not traces.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a ledger, all of which are read to verify it.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// Room that only decisions that move something may use.
const RESERVE_BYTES: u64 = 4 << 20;
/// Subject of the ledger's own entries.
pub const OWN_SUBJECT: &str = "ledger";
/// Most bytes of a torn line that its repair quotes.
const EXCERPT_BYTES_MAX: usize = 512;

/// An open ledger. Nobody else can open it to append while this lives; anybody can [`verify`] it.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    /// Locked.
    file: File,
    bytes: u64,
    entries: Vec<Entry>,
    /// A write failed: what the file ends with is not known.
    broken: bool,
}

impl Ledger {
    /// Opens the ledger at `path`, or begins one, verifies all of it and takes the lock. A torn last line is cut off and
    /// the cut recorded, at the time that `clock` says.
    ///
    /// # Errors
    /// [`LedgerError::Busy`] while another holds it; a fault of the file otherwise, which is left as it is then.
    pub fn open(path: &Path, clock: &dyn WallClock) -> Result<Self, LedgerError> {
        let fault = |path: &Path, error: io::Error| LedgerError::Io { path: path.to_owned(), error };
        let directory = file::directory(path);
        fs::create_dir_all(directory).map_err(|error| fault(directory, error))?;
        let file = File::options().create(true).append(true).read(true).open(path);
        let file = file.map_err(|error| fault(path, error))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => LedgerError::Busy(path.to_owned()),
            error => fault(path, error.into()),
        })?;
        let text = file::read(path)?;
        let found = check(path, &text, file::read_head(path)?.as_ref())?;
        let whole = text.len() - found.torn_bytes;
        if found.torn_bytes > 0 {
            // What is cut is kept beside the ledger until its record is in: a crash in between loses neither.
            file::replace(&file::torn(path), &text[whole..])?;
            let cut = file.set_len(whole as u64).and_then(|()| file.sync_all());
            cut.map_err(|error| fault(path, error))?;
        }
        file::sync_directory(path)?;
        let mut ledger =
            Self { path: path.to_owned(), file, bytes: whole as u64, entries: found.entries, broken: false };
        ledger.record_cut(clock)?;
        // The last line may have reached the disk without its head.
        ledger.acknowledge()?;
        Ok(ledger)
    }

    /// Records what was cut, unless that was done before a crash.
    fn record_cut(&mut self, clock: &dyn WallClock) -> Result<(), LedgerError> {
        let path = file::torn(&self.path);
        let Some(cut) = file::read_if_there(&path)? else { return Ok(()) };
        let digest = entry::sha256(&cut);
        let recorded = self.entries.last().is_some_and(|last| {
            last.decision == Decision::Repair && last.evidence["torn_sha256"] == digest.as_str()
        });
        if !recorded {
            let excerpt = &cut[..cut.len().min(EXCERPT_BYTES_MAX)];
            let evidence = json!({
                "torn_bytes": cut.len(),
                "torn_sha256": digest,
                "torn_excerpt": String::from_utf8_lossy(excerpt),
                "entries_before": self.entries.len(),
            });
            let draft = Draft {
                actor: operator(),
                command: "open the ledger".to_owned(),
                subject: OWN_SUBJECT.to_owned(),
                from: None,
                to: "whole".to_owned(),
                decision: Decision::Repair,
                reason: "the last line was torn by a crash before it was acknowledged, and was cut off"
                    .to_owned(),
                policy: None,
                evidence,
            };
            self.append(draft, clock)?;
        }
        fs::remove_file(&path).map_err(|error| LedgerError::Io { path, error })?;
        file::sync_directory(&self.path)
    }

    /// Appends a decision and returns it once it is on the disk.
    ///
    /// # Errors
    /// [`LedgerError::OutOfOrder`] when the subject is not where the decision begins; [`LedgerError::TooLong`] and
    /// [`LedgerError::Full`] beyond the bounds; nothing was written then. After [`LedgerError::Io`] the ledger takes
    /// nothing more and has to be opened again.
    pub fn append(&mut self, draft: Draft, clock: &dyn WallClock) -> Result<&Entry, LedgerError> {
        if self.broken {
            return Err(LedgerError::Reopen(self.path.clone()));
        }
        let position = self.position(&draft.subject);
        if draft.decision != Decision::Repair && draft.from.as_deref() != position {
            return Err(LedgerError::OutOfOrder {
                subject: draft.subject,
                position: position.map(str::to_owned),
                from: draft.from,
            });
        }
        let previous = self.entries.last().map_or(NO_DIGEST, |last| last.digest.as_str());
        let (entry, line) = draft.seal(self.entries.len() as u64 + 1, clock.unix_ms(), previous);
        if line.len() > LINE_BYTES_MAX {
            return Err(LedgerError::TooLong { bytes: line.len() });
        }
        // What changes nothing leaves room for what does: a way back must not find the ledger full of refusals.
        let moves = !matches!(entry.decision, Decision::Hold | Decision::Refuse);
        let bytes_max = if moves { FILE_BYTES_MAX } else { FILE_BYTES_MAX - RESERVE_BYTES };
        if self.bytes + line.len() as u64 > bytes_max {
            return Err(LedgerError::Full(self.path.clone()));
        }
        self.broken = true;
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| LedgerError::Io { path: self.path.clone(), error })?;
        self.entries.push(entry);
        self.bytes += line.len() as u64;
        self.acknowledge()?;
        self.broken = false;
        Ok(self.entries.last().expect("pushed above"))
    }

    /// Moves the head to the last entry.
    fn acknowledge(&self) -> Result<(), LedgerError> {
        let Some(last) = self.entries.last() else { return Ok(()) };
        file::write_head(&self.path, &Head { sequence: last.sequence, digest: last.digest.clone() })
    }

    /// Where a subject stands; `None` before its first decision.
    pub fn position(&self, subject: &str) -> Option<&str> {
        self.history(Some(subject)).last().and_then(Entry::position)
    }

    /// The decisions about a subject, or all of them, in order.
    pub fn history(&self, subject: Option<&str>) -> impl DoubleEndedIterator<Item = &Entry> {
        let subject = subject.map(str::to_owned);
        self.entries.iter().filter(move |entry| subject.as_ref().is_none_or(|one| *one == entry.subject))
    }

    /// The last decision, by which a reader knows the whole ledger.
    pub fn head(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Verifies the ledger at `path` without a lock and without a change. A line that is being written at this moment shows
/// as torn.
///
/// # Errors
/// The first fault, with the line and the digests that do not agree.
pub fn verify(path: &Path) -> Result<Verified, LedgerError> {
    // The head first: a decision that is appended meanwhile is then ahead of it, which is no fault.
    let head = file::read_head(path)?;
    check(path, &file::read(path)?, head.as_ref())
}

/// The last acknowledged decision, by the small file beside the ledger at `path`; `None` when there is none. Cheap, for who
/// looks again and again whether anything was decided.
///
/// # Errors
/// [`LedgerError`] when it cannot be read, or is no head.
pub fn head(path: &Path) -> Result<Option<Head>, LedgerError> {
    file::read_head(path)
}

/// Where every subject stands after `entries`.
pub fn replay<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> BTreeMap<&'e str, &'e str> {
    let moves = entries.into_iter().filter(|entry| entry.decision != Decision::Repair);
    moves.filter_map(|entry| Some((entry.subject.as_str(), entry.position()?))).collect()
}

/// Who decides: the user of this process by name, or by number where there is no name.
pub fn operator() -> String {
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty());
    name.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

#[cfg(test)]
mod tests;
