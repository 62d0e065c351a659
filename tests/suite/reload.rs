//! Reload: a policy that is replaced while it is in force, by its file, by SIGHUP and by the admin port. Nothing mixes two, and
//! nothing fails because of it.

use std::{
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use ::wire::emulator::v1::fault_rule::Effect;
use base::{
    Dependency, headers,
    inject::{Action, Injection, Point},
};
use http::Request;
use http_body_util::Full;
use serde_json::Value;

use crate::harness::{
    CUSTOMER, Options, Suite, eventually, get_home, patient, spawn,
    talk::{self, Answer, Http1, soon},
};

const FIRST: u64 = 100;

/// A policy of that generation, with some changes. Its sections `recommendation` and `reputation` are switched off in every odd one.
fn policy(generation: u64, changes: &str) -> String {
    let enabled = generation.is_multiple_of(2);
    let own = format!(
        "generation = {generation}\n[branches.recommendation]\nenabled = {enabled}\n[branches.reputation]\nenabled = {enabled}\n"
    );
    Options::quick().overlaid(&own).overlaid(changes).policy
}

fn options() -> Options {
    Options { policy: policy(FIRST, ""), ..Options::quick() }
}

/// Replaces a file as an editor or a deployment does.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path)).expect("a file");
}

async fn reload(suite: &Suite, member: &str) -> Answer {
    let request = Request::post("/policy/reload").header("host", "admin").body(Full::default());
    talk::http1(suite.members[member].admin, request.expect("a request")).await
}

async fn shown(suite: &Suite, member: &str) -> Value {
    talk::get(suite.members[member].admin, "/policy").await.json()
}

async fn reloads(suite: &Suite, member: &str, outcome: &str) -> f64 {
    suite.scrape(member).await.sum("mercury_policy_reloads_total", &[("outcome", outcome)])
}

async fn until_generation(suite: &Suite, member: &str, generation: u64) {
    eventually(&format!("{member} goes by generation {generation}"), async || {
        shown(suite, member).await["generation"] == generation
    })
    .await;
}

#[tokio::test]
async fn every_service_follows_its_file_and_keeps_the_last_good_one() {
    let suite = Suite::start_with(options()).await;
    let members: Vec<&str> = suite.members.keys().copied().filter(|name| *name != "emulator").collect();
    assert_eq!(members.len(), 8);
    for member in &members {
        replace(&suite.files().policy(member), &policy(FIRST + 2, ""));
    }
    for member in &members {
        until_generation(&suite, member, FIRST + 2).await;
        let scrape = suite.scrape(member).await;
        assert_eq!(scrape.sum("mercury_policy_generation", &[]), (FIRST + 2) as f64);
        // A bad one: refused with the key's path, and what is in force stays so.
        let bad = policy(FIRST + 3, "").replace("objective_ms = 300", "objective_ms = 0");
        replace(&suite.files().policy(member), &bad);
        let refused = reload(&suite, member).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["cause"]), (422, &Value::from("invalid")));
        assert!(refused.json()["detail"].as_str().expect("text").contains("objective_ms"), "{refused:?}");
    }
    let told = shown(&suite, "pricing").await;
    assert_eq!(told["generation"], FIRST + 2);
    assert_eq!((&told["reload"]["taken"], &told["reload"]["refused"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(told["reload"]["last_refused"]["cause"], "invalid");
    assert_eq!(suite.get(&patient(&[])).await.header(headers::POLICY_GENERATION), (FIRST + 2).to_string());
    suite.finish().await;
}

#[tokio::test]
async fn what_is_no_newer_policy_is_refused_by_its_cause() {
    let suite = Suite::start_with(options()).await;
    let file = suite.files().policy("home-api");
    let refused = async |cause: &str, names: &str| {
        let answer = reload(&suite, "home-api").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["cause"]), (422, &Value::from(cause)));
        assert!(answer.json()["detail"].as_str().expect("text").contains(names), "{answer:?}");
        assert_eq!(reloads(&suite, "home-api", cause).await, 1.0);
    };
    replace(&file, &policy(FIRST - 1, ""));
    refused("generation", "not above 100").await;
    std::fs::remove_file(&file).expect("removed");
    refused("unreadable", "No such file").await;
    replace(&file, "generation = ");
    refused("invalid", "policy-home-api.toml").await;
    // The content in force is back: nothing is wrong, and nothing new.
    replace(&file, &policy(FIRST, ""));
    let same = reload(&suite, "home-api").await.json();
    assert_eq!((&same["generation"], &same["changed"]), (&Value::from(FIRST), &Value::from(false)));
    assert_eq!(reloads(&suite, "home-api", "taken").await, 0.0);
    suite.finish().await;
}

