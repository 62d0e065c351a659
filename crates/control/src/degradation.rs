//! Degradation: which optional sections a home page goes without, and why (DESIGN 3.7).
//!
//! A page is correct without its optional sections, so they are what gives way first: to the deadline of the request
//! itself, and to everybody else's when the process is under pressure. Two decisions are kept apart. [`start`] is about
//! one section of one request. [`Hold`] is about the process: it says whether pressure is on, and it does not let go at
//! the first good window. A section that was not there is counted by its cause ([`Tally`]); it is never an empty one.

mod hold;
mod marker;
mod tally;
#[cfg(test)]
mod tests;

use base::Nanos;

use crate::budget;

pub use self::{
    hold::{Bounds, HEALTHY_WINDOWS, Hold, Observation},
    marker::{Marker, Omission},
    tally::Tally,
};

/// Whether optional work gives way to mandatory work at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// It does not.
    Off,
    /// It does: a section starts only with at least this much budget of its own, reserves already taken off, so that
    /// requests with time to spare keep theirs. [`Nanos::MAX`] starts none.
    On {
        /// Least budget with which a section still starts.
        budget_min: Nanos,
    },
}

/// Whether an optional section starts; the budget is what it may take.
///
/// The first cause that holds is the one named: the policy's switch, then the request's own budget, then pressure. So
/// [`Omission::Overload`] counts exactly the sections that would have started without the pressure, which is the
/// mechanism's own effect.
///
/// In shadow, ask twice: with [`Pressure::Off`] for what is done, and with the pressure for the record
/// ([`mode::Decision::choose`](crate::mode::Decision::choose)).
///
/// # Errors
/// Why the section is left out.
pub const fn start(enabled: bool, budget: budget::Decision, pressure: Pressure) -> Result<Nanos, Omission> {
    if !enabled {
        return Err(Omission::Disabled);
    }
    let budget::Decision::Start { budget } = budget else {
        return Err(Omission::DeadlineBudget);
    };
    match pressure {
        Pressure::On { budget_min } if budget.get() < budget_min.get() || budget_min.get() == u64::MAX => {
            Err(Omission::Overload)
        }
        Pressure::On { .. } | Pressure::Off => Ok(budget),
    }
}
