//! Marks file: the tenants' marks on the disk, so that a process that starts again does not believe what an earlier one knew to
//! be outdated. Written off the request path, whole, beside its place and moved there: a crash leaves the one before, which is
//! behind by less than a second.
//!
//! One JSON line says the schema, and one each tenant's mark.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use base::{Nanos, Tenant};
use serde::{Deserialize, Serialize};
use serve::health::Readiness;
use summary::{Mark, Marks, marks::TENANTS_MAX};
use tokio::time;

use crate::authority::Authority;

/// Name of the task.
pub(crate) const TASK: &str = "write marks";
/// First line.
const SCHEMA: &str = r#"{"schema":"mercury.marks/v1"}"#;
/// Least time between two writes.
const PAUSE: Nanos = Nanos::from_millis(500);
/// Largest file: every tenant that is remembered, with a name at its longest.
const BYTES_MAX: u64 = TENANTS_MAX as u64 * 256;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    tenant: String,
    policy_version: u64,
    revocation_epoch: u64,
}

/// The right to write the file, for as long as this lives.
pub(crate) struct Lock(#[expect(dead_code, reason = "the lock is the open file")] File);

/// Takes the right to write the file, reads it, and writes it once, so that a place where nothing can be written is told when the
/// process starts.
///
/// # Errors
/// As [`read`]; another process's file; a place that cannot be written.
pub(crate) fn open(path: &Path) -> Result<(Marks, Lock), String> {
    let fault = |what: String| format!("{}: {what}", path.display());
    let beside = path.with_extension("lock");
    let file = File::options().create(true).append(true).open(&beside);
    let file = file.map_err(|error| format!("{}: {error}", beside.display()))?;
    file.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => fault("is another process's file of marks".to_owned()),
        fs::TryLockError::Error(error) => fault(error.to_string()),
    })?;
    let marks = read(path)?;
    write(path, &marks).map_err(|error| fault(error.to_string()))?;
    Ok((marks, Lock(file)))
}

/// The marks of an earlier process; none where there is no file yet.
///
/// # Errors
/// A sentence that names the file, and the line that is at fault. To begin without marks would let outdated summaries in, so
/// that is left to the operator.
fn read(path: &Path) -> Result<Marks, String> {
    let fault = |what: String| format!("{}: {what}", path.display());
    let bytes = match fs::metadata(path) {
        Ok(found) if found.len() > BYTES_MAX => return Err(fault(format!("larger than {BYTES_MAX} bytes"))),
        Ok(_) => fs::read_to_string(path).map_err(|error| fault(error.to_string()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Marks::default()),
        Err(error) => return Err(fault(error.to_string())),
    };
    let mut lines = bytes.lines();
    if lines.next() != Some(SCHEMA) || !bytes.ends_with('\n') {
        return Err(fault("is no file of marks; move it away to begin without any".to_owned()));
    }
    let marks = lines.enumerate().map(|(at, text)| {
        let line: Line =
            serde_json::from_str(text).map_err(|error| fault(format!("line {}: {error}", at + 2)))?;
        let tenant = Tenant::parse(&line.tenant).map_err(|_| fault(format!("line {}: no tenant", at + 2)))?;
        Ok((tenant, Mark { policy_version: line.policy_version, revocation_epoch: line.revocation_epoch }))
    });
    Ok(Marks::restored(marks.collect::<Result<Vec<_>, String>>()?))
}

/// Writes the marks so that a reader finds all of them or those before.
fn write(path: &Path, marks: &Marks) -> io::Result<()> {
    let mut lines: Vec<_> = marks.iter().collect();
    lines.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
    let mut text = format!("{SCHEMA}\n");
    for (tenant, mark) in lines {
        let line = Line {
            tenant: tenant.as_str().to_owned(),
            policy_version: mark.policy_version,
            revocation_epoch: mark.revocation_epoch,
        };
        let _ = writeln!(text, "{}", serde_json::to_string(&line)?); // Writing to a String cannot fail.
    }
    let beside = path.with_extension("tmp");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Keeps the file up to date, until the process shuts down; what rose by then is written once more.
pub(crate) async fn keep(path: PathBuf, lock: Lock, authority: Arc<Authority>, readiness: Readiness) {
    let _held = lock;
    let mut raised = authority.raised();
    let mut told = None;
    loop {
        let over = tokio::select! {
            changed = raised.changed() => changed.is_err(),
            () = readiness.quiesced() => true,
        };
        raised.mark_unchanged();
        let (marks, at) = (authority.snapshot(), path.clone());
        let written =
            tokio::task::spawn_blocking(move || write(&at, &marks).map_err(|error| error.to_string()));
        let fault = written.await.unwrap_or_else(|_| Err("the write broke off".to_owned())).err();
        authority.marks_are_kept(fault.is_none());
        if let Some(error) = fault.as_ref().filter(|_| fault != told) {
            tracing::error!(file = %path.display(), %error, "marks are not on the disk; it is tried again");
        }
        if fault.is_some() {
            raised.mark_changed();
        }
        told = fault;
        if over {
            return;
        }
        tokio::select! {
            () = time::sleep(PAUSE.into()) => {}
            () = readiness.quiesced() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).expect("a tenant")
    }

    #[test]
    fn marks_are_read_back_and_a_broken_file_is_named_and_not_begun_anew() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("marks.ndjson");
        assert_eq!(read(&path).expect("none yet").iter().count(), 0);
        let (one, other) = (
            Mark { policy_version: 6, revocation_epoch: 2 },
            Mark { policy_version: 1, revocation_epoch: 9 },
        );
        let marks = Marks::restored([(tenant("tenant-001"), one), (tenant("tenant-002"), other)]);
        write(&path, &marks).expect("written");
        let read_back = read(&path).expect("sound");
        assert_eq!((read_back.of(&tenant("tenant-001")), read_back.of(&tenant("tenant-002"))), (one, other));
        let text = fs::read_to_string(&path).expect("there");
        for broken in [
            text.replace("mercury.marks/v1", "mercury.marks/v2"),
            text.trim_end().to_owned(),
            text.replace("\"policy_version\":6", "\"policy_version\":-6"),
            text.replace("tenant-001", "no tenant"),
            String::new(),
        ] {
            fs::write(&path, &broken).expect("written");
            let fault = read(&path).expect_err("broken");
            assert!(fault.contains("marks.ndjson"), "{fault}");
        }
    }
}
