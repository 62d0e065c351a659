//! Authority: whether a summary may stand for the entitlement call. What the signature, the times and the marks say is decided in
//! `summary`; here is what this process knows: its keys, the marks of the tenants, and how old its word on revocations is.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use base::{Clock, Identity, Nanos, Tenant, WallClock};
use model::policy::SummaryPolicy;
use rollout::report::StreamReport;
use summary::{Expected, Mark, Marks, Rejection, Rules, Signed, Summary, Verifier};
use tokio::sync::watch;

/// Why there is no authority in a summary. Closed: each is a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoAuthority {
    /// Profile sent none.
    Missing,
    /// For longer than its bound nothing was heard of revocations, or not everything yet.
    StaleRevocations,
    /// It was refused.
    Rejected(Rejection),
}

impl NoAuthority {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::StaleRevocations => "stale_revocations",
            Self::Rejected(rejection) => rejection.as_str(),
        }
    }
}

impl fmt::Display for NoAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The keys in force.
pub(crate) type Keys = watch::Receiver<Arc<Verifier>>;

/// What a process knows about summaries.
pub(crate) struct Authority {
    /// `None` where the process was started without any.
    keys: Option<Keys>,
    marks: Mutex<Marks>,
    /// Tells the marks' file that one rose.
    raised: watch::Sender<u64>,
    heard: Heard,
    /// Whether the last write of the marks failed.
    unwritten: AtomicBool,
    clock: Arc<dyn Clock>,
    wall: Arc<dyn WallClock>,
}

/// The stream of revocations, as far as it was heard.
#[derive(Debug, Default)]
struct Heard {
    /// Whether every tenant's epoch was told at least once.
    complete: AtomicBool,
    /// When the last message of a complete stream came.
    at: AtomicU64,
    messages: AtomicU64,
}

