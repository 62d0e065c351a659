//! Generator: the load generator against the real suite. Its books balance, and agree with those of the suite.

use base::Nanos;
use load::{Plan, Rate};
use model::workload::Workload;

use crate::harness::{Options, Suite};

#[tokio::test]
async fn a_short_run_balances_and_every_answer_is_right() {
    let suite = Suite::start_with(Options::shipped()).await;
    let duration = Nanos::from_secs(3);
    let plan = Plan::new(suite.home().to_string(), Workload::shipped(), Rate::PerSecond(40.0), duration);
    let report = load::run(plan, |_| {}).expect("a run");
    let all = &report.total.all;
    assert!(all.balanced, "{all:?}");
    assert_eq!(all.scheduled, all.completed.total + all.unsent.total + all.in_flight, "{all:?}");
    // Poisson at 120 expected: beyond five deviations it is not that schedule.
    assert!((60..180).contains(&all.scheduled), "{}", all.scheduled);
    assert_eq!((all.unsent.total, all.in_flight, all.core_mismatch), (0, 0, 0), "{all:?}");
    assert_eq!(report.mismatch_samples, []);
    assert_eq!((all.completed.error_other, all.completed.transport), (0, 0), "{all:?}");
    assert!(
        all.completed.correct() + all.completed.departed + all.completed.deadline >= all.scheduled * 9 / 10,
        "{all:?}"
    );
    assert!(!report.stopped_early);
    assert_eq!(report.generator.connections_lost, 0);

    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    let server = ("server", "home-api");
    let offered = home.sum("mercury_requests_offered_total", &[server]);
    assert_eq!(offered, all.attempts as f64, "each attempt arrived, and nothing else did");
    assert_eq!(offered, home.sum("mercury_requests_finished_total", &[server]));
    let ok = home.sum("mercury_requests_finished_total", &[server, ("outcome", "ok")]);
    assert!(ok >= all.completed.correct() as f64, "{ok}");
    suite.finish().await;
}
