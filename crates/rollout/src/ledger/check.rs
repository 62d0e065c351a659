//! Check: whether the bytes of a ledger are those that were written. Pure.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    entry::{self, Entry, NO_DIGEST, SCHEMA},
    error::LedgerError,
};

/// The last acknowledged entry, as the file beside the ledger holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Its number.
    pub sequence: u64,
    /// Its digest.
    pub digest: String,
}

/// A ledger whose every line is as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// All entries, in order.
    pub entries: Vec<Entry>,
    /// Bytes of a last line without its newline, which was never acknowledged; 0 when there is none.
    pub torn_bytes: usize,
}

/// Checks `text` against itself and against `head`. `path` is for messages.
///
/// # Errors
/// The first fault.
pub fn check(path: &Path, text: &[u8], head: Option<&Head>) -> Result<Verified, LedgerError> {
    let torn_bytes = text.iter().rev().take_while(|byte| **byte != b'\n').count();
    let whole = &text[..text.len() - torn_bytes];
    let mut entries: Vec<Entry> = Vec::new();
    for (at, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let previous = entries.last().map_or(NO_DIGEST, |last| last.digest.as_str());
        let entry = entry_of(path, at + 1, &line[..line.len() - 1], previous)?;
        entries.push(entry);
    }
    match head {
        // A crash between the first line and the first head is the only way to have lines and no head.
        None if entries.len() > 1 => return Err(LedgerError::NoHead { path: path.to_owned() }),
        None => {}
        Some(head) => {
            let at = usize::try_from(head.sequence).ok().and_then(|sequence| sequence.checked_sub(1));
            match at.and_then(|at| entries.get(at)) {
                None => {
                    return Err(LedgerError::Truncated {
                        path: path.to_owned(),
                        entries: entries.len(),
                        head: head.clone(),
                    });
                }
                Some(entry) if entry.digest != head.digest => {
                    return Err(LedgerError::Replaced {
                        path: path.to_owned(),
                        line: head.sequence,
                        expected: head.digest.clone(),
                        found: entry.digest.clone(),
                    });
                }
                Some(_) => {}
            }
        }
    }
    Ok(Verified { entries, torn_bytes })
}

/// Reads line number `line`, which must come after the line with the digest `previous`.
fn entry_of(path: &Path, line: usize, bytes: &[u8], previous: &str) -> Result<Entry, LedgerError> {
    let malformed = |what: String| LedgerError::Malformed { path: path.to_owned(), line, what };
    let text = std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))?;
    let seal = entry::unseal(text).ok_or_else(|| malformed("it does not end like a decision".to_owned()))?;
    if seal.of_bytes != seal.carried {
        return Err(LedgerError::Edited {
            path: path.to_owned(),
            line,
            expected: seal.carried.to_owned(),
            found: seal.of_bytes,
        });
    }
    let entry: Entry = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if entry.previous != previous {
        return Err(LedgerError::Chain {
            path: path.to_owned(),
            line,
            expected: previous.to_owned(),
            found: entry.previous,
        });
    }
    // The seal holds, so what follows was written like that: by another program, or by one that forges.
    if entry.schema != SCHEMA {
        return Err(malformed(format!("its schema is {:?}, not {SCHEMA:?}", entry.schema)));
    }
    if entry.sequence != line as u64 {
        return Err(malformed(format!("it has the number {}", entry.sequence)));
    }
    if entry.evidence_sha256 != entry::sha256(seal.evidence.as_bytes()) {
        return Err(malformed("its evidence has another digest".to_owned()));
    }
    Ok(entry)
}
