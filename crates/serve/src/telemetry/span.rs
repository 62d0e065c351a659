//! Span: the spans of requests. Recorded when somebody collects them, otherwise a position in the trace and no more.

use std::{borrow::Cow, fmt, sync::Arc};

use base::{ids::IdSource, trace::TraceContext};
use opentelemetry::{
    KeyValue, Value,
    trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::queue::Queue;
use crate::metrics::Outcome;

/// Longest span name, in bytes; a caller chooses the path of its request.
const NAME_BYTES_MAX: usize = 128;
/// Most attributes of one span; further ones are counted, not kept.
const ATTRIBUTES_MAX: usize = 48;
/// Longest text value of an attribute, in bytes.
const ATTRIBUTE_BYTES_MAX: usize = 256;
/// Most links of one span; further ones are counted, not kept.
const LINKS_MAX: usize = 64;
/// Attribute that says how the work of the span ended.
const OUTCOME: &str = "mercury.outcome";
/// Outcome of a span that was dropped and never finished: its work was cancelled, or panicked.
const ABANDONED: &str = "abandoned";

/// Makes spans. Clones share the exporter.
#[derive(Clone, Debug, Default)]
pub struct Tracer {
    queue: Option<Arc<Queue>>,
}

impl Tracer {
    /// A tracer that records nothing and passes context on.
    pub const fn off() -> Self {
        Self { queue: None }
    }

    pub(super) const fn on(queue: Arc<Queue>) -> Self {
        Self { queue: Some(queue) }
    }

    /// The span of a request that arrived, under the caller's span if it sent one. Otherwise a trace begins here, and
    /// is recorded in the configured share of cases.
    ///
    /// Its id is what travels on, recorded or not: a hop without a collector does not break the trace of its
    /// neighbours.
    pub fn start(&self, name: &str, parent: Option<TraceContext>, ids: &IdSource) -> SpanHandle {
        self.begin(name, SpanKind::Server, parent, true, ids)
    }

    /// A span within this process, or a call out of it.
    pub fn child(
        &self,
        name: &'static str,
        kind: SpanKind,
        parent: TraceContext,
        ids: &IdSource,
    ) -> SpanHandle {
        self.begin(name, kind, Some(parent), false, ids)
    }

    fn begin(
        &self,
        name: &str,
        kind: SpanKind,
        parent: Option<TraceContext>,
        remote: bool,
        ids: &IdSource,
    ) -> SpanHandle {
        let span_id = ids.next_u64();
        let context = parent.map_or_else(
            || {
                let trace_id = ids.next_u128();
                let sampled = self.queue.as_ref().is_some_and(|queue| queue.samples(trace_id));
                TraceContext { trace_id, span_id, sampled }
            },
            |parent| parent.child(span_id),
        );
        let recording = self.queue.as_ref().filter(|_| context.sampled).map(|queue| {
            let now = queue.now();
            let data = SpanData {
                span_context: span_context(context, false),
                parent_span_id: parent.map_or(SpanId::INVALID, |parent| parent.span_id.into()),
                parent_span_is_remote: remote && parent.is_some(),
                span_kind: kind,
                name: Cow::Owned(cut(name, NAME_BYTES_MAX).to_owned()),
                start_time: now,
                end_time: now,
                attributes: Vec::new(),
                dropped_attributes_count: 0,
                events: SpanEvents::default(),
                links: SpanLinks::default(),
                status: Status::Unset,
                instrumentation_scope: queue.scope(),
            };
            Recording { data: Box::new(data), queue: Arc::clone(queue) }
        });
        SpanHandle { context, recording }
    }
}

fn span_context(context: TraceContext, remote: bool) -> SpanContext {
    let flags = TraceFlags::default().with_sampled(context.sampled);
    let trace_id = TraceId::from(context.trace_id);
    SpanContext::new(trace_id, context.span_id.into(), flags, remote, TraceState::NONE)
}

/// The longest beginning of `text` within `bytes_max`.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

struct Recording {
    data: Box<SpanData>,
    queue: Arc<Queue>,
}

/// A span that has begun. It ends once, by [`SpanHandle::finish`] or when it is dropped.
pub struct SpanHandle {
    context: TraceContext,
    recording: Option<Recording>,
}

impl fmt::Debug for SpanHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanHandle")
            .field("context", &self.context)
            .field("recording", &self.recording())
            .finish()
    }
}

