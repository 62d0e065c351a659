//! Tests of a domain: everything that is taken comes back, everybody is counted once, and a seed is all that matters.

use base::{Nanos, WorkloadClass};
use model::{
    Scale,
    policy::{LEGACY, Policy, SHIPPED, overlay},
    region::{Hosts, Placement},
    scenario::{Capacity, Scenario},
    workload::Workload,
};

use super::Domain;
use crate::{ClaimsPhase, Course, Hedge, Outcome, Progress, System, Window, run};

fn repaired() -> Policy {
    Policy::shipped()
}

fn legacy() -> Policy {
    Policy::parse(LEGACY.0, LEGACY.1).expect("valid")
}

fn changed(changes: &str) -> Policy {
    let text = overlay(SHIPPED, ("changes", changes)).expect("valid");
    Policy::parse("changed", &text).expect("valid")
}

/// A tenth of a domain, so that a debug build is done soon.
fn small(policy: &Policy, claims: ClaimsPhase) -> System {
    let scale = Scale::parse("1/10").expect("valid");
    System { claims, ..System::fraction(policy, &Scenario::shipped(), Workload::shipped(), scale) }
}

fn course(phase: usize, warm_up_s: u32, window_s: u32) -> Course {
    Course { warm_up_phase: phase, warm_up_s, phase, window_s }
}

fn window(system: &System, course: &Course, seed: u64) -> Window {
    run(system, course, seed, &Progress::default()).expect("nobody stops it")
}

/// Runs a domain for a while, ends the schedule, and lets everything end.
fn settles(system: &System, seconds: u64) {
    let phases = system.scenario.phases();
    let mut domain = Domain::new(system, &phases[0], 7, 0);
    domain.begin_window(seconds as u32);
    domain.run_until(Nanos::from_secs(seconds / 2));
    domain.enter_phase(&phases[1]);
    domain.run_until(Nanos::from_secs(seconds));
    assert!(domain.endpoint.held() > 0, "a domain under load holds something");
    domain.end_window();
    domain.stop_arrivals();
    domain.run_until(Nanos::from_secs(seconds + 60));
    assert_eq!(domain.open(), 0);
    assert!(domain.is_idle(), "something was not given back");
    for class in &domain.account.classes {
        assert_eq!(class.offered, class.ended(), "everybody is counted once");
        assert!(class.attempts >= class.offered);
    }
}

const SHADOWED: &str = "[mechanisms.deadline]\nmode = \"off\"\n[mechanisms.admission]\nmode = \"shadow\"\n";
const SCOPED: &str = "[mechanisms.admission]\npercent = 50\n[mechanisms.coalescing]\nclasses = [\"standard\"]\n[mechanisms.cancellation]\nregions = [\"eu-west\"]\n";
const NO_CANCELLATION: &str = "[mechanisms.cancellation]\nmode = \"off\"\n";

#[test]
fn whatever_the_policy_everything_comes_back() {
    for (policy, claims) in [
        (repaired(), ClaimsPhase::Summary),
        (repaired(), ClaimsPhase::Canary),
        (legacy(), ClaimsPhase::Call),
        (changed(SHADOWED), ClaimsPhase::Call),
        (changed(SCOPED), ClaimsPhase::Canary),
        (changed(NO_CANCELLATION), ClaimsPhase::Summary),
    ] {
        settles(&small(&policy, claims), 12);
    }
}

#[test]
fn a_hedge_gives_back_what_it_took_wherever_it_was() {
    for cell in [None, Some(Capacity { servers: 4, queue_max: 2 })] {
        for cancel_after in [Nanos::ZERO, Nanos::from_millis(4)] {
            let hedge = Hedge {
                after: Nanos::from_millis(60),
                classes: [true; WorkloadClass::ALL.len()],
                cell,
                percent_max: 50,
                cancel_after,
            };
            for policy in [repaired(), legacy()] {
                let system = System { hedge: Some(hedge), ..small(&policy, ClaimsPhase::Call) };
                settles(&system, 6);
                let window = window(&system, &course(0, 2, 4), 3);
                let reads = window.metered.calls[0] as f64;
                assert!(window.metered.hedges > 0 && window.metered.hedges as f64 <= 0.5 * reads);
            }
        }
    }
}

#[test]
fn a_crowded_store_serves_in_order_and_lets_everybody_go() {
    let mut text =
        std::fs::read_to_string("../../config/scenarios/peak-slowdown-recovery.toml").expect("shipped");
    text = text.replace("servers = 480 ", "servers = 300 ").replace("queue_max = 600", "queue_max = 60");
    let scenario = Scenario::parse("crowded", &text).expect("valid");
    let scale = Scale::parse("1/10").expect("valid");
    for policy in [repaired(), legacy()] {
        let system = System::fraction(&policy, &scenario, Workload::shipped(), scale);
        settles(&system, 6);
        let all = window(&system, &course(0, 2, 4), 1).all();
        assert!(all.outcomes[Outcome::Unavailable as usize] > 0, "the store refuses some");
    }
}

