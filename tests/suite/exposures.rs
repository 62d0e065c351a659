//! Exposures: what the ledger holds is what callers were told, once, whatever happened in between.

use std::{collections::BTreeSet, path::Path};

use ::wire::{
    emulator::v1::fault_rule::Effect,
    experiment::v1::{
        AllocateArmsRequest, EffectOutcome, experiment_service_client::ExperimentServiceClient,
    },
};
use base::{Dependency, headers};
use serde_json::Value;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tonic::Code;
use uuid::Uuid;

use crate::harness::{CUSTOMER, GET_HOME, Suite, eventually, identified, patient, spawn, talk};

/// Experiments on the home page.
pub(crate) const EXPERIMENTS: usize = 3;

/// A row, as far as a page tells it: event id, tenant, subject, experiment, version, variant, operation.
pub(crate) type Row = (Vec<u8>, String, String, String, i64, String, String);

/// All rows of the ledger, read by somebody else than the service.
pub(crate) async fn rows(ledger: &Path) -> Vec<Row> {
    let options = SqliteConnectOptions::new().filename(ledger).read_only(true);
    let mut connection = SqliteConnection::connect_with(&options).await.expect("the ledger is a database");
    let rows = sqlx::query_as(
        "SELECT event_id, tenant, subject, experiment_id, experiment_version, variant, request_id
         FROM exposure ORDER BY sequence",
    );
    let rows = rows.fetch_all(&mut connection).await.expect("rows");
    connection.close().await.expect("closed");
    rows
}

/// The rows that a page says there are.
pub(crate) fn told(page: &Value) -> BTreeSet<Row> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let arms = page["experiments"].as_array().expect("a list");
    assert_eq!(arms.len(), EXPERIMENTS, "{page}");
    arms.iter()
        .map(|arm| {
            let id = Uuid::parse_str(&text(&arm["event_id"])).expect("a UUID");
            assert_eq!(id.get_version_num(), 5, "{id}");
            (
                id.as_bytes().to_vec(),
                text(&page["profile"]["tenant"]),
                text(&page["profile"]["subject"]),
                text(&arm["experiment_id"]),
                arm["experiment_version"].as_i64().expect("a version"),
                text(&arm["variant"]),
                text(&page["request_id"]),
            )
        })
        .collect()
}

#[tokio::test]
async fn an_operation_is_recorded_once_and_another_one_anew() {
    let suite = Suite::start().await;
    let first = suite.both(&patient(&[(headers::REQUEST_ID, "op-1")])).await.served();
    let mut expected = told(&first);
    let recorded = rows(suite.ledger()).await;
    assert_eq!(recorded.iter().cloned().collect::<BTreeSet<_>>(), expected, "exactly what the page says");
    assert_eq!(recorded.len(), EXPERIMENTS, "both faces asked for the same operation");

    // A retry replays, whatever its attempt number; the ledger does not grow.
    for attempt in ["2", "3"] {
        let head = patient(&[(headers::REQUEST_ID, "op-1"), (headers::ATTEMPT, attempt)]);
        assert_eq!(told(&suite.both(&head).await.served()), expected);
    }
    assert_eq!(rows(suite.ledger()).await, recorded);

    // Another operation of the same subject is shown the same arms, and counts anew.
    let second = suite.both(&patient(&[(headers::REQUEST_ID, "op-2")])).await.served();
    let variants = |page: &Value| told(page).into_iter().map(|row| (row.3, row.5)).collect::<BTreeSet<_>>();
    assert_eq!(variants(&second), variants(&first));
    assert!(told(&second).is_disjoint(&expected));
    expected.extend(told(&second));

    // The same operation id of another tenant or subject is another operation.
    for (tenant, subject) in [("tenant-008", "user-00042"), ("tenant-007", "user-00043")] {
        let mut head = patient(&[(headers::REQUEST_ID, "op-1")]);
        (head[0].1, head[1].1) = (tenant, subject);
        expected.extend(told(&suite.both(&head).await.served()));
    }
    let recorded = rows(suite.ledger()).await;
    assert_eq!(recorded.len(), 4 * EXPERIMENTS);
    assert_eq!(recorded.into_iter().collect::<BTreeSet<_>>(), expected);
    suite.finish().await;
}

#[tokio::test]
async fn the_service_says_whether_it_wrote_or_replayed() {
    let suite = Suite::start().await;
    let allocate = async || {
        let request =
            identified(AllocateArmsRequest { surface: "home".into() }, &[(headers::REQUEST_ID, "said")]);
        let mut client = ExperimentServiceClient::new(suite.link("experiment"));
        client.allocate_arms(request).await.expect("allocations").into_inner().allocations
    };
    let (first, second) = (allocate().await, allocate().await);
    assert!(first.iter().all(|one| one.effect_outcome() == EffectOutcome::Committed), "{first:?}");
    assert!(second.iter().all(|one| one.effect_outcome() == EffectOutcome::Replayed), "{second:?}");
    let ids = |of: &[::wire::experiment::v1::Allocation]| {
        of.iter().map(|one| one.event_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&first), ids(&second));
    assert_eq!(rows(suite.ledger()).await.len(), EXPERIMENTS);
    suite.finish().await;
}

