//! Transitions: what is left behind when something fails, waits, panics or loses its caller just where one owner hands over to the
//! next. Every test ends with the books: permits, tasks, connections, calls, and what the ledger holds.

use base::{
    Dependency, Reason, headers,
    inject::{Action, Injection, Point},
};
use http::StatusCode;
use tonic::Code;

use crate::{
    exposures::{EXPERIMENTS, rows, told},
    harness::{
        GET_HOME, Options, SEED, Suite, eventually, get_home, patient,
        talk::{self, Http2, soon},
    },
};

/// Arms a point of a member, and prints what a failure is to be repeated with.
fn arm(suite: &Suite, member: &str, injection: Injection) {
    let injection = Injection { seed: SEED, ..injection };
    println!("{member}: --inject {injection}");
    suite.members[member].points.arm(injection);
}

async fn held(suite: &Suite, member: &str, point: Point, count: usize) {
    soon(suite.members[member].points.held(point, count)).await;
}

/// A page that is asked for over a connection of its own, whose caller may leave.
struct Caller {
    connection: Http2,
    response: h2::client::ResponseFuture,
    upload: h2::SendStream<bytes::Bytes>,
}

impl Caller {
    async fn ask(suite: &Suite, id: &str) -> Self {
        let connection = Http2::open(suite.home()).await;
        let request = talk::grpc(suite.home(), GET_HOME, &patient(&[(headers::REQUEST_ID, id)]));
        let (response, upload) = connection.stream(request, Some(talk::frame(&[]))).await.expect("a stream");
        Self { connection, response, upload }
    }

    /// Resets the stream. The connection stays, and is good for another call.
    async fn leave(mut self) {
        self.upload.send_reset(h2::Reason::CANCEL);
        drop(self.response);
        let told = self.connection.call(GET_HOME, &[], &[]).await;
        assert_eq!(told.code(), Code::Unauthenticated, "{told:?}");
    }

    async fn told(self) -> talk::Told {
        talk::told(self.response).await.expect("an answer")
    }
}

/// Nothing is held by anybody: no permit, no slot, no call, no exchange, no response, no byte of one, no stream's task; and no
/// connection of the test's. What every member still has are the tasks and connections that it keeps.
async fn settled(suite: &Suite) {
    suite.until_idle().await;
    for (name, member) in suite.members.iter().filter(|(_, member)| member.is_running()) {
        assert!(Point::ALL.into_iter().all(|point| member.points.holding(point) == 0), "{name} holds");
        let mut left = String::new();
        let mut series = vec![
            "mercury_exchanges_open",
            "mercury_responses_open",
            "mercury_response_bytes_waiting",
            "mercury_injection_holding",
        ];
        if *name == "home-api" {
            series.extend(["mercury_home_held", "mercury_home_waiting", "mercury_connections_open"]);
        }
        eventually(&format!("{name} holds nothing"), async || {
            let scrape = suite.scrape(name).await;
            // The scrape itself is a request of the admin port, and it is under way.
            let own = |series: &str| series.starts_with("mercury_response");
            let sum = |series: &str| match (series, own(series)) {
                ("mercury_connections_open", _) => scrape.sum(series, &[("server", "home-api")]),
                (_, true) => scrape.sum(series, &[("server", name)]),
                _ => scrape.sum(series, &[]),
            };
            left = series
                .iter()
                .filter(|series| sum(series) != 0.0)
                .map(|series| format!("{series} "))
                .collect();
            let streams = scrape.sum_or("mercury_tasks_live", &[("task", "stream")], 0.0);
            // A link to a service holds no stream while it is idle, but for the feed of revocations.
            let feeds = if ["emulator", "entitlement"].contains(name) { 1.0 } else { 0.0 };
            left.is_empty() && (*name != "home-api" || streams == 0.0) && streams <= feeds + 1.0
        })
        .await;
    }
}

