//! Jobs: the states of all variants, handed to threads one by one and gathered in their own order.

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use base::mix;
use simulation::{Progress, Second, Window, run as simulate};

use super::{At, THREADS_MAX, Variant};

/// How long a state is, and how often it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Time before the window, in seconds.
    pub(crate) warm_up_s: u32,
    /// The window, in seconds.
    pub(crate) window_s: u32,
    /// Runs with seeds of their own, whose observations are merged.
    pub(crate) runs: u32,
}

impl Extent {
    /// Operations that all states of all variants come to, nearly.
    pub(crate) fn requests(self, variants: &[Variant]) -> f64 {
        let seconds = f64::from(self.runs) * (f64::from(self.warm_up_s) + f64::from(self.window_s));
        let per_s = variants.iter().map(|variant| {
            let system = &variant.system;
            variant.states.len() as f64 * system.offered.requests_per_s * f64::from(system.domains)
        });
        per_s.sum::<f64>() * seconds
    }
}

/// One state of one variant: all of its runs.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) state: At,
    /// Merged.
    pub(crate) window: Window,
    /// Each run's own.
    pub(crate) timelines: Vec<Vec<Second>>,
}

/// Runs every state of every variant: for each variant its cells, in the order in which they were asked for. `None` when it was
/// asked to stop before the end.
pub(crate) fn run(
    variants: &[Variant],
    extent: Extent,
    seed: u64,
    threads: Option<NonZero<usize>>,
    progress: &Progress,
) -> Option<Vec<Vec<Cell>>> {
    let jobs: Vec<(usize, At)> = variants
        .iter()
        .enumerate()
        .flat_map(|(at, variant)| variant.states.iter().map(move |state| (at, *state)))
        .collect();
    let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Cell>>> = Mutex::new(vec![None; jobs.len()]);
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()).min(THREADS_MAX) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((variant, state)) = jobs.get(at) else { return };
                    let Some(cell) = cell(&variants[*variant], *state, extent, seed, progress) else {
                        return;
                    };
                    // Whichever ends first, each has its own place.
                    done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(cell);
                }
            });
        }
    });
    let mut cells = done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter();
    let of = |variant: &Variant| cells.by_ref().take(variant.states.len()).collect::<Option<Vec<_>>>();
    variants.iter().map(of).collect()
}

/// All runs of one state. Run `k` has the same seed in every variant, so that nothing but the variant differs.
fn cell(variant: &Variant, state: At, extent: Extent, seed: u64, progress: &Progress) -> Option<Cell> {
    let course = state.course(&variant.system.scenario, extent);
    let mut cell = Cell { state, window: Window::default(), timelines: Vec::new() };
    for run in 0..extent.runs.max(1) {
        let mut window = simulate(&variant.system, &course, mix::fold64(seed, run.into()), progress)?;
        cell.timelines.push(std::mem::take(&mut window.timeline));
        if run == 0 {
            cell.window = window;
        } else {
            cell.window.merge(&window);
        }
    }
    Some(cell)
}
