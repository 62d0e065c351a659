//! Record: what the callers of a run know of every operation, as lines of JSON: who asked for what, how each attempt
//! ended, and which arms they were shown. Whoever reconciles the exposure ledger needs to hear it from somebody else than
//! the suite.
//!
//! The sending thread hands lines over through a bounded channel and never waits; a thread of its own writes them. What
//! there is no room for is counted and told in the last line, so that a record with a gap never passes for a whole one. A
//! record without its last line is that of a run that was cut off.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use base::{Identity, Origin};
use serde::{Deserialize, Serialize};
use wire::home::v2::{ExperimentArm, GetHomeResponse};

use crate::{LoadError, outcome::Failed};

/// Schema of a record.
pub const SCHEMA: &str = "mercury.record/v1";
/// Most lines that the writer may be behind.
const BEHIND_MAX: usize = 8_192;
/// Most bytes of a line: thirty-two arms of names at their longest, and the attempts of an operation.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    Run(Run),
    /// One logical operation, once it is over for its caller.
    Operation(Operation),
    /// The last one.
    End(End),
}

/// The run that was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who was asked, each a host and port; attempts name them by their place.
    pub targets: Vec<String>,
    /// Beginning of every operation's id.
    pub id_prefix: String,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// One logical operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Its id, the same for every attempt.
    pub id: String,
    /// Tenant that asked.
    pub tenant: String,
    /// Subject that asked.
    pub subject: String,
    /// Workload class.
    pub class: String,
    /// Region.
    pub region: String,
    /// Origin.
    pub origin: String,
    /// How it ended for its caller.
    pub ended: Ending,
    /// Every attempt that was sent, in order.
    pub attempts: Vec<Attempt>,
    /// Arms of the page that the caller got; empty without a page.
    pub arms: Vec<Arm>,
}

/// How an operation ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With a page.
    Answered,
    /// The last attempt was refused or failed.
    Failed,
    /// The caller left first.
    Departed,
    /// The run ended first.
    InFlight,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Place of the target in [`Run::targets`].
    pub target: u8,
    /// `ok`, `unanswered`, or what kind of failure it was.
    pub outcome: String,
    /// Whether the answer said that the effect is ambiguous.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
}

/// An arm that the caller was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The experiment.
    pub experiment_id: String,
    /// Version of its definition.
    pub experiment_version: u32,
    /// The arm.
    pub variant: String,
    /// Id of the exposure.
    pub event_id: String,
    /// What became of its row, as the page says: `committed` or `replayed`.
    pub effect: String,
}

/// The end of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Operations that were sent.
    pub operations: u64,
    /// Of them, those without a line.
    pub missed: u64,
}

/// Hands lines to the writer. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    lines: SyncSender<Line>,
    counts: Arc<Counts>,
    origin: Origin,
}

#[derive(Debug, Default)]
struct Counts {
    operations: AtomicU64,
    missed: AtomicU64,
}

/// The thread that writes.
pub(crate) struct Writer {
    path: PathBuf,
    recorder: Recorder,
    thread: thread::JoinHandle<io::Result<BufWriter<File>>>,
}

impl Writer {
    /// Begins a record at `path`, in place of what is there.
    pub(crate) fn create(path: &Path, run: Run, origin: Origin) -> Result<Self, LoadError> {
        let fault = |error| LoadError::Record { path: path.to_owned(), error };
        let mut file = BufWriter::new(File::create(path).map_err(fault)?);
        write(&mut file, &Line::Run(run)).and_then(|()| file.flush()).map_err(fault)?;
        let (lines, feed) = sync_channel(BEHIND_MAX);
        let spawned = thread::Builder::new().name("load-record".to_owned()).spawn(move || drain(feed, file));
        let recorder = Recorder { lines, counts: Arc::default(), origin };
        Ok(Self { path: path.to_owned(), recorder, thread: spawned.map_err(LoadError::Thread)? })
    }

    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Writes the last line. All other recorders must be gone by then. Says how many operations have no line.
    pub(crate) fn finish(self) -> Result<End, LoadError> {
        let Self { path, recorder: Recorder { lines, counts, .. }, thread } = self;
        drop(lines);
        let fault = |error| LoadError::Record { path: path.clone(), error };
        let written = thread.join().map_err(|_| LoadError::Panicked("load-record"))?;
        let mut file = written.map_err(fault)?;
        let end = End {
            operations: counts.operations.load(Ordering::Acquire),
            missed: counts.missed.load(Ordering::Acquire),
        };
        let whole = write(&mut file, &Line::End(end)).and_then(|()| file.flush());
        whole.and_then(|()| file.get_ref().sync_all()).map_err(fault)?;
        Ok(end)
    }
}

