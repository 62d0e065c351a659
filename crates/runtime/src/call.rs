//! Call: the context of a call at a service's edge, the way out to the next hop, and the way back of its failure.

use std::{fmt::Write as _, sync::Arc};

use base::{CallContext, Nanos, Origin, Phase, Reason, Refusal, headers};
use serve::{Arrival, Progress, render};
use stack::{CallBudget, LOCAL_FAILURE_HEADER, LocalFailure};
use tonic::{
    Code, Request, Response, Status,
    metadata::{Ascii, MetadataValue},
};

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

/// Answers a handler's result on the wire.
///
/// # Errors
/// The rendered refusal.
pub fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|refusal| render::status(&refusal))
}

/// A request to the next hop: the message, the context as metadata, and what the link needs to write the deadline at the
/// moment of sending. `reserve` is what this hop keeps of the remaining time for itself.
pub fn outbound<M>(context: &CallContext, reserve: Nanos, message: M) -> Request<M> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    let identity = &context.identity;
    put(metadata, headers::TENANT, identity.tenant.as_str());
    put(metadata, headers::SUBJECT, identity.subject.as_str());
    metadata.insert(headers::CLASS, MetadataValue::from_static(identity.class.as_str()));
    put(metadata, headers::REGION, identity.region.as_str());
    put(metadata, headers::REQUEST_ID, context.request_id.as_str());
    if context.attempt > 1 {
        metadata.insert(headers::ATTEMPT, MetadataValue::from(context.attempt));
    }
    if context.origin != Origin::Customer {
        metadata.insert(headers::ORIGIN, MetadataValue::from_static(context.origin.as_str()));
    }
    put(metadata, headers::TRACEPARENT, &context.trace.to_string());
    if !context.tracestate.is_empty() {
        put(metadata, headers::TRACESTATE, &context.tracestate);
    }
    put(metadata, headers::BUDGET_TRAIL, &trail(&context.budget_trail));
    request.extensions_mut().insert(CallBudget { deadline: context.deadline, reserve });
    request
}

fn trail(budgets: &[Nanos]) -> String {
    let mut text = String::with_capacity(8 * budgets.len());
    for budget in budgets {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{}", budget.as_micros()); // Writing to a String cannot fail.
    }
    text
}

/// Every value was checked when it entered, so a value that is none can only be vendor state, which is left out.
fn put(metadata: &mut tonic::metadata::MetadataMap, name: &'static str, value: &str) {
    if let Ok(value) = MetadataValue::<Ascii>::try_from(value) {
        metadata.insert(name, value);
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
            let name = MetadataValue::from_static(failure.as_str());
            status.metadata_mut().insert(LOCAL_FAILURE_HEADER, name);
            assert_eq!(upstream_error(Phase::Upstream, &status).reason(), reason, "{failure}");
        }
    }

    #[test]
    fn trails_are_micros() {
        assert_eq!(trail(&[Nanos::from_millis(300), Nanos::new(279_999_999)]), "300000,279999");
        assert_eq!(trail(&[]), "");
    }
}
