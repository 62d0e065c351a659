//! Scenario: how the emulated dependencies behave, phase by phase: latency, capacity and faults.

use base::{Dependency, Nanos, WorkloadClass, mix};

use crate::{
    Scale,
    draw::Share,
    fault::{self, ScheduledFault},
    faults::Faults,
    latency::{MEDIAN_MAX, Mixture, SIGMA_MAX, Tables},
    read::{self, Table, every},
};

/// The scenario that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) = (
    "config/scenarios/peak-slowdown-recovery.toml",
    include_str!("../../../config/scenarios/peak-slowdown-recovery.toml"),
);
/// Most phases of a scenario.
pub const PHASES_MAX: usize = 16;
/// Most faults that a scenario declares.
pub const FAULTS_MAX: usize = 64;
/// Most servers, and most waiting calls, of a dependency.
pub const CAPACITY_MAX: u32 = 1_000_000;

/// How many calls a dependency serves at once and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Calls served at once; at least 1.
    pub servers: u32,
    /// Calls that may wait for a server; beyond it a call is refused.
    pub queue_max: u32,
}

/// One dependency in one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Emulated {
    /// How long it serves.
    pub latency: Mixture,
    /// How much it serves at once.
    pub capacity: Capacity,
}

/// A phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The name that the control API switches by.
    pub name: String,
    dependencies: [Emulated; 7],
}

impl Phase {
    /// A dependency in this phase.
    pub const fn dependency(&self, dependency: Dependency) -> &Emulated {
        &self.dependencies[dependency.index()]
    }
}

/// One validated scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name, for reports.
    pub name: String,
    /// Takes part in every draw: another version draws anew.
    pub version: u32,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// Requests per second of one admission domain, which the capacities are declared for.
    pub domain_requests_per_s: f64,
    /// Faults by phase, in the order of the file.
    pub faults: Vec<ScheduledFault>,
    phases: Vec<Phase>,
    offered: [f64; 7],
}

impl Scenario {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, |table| scenario(table, mix::fold_bytes(0, text.as_bytes())))
    }

    /// The scenario that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped scenario is valid, which a test checks")
    }

    /// The phases, the first one being where a run starts. Never empty.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// Position of the phase of that name.
    pub fn phase_index(&self, name: &str) -> Option<usize> {
        self.phases.iter().position(|phase| phase.name == name)
    }

    /// Mean concurrent calls that the domain offers to a dependency in the first phase: declared, or the domain's rate
    /// times the mean service time.
    pub const fn offered(&self, dependency: Dependency) -> f64 {
        self.offered[dependency.index()]
    }

    /// The scenario of a smaller system: servers and queue bounds by square-root staffing. A pool with its queue is
    /// staffed like a pool of that total size, so the queue bound alone shrinks by the root.
    pub fn scaled(&self, scale: Scale) -> Self {
        let mut scaled = self.clone();
        scaled.domain_requests_per_s *= scale.as_f64();
        for phase in &mut scaled.phases {
            for (emulated, offered) in phase.dependencies.iter_mut().zip(&mut scaled.offered) {
                let Capacity { servers, queue_max } = emulated.capacity;
                emulated.capacity = Capacity {
                    servers: scale.staffing(*offered, servers),
                    queue_max: scale.staffing(0.0, queue_max),
                };
            }
        }
        for offered in &mut scaled.offered {
            *offered *= scale.as_f64();
        }
        scaled
    }
}

impl Scenario {
    /// The scenario with other capacities, in every phase: so many percent of the servers and of the places in line.
    pub fn with_capacity_percent(&self, percent: impl Fn(Dependency) -> u32) -> Self {
        let mut changed = self.clone();
        for phase in &mut changed.phases {
            for name in Dependency::ALL {
                let part = |count: u32| {
                    let wanted = u64::from(count) * u64::from(percent(name)) / 100;
                    u32::try_from(wanted).unwrap_or(u32::MAX)
                };
                let Capacity { servers, queue_max } = phase.dependency(name).capacity;
                phase.dependencies[name.index()].capacity =
                    Capacity { servers: part(servers).max(1), queue_max: part(queue_max) };
            }
        }
        changed
    }

