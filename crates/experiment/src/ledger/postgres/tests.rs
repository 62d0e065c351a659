//! Tests of the ledger in PostgreSQL, over a real server.

mod faults;
mod proxy;
mod versions;

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Nanos, clock::SystemWallClock};
use sqlx::AssertSqlSafe;
use throwaway_postgres::{OWNER, Server, shared};

use super::*;
use crate::{
    decide::{Experiment, Surface, Variant, exposure::tests::context},
    ledger::{Location, audit},
};

const PATIENT: Patience = Patience { lock: Nanos::from_secs(20), step: Nanos::from_secs(30) };
const IMPATIENT: Patience = Patience { lock: Nanos::from_millis(50), step: Nanos::from_secs(30) };

/// A database of the test's own on the server that tests share. None when there is to be no server.
fn place() -> Option<(Arc<Server>, String)> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let server = shared()?;
    let name = format!("ledger_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    server.database(&name);
    Some((server, name))
}

fn database(url: &str) -> Database {
    match Location::parse(url).expect("a location") {
        Location::Postgres(database) => *database,
        Location::File(_) => panic!("no file"),
    }
}

async fn open_at(url: &str, patience: Patience) -> Result<PostgresLedger, OpenError> {
    PostgresLedger::open(&database(url), patience, Arc::new(SystemWallClock)).await
}

async fn open(server: &Server, name: &str, patience: Patience) -> PostgresLedger {
    open_at(&server.url(OWNER, name), patience).await.expect("a ledger")
}

/// A connection that is not the ledger's.
async fn other(server: &Server, name: &str) -> PgConnection {
    PgConnection::connect_with(database(&server.url(OWNER, name)).options()).await.expect("a connection")
}

/// The exposure of an operation; another surface gives another body under the same event id.
fn exposure(operation: usize, surface: &str) -> Exposure {
    let arm = Variant { name: "a".into(), weight: 1 };
    let experiment = Experiment { id: "e".into(), version: 1, variants: vec![arm.clone()] };
    let context = context("user-00000", &format!("op-{operation}"));
    Exposure::new(&context, &Surface::new(surface.into()).expect("valid"), &experiment, &arm)
}

fn exposures(operations: std::ops::Range<usize>) -> Vec<Exposure> {
    operations.map(|operation| exposure(operation, "home")).collect()
}

async fn record(ledger: &mut PostgresLedger, rows: &[Exposure]) -> Result<Vec<Stored>, WriteError> {
    ledger.record(&rows.iter().collect::<Vec<_>>()).await
}

fn fresh(stored: &[Stored]) -> usize {
    stored.iter().filter(|row| row.fresh).count()
}

fn count(server: &Server, name: &str) -> usize {
    server.psql(name, "SELECT count(*) FROM exposure").parse().expect("a number")
}

async fn sql(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.expect("valid SQL");
}

