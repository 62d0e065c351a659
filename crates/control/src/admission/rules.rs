//! Admission's rules: who may take a permit, who goes first, and who is dropped. Private to the gate.

use super::{
    Arrival, Choice, Config, Expiry, Gate, Nanos, Offer, Reject, Rejection, State, Ticket, Waiter, WaiterId,
    Waiting, WorkloadClass, below, mix64,
};

impl Gate {
    /// Whether the class could use a permit now: below the limit and its ceiling, and either below its own floor or
    /// with something left beside everybody's floors.
    #[inline]
    pub(super) const fn may_take(&self, class: WorkloadClass) -> bool {
        let entry = &self.classes[class.index()];
        let limit = self.config.limit();
        self.held < limit
            && entry.held < entry.ceiling
            && (entry.held < entry.floor || self.committed < limit)
    }

    #[inline]
    pub(super) fn hand_out(&mut self, class: WorkloadClass) {
        let entry = &mut self.classes[class.index()];
        // Below the floor the permit was committed before it was taken.
        self.committed += u32::from(entry.held >= entry.floor);
        entry.held += 1;
        entry.peak = entry.peak.max(entry.held);
        self.held += 1;
        self.peak = self.peak.max(self.held);
    }

    #[inline]
    pub(super) fn give_back(&mut self, class: WorkloadClass) {
        let entry = &mut self.classes[class.index()];
        debug_assert!(entry.held > 0, "a permit came back to a gate that never gave it");
        entry.held = entry.held.saturating_sub(1);
        self.held = self.held.saturating_sub(1);
        self.committed = self.committed.saturating_sub(u32::from(entry.held >= entry.floor));
    }

    /// Takes the bounds over and counts anew what they commit.
    pub(super) fn apply(&mut self, config: Config) {
        self.config = config;
        self.committed = 0;
        for class in WorkloadClass::ALL {
            let entry = &mut self.classes[class.index()];
            (entry.floor, entry.ceiling) = (config.floor(class), config.ceiling(class));
            // The bound on age may have moved: look at everybody again.
            entry.none_before = Nanos::ZERO;
            self.committed += entry.held.max(entry.floor);
        }
    }

    /// Hands out what is free, until nobody waits who could use it.
    #[inline(never)]
    pub(super) fn dispatch(&mut self, now: Nanos) {
        while let Some((class, id)) = self.choose(now) {
            let age = now - self.lines.get(id).arrived;
            self.hand_out(class);
            self.classes[class.index()].handed += 1;
            self.lines.decide(id, State::Granted(age));
        }
    }

    /// The head that goes first among the classes that could use a permit.
    fn choose(&mut self, now: Nanos) -> Option<(WorkloadClass, u32)> {
        let mut first = None;
        for class in WorkloadClass::ALL {
            if self.may_take(class)
                && let Some(id) = self.live_head(class, now)
                && first.is_none_or(|other| self.precedes((class, id), other))
            {
                first = Some((class, id));
            }
        }
        first
    }

    /// Whether one class's head goes before another's.
    fn precedes(&self, (class, id): (WorkloadClass, u32), (other, other_id): (WorkloadClass, u32)) -> bool {
        let older = self.lines.get(id).turn < self.lines.get(other_id).turn;
        if self.config.choice() == Choice::Oldest {
            return older;
        }
        // held / ceiling, compared crosswise.
        let [ours, theirs] = [class, other].map(|class| &self.classes[class.index()]);
        let ours_relative = u64::from(ours.held) * u64::from(theirs.ceiling);
        let theirs_relative = u64::from(theirs.held) * u64::from(ours.ceiling);
        ours_relative < theirs_relative || (ours_relative == theirs_relative && older)
    }

    /// First of the class that can still finish; those before it are dropped.
    fn live_head(&mut self, class: WorkloadClass, now: Nanos) -> Option<u32> {
        loop {
            let (id, waiter) = self.lines.head(class)?;
            if now < self.give_up_at(waiter) {
                return Some(id);
            }
            self.drop_waiter(id, now);
        }
    }

