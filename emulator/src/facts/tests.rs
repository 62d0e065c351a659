//! Tests of the main port: each service answers from its own dependency, with its own row and the timing of the call.

use base::{Nanos, headers, ids::IdSource};
use bytes::Bytes;
use http_body_util::Full;
use model::draw::Share;
use serve::{
    Limits,
    exchange::Port,
    lifecycle::Lifecycle,
    metrics::{Registry, ServerMetrics},
    telemetry::Tracer,
};
use tonic::Code;
use wire::emulator::v1::Timing;

use super::*;
use crate::{
    books::{Outcome, Wanted},
    revocations::{PolicyCopy, Who},
    testing::{ByHand, Rig, SEED, SERVICE, START},
};

const TENANT: &str = "tenant-007";
const SUBJECT: &str = "user-00042";

/// A request whose id is that of its dependency.
fn ask<T>(dependency: Dependency, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(headers::REQUEST_ID, dependency.as_str().parse().expect("ASCII"));
    request
}

/// Polls a call to its end, which comes after its service time and not before.
fn answer<T>(rig: &Rig, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    let mut call = ByHand::new(call);
    assert!(call.look().is_none());
    rig.advance(SERVICE);
    call.look().expect("due").map(Response::into_inner)
}

fn profile() -> FetchProfileRequest {
    FetchProfileRequest { tenant: TENANT.to_owned(), subject: SUBJECT.to_owned(), with_policy: false }
}

fn policy(policy_version: u64) -> FetchPolicyRequest {
    FetchPolicyRequest { tenant: TENANT.to_owned(), subject: SUBJECT.to_owned(), policy_version }
}

#[test]
fn a_row_comes_with_its_policy_when_that_is_asked_for() {
    let rig = Rig::new();
    let facts = Facts(Arc::clone(&rig.engine));
    let data = DataSet::new(SEED);
    let wanted = FetchProfileRequest { with_policy: true, ..profile() };
    let told = answer(&rig, facts.fetch_profile(ask(Dependency::Profile, wanted))).expect("a row");
    let document = data.policy(TENANT, SUBJECT, told.policy_version).expect("in the data set");
    assert_eq!(told.policy, Some(document), "what the policy store would answer, without timing");
}

#[test]
fn both_stores_tell_a_revocation_and_only_the_copy_is_wrong() {
    let rig = Rig::new();
    let facts = Facts(Arc::clone(&rig.engine));
    let who = Who::find(TENANT, SUBJECT).expect("in the data set");
    let lost = ["made.up".to_owned()];
    let epoch = rig.engine.revocations.revoke(&rig.engine.data, who, &lost).expect("room");
    rig.engine.revocations.set_copy(PolicyCopy::Divergent, Share::ALL);
    let wanted = FetchProfileRequest { with_policy: true, ..profile() };
    let row = answer(&rig, facts.fetch_profile(ask(Dependency::Profile, wanted))).expect("a row");
    let copy = row.policy.expect("a policy");
    let kept = answer(&rig, facts.fetch_policy(ask(Dependency::Entitlement, policy(row.policy_version))));
    let kept = FetchPolicyResponse { timing: None, ..kept.expect("a row") };
    assert_eq!((kept.revocation_epoch, kept.denials.last()), (epoch, Some(&lost[0])));
    assert_eq!(copy.grants.len(), kept.grants.len() + 1);
    assert_eq!(FetchPolicyResponse { grants: kept.grants.clone(), ..copy }, kept);
}

#[test]
fn each_service_is_one_dependency_and_answers_its_row_with_its_timing() {
    let rig = Rig::new();
    let facts = Facts(Arc::clone(&rig.engine));
    let data = DataSet::new(SEED);
    let timing = Some(Timing { queue_wait_us: 0, service_us: 20_000 });
    let (tenant, subject) = (TENANT.to_owned(), SUBJECT.to_owned());
    let items = ["item-0001".to_owned(), "item-0002".to_owned()];

    let told = answer(&rig, facts.fetch_profile(ask(Dependency::Profile, profile()))).expect("a row");
    let row = data.profile(TENANT, SUBJECT).expect("in the data set");
    assert_eq!(told, FetchProfileResponse { timing, ..row });

    let told = answer(&rig, facts.fetch_policy(ask(Dependency::Entitlement, policy(1)))).expect("a row");
    let row = data.policy(TENANT, SUBJECT, 1).expect("in the data set");
    assert_eq!(told, FetchPolicyResponse { timing, ..row });

    let message = FetchPricesRequest {
        tenant: tenant.clone(),
        item_ids: items.to_vec(),
        currency_code: "EUR".to_owned(),
    };
    let told = answer(&rig, facts.fetch_prices(ask(Dependency::Pricing, message))).expect("rows");
    assert_eq!(told, FetchPricesResponse { timing, ..data.prices(TENANT, &items, "EUR") });

    let message = FetchStockRequest { item_ids: items.to_vec(), region: "eu-west".to_owned() };
    let mut told = answer(&rig, facts.fetch_stock(ask(Dependency::Inventory, message))).expect("rows");
    let mut rows = data.stock(&items, "eu-west", 0);
    // The age is a draw of the call; see the next test.
    for record in told.records.iter_mut().chain(&mut rows.records) {
        record.count_age_ms = 0;
    }
    assert_eq!(told, FetchStockResponse { timing, ..rows });

    let message = FetchScoresRequest { tenant: tenant.clone(), subject: subject.clone() };
    let told = answer(&rig, facts.fetch_scores(ask(Dependency::Recommendation, message))).expect("rows");
    assert_eq!(told, FetchScoresResponse { timing, ..data.scores(TENANT, SUBJECT) });

    let message = FetchReviewsRequest { tenant, subject };
    let told = answer(&rig, facts.fetch_reviews(ask(Dependency::Reputation, message))).expect("rows");
    assert_eq!(told, FetchReviewsResponse { timing, ..data.reviews(TENANT, SUBJECT) });

    let message = FetchExperimentsRequest { surface: "home".to_owned() };
    let told = answer(&rig, facts.fetch_experiments(ask(Dependency::Experiment, message))).expect("rows");
    assert_eq!(told, FetchExperimentsResponse { timing, ..data.experiments("home") });

    let books = rig.engine.books();
    for dependency in Dependency::ALL {
        let (entries, _) = books.journal(9, &Wanted::of(dependency.as_str()));
        let [entry] = entries[..] else { panic!("one call of {dependency}: {entries:?}") };
        assert_eq!(entry.dependency, dependency);
    }
}