/// The page is served, and what the ledger then holds of it is what the page says, once.
async fn retried(suite: &Suite, id: &str, rows_before: usize) {
    let head = patient(&[(headers::REQUEST_ID, id), (headers::ATTEMPT, "2")]);
    let page = talk::http1(suite.home(), get_home(&head)).await;
    assert_eq!(page.status, StatusCode::OK, "{page:?}");
    let recorded = rows(suite.ledger()).await;
    assert_eq!(recorded.len(), rows_before + EXPERIMENTS);
    let own: std::collections::BTreeSet<_> = recorded.into_iter().filter(|row| row.6 == id).collect();
    assert_eq!(own, told(&page.json()));
}

#[tokio::test]
async fn after_admission_and_before_parsing() {
    let suite = Suite::start().await;
    // It waits there, holding its place, and no dependency has heard of it. Then its caller leaves.
    arm(&suite, "home-api", Injection::once(Point::Admitted, Action::Hold));
    let caller = Caller::ask(&suite, "admitted-hold").await;
    held(&suite, "home-api", Point::Admitted, 1).await;
    let home = suite.scrape("home-api").await;
    assert_eq!(home.sum("mercury_exchanges_open", &[]), 1.0);
    assert_eq!(home.sum("mercury_home_held", &[]), 0.0, "no slot before the request was read");
    caller.leave().await;
    settled(&suite).await;
    assert_eq!(suite.calls().await, 0);

    for action in [Action::Fail, Action::Panic] {
        arm(&suite, "home-api", Injection { times_max: 2, ..Injection::always(Point::Admitted, action) });
        suite.both(&patient(&[(headers::REQUEST_ID, "admitted")])).await.refused(Reason::Internal);
        settled(&suite).await;
        assert_eq!(suite.calls().await, 0, "{action:?}");
        assert!(rows(suite.ledger()).await.is_empty());
    }
    assert_eq!(suite.scrape("home-api").await.sum("mercury_handler_panics_total", &[]), 2.0);
    retried(&suite, "admitted", 0).await;
    settled(&suite).await;
    suite.finish().await;
}

#[tokio::test]
async fn while_a_dependency_is_not_ready() {
    let suite = Suite::start_with(Options::quick()).await;
    arm(&suite, "home-api", Injection::always(Point::AwaitReady, Action::Hold));
    let caller = Caller::ask(&suite, "ready-hold").await;
    held(&suite, "home-api", Point::AwaitReady, 1).await;
    let home = suite.scrape("home-api").await;
    assert_eq!((home.sum("mercury_home_held", &[]), home.sum("mercury_link_in_flight", &[])), (2.0, 1.0));
    caller.leave().await;
    settled(&suite).await;
    assert_eq!(suite.calls().await, 0);

    // The connection that it asked for is there by now; entitlement is the next that has none.
    arm(&suite, "home-api", Injection::always(Point::AwaitReady, Action::Fail));
    let id = "ready-fail";
    let told = Caller::ask(&suite, id).await.told().await;
    assert_eq!(told.code(), Code::Unavailable, "{told:?}");
    settled(&suite).await;
    let calls = suite.stats(Dependency::Experiment).await.calls;
    assert_eq!((calls, rows(suite.ledger()).await.len()), (0, 0));
    suite.members["home-api"].points.disarm(Point::AwaitReady);
    retried(&suite, id, 0).await;
    settled(&suite).await;
    suite.finish().await;
}

