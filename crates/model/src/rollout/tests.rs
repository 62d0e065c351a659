//! Tests of the rollout: the shipped ladder, the policies that it makes, and every fault at once.

use base::{Identity, Region, Subject, Tenant, WorkloadClass};
use control::mode::Mode;

use super::*;
use crate::{
    names::REGIONS,
    policy::{Mechanism, Policy},
};

fn faults(text: &str) -> Vec<String> {
    let faults = Ladder::parse("r.toml", text).expect_err("faulty");
    faults.to_string().lines().map(str::to_owned).collect()
}

/// The shipped document with one piece replaced; fails when it is not there exactly once.
fn with(piece: &str, replacement: &str) -> String {
    assert_eq!(SHIPPED.1.matches(piece).count(), 1, "{piece:?} must occur once");
    SHIPPED.1.replace(piece, replacement)
}

fn policy(step: &str) -> Policy {
    let ladder = Ladder::shipped();
    let step = ladder.steps().find(|found| found.name == step).expect("a step of that name");
    Policy::parse(&step.name, &step.policy).expect("valid")
}

fn identity(class: WorkloadClass, region: &str) -> Identity {
    Identity {
        tenant: Tenant::parse("tenant-007").expect("well formed"),
        subject: Subject::parse("user-00042").expect("well formed"),
        class,
        region: Region::parse(region).expect("well formed"),
    }
}

fn acts(policy: &Policy, mechanism: Mechanism, class: WorkloadClass, region: &str) -> bool {
    policy.mechanism(mechanism).applies(&identity(class, region)).acts()
}

#[test]
fn the_shipped_rollout_has_the_eight_phases_in_order_and_three_canaries_and_a_region() {
    let ladder = Ladder::shipped();
    let names: Vec<&str> = ladder.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "signals",
            "deadline",
            "cancellation",
            "admission",
            "coalescing",
            "summary",
            "degradation",
            "expansion"
        ]
    );
    let canaries: Vec<&str> =
        ladder.steps().filter(|step| step.canary).map(|step| step.name.as_str()).collect();
    assert_eq!(
        canaries,
        ["cancellation/canary", "admission/canary", "coalescing/canary", "expansion/canary"]
    );
    let unavailable = ladder.phases.iter().filter(|phase| matches!(phase.plan, PhasePlan::NotAvailable(_)));
    assert_eq!(unavailable.map(|phase| phase.name.as_str()).collect::<Vec<_>>(), ["summary"]);
}

#[test]
fn generations_rise_and_the_last_policy_is_the_one_that_ships() {
    let ladder = Ladder::shipped();
    let mut last = legacy();
    for step in ladder.steps() {
        let policy = Policy::parse(&step.name, &step.policy).expect("valid");
        assert_eq!(policy.generation, last.generation + 1, "{}", step.name);
        last = policy;
    }
    let shipped = Policy::shipped();
    (last.generation, last.digest) = (shipped.generation, shipped.digest);
    assert_eq!(last, shipped, "the ladder must end where config/policy.toml is");
}

#[test]
fn shadow_phases_act_on_nobody() {
    for step in ["signals", "deadline"] {
        let policy = policy(step);
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| *mechanism != Mechanism::Summary) {
            let decision = policy.mechanism(mechanism).applies(&identity(WorkloadClass::Standard, "eu-west"));
            assert_eq!((decision.mode, decision.acts()), (Mode::Shadow, false), "{step} {mechanism}");
            assert!(decision.computes());
        }
    }
}

/// One causal change a phase: what acted before goes on acting for the same requests, and one more mechanism does.
#[test]
fn every_phase_adds_its_mechanism_and_takes_nothing_away() {
    use Mechanism::{Admission, Cancellation, Coalescing, Deadline, Degradation};
    use WorkloadClass::{Enterprise, Premium, Standard};
    let all = [Deadline, Cancellation, Admission, Coalescing, Degradation];
    for (step, expected) in [
        ("cancellation", &all[..2]),
        ("admission", &all[..3]),
        ("coalescing", &all[..4]),
        ("degradation", &all[..5]),
        ("expansion/canary", &all[..5]),
        ("expansion", &all[..5]),
    ] {
        let policy = policy(step);
        let degraded: &[&str] = match step {
            "degradation" => &["eu-west"],
            "expansion/canary" => &["eu-west", "us-east"],
            _ => &REGIONS,
        };
        for class in [Standard, Premium, Enterprise] {
            for region in REGIONS {
                for mechanism in all {
                    let reached = mechanism != Degradation || degraded.contains(&region);
                    let wanted = reached && expected.contains(&mechanism);
                    assert_eq!(
                        acts(&policy, mechanism, class, region),
                        wanted,
                        "{step}: {mechanism} for {class} in {region}"
                    );
                }
            }
        }
    }
    let canary = policy("admission/canary");
    assert!(acts(&canary, Admission, Standard, "eu-west") && !acts(&canary, Admission, Premium, "eu-west"));
    let canary = policy("coalescing/canary");
    assert!(acts(&canary, Coalescing, Premium, "us-east") && !acts(&canary, Coalescing, Standard, "us-east"));
    let canary = policy("cancellation/canary");
    let reached = (0..10_000)
        .filter(|subject| {
            let subject = Subject::parse(&format!("user-{subject:05}")).expect("well formed");
            let one = Identity { subject, ..identity(Standard, "eu-west") };
            canary.mechanism(Cancellation).applies(&one).acts()
        })
        .count();
    // Binomial: 100 expected, deviation 10.
    assert!((50..=150).contains(&reached), "{reached}");
}