/// Writes lines until every recorder is gone. On a fault the rest is read and not written, since nobody may wait.
fn drain(feed: Receiver<Line>, mut file: BufWriter<File>) -> io::Result<BufWriter<File>> {
    let mut result = Ok(());
    for line in feed {
        if result.is_ok() {
            result = write(&mut file, &line);
        }
    }
    result.map(|()| file)
}

/// Writes a whole record of operations that somebody else sent and knows to the end.
///
/// # Errors
/// When the file cannot be written.
pub fn write_whole(path: &Path, run: Run, operations: &[Operation]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file, &Line::Run(run))?;
    for operation in operations {
        write(&mut file, &Line::Operation(operation.clone()))?;
    }
    write(&mut file, &Line::End(End { operations: operations.len() as u64, missed: 0 }))?;
    file.flush()
}

fn write(file: &mut BufWriter<File>, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *file, line).map_err(io::Error::other)?;
    file.write_all(b"\n")
}

impl Recorder {
    /// Begins an operation. It gets its line when the note is dropped, however that comes about.
    pub(crate) fn begin(&self, identity: &Identity, id: &str) -> Note {
        self.counts.operations.fetch_add(1, Ordering::AcqRel);
        Note {
            recorder: self.clone(),
            operation: Some(Operation {
                id: id.to_owned(),
                tenant: identity.tenant.as_str().to_owned(),
                subject: identity.subject.as_str().to_owned(),
                class: identity.class.as_str().to_owned(),
                region: identity.region.as_str().to_owned(),
                origin: self.origin.as_str().to_owned(),
                ended: Ending::InFlight,
                attempts: Vec::new(),
                arms: Vec::new(),
            }),
        }
    }

    fn take(&self, operation: Operation) {
        match self.lines.try_send(Line::Operation(operation)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.missed.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// An operation under way.
pub(crate) struct Note {
    recorder: Recorder,
    /// Taken when it is dropped.
    operation: Option<Operation>,
}

impl Note {
    /// An attempt goes out. Until its outcome is told, it is unanswered.
    pub(crate) fn sent(&mut self, target: u8) {
        if let Some(operation) = &mut self.operation {
            let outcome = "unanswered".to_owned();
            operation.attempts.push(Attempt { target, outcome, ambiguous: false });
        }
    }

    /// A page came. What the caller was told counts, even if it has left by then.
    pub(crate) fn answered(&mut self, page: &GetHomeResponse) {
        let Some(operation) = &mut self.operation else { return };
        if let Some(attempt) = operation.attempts.last_mut() {
            "ok".clone_into(&mut attempt.outcome);
        }
        operation.arms = arms(page);
    }

    /// The attempt failed.
    pub(crate) fn failed(&mut self, failed: Failed) {
        if let Some(attempt) = self.operation.as_mut().and_then(|operation| operation.attempts.last_mut()) {
            attempt.outcome = failed.failure.to_string();
            attempt.ambiguous = failed.ambiguous;
        }
    }

    /// The operation is over for its caller.
    pub(crate) fn ended(&mut self, ended: Ending) {
        if let Some(operation) = &mut self.operation {
            operation.ended = ended;
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.recorder.take(operation);
        }
    }
}

/// The arms of a page.
pub fn arms(page: &GetHomeResponse) -> Vec<Arm> {
    let arm = |arm: &ExperimentArm| Arm {
        experiment_id: arm.experiment_id.clone(),
        experiment_version: arm.experiment_version,
        variant: arm.variant.clone(),
        event_id: arm.event_id.clone(),
        effect: arm.effect.clone(),
    };
    page.experiments.iter().map(arm).collect()
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
