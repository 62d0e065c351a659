//! Tests of what is derived from a policy: scaled and dilated bounds, an overlay, the audit.

use base::{Identity, Region, Subject, Tenant, WorkloadClass};
use control::admission::Waiting;
use proptest::prelude::*;

use super::*;

fn scale(text: &str) -> Scale {
    Scale::parse(text).expect("a scale")
}

fn legacy() -> Policy {
    Policy::parse(LEGACY.0, LEGACY.1).expect("the legacy policy is valid")
}

fn overlaid(changes: &str) -> Result<Policy, Faults> {
    overlay(SHIPPED, ("changes.toml", changes)).map(|text| Policy::parse("merged", &text).expect("valid"))
}

fn someone(class: WorkloadClass) -> Identity {
    Identity {
        tenant: Tenant::parse("tenant-001").expect("well formed"),
        subject: Subject::parse("user-00001").expect("well formed"),
        class,
        region: Region::parse("eu-west").expect("well formed"),
    }
}

/// Before and after are only comparable when nothing but the repair tells them apart.
#[test]
fn the_legacy_policy_differs_in_modes_and_the_default_deadline_only() {
    let lines = |text: &'static str| {
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect::<Vec<_>>()
    };
    let (old, new) = (lines(LEGACY.1), lines(SHIPPED.1));
    assert_eq!(old.len(), new.len());
    let differing: Vec<_> = old.into_iter().zip(new).filter(|(old, new)| old != new).collect();
    let modes = differing.iter().filter(|pair| **pair == ("mode = \"off\"", "mode = \"on\"")).count();
    assert_eq!(modes, 5, "{differing:?}");
    let others: Vec<_> =
        differing.iter().filter(|(old, _)| !old.starts_with("mode")).map(|(old, _)| *old).collect();
    assert_eq!(others.len(), 2, "{others:?}");
    assert!(others[0].starts_with("generation = ") && others[1].starts_with("default_timeout_ms = 2000"));
    assert!(legacy().generation < Policy::shipped().generation);
}

#[test]
fn the_declared_bounds_are_those_of_the_case_study() {
    let policy = Policy::shipped();
    for (boundary, slots, limit) in [(Boundary::Endpoint, 640, 520), (Boundary::Profile, 420, 340)] {
        let bounds = policy.admission(boundary);
        assert_eq!((bounds.slots, bounds.gate().limit(), bounds.pool().limit()), (slots, limit, slots));
        assert_eq!(bounds.pool().waiting(), Waiting::Unbounded);
        assert!(bounds.gate().reach(WorkloadClass::Enterprise) < limit);
        assert_eq!(legacy().admission(boundary), bounds);
    }
}

#[test]
fn every_mechanism_is_on_in_one_and_off_in_the_other() {
    let (old, new) = (legacy(), Policy::shipped());
    for mechanism in Mechanism::ALL {
        assert_eq!(Mechanism::parse(mechanism.as_str()), Some(mechanism));
        let acts =
            |policy: &Policy| policy.mechanism(mechanism).applies(&someone(WorkloadClass::Standard)).acts();
        assert_eq!((acts(&old), acts(&new)), (false, mechanism != Mechanism::Summary), "{mechanism}");
    }
}

#[test]
fn an_overlay_changes_what_it_names_and_keeps_the_rest() {
    let changes = "generation = 9\n[mechanisms.coalescing]\nmode = \"shadow\"\npercent = 1.25\nclasses = [\"premium\"]\n";
    let policy = overlaid(changes).expect("valid");
    let coalescing = policy.mechanism(Mechanism::Coalescing);
    assert_eq!((policy.generation, coalescing.scope().share.parts()), (9, 125));
    assert!(!coalescing.scope().classes.contains(WorkloadClass::Standard));
    let shipped = Policy::shipped();
    assert_eq!(policy.mechanism(Mechanism::Admission), shipped.mechanism(Mechanism::Admission));
    assert_eq!(policy.admission(Boundary::Profile), shipped.admission(Boundary::Profile));
    assert_eq!(overlaid("").map(|same| Policy { digest: shipped.digest, ..same }), Ok(shipped));
}

#[test]
fn a_wrong_overlay_is_refused_with_its_key_paths() {
    for (changes, expected) in [
        ("[mechanisms.coalescing]\npercent = 101", "mechanisms.coalescing.percent"),
        ("[mechanisms.coalescing]\npercent = 0.001", "at most two decimals"),
        ("[mechanisms.coalescing]\nclasses = [\"gold\"]", "mechanisms.coalescing.classes[0]"),
        ("[mechanisms.coalescing]\nregions = []", "mechanisms.coalescing.regions"),
        ("[mechanisms.coalesing]\nmode = \"on\"", "mechanisms.coalesing"),
        ("[mechanisms.summary]\nmode = \"dark\"", "mechanisms.summary.mode"),
        ("[admission.endpoint]\nlimit = 641", "admission.endpoint.limit"),
        ("[admission.endpoint]\nlimit = 0", "admission.endpoint.limit"),
        (
            "[admission.endpoint.classes.enterprise]\nceiling_percent = 5",
            "admission.endpoint.classes.enterprise.ceiling_percent",
        ),
        ("[admission.endpoint.classes.standard]\nfloor_percent = 90", "admission.endpoint.classes"),
        ("[degradation]\npressure_floor_ms = 69", "degradation.pressure_floor_ms"),
        ("[coalescing]\nuseful_min_ms = 280", "coalescing.useful_min_ms"),
        ("response_reserve_ms = 300\n", "response_reserve_ms: must be below objective_ms"),
        ("[mechanisms", "changes.toml:1"),
    ] {
        let faults = overlaid(changes).expect_err(changes);
        assert!(faults.to_string().contains(expected), "{changes}: {faults}");
    }
}

