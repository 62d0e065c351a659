//! Admission, tested: the configuration, each rule alone, the known cases in virtual time, and any history at all.

mod cases;
mod config;
mod properties;

use WorkloadClass::{Enterprise, Premium, Standard};

use super::*;

const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

const fn permits(floor: u32, ceiling: u32) -> Partition {
    Partition { floor: Bound::Permits(floor), ceiling: Bound::Permits(ceiling) }
}

/// Ten permits; floors 5, 3 and 1, so that one is for whoever comes; four places for each class, for 50 ms at most.
const SETTINGS: Settings = Settings {
    limit: 10,
    partitions: [permits(5, 9), permits(3, 6), permits(1, 2)],
    waiting: Waiting::Bounded { count_max: [4; CLASSES], age_max: ms(50) },
    choice: Choice::Share,
    retry_after: ms(10),
};

/// The old design: one pool for all, and a wait without end.
const LEGACY: Settings = Settings {
    limit: 10,
    partitions: [Partition::OPEN; CLASSES],
    waiting: Waiting::Unbounded,
    choice: Choice::Oldest,
    retry_after: ms(10),
};

fn gate(settings: Settings) -> Gate {
    Gate::new(settings.validate().expect("sound settings"))
}

/// Work that arrives now, has 200 ms and needs 20.
fn arrival(class: WorkloadClass, now: Nanos) -> Arrival {
    Arrival { class, arrived: now, deadline: Deadline::after(now, ms(200)), useful: ms(20) }
}

/// An offer that must be admitted.
fn admit(gate: &mut Gate, class: WorkloadClass, now: Nanos) -> Permit {
    match gate.offer(arrival(class, now), now) {
        Offer::Admitted(permit) => permit,
        other => panic!("{class} was not admitted: {other:?}"),
    }
}

/// An offer that must wait.
fn queue(gate: &mut Gate, class: WorkloadClass, now: Nanos) -> Ticket {
    match gate.offer(arrival(class, now), now) {
        Offer::Queued { ticket, .. } => ticket,
        other => panic!("{class} was not queued: {other:?}"),
    }
}

/// An offer that must be turned away.
fn refuse(gate: &mut Gate, class: WorkloadClass, now: Nanos) -> Rejection {
    match gate.offer(arrival(class, now), now) {
        Offer::Rejected(rejection) => rejection,
        other => panic!("{class} was not rejected: {other:?}"),
    }
}

fn woken(gate: &mut Gate) -> Vec<WaiterId> {
    std::iter::from_fn(|| gate.next_woken()).collect()
}

fn fetch(gate: &mut Gate, ticket: Ticket, now: Nanos) -> (Permit, Nanos) {
    match gate.check(ticket, now) {
        Verdict::Granted { permit, age } => (permit, age),
        other => panic!("not granted: {other:?}"),
    }
}

fn dropped(gate: &mut Gate, ticket: Ticket, now: Nanos) -> (Expiry, Nanos) {
    match gate.check(ticket, now) {
        Verdict::Dropped { reason, age } => (reason, age),
        other => panic!("not dropped: {other:?}"),
    }
}

fn assert_balanced(gate: &Gate) {
    for class in WorkloadClass::ALL {
        let standing = gate.standing(class);
        assert!(standing.balances(), "{class}: {standing:?}");
    }
}

/// A clock that must not be read.
fn no_clock() -> Nanos {
    panic!("the clock was read although nobody waits")
}

#[test]
fn floors_are_kept_free_and_ceilings_are_not_passed() {
    let mut gate = gate(SETTINGS);
    let now = ms(1);
    // Standard has its five and the one that is for anybody; the other four are promised.
    let _held: Vec<_> = (0..6).map(|_| admit(&mut gate, Standard, now)).collect();
    let _waits = queue(&mut gate, Standard, now);
    // Their floors are there for them, though standard waits.
    let _premium: Vec<_> = (0..3).map(|_| admit(&mut gate, Premium, now)).collect();
    let _enterprise = admit(&mut gate, Enterprise, now);
    assert_eq!((gate.held(), gate.peak()), (10, 10));
    let _waits_too = queue(&mut gate, Enterprise, now);
    assert_balanced(&gate);
}

