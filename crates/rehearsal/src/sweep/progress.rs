//! Progress: a sweep beside the terminal: how far it is, and a signal that ends it.

use std::{
    num::NonZero,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use base::{Clock, Nanos, clock::MonotonicClock};
use simulation::Progress;

use super::{
    Variant,
    jobs::{Extent, Swept, run},
};
use crate::{screen::Screen, slo::RehearsalError, up::Signals};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(250);

/// Runs a sweep on threads of its own, shows how far it is, and ends it at a signal: with the runs that are whole by then.
///
/// # Errors
/// [`RehearsalError::Interrupted`] after a signal that came before the first run was whole.
pub(crate) async fn watched(
    variants: Vec<Variant>,
    extent: Extent,
    seed: u64,
    threads: Option<NonZero<usize>>,
    shown: bool,
) -> Result<Swept, RehearsalError> {
    let mut signals =
        Signals::new().map_err(|error| RehearsalError::Io { path: PathBuf::from("signals"), error })?;
    let screen = Screen::new(shown);
    let total = extent.requests(&variants).max(1.0);
    let progress = Arc::new(Progress::default());
    let began = MonotonicClock.now();
    let told = Arc::clone(&progress);
    let mut swept = tokio::task::spawn_blocking(move || run(&variants, extent, seed, threads, told.as_ref()));
    let mut ticks = tokio::time::interval(TICK);
    let swept = loop {
        tokio::select! {
            // Whoever interrupts waits for no tick.
            biased;
            () = signals.next() => progress.stop.store(true, Ordering::Relaxed),
            swept = &mut swept => break swept,
            _ = ticks.tick() => {
                let part = progress.requests.load(Ordering::Relaxed) as f64 / total;
                if part > 0.0 {
                    let took = (MonotonicClock.now() - began).as_millis() as f64;
                    screen.expect(Nanos::from_millis((took / part.min(1.0)) as u64));
                    screen.at(Nanos::from_millis(took as u64));
                }
            }
        }
    };
    screen.clear();
    match swept {
        Ok(swept) => swept.ok_or(RehearsalError::Interrupted),
        // A panic of the model goes on as it is.
        Err(ended) => std::panic::resume_unwind(ended.into_panic()),
    }
}
