//! Retry: how the callers of the suite behave when an attempt fails. This is the offered workload, not a repair: each
//! attempt is sent and charged, and the logical operation keeps its id.
//!
//! Callers retry as the workload declares, or they settle ([`Settle`]): then they also try again where nobody knows
//! whether the effect took place, wait longer from attempt to attempt, and stay within a budget that all of them share.

use std::cell::Cell;

use base::{
    Nanos,
    mix::{below, fold_bytes, fold64},
};
use model::draw::Share;

use crate::{
    Settle,
    outcome::{Failed, Outcome},
};

/// The callers' retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// Keys the draws.
    pub(crate) seed: u64,
    /// Share of failed attempts that are tried again.
    pub(crate) share: Share,
    /// Most attempts at one operation, the first included.
    pub(crate) attempts_max: u32,
    /// Mean wait before the second attempt, in model time; drawn between half and one and a half of it.
    pub(crate) backoff: Nanos,
    /// What the mean wait, which doubles from attempt to attempt, stays below.
    pub(crate) backoff_max: Nanos,
    /// Whether an effect that may or may not have taken place is settled by another attempt.
    pub(crate) settle: bool,
}

impl Retries {
    /// As a workload declares them: the wait is the same before every attempt.
    pub(crate) const fn declared(seed: u64, share: Share, attempts_max: u32, backoff: Nanos) -> Self {
        Self { seed, share, attempts_max, backoff, backoff_max: backoff, settle: false }
    }

    /// Of callers that settle.
    pub(crate) const fn settling(seed: u64, settle: &Settle) -> Self {
        Self {
            seed,
            share: Share::ALL,
            attempts_max: settle.attempts_max,
            backoff: settle.backoff,
            backoff_max: settle.backoff_max,
            settle: true,
        }
    }

    /// Whether the caller tries again after attempt number `attempt` failed. Calls are only tried again when nothing was
    /// decided: a deadline, a wrong answer and an error of the caller's own are final, but for callers that settle.
    pub(crate) fn again(&self, failed: Failed, attempt: u32, request_id: &str) -> bool {
        let open = match failed.failure.outcome() {
            Outcome::Rejected | Outcome::Unavailable | Outcome::Transport => true,
            Outcome::Deadline => self.settle,
            _ => self.settle && failed.ambiguous,
        };
        open && attempt < self.attempts_max && self.share.takes(self.draw(1, attempt, request_id))
    }

    /// The wait before the attempt after `attempt`.
    pub(crate) fn backoff(&self, attempt: u32, request_id: &str) -> Nanos {
        let doubled = self.backoff.get().saturating_mul(1 << attempt.saturating_sub(1).min(32));
        let mean = doubled.min(self.backoff_max.get());
        Nanos::new(mean / 2 + below(self.draw(2, attempt, request_id), mean))
    }

    /// A pure function of seed, operation and attempt, so that a run before and one after retry alike.
    fn draw(&self, purpose: u64, attempt: u32, request_id: &str) -> u64 {
        fold64(fold_bytes(fold64(self.seed, purpose), request_id.as_bytes()), u64::from(attempt))
    }
}

/// What all callers together may try again: each operation adds a share of a retry, up to a most, and each retry takes
/// a whole one.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In hundredths of a retry.
    tokens: Cell<u64>,
    tokens_max: u64,
    percent: u64,
}

/// A retry in the unit of the budget.
const RETRY: u64 = 100;

impl Budget {
    /// Full at first.
    pub(crate) fn new(settle: &Settle) -> Self {
        let tokens_max = u64::from(settle.budget_max) * RETRY;
        let percent = u64::from(settle.budget_percent);
        Self { tokens: Cell::new(tokens_max), tokens_max, percent }
    }

    /// An operation begins.
    pub(crate) fn begin(&self) {
        self.tokens.set((self.tokens.get() + self.percent).min(self.tokens_max));
    }

    /// Whether there is a retry left; it is taken.
    pub(crate) fn take(&self) -> bool {
        let left = self.tokens.get().checked_sub(RETRY);
        left.inspect(|left| self.tokens.set(*left)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Code, Failure};

    const RETRIES: Retries = Retries::declared(7, Share::from_ppm(500_000), 3, Nanos::from_millis(10));
    const SETTLE: Settle = Settle {
        attempts_max: 8,
        backoff: Nanos::from_millis(10),
        backoff_max: Nanos::from_millis(40),
        budget_percent: 50,
        budget_max: 2,
    };

    #[test]
    fn the_declared_share_is_tried_again_and_final_failures_never() {
        let ids: Vec<String> = (0..10_000).map(|n| format!("peak-{n}")).collect();
        let again = |failure: Failure, attempt| {
            ids.iter().filter(|id| RETRIES.again(failure.into(), attempt, id)).count()
        };
        let share = again(Failure::NotConnected, 1);
        assert!((4_800..5_200).contains(&share), "{share}");
        assert_eq!(again(Failure::NotConnected, 3), 0, "attempts are bounded");
        assert_eq!(again(Failure::ClientDeadline, 1), 0);
        assert_eq!(again(Failure::CoreMismatch, 1), 0);
    }

    #[test]
    fn the_wait_is_drawn_around_its_mean() {
        for n in 0..1_000 {
            for attempt in [1, 2] {
                let wait = RETRIES.backoff(attempt, &format!("peak-{n}"));
                assert!((5..15).contains(&wait.as_millis()), "{wait}");
            }
        }
        assert_eq!(RETRIES.backoff(1, "peak-1"), RETRIES.backoff(1, "peak-1"));
    }

    #[test]
    fn callers_that_settle_ask_again_whatever_nobody_knows_and_wait_longer_each_time() {
        let settling = Retries::settling(7, &SETTLE);
        let unknown = Failure::Status(Code::parse(b"2").expect("a status"));
        let again = |failed: Failed| settling.again(failed, 1, "op");
        assert!(again(Failed { failure: unknown, ambiguous: true }));
        assert!(!again(unknown.into()), "an error that is not about the effect is final");
        assert!(again(Failure::ClientDeadline.into()) && again(Failure::StreamReset.into()));
        assert!(!again(Failure::CoreMismatch.into()));
        assert!(!settling.again(Failure::StreamReset.into(), 8, "op"), "attempts are bounded");
        for (attempt, mean) in [(1, 10), (2, 20), (3, 40), (4, 40), (60, 40)] {
            let wait = settling.backoff(attempt, "op").as_millis();
            assert!((mean / 2..mean * 3 / 2).contains(&wait), "{attempt}: {wait}");
        }
    }

    #[test]
    fn a_budget_runs_out_and_operations_fill_it() {
        let budget = Budget::new(&SETTLE);
        assert!(budget.take() && budget.take() && !budget.take());
        budget.begin();
        assert!(!budget.take(), "half a retry is none");
        (0..9).for_each(|_| budget.begin());
        assert!(budget.take() && budget.take() && !budget.take(), "it holds two at most");
    }
}