#[test]
fn a_ceiling_binds_in_an_empty_gate() {
    let mut gate = gate(SETTINGS);
    let _first = admit(&mut gate, Enterprise, ms(1));
    let second = admit(&mut gate, Enterprise, ms(1));
    let third = queue(&mut gate, Enterprise, ms(1));
    let _premium = admit(&mut gate, Premium, ms(1));
    gate.release(second, || ms(2));
    assert_eq!(woken(&mut gate), [third.id()]);
    let (_permit, age) = fetch(&mut gate, third, ms(2));
    assert_eq!((age, gate.standing(Enterprise).held), (ms(1), 2));
    assert_balanced(&gate);
}

#[test]
fn the_clock_is_not_read_while_nobody_waits() {
    let mut gate = gate(SETTINGS);
    let permit = admit(&mut gate, Standard, ms(1));
    assert_eq!(permit.class(), Standard);
    gate.release(permit, no_clock);
    assert_eq!((gate.held(), gate.next_woken()), (0, None));
}

#[test]
fn the_queue_is_bounded_by_count_for_each_class_apart() {
    let mut gate = gate(SETTINGS);
    let _held: Vec<_> = (0..6).map(|_| admit(&mut gate, Standard, ms(1))).collect();
    let _waiting: Vec<_> = (0..4).map(|_| queue(&mut gate, Standard, ms(1))).collect();
    let rejection = refuse(&mut gate, Standard, ms(41));
    assert_eq!(rejection.reason, Reject::QueueFull);
    // The head has waited 40 ms: come back after that, spread over as much again.
    assert!((ms(40)..ms(80)).contains(&rejection.retry_after), "{rejection:?}");
    assert_eq!(gate.standing(Standard).books.rejected, [1, 0, 0]);
    // Another class's places are its own.
    let _premium: Vec<_> = (0..3).map(|_| admit(&mut gate, Premium, ms(41))).collect();
    let _waits = queue(&mut gate, Premium, ms(41));
    assert_eq!((gate.oldest_age(ms(45)), gate.head_age(Premium, ms(45))), (Some(ms(44)), Some(ms(4))));
    assert_balanced(&gate);
}

#[test]
fn those_whose_time_is_up_make_room_before_anybody_is_refused() {
    let mut gate = gate(SETTINGS);
    let _held: Vec<_> = (0..6).map(|_| admit(&mut gate, Standard, ms(1))).collect();
    let old: Vec<_> = (0..4).map(|_| queue(&mut gate, Standard, ms(1))).collect();
    let _young = queue(&mut gate, Standard, ms(51));
    assert_eq!(woken(&mut gate), old.iter().map(Ticket::id).collect::<Vec<_>>());
    for ticket in old {
        assert_eq!(dropped(&mut gate, ticket, ms(60)), (Expiry::TooOld, ms(50)));
    }
    assert_balanced(&gate);
}

#[test]
fn who_cannot_finish_is_refused_at_once_and_dropped_at_dequeue() {
    let mut gate = gate(LEGACY);
    let offered =
        |left: Nanos| Arrival { deadline: Deadline::after(ms(100), left), ..arrival(Standard, ms(100)) };
    let Offer::Rejected(rejection) = gate.offer(offered(Nanos::new(ms(20).get() - 1)), ms(100)) else {
        panic!("a nanosecond too little must be refused, though the gate is empty")
    };
    assert_eq!(rejection.reason, Reject::CannotFinish);
    assert!(rejection.retry_after >= ms(10));
    let Offer::Admitted(permit) = gate.offer(offered(ms(20)), ms(100)) else {
        panic!("exactly the useful span is enough")
    };
    let _others: Vec<_> = (0..9).map(|_| admit(&mut gate, Standard, ms(100))).collect();
    let Offer::Queued { ticket: short, give_up_at } = gate.offer(offered(ms(30)), ms(100)) else {
        panic!("there is time to wait")
    };
    assert_eq!(give_up_at, Nanos::new(ms(110).get() + 1));
    let long = queue(&mut gate, Standard, ms(105));
    // At the very instant it is dropped, and the permit goes to the next.
    gate.release(permit, || give_up_at);
    assert_eq!(woken(&mut gate), [short.id(), long.id()]);
    assert_eq!(dropped(&mut gate, short, ms(120)).0, Expiry::CannotFinish);
    let (_permit, age) = fetch(&mut gate, long, ms(120));
    assert_eq!(age, give_up_at - ms(105));
    assert_balanced(&gate);
}