impl Authority {
    pub(crate) fn new(
        keys: Option<Keys>,
        marks: Marks,
        clock: Arc<dyn Clock>,
        wall: Arc<dyn WallClock>,
    ) -> Self {
        let (marks, raised, heard) = (Mutex::new(marks), watch::Sender::new(0), Heard::default());
        let unwritten = AtomicBool::new(false);
        Self { keys, marks, raised, heard, unwritten, clock, wall }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a summary says, as far as it can be believed by itself; the word on revocations may be old. Accepted, it raises
    /// its tenant's mark.
    pub(crate) fn read(
        &self,
        policy: &SummaryPolicy,
        identity: &Identity,
        policy_version: u64,
        signed: &Signed,
    ) -> Result<Summary, Rejection> {
        let verifier = self.keys.as_ref().map(|keys| Arc::clone(&keys.borrow())).ok_or(Rejection::NoKeys)?;
        let mark = self.marks().of(&identity.tenant);
        let now_unix_ms = self.wall.unix_ms();
        let rules = Rules { leeway: policy.leeway, lifetime_max: policy.lifetime_max };
        let expected = Expected { identity, policy_version, mark, rules, now_unix_ms };
        let summary = verifier.verify(signed, &expected)?;
        // Verifying takes its time: a revocation that was heard of meanwhile counts, and the mark is looked at once more.
        let seen =
            Mark { policy_version: summary.policy_version, revocation_epoch: summary.revocation_epoch };
        let mut marks = self.marks();
        marks.of(&identity.tenant).admits(seen.policy_version, seen.revocation_epoch)?;
        let rose = marks.raise(&identity.tenant, seen);
        drop(marks);
        if rose {
            self.raised.send_modify(|times| *times += 1);
        }
        Ok(summary)
    }

    /// What a summary says, when it may stand for the call.
    pub(crate) fn judge(
        &self,
        policy: &SummaryPolicy,
        identity: &Identity,
        policy_version: u64,
        signed: Option<&Signed>,
    ) -> Result<Summary, NoAuthority> {
        let signed = signed.ok_or(NoAuthority::Missing)?;
        // Of a tenant that there was no room for no word is kept, and so none is fresh.
        if !self.is_fresh(policy.staleness_max) || !self.marks().covers(&identity.tenant) {
            return Err(NoAuthority::StaleRevocations);
        }
        self.read(policy, identity, policy_version, signed).map_err(NoAuthority::Rejected)
    }

    /// A message of the stream: epochs, and whether all have been told. False when it says what cannot be right: it was not
    /// listened to then, since believing it would shut out everything that comes after.
    pub(crate) fn hear(&self, epochs: &[(Tenant, u64)], complete: bool) -> bool {
        let mut marks = self.marks();
        let absurd = |(tenant, epoch): &(Tenant, u64)| {
            let known = marks.of(tenant);
            *epoch > known.revocation_epoch && known.admits(known.policy_version, *epoch).is_err()
        };
        if epochs.iter().any(absurd) {
            return false;
        }
        let mut rose = false;
        for (tenant, revocation_epoch) in epochs {
            let told = Mark { policy_version: 0, revocation_epoch: *revocation_epoch };
            rose |= marks.raise(tenant, told);
        }
        drop(marks);
        if rose {
            self.raised.send_modify(|times| *times += 1);
        }
        self.heard.messages.fetch_add(1, Ordering::Relaxed);
        if complete {
            self.heard.at.store(self.clock.now().get(), Ordering::Relaxed);
            self.heard.complete.store(true, Ordering::Release);
        }
        true
    }

    /// The revocation epoch of a tenant, as far as it was heard of.
    pub(crate) fn epoch(&self, tenant: &Tenant) -> u64 {
        self.marks().of(tenant).revocation_epoch
    }

    /// Whether the last write of the marks reached the disk.
    pub(crate) fn marks_are_kept(&self, kept: bool) {
        self.unwritten.store(!kept, Ordering::Relaxed);
    }

    /// Whether marks reach the disk, as far as is known.
    pub(crate) fn keeps_marks(&self) -> bool {
        !self.unwritten.load(Ordering::Relaxed)
    }

    fn silent(&self) -> Option<Nanos> {
        let complete = self.heard.complete.load(Ordering::Acquire);
        let at = Nanos::new(self.heard.at.load(Ordering::Relaxed));
        complete.then(|| self.clock.now().saturating_sub(at))
    }

    /// Whether the word on revocations is young enough to rely on.
    fn is_fresh(&self, staleness_max: Nanos) -> bool {
        self.silent().is_some_and(|silent| silent <= staleness_max)
    }

    /// The stream, for who asks.
    pub(crate) fn stream(&self, staleness_max: Nanos) -> StreamReport {
        StreamReport {
            fresh: self.is_fresh(staleness_max),
            silent_ms: self.silent().map(Nanos::as_millis),
            heard: self.heard.messages.load(Ordering::Relaxed),
        }
    }

    /// Ids of the keys whose signatures are accepted.
    pub(crate) fn key_ids(&self) -> Vec<String> {
        let ids = |keys: &Keys| keys.borrow().keys().ids().map(|id| id.as_str().to_owned()).collect();
        self.keys.as_ref().map(ids).unwrap_or_default()
    }

    /// The marks as they are.
    pub(crate) fn snapshot(&self) -> Marks {
        self.marks().clone()
    }

    /// Changes whenever a mark rises.
    pub(crate) fn raised(&self) -> watch::Receiver<u64> {
        self.raised.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use base::{Region, Subject, WorkloadClass, clock::SystemWallClock};
    use model::policy::Policy;
    use summary::{Issuer, KeyId, KeySet};

    use super::*;

    /// A clock that stands where it was set.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Nanos {
            Nanos::new(self.0.load(Ordering::Relaxed))
        }
    }

    const STALENESS_MAX: Nanos = Nanos::from_secs(30);

    fn issuer() -> Issuer {
        Issuer::from_seed(KeyId::parse("one").expect("an id"), &[3; 32])
    }

