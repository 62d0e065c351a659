//! Supervisor: owns every task of the process, tells how each ended, and can be waited for.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
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
    /// Were told to stop because the drain ran out of time.
    pub aborted: u64,
}

#[derive(Debug, Default)]
struct Counters {
    started: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    panicked: AtomicU64,
    aborted: AtomicU64,
}

/// The owner of tasks. Clones share one set.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    tracker: TaskTracker,
    counters: Arc<Counters>,
    abort: CancellationToken,
}

impl Supervisor {
    /// A supervisor without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task under supervision. After [`Supervisor::abort_all`] it is dropped unrun and counted as aborted.
    pub fn start<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.supervise(async move {
            future.await;
            End::Completed
        });
    }

    fn supervise<F>(&self, future: F)
    where
        F: Future<Output = End> + Send + 'static,
    {
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        if self.abort.is_cancelled() {
            self.counters.aborted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let task = Supervised {
            future: AssertUnwindSafe(future).catch_unwind(),
            ending: Ending { counters: Arc::clone(&self.counters), ended: false },
        };
        #[expect(clippy::disallowed_methods, reason = "this is the supervisor that the ban points to")]
        let _detached = self.tracker.spawn(task);
    }

    /// Starts a task that ends at once, wherever it waits, when the drain runs out of time.
    pub fn start_abortable<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let abort = self.abort.clone();
        self.supervise(async move {
            tokio::select! {
                biased; // The task's own end counts, even in the moment of the abort.
                () = future => End::Completed,
                () = abort.cancelled() => End::Aborted,
            }
        });
    }

    /// Tells every abortable task to end now, and refuses new ones.
    pub fn abort_all(&self) {
        self.abort.cancel();
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> usize {
        self.tracker.len()
    }

    /// Waits until no task is left. New tasks may still start; each prolongs the wait.
    pub async fn idle(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// How tasks ended so far.
    pub fn counts(&self) -> TaskCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TaskCounts {
            started: read(&self.counters.started),
            completed: read(&self.counters.completed),
            cancelled: read(&self.counters.cancelled),
            panicked: read(&self.counters.panicked),
            aborted: read(&self.counters.aborted),
        }
    }
}

impl Spawn for Supervisor {
    fn spawn(&self, name: &'static str, task: Task) {
        tracing::trace!(task = name, "task started");
        self.start_abortable(task);
    }
}

/// How a task that was not dropped ended.
enum End {
    Completed,
    Aborted,
}

/// Counts a task as cancelled unless it was told otherwise.
struct Ending {
    counters: Arc<Counters>,
    ended: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.ended {
            self.counters.cancelled.fetch_add(1, Ordering::Relaxed);
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
        let counters = &this.ending.counters;
        match result {
            Ok(End::Completed) => counters.completed.fetch_add(1, Ordering::Relaxed),
            Ok(End::Aborted) => counters.aborted.fetch_add(1, Ordering::Relaxed),
            Err(_) => {
                tracing::error!("a supervised task panicked");
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
    async fn endings_are_told_apart() {
        let supervisor = Supervisor::new();
        supervisor.start(async {});
        supervisor.start(async { panic!("expected by the test") });
        supervisor.start_abortable(std::future::pending());
        tokio::task::yield_now().await;
        supervisor.abort_all();
        supervisor.idle().await;
        supervisor.start(async {});
        let counts = supervisor.counts();
        let expected = TaskCounts { started: 4, completed: 1, cancelled: 0, panicked: 1, aborted: 2 };
        assert_eq!(counts, expected);
        assert_eq!(supervisor.live(), 0);
    }

    #[test]
    fn a_task_that_dies_with_its_runtime_is_cancelled() {
        let supervisor = Supervisor::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let inner = supervisor.clone();
        runtime.block_on(async move { inner.start(std::future::pending()) });
        drop(runtime);
        assert_eq!(supervisor.counts().cancelled, 1);
    }
}