#[tokio::test]
async fn before_any_byte_of_a_call() {
    let suite = Suite::start().await;
    suite.both(&patient(&[])).await.served();
    let (calls, before) = (suite.calls().await, rows(suite.ledger()).await.len());
    arm(&suite, "home-api", Injection::always(Point::BeforeSend, Action::Hold));
    let caller = Caller::ask(&suite, "before-hold").await;
    held(&suite, "home-api", Point::BeforeSend, 1).await;
    caller.leave().await;
    settled(&suite).await;
    assert_eq!((suite.calls().await, rows(suite.ledger()).await.len()), (calls, before), "nothing was sent");

    arm(&suite, "home-api", Injection::always(Point::BeforeSend, Action::Fail));
    suite.both(&patient(&[(headers::REQUEST_ID, "before")])).await.refused(Reason::DependencyUnavailable);
    settled(&suite).await;
    assert_eq!((suite.calls().await, rows(suite.ledger()).await.len()), (calls, before));
    let link = suite.scrape("home-api").await;
    assert_eq!(link.sum("mercury_link_disconnects_total", &[]), 0.0, "and no connection was lost for it");
    suite.members["home-api"].points.disarm(Point::BeforeSend);
    retried(&suite, "before", before).await;
    settled(&suite).await;
    suite.finish().await;
}

#[tokio::test]
async fn after_half_of_a_call() {
    let suite = Suite::start().await;
    suite.both(&patient(&[])).await.served();
    let (calls, before) = (suite.calls().await, rows(suite.ledger()).await.len());
    let experiment = suite.stats(Dependency::Experiment).await.calls;
    arm(&suite, "home-api", Injection::always(Point::PartialWrite, Action::Hold));
    let caller = Caller::ask(&suite, "half-hold").await;
    // Profile and entitlement get the other half; of the five branches all have half a request when the caller leaves.
    let points = suite.members["home-api"].points.clone();
    for serial in 1..=2 {
        eventually("it is held", async || points.acted(Point::PartialWrite) == serial).await;
        points.release(Point::PartialWrite);
    }
    eventually("all branches are held", async || points.acted(Point::PartialWrite) == 2 + 5).await;
    held(&suite, "home-api", Point::PartialWrite, 5).await;
    eventually("experiment has half a request", async || {
        suite.scrape("experiment").await.sum("mercury_exchanges_open", &[]) == 1.0
    })
    .await;
    caller.leave().await;
    settled(&suite).await;
    assert_eq!(suite.calls().await, calls + 2, "half a request is none");
    assert_eq!(suite.stats(Dependency::Experiment).await.calls, experiment);
    assert_eq!(rows(suite.ledger()).await.len(), before);
    let cancelled = [("server", "experiment"), ("outcome", "cancelled")];
    assert_eq!(suite.scrape("experiment").await.sum("mercury_requests_finished_total", &cancelled), 1.0);

    arm(&suite, "home-api", Injection::always(Point::PartialWrite, Action::Fail));
    suite.both(&patient(&[(headers::REQUEST_ID, "half")])).await.refused(Reason::DependencyUnavailable);
    settled(&suite).await;
    assert_eq!((suite.calls().await, rows(suite.ledger()).await.len()), (calls + 2, before));
    suite.members["home-api"].points.disarm(Point::PartialWrite);
    retried(&suite, "half", before).await;
    settled(&suite).await;
    suite.finish().await;
}

#[tokio::test]
async fn after_the_commit_and_before_its_answer() {
    let suite = Suite::start().await;
    // The caller leaves while its exposures are durable and nobody was told: they stay, and its retry replays them.
    arm(&suite, "experiment", Injection::once(Point::AfterCommit, Action::Hold));
    let caller = Caller::ask(&suite, "commit-hold").await;
    held(&suite, "experiment", Point::AfterCommit, 1).await;
    assert_eq!(rows(suite.ledger()).await.len(), EXPERIMENTS, "committed, and not answered for");
    caller.leave().await;
    suite.members["experiment"].points.release(Point::AfterCommit);
    settled(&suite).await;
    assert_eq!(rows(suite.ledger()).await.len(), EXPERIMENTS, "a cancellation takes nothing back");
    let experiment = suite.scrape("experiment").await;
    assert_eq!(experiment.sum("mercury_exposures_unclaimed_total", &[]), EXPERIMENTS as f64);
    retried(&suite, "commit-hold", 0).await;

    // The commit is not answered for: the effect is ambiguous, says so, and is there once.
    arm(&suite, "experiment", Injection::once(Point::AfterCommit, Action::Fail));
    let id = "commit-fail";
    let answer = suite.get(&patient(&[(headers::REQUEST_ID, id)])).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{answer:?}");
    let said = (answer.error("reason"), answer.error("effect"));
    assert_eq!(said, (Reason::EffectAmbiguous.as_str().to_owned(), "ambiguous".to_owned()));
    settled(&suite).await;
    assert_eq!(rows(suite.ledger()).await.len(), 2 * EXPERIMENTS);
    retried(&suite, id, EXPERIMENTS).await;
    let outcome = |outcome| [("outcome", outcome)];
    let experiment = suite.scrape("experiment").await;
    let settled_as = |name| experiment.sum("mercury_exposures_total", &outcome(name));
    assert_eq!((settled_as("committed"), settled_as("ambiguous"), settled_as("replayed")), (3.0, 3.0, 6.0));
    settled(&suite).await;
    suite.finish().await;
}

