//! Account: how an exchange ended. Opened with the head of the request, settled once, wherever the exchange is dropped.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use base::{Nanos, Phase, Reason, inject::Points};
use http::{HeaderMap, HeaderName, StatusCode};
use tonic::Status;

use crate::{
    count::Open,
    exchange::Port,
    lifecycle::Share,
    metrics::Outcome,
    render::{PHASE_HEADER, REASON_HEADER},
    telemetry::SpanHandle,
    work::Operation,
    writing::{Writers, Writing},
};

// The header map would parse a name that it is given as text, every time.
pub(crate) static GRPC_STATUS: HeaderName = Status::GRPC_STATUS;

/// A handler panicked.
pub(crate) struct Panicked;

/// Settles the accounts of an exchange when it is dropped, wherever that happens.
pub(crate) struct Account {
    port: Arc<Port>,
    operation: Arc<Operation>,
    arrived: Nanos,
    span: SpanHandle,
    outcome: Option<Outcome>,
    /// Whether the exchange holds its share of the operation's work.
    works: bool,
    /// The response has ended: it was handed over in full, or has failed by itself.
    ended: bool,
    /// Until it is answered.
    open: Option<Open>,
    /// Its share of a bound, which its response takes over.
    share: Option<Open>,
}

impl Account {
    /// Opens the account of an operation, whose first share of work it holds.
    pub(crate) fn open(
        port: Arc<Port>,
        operation: Arc<Operation>,
        arrived: Nanos,
        span: SpanHandle,
        share: Share,
    ) -> Self {
        let share = port.lifecycle.share(share);
        let open = port.lifecycle.open();
        Self {
            port,
            operation,
            arrived,
            span,
            outcome: None,
            works: true,
            ended: false,
            open: Some(open),
            share,
        }
    }

    /// What is known of the operation wherever something is done for it.
    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Whether the deadline has passed.
    pub(crate) fn expired(&self) -> bool {
        self.operation.deadline().expired(self.now())
    }

    /// What is to go wrong.
    pub(crate) fn points(&self) -> &Points {
        &self.port.points
    }

    fn now(&self) -> Nanos {
        self.port.clock.now()
    }

    /// No handler runs, so there is no work that could be late.
    pub(crate) fn refuse(&mut self, reason: Reason) {
        self.outcome = Some(Outcome::Refused(reason));
        self.works = false;
    }

    /// Polls what the handler made. A panic ends there: its caller gets an answer, and what else is on the connection
    /// goes on.
    ///
    /// # Errors
    /// When it panicked. It must not be polled again.
    pub(crate) fn guard<T>(&self, poll: impl FnOnce() -> T) -> Result<T, Panicked> {
        // What is in an unknown state now is dropped next, and never looked at.
        catch_unwind(AssertUnwindSafe(poll)).map_err(|_message| {
            tracing::error!(phase = self.operation.phase().as_str(), "a handler panicked");
            self.port.metrics.panicked();
            Panicked
        })
    }

    /// Reads the outcome off a response head, or off trailers. A success may still be overruled by its trailers.
    pub(crate) fn note(&mut self, head: &HeaderMap, http: Option<StatusCode>) {
        let grpc = head.get(&GRPC_STATUS).map(|status| status.as_bytes() == b"0");
        let failed = grpc == Some(false) || http.is_some_and(|status| status.as_u16() >= 400);
        if failed {
            let text = |name| head.get(name).and_then(|value| value.to_str().ok());
            let reason = text(REASON_HEADER).and_then(Reason::parse).unwrap_or(Reason::Internal);
            if matches!(reason, Reason::DeadlineExceeded | Reason::EffectAmbiguousDeadline) {
                // Whoever noticed it, the handler or the timer, named the phase.
                let phase = text(PHASE_HEADER)
                    .and_then(|name| Phase::ALL.into_iter().find(|phase| phase.as_str() == name));
                self.port.metrics.expired(phase.unwrap_or(Phase::Handler));
            }
            self.outcome = Some(Outcome::Refused(reason));
        } else if grpc == Some(true) {
            self.outcome = Some(Outcome::Ok);
        }
    }

    /// The response is handed over from now on. It is counted as a response before it stops being an unanswered exchange.
    pub(crate) fn answer(&mut self, writers: Option<Arc<Writers>>) -> Arc<Writing> {
        self.operation.answer();
        let counted = (self.port.lifecycle.respond(), self.share.take());
        let writing = Writing::begin(counted, self.port.metrics.responses(), writers);
        self.open = None;
        writing
    }

    /// The response was handed over in full.
    pub(crate) fn complete(&mut self) {
        self.outcome.get_or_insert(Outcome::Ok);
        self.ended = true;
    }

    /// The response has failed by itself.
    pub(crate) fn fail(&mut self) {
        self.outcome = Some(Outcome::Refused(Reason::Internal));
        self.ended = true;
    }

    /// The exchange is being dropped: before its response has ended that means that its caller is gone.
    pub(crate) fn leave(&mut self) {
        if !self.ended {
            self.operation.depart(self.now());
        }
    }

    /// The handler is gone, and with it the exchange's part in the work. What is left to send is a refusal.
    pub(crate) fn stop(&mut self) {
        if std::mem::take(&mut self.works) {
            self.operation.leave(|| self.now());
        }
    }

    /// How the exchange ended, as of its end or its caller's.
    fn settle(&self, now: Nanos) -> Outcome {
        let at = self.operation.departed().unwrap_or(now);
        match self.outcome {
            Some(refused @ Outcome::Refused(_)) => refused,
            // hyper takes one frame of the body ahead of the peer's window, so a body that has ended may not have left.
            Some(Outcome::Ok) | None if self.operation.deadline().expired(at) => {
                let answered = self.operation.is_answered();
                self.port.metrics.expired(if answered { Phase::Respond } else { self.operation.phase() });
                Outcome::Refused(Reason::DeadlineExceeded)
            }
            Some(Outcome::Ok) => Outcome::Ok,
            None => Outcome::Refused(Reason::Cancelled),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let now = self.now();
        let outcome = self.settle(now);
        if self.works {
            self.operation.leave(|| now);
        }
        if let Some(leader) = self.operation.follows() {
            self.span.link(leader);
        }
        for (key, value) in self.operation.notes() {
            self.span.set(key, value);
        }
        self.span.finish(outcome);
        self.port.metrics.finished(outcome, now.saturating_sub(self.arrived), Some(&self.span.context()));
    }
}
