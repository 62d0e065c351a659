//! Retry: whether a failed attempt is followed by another (DESIGN 3.12, and the rules of gRPC's retry proposal A6).
//!
//! A retry is new load on a dependency that may be failing of load, so every question has to be answered with yes: may
//! the operation be repeated, does the status invite it, has nothing been delivered yet, is there an attempt left, has
//! the dependency not refused, do its recent failures leave tokens, and can a useful attempt still fit before the one
//! deadline that spans them all. The first no is the reason that is reported.
//!
//! Three things take part: a [`Policy`], which never changes; the [`Tokens`] of one dependency, shared by all calls to
//! it; and one [`Attempts`] for each call. Randomness is an argument, like time. What starts the attempt, charges it to
//! capacity and waits for it is not here.

mod pushback;
mod status;
mod tokens;

use std::fmt;

use base::{Deadline, Nanos, mix::below};

pub use self::{
    pushback::Pushback,
    status::{Status, StatusSet},
    tokens::{TOKENS_MAX, TokenFault, TokenRules, Tokens},
};
use crate::budget::{Decision as Fit, Rules, Skip};

/// Most attempts of one call, the first included, whatever a policy asks for.
pub const ATTEMPTS_MAX: u32 = 5;

/// How long to wait before another attempt: a random span up to a bound that grows from retry to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Bound before the first retry.
    pub initial: Nanos,
    /// The bound grows no further than this.
    pub max: Nanos,
    /// Growth from retry to retry, in thousandths; 2,000 doubles.
    pub growth_thousandths: u32,
}

impl Backoff {
    /// The wait before the retry that follows `earlier` retries, drawn by `jitter`: 64 even bits give a span evenly
    /// spread over `0..=bound`. Spread over the whole, so that calls that failed together do not return together.
    pub fn wait(&self, earlier: u32, jitter: u64) -> Nanos {
        let bound = self.bound(earlier).get();
        Nanos::new(below(jitter, bound.saturating_add(1)))
    }

    /// The longest wait before the retry that follows `earlier` retries.
    pub fn bound(&self, earlier: u32) -> Nanos {
        let mut bound = u128::from(self.initial.get());
        // More than the retries of one call never pass; the cap keeps the loop short whatever is asked.
        for _ in 0..earlier.min(ATTEMPTS_MAX) {
            bound = (bound * u128::from(self.growth_thousandths) / 1_000).min(u128::from(self.max.get()));
        }
        Nanos::new(u64::try_from(bound).unwrap_or(u64::MAX)).min(self.max)
    }
}

/// How calls to one dependency are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    attempts_max: u32,
    backoff: Backoff,
    retryable: StatusSet,
}

/// One thing that is wrong with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyFault {
    /// Fewer than two attempts are no retry policy; to retry nothing, have none.
    AttemptsBelowTwo(u32),
    /// The first bound on the wait is zero: retries would follow at once.
    InitialZero,
    /// The last bound on the wait is below the first.
    MaxBelowInitial,
    /// The bound would shrink from retry to retry.
    GrowthBelowOne(u32),
    /// No status invites a retry.
    NothingRetryable,
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AttemptsBelowTwo(attempts) => {
                write!(f, "attempts_max: {attempts}, but the first attempt counts: at least 2")
            }
            Self::InitialZero => f.write_str("backoff_initial: zero, retries would follow at once"),
            Self::MaxBelowInitial => f.write_str("backoff_max: below backoff_initial"),
            Self::GrowthBelowOne(growth) => {
                write!(f, "backoff_growth: {growth} thousandths would shrink the wait")
            }
            Self::NothingRetryable => f.write_str("retryable: no status invites a retry"),
        }
    }
}

impl Policy {
    /// A policy. `attempts_max` includes the first attempt; above [`ATTEMPTS_MAX`] it counts as that. `retryable` names
    /// the statuses that invite another attempt of an idempotent operation.
    ///
    /// # Errors
    /// All faults at once.
    pub fn new(attempts_max: u32, backoff: Backoff, retryable: StatusSet) -> Result<Self, Vec<PolicyFault>> {
        let faults: Vec<_> = [
            (attempts_max < 2).then_some(PolicyFault::AttemptsBelowTwo(attempts_max)),
            backoff.initial.is_zero().then_some(PolicyFault::InitialZero),
            (backoff.max < backoff.initial).then_some(PolicyFault::MaxBelowInitial),
            (backoff.growth_thousandths < 1_000)
                .then_some(PolicyFault::GrowthBelowOne(backoff.growth_thousandths)),
            retryable.is_empty().then_some(PolicyFault::NothingRetryable),
        ]
        .into_iter()
        .flatten()
        .collect();
        if faults.is_empty() {
            Ok(Self { attempts_max: attempts_max.min(ATTEMPTS_MAX), backoff, retryable })
        } else {
            Err(faults)
        }
    }

    /// Most attempts of one call, the first included; 2 to [`ATTEMPTS_MAX`].
    pub const fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    /// How long to wait.
    pub const fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// The statuses that invite another attempt.
    pub const fn retryable(&self) -> StatusSet {
        self.retryable
    }

