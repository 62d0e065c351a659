//! Degradation: whatever becomes of an optional dependency, the page is served, its core is whole, and the marker says why
//! a section is missing.

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, headers};
use serde_json::Value;
use tonic::Code;

use crate::harness::{CUSTOMER, Options, SLACK, Suite, customer, now, patient, spawn, talk};

const OPTIONAL: [(Dependency, &str); 2] =
    [(Dependency::Recommendation, "recommendations"), (Dependency::Reputation, "reputation")];

/// Both optional sections are missing for the same reason, on both faces, and everything else is there.
fn omitted(page: &Value, marker: &str) {
    for (_, section) in OPTIONAL {
        assert_eq!(page["optional"][section], marker, "{page}");
        assert!(page.get(section).is_none(), "{page}");
    }
    assert_eq!(page["core_complete"], true);
    for section in ["profile", "entitlement", "inventory", "pricing", "experiments"] {
        assert!(page.get(section).is_some(), "{section}: {page}");
    }
}

#[tokio::test]
async fn every_fault_of_an_optional_dependency_has_its_marker() {
    let suite = Suite::start().await;
    let faults = [
        (Effect::Refuse(true), "omitted_dependency_error", "refused"),
        (Effect::Reset(true), "omitted_dependency_error", "fault"),
        (Effect::Hang(true), "omitted_timeout", ""),
        (Effect::DelayMs(2_000), "omitted_timeout", ""),
        (Effect::SlowBodyMs(2_000), "omitted_timeout", ""),
    ];
    for (number, (effect, marker, outcome)) in faults.into_iter().enumerate() {
        let id = format!("fault-{number}");
        for (dependency, _) in OPTIONAL {
            suite.fault(dependency, effect).await;
        }
        let began = now();
        // Within the objective, which is the default, and with its reserve left for writing the page.
        let both = suite.both(&customer(&[(headers::REQUEST_ID, &id)])).await;
        let took = now() - began;
        omitted(&both.served(), marker);
        assert!(took < Nanos::from_millis(300) + SLACK, "{effect:?}: {took}");
        suite.until_idle().await;
        for entry in suite.journal(&id).await {
            let optional = Dependency::parse(&entry.dependency).expect("a name").is_optional();
            assert_eq!(entry.fault.is_empty(), !optional, "{entry:?}");
            if !optional {
                assert_eq!(entry.outcome, "ok", "{entry:?}");
            } else if !outcome.is_empty() {
                assert_eq!(entry.outcome, outcome, "{effect:?}: {entry:?}");
            } else {
                assert!(["deadline", "cancelled"].contains(&entry.outcome.as_str()), "{effect:?}: {entry:?}");
            }
        }
        suite.clear_faults().await;
    }
    suite.finish().await;
}

#[tokio::test]
async fn no_status_of_an_optional_dependency_reaches_the_caller() {
    let suite = Suite::start().await;
    for code in 1..=16 {
        for (dependency, _) in OPTIONAL {
            suite.fault(dependency, Effect::StatusCode(code)).await;
        }
        let page = suite.both(&patient(&[])).await.served();
        let deadline = code == Code::DeadlineExceeded as u32;
        omitted(&page, if deadline { "omitted_timeout" } else { "omitted_dependency_error" });
        suite.clear_faults().await;
    }
    let home = suite.scrape("home-api").await;
    for (_, section) in OPTIONAL {
        let count = |marker| {
            let labels = [("section", section), ("marker", marker), ("class", "premium")];
            home.sum("mercury_home_optional_sections_total", &labels)
        };
        assert_eq!((count("omitted_timeout"), count("omitted_dependency_error")), (2.0, 30.0), "{section}");
    }
    suite.finish().await;
}

#[tokio::test]
async fn one_optional_section_does_not_take_the_other_with_it() {
    let suite = Suite::start().await;
    let whole = suite.get(&patient(&[])).await.json();
    for ((broken, missing), (_, there)) in [(OPTIONAL[0], OPTIONAL[1]), (OPTIONAL[1], OPTIONAL[0])] {
        suite.fault(broken, Effect::Refuse(true)).await;
        let page = suite.both(&patient(&[])).await.served();
        assert_eq!(page["optional"][missing], "omitted_dependency_error", "{page}");
        assert_eq!(page["optional"][there], whole["optional"][there], "{page}");
        assert_eq!(page.get(there).is_some(), whole.get(there).is_some(), "{page}");
        suite.clear_faults().await;
    }
    suite.finish().await;
}

