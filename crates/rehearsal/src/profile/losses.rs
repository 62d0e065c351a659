//! Losses: what becomes of the generator's own operations that are in flight when home-api is told to stop.

use std::sync::{Mutex, PoisonError};

use base::Nanos;
use load::{Lost, Observe, Observed as Page};
use model::load_profile::Figure;

use super::observed::Observed;

/// Most operations that are kept; more than any profile's callers ask for.
const KEPT_MAX: usize = 1 << 20;

/// From when to when something was in flight, and whether it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flight {
    from: Nanos,
    to: Nanos,
    lost: bool,
}

/// Keeps when every operation was answered or lost. Part of the generator.
#[derive(Debug, Default)]
pub(super) struct Losses(Mutex<Vec<Flight>>);

impl Losses {
    fn keep(&self, flight: Flight) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < KEPT_MAX {
            all.push(flight);
        }
    }

    /// Operations that were in flight at the signal, having been sent by `ready_until`, when home-api was last seen ready, and
    /// were lost; nothing when none was in flight.
    pub(super) fn at_signal(&self, signalled: Nanos, ready_until: Nanos) -> Observed {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut in_flight =
            all.iter().filter(|one| one.from <= ready_until && one.to >= signalled).peekable();
        let mut observed = Observed::default();
        if in_flight.peek().is_some() {
            observed.put(Figure::StopLost, in_flight.filter(|one| one.lost).count() as f64);
        }
        observed
    }
}

impl Observe for Losses {
    fn answered(&self, page: &Page<'_>) {
        self.keep(Flight { from: page.asked_at, to: page.answered_at, lost: false });
    }

    fn lost(&self, lost: Lost) {
        self.keep(Flight { from: lost.sent_at, to: lost.lost_at, lost: true });
    }

    fn judges(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_flight_at_the_signal_and_lost_is_counted() {
        let millis = Nanos::from_millis;
        let found = |flights: &[(u64, u64, bool)]| {
            let losses = Losses::default();
            for (from, to, lost) in flights {
                losses.keep(Flight { from: millis(*from), to: millis(*to), lost: *lost });
            }
            losses.at_signal(millis(1_000), millis(1_010)).get(Figure::StopLost, None)
        };
        assert_eq!(found(&[]), None);
        // Over before the signal, or sent when it was no longer ready.
        assert_eq!(found(&[(100, 900, true), (1_020, 1_030, true)]), None);
        assert_eq!(found(&[(900, 1_100, false)]), Some(0.0));
        assert_eq!(found(&[(900, 1_100, false), (950, 1_001, true), (1_005, 1_015, true)]), Some(2.0));
    }
}
