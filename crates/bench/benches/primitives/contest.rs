//! Contest: contestants that do the same in turn, on one thread or on two at once, and how they compare.

use std::{
    fmt,
    hint::spin_loop,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use base::{Clock, Nanos, clock::MonotonicClock};

/// Laps that are not counted: caches, allocator and branch predictors settle.
const WARM_UP: usize = 10;

/// Least share of a lap in which all threads are at it. On a busy machine they often are not, and a lap alone says
/// nothing about meeting.
const TOGETHER_MIN: f64 = 0.9;

/// Fewer laps than this are no figure.
const LAPS_MIN: usize = 21;

/// What a contestant is asked to do.
#[derive(Clone, Copy)]
pub(crate) struct Lap {
    /// Which of the threads this is, from 0.
    pub(crate) thread: usize,
    /// How many operations.
    pub(crate) count: u32,
}

/// Does laps.
type Run = Box<dyn Fn(Lap) + Send + Sync>;

/// One of those that are compared.
pub(crate) struct Side {
    name: &'static str,
    /// At most so many times as long as this one. `None` for ours, and where there is only something to know.
    goal: Option<f64>,
    run: Run,
}

impl Side {
    /// This suite's.
    pub(crate) fn ours(run: impl Fn(Lap) + Send + Sync + 'static) -> Self {
        Self { name: "mercury", goal: None, run: Box::new(run) }
    }

    /// A peer, and the multiple of its time that ours should not exceed, if it matters.
    pub(crate) fn peer(
        name: &'static str,
        goal: Option<f64>,
        run: impl Fn(Lap) + Send + Sync + 'static,
    ) -> Self {
        Self { name, goal, run: Box::new(run) }
    }
}

/// A comparison. The first of its sides is ours.
pub(crate) struct Contest {
    /// What is done.
    pub(crate) what: &'static str,
    /// Operations of one lap: a fraction of a millisecond, so that most laps see no other process.
    pub(crate) count: u32,
    /// Who does it.
    pub(crate) sides: Vec<Side>,
}

/// How one side did.
pub(crate) struct Line {
    what: String,
    side: &'static str,
    /// Of one operation on one thread; none when too few laps count.
    nanos: Option<f64>,
    /// Ours as a multiple of this side's; none for ours.
    ratio: Option<f64>,
    goal: Option<f64>,
    laps: usize,
}

/// From when to when one thread was at a lap.
type Span = (Nanos, Nanos);

impl Contest {
    /// What is measured, and on how many threads.
    pub(crate) fn name(&self, threads: usize) -> String {
        match threads {
            1 => self.what.to_owned(),
            _ => format!("{}, {threads} threads", self.what),
        }
    }

    /// Lets all sides take turns.
    pub(crate) fn run(&self, threads: usize, rounds: usize) -> Vec<Line> {
        let start = Start { threads, arrived: AtomicUsize::new(0) };
        let per_thread: Vec<Vec<Vec<Span>>> = thread::scope(|scope| {
            let start = &start;
            let helpers: Vec<_> =
                (1..threads).map(|thread| scope.spawn(move || self.laps(thread, rounds, start))).collect();
            let own = self.laps(0, rounds, start);
            let others = helpers.into_iter().map(|helper| helper.join().expect("no side panics"));
            std::iter::once(own).chain(others).collect()
        });
        let costs = |side: usize| -> Vec<f64> {
            let spans = |round: usize| per_thread.iter().map(move |laps| laps[side][round]);
            (0..rounds).filter_map(|round| self.cost(spans(round))).collect()
        };
        let costs: Vec<_> = (0..self.sides.len()).map(costs).collect();
        let ours = median(&costs[0]);
        let lines = self.sides.iter().zip(&costs).enumerate().map(|(number, (side, costs))| Line {
            what: self.name(threads),
            side: side.name,
            nanos: median(costs),
            ratio: ours.zip(median(costs)).filter(|_| number > 0).map(|(ours, theirs)| ours / theirs),
            goal: side.goal,
            laps: costs.len(),
        });
        lines.collect()
    }

    /// One thread's part, by side and round.
    fn laps(&self, thread: usize, rounds: usize, start: &Start) -> Vec<Vec<Span>> {
        let mut laps = vec![Vec::with_capacity(rounds); self.sides.len()];
        for round in 0..WARM_UP + rounds {
            for turn in 0..self.sides.len() {
                // Whoever goes second finds warmer caches, so they take turns at that too.
                let side = (round + turn) % self.sides.len();
                start.together();
                let began = MonotonicClock.now();
                (self.sides[side].run)(Lap { thread, count: self.count });
                let ended = MonotonicClock.now();
                if round >= WARM_UP {
                    laps[side].push((began, ended));
                }
            }
        }
        laps
    }

    /// Nanoseconds of one operation on one thread, if all threads were at it for the whole lap.
    fn cost(&self, spans: impl Iterator<Item = Span> + Clone) -> Option<f64> {
        let latest_start = spans.clone().map(|(began, _)| began).max()?;
        let first_end = spans.clone().map(|(_, ended)| ended).min()?;
        let longest = spans.map(|(began, ended)| ended - began).max()?.get() as f64;
        let together = (first_end - latest_start).get() as f64;
        (together >= TOGETHER_MIN * longest).then_some(longest / f64::from(self.count))
    }
}

/// Lets threads begin at the same moment: they spin, for a thread that must first be woken begins late.
struct Start {
    threads: usize,
    arrived: AtomicUsize,
}

impl Start {
    fn together(&self) {
        let before = self.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (before / self.threads + 1) * self.threads;
        while self.arrived.load(Ordering::Acquire) < all {
            spin_loop();
        }
    }
}

impl Line {
    /// Names of the columns.
    pub(crate) const HEAD: &'static str =
        "what                                   who                 ns/op  ours/theirs  goal  laps";

    /// Whether there is no figure.
    pub(crate) const fn unknown(&self) -> bool {
        self.nanos.is_none()
    }

    /// Whether ours took too long beside this side.
    pub(crate) fn misses(&self) -> bool {
        self.ratio.zip(self.goal).is_some_and(|(ratio, goal)| ratio > goal)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |figure: Option<f64>, decimals: usize| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.decimals$}"))
        };
        let Self { what, side, nanos, ratio, goal, laps } = self;
        write!(f, "{what:<38} {side:<16}{:>9}", number(*nanos, 1))?;
        write!(f, "{:>13}{:>6}{laps:>6}", number(*ratio, 2), number(*goal, 1))?;
        f.write_str(if self.misses() { "  missed" } else { "" })
    }
}

/// The median of what there is, if that is enough.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    (values.len() >= LAPS_MIN).then(|| values[values.len() / 2])
}
