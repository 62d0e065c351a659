//! Shadow: holds summaries beside what the call said, after the page has what it needs. It has a small bulkhead of its own and no
//! share of the caller's time or of any permit of the page; what finds no room is left out, and counted as left out.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use base::{Identity, WallClock, tasks::Spawn};
use model::policy::{Mechanism, Policy, SummaryPolicy};
use rollout::report::Sample;
use runtime::Policies;
use serve::OpenCount;
use sha2::{Digest as _, Sha256};
use summary::{Comparison, Rejection, Signed, Summary, claims};

use crate::{authority::Authority, era::Era, metrics::HomeMetrics, page::Entitlement};

/// Name of a comparison's task.
const TASK: &str = "compare summary";
/// Most claims of a sample, of either side.
const CLAIMS_MAX: usize = 16;
/// Most bytes of a key's name in a sample; the text is the sender's.
const KEY_ID_BYTES_MAX: usize = 32;

/// Where summaries are compared.
pub(crate) struct Bench {
    authority: Arc<Authority>,
    policies: Policies,
    metrics: Arc<HomeMetrics>,
    tasks: Arc<dyn Spawn>,
    wall: Arc<dyn WallClock>,
    room: OpenCount,
    samples: Samples,
}

impl Bench {
    /// `secret` keys the digests of this process's samples.
    pub(crate) fn new(
        policies: Policies,
        authority: Arc<Authority>,
        metrics: Arc<HomeMetrics>,
        tasks: Arc<dyn Spawn>,
        wall: Arc<dyn WallClock>,
        secret: u128,
    ) -> Self {
        let (room, samples) = (OpenCount::default(), Samples { kept: Mutex::default(), secret });
        Self { authority, policies, metrics, tasks, wall, room, samples }
    }

    /// Begins a comparison. Dropped before [`Pending::call_said`], it was not run.
    pub(crate) fn begin(
        self: &Arc<Self>,
        era: &Arc<Era>,
        policy: &Arc<Policy>,
        identity: &Identity,
        policy_version: u64,
        signed: Option<Arc<Signed>>,
    ) -> Pending {
        let (bench, era, identity) = (Arc::clone(self), Arc::clone(era), identity.clone());
        let policy = Arc::clone(policy);
        Pending(Some(Case { bench, era, policy, identity, policy_version, signed }))
    }

    /// Comparisons under way, and samples that are kept.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.room.now(), self.samples.lock().len())
    }

    /// Samples that are not too old, oldest first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.list(&self.policies.current().summary, self.wall.unix_ms())
    }
}

/// A summary that waits for the call's answer.
pub(crate) struct Pending(Option<Case>);

struct Case {
    bench: Arc<Bench>,
    era: Arc<Era>,
    policy: Arc<Policy>,
    identity: Identity,
    policy_version: u64,
    signed: Option<Arc<Signed>>,
}

impl Pending {
    /// The call has answered: the comparison is made, if there is room for it.
    pub(crate) fn call_said(mut self, entitlement: &Entitlement) {
        let Some(case) = self.0.take() else { return };
        let room = case.policy.summary.shadow_max as usize;
        let Some(place) = case.bench.room.enter_below(room) else {
            case.count(Comparison::NotRun);
            return;
        };
        let call = claims::Entitlement {
            policy_version: entitlement.policy_version,
            revocation_epoch: entitlement.revocation_epoch,
            claims: entitlement.claims.clone(),
        };
        let tasks = Arc::clone(&case.bench.tasks);
        // Dropped unrun while the process shuts down, it is counted as not run.
        let pending = Self(Some(case));
        let task = async move {
            pending.compare(&call);
            drop(place);
        };
        tasks.spawn(TASK, Box::pin(task));
    }

    fn compare(mut self, call: &claims::Entitlement) {
        let Some(case) = self.0.take() else { return };
        let read = case.signed.as_ref().map(|signed| {
            let policy = &case.policy.summary;
            case.bench.authority.read(policy, &case.identity, case.policy_version, signed)
        });
        let candidate = read.as_ref().map(|read| read.as_ref().map_err(|rejection| *rejection));
        let comparison = Comparison::of(candidate, call);
        case.bench.metrics.decided(Mechanism::Summary, matches!(candidate, Some(Ok(_))), false);
        case.count(comparison);
        if !matches!(comparison, Comparison::Match | Comparison::Missing) {
            case.sample(comparison, candidate, call);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(case) = self.0.take() {
            case.count(Comparison::NotRun);
        }
    }
}

impl Case {
    fn count(&self, comparison: Comparison) {
        let (class, region) = (self.identity.class, &self.identity.region);
        self.era.tally.comparison(comparison, class, region);
        self.bench.metrics.compared(comparison, class);
    }

