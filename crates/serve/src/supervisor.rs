//! Supervisor: owns every task of the process, tells by name how each ended, and can be waited for.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use base::tasks::{Spawn, Task};
use futures_util::FutureExt as _;
use pin_project_lite::pin_project;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How tasks ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Started.
    pub started: u64,
    /// Ran to their end.
    pub completed: u64,
    /// Were dropped before their end, by their owner or by the runtime's end.
    pub cancelled: u64,
    /// Panicked; the panic stayed in the task.
    pub panicked: u64,
    /// Were ended because the drain ran out of time: told to, dropped after that, or refused.
    pub aborted: u64,
}

impl TaskCounts {
    /// Have not ended.
    pub const fn live(&self) -> u64 {
        let ended = self.completed + self.cancelled + self.panicked + self.aborted;
        self.started.saturating_sub(ended)
    }

    fn add(self, other: Self) -> Self {
        Self {
            started: self.started + other.started,
            completed: self.completed + other.completed,
            cancelled: self.cancelled + other.cancelled,
            panicked: self.panicked + other.panicked,
            aborted: self.aborted + other.aborted,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    started: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    panicked: AtomicU64,
    aborted: AtomicU64,
}

impl Counters {
    fn read(&self) -> TaskCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // What ended first: a task that ends meanwhile is then live rather than ended before it was started.
        let (completed, cancelled) = (read(&self.completed), read(&self.cancelled));
        let (panicked, aborted) = (read(&self.panicked), read(&self.aborted));
        TaskCounts { started: read(&self.started), completed, cancelled, panicked, aborted }
    }
}

/// The owner of tasks. Clones share one set.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    tracker: TaskTracker,
    /// By name. Names are constants of the program, so there are few.
    kinds: Mutex<BTreeMap<&'static str, Arc<Counters>>>,
    abort: CancellationToken,
}

/// Tasks of one name, for whoever starts many of them.
#[derive(Clone, Debug)]
pub struct Kind {
    supervisor: Supervisor,
    name: &'static str,
    counters: Arc<Counters>,
}

impl Supervisor {
    /// A supervisor without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tasks called `name`, a bounded label.
    pub fn kind(&self, name: &'static str) -> Kind {
        let mut kinds = self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = Arc::clone(kinds.entry(name).or_default());
        Kind { supervisor: self.clone(), name, counters }
    }

    /// Starts a task under supervision. After [`Supervisor::abort_all`] it is dropped unrun and counted as aborted.
    pub fn start<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.kind(name).start(future);
    }

    /// Starts a task that ends at once, wherever it waits, when the drain runs out of time.
    pub fn start_abortable<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let abort = self.0.abort.clone();
        self.kind(name).supervise(async move {
            tokio::select! {
                biased; // The task's own end counts, even in the moment of the abort.
                () = future => End::Completed,
                () = abort.cancelled() => End::Aborted,
            }
        });
    }

    /// Tells every abortable task to end now, and refuses new ones. Whatever is dropped from now on was aborted.
    pub fn abort_all(&self) {
        self.0.abort.cancel();
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> usize {
        self.0.tracker.len()
    }

    /// Waits until no task is left. New tasks may still start; each prolongs the wait.
    pub async fn idle(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    /// How tasks ended so far.
    pub fn counts(&self) -> TaskCounts {
        self.by_name().into_iter().fold(TaskCounts::default(), |sum, (_, counts)| sum.add(counts))
    }

    /// The same by name.
    pub fn by_name(&self) -> Vec<(&'static str, TaskCounts)> {
        let kinds = self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(name, counters)| (*name, counters.read())).collect()
    }
}

impl Kind {
    /// As [`Supervisor::start`], without looking the name up.
    pub fn start<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.supervise(future.map(|()| End::Completed));
    }

    fn supervise<F>(&self, future: F)
    where
        F: Future<Output = End> + Send + 'static,
    {
        let shared = &self.supervisor.0;
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        if shared.abort.is_cancelled() {
            self.counters.aborted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let task = Supervised {
            future: AssertUnwindSafe(future).catch_unwind(),
            ending: Ending { kind: self.clone(), ended: false },
        };
        #[expect(clippy::disallowed_methods, reason = "this is the supervisor that the ban points to")]
        let _detached = shared.tracker.spawn(task);
    }
}

impl Spawn for Supervisor {
    fn spawn(&self, name: &'static str, task: Task) {
        self.start_abortable(name, task);
    }
}

/// How a task that was not dropped ended.
enum End {
    Completed,
    Aborted,
}

/// Counts a task that is dropped before its end.
struct Ending {
    kind: Kind,
    ended: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.ended {
            let Counters { cancelled, aborted, .. } = &*self.kind.counters;
            let forced = self.kind.supervisor.0.abort.is_cancelled();
            (if forced { aborted } else { cancelled }).fetch_add(1, Ordering::Relaxed);
        }
    }
}

pin_project! {
    struct Supervised<F> {
        #[pin]
        future: F,
        ending: Ending,
    }
}

impl<F> Future for Supervised<F>
where
    F: Future<Output = Result<End, Box<dyn std::any::Any + Send>>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let result = std::task::ready!(this.future.poll(cx));
        this.ending.ended = true;
        let Kind { name, counters, .. } = &this.ending.kind;
        match result {
            Ok(End::Completed) => counters.completed.fetch_add(1, Ordering::Relaxed),
            Ok(End::Aborted) => counters.aborted.fetch_add(1, Ordering::Relaxed),
            Err(_) => {
                tracing::error!(task = name, "a supervised task panicked");
                counters.panicked.fetch_add(1, Ordering::Relaxed)
            }
        };
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endings_are_told_apart_by_name() {
        let supervisor = Supervisor::new();
        supervisor.start("ends", async {});
        supervisor.start("panics", async { panic!("expected by the test") });
        supervisor.start_abortable("waits", std::future::pending());
        tokio::task::yield_now().await;
        supervisor.abort_all();
        supervisor.idle().await;
        supervisor.start("late", async {});
        let counts = supervisor.counts();
        let expected = TaskCounts { started: 4, completed: 1, cancelled: 0, panicked: 1, aborted: 2 };
        assert_eq!(counts, expected);
        assert_eq!((supervisor.live(), counts.live()), (0, 0));
        let one = TaskCounts { started: 1, ..TaskCounts::default() };
        let by_name = [
            ("ends", TaskCounts { completed: 1, ..one }),
            ("late", TaskCounts { aborted: 1, ..one }),
            ("panics", TaskCounts { panicked: 1, ..one }),
            ("waits", TaskCounts { aborted: 1, ..one }),
        ];
        assert_eq!(supervisor.by_name(), by_name);
    }

    #[test]
    fn a_task_that_dies_with_its_runtime_is_cancelled_and_after_the_abort_it_was_forced() {
        for forced in [false, true] {
            let supervisor = Supervisor::new();
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
            let inner = supervisor.clone();
            runtime.block_on(async move {
                inner.start("deaf", std::future::pending());
                assert_eq!(inner.counts().live(), 1);
                if forced {
                    inner.abort_all();
                }
            });
            drop(runtime);
            let counts = supervisor.counts();
            assert_eq!((counts.cancelled, counts.aborted), (u64::from(!forced), u64::from(forced)));
        }
    }
}
