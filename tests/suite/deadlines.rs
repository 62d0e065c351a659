//! Deadlines: one strict grammar on every port, one instant for the whole exchange, and its name wherever it strikes.

use ::wire::{
    emulator::v1::fault_rule::Effect,
    home::v2::{GetHomeRequest, home_service_client::HomeServiceClient},
};
use base::{Dependency, Nanos, Reason, headers};
use tonic::Code;

use crate::harness::{CUSTOMER, GET_HOME, SLACK, Suite, customer, identified, now, talk, within};

/// The objective, and with it the deadline of a request that names none.
const OBJECTIVE: Nanos = Nanos::from_millis(300);

/// A path on every port that takes calls, the emulator's included.
const PORTS: [(&str, &str); 9] = [
    ("home-api", GET_HOME),
    ("profile", "/mercury.profile.v1.ProfileService/GetProfile"),
    ("entitlement", "/mercury.entitlement.v1.EntitlementService/GetEntitlement"),
    ("inventory", "/mercury.inventory.v1.InventoryService/GetAvailability"),
    ("pricing", "/mercury.pricing.v1.PricingService/GetPrices"),
    ("experiment", "/mercury.experiment.v1.ExperimentService/AllocateArms"),
    ("recommendation", "/mercury.recommendation.v1.RecommendationService/GetRecommendations"),
    ("reputation", "/mercury.reputation.v1.ReputationService/GetReputation"),
    ("emulator", "/mercury.emulator.v1.ReviewScoreService/FetchReviews"),
];

#[tokio::test]
async fn a_malformed_timeout_is_refused_on_both_faces_and_never_means_unlimited() {
    let suite = Suite::start().await;
    // If any of them were let through, it would hang here, and not end before the test's own patience does.
    suite.fault(Dependency::Profile, Effect::Hang(true)).await;
    let before = suite.calls().await;
    for value in [
        "",
        "S",
        "5",
        "1.5S",
        "123456789n",
        "-5S",
        "+5S",
        "5s",
        "5h",
        "5 S",
        "5Sx",
        "5SS",
        "0x5S",
        "５S",
        "٥S",
        "5S,5S",
        "5S, 6S",
        "inf",
        "1e3m",
        "5x",
    ] {
        let both = suite.both(&customer(&[(headers::GRPC_TIMEOUT, value)])).await;
        both.refused(Reason::MalformedTimeout);
        assert_eq!((both.grpc.code(), both.http.status.as_u16()), (Code::Internal, 400), "{value:?}");
        assert_eq!(both.http.error("field"), headers::GRPC_TIMEOUT, "{value:?}");
    }
    for repeated in [["1S", "1S"], ["1S", "2S"], ["1S", "x"]] {
        let twice = repeated.map(|value| (headers::GRPC_TIMEOUT, value));
        suite.both(&customer(&twice)).await.refused(Reason::MalformedTimeout);
    }
    for (member, path) in PORTS {
        let told =
            talk::call(suite.at(member), path, &customer(&[(headers::GRPC_TIMEOUT, "+5S")]), &[]).await;
        assert_eq!(told.code(), Code::Internal, "{member}: {told:?}");
        assert_eq!(told.header("x-mercury-reason"), Reason::MalformedTimeout.as_str(), "{member}");
    }
    assert_eq!(suite.calls().await, before, "no dependency was asked");
    suite.finish().await;
}

#[tokio::test]
async fn no_time_is_no_call_on_any_port() {
    let suite = Suite::start().await;
    let before = suite.calls().await;
    for value in ["0m", "0H", "00000000n", "1n", "999n"] {
        let both = suite.both(&customer(&[(headers::GRPC_TIMEOUT, value)])).await;
        both.refused(Reason::DeadlineExceeded);
        assert_eq!((both.grpc.code(), both.http.status.as_u16()), (Code::DeadlineExceeded, 504), "{value}");
    }
    for (member, path) in PORTS {
        let told = talk::call(suite.at(member), path, &customer(&[(headers::GRPC_TIMEOUT, "0S")]), &[]).await;
        assert_eq!(
            (told.code(), told.info("phase").as_str()),
            (Code::DeadlineExceeded, "ingress"),
            "{member}"
        );
    }
    // Less than a hop's own reserve of 2 ms: it may begin, and must not call on.
    for (member, path) in [PORTS[1], PORTS[6], PORTS[7]] {
        let told =
            talk::call(suite.at(member), path, &customer(&[(headers::GRPC_TIMEOUT, "1900u")]), &[]).await;
        assert_eq!(told.code(), Code::DeadlineExceeded, "{member}: {told:?}");
    }
    assert_eq!(suite.calls().await, before, "no dependency was asked");
    suite.finish().await;
}

