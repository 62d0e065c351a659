//! Launcher: the suite of child processes, with this very binary standing in for `mercury`.
//!
//! Called as `serve …`, it behaves as a member of the suite does on the outside; the log filter, which only the members
//! read, says how it is to misbehave. Called as `up …`, it is the launcher in the foreground.

mod foreground;
mod member;
mod rehearse;

use std::{collections::BTreeMap, fs, net::TcpListener, path::Path, pin::Pin, process::ExitCode};

use rehearsal::{
    LaunchError, Member, OnChildExit, Suite, SuiteOptions,
    suite::{Ended, Endpoints, Step},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

/// A test that runs, and one by name.
type Test = Pin<Box<dyn Future<Output = ()>>>;
type Named = (&'static str, fn() -> Test);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match arguments.first().map(String::as_str) {
        Some("serve") => return runtime.block_on(member::serve(&arguments[1..])),
        Some("up") => return runtime.block_on(foreground::main(&arguments[1..])),
        _ => {}
    }
    // `cargo test NAME` hands over a filter, and other runners their own flags.
    let filter = arguments.iter().find(|argument| !argument.starts_with('-')).cloned().unwrap_or_default();
    let tests: &[Named] = &[
        ("starts_in_order_and_stops_in_reverse", || Box::pin(starts_in_order_and_stops_in_reverse())),
        ("a_death_is_told_by_name_and_restart_keeps_the_ports", || {
            Box::pin(a_death_is_told_by_name_and_restart_keeps_the_ports())
        }),
        ("a_member_that_dies_at_start_ends_the_start", || {
            Box::pin(a_member_that_dies_at_start_ends_the_start())
        }),
        ("a_port_in_use_is_named", || Box::pin(a_port_in_use_is_named())),
        ("one_suite_per_state_directory", || Box::pin(one_suite_per_state_directory())),
        ("a_stale_state_directory_is_taken_over", || Box::pin(a_stale_state_directory_is_taken_over())),
        ("a_member_that_ends_badly_is_reported", || Box::pin(a_member_that_ends_badly_is_reported())),
        ("members_end_with_their_launcher", || Box::pin(members_end_with_their_launcher())),
        ("an_honest_rehearsal_passes_and_leaves_its_evidence", || {
            Box::pin(rehearse::an_honest_rehearsal_passes_and_leaves_its_evidence())
        }),
        ("before_and_after_are_compared_and_each_mechanism_runs_alone", || {
            Box::pin(rehearse::before_and_after_are_compared_and_each_mechanism_runs_alone())
        }),
        ("a_wrong_answer_fails", || Box::pin(rehearse::a_wrong_answer_fails())),
        ("an_emulator_that_did_not_keep_time_is_inconclusive", || {
            Box::pin(rehearse::an_emulator_that_did_not_keep_time_is_inconclusive())
        }),
        ("a_suite_that_answers_nothing_is_inconclusive", || {
            Box::pin(rehearse::a_suite_that_answers_nothing_is_inconclusive())
        }),
        ("a_death_ends_the_rehearsal", || Box::pin(rehearse::a_death_ends_the_rehearsal())),
        ("files_that_are_wrong_are_all_named", || Box::pin(rehearse::files_that_are_wrong_are_all_named())),
        ("a_signal_stops_all_in_order_and_cleanly", || {
            Box::pin(foreground::a_signal_stops_all_in_order_and_cleanly())
        }),
        ("a_drain_that_was_cut_is_not_clean", || Box::pin(foreground::a_drain_that_was_cut_is_not_clean())),
        ("a_second_signal_does_not_wait", || Box::pin(foreground::a_second_signal_does_not_wait())),
        ("a_dead_member_is_reported_and_started_again", || {
            Box::pin(foreground::a_dead_member_is_reported_and_started_again())
        }),
        ("a_dead_member_ends_the_suite_when_asked_to", || {
            Box::pin(foreground::a_dead_member_ends_the_suite_when_asked_to())
        }),
        ("no_member_outlives_a_launcher_that_is_killed", || {
            Box::pin(foreground::no_member_outlives_a_launcher_that_is_killed())
        }),
    ];
    let mut ran = 0;
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&filter)) {
        // A panic ends the process with a failure and the name above it.
        println!("test {name} ...");
        runtime.block_on(test());
        println!("test {name} ... ok");
        ran += 1;
    }
    println!("\ntest result: ok. {ran} passed");
    ExitCode::SUCCESS
}

