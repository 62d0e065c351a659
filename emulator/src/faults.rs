//! Faults: the rules in force. Ordered; the first match wins; a rule ends by itself, with its phase, or when it is cleared.

use base::{Dependency, Nanos, WorkloadClass};
use model::{
    draw::CallDraw,
    fault::{FaultEffect, FaultRule, ScheduledFault},
};
use tokio::sync::watch;

/// Most rules in force at once.
pub const FAULTS_MAX: usize = 256;

/// The rules in force, in order of their start.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    active: Vec<Active>,
    last_id: u64,
}

#[derive(Debug)]
struct Active {
    id: u64,
    rule: FaultRule,
    from: Nanos,
    until: Nanos,
    /// Declared by the scenario for its phase.
    scheduled: bool,
    /// Dropped with the rule, which ends every call that hangs on it.
    in_force: watch::Sender<()>,
}

/// What a matching rule does to a call.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// What happens.
    pub(crate) effect: FaultEffect,
    /// When the rule ends by itself; [`Nanos::MAX`] for never.
    pub(crate) until: Nanos,
    in_force: watch::Receiver<()>,
}

impl Hit {
    /// Ends when the rule is cleared.
    pub(crate) async fn cleared(mut self) {
        while self.in_force.changed().await.is_ok() {}
    }
}

/// There are [`FAULTS_MAX`] rules already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Faults {
    /// Adds a rule behind those in force and returns its id.
    pub(crate) fn inject(&mut self, rule: FaultRule, now: Nanos) -> Result<u64, TooMany> {
        self.add(rule, now, now, false)
    }

    /// Ends the rules of the phase before and begins those that the scenario declares for `phase`.
    pub(crate) fn enter_phase(&mut self, declared: &[ScheduledFault], phase: usize, now: Nanos) {
        self.active.retain(|active| !active.scheduled);
        for fault in declared.iter().filter(|fault| fault.phase == phase) {
            // A scenario declares fewer than there is room for, unless injected rules have taken it.
            if self.add(fault.rule, now, now + fault.after, true).is_err() {
                tracing::warn!(dependency = %fault.rule.dependency, "no room for a fault of the scenario");
            }
        }
    }

    fn add(&mut self, rule: FaultRule, now: Nanos, from: Nanos, scheduled: bool) -> Result<u64, TooMany> {
        self.active.retain(|active| active.until > now);
        if self.active.len() >= FAULTS_MAX {
            return Err(TooMany);
        }
        self.last_id += 1;
        let until = rule.duration.map_or(Nanos::MAX, |span| from + span);
        let in_force = watch::Sender::new(());
        self.active.push(Active { id: self.last_id, rule, from, until, scheduled, in_force });
        Ok(self.last_id)
    }

    /// Removes a rule; 0 removes all. Returns how many were removed, those that had ended by themselves not counted.
    pub(crate) fn clear(&mut self, id: u64, now: Nanos) -> usize {
        self.active.retain(|active| active.until > now);
        let before = self.active.len();
        self.active.retain(|active| id != 0 && active.id != id);
        before - self.active.len()
    }

    /// The first rule that applies to a call.
    pub(crate) fn first(
        &self,
        dependency: Dependency,
        class: WorkloadClass,
        call: CallDraw,
        now: Nanos,
    ) -> Option<Hit> {
        let applies = |active: &&Active| {
            active.from <= now && now < active.until && active.rule.applies(dependency, class, call)
        };
        self.active.iter().find(applies).map(|active| Hit {
            effect: active.rule.effect,
            until: active.until,
            in_force: active.in_force.subscribe(),
        })
    }
}

#[cfg(test)]
mod tests {
    use model::draw::{Draws, Share};

    use super::*;

    const S: Nanos = Nanos::from_secs(1);

    fn rule(effect: FaultEffect, duration: Option<Nanos>) -> FaultRule {
        FaultRule { dependency: Dependency::Pricing, class: None, share: Share::ALL, duration, effect }
    }

    fn first(faults: &Faults, now: Nanos) -> Option<FaultEffect> {
        let call = Draws::new(1, 1).call(Dependency::Pricing, "FetchPrices", 1, "op", 1);
        faults.first(Dependency::Pricing, WorkloadClass::Standard, call, now).map(|hit| hit.effect)
    }

    #[test]
    fn the_first_match_wins_and_ends_by_itself() {
        let mut faults = Faults::default();
        faults.inject(rule(FaultEffect::Refuse, Some(S)), S).expect("room");
        let second = faults.inject(rule(FaultEffect::Hang, None), S).expect("room");
        assert_eq!(first(&faults, S), Some(FaultEffect::Refuse));
        assert_eq!(first(&faults, Nanos::new(S.get() * 2 - 1)), Some(FaultEffect::Refuse));
        assert_eq!(first(&faults, S + S), Some(FaultEffect::Hang));
        assert_eq!(faults.clear(second, S + S), 1);
        assert_eq!(faults.clear(second, S + S), 0);
        assert_eq!(first(&faults, S + S), None);
    }

    #[test]
    fn the_number_of_rules_is_bounded() {
        let mut faults = Faults::default();
        for _ in 0..FAULTS_MAX {
            faults.inject(rule(FaultEffect::Refuse, Some(S)), S).expect("room");
        }
        assert_eq!(faults.inject(rule(FaultEffect::Refuse, None), S), Err(TooMany));
        // Ended rules make room.
        assert!(faults.inject(rule(FaultEffect::Refuse, None), S + S).is_ok());
        assert_eq!(faults.clear(0, S + S), 1);
    }

    #[test]
    fn rules_of_a_phase_begin_after_its_start_and_end_with_it() {
        let scheduled = |phase, after| ScheduledFault { phase, after, rule: rule(FaultEffect::Refuse, None) };
        let declared = [scheduled(1, S), scheduled(2, Nanos::ZERO)];
        let mut faults = Faults::default();
        faults.inject(rule(FaultEffect::Hang, Some(S)), Nanos::ZERO).expect("room");
        faults.enter_phase(&declared, 1, S);
        assert_eq!(first(&faults, S), None, "the injected one has ended, the declared one not begun");
        assert_eq!(first(&faults, S + S), Some(FaultEffect::Refuse));
        faults.enter_phase(&declared, 0, S + S);
        assert_eq!(first(&faults, S + S), None);
    }

    #[tokio::test]
    async fn clearing_a_rule_ends_what_hangs_on_it() {
        let mut faults = Faults::default();
        let id = faults.inject(rule(FaultEffect::Hang, None), S).expect("room");
        let call = Draws::new(1, 1).call(Dependency::Pricing, "FetchPrices", 1, "op", 1);
        let hit = faults.first(Dependency::Pricing, WorkloadClass::Standard, call, S).expect("a hit");
        let hanging = hit.cleared();
        tokio::pin!(hanging);
        assert!(futures_util::poll!(hanging.as_mut()).is_pending());
        faults.clear(id, S);
        hanging.await;
    }
}
