//! Era: the phase of the migration that pages are served under, with what they show while it lasts. A page keeps the era that it
//! was admitted under, so that no page mixes two phases and no figure counts for a phase that it was not made in.

use std::sync::Arc;

use base::Identity;
use control::mode::{Decision, Mode};
use model::policy::{Mechanism, Policy};
use rollout::{Phase, ledger::Head};

use crate::tally::Tally;

/// One phase, from its beginning in this process to its end.
#[derive(Debug, Default)]
pub(crate) struct Era {
    /// The phase that the ledger says; `None` where the policy says.
    pub(crate) phase: Option<Phase>,
    /// The decision that put it there; 0 where the policy says.
    pub(crate) generation: u64,
    /// The last decision that was read.
    pub(crate) head: Option<Head>,
    /// Since when it counts, in milliseconds since the Unix epoch.
    pub(crate) counting_since_unix_ms: i64,
    /// What it saw.
    pub(crate) tally: Arc<Tally>,
}

impl Era {
    /// What the summary does for a request.
    pub(crate) fn summary(&self, policy: &Policy, identity: &Identity) -> Decision {
        let everybody = |mode| Decision { mode, in_scope: mode != Mode::Off };
        let rollout = policy.mechanism(Mechanism::Summary);
        match self.phase {
            None => rollout.applies(identity),
            Some(Phase::Legacy | Phase::Expand) => everybody(Mode::Off),
            Some(Phase::Shadow) => everybody(Mode::Shadow),
            // Who is not among the first is still compared, so that the canary goes on to be checked.
            Some(Phase::Canary) if !rollout.covers(identity) => everybody(Mode::Shadow),
            Some(Phase::Canary | Phase::Cutover | Phase::Contract) => everybody(Mode::On),
        }
    }

    /// Whether the entitlement call is there.
    pub(crate) fn has_call(&self, policy: &Policy) -> bool {
        self.phase.map_or(policy.summary.call, Phase::has_call)
    }

    /// Whether summaries are read at all.
    pub(crate) fn reads(&self, policy: &Policy) -> bool {
        self.phase.map_or(policy.mechanism(Mechanism::Summary).mode() != Mode::Off, Phase::reads)
    }
}

#[cfg(test)]
mod tests {
    use base::{Region, Subject, Tenant, WorkloadClass};
    use model::policy::{SHIPPED, overlay};

    use super::*;

    fn subject(number: u32) -> Identity {
        Identity {
            tenant: Tenant::parse("tenant-001").expect("well formed"),
            subject: Subject::parse(&format!("user-{number:05}")).expect("well formed"),
            class: WorkloadClass::Standard,
            region: Region::parse("eu-west").expect("well formed"),
        }
    }

    fn era(phase: Phase) -> Era {
        Era { phase: Some(phase), ..Era::default() }
    }

    #[test]
    fn each_phase_does_what_its_name_says_and_the_canary_keeps_its_subjects() {
        let policy = Policy::shipped();
        let modes = |phase| {
            let of = |number| era(phase).summary(&policy, &subject(number));
            (0..1_000).fold([0_u32; 3], |mut counts, number| {
                let decision = of(number);
                counts[usize::from(decision.computes()) + usize::from(decision.acts())] += 1;
                counts
            })
        };
        assert_eq!(modes(Phase::Legacy), [1_000, 0, 0]);
        assert_eq!(modes(Phase::Expand), [1_000, 0, 0]);
        assert_eq!(modes(Phase::Shadow), [0, 1_000, 0]);
        let [off, shadow, on] = modes(Phase::Canary);
        assert_eq!(off, 0);
        // Ten percent of them, by a hash: 100 expected, deviation 9.5.
        assert!((60..140).contains(&on) && shadow + on == 1_000, "{on}");
        assert_eq!(modes(Phase::Cutover), [0, 0, 1_000]);
        assert_eq!(modes(Phase::Contract), [0, 0, 1_000]);
        assert!(!era(Phase::Contract).has_call(&policy) && era(Phase::Cutover).has_call(&policy));
    }

    #[test]
    fn without_a_ledger_the_policy_says() {
        let changes = "[mechanisms.summary]\nmode = \"on\"\nclasses = [\"premium\"]\npercent = 100\n[summary]\ncall = false\n";
        let text = overlay(SHIPPED, ("changes", changes)).expect("valid");
        let policy = Policy::parse("changed", &text).expect("valid");
        let premium = Identity { class: WorkloadClass::Premium, ..subject(1) };
        let era = Era::default();
        assert!(era.summary(&policy, &premium).acts());
        assert!(!era.summary(&policy, &subject(1)).computes());
        assert!(era.reads(&policy) && !era.has_call(&policy));
        assert!(!Era::default().reads(&Policy::shipped()));
    }
}