#[tokio::test]
async fn during_the_write_of_a_response() {
    let suite = Suite::start().await;
    // The head is out, the body is not, and the caller leaves: what was recorded stays, and everything else is given back.
    arm(&suite, "home-api", Injection::once(Point::Respond, Action::Hold));
    let caller = Caller::ask(&suite, "respond-hold").await;
    held(&suite, "home-api", Point::Respond, 1).await;
    let home = suite.scrape("home-api").await;
    let mine = [("server", "home-api")];
    assert_eq!(home.sum("mercury_responses_open", &mine), 1.0);
    assert_eq!(home.sum("mercury_home_held", &[]), 0.0, "the page is done, and its slots are free");
    caller.leave().await;
    settled(&suite).await;
    assert_eq!(rows(suite.ledger()).await.len(), EXPERIMENTS);
    retried(&suite, "respond-hold", 0).await;

    for (action, panics) in [(Action::Fail, 0.0), (Action::Panic, 1.0)] {
        arm(&suite, "home-api", Injection::once(Point::Respond, action));
        let id = format!("respond-{}", action.as_str());
        let before = rows(suite.ledger()).await.len();
        let caller = Caller::ask(&suite, &id).await;
        // A gRPC answer that breaks off: an error in the trailers, or a reset; never a whole page.
        match talk::told(caller.response).await {
            Ok(told) => assert_eq!(told.code(), Code::Internal, "{told:?}"),
            Err(error) => assert!(error.is_reset(), "{error}"),
        }
        assert_eq!(caller.connection.call(GET_HOME, &[], &[]).await.code(), Code::Unauthenticated);
        drop((caller.connection, caller.upload));
        settled(&suite).await;
        let home = suite.scrape("home-api").await;
        assert_eq!(home.sum("mercury_handler_panics_total", &mine), panics);
        retried(&suite, &id, before).await;
    }
    settled(&suite).await;
    suite.finish().await;
}

#[tokio::test]
async fn during_the_swap_of_a_policy() {
    let mut suite = Suite::start().await;
    let base_generation = suite.get(&patient(&[])).await.header(headers::POLICY_GENERATION).to_owned();
    let next = |generation: u64| Options::quick().overlaid(&format!("generation = {generation}\n")).policy;
    let file = suite.files().policy("home-api");
    let generation = async || suite.get(&patient(&[])).await.header(headers::POLICY_GENERATION).to_owned();

    // A swap that fails leaves the last good one in force, and is counted.
    arm(&suite, "home-api", Injection::once(Point::PolicySwap, Action::Fail));
    std::fs::write(&file, next(100)).expect("written");
    let interrupted = [("outcome", "interrupted")];
    eventually("the swap has failed", async || {
        suite.scrape("home-api").await.sum("mercury_policy_reloads_total", &interrupted) == 1.0
    })
    .await;
    assert_eq!(generation().await, base_generation);

    // While a swap is under way requests go by the policy before it; a drain does not wait for it.
    arm(&suite, "home-api", Injection::always(Point::PolicySwap, Action::Hold));
    std::fs::write(&file, next(101)).expect("written");
    held(&suite, "home-api", Point::PolicySwap, 1).await;
    assert_eq!(generation().await, base_generation);
    suite.members["home-api"].points.release(Point::PolicySwap);
    eventually("it is in force", async || generation().await == "101").await;
    std::fs::write(&file, next(102)).expect("written");
    held(&suite, "home-api", Point::PolicySwap, 1).await;
    settled_but_for_swap(&suite).await;
    suite.member("home-api").stop();
    let report = suite.member("home-api").report().await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(suite.members["home-api"].points.holding(Point::PolicySwap), 0);
    suite.finish_rest().await;
}

