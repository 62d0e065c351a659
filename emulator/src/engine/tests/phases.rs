//! Tests of phases: what follows a change of phase at once, what stays as it was, and what comes with the phase.

use model::scenario::Capacity;

use super::*;

const PRICING: Dependency = Dependency::Pricing;
const INVENTORY: Dependency = Dependency::Inventory;

fn enter(rig: &Rig, phase: &str) -> String {
    rig.engine.set_phase(phase).expect("a phase").name.clone()
}

#[test]
fn a_run_starts_in_the_first_phase_and_unknown_ones_change_nothing() {
    let rig = Rig::new();
    assert_eq!(rig.engine.phase().name, "peak");
    assert!(rig.engine.set_phase("nowhere").is_none());
    assert_eq!(rig.engine.phase().name, "peak");
    assert_eq!(enter(&rig, "slowdown"), "peak");
    assert_eq!(enter(&rig, "recovery"), "slowdown");
}

#[test]
fn calls_in_service_keep_the_time_that_they_drew_and_waiters_draw_anew() {
    let rig = Rig::new();
    let mut served = vec![rig.begin(PROFILE, rig.caller("one")), rig.begin(PROFILE, rig.caller("two"))];
    let mut waiter = rig.begin(PROFILE, rig.caller("waiter"));
    rig.advance(ms(10));
    enter(&rig, "slowdown");
    rig.advance(ms(10));
    assert_eq!(settle(&mut served), [Code::Ok; 2]);
    assert!(waiter.look().is_none());
    rig.advance(ms(50) - NANO);
    assert!(waiter.look().is_none());
    rig.advance(NANO);
    assert_eq!(timing(waiter.look()), (20_000, 50_000));
    // The others are as before, and so is this one once the phase is over.
    let mut other = rig.begin(PRICING, rig.caller("other"));
    enter(&rig, "recovery");
    let mut recovered = rig.begin(PROFILE, rig.caller("recovered"));
    rig.advance(SERVICE);
    assert_eq!((timing(other.look()), timing(recovered.look())), ((0, 20_000), (0, 20_000)));
    rig.assert_idle();
}

#[test]
fn a_lower_capacity_revokes_nothing_and_a_higher_one_serves_at_once() {
    let rig = Rig::new();
    let mut served = vec![rig.begin(PRICING, rig.caller("one")), rig.begin(PRICING, rig.caller("two"))];
    let mut waiter = vec![rig.begin(PRICING, rig.caller("three"))];
    enter(&rig, "slowdown");
    assert_eq!(rig.busy(PRICING), (2, 1), "nobody is thrown out");
    rig.advance(MS);
    served.pop();
    assert!(settle(&mut waiter).is_empty());
    assert_eq!(rig.busy(PRICING), (1, 1), "one server, and it is busy");
    enter(&rig, "peak");
    assert!(settle(&mut waiter).is_empty());
    assert_eq!(rig.busy(PRICING), (2, 0), "two again");
    rig.advance(SERVICE);
    assert_eq!((settle(&mut served), settle(&mut waiter)), (vec![Code::Ok], vec![Code::Ok]));
    assert_eq!(rig.entry("three"), Told::new("ok", 1, 20));
    rig.assert_idle();
}

#[test]
fn a_capacity_that_was_changed_live_stays_unless_the_phases_declare_different_ones() {
    let rig = Rig::new();
    let live = Capacity { servers: 7, queue_max: 0 };
    for dependency in [PROFILE, PRICING] {
        rig.engine.pool(dependency).set_capacity(live);
    }
    enter(&rig, "slowdown");
    assert_eq!(rig.load(PROFILE).capacity, live, "the phases say the same of profile");
    assert_eq!(rig.load(PRICING).capacity, Capacity { servers: 1, queue_max: 2 });
    rig.engine.pool(PRICING).set_capacity(live);
    enter(&rig, "slowdown");
    assert_eq!(rig.load(PRICING).capacity, live, "the same phase again changes nothing");
    enter(&rig, "recovery");
    assert_eq!(rig.load(PROFILE).capacity, live);
    assert_eq!(rig.load(PRICING).capacity, Capacity { servers: 2, queue_max: 2 });
}

#[test]
fn a_fault_of_a_phase_begins_and_ends_within_it() {
    let rig = Rig::new();
    let refused = |id: &str| {
        let mut call = rig.prepare(INVENTORY, rig.caller(id), true);
        call.look().is_some_and(|answer| code(&answer) == Code::Unavailable)
    };
    rig.advance(ms(100));
    assert!(!refused("peak"));
    enter(&rig, "slowdown");
    rig.advance(ms(10) - NANO);
    assert!(!refused("before"));
    rig.advance(NANO);
    assert!(refused("from its start"));
    rig.advance(ms(30) - NANO);
    assert!(refused("to its end"));
    rig.advance(NANO);
    assert!(!refused("after"));
    // Entered again, the phase has its fault again, which ends with the phase at the latest.
    enter(&rig, "slowdown");
    rig.advance(ms(10));
    assert!(refused("again"));
    enter(&rig, "recovery");
    assert!(!refused("recovery"));
}

#[test]
fn injected_rules_outlive_a_change_of_phase_and_come_before_those_of_the_next() {
    let rig = Rig::new();
    rig.inject(INVENTORY, FaultEffect::Status(7));
    enter(&rig, "slowdown");
    rig.advance(ms(10));
    let mut call = rig.begin(INVENTORY, rig.caller("op"));
    rig.advance(SERVICE);
    assert_eq!(code(&call.look().expect("due")), Code::PermissionDenied);
    assert_eq!(rig.entry("op"), Told::new("fault", 0, 20).by("status"));
}
