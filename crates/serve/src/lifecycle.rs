//! Lifecycle: the named phases of a process, when it was in each, and what a drain waits for.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use base::{Clock, Nanos};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::count::{Open, OpenCount};

/// Where the process is (DESIGN 3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Built, not yet ready.
    Starting,
    /// Takes work.
    Serving,
    /// Readiness is withdrawn; nothing new is admitted.
    Quiescing,
    /// Listeners close, and whatever else would bring new work.
    Closing,
    /// What was admitted finishes within the drain bound.
    Draining,
    /// Effects are settled and essential telemetry is flushed.
    Reconciling,
    /// What is left is cut.
    Terminating,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Starting,
        Self::Serving,
        Self::Quiescing,
        Self::Closing,
        Self::Draining,
        Self::Reconciling,
        Self::Terminating,
    ];

    /// The name used in logs, answers and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Quiescing => "quiescing",
            Self::Closing => "closing_producers",
            Self::Draining => "draining",
            Self::Reconciling => "reconciling",
            Self::Terminating => "terminating",
        }
    }

    /// Position in [`Stage::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Which bound a request counts against, from its head until its answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// That of requests.
    Requests,
    /// That of calls that may stay as long as their caller likes. They would use the other one up, and starve everybody else.
    LongLived,
    /// None.
    None,
}

impl Share {
    /// Whether it is of a service whose calls may stay.
    pub(crate) const fn is_long_lived(self) -> bool {
        !matches!(self, Self::Requests)
    }
}

/// Stands for a moment that has not come.
const NEVER: u64 = Nanos::MAX.get();

/// Shared by every port of a process. Clones share one state.
#[derive(Clone)]
pub struct Lifecycle {
    stage: watch::Sender<Stage>,
    clock: Arc<dyn Clock>,
    /// When each stage was entered.
    entered: Arc<[AtomicU64; Stage::ALL.len()]>,
    quiesce: CancellationToken,
    kill: CancellationToken,
    listeners: OpenCount,
    exchanges: OpenCount,
    responses: OpenCount,
    requests: OpenCount,
    long_lived: OpenCount,
    /// Responses cut since quiescing began, before the end of the drain.
    cut_responses: Arc<AtomicUsize>,
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lifecycle")
            .field("stage", &self.stage())
            .field("exchanges", &self.exchanges.now())
            .field("responses", &self.responses.now())
            .finish_non_exhaustive()
    }
}

impl Lifecycle {
    /// Starting, with nothing open.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let entered = std::array::from_fn(|_| AtomicU64::new(NEVER));
        entered[Stage::Starting.index()].store(clock.now().get(), Ordering::Relaxed);
        Self {
            stage: watch::Sender::new(Stage::Starting),
            clock,
            entered: Arc::new(entered),
            quiesce: CancellationToken::new(),
            kill: CancellationToken::new(),
            listeners: OpenCount::default(),
            exchanges: OpenCount::default(),
            responses: OpenCount::default(),
            requests: OpenCount::default(),
            long_lived: OpenCount::default(),
            cut_responses: Arc::default(),
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
        let now = self.clock.now();
        self.stage.send_if_modified(|stage| {
            let moves = *stage < to;
            if moves {
                self.entered[to.index()].store(now.get(), Ordering::Relaxed);
                let after = now.saturating_sub(self.entered(*stage).unwrap_or(now));
                tracing::info!(
                    from = stage.as_str(),
                    to = to.as_str(),
                    %after,
                    exchanges = self.exchanges.now(),
                    responses = self.responses.now(),
                    "lifecycle"
                );
                *stage = to;
            }
            moves
        });
        if to >= Stage::Quiescing {
            self.quiesce.cancel();
        }
    }

    fn entered(&self, stage: Stage) -> Option<Nanos> {
        let at = self.entered[stage.index()].load(Ordering::Relaxed);
        (at != NEVER).then(|| Nanos::new(at))
    }

