//! Tests of reading, over real files.

use std::{fs, path::PathBuf, sync::Arc};

use base::{Nanos, clock::SystemWallClock};
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use super::*;
use crate::{
    decide::{Experiment, Exposure, Surface, Variant, exposure::tests::context},
    ledger::{Ledger as _, SqliteLedger},
};

fn place() -> (TempDir, PathBuf, Location) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("exposures.db");
    let location = Location::File(path.clone());
    (directory, path, location)
}

fn exposures(operations: std::ops::Range<usize>) -> Vec<Exposure> {
    let arm = Variant { name: "a".into(), weight: 1 };
    let experiment = Experiment { id: "e".into(), version: 3, variants: vec![arm.clone()] };
    let surface = Surface::new("home".into()).expect("valid");
    let context = |operation| context("user-00000", &format!("op-{operation}"));
    operations.map(|operation| Exposure::new(&context(operation), &surface, &experiment, &arm)).collect()
}

async fn writer(path: &std::path::Path) -> SqliteLedger {
    SqliteLedger::open(path, Nanos::from_secs(5), Arc::new(SystemWallClock)).await.expect("a ledger")
}

async fn record(ledger: &mut SqliteLedger, rows: &[Exposure]) {
    for batch in rows.chunks(1_000) {
        ledger.record(&batch.iter().collect::<Vec<_>>()).await.expect("committed");
    }
}

async fn all(location: &Location) -> Vec<Row> {
    let mut rows = Vec::new();
    let count = open(location).await.expect("a ledger").for_each(|row| rows.push(row)).await.expect("read");
    assert_eq!(count, rows.len() as u64);
    rows
}

fn is(row: &Row, exposure: &Exposure) -> bool {
    (row.event_id, row.body, row.statement(exposure.experiment_version))
        == (exposure.event_id, exposure.body, exposure.statement())
        && row.experiment_version == i64::from(exposure.experiment_version)
}

async fn refusal(location: &Location) -> String {
    let error = match open(location).await {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(&location.to_string()), "{error}");
    error
}

#[tokio::test]
async fn what_was_written_is_read_in_its_order_a_page_at_a_time() {
    let (_directory, path, location) = place();
    let rows = exposures(0..PAGE_ROWS_MAX as usize * 2 + 1);
    let mut ledger = writer(&path).await;
    record(&mut ledger, &rows).await;
    let read = all(&location).await;
    assert_eq!(read.len(), rows.len());
    assert!(read.iter().zip(&rows).all(|(row, exposure)| is(row, exposure) && row.authentic().is_ok()));
    assert!(read.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));

    let mut reader = open(&location).await.expect("a ledger");
    let mut pages = Vec::new();
    loop {
        let page = reader.next_batch().await.expect("read");
        if page.is_empty() {
            break;
        }
        pages.push(page.len());
    }
    assert_eq!(pages, [PAGE_ROWS_MAX as usize, PAGE_ROWS_MAX as usize, 1]);
}

#[tokio::test]
async fn a_reader_sees_one_moment_and_holds_nobody_up() {
    let (_directory, path, location) = place();
    let rows = exposures(0..20);
    let mut ledger = writer(&path).await;
    record(&mut ledger, &rows[..10]).await;
    let mut reader = open(&location).await.expect("a ledger");
    record(&mut ledger, &rows[10..]).await;
    assert_eq!(reader.for_each(drop).await, Ok(10));
    assert_eq!(all(&location).await.len(), 20);
}

#[tokio::test]
async fn a_log_that_a_killed_writer_left_counts() {
    let (directory, path, location) = place();
    let mut ledger = writer(&path).await;
    record(&mut ledger, &exposures(0..10)).await;
    // As a kill would leave it: the file and its log, and no clean close.
    let left = directory.path().join("left.db");
    for suffix in ["", "-wal"] {
        let (from, to) = (format!("{}{suffix}", path.display()), format!("{}{suffix}", left.display()));
        fs::copy(from, to).expect("a log is there");
    }
    let left = Location::File(left);
    assert_eq!(all(&left).await.len(), 10);
    assert_eq!(all(&left).await.len(), 10, "reading took nothing away");
    ledger.close().await;
    assert_eq!(all(&location).await.len(), 10, "nor does it need a log");
}

#[tokio::test]
async fn a_row_that_was_forged_is_told_with_what_is_wrong() {
    for (change, expected) in [
        ("variant = 'b'", Forgery::EventId),
        ("tenant = 'tenant-001'", Forgery::EventId),
        ("request_id = 'op-2'", Forgery::EventId),
        ("experiment_version = 4", Forgery::EventId),
        ("event_id = zeroblob(16)", Forgery::EventId),
        ("surface = 'search'", Forgery::Body),
        ("region = 'us-east'", Forgery::Body),
        ("origin = 'probe'", Forgery::Body),
        ("body_sha256 = zeroblob(32)", Forgery::Body),
        ("experiment_version = 0", Forgery::Malformed("experiment_version")),
        ("experiment_version = 4294967296", Forgery::Malformed("experiment_version")),
        ("origin = 'nobody'", Forgery::Malformed("origin")),
        ("tenant = ''", Forgery::Malformed("tenant")),
        ("variant = 'a b'", Forgery::Malformed("variant")),
    ] {
        let (_directory, path, location) = place();
        let mut ledger = writer(&path).await;
        record(&mut ledger, &exposures(0..2)).await;
        ledger.close().await;
        let options = SqliteConnectOptions::new().filename(&path);
        let mut forger = SqliteConnection::connect_with(&options).await.expect("a file");
        let sql = format!("UPDATE exposure SET {change} WHERE request_id = 'op-0'");
        let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut forger).await.expect("valid SQL");
        assert_eq!(done.rows_affected(), 1);
        forger.close().await.expect("closed");
        let verdicts: Vec<_> = all(&location).await.iter().map(Row::authentic).collect();
        assert_eq!(verdicts, [Err(expected), Ok(())], "{change}");
    }
}

#[tokio::test]
async fn what_is_no_ledger_is_refused_by_name_and_not_created() {
    let (_directory, path, location) = place();
    refusal(&location).await;
    assert!(!path.exists(), "reading creates nothing");
    fs::write(&path, b"").expect("written");
    assert!(refusal(&location).await.contains("empty"));
    fs::write(&path, b"no database, however long the file is\n".repeat(200)).expect("written");
    assert!(refusal(&location).await.contains("not a database"));
    fs::remove_file(&path).expect("it is there");
    let mut ledger = writer(&path).await;
    record(&mut ledger, &exposures(0..2_000)).await;
    ledger.close().await;
    let mut damaged = fs::read(&path).expect("readable");
    damaged[10 * 4_096..11 * 4_096].fill(0xa5);
    fs::write(&path, damaged).expect("written");
    assert!(refusal(&location).await.contains("damaged"));
}