#[tokio::test]
async fn fifty_equal_requests_at_once_leave_one_row_each() {
    let suite = Suite::start().await;
    let at = suite.home();
    let calls: Vec<_> =
        (0..50)
            .map(|_| {
                spawn(async move {
                    talk::call(at, GET_HOME, &patient(&[(headers::REQUEST_ID, "crowd")]), &[]).await
                })
            })
            .collect();
    let mut ids = BTreeSet::new();
    for call in calls {
        let page: ::wire::home::v2::GetHomeResponse = call.await.expect("no panic").message();
        ids.insert(page.experiments.into_iter().map(|arm| arm.event_id).collect::<Vec<_>>());
    }
    assert_eq!(ids.len(), 1, "fifty answers, one set of events: {ids:?}");
    let recorded: Vec<_> = rows(suite.ledger()).await.into_iter().map(|row| row.0).collect();
    let told =
        ids.first().expect("one").iter().map(|id| Uuid::parse_str(id).expect("a UUID").as_bytes().to_vec());
    assert_eq!(recorded.iter().cloned().collect::<BTreeSet<_>>(), told.collect());
    assert_eq!(recorded.len(), EXPERIMENTS);
    suite.finish().await;
}

#[tokio::test]
async fn a_service_killed_in_the_middle_records_each_operation_once_after_the_retry() {
    const OPERATIONS: usize = 30;
    let mut suite = Suite::start().await;
    // The first ones are in the ledger, the next are on their way to it, the last have not begun.
    for number in 0..5 {
        let id = format!("kill-{number}");
        suite.both(&patient(&[(headers::REQUEST_ID, &id)])).await.served();
    }
    suite.fault(Dependency::Experiment, Effect::DelayMs(150)).await;
    let at = suite.home();
    let calls: Vec<_> = (0..OPERATIONS)
        .map(|number| {
            let id = format!("kill-{number}");
            spawn(async move {
                talk::call(at, GET_HOME, &patient(&[(headers::REQUEST_ID, &id)]), &[]).await.code()
            })
        })
        .collect();
    // Some have come back from the catalogue and are being written.
    suite.until(Dependency::Experiment, "some answers are out", |of| of.ok >= 8).await;
    suite.member("experiment").kill();
    let mut failed = 0;
    for call in calls {
        let code = call.await.expect("no panic");
        // Never sent, or broken off on the way: then nobody knows, and the code says so.
        assert!(matches!(code, Code::Ok | Code::Unavailable | Code::Unknown), "{code:?}");
        failed += usize::from(code != Code::Ok);
    }
    assert!(failed > 0, "the kill met nobody");
    suite.clear_faults().await;

    suite.restart(Dependency::Experiment);
    eventually("it is back", async || {
        suite.get(&patient(&[(headers::REQUEST_ID, "kill-0")])).await.status == 200
    })
    .await;
    let mut expected = BTreeSet::new();
    for number in 0..OPERATIONS {
        let id = format!("kill-{number}");
        let head = patient(&[(headers::REQUEST_ID, &id), (headers::ATTEMPT, "2")]);
        expected.extend(told(&suite.both(&head).await.served()));
    }
    let recorded = rows(suite.ledger()).await;
    assert_eq!(recorded.len(), OPERATIONS * EXPERIMENTS, "one row an event");
    assert_eq!(recorded.into_iter().collect::<BTreeSet<_>>(), expected);
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn an_exposure_of_a_caller_that_left_stays_and_its_retry_replays() {
    let suite = Suite::start().await;
    // The page never comes, but its arms were allocated and recorded: a cancellation is no rollback.
    suite.fault(Dependency::Pricing, Effect::DelayMs(1_500)).await;
    let at = suite.home();
    let call =
        spawn(async move { talk::call(at, GET_HOME, &patient(&[(headers::REQUEST_ID, "gone")]), &[]).await });
    eventually("the rows are there", async || rows(suite.ledger()).await.len() == EXPERIMENTS).await;
    call.abort();
    suite.until_idle().await;
    let recorded = rows(suite.ledger()).await;
    assert_eq!(recorded.len(), EXPERIMENTS);
    suite.clear_faults().await;
    let page = suite.both(&patient(&[(headers::REQUEST_ID, "gone"), (headers::ATTEMPT, "2")])).await.served();
    assert_eq!(recorded.iter().cloned().collect::<BTreeSet<_>>(), told(&page));
    assert_eq!(rows(suite.ledger()).await, recorded);
    assert_eq!(recorded[0].1, CUSTOMER[0].1);
    suite.finish().await;
}