#[test]
fn a_step_says_what_differs_and_the_rest_is_common() {
    let ladder = Ladder::shipped();
    let step = |name: &str| ladder.steps().find(|step| step.name == name).expect("a step");
    let find = |step: &Step, state: usize, key: &str| {
        step.bounds.states[state].iter().find(|bound| bound.key == key).map(|bound| bound.against)
    };
    let (signals, expansion) = (step("signals"), step("expansion"));
    for step in ladder.steps() {
        assert_eq!(step.bounds.permits_held_max, 0, "{}", step.name);
        assert!(find(step, 0, "p99_rise_max_percent").is_some(), "{}", step.name);
        let beyond_peak = step.bounds.states[1..].iter().any(|bounds| !bounds.is_empty());
        assert_eq!(beyond_peak, !step.canary, "{}: a canary is watched at peak alone", step.name);
    }
    assert_eq!(find(signals, 0, "p99_max_ms"), None, "the old policy misses it");
    assert_eq!(find(expansion, 0, "p99_max_ms"), Some(Against::AtMost(300.0)));
    assert_eq!(find(expansion, 0, "queue_age_p99_max_ms"), Some(Against::AtMost(12.0)));
    assert_eq!(find(expansion, 0, "late_work_max_ratio"), Some(Against::AtMost(0.02)));
}

#[test]
fn every_fault_is_reported_at_once_with_its_path() {
    let text = with("name = \"home-path\"", "name = \"Home Path\"")
        .replace("sigmas = 3.0", "sigmas = -1")
        .replace("peak_ms = 60000", "peak_ms = 10")
        .replace("permits_held_max = 0", "permits_held_maximum = 0")
        .replace("intended_stops_max_ratio = 0.10", "intended_stops_max_ratio = 10")
        .replace("percent = 100", "percent = 101");
    let found = faults(&text);
    let paths: Vec<&str> = found.iter().filter_map(|fault| fault.split(": ").nth(1)).collect();
    assert_eq!(
        paths,
        [
            "name",
            "timing.full.peak_ms",
            "tolerance.sigmas",
            "abort.permits_held_maximum",
            "phases[1].full.abort.peak.intended_stops_max_ratio",
            "phases[2].full.policy.mechanisms.deadline.percent",
            "phases[2].full.policy.mechanisms.cancellation.percent",
        ],
        "{found:#?}"
    );
}

#[test]
fn what_a_phase_may_say_is_checked() {
    for (piece, replacement, expected) in [
        ("not_available = \"the migration", "unavailable = \"the migration", "phases[5].full: missing"),
        ("name = \"degradation\"", "name = \"signals\"", "\"signals\" is taken twice"),
        (
            "document = \"repaired\"",
            "document = \"shipped\"",
            "phases[7].full.document: expected \"repaired\"",
        ),
        (
            "document = \"repaired\"",
            "document = \"repaired\"\npolicy = {}",
            "either a policy with its changes or a document",
        ),
        ("document = \"repaired\"", "", "either a policy with its changes or a document"),
        ("document = \"repaired\"", "policy = 3", "phases[7].full.policy: expected a table"),
        ("document = \"repaired\"", "policy = { generation = 9 }", "generation is not the file's to say"),
        (
            "document = \"repaired\"",
            "policy = { mechanism = { deadline = { mode = \"on\" } } }",
            "phases[7].full.policy.mechanism: makes no valid policy: unknown key",
        ),
        (
            "[phases.full.abort.slowdown]\np99_max_ms = 300",
            "[phases.full.abort.slowdown]\nrecovery_max_s = 4",
            "abort.slowdown.recovery_max_s: unknown key",
        ),
        (
            "[phases.full]\ndocument = \"repaired\"",
            "[phases.canary.abort.slowdown]\np99_max_ms = 300\n[phases.full]\ndocument = \"repaired\"",
            "phases[7].canary.abort.slowdown: unknown key",
        ),
        (
            "not_available = \"the migration has phases of its own: mercury rehearse migration\"",
            "not_available = \"x\"\n[phases.full.policy.mechanisms.deadline]\nmode = \"on\"",
            "has no canary and no full",
        ),
    ] {
        let found = faults(&with(piece, replacement));
        assert!(found.iter().any(|fault| fault.contains(expected)), "{replacement}: {found:#?}");
    }
}

#[test]
fn a_faulty_step_does_not_make_the_next_ones_faulty() {
    let found = faults(&with(
        "[phases.canary.policy.mechanisms.admission]\nmode = \"on\"",
        "[phases.canary.policy.mechanisms.admission]\nmode = \"in\"",
    ));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("phases[3].canary.policy.mechanisms.admission.mode: makes no valid policy"),
        "{found:#?}"
    );
}

#[test]
fn the_number_of_phases_is_bounded() {
    let head = SHIPPED.1.split("[[phases]]").next().expect("text before the first phase");
    let phases = |count: usize| {
        let one = |at| format!("[[phases]]\nname = \"p{at}\"\nabout = \"a\"\nnot_available = \"b\"\n");
        format!("{head}{}", (0..count).map(one).collect::<String>())
    };
    assert!(Ladder::parse("r.toml", &phases(PHASES_MAX)).is_ok());
    assert!(faults(&phases(PHASES_MAX + 1))[0].contains("expected 1 to 32 tables"));
    assert!(faults(&phases(0))[0].contains("phases"));
}
