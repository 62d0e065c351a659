//! Authenticate: the one seam through which identity enters. Today it trusts headers, as inside a mesh that has
//! authenticated the caller; signed tokens will be another implementation of the same trait.

use std::sync::Arc;

use base::{
    CallContext, Identity, Nanos, Origin, Reason, Refusal, Region, RequestId, Subject, Tenant, WorkloadClass,
    context::BUDGET_TRAIL_HOPS_MAX, ids::IdSource,
};
use http::{HeaderMap, HeaderName, request::Parts};
use serve::{Arrival, routes::Gate};

use crate::names;

/// Largest attempt number that is believed.
const ATTEMPT_MAX: u32 = 100;

/// Establishes who a request is for.
pub trait Authenticator: Send + Sync + 'static {
    /// Reads an identity off the request's head.
    ///
    /// # Errors
    /// `Unauthenticated` when identity is missing or malformed, with the header at fault; `InvalidInput` for a class that
    /// does not exist.
    fn authenticate(&self, head: &HeaderMap) -> Result<Identity, Refusal>;
}

/// Takes identity from `x-mercury-tenant`, `-subject`, `-class` and `-region`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeaderAuthenticator;

impl Authenticator for HeaderAuthenticator {
    fn authenticate(&self, head: &HeaderMap) -> Result<Identity, Refusal> {
        let class = required(head, &names::CLASS)?;
        Ok(Identity {
            tenant: named(&names::TENANT, required(head, &names::TENANT)?, Tenant::parse)?,
            subject: named(&names::SUBJECT, required(head, &names::SUBJECT)?, Subject::parse)?,
            class: WorkloadClass::parse(class).ok_or_else(|| {
                let message = format!("{}: expected standard, premium or enterprise", names::CLASS);
                Refusal::invalid(names::CLASS.as_str(), message)
            })?,
            region: named(&names::REGION, required(head, &names::REGION)?, Region::parse)?,
        })
    }
}

fn named<T, E: std::fmt::Display>(
    header: &'static HeaderName,
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, Refusal> {
    parse(text).map_err(|error| unauthenticated(header, &error))
}

fn required<'h>(head: &'h HeaderMap, header: &'static HeaderName) -> Result<&'h str, Refusal> {
    optional(head, header)?.ok_or_else(|| unauthenticated(header, &"the header is missing"))
}

fn unauthenticated(header: &'static HeaderName, what: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(Reason::Unauthenticated, format!("{header}: {what}")).for_field(header.as_str())
}

/// A header that may appear once.
fn optional<'h>(head: &'h HeaderMap, header: &'static HeaderName) -> Result<Option<&'h str>, Refusal> {
    let mut values = head.get_all(header).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            value.to_str().map(Some).map_err(|_| unauthenticated(header, &"the value is not visible ASCII"))
        }
        (Some(_), Some(_)) => Err(unauthenticated(header, &"the header was sent more than once")),
    }
}

/// A header that may be absent, and is the caller's input rather than its identity.
fn input<T>(
    head: &HeaderMap,
    header: &'static HeaderName,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let invalid = || Refusal::invalid(header.as_str(), format!("{header}: expected {expected}"));
    match optional(head, header) {
        Ok(None) => Ok(None),
        Ok(Some(text)) => parse(text).map(Some).ok_or_else(invalid),
        Err(_) => Err(invalid()),
    }
}

/// Makes the context of a call from its head and what the shell established.
///
/// # Errors
/// Those of the authenticator, and `InvalidInput` for a malformed operation id, attempt or origin.
pub fn context(
    authenticator: &dyn Authenticator,
    ids: &IdSource,
    head: &HeaderMap,
    arrival: &Arrival,
) -> Result<CallContext, Refusal> {
    let identity = authenticator.authenticate(head)?;
    let request_id =
        input(head, &names::REQUEST_ID, "1 to 64 characters of A-Z, a-z, 0-9, '-', '_' and '.'", |text| {
            RequestId::parse(text).ok()
        })?;
    let attempt = input(head, &names::ATTEMPT, "an integer from 1 to 100", |text| {
        text.parse().ok().filter(|attempt| (1..=ATTEMPT_MAX).contains(attempt))
    })?;
    let origin = input(head, &names::ORIGIN, "customer, probe or load_test", Origin::parse)?;
    let mut budget_trail = trail(head);
    budget_trail.push(arrival.deadline.remaining(arrival.at));
    Ok(CallContext {
        identity,
        origin: origin.unwrap_or_default(),
        request_id: request_id.unwrap_or_else(|| fresh(ids)),
        attempt: attempt.unwrap_or(1),
        arrived: arrival.at,
        deadline: arrival.deadline,
        budget_trail,
        trace: arrival.trace,
        tracestate: arrival.tracestate.clone(),
    })
}

