//! Identity: who may ask. Every header by itself, on both faces, and nothing is asked of a dependency for a stranger.

use base::{Reason, headers};
use tonic::Code;

use crate::harness::{Both, CUSTOMER, Suite, customer, talk};

/// What is wrong with a header.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Missing,
    Malformed(&'static str),
    Repeated,
}

#[tokio::test]
async fn each_header_is_named_when_it_is_missing_malformed_or_repeated() {
    let suite = Suite::start().await;
    let before = suite.calls().await;
    let long: &'static str = "a".repeat(65).leak();
    for (position, (name, value)) in CUSTOMER.into_iter().enumerate() {
        let joined: &'static str = format!("{value},{value}").leak();
        let mut faults = vec![Fault::Missing, Fault::Repeated];
        faults.extend(["", "Not Valid", "-a", "é", long, joined].map(Fault::Malformed));
        for fault in faults {
            let mut head = CUSTOMER.to_vec();
            match fault {
                Fault::Missing => drop(head.remove(position)),
                Fault::Malformed(value) => head[position].1 = value,
                Fault::Repeated => head.push((name, value)),
            }
            // A class is one of a set: what is not in the set is bad input, if it is text at all.
            let bad_class =
                matches!(fault, Fault::Malformed(text) if text.is_ascii()) && name == headers::CLASS;
            let reason = if bad_class { Reason::InvalidInput } else { Reason::Unauthenticated };
            let both = suite.both(&head).await;
            both.refused(reason);
            names_the_field(&both, name);
        }
    }
    assert_eq!(suite.calls().await, before, "no dependency was asked");
    suite.finish().await;
}

/// The field at fault is named in the message, in the JSON error and in the BadRequest detail.
fn names_the_field(both: &Both, name: &str) {
    assert_eq!(both.http.error("field"), name);
    assert!(both.http.error("message").contains(name), "{both:?}");
    assert!(both.grpc.status().message().contains(name), "{both:?}");
    let details = both.grpc.details();
    let violations = &details.bad_request().unwrap_or_else(|| panic!("{both:?}")).field_violations;
    assert_eq!(violations.iter().map(|one| one.field.as_str()).collect::<Vec<_>>(), [name]);
}

#[tokio::test]
async fn operation_id_attempt_and_origin_are_input() {
    let suite = Suite::start().await;
    let before = suite.calls().await;
    let long = "r".repeat(65);
    for (name, value) in [
        (headers::REQUEST_ID, "a b"),
        (headers::REQUEST_ID, ""),
        (headers::REQUEST_ID, "a\"b"),
        (headers::REQUEST_ID, &long),
        (headers::ATTEMPT, "0"),
        (headers::ATTEMPT, "101"),
        (headers::ATTEMPT, "-1"),
        (headers::ATTEMPT, "one"),
        (headers::ORIGIN, "nobody"),
    ] {
        let both = suite.both(&customer(&[(name, value)])).await;
        both.refused(Reason::InvalidInput);
        names_the_field(&both, name);
        // What was not accepted is not given back.
        assert!(both.http.header(headers::REQUEST_ID) != value || value.is_empty());
    }
    assert_eq!(suite.calls().await, before, "no dependency was asked");
    suite.finish().await;
}

#[tokio::test]
async fn an_unknown_subject_is_not_allowed_and_only_profile_was_asked() {
    let suite = Suite::start().await;
    for (tenant, subject) in [
        ("tenant-200", "user-00042"),
        ("tenant-007", "user-10000"),
        ("tenant-7", "user-00042"),
        ("nobody", "no-one"),
    ] {
        let mut head = customer(&[(headers::GRPC_TIMEOUT, "2S")]);
        (head[0].1, head[1].1) = (tenant, subject);
        let both = suite.both(&head).await;
        both.refused(Reason::PermissionDenied);
        for message in [both.http.error("message"), both.grpc.status().message().to_owned()] {
            assert!(!message.contains(tenant) && !message.contains(subject), "{message}");
        }
    }
    let asked = suite.all_stats().await;
    let asked: Vec<_> =
        asked.iter().map(|of| (of.dependency.as_str(), of.calls)).filter(|of| of.1 > 0).collect();
    assert_eq!(asked, [("profile", 8)]);
    suite.finish().await;
}

#[tokio::test]
async fn every_service_behind_ingress_asks_for_identity_too() {
    let suite = Suite::start().await;
    let before = suite.calls().await;
    for (member, path) in [
        ("profile", "/mercury.profile.v1.ProfileService/GetProfile"),
        ("entitlement", "/mercury.entitlement.v1.EntitlementService/GetEntitlement"),
        ("inventory", "/mercury.inventory.v1.InventoryService/GetAvailability"),
        ("pricing", "/mercury.pricing.v1.PricingService/GetPrices"),
        ("experiment", "/mercury.experiment.v1.ExperimentService/AllocateArms"),
        ("recommendation", "/mercury.recommendation.v1.RecommendationService/GetRecommendations"),
        ("reputation", "/mercury.reputation.v1.ReputationService/GetReputation"),
    ] {
        let told = talk::call(suite.at(member), path, &[], &[]).await;
        assert_eq!(told.code(), Code::Unauthenticated, "{member}: {told:?}");
        // With identity, an empty message is either a question or bad input, and never unknown.
        let told = talk::call(suite.at(member), path, &CUSTOMER, &[]).await;
        assert!(matches!(told.code(), Code::Ok | Code::InvalidArgument), "{member}: {told:?}");
    }
    let after = suite.calls().await;
    assert!((1..=7).contains(&(after - before)), "only calls with an identity went on: {}", after - before);
    suite.finish().await;
}