#[test]
fn a_seed_gives_the_same_digits_and_another_gives_others() {
    let system = small(&repaired(), ClaimsPhase::Summary);
    let figures = |seed| {
        let window = window(&system, &course(0, 1, 4), seed);
        let all = window.all();
        (all.offered, all.outcomes, window.metered.held, window.metered.calls, window.timeline)
    };
    let (one, again, other) = (figures(1), figures(1), figures(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
}

/// What this version of the model says of a seed, to the last digit, on every machine.
#[test]
fn figures_are_pinned() {
    let of = |policy: &Policy, claims| {
        let window = window(&small(policy, claims), &course(0, 2, 5), 42);
        let all = window.all();
        (all.offered, all.outcomes, window.metered.held)
    };
    assert_eq!(of(&repaired(), ClaimsPhase::Summary), PINNED_REPAIRED);
    assert_eq!(of(&legacy(), ClaimsPhase::Call), PINNED_LEGACY);
}

type Pinned = (u64, [u64; Outcome::ALL.len()], [u128; 2]);
const PINNED_REPAIRED: Pinned = (2964, [2317, 124, 0, 6, 0, 517], [214_284_038_818, 135_587_384_966]);
const PINNED_LEGACY: Pinned = (2964, [2304, 84, 0, 0, 0, 576], [288_366_712_890, 175_821_645_225]);

#[test]
fn the_repair_is_one_and_the_hop_costs_time() {
    let quantile = |window: &Window, q| window.all().latency.quantile_ms(q).expect("answers");
    let before = window(&small(&legacy(), ClaimsPhase::Call), &course(0, 3, 20), 1);
    let kept = window(&small(&repaired(), ClaimsPhase::Call), &course(0, 3, 20), 1);
    let after = window(&small(&repaired(), ClaimsPhase::Summary), &course(0, 3, 20), 1);
    assert!(quantile(&before, 0.99) > 400.0, "optional work is waited for");
    assert!(quantile(&after, 0.99) <= 300.0);
    assert!(quantile(&after, 0.5) + 3.0 < quantile(&kept, 0.5));
    assert!(before.metered.late > 0 && after.metered.late == 0);
    assert_eq!((before.metered.flights, before.metered.joined), (0, 0));
    assert!(after.metered.joined > 0);
}

/// A system whose arrivals exceed its capacity is run like any other, and what it cannot serve stays bounded by its shell.
#[test]
fn an_overloaded_system_is_run_and_says_so() {
    let mut system = small(&legacy(), ClaimsPhase::Call);
    system.offered.requests_per_s *= 3.0;
    let window = window(&system, &course(0, 5, 10), 1);
    let all = window.all();
    assert_eq!(all.offered, all.ended() + window.in_flight);
    assert!(all.within_objective * 10 < all.offered);
    assert!(window.occupancy(model::policy::Boundary::Endpoint) > 0.99);
}

#[test]
fn hosts_without_processors_to_spare_hold_pages_up() {
    let answered = |workers| {
        let mut system = small(&repaired(), ClaimsPhase::Summary);
        system.hosts = Hosts { workers, vcpus_per_worker: 1, cpu_us_per_page: 5_000, bursts_per_page: 4 };
        let window = window(&system, &course(0, 2, 5), 1);
        (window.cpu().expect("declared"), window.all().within_objective)
    };
    let (calm, most) = answered(8);
    let (busy, fewer) = answered(2);
    assert!(calm < 0.5 && busy > 0.95, "{calm} {busy}");
    assert!(fewer < most);
}

#[test]
fn placement_moves_load_and_loses_none() {
    let workload = Workload::shipped();
    let mut system = System::region(
        repaired(),
        Scenario::shipped(),
        workload,
        Hosts::UNBOUNDED,
        Placement { hot_tenants: 3, concentration: 1.0, ..Placement::EVEN },
    );
    system.offered.requests_per_s /= 20.0;
    let hot = window(&system, &course(0, 1, 8), 1);
    system.placement = Placement::EVEN;
    let even = window(&system, &course(0, 1, 8), 1);
    let [first, others @ ..] = &hot.domain_shares[..] else { panic!("three domains") };
    assert!(others.iter().all(|share| first > share), "{:?}", hot.domain_shares);
    let (hot, even) = (hot.all().offered as f64, even.all().offered as f64);
    assert!((hot / even - 1.0).abs() < 0.05, "{hot} {even}");
}

#[test]
fn a_run_that_is_asked_to_stop_stops() {
    let progress = Progress::default();
    progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(run(&small(&repaired(), ClaimsPhase::Call), &course(0, 1, 1), 1, &progress).is_none());
}
