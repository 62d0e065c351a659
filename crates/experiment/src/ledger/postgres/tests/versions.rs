//! Versions: how the tables are made, by whom they are used, and which servers and databases are refused.

use super::*;
use crate::ledger::{
    postgres::open::{MIGRATIONS, open_with},
    schema::Step,
};

async fn refusal(url: &str) -> String {
    let error = open_at(url, PATIENT).await.err().expect("refused").to_string();
    assert!(error.contains(&database(url).to_string()), "{error}");
    error
}

#[tokio::test]
async fn replicas_that_start_at_once_make_the_tables_once() {
    let Some((server, name)) = place() else { return };
    let url = server.url(OWNER, &name);
    let opened = tokio::join!(
        open_at(&url, IMPATIENT),
        open_at(&url, IMPATIENT),
        open_at(&url, IMPATIENT),
        open_at(&url, IMPATIENT)
    );
    let (a, b, c, d) = opened;
    for ledger in [a, b, c, d] {
        let mut ledger = ledger.expect("none of them is turned away");
        record(&mut ledger, &exposures(0..3)).await.expect("committed");
    }
    assert_eq!(count(&server, &name), 3);
    assert_eq!(server.psql(&name, "SELECT version, compatible_from FROM exposure_schema"), "1|1");
}

#[tokio::test]
async fn a_schema_that_only_grew_is_used_and_one_that_lost_something_is_refused() {
    let Some((server, name)) = place() else { return };
    let url = server.url(OWNER, &name);
    let mut running = open_at(&url, PATIENT).await.expect("a ledger");
    record(&mut running, &exposures(0..3)).await.expect("committed");
    let grown =
        [&MIGRATIONS[..], &[Step::Expand("ALTER TABLE exposure ADD COLUMN note TEXT NOT NULL DEFAULT ''")]]
            .concat();
    let _newer = open_with(&database(&url), PATIENT, &grown).await.expect("a newer program");
    assert_eq!(server.psql(&name, "SELECT version, compatible_from FROM exposure_schema"), "2|1");

    // The replica that runs goes on, and this program can start anew.
    assert_eq!(fresh(&record(&mut running, &exposures(2..5)).await.expect("committed")), 2);
    let mut again = open_at(&url, PATIENT).await.expect("compatible");
    assert_eq!(fresh(&record(&mut again, &exposures(4..6)).await.expect("committed")), 1);
    assert_eq!(
        server.psql(&name, "SELECT version, compatible_from FROM exposure_schema"),
        "2|1",
        "nothing was taken back"
    );

    let shrunk = [&grown[..], &[Step::Contract("ALTER TABLE exposure DROP COLUMN class")]].concat();
    let _newest = open_with(&database(&url), PATIENT, &shrunk).await.expect("a newer program");
    let refused = refusal(&url).await;
    assert!(refused.contains("version 3") && refused.contains("up to 1"), "{refused}");
    // Nor does the one that runs get on: its statements fail, and a new connection is refused.
    running.connection = None;
    let error = record(&mut running, &exposures(6..7)).await.expect_err("too old");
    assert!(matches!(&error, WriteError::KnownAbsent(detail) if detail.contains("up to 1")), "{error}");
}

#[tokio::test]
async fn a_step_that_fails_leaves_the_tables_as_they_were() {
    let Some((server, name)) = place() else { return };
    let url = server.url(OWNER, &name);
    let mut ledger = open_at(&url, PATIENT).await.expect("a ledger");
    let broken =
        [&MIGRATIONS[..], &[Step::Expand("CREATE TABLE half (n int)"), Step::Expand("SELECT nonsense")]]
            .concat();
    let error = open_with(&database(&url), PATIENT, &broken).await.expect_err("no such column").to_string();
    assert!(error.contains("nonsense"), "{error}");
    assert_eq!(server.psql(&name, "SELECT to_regclass('half') IS NULL"), "t");
    assert_eq!(server.psql(&name, "SELECT version FROM exposure_schema"), "1");
    record(&mut ledger, &exposures(0..3)).await.expect("committed");
}

#[tokio::test]
async fn a_server_that_may_forget_is_refused() {
    let Some((server, name)) = place() else { return };
    server.psql(&name, &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    let refused = refusal(&server.url(OWNER, &name)).await;
    assert!(refused.contains("synchronous_commit = off"), "{refused}");
    server.psql(&name, &format!("ALTER DATABASE {name} SET synchronous_commit = local"));
    open(&server, &name, PATIENT).await;

    let Some(careless) = Server::start(&["fsync=off"]) else { return };
    let refused = refusal(&careless.database("ledger")).await;
    assert!(refused.contains("fsync = off"), "{refused}");
    assert_eq!(careless.psql("ledger", "SELECT to_regclass('exposure') IS NULL"), "t", "left alone");
}

#[tokio::test]
async fn what_is_no_ledger_is_refused_by_name_and_left_alone() {
    let Some((server, name)) = place() else { return };
    server.psql(&name, "CREATE TABLE exposure (mine int); INSERT INTO exposure VALUES (7)");
    assert!(refusal(&server.url(OWNER, &name)).await.contains("belongs to something else"));
    assert_eq!(server.psql(&name, "SELECT mine FROM exposure"), "7");
    assert_eq!(server.psql(&name, "SELECT to_regclass('exposure_schema') IS NULL"), "t");

    assert!(refusal(&server.url(OWNER, "missing")).await.contains("does not exist"));
    assert!(refusal(&server.url("stranger", &name)).await.contains("stranger"));
    // Nobody listens there, and a password is in the URL.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let refused = refusal(&format!("postgres://mercury:s3cret@127.0.0.1:{port}/ledger")).await;
    assert!(refused.contains("refused") && !refused.contains("s3cret"), "{refused}");
}
