//! File: a region as a user writes it: hosts, placement, the extent of a packet, and the figures of a study that ours are put
//! beside.

use base::{WorkloadClass, mix};

use super::{Hosts, Placement};
use crate::{
    faults::Faults,
    read::{self, Table},
    scenario::plain_name,
};

/// The region that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) =
    ("config/regions/mercury-home.toml", include_str!("../../../../config/regions/mercury-home.toml"));

/// Most runs of a packet.
pub const RUNS_MAX: u32 = 64;
/// Longest window and longest warm-up, in minutes.
pub const MINUTES_MAX: u32 = 600;
/// Most figures of a study.
const REFERENCES_MAX: usize = 64;
/// Longest explanation, in bytes.
const EXPLANATION_BYTES_MAX: usize = 400;

/// One validated region.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The name, for reports.
    pub name: String,
    /// Rises with every change of the file.
    pub version: u32,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// The hosts.
    pub hosts: Hosts,
    /// Which domain serves whom.
    pub placement: Placement,
    /// Runs of a packet.
    pub runs: u32,
    /// The measured window of a run, in minutes.
    pub minutes: u32,
    /// The time before it, in minutes.
    pub warm_up_minutes: u32,
    /// What a study says, figure by figure.
    pub references: Vec<Reference>,
}

/// A figure of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Before or after the repair.
    pub after: bool,
    /// The state.
    pub state: StateName,
    /// Which figure.
    pub figure: ReferenceFigure,
    /// Its value.
    pub value: f64,
    /// Why ours differs.
    pub explanation: String,
}

/// A state of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateName {
    /// The regional peak.
    Peak,
    /// Dependencies are slower.
    Slowdown,
    /// They were, and are no more.
    Recovery,
}

impl StateName {
    /// All of them, in the order of a run.
    pub const ALL: [Self; 3] = [Self::Peak, Self::Slowdown, Self::Recovery];

    /// The name used in files and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::Slowdown => "slowdown",
            Self::Recovery => "recovery",
        }
    }

    /// The state of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// What a study may say about a state; the unit is the end of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceFigure {
    /// Median latency of correct answers.
    P50,
    /// 99th percentile of it.
    P99,
    /// Correct within the objective, over offered whose caller stayed.
    Goodput,
    /// Correct answers with a section left out, over correct answers.
    Omission,
    /// Late operations over operations offered.
    Late,
    /// Mean time for which late work went on.
    LateMean,
    /// Late operations at once.
    LateConcurrent,
    /// Slots of the endpoint in use.
    Endpoint,
    /// Connections of the profile client in use.
    Profile,
    /// CPU of the hosts in use.
    Cpu,
    /// Profile reads that sharing saved, per second.
    AvoidedReads,
    /// Until everything was back inside its bounds.
    Recovery,
}

impl ReferenceFigure {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::P50,
        Self::P99,
        Self::Goodput,
        Self::Omission,
        Self::Late,
        Self::LateMean,
        Self::LateConcurrent,
        Self::Endpoint,
        Self::Profile,
        Self::Cpu,
        Self::AvoidedReads,
        Self::Recovery,
    ];

    /// The name used in files and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::P50 => "p50_ms",
            Self::P99 => "p99_ms",
            Self::Goodput => "goodput_percent",
            Self::Omission => "omission_percent",
            Self::Late => "late_percent",
            Self::LateMean => "late_mean_ms",
            Self::LateConcurrent => "late_concurrent",
            Self::Endpoint => "occupancy_endpoint_percent",
            Self::Profile => "occupancy_profile_percent",
            Self::Cpu => "cpu_percent",
            Self::AvoidedReads => "avoided_profile_calls_per_s",
            Self::Recovery => "recovery_minutes",
        }
    }

    /// The figure of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.as_str() == name)
    }
}

impl Region {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, |table| region(table, mix::fold_bytes(0, text.as_bytes())))
    }

    /// The region that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped region is valid, which a test checks")
    }
}