#[tokio::test]
async fn a_handler_that_overruns_ends_in_deadline_exceeded_for_every_kind_of_client() {
    let suite = Suite::start().await;
    suite.fault(Dependency::Profile, Effect::DelayMs(1_000)).await;
    let began = now();
    let both = suite.both(&customer(&[(headers::GRPC_TIMEOUT, "150m")])).await;
    both.refused(Reason::DeadlineExceeded);
    // A generated client over our own link, which knows the deadline as well and must call it by the same name.
    let mut client = HomeServiceClient::new(suite.link("home-api"));
    let mut request = identified(GetHomeRequest {}, &[]);
    *request.extensions_mut() = within(Nanos::from_millis(150), ()).extensions().clone();
    let status = client.get_home(request).await.expect_err("too slow");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert!(now() - began < Nanos::from_millis(300) + SLACK, "{}", now() - began);

    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    let outcome =
        |name| home.sum("mercury_requests_finished_total", &[("server", "home-api"), ("outcome", name)]);
    // The client's own clock ends its call a moment before or after the server's does, and then it says CANCEL.
    assert!(outcome("deadline_exceeded") >= 2.0, "{}", outcome("deadline_exceeded"));
    assert_eq!(outcome("deadline_exceeded") + outcome("cancelled"), 3.0);
    assert_eq!(outcome("ok"), 0.0);
    suite.finish().await;
}

#[tokio::test]
async fn what_hangs_is_named_and_bounded_by_the_objective() {
    let suite = Suite::start().await;
    for (number, (dependency, phase)) in [
        (Dependency::Profile, "profile"),
        (Dependency::Entitlement, "entitlement"),
        (Dependency::Inventory, "fanout:inventory"),
        (Dependency::Pricing, "fanout:pricing"),
        (Dependency::Experiment, "fanout:experiment"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("hang-{number}");
        suite.fault(dependency, Effect::Hang(true)).await;
        let began = now();
        // No timeout of the caller's: the default is the objective.
        let both = suite.both(&customer(&[(headers::REQUEST_ID, &id)])).await;
        let took = now() - began;
        both.timed_out(dependency);
        assert_eq!((both.http.error("phase").as_str(), both.grpc.info("phase").as_str()), (phase, phase));
        assert!(
            took >= OBJECTIVE - Nanos::from_millis(30) && took < OBJECTIVE + SLACK,
            "{dependency}: {took}"
        );

        // The work below ended with the caller's time, and says so.
        suite.until_idle().await;
        let entries = suite.journal(&id).await;
        let hung: Vec<_> = entries.iter().filter(|entry| entry.dependency == dependency.as_str()).collect();
        assert_eq!(hung.len(), 2, "{entries:?}");
        for entry in hung {
            assert!(["deadline", "cancelled"].contains(&entry.outcome.as_str()), "{entry:?}");
            assert_eq!(entry.fault, "hang", "{entry:?}");
            assert!(entry.late_us < 100_000, "{entry:?}");
        }
        let home = suite.scrape("home-api").await;
        let expired =
            home.sum("mercury_deadline_exceeded_total", &[("server", "home-api"), ("phase", phase)]);
        assert_eq!(expired, 2.0, "the phase is in the metric: {phase}");
        suite.clear_faults().await;
    }
    let home = suite.scrape("home-api").await;
    let outcome =
        |name| home.sum("mercury_requests_finished_total", &[("server", "home-api"), ("outcome", name)]);
    assert_eq!(outcome("deadline_exceeded") + outcome("effect_ambiguous_deadline"), 10.0);
    assert_eq!(outcome("cancelled"), 0.0);
    suite.finish().await;
}

#[tokio::test]
async fn the_deadline_covers_a_body_that_does_not_come() {
    let suite = Suite::start().await;
    for dependency in [Dependency::Profile, Dependency::Pricing] {
        suite.fault(dependency, Effect::SlowBodyMs(5_000)).await;
        let began = now();
        suite.both(&CUSTOMER).await.refused(Reason::DeadlineExceeded);
        assert!(now() - began < OBJECTIVE + SLACK, "{dependency}: {}", now() - began);
        suite.until_idle().await;
        suite.clear_faults().await;
    }
    suite.finish().await;
}
