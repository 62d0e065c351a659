//! Watched: a small file that may be replaced while the process runs, such as a set of keys. Its last good content is in force; a
//! bad one is told and changes nothing.
//!
//! The file is read again and again rather than watched by the system: what counts is its content, and a rename, a symlink
//! that was swapped and a mounted secret all change that, not all of them the file that a watch would be on.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use base::Nanos;
use prometheus_client::metrics::{counter::Counter, family::Family};
use tokio::{
    sync::watch,
    time::{self, MissedTickBehavior},
};

use crate::host::{Host, StartError};

/// How often the content is looked at.
pub(crate) const LOOK: Nanos = Nanos::from_millis(250);
/// Longest look: a file system that hangs says nothing.
const LOOK_MAX: Nanos = Nanos::from_secs(1);
/// Largest file.
const BYTES_MAX: u64 = 64 << 10;
/// Name of the task.
const TASK: &str = "watch file";

/// What a look at a file found.
pub(crate) enum Found {
    /// What is known already.
    Nothing,
    /// A content that nobody has judged.
    News(String),
    /// Why it cannot be read. Not news, it is told only to who asked.
    Unreadable { error: String, news: bool },
}

/// What is known of a file's content.
pub(crate) struct Content {
    path: PathBuf,
    /// The one in force.
    known: String,
    /// The last look's, until a second one has found it: one may meet a file that is half written.
    seen: Option<String>,
    /// The one that was refused last, and is not judged again until the file has held another.
    refused: Option<String>,
    unreadable: Option<String>,
}

impl Content {
    /// A file whose content in force is `known`.
    pub(crate) const fn new(path: PathBuf, known: String) -> Self {
        Self { path, known, seen: None, refused: None, unreadable: None }
    }

    /// Looks once. `asked`: somebody said that the file is complete and wants to know what is wrong with it, so that one look
    /// is enough and nothing is passed over.
    pub(crate) async fn look(&mut self, asked: bool) -> Found {
        let path = self.path.clone();
        let text = tokio::task::spawn_blocking(move || read(&path));
        let text = match time::timeout(LOOK_MAX.into(), text).await {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => Err("the look at it broke off".to_owned()),
            Err(_) => Err(format!("it could not be read within {LOOK_MAX}")),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                self.seen = None;
                let told = self.unreadable.replace(error.clone());
                let news = told.as_ref() != Some(&error);
                return if asked || news { Found::Unreadable { error, news } } else { Found::Nothing };
            }
        };
        self.unreadable = None;
        if text == self.known {
            (self.seen, self.refused) = (None, None);
            return Found::Nothing;
        }
        if asked {
            return Found::News(text);
        }
        if self.refused.as_ref() == Some(&text) {
            return Found::Nothing;
        }
        if self.seen.as_ref() != Some(&text) {
            self.seen = Some(text);
            return Found::Nothing;
        }
        Found::News(text)
    }

    /// The content is in force.
    pub(crate) fn taken(&mut self, text: String) {
        self.known = text;
        (self.seen, self.refused) = (None, None);
    }

    /// Whether a content was refused last.
    pub(crate) fn is_refused(&self, text: &str) -> bool {
        self.refused.as_deref() == Some(text)
    }

    /// The content is bad. False when that was known of it.
    pub(crate) fn refused(&mut self, text: String) -> bool {
        let news = self.refused.as_ref() != Some(&text);
        self.refused = Some(text);
        self.seen = None;
        news
    }
}

/// Reads what `path` holds and keeps it up to date until the process shuts down. `label` names it in messages and metrics.
///
/// # Errors
/// `Usage` naming the file when it cannot be read or `parse` refuses it; later that only leaves the last good content.
pub fn watch_file<T: Send + Sync + 'static>(
    host: &Host,
    label: &'static str,
    path: &Path,
    parse: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
) -> Result<watch::Receiver<Arc<T>>, StartError> {
    let wrong =
        |error: String| StartError::Usage(format!("{}: {}: {error}", host.service.as_str(), path.display()));
    let known = read(path).map_err(wrong)?;
    let value = parse(&known).map_err(wrong)?;
    let (publish, receiver) = watch::channel(Arc::new(value));
    let reloads = Family::<[(&'static str, &'static str); 2], Counter>::default();
    host.registry.with(|registry| {
        let help = "Contents of a watched file that were taken or refused since the start";
        registry.register(format!("{label}_reloads"), help, reloads.clone());
    });
    let outcome = |outcome| reloads.get_or_create_owned(&[("file", label), ("outcome", outcome)]);
    let (taken, refused) = (outcome("taken"), outcome("refused"));
    let (readiness, path) = (host.readiness.clone(), path.to_owned());
    let task = async move {
        let mut content = Content::new(path.clone(), known);
        let mut ticks = time::interval(LOOK.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = readiness.quiesced() => return,
                _ = ticks.tick() => {}
            }
            let fault = match content.look(false).await {
                Found::Nothing => continue,
                Found::News(text) => match parse(&text) {
                    Ok(value) => {
                        taken.inc();
                        tracing::info!(file = %path.display(), "taken over");
                        publish.send_replace(Arc::new(value));
                        content.taken(text);
                        continue;
                    }
                    Err(error) => {
                        content.refused(text);
                        error
                    }
                },
                Found::Unreadable { error, .. } => error,
            };
            refused.inc();
            tracing::warn!(file = %path.display(), error = %fault, "refused; the last good content stays in force");
        }
    };
    host.world.tasks.spawn(TASK, Box::pin(task));
    Ok(receiver)
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > BYTES_MAX { Err(format!("larger than {BYTES_MAX} bytes")) } else { Ok(text) }
}