    /// The scenario in slow motion: every latency and every time of a fault is `factor` times as long and the rate so
    /// much lower, so that concurrency and capacity are those of the original.
    pub fn dilated(&self, factor: u32) -> Self {
        let mut dilated = self.clone();
        dilated.domain_requests_per_s /= f64::from(factor.max(1));
        for phase in &mut dilated.phases {
            for emulated in &mut phase.dependencies {
                emulated.latency = emulated.latency.dilated(factor);
            }
        }
        for fault in &mut dilated.faults {
            fault.after = fault.after.times(factor);
            fault.rule = fault.rule.dilated(factor);
        }
        dilated
    }
}

/// The keys of a dependency, as the base declares them and as a phase overrides them.
#[derive(Clone, Copy)]
struct Raw {
    body_median: Nanos,
    body_sigma: f64,
    slow_probability: f64,
    slow_median: Nanos,
    slow_sigma: f64,
    servers: u64,
    queue_max: u64,
    class_factors: [f64; 3],
}

impl Raw {
    /// Stands in for a base that could not be read, while its overrides are checked.
    const UNREAD: Self = Self {
        body_median: Nanos::new(1),
        body_sigma: 0.0,
        slow_probability: 0.0,
        slow_median: Nanos::new(1),
        slow_sigma: 0.0,
        servers: 1,
        queue_max: 0,
        class_factors: [1.0; 3],
    };

    fn emulated(&self, tables: &mut Tables) -> Emulated {
        let body = tables.log_normal(self.body_median, self.body_sigma);
        let slow = tables.log_normal(self.slow_median, self.slow_sigma);
        let latency = Mixture::new(body, slow, Share::from_ratio(self.slow_probability), self.class_factors);
        let bounded = |value: u64| u32::try_from(value).unwrap_or(CAPACITY_MAX);
        Emulated {
            latency,
            capacity: Capacity { servers: bounded(self.servers), queue_max: bounded(self.queue_max) },
        }
    }
}

struct Domain {
    requests_per_s: f64,
    class_shares: [f64; 3],
}

fn scenario(table: &mut Table<'_>, digest: u64) -> Option<Scenario> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let domain = table.section("domain", domain);
    let bases: [Option<(Raw, Option<f64>)>; 7] = table
        .section("dependencies", |dependencies| {
            Some(Dependency::ALL.map(|name| dependencies.section(name.as_str(), base)))
        })
        .unwrap_or([None; 7]);
    // Names are kept apart, so that a fault elsewhere in a phase does not make its name unknown.
    let mut names: Vec<String> = Vec::new();
    let phases = table.sections("phases", 1..=PHASES_MAX, |table| {
        let (name, raw) = phase(table, &bases);
        names.extend(name.clone());
        Some((name?, raw?))
    });
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        table.fault("phases", "two phases have the same name");
    }
    let faults = table.sections("faults", 0..=FAULTS_MAX, |table| fault::scheduled(table, &names));

    let (domain, bases, raw_phases) = (domain?, every(bases)?, phases?);
    let mut tables = Tables::default();
    let phases: Vec<Phase> = raw_phases
        .into_iter()
        .map(|(name, raw)| Phase { name, dependencies: raw.map(|raw| raw.emulated(&mut tables)) })
        .collect();
    let offered = Dependency::ALL.map(|name| {
        let (_, declared) = bases[name.index()];
        declared.unwrap_or_else(|| derived_offered(&domain, &phases[0].dependency(name).latency))
    });
    Some(Scenario {
        name: name?,
        version: version?,
        digest,
        domain_requests_per_s: domain.requests_per_s,
        faults: faults?,
        phases,
        offered,
    })
}

/// Little's law: rate times mean service time, over the class mix.
fn derived_offered(domain: &Domain, latency: &Mixture) -> f64 {
    let mean_s: f64 = WorkloadClass::ALL
        .iter()
        .map(|class| domain.class_shares[class.index()] * latency.mean(*class).as_secs_f64())
        .sum();
    domain.requests_per_s * mean_s
}

