//! Faults: what is known of a batch when the connection, the server or somebody else's lock gets in its way.

use super::{
    proxy::{Fault, Proxy},
    *,
};

/// A ledger behind a proxy, and its database.
async fn behind_a_proxy(patience: Patience) -> Option<(Arc<Server>, String, Proxy, PostgresLedger)> {
    let (server, name) = place()?;
    let proxy = Proxy::start(server.socket_file());
    let ledger = open_at(&proxy.url(&name), patience).await.expect("a ledger");
    Some((server, name, proxy, ledger))
}

fn is_absent(result: &Result<Vec<Stored>, WriteError>) -> bool {
    matches!(result, Err(WriteError::KnownAbsent(_)))
}

fn is_unknown(result: &Result<Vec<Stored>, WriteError>) -> bool {
    matches!(result, Err(WriteError::Unknown(_)))
}

#[tokio::test]
async fn a_connection_lost_before_the_commit_leaves_nothing() {
    let Some((server, name, proxy, mut ledger)) = behind_a_proxy(PATIENT).await else { return };
    let rows = exposures(0..3);
    for text in ["BEGIN", "INSERT INTO exposure"] {
        proxy.set(Fault::CutBefore(text));
        let result = record(&mut ledger, &rows).await;
        assert!(is_absent(&result), "{text}: {result:?}");
    }
    // It may even have been written: without a commit it goes with its connection.
    proxy.set(Fault::CutAfter("INSERT INTO exposure"));
    let result = record(&mut ledger, &rows).await;
    assert!(is_absent(&result), "{result:?}");
    assert_eq!(count(&server, &name), 0);
    proxy.set(Fault::None);
    assert_eq!(fresh(&record(&mut ledger, &rows).await.expect("a new connection")), 3);
}

