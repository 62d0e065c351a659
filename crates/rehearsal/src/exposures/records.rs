//! Records: reads what generators wrote down, line by line, with a bounded line in memory at a time.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
};

use load::record::{End, LINE_BYTES_MAX, Line, Operation, SCHEMA};
use serde::Serialize;

/// A record that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Which file.
    pub path: PathBuf,
    /// Where and what.
    pub fault: String,
}

/// How far a record goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// Which file.
    pub path: String,
    /// Operations that it tells of.
    pub operations: u64,
    /// Why it is not the whole truth; null when it is.
    pub gap: Option<String>,
}

/// Hands every operation of a record to `each`.
///
/// A record that breaks off, in the middle of a line as well, is that of a generator that was ended: it is told as a gap.
///
/// # Errors
/// When the file cannot be read, or a line is none of a record.
pub fn read(path: &Path, mut each: impl FnMut(Operation)) -> Result<Extent, RecordError> {
    let fail = |fault: String| RecordError { path: path.to_owned(), fault };
    let mut file = BufReader::new(File::open(path).map_err(|error| fail(error.to_string()))?);
    let mut extent = Extent { path: path.display().to_string(), ..Extent::default() };
    let (mut bytes, mut number, mut end) = (Vec::new(), 0_u64, None::<End>);
    loop {
        let read = next(&mut file, &mut bytes).map_err(|error| fail(error.to_string()))?;
        let Some(whole) = read else { break };
        number += 1;
        let at = |fault: &dyn std::fmt::Display| fail(format!("line {number}: {fault}"));
        if !whole {
            if bytes.len() > LINE_BYTES_MAX {
                return Err(at(&"longer than 64 KiB"));
            }
            break;
        }
        match serde_json::from_slice(&bytes).map_err(|error| at(&error))? {
            _ if end.is_some() => return Err(at(&"there is a line after the last one")),
            Line::Run(run) if number == 1 && run.schema == SCHEMA => {}
            Line::Run(run) if number == 1 => {
                return Err(at(&format!("schema: expected {SCHEMA}, found {:?}", run.schema)));
            }
            _ if number == 1 => return Err(at(&"the first line does not say what was run")),
            Line::Run(_) => return Err(at(&"another run begins")),
            Line::Operation(operation) => {
                extent.operations += 1;
                each(operation);
            }
            Line::End(said) => end = Some(said),
        }
    }
    extent.gap = match end {
        None => Some("it breaks off".to_owned()),
        Some(end) if end.missed > 0 => Some(format!("{} operations are missing", end.missed)),
        Some(end) if end.operations != extent.operations => {
            Some(format!("it tells of {} operations, and {} were sent", extent.operations, end.operations))
        }
        Some(_) => None,
    };
    Ok(extent)
}

/// Reads a line without its end; false when the file ends first, or the line is too long. `None` at the end of the file.
fn next(file: &mut BufReader<File>, bytes: &mut Vec<u8>) -> io::Result<Option<bool>> {
    bytes.clear();
    let limit = LINE_BYTES_MAX as u64 + 1;
    if file.by_ref().take(limit).read_until(b'\n', bytes)? == 0 {
        return Ok(None);
    }
    let whole = bytes.last() == Some(&b'\n');
    if whole {
        bytes.pop();
    }
    Ok(Some(whole))
}