fn domain(table: &mut Table<'_>) -> Option<Domain> {
    let region = table.number("region_requests_per_s", 1.0..=1e7);
    let domains = table.integer("admission_domains", 1..=1_000);
    let class_shares = table.section("class_shares", |shares| {
        every(WorkloadClass::ALL.map(|class| shares.number(class.as_str(), 0.0..=1.0)))
    });
    if let Some(shares) = class_shares
        && (shares.iter().sum::<f64>() - 1.0).abs() > 1e-9
    {
        table.fault("class_shares", "the shares must add up to 1");
    }
    Some(Domain { requests_per_s: region? / domains? as f64, class_shares: class_shares? })
}

fn base(table: &mut Table<'_>) -> Option<(Raw, Option<f64>)> {
    let micros_max = MEDIAN_MAX.as_micros();
    let body_median = table.micros("body_median_us", 1..=micros_max);
    let body_sigma = table.number("body_sigma", 0.0..=SIGMA_MAX);
    let slow_probability = table.number("slow_probability", 0.0..=1.0);
    let slow_median = table.micros("slow_median_us", 1..=micros_max);
    let slow_sigma = table.number("slow_sigma", 0.0..=SIGMA_MAX);
    let servers = table.integer("servers", 1..=u64::from(CAPACITY_MAX));
    let queue_max = table.integer("queue_max", 0..=u64::from(CAPACITY_MAX));
    let class_factors = table.section_opt("class_factors", |factors| {
        every(WorkloadClass::ALL.map(|class| factors.number_or(class.as_str(), 0.1..=10.0, 1.0)))
    });
    let offered = table.number_or("offered_concurrency", 0.0..=f64::from(CAPACITY_MAX), -1.0);
    let raw = Raw {
        body_median: body_median?,
        body_sigma: body_sigma?,
        slow_probability: slow_probability?,
        slow_median: slow_median?,
        slow_sigma: slow_sigma?,
        servers: servers?,
        queue_max: queue_max?,
        class_factors: class_factors?.unwrap_or([1.0; 3]),
    };
    Some((raw, offered.filter(|offered| *offered >= 0.0)))
}

/// A phase: its name, and every dependency with what the phase overrides.
fn phase(
    table: &mut Table<'_>,
    bases: &[Option<(Raw, Option<f64>)>; 7],
) -> (Option<String>, Option<[Raw; 7]>) {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let read = bases.map(|base| base.map_or(Raw::UNREAD, |(raw, _)| raw));
    let overridden = table.section_opt("dependencies", |dependencies| {
        every(Dependency::ALL.map(|name| {
            let base = read[name.index()];
            let changed = dependencies.section_opt(name.as_str(), |table| overrides(table, base));
            changed.map(|changed| changed.unwrap_or(base))
        }))
    });
    (name, overridden.map(|overridden| overridden.unwrap_or(read)))
}

fn overrides(table: &mut Table<'_>, base: Raw) -> Option<Raw> {
    let micros_max = MEDIAN_MAX.as_micros();
    let body_median = table.micros_or("body_median_us", 1..=micros_max, base.body_median);
    let body_sigma = table.number_or("body_sigma", 0.0..=SIGMA_MAX, base.body_sigma);
    let slow_probability = table.number_or("slow_probability", 0.0..=1.0, base.slow_probability);
    let slow_median = table.micros_or("slow_median_us", 1..=micros_max, base.slow_median);
    let slow_sigma = table.number_or("slow_sigma", 0.0..=SIGMA_MAX, base.slow_sigma);
    let servers = table.integer_or("servers", 1..=u64::from(CAPACITY_MAX), base.servers);
    let queue_max = table.integer_or("queue_max", 0..=u64::from(CAPACITY_MAX), base.queue_max);
    Some(Raw {
        body_median: body_median?,
        body_sigma: body_sigma?,
        slow_probability: slow_probability?,
        slow_median: slow_median?,
        slow_sigma: slow_sigma?,
        servers: servers?,
        queue_max: queue_max?,
        class_factors: base.class_factors,
    })
}

/// A name that may appear in a command, a label and a file name.
pub(crate) fn plain_name(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=64).contains(&text.len()) && text.bytes().all(plain)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
