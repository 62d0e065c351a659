//! Counts: why a caller did not join, why it was not let in at all, and the figures that telemetry reads.

use std::fmt;

use super::Ending;

/// Why a caller did not join the flight that its key had. It starts one of its own instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoJoin {
    /// The flight's deadline has passed: it is dying, whether or not its driver has noticed.
    Dying,
    /// The flight is older than the freshness window: its answer may be older than the caller may accept.
    Stale,
    /// Too little of the longest deadline that the flight could have is left for useful work.
    TooLittleLeft,
    /// The flight has as many waiters as one failure may hurt.
    GroupFull,
}

impl NoJoin {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 4] = [Self::Dying, Self::Stale, Self::TooLittleLeft, Self::GroupFull];

    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dying => "dying",
            Self::Stale => "stale",
            Self::TooLittleLeft => "too_little_left",
            Self::GroupFull => "group_full",
        }
    }

    /// Position in [`NoJoin::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for NoJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a caller was not let in: it neither joined nor started a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The caller's own deadline has passed.
    Expired,
    /// The table has as many flights as it may. To be answered as overload, at once: a call made past the table would
    /// be one that nobody bounds.
    FlightsFull,
}

impl Refused {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 2] = [Self::Expired, Self::FlightsFull];

    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::FlightsFull => "flights_full",
        }
    }

    /// Position in [`Refused::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happened since the table was made. Two sums hold at every moment:
///
/// - flights: `started = completed + failed + panicked + stopped + expired + cancelled` + those open now;
/// - callers: `started + joined = told + left` + those waiting now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flights started; as many callers led.
    pub started: u64,
    /// Callers that joined a flight.
    pub joined: u64,
    /// Callers that left before their flight ended.
    pub left: u64,
    /// Callers that were told how their flight ended.
    pub told: u64,
    /// Flights that ended with an answer.
    pub completed: u64,
    /// Flights that ended with an error.
    pub failed: u64,
    /// Flights whose work panicked.
    pub panicked: u64,
    /// Flights whose work was refused or let go of unfinished by whoever runs it.
    pub stopped: u64,
    /// Flights that reached their deadline.
    pub expired: u64,
    /// Flights whose last waiter left.
    pub cancelled: u64,
    /// Sum of the group sizes of all flights that have ended; a group is everybody who ever entered the flight.
    pub group_sum: u64,
    /// Callers that found a flight and did not join it, by [`NoJoin::index`].
    pub not_joined: [u64; NoJoin::ALL.len()],
    /// Callers that were not let in, by [`Refused::index`].
    pub refused: [u64; Refused::ALL.len()],
}

impl Counts {
    /// Flights that have ended, by how they did. The names are those used in metrics.
    pub const fn ended_by(&self) -> [(&'static str, u64); 6] {
        [
            (Ending::Completed.as_str(), self.completed),
            (Ending::Failed.as_str(), self.failed),
            (Ending::Panicked.as_str(), self.panicked),
            (Ending::Stopped.as_str(), self.stopped),
            ("expired", self.expired),
            ("cancelled", self.cancelled),
        ]
    }

    /// Flights that have ended, however they did.
    pub const fn ended(&self) -> u64 {
        self.completed + self.failed + self.panicked + self.stopped + self.expired + self.cancelled
    }

    /// Flights that are open.
    pub const fn open(&self) -> u64 {
        self.started - self.ended()
    }

    /// Callers that are waiting.
    pub const fn waiting(&self) -> u64 {
        self.started + self.joined - self.told - self.left
    }
}
