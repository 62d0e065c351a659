//! Workload: who asks for the home page, how often and in which company; and the schedule that follows from it
//! ([`arrivals`]). The schedule is followed whatever the suite does.

pub mod arrivals;

use base::{Nanos, WorkloadClass, mix};

pub use self::arrivals::{Arrival, Arrivals, PERCENT, Piece};
use crate::{
    Scale,
    draw::Share,
    faults::Faults,
    names,
    read::{self, Table, every},
    region::Placement,
    scenario::plain_name,
};

/// The workload that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) = (
    "config/workloads/mercury-home-peak-v4.toml",
    include_str!("../../../config/workloads/mercury-home-peak-v4.toml"),
);
/// Longest period of the waves: the minute whose mean is declared.
const MINUTE_MS: u64 = 60_000;
/// How far declared shares may miss a sum of 1.
const SUM_TOLERANCE: f64 = 1e-9;

/// One validated workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The name, which every report cites.
    pub name: String,
    /// Takes part in every draw of the schedule.
    pub version: u32,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// One-minute mean of the region.
    pub region_requests_per_s: f64,
    /// Admission domains that share the region's requests evenly.
    pub admission_domains: u32,
    /// Short waves above the mean.
    pub waves: Waves,
    /// Requests for the same subject, close in time.
    pub coalescing: Coalescing,
    /// Callers who leave.
    pub departures: Departures,
    /// Callers who try again.
    pub retries: Retries,
    classes: [ClassMix; 3],
    regions: [f64; 5],
}

/// Short waves above the mean. Between them the rate is lower, so that the one-minute mean holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waves {
    /// The region's rate in a wave.
    pub requests_per_s: f64,
    /// Length of a wave; it ends with its period.
    pub duration: Nanos,
    /// From one wave to the next; a whole number of periods makes a minute.
    pub period: Nanos,
}

/// Groups of requests for the same subject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coalescing {
    /// Share of all requests that belong to a group, its first one included.
    pub share: f64,
    /// Mean size of a group.
    pub group_mean: f64,
    /// Largest group.
    pub group_max: u32,
    /// A group arrives within this span.
    pub window: Nanos,
}

/// Callers who leave before they are answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Departures {
    /// Share of all requests whose caller has a limited patience.
    pub share: Share,
    /// Least patience.
    pub patience_min: Nanos,
    /// Most patience; drawn evenly in between.
    pub patience_max: Nanos,
}

/// Callers who try again after a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retries {
    /// Share of the failed attempts that are repeated.
    pub share: Share,
    /// Mean wait before the next attempt.
    pub delay: Nanos,
    /// Most attempts at one operation, the first included.
    pub attempts_max: u32,
}

/// One class: its share, and the tenants that belong to it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ClassMix {
    share: f64,
    tenants: u32,
    /// Exponent of the Zipf distribution over the tenants; 0 is even.
    skew: f64,
}

/// How much of a workload is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offered {
    /// Mean rate; waves keep their ratio to it.
    pub requests_per_s: f64,
    /// Part of every tenant's subjects that are asked for.
    pub key_scale: Scale,
}

impl Workload {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, |table| workload(table, mix::fold_bytes(0, text.as_bytes())))
    }

    /// The workload that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped workload is valid, which a test checks")
    }

    /// One-minute mean of one admission domain.
    pub fn domain_requests_per_s(&self) -> f64 {
        self.region_requests_per_s / f64::from(self.admission_domains)
    }

    /// A fraction of one admission domain: rate and key space alike.
    pub fn at_scale(&self, scale: Scale) -> Offered {
        Offered { requests_per_s: self.domain_requests_per_s() * scale.as_f64(), key_scale: scale }
    }

    /// A rate of one's own over the whole key space.
    pub const fn at_rate(&self, requests_per_s: f64) -> Offered {
        Offered { requests_per_s, key_scale: Scale::ONE }
    }

    /// The schedule: a pure function of workload, seed and offer; without end, in bounded memory.
    pub fn arrivals(&self, seed: u64, offered: Offered) -> Arrivals {
        Arrivals::new(self, seed, offered, &[], |_, _| 1.0)
    }

    /// What one of `domains` admission domains sees of the region's schedule, when `placement` says which of them serves whom.
    /// `offered` is a domain's even part. Splitting a Poisson process by whom its events are about leaves Poisson processes that
    /// know nothing of each other, so each domain has a schedule of its own by the same law.
    pub fn arrivals_placed(
        &self,
        seed: u64,
        offered: Offered,
        placement: &Placement,
        domain: u32,
        domains: u32,
    ) -> Arrivals {
        let seed = mix::fold64(seed, u64::from(domain));
        Arrivals::new(self, seed, offered, &[], |class, rank| placement.share(domain, domains, class, rank))
    }

    /// The same, with a rate of its own in each piece. Pieces of one rate make the schedule of [`Workload::arrivals`] at that
    /// rate.
    pub fn arrivals_by(&self, seed: u64, offered: Offered, pieces: &[Piece]) -> Arrivals {
        Arrivals::new(self, seed, offered, pieces, |_, _| 1.0)
    }

    /// Share of a class.
    pub const fn class_share(&self, class: WorkloadClass) -> f64 {
        self.classes[class.index()].share
    }
}

