//! Statuses: whatever a mandatory dependency does, the caller hears it in the words of the one table, and never in those of
//! the dependency.

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, Reason, headers};
use tonic::Code;

use crate::harness::{SLACK, Suite, customer, now, patient, spawn, talk};

const MANDATORY: [Dependency; 5] = [
    Dependency::Profile,
    Dependency::Entitlement,
    Dependency::Inventory,
    Dependency::Pricing,
    Dependency::Experiment,
];

/// What the caller is told when a dependency behind a service ends in `code`: that the dependency is not available, or that
/// the suite asked it wrongly.
fn expected(dependency: Dependency, code: Code) -> Reason {
    match code {
        Code::DeadlineExceeded => Reason::DeadlineExceeded,
        Code::Cancelled
        | Code::Unknown
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Unavailable
        | Code::DataLoss => Reason::DependencyUnavailable,
        // The one verdict that is the caller's to hear: the profile store does not know the subject.
        Code::NotFound if dependency == Dependency::Profile => Reason::PermissionDenied,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unauthenticated => Reason::DependencyBug,
    }
}

#[tokio::test]
async fn no_status_of_a_mandatory_dependency_leaks() {
    let suite = Suite::start().await;
    for dependency in MANDATORY {
        for code in 1..=16_u32 {
            suite.fault(dependency, Effect::StatusCode(code)).await;
            let both = suite.both(&patient(&[])).await;
            let reason = expected(dependency, Code::from_i32(i32::try_from(code).expect("small")));
            both.refused(reason);
            suite.clear_faults().await;
        }
        assert_eq!(suite.stats(dependency).await.faulted, 32, "{dependency}");
    }
    // Nothing sticks: the next page is whole.
    suite.both(&patient(&[])).await.served();
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn every_fault_of_a_mandatory_dependency_has_its_status() {
    let suite = Suite::start().await;
    let faults = [
        (Effect::Refuse(true), Reason::DependencyUnavailable),
        (Effect::Reset(true), Reason::DependencyUnavailable),
        (Effect::Hang(true), Reason::DeadlineExceeded),
        (Effect::DelayMs(2_000), Reason::DeadlineExceeded),
        (Effect::SlowBodyMs(2_000), Reason::DeadlineExceeded),
    ];
    for dependency in MANDATORY {
        for (effect, reason) in faults {
            suite.fault(dependency, effect).await;
            let began = now();
            let both = suite.both(&customer(&[(headers::GRPC_TIMEOUT, "200m")])).await;
            let took = now() - began;
            match reason {
                Reason::DeadlineExceeded => both.timed_out(dependency),
                _ => both.refused(reason),
            }
            assert!(took < Nanos::from_millis(200) + SLACK, "{dependency} {effect:?}: {took}");
            suite.clear_faults().await;
        }
    }
    suite.until_idle().await;
    suite.both(&patient(&[])).await.served();
    suite.finish().await;
}

#[tokio::test]
async fn an_overloaded_mandatory_dependency_makes_the_page_unavailable() {
    let suite = Suite::start().await;
    for dependency in MANDATORY {
        suite.capacity(dependency, 1, 0).await;
        suite.fault(dependency, Effect::DelayMs(700)).await;
        let at = suite.home();
        let holder = spawn(async move { talk::call(at, talk::GET_HOME, &patient(&[]), &[]).await });
        suite.until(dependency, "its only server is taken", |of| of.in_service == 1).await;
        let began = now();
        let both = suite.both(&patient(&[])).await;
        both.refused(Reason::DependencyUnavailable);
        assert!(now() - began < Nanos::from_millis(300), "{dependency}: refused, not waited for");
        assert_eq!(holder.await.expect("no panic").code(), Code::Ok, "{dependency}");
        assert_eq!(suite.stats(dependency).await.overloaded, 2, "{dependency}");
        suite.clear_faults().await;
        suite.capacity(dependency, 64, 64).await;
    }
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn a_fault_of_one_class_leaves_the_others_alone() {
    let suite = Suite::start().await;
    let rule = ::wire::emulator::v1::FaultRule {
        dependency: Dependency::Pricing.to_string(),
        workload_class: "enterprise".to_owned(),
        share_ppm: 1_000_000,
        effect: Some(Effect::StatusCode(14)),
        ..Default::default()
    };
    let message = ::wire::emulator::v1::InjectFaultRequest { rule: Some(rule) };
    suite.control().inject_fault(crate::harness::bounded(message)).await.expect("a fault");
    suite.both(&patient(&[])).await.served();
    let mut enterprise = patient(&[]);
    enterprise[2].1 = "enterprise";
    suite.both(&enterprise).await.refused(Reason::DependencyUnavailable);
    suite.finish().await;
}
