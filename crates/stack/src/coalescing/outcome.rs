//! Outcome: what a caller gets from a flight, with an answer and without.

use std::{error::Error, fmt};

use base::Deadline;

/// What a flight's call is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightBudget {
    /// When the call must be over, whoever still waits: the deadline to send upstream. Not the leader's own, which may
    /// be earlier or later.
    pub limit: Deadline,
}

/// A flight's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined<V> {
    /// The answer, the same for all who waited.
    pub value: V,
    /// What this caller was to the flight.
    pub role: Role,
    /// How many ever entered the flight, this caller and those who left early among them; 1 when nothing was shared.
    pub group: u64,
}

/// What a caller is to its flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Its call was made.
    Leader,
    /// It shared the call of another.
    Follower,
}

impl Role {
    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }
}

/// Why a caller has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missed<E> {
    /// The caller's own deadline passed. The flight goes on if somebody else waits for it.
    Deadline,
    /// As many flights are open as may be. Nothing was called.
    Overload,
    /// The flight reached its limit although the caller has time left: the call did not keep to its budget.
    Limit,
    /// The call failed. Everybody who waited has the same error, once.
    Failed(E),
    /// The call panicked.
    Panicked,
    /// The supervisor refused the call's task or ended it: the process is going away.
    Stopped,
}

impl<E> Missed<E> {
    /// The name used in metrics and spans.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Overload => "overload",
            Self::Limit => "limit",
            Self::Failed(_) => "failed",
            Self::Panicked => "panicked",
            Self::Stopped => "stopped",
        }
    }
}

impl<E: fmt::Display> fmt::Display for Missed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("the deadline passed while waiting for a shared call"),
            Self::Overload => f.write_str("too many calls are under way"),
            Self::Limit => f.write_str("the shared call reached its limit"),
            Self::Failed(error) => write!(f, "the shared call failed: {error}"),
            Self::Panicked => f.write_str("the shared call panicked"),
            Self::Stopped => f.write_str("the shared call was stopped"),
        }
    }
}

impl<E: Error + 'static> Error for Missed<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}

/// What everybody who waits is told: the answer and the size of the group.
pub(super) type Outcome<V, E> = Result<(V, u64), Missed<E>>;
