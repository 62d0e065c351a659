//! Work: what a request sets going, and how long it goes on after it has become useless.
//!
//! The exchange holds a share of its operation's work until its response has ended. Another one rides in the request's
//! [`Arrival`](crate::Arrival), and a handler may take one along into a task that outlives the request. Where the last
//! share is given up the work has ended, and there, once and nowhere else, it is told how late that was: after the
//! moment at which the caller was gone or the deadline had passed, whichever came first.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
};

use base::{Deadline, Nanos, Phase, Refusal, trace::TraceContext};
use tokio_util::sync::CancellationToken;

use crate::{exchange::Port, metrics::TraceLabel};

/// Most notes on an operation; further ones are left out.
const NOTES_MAX: usize = 16;

/// Stands for a moment that has not come.
const NEVER: u64 = Nanos::MAX.get();

/// What is known of an operation wherever something is done for it.
pub(crate) struct Operation {
    /// Where its end is told; nowhere for a request that came by no port.
    port: Option<Arc<Port>>,
    deadline: Deadline,
    exemplar: Option<TraceLabel>,
    phase: AtomicU8,
    answered: AtomicBool,
    /// Shares that have not been given up. A share is made from one that is still held, so zero is final.
    shares: AtomicU32,
    /// When the caller was gone.
    departed: AtomicU64,
    /// From when on the caller had no use for the answer, by the word of the handler.
    objective: AtomicU64,
    /// The span whose work this one shares.
    follows: OnceLock<TraceContext>,
    /// An effect was asked for, and is not known to be absent.
    effect_open: AtomicBool,
    /// Attributes of the span, by the word of the handler.
    notes: Mutex<Vec<(&'static str, String)>>,
}

impl Default for Operation {
    fn default() -> Self {
        Self {
            port: None,
            deadline: Deadline::at(Nanos::MAX),
            exemplar: None,
            phase: AtomicU8::default(),
            answered: AtomicBool::default(),
            shares: AtomicU32::default(),
            departed: AtomicU64::new(NEVER),
            objective: AtomicU64::new(NEVER),
            follows: OnceLock::new(),
            effect_open: AtomicBool::default(),
            notes: Mutex::default(),
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("deadline", &self.deadline)
            .field("phase", &self.phase())
            .field("shares", &self.shares)
            .field("departed", &self.departed())
            .finish_non_exhaustive()
    }
}

impl Operation {
    /// An operation of `port`. Whoever calls this holds the first share, and gives it up by [`Operation::leave`].
    pub(crate) fn begin(port: Arc<Port>, deadline: Deadline, exemplar: Option<TraceLabel>) -> Arc<Self> {
        let shares = AtomicU32::new(1);
        Arc::new(Self { port: Some(port), deadline, exemplar, shares, ..Self::default() })
    }

    pub(crate) const fn deadline(&self) -> Deadline {
        self.deadline
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Ingress)
    }

    /// The span whose work the operation shares, if it shares any.
    pub(crate) fn follows(&self) -> Option<TraceContext> {
        self.follows.get().copied()
    }

    /// The refusal, with what is open of the effect that was asked for.
    pub(crate) fn settle(&self, refusal: Refusal) -> Refusal {
        if self.effect_open.load(Ordering::Relaxed) { refusal.with_open_effect() } else { refusal }
    }

    /// What was noted, which is nothing from then on.
    pub(crate) fn notes(&self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// The caller is gone, from now on. To be said before anything that works for it is dropped.
    pub(crate) fn depart(&self, now: Nanos) {
        self.departed.store(now.get(), Ordering::Relaxed);
    }

    /// When the caller was gone, if it is.
    pub(crate) fn departed(&self) -> Option<Nanos> {
        let at = self.departed.load(Ordering::Relaxed);
        (at != NEVER).then(|| Nanos::new(at))
    }

    /// Gives up a share; `now` is asked for if it was the last one.
    pub(crate) fn leave(&self, now: impl FnOnce() -> Nanos) {
        // Whoever comes last sees what the others noted before they left.
        if self.shares.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end(now());
        }
    }

    /// The work has ended. An objective makes it late, and is no cancellation.
    fn end(&self, now: Nanos) {
        let Some(port) = &self.port else { return };
        let cancelled = self.departed().unwrap_or(Nanos::MAX).min(self.deadline.instant());
        if now >= cancelled {
            port.metrics.stopped(now - cancelled, self.exemplar);
        }
        let objective = Nanos::new(self.objective.load(Ordering::Relaxed));
        port.metrics.late(now - cancelled.min(objective));
    }
}

/// Where a running request is; read when its deadline passes.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Operation>);

impl Progress {
    pub(crate) fn of(operation: &Arc<Operation>) -> Self {
        Self(Arc::clone(operation))
    }

    /// Notes that the request is now in `phase`.
    pub fn enter(&self, phase: Phase) {
        self.0.phase.store(phase.index() as u8, Ordering::Relaxed);
    }

