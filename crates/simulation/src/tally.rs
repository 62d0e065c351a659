//! Tally: what became of whom. Every operation of the window is counted once, by class and by the second in which it was meant
//! to start, whenever it ends; what is metered is read at the window's ends.

use std::ops::AddAssign;

use base::{Dependency, Nanos, WorkloadClass};
use control::degradation::Omission;

use crate::{
    domain::{Meters, Page},
    spread::Spread,
};

/// Work is late when it ran longer than this past the moment from which it was of no use; the live suite's own rule.
pub const LATE_AFTER: Nanos = Nanos::from_millis(5);

/// How an operation ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A correct answer with every optional section.
    Ok,
    /// A correct answer in which an optional section was omitted.
    OkDegraded,
    /// Refused for lack of capacity.
    Rejected,
    /// The deadline passed.
    Deadline,
    /// A mandatory dependency refused.
    Unavailable,
    /// The caller lost patience first.
    Departed,
}

impl Outcome {
    /// All of them, successes first.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::OkDegraded, Self::Rejected, Self::Deadline, Self::Unavailable, Self::Departed];

    /// The name used in reports, which is that of the live suite.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OkDegraded => "ok_degraded",
            Self::Rejected => "rejected",
            Self::Deadline => "deadline",
            Self::Unavailable => "unavailable",
            Self::Departed => "departed",
        }
    }

    /// Whether the caller got a correct answer.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Ok | Self::OkDegraded)
    }
}

/// The optional sections.
pub const SECTIONS: [&str; 2] = ["recommendations", "reputation"];

/// Why a section is omitted, by the names that reports use.
pub const CAUSES: [&str; Omission::ALL.len()] = {
    let mut names = [""; Omission::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Omission::ALL[at].as_str();
        at += 1;
    }
    names
};

/// The operations of one class.
#[derive(Clone, Debug, Default)]
pub struct ClassTally {
    /// Operations that were to start in the window.
    pub offered: u64,
    /// Those that have ended, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Correct answers within the objective.
    pub within_objective: u64,
    /// Callers that left before the objective.
    pub departed_before_objective: u64,
    /// Attempts, the first ones included.
    pub attempts: u64,
    /// Omitted sections of correct answers, by section and by the order of [`CAUSES`].
    pub omitted: [[u64; Omission::ALL.len()]; SECTIONS.len()],
    /// Latency of correct answers, from the intended start.
    pub latency: Spread,
}

impl ClassTally {
    /// Correct answers.
    pub fn correct(&self) -> u64 {
        self.outcomes[0] + self.outcomes[1]
    }

    /// Operations that have ended.
    pub fn ended(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Takes over what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        add(&mut self.outcomes, &other.outcomes);
        self.within_objective += other.within_objective;
        self.departed_before_objective += other.departed_before_objective;
        self.attempts += other.attempts;
        for (section, more) in self.omitted.iter_mut().zip(&other.omitted) {
            add(section, more);
        }
        self.latency.merge(&other.latency);
    }
}

/// One second of the window, by the operations that were to start in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SecondTally {
    /// Operations.
    pub offered: u32,
    /// Answered correctly within the objective.
    pub good: u32,
    /// Whose caller left before it.
    pub departed: u32,
    /// Correct answers in which something was omitted.
    pub degraded: u32,
}

impl AddAssign for SecondTally {
    fn add_assign(&mut self, other: Self) {
        self.offered += other.offered;
        self.good += other.good;
        self.departed += other.departed;
        self.degraded += other.degraded;
    }
}

/// What is metered over a window. Sums of two windows are those of both.
#[derive(Clone, Debug, Default)]
pub struct Metered {
    /// Slots held at the endpoint and at the profile client, over time.
    pub held: [u128; 2],
    /// Age of those who got a slot there.
    pub ages: [Spread; 2],
    /// Calls that reached each dependency.
    pub calls: [u64; Dependency::ALL.len()],
    /// Time for which servers were taken.
    pub served: [u128; Dependency::ALL.len()],
    /// CPU time of the hosts.
    pub cpu: u128,
    /// Shared reads, and those who joined one.
    pub flights: u64,
    /// See [`Metered::flights`].
    pub joined: u64,
    /// How often pressure came on.
    pub pressure: u64,
    /// Operations of work that was late, and by how much in all.
    pub late: u64,
    /// See [`Metered::late`].
    pub late_time: u128,
    /// Second reads that were sent beside a first.
    pub hedges: u64,
}

