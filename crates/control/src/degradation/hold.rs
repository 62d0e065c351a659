//! Hold: pressure comes on at once and goes only after two good windows.
//!
//! It comes on with the first observation in which queue age or occupancy is outside its bound. It goes when both have
//! been inside their bounds for two consecutive observation windows, whole ones, at the end of the second. The window in
//! which a bound was left is no good one, whatever came later in it; so the hold lasts for two whole windows at least,
//! and input that flaps cannot make it flap faster than that.
//!
//! Windows are fixed spans on a grid that begins when the hold is made; they do not move with the observations. A window
//! is *good* when it has observations and all are inside, *bad* when any is outside, and *unobserved* without any.
//! **No data is not health**: an unobserved window is not one of the two. Nor is it evidence against health: it does not
//! undo a good window before it, or a quiet process, with an observation now and then, would stay degraded for ever.
//! Consecutive therefore means with no bad window between. Time alone thus changes nothing, apart from closing the window
//! that was observed last.

use base::Nanos;

/// Good windows in a row after which pressure goes.
pub const HEALTHY_WINDOWS: u32 = 2;

/// Inside what a process must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Greatest queue age that is inside; 12 ms is the gate of the rehearsal.
    pub queue_age_max: Nanos,
    /// Greatest occupancy that is inside, in parts per 10,000 of the limit.
    pub occupancy_max_per_10_000: u32,
    /// Span of a window. Zero counts as one nanosecond.
    pub window: Nanos,
}

/// What was seen at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Age of the oldest waiter, or of the one just admitted.
    pub queue_age: Nanos,
    /// Permits out, in parts per 10,000 of the limit. More than 10,000 while a lowered limit is not yet reached.
    pub occupancy_per_10_000: u32,
}

impl Bounds {
    /// Whether both figures are inside.
    pub const fn contain(&self, seen: Observation) -> bool {
        seen.queue_age.get() <= self.queue_age_max.get()
            && seen.occupancy_per_10_000 <= self.occupancy_max_per_10_000
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Inside,
    Outside,
}

/// Whether pressure is on. It must be told the time to know: a window closes by time alone.
#[derive(Clone, Debug)]
pub struct Hold {
    bounds: Bounds,
    on: bool,
    /// When the current window ends. Time before that belongs to it, so a clock read out of order harms nothing.
    window_end: Nanos,
    seen: Seen,
    /// Good windows since the last bad one. Means nothing while pressure is off; coming on begins with a bad one.
    good: u32,
    came_on: u64,
}

impl Hold {
    /// Pressure off, the first window beginning now.
    pub const fn new(bounds: Bounds, now: Nanos) -> Self {
        Self {
            bounds,
            on: false,
            window_end: now.saturating_add(span(&bounds)),
            seen: Seen::Nothing,
            good: 0,
            came_on: 0,
        }
    }

    /// Other bounds from here on, after a reload. What was seen was judged by the old ones and stays so; the current
    /// window ends when it would have, and later ones have the new span.
    pub const fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Takes an observation in, and says whether pressure is on.
    pub const fn observe(&mut self, seen: Observation, now: Nanos) -> bool {
        self.advance(now);
        if !self.bounds.contain(seen) {
            self.seen = Seen::Outside;
            self.good = 0;
            if !self.on {
                self.on = true;
                self.came_on += 1;
            }
        } else if matches!(self.seen, Seen::Nothing) {
            self.seen = Seen::Inside;
        }
        self.on
    }

    /// Whether pressure is on.
    pub const fn is_on(&mut self, now: Nanos) -> bool {
        self.advance(now);
        self.on
    }

    /// How often pressure came on.
    pub const fn came_on(&self) -> u64 {
        self.came_on
    }

    /// Closes the window that has ended, if it has, and finds the one that `now` lies in. Those between were not
    /// observed and so change nothing, however many they are.
    const fn advance(&mut self, now: Nanos) {
        if now.get() < self.window_end.get() {
            return;
        }
        if self.on && matches!(self.seen, Seen::Inside) {
            self.good += 1;
            if self.good >= HEALTHY_WINDOWS {
                self.on = false;
            }
        }
        self.seen = Seen::Nothing;
        let span = span(&self.bounds);
        let past = now.saturating_sub(self.window_end).get();
        let begun = now.saturating_sub(Nanos::new(past % span.get()));
        self.window_end = begun.saturating_add(span);
    }
}

const fn span(bounds: &Bounds) -> Nanos {
    if bounds.window.is_zero() { Nanos::new(1) } else { bounds.window }
}