fn options(state: &Path, behaviour: &str) -> SuiteOptions {
    SuiteOptions { log_filter: Some(behaviour.to_owned()), ..SuiteOptions::new(state.join("state")) }
}

fn service(name: &str) -> Member {
    Member::parse(name).expect("a member")
}

/// Whether somebody accepts connections there.
async fn listens(address: &str) -> bool {
    TcpStream::connect(address).await.is_ok()
}

async fn starts_in_order_and_stops_in_reverse() {
    let home = tempfile::tempdir().expect("a directory");
    let mut steps = Vec::new();
    let suite = Suite::start(options(home.path(), ""), |step| steps.push(step)).await.expect("started");
    let position = |wanted: Step| steps.iter().position(|step| *step == wanted).expect("a step");
    for member in Member::all() {
        let ready = position(Step::Ready(member));
        if member != Member::Emulator {
            assert!(position(Step::Ready(Member::Emulator)) < position(Step::Started(member)), "{steps:?}");
        }
        if member != Member::HOME_API {
            assert!(ready < position(Step::Started(Member::HOME_API)), "{steps:?}");
        }
    }
    let written = Endpoints::read(&suite.endpoints_file()).expect("written");
    assert_eq!(&written, suite.endpoints());
    assert_eq!(written.iter().count(), 9);
    let home_api = written.get(Member::HOME_API).expect("listed");
    assert!(home_api.http.is_some() && home_api.grpc.is_none());
    assert!(written.get(Member::Emulator).expect("listed").control.is_some());
    let pids: BTreeMap<Member, u32> = suite.running().collect();
    for member in Member::all() {
        assert_eq!(written.get(member).expect("listed").pid, pids[&member]);
    }

    let addresses: Vec<String> = written.iter().map(|(_, one)| one.admin.clone()).collect();
    let file = suite.endpoints_file();
    let stopped = suite.stop().await;
    let order: Vec<Member> = stopped.iter().map(|one| one.member).collect();
    assert_eq!(order.first(), Some(&Member::HOME_API));
    assert_eq!(order.last(), Some(&Member::Emulator));
    assert!(stopped.iter().all(|one| one.ended == Ended::Code(0) && !one.forced), "{stopped:?}");
    for address in addresses {
        assert!(!listens(&address).await, "{address}");
    }
    assert!(!file.exists(), "the list of endpoints goes with them");
}

async fn a_death_is_told_by_name_and_restart_keeps_the_ports() {
    let home = tempfile::tempdir().expect("a directory");
    let mut suite = Suite::start(options(home.path(), ""), |_| ()).await.expect("started");
    let pricing = service("pricing");
    let before = suite.endpoints().get(pricing).expect("listed").clone();
    assert!(suite.kill(pricing));
    let exit = suite.exited().await;
    assert_eq!((exit.member, exit.ended), (pricing, Ended::Signal(9)));
    assert!(exit.log_tail.iter().any(|line| line.contains("pricing is ready")), "{:?}", exit.log_tail);
    assert!(exit.restart_command.contains(&before.admin), "{}", exit.restart_command);
    assert!(exit.to_string().starts_with("pricing died: signal 9"), "{exit}");
    assert!(!suite.kill(pricing), "it does not run");
    assert_eq!(suite.running().count(), 8);

    suite.restart(pricing).await.expect("restarted");
    let after = suite.endpoints().get(pricing).expect("listed").clone();
    assert_eq!((&after.grpc, &after.admin), (&before.grpc, &before.admin));
    assert_ne!(after.pid, before.pid);
    assert_eq!(&Endpoints::read(&suite.endpoints_file()).expect("written"), suite.endpoints());
    assert_eq!(suite.stop().await.len(), 9);
}

