//! Revocations: what was taken away since the start, and how the stores tell it. Laid over the data set, which knows
//! nothing of it: a tenant's epoch is raised and a subject's denials are added to, in every store at once.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use model::{draw::Share, names};
use tokio::sync::watch;
use wire::emulator::v1::{FetchPolicyResponse, FetchProfileResponse};

use crate::{copies, dataset::DataSet};

/// Most claims that one revocation takes away.
pub const CLAIMS_REVOKED_MAX: usize = 16;
/// Most subjects from which something is taken away.
pub const SUBJECTS_DENIED_MAX: usize = 65_536;
/// Most claims that are taken away from one subject.
pub const CLAIMS_DENIED_MAX: usize = 64;
/// Longest claim, in bytes.
const CLAIM_BYTES_MAX: usize = 64;

/// A tenant and a subject of the data set, by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) tenant: u32,
    pub(crate) subject: u32,
}

impl Who {
    /// `None` when the data set has no such tenant or no such subject.
    pub(crate) fn find(tenant: &str, subject: &str) -> Option<Self> {
        let (tenant, subject) = names::tenant_index(tenant).zip(names::subject_index(subject))?;
        Some(Self { tenant, subject })
    }
}

/// What becomes of the feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FeedState {
    /// It tells what happens.
    #[default]
    Live,
    /// Its streams stay open and say nothing.
    Silent,
    /// Its streams end, and there are no new ones.
    Cut,
}

/// How the profile store's copy of the policies differs from the policy store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PolicyCopy {
    /// Not at all.
    #[default]
    Exact,
    /// The row is one version old, and says so.
    Stale,
    /// The copy of the right version has a grant too many.
    Divergent,
}

/// No room for a revocation; nothing was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// [`SUBJECTS_DENIED_MAX`] others have lost something.
    Subjects,
    /// The subject would have lost more than [`CLAIMS_DENIED_MAX`].
    Claims,
}

/// Whether a text is a claim, as the services read one: 1 to 64 bytes of a-z, 0-9, '-', '_', '.' and ':'.
pub(crate) fn is_claim(text: &str) -> bool {
    let legal = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.' | b':')
    };
    (1..=CLAIM_BYTES_MAX).contains(&text.len()) && text.bytes().all(legal)
}

/// What is laid over the data set, at one moment.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By how much a tenant's epoch has risen.
    raised: BTreeMap<u32, u64>,
    denied: BTreeMap<Who, Vec<Box<str>>>,
    feed: FeedState,
    /// Another one whenever the streams of the feed have to end: it was cut, or epochs were taken back.
    lineage: u64,
    copy: PolicyCopy,
    /// Of the subjects, whom the copy concerns.
    share: Share,
}

impl State {
    /// What becomes of the feed.
    pub(crate) const fn feed(&self) -> FeedState {
        self.feed
    }

    /// The streams of which lineage go on.
    pub(crate) const fn lineage(&self) -> u64 {
        self.lineage
    }

    /// The revocation epoch of a tenant.
    pub(crate) fn epoch(&self, data: &DataSet, tenant: u32) -> u64 {
        data.revocation_epoch(tenant) + self.raised.get(&tenant).copied().unwrap_or_default()
    }

    fn revoke(&mut self, who: Who, claims: &[String]) -> Result<(), Full> {
        let before = self.denied.get(&who);
        if before.is_none() && self.denied.len() >= SUBJECTS_DENIED_MAX {
            return Err(Full::Subjects);
        }
        let mut denied = before.cloned().unwrap_or_default();
        for claim in claims {
            if !denied.iter().any(|known| **known == **claim) {
                denied.push(claim.as_str().into());
            }
        }
        if denied.len() > CLAIMS_DENIED_MAX {
            return Err(Full::Claims);
        }
        self.denied.insert(who, denied);
        *self.raised.entry(who.tenant).or_default() += 1;
        Ok(())
    }