fn workload(table: &mut Table<'_>, digest: u64) -> Option<Workload> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let region = table.number("region_requests_per_s", 1.0..=1e7);
    let domains = table.integer32("admission_domains", 1..=1_000);
    let waves = table.section("waves", |waves| self::waves(waves, region));
    let classes = table.section("classes", classes);
    let regions = table.section("regions", |regions| {
        let shares = every(names::REGIONS.map(|name| regions.number(name, 0.0..=1.0)));
        whole(regions, names::REGIONS[0], shares)
    });
    let coalescing = table.section("coalescing", coalescing);
    let departures = table.section("departures", |table| {
        let share = table.number("share", 0.0..=1.0).map(Share::from_ratio);
        let least = table.millis("patience_min_ms", 1..=MINUTE_MS);
        let most = table.millis("patience_max_ms", 1..=MINUTE_MS);
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            table.fault("patience_min_ms", "must not exceed patience_max_ms");
        }
        Some(Departures { share: share?, patience_min: least?, patience_max: most? })
    });
    let retries = table.section("retries", |table| {
        let share = table.number("share", 0.0..=1.0).map(Share::from_ratio);
        let delay = table.millis("delay_ms", 1..=MINUTE_MS);
        let attempts_max = table.integer32("attempts_max", 1..=5);
        Some(Retries { share: share?, delay: delay?, attempts_max: attempts_max? })
    });
    Some(Workload {
        name: name?,
        version: version?,
        digest,
        region_requests_per_s: region?,
        admission_domains: domains?,
        waves: waves?,
        coalescing: coalescing?,
        departures: departures?,
        retries: retries?,
        classes: classes?,
        regions: regions?,
    })
}

/// Shares that must add up to 1; the fault is reported at `key`.
fn whole<const N: usize>(table: &Table<'_>, key: &str, shares: Option<[f64; N]>) -> Option<[f64; N]> {
    let shares = shares?;
    let sum: f64 = shares.iter().sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE {
        table.fault(key, format!("the shares of this table must add up to 1, found {sum}"));
    }
    Some(shares)
}

fn waves(table: &mut Table<'_>, mean: Option<f64>) -> Option<Waves> {
    let rate = table.number("requests_per_s", 1.0..=1e7);
    let duration = table.millis("duration_ms", 1..=MINUTE_MS);
    let period = table.millis("period_ms", 2..=MINUTE_MS);
    if let Some(period) = period
        && !MINUTE_MS.is_multiple_of(period.as_millis())
    {
        table.fault("period_ms", "must divide a minute, so that every minute has the declared mean");
    }
    if let (Some(duration), Some(period)) = (duration, period)
        && duration >= period
    {
        table.fault("duration_ms", "must be below period_ms");
    } else if let (Some(rate), Some(mean), Some(duration), Some(period)) = (rate, mean, duration, period) {
        if rate < mean {
            table.fault("requests_per_s", "must not be below region_requests_per_s");
        }
        if rate * duration.as_secs_f64() > mean * period.as_secs_f64() {
            table.fault("requests_per_s", "the waves alone exceed the declared mean");
        }
    }
    Some(Waves { requests_per_s: rate?, duration: duration?, period: period? })
}

fn classes(table: &mut Table<'_>) -> Option<[ClassMix; 3]> {
    let classes = every(WorkloadClass::ALL.map(|class| {
        table.section(class.as_str(), |table| {
            let share = table.number("share", 0.0..=1.0);
            let tenants = table.integer32("tenants", 1..=names::TENANTS);
            let skew = table.number("skew", 0.0..=3.0);
            Some(ClassMix { share: share?, tenants: tenants?, skew: skew? })
        })
    }))?;
    whole(table, "standard", Some(classes.map(|class| class.share)));
    let tenants: u32 = classes.iter().map(|class| class.tenants).sum();
    if tenants > names::TENANTS {
        let message = format!("the data set has {} tenants, the classes name {tenants}", names::TENANTS);
        table.fault("standard", message);
    }
    Some(classes)
}

fn coalescing(table: &mut Table<'_>) -> Option<Coalescing> {
    let share = table.number("share", 0.0..=1.0);
    let group_mean = table.number("group_mean", 2.0..=32.0);
    let group_max = table.integer32("group_max", 2..=64);
    let window = table.millis("window_ms", 0..=1_000);
    if let (Some(mean), Some(max)) = (group_mean, group_max) {
        let middle = f64::from(2 + max) / 2.0;
        if mean > middle {
            table
                .fault("group_mean", format!("must not exceed {middle}, the middle between 2 and group_max"));
        }
    }
    Some(Coalescing { share: share?, group_mean: group_mean?, group_max: group_max?, window: window? })
}

#[cfg(test)]
mod tests;
