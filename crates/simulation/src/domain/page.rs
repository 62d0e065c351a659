//! Page: one home page under way, and the table of all of them.

use std::ops::{Index, IndexMut};

use base::{Deadline, Identity, Nanos, Region, Subject, Tenant, WorkloadClass};
use control::{coalescing::WaiterId, degradation::Omission};
use model::{names, policy::Mechanism, workload::Arrival};

use super::read::ReadId;
use crate::boundary::{Place, Slot};

/// A page's place in the table.
pub(crate) type PageId = u32;

/// Where a page is.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Nowhere: it is between two steps, or its work is over.
    #[default]
    Idle,
    /// It waits in its place for a slot of the endpoint.
    Queued,
    /// Its own read of the profile is out.
    Reading(ReadId),
    /// It waits for a read that it shares.
    Flight(WaiterId),
    /// The entitlement call is out; whole unless it will be cut.
    Claims { whole: bool },
    /// The branches are out and processors work for it; whole unless something that it needs will be cut.
    FanOut { whole: bool },
    /// Its caller waits before another attempt.
    Backoff,
}

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) class: WorkloadClass,
    pub(crate) tenant: u32,
    pub(crate) subject: u32,
    region: u8,
    /// Keys the draws of its operation.
    pub(crate) operation: u64,
    pub(crate) attempt: u32,
    /// Tells a page from an earlier one in the same place of the table.
    pub(crate) serial: u64,
    /// When its caller first meant to ask.
    pub(crate) started: Nanos,
    /// When its caller leaves, whatever comes.
    pub(crate) departs: Nanos,
    /// When this attempt arrived.
    pub(crate) arrived: Nanos,
    /// The deadline that the rules reckon with.
    pub(crate) intended: Deadline,
    /// Which mechanisms act, by their place.
    pub(crate) mechanisms: u8,
    pub(crate) stage: Stage,
    /// Where it waits for a slot of the endpoint.
    pub(crate) place: Option<Box<Place>>,
    pub(crate) slot: Option<Slot>,
    /// Whether its own event is scheduled.
    pub(crate) stepping: bool,
    /// Whether anything works for it.
    pub(crate) working: bool,
    /// Whether the shell holds it for its caller.
    pub(crate) in_shell: bool,
    /// Since when nobody waits for it.
    pub(crate) left: Option<Nanos>,
    /// What was left out of it, by section.
    pub(crate) omitted: [Option<Omission>; 2],
    /// The second of the window in which it was asked for; none outside the window.
    pub(crate) second: Option<u32>,
}

impl Page {
    fn new(arrival: &Arrival, departs: Nanos, operation: u64, serial: u64) -> Self {
        let mut page = Self {
            class: arrival.class,
            tenant: 0,
            subject: 0,
            region: 0,
            operation: 0,
            attempt: 1,
            serial: 0,
            started: Nanos::ZERO,
            departs: Nanos::MAX,
            arrived: Nanos::ZERO,
            intended: Deadline::at(Nanos::MAX),
            mechanisms: 0,
            stage: Stage::Idle,
            place: None,
            slot: None,
            stepping: false,
            working: false,
            in_shell: false,
            left: None,
            omitted: [None; 2],
            second: None,
        };
        page.renew(arrival, departs, operation, serial);
        page
    }

    /// Makes it a new one. It holds nothing, waits nowhere and has no event, since the one before it has ended.
    fn renew(&mut self, arrival: &Arrival, departs: Nanos, operation: u64, serial: u64) {
        (self.class, self.region) = (arrival.class, arrival.region);
        (self.tenant, self.subject) = (arrival.tenant, arrival.subject);
        (self.operation, self.attempt, self.serial) = (operation, 1, serial);
        (self.started, self.arrived, self.departs) = (arrival.at, arrival.at, departs);
        (self.left, self.second) = (None, None);
        self.omitted = [None; 2];
    }

    /// Whether a mechanism acts on it.
    #[inline]
    pub(crate) const fn acts(&self, mechanism: Mechanism) -> bool {
        self.mechanisms >> mechanism.index() & 1 == 1
    }

    /// What its work is bounded by; nothing but timeouts where the deadline does not act.
    #[inline]
    pub(crate) fn enforced(&self) -> Option<Deadline> {
        self.acts(Mechanism::Deadline).then_some(self.intended)
    }

    /// From when on work for it is cut because its caller is gone.
    #[inline]
    pub(crate) const fn abandoned_at(&self) -> Nanos {
        if self.acts(Mechanism::Cancellation) { self.departs } else { Nanos::MAX }
    }

    pub(crate) fn take_stage(&mut self) -> Stage {
        std::mem::take(&mut self.stage)
    }

    /// Who asks, by name, as the policy's scopes know it.
    pub(crate) fn identity(&self) -> Identity {
        const NAMED: &str = "the names of the data set are well formed";
        Identity {
            tenant: Tenant::parse(&names::tenant(self.tenant)).expect(NAMED),
            subject: Subject::parse(&names::subject(self.subject)).expect(NAMED),
            class: self.class,
            region: Region::parse(names::REGIONS[usize::from(self.region)]).expect(NAMED),
        }
    }
}

/// All pages under way. As long as it was at its fullest.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    table: Vec<Page>,
    free: Vec<PageId>,
    serial: u64,
}

impl Pages {
    /// Gives a page its place.
    pub(crate) fn take(&mut self, arrival: &Arrival, departs: Nanos, operation: u64) -> PageId {
        self.serial += 1;
        if let Some(id) = self.free.pop() {
            self.table[id as usize].renew(arrival, departs, operation, self.serial);
            return id;
        }
        self.table.push(Page::new(arrival, departs, operation, self.serial));
        (self.table.len() - 1) as PageId
    }

    /// Frees the place of a page that is over.
    pub(crate) fn free(&mut self, id: PageId) {
        self.table[id as usize].serial = 0;
        self.free.push(id);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.len() == self.free.len()
    }
}

impl Index<PageId> for Pages {
    type Output = Page;

    fn index(&self, id: PageId) -> &Page {
        &self.table[id as usize]
    }
}

impl IndexMut<PageId> for Pages {
    fn index_mut(&mut self, id: PageId) -> &mut Page {
        &mut self.table[id as usize]
    }
}
