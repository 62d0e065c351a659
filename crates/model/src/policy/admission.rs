//! Admission: the two boundaries at which home-api decides who may go on, each a pool of slots with a bounded gate before
//! it (DESIGN 3.3).
//!
//! The *pool* is there whatever the policy says: the endpoint's executor and the profile client's connections have so many
//! slots, and who finds none waits without bound. The *gate* is the mechanism: it admits fewer than the pool has slots,
//! by class, and keeps a short queue. While it is on for everybody nobody ever waits for a slot; while it is off the pool
//! is the old design's hidden queue, the suite's one declared exception to bounded queues.

use base::{Nanos, WorkloadClass};
use control::admission::{Bound, Choice, Config, LIMIT_MAX, Partition, Settings, WAITERS_MAX, Waiting};

use super::SPAN_MS_MAX;
use crate::{
    Scale,
    read::{Table, every},
};

/// A place where work waits for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Boundary {
    /// The whole page: a slot of the endpoint's executor.
    Endpoint,
    /// A profile read: a connection of the profile client.
    Profile,
}

impl Boundary {
    /// Both, outermost first.
    pub const ALL: [Self; 2] = [Self::Endpoint, Self::Profile];

    /// The name used in files, metrics and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Profile => "profile",
        }
    }

    /// Position in [`Boundary::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Boundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The bounds of one boundary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionPolicy {
    /// Slots of the pool.
    pub slots: u32,
    /// Slots in use on average at the declared rate while the gate is off; what scaling the pool rests on.
    pub slots_offered: f64,
    /// Permits of the gate in use on average at the declared rate; what scaling the gate rests on.
    pub limit_offered: f64,
    /// The gate's bounds, checked.
    settings: Settings,
}

/// What was checked when it was read, or follows from what was.
const CHECKED: &str = "the bounds were validated when the policy was read";

impl AdmissionPolicy {
    /// The gate's bounds.
    pub fn gate(&self) -> Config {
        self.settings.validate().expect(CHECKED)
    }

    /// The pool as a gate of its own: its slots, one line over all classes, waiting without bound.
    pub fn pool(&self) -> Config {
        let settings = Settings {
            limit: self.slots,
            partitions: [Partition::OPEN; WorkloadClass::ALL.len()],
            waiting: Waiting::Unbounded,
            choice: Choice::Oldest,
            retry_after: self.settings.retry_after,
        };
        settings.validate().expect(CHECKED)
    }

    /// Longest that the gate lets anybody wait.
    pub const fn queue_age_max(&self) -> Nanos {
        match self.settings.waiting {
            Waiting::Bounded { age_max, .. } => age_max,
            Waiting::Unbounded => Nanos::MAX,
        }
    }

    /// Most waiters that the gate keeps, all classes together.
    pub fn queue_max(&self) -> u64 {
        match self.settings.waiting {
            Waiting::Bounded { count_max, .. } => count_max.iter().map(|count| u64::from(*count)).sum(),
            Waiting::Unbounded => u64::MAX,
        }
    }

    /// The boundary of a smaller system: pool and gate by square-root staffing over their own offered concurrency, floors,
    /// ceilings and places in line with the gate. A floor or ceiling stays at least one permit, as long as the floors fit.
    pub(super) fn scaled(&self, scale: Scale) -> Self {
        let whole = self.gate();
        let limit = scale.staffing(self.limit_offered, whole.limit());
        let part = f64::from(limit) / f64::from(whole.limit());
        // A float-to-integer cast saturates.
        let share = |permits: u32| (f64::from(permits) * part) as u32;
        let mut floors = WorkloadClass::ALL.map(|class| {
            let floor = whole.floor(class);
            share(floor).max(floor.min(1))
        });
        while floors.iter().sum::<u32>() > limit {
            // Only a gate of one or two permits comes here: the smallest class gives its promise up last.
            let most = floors.iter_mut().max().expect(CHECKED);
            *most -= 1;
        }
        let partitions = WorkloadClass::ALL.map(|class| {
            let floor = floors[class.index()];
            let ceiling = share(whole.ceiling(class)).max(1).max(floor);
            Partition { floor: Bound::Permits(floor), ceiling: Bound::Permits(ceiling) }
        });
        let root = scale.as_f64().sqrt();
        let waiting = match self.settings.waiting {
            Waiting::Bounded { count_max, age_max } => Waiting::Bounded {
                count_max: count_max.map(|count| (f64::from(count) * root).ceil() as u32),
                age_max,
            },
            Waiting::Unbounded => Waiting::Unbounded,
        };
        let Settings { choice, retry_after, .. } = self.settings;
        let settings = Settings { limit, partitions, waiting, choice, retry_after };
        let slots = scale.staffing(self.slots_offered, self.slots).max(limit);
        Self { slots, settings, ..*self }
    }

    /// Every span `factor` times as long.
    pub(super) fn dilated(&self, factor: u32) -> Self {
        let mut dilated = *self;
        if let Waiting::Bounded { age_max, .. } = &mut dilated.settings.waiting {
            *age_max = age_max.times(factor);
        }
        dilated.settings.retry_after = dilated.settings.retry_after.times(factor);
        dilated
    }
}

pub(super) fn boundary(table: &mut Table<'_>) -> Option<AdmissionPolicy> {
    let slots = table.integer32("slots", 1..=LIMIT_MAX);
    let slots_offered = table.number("slots_offered_concurrency", 0.1..=f64::from(LIMIT_MAX));
    let limit = table.integer32("limit", 1..=LIMIT_MAX);
    let limit_offered = table.number("limit_offered_concurrency", 0.1..=f64::from(LIMIT_MAX));
    let age_max = table.millis("queue_age_max_ms", 1..=SPAN_MS_MAX);
    let retry_after = table.millis("retry_after_ms", 1..=SPAN_MS_MAX);
    let classes = table.section("classes", |classes| {
        every(WorkloadClass::ALL.map(|name| classes.section(name.as_str(), class)))
    });
    if let (Some(slots), Some(limit)) = (slots, limit)
        && limit > slots
    {
        table.fault("limit", "must not exceed slots: those admitted would wait for a slot without bound");
    }
    let classes = classes?;
    let settings = Settings {
        limit: limit?,
        partitions: classes.map(|(partition, _)| partition),
        waiting: Waiting::Bounded { count_max: classes.map(|(_, count)| count), age_max: age_max? },
        choice: Choice::Share,
        retry_after: retry_after?,
    };
    if let Err(faults) = settings.validate() {
        for fault in faults.iter() {
            match fault.class() {
                Some(class) => {
                    let key = if fault.setting() == "floor" { "floor_percent" } else { "ceiling_percent" };
                    table.fault_in(&["classes", class.as_str(), key], fault.to_string());
                }
                None => table.fault("classes", fault.to_string()),
            }
        }
        return None;
    }
    Some(AdmissionPolicy {
        slots: slots?,
        slots_offered: slots_offered?,
        limit_offered: limit_offered?,
        settings,
    })
}

/// What one class is promised, how far it may go, and how many of it may wait.
fn class(table: &mut Table<'_>) -> Option<(Partition, u32)> {
    let floor = table.integer32("floor_percent", 0..=100);
    let ceiling = table.integer32("ceiling_percent", 1..=100);
    let count = table.integer32("queue_max", 0..=WAITERS_MAX / 4);
    Some((Partition { floor: Bound::Percent(floor?), ceiling: Bound::Percent(ceiling?) }, count?))
}