    fn sample(
        &self,
        comparison: Comparison,
        candidate: Option<Result<&Summary, Rejection>>,
        call: &claims::Entitlement,
    ) {
        let (summary, rejection) = match candidate {
            Some(Ok(summary)) => (Some(summary), None),
            Some(Err(rejection)) => (None, Some(rejection)),
            None => (None, None),
        };
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|claim| !those.contains(claim)).take(CLAIMS_MAX).cloned().collect()
        };
        let claims = summary.map_or(&[][..], |summary| &summary.claims);
        let key_id = self.signed.as_ref().map(|signed| signed.key_id.as_str()).unwrap_or_default();
        let samples = &self.bench.samples;
        samples.keep(
            &self.policy.summary,
            Sample {
                at_unix_ms: self.bench.wall.unix_ms(),
                comparison: comparison.as_str().to_owned(),
                rejection: rejection.map(|why| why.as_str().to_owned()).unwrap_or_default(),
                subject_digest: samples.digest(&self.identity),
                class: self.identity.class.as_str().to_owned(),
                region: self.identity.region.as_str().to_owned(),
                summary_version: summary.map_or(0, |summary| summary.policy_version),
                call_version: call.policy_version,
                key_id: key_id.chars().filter(char::is_ascii_graphic).take(KEY_ID_BYTES_MAX).collect(),
                // Of a summary that could not be read nothing is known, and all of the call's would be too much.
                only_summary: only(claims, &call.claims),
                only_call: if summary.is_some() { only(&call.claims, claims) } else { Vec::new() },
            },
            comparison.blocks(),
        );
    }
}

/// The newest differences: bounded, expiring, without whom they were about.
struct Samples {
    kept: Mutex<VecDeque<(bool, Sample)>>,
    secret: u128,
}

impl Samples {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(bool, Sample)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a sample. Where there is no room the oldest goes that blocks nothing, so that many harmless ones do not push out
    /// the one that matters.
    fn keep(&self, policy: &SummaryPolicy, sample: Sample, blocks: bool) {
        let mut kept = self.lock();
        expire(&mut kept, policy, sample.at_unix_ms);
        let max = policy.samples_max as usize;
        // More than one too many only after the bound was lowered.
        while kept.len() >= max && !kept.is_empty() {
            match kept.iter().position(|(blocks, _)| !blocks) {
                Some(at) => drop(kept.remove(at)),
                None if blocks => drop(kept.pop_front()),
                None => return,
            }
        }
        if kept.len() < max {
            kept.push_back((blocks, sample));
        }
    }

    fn list(&self, policy: &SummaryPolicy, now_unix_ms: i64) -> Vec<Sample> {
        let mut kept = self.lock();
        expire(&mut kept, policy, now_unix_ms);
        kept.iter().map(|(_, sample)| sample.clone()).collect()
    }

    /// Tells the same subject again within this process, and says nothing to who does not have its secret.
    fn digest(&self, identity: &Identity) -> String {
        let mut hash = Sha256::new();
        hash.update(self.secret.to_be_bytes());
        hash.update(identity.tenant.as_str());
        hash.update([0]);
        hash.update(identity.subject.as_str());
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

fn expire(kept: &mut VecDeque<(bool, Sample)>, policy: &SummaryPolicy, now_unix_ms: i64) {
    let retention = i64::try_from(policy.sample_retention.as_millis()).unwrap_or(i64::MAX);
    kept.retain(|(_, sample)| now_unix_ms.saturating_sub(sample.at_unix_ms) < retention);
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    fn sample(at_unix_ms: i64, name: &str) -> Sample {
        Sample {
            at_unix_ms,
            comparison: name.to_owned(),
            rejection: String::new(),
            subject_digest: String::new(),
            class: String::new(),
            region: String::new(),
            summary_version: 0,
            call_version: 0,
            key_id: String::new(),
            only_summary: Vec::new(),
            only_call: Vec::new(),
        }
    }

    fn samples(max: u32) -> (Samples, SummaryPolicy) {
        let summary = Policy::shipped().summary;
        let policy = SummaryPolicy { samples_max: max, sample_retention: Nanos::from_secs(10), ..summary };
        (Samples { kept: Mutex::default(), secret: 7 }, policy)
    }

    fn names((samples, policy): &(Samples, SummaryPolicy), now: i64) -> Vec<String> {
        samples.list(policy, now).into_iter().map(|sample| sample.comparison).collect()
    }

    #[test]
    fn samples_are_bounded_expire_and_what_blocks_stays_longest() {
        let kept = samples(3);
        let keep = |sample, blocks| kept.0.keep(&kept.1, sample, blocks);
        keep(sample(0, "mismatch"), true);
        for at in 1..10 {
            keep(sample(at, &format!("order {at}")), false);
        }
        assert_eq!(names(&kept, 10), ["mismatch", "order 8", "order 9"]);
        for at in 10..14 {
            keep(sample(at, &format!("mismatch {at}")), true);
        }
        keep(sample(14, "order"), false);
        assert_eq!(names(&kept, 14), ["mismatch 11", "mismatch 12", "mismatch 13"]);
        assert_eq!(names(&kept, 10_012), ["mismatch 13"]);
        assert!(names(&kept, 20_000).is_empty());
        let none = samples(0);
        none.0.keep(&none.1, sample(0, "mismatch"), true);
        assert!(names(&none, 0).is_empty());
        let lowered =
            (kept.0, SummaryPolicy { samples_max: 1, sample_retention: Nanos::from_secs(60), ..kept.1 });
        for at in 40_000..40_004 {
            lowered.0.keep(&samples(3).1, sample(at, &format!("order {at}")), false);
        }
        lowered.0.keep(&lowered.1, sample(40_004, "last"), false);
        assert_eq!(names(&lowered, 40_004), ["last"]);
    }
}
