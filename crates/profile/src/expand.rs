//! Expand: profile's part in the migration: whether it adds summaries to its answers, by the phase that the ledger of decisions says
//! or by its policy, and what it tells about that.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use base::{Identity, Nanos, WallClock};
use model::policy::ServiceName;
use rollout::{
    Phase,
    ledger::Head,
    report::{Counts, ProcessReport},
};
use runtime::{Followed, Follower, Policies};
use summary::{Signed, claims::Policy};

use crate::{
    decide::Profile,
    emit::{Emitter, NotSigned},
};

/// One phase, from its beginning in this process to its end. An answer keeps the one that it began under.
#[derive(Debug, Default)]
pub(crate) struct Era {
    phase: Option<Phase>,
    generation: u64,
    head: Option<Head>,
    counting_since_unix_ms: i64,
    counted: Arc<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    signed: AtomicU64,
    missing: AtomicU64,
    refused: AtomicU64,
    not_emitted: AtomicU64,
}

impl Era {
    /// Whether answers carry summaries: as the phase says, or the policy where none does.
    pub(crate) fn emits(&self, by_policy: bool) -> bool {
        self.phase.map_or(by_policy, Phase::emits)
    }

    /// Counts an answer by what became of its summary, and gives the summary on.
    pub(crate) fn count(&self, emitted: Option<Result<Signed, NotSigned>>) -> Option<Signed> {
        let counter = match &emitted {
            None => &self.counted.not_emitted,
            Some(Ok(_)) => &self.counted.signed,
            Some(Err(NotSigned::PolicyMissing)) => &self.counted.missing,
            Some(Err(NotSigned::PolicyRefused)) => &self.counted.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        emitted.and_then(Result::ok)
    }
}

/// The era in force, and what emits.
pub(crate) struct Expand {
    era: ArcSwap<Era>,
    /// `None` where the process has no key.
    emitter: Option<Emitter>,
    policies: Policies,
    wall: Arc<dyn WallClock>,
    instance: String,
}

impl Expand {
    pub(crate) fn new(
        emitter: Option<Emitter>,
        policies: Policies,
        wall: Arc<dyn WallClock>,
        instance: u128,
    ) -> Self {
        let era = Era { counting_since_unix_ms: wall.unix_ms(), ..Era::default() };
        let instance = format!("{instance:032x}");
        Self { era: ArcSwap::from_pointee(era), emitter, policies, wall, instance }
    }

    /// The era in force.
    pub(crate) fn era(&self) -> Arc<Era> {
        self.era.load_full()
    }

    /// Signs the summary of a profile.
    pub(crate) fn emit(
        &self,
        profile: &Profile,
        identity: &Identity,
        policy: Option<Policy>,
        lifetime: Nanos,
        now_unix_ms: i64,
    ) -> Result<Signed, NotSigned> {
        // No era emits without a key: `unable` keeps the process out of such a phase, and `build` out of such a policy.
        let emitter = self.emitter.as_ref().ok_or(NotSigned::PolicyRefused)?;
        emitter.emit(profile, identity, policy, lifetime, now_unix_ms)
    }

    /// What is told on the admin port.
    pub(crate) fn report(&self) -> ProcessReport {
        let era = self.era();
        let unable = Phase::ALL.into_iter().filter_map(|phase| Some((phase, self.unable(phase)?)));
        let counted = |name: &str, counter: &AtomicU64| (name.to_owned(), counter.load(Ordering::Relaxed));
        let emitted = BTreeMap::from([
            counted("signed", &era.counted.signed),
            counted("policy_missing", &era.counted.missing),
            counted("policy_refused", &era.counted.refused),
            counted("not_emitted", &era.counted.not_emitted),
        ]);
        ProcessReport {
            service: ServiceName::Profile.as_str().to_owned(),
            instance: self.instance.clone(),
            phase: era.phase.unwrap_or_default(),
            generation: era.generation,
            head: era.head.clone(),
            policy_generation: self.policies.current().generation,
            unable: unable.collect(),
            keys: self.emitter.iter().map(Emitter::key_id).collect(),
            revocations: None,
            counting_since_unix_ms: era.counting_since_unix_ms,
            counts: Counts { emitted, ..Counts::default() },
            samples: Vec::new(),
        }
    }
}

impl Follower for Expand {
    fn unable(&self, phase: Phase) -> Option<String> {
        let lacks = phase.emits() && self.emitter.is_none();
        lacks.then(|| "it has no key to sign with: start it with --summary-key FILE".to_owned())
    }

    fn moved(&self, to: Followed) {
        let (phase, generation) =
            to.standing.map_or((None, 0), |standing| (Some(standing.phase), standing.generation));
        let old = self.era();
        let goes_on = old.generation == generation && old.phase == phase;
        let era = Era {
            phase,
            generation,
            head: to.head,
            counting_since_unix_ms: if goes_on { old.counting_since_unix_ms } else { self.wall.unix_ms() },
            counted: if goes_on { Arc::clone(&old.counted) } else { Arc::default() },
        };
        self.era.store(Arc::new(era));
    }
}

#[cfg(test)]
mod tests {
    use base::clock::SystemWallClock;
    use model::policy;
    use rollout::Standing;

    use super::*;

    fn standing(phase: Phase, generation: u64) -> Followed {
        Followed { standing: Some(Standing { phase, generation, since_unix_ms: 0 }), head: None }
    }

    #[test]
    fn figures_belong_to_their_phase_and_outlive_other_decisions() {
        let expand =
            Expand::new(None, Policies::new(policy::Policy::shipped()), Arc::new(SystemWallClock), 7);
        assert!(!expand.era().emits(false) && expand.era().emits(true), "without a phase the policy says");
        expand.moved(standing(Phase::Expand, 2));
        let era = expand.era();
        assert!(era.emits(false));
        assert!(expand.unable(Phase::Expand).is_some(), "there is no key");
        era.count(Some(Err(NotSigned::PolicyMissing)));
        let head = Some(Head { sequence: 3, digest: String::new() });
        expand.moved(Followed { head, ..standing(Phase::Expand, 2) });
        era.count(None);
        let counts = expand.report().counts.emitted;
        assert_eq!((counts["policy_missing"], counts["not_emitted"], counts["signed"]), (1, 1, 0));
        expand.moved(standing(Phase::Shadow, 4));
        era.count(None);
        assert!(
            expand.report().counts.emitted.values().all(|count| *count == 0),
            "a late answer counts for its own"
        );
        expand.moved(standing(Phase::Legacy, 5));
        assert!(!expand.era().emits(true));
    }
}