    /// Notes that the request shares the work of another, to whose span its own will point. The first one counts.
    pub fn follow(&self, leader: TraceContext) {
        let _ = self.0.follows.set(leader);
    }

    /// Notes that an effect is asked for from now on: whoever refuses the request has to say that it may have happened.
    pub fn effect_opens(&self) {
        self.0.effect_open.store(true, Ordering::Relaxed);
    }

    /// Notes that the effect is known to be absent, or is told by the answer itself.
    pub fn effect_is_settled(&self) {
        self.0.effect_open.store(false, Ordering::Relaxed);
    }

    /// The refusal, with what is open of the effect. A deadline that the shell finds passed is settled by itself.
    pub fn settle(&self, refusal: Refusal) -> Refusal {
        self.0.settle(refusal)
    }

    /// Notes an attribute of the request's span: an effect's id, say, which no metric may carry and no secret may be. The last
    /// value of a key counts, and it is asked for only if somebody will see it.
    pub fn note(&self, key: &'static str, value: impl FnOnce() -> String) {
        if self.0.exemplar.is_none() {
            return;
        }
        let mut notes = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(note) = notes.iter_mut().find(|note| note.0 == key) {
            note.1 = value();
        } else if notes.len() < NOTES_MAX {
            notes.push((key, value()));
        }
    }

    /// The phase noted last.
    pub fn phase(&self) -> Phase {
        self.0.phase()
    }

    /// Whether the exchange has handed over its response head, and so no longer watches its deadline itself.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_answered()
    }
}

/// A share of the work of an operation, which goes on until every share is dropped.
///
/// A task that outlives its request holds one for as long as it works for it, and so is counted with it: as late, when it
/// ran more than 5 ms past the moment at which its caller was gone or its deadline had passed. The default is a share of
/// an operation that is counted nowhere.
#[must_use = "the work ends where the last share is dropped"]
pub struct Work(Arc<Operation>);

impl Work {
    pub(crate) fn of(operation: &Arc<Operation>) -> Self {
        operation.shares.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(operation))
    }

    /// Tells that the caller has no use for the answer from `objective` on, while the deadline of the exchange comes
    /// later. What the work runs past it is late, even if it is answered. The earliest objective counts.
    pub fn objective(&self, objective: Deadline) {
        self.0.objective.fetch_min(objective.instant().get(), Ordering::Relaxed);
    }

    /// The token of the process that serves the operation; not the process itself, which nothing of a request may hold.
    pub(crate) fn quiesce_token(&self) -> Option<CancellationToken> {
        self.0.port.as_ref().map(|port| port.lifecycle.quiesce_token().clone())
    }

    /// Whether the caller has left: it reset the stream, closed the connection, or was cut. Cheap to ask. A caller that was
    /// answered in full has not left.
    pub fn caller_gone(&self) -> bool {
        self.0.departed().is_some()
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::of(&Arc::default())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.leave(|| self.0.port.as_ref().map_or(Nanos::ZERO, |port| port.clock.now()));
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_counted_nowhere_and_its_caller_never_leaves() {
        let work = Work::default();
        let other = work.clone();
        other.objective(Deadline::at(Nanos::ZERO));
        drop(work);
        assert!(!other.caller_gone());
        assert_eq!(other.0.shares.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_phase_noted_last_is_the_one() {
        let progress = Progress::default();
        assert_eq!(progress.phase(), Phase::Ingress);
        for phase in Phase::ALL {
            progress.clone().enter(phase);
            assert_eq!(progress.phase(), phase);
        }
    }

    #[test]
    fn notes_are_kept_for_who_will_see_them_and_the_last_value_counts() {
        let unseen = Progress::default();
        unseen.note("effect", || panic!("nobody will see it"));
        assert!(unseen.0.notes().is_empty());
        let context = TraceContext { trace_id: 7, span_id: 1, sampled: true };
        let seen = Progress(Arc::new(Operation {
            exemplar: TraceLabel::of(Some(&context)),
            ..Operation::default()
        }));
        seen.note("effect", || "submitted".to_owned());
        seen.clone().note("effect", || "committed".to_owned());
        assert_eq!(seen.0.notes(), [("effect", "committed".to_owned())]);
        const KEYS: [&str; NOTES_MAX + 1] =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"];
        for key in KEYS {
            seen.note(key, String::new);
        }
        seen.note("a", || "again".to_owned());
        let notes = seen.0.notes();
        assert_eq!((notes.len(), notes[0].1.as_str()), (NOTES_MAX, "again"));
    }

    #[test]
    fn the_first_leader_is_the_one_that_is_pointed_at() {
        let span = |span_id| TraceContext { trace_id: 7, span_id, sampled: true };
        let progress = Progress::default();
        assert_eq!(progress.0.follows(), None);
        progress.follow(span(1));
        progress.clone().follow(span(2));
        assert_eq!(progress.0.follows(), Some(span(1)));
    }
}
