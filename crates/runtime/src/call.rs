//! Call: the context of a call at a service's edge, the way out to the next hop, and the way back of its failure.

use std::{
    fmt::{self, Write as _},
    future::Future,
    pin::Pin,
    sync::Arc,
};

use base::{CallContext, Deadline, Nanos, Origin, Phase, Reason, Refusal};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serve::{Arrival, Progress, render};
use stack::{CallBudget, LOCAL_FAILURE_HEADER, LocalFailure};
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};

use crate::names;

/// The context that the gate established.
///
/// # Errors
/// `Internal` when the route is not behind the gate.
pub fn context<T>(request: &Request<T>) -> Result<Arc<CallContext>, Refusal> {
    let context = request.extensions().get::<Arc<CallContext>>().cloned();
    context.ok_or_else(|| Refusal::new(Reason::Internal, "a call bypassed authentication"))
}

/// Where to note what the call is doing.
pub fn progress<T>(request: &Request<T>) -> Progress {
    request.extensions().get::<Arrival>().map(|arrival| arrival.progress.clone()).unwrap_or_default()
}

/// Ends when the process begins to quiesce: a stream that lives as long as its caller likes ends then, or the drain would
/// wait for it. Never for a request that came by no port.
pub fn quiesced<T>(request: &Request<T>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match request.extensions().get::<Arrival>() {
        Some(arrival) => Box::pin(arrival.quiesced()),
        None => Box::pin(std::future::pending()),
    }
}

/// Answers a handler's result on the wire.
///
/// # Errors
/// The rendered refusal.
pub fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|refusal| render::status(&refusal))
}

/// Room for the values that every call carries; more of them only cost a longer buffer.
const VALUES_BYTES: usize = 256;
/// Headers of an outbound call: those below, and what tonic and the link add.
const HEADERS: usize = 14;

/// A request to the next hop: the message, the context as metadata, and what the link needs to write the deadline at the
/// moment of sending. `reserve` is what this hop keeps of the remaining time for itself.
pub fn outbound<M>(context: &CallContext, reserve: Nanos, message: M) -> Request<M> {
    outbound_within(context, CallBudget { deadline: context.deadline, reserve }, message)
}

/// A request to the next hop for a stream that lives as long as its reader likes: it is made for no request, so it has no
/// context and no deadline.
pub fn outbound_endless<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(CallBudget { deadline: Deadline::at(Nanos::MAX), reserve: Nanos::ZERO });
    request
}

/// As [`outbound`], for a call that is bounded otherwise than by the context's own deadline.
pub fn outbound_within<M>(context: &CallContext, budget: CallBudget, message: M) -> Request<M> {
    let mut head = HeaderMap::with_capacity(HEADERS);
    let identity = &context.identity;
    put(&mut head, Repeats::Often, [(&names::TENANT, &identity.tenant), (&names::REGION, &identity.region)]);
    let own: [(&HeaderName, &dyn fmt::Display); 4] = [
        (&names::SUBJECT, &identity.subject),
        (&names::REQUEST_ID, &context.request_id),
        (&names::TRACEPARENT, &context.trace),
        (&names::BUDGET_TRAIL, &Trail(&context.budget_trail)),
    ];
    put(&mut head, Repeats::Hardly, own);
    head.insert(&names::CLASS, HeaderValue::from_static(identity.class.as_str()));
    if context.attempt > 1 {
        head.insert(&names::ATTEMPT, HeaderValue::from(context.attempt));
    }
    if context.origin != Origin::Customer {
        head.insert(&names::ORIGIN, HeaderValue::from_static(context.origin.as_str()));
    }
    if !context.tracestate.is_empty() {
        put(&mut head, Repeats::Hardly, [(&names::TRACESTATE, &context.tracestate)]);
    }
    let mut request = Request::new(message);
    *request.metadata_mut() = MetadataMap::from_headers(head);
    request.extensions_mut().insert(budget);
    request
}

/// Whether later calls on a connection carry a value again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Often,
    /// Such a value is kept out of HPACK's tables. It would push out those that repeat, and every later value of its name
    /// would be compared with it.
    Hardly,
}

/// Writes values into one buffer that they then share: one allocation for all of them. Each was checked when it entered,
/// so a value that is none can only be vendor state, which is left out.
fn put<const N: usize>(
    head: &mut HeaderMap,
    repeats: Repeats,
    values: [(&'static HeaderName, &dyn fmt::Display); N],
) {
    let mut text = String::with_capacity(VALUES_BYTES);
    let ends = values.map(|(name, value)| {
        let _ = write!(text, "{value}"); // Writing to a String cannot fail.
        (name, text.len())
    });
    let text = Bytes::from(text);
    let mut start = 0;
    for (name, end) in ends {
        if let Ok(mut value) = HeaderValue::from_maybe_shared(text.slice(start..end)) {
            value.set_sensitive(repeats == Repeats::Hardly);
            head.insert(name, value);
        }
        start = end;
    }
}

/// Budgets in microseconds, joined by commas.
struct Trail<'a>(&'a [Nanos]);

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, budget) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            budget.as_micros().fmt(f)?;
        }
        Ok(())
    }
}