fn region(table: &mut Table<'_>, digest: u64) -> Option<Region> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let hosts = table.section("hosts", hosts);
    let placement = table.section("placement", placement);
    let packet = table.section("packet", |table| {
        let runs = table.integer32("runs", 1..=RUNS_MAX);
        let minutes = table.integer32("minutes", 1..=MINUTES_MAX);
        let warm_up_minutes = table.integer32("warm_up_minutes", 0..=MINUTES_MAX);
        Some((runs?, minutes?, warm_up_minutes?))
    });
    let references = table.sections("reference", 0..=REFERENCES_MAX, reference);
    if let Some(references) = &references {
        let key = |one: &Reference| (one.after, one.state, one.figure as u8);
        let twice = (1..references.len())
            .find(|at| references[..*at].iter().any(|other| key(other) == key(&references[*at])));
        if let Some(at) = twice {
            let Reference { state, figure, .. } = &references[at];
            let message = format!("{} of {} is there twice", figure.as_str(), state.as_str());
            table.fault("reference", message);
        }
    }
    let (runs, minutes, warm_up_minutes) = packet?;
    Some(Region {
        name: name?,
        version: version?,
        digest,
        hosts: hosts?,
        placement: placement?,
        runs,
        minutes,
        warm_up_minutes,
        references: references?,
    })
}

fn hosts(table: &mut Table<'_>) -> Option<Hosts> {
    let workers = table.integer32("workers", 1..=100_000);
    let vcpus_per_worker = table.integer32("vcpus_per_worker", 1..=1_024);
    let cpu_us_per_page = table.integer("cpu_us_per_page", 0..=1_000_000);
    let bursts_per_page = table.integer32("bursts_per_page", 1..=64);
    Some(Hosts {
        workers: workers?,
        vcpus_per_worker: vcpus_per_worker?,
        cpu_us_per_page: cpu_us_per_page?,
        bursts_per_page: bursts_per_page?,
    })
}

fn placement(table: &mut Table<'_>) -> Option<Placement> {
    let class = table.text("class", "standard, premium or enterprise", class);
    let hot_tenants = table.integer32("hot_tenants", 0..=crate::names::TENANTS);
    let concentration = table.number("concentration_percent", 0.0..=100.0);
    Some(Placement { class: class?, hot_tenants: hot_tenants?, concentration: concentration? / 100.0 })
}

fn class(name: &str) -> Option<WorkloadClass> {
    WorkloadClass::ALL.into_iter().find(|class| class.as_str() == name)
}

fn reference(table: &mut Table<'_>) -> Option<Reference> {
    let after = table.text("policy", "before or after", |name| match name {
        "before" => Some(false),
        "after" => Some(true),
        _ => None,
    });
    let state = table.text("state", "peak, slowdown or recovery", StateName::parse);
    let figure = table.text("figure", "the name of a figure, like p99_ms", ReferenceFigure::parse);
    let value = table.number("value", 0.0..=1e12);
    let explanation = table.text("explanation", "1 to 400 bytes", |text| {
        (1..=EXPLANATION_BYTES_MAX).contains(&text.len()).then(|| text.to_owned())
    });
    if let (Some(figure), Some(state)) = (figure, state)
        && figure == ReferenceFigure::Recovery
        && state != StateName::Recovery
    {
        table.fault("figure", "recovery_minutes belongs to the state recovery");
    }
    Some(Reference {
        after: after?,
        state: state?,
        figure: figure?,
        value: value?,
        explanation: explanation?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_region_is_valid_and_names_its_figures_once() {
        let region = Region::shipped();
        assert_eq!((region.runs, region.minutes, region.warm_up_minutes), (12, 15, 10));
        assert_eq!(region.hosts.processors(), Some(192));
        assert!(region.references.len() > 15);
    }

    #[test]
    fn what_is_no_figure_is_refused_by_its_key() {
        for (from, to, key) in [
            ("workers = 24", "workers = 0", "hosts.workers"),
            ("cpu_us_per_page = 4700", "cpu_us_per_page = -1", "hosts.cpu_us_per_page"),
            ("concentration_percent = 80", "concentration_percent = nan", "placement.concentration_percent"),
            ("concentration_percent = 80", "concentration_percent = inf", "placement.concentration_percent"),
            ("concentration_percent = 80", "concentration_percent = -1", "placement.concentration_percent"),
            ("class = \"enterprise\"", "class = \"gold\"", "placement.class"),
            ("runs = 12", "runs = 65", "packet.runs"),
            ("value = 82", "value = -inf", "reference[0].value"),
            ("figure = \"p99_ms\"", "figure = \"p50_ms\"", "reference"),
            ("name = ", "nmae = ", "nmae"),
        ] {
            let text = SHIPPED.1.replacen(from, to, 1);
            assert_ne!(text, SHIPPED.1, "{from}");
            let faults = Region::parse("changed", &text).expect_err(to).to_string();
            assert!(faults.contains(key), "{to}: {faults}");
        }
    }
}
