//! Budget: what remains of the deadline, hop by hop, and what is not started because too little remains.

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, Reason, headers};

use crate::harness::{Both, Options, SLACK, Suite, customer, now, patient};

/// What ingress granted to a request, as the first hop of the trail that reached the profile store tells it.
async fn granted(suite: &Suite, id: &str) -> u64 {
    let entries = suite.journal(id).await;
    let profile = entries.iter().find(|entry| entry.dependency == "profile");
    profile.unwrap_or_else(|| panic!("{id}: {entries:?}")).budget_trail_us[0]
}

#[tokio::test]
async fn the_budget_shrinks_at_every_hop() {
    let suite = Suite::start().await;
    for (face, id) in [("http", "trail-http"), ("grpc", "trail-grpc")] {
        let head =
            customer(&[(headers::GRPC_TIMEOUT, "1S"), (headers::REQUEST_ID, id), (headers::ATTEMPT, "3")]);
        let (http, grpc) = match face {
            "http" => (Some(suite.get(&head).await), None),
            _ => (None, Some(suite.call(&head).await)),
        };
        assert!(http.is_none_or(|answer| answer.status == 200));
        assert!(grpc.is_none_or(|told| told.code() == tonic::Code::Ok));
        let entries = suite.journal(id).await;
        let mut asked: Vec<_> = entries.iter().map(|entry| entry.dependency.as_str()).collect();
        asked.sort_unstable();
        let mut expected = Dependency::ALL.map(Dependency::as_str);
        expected.sort_unstable();
        assert_eq!(asked, expected, "{face}: each dependency is asked once a page");
        for entry in &entries {
            let [ingress, service] = entry.budget_trail_us[..] else { panic!("two hops before: {entry:?}") };
            let here = entry.budget_us.expect("a deadline arrived");
            assert_eq!(ingress, 1_000_000, "{face}: {entry:?}");
            // Each hop keeps its reserve: ingress 20 ms, a service 2 ms.
            assert!(service <= ingress - 20_000, "{face}: {entry:?}");
            assert!(here <= service - 2_000, "{face}: {entry:?}");
            assert!(here > 500_000, "nothing here takes half a second: {entry:?}");
            assert_eq!(
                (entry.outcome.as_str(), entry.fault.as_str(), entry.late_us),
                ("ok", "", 0),
                "{entry:?}"
            );
            assert_eq!((entry.attempt, entry.workload_class.as_str()), (3, "premium"), "{entry:?}");
        }
        // What a serial hop used is gone for the next one.
        let service =
            |name| entries.iter().find(|entry| entry.dependency == name).expect("asked").budget_trail_us[1];
        assert!(service("profile") > service("entitlement"), "{entries:?}");
        for branch in ["inventory", "pricing", "experiment", "recommendation", "reputation"] {
            assert!(service("entitlement") > service(branch), "{branch}: {entries:?}");
        }
    }
    suite.finish().await;
}

#[tokio::test]
async fn a_timeout_is_clamped_to_the_maximum_and_defaults_to_the_objective() {
    // The shortest timeout below still leaves enough for a profile read.
    let suite = Suite::start_with(Options::quick().policy("branches.profile", "worst_useful_ms", "60")).await;
    for (number, (timeout, expected)) in [
        (None, 300_000),
        (Some("250m"), 250_000),
        (Some("00000299m"), 299_000),
        (Some("1999999u"), 1_999_999),
        (Some("2S"), 2_000_000),
        (Some("3S"), 2_000_000),
        (Some("99999999H"), 2_000_000),
        (Some("99999999n"), 99_999),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("clamp-{number}");
        let mut head = customer(&[(headers::REQUEST_ID, &id)]);
        head.extend(timeout.map(|timeout| (headers::GRPC_TIMEOUT, timeout)));
        let Both { http, grpc } = suite.both(&head).await;
        assert!(http.status == 200 || expected < 300_000, "{timeout:?}: {http:?}");
        assert!(grpc.code() == tonic::Code::Ok || expected < 300_000, "{timeout:?}: {grpc:?}");
        assert_eq!(granted(&suite, &id).await, expected, "{timeout:?}");
    }
    suite.finish().await;
}

#[tokio::test]
async fn a_mandatory_branch_that_cannot_end_in_time_is_not_started() {
    // Entitlement is declared to need 700 ms, so that the machine's own delays are far from the bounds below.
    let options = Options::quick()
        .policy("", "objective_ms", "1000")
        .overlaid("[branches.entitlement]\nworst_useful_ms = 700\nindependent_timeout_ms = 700\n");
    let suite = Suite::start_with(options).await;
    // Profile is declared to need 90 ms beside the reserve of 20.
    for timeout in ["1m", "20m", "109m"] {
        let began = now();
        let both = suite.both(&customer(&[(headers::GRPC_TIMEOUT, timeout)])).await;
        both.refused(Reason::DeadlineExceeded);
        assert!(now() - began < SLACK, "{timeout}: it is known at once");
    }
    assert_eq!(suite.calls().await, 0, "no dependency was asked");

    suite.fault(Dependency::Profile, Effect::DelayMs(1_000)).await;
    let began = now();
    let both = suite.both(&customer(&[(headers::GRPC_TIMEOUT, "1500m")])).await;
    both.refused(Reason::DeadlineExceeded);
    assert_eq!(
        (both.http.error("phase").as_str(), both.grpc.info("phase").as_str()),
        ("entitlement", "entitlement")
    );
    let took = now() - began;
    assert!(
        took >= Nanos::from_millis(1_000) && took < Nanos::from_millis(1_500),
        "after profile, before the end: {took}"
    );
    let stats = suite.all_stats().await;
    let asked: Vec<_> =
        stats.iter().filter(|of| of.calls > 0).map(|of| (of.dependency.as_str(), of.calls)).collect();
    assert_eq!(asked, [("profile", 2)]);
    suite.finish().await;
}

#[tokio::test]
async fn an_optional_branch_below_its_floor_is_left_out_and_the_core_is_whole() {
    let options = Options::quick()
        .overlaid("objective_ms = 1000\noptional_floor_ms = 700\n[degradation]\npressure_floor_ms = 700\n");
    let suite = Suite::start_with(options).await;
    suite.fault(Dependency::Profile, Effect::DelayMs(900)).await;
    let head = customer(&[(headers::GRPC_TIMEOUT, "1500m"), (headers::REQUEST_ID, "floor")]);
    let page = suite.both(&head).await.served();
    for section in ["recommendations", "reputation"] {
        assert_eq!(page["optional"][section], "omitted_deadline_budget", "{page}");
        assert!(page.get(section).is_none(), "{page}");
    }
    for dependency in Dependency::ALL {
        let expected = if dependency.is_optional() { 0 } else { 2 };
        assert_eq!(suite.stats(dependency).await.calls, expected, "{dependency}");
    }
    let home = suite.scrape("home-api").await;
    for section in ["recommendations", "reputation"] {
        let labels = [("section", section), ("marker", "omitted_deadline_budget"), ("class", "premium")];
        assert_eq!(home.sum("mercury_home_optional_sections_total", &labels), 2.0);
    }
    // With enough left, both are there.
    suite.clear_faults().await;
    let page = suite.get(&patient(&[])).await.json();
    assert_ne!(page["optional"]["recommendations"], "omitted_deadline_budget", "{page}");
    suite.finish().await;
}