/// Returns once a session of this database waits for a lock.
async fn somebody_waits(watcher: &mut PgConnection) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    loop {
        let count: i64 = sqlx::query_scalar(waiting).fetch_one(&mut *watcher).await.expect("a number");
        if count > 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rows_are_written_once_and_never_changed() {
    let Some((server, name)) = place() else { return };
    let mut ledger = open(&server, &name, PATIENT).await;
    let rows = exposures(0..3);
    let stored = record(&mut ledger, &rows).await.expect("committed");
    let bodies = |rows: &[Stored]| rows.iter().map(|row| row.body).collect::<Vec<_>>();
    assert_eq!(
        bodies(&stored),
        rows.iter().map(|row| row.body).collect::<Vec<_>>(),
        "in the order of the call"
    );
    assert_eq!(fresh(&stored), 3);

    // Two old rows, one of them with another body, around a new one, and in another order.
    let mixed = [rows[2].clone(), exposure(3, "home"), exposure(0, "search")];
    let stored = record(&mut ledger, &mixed).await.expect("committed");
    assert_eq!(stored.iter().map(|row| row.fresh).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(stored[2].body, rows[0].body, "the row as it was first written");
    assert_eq!(server.psql(&name, "SELECT count(*) FROM exposure WHERE surface = 'home'"), "4");
    assert_eq!(count(&server, &name), 4);
    ledger.close().await;
    let mut ledger = open(&server, &name, PATIENT).await;
    assert_eq!(fresh(&record(&mut ledger, &rows).await.expect("committed")), 0);
}

#[tokio::test]
async fn a_row_that_another_replica_was_writing_is_waited_for_and_then_seen() {
    for first_commits in [true, false] {
        let Some((server, name)) = place() else { return };
        let mut second = open(&server, &name, PATIENT).await;
        let (mut first, mut watcher) = (other(&server, &name).await, other(&server, &name).await);
        let theirs = [exposure(0, "home"), exposure(1, "search")];
        let kept: Vec<_> = theirs.iter().collect();
        let written = Batch::new(&kept, 0).write(&mut first).await.expect("written");
        assert_eq!(fresh(&written), 2);

        let own = exposures(0..3);
        let (stored, ()) = tokio::join!(record(&mut second, &own), async {
            somebody_waits(&mut watcher).await;
            sql(&mut first, if first_commits { "COMMIT" } else { "ROLLBACK" }).await;
        });
        let stored = stored.expect("the row came free");
        assert_eq!(fresh(&stored), if first_commits { 1 } else { 3 });
        assert_eq!(stored[0].body, own[0].body);
        assert_eq!(stored[1].body == own[1].body, !first_commits, "a conflict is seen for what it is");
        assert_eq!(count(&server, &name), 3);
    }
}

#[tokio::test]
async fn replicas_with_the_same_rows_in_other_orders_do_not_deadlock() {
    const ROUNDS: usize = 40;
    const ROWS: usize = 64;
    let Some((server, name)) = place() else { return };
    let (mut left, mut right) = (open(&server, &name, PATIENT).await, open(&server, &name, PATIENT).await);
    let write = async |ledger: &mut PostgresLedger, backwards: bool| {
        let mut fresh_rows = 0;
        for round in 0..ROUNDS {
            let mut rows = exposures(round * ROWS..(round + 1) * ROWS);
            if backwards {
                rows.reverse();
            }
            fresh_rows += fresh(&record(ledger, &rows).await.expect("nobody is turned away"));
        }
        fresh_rows
    };
    let (one, two) = tokio::join!(write(&mut left, false), write(&mut right, true));
    assert_eq!(one + two, ROUNDS * ROWS, "every row was written by exactly one of them");
    assert_eq!(count(&server, &name), ROUNDS * ROWS);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(server.psql(&name, deadlocks), "0");
}

#[tokio::test]
async fn a_deadlock_that_somebody_else_causes_is_survived() {
    let Some((server, name)) = place() else { return };
    let mut ledger = open(&server, &name, PATIENT).await;
    let (mut alien, mut watcher) = (other(&server, &name).await, other(&server, &name).await);
    let mut rows = exposures(0..2);
    rows.sort_by_key(|row| row.event_id);
    // The alien takes the later row, waits for the ledger to have the earlier one, and then wants that too.
    sql(&mut alien, BEGIN).await;
    let later = [&rows[1]];
    Batch::new(&later, 0).insert(&mut alien).await.expect("free");
    let (stored, ()) = tokio::join!(record(&mut ledger, &rows), async {
        somebody_waits(&mut watcher).await;
        let earlier = [&rows[0]];
        // The server lets one of the two go on. Whichever it is, the alien then ends.
        let _ = Batch::new(&earlier, 0).insert(&mut alien).await;
        sql(&mut alien, "ROLLBACK").await;
    });
    assert_eq!(fresh(&stored.expect("one more try is enough")), 2);
    assert_eq!(count(&server, &name), 2);
}

#[tokio::test]
async fn an_audit_reads_what_is_there_and_finds_what_was_forged() {
    let Some((server, name)) = place() else { return };
    let location = Location::parse(&server.url(OWNER, &name)).expect("a location");
    let refusal = audit::open(&location).await.err().expect("no ledger yet").to_string();
    assert!(refusal.contains("no exposure ledger") && refusal.contains(&location.to_string()), "{refusal}");

    let mut ledger = open(&server, &name, PATIENT).await;
    let rows = exposures(0..2_100);
    for batch in rows.chunks(700) {
        record(&mut ledger, batch).await.expect("committed");
    }
    let mut reader = audit::open(&location).await.expect("a ledger");
    record(&mut ledger, &exposures(2_100..2_200)).await.expect("committed");
    let mut read = Vec::new();
    assert_eq!(reader.for_each(|row| read.push(row)).await, Ok(2_100), "as it was when it was opened");
    assert!(read.iter().all(|row| row.authentic() == Ok(())));
    assert!(read.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    let ids = |rows: &mut Vec<Uuid>| rows.sort_unstable();
    let (mut written, mut found): (Vec<_>, Vec<_>) =
        (rows.iter().map(|row| row.event_id).collect(), read.iter().map(|row| row.event_id).collect());
    ids(&mut written);
    ids(&mut found);
    assert_eq!(written, found);

    server.psql(&name, "UPDATE exposure SET surface = 'search' WHERE request_id = 'op-7'");
    server.psql(&name, "UPDATE exposure SET variant = 'b' WHERE request_id = 'op-9'");
    let mut forged = Vec::new();
    let mut reader = audit::open(&location).await.expect("a ledger");
    let count =
        reader.for_each(|row| forged.extend(row.authentic().err().map(|why| (row.request_id, why)))).await;
    forged.sort_by(|left, right| left.0.cmp(&right.0));
    let expected = [("op-7".to_owned(), audit::Forgery::Body), ("op-9".to_owned(), audit::Forgery::EventId)];
    assert_eq!((count, forged.as_slice()), (Ok(2_200), expected.as_slice()));
}
