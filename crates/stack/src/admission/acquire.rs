//! Acquire: the future that ends with a permit, or with the reason why there is none.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use base::Nanos;
use control::admission::{Arrival, Offer, Ticket, Verdict};
use tokio::time::{Sleep, sleep};

use super::{Denied, OwnedPermit, desk::Shared};

/// The future of [`Admission::acquire`](super::Admission::acquire). Dropping it leaves the line, and passes on a permit that
/// came meanwhile.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    /// Goes on to the permit; `None` once the future has ended.
    shared: Option<Arc<Shared>>,
    arrival: Arrival,
    /// When it asks, as far as the caller knows.
    now: Nanos,
    /// The place in line, from the first poll on, when there was no permit.
    ticket: Option<Ticket>,
    /// Goes off at the instant from which it gets no permit.
    timer: Option<Timer>,
}

/// A timer, and the instant that it was set for on the clock of the gate, which is not tokio's.
struct Timer {
    set_for: Nanos,
    sleep: Pin<Box<Sleep>>,
}

/// What a look at the gate brought.
enum Outlook {
    Settled(Result<OwnedPermit, Denied>),
    Waits { give_up_at: Nanos, now: Nanos },
}

impl Acquire {
    #[inline]
    pub(super) const fn new(shared: Arc<Shared>, arrival: Arrival, now: Nanos) -> Self {
        Self { shared: Some(shared), arrival, now, ticket: None, timer: None }
    }

    /// Asks for a permit when there are not plenty; without one, takes a place in line.
    fn offer(&mut self, cx: &mut Context<'_>) -> Poll<Result<OwnedPermit, Denied>> {
        let shared = self.shared.take().expect("a future is not polled after it has ended");
        let mut desk = shared.lock();
        let now = shared.present(&desk, self.now);
        match desk.gate.offer(self.arrival, now) {
            Offer::Admitted(permit) => {
                drop(desk);
                Poll::Ready(Ok(OwnedPermit::new(shared, permit)))
            }
            Offer::Rejected(rejection) => {
                shared.wake(desk);
                Poll::Ready(Err(rejection.into()))
            }
            Offer::Queued { ticket, give_up_at } => {
                let replaced = desk.keep(ticket.id(), cx.waker());
                // The place is ours to leave before foreign code runs.
                (self.shared, self.ticket) = (Some(Arc::clone(&shared)), Some(ticket));
                shared.wake(desk);
                drop(replaced);
                // Unless the caller's word was taken, the present is known.
                let now = if now == self.now { shared.clock.now() } else { now };
                if self.poll_timer(give_up_at, now, cx).is_pending() { Poll::Pending } else { self.wait(cx) }
            }
        }
    }

    /// Goes on where there was no permit at once.
    #[inline(never)]
    fn poll_further(&mut self, cx: &mut Context<'_>) -> Poll<Result<OwnedPermit, Denied>> {
        if self.ticket.is_none() { self.offer(cx) } else { self.wait(cx) }
    }

    /// Asks where the place in line stands, until there is an answer or nothing to do but wait.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<OwnedPermit, Denied>> {
        while let Some(ticket) = self.ticket.take() {
            let shared = self.shared.take().expect("who is in line has a gate");
            match self.check(shared, ticket, cx) {
                Outlook::Settled(outcome) => return Poll::Ready(outcome),
                Outlook::Waits { give_up_at, now } => {
                    if self.poll_timer(give_up_at, now, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
        unreachable!("who waits keeps the place in line")
    }

    fn check(&mut self, shared: Arc<Shared>, ticket: Ticket, cx: &Context<'_>) -> Outlook {
        let id = ticket.id();
        let now = shared.clock.now();
        let mut desk = shared.lock();
        let verdict = desk.gate.check(ticket, now);
        let replaced = match verdict {
            Verdict::Waiting { .. } => desk.keep(id, cx.waker()),
            Verdict::Granted { .. } | Verdict::Dropped { .. } => desk.remove(id),
        };
        let outlook = match verdict {
            Verdict::Waiting { ticket, give_up_at } => {
                drop(desk);
                (self.shared, self.ticket) = (Some(shared), Some(ticket));
                Outlook::Waits { give_up_at, now }
            }
            Verdict::Granted { permit, .. } => {
                drop(desk);
                Outlook::Settled(Ok(OwnedPermit::new(shared, permit)))
            }
            Verdict::Dropped { reason, age } => {
                // A permit that came too late for this one went on to another.
                shared.wake(desk);
                Outlook::Settled(Err(Denied::Dropped { reason, age }))
            }
        };
        drop(replaced);
        outlook
    }

    /// Sets the timer, anew when the instant has moved or the timer went off before it, and polls it.
    fn poll_timer(&mut self, give_up_at: Nanos, now: Nanos, cx: &mut Context<'_>) -> Poll<()> {
        if now >= give_up_at {
            return Poll::Ready(());
        }
        let left = (give_up_at - now).into();
        let timer = match &mut self.timer {
            Some(timer) => {
                if timer.set_for != give_up_at || timer.sleep.is_elapsed() {
                    timer.sleep.as_mut().set(sleep(left));
                    timer.set_for = give_up_at;
                }
                timer
            }
            // Without an end there is nothing to wait for but the permit.
            None if give_up_at == Nanos::MAX => return Poll::Pending,
            none => none.insert(Timer { set_for: give_up_at, sleep: Box::pin(sleep(left)) }),
        };
        timer.sleep.as_mut().poll(cx)
    }
}

impl Future for Acquire {
    type Output = Result<OwnedPermit, Denied>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.ticket.is_none()
            && let Some(shared) = &this.shared
            && let Some(permit) = shared.take(&this.arrival, this.now)
            && let Some(shared) = this.shared.take()
        {
            return Poll::Ready(Ok(OwnedPermit::new(shared, permit)));
        }
        this.poll_further(cx)
    }
}

impl Drop for Acquire {
    #[inline]
    fn drop(&mut self) {
        if let (Some(shared), Some(ticket)) = (&self.shared, self.ticket.take()) {
            leave(shared, ticket);
        }
    }
}

#[inline(never)]
fn leave(shared: &Shared, ticket: Ticket) {
    let mut desk = shared.lock();
    let waker = desk.remove(ticket.id());
    desk.gate.abandon(ticket, || shared.clock.now());
    shared.wake(desk);
    drop(waker);
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("arrival", &self.arrival)
            .field("in_line", &self.ticket.is_some())
            .finish_non_exhaustive()
    }
}