    /// Time spent in each stage so far, by [`Stage::index`]. A stage that was passed over took none.
    pub fn spent(&self) -> [Nanos; Stage::ALL.len()] {
        let mut spent = [Nanos::ZERO; Stage::ALL.len()];
        let mut until = self.clock.now();
        for stage in Stage::ALL.into_iter().rev() {
            if let Some(at) = self.entered(stage) {
                spent[stage.index()] = until.saturating_sub(at);
                until = until.min(at);
            }
        }
        spent
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

    /// Counts a listener in, until it is closed.
    pub fn listen(&self) -> Open {
        self.listeners.enter()
    }

    /// Counts an exchange in, until it is answered.
    pub fn open(&self) -> Open {
        self.exchanges.enter()
    }

    /// Counts a response in, until its reader has taken all of it.
    pub fn respond(&self) -> Open {
        self.responses.enter()
    }

    /// Counts a request in where it has its share, until its answer is read.
    pub(crate) fn share(&self, share: Share) -> Option<Open> {
        match share {
            Share::Requests => Some(self.requests.enter()),
            Share::LongLived => Some(self.long_lived.enter()),
            Share::None => None,
        }
    }

    /// Requests without an answer and answers on their way, together, but for those of long-lived calls and health checks.
    pub fn under_way_count(&self) -> usize {
        self.requests.now()
    }

    /// Long-lived calls, answered or not: health watches, reflection, feeds.
    pub fn long_lived_count(&self) -> usize {
        self.long_lived.now()
    }

    /// Exchanges that are not answered.
    pub fn open_count(&self) -> usize {
        self.exchanges.now()
    }

    /// Responses that were begun, and that their readers have not taken.
    pub fn responding_count(&self) -> usize {
        self.responses.now()
    }

    /// So many responses were cut, because their readers did not take them. A drain that met this is not clean, so they count
    /// from quiescing on.
    pub(crate) fn responses_cut(&self, responses: usize) {
        if self.is_quiescing() {
            self.cut_responses.fetch_add(responses, Ordering::Relaxed);
        }
    }

    /// Responses that were cut since quiescing began, without those that are still open.
    pub fn cut_responses_count(&self) -> usize {
        self.cut_responses.load(Ordering::Relaxed)
    }

    /// Ends when no listener is open.
    pub async fn no_listener(&self) {
        self.listeners.none().await;
    }

    /// Ends when every exchange is answered and every answer has left.
    pub async fn no_exchange(&self) {
        loop {
            self.exchanges.none().await;
            // What is answered meanwhile becomes a response before it stops being an exchange.
            self.responses.none().await;
            if self.exchanges.now() == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::clock::MonotonicClock;
    use futures_util::FutureExt as _;

    use super::*;

    /// A clock that stands where it was put.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Nanos {
            Nanos::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    #[tokio::test]
    async fn a_drain_waits_for_the_last_answer_to_leave() {
        let lifecycle = Lifecycle::new(Arc::new(MonotonicClock));
        let (first, second) = (lifecycle.open(), lifecycle.open());
        let drained = lifecycle.no_exchange();
        tokio::pin!(drained);
        assert!(drained.as_mut().now_or_never().is_none());
        let response = lifecycle.respond();
        drop((first, second));
        assert!(drained.as_mut().now_or_never().is_none(), "it is answered, and not read");
        drop(response);
        assert!(drained.now_or_never().is_some());
    }

    #[test]
    fn what_was_cut_counts_from_quiescing_on() {
        let lifecycle = Lifecycle::new(Arc::new(MonotonicClock));
        lifecycle.responses_cut(2);
        assert_eq!(lifecycle.cut_responses_count(), 0, "no drain has lost them");
        lifecycle.advance(Stage::Quiescing);
        lifecycle.clone().responses_cut(3);
        assert_eq!(lifecycle.cut_responses_count(), 3);
    }

    #[test]
    fn stages_never_go_back() {
        let lifecycle = Lifecycle::new(Arc::new(MonotonicClock));
        lifecycle.advance(Stage::Draining);
        lifecycle.advance(Stage::Serving);
        assert_eq!(lifecycle.stage(), Stage::Draining);
        assert!(lifecycle.is_quiescing());
        assert!(!lifecycle.kill_token().is_cancelled());
    }

    #[test]
    fn each_stage_is_timed_and_one_that_was_passed_over_took_none() {
        let clock = Arc::new(Hand::default());
        let lifecycle = Lifecycle::new(Arc::clone(&clock) as Arc<dyn Clock>);
        for (at_ms, stage) in [(3, Stage::Serving), (10, Stage::Quiescing), (11, Stage::Draining)] {
            clock.0.store(at_ms, Ordering::Relaxed);
            lifecycle.advance(stage);
        }
        clock.0.store(31, Ordering::Relaxed);
        assert_eq!(lifecycle.spent().map(|spent| spent.as_millis()), [3, 7, 1, 0, 20, 0, 0]);
    }
}
