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

use super::{
    At, THREADS_MAX, Variant,
    figures::{goodput, omission},
};

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
    /// Each run's own figures.
    pub(crate) each: Vec<OfRun>,
}

/// The figures of one run by itself, for the dispersion over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OfRun {
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) goodput_ratio: Option<f64>,
    pub(crate) omission_ratio: Option<f64>,
}

/// What was swept: for each variant its cells, in the order in which they were asked for, and how many runs are in them.
#[derive(Clone, Debug)]
pub(crate) struct Swept {
    pub(crate) cells: Vec<Vec<Cell>>,
    /// Fewer than were asked for after a signal. A run counts when every state of every variant has it.
    pub(crate) runs: u32,
    /// Operations that were simulated, warm-ups included.
    pub(crate) requests: u64,
}

/// Runs every state of every variant, all of them once before any of them again. `None` when it was asked to stop before the first
/// run was whole.
pub(crate) fn run(
    variants: &[Variant],
    extent: Extent,
    seed: u64,
    threads: Option<NonZero<usize>>,
    progress: &Progress,
) -> Option<Swept> {
    let states: Vec<(usize, At)> = variants
        .iter()
        .enumerate()
        .flat_map(|(at, variant)| variant.states.iter().map(move |state| (at, *state)))
        .collect();
    if states.is_empty() {
        // There is nothing to run, and that is done.
        return Some(Swept { cells: vec![Vec::new(); variants.len()], runs: extent.runs, requests: 0 });
    }
    let runs = extent.runs.max(1) as usize;
    let jobs = states.len() * runs;
    let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Window>>> = Mutex::new(vec![None; jobs]);
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs).min(THREADS_MAX) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= jobs {
                        return;
                    }
                    let (variant, state) = states[at % states.len()];
                    let system = &variants[variant].system;
                    let course = state.course(&system.scenario, extent);
                    // A run has the same seed in every variant, so that nothing but the variant differs.
                    let seed = mix::fold64(seed, (at / states.len()) as u64);
                    let Some(window) = simulate(system, &course, seed, progress) else { return };
                    // Whichever ends first, each has its own place.
                    done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(window);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    gather(variants, &states, done)
}

/// Merges the runs that are whole, in their own order.
fn gather(variants: &[Variant], states: &[(usize, At)], done: Vec<Option<Window>>) -> Option<Swept> {
    let mut done = done.into_iter();
    let mut cells: Vec<Cell> = Vec::new();
    let (mut runs, mut requests) = (0, 0);
    while let Some(run) = done.by_ref().take(states.len()).collect::<Option<Vec<_>>>() {
        if run.is_empty() {
            break;
        }
        runs += 1;
        for (at, mut window) in run.into_iter().enumerate() {
            requests += window.requests;
            let (timeline, each) = (std::mem::take(&mut window.timeline), OfRun::of(&window));
            match cells.get_mut(at) {
                Some(cell) => {
                    cell.window.merge(&window);
                    cell.timelines.push(timeline);
                    cell.each.push(each);
                }
                None => cells.push(Cell {
                    state: states[at].1,
                    window,
                    timelines: vec![timeline],
                    each: vec![each],
                }),
            }
        }
    }
    if runs == 0 {
        return None;
    }
    let mut cells = cells.into_iter();
    let of = |variant: &Variant| cells.by_ref().take(variant.states.len()).collect();
    Some(Swept { cells: variants.iter().map(of).collect(), runs, requests })
}

impl OfRun {
    fn of(window: &Window) -> Self {
        let all = window.all();
        Self {
            p50_ms: all.latency.quantile_ms(0.5),
            p99_ms: all.latency.quantile_ms(0.99),
            goodput_ratio: goodput(&all),
            omission_ratio: omission(&all),
        }
    }
}
