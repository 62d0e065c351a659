//! Headers: the names that travel between hops, once.

/// Remaining time of the call.
pub const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Tenant of the authenticated subject.
pub const TENANT: &str = "x-mercury-tenant";
/// The authenticated subject.
pub const SUBJECT: &str = "x-mercury-subject";
/// Workload class.
pub const CLASS: &str = "x-mercury-class";
/// Region.
pub const REGION: &str = "x-mercury-region";
/// Origin: customer, probe or load_test; absent means customer.
pub const ORIGIN: &str = "x-mercury-origin";
/// Logical operation id, the same for every attempt.
pub const REQUEST_ID: &str = "x-request-id";
/// Attempt number, from 1; absent means 1.
pub const ATTEMPT: &str = "x-attempt";
/// What remained of the deadline at each hop so far, in microseconds, ingress first, joined by commas.
pub const BUDGET_TRAIL: &str = "x-mercury-budget-trail";
/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
/// W3C vendor state, passed on unread.
pub const TRACESTATE: &str = "tracestate";
/// Generation of the policy snapshot that served the request.
pub const POLICY_GENERATION: &str = "x-policy-generation";
/// Milliseconds until another attempt makes sense.
pub const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";
/// Which mechanisms applied to a request, as `name=on` or `name=shadow`, joined by commas.
pub const MECHANISMS: &str = "x-mercury-mechanisms";