#[test]
fn a_permit_fetched_too_late_goes_on_to_the_next() {
    let mut gate = gate(LEGACY);
    let mut held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    let stalled = queue(&mut gate, Standard, ms(0));
    let next = queue(&mut gate, Premium, ms(150));
    gate.release(held.pop().expect("ten"), || ms(160));
    assert_eq!(woken(&mut gate), [stalled.id()]);
    // Its executor stood still; with 19 ms left it is of no use.
    assert_eq!(dropped(&mut gate, stalled, ms(181)), (Expiry::CannotFinish, ms(181)));
    assert_eq!(woken(&mut gate), [next.id()]);
    let (_permit, age) = fetch(&mut gate, next, ms(182));
    assert_eq!((age, gate.held()), (ms(31), 10));
    assert_balanced(&gate);
}

#[test]
fn who_leaves_frees_the_place_or_passes_the_permit_on() {
    let mut gate = gate(LEGACY);
    let mut held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    let [first, second, third] = [(); 3].map(|()| queue(&mut gate, Standard, ms(1)));
    gate.abandon(second, no_clock);
    gate.release(held.pop().expect("ten"), || ms(2));
    assert_eq!(gate.standing(Standard).handed, 1);
    // Not woken yet, and gone already.
    gate.abandon(first, || ms(3));
    assert_eq!(woken(&mut gate), [third.id()]);
    let (permit, _) = fetch(&mut gate, third, ms(3));
    held.push(permit);
    assert_eq!(gate.standing(Standard).books.abandoned, 2);
    held.into_iter().for_each(|permit| gate.release(permit, no_clock));
    assert_eq!((gate.held(), gate.waiting()), (0, 0));
    assert_balanced(&gate);
}

#[test]
fn a_check_before_its_turn_keeps_the_place() {
    let mut gate = gate(SETTINGS);
    let mut held: Vec<_> = (0..6).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    let first = queue(&mut gate, Standard, ms(0));
    let _second = queue(&mut gate, Standard, ms(0));
    let Verdict::Waiting { ticket: first, give_up_at } = gate.check(first, ms(49)) else {
        panic!("its time is not up")
    };
    assert_eq!(give_up_at, ms(50));
    gate.release(held.pop().expect("six"), || ms(49));
    assert_eq!(woken(&mut gate), [first.id()]);
    let _permit = fetch(&mut gate, first, ms(50));
    assert_balanced(&gate);
}

#[test]
fn an_arrival_that_spent_its_age_before_the_offer_does_not_wait() {
    let mut gate = gate(SETTINGS);
    let late = |class| Arrival { arrived: ms(0), ..arrival(class, ms(50)) };
    // With a permit free its age is no matter.
    assert!(matches!(gate.offer(late(Enterprise), ms(50)), Offer::Admitted(_)));
    let _held = admit(&mut gate, Enterprise, ms(50));
    let Offer::Rejected(rejection) = gate.offer(late(Enterprise), ms(50)) else {
        panic!("nothing is left of its time to wait")
    };
    assert_eq!(rejection.reason, Reject::TooOld);
    assert_balanced(&gate);
}

