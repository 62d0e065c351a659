//! Applied: which mechanisms apply to one request, decided once from the policy snapshot and the identity.

use std::fmt::Write as _;

use base::{Deadline, Identity, Nanos};
use control::mode::{Decision, Mode};
use model::policy::{Mechanism, Policy};

use crate::era::Era;

/// Every mechanism's decision about one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied([Decision; Mechanism::ALL.len()]);

impl Applied {
    pub(crate) fn of(policy: &Policy, era: &Era, identity: &Identity) -> Self {
        Self(Mechanism::ALL.map(|mechanism| match mechanism {
            Mechanism::Summary => era.summary(policy, identity),
            other => policy.mechanism(other).applies(identity),
        }))
    }

    /// What a mechanism does for the request.
    pub(crate) const fn of_mechanism(&self, mechanism: Mechanism) -> Decision {
        self.0[mechanism.index()]
    }

    /// Whether a mechanism acts on the request.
    pub(crate) const fn acts(&self, mechanism: Mechanism) -> bool {
        self.of_mechanism(mechanism).acts()
    }

    /// What the answer says about them: those that act or decide in shadow, as `name=on,name=shadow`.
    pub(crate) fn header(&self) -> String {
        let mut text = String::with_capacity(96);
        for mechanism in Mechanism::ALL {
            let decision = self.of_mechanism(mechanism);
            if decision.computes() {
                let comma = if text.is_empty() { "" } else { "," };
                let mode = if decision.acts() { Mode::On } else { Mode::Shadow };
                let _ = write!(text, "{comma}{mechanism}={mode}"); // Writing to a String cannot fail.
            }
        }
        text
    }
}

/// When a page's work must be over, as the deadline mechanism sees it and as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// What the rules reckon with: the caller's own deadline, or the objective when it named none.
    pub(crate) intended: Deadline,
    /// What work is bounded by; without the mechanism nothing bounds it but the timeouts of the branches.
    pub(crate) enforced: Option<Deadline>,
}

impl Term {
    /// Of a request that arrived at `arrived` and that the shell cuts at `shell`. `asked` says whether the caller named a
    /// deadline itself.
    pub(crate) fn of(
        policy: &Policy,
        decision: Decision,
        arrived: Nanos,
        shell: Deadline,
        asked: bool,
    ) -> Self {
        let objective = Deadline::after(arrived, policy.objective);
        let intended = if asked { shell } else { shell.min(objective) };
        Self { intended, enforced: decision.acts().then_some(intended) }
    }
}

#[cfg(test)]
mod tests {
    use base::{Region, Subject, Tenant, WorkloadClass};
    use model::policy::{LEGACY, SHIPPED, overlay};

    use super::*;

    fn someone() -> Identity {
        Identity {
            tenant: Tenant::parse("tenant-001").expect("well formed"),
            subject: Subject::parse("user-00001").expect("well formed"),
            class: WorkloadClass::Standard,
            region: Region::parse("eu-west").expect("well formed"),
        }
    }

    #[test]
    fn the_header_names_what_applies_and_nothing_else() {
        let applied = Applied::of(&Policy::shipped(), &Era::default(), &someone());
        assert_eq!(applied.header(), "deadline=on,cancellation=on,admission=on,coalescing=on,degradation=on");
        let legacy = Policy::parse(LEGACY.0, LEGACY.1).expect("valid");
        assert_eq!(Applied::of(&legacy, &Era::default(), &someone()).header(), "");
        let changes = "[mechanisms.admission]\nmode = \"shadow\"\nclasses = [\"premium\"]\n[mechanisms.deadline]\nmode = \"shadow\"\n";
        let text = overlay(SHIPPED, ("changes", changes)).expect("valid");
        let mixed = Policy::parse("mixed", &text).expect("valid");
        assert_eq!(
            Applied::of(&mixed, &Era::default(), &someone()).header(),
            "deadline=shadow,cancellation=on,coalescing=on,degradation=on"
        );
    }

    #[test]
    fn the_objective_bounds_those_who_named_no_deadline() {
        let policy = Policy::shipped();
        let on = Applied::of(&policy, &Era::default(), &someone()).of_mechanism(Mechanism::Deadline);
        let legacy = Policy::parse(LEGACY.0, LEGACY.1).expect("valid");
        let off = Applied::of(&legacy, &Era::default(), &someone()).of_mechanism(Mechanism::Deadline);
        let (arrived, shell) = (Nanos::from_secs(1), Deadline::at(Nanos::from_secs(3)));
        let objective = Deadline::at(Nanos::from_millis(1_300));
        assert_eq!(Term::of(&policy, on, arrived, shell, false).enforced, Some(objective));
        assert_eq!(Term::of(&policy, on, arrived, shell, true).enforced, Some(shell));
        let without = Term::of(&legacy, off, arrived, shell, false);
        assert_eq!((without.intended, without.enforced), (objective, None));
    }
}