impl Metered {
    /// Takes over what `other` metered.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.held.iter_mut().zip(other.held) {
            *sum += more;
        }
        for (sum, more) in self.ages.iter_mut().zip(&other.ages) {
            sum.merge(more);
        }
        add(&mut self.calls, &other.calls);
        for (sum, more) in self.served.iter_mut().zip(other.served) {
            *sum += more;
        }
        self.cpu += other.cpu;
        self.flights += other.flights;
        self.joined += other.joined;
        self.pressure += other.pressure;
        self.late += other.late;
        self.late_time += other.late_time;
        self.hedges += other.hedges;
    }
}

fn add<const N: usize>(sums: &mut [u64; N], more: &[u64; N]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

/// The account of one domain.
#[derive(Debug, Default)]
pub(crate) struct Account {
    open_window: bool,
    began: Nanos,
    marks: Meters,
    open: u64,
    pub(crate) classes: [ClassTally; WorkloadClass::ALL.len()],
    pub(crate) seconds: Vec<SecondTally>,
    pub(crate) metered: Metered,
}

impl Account {
    /// A window begins: nothing counts that came before it.
    pub(crate) fn begin(&mut self, now: Nanos, seconds: u32) {
        *self = Self {
            open_window: true,
            began: now,
            seconds: vec![SecondTally::default(); seconds as usize],
            ..Self::default()
        };
    }

    /// What the meters show at its beginning.
    pub(crate) const fn mark(&mut self, marks: Meters) {
        self.marks = marks;
    }

    /// The window ends.
    pub(crate) fn end(&mut self, meters: Meters, ages: [Spread; 2]) {
        self.open_window = false;
        let marks = self.marks;
        let metered = &mut self.metered;
        for (at, sum) in metered.held.iter_mut().enumerate() {
            *sum = u128::from(meters.held[at] - marks.held[at]);
        }
        metered.ages = ages;
        for at in 0..Dependency::ALL.len() {
            metered.calls[at] = meters.calls[at] - marks.calls[at];
            metered.served[at] = u128::from((meters.served[at] - marks.served[at]).get());
        }
        metered.cpu = u128::from((meters.cpu - marks.cpu).get());
        metered.flights = meters.flights - marks.flights;
        metered.joined = meters.joined - marks.joined;
        metered.pressure = meters.pressure - marks.pressure;
    }

    /// Operations of the window that have not ended.
    pub(crate) const fn open(&self) -> u64 {
        self.open
    }

    /// An operation is to start.
    #[inline]
    pub(crate) fn offered(&mut self, page: &mut Page, at: Nanos) {
        if !self.open_window {
            return;
        }
        let second = ((at - self.began).get() / 1_000_000_000) as usize;
        if let Some(tally) = self.seconds.get_mut(second) {
            tally.offered += 1;
            page.second = Some(second as u32);
            self.open += 1;
            self.classes[page.class.index()].offered += 1;
        }
    }

    /// An attempt at it begins.
    #[inline]
    pub(crate) fn attempt(&mut self, page: &Page) {
        if page.second.is_some() {
            self.classes[page.class.index()].attempts += 1;
        }
    }

    /// It has ended for its caller.
    #[inline]
    pub(crate) fn concluded(&mut self, page: &Page, outcome: Outcome, at: Nanos, objective: Nanos) {
        let Some(second) = page.second else { return };
        self.open -= 1;
        let took = at - page.started;
        let second = &mut self.seconds[second as usize];
        let class = &mut self.classes[page.class.index()];
        class.outcomes[outcome as usize] += 1;
        if outcome.is_success() {
            class.latency.record(took);
            if took <= objective {
                class.within_objective += 1;
                second.good += 1;
            }
            if outcome == Outcome::OkDegraded {
                second.degraded += 1;
                for (section, omitted) in page.omitted.iter().enumerate() {
                    if let Some(cause) = omitted {
                        class.omitted[section][cause.index()] += 1;
                    }
                }
            }
        } else if outcome == Outcome::Departed && took < objective {
            class.departed_before_objective += 1;
            second.departed += 1;
        }
    }

    /// Work has ended that was of no use from `useless_from` on.
    #[inline]
    pub(crate) fn work_ended(&mut self, useless_from: Nanos, now: Nanos) {
        let by = now - useless_from;
        if self.open_window && by > LATE_AFTER {
            self.metered.late += 1;
            self.metered.late_time += u128::from(by.get());
        }
    }

    /// A second read was sent.
    pub(crate) const fn hedged(&mut self) {
        if self.open_window {
            self.metered.hedges += 1;
        }
    }
}
