//! Metrics: the series of the page, resolved once so that a request looks up nothing. Pages by class and outcome, time by
//! branch with waiting apart from service, queue ages with exemplars, optional sections by marker and class, and for each
//! mechanism what it intended beside what was done.

use base::{Dependency, Nanos, Reason, WorkloadClass, trace::TraceContext};
use control::{
    admission::{Expiry, Reject},
    degradation::Marker,
};
use model::policy::{Boundary, Mechanism};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Unit,
};
use serve::metrics::{Registry, TraceLabel, TracedHistogram};
use stack::admission::Denied;

use summary::Comparison;

use crate::{
    page::{Optional, Spent},
    tally::Source,
};

const CLASSES: usize = WorkloadClass::ALL.len();
const BRANCHES: usize = Dependency::ALL.len();

/// Upper bounds of the buckets of a branch's time, in seconds of model time; dense around the waits and services that the
/// objective is made of.
const BRANCH_BUCKETS_SECS: [f64; 14] =
    [0.000_5, 0.001, 0.002, 0.005, 0.010, 0.020, 0.040, 0.070, 0.100, 0.150, 0.200, 0.280, 0.300, 0.500];

/// Upper bounds of the buckets of a queue age, in seconds of model time. The bound of 12 ms is one of them, and that with two
/// ticks of a timer, so that their gates need no interpolation.
const QUEUE_AGE_BUCKETS_SECS: [f64; 19] = [
    0.000_5, 0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.014, 0.016, 0.025, 0.040, 0.070, 0.100, 0.150,
    0.250, 0.500, 1.0, 2.0, 5.0,
];

/// How an ask for a slot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskOutcome {
    Admitted,
    QueueFull,
    TooOld,
    CannotFinish,
    Abandoned,
}

impl AskOutcome {
    const ALL: [Self; 5] =
        [Self::Admitted, Self::QueueFull, Self::TooOld, Self::CannotFinish, Self::Abandoned];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::QueueFull => "queue_full",
            Self::TooOld => "too_old",
            Self::CannotFinish => "cannot_finish",
            Self::Abandoned => "abandoned",
        }
    }

    pub(crate) const fn denied(denied: Denied) -> Self {
        match denied {
            Denied::Rejected { reason: Reject::QueueFull, .. } => Self::QueueFull,
            Denied::Rejected { reason: Reject::TooOld, .. }
            | Denied::Dropped { reason: Expiry::TooOld, .. } => Self::TooOld,
            Denied::Rejected { reason: Reject::CannotFinish, .. }
            | Denied::Dropped { reason: Expiry::CannotFinish, .. } => Self::CannotFinish,
        }
    }
}

/// How a page ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answered,
    Refused(Reason),
    /// The caller left.
    Left,
}

