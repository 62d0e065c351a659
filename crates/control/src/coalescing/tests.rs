//! Coalescing, tested: the rules at their bounds, and all of them at once against a plain model.

mod model;
mod shadow;

use super::*;

const RULES: Rules = Rules {
    freshness_window: Nanos::from_millis(50),
    useful_min: Nanos::from_millis(20),
    duration_max: Nanos::from_millis(400),
    flights_max: 8,
    waiters_max: 1_000,
};

const START: Nanos = Nanos::from_secs(9);

/// The instant `millis` after the start.
fn at(millis: u64) -> Nanos {
    START + Nanos::from_millis(millis)
}

fn by(millis: u64) -> Deadline {
    Deadline::at(at(millis))
}

type Table = Flights<&'static str, u32>;

fn enter(table: &mut Table, rules: &Rules, now_ms: u64, by_ms: u64, value: u32) -> Entry {
    table.enter(rules, "key", at(now_ms), by(by_ms), value).expect("there is room and time")
}

fn is_leader(entry: &Entry) -> bool {
    matches!(entry.role, Role::Leader { .. })
}

fn instead_of(entry: &Entry) -> Option<NoJoin> {
    match entry.role {
        Role::Leader { instead_of, .. } => instead_of,
        Role::Follower { .. } => panic!("joined: {entry:?}"),
    }
}

#[test]
fn identical_reads_share_one_flight_and_each_is_told() {
    let mut table = Table::new();
    let leader = enter(&mut table, &RULES, 0, 300, 0);
    assert!(is_leader(&leader));
    for value in 1..200 {
        let follower = enter(&mut table, &RULES, 1, 300, value);
        assert_eq!(follower.role, Role::Follower { extended: false });
        assert_eq!(follower.waiter.flight(), leader.waiter.flight());
    }
    assert_eq!(table.len(), 1);
    assert_eq!(table.waiters(leader.waiter.flight()), Some(200));
    let told = table.end(leader.waiter.flight(), Ending::Completed).expect("open");
    assert_eq!(told.to_vec(), (0..200).collect::<Vec<_>>());
    assert!(table.is_empty() && table.joinable.is_empty());
    assert_eq!((table.counts().started, table.counts().joined, table.counts().group_sum), (1, 199, 200));
}

/// Case A06: the leader has 50 ms, the follower two seconds, the answer takes longer than the leader has.
#[test]
fn a_leader_that_leaves_harms_nobody_and_its_deadline_is_not_the_flights() {
    let mut table = Table::new();
    let rules = Rules { duration_max: Nanos::from_secs(3), ..RULES };
    let leader = enter(&mut table, &rules, 0, 50, 1);
    assert_eq!(leader.deadline, by(50));
    assert_eq!(leader.role, Role::Leader { limit: by(3_000), instead_of: None });
    let follower = enter(&mut table, &rules, 10, 2_000, 2);
    assert_eq!(follower.role, Role::Follower { extended: true });
    assert_eq!(follower.deadline, by(2_000));
    assert_eq!(table.leave(leader.waiter), Some(Left { value: 1, cancelled: None }));
    let flight = follower.waiter.flight();
    assert_eq!(table.expire(flight, at(50)), Some(Expiry::Until(by(2_000))));
    assert_eq!(table.end(flight, Ending::Completed).map(|told| told.to_vec()), Some(vec![2]));
}

#[test]
fn a_short_deadline_shortens_nothing_and_a_long_one_is_capped() {
    let mut table = Table::new();
    let leader = enter(&mut table, &RULES, 0, 300, 0);
    assert_eq!(enter(&mut table, &RULES, 1, 2, 1).deadline, by(300));
    assert_eq!(table.deadline(leader.waiter.flight()), Some(by(300)));
    let longest = enter(&mut table, &RULES, 2, 9_999, 2);
    assert_eq!((longest.deadline, longest.role), (by(400), Role::Follower { extended: true }));
    let again = enter(&mut table, &RULES, 3, 9_999, 3);
    assert_eq!((again.deadline, again.role), (by(400), Role::Follower { extended: false }));
    let mut alone = Table::new();
    assert_eq!(enter(&mut alone, &RULES, 0, 9_999, 0).deadline, by(400), "a leader is capped as well");
}

#[test]
fn successive_leaders_may_be_aborted_while_one_waits() {
    let mut table = Table::new();
    let mut current = enter(&mut table, &RULES, 0, 300, 0);
    for value in 1..250 {
        let next = enter(&mut table, &RULES, 1, 300, value);
        assert!(!is_leader(&next));
        assert_eq!(table.leave(current.waiter), Some(Left { value: value - 1, cancelled: None }));
        current = next;
    }
    let left = table.leave(current.waiter).expect("still waiting");
    assert_eq!(left.cancelled, Some(current.waiter.flight()));
    assert!(table.is_empty() && table.joinable.is_empty());
    assert_eq!((table.counts().started, table.counts().cancelled, table.counts().left), (1, 1, 250));
}