impl SpanHandle {
    /// The position that travels on: whatever this hop calls has this span for its parent.
    pub const fn context(&self) -> TraceContext {
        self.context
    }

    /// Whether attributes are kept. Ask before making one that costs something.
    pub const fn recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Adds an attribute. Unlike a metric's label it may identify its request; it must not be a secret.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        let Some(recording) = &mut self.recording else { return };
        if recording.data.attributes.len() == ATTRIBUTES_MAX {
            recording.data.dropped_attributes_count += 1;
            return;
        }
        let value = match value.into() {
            Value::String(text) if text.as_str().len() > ATTRIBUTE_BYTES_MAX => {
                Value::from(cut(text.as_str(), ATTRIBUTE_BYTES_MAX).to_owned())
            }
            value => value,
        };
        recording.data.attributes.push(KeyValue::new(key, value));
    }

    /// Points at the span of work that this one shares, as a follower points at its leader.
    pub fn link(&mut self, other: TraceContext) {
        let Some(recording) = &mut self.recording else { return };
        let links = &mut recording.data.links;
        if links.links.len() == LINKS_MAX {
            links.dropped_count += 1;
        } else {
            links.links.push(Link::with_context(span_context(other, false)));
        }
    }

    /// Ends the span. Anything later has no effect.
    pub fn finish(&mut self, outcome: Outcome) {
        let failure = match outcome {
            Outcome::Ok => None,
            Outcome::Refused(reason) => Some(reason.as_str()),
        };
        self.end(outcome.as_str(), failure);
    }

    fn end(&mut self, outcome: &'static str, failure: Option<&'static str>) {
        let Some(Recording { mut data, queue }) = self.recording.take() else { return };
        // Beyond the limit on purpose: how the work ended is never the attribute that is left out.
        data.attributes.push(KeyValue::new(OUTCOME, outcome));
        data.status = failure.map_or(Status::Ok, Status::error);
        data.end_time = queue.now();
        queue.offer(data);
    }
}

impl Drop for SpanHandle {
    fn drop(&mut self) {
        self.end(ABANDONED, Some(ABANDONED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(sampled: bool) -> TraceContext {
        TraceContext { trace_id: 0xfeed, span_id: 0xbeef, sampled }
    }

    #[test]
    fn without_an_exporter_context_is_passed_on_under_a_fresh_span() {
        let ids = IdSource::new(7);
        let tracer = Tracer::off();
        for sampled in [true, false] {
            let mut span = tracer.start("/a.B/C", Some(remote(sampled)), &ids);
            assert!(!span.recording());
            let context = span.context();
            assert_eq!((context.trace_id, context.sampled), (0xfeed, sampled));
            assert_ne!(context.span_id, 0xbeef);
            let other = tracer.child("call", SpanKind::Client, context, &ids).context();
            assert_eq!(other.trace_id, 0xfeed);
            assert_ne!(other.span_id, context.span_id);
            span.set("key", "value");
            span.finish(Outcome::Ok);
        }
    }

    #[test]
    fn without_a_parent_a_trace_begins_and_claims_no_record() {
        let ids = IdSource::new(7);
        let (one, two) = (Tracer::off().start("a", None, &ids), Tracer::off().start("a", None, &ids));
        assert_ne!(one.context().trace_id, two.context().trace_id);
        assert!(one.context().span_id != 0 && one.context().trace_id != 0);
        assert!(!one.context().sampled);
    }

    #[test]
    fn texts_are_cut_on_a_character() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }
}
