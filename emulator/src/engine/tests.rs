//! Tests of the engine: time, capacity, deadlines and departures, each with the account that is given of it. Faults and
//! phases have rooms of their own.

mod faults;
mod phases;

use base::{WorkloadClass, headers};
use http::Extensions;
use proptest::prelude::*;
use tonic::metadata::MetadataMap;
use tonic_types::StatusExt as _;

use super::*;
use crate::{
    books::Wanted,
    testing::{Answer, Call, MS, Rig, SERVICE, START, Told, code, ms},
};

const PROFILE: Dependency = Dependency::Profile;
const NANO: Nanos = Nanos::new(1);

fn timing(answer: Option<Answer>) -> (u32, u32) {
    let timing = answer.expect("due").expect("an answer").into_inner();
    (timing.queue_wait_us, timing.service_us)
}

/// Looks at every call again and again until none moves, and takes out those that ended.
fn settle(calls: &mut Vec<Call>) -> Vec<Code> {
    let mut ended = Vec::new();
    loop {
        let before = ended.len();
        calls.retain_mut(|call| {
            call.look().is_none_or(|answer| {
                ended.push(code(&answer));
                false
            })
        });
        if ended.len() == before {
            return ended;
        }
    }
}

#[test]
fn an_idle_dependency_takes_its_service_time_and_not_a_nanosecond_less() {
    let rig = Rig::new();
    let mut call = rig.begin(PROFILE, rig.caller("op"));
    assert_eq!(rig.busy(PROFILE), (1, 0));
    rig.advance(SERVICE - NANO);
    assert!(call.look().is_none());
    assert!(rig.is_open("op"));
    rig.advance(NANO);
    assert_eq!(timing(call.look()), (0, 20_000));
    assert_eq!(rig.entry("op"), Told::new("ok", 0, 20));
    rig.assert_idle();
}

#[test]
fn a_class_has_its_factor_and_dependencies_have_servers_of_their_own() {
    let rig = Rig::new();
    let enterprise = Caller { class: WorkloadClass::Enterprise, ..rig.caller("large") };
    let mut large = rig.begin(PROFILE, enterprise);
    let mut others: Vec<Call> =
        Dependency::ALL.map(|dependency| rig.begin(dependency, rig.caller(dependency.as_str()))).into();
    rig.advance(SERVICE);
    assert_eq!(settle(&mut others), [Code::Ok; 7]);
    assert!(large.look().is_none());
    rig.advance(ms(10));
    assert_eq!(timing(large.look()), (0, 30_000));
    rig.assert_idle();
}

#[test]
fn the_wait_for_a_server_is_told_apart_from_the_service() {
    let rig = Rig::new();
    let mut served = vec![rig.begin(PROFILE, rig.caller("one")), rig.begin(PROFILE, rig.caller("two"))];
    rig.advance(ms(5));
    let mut waiting = rig.begin(PROFILE, rig.caller("three"));
    assert_eq!(rig.busy(PROFILE), (2, 1));
    rig.advance(ms(15));
    assert_eq!(settle(&mut served), [Code::Ok; 2]);
    assert!(waiting.look().is_none(), "it has a server now, and its service begins");
    assert_eq!(rig.busy(PROFILE), (1, 0));
    rig.advance(SERVICE);
    assert_eq!(timing(waiting.look()), (15_000, 20_000));
    assert_eq!(rig.entry("three"), Told::new("ok", 15, 20));
    assert_eq!(rig.load(PROFILE).peak_in_service, 2);
    rig.assert_idle();
}