#[test]
fn a_flight_is_joined_up_to_the_freshness_window_and_not_beyond() {
    let mut table = Table::new();
    let first = enter(&mut table, &RULES, 0, 300, 0);
    assert!(!is_leader(&enter(&mut table, &RULES, 50, 300, 1)));
    let late =
        table.enter(&RULES, "key", at(50) + Nanos::new(1), by(300), 2).expect("there is room and time");
    assert_eq!(instead_of(&late), Some(NoJoin::Stale));
    let next = enter(&mut table, &RULES, 51, 300, 3);
    assert_eq!(next.waiter.flight(), late.waiter.flight(), "the younger flight is the one to join");
    assert_eq!(
        table.end(first.waiter.flight(), Ending::Completed).map(|told| told.to_vec()),
        Some(vec![0, 1])
    );
    assert!(!is_leader(&enter(&mut table, &RULES, 52, 300, 4)), "the older one's end frees no key");
}

#[test]
fn a_flight_is_joined_while_it_can_do_useful_work() {
    // The limit is what cannot be moved, so it is what cuts a flight short.
    let rules = Rules { duration_max: Nanos::from_millis(60), ..RULES };
    let mut table = Table::new();
    enter(&mut table, &rules, 0, 300, 0);
    assert!(!is_leader(&enter(&mut table, &rules, 40, 300, 1)));
    assert_eq!(instead_of(&enter(&mut table, &rules, 41, 300, 2)), Some(NoJoin::TooLittleLeft));

    let mut table = Table::new();
    enter(&mut table, &RULES, 0, 30, 0);
    assert_eq!(
        instead_of(&enter(&mut table, &RULES, 11, 30, 1)),
        Some(NoJoin::TooLittleLeft),
        "19 ms are left to either"
    );

    let mut table = Table::new();
    enter(&mut table, &RULES, 0, 30, 0);
    assert_eq!(enter(&mut table, &RULES, 11, 31, 1).role, Role::Follower { extended: true });
}

#[test]
fn a_flight_at_its_deadline_is_dying_and_not_joined() {
    let mut table = Table::new();
    let first = enter(&mut table, &RULES, 0, 30, 0);
    let second = enter(&mut table, &RULES, 30, 300, 1);
    assert_eq!(instead_of(&second), Some(NoJoin::Dying));
    assert_eq!(table.expire(first.waiter.flight(), at(30)), Some(Expiry::Ended([0].into_iter().collect())));
    assert_eq!(table.expire(first.waiter.flight(), at(30)), None);
    assert_eq!(table.counts().expired, 1);
    assert_eq!(table.len(), 1);
}

#[test]
fn a_full_group_is_followed_by_another_flight() {
    let rules = Rules { waiters_max: 3, ..RULES };
    let mut table = Table::new();
    let first = enter(&mut table, &rules, 0, 300, 0);
    let second = enter(&mut table, &rules, 0, 300, 1);
    assert!(!is_leader(&enter(&mut table, &rules, 0, 300, 2)));
    table.leave(second.waiter).expect("waiting");
    assert!(!is_leader(&enter(&mut table, &rules, 0, 300, 3)), "who left makes room");
    let other = enter(&mut table, &rules, 0, 300, 4);
    assert_eq!(instead_of(&other), Some(NoJoin::GroupFull));
    assert_ne!(other.waiter.flight(), first.waiter.flight());
    let alone = Rules { waiters_max: 0, ..RULES };
    assert_eq!(instead_of(&enter(&mut table, &alone, 0, 300, 5)), Some(NoJoin::GroupFull));
}

#[test]
fn a_full_table_refuses_flights_and_still_takes_followers() {
    let rules = Rules { flights_max: 2, ..RULES };
    let mut table = Table::new();
    let first = table.enter(&rules, "a", at(0), by(300), 0).expect("room");
    table.enter(&rules, "b", at(0), by(300), 1).expect("room for the second");
    assert_eq!(table.enter(&rules, "c", at(0), by(300), 2), Err(Refused::FlightsFull));
    assert_eq!(table.joinable.len(), 2, "a refused caller leaves nothing");
    assert!(!is_leader(&table.enter(&rules, "a", at(0), by(300), 3).expect("joins")));
    assert_eq!(table.enter(&rules, "a", at(51), by(300), 4), Err(Refused::FlightsFull), "would need its own");
    assert_eq!(table.end(first.waiter.flight(), Ending::Failed).map(|told| told.to_vec()), Some(vec![0, 3]));
    assert!(is_leader(&table.enter(&rules, "c", at(51), by(300), 5).expect("room again")));
    assert_eq!(table.enter(&rules, "c", at(51), by(51), 6), Err(Refused::Expired));
    assert_eq!(table.counts().refused, [1, 2]);
}

