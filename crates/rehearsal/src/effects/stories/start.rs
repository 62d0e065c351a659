//! Start: a process of experiment on a ledger that is none says so by name, and ends.

use std::{fs, path::Path, process::Stdio, time::Duration};

use tokio::{process::Command, time};

use super::{EffectsOptions, Failed, Found, Stage};
use crate::{Member, slo::RehearsalError};

/// What a file of SQLite begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of the damaged files.
const LENGTH: usize = 16 << 10;
/// Longest wait for a process that cannot start.
const ENDS_MAX: Duration = Duration::from_secs(10);

/// A file that is no database, and one that was one.
pub(super) async fn corrupt(options: &EffectsOptions, stage: &Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    let emulator = stage.suite.endpoints().get(Member::Emulator).and_then(|at| at.main()).unwrap_or_default();
    let (mut text, mut damaged) = (b"no ledger\n".repeat(LENGTH / 10), vec![0xa5; LENGTH]);
    damaged[..MAGIC.len()].copy_from_slice(MAGIC);
    for (name, content) in [("text.db", &mut text), ("damaged.db", &mut damaged)] {
        let path = options.out.join("state").join(name);
        let fault = |error| RehearsalError::Io { path: path.clone(), error };
        fs::write(&path, &*content).map_err(fault)?;
        let (code, said) = serve(options, &path, emulator).await?;
        found.must(code == Some(1), format!("{name}: it ended with {code:?}"));
        found.must(
            said.contains(&*path.to_string_lossy()),
            format!("{name}: it does not name the file: {said}"),
        );
        found.must(fs::read(&path).map_err(fault)? == *content, format!("{name}: the file was written to"));
        found.saw(format!("{name}: exit 1, {}", said.lines().last().unwrap_or_default()));
    }
    Ok(found)
}

/// `mercury serve experiment` on a ledger: how it ended, and what it said.
async fn serve(
    options: &EffectsOptions,
    ledger: &Path,
    emulator: &str,
) -> Result<(Option<i32>, String), RehearsalError> {
    let fault = |error| RehearsalError::Io { path: "mercury serve experiment".into(), error };
    let executable = match &options.executable {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(fault)?,
    };
    let mut command = Command::new(executable);
    command.args(["serve", "experiment", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.arg("--emulator").arg(emulator).arg("--ledger").arg(ledger);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().map_err(fault)?;
    // One that serves instead is killed when this gives up.
    match time::timeout(ENDS_MAX, child.wait_with_output()).await {
        Ok(output) => {
            let output = output.map_err(fault)?;
            Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
        }
        Err(_) => Ok((None, "it still runs".to_owned())),
    }
}
