//! Metrics: the series of the page. Time by branch with waiting apart from service, and optional sections by marker and
//! class, resolved once so that a request looks up nothing.

use base::{Dependency, WorkloadClass};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Unit,
};
use serve::metrics::Registry;

use crate::page::{Marker, Optional, Spent};

/// Upper bounds of the buckets, in seconds; dense around the waits and services that the objective is made of.
const BUCKETS_SECS: [f64; 14] =
    [0.000_5, 0.001, 0.002, 0.005, 0.010, 0.020, 0.040, 0.070, 0.100, 0.150, 0.200, 0.280, 0.300, 0.500];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BranchLabels {
    branch: &'static str,
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OptionalLabels {
    section: &'static str,
    marker: &'static str,
    class: &'static str,
}

/// Sections that may be absent.
const SECTIONS: [&str; 2] = ["recommendations", "reputation"];

pub(crate) struct HomeMetrics {
    wait: [Histogram; Dependency::ALL.len()],
    service: [Histogram; Dependency::ALL.len()],
    optional: [[[Counter; WorkloadClass::ALL.len()]; Marker::ALL.len()]; SECTIONS.len()],
}

impl HomeMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let histogram = || Histogram::new(BUCKETS_SECS);
        let branches =
            Family::<BranchLabels, Histogram, _>::new_with_constructor(histogram as fn() -> Histogram);
        let optional = Family::<OptionalLabels, Counter>::default();
        registry.with(|registry| {
            let help = "Time of a branch of the page: waiting to be sent, and from sending to the answer";
            registry.register_with_unit("home_branch", help, Unit::Seconds, branches.clone());
            let help = "Pages by the marker of an optional section";
            registry.register("home_optional_sections", help, optional.clone());
        });
        let part = |part| {
            Dependency::ALL
                .map(|branch| branches.get_or_create_owned(&BranchLabels { branch: branch.as_str(), part }))
        };
        Self {
            wait: part("wait"),
            service: part("service"),
            optional: SECTIONS.map(|section| {
                Marker::ALL.map(|marker| {
                    WorkloadClass::ALL.map(|class| {
                        let (marker, class) = (marker.as_str(), class.as_str());
                        optional.get_or_create_owned(&OptionalLabels { section, marker, class })
                    })
                })
            }),
        }
    }

    pub(crate) fn branch(&self, branch: Dependency, spent: Spent) {
        self.wait[branch.index()].observe(spent.wait.as_secs_f64());
        self.service[branch.index()].observe(spent.service.as_secs_f64());
    }

    pub(crate) fn optional(&self, class: WorkloadClass, optional: Optional) {
        for (section, marker) in [optional.recommendations, optional.reputation].into_iter().enumerate() {
            self.optional[section][marker as usize][class.index()].inc();
        }
    }
}
