//! File: a drill as a user writes it.

use base::{Dependency, WorkloadClass};

use super::{Budgets, Drill, Moved, Pool, SHIPPED, Seen};
use crate::{
    faults::Faults,
    policy,
    read::{self, Table, every},
    scenario::plain_name,
};

/// Longest time, in milliseconds.
const MS_MAX: f64 = 3_600_000.0;
/// Largest share, in percent; a pool may be more than full while its bound is lowered.
const PERCENT_MAX: f64 = 1_000.0;
/// Most calls of a pool.
const POOL_MAX: u32 = 1_000_000;
/// Longest sentence, in bytes.
const ABOUT_BYTES_MAX: usize = 400;

impl Drill {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, drill)
    }

    /// The drill that this version ships with.
    pub fn shipped() -> Self {
        Self::parse(SHIPPED.0, SHIPPED.1).expect("the shipped drill is valid, which a test checks")
    }

    /// A document with one value replaced, as text: `observed.p99_ms` and the like. A key that the document does not have, in a table
    /// that it may have, is added.
    ///
    /// # Errors
    /// [`Faults`] when the document cannot be read, or the value is none; what it means is said by [`Drill::parse`].
    pub fn set(document: (&str, &str), key: &str, value: &str) -> Result<String, Faults> {
        let mut change = String::new();
        let (table, last) = key.rsplit_once('.').unwrap_or(("", key));
        if !table.is_empty() {
            change = format!("[{table}]\n");
        }
        change.push_str(&format!("{last} = {value}\n"));
        policy::merged(document, (&format!("{key}={value}"), &change))
    }
}

fn drill(table: &mut Table<'_>) -> Option<Drill> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let about = table.text("about", "1 to 400 bytes", |text| {
        (1..=ABOUT_BYTES_MAX).contains(&text.len()).then(|| text.to_owned())
    });
    let budgets = table.section("budgets", budgets);
    let observed = table.section("observed", |table| {
        let p99_ms = table.number("p99_ms", 0.0..=MS_MAX);
        let cpu_percent = table.number_opt("cpu_percent", 0.0..=100.0);
        let queue_age_ms = table.number_opt("queue_age_p99_ms", 0.0..=MS_MAX);
        let profile_percent = table.number_opt("profile_occupancy_percent", 0.0..=PERCENT_MAX);
        let late_percent = table.number_opt("late_work_percent", 0.0..=100.0);
        let omission_percent = table.number_opt("omission_percent", 0.0..=100.0);
        Some((p99_ms?, cpu_percent?, queue_age_ms?, profile_percent?, late_percent?, omission_percent?))
    });
    let dependencies = table.section_opt("dependencies", |table| {
        every(Dependency::ALL.map(|name| {
            let seen = table.section_opt(name.as_str(), seen)?;
            Some(seen.unwrap_or_default())
        }))
    });
    let classes = table.section_opt("classes", classes);
    let (p99_ms, cpu_percent, queue_age_ms, profile_percent, late_percent, omission_percent) = observed?;
    Some(Drill {
        name: name?,
        version: version?,
        about: about?,
        budgets: budgets?,
        p99_ms,
        cpu_percent,
        queue_age_ms,
        profile_percent,
        late_percent,
        omission_percent,
        dependencies: dependencies?.unwrap_or_default(),
        classes: classes?.unwrap_or_default(),
    })
}

fn budgets(table: &mut Table<'_>) -> Option<Budgets> {
    let p99_ms = table.number("p99_ms", 1.0..=MS_MAX);
    let queue_age_ms = table.number("queue_age_p99_ms", 0.001..=MS_MAX);
    let profile_percent = table.number("profile_occupancy_percent", 0.1..=100.0);
    let late_percent = table.number("late_work_percent", 0.001..=100.0);
    let omission_percent = table.number("omission_percent", 0.001..=100.0);
    let drift_percent = table.number("drift_max_percent", 0.1..=100.0);
    let cpu_percent = table.number("cpu_busy_percent", 1.0..=100.0);
    Some(Budgets {
        p99_ms: p99_ms?,
        queue_age_ms: queue_age_ms?,
        profile_percent: profile_percent?,
        late_percent: late_percent?,
        omission_percent: omission_percent?,
        drift_percent: drift_percent?,
        cpu_percent: cpu_percent?,
    })
}

fn seen(table: &mut Table<'_>) -> Option<Seen> {
    let wait_ms = table.section_opt("client_wait_p99_ms", |table| moved(table, MS_MAX));
    let service_ms = table.section_opt("server_service_p99_ms", |table| moved(table, MS_MAX));
    let pool = table.section_opt("pool", |table| {
        let active = table.integer32("active", 0..=POOL_MAX);
        let limit = table.integer32("limit", 1..=POOL_MAX);
        let pending = table.integer32("pending", 0..=POOL_MAX);
        Some(Pool { active: active?, limit: limit?, pending: pending? })
    });
    Some(Seen { wait_ms: wait_ms?, service_ms: service_ms?, pool: pool? })
}

fn moved(table: &mut Table<'_>, most: f64) -> Option<Moved> {
    let now = table.number("now", 0.0..=most);
    let before = table.number("before", 0.0..=most);
    Some(Moved { now: now?, before: before? })
}

fn classes(table: &mut Table<'_>) -> Option<[Option<Moved>; WorkloadClass::ALL.len()]> {
    let shares = every(
        WorkloadClass::ALL.map(|class| table.section_opt(class.as_str(), |table| moved(table, 100.0))),
    )?;
    for (what, of) in
        [("now", (|moved: Moved| moved.now) as fn(Moved) -> f64), ("before", |moved| moved.before)]
    {
        let sum: f64 = shares.iter().flatten().map(|moved| of(*moved)).sum();
        let whole = shares.iter().all(Option::is_some);
        // All of them are everybody; some of them are not more than that.
        if sum > 100.0 + 1e-6 || (whole && (sum - 100.0).abs() > 0.1) {
            let first = WorkloadClass::ALL.iter().find(|class| shares[class.index()].is_some());
            let class = first.map_or("standard", |class| class.as_str());
            table.fault_in(&[class, what], format!("the shares {what} add up to {sum} %"));
        }
    }
    Some(shares)
}
