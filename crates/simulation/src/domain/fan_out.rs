//! Fan-out: the claims, and the five branches at once beside what the page costs in CPU. Their ends are known when they begin,
//! so a page needs one event for all of them.

use base::{Deadline, Dependency, Nanos};
use control::degradation::{self, Omission, Pressure};
use model::policy::Mechanism;

use super::{Domain, PageId, Stage};
use crate::{servers::Booking, tally::Outcome};

/// The branches that a page cannot be without, in the order in which they are sent.
const MANDATORY: [Dependency; 3] = [Dependency::Inventory, Dependency::Pricing, Dependency::Experiment];
/// The optional ones; the position is that of the section.
const OPTIONAL: [Dependency; 2] = [Dependency::Recommendation, Dependency::Reputation];

/// How a call fares for its page.
#[derive(Clone, Copy)]
enum Call {
    /// Answered at the instant.
    Answered(Nanos),
    /// Cut at the instant, by its deadline or because the page's caller leaves.
    Cut(Nanos),
    Refused,
}

impl Domain<'_> {
    /// Whether a mandatory branch runs, where the deadline acts.
    pub(super) fn may_run(&self, page: PageId, branch: Dependency) -> bool {
        let entry = &self.pages[page];
        !entry.acts(Mechanism::Deadline)
            || self
                .terms
                .rules
                .mandatory(entry.intended, self.now, self.terms.worst_useful[branch.index()])
                .granted()
                .is_ok()
    }

    /// Until when a mandatory call of the page may take.
    fn budget(&self, page: PageId, branch: Dependency) -> Deadline {
        match self.pages[page].enforced() {
            Some(deadline) => deadline.less(self.terms.rules.response_reserve),
            None => Deadline::after(self.now, self.terms.independent[branch.index()]),
        }
    }

    /// Sends a call that may take until `budget`.
    fn call(&mut self, page: PageId, branch: Dependency, budget: Deadline) -> Call {
        let entry = &self.pages[page];
        let at = branch.index();
        let cut = budget.less(self.terms.hop_reserve[at]).instant().min(entry.abandoned_at());
        if cut <= self.now {
            return Call::Cut(self.now);
        }
        let call = self.draws.of_operation(branch, entry.operation, entry.attempt);
        let service = self.phase.dependency(branch).latency.draw(call, entry.class);
        match self.servers[at].book(self.now, service, cut) {
            Booking::Served { end, whole: true, .. } => Call::Answered(end),
            Booking::Served { whole: false, .. } | Booking::Waited => Call::Cut(cut),
            Booking::Refused => Call::Refused,
        }
    }

    /// The claims: with the profile, or from a call of their own.
    pub(super) fn claims(&mut self, page: PageId) {
        const BRANCH: Dependency = Dependency::Entitlement;
        if self.pages[page].acts(Mechanism::Summary) {
            return self.fan_out(page);
        }
        if !self.may_run(page, BRANCH) {
            return self.refused(page, Outcome::Deadline);
        }
        let (end, whole) = match self.call(page, BRANCH, self.budget(page, BRANCH)) {
            Call::Answered(end) => (end, true),
            Call::Cut(end) => (end, false),
            Call::Refused => return self.refused(page, Outcome::Unavailable),
        };
        self.wait_until(page, end, whole, Stage::Claims { whole });
    }

    /// Puts a page where it waits for calls that end at `end`. One whose caller is gone by then is ended by that.
    fn wait_until(&mut self, page: PageId, end: Nanos, whole: bool, stage: Stage) {
        if whole || end < self.pages[page].abandoned_at() {
            self.set_step(page, end);
        }
        self.pages[page].stage = stage;
    }

    /// The five branches. The first mandatory failure ends the others.
    pub(super) fn fan_out(&mut self, page: PageId) {
        if !MANDATORY.iter().all(|branch| self.may_run(page, *branch)) {
            return self.refused(page, Outcome::Deadline);
        }
        let mut end = self.now;
        let mut whole = true;
        for branch in MANDATORY {
            match self.call(page, branch, self.budget(page, branch)) {
                Call::Answered(at) => end = end.max(at),
                Call::Cut(at) => (end, whole) = (end.max(at), false),
                // Nobody has noticed the calls before it yet; they are as if they had not been sent.
                Call::Refused => return self.refused(page, Outcome::Unavailable),
            }
        }
        for (section, branch) in OPTIONAL.into_iter().enumerate() {
            let required = branch == Dependency::Recommendation
                && self.system.recommendation_required[self.pages[page].class.index()];
            let (omitted, at) = self.optional(page, branch, required);
            end = end.max(at);
            self.pages[page].omitted[section] = omitted;
            if required && omitted.is_some() {
                whole = false;
            }
        }
        let (processed, in_time) = self.processed(page);
        (end, whole) = (end.max(processed), whole && in_time);
        self.wait_until(page, end, whole, Stage::FanOut { whole });
    }

    /// An optional branch: why it is not part of the page, if it is not, and when that is known.
    fn optional(&mut self, page: PageId, branch: Dependency, required: bool) -> (Option<Omission>, Nanos) {
        let budget = match self.may_start(page, branch, required) {
            Ok(budget) => budget,
            Err(omission) => return (Some(omission), self.now),
        };
        match self.call(page, branch, budget) {
            Call::Answered(at) => (None, at),
            Call::Cut(at) => (Some(Omission::Timeout), at),
            Call::Refused => (Some(Omission::Overload), self.now),
        }
    }

    /// Whether an optional branch starts, and until when it may take.
    fn may_start(&mut self, page: PageId, branch: Dependency, required: bool) -> Result<Deadline, Omission> {
        let enabled = self.terms.enabled[branch.index()];
        let entry = &self.pages[page];
        let (intended, acts) = (entry.intended, entry.acts(Mechanism::Degradation));
        if required || !acts {
            let budget = self.budget(page, branch);
            return if enabled { Ok(budget) } else { Err(Omission::Disabled) };
        }
        let left = self.terms.rules.optional(intended, self.now);
        let pressure = if self.hold.is_on(self.now) {
            let floor = self.system.policy.degradation.floor;
            Pressure::On { budget_min: floor.saturating_sub(self.terms.rules.response_reserve) }
        } else {
            Pressure::Off
        };
        degradation::start(enabled, left, pressure)?;
        Ok(intended.less(self.terms.rules.response_reserve))
    }

    /// When the page's share of the processors has been worked off, and whether that is in time.
    fn processed(&mut self, page: PageId) -> (Nanos, bool) {
        let Some(processors) = &mut self.processors else { return (self.now, true) };
        let entry = &self.pages[page];
        let last = entry.enforced().map_or(Nanos::MAX, Deadline::instant).min(entry.abandoned_at());
        let (mut end, mut in_time) = (self.now, true);
        for _ in 0..self.bursts {
            match processors.book(self.now, self.cpu, last) {
                Booking::Served { end: at, whole, .. } => (end, in_time) = (end.max(at), in_time && whole),
                Booking::Waited | Booking::Refused => (end, in_time) = (last, false),
            }
        }
        (end, in_time)
    }
}
