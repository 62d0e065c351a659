//! Rules: the faults that are in force. Ordered, the first match wins; each rule ends by itself or when it is cleared.

use std::sync::{Mutex, MutexGuard, PoisonError};

use base::{Dependency, Nanos, WorkloadClass};
use model::{
    draw::CallDraw,
    fault::{FaultEffect, FaultRule},
};
use tokio::sync::watch;

/// Rules in force at one time.
pub(crate) const RULES_MAX: usize = 256;

/// A rule that applies to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) id: u64,
    pub(crate) effect: FaultEffect,
    /// When the rule ends by itself.
    pub(crate) until: Nanos,
}

struct Active {
    id: u64,
    from: Nanos,
    until: Nanos,
    rule: FaultRule,
    /// Came with the scenario's phase, and goes with it.
    scheduled: bool,
}

pub(crate) struct Rules {
    state: Mutex<State>,
    /// Tells hanging calls that a rule went away.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    active: Vec<Active>,
    ids: u64,
}

/// There are too many rules already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Rules {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule that applies from now on.
    pub(crate) fn inject(&self, rule: FaultRule, now: Nanos) -> Result<u64, TooMany> {
        self.state().add(rule, now, now, false)
    }

    /// Replaces the rules of the phase before by those of the one that begins.
    pub(crate) fn schedule(&self, rules: impl IntoIterator<Item = (Nanos, FaultRule)>, now: Nanos) {
        let mut state = self.state();
        state.active.retain(|active| !active.scheduled);
        for (after, rule) in rules {
            if state.add(rule, now + after, now, true).is_err() {
                tracing::error!("the scenario's fault is left out: too many rules are in force");
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Removes one rule, or with 0 all of them. Returns how many.
    pub(crate) fn clear(&self, id: u64) -> usize {
        let mut state = self.state();
        let before = state.active.len();
        state.active.retain(|active| id != 0 && active.id != id);
        let cleared = before - state.active.len();
        drop(state);
        self.changed.send_replace(());
        cleared
    }

    /// The first rule that applies to a call.
    pub(crate) fn find(
        &self,
        dependency: Dependency,
        class: WorkloadClass,
        draw: CallDraw,
        now: Nanos,
    ) -> Option<Applied> {
        let state = self.state();
        let in_force = state.active.iter().filter(|active| active.from <= now && now < active.until);
        let mut matching = in_force.filter(|active| active.rule.applies(dependency, class, draw));
        matching.next().map(|active| Applied {
            id: active.id,
            effect: active.rule.effect,
            until: active.until,
        })
    }

    /// Ends when the rule was cleared.
    pub(crate) async fn cleared(&self, id: u64) {
        let mut changed = self.changed.subscribe();
        while self.state().active.iter().any(|active| active.id == id) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

impl State {
    fn add(&mut self, rule: FaultRule, from: Nanos, now: Nanos, scheduled: bool) -> Result<u64, TooMany> {
        self.active.retain(|active| now < active.until);
        if self.active.len() >= RULES_MAX {
            return Err(TooMany);
        }
        self.ids += 1;
        let until = rule.duration.map_or(Nanos::MAX, |span| from + span);
        self.active.push(Active { id: self.ids, from, until, rule, scheduled });
        Ok(self.ids)
    }
}

#[cfg(test)]
mod tests {
    use model::draw::{Draws, Share};

    use super::*;

    const AT: fn(u64) -> Nanos = Nanos::from_secs;

    fn rule(effect: FaultEffect, secs: Option<u64>) -> FaultRule {
        let duration = secs.map(Nanos::from_secs);
        FaultRule { dependency: Dependency::Pricing, class: None, share: Share::ALL, duration, effect }
    }

    fn found(rules: &Rules, now: Nanos) -> Option<FaultEffect> {
        let draw = Draws::new(1, 1).call(Dependency::Pricing, "FetchPrices", 1, "op", 1);
        rules.find(Dependency::Pricing, WorkloadClass::Standard, draw, now).map(|applied| applied.effect)
    }

    #[test]
    fn the_first_rule_wins_until_it_ends() {
        let rules = Rules::new();
        rules.inject(rule(FaultEffect::Refuse, Some(2)), AT(10)).expect("room");
        let second = rules.inject(rule(FaultEffect::Hang, None), AT(10)).expect("room");
        assert_eq!(found(&rules, AT(11)), Some(FaultEffect::Refuse));
        assert_eq!(found(&rules, AT(12)), Some(FaultEffect::Hang));
        assert_eq!(rules.clear(second), 1);
        assert_eq!(found(&rules, AT(12)), None);
        assert_eq!(rules.clear(0), 1);
    }

    #[test]
    fn rules_of_a_phase_start_later_and_go_with_it_and_injected_ones_stay() {
        let rules = Rules::new();
        rules.schedule([(AT(5), rule(FaultEffect::Reset, None))], AT(10));
        assert_eq!(found(&rules, AT(14)), None);
        assert_eq!(found(&rules, AT(15)), Some(FaultEffect::Reset));
        rules.inject(rule(FaultEffect::Refuse, None), AT(15)).expect("room");
        rules.schedule([], AT(20));
        assert_eq!(found(&rules, AT(20)), Some(FaultEffect::Refuse));
    }

    #[test]
    fn rules_are_bounded_and_ended_ones_make_room() {
        let rules = Rules::new();
        for _ in 0..RULES_MAX {
            rules.inject(rule(FaultEffect::Hang, Some(1)), AT(0)).expect("room");
        }
        assert_eq!(rules.inject(rule(FaultEffect::Hang, None), AT(0)), Err(TooMany));
        assert!(rules.inject(rule(FaultEffect::Hang, None), AT(2)).is_ok());
    }
}