#[test]
fn what_differs_from_call_to_call_is_a_draw_of_the_call() {
    let age = |attempt: u32| {
        let rig = Rig::new();
        let facts = Facts(Arc::clone(&rig.engine));
        let items = vec!["item-0001".to_owned()];
        let message = FetchStockRequest { item_ids: items, region: "eu-west".to_owned() };
        let mut request = ask(Dependency::Inventory, message);
        request.metadata_mut().insert(headers::ATTEMPT, attempt.into());
        answer(&rig, facts.fetch_stock(request)).expect("rows").records[0].count_age_ms
    };
    assert_eq!(age(1), age(1));
    assert!((2..6).any(|attempt| age(attempt) != age(1)), "another attempt draws anew");
}

#[test]
fn an_unknown_subject_and_an_unknown_version_are_not_found_after_their_service() {
    let rig = Rig::new();
    let facts = Facts(Arc::clone(&rig.engine));
    let unknown = FetchProfileRequest { tenant: "tenant-999".to_owned(), ..profile() };
    let status = answer(&rig, facts.fetch_profile(ask(Dependency::Profile, unknown))).expect_err("no row");
    assert_eq!(status.code(), Code::NotFound);
    let status =
        answer(&rig, facts.fetch_policy(ask(Dependency::Entitlement, policy(99)))).expect_err("no row");
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(rig.entry("profile").outcome, "not_found");
    rig.assert_idle();
}

#[test]
fn the_shells_arrival_is_the_calls_arrival_and_deadline() {
    let rig = Rig::new();
    let facts = Facts(Arc::clone(&rig.engine));
    let mut request = ask(Dependency::Profile, profile());
    let at = rig.now() - Nanos::from_millis(3);
    let deadline = base::Deadline::after(at, Nanos::from_millis(10));
    let trace = base::trace::TraceContext { trace_id: 1, span_id: 1, sampled: false };
    request.extensions_mut().insert(serve::Arrival::unserved(at, deadline, trace));
    let mut call = ByHand::new(facts.fetch_profile(request));
    assert!(call.look().is_none());
    rig.advance(Nanos::from_millis(7));
    assert_eq!(call.look().expect("due").expect_err("expired").code(), Code::DeadlineExceeded);
    let books = rig.engine.books();
    assert_eq!(books.journal(1, &Wanted::of("profile")).0[0].arrived, at);
}

#[tokio::test]
async fn a_caller_that_leaves_the_port_frees_its_server_at_once_and_the_journal_tells_when() {
    let rig = Rig::new();
    let registry = Registry::new("emulator");
    let port = Arc::new(Port {
        routes: routes(&rig.engine),
        limits: Limits::default().into(),
        clock: rig.clock.clone(),
        ids: Arc::new(IdSource::new(SEED.into())),
        lifecycle: Lifecycle::new(Arc::new(base::clock::MonotonicClock)),
        metrics: ServerMetrics::new(&registry, "emulator"),
        tracer: Tracer::off(),
        points: base::inject::Points::default(),
    });
    let begin = |id: &str| {
        let head = http::Request::post("/mercury.emulator.v1.ProfileStoreService/FetchProfile")
            .header("content-type", "application/grpc")
            .header(headers::REQUEST_ID, id);
        let empty_message = Full::new(Bytes::from_static(&[0; 5]));
        let (exchange, _term) = port.begin(head.body(empty_message).expect("a request"));
        let mut call = ByHand::new(exchange);
        assert!(call.look().is_none());
        call
    };
    let leaver = begin("leaver");
    let _stays = begin("stays");
    let mut waiter = begin("waiter");
    assert_eq!(rig.busy(Dependency::Profile), (2, 1));
    rig.advance(Nanos::from_millis(3));
    drop(leaver);
    assert_eq!(rig.busy(Dependency::Profile), (2, 0), "the waiter has its server");
    assert!(waiter.look().is_none());
    let books = rig.engine.books();
    let (entries, _) = books.journal(9, &Wanted::default());
    let [entry] = entries[..] else { panic!("one call has ended: {entries:?}") };
    assert_eq!(
        (&*entry.request_id, entry.outcome, entry.service.get()),
        ("leaver", Outcome::Cancelled, 3_000)
    );
    assert_eq!((entry.arrived, entry.ended), (START, START + Nanos::from_millis(3)));
    let text = registry.encode();
    for line in [
        "mercury_cancellation_stop_delay_seconds_count{server=\"emulator\"} 1",
        "mercury_cancellation_stop_delay_seconds_bucket{le=\"0.0001\",server=\"emulator\"} 1",
        "mercury_late_operations_total{server=\"emulator\"} 0",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in:\n{text}");
    }
}
