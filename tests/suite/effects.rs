//! Effects: what callers are told when the ledger cannot answer for an exposure, and what a retry makes of it.

use std::{collections::BTreeSet, path::Path};

use ::wire::{
    emulator::v1::fault_rule::Effect,
    experiment::v1::{AllocateArmsRequest, experiment_service_client::ExperimentServiceClient},
};
use base::{Dependency, Reason, headers};
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tonic::Code;
use uuid::Uuid;

use crate::{
    exposures::{EXPERIMENTS, rows, told},
    harness::{GET_HOME, Options, Suite, customer, eventually, identified, patient, spawn, talk},
};

/// Somebody else who writes to the ledger, a backup for one, and is not done yet.
pub(crate) struct Lock(SqliteConnection);

impl Lock {
    pub(crate) async fn take(ledger: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(ledger);
        let mut connection =
            SqliteConnection::connect_with(&options).await.expect("the ledger is a database");
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.expect("nobody else holds it");
        Self(connection)
    }

    pub(crate) async fn release(mut self) {
        sqlx::query("ROLLBACK").execute(&mut self.0).await.expect("it is ours");
        self.0.close().await.expect("closed");
    }
}

#[tokio::test]
async fn a_lock_that_ends_in_time_is_waited_for() {
    let suite = Suite::start().await;
    let lock = Lock::take(suite.ledger()).await;
    let at = suite.home();
    let call =
        spawn(
            async move { talk::call(at, GET_HOME, &patient(&[(headers::REQUEST_ID, "waits")]), &[]).await },
        );
    suite.until(Dependency::Experiment, "the arms are known", |of| of.ok == 1).await;
    assert!(rows(suite.ledger()).await.is_empty());
    lock.release().await;
    assert_eq!(call.await.expect("no panic").code(), Code::Ok);
    assert_eq!(rows(suite.ledger()).await.len(), EXPERIMENTS);
    suite.finish().await;
}

#[tokio::test]
async fn an_effect_that_outlasts_the_deadline_is_called_ambiguous_and_its_retry_settles_it() {
    let suite = Suite::start().await;
    let lock = Lock::take(suite.ledger()).await;
    let both = suite.both(&customer(&[(headers::REQUEST_ID, "open"), (headers::GRPC_TIMEOUT, "300m")])).await;
    both.refused(Reason::EffectAmbiguousDeadline);
    assert_eq!((both.http.status.as_u16(), both.grpc.code()), (504, Code::DeadlineExceeded));
    assert_eq!(
        (both.http.error("effect"), both.grpc.info("effect")),
        ("ambiguous".into(), "ambiguous".into())
    );
    lock.release().await;
    // What was accepted is written, though nobody waits for it any more.
    eventually("it is written", async || rows(suite.ledger()).await.len() == EXPERIMENTS).await;
    let page = suite.both(&patient(&[(headers::REQUEST_ID, "open"), (headers::ATTEMPT, "2")])).await.served();
    let recorded = rows(suite.ledger()).await;
    assert_eq!(recorded.len(), EXPERIMENTS);
    assert_eq!(recorded.into_iter().collect::<BTreeSet<_>>(), told(&page));
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn an_operation_id_with_another_body_is_a_conflict_and_the_row_stays() {
    let suite = Suite::start().await;
    let head = patient(&[(headers::REQUEST_ID, "taken")]);
    let page = suite.both(&head).await.served();
    let recorded = rows(suite.ledger()).await;
    let mut elsewhere = head.clone();
    elsewhere[3].1 = "us-east";
    let both = suite.both(&elsewhere).await;
    both.refused(Reason::Conflict);
    assert_eq!((both.http.status.as_u16(), both.grpc.code()), (409, Code::AlreadyExists));
    assert_eq!(both.http.error("field"), headers::REQUEST_ID);
    assert_eq!(rows(suite.ledger()).await, recorded);
    assert_eq!(told(&suite.both(&head).await.served()), told(&page), "the first body still replays");
    suite.finish().await;
}

#[tokio::test]
async fn a_drain_loses_nothing_that_was_answered() {
    const OPERATIONS: usize = 100;
    let mut suite = Suite::start().await;
    suite.capacity(Dependency::Experiment, 8, 200).await;
    suite.fault(Dependency::Experiment, Effect::DelayMs(10)).await;
    let client = ExperimentServiceClient::new(suite.link("experiment"));
    let calls: Vec<_> = (0..OPERATIONS)
        .map(|number| {
            let id = format!("drain-{number}");
            let request =
                identified(AllocateArmsRequest { surface: "home".into() }, &[(headers::REQUEST_ID, &id)]);
            let mut client = client.clone();
            spawn(async move { client.allocate_arms(request).await.map(tonic::Response::into_inner) })
        })
        .collect();
    suite
        .until(Dependency::Experiment, "some are answered, some wait", |of| of.ok >= 20 && of.queued > 0)
        .await;
    suite.member("experiment").stop();
    let (mut answered, mut refused) = (BTreeSet::new(), 0);
    for call in calls {
        match call.await.expect("no panic") {
            Ok(answer) => answered.extend(answer.allocations.into_iter().map(|one| one.event_id)),
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                refused += 1;
            }
        }
    }
    let report = suite.member("experiment").report().await;
    assert!(report.is_clean(), "{report:?}");
    let recorded: BTreeSet<_> = rows(suite.ledger())
        .await
        .into_iter()
        .map(|row| Uuid::from_slice(&row.0).expect("16 bytes").to_string())
        .collect();
    assert_eq!(answered.len(), (OPERATIONS - refused) * EXPERIMENTS);
    assert_eq!(recorded, answered, "what was answered is there, and what was refused is not");
    suite.clear_faults().await;
    suite.finish_rest().await;
}

