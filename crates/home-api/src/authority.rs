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
use rollout::report::StreamReport;
use summary::{Expected, Mark, Marks, Rejection, Signed, Summary, Verifier};
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

/// The keys in force, with the rules.
pub(crate) type Keys = watch::Receiver<Arc<Verifier>>;

/// What a process knows about summaries.
pub(crate) struct Authority {
    /// `None` where the process was started without any.
    keys: Option<Keys>,
    staleness_max: Nanos,
    marks: Mutex<Marks>,
    /// Tells the marks' file that one rose.
    raised: watch::Sender<u64>,
    heard: Heard,
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
        staleness_max: Nanos,
        marks: Marks,
        clock: Arc<dyn Clock>,
        wall: Arc<dyn WallClock>,
    ) -> Self {
        let (marks, raised, heard) = (Mutex::new(marks), watch::Sender::new(0), Heard::default());
        Self { keys, staleness_max, marks, raised, heard, clock, wall }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a summary says, as far as it can be believed by itself; the word on revocations may be old. Accepted, it raises
    /// its tenant's mark.
    pub(crate) fn read(
        &self,
        identity: &Identity,
        policy_version: u64,
        signed: &Signed,
    ) -> Result<Summary, Rejection> {
        let verifier = self.keys.as_ref().map(|keys| Arc::clone(&keys.borrow())).ok_or(Rejection::NoKeys)?;
        let mark = self.marks().of(&identity.tenant);
        let now_unix_ms = self.wall.unix_ms();
        let summary = verifier.verify(signed, &Expected { identity, policy_version, mark, now_unix_ms })?;
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
        identity: &Identity,
        policy_version: u64,
        signed: Option<&Signed>,
    ) -> Result<Summary, NoAuthority> {
        let signed = signed.ok_or(NoAuthority::Missing)?;
        if !self.is_fresh() {
            return Err(NoAuthority::StaleRevocations);
        }
        self.read(identity, policy_version, signed).map_err(NoAuthority::Rejected)
    }

    /// A message of the stream: epochs, of which none may be behind, and whether all have been told.
    pub(crate) fn hear(&self, epochs: impl IntoIterator<Item = (Tenant, u64)>, complete: bool) {
        let mut rose = false;
        let mut marks = self.marks();
        for (tenant, revocation_epoch) in epochs {
            rose |= marks.raise(&tenant, Mark { policy_version: 0, revocation_epoch });
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
    }

    fn silent(&self) -> Option<Nanos> {
        let complete = self.heard.complete.load(Ordering::Acquire);
        let at = Nanos::new(self.heard.at.load(Ordering::Relaxed));
        complete.then(|| self.clock.now().saturating_sub(at))
    }

    /// Whether the word on revocations is young enough to rely on.
    pub(crate) fn is_fresh(&self) -> bool {
        self.silent().is_some_and(|silent| silent <= self.staleness_max)
    }

    /// The stream, for who asks.
    pub(crate) fn stream(&self) -> StreamReport {
        StreamReport {
            fresh: self.is_fresh(),
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
