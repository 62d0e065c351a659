//! Endpoints: where a suite that `mercury up` started can be reached.

use std::path::Path;

/// The address of one kind (`http`, `grpc`, `admin`, `control`) of a process, if the suite of `state_dir` has it.
pub(crate) fn find(state_dir: &Path, process: &str, kind: &str) -> Option<String> {
    let text = std::fs::read_to_string(state_dir.join("endpoints.json")).ok()?;
    let endpoints: serde_json::Value = serde_json::from_str(&text).ok()?;
    endpoints.get(process)?.get(kind)?.as_str().map(str::to_owned)
}