#[tokio::test]
async fn renames_and_swapped_links_are_noticed() {
    let suite = Suite::start_with(options()).await;
    let file = suite.files().policy("home-api");
    // As a mounted configuration: the name is a link into a directory that is itself replaced.
    let beside = |name: &str| file.with_file_name(name);
    for (generation, name) in [(FIRST + 2, "one"), (FIRST + 4, "two")] {
        std::fs::create_dir_all(beside(name)).expect("a directory");
        std::fs::write(beside(name).join("policy.toml"), policy(generation, "")).expect("a file");
        let link = beside("new-link");
        symlink(beside(name).join("policy.toml"), &link)
            .and_then(|()| std::fs::rename(&link, &file))
            .expect("a link");
        until_generation(&suite, "home-api", generation).await;
    }
    // Written in place.
    std::fs::write(beside("two").join("policy.toml"), policy(FIRST + 6, "")).expect("a file");
    until_generation(&suite, "home-api", FIRST + 6).await;
    suite.finish().await;
}

/// A hundred edits under load, every tenth of them broken. A page shows which policy it was made by in three ways: by the header,
/// by its body, and by two sections that are there or not.
#[tokio::test]
async fn no_page_mixes_two_policies_and_none_fails_because_of_one() {
    let suite = Suite::start_with(options()).await;
    let (stop, pages) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (stop, pages, home) = (Arc::clone(&stop), Arc::clone(&pages), suite.home());
            spawn(async move {
                let mut connection = Http1::open(home).await;
                let mut last = FIRST;
                while !stop.load(Ordering::Relaxed) {
                    let answer = connection.send(get_home(&patient(&[]))).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    let page = answer.json();
                    let generation = page["policy_generation"].as_u64().expect("a number");
                    assert_eq!(answer.header(headers::POLICY_GENERATION), generation.to_string());
                    for section in ["recommendations", "reputation"] {
                        let enabled = generation.is_multiple_of(2);
                        let marker = &page["optional"][section];
                        assert_eq!(marker == "omitted_disabled", !enabled, "{generation}: {page}");
                    }
                    assert!(generation >= last, "from one caller to the next call it never falls");
                    last = generation;
                    pages.fetch_add(1, Ordering::Relaxed);
                }
                last
            })
        })
        .collect();
    let file = suite.files().policy("home-api");
    let (mut generation, mut refused) = (FIRST, 0);
    for edit in 1..=100 {
        let before = pages.load(Ordering::Relaxed);
        let broken = edit % 10 == 0;
        let next = policy(generation + 1, "");
        replace(&file, &if broken { next.replace("[limits]", "[limitz]") } else { next });
        let answer = reload(&suite, "home-api").await;
        assert_eq!(answer.status == 422, broken, "{answer:?}");
        if broken {
            refused += 1;
        } else {
            generation += 1;
        }
        eventually("pages are served under every policy", async || {
            pages.load(Ordering::Relaxed) > before + 16
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        assert_eq!(caller.await.expect("every page is sound"), generation);
    }
    assert_eq!((generation, refused), (FIRST + 90, 10));
    assert_eq!(reloads(&suite, "home-api", "taken").await, 90.0);
    assert_eq!(reloads(&suite, "home-api", "invalid").await, 10.0);
    suite.finish().await;
}

/// A page that was admitted under one policy ends under it, whatever has come since.
#[tokio::test]
async fn a_request_under_way_keeps_its_policy() {
    let suite = Suite::start_with(options()).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(500)).await;
    let home = suite.home();
    let held = spawn(async move { talk::http1(home, get_home(&patient(&[]))).await });
    suite.until(Dependency::Profile, "the page waits", |of| of.in_service == 1).await;
    replace(&suite.files().policy("home-api"), &policy(FIRST + 1, "[limits]\nheader_bytes_max = 1024\n"));
    assert_eq!(reload(&suite, "home-api").await.status, 200);
    suite.clear_faults().await;
    let answer = held.await.expect("no panic");
    assert_eq!(answer.header(headers::POLICY_GENERATION), FIRST.to_string());
    // The next one goes by the new one in all of it: its bound on headers, and its sections.
    let long = "x".repeat(1_024);
    let large: Vec<(&str, &str)> = CUSTOMER.into_iter().chain([("x-long", long.as_str())]).collect();
    assert_eq!(suite.get(&large).await.status, 431);
    let page = suite.get(&patient(&[])).await.json();
    assert_eq!(page["optional"]["reputation"], "omitted_disabled");
    suite.finish().await;
}

