//! Store: what callers and readiness are told while the ledger's store is out of order, that nothing is promised meanwhile, and that
//! it heals by itself; and several replicas on one store.

use std::collections::BTreeSet;

use ::wire::experiment::v1::{
    AllocateArmsRequest, AllocateArmsResponse, EffectOutcome,
    experiment_service_client::ExperimentServiceClient,
};
use base::{Dependency, Nanos, Reason, headers};
use experiment::ledger::{Location, audit};
use model::policy::ServiceName;
use serve::shell;
use throwaway_postgres::{OWNER, Server, Stop, shared};
use tonic::{Code, Status};

use crate::{
    effects::Lock,
    exposures::{EXPERIMENTS, rows, told},
    harness::{
        GET_HOME, Member, Options, SLACK, Suite, eventually, identified, member, now, patient, spawn, talk,
    },
};

/// How soon a store that is well again is found to be, in these tests.
const PROBE_INTERVAL_MS: &str = "50";

/// What `/readyz` of experiment says.
async fn readyz(suite: &Suite) -> (u16, String) {
    let answer = talk::get(suite.members["experiment"].admin, "/readyz").await;
    (answer.status.as_u16(), answer.json()["reason"].as_str().unwrap_or_default().to_owned())
}

async fn until_ready(suite: &Suite) {
    eventually("the ledger has healed", async || readyz(suite).await.0 == 200).await;
}

/// Rows that ended so, by experiment's own account.
async fn outcome(suite: &Suite, outcome: &str) -> f64 {
    suite.scrape("experiment").await.sum("mercury_exposures_total", &[("outcome", outcome)])
}

/// Event ids of the whole ledger, each row sealed again.
async fn recorded(location: &Location) -> Vec<String> {
    let mut ids = Vec::new();
    let mut reader = audit::open(location).await.expect("a ledger");
    let count = reader.for_each(|row| {
        assert_eq!(row.authentic(), Ok(()), "{row:?}");
        ids.push(row.event_id.to_string());
    });
    count.await.expect("read");
    ids
}

#[tokio::test]
async fn a_locked_ledger_takes_readiness_down_and_gives_it_back() {
    let options = Options::quick().policy("exposure", "busy_timeout_ms", "50").policy(
        "exposure",
        "probe_interval_ms",
        PROBE_INTERVAL_MS,
    );
    let suite = Suite::start_with(options).await;
    let head = patient(&[(headers::REQUEST_ID, "absent")]);
    // The page before finds the ledger in use for the first time; from then on it is the lock alone.
    suite.both(&patient(&[])).await.served();
    let before = rows(suite.ledger()).await;
    assert_eq!(readyz(&suite).await.0, 200);
    let lock = Lock::take(suite.ledger()).await;
    suite.both(&head).await.refused(Reason::DependencyUnavailable);
    // The probe that follows the failure waits for the lock as well.
    eventually("readiness fell", async || readyz(&suite).await.0 == 503).await;
    suite.both(&head).await.refused(Reason::DependencyUnavailable);
    let (status, reason) = readyz(&suite).await;
    assert_eq!(status, 503);
    assert!(reason.starts_with("exposure ledger: ") && reason.contains("locked"), "{reason}");
    assert!(outcome(&suite, "down").await > 0.0, "whoever came later was refused before the queue");
    assert_eq!(suite.scrape("experiment").await.sum("mercury_exposures_waiting", &[]), 0.0);
    assert_eq!(rows(suite.ledger()).await, before, "nothing was claimed");
    lock.release().await;
    until_ready(&suite).await;
    let page = suite.both(&head).await.served();
    let added: BTreeSet<_> = rows(suite.ledger()).await.into_iter().skip(before.len()).collect();
    assert_eq!(added, told(&page));
    suite.finish().await;
}

#[tokio::test]
async fn a_database_that_is_down_refuses_at_once_and_heals_without_traffic() {
    let Some(server) = Server::start(&[]) else { return };
    let location = Location::parse(&server.database("exposures")).expect("a location");
    let options = Options::quick().policy("exposure", "probe_interval_ms", PROBE_INTERVAL_MS);
    let suite = Suite::start_with(Options { ledger: Some(location.clone()), ..options }).await;
    let mut promised = BTreeSet::new();
    for (round, how) in [Stop::Clean, Stop::Kill].into_iter().enumerate() {
        let id = format!("before-{round}");
        let page = suite.both(&patient(&[(headers::REQUEST_ID, &id)])).await.served();
        promised.extend(told(&page).into_iter().map(|row| row.0));
        server.stop(how);
        // An idle service finds out by itself.
        eventually("readiness fell", async || readyz(&suite).await.0 == 503).await;
        let reason = readyz(&suite).await.1;
        assert!(reason.starts_with("exposure ledger: "), "{reason}");
        let began = now();
        let id = format!("during-{round}");
        let head = patient(&[(headers::REQUEST_ID, &id)]);
        suite.both(&head).await.refused(Reason::DependencyUnavailable);
        assert!(now() - began < Nanos::from_millis(300) + SLACK, "refused, not waited for");
        server.resume();
        until_ready(&suite).await;
        let page = suite.both(&head).await.served();
        promised.extend(told(&page).into_iter().map(|row| row.0));
    }
    assert!(outcome(&suite, "down").await > 0.0);
    let recorded = recorded(&location).await;
    assert_eq!(recorded.len(), promised.len(), "what was promised, and no more");
    assert_eq!(promised.len(), 4 * EXPERIMENTS);
    suite.until_idle().await;
    suite.finish().await;
}