#[tokio::test]
async fn a_commit_that_did_not_arrive_is_of_unknown_outcome_and_the_retry_writes() {
    let Some((server, name, proxy, mut ledger)) = behind_a_proxy(PATIENT).await else { return };
    proxy.set(Fault::CutBefore("COMMIT\0"));
    let result = record(&mut ledger, &exposures(0..3)).await;
    assert!(is_unknown(&result), "{result:?}");
    proxy.set(Fault::None);
    assert_eq!(fresh(&record(&mut ledger, &exposures(0..3)).await.expect("settled")), 3);
    assert_eq!(count(&server, &name), 3);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_of_unknown_outcome_and_the_retry_replays() {
    let Some((server, name, proxy, mut ledger)) = behind_a_proxy(PATIENT).await else { return };
    proxy.set(Fault::CutAfter("COMMIT\0"));
    let result = record(&mut ledger, &exposures(0..3)).await;
    assert!(is_unknown(&result), "{result:?}");
    assert_eq!(count(&server, &name), 3);
    proxy.set(Fault::None);
    assert_eq!(fresh(&record(&mut ledger, &exposures(0..3)).await.expect("settled")), 0);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up_within_the_bound() {
    let patience = Patience { lock: Nanos::from_millis(50), step: Nanos::from_millis(500) };
    let Some((server, name, proxy, mut ledger)) = behind_a_proxy(patience).await else { return };
    proxy.set(Fault::SilentFrom("INSERT INTO exposure"));
    let result = record(&mut ledger, &exposures(0..3)).await;
    assert!(
        matches!(&result, Err(WriteError::KnownAbsent(detail)) if detail.contains("within 500 ms")),
        "{result:?}"
    );
    assert_eq!(
        proxy.met(),
        1,
        "who is silent is not asked again, on a connection that was used before either"
    );
    proxy.set(Fault::None);
    assert_eq!(ledger.probe().await, Ok(()));
    proxy.set(Fault::SilentFrom("SAVEPOINT probe"));
    assert!(ledger.probe().await.expect_err("silent").contains("within 500 ms"));
    assert_eq!(proxy.met(), 1, "nor by a probe");
    proxy.set(Fault::SilentFrom("COMMIT\0"));
    let result = record(&mut ledger, &exposures(0..3)).await;
    assert!(is_unknown(&result), "{result:?}");
    assert!(ledger.probe().await.expect_err("silent at its commit as well").contains("within 500 ms"));
    proxy.set(Fault::None);
    assert_eq!(ledger.probe().await, Ok(()));
    // The server ends what was left open there, and what it held is free again.
    let stored = record(&mut ledger, &exposures(0..3)).await;
    let settled = match stored {
        Ok(stored) => stored,
        Err(_) => open(&server, &name, PATIENT)
            .await
            .record(&exposures(0..3).iter().collect::<Vec<_>>())
            .await
            .expect("free"),
    };
    assert_eq!((settled.len(), count(&server, &name)), (3, 3));
}

#[tokio::test]
async fn a_connection_that_died_while_idle_is_not_noticed_by_anybody() {
    let Some((server, name)) = place() else { return };
    let mut ledger = open(&server, &name, PATIENT).await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND application_name = 'mercury experiment'";
    record(&mut ledger, &exposures(0..3)).await.expect("committed");
    assert_eq!(server.psql(&name, end), "1");
    assert_eq!(fresh(&record(&mut ledger, &exposures(0..6)).await.expect("a new connection")), 3);
    assert_eq!(server.psql(&name, end), "1");
    assert_eq!(ledger.probe().await, Ok(()));
    assert_eq!(count(&server, &name), 6);
}

#[tokio::test]
async fn a_lock_held_too_long_is_known_absent_and_leaves_the_connection_in_use() {
    let Some((server, name)) = place() else { return };
    let mut ledger = open(&server, &name, IMPATIENT).await;
    let mut other = other(&server, &name).await;
    sql(&mut other, "BEGIN; LOCK TABLE exposure IN SHARE MODE").await;
    let result = record(&mut ledger, &exposures(0..3)).await;
    assert!(
        matches!(&result, Err(WriteError::KnownAbsent(detail)) if detail.contains("lock timeout")),
        "{result:?}"
    );
    assert!(ledger.probe().await.expect_err("locked").contains("lock timeout"));
    assert!(ledger.connection.is_some());
    // Whoever is told to be patient waits.
    ledger.set_patience(PATIENT);
    let mut watcher = super::other(&server, &name).await;
    let (waited, ()) = tokio::join!(ledger.probe(), async {
        somebody_waits(&mut watcher).await;
        sql(&mut other, "ROLLBACK").await;
    });
    assert_eq!(waited, Ok(()));
    assert_eq!(fresh(&record(&mut ledger, &exposures(0..3)).await.expect("free")), 3);
}

#[tokio::test]
async fn a_probe_says_what_a_batch_would_meet() {
    let Some((server, name)) = place() else { return };
    let role = format!("{name}_reader");
    open(&server, &name, PATIENT).await.close().await;
    let grant = "GRANT SELECT ON exposure_schema TO";
    server.psql(
        &name,
        &format!("CREATE ROLE {role} LOGIN; {grant} {role}; GRANT SELECT, INSERT ON exposure TO {role}"),
    );
    // It may write rows and needs no right to make tables.
    let mut ledger = open_at(&server.url(&role, &name), PATIENT).await.expect("the tables are there");
    assert_eq!(ledger.probe().await, Ok(()));
    record(&mut ledger, &exposures(0..3)).await.expect("committed");
    server.psql(&name, &format!("REVOKE INSERT ON exposure FROM {role}"));
    assert!(ledger.probe().await.expect_err("may not write").contains("permission denied"));
    assert!(is_absent(&record(&mut ledger, &exposures(3..6)).await));
    let refused = open_at(&server.url(&role, &name), PATIENT).await.err().expect("of no use").to_string();
    assert!(refused.contains("permission denied"), "{refused}");
    server.psql(&name, &format!("GRANT INSERT ON exposure TO {role}"));
    assert_eq!(ledger.probe().await, Ok(()));
    server.psql(&name, "ALTER TABLE exposure RENAME TO aside");
    assert!(ledger.probe().await.is_err());
    ledger.connection = None;
    assert!(ledger.probe().await.expect_err("not made anew").contains("no longer holds"));
    server.psql(&name, "ALTER TABLE aside RENAME TO exposure");
    assert_eq!(ledger.probe().await, Ok(()));
}

#[tokio::test]
async fn a_server_that_is_down_is_known_absent_and_it_heals() {
    use throwaway_postgres::Stop;
    let Some(server) = Server::start(&[]) else { return };
    let url = server.database("ledger");
    let mut ledger = open_at(&url, PATIENT).await.expect("a ledger");
    let mut written = 0;
    for how in [Stop::Clean, Stop::Kill] {
        assert_eq!(fresh(&record(&mut ledger, &exposures(written..written + 3)).await.expect("up")), 3);
        written += 3;
        server.stop(how);
        assert!(is_absent(&record(&mut ledger, &exposures(written..written + 3)).await), "{how:?}");
        assert!(ledger.probe().await.is_err(), "{how:?}");
        server.resume();
        assert_eq!(ledger.probe().await, Ok(()), "{how:?}");
        assert_eq!(count(&server, "ledger"), written, "what was acknowledged, and no more");
    }
    assert_eq!(fresh(&record(&mut ledger, &exposures(0..written + 3)).await.expect("up")), 3);
}

#[tokio::test]
async fn what_the_server_itself_does_not_know_of_a_commit_is_unknown() {
    let Some((server, name)) = place() else { return };
    let mut ledger = open(&server, &name, PATIENT).await;
    for (code, known) in [("40001", true), ("40003", false)] {
        server.psql(
            &name,
            &format!(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$; \
                 DROP TRIGGER IF EXISTS refuse ON exposure; \
                 CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON exposure DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION refuse()"
            ),
        );
        let result = record(&mut ledger, &exposures(0..3)).await;
        assert!(if known { is_absent(&result) } else { is_unknown(&result) }, "{code}: {result:?}");
    }
}

/// A commit is flushed at once only when its transaction wrote to the log before; on a server whose background writer
/// sleeps, the log then stands further on.
#[tokio::test]
async fn a_probe_reaches_the_disk_and_leaves_no_row() {
    let Some(server) = Server::start(&["wal_writer_delay=10s"]) else { return };
    let mut ledger = open_at(&server.database("ledger"), PATIENT).await.expect("a ledger");
    let mut watcher = other(&server, "ledger").await;
    let flushed = async |watcher: &mut PgConnection| -> i64 {
        let sql = "SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint";
        sqlx::query_scalar(sql).fetch_one(watcher).await.expect("a place in the log")
    };
    for _ in 0..5 {
        let before = flushed(&mut watcher).await;
        assert_eq!(ledger.probe().await, Ok(()));
        let bytes = flushed(&mut watcher).await - before;
        assert!(bytes > 64 * 100, "a batch's worth of log is on disk: {bytes} bytes");
    }
    assert_eq!(count(&server, "ledger"), 0);
}
