//! File: reading and replacing the files of a ledger so that a crash leaves the old one or the new one on the disk.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use super::{FILE_BYTES_MAX, Head, LedgerError};

/// The directory of a file.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The head of the ledger at `path`.
pub(super) fn head(path: &Path) -> PathBuf {
    beside(path, ".head")
}

/// Where a torn line waits for its record.
pub(super) fn torn(path: &Path) -> PathBuf {
    beside(path, ".torn")
}

fn beside(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// The whole file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, LedgerError> {
    let fault = |error| LedgerError::Io { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fault)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fault)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(LedgerError::TooLarge(path.to_owned()));
    }
    Ok(bytes)
}

/// The whole file; `None` when there is none.
pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, LedgerError> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(LedgerError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The head of the ledger at `path`; `None` when there is none.
pub(super) fn read_head(path: &Path) -> Result<Option<Head>, LedgerError> {
    let path = head(path);
    let Some(bytes) = read_if_there(&path)? else { return Ok(None) };
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|error| LedgerError::Head { path, what: error.to_string() })
}

/// Replaces the head of the ledger at `path`.
pub(super) fn write_head(path: &Path, value: &Head) -> Result<(), LedgerError> {
    let path = head(path);
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| LedgerError::Head { path: path.clone(), what: error.to_string() })?;
    replace(&path, format!("{text}\n").as_bytes())
}

/// Writes a file that is whole whenever it is there, and waits until it is on the disk.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), LedgerError> {
    let temporary = beside(path, ".tmp");
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| LedgerError::Io { path: path.to_owned(), error })?;
    sync_directory(path)
}

/// Waits until the entries of the directory of `path` are on the disk.
pub(super) fn sync_directory(path: &Path) -> Result<(), LedgerError> {
    let directory = directory(path);
    let sync = File::open(directory).and_then(|opened| opened.sync_all());
    sync.map_err(|error| LedgerError::Io { path: directory.to_owned(), error })
}
