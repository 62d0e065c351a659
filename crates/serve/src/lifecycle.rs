//! Lifecycle: the named phases of a process, and the count of exchanges that a drain waits for.

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
    exchanges: Arc<Exchanges>,
}

#[derive(Debug, Default)]
struct Exchanges {
    open: AtomicUsize,
    none_left: Notify,
}

/// One exchange that the drain waits for; ends when dropped.
#[derive(Debug)]
pub struct OpenExchange(Arc<Exchanges>);

impl Drop for OpenExchange {
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
            exchanges: Arc::default(),
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
    pub fn open(&self) -> OpenExchange {
        self.exchanges.open.fetch_add(1, Ordering::AcqRel);
        OpenExchange(Arc::clone(&self.exchanges))
    }

    /// Exchanges that have not ended.
    pub fn open_count(&self) -> usize {
        self.exchanges.open.load(Ordering::Acquire)
    }

    /// Ends when no exchange is open.
    pub async fn no_exchange(&self) {
        loop {
            let none_left = self.exchanges.none_left.notified();
            tokio::pin!(none_left);
            // Registered before the count is read, so that the last exchange cannot end unseen in between.
            none_left.as_mut().enable();
            if self.open_count() == 0 {
                return;
            }
            none_left.await;
        }
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