#[tokio::test]
async fn an_overloaded_optional_dependency_is_an_error_of_its_own_and_the_page_is_served() {
    let suite = Suite::start().await;
    for (dependency, section) in OPTIONAL {
        suite.capacity(dependency, 1, 0).await;
        suite.fault(dependency, Effect::DelayMs(1_000)).await;
        let at = suite.home();
        let holder = spawn(async move { talk::call(at, talk::GET_HOME, &patient(&[]), &[]).await });
        suite.until(dependency, "its only server is taken", |of| of.in_service == 1).await;
        let id = format!("over-{section}");
        let page = suite.both(&patient(&[(headers::REQUEST_ID, &id)])).await.served();
        assert_eq!(page["optional"][section], "omitted_dependency_error", "{page}");
        let entries = suite.journal(&id).await;
        let refused: Vec<_> =
            entries.iter().filter(|entry| entry.dependency == dependency.as_str()).collect();
        assert!(refused.len() == 2 && refused.iter().all(|entry| entry.outcome == "overload"), "{entries:?}");
        assert_eq!(holder.await.expect("no panic").code(), Code::Ok);
        assert_eq!(suite.stats(dependency).await.overloaded, 2, "{dependency}");
        suite.clear_faults().await;
        suite.capacity(dependency, 64, 64).await;
    }
    suite.finish().await;
}

#[tokio::test]
async fn a_full_link_to_an_optional_service_omits_its_section_as_overload() {
    // One call at a time on every connection: home's own, and that of every link.
    let suite = Suite::start_with(Options::quick().policy("limits", "streams_max", "1")).await;
    suite.fault(Dependency::Recommendation, Effect::DelayMs(1_000)).await;
    let at = suite.home();
    let holder = spawn(async move { talk::call(at, talk::GET_HOME, &patient(&[]), &[]).await });
    suite.until(Dependency::Recommendation, "the one call is under way", |of| of.in_service == 1).await;
    // The other branches of the first page are long done.
    suite.until(Dependency::Reputation, "done", |of| of.ok == 1).await;
    suite.until(Dependency::Experiment, "done", |of| of.ok == 1).await;
    crate::harness::eventually("only one link is in use", async || {
        suite.scrape("home-api").await.sum("mercury_link_in_flight", &[]) == 1.0
    })
    .await;
    let page = suite.get(&patient(&[])).await;
    assert_eq!(page.status, 200, "{page:?}");
    let page = page.json();
    assert_eq!(page["optional"]["recommendations"], "omitted_overload", "{page}");
    assert_ne!(page["optional"]["reputation"], "omitted_overload", "{page}");
    assert_eq!(holder.await.expect("no panic").code(), Code::Ok);
    assert_eq!(suite.stats(Dependency::Recommendation).await.calls, 1, "a refused call was not sent");
    let home = suite.scrape("home-api").await;
    let saturated = [("link", "link:recommendation"), ("cause", "saturated")];
    assert_eq!(home.sum("mercury_link_failures_total", &saturated), 1.0);
    suite.finish().await;
}

#[tokio::test]
async fn a_section_that_policy_switched_off_is_not_asked_for() {
    let options = Options::quick().policy("branches.recommendation", "enabled", "false");
    let suite = Suite::start_with(options).await;
    let page = suite.both(&patient(&[])).await.served();
    assert_eq!(page["optional"]["recommendations"], "omitted_disabled", "{page}");
    assert!(page.get("recommendations").is_none(), "{page}");
    assert_ne!(page["optional"]["reputation"], "omitted_disabled", "{page}");
    assert_eq!(suite.stats(Dependency::Recommendation).await.calls, 0);
    let answer = suite.get(&CUSTOMER).await;
    let timing = answer.header("server-timing");
    assert!(!timing.contains("recommendation") && timing.contains("reputation"), "{timing}");
    suite.finish().await;
}