#[test]
fn without_places_nobody_waits() {
    let waiting = Waiting::Bounded { count_max: [0; CLASSES], age_max: Nanos::ZERO };
    let mut gate = gate(Settings { waiting, ..LEGACY });
    let _held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    assert_eq!(refuse(&mut gate, Standard, ms(0)).reason, Reject::QueueFull);
}

#[test]
fn refused_together_do_not_come_back_together() {
    let waiting = Waiting::Bounded { count_max: [0; CLASSES], age_max: Nanos::ZERO };
    let mut gate = gate(Settings { waiting, ..LEGACY });
    let _held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    let hints: std::collections::BTreeSet<_> =
        (0..100).map(|_| refuse(&mut gate, Standard, ms(0)).retry_after).collect();
    assert!(hints.iter().all(|hint| (ms(10)..ms(20)).contains(hint)));
    assert_eq!(hints.len(), 100);
}

#[test]
fn by_share_the_flood_of_one_class_gains_nothing() {
    let held_after = |choice| {
        let mut gate = gate(Settings {
            limit: 30,
            partitions: [permits(0, 30), permits(0, 20), permits(0, 10)],
            waiting: Waiting::Bounded { count_max: [100; CLASSES], age_max: ms(1_000) },
            choice,
            retry_after: ms(10),
        });
        let mut held: Vec<_> = (0..30).map(|_| admit(&mut gate, Standard, ms(0))).collect();
        let mut tickets = Vec::new();
        // Enterprise was there first, and often.
        for (class, count) in [(Enterprise, 60), (Premium, 60), (Standard, 60)] {
            tickets.extend((0..count).map(|_| queue(&mut gate, class, ms(1))));
        }
        for permit in held.drain(..) {
            gate.release(permit, || ms(2));
        }
        WorkloadClass::ALL.map(|class| gate.standing(class).held)
    };
    assert_eq!(held_after(Choice::Share), [15, 10, 5], "as the ceilings are");
    assert_eq!(held_after(Choice::Oldest)[Enterprise.index()], 10, "up to its ceiling");
}

#[test]
fn by_age_the_oldest_head_goes_first() {
    let mut gate = gate(LEGACY);
    let mut held: Vec<_> = (0..10).map(|_| admit(&mut gate, Premium, ms(0))).collect();
    let order = [Enterprise, Standard, Premium, Standard, Enterprise];
    let tickets: Vec<_> = (1..).zip(order).map(|(at, class)| queue(&mut gate, class, ms(at))).collect();
    held.drain(..5).for_each(|permit| gate.release(permit, || ms(9)));
    assert_eq!(woken(&mut gate), tickets.iter().map(Ticket::id).collect::<Vec<_>>());
}

#[test]
fn a_higher_limit_lets_waiters_in_at_once() {
    let mut gate = gate(LEGACY);
    let _held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    let tickets: Vec<_> = (0..3).map(|_| queue(&mut gate, Standard, ms(0))).collect();
    let more = Settings { limit: 12, ..LEGACY }.validate().expect("sound settings");
    gate.reconfigure(more, ms(1));
    assert_eq!(woken(&mut gate), tickets[..2].iter().map(Ticket::id).collect::<Vec<_>>());
    assert_eq!((gate.held(), gate.waiting(), gate.config().limit()), (12, 1, 12));
    assert_balanced(&gate);
}

#[test]
fn a_lower_bound_on_age_drops_those_beyond_it() {
    let mut gate = gate(LEGACY);
    let _held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    let old = queue(&mut gate, Standard, ms(0));
    let young = queue(&mut gate, Standard, ms(30));
    let waiting = Waiting::Bounded { count_max: [1; CLASSES], age_max: ms(40) };
    gate.reconfigure(Settings { waiting, ..LEGACY }.validate().expect("sound settings"), ms(45));
    assert_eq!(woken(&mut gate), [old.id()]);
    assert_eq!(dropped(&mut gate, old, ms(45)), (Expiry::TooOld, ms(45)));
    let Verdict::Waiting { give_up_at, .. } = gate.check(young, ms(45)) else { panic!("it is young") };
    assert_eq!(give_up_at, ms(70));
    assert_balanced(&gate);
}