#[test]
fn waiters_are_served_in_order_of_arrival() {
    let rig = Rig::new();
    let mut first = vec![rig.begin(PROFILE, rig.caller("one"))];
    rig.advance(MS);
    first.push(rig.begin(PROFILE, rig.caller("two")));
    let (mut third, mut fourth) =
        (rig.begin(PROFILE, rig.caller("three")), rig.begin(PROFILE, rig.caller("four")));
    rig.advance(ms(19));
    assert_eq!(settle(&mut first), [Code::Ok], "only the one that came a millisecond earlier");
    // The fourth may look as often as it likes.
    assert!(fourth.look().is_none() && third.look().is_none());
    assert_eq!(rig.busy(PROFILE), (2, 1));
    rig.advance(MS);
    assert_eq!(settle(&mut first), [Code::Ok]);
    assert!(fourth.look().is_none());
    rig.advance(ms(19));
    assert_eq!(timing(third.look()), (19_000, 20_000));
    rig.advance(MS);
    assert_eq!(timing(fourth.look()), (20_000, 20_000));
    rig.assert_idle();
}

#[test]
fn a_full_queue_refuses_at_once_and_says_when_to_come_back() {
    let rig = Rig::new();
    let held: Vec<Call> = (0..4).map(|at| rig.begin(PROFILE, rig.caller(&format!("held-{at}")))).collect();
    assert_eq!(rig.busy(PROFILE), (2, 2));
    let status = rig.at_once(PROFILE, rig.caller("fifth")).expect_err("full");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let delay = status.get_error_details().retry_info().and_then(|info| info.retry_delay);
    assert_eq!(delay.map(Nanos::from), Some(ms(50)));
    assert_eq!(status.metadata().get(headers::RETRY_PUSHBACK).expect("a pushback"), "50");
    assert_eq!(rig.entry("fifth"), Told::new("overload", 0, 0));
    assert_eq!(rig.busy(PROFILE), (2, 2), "it took no place");
    drop(held);
    assert_eq!(rig.counts(PROFILE).of(Outcome::Overload), 1);
    rig.assert_idle();
}

#[test]
fn a_waiter_that_leaves_frees_its_place_for_the_next() {
    let rig = Rig::new();
    let mut served = vec![rig.begin(PROFILE, rig.caller("one")), rig.begin(PROFILE, rig.caller("two"))];
    let leaver = rig.begin(PROFILE, rig.caller("leaver"));
    let mut last = rig.begin(PROFILE, rig.caller("last"));
    rig.advance(ms(7));
    drop(leaver);
    assert_eq!(rig.busy(PROFILE), (2, 1));
    assert_eq!(rig.entry("leaver"), Told::new("cancelled", 7, 0));
    let newcomer = rig.begin(PROFILE, rig.caller("newcomer"));
    rig.advance(ms(13));
    assert_eq!(settle(&mut served), [Code::Ok; 2]);
    // Granted, and gone before it looked: the server is not lost with it.
    drop(newcomer);
    assert_eq!(rig.entry("newcomer"), Told::new("cancelled", 13, 0));
    assert!(last.look().is_none());
    assert_eq!(rig.busy(PROFILE), (1, 0));
    rig.advance(SERVICE);
    assert_eq!(timing(last.look()), (20_000, 20_000));
    rig.assert_idle();
}

#[test]
fn a_call_in_service_that_leaves_frees_its_server_at_once() {
    let rig = Rig::new();
    let leaver = rig.begin(PROFILE, rig.bounded("leaver", ms(500)));
    let mut stays = vec![rig.begin(PROFILE, rig.caller("stays"))];
    let mut waiter = rig.begin(PROFILE, rig.caller("waiter"));
    rig.advance(ms(3));
    drop(leaver);
    assert_eq!(rig.entry("leaver"), Told::new("cancelled", 0, 3));
    assert!(waiter.look().is_none());
    assert_eq!(rig.busy(PROFILE), (2, 0), "the waiter is in service");
    rig.advance(SERVICE);
    assert_eq!(settle(&mut stays), [Code::Ok]);
    assert_eq!(timing(waiter.look()), (3_000, 20_000));
    assert_eq!(rig.counts(PROFILE).of(Outcome::Cancelled), 1);
    rig.assert_idle();
}

