//! Evidence: the files that every rehearsal leaves behind: `report.json`, `report.html` and `run.json`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    report::Report,
    slo::{RehearsalError, RunInfo},
    suite::write_json,
};

/// Writes all three; the page last, so that it never stands for evidence that is not there.
pub(crate) fn write(out: &Path, report: &Report, run: &RunInfo) -> Result<(), RehearsalError> {
    fs::create_dir_all(out).map_err(at(out.to_owned()))?;
    let file = |name: &str| out.join(name);
    write_json(&file("report.json"), report).map_err(at(file("report.json")))?;
    write_json(&file("run.json"), run).map_err(at(file("run.json")))?;
    fs::write(file("report.html"), crate::html::render(report, run)).map_err(at(file("report.html")))
}

/// `report.json` as it is printed.
pub(crate) fn json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
    text.push('\n');
    text
}

fn at(path: PathBuf) -> impl FnOnce(io::Error) -> RehearsalError {
    move |error| RehearsalError::Io { path, error }
}