/// Requests are none; the one that is held is the swap.
async fn settled_but_for_swap(suite: &Suite) {
    suite.until_idle().await;
    assert_eq!(suite.scrape("home-api").await.sum("mercury_injection_holding", &[]), 1.0);
}

#[tokio::test]
async fn in_each_phase_of_a_shutdown() {
    for point in [Point::Quiesce, Point::CloseProducers, Point::Drain, Point::Reconcile, Point::Terminate] {
        for action in [Action::Fail, Action::Hold] {
            let mut suite = Suite::start().await;
            let page = suite.get(&patient(&[(headers::REQUEST_ID, "before-the-end")])).await;
            assert_eq!(page.status, StatusCode::OK);
            settled(&suite).await;
            let (home, profile) = (suite.home(), suite.stats(Dependency::Profile).await.calls);
            let idle = Http2::open(home).await;
            arm(&suite, "home-api", Injection::once(point, action));
            suite.member("home-api").stop();
            if action == Action::Hold && point == Point::Terminate {
                // Nothing waits for long here, so it may be over before anybody looks.
            } else if action == Action::Hold {
                held(&suite, "home-api", point, 1).await;
                // Whatever phase it hangs in, nothing is let in, and the second signal ends the wait.
                eventually("the port is closed", async || {
                    tokio::net::TcpStream::connect(home).await.is_err()
                })
                .await;
                suite.member("home-api").hasten();
            }
            let report = suite.member("home-api").report().await;
            println!("{point} {action:?}: {report:?}");
            assert_eq!(suite.members["home-api"].points.acted(point), 1, "{point} {action:?}");
            assert_eq!(report.failed_steps, u32::from(action == Action::Fail), "{point}");
            assert_eq!((report.cut_exchanges, report.cut_readers), (0, 0), "{point} {action:?}: {report:?}");
            let live = report.tasks.live();
            assert_eq!((report.tasks.panicked, live), (0, 0), "{point} {action:?}: {report:?}");
            soon(idle.driver).await.expect("no panic").ok();
            assert_eq!(suite.stats(Dependency::Profile).await.calls, profile, "nothing was done meanwhile");
            assert_eq!(rows(suite.ledger()).await.len(), EXPERIMENTS);
            suite.finish_rest().await;
        }
    }
}

#[tokio::test]
async fn the_same_seed_fails_the_same_calls() {
    let mut seen = Vec::new();
    for _again in 0..2 {
        let suite = Suite::start().await;
        let half = Injection { share_ppm: 500_000, ..Injection::always(Point::Admitted, Action::Fail) };
        arm(&suite, "home-api", half);
        let mut ended = Vec::new();
        for number in 0..20 {
            let id = format!("seeded-{number}");
            ended.push(suite.get(&patient(&[(headers::REQUEST_ID, &id)])).await.status.as_u16());
        }
        let failed = ended.iter().filter(|status| **status == 500).count();
        assert!((4..=16).contains(&failed), "{ended:?}");
        assert_eq!(rows(suite.ledger()).await.len(), (20 - failed) * EXPERIMENTS);
        settled(&suite).await;
        suite.finish().await;
        seen.push(ended);
    }
    assert_eq!(seen[0], seen[1]);
}
