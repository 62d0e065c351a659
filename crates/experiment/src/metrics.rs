//! Metrics: what became of exposures, and what waits. Offered = refused + turned down + settled by outcome + waiting.

use base::Nanos;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{
    ledger::WriteError,
    recorder::{Outcome, RecordError},
};

type Outcomes = Family<[(&'static str, &'static str); 1], Counter>;

/// Upper bounds of the rows of a transaction.
const ROWS: [f64; 9] = [1.0, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 192.0, 384.0];
/// Upper bounds of the time of a transaction, in seconds.
const SECONDS: [f64; 12] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// Counters, gauges and histograms of the recorder.
pub struct Metrics {
    offered: Counter,
    unclaimed: Counter,
    refused: Counter,
    down: Counter,
    committed: Counter,
    replayed: Counter,
    conflict: Counter,
    known_absent: Counter,
    ambiguous: Counter,
    outcomes: Outcomes,
    rows: Histogram,
    seconds: Histogram,
    probes: Outcomes,
    sound: Counter,
    failed: Counter,
    waiting: Gauge,
    waiting_bytes: Gauge,
}

impl Metrics {
    /// All at zero, and known to nobody until they are registered.
    pub fn new() -> Self {
        let outcomes = Outcomes::default();
        let outcome = |name| outcomes.get_or_create_owned(&[("outcome", name)]);
        let probes = Outcomes::default();
        let probe = |name| probes.get_or_create_owned(&[("outcome", name)]);
        Self {
            offered: Counter::default(),
            unclaimed: Counter::default(),
            refused: outcome("refused"),
            down: outcome("down"),
            committed: outcome("committed"),
            replayed: outcome("replayed"),
            conflict: outcome("conflict"),
            known_absent: outcome("known_absent"),
            ambiguous: outcome("ambiguous"),
            rows: Histogram::new(ROWS),
            seconds: Histogram::new(SECONDS),
            sound: probe("sound"),
            failed: probe("failed"),
            waiting: Gauge::default(),
            waiting_bytes: Gauge::default(),
            outcomes,
            probes,
        }
    }

    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("exposures_offered", "Exposures handed to the recorder", self.offered.clone());
        registry.register("exposures", "Exposures by what became of them", self.outcomes.clone());
        let help = "Exposures that were settled after their caller had left";
        registry.register("exposures_unclaimed", help, self.unclaimed.clone());
        registry.register("exposure_transaction_rows", "Distinct rows of a transaction", self.rows.clone());
        let help = "Time of a ledger transaction";
        registry.register_with_unit("exposure_transaction", help, Unit::Seconds, self.seconds.clone());
        let help = "Questions to an idle or failing ledger whether it would take a row";
        registry.register("exposure_ledger_probes", help, self.probes.clone());
        registry.register("exposures_waiting", "Exposures that wait for the writer", self.waiting.clone());
        let help = "Size of the exposures that wait for the writer";
        registry.register_with_unit("exposures_waiting", help, Unit::Bytes, self.waiting_bytes.clone());
    }

    pub(crate) fn offered(&self, rows: usize) {
        self.offered.inc_by(rows as u64);
    }

    pub(crate) fn refused(&self, error: RecordError, rows: usize) {
        let counter = if error == RecordError::Down { &self.down } else { &self.refused };
        counter.inc_by(rows as u64);
    }

    /// So many wait for the writer now.
    pub(crate) fn waiting(&self, rows: usize, bytes: usize) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.waiting.set(number(rows));
        self.waiting_bytes.set(number(bytes));
    }

    pub(crate) fn probed(&self, sound: bool) {
        let counter = if sound { &self.sound } else { &self.failed };
        counter.inc();
    }

    pub(crate) fn unclaimed(&self, rows: usize) {
        self.unclaimed.inc_by(rows as u64);
    }

    pub(crate) fn settled(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Committed => &self.committed,
            Outcome::Replayed => &self.replayed,
            Outcome::Conflict => &self.conflict,
        };
        counter.inc();
    }

    /// Rows of a transaction that failed, as often as they were handed in.
    pub(crate) fn failed(&self, error: &WriteError, rows: usize) {
        let counter = match error {
            WriteError::KnownAbsent(_) => &self.known_absent,
            WriteError::Unknown(_) => &self.ambiguous,
        };
        counter.inc_by(rows as u64);
    }

    /// A transaction of so many distinct rows ended.
    pub(crate) fn transaction(&self, rows: usize, took: Nanos) {
        self.rows.observe(rows as f64);
        self.seconds.observe(took.as_secs_f64());
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
impl Metrics {
    pub(crate) fn count(&self, outcome: &'static str) -> u64 {
        self.outcomes.get_or_create(&[("outcome", outcome)]).get()
    }

    pub(crate) fn offered_count(&self) -> u64 {
        self.offered.get()
    }

    pub(crate) fn unclaimed_count(&self) -> u64 {
        self.unclaimed.get()
    }

    /// Rows and bytes that wait.
    pub(crate) fn waiting_now(&self) -> (i64, i64) {
        (self.waiting.get(), self.waiting_bytes.get())
    }
}
