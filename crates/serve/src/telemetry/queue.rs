//! Queue: the bounded queue of spans between requests and the collector, and the account of what became of them.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base::{Clock, Nanos, WallClock, World};
use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use tokio::sync::Notify;

use super::ExportConfig;
use crate::metrics::Registry;

/// Longest search for the instant at which the calendar turns to its next millisecond.
const ANCHOR_MAX: Nanos = Nanos::from_millis(2);
/// Most looks at the calendar in that search, for clocks that stand still.
const ANCHOR_LOOKS_MAX: u32 = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// What became of the spans.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    offered: Counter,
    exported: Counter,
    waiting: Gauge,
    queue_full: Counter,
    export_failed: Counter,
    shut_down: Counter,
}

impl Counts {
    pub(super) fn register(registry: &Registry) -> Self {
        let dropped = Family::<ByReason, Counter>::default();
        let reason = |reason| dropped.get_or_create_owned(&ByReason { reason });
        let counts = Self {
            offered: Counter::default(),
            exported: Counter::default(),
            waiting: Gauge::default(),
            queue_full: reason("queue_full"),
            export_failed: reason("export_failed"),
            shut_down: reason("shutdown"),
        };
        let all = counts.clone();
        registry.with(|inner| {
            inner.register("telemetry_spans", "Recorded spans that ended", all.offered);
            inner.register("telemetry_exported_spans", "Spans that the collector took", all.exported);
            inner.register("telemetry_dropped_spans", "Spans that no collector got, by reason", dropped);
            inner.register("telemetry_waiting_spans", "Spans that wait for their export", all.waiting);
        });
        counts
    }

    /// Spans that a collector did not get, and that do not wait for one.
    pub(super) fn dropped(&self) -> u64 {
        self.queue_full.get() + self.export_failed.get() + self.shut_down.get()
    }

    /// Spans that no collector has got so far, those under way included.
    pub(super) fn undelivered(&self) -> u64 {
        // Exported first: it never overtakes what was offered before it was read.
        let exported = self.exported.get();
        self.offered.get() - exported
    }
}

#[derive(Default)]
struct Waiting {
    spans: VecDeque<Box<SpanData>>,
    closed: bool,
}

/// The bounded queue, and what a span needs to be made.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    queue_max: usize,
    batch_max: usize,
    pub(super) batch_ready: Notify,
    pub(super) counts: Counts,
    pub(super) clock: Arc<dyn Clock>,
    /// Unix time, in nanoseconds, at the origin of `clock`.
    origin: u64,
    /// A trace begun here is recorded if the low 63 bits of its id are below.
    threshold: u64,
    scope: InstrumentationScope,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.lock().spans.len()).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(settings: &ExportConfig, world: &World, counts: Counts) -> Self {
        Self {
            waiting: Mutex::default(),
            queue_max: settings.queue_max,
            batch_max: settings.batch_max.clamp(1, settings.queue_max.max(1)),
            batch_ready: Notify::new(),
            counts,
            clock: Arc::clone(&world.clock),
            origin: origin(&*world.clock, &*world.wall),
            threshold: (settings.ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64,
            scope: InstrumentationScope::builder("mercury").with_version(env!("CARGO_PKG_VERSION")).build(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn samples(&self, trace_id: u128) -> bool {
        (trace_id as u64 >> 1) < self.threshold
    }

    pub(super) fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.origin.saturating_add(self.clock.now().get()))
    }

    pub(super) fn scope(&self) -> InstrumentationScope {
        self.scope.clone()
    }

    /// Takes a span that ended, or counts its loss. Never waits for the collector.
    pub(super) fn offer(&self, span: Box<SpanData>) {
        self.counts.offered.inc();
        let mut waiting = self.lock();
        if waiting.closed {
            self.counts.shut_down.inc();
        } else if waiting.spans.len() >= self.queue_max {
            self.counts.queue_full.inc();
        } else {
            waiting.spans.push_back(span);
            self.counts.waiting.inc();
            // Once a batch, not once a span: waking the exporter is a system call.
            let ready = waiting.spans.len() == self.batch_max;
            drop(waiting);
            if ready {
                self.batch_ready.notify_one();
            }
        }
    }

    pub(super) fn take(&self) -> Option<Batch<'_>> {
        // Pointers under the lock; the spans themselves are moved after it.
        let spans: Vec<_> = {
            let mut waiting = self.lock();
            let count = waiting.spans.len().min(self.batch_max);
            waiting.spans.drain(..count).collect()
        };
        let spans: Vec<SpanData> = spans.into_iter().map(|span| *span).collect();
        self.counts.waiting.dec_by(spans.len() as i64);
        (!spans.is_empty()).then_some(Batch { spans, counts: &self.counts, unsettled: 0 })
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    /// Gives up what waits.
    pub(super) fn abandon(&self) {
        self.close();
        while let Some(batch) = self.take() {
            self.counts.shut_down.inc_by(batch.spans.len() as u64);
        }
    }
}

/// Spans on their way to the collector. If the export is cut, they count as lost to the shutdown.
pub(super) struct Batch<'a> {
    spans: Vec<SpanData>,
    counts: &'a Counts,
    unsettled: u64,
}

impl Batch<'_> {
    pub(super) async fn send(mut self, exporter: &SpanExporter, timeout: Nanos) -> Result<(), String> {
        let spans = std::mem::take(&mut self.spans);
        self.unsettled = spans.len() as u64;
        let result = match tokio::time::timeout(timeout.into(), exporter.export(spans)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {timeout}")),
        };
        let counter = if result.is_ok() { &self.counts.exported } else { &self.counts.export_failed };
        counter.inc_by(std::mem::take(&mut self.unsettled));
        result
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.counts.shut_down.inc_by(self.unsettled);
    }
}

/// Unix time at the origin of `clock`. The calendar is read in whole milliseconds, so this waits until it turns: then
/// spans of two processes on one machine line up within microseconds.
fn origin(clock: &dyn Clock, wall: &dyn WallClock) -> u64 {
    let (begun, first) = (clock.now(), wall.unix_ms());
    let mut unix_ms = first;
    for _ in 0..ANCHOR_LOOKS_MAX {
        unix_ms = wall.unix_ms();
        if unix_ms != first || clock.now().saturating_sub(begun) > ANCHOR_MAX {
            break;
        }
        std::hint::spin_loop();
    }
    (unix_ms.unsigned_abs() * 1_000_000).saturating_sub(clock.now().get())
}