async fn a_member_that_dies_at_start_ends_the_start() {
    let home = tempfile::tempdir().expect("a directory");
    let mut started = Vec::new();
    let result = Suite::start(options(home.path(), "die=reputation"), |step| started.push(step)).await;
    let Err(LaunchError::Died(exit)) = result else { panic!("it must not start") };
    assert_eq!((exit.member, exit.ended), (service("reputation"), Ended::Code(7)));
    assert!(exit.log_tail.iter().any(|line| line.contains("told to die")), "{:?}", exit.log_tail);
    assert!(!started.contains(&Step::Started(Member::HOME_API)));
    // All others are gone, so the directory is free again.
    let again = Suite::start(options(home.path(), ""), |_| ()).await.expect("started");
    again.stop().await;
}

async fn a_port_in_use_is_named() {
    let home = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let options = SuiteOptions { port, ..options(home.path(), "") };
    let Err(error) = Suite::start(options, |_| ()).await else { panic!("it must not start") };
    let text = error.to_string();
    assert!(text.contains("home-api died: exit code 1"), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
}

async fn one_suite_per_state_directory() {
    let home = tempfile::tempdir().expect("a directory");
    let first = Suite::start(options(home.path(), ""), |_| ()).await.expect("started");
    let second = Suite::start(options(home.path(), ""), |_| ()).await;
    assert!(matches!(second, Err(LaunchError::Busy(_))));
    assert_eq!(first.running().count(), 9, "the first is not harmed");
    first.stop().await;
}

async fn a_stale_state_directory_is_taken_over() {
    let home = tempfile::tempdir().expect("a directory");
    let run = home.path().join("state/run");
    fs::create_dir_all(&run).expect("made");
    // Left by a suite that was killed: nobody listens there any more.
    let stale = r#"{"service":"profile","grpc":"127.0.0.1:1","admin":"127.0.0.1:1","pid":1}"#;
    fs::write(run.join("profile.json"), stale).expect("written");
    fs::write(home.path().join("state/endpoints.json"), "{}").expect("written");
    let ledger = home.path().join("state/ledger/exposures.db");
    fs::create_dir_all(ledger.parent().expect("a parent")).expect("made");
    fs::write(&ledger, "rows").expect("written");
    let suite = Suite::start(options(home.path(), ""), |_| ()).await.expect("started");
    assert!(ledger.exists(), "what is durable stays");
    assert_ne!(suite.endpoints().get(service("profile")).expect("listed").admin, "127.0.0.1:1");
    assert_eq!(suite.on_child_exit(), OnChildExit::Keep);
    suite.stop().await;
    let fresh = SuiteOptions { fresh_ledger: true, ..options(home.path(), "") };
    Suite::start(fresh, |_| ()).await.expect("started").stop().await;
    assert!(!ledger.exists(), "unless it is asked to go");
}

async fn a_member_that_ends_badly_is_reported() {
    let home = tempfile::tempdir().expect("a directory");
    let suite = Suite::start(options(home.path(), "cut=inventory"), |_| ()).await.expect("started");
    let stopped = suite.stop().await;
    let bad: Vec<_> = stopped.iter().filter(|one| !one.ended.is_clean()).collect();
    assert_eq!(bad.len(), 1);
    assert_eq!((bad[0].member, bad[0].ended), (service("inventory"), Ended::Code(3)));
    let text = rehearsal::up::stopped_table(&stopped);
    assert!(text.contains("inventory: exit code 3"), "{text}");
}

async fn members_end_with_their_launcher() {
    let home = tempfile::tempdir().expect("a directory");
    let suite = Suite::start(options(home.path(), ""), |_| ()).await.expect("started");
    let admin = suite.endpoints().get(service("entitlement")).expect("listed").admin.clone();
    // A connection that the member holds open for as long as it lives.
    let mut held = TcpStream::connect(&admin).await.expect("connected");
    drop(suite);
    let mut rest = Vec::new();
    let _ = held.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "the connection ended because the member did");
}
