//! Caller: who calls, as its metadata and the shell say. Lenient where a service is strict: what is absent or malformed gets
//! a default, since a dependency answers whoever asks.

use std::str::FromStr;

use base::{Deadline, Nanos, WorkloadClass, context::BUDGET_TRAIL_HOPS_MAX, headers};
use http::Extensions;
use tonic::metadata::MetadataMap;

/// Longest logical operation id that is kept, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// What remained at each hop before this one, in microseconds, ingress first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trail {
    hops: [u32; BUDGET_TRAIL_HOPS_MAX],
    count: u8,
}

impl Trail {
    fn parse(text: &str) -> Self {
        let mut trail = Self::default();
        for hop in text.split(',').take(BUDGET_TRAIL_HOPS_MAX) {
            let Ok(micros) = u64::from_str(hop.trim()) else { return Self::default() };
            trail.hops[usize::from(trail.count)] = u32::try_from(micros).unwrap_or(u32::MAX);
            trail.count += 1;
        }
        trail
    }

    /// The hops.
    pub(crate) fn hops(&self) -> &[u32] {
        &self.hops[..usize::from(self.count)]
    }
}

/// One call's caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Workload class; standard when the caller did not say.
    pub(crate) class: WorkloadClass,
    /// Logical operation id; empty when the caller sent none.
    pub(crate) request_id: Box<str>,
    /// Attempt number, from 1.
    pub(crate) attempt: u32,
    /// What remained at the hops before.
    pub(crate) trail: Trail,
    /// When the call arrived.
    pub(crate) arrived: Nanos,
    /// When it must have been answered.
    pub(crate) deadline: Deadline,
    /// Whether the caller set the deadline itself.
    pub(crate) sent_deadline: bool,
}

impl Caller {
    /// Reads metadata, and what the shell established. `now` stands in for the arrival where no shell was passed.
    pub(crate) fn read(metadata: &MetadataMap, extensions: &Extensions, now: Nanos) -> Self {
        let text = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let request_id = text(headers::REQUEST_ID);
        let request_id = request_id.get(..request_id.len().min(REQUEST_ID_BYTES_MAX)).unwrap_or_default();
        let arrival = extensions.get::<serve::Arrival>();
        Self {
            class: WorkloadClass::parse(text(headers::CLASS)).unwrap_or(WorkloadClass::Standard),
            request_id: request_id.into(),
            attempt: text(headers::ATTEMPT).parse().unwrap_or(1),
            trail: Trail::parse(text(headers::BUDGET_TRAIL)),
            arrived: arrival.map_or(now, |arrival| arrival.at),
            deadline: arrival.map_or(Deadline::at(Nanos::MAX), |arrival| arrival.deadline),
            sent_deadline: metadata.contains_key(headers::GRPC_TIMEOUT),
        }
    }

    /// What remained of the caller's deadline on arrival; `None` when it sent none.
    pub(crate) fn budget(&self) -> Option<Nanos> {
        self.sent_deadline.then(|| self.deadline.remaining(self.arrived))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&'static str, &str)]) -> Caller {
        let mut metadata = MetadataMap::new();
        for (name, value) in entries {
            metadata.insert(*name, value.parse().expect("ASCII"));
        }
        Caller::read(&metadata, &Extensions::new(), Nanos::from_secs(7))
    }

    #[test]
    fn what_the_caller_says_is_taken() {
        let caller = read(&[
            (headers::CLASS, "premium"),
            (headers::REQUEST_ID, "op-1"),
            (headers::ATTEMPT, "3"),
            (headers::BUDGET_TRAIL, "300000,270000, 99999999999"),
            (headers::GRPC_TIMEOUT, "5S"),
        ]);
        assert_eq!((caller.class, &*caller.request_id, caller.attempt), (WorkloadClass::Premium, "op-1", 3));
        assert_eq!(caller.trail.hops(), [300_000, 270_000, u32::MAX]);
        assert!(caller.budget().is_some());
    }

    #[test]
    fn what_it_does_not_say_or_says_badly_gets_a_default() {
        let long = "x".repeat(100);
        let trail = "1,2,3,4,5,6,7,8,9";
        let caller =
            read(&[(headers::CLASS, "gold"), (headers::ATTEMPT, "-1"), (headers::REQUEST_ID, &long)]);
        assert_eq!((caller.class, caller.attempt), (WorkloadClass::Standard, 1));
        assert_eq!(caller.request_id.len(), REQUEST_ID_BYTES_MAX);
        assert_eq!((caller.budget(), caller.arrived), (None, Nanos::from_secs(7)));
        assert_eq!(read(&[(headers::BUDGET_TRAIL, trail)]).trail.hops().len(), BUDGET_TRAIL_HOPS_MAX);
        assert_eq!(read(&[(headers::BUDGET_TRAIL, "1,x")]).trail.hops().len(), 0);
    }
}
