//! Endpoints: where a suite that `mercury up` started can be reached.

use std::path::Path;

/// The address of one kind (`http`, `grpc`, `admin`, `control`) of a process, if the suite of `state_dir` has it.
pub(crate) fn find(state_dir: &Path, process: &str, kind: &str) -> Option<String> {
    let text = std::fs::read_to_string(state_dir.join("endpoints.json")).ok()?;
    let endpoints: serde_json::Value = serde_json::from_str(&text).ok()?;
    endpoints.get(process)?.get(kind)?.as_str().map(str::to_owned)
}

/// The admin ports of the suite of `state_dir`, by process.
pub(crate) fn admins(state_dir: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(state_dir.join("endpoints.json")).unwrap_or_default();
    let endpoints: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).unwrap_or_default();
    let admin = |(name, at): (String, serde_json::Value)| Some((name, at.get("admin")?.as_str()?.to_owned()));
    endpoints.into_iter().filter_map(admin).collect()
}
