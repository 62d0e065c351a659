//! Request: what one page carries through its steps, and the account of how it ended for its caller.

use std::sync::Arc;

use base::{CallContext, Clock, Deadline, Nanos, Phase, Reason, Refusal};
use model::policy::{Mechanism, Policy};
use serve::{Progress, Work};
use stack::CallBudget;

use crate::{
    applied::{Applied, Term},
    era::Era,
    metrics::{Ending, HomeMetrics},
    tally::PageEnd,
};

/// One page's context, decisions and bounds. Whoever holds it works for the page's caller.
pub(crate) struct PageRequest {
    pub(crate) context: Arc<CallContext>,
    /// The policy that the page was admitted under.
    pub(crate) policy: Arc<Policy>,
    pub(crate) applied: Applied,
    /// The phase of the migration that the page is served under.
    pub(crate) era: Arc<Era>,
    pub(crate) term: Term,
    pub(crate) progress: Progress,
    /// Ends with the last who works for the caller; what comes after the caller's leaving is late work.
    pub(crate) _work: Work,
}

impl PageRequest {
    /// What bounds a call of the page that is sent at `now`: what remains of the page's deadline less `reserve`, or, where
    /// no deadline is enforced, a timeout of the branch's own.
    pub(crate) fn budget(&self, now: Nanos, reserve: Nanos, independent_timeout: Nanos) -> CallBudget {
        match self.term.enforced {
            Some(deadline) => CallBudget { deadline, reserve },
            None => CallBudget { deadline: Deadline::after(now, independent_timeout), reserve: Nanos::ZERO },
        }
    }

    /// Notes where the page is.
    pub(crate) fn enter(&self, phase: Phase) {
        self.progress.enter(phase);
    }
}

/// Counts a page once when it ends, however it does. Dropped without an end, its caller left or its deadline passed.
pub(crate) struct Account<'a> {
    metrics: &'a HomeMetrics,
    clock: &'a dyn Clock,
    context: &'a CallContext,
    applied: Applied,
    era: Arc<Era>,
    ending: Option<Ending>,
}

impl<'a> Account<'a> {
    pub(crate) fn open(
        metrics: &'a HomeMetrics,
        clock: &'a dyn Clock,
        context: &'a CallContext,
        applied: Applied,
        era: Arc<Era>,
    ) -> Self {
        metrics.offered(context.identity.class);
        Self { metrics, clock, context, applied, era, ending: None }
    }

    /// The page has ended for its caller.
    pub(crate) fn close<T>(mut self, result: &Result<T, Refusal>) {
        self.ending = Some(match result {
            Ok(_) => Ending::Answered,
            Err(refusal) => Ending::Refused(refusal.reason()),
        });
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let ending = self.ending.unwrap_or_else(|| {
            if self.context.deadline.expired(self.clock.now()) {
                return Ending::Refused(Reason::DeadlineExceeded);
            }
            let cancellation = self.applied.of_mechanism(Mechanism::Cancellation);
            if cancellation.computes() {
                self.metrics.decided(Mechanism::Cancellation, true, cancellation.acts());
            }
            Ending::Left
        });
        self.era.tally.page(match ending {
            Ending::Answered => PageEnd::Answered,
            Ending::Refused(_) => PageEnd::Refused,
            Ending::Left => PageEnd::Left,
        });
        self.metrics.finished(self.context.identity.class, ending);
    }
}
