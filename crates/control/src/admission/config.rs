//! Admission's configuration: what a user asks for, checked as a whole before a gate may see it.

use std::fmt;

use base::{Nanos, WorkloadClass};

use super::CLASSES;

/// Most permits that one gate may have.
pub const LIMIT_MAX: u32 = 1_000_000;
/// Most waiters that one gate may keep under [`Waiting::Bounded`], all classes together.
pub const WAITERS_MAX: u32 = 1_000_000;

/// A floor or a ceiling, in permits or as a share of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// So many permits.
    Permits(u32),
    /// So many percent of the limit, rounded down. A share above zero that rounds to no permit at all is a fault: it
    /// would silently mean "nothing".
    Percent(u32),
}

/// What one class is promised and how far it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Permits that the other classes cannot take, used or not. Zero promises nothing.
    pub floor: Bound,
    /// Permits that the class cannot exceed. Never zero: a class that may not enter is not a partition.
    pub ceiling: Bound,
}

impl Partition {
    /// No promise and no bound of its own.
    pub const OPEN: Self = Self { floor: Bound::Permits(0), ceiling: Bound::Percent(100) };
}

/// How those wait that find no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A bounded wait.
    Bounded {
        /// Most waiters by class, in the order of [`WorkloadClass::ALL`]. Apart, so that the flood of one class cannot
        /// fill another's places. Zero: the class does not wait.
        count_max: [u32; CLASSES],
        /// A waiter this old, counted from header arrival, is dropped. Unused, and may be zero, when nobody waits.
        age_max: Nanos,
    },
    /// No bound by count or by age: the old design, kept so that it can be measured. It is the suite's one declared
    /// exception to bounded queues; who runs it needs a memory stop of their own.
    Unbounded,
}

/// Which class goes first when several could use a permit that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The class that holds least of its own ceiling; on a tie, the one whose head was offered first. A class that
    /// floods the gate gains nothing by it.
    Share,
    /// The one whose head was offered first: one line over all classes, what a plain semaphore does.
    Oldest,
}

/// What a user asks for; [`Settings::validate`] makes it a [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Permits in all.
    pub limit: u32,
    /// By class, in the order of [`WorkloadClass::ALL`].
    pub partitions: [Partition; CLASSES],
    /// How those wait that find no permit.
    pub waiting: Waiting,
    /// Which class goes first.
    pub choice: Choice,
    /// Least hint that goes with a rejection.
    pub retry_after: Nanos,
}

/// Checked settings, shares resolved to permits. There is no other way to make one than [`Settings::validate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    limit: u32,
    floors: [u32; CLASSES],
    ceilings: [u32; CLASSES],
    waiting: Waiting,
    choice: Choice,
    retry_after: Nanos,
}

/// One thing that is wrong with [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A gate without permits would be a deadlock, and zero must never read as "no limit".
    LimitZero,
    /// The limit is above [`LIMIT_MAX`].
    LimitAboveMax(u32),
    /// The promises add up to more than there is.
    FloorsExceedLimit {
        /// What they add up to.
        sum: u64,
        /// What there is.
        limit: u32,
    },
    /// A class is promised more than it may have.
    CeilingBelowFloor(WorkloadClass),
    /// A class may have more than there is.
    CeilingAboveLimit(WorkloadClass),
    /// A class may have nothing.
    CeilingZero(WorkloadClass),
    /// The floor's share is above zero and rounds to no permit.
    FloorRoundsToZero(WorkloadClass),
    /// The ceiling's share is above zero and rounds to no permit.
    CeilingRoundsToZero(WorkloadClass),
    /// The floor's share is above 100 %.
    FloorAboveWhole(WorkloadClass),
    /// The ceiling's share is above 100 %.
    CeilingAboveWhole(WorkloadClass),
    /// Somebody may wait, but for no time at all.
    AgeZero,
    /// More waiters than [`WAITERS_MAX`].
    TooManyWaiters(u64),
    /// A hint of zero invites the refused back at once.
    RetryAfterZero,
}

impl Fault {
    /// The class at fault, when it is one alone.
    pub const fn class(self) -> Option<WorkloadClass> {
        match self {
            Self::CeilingBelowFloor(class)
            | Self::CeilingAboveLimit(class)
            | Self::CeilingZero(class)
            | Self::FloorRoundsToZero(class)
            | Self::CeilingRoundsToZero(class)
            | Self::FloorAboveWhole(class)
            | Self::CeilingAboveWhole(class) => Some(class),
            _ => None,
        }
    }

    /// The setting at fault, so that a reader of files can name its key.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::LimitZero | Self::LimitAboveMax(_) => "limit",
            Self::FloorsExceedLimit { .. } | Self::FloorRoundsToZero(_) | Self::FloorAboveWhole(_) => "floor",
            Self::CeilingBelowFloor(_)
            | Self::CeilingAboveLimit(_)
            | Self::CeilingZero(_)
            | Self::CeilingRoundsToZero(_)
            | Self::CeilingAboveWhole(_) => "ceiling",
            Self::AgeZero => "age_max",
            Self::TooManyWaiters(_) => "count_max",
            Self::RetryAfterZero => "retry_after",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitZero => f.write_str("limit: a gate without permits admits nobody"),
            Self::LimitAboveMax(limit) => write!(f, "limit: {limit} is above the maximum of {LIMIT_MAX}"),
            Self::FloorsExceedLimit { sum, limit } => {
                write!(f, "floor: the floors add up to {sum}, above the limit of {limit}")
            }
            Self::CeilingBelowFloor(class) => write!(f, "ceiling of {class}: below its floor"),
            Self::CeilingAboveLimit(class) => write!(f, "ceiling of {class}: above the limit"),
            Self::CeilingZero(class) => write!(f, "ceiling of {class}: zero shuts the class out"),
            Self::FloorRoundsToZero(class) => write!(f, "floor of {class}: the share rounds to no permit"),
            Self::CeilingRoundsToZero(class) => {
                write!(f, "ceiling of {class}: the share rounds to no permit")
            }
            Self::FloorAboveWhole(class) => write!(f, "floor of {class}: above 100 percent"),
            Self::CeilingAboveWhole(class) => write!(f, "ceiling of {class}: above 100 percent"),
            Self::AgeZero => f.write_str("age_max: zero, but there are places to wait in"),
            Self::TooManyWaiters(sum) => {
                write!(f, "count_max: {sum} waiters in all, above the maximum of {WAITERS_MAX}")
            }
            Self::RetryAfterZero => f.write_str("retry_after: zero invites the refused back at once"),
        }
    }
}