/// A new operation id, for a request that came without one.
fn fresh(ids: &IdSource) -> RequestId {
    let id = uuid::Builder::from_random_bytes(ids.next_u128().to_be_bytes()).into_uuid().to_string();
    match RequestId::parse(&id) {
        Ok(id) => id,
        Err(_) => unreachable!("a UUID is a well-formed operation id"),
    }
}

/// The budgets of earlier hops. Evidence for people, so what cannot be read is left out.
fn trail(head: &HeaderMap) -> Vec<Nanos> {
    let text = head.get(&names::BUDGET_TRAIL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let micros = text.split(',').filter_map(|part| part.parse().ok());
    micros.map(Nanos::from_micros).take(BUDGET_TRAIL_HOPS_MAX - 1).collect()
}

/// A gate that puts an `Arc<CallContext>` into the extensions of every call, or refuses it.
pub fn gate(authenticator: Arc<dyn Authenticator>, ids: Arc<IdSource>) -> Gate {
    Arc::new(move |parts: &mut Parts| {
        let Some(arrival) = parts.extensions.get::<Arrival>() else {
            return Err(Refusal::new(Reason::Internal, "a request bypassed the shell"));
        };
        let context = context(&*authenticator, &ids, &parts.headers, arrival)?;
        parts.extensions.insert(Arc::new(context));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use base::{Deadline, headers, trace::TraceContext};

    use super::*;

    fn head(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut head = HeaderMap::new();
        for (name, value) in pairs {
            head.append(*name, value.parse().expect("header value"));
        }
        head
    }

    fn read(head: &HeaderMap) -> Result<CallContext, Refusal> {
        let trace = TraceContext { trace_id: 1, span_id: 2, sampled: false };
        let deadline = Deadline::at(Nanos::from_millis(300));
        let arrival = Arrival::unserved(Nanos::ZERO, deadline, trace);
        context(&HeaderAuthenticator, &IdSource::new(7), head, &arrival)
    }

    const GOOD: [(&str, &str); 4] = [
        (headers::TENANT, "tenant-001"),
        (headers::SUBJECT, "user-00001"),
        (headers::CLASS, "standard"),
        (headers::REGION, "eu-west"),
    ];

    #[test]
    fn each_identity_header_is_named_when_it_is_missing_malformed_or_repeated() {
        assert!(read(&head(&GOOD)).is_ok());
        for (position, (name, _)) in GOOD.iter().enumerate() {
            let mut missing = GOOD.to_vec();
            missing.remove(position);
            let mut repeated = GOOD.to_vec();
            repeated.push(GOOD[position]);
            let mut malformed = GOOD.to_vec();
            malformed[position].1 = "Not Valid";
            for (pairs, input) in [(missing, false), (repeated, false), (malformed, *name == headers::CLASS)]
            {
                let refusal = read(&head(&pairs)).expect_err("must be refused");
                let expected = if input { Reason::InvalidInput } else { Reason::Unauthenticated };
                assert_eq!((refusal.reason(), refusal.field()), (expected, Some(*name)), "{pairs:?}");
                assert!(refusal.message().contains(name));
            }
        }
    }

    #[test]
    fn operation_id_attempt_and_origin_are_input() {
        for (name, bad) in [
            (headers::REQUEST_ID, "a b"),
            (headers::ATTEMPT, "0"),
            (headers::ATTEMPT, "101"),
            (headers::ATTEMPT, "+1x"),
            (headers::ORIGIN, "nobody"),
        ] {
            let mut pairs = GOOD.to_vec();
            pairs.push((name, bad));
            let refusal = read(&head(&pairs)).expect_err("must be refused");
            assert_eq!((refusal.reason(), refusal.field()), (Reason::InvalidInput, Some(name)));
        }
    }

    #[test]
    fn absent_ids_are_made_and_differ() {
        let first = read(&head(&GOOD)).expect("good");
        assert_eq!((first.attempt, first.origin), (1, Origin::Customer));
        assert_eq!(first.request_id.as_str().len(), 36);
        let ids = IdSource::new(7);
        assert_ne!(fresh(&ids), fresh(&ids));
    }

    #[test]
    fn the_trail_ends_with_this_hop_and_is_bounded() {
        let mut pairs = GOOD.to_vec();
        pairs.push((headers::BUDGET_TRAIL, "400000,x,350000,1,2,3,4,5,6,7,8,9"));
        let context = read(&head(&pairs)).expect("good");
        assert_eq!(context.budget_trail.len(), BUDGET_TRAIL_HOPS_MAX);
        assert_eq!(context.budget_trail[1], Nanos::from_micros(350_000));
        assert_eq!(context.budget_trail.last(), Some(&Nanos::from_millis(300)));
    }
}
