//! Retry: how the callers of the suite behave when an attempt fails. This is the offered workload, not a repair: each
//! attempt is sent and charged, and the logical operation keeps its id.

use base::{
    Nanos,
    mix::{below, fold_bytes, fold64},
};
use model::draw::Share;

use crate::outcome::{Failure, Outcome};

/// The callers' retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// Keys the draws.
    pub(crate) seed: u64,
    /// Share of failed attempts that are tried again.
    pub(crate) share: Share,
    /// Most attempts at one operation, the first included.
    pub(crate) attempts_max: u32,
    /// Mean wait before another attempt, in model time; drawn between half and one and a half of it.
    pub(crate) backoff: Nanos,
}

impl Retries {
    /// Whether the caller tries again after `failure` of attempt number `attempt`. Calls are only tried again when
    /// nothing was decided: a deadline, a wrong answer and an error of the caller's own are final.
    pub(crate) fn again(&self, failure: Failure, attempt: u32, request_id: &str) -> bool {
        let open = matches!(failure.outcome(), Outcome::Rejected | Outcome::Unavailable | Outcome::Transport);
        open && attempt < self.attempts_max && self.share.takes(self.draw(1, attempt, request_id))
    }

    /// The wait before the attempt after `attempt`.
    pub(crate) fn backoff(&self, attempt: u32, request_id: &str) -> Nanos {
        let mean = self.backoff.get();
        Nanos::new(mean / 2 + below(self.draw(2, attempt, request_id), mean))
    }

    /// A pure function of seed, operation and attempt, so that a run before and one after retry alike.
    fn draw(&self, purpose: u64, attempt: u32, request_id: &str) -> u64 {
        fold64(fold_bytes(fold64(self.seed, purpose), request_id.as_bytes()), u64::from(attempt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIES: Retries = Retries {
        seed: 7,
        share: Share::from_ppm(500_000),
        attempts_max: 3,
        backoff: Nanos::from_millis(10),
    };

    #[test]
    fn the_declared_share_is_tried_again_and_final_failures_never() {
        let ids: Vec<String> = (0..10_000).map(|n| format!("peak-{n}")).collect();
        let again = |failure, attempt| ids.iter().filter(|id| RETRIES.again(failure, attempt, id)).count();
        let share = again(Failure::NotConnected, 1);
        assert!((4_800..5_200).contains(&share), "{share}");
        assert_eq!(again(Failure::NotConnected, 3), 0, "attempts are bounded");
        assert_eq!(again(Failure::ClientDeadline, 1), 0);
        assert_eq!(again(Failure::CoreMismatch, 1), 0);
    }

    #[test]
    fn the_wait_is_drawn_around_its_mean() {
        for n in 0..1_000 {
            let wait = RETRIES.backoff(1, &format!("peak-{n}"));
            assert!((5..15).contains(&wait.as_millis()), "{wait}");
        }
        assert_eq!(RETRIES.backoff(1, "peak-1"), RETRIES.backoff(1, "peak-1"));
    }
}