/// What a dependency's failure means for whoever called us. The dependency's own code never passes through: a code that
/// blames the request is our bug, and one that blames the dependency makes it unavailable.
pub fn upstream_error(phase: Phase, status: &Status) -> Refusal {
    let told = |reason| Refusal::new(reason, describe(phase, status)).in_phase(phase);
    match status.code() {
        Code::DeadlineExceeded => Refusal::deadline(phase),
        // The link made this status up because the answer broke off or was none: that is the dependency's fault, whichever
        // code stands for it.
        _ if broke_off(status) => told(Reason::DependencyUnavailable),
        Code::Unavailable
        | Code::Unknown
        | Code::Aborted
        | Code::DataLoss
        | Code::ResourceExhausted
        // We did not cancel the call, or nobody would read this: the other side gave up.
        | Code::Cancelled => told(Reason::DependencyUnavailable),
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unauthenticated
        | Code::Ok => told(Reason::DependencyBug),
    }
}

fn broke_off(status: &Status) -> bool {
    let made = status.metadata().get(LOCAL_FAILURE_HEADER).and_then(|name| name.to_str().ok());
    matches!(made.and_then(LocalFailure::parse), Some(LocalFailure::Reset | LocalFailure::Malformed))
}

/// Names the phase and the kind of failure; the dependency's own message stays in our log.
fn describe(phase: Phase, status: &Status) -> String {
    tracing::debug!(%phase, code = ?status.code(), message = status.message(), "dependency failed");
    format!("the dependency behind {phase} failed ({:?})", status.code())
}

#[cfg(test)]
mod tests {
    use base::{Identity, Region, RequestId, Subject, Tenant, WorkloadClass, headers, trace::TraceContext};

    use super::*;

    #[test]
    fn no_code_of_a_dependency_passes_through() {
        for code in (0..=16).map(Code::from_i32) {
            let refusal = upstream_error(Phase::Upstream, &Status::new(code, "secret of the dependency"));
            let (rendered, _) = render::codes(refusal.reason());
            assert!(
                matches!(rendered, Code::DeadlineExceeded | Code::Unavailable | Code::Internal),
                "{code:?} came out as {rendered:?}"
            );
            assert!(!refusal.message().contains("secret"));
            assert_eq!(refusal.phase(), Some(Phase::Upstream));
        }
    }

    #[test]
    fn an_answer_that_broke_off_is_the_dependencys_fault() {
        for (failure, reason) in [
            (LocalFailure::Reset, Reason::DependencyUnavailable),
            (LocalFailure::Malformed, Reason::DependencyUnavailable),
            (LocalFailure::NotGrpc, Reason::DependencyBug),
        ] {
            let mut status = Status::internal("made by the link");
            let name = tonic::metadata::MetadataValue::from_static(failure.as_str());
            status.metadata_mut().insert(LOCAL_FAILURE_HEADER, name);
            assert_eq!(upstream_error(Phase::Upstream, &status).reason(), reason, "{failure}");
        }
    }

    #[test]
    fn trails_are_micros() {
        let trail = [Nanos::from_millis(300), Nanos::new(279_999_999)];
        assert_eq!(Trail(&trail).to_string(), "300000,279999");
        assert_eq!(Trail(&[]).to_string(), "");
    }

    #[test]
    fn an_endless_stream_has_neither_context_nor_end() {
        let request = outbound_endless(());
        assert!(request.metadata().is_empty());
        let budget = request.extensions().get::<CallBudget>().expect("or the link's default would hold");
        assert_eq!((budget.deadline.instant(), budget.reserve), (Nanos::MAX, Nanos::ZERO));
    }

    #[test]
    fn the_context_travels_as_one_header_each() {
        let name = "the test's names are well formed";
        let context = CallContext {
            identity: Identity {
                tenant: Tenant::parse("tenant-001").expect(name),
                subject: Subject::parse("user-00001").expect(name),
                class: WorkloadClass::Premium,
                region: Region::parse("eu-west").expect(name),
            },
            origin: Origin::Probe,
            request_id: RequestId::parse("op-1").expect(name),
            attempt: 2,
            arrived: Nanos::ZERO,
            deadline: Deadline::at(Nanos::from_millis(300)),
            budget_trail: vec![Nanos::from_millis(300), Nanos::from_millis(280)],
            trace: TraceContext { trace_id: 0xabc, span_id: 0xd, sampled: true },
            tracestate: "vendor=1".to_owned(),
        };
        let request = outbound(&context, Nanos::from_millis(5), ());
        let sent = request.metadata();
        let expected = [
            (headers::TENANT, "tenant-001"),
            (headers::SUBJECT, "user-00001"),
            (headers::CLASS, "premium"),
            (headers::REGION, "eu-west"),
            (headers::ORIGIN, "probe"),
            (headers::REQUEST_ID, "op-1"),
            (headers::ATTEMPT, "2"),
            (headers::BUDGET_TRAIL, "300000,280000"),
            (headers::TRACEPARENT, "00-00000000000000000000000000000abc-000000000000000d-01"),
            (headers::TRACESTATE, "vendor=1"),
        ];
        for (name, value) in expected {
            assert_eq!(sent.get(name).and_then(|value| value.to_str().ok()), Some(value), "{name}");
        }
        assert_eq!(sent.len(), expected.len());
        let budget = request.extensions().get::<CallBudget>().expect("what the link needs");
        assert_eq!((budget.deadline, budget.reserve), (context.deadline, Nanos::from_millis(5)));

        let vendor = CallContext { tracestate: "not\u{7f}visible".to_owned(), ..context };
        assert!(outbound(&vendor, Nanos::ZERO, ()).metadata().get(headers::TRACESTATE).is_none());
    }
}