#[test]
fn a_failure_reaches_its_own_waiters_and_is_no_stampede() {
    for ending in [Ending::Failed, Ending::Panicked] {
        let mut table = Table::new();
        let leader = enter(&mut table, &RULES, 0, 300, 0);
        for value in 1..200 {
            assert!(!is_leader(&enter(&mut table, &RULES, 0, 300, value)));
        }
        assert_eq!(table.end(leader.waiter.flight(), ending).map(|told| told.len()), Some(200));
        assert_eq!(table.end(leader.waiter.flight(), ending), None, "nobody is told twice");
        // All of them come back at once.
        let leaders = (0..200).filter(|value| is_leader(&enter(&mut table, &RULES, 1, 300, *value))).count();
        assert_eq!(leaders, 1);
        assert_eq!((table.counts().failed + table.counts().panicked, table.counts().started), (1, 2));
    }
}

#[test]
fn ids_kept_too_long_do_nothing() {
    let mut table = Table::new();
    let old = enter(&mut table, &RULES, 0, 300, 0);
    let left_early = enter(&mut table, &RULES, 0, 300, 1);
    table.leave(left_early.waiter).expect("waiting");
    let in_its_place = enter(&mut table, &RULES, 0, 300, 2);
    assert_eq!(table.leave(left_early.waiter), None);
    table.end(old.waiter.flight(), Ending::Completed).expect("open");
    let new = enter(&mut table, &RULES, 1, 300, 3);
    assert_eq!(new.waiter.flight().index(), old.waiter.flight().index(), "the place is reused");
    let before = *table.counts();
    for waiter in [old.waiter, left_early.waiter, in_its_place.waiter] {
        assert_eq!(table.leave(waiter), None);
        assert_eq!(table.end(waiter.flight(), Ending::Failed), None);
        assert_eq!(table.expire(waiter.flight(), Nanos::MAX), None);
        assert_eq!((table.deadline(waiter.flight()), table.waiters(waiter.flight())), (None, None));
    }
    assert_eq!(*table.counts(), before);
    assert_eq!(table.waiters(new.waiter.flight()), Some(1));
}

/// Case A05: whatever a right or an answer depends on is in the key, and one difference is enough.
#[test]
fn one_difference_in_the_key_is_another_flight() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(&'static str, &'static str, u64, u32, u8);
    let keys = [
        Key("tenant-000", "user-00000", 7, 1, 0),
        Key("tenant-001", "user-00000", 7, 1, 0),
        Key("tenant-000", "user-00001", 7, 1, 0),
        Key("tenant-000", "user-00000", 8, 1, 0),
        Key("tenant-000", "user-00000", 7, 2, 0),
        Key("tenant-000", "user-00000", 7, 1, 1),
    ];
    let mut table = Flights::new();
    let mut flights = Vec::new();
    for key in &keys {
        let leader = table.enter(&RULES, key.clone(), at(0), by(300), ()).expect("room");
        let follower = table.enter(&RULES, key.clone(), at(1), by(300), ()).expect("joins");
        assert!(is_leader(&leader) && !is_leader(&follower), "sharing happens where the keys are equal");
        assert!(!flights.contains(&leader.waiter.flight()));
        flights.push(leader.waiter.flight());
    }
}

#[test]
fn names_are_unique_and_indices_are_positions() {
    let names: std::collections::BTreeSet<_> = NoJoin::ALL
        .iter()
        .map(|reason| reason.as_str())
        .chain(Refused::ALL.iter().map(|reason| reason.as_str()))
        .collect();
    assert_eq!(names.len(), NoJoin::ALL.len() + Refused::ALL.len());
    assert!(NoJoin::ALL.iter().enumerate().all(|(position, reason)| reason.index() == position));
    assert!(Refused::ALL.iter().enumerate().all(|(position, reason)| reason.index() == position));
    let outcomes = Counts::default().ended_by().map(|(outcome, _)| outcome);
    assert_eq!(outcomes.iter().collect::<std::collections::BTreeSet<_>>().len(), outcomes.len());
}

/// Every way in which a flight's work ends has a place of its own in the counts.
#[test]
fn each_ending_is_counted_as_what_it_was() {
    let mut table = Table::new();
    for ending in Ending::ALL {
        let leader = enter(&mut table, &RULES, 0, 300, 0);
        assert_eq!(table.end(leader.waiter.flight(), ending).map(|told| told.to_vec()), Some(vec![0]));
        let counted: Vec<_> =
            table.counts().ended_by().into_iter().filter(|(_, count)| *count == 1).collect();
        let so_far = Ending::ALL.iter().position(|other| *other == ending).expect("one of all") + 1;
        assert_eq!(counted.len(), so_far);
        assert!(counted.iter().any(|(outcome, _)| *outcome == ending.as_str()));
    }
    assert_eq!((table.counts().ended(), table.counts().open()), (4, 0));
}