#[test]
fn a_deadline_in_the_queue_ends_the_call_on_the_spot() {
    let rig = Rig::new();
    let mut served = vec![rig.begin(PROFILE, rig.caller("one")), rig.begin(PROFILE, rig.caller("two"))];
    let mut short = rig.begin(PROFILE, rig.bounded("short", ms(8)));
    rig.advance(ms(8) - NANO);
    assert!(short.look().is_none());
    rig.advance(NANO);
    assert_eq!(code(&short.look().expect("due")), Code::DeadlineExceeded);
    assert_eq!(rig.entry("short"), Told::new("deadline", 8, 0));
    assert_eq!(rig.busy(PROFILE), (2, 0), "its place is free");
    rig.advance(ms(12));
    assert_eq!(settle(&mut served), [Code::Ok; 2]);
    rig.assert_idle();
}

#[test]
fn a_deadline_in_service_frees_the_server_for_the_next() {
    let rig = Rig::new();
    let mut stays = vec![rig.begin(PROFILE, rig.caller("stays"))];
    let mut short = rig.begin(PROFILE, rig.bounded("short", ms(6)));
    let mut waiter = rig.begin(PROFILE, rig.caller("waiter"));
    rig.advance(ms(6));
    assert_eq!(code(&short.look().expect("due")), Code::DeadlineExceeded);
    assert_eq!(rig.entry("short"), Told::new("deadline", 0, 6));
    assert!(waiter.look().is_none());
    assert_eq!(rig.busy(PROFILE), (2, 0));
    rig.advance(SERVICE);
    assert_eq!(settle(&mut stays), [Code::Ok]);
    assert_eq!(timing(waiter.look()), (6_000, 20_000));
    assert_eq!(rig.counts(PROFILE).of(Outcome::Deadline), 1);
    rig.assert_idle();
}

#[test]
fn a_deadline_at_the_end_of_the_service_has_passed_and_a_nanosecond_later_it_has_not() {
    let rig = Rig::new();
    let mut exact = rig.begin(PROFILE, rig.bounded("exact", SERVICE));
    let mut enough = rig.begin(PROFILE, rig.bounded("enough", SERVICE + NANO));
    rig.advance(SERVICE);
    assert_eq!(code(&exact.look().expect("due")), Code::DeadlineExceeded);
    assert_eq!(code(&enough.look().expect("due")), Code::Ok);
    assert_eq!(code(&rig.at_once(PROFILE, rig.bounded("none", Nanos::ZERO))), Code::DeadlineExceeded);
    assert_eq!(rig.entry("none"), Told::new("deadline", 0, 0));
    rig.assert_idle();
}

#[test]
fn work_that_stopped_after_its_deadline_says_how_late_it_was() {
    let rig = Rig::new();
    let mut polled_late = rig.begin(PROFILE, rig.bounded("polled", ms(5)));
    let dropped_late = rig.begin(PROFILE, rig.bounded("dropped", ms(6)));
    rig.advance(ms(8));
    assert_eq!(code(&polled_late.look().expect("due")), Code::DeadlineExceeded);
    assert_eq!(rig.entry("polled"), Told { late_us: 3_000, ..Told::new("deadline", 0, 8) });
    // Whoever lets go of an expired call does not make it a cancelled one.
    drop(dropped_late);
    assert_eq!(rig.entry("dropped"), Told { late_us: 2_000, ..Told::new("deadline", 0, 8) });
    rig.assert_idle();
}

#[test]
fn what_the_data_set_does_not_have_is_not_found_after_its_service() {
    let rig = Rig::new();
    let mut call = rig.prepare(PROFILE, rig.caller("op"), false);
    assert!(call.look().is_none());
    rig.advance(SERVICE);
    assert_eq!(code(&call.look().expect("due")), Code::NotFound);
    assert_eq!(rig.entry("op"), Told::new("not_found", 0, 20));
    rig.assert_idle();
}