    /// Whether a failure takes a token: its status invites a retry, or the dependency said not to.
    fn counts(&self, failure: &Failure) -> bool {
        self.retryable.contains(failure.status) || failure.pushback == Pushback::Never
    }
}

/// Whether an operation may run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// Running it again changes nothing.
    Idempotent,
    /// It may run once; it is repeated only after an attempt that surely was not processed.
    Once,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status.
    pub status: Status,
    /// What the dependency says about another attempt.
    pub pushback: Pushback,
    /// Response headers have arrived: the call is committed to this attempt.
    pub committed: bool,
    /// The transport knows that the attempt was not processed: REFUSED_STREAM, or a stream beyond the GOAWAY.
    pub unprocessed: bool,
}

impl Failure {
    /// A plain failure with that status.
    pub const fn of(status: Status) -> Self {
        Self { status, pushback: Pushback::Absent, committed: false, unprocessed: false }
    }
}

/// Whether there is another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// There is.
    Retry {
        /// Wait this long first.
        wait: Nanos,
        /// What the attempt may take at most once the wait is over, the response reserve taken off. Never zero.
        budget: Nanos,
        /// Attempts that went before it: `grpc-previous-rpc-attempts`. At least 1.
        previous: u32,
    },
    /// There is none: the failure stands.
    Stop(Stop),
}

/// Why there is no other attempt. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The status does not invite one.
    StatusNotRetryable,
    /// The operation may run once, and the attempt may have been processed.
    NotIdempotent,
    /// Response headers have arrived.
    Committed,
    /// All attempts are spent.
    AttemptsSpent,
    /// The dependency said not to, or said something unreadable.
    PushedBack,
    /// The dependency's recent failures leave no tokens.
    TokensLow,
    /// Waiting and a useful attempt do not fit before the deadline.
    DoesNotFit(Skip),
}

impl Stop {
    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StatusNotRetryable => "status_not_retryable",
            Self::NotIdempotent => "not_idempotent",
            Self::Committed => "committed",
            Self::AttemptsSpent => "attempts_spent",
            Self::PushedBack => "pushed_back",
            Self::TokensLow => "tokens_low",
            Self::DoesNotFit(skip) => skip.as_str(),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the next attempt has to fit into.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// The figures of the budget rules.
    pub rules: &'a Rules,
    /// The one deadline of all attempts.
    pub deadline: Deadline,
    /// The least time in which an attempt can be of use.
    pub useful_attempt: Nanos,
}

/// The attempts of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    safety: Safety,
    made: u32,
    since_pushback: u32,
}

impl Attempts {
    /// A call whose first attempt is under way.
    pub const fn first(safety: Safety) -> Self {
        Self { safety, made: 1, since_pushback: 0 }
    }

    /// Attempts made, the one under way included.
    pub const fn made(&self) -> u32 {
        self.made
    }

    /// Records that the attempt under way failed, and decides about another. On [`Decision::Retry`] the next attempt
    /// counts as made. The failure takes its token whatever is decided, so that one lock over [`Tokens`] covers both.
    pub fn failed(
        &mut self,
        policy: &Policy,
        tokens: &mut Tokens,
        failure: &Failure,
        room: &Room<'_>,
        now: Nanos,
        jitter: u64,
    ) -> Decision {
        if policy.counts(failure) {
            tokens.failure();
        }
        match self.next(policy, tokens, failure, room, now, jitter) {
            Ok((wait, budget)) => {
                let previous = self.made;
                self.made += 1;
                // A wait that the dependency chose starts the growth of our own anew.
                self.since_pushback = match failure.pushback {
                    Pushback::After(_) => 0,
                    Pushback::Absent | Pushback::Never => self.since_pushback + 1,
                };
                Decision::Retry { wait, budget, previous }
            }
            Err(stop) => Decision::Stop(stop),
        }
    }

    fn next(
        &self,
        policy: &Policy,
        tokens: &Tokens,
        failure: &Failure,
        room: &Room<'_>,
        now: Nanos,
        jitter: u64,
    ) -> Result<(Nanos, Nanos), Stop> {
        if failure.pushback == Pushback::Never {
            return Err(Stop::PushedBack);
        }
        if !failure.unprocessed && !policy.retryable.contains(failure.status) {
            return Err(Stop::StatusNotRetryable);
        }
        if !failure.unprocessed && self.safety == Safety::Once {
            return Err(Stop::NotIdempotent);
        }
        if failure.committed {
            return Err(Stop::Committed);
        }
        if self.made >= policy.attempts_max {
            return Err(Stop::AttemptsSpent);
        }
        if !tokens.allow() {
            return Err(Stop::TokensLow);
        }
        let wait = match failure.pushback {
            Pushback::After(wait) => wait,
            Pushback::Absent | Pushback::Never => policy.backoff.wait(self.since_pushback, jitter),
        };
        match room.rules.retry(room.deadline, now, wait, room.useful_attempt) {
            Fit::Start { budget } => Ok((wait, budget)),
            Fit::Skip(skip) => Err(Stop::DoesNotFit(skip)),
        }
    }
}

#[cfg(test)]
mod tests;