    fn authority() -> (Authority, Arc<Hand>) {
        let clock = Arc::new(Hand::default());
        let verifier = Verifier::new(KeySet::of([&issuer()]).expect("a key"));
        let keys = watch::channel(Arc::new(verifier)).1;
        let (held, wall) = (Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(SystemWallClock));
        (Authority::new(Some(keys), Marks::default(), held, wall), clock)
    }

    fn identity() -> Identity {
        Identity {
            tenant: Tenant::parse("tenant-007").expect("a tenant"),
            subject: Subject::parse("user-00042").expect("a subject"),
            class: WorkloadClass::Premium,
            region: Region::parse("eu-west").expect("a region"),
        }
    }

    fn signed(revocation_epoch: u64) -> Signed {
        let Identity { tenant, subject, region, .. } = identity();
        let now = SystemWallClock.unix_ms();
        issuer().sign(Summary {
            tenant,
            subject,
            region,
            policy_version: 6,
            revocation_epoch,
            issued_unix_ms: now,
            expires_unix_ms: now + 60_000,
            claims: vec!["page.view".to_owned()],
        })
    }

    fn judged(authority: &Authority, signed: &Signed) -> Result<(), NoAuthority> {
        authority.judge(&Policy::shipped().summary, &identity(), 6, Some(signed)).map(drop)
    }

    #[test]
    fn there_is_none_before_everything_was_told_nor_once_the_word_is_old() {
        let (authority, clock) = authority();
        let sound = signed(3);
        let missing = authority.judge(&Policy::shipped().summary, &identity(), 6, None).map(drop);
        assert_eq!(missing, Err(NoAuthority::Missing));
        assert_eq!(judged(&authority, &sound), Err(NoAuthority::StaleRevocations));
        assert!(authority.hear(&[(identity().tenant, 3)], false));
        assert_eq!(judged(&authority, &sound), Err(NoAuthority::StaleRevocations), "there is more to come");
        assert!(authority.hear(&[], true));
        assert_eq!(judged(&authority, &sound), Ok(()));
        clock.0.store(STALENESS_MAX.get(), Ordering::Relaxed);
        assert_eq!(judged(&authority, &sound), Ok(()), "at its bound");
        clock.0.store(STALENESS_MAX.get() + 1, Ordering::Relaxed);
        assert_eq!(judged(&authority, &sound), Err(NoAuthority::StaleRevocations));
    }

    #[test]
    fn what_was_read_before_a_revocation_is_none_when_it_is_delivered_after_it() {
        let (authority, _clock) = authority();
        assert!(authority.hear(&[(identity().tenant, 3)], true));
        // One read, shared by two pages: the first gets it before the word comes, the second after it.
        let shared = signed(3);
        assert_eq!(judged(&authority, &shared), Ok(()));
        assert!(authority.hear(&[(identity().tenant, 4)], true));
        assert_eq!(judged(&authority, &shared), Err(NoAuthority::Rejected(Rejection::Revoked)));
        assert_eq!(judged(&authority, &signed(4)), Ok(()));
        assert_eq!(authority.epoch(&identity().tenant), 4);
    }

    #[test]
    fn an_epoch_that_cannot_be_right_is_not_listened_to_and_shuts_nobody_out() {
        let (authority, _clock) = authority();
        assert!(authority.hear(&[(identity().tenant, 3)], true));
        assert!(!authority.hear(&[(identity().tenant, u64::MAX)], true));
        assert!(!authority.hear(&[(identity().tenant, 3 + summary::marks::JUMP_MAX + 1)], true));
        assert_eq!(judged(&authority, &signed(3)), Ok(()));
        // Lower ones, of a store that began anew, change nothing: a mark does not fall.
        assert!(authority.hear(&[(identity().tenant, 1)], true));
        assert_eq!(judged(&authority, &signed(2)), Err(NoAuthority::Rejected(Rejection::Revoked)));
    }
}
