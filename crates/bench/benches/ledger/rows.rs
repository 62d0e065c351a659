//! Rows: exposures as the service makes them, each of an operation of its own.

use base::{
    CallContext, Deadline, Identity, Nanos, Origin, Region, RequestId, Subject, Tenant, WorkloadClass,
    trace::TraceContext,
};
use experiment::decide::{Experiment, Exposure, Surface, Variant};

pub(crate) fn exposures(numbers: impl Iterator<Item = u64>) -> Vec<Exposure> {
    let arm = Variant { name: "compact".into(), weight: 1 };
    let experiment = Experiment { id: "home-layout".into(), version: 3, variants: vec![arm.clone()] };
    let surface = Surface::new("home".into()).expect("valid");
    numbers.map(|number| Exposure::new(&context(number), &surface, &experiment, &arm)).collect()
}

fn context(number: u64) -> CallContext {
    CallContext {
        identity: Identity {
            tenant: Tenant::parse(&format!("tenant-{:03}", number % 40)).expect("valid"),
            subject: Subject::parse(&format!("user-{:05}", number % 20_000)).expect("valid"),
            class: WorkloadClass::Standard,
            region: Region::parse("eu-west").expect("valid"),
        },
        origin: Origin::LoadTest,
        request_id: RequestId::parse(&format!("bench-{number:012}")).expect("valid"),
        attempt: 1,
        arrived: Nanos::ZERO,
        deadline: Deadline::at(Nanos::MAX),
        budget_trail: vec![],
        trace: TraceContext { trace_id: 1, span_id: 1, sampled: false },
        tracestate: String::new(),
    }
}