    /// Gives a waiter in line its verdict: no permit.
    fn drop_waiter(&mut self, id: u32, now: Nanos) {
        let waiter = self.lines.get(id);
        let (class, age, reason) = (waiter.class, now - waiter.arrived, self.expiry(waiter));
        self.classes[class.index()].books.expired[reason as usize] += 1;
        self.lines.decide(id, State::Dropped(reason, age));
    }

    /// Drops those of the class whose time is up, wherever they stand.
    pub(super) fn sweep_class(&mut self, class: WorkloadClass, now: Nanos) {
        if now < self.classes[class.index()].none_before {
            return;
        }
        let mut none_before = Nanos::MAX;
        let mut next = self.lines.head(class).map(|(id, _)| id);
        while let Some(id) = next {
            next = self.lines.after(id);
            let give_up_at = self.give_up_at(self.lines.get(id));
            if now < give_up_at {
                none_before = none_before.min(give_up_at);
            } else {
                self.drop_waiter(id, now);
            }
        }
        self.classes[class.index()].none_before = none_before;
    }

    /// From this instant on the waiter is too old.
    fn old_from(&self, waiter: &Waiter) -> Nanos {
        match self.config.waiting() {
            Waiting::Bounded { age_max, .. } => waiter.arrived + age_max,
            Waiting::Unbounded => Nanos::MAX,
        }
    }

    /// From this instant on the waiter gets no permit.
    pub(super) fn give_up_at(&self, waiter: &Waiter) -> Nanos {
        waiter.late_from.min(self.old_from(waiter))
    }

    /// Why it gives up: whichever comes first, however late that is noticed.
    pub(super) fn expiry(&self, waiter: &Waiter) -> Expiry {
        if waiter.late_from <= self.old_from(waiter) { Expiry::CannotFinish } else { Expiry::TooOld }
    }

    /// Finds a place in the queue for an arrival that got no permit.
    #[inline(never)]
    pub(super) fn enqueue(&mut self, arrival: Arrival, late_from: Nanos, now: Nanos) -> Offer {
        let Arrival { class, arrived, .. } = arrival;
        if let Waiting::Bounded { count_max, age_max } = self.config.waiting() {
            let places = count_max[class.index()];
            if places > 0 && now - arrived >= age_max {
                return Offer::Rejected(self.reject(class, Reject::TooOld, now));
            }
            if self.lines.len(class) >= places {
                // Those whose time is up make room first.
                self.sweep_class(class, now);
            }
            if self.lines.len(class) >= places {
                return Offer::Rejected(self.reject(class, Reject::QueueFull, now));
            }
        }
        if self.lines.exhausted() {
            return Offer::Rejected(self.reject(class, Reject::QueueFull, now));
        }
        let id = self.lines.enqueue(class, arrived, late_from);
        let give_up_at = self.give_up_at(self.lines.get(id));
        let entry = &mut self.classes[class.index()];
        entry.books.queued += 1;
        entry.none_before = entry.none_before.min(give_up_at);
        Offer::Queued { ticket: Ticket { id: WaiterId(id) }, give_up_at }
    }

    /// Turns an arrival away.
    #[inline(never)]
    pub(super) fn reject(&mut self, class: WorkloadClass, reason: Reject, now: Nanos) -> Rejection {
        self.classes[class.index()].books.rejected[reason as usize] += 1;
        Rejection { reason, retry_after: self.hint(class, now) }
    }

    /// Turns one away that would not wait.
    #[inline(never)]
    pub(super) fn miss(&mut self, class: WorkloadClass, now: Nanos) -> Rejection {
        self.classes[class.index()].books.missed += 1;
        Rejection { reason: Reject::QueueFull, retry_after: self.hint(class, now) }
    }

    /// When another attempt makes sense: after what the head of the line has waited, and up to as much again.
    fn hint(&self, class: WorkloadClass, now: Nanos) -> Nanos {
        let waited = self.head_age(class, now).unwrap_or(Nanos::ZERO);
        let hint = waited.max(self.config.retry_after());
        // Keyed by the count of arrivals: exact in a replay, and different for those refused together.
        let offered = self.classes[class.index()].books.offered;
        hint + Nanos::new(below(mix64(offered), hint.get()))
    }
}