#[test]
fn the_repaired_policy_closes_and_the_old_one_does_not() {
    let audit = Policy::shipped().audit();
    assert_eq!(audit.findings, [], "{audit:?}");
    assert_eq!(audit.critical_path.len(), 3);
    let path = audit.critical_path.iter().fold(Nanos::ZERO, |sum, (_, useful)| sum + *useful);
    assert_eq!(path + audit.reserve + audit.slack, Policy::shipped().objective);
    assert_eq!(audit.serial_timeouts, None);

    let audit = legacy().audit();
    assert_eq!(audit.serial_timeouts, Some(Nanos::from_millis(1_500)));
    let rules: Vec<_> = audit.findings.iter().map(|finding| finding.rule).collect();
    let expected = [
        Rule::SerialTimeouts,
        Rule::OptionalTimeout,
        Rule::WorkOutlivesCaller,
        Rule::UnboundedQueue,
        Rule::UnboundedQueue,
    ];
    assert_eq!(rules, expected, "{audit:?}");
}

#[test]
fn each_rule_that_cannot_close_is_found() {
    for (changes, rule) in [
        ("[mechanisms.deadline]\npercent = 99", Rule::SerialTimeouts),
        ("[mechanisms.cancellation]\nregions = [\"eu-west\"]", Rule::WorkOutlivesCaller),
        ("[mechanisms.admission]\nmode = \"shadow\"", Rule::UnboundedQueue),
        (
            "[admission.endpoint.classes]\nstandard = { floor_percent = 0, ceiling_percent = 100, queue_max = 1 }\n\
             premium = { floor_percent = 0, ceiling_percent = 100, queue_max = 1 }\n\
             enterprise = { floor_percent = 0, ceiling_percent = 100, queue_max = 1 }",
            Rule::ClassHoldsAll,
        ),
        ("[admission.profile]\nqueue_age_max_ms = 250", Rule::QueueAndPath),
        ("[coalescing]\nduration_max_ms = 41", Rule::FlightTooShort),
        ("[limits]\nstreams_max = 639", Rule::StreamsBelowSlots),
        ("drain_ms = 1999", Rule::DrainTooShort),
    ] {
        let audit = overlaid(changes).expect("valid").audit();
        assert!(audit.findings.iter().any(|finding| finding.rule == rule), "{changes}: {audit:?}");
    }
}

#[test]
fn slow_motion_stretches_the_bounds_of_the_mechanisms_too() {
    let (policy, slow) = (Policy::shipped(), Policy::shipped().dilated(20));
    assert_eq!((policy.dilation, slow.dilation), (1, 20));
    for boundary in Boundary::ALL {
        let (before, after) = (policy.admission(boundary), slow.admission(boundary));
        assert_eq!(after.queue_age_max(), before.queue_age_max().times(20));
        assert_eq!(after.gate().retry_after(), before.gate().retry_after().times(20));
        assert_eq!((after.slots, after.gate().limit()), (before.slots, before.gate().limit()));
    }
    assert_eq!(slow.coalescing.duration_max, policy.coalescing.duration_max.times(20));
    assert_eq!(slow.coalescing.flights_max, policy.coalescing.flights_max);
    assert_eq!(slow.degradation.floor, policy.degradation.floor.times(20));
    let timeout = |policy: &Policy| policy.branch(Dependency::Pricing).independent_timeout;
    assert_eq!(timeout(&slow), timeout(&policy).times(20));
}

proptest! {
    /// Whatever the scale, the bounds stay sound: both gates can be made, the gate is within its pool, no class may take
    /// all, and nobody is shut out.
    #[test]
    fn a_smaller_system_keeps_its_promises(numerator in 1_u32..=100, denominator in 100_u32..=20_000) {
        let scaled = Policy::shipped().scaled(scale(&format!("{numerator}/{denominator}")));
        for boundary in Boundary::ALL {
            let bounds = scaled.admission(boundary);
            let (gate, pool) = (bounds.gate(), bounds.pool());
            prop_assert!(gate.limit() <= pool.limit());
            for class in WorkloadClass::ALL {
                prop_assert!(gate.ceiling(class) >= 1 && gate.floor(class) <= gate.ceiling(class));
                if gate.limit() >= 4 {
                    prop_assert!(gate.floor(class) >= 1, "{gate:?}");
                }
            }
            if gate.limit() >= 8 {
                prop_assert!(gate.reach(WorkloadClass::Enterprise) < gate.limit());
            }
        }
    }
}

#[test]
fn a_whole_domain_is_not_changed_by_its_scale() {
    let (policy, scaled) = (Policy::shipped(), Policy::shipped().scaled(Scale::ONE));
    for boundary in Boundary::ALL {
        let (before, after) = (policy.admission(boundary), scaled.admission(boundary));
        assert_eq!((after.slots, after.gate()), (before.slots, before.gate()));
    }
    let quick = policy.scaled(scale("1/24"));
    let endpoint = quick.admission(Boundary::Endpoint);
    // 614/24 + 26/√24 = 30.9
    assert_eq!(endpoint.slots, 31);
}
