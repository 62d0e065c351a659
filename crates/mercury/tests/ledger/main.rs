//! Ledger: `mercury serve experiment` as a process over ledgers that cannot be used, and over one whose disk fills up.

mod process;

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Output};

use experiment::ledger::{Location, audit};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use sqlx::{Connection as _, SqliteConnection};
use tonic::Code;

use process::{Process, Wrapper, eventually, run};

const SECRET: &str = "s3cret";

/// Ends of a process that must not start: its code, and what it says, which never holds the password.
fn refused(ledger: &str, wrapper: Wrapper) -> (i32, String) {
    let Output { status, stderr, stdout } =
        run(wrapper, &[("MERCURY_LEDGER", ledger)], &["serve", "experiment"]);
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(!said.contains(SECRET), "{said}");
    (status.code().expect("it ended by itself"), said)
}

async fn made(path: &Path) {
    let location = Location::File(path.to_owned());
    let ledger = experiment::ledger::SqliteLedger::open(
        path,
        base::Nanos::from_secs(5),
        std::sync::Arc::new(base::clock::SystemWallClock),
    );
    let mut ledger = ledger.await.expect("a ledger");
    experiment::ledger::Ledger::close(&mut ledger).await;
    assert!(audit::open(&location).await.is_ok());
}

#[test]
fn a_location_that_is_none_is_a_usage_error_that_keeps_the_secret() {
    for ledger in
        ["postgres://u:s3cret@h", "mysql://u:s3cret@h/d", "postgres://u:s3cret@h/d?sslmode=require", ""]
    {
        let (code, said) = refused(ledger, Wrapper::None);
        assert_eq!(code, 2, "{ledger}: {said}");
        assert!(said.contains("--ledger"), "{said}");
    }
    let url = format!("postgres://u:{SECRET}@h/d");
    for arguments in [["serve", "--help"], ["serve", "nobody"]] {
        let output = run(Wrapper::None, &[("MERCURY_LEDGER", &url)], &arguments);
        let said = [output.stdout, output.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains(SECRET));
    }
}

#[tokio::test]
async fn a_ledger_that_cannot_be_used_is_named_at_start_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("exposures.sqlite");
    let text = path.display().to_string();
    let names = |(code, said): (i32, String), why: &str| {
        assert_eq!(code, 1, "{why}: {said}");
        assert!(said.contains(&text) && said.contains(why), "{why}: {said}");
    };
    fs::write(&path, "no database at all\n".repeat(1_000)).expect("written");
    names(refused(&text, Wrapper::None), "not a database");
    fs::remove_file(&path).expect("it is there");

    made(&path).await;
    let sound = fs::read(&path).expect("readable");
    let mut damaged = sound.clone();
    damaged[4_096..2 * 4_096].fill(0xa5); // The root of the first table.
    fs::write(&path, &damaged).expect("written");
    names(refused(&text, Wrapper::None), "damaged");
    assert_eq!(fs::read(&path).expect("readable"), damaged, "evidence is left as it is");

    fs::write(&path, &sound).expect("written");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    mode(&path, 0o444);
    mode(directory.path(), 0o555);
    names(refused(&text, Wrapper::HeldToPermissions), "readonly");
    mode(directory.path(), 0o755);

    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let (code, said) =
        refused(&format!("postgres://mercury:{SECRET}@127.0.0.1:{port}/exposures"), Wrapper::None);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("postgres://mercury@127.0.0.1:{port}/exposures")), "{said}");
}

#[tokio::test]
async fn a_full_disk_takes_readiness_down_promises_nothing_and_heals() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("exposures.sqlite");
    let text = path.display().to_string();
    let emulator = Process::start("emulator", Wrapper::None, &[], directory.path());
    let arguments = ["--emulator", emulator.main.as_str(), "--ledger", &text];
    let experiment = Process::start("experiment", Wrapper::ShortWritesFail, &arguments, directory.path());
    let mut promised = BTreeSet::new();
    for number in 0..3 {
        promised.extend(experiment.allocate(&format!("before-{number}")).await.expect("room"));
    }
    assert_eq!(experiment.readyz().0, 200);

    // As if there were no room behind the first page of any file.
    let pid = Pid::from_raw(experiment.pid()).expect("a process");
    let room =
        |bytes| prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("ours");
    room(Some(4_096));
    let mut unsettled = Vec::new();
    for number in 0..4 {
        let id = format!("during-{number}");
        let status = experiment.allocate(&id).await.expect_err("no room");
        assert!(matches!(status.code(), Code::Unavailable | Code::Unknown), "{status:?}");
        unsettled.push(id);
    }
    // Callers are told before the probe that follows.
    eventually("readiness fell", || experiment.readyz().0 == 503);
    let said = experiment.readyz().1;
    assert!(said.contains("exposure ledger: "), "{said}");
    let status = experiment.allocate("refused-at-once").await.expect_err("down");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("out of order"), "{status:?}");

    room(None);
    eventually("it has healed", || experiment.readyz().0 == 200);
    for id in unsettled {
        promised.extend(experiment.allocate(&id).await.expect("room again"));
    }
    let mut recorded = BTreeSet::new();
    let mut reader = audit::open(&Location::File(path.clone())).await.expect("readable while it runs");
    let count = reader.for_each(|row| {
        assert_eq!(row.authentic(), Ok(()));
        recorded.insert(row.event_id.to_string());
    });
    assert_eq!(count.await, Ok(promised.len() as u64), "each once");
    assert_eq!(recorded, promised);
    let mut check = SqliteConnection::connect(&format!("sqlite://{text}?mode=ro")).await.expect("a file");
    let verdict: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut check).await.expect("checked");
    assert_eq!(verdict, "ok");
}
