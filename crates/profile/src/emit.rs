//! Emit: the entitlement summary that goes with a profile, from the policy version that the profile was resolved under.

use std::sync::Arc;

use base::{Identity, Nanos};
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use summary::{
    Issuer, Signed, Summary,
    claims::{self, Facts, Policy},
};
use tokio::sync::watch;

use crate::decide::Profile;

/// Why a profile goes without a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSigned {
    /// The store sent no policy.
    PolicyMissing,
    /// The policy cannot be applied.
    PolicyRefused,
}

type Outcomes = Family<[(&'static str, &'static str); 1], Counter>;

/// The key in force.
pub(crate) type Key = watch::Receiver<Arc<Issuer>>;

/// Signs what a subject may do.
pub(crate) struct Emitter {
    issuer: Key,
    signed: Counter,
    missing: Counter,
    refused: Counter,
    outcomes: Outcomes,
}

impl Emitter {
    pub(crate) fn new(issuer: Key) -> Self {
        let outcomes = Outcomes::default();
        let outcome = |name| outcomes.get_or_create_owned(&[("outcome", name)]);
        Self {
            issuer,
            signed: outcome("signed"),
            missing: outcome("policy_missing"),
            refused: outcome("policy_refused"),
            outcomes,
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Profiles by what became of the entitlement summary that goes with them";
        registry.register("profile_summaries", help, self.outcomes.clone());
    }

    /// The id of the key that signs.
    pub(crate) fn key_id(&self) -> String {
        self.issuer.borrow().key_id().as_str().to_owned()
    }

    /// The summary of a profile; none when its policy is not there or cannot be applied. The profile itself is sound then,
    /// and who needs the claims asks entitlement, which says what is wrong.
    pub(crate) fn emit(
        &self,
        profile: &Profile,
        identity: &Identity,
        policy: Option<Policy>,
        lifetime: Nanos,
        now_unix_ms: i64,
    ) -> Result<Signed, NotSigned> {
        let Some(policy) = policy else {
            self.missing.inc();
            return Err(NotSigned::PolicyMissing);
        };
        let facts = Facts::new(profile.plan.clone(), profile.segment.clone(), profile.policy_version);
        let entitled = facts.and_then(|facts| claims::entitle(&policy, &facts, identity.region.as_str()));
        let Ok(entitlement) = entitled else {
            self.refused.inc();
            return Err(NotSigned::PolicyRefused);
        };
        self.signed.inc();
        let lifetime_ms = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
        let issuer = Arc::clone(&self.issuer.borrow());
        Ok(issuer.sign(Summary {
            tenant: identity.tenant.clone(),
            subject: identity.subject.clone(),
            region: identity.region.clone(),
            policy_version: entitlement.policy_version,
            revocation_epoch: entitlement.revocation_epoch,
            issued_unix_ms: now_unix_ms,
            expires_unix_ms: now_unix_ms.saturating_add(lifetime_ms),
            claims: entitlement.claims,
        }))
    }
}

#[cfg(test)]
mod tests {
    use base::{Region, Subject, Tenant, WorkloadClass};
    use summary::{Expected, KeyId, KeySet, Mark, Rules, Verifier};

    use super::*;

    const LIFETIME: Nanos = Nanos::from_secs(60);
    const NOW_MS: i64 = 1_795_000_000_000;

    fn identity() -> Identity {
        Identity {
            tenant: Tenant::parse("tenant-007").expect("a tenant"),
            subject: Subject::parse("user-00042").expect("a subject"),
            class: WorkloadClass::Premium,
            region: Region::parse("eu-west").expect("a region"),
        }
    }

    fn profile() -> Profile {
        Profile {
            display_name: "Ines Haddad".to_owned(),
            locale: "en-GB".to_owned(),
            currency_code: "GBP".to_owned(),
            segment: "consumer".to_owned(),
            plan: "plus".to_owned(),
            policy_version: 6,
            home_item_ids: Vec::new(),
        }
    }

    fn policy() -> Policy {
        Policy {
            version: 6,
            revocation_epoch: 2,
            grants: ["page.view", "beta.search"].map(str::to_owned).to_vec(),
            denials: vec!["beta.search".to_owned()],
            ..Policy::default()
        }
    }

    fn issuer(id: &str, seed: u8) -> Arc<Issuer> {
        Arc::new(Issuer::from_seed(KeyId::parse(id).expect("an id"), &[seed; 32]))
    }

    fn emitter() -> Emitter {
        // A receiver keeps the last value when its sender is gone.
        Emitter::new(watch::channel(issuer("test", 3)).1)
    }

    #[test]
    fn a_new_key_signs_from_the_next_summary_on() {
        let (change, key) = watch::channel(issuer("old", 3));
        let emitter = Emitter::new(key);
        let signed =
            || emitter.emit(&profile(), &identity(), Some(policy()), LIFETIME, NOW_MS).expect("signed");
        assert_eq!((signed().key_id.as_str(), emitter.key_id().as_str()), ("old", "old"));
        change.send_replace(issuer("new", 4));
        assert_eq!((signed().key_id.as_str(), emitter.key_id().as_str()), ("new", "new"));
    }

    #[test]
    fn it_is_of_the_policy_that_the_profile_was_resolved_under_and_verifies() {
        let (emitter, identity) = (emitter(), identity());
        let signed = emitter.emit(&profile(), &identity, Some(policy()), LIFETIME, NOW_MS).expect("signed");
        let keys = KeySet::of([&**emitter.issuer.borrow()]).expect("a sound key");
        let rules = Rules { leeway: Nanos::ZERO, lifetime_max: LIFETIME };
        let expected = Expected {
            identity: &identity,
            policy_version: 6,
            mark: Mark::default(),
            rules,
            now_unix_ms: NOW_MS,
        };
        let read = Verifier::new(keys).verify(&signed, &expected).expect("authority");
        assert_eq!(read.claims, ["page.view"]);
        assert_eq!((read.policy_version, read.revocation_epoch), (6, 2));
        assert_eq!(emitter.signed.get(), 1);
    }

    #[test]
    fn what_cannot_be_derived_is_not_signed_and_counted() {
        let emitter = emitter();
        let emit = |policy| emitter.emit(&profile(), &identity(), policy, LIFETIME, NOW_MS);
        assert_eq!(emit(None), Err(NotSigned::PolicyMissing));
        let other_version = Policy { version: 5, ..policy() };
        assert_eq!(emit(Some(other_version)), Err(NotSigned::PolicyRefused));
        let malformed = Policy { denials: vec!["NO".to_owned()], ..policy() };
        assert_eq!(emit(Some(malformed)), Err(NotSigned::PolicyRefused));
        assert_eq!((emitter.missing.get(), emitter.refused.get(), emitter.signed.get()), (1, 2, 0));
    }
}
