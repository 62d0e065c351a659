//! Metrics: the registry of one process, its OpenMetrics text, and the buckets that everybody uses.
//!
//! **Label policy.** A label's values come from a set that is known when the process starts: class, region, release,
//! phase, branch, outcome, reason, server, size bucket. Never a tenant, a subject, an id, an address or the text of an
//! error: those go to spans, and a trace id goes to an exemplar. Handles are resolved at construction, so that a
//! request pays for an atomic addition and not for a look-up.

mod process;
mod server;

use std::sync::{Arc, Mutex, PoisonError};

use base::{inject::Points, trace::TraceContext};
use prometheus_client::{
    encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder, text},
    metrics::{exemplar::HistogramWithExemplars, family::Family, gauge::Gauge},
    registry,
};

use crate::{lifecycle::Lifecycle, supervisor::Supervisor};

pub use server::{LATE_AFTER, Outcome, ServerMetrics};
pub(crate) use server::{ResponseGauges, signed};

/// Content type of [`Registry::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// First part of every name that this suite makes up; the process series keep the names that dashboards know.
const PREFIX: &str = "mercury";

/// Upper bounds in seconds of every latency histogram: dense around the objective of 300 ms, since a quantile is only as
/// sharp as the bucket it falls in.
pub const LATENCY_BUCKETS: [f64; 20] = [
    0.001, 0.002, 0.005, 0.010, 0.020, 0.040, 0.070, 0.100, 0.150, 0.200, 0.250, 0.280, 0.300, 0.350, 0.400,
    0.500, 0.750, 1.0, 2.0, 5.0,
];

/// Upper bounds in seconds for what should be over at once: stop delays, queue ages. They reach on to what is not over,
/// since work that nobody stops runs to the end of its own time-outs.
pub const DELAY_BUCKETS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.010, 0.012, 0.020, 0.050, 0.100, 0.200, 0.500, 1.0, 2.0,
    5.0,
];

/// A histogram whose buckets each remember the trace of their latest sampled observation.
pub type TracedHistogram = HistogramWithExemplars<TraceLabel>;

/// The label of an exemplar: `trace_id`, as text only when it is scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLabel(u128);

impl TraceLabel {
    /// The label of a sampled trace. `None` for one that nobody records: an exemplar that leads nowhere misleads.
    pub fn of(trace: Option<&TraceContext>) -> Option<Self> {
        trace.filter(|context| context.sampled).map(|context| Self(context.trace_id))
    }
}

impl EncodeLabelSet for TraceLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        ("trace_id", format!("{:032x}", self.0)).encode(encoder.encode_label())
    }
}

/// A histogram over [`LATENCY_BUCKETS`], in seconds.
pub fn latency_histogram() -> TracedHistogram {
    TracedHistogram::new(LATENCY_BUCKETS.into_iter())
}

/// A histogram over [`DELAY_BUCKETS`], in seconds.
pub fn delay_histogram() -> TracedHistogram {
    TracedHistogram::new(DELAY_BUCKETS.into_iter())
}

/// The metrics of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Series under the names that every Prometheus client library uses.
    process: Mutex<registry::Registry>,
    /// Series under [`PREFIX`].
    mercury: Mutex<registry::Registry>,
    /// Series per port, registered once however many ports there are.
    servers: server::Families,
    /// What the bounds are.
    bounds: Family<[(&'static str, &'static str); 1], Gauge>,
}

impl Registry {
    /// The registry of a process that runs `service`, with the process series and a build series in it.
    pub fn new(service: &'static str) -> Self {
        let mut process = registry::Registry::default();
        process.register_collector(Box::new(process::ProcessCollector::new()));
        let mut mercury = registry::Registry::with_prefix(PREFIX);
        process::register_build(&mut mercury, service);
        let servers = server::Families::register(&mut mercury);
        let bounds = Family::default();
        let help =
            "The bound of that name that is in force: a number, bytes or milliseconds, as the name says";
        mercury.register("bound_limit", help, bounds.clone());
        Self(Arc::new(Inner { process: Mutex::new(process), mercury: Mutex::new(mercury), servers, bounds }))
    }

