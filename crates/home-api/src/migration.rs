//! Migration: home-api's part in it: the era that is in force, whether the next phase could be served, and what is told to who
//! decides.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use base::WallClock;
use model::policy::{Policy, ServiceName};
use rollout::{Phase, report::ProcessReport};
use runtime::{Followed, Follower, Policies};
use tokio::sync::watch;

use crate::{authority::Authority, era::Era, shadow::Bench};

/// The era in force, and who keeps it.
pub(crate) struct Migration {
    era: ArcSwap<Era>,
    policies: Policies,
    authority: Arc<Authority>,
    bench: Arc<Bench>,
    wall: Arc<dyn WallClock>,
    /// Whether the stream of revocations is wanted.
    reads: watch::Sender<bool>,
    /// Whether marks are kept on the disk.
    persists: bool,
    instance: String,
}

impl Migration {
    pub(crate) fn new(
        policies: Policies,
        authority: Arc<Authority>,
        bench: Arc<Bench>,
        wall: Arc<dyn WallClock>,
        persists: bool,
        instance: u128,
    ) -> Self {
        let era = Era { counting_since_unix_ms: wall.unix_ms(), ..Era::default() };
        let reads = watch::Sender::new(era.reads(&policies.current()));
        let instance = format!("{instance:032x}");
        Self { era: ArcSwap::from_pointee(era), policies, authority, bench, wall, reads, persists, instance }
    }

    /// The era in force.
    pub(crate) fn era(&self) -> Arc<Era> {
        self.era.load_full()
    }

    /// Whether summaries are read, and so the stream is wanted.
    pub(crate) fn reads(&self) -> watch::Receiver<bool> {
        self.reads.subscribe()
    }

    /// Another policy is about to be in force: where no phase says, it says whether the stream is wanted.
    pub(crate) fn adopt(&self, next: &Policy) {
        self.reads.send_replace(self.era().reads(next));
    }

    /// What is told on the admin port.
    pub(crate) fn report(&self) -> ProcessReport {
        let (era, policy) = (self.era(), self.policies.current());
        let unable = Phase::ALL.into_iter().filter_map(|phase| Some((phase, self.unable(phase)?)));
        ProcessReport {
            service: ServiceName::HomeApi.as_str().to_owned(),
            instance: self.instance.clone(),
            phase: era.phase.unwrap_or_default(),
            generation: era.generation,
            head: era.head.clone(),
            policy_generation: policy.generation,
            unable: unable.collect::<BTreeMap<_, _>>(),
            keys: self.authority.key_ids(),
            revocations: era.reads(&policy).then(|| self.authority.stream(policy.summary.staleness_max)),
            counting_since_unix_ms: era.counting_since_unix_ms,
            counts: era.tally.counts(),
            samples: self.bench.samples(),
        }
    }
}

impl Follower for Migration {
    fn unable(&self, phase: Phase) -> Option<String> {
        if phase.reads() && self.authority.key_ids().is_empty() {
            return Some("it accepts no key: start it with --summary-keys FILE".to_owned());
        }
        if phase >= Phase::Canary && !self.persists {
            return Some("it keeps no marks: start it with --summary-marks FILE".to_owned());
        }
        if phase >= Phase::Canary && !self.authority.keeps_marks() {
            return Some("it cannot write its marks to the disk".to_owned());
        }
        None
    }

    fn moved(&self, to: Followed) {
        let (phase, generation) =
            to.standing.map_or((None, 0), |standing| (Some(standing.phase), standing.generation));
        let old = self.era();
        if old.generation == generation && old.phase == phase {
            // Another subject, or a decision that changed nothing: the figures go on.
            let tally = Arc::clone(&old.tally);
            self.era.store(Arc::new(Era { phase, generation, head: to.head, tally, ..*old }));
            return;
        }
        let counting_since_unix_ms = self.wall.unix_ms();
        let era = Era { phase, generation, head: to.head, counting_since_unix_ms, tally: Arc::default() };
        tracing::info!(phase = phase.map_or("none", Phase::as_str), generation, "the migration moved");
        self.reads.send_replace(era.reads(&self.policies.current()));
        self.era.store(Arc::new(era));
    }
}
