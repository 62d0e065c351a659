//! Tests of the scenario reader: the shipped file, every fault at once, overrides, faults and scaling.

use proptest::prelude::*;

use super::*;
use crate::fault::{FaultEffect, FaultRule};

fn faults(text: &str) -> Vec<String> {
    let faults = Scenario::parse("s.toml", text).expect_err("faulty");
    faults.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn the_shipped_scenario_holds_the_declared_figures() {
    let scenario = Scenario::shipped();
    let names: Vec<&str> = scenario.phases().iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["peak", "slowdown", "recovery"]);
    assert!((scenario.domain_requests_per_s - 18_400.0 / 3.0).abs() < 1e-9);
    let declared = [1.5, 2.0, 1.2, 1.8, 1.0, 4.0, 2.5].map(|percent: f64| Share::from_ratio(percent / 100.0));
    let (peak, slowdown, recovery) = (&scenario.phases()[0], &scenario.phases()[1], &scenario.phases()[2]);
    for (name, share) in Dependency::ALL.into_iter().zip(declared) {
        assert_eq!(peak.dependency(name).latency.slow_share(), share, "{name}");
        assert_eq!(peak.dependency(name), recovery.dependency(name), "{name}");
        assert_eq!(
            peak.dependency(name).capacity,
            slowdown.dependency(name).capacity,
            "{name}: capacity is fixed"
        );
        let shifts = matches!(name, Dependency::Profile | Dependency::Recommendation);
        assert_eq!(peak.dependency(name) != slowdown.dependency(name), shifts, "{name}");
    }
}

#[test]
fn every_fault_is_reported_at_once() {
    let text = SHIPPED
        .1
        .replace("version = 2\n", "version = 0\n")
        .replace("enterprise = 0.05 }", "enterprise = 0.06 }")
        .replace("servers = 80\n", "server = 80\n")
        .replace("body_median_us = 54500", "body_median_us = 54500.5")
        .replace("name = \"recovery\"", "name = \"peak\"")
        + "[[faults]]\nphase = \"night\"\ndependency = \"x\"\nclass = \"gold\"\nshare = 0\neffect = \"delay\"\n";
    let found = faults(&text);
    for expected in [
        "version: expected an integer from 1 to 4294967295, found 0",
        "domain.class_shares: the shares must add up to 1",
        "dependencies.entitlement.servers: missing",
        "dependencies.entitlement.server: unknown key",
        "phases[1].dependencies.profile.body_median_us: expected an integer",
        "phases: two phases have the same name",
        "faults[0].phase: expected one of peak, slowdown, peak, found \"night\"",
        "faults[0].dependency: expected the name of a dependency, found \"x\"",
        "faults[0].class: expected standard, premium or enterprise, found \"gold\"",
        "faults[0].share: expected a number",
        "faults[0].delay_ms: belongs to the effects delay and slow_body",
    ] {
        assert!(found.iter().any(|fault| fault.contains(expected)), "{expected}: {found:#?}");
    }
    assert_eq!(found.len(), 11, "{found:#?}");
}

#[test]
fn faults_are_read_in_order() {
    let text = SHIPPED.1.to_owned()
        + "[[faults]]\nphase = \"slowdown\"\nafter_ms = 5\nduration_ms = 7\ndependency = \"pricing\"\nclass = \"premium\"\n\
           share = 0.25\neffect = \"status\"\nstatus_code = 14\n\
           [[faults]]\nphase = \"peak\"\ndependency = \"profile\"\nshare = 1\neffect = \"slow_body\"\ndelay_ms = 9\n";
    let scenario = Scenario::parse("s.toml", &text).expect("valid");
    let first = FaultRule {
        dependency: Dependency::Pricing,
        class: Some(WorkloadClass::Premium),
        share: Share::from_ratio(0.25),
        duration: Some(Nanos::from_millis(7)),
        effect: FaultEffect::Status(14),
    };
    let second = FaultRule {
        dependency: Dependency::Profile,
        class: None,
        share: Share::ALL,
        duration: None,
        effect: FaultEffect::SlowBody(Nanos::from_millis(9)),
    };
    assert_eq!(
        scenario.faults,
        [
            ScheduledFault { phase: 1, after: Nanos::from_millis(5), rule: first },
            ScheduledFault { phase: 0, after: Nanos::ZERO, rule: second }
        ]
    );
}

