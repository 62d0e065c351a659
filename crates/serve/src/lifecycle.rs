//! Lifecycle: the named phases of a process, and the counts of what a drain waits for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Where the process is (DESIGN 3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Built, not yet ready.
    Starting,
    /// Takes work.
    Serving,
    /// Readiness is withdrawn; nothing new is admitted.
    Quiescing,
    /// Listeners are closed; what was admitted finishes within the drain bound.
    Draining,
    /// Effects are settled and essential telemetry is flushed.
    Reconciling,
    /// What is left is cut.
    Terminating,
}

impl Stage {
    /// The name used in logs, answers and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Quiescing => "quiescing",
            Self::Draining => "draining",
            Self::Reconciling => "reconciling",
            Self::Terminating => "terminating",
        }
    }
}

/// Shared by every port of a process. Clones share one state.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    stage: watch::Sender<Stage>,
    quiesce: CancellationToken,
    kill: CancellationToken,
    exchanges: OpenCount,
}

/// How many of something are open. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct OpenCount(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    open: AtomicUsize,
    none_left: Notify,
}

/// One of them; it ends when this is dropped.
#[derive(Debug)]
pub struct Open(Arc<Counted>);

impl OpenCount {
    /// One more.
    pub fn enter(&self) -> Open {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        Open(Arc::clone(&self.0))
    }

    /// One more, unless `max` are open. Those beyond a bound that was lowered stay until they end.
    pub fn enter_below(&self, max: usize) -> Option<Open> {
        let open = &self.0.open;
        let entered =
            open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| (now < max).then_some(now + 1));
        entered.is_ok().then(|| Open(Arc::clone(&self.0)))
    }

    /// How many are open.
    pub fn now(&self) -> usize {
        self.0.open.load(Ordering::Acquire)
    }

    /// Ends when none is open.
    pub async fn none(&self) {
        loop {
            let none_left = self.0.none_left.notified();
            tokio::pin!(none_left);
            // Registered before the count is read, so that the last one cannot end unseen in between.
            none_left.as_mut().enable();
            if self.now() == 0 {
                return;
            }
            none_left.await;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// Starting, with nothing open.
    pub fn new() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Starting),
            quiesce: CancellationToken::new(),
            kill: CancellationToken::new(),
            exchanges: OpenCount::default(),
        }
    }

    /// The current stage.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Follows the stages.
    pub fn subscribe(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// Moves on. Stages never go back; an earlier one is ignored.
    pub fn advance(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let moves = *stage < to;
            if moves {
                tracing::debug!(from = stage.as_str(), to = to.as_str(), "lifecycle");
                *stage = to;
            }
            moves
        });
        if to >= Stage::Quiescing {
            self.quiesce.cancel();
        }
    }

    /// Cuts every connection, with whatever it still carries.
    pub fn cut(&self) {
        self.kill.cancel();
    }

    /// True once nothing new is admitted.
    pub fn is_quiescing(&self) -> bool {
        self.quiesce.is_cancelled()
    }

    /// Ends when quiescing begins.
    pub fn quiesce_token(&self) -> &CancellationToken {
        &self.quiesce
    }

    /// Ends when what is left is cut, see [`Lifecycle::cut`].
    pub fn kill_token(&self) -> &CancellationToken {
        &self.kill
    }

    /// Counts an exchange in.
    pub fn open(&self) -> Open {
        self.exchanges.enter()
    }

    /// Exchanges that have not ended.
    pub fn open_count(&self) -> usize {
        self.exchanges.now()
    }

    /// Ends when no exchange is open.
    pub async fn no_exchange(&self) {
        self.exchanges.none().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_drain_waits_for_the_last_exchange() {
        let lifecycle = Lifecycle::new();
        let (first, second) = (lifecycle.open(), lifecycle.open());
        let mut drained = tokio_test_task(lifecycle.clone());
        assert!(!drained.poll_once().await);
        drop(first);
        assert!(!drained.poll_once().await);
        drop(second);
        assert!(drained.poll_once().await);
    }

    #[test]
    fn a_bound_that_is_lowered_takes_nothing_back_and_lets_nobody_in() {
        let connections = OpenCount::default();
        let (first, second) = (connections.enter_below(2), connections.enter_below(2));
        assert!(first.is_some() && second.is_some());
        assert!(connections.enter_below(2).is_none());
        assert!(connections.enter_below(1).is_none());
        drop(first);
        assert!(connections.enter_below(1).is_none(), "one is as many as there may be");
        drop(second);
        assert!(connections.enter_below(1).is_some());
        assert_eq!(connections.now(), 0);
    }

    #[test]
    fn stages_never_go_back() {
        let lifecycle = Lifecycle::new();
        lifecycle.advance(Stage::Draining);
        lifecycle.advance(Stage::Serving);
        assert_eq!(lifecycle.stage(), Stage::Draining);
        assert!(lifecycle.is_quiescing());
        assert!(!lifecycle.kill_token().is_cancelled());
    }

    /// Polls a drain by hand.
    struct Polled(std::pin::Pin<Box<dyn Future<Output = ()>>>);

    fn tokio_test_task(lifecycle: Lifecycle) -> Polled {
        Polled(Box::pin(async move { lifecycle.no_exchange().await }))
    }

    impl Polled {
        async fn poll_once(&mut self) -> bool {
            std::future::poll_fn(|cx| std::task::Poll::Ready(self.0.as_mut().poll(cx).is_ready())).await
        }
    }
}