/// A page that fails beside its exposure says so, whatever it is that fails it; and its retry settles the exposure.
#[tokio::test]
async fn a_page_that_fails_beside_its_exposure_does_not_hide_it() {
    // Pricing takes so long that the exposure is recorded before it answers, or does not.
    let quick = Options::quick();
    let pricing = |median_us: u32| format!("[dependencies.pricing]\nbody_median_us = {median_us}\n");
    let scenario = quick.scenario.replace(&pricing(1_000), &pricing(150_000));
    assert_ne!(scenario, quick.scenario);
    let suite = Suite::start_with(Options { scenario, ..quick }).await;
    for (id, effect, reason) in [
        ("slow", Effect::Hang(true), Reason::DeadlineExceeded),
        ("broken", Effect::StatusCode(14), Reason::DependencyUnavailable),
    ] {
        let before = rows(suite.ledger()).await.len();
        suite.fault(Dependency::Pricing, effect).await;
        let both = suite.both(&customer(&[(headers::REQUEST_ID, id)])).await;
        both.refused(reason);
        assert_eq!(
            (both.http.error("effect"), both.grpc.info("effect")),
            ("ambiguous".into(), "ambiguous".into()),
            "{both:?}"
        );
        eventually("it is recorded", async || rows(suite.ledger()).await.len() == before + EXPERIMENTS).await;
        suite.clear_faults().await;
        let page = suite.both(&patient(&[(headers::REQUEST_ID, id), (headers::ATTEMPT, "2")])).await.served();
        assert_eq!(rows(suite.ledger()).await.len(), before + EXPERIMENTS);
        let shown = page["experiments"].as_array().expect("a list");
        assert!(shown.iter().all(|arm| arm["effect"] == "replayed"), "{page}");
    }
    // What fails before the call leaves nothing open.
    suite.fault(Dependency::Profile, Effect::StatusCode(14)).await;
    let both = suite.both(&customer(&[])).await;
    both.refused(Reason::DependencyUnavailable);
    assert_eq!((both.http.error("effect"), both.grpc.info("effect")), (String::new(), String::new()));
    suite.finish().await;
}
