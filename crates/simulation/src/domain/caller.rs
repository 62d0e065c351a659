//! Caller: how a page ends for whoever asked for it: answered, refused, tried again, or left alone; and the shell, which holds
//! so many requests and no more, each until its deadline.

use std::collections::VecDeque;

use base::{Nanos, mix};
use model::policy::Mechanism;

use super::{Domain, PageId, Stage, leaving};
use crate::tally::Outcome;

/// What the shell holds. Where a page is not bound by its own deadline, the shell's is what ends it for its caller; those run
/// out in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Shell {
    held: u32,
    deadlines: VecDeque<(Nanos, PageId, u64)>,
}

impl Shell {
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Takes a request in; `watched` if nothing else watches its deadline.
    pub(crate) fn enter(&mut self, deadline: Nanos, page: PageId, serial: u64, watched: bool) {
        self.held += 1;
        if watched {
            self.deadlines.push_back((deadline, page, serial));
        }
    }
}

impl Domain<'_> {
    /// Those whose deadline at the shell has passed are answered so.
    pub(super) fn shell_deadlines(&mut self) {
        while let Some(&(deadline, page, serial)) = self.shell.deadlines.front() {
            if deadline > self.now {
                return;
            }
            self.shell.deadlines.pop_front();
            let entry = &self.pages[page];
            if entry.serial == serial && entry.in_shell {
                self.conclude(page, Outcome::Deadline, deadline);
                self.nobody_waits(page, deadline);
            }
        }
    }

    /// The page is whole and on its way.
    pub(super) fn answered(&mut self, page: PageId) {
        self.work_ended(page);
        if self.pages[page].left.is_none() {
            let omitted = self.pages[page].omitted.iter().any(Option::is_some);
            let outcome = if omitted { Outcome::OkDegraded } else { Outcome::Ok };
            self.conclude(page, outcome, self.now);
        }
        self.free_page(page);
    }

    /// The page is refused, whatever it holds.
    pub(super) fn refused(&mut self, page: PageId, outcome: Outcome) {
        self.work_ended(page);
        if self.pages[page].left.is_some() {
            return self.free_page(page);
        }
        let retries = self.system.workload.retries;
        let entry = &self.pages[page];
        let key = |purpose| {
            let operation = mix::fold64(mix::fold64(self.seed, purpose), entry.operation);
            mix::fold64(operation, u64::from(entry.attempt))
        };
        let again = matches!(outcome, Outcome::Rejected | Outcome::Unavailable)
            && entry.attempt < retries.attempts_max
            && retries.share.takes(key(1));
        if !again {
            self.conclude(page, outcome, self.now);
            return self.free_page(page);
        }
        let mean = retries.delay.get();
        let backoff = Nanos::new(mean / 2 + mix::below(key(2), mean));
        self.leave_shell(page);
        self.pages[page].attempt += 1;
        self.pages[page].stage = Stage::Backoff;
        self.set_step(page, self.now + backoff);
    }

    /// The caller's patience has run out.
    pub(super) fn caller_leaves(&mut self, page: PageId) {
        // The event has fired: there is nothing to take back when the page ends.
        self.pages[page].departs = Nanos::MAX;
        let now = self.now;
        if self.pages[page].left.is_none() {
            self.conclude_at(page, Outcome::Departed, now);
        }
        self.nobody_waits(page, now);
    }

    /// From `since` on nobody waits for the page. Its work ends with that, or goes on.
    fn nobody_waits(&mut self, page: PageId, since: Nanos) {
        self.leave_shell(page);
        let waits = matches!(self.pages[page].stage, Stage::Backoff);
        let entry = &mut self.pages[page];
        if entry.left.is_none() {
            entry.left = Some(since);
        }
        if waits || entry.acts(Mechanism::Cancellation) {
            self.clear_step(page);
            match self.pages[page].take_stage() {
                Stage::Queued => {
                    if let Some(place) = self.pages[page].place.take() {
                        self.endpoint.abandon(*place, self.now);
                    }
                }
                Stage::Reading(read) => self.cancel_read(read),
                Stage::Flight(waiter) => self.leave_flight(waiter),
                // Their calls were booked until this very moment.
                Stage::Claims { .. } | Stage::FanOut { .. } => {}
                Stage::Backoff | Stage::Idle => {}
            }
            self.work_ended(page);
            self.free_page(page);
        }
    }

    /// Nothing works for the page any more.
    fn work_ended(&mut self, page: PageId) {
        let entry = &mut self.pages[page];
        if std::mem::take(&mut entry.working) {
            let useless_from = entry.left.unwrap_or(Nanos::MAX).min(entry.intended.instant());
            self.account.work_ended(useless_from, self.now);
        }
        if let Some(slot) = entry.slot.take() {
            self.endpoint.leave(slot, self.now);
        }
    }

    /// The caller knows how its operation ended.
    fn conclude(&mut self, page: PageId, outcome: Outcome, at: Nanos) {
        self.leave_shell(page);
        self.conclude_at(page, outcome, at);
    }

    fn conclude_at(&mut self, page: PageId, outcome: Outcome, at: Nanos) {
        let objective = self.system.policy.objective;
        self.account.concluded(&self.pages[page], outcome, at, objective);
    }

    fn leave_shell(&mut self, page: PageId) {
        if std::mem::take(&mut self.pages[page].in_shell) {
            self.shell.held -= 1;
        }
    }

    fn free_page(&mut self, page: PageId) {
        if self.pages[page].departs < Nanos::MAX {
            self.wheel.cancel(leaving(page));
        }
        self.pages.free(page);
    }
}