/// Asks a replica for the arms of an operation.
async fn allocate(
    link: stack::Link,
    id: String,
    region: &'static str,
) -> Result<AllocateArmsResponse, Status> {
    let request = identified(
        AllocateArmsRequest { surface: "home".into() },
        &[(headers::REQUEST_ID, &id), (headers::REGION, region)],
    );
    ExperimentServiceClient::new(link).allocate_arms(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn replicas_that_share_a_database_record_each_operation_once() {
    const OPERATIONS: usize = 40;
    let Some(server) = shared() else { return };
    server.database("shared_exposures");
    let location = Location::parse(&server.url(OWNER, "shared_exposures")).expect("a location");
    let options = Options { ledger: Some(location.clone()), ..Options::quick() };
    let suite = Suite::start_with(options.clone()).await;
    let aside = tempfile::tempdir().expect("a directory");
    let emulator = suite.at("emulator");
    let second: Member =
        member::service(&options, ServiceName::Experiment, emulator, Default::default(), aside.path(), None);
    let links = [suite.link("experiment"), suite.link_to(second.at)];
    let calls: Vec<_> = (0..OPERATIONS * 2)
        .map(|at| spawn(allocate(links[at % 2].clone(), format!("op-{}", at / 2), "eu-west")))
        .collect();
    let (mut committed, mut replayed) = (Vec::new(), Vec::new());
    for call in calls {
        for one in call.await.expect("no panic").expect("allocations").allocations {
            match one.effect_outcome() {
                EffectOutcome::Committed => committed.push(one.event_id),
                EffectOutcome::Replayed => replayed.push(one.event_id),
                other => panic!("{other:?}"),
            }
        }
    }
    committed.sort_unstable();
    replayed.sort_unstable();
    assert_eq!(committed, replayed, "of each pair one wrote, and the other one found it");
    let mut rows = recorded(&location).await;
    rows.sort_unstable();
    assert_eq!(rows, committed);

    // The other body, at either replica, whoever wrote the first one.
    for (at, link) in links.iter().enumerate() {
        for id in ["op-0", "op-1"] {
            let status = allocate(link.clone(), id.to_owned(), "us-east").await.expect_err("a conflict");
            assert_eq!(status.code(), Code::AlreadyExists, "replica {at}: {status:?}");
        }
    }
    let mut after = recorded(&location).await;
    after.sort_unstable();
    assert_eq!(after, rows);
    drop(second);
    suite.finish().await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_holds_the_end_for_its_bound_and_no_longer() {
    let options = Options::quick().policy("exposure", "busy_timeout_ms", "50000").policy(
        "exposure",
        "store_timeout_ms",
        "60000",
    );
    let drain = Nanos::from_millis(300);
    let mut suite = Suite::start_with(options.policy("", "drain_ms", "300")).await;
    let lock = Lock::take(suite.ledger()).await;
    let at = suite.home();
    let head = patient(&[(headers::REQUEST_ID, "held")]);
    let call = spawn(async move { talk::call(at, GET_HOME, &head, &[]).await });
    suite.until(Dependency::Experiment, "the arms are known", |of| of.ok == 1).await;
    eventually("the writer is at it", async || {
        let scrape = suite.scrape("experiment").await;
        scrape.sum("mercury_exposures_offered_total", &[]) == EXPERIMENTS as f64
            && scrape.sum("mercury_exposures_waiting", &[]) == 0.0
    })
    .await;
    suite.member("experiment").stop();
    let report = suite.member("experiment").report().await;
    assert!(!report.is_clean() && report.aborted_tasks > 0, "{report:?}");
    let bound = drain + shell::FLUSH_MAX + shell::RECONCILE_MAX + shell::TERMINATE_MAX;
    assert!(report.took < bound + SLACK, "{report:?}");
    let told = call.await.expect("no panic");
    assert_ne!(told.code(), Code::Ok, "nothing was promised");
    lock.release().await;
    assert!(rows(suite.ledger()).await.is_empty());
    suite.finish_rest().await;
}