    /// Registers further series; their names get the prefix `mercury_`. The lock is held meanwhile, and during a
    /// scrape: register once at start and keep the handles.
    pub fn with<T>(&self, register: impl FnOnce(&mut registry::Registry) -> T) -> T {
        register(&mut self.0.mercury.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells what a bound is from now on. `name` is a bounded label.
    pub fn bound(&self, name: &'static str, limit: u64) {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.0.bounds.get_or_create_owned(&[("bound", name)]).set(limit);
    }

    /// Adds the series of a supervisor: tasks live, started, and ended by how they ended. Once per registry.
    pub fn watch_tasks(&self, supervisor: &Supervisor) {
        self.with(|inner| inner.register_collector(Box::new(process::TaskCollector(supervisor.clone()))));
    }

    /// Adds the series of a process's life: its stage, the time spent in each, the exchanges that it waits for. Once per
    /// registry.
    pub fn watch_lifecycle(&self, lifecycle: &Lifecycle) {
        self.with(|inner| inner.register_collector(Box::new(process::LifecycleCollector(lifecycle.clone()))));
    }

    /// Adds the series of the injection points. Once per registry.
    pub fn watch_points(&self, points: &Points) {
        self.with(|inner| inner.register_collector(Box::new(process::PointCollector(points.clone()))));
    }

    /// Everything as OpenMetrics text of type [`CONTENT_TYPE`], exemplars included.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        let process = self.0.process.lock().unwrap_or_else(PoisonError::into_inner);
        let mercury = self.0.mercury.lock().unwrap_or_else(PoisonError::into_inner);
        text::encode_registry(&mut out, &process)
            .and_then(|()| text::encode_registry(&mut out, &mercury))
            .and_then(|()| text::encode_eof(&mut out))
            .expect("writing to a String does not fail, and every registered series has a text form");
        out
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn every_registered_series_is_scraped_once_and_the_text_ends() {
        let registry = Registry::new("profile");
        let counter = Counter::<u64>::default();
        registry.with(|inner| inner.register("things", "Things", counter.clone()));
        counter.inc_by(3);
        let text = registry.encode();
        assert!(text.contains("mercury_things_total 3\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let unique: std::collections::BTreeSet<_> = types.iter().collect();
        assert_eq!(types.len(), unique.len(), "{types:?}");
    }

    #[test]
    fn delays_are_told_apart_on_both_sides_of_what_is_late() {
        assert!(DELAY_BUCKETS.is_sorted());
        for millis in [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000] {
            assert!(DELAY_BUCKETS.contains(&(f64::from(millis) / 1e3)), "{millis} ms");
        }
        assert!(DELAY_BUCKETS.contains(&LATE_AFTER.as_secs_f64()));
    }

    #[test]
    fn an_exemplar_is_kept_for_a_sampled_trace_only() {
        let registry = Registry::new("profile");
        let histogram = latency_histogram();
        registry.with(|inner| inner.register("wait", "Wait", histogram.clone()));
        let sampled = TraceContext { trace_id: 0xabc, span_id: 1, sampled: true };
        let silent = TraceContext { sampled: false, ..sampled };
        histogram.observe(0.29, TraceLabel::of(Some(&sampled)), None);
        histogram.observe(0.06, TraceLabel::of(Some(&silent)), None);
        histogram.observe(9.0, TraceLabel::of(None), None);
        let text = registry.encode();
        let with_exemplar: Vec<_> = text.lines().filter(|line| line.contains(" # {")).collect();
        assert_eq!(with_exemplar.len(), 1, "{text}");
        assert!(with_exemplar[0].starts_with("mercury_wait_bucket{le=\"0.3\"} 2 "), "{with_exemplar:?}");
        assert!(
            with_exemplar[0].contains("trace_id=\"00000000000000000000000000000abc\""),
            "{with_exemplar:?}"
        );
        assert!(text.contains("mercury_wait_bucket{le=\"+Inf\"} 3"), "{text}");
    }
}
