//! Crashes: whoever is killed at whatever moment of a decision leaves the old phase or the new one, and the ledger free.

use std::time::Duration;

use tokio::time;

use super::*;

#[tokio::test(start_paused = true)]
async fn killed_before_the_append_nothing_was_decided() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Expand).await;
    bench.soak();
    bench.harm(|harm| harm.hung.insert(HOMES[1].to_owned()));
    let before = ledger::verify(&path).expect("sound").entries;
    {
        let desk = bench.desk(&path);
        // Dropped while it still hears.
        time::timeout(Duration::from_secs(1), desk.advance()).await.expect_err("it hears");
    }
    assert_eq!(ledger::verify(&path).expect("sound").entries, before);
    bench.harm(|harm| harm.hung.clear());
    assert_eq!(bench.desk(&path).advance().await.expect("free again").verdict(), Verdict::Pass);
}

#[tokio::test(start_paused = true)]
async fn killed_between_append_and_confirmation_the_new_phase_holds_for_all() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Expand).await;
    bench.soak();
    let (standing, head) = Standing::read(&path).expect("sound");
    let late = example::home_api(HOMES[2], &standing.expect("begun"), head);
    bench.harm(|harm| harm.frozen.insert(HOMES[2].to_owned(), late));
    {
        let desk = bench.desk(&path);
        // Dropped while it waits for the late one.
        time::timeout(Duration::from_secs(1), desk.advance()).await.expect_err("it confirms");
    }
    let standing = bench.standing().expect("begun");
    assert_eq!(standing.phase, Phase::Shadow);
    // Whoever comes then, late or restarted, finds it there; so does the next command.
    bench.harm(|harm| harm.frozen.clear());
    let status = bench.desk(&path).status().await.expect("sound");
    assert_eq!(status.standing.as_ref(), Some(&standing));
    for heard in &status.heard {
        let report = heard.report.as_ref().expect("heard");
        assert_eq!(
            (report.phase, report.generation),
            (standing.phase, standing.generation),
            "{}",
            heard.address
        );
    }
    bench.soak();
    let decided = bench.desk(&path).advance().await.expect("decided");
    assert_eq!((decided.verdict(), bench.phase()), (Verdict::Pass, Some(Phase::Canary)));
}

#[tokio::test(start_paused = true)]
async fn of_two_commands_one_decides_and_a_way_back_need_not_wait_for_a_confirmation() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Shadow).await;
    bench.soak();
    bench.harm(|harm| harm.hung.insert(HOMES[0].to_owned()));
    let (first, second) = (bench.desk(&path), bench.desk(&path));
    let mut advance = std::pin::pin!(first.advance());
    time::timeout(Duration::from_millis(10), &mut advance).await.expect_err("it hears");
    let busy = second.advance().await.expect_err("the other has it");
    assert!(matches!(busy, DeskError::Ledger(LedgerError::Busy(_))), "{busy}");
    assert_eq!(busy.exit_code(), 1);
    drop(bench.harm.replace(Harm::default()));
    // The hung one never answers this hearing, so the command is given up and made again, with one that is late.
    let (standing, head) = Standing::read(&path).expect("sound");
    let late = example::home_api(HOMES[2], &standing.expect("begun"), head);
    bench.harm(|harm| harm.frozen.insert(HOMES[2].to_owned(), late));
    advance.set(first.advance());
    time::timeout(Duration::from_secs(1), &mut advance).await.expect_err("it confirms");
    assert_eq!(bench.phase(), Some(Phase::Canary));
    bench.harm(|harm| harm.frozen.clear());
    let back = second.rollback(Phase::Shadow).await.expect("not busy");
    assert_eq!((back.verdict(), bench.phase()), (Verdict::Pass, Some(Phase::Shadow)));
    // Who is past a decision has seen it.
    assert_eq!(advance.await.expect("decided").confirmation, Confirmation::ByAll);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_only_behind_with_reading_is_waited_for() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Expand).await;
    bench.soak();
    let (standing, head) = Standing::read(&path).expect("sound");
    let mut behind = example::home_api(HOMES[0], &standing.expect("begun"), head);
    behind.head = None;
    bench.harm(|harm| harm.frozen.insert(HOMES[0].to_owned(), behind));
    let desk = bench.desk(&path);
    let advance = desk.advance();
    let catches_up = async {
        time::sleep(Duration::from_millis(300)).await;
        bench.harm(|harm| harm.frozen.clear());
    };
    let (decided, ()) = tokio::join!(advance, catches_up);
    assert_eq!(decided.expect("decided").verdict(), Verdict::Pass);
}
