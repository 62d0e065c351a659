//! Watched: a small file that may be replaced while the process runs, such as a set of keys. Its last good content is in force; a
//! bad one is told and changes nothing.
//!
//! The file is read again and again rather than watched by the system: what counts is its content, and a rename, a symlink
//! that was swapped and a mounted secret all change that, not all of them the file that a watch would be on.

use std::{path::Path, sync::Arc};

use base::Nanos;
use prometheus_client::metrics::{counter::Counter, family::Family};
use tokio::{
    sync::watch,
    time::{self, MissedTickBehavior},
};

use crate::host::{Host, StartError};

/// How often the content is looked at.
const LOOK: Nanos = Nanos::from_millis(250);
/// Largest file.
const BYTES_MAX: u64 = 64 << 10;
/// Name of the task.
const TASK: &str = "watch file";

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
    let mut known = read(path).map_err(wrong)?;
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
        let mut ticks = time::interval(LOOK.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        // A content counts once two looks have found it: one may meet a file that is half written.
        let mut seen = None;
        loop {
            tokio::select! {
                biased;
                () = readiness.quiesced() => return,
                _ = ticks.tick() => {}
            }
            let at = path.clone();
            let text = tokio::task::spawn_blocking(move || read(&at)).await;
            let text = text.unwrap_or_else(|_| Err("the look at it broke off".to_owned()));
            let fault = match text {
                Ok(text) if text == known => None,
                Ok(text) if seen.as_ref() != Some(&text) => {
                    seen = Some(text);
                    continue;
                }
                Ok(text) => match parse(&text) {
                    Ok(value) => {
                        taken.inc();
                        tracing::info!(file = %path.display(), "taken over");
                        publish.send_replace(Arc::new(value));
                        known = text;
                        None
                    }
                    Err(error) => Some(error),
                },
                Err(error) => Some(error),
            };
            if let Some(error) = fault.as_ref().filter(|_| fault != told) {
                refused.inc();
                tracing::warn!(file = %path.display(), %error, "refused; the last good content stays in force");
            }
            told = fault;
        }
    };
    host.world.tasks.spawn(TASK, Box::pin(task));
    Ok(receiver)
}

fn read(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > BYTES_MAX { Err(format!("larger than {BYTES_MAX} bytes")) } else { Ok(text) }
}
