//! Shadow: flights that are only counted. Everybody makes a call of their own, and the table tells what sharing would
//! have saved.

use std::hash::Hash;

use super::{Ending, Flights, SlotId, WaiterId};

impl<K: Eq + Hash + Clone> Flights<K, ()> {
    /// A waiter's own call has ended. The leader's call stands for the one that would have been shared, so its end is the
    /// flight's; once the leader has [left](Flights::leave), the first call to end takes its place. A follower whose call
    /// ends sooner than that leaves. Whoever gives up before its call has ended leaves too, by [`Flights::leave`].
    ///
    /// Whether the flight has ended by it. Nothing happens when the flight had ended or the waiter had left.
    pub fn own_call_ended(&mut self, waiter: WaiterId, ending: Ending) -> bool {
        let Some(flight) = self.flights.get(waiter.flight.0) else { return false };
        let leads = waiter.slot == SlotId::FIRST;
        let stands_for_the_flight = leads || flight.waiters.get(SlotId::FIRST).is_none();
        if stands_for_the_flight && flight.waiters.get(waiter.slot).is_some() {
            return self.end(waiter.flight, ending).is_some();
        }
        // The leader is aboard, so this one, if it is too, is not the last.
        self.leave(waiter);
        false
    }
}