#[test]
fn peaks_start_anew_from_what_is_out() {
    let mut gate = gate(LEGACY);
    let mut held: Vec<_> = (0..7).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    held.drain(..4).for_each(|permit| gate.release(permit, no_clock));
    assert_eq!((gate.peak(), gate.standing(Standard).peak), (7, 7));
    gate.reset_peaks();
    assert_eq!((gate.peak(), gate.standing(Standard).peak), (3, 3));
}

#[test]
fn who_would_not_wait_is_told_at_once_and_booked_apart() {
    let mut gate = gate(SETTINGS);
    let now = ms(1);
    let held: Vec<_> = std::iter::from_fn(|| gate.try_offer(arrival(Standard, now), now).ok()).collect();
    assert_eq!(held.len(), 6, "its own five, and the one that is for anybody");
    let before = gate.standing(Standard).books;
    assert_eq!((before.admitted, before.missed, before.queued, before.rejected), (6, 1, 0, [0; 3]));
    let waits = queue(&mut gate, Standard, now);
    // The hint is a rejection's: what the head has waited, and as much again.
    let rejection = gate.try_offer(arrival(Standard, ms(41)), ms(41)).expect_err("none is free");
    assert_eq!(rejection.reason, Reject::QueueFull);
    assert!((ms(40)..ms(80)).contains(&rejection.retry_after), "{rejection:?}");
    // The head's time is up, but this caller takes no place, so nothing is decided about it.
    let rejection = gate.try_offer(arrival(Standard, ms(99)), ms(99)).expect_err("none is free");
    assert_eq!((rejection.reason, gate.waiting(), gate.next_woken()), (Reject::QueueFull, 1, None));
    // Another class's floor is there for it though somebody waits, and who cannot finish is not let in all the same.
    let late = Arrival { deadline: Deadline::after(ms(99), ms(19)), ..arrival(Premium, ms(99)) };
    assert_eq!(gate.try_offer(late, ms(99)).expect_err("too late").reason, Reject::CannotFinish);
    let premium = gate.try_offer(arrival(Premium, ms(99)), ms(99)).expect("its floor is free");
    let Books { missed, rejected, .. } = gate.standing(Standard).books;
    assert_eq!((missed, rejected), (3, [0; 3]));
    assert_eq!(gate.standing(Premium).books.rejected, [0, 1, 0]);
    assert_balanced(&gate);
    gate.abandon(waits, no_clock);
    held.into_iter().chain([premium]).for_each(|permit| gate.release(permit, no_clock));
    assert!(gate.idle());
    assert_balanced(&gate);
}

#[test]
fn a_gate_is_idle_once_everybody_was_woken() {
    let mut gate = gate(LEGACY);
    let mut held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    assert!(gate.idle() && !gate.has_room());
    let ticket = queue(&mut gate, Standard, ms(0));
    assert!(!gate.idle());
    gate.release(held.pop().expect("ten"), || ms(1));
    assert_eq!((gate.idle(), gate.waiting()), (false, 0), "decided about, and not woken");
    assert_eq!((woken(&mut gate), gate.idle()), (vec![ticket.id()], true));
    held.push(fetch(&mut gate, ticket, ms(1)).0);
    held.into_iter().for_each(|permit| gate.release(permit, no_clock));
    assert_balanced(&gate);
}

#[test]
fn names_are_unique() {
    let rejects: std::collections::BTreeSet<_> = Reject::ALL.iter().map(|reason| reason.as_str()).collect();
    let expiries: std::collections::BTreeSet<_> = Expiry::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!((rejects.len(), expiries.len()), (Reject::ALL.len(), Expiry::ALL.len()));
    assert!((0..).zip(Reject::ALL).all(|(at, reason)| reason as usize == at));
    assert!((0..).zip(Expiry::ALL).all(|(at, reason)| reason as usize == at));
}