/// What a mechanism calls its interference, and what it calls leaving things as they are.
const fn verbs(mechanism: Mechanism) -> [&'static str; 2] {
    match mechanism {
        Mechanism::Deadline => ["proceed", "stop"],
        Mechanism::Cancellation => ["continue", "cancel"],
        Mechanism::Admission => ["admit", "reject"],
        Mechanism::Coalescing => ["call", "join"],
        Mechanism::Summary => ["call", "rely"],
        Mechanism::Degradation => ["start", "omit"],
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByBranch {
    branch: &'static str,
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySection {
    section: &'static str,
    marker: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGate {
    gate: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAdmission {
    gate: &'static str,
    class: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByClass {
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEnding {
    class: &'static str,
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySource {
    authority: &'static str,
    reason: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByComparison {
    outcome: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDecision {
    mechanism: &'static str,
    intended: &'static str,
    actual: &'static str,
}

/// Sections that may be absent.
const SECTIONS: [&str; 2] = ["recommendations", "reputation"];

pub(crate) struct HomeMetrics {
    wait: [Histogram; BRANCHES],
    service: [Histogram; BRANCHES],
    optional: [[[Counter; CLASSES]; Marker::ALL.len()]; SECTIONS.len()],
    queue_age: [[TracedHistogram; CLASSES]; Boundary::ALL.len()],
    admission: [[[Counter; AskOutcome::ALL.len()]; CLASSES]; Boundary::ALL.len()],
    offered: [Counter; CLASSES],
    answered: [Counter; CLASSES],
    left: [Counter; CLASSES],
    refused: [[Counter; Reason::ALL.len()]; CLASSES],
    /// By intended and actual interference.
    decisions: [[[Counter; 2]; 2]; Mechanism::ALL.len()],
    reads: Counter,
    profile_calls: Counter,
    sources: Family<BySource, Counter>,
    comparisons: Family<ByComparison, Counter>,
}

impl HomeMetrics {
    /// `dilation`: bounds of histograms are declared in model time, and what is observed is not.
    pub(crate) fn new(registry: &Registry, dilation: u32) -> Self {
        let dilated = |secs: &[f64]| secs.iter().map(|bound| bound * f64::from(dilation)).collect::<Vec<_>>();
        let (branch_bounds, age_bounds) = (dilated(&BRANCH_BUCKETS_SECS), dilated(&QUEUE_AGE_BUCKETS_SECS));
        let branches = Family::<ByBranch, Histogram, _>::new_with_constructor(move || {
            Histogram::new(branch_bounds.iter().copied())
        });
        let ages = Family::<ByGate, TracedHistogram, _>::new_with_constructor(move || {
            TracedHistogram::new(age_bounds.iter().copied())
        });
        let optional = Family::<BySection, Counter>::default();
        let admission = Family::<ByAdmission, Counter>::default();
        let offered = Family::<ByClass, Counter>::default();
        let finished = Family::<ByEnding, Counter>::default();
        let decisions = Family::<ByDecision, Counter>::default();
        let (reads, profile_calls) = (Counter::default(), Counter::default());
        let sources = Family::<BySource, Counter>::default();
        let comparisons = Family::<ByComparison, Counter>::default();
        registry.with(|registry| {
            let help = "Time of a branch of the page: waiting to be sent, and from sending to the answer";
            registry.register_with_unit("home_branch", help, Unit::Seconds, branches.clone());
            let help = "Pages by the marker of an optional section";
            registry.register("home_optional_sections", help, optional.clone());
            let help = "Age at which work got a slot: of a page from its header arrival, of a profile read from its ask";
            registry.register_with_unit("home_queue_age", help, Unit::Seconds, ages.clone());
            let help = "Asks for a slot by how they ended";
            registry.register("home_admission", help, admission.clone());
            registry.register("home_requests", "Pages that were asked for", offered.clone());
            let help = "Pages by how they ended for their callers; their sum is what was asked for";
            registry.register("home_finished", help, finished.clone());
            let help = "Decisions of mechanisms that are on or in shadow: what was intended and what was done";
            registry.register("home_decisions", help, decisions.clone());
            registry.register("home_reads", "Profile reads that pages asked for", reads.clone());
            let help = "Profile calls that were sent: reads less those that shared a call or got no slot";
            registry.register("home_profile_calls", help, profile_calls.clone());
            let help = "Pages by where their claims came from, and why not from the summary";
            registry.register("home_claims", help, sources.clone());
            // Known before they happen, so that their absence is a zero.
            for source in Source::all() {
                let (authority, reason) = source.labels();
                for class in WorkloadClass::ALL {
                    let label = BySource { authority, reason, class: class.as_str() };
                    drop(sources.get_or_create_owned(&label));
                }
            }
            for (outcome, class) in
                Comparison::ALL.iter().flat_map(|one| WorkloadClass::ALL.map(|class| (one, class)))
            {
                let label = ByComparison { outcome: outcome.as_str(), class: class.as_str() };
                drop(comparisons.get_or_create_owned(&label));
            }
            let help = "Entitlement summaries held beside the call, by what they were";
            registry.register("home_comparisons", help, comparisons.clone());
        });
        let part = |part| {
            Dependency::ALL
                .map(|branch| branches.get_or_create_owned(&ByBranch { branch: branch.as_str(), part }))
        };
        let ended = |class: WorkloadClass, outcome, reason| {
            finished.get_or_create_owned(&ByEnding { class: class.as_str(), outcome, reason })
        };
        Self {
            wait: part("wait"),
            service: part("service"),
            optional: SECTIONS.map(|section| {
                Marker::ALL.map(|marker| {
                    WorkloadClass::ALL.map(|class| {
                        let (marker, class) = (marker.as_str(), class.as_str());
                        optional.get_or_create_owned(&BySection { section, marker, class })
                    })
                })
            }),
            queue_age: Boundary::ALL.map(|gate| {
                WorkloadClass::ALL.map(|class| {
                    ages.get_or_create_owned(&ByGate { gate: gate.as_str(), class: class.as_str() })
                })
            }),
            admission: Boundary::ALL.map(|gate| {
                WorkloadClass::ALL.map(|class| {
                    AskOutcome::ALL.map(|outcome| {
                        let (gate, class, outcome) = (gate.as_str(), class.as_str(), outcome.as_str());
                        admission.get_or_create_owned(&ByAdmission { gate, class, outcome })
                    })
                })
            }),
            offered: WorkloadClass::ALL
                .map(|class| offered.get_or_create_owned(&ByClass { class: class.as_str() })),
            answered: WorkloadClass::ALL.map(|class| ended(class, "ok", "")),
            left: WorkloadClass::ALL.map(|class| ended(class, "cancelled", "cancelled")),
            refused: WorkloadClass::ALL
                .map(|class| Reason::ALL.map(|reason| ended(class, "refused", reason.as_str()))),
            decisions: Mechanism::ALL.map(|mechanism| {
                verbs(mechanism).map(|intended| {
                    verbs(mechanism).map(|actual| {
                        let mechanism = mechanism.as_str();
                        decisions.get_or_create_owned(&ByDecision { mechanism, intended, actual })
                    })
                })
            }),
            reads,
            profile_calls,
            sources,
            comparisons,
        }
    }

    pub(crate) fn branch(&self, branch: Dependency, spent: Spent) {
        self.wait[branch.index()].observe(spent.wait.as_secs_f64());
        self.service[branch.index()].observe(spent.service.as_secs_f64());
    }

    pub(crate) fn optional(&self, class: WorkloadClass, optional: Optional) {
        for (section, marker) in [optional.recommendations, optional.reputation].into_iter().enumerate() {
            self.optional[section][marker.index()][class.index()].inc();
        }
    }

    /// Work got a slot at this age.
    pub(crate) fn queue_age(
        &self,
        boundary: Boundary,
        class: WorkloadClass,
        age: Nanos,
        trace: &TraceContext,
    ) {
        let label = TraceLabel::of(Some(trace));
        self.queue_age[boundary.index()][class.index()].observe(age.as_secs_f64(), label, None);
    }

    pub(crate) fn admitted(&self, boundary: Boundary, class: WorkloadClass, outcome: AskOutcome) {
        self.admission[boundary.index()][class.index()][outcome as usize].inc();
    }

    pub(crate) fn offered(&self, class: WorkloadClass) {
        self.offered[class.index()].inc();
    }

    /// Exactly once for each page that was offered.
    pub(crate) fn finished(&self, class: WorkloadClass, ending: Ending) {
        let class = class.index();
        match ending {
            Ending::Answered => self.answered[class].inc(),
            Ending::Refused(reason) => self.refused[class][reason as usize].inc(),
            Ending::Left => self.left[class].inc(),
        };
    }

    /// A mechanism decided: whether it wanted to interfere, and whether that was done.
    pub(crate) fn decided(&self, mechanism: Mechanism, intended: bool, actual: bool) {
        self.decisions[mechanism.index()][usize::from(intended)][usize::from(actual)].inc();
    }

    /// Where claims came from.
    pub(crate) fn claims_came_from(&self, source: Source, class: WorkloadClass) {
        let (authority, reason) = source.labels();
        self.sources.get_or_create_owned(&BySource { authority, reason, class: class.as_str() }).inc();
    }

    /// What a summary was beside the call.
    pub(crate) fn compared(&self, comparison: Comparison, class: WorkloadClass) {
        let label = ByComparison { outcome: comparison.as_str(), class: class.as_str() };
        self.comparisons.get_or_create_owned(&label).inc();
    }

    pub(crate) fn read(&self) {
        self.reads.inc();
    }

    pub(crate) fn profile_call(&self) {
        self.profile_calls.inc();
    }
}