/// Everything that is wrong with [`Settings`]; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// One by one, in the order of the settings.
    pub fn iter(&self) -> impl Iterator<Item = Fault> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl Settings {
    /// Checks everything and resolves the shares.
    ///
    /// # Errors
    /// All faults at once. A fault that only follows from another is left out: without a limit, nothing is compared
    /// with it.
    pub fn validate(self) -> Result<Config, Faults> {
        let mut faults = Vec::new();
        if self.limit == 0 {
            faults.push(Fault::LimitZero);
        } else if self.limit > LIMIT_MAX {
            faults.push(Fault::LimitAboveMax(self.limit));
        }
        let resolved = WorkloadClass::ALL.map(|class| self.resolve(class, &mut faults));
        let (floors, ceilings) = (resolved.map(|(floor, _)| floor), resolved.map(|(_, ceiling)| ceiling));
        let sum: u64 = floors.iter().flatten().map(|floor| u64::from(*floor)).sum();
        if self.limit > 0 && sum > u64::from(self.limit) {
            faults.push(Fault::FloorsExceedLimit { sum, limit: self.limit });
        }
        self.check_waiting(&mut faults);
        if self.retry_after.is_zero() {
            faults.push(Fault::RetryAfterZero);
        }
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        let Self { limit, waiting, choice, retry_after, .. } = self;
        // Without a fault every bound was resolved; nothing is replaced here.
        let [floors, ceilings] = [floors, ceilings].map(|bounds| bounds.map(Option::unwrap_or_default));
        Ok(Config { limit, floors, ceilings, waiting, choice, retry_after })
    }

    /// One class's floor and ceiling in permits, where they have a meaning.
    fn resolve(&self, class: WorkloadClass, faults: &mut Vec<Fault>) -> (Option<u32>, Option<u32>) {
        let partition = self.partitions[class.index()];
        let share = |percent: u32| (u64::from(self.limit) * u64::from(percent) / 100) as u32;
        let floor = match partition.floor {
            Bound::Percent(101..) => Err(Some(Fault::FloorAboveWhole(class))),
            Bound::Percent(1..) if self.limit == 0 => Err(None),
            Bound::Percent(percent) if percent > 0 && share(percent) == 0 => {
                Err(Some(Fault::FloorRoundsToZero(class)))
            }
            Bound::Percent(percent) => Ok(share(percent)),
            Bound::Permits(permits) => Ok(permits),
        };
        let ceiling = match partition.ceiling {
            Bound::Permits(0) | Bound::Percent(0) => Err(Some(Fault::CeilingZero(class))),
            Bound::Percent(101..) => Err(Some(Fault::CeilingAboveWhole(class))),
            Bound::Percent(_) if self.limit == 0 => Err(None),
            Bound::Percent(percent) if share(percent) == 0 => Err(Some(Fault::CeilingRoundsToZero(class))),
            Bound::Percent(percent) => Ok(share(percent)),
            Bound::Permits(permits) if self.limit > 0 && permits > self.limit => {
                Err(Some(Fault::CeilingAboveLimit(class)))
            }
            Bound::Permits(permits) => Ok(permits),
        };
        faults.extend([floor.err(), ceiling.err()].into_iter().flatten().flatten());
        if let (Ok(floor), Ok(ceiling)) = (floor, ceiling)
            && ceiling < floor
        {
            faults.push(Fault::CeilingBelowFloor(class));
        }
        (floor.ok(), ceiling.ok())
    }

    fn check_waiting(&self, faults: &mut Vec<Fault>) {
        let Waiting::Bounded { count_max, age_max } = self.waiting else { return };
        let places: u64 = count_max.iter().map(|places| u64::from(*places)).sum();
        if places > 0 && age_max.is_zero() {
            faults.push(Fault::AgeZero);
        }
        if places > u64::from(WAITERS_MAX) {
            faults.push(Fault::TooManyWaiters(places));
        }
    }
}

impl Config {
    /// Permits in all.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Permits that the other classes cannot take.
    pub const fn floor(&self, class: WorkloadClass) -> u32 {
        self.floors[class.index()]
    }

    /// Permits that the class cannot exceed.
    pub const fn ceiling(&self, class: WorkloadClass) -> u32 {
        self.ceilings[class.index()]
    }

    /// Most permits that the class can ever hold: its ceiling, or what the others' floors leave, whichever is less. A
    /// policy in which this equals the limit lets that class hold every slot.
    pub fn reach(&self, class: WorkloadClass) -> u32 {
        let promised: u32 = self.floors.iter().sum();
        self.ceiling(class).min(self.limit - (promised - self.floor(class)))
    }

    /// How those wait that find no permit.
    pub const fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// Which class goes first.
    pub const fn choice(&self) -> Choice {
        self.choice
    }

    /// Least hint that goes with a rejection.
    pub const fn retry_after(&self) -> Nanos {
        self.retry_after
    }
}