#[test]
fn the_journal_tells_who_called_in_order_of_arrival() {
    let rig = Rig::new();
    let mut metadata = MetadataMap::new();
    for (name, value) in [
        (headers::CLASS, "enterprise"),
        (headers::REQUEST_ID, "op-7"),
        (headers::ATTEMPT, "3"),
        (headers::BUDGET_TRAIL, "300000,270000"),
        (headers::GRPC_TIMEOUT, "250m"),
    ] {
        metadata.insert(name, value.parse().expect("ASCII"));
    }
    let deadline = Deadline::after(START, ms(250));
    let caller = Caller { deadline, ..Caller::read(&metadata, &Extensions::new(), START) };
    let long = rig.begin(PROFILE, caller);
    rig.advance(MS);
    let mut short = rig.begin(Dependency::Pricing, rig.caller("op-8"));
    rig.advance(SERVICE);
    assert_eq!(code(&short.look().expect("due")), Code::Ok);
    drop(long);
    let books = rig.engine.books();
    let (entries, dropped) = books.journal(9, &Wanted::default());
    let [first, second] = entries[..] else { panic!("two calls: {entries:?}") };
    assert_eq!((first.sequence, second.sequence, dropped), (1, 2, 0), "although the second ended first");
    assert_eq!((first.dependency, &*first.request_id, first.attempt), (PROFILE, "op-7", 3));
    assert_eq!((first.class, first.trail.hops()), (WorkloadClass::Enterprise, &[300_000, 270_000][..]));
    assert_eq!((first.budget.map(|budget| budget.get()), first.arrived), (Some(250_000), START));
    assert_eq!((second.dependency, &*second.request_id, second.attempt), (Dependency::Pricing, "op-8", 1));
    assert_eq!((second.class, second.trail.hops().len()), (WorkloadClass::Standard, 0));
    assert_eq!((second.budget, second.arrived), (None, START + MS));
}

#[test]
fn the_same_call_draws_the_same_whatever_came_before_it() {
    let draw = |before: usize, attempt| {
        let rig = Rig::new();
        for at in 0..before {
            drop(rig.begin(PROFILE, rig.caller(&format!("other-{at}"))));
        }
        let subject = Subject { dependency: PROFILE, operation: "Fetch", key: 7 };
        let caller = Caller { attempt, ..rig.caller("op") };
        let engine = Arc::clone(&rig.engine);
        let drawn = async move { engine.serve(subject, caller, |_, call, _| Some(call)).await };
        let mut call = crate::testing::ByHand::new(drawn);
        assert!(call.look().is_none());
        rig.advance(SERVICE);
        call.look().expect("due").expect("an answer").into_inner()
    };
    assert_eq!(draw(0, 1), draw(5, 1));
    assert_ne!(draw(0, 1), draw(0, 2));
}

#[test]
fn a_reset_forgets_everything_and_returns_to_the_first_phase() {
    let rig = Rig::new();
    rig.engine.set_phase("slowdown").expect("a phase");
    rig.engine.pool(PROFILE).set_capacity(scenario::Capacity { servers: 5, queue_max: 0 });
    let hang = rig.inject(PROFILE, FaultEffect::Hang);
    let mut hanging = rig.begin(PROFILE, rig.caller("hanging"));
    let mut working = rig.begin(Dependency::Pricing, rig.caller("working"));
    rig.advance(SERVICE);
    assert_eq!(code(&working.look().expect("due")), Code::Ok);
    assert!(rig.engine.alarms.lateness_p99().is_some());

    let mut across = rig.begin(Dependency::Pricing, rig.caller("across"));
    rig.engine.reset();
    assert_eq!(rig.engine.phase().name, "peak");
    let first = rig.engine.scenario.phases()[0].dependency(PROFILE).capacity;
    let load = rig.load(PROFILE);
    assert_eq!((load.capacity, load.in_service, load.peak_in_service), (first, 1, 1));
    assert_eq!(rig.load(Dependency::Pricing).capacity.servers, 2);
    assert_eq!(rig.engine.alarms.lateness_p99(), None);
    assert_eq!(rig.engine.faults().clear(hang, rig.now()), 0);

    // What hung is let go, and calls from before end as they would have, without entering the new books.
    assert_eq!(code(&hanging.look().expect("let go")), Code::Unavailable);
    rig.advance(SERVICE);
    assert_eq!(code(&across.look().expect("due")), Code::Ok);
    for id in ["hanging", "working", "across"] {
        assert!(rig.is_open(id), "{id} is not in the new journal");
    }
    rig.assert_idle();
    assert!(Dependency::ALL.iter().all(|dependency| rig.counts(*dependency).calls == 0));
    let books = rig.engine.books();
    assert_eq!(books.ended(Dependency::Pricing, Outcome::Ok), 2, "metrics go on counting");
}