#[test]
fn capacity_may_be_overridden_and_offered_concurrency_declared() {
    let text = SHIPPED
        .1
        .replace("[phases.dependencies.profile]", "[phases.dependencies.profile]\nservers = 7\nqueue_max = 0")
        .replace("servers = 80\n", "servers = 80\noffered_concurrency = 44.5\n");
    let scenario = Scenario::parse("s.toml", &text).expect("valid");
    let capacity = scenario.phases()[1].dependency(Dependency::Profile).capacity;
    assert_eq!(capacity, Capacity { servers: 7, queue_max: 0 });
    assert_eq!(scenario.offered(Dependency::Entitlement), 44.5);
}

#[test]
fn scaling_staffs_by_the_square_root() {
    let scenario = Scenario::shipped();
    let quarter = scenario.scaled(Scale::parse("1/4").expect("valid"));
    for name in Dependency::ALL {
        let whole = scenario.phases()[0].dependency(name).capacity;
        let part = quarter.phases()[0].dependency(name).capacity;
        let offered = scenario.offered(name);
        let servers = offered / 4.0 + (f64::from(whole.servers) - offered) / 2.0;
        assert_eq!(f64::from(part.servers), servers.ceil(), "{name}");
        assert_eq!(part.queue_max, whole.queue_max.div_ceil(2), "{name}");
        assert!((quarter.offered(name) - offered / 4.0).abs() < 1e-9);
    }
    assert_eq!(scenario.scaled(Scale::ONE), scenario);
    let tiny = scenario.scaled(Scale::parse("0.000001").expect("valid"));
    assert!(Dependency::ALL.iter().all(|name| tiny.phases()[0].dependency(*name).capacity.servers >= 1));
}

#[test]
fn slow_motion_keeps_concurrency_and_multiplies_times() {
    let scenario = Scenario::shipped();
    let slow = scenario.dilated(5);
    let call = crate::draw::Draws::new(1, 1).call(Dependency::Pricing, "FetchPrices", 1, "op", 1);
    for (before, after) in scenario.phases().iter().zip(slow.phases()) {
        for name in Dependency::ALL {
            let (before, after) = (before.dependency(name), after.dependency(name));
            assert_eq!(after.capacity, before.capacity);
            for class in WorkloadClass::ALL {
                let five = before.latency.draw(call, class).times(5);
                assert!(after.latency.draw(call, class).get().abs_diff(five.get()) <= 5, "rounding apart");
            }
            assert_eq!(slow.offered(name), scenario.offered(name));
        }
    }
    assert!((slow.domain_requests_per_s * 5.0 - scenario.domain_requests_per_s).abs() < 1e-6);
    assert_eq!(scenario.dilated(1), scenario);
}

proptest! {
    #[test]
    fn a_damaged_scenario_never_panics(at in any::<prop::sample::Index>(), piece in "[\\[\\]=\"#\n{},.x0-9-]{1,3}") {
        let mut text = SHIPPED.1.to_owned();
        let at = at.index(text.len());
        text.replace_range(at..at + 1, &piece);
        let _ = Scenario::parse("s.toml", &text);
    }
}

#[test]
fn capacity_changes_where_it_is_asked_for_and_nobody_is_left_without_a_server() {
    let shipped = Scenario::shipped();
    let more = shipped.with_capacity_percent(|name| if name == Dependency::Profile { 150 } else { 100 });
    let none = shipped.with_capacity_percent(|_| 0);
    for (at, phase) in shipped.phases().iter().enumerate() {
        for name in Dependency::ALL {
            let was = phase.dependency(name).capacity;
            let is = more.phases()[at].dependency(name).capacity;
            let factor = if name == Dependency::Profile { 3 } else { 2 };
            assert_eq!((is.servers, is.queue_max), (was.servers * factor / 2, was.queue_max * factor / 2));
            let left = none.phases()[at].dependency(name);
            assert_eq!(left.capacity, Capacity { servers: 1, queue_max: 0 });
            assert_eq!(left.latency, phase.dependency(name).latency);
        }
    }
}