    /// A policy of the data set with everything that was revoked since.
    fn policy(
        &self,
        data: &DataSet,
        tenant: &str,
        subject: &str,
        version: u64,
    ) -> Option<FetchPolicyResponse> {
        let mut policy = data.policy(tenant, subject, version)?;
        policy.revocation_epoch = self.epoch(data, names::tenant_index(tenant)?);
        let denied = Who::find(tenant, subject).and_then(|who| self.denied.get(&who));
        for claim in denied.into_iter().flatten() {
            if !policy.denials.iter().any(|known| **known == **claim) {
                policy.denials.push(claim.to_string());
            }
        }
        Some(policy)
    }

    /// A row of the profile store, with its copy of the policy if that is wanted.
    fn profile(
        &self,
        data: &DataSet,
        tenant: &str,
        subject: &str,
        with_policy: bool,
    ) -> Option<FetchProfileResponse> {
        let mut row = data.profile(tenant, subject)?;
        let who = Who::find(tenant, subject)?;
        let copy =
            if data.copies(who.tenant, who.subject, self.share) { self.copy } else { PolicyCopy::Exact };
        if copy == PolicyCopy::Stale {
            // A tenant has two versions at least.
            row.policy_version -= 1;
        }
        if with_policy {
            row.policy = self.policy(data, tenant, subject, row.policy_version);
            if let Some(policy) = &mut row.policy
                && copy == PolicyCopy::Divergent
            {
                let grant = copies::divergent_grant(policy, &row.plan, &row.segment);
                policy.grants.push(grant);
            }
        }
        Some(row)
    }
}

/// What was taken away, and how it is told.
pub(crate) struct Revocations {
    state: Mutex<State>,
    /// Counts the changes that the feed's streams have to look at.
    changes: watch::Sender<u64>,
}

impl Default for Revocations {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Revocations {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at everything at one moment.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&State) -> T) -> T {
        at(&self.state())
    }

    /// Wakes on every change that the feed may have to tell.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes claims away, raises the tenant's epoch by one and returns it. All of it or nothing.
    pub(crate) fn revoke(&self, data: &DataSet, who: Who, claims: &[String]) -> Result<u64, Full> {
        let mut state = self.state();
        state.revoke(who, claims)?;
        let epoch = state.epoch(data, who.tenant);
        drop(state);
        self.changed();
        Ok(epoch)
    }

    /// Changes what becomes of the feed, and returns what became of it before.
    pub(crate) fn set_feed(&self, feed: FeedState) -> FeedState {
        let mut state = self.state();
        if feed == FeedState::Cut {
            state.lineage += 1;
        }
        let previous = std::mem::replace(&mut state.feed, feed);
        drop(state);
        self.changed();
        previous
    }

    /// Changes the copy for a share of the subjects, and returns how it was before.
    pub(crate) fn set_copy(&self, copy: PolicyCopy, share: Share) -> PolicyCopy {
        let mut state = self.state();
        state.share = share;
        std::mem::replace(&mut state.copy, copy)
    }

    /// Forgets every revocation, and restores feed and copy. An epoch never falls within a stream of the feed, so streams
    /// that were told of one that is taken back end.
    pub(crate) fn reset(&self) {
        let mut state = self.state();
        let lineage = state.lineage + u64::from(!state.raised.is_empty());
        *state = State { lineage, ..State::default() };
        drop(state);
        self.changed();
    }

    /// What the policy store answers, timing aside.
    pub(crate) fn policy(
        &self,
        data: &DataSet,
        tenant: &str,
        subject: &str,
        version: u64,
    ) -> Option<FetchPolicyResponse> {
        self.state().policy(data, tenant, subject, version)
    }

    /// What the profile store answers, timing aside.
    pub(crate) fn profile(
        &self,
        data: &DataSet,
        tenant: &str,
        subject: &str,
        with_policy: bool,
    ) -> Option<FetchProfileResponse> {
        self.state().profile(data, tenant, subject, with_policy)
    }
}

#[cfg(test)]
mod tests;