#[derive(Clone, Debug)]
enum Step {
    /// A call with this budget in milliseconds, if any.
    Call(Option<u64>),
    /// Somebody leaves.
    Leave(usize),
    /// Milliseconds pass.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::option::of(0_u64..60).prop_map(Step::Call),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => (1_u64..15).prop_map(Step::Pass),
    ]
}

/// What must hold at any time.
fn check(rig: &Rig, calls: &[Call]) -> Result<(), TestCaseError> {
    let load = rig.load(PROFILE);
    prop_assert!(load.in_service <= 2 && load.peak_in_service <= 2 && load.queued <= 2, "{load:?}");
    prop_assert!(load.queued == 0 || load.in_service == 2, "nobody waits beside a free server: {load:?}");
    prop_assert_eq!((load.in_service + load.queued) as usize, calls.len());
    Ok(())
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_the_account(steps in proptest::collection::vec(step(), 0..80)) {
        let rig = Rig::new();
        let mut calls: Vec<Call> = Vec::new();
        let mut budgets = Vec::new();
        for step in steps {
            match step {
                Step::Call(budget) => {
                    let full = rig.busy(PROFILE) == (2, 2);
                    let id = budgets.len().to_string();
                    let caller = match budget {
                        Some(budget) => rig.bounded(&id, ms(budget)),
                        None => rig.caller(&id),
                    };
                    budgets.push(budget);
                    let mut call = rig.prepare(PROFILE, caller, true);
                    match call.look() {
                        None => calls.push(call),
                        Some(answer) if full => prop_assert_eq!(code(&answer), Code::ResourceExhausted),
                        Some(answer) => {
                            prop_assert_eq!((code(&answer), budget), (Code::DeadlineExceeded, Some(0)));
                        }
                    }
                }
                Step::Leave(which) if !calls.is_empty() => drop(calls.remove(which % calls.len())),
                Step::Leave(_) => {}
                Step::Pass(millis) => for _ in 0..millis {
                    rig.advance(MS);
                    settle(&mut calls);
                    check(&rig, &calls)?;
                },
            }
            settle(&mut calls);
            check(&rig, &calls)?;
        }
        drop(calls);
        rig.assert_idle();
        let books = rig.engine.books();
        let (entries, _) = books.journal(usize::MAX, &Wanted::default());
        prop_assert_eq!(entries.len(), budgets.len(), "every call has an entry");
        let mut begun = START;
        for (entry, budget) in entries.iter().zip(budgets) {
            let (wait, service) = (entry.queue_wait.get(), entry.service.get());
            let budget_us = budget.map(|millis| millis as u32 * 1_000);
            prop_assert_eq!(entry.late.get(), 0, "{:?}", entry);
            let spent = Nanos::from_micros(u64::from(wait) + u64::from(service));
            prop_assert_eq!(entry.ended, entry.arrived + spent, "{:?}", entry);
            match entry.outcome {
                Outcome::Ok => prop_assert!(service == 20_000 && budget_us.is_none_or(|most| wait + service < most)),
                Outcome::Deadline => prop_assert_eq!(Some(wait + service), budget_us),
                Outcome::Cancelled => prop_assert!(service < 20_000 && budget_us.is_none_or(|most| wait + service < most)),
                other => prop_assert_eq!((other, wait, service), (Outcome::Overload, 0, 0)),
            }
            if service > 0 {
                let from = entry.arrived + Nanos::from_micros(wait.into());
                prop_assert!(from >= begun, "served before one that had come earlier: {:?}", entry);
                begun = from;
            }
        }
    }
}