#[tokio::test]
async fn bounds_of_what_is_in_use_change_without_anybody_losing_a_place() {
    let suite = Suite::start_with(options()).await;
    let file = suite.files().policy("home-api");
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut connection = Http1::open(suite.home()).await;
        assert_eq!(connection.send(get_home(&patient(&[]))).await.status, 200);
        held.push(connection);
    }
    let connects = suite.scrape("home-api").await.sum("mercury_link_connects_total", &[]);
    let changes = "[limits]\nconnections_max = 2\nstream_window_bytes = 70000\n\
                   [admission.endpoint]\nlimit = 40\n[admission.endpoint.classes.standard]\nqueue_max = 3\n";
    replace(&file, &policy(FIRST + 2, changes));
    assert_eq!(reload(&suite, "home-api").await.status, 200);
    // Three were in, and stay in; a fourth is not let in, and nor is one until they are below the bound.
    for connection in &mut held {
        assert_eq!(connection.send(get_home(&patient(&[]))).await.status, 200);
    }
    let refused = || async {
        suite.scrape("home-api").await.sum("mercury_connections_refused_total", &[("server", "home-api")])
    };
    drop(tokio::net::TcpStream::connect(suite.home()).await.expect("the kernel accepts"));
    eventually("a connection is refused", async || refused().await == 1.0).await;
    let limit = [("gate", "endpoint")];
    assert_eq!(suite.scrape("home-api").await.sum("mercury_home_limit", &limit), 40.0);
    // The links were made anew, each before its old connection went; home-api has seven.
    eventually("every link has a new connection", async || {
        suite.scrape("home-api").await.sum("mercury_link_connects_total", &[]) >= connects + 7.0
    })
    .await;
    assert_eq!(held[0].send(get_home(&patient(&[]))).await.status, 200);
    drop(held);
    suite.finish().await;
}

#[tokio::test]
async fn a_process_that_stops_takes_no_policy_over() {
    let mut suite = Suite::start_with(options()).await;
    suite.fault(Dependency::Profile, Effect::Hang(true)).await;
    let home = suite.home();
    let held = spawn(async move { talk::http1(home, get_home(&patient(&[]))).await });
    suite.until(Dependency::Profile, "the page waits", |of| of.in_service == 1).await;
    suite.member("home-api").stop();
    let admin = suite.members["home-api"].admin;
    eventually("it quiesces", async || talk::get(admin, "/readyz").await.json()["state"] == "quiescing")
        .await;
    replace(&suite.files().policy("home-api"), &policy(FIRST + 2, ""));
    let answer = reload(&suite, "home-api").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["cause"]), (503, &Value::from("quiescing")));
    assert_eq!(shown(&suite, "home-api").await["generation"], FIRST);
    suite.clear_faults().await;
    assert_eq!(held.await.expect("no panic").header(headers::POLICY_GENERATION), FIRST.to_string());
    assert!(suite.member("home-api").report().await.is_clean());
    suite.finish_rest().await;
}

fn at(action: Action) -> Injection {
    Injection::always(Point::PolicySwap, action)
}

/// In the middle of a replacement: pages go on under the policy that is in force, and a replacement that breaks off leaves it.
#[tokio::test]
async fn between_two_policies_the_old_one_is_in_force() {
    let suite = Suite::start_with(options()).await;
    let (file, points) = (suite.files().policy("home-api"), suite.members["home-api"].points.clone());
    let generation = async || suite.get(&patient(&[])).await.header(headers::POLICY_GENERATION).to_owned();
    points.arm(at(Action::Hold));
    replace(&file, &policy(FIRST + 2, ""));
    soon(points.held(Point::PolicySwap, 1)).await;
    assert_eq!(generation().await, FIRST.to_string());
    points.disarm(Point::PolicySwap);
    until_generation(&suite, "home-api", FIRST + 2).await;
    assert_eq!(generation().await, (FIRST + 2).to_string());

    points.arm(at(Action::Fail));
    replace(&file, &policy(FIRST + 4, ""));
    let refused = reload(&suite, "home-api").await;
    assert_eq!((refused.status.as_u16(), &refused.json()["cause"]), (503, &Value::from("interrupted")));
    assert_eq!(generation().await, (FIRST + 2).to_string());
    points.disarm(Point::PolicySwap);
    assert_eq!(reload(&suite, "home-api").await.json()["changed"], true, "asked again, it is taken");
    assert_eq!(generation().await, (FIRST + 4).to_string());

    // What keeps the policy panics: the pages do not notice, and who asks for a reload is told.
    points.arm(at(Action::Panic));
    replace(&file, &policy(FIRST + 6, ""));
    assert_eq!(reload(&suite, "home-api").await.json()["cause"], "interrupted");
    assert_eq!(reload(&suite, "home-api").await.json()["cause"], "interrupted");
    assert_eq!(generation().await, (FIRST + 4).to_string());
    let home = suite.scrape("home-api").await;
    assert_eq!(home.sum("mercury_tasks_ended_total", &[("ending", "panicked")]), 1.0);
    assert_eq!(home.sum("mercury_requests_in_flight", &[("server", "home-api")]), 0.0);
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_a_replacement_waits_for_nothing() {
    let mut suite = Suite::start_with(options()).await;
    let (file, points) = (suite.files().policy("home-api"), suite.members["home-api"].points.clone());
    points.arm(at(Action::Hold));
    replace(&file, &policy(FIRST + 2, ""));
    soon(points.held(Point::PolicySwap, 1)).await;
    suite.member("home-api").stop();
    let report = suite.member("home-api").report().await;
    assert!(report.is_clean() && report.tasks.aborted == 0, "{report:?}");
    assert_eq!(points.holding(Point::PolicySwap), 0);
    suite.finish_rest().await;
}
