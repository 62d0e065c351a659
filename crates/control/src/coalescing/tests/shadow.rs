//! Shadow, tested: whose call stands for the flight's, and random histories beside a plain model.

use proptest::prelude::*;

use super::*;

type Shadow = Flights<u8, ()>;

fn board(table: &mut Shadow, now_ms: u64) -> Entry {
    table.enter(&RULES, 1, at(now_ms), by(300), ()).expect("there is room and time")
}

#[test]
fn the_leaders_call_is_the_flights() {
    let mut table = Shadow::new();
    let [leader, quick, slow] = [0, 1, 2].map(|now_ms| board(&mut table, now_ms).waiter);
    // A follower's own call may well end first; the one that would have been shared has not.
    assert!(!table.own_call_ended(quick, Ending::Failed));
    assert_eq!((table.waiters(leader.flight()), table.counts().left), (Some(2), 1));
    assert!(table.own_call_ended(leader, Ending::Completed));
    assert_eq!((table.counts().completed, table.counts().told), (1, 2));
    // Told with the others, so its own call is late and changes nothing.
    let before = *table.counts();
    assert!(!table.own_call_ended(slow, Ending::Failed) && !table.own_call_ended(leader, Ending::Failed));
    assert_eq!(table.leave(slow), None);
    assert_eq!(*table.counts(), before);
    assert!(is_leader(&board(&mut table, 3)), "the key was free at once");
    assert_eq!((before.joined, before.group_sum), (2, 3), "two calls of three would have been saved");
}

#[test]
fn once_the_leader_has_left_the_first_call_to_end_takes_its_place() {
    let mut table = Shadow::new();
    let [leader, first, second] = [0, 1, 2].map(|now_ms| board(&mut table, now_ms).waiter);
    assert_eq!(table.leave(leader), Some(Left { value: (), cancelled: None }));
    assert_eq!(board(&mut table, 3).waiter.flight(), leader.flight(), "the flight goes on, and is joined");
    assert!(!table.own_call_ended(leader, Ending::Completed), "it has left");
    assert!(table.own_call_ended(first, Ending::Completed));
    assert!(!table.own_call_ended(second, Ending::Completed));
    assert_eq!((table.counts().completed, table.counts().told, table.len()), (1, 3, 0));
}

/// Places are used again: who has the leader's is none the more a leader for it.
#[test]
fn the_leaders_place_is_not_the_leaders_part() {
    let mut table = Shadow::new();
    let [leader, stays] = [0, 1].map(|now_ms| board(&mut table, now_ms).waiter);
    table.leave(leader);
    assert_eq!(board(&mut table, 2).waiter.flight(), stays.flight());
    assert!(table.own_call_ended(stays, Ending::Completed), "nobody leads");
}

#[test]
fn when_all_leave_the_flight_was_cancelled() {
    let mut table = Shadow::new();
    let [leader, follower] = [0, 1].map(|now_ms| board(&mut table, now_ms).waiter);
    table.leave(leader);
    assert_eq!(table.leave(follower).and_then(|left| left.cancelled), Some(leader.flight()));
    assert_eq!((table.counts().cancelled, table.counts().completed), (1, 0));
    assert!(table.is_empty() && table.joinable.is_empty());
}

/// A flight as the test knows it: who is aboard, by number, the leader being the least that ever was.
struct Plain {
    id: FlightId,
    leader: usize,
    aboard: Vec<usize>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Everybody is counted once, in whatever order calls end and callers give up, and a flight ends with the call that
    /// stands for it.
    #[test]
    fn any_history_counts_everybody_once(
        steps in proptest::collection::vec((0_u8..6, any::<prop::sample::Index>(), 0_u64..30), 1..150),
    ) {
        let mut table = Shadow::new();
        let mut waiters: Vec<WaiterId> = Vec::new();
        let mut open: Vec<Plain> = Vec::new();
        let (mut now_ms, mut told, mut left, mut completed, mut cancelled) = (0, 0_u64, 0_u64, 0_u64, 0_u64);
        for (step, which, pass) in steps {
            match step {
                0..3 => {
                    now_ms += pass;
                    let Ok(entry) = table.enter(&RULES, step, at(now_ms), by(now_ms + 300), ()) else { continue };
                    let (id, number) = (entry.waiter.flight(), waiters.len());
                    waiters.push(entry.waiter);
                    if is_leader(&entry) {
                        open.push(Plain { id, leader: number, aboard: vec![number] });
                    } else {
                        let flight = open.iter_mut().find(|flight| flight.id == id);
                        flight.expect("only what is open is joined").aboard.push(number);
                    }
                }
                _ if waiters.is_empty() => {}
                // Any that there ever was, so also those that were told or have left.
                _ => {
                    let number = which.index(waiters.len());
                    let position = open.iter().position(|flight| flight.aboard.contains(&number));
                    let leaves = step == 5;
                    let stands = position.is_some_and(|position| {
                        let Plain { leader, aboard, .. } = &open[position];
                        number == *leader || !aboard.contains(leader)
                    });
                    let alone = position.is_some_and(|position| open[position].aboard.len() == 1);
                    let waiter = waiters[number];
                    if leaves {
                        let answer = table.leave(waiter);
                        prop_assert_eq!(answer.is_some(), position.is_some());
                        prop_assert_eq!(answer.is_some_and(|left| left.cancelled.is_some()), alone);
                    } else {
                        // Only the leader's call ends a flight while the leader is aboard, so nobody is cancelled by it.
                        prop_assert_eq!(table.own_call_ended(waiter, Ending::Completed), stands);
                    }
                    if let Some(position) = position {
                        if !leaves && stands {
                            completed += 1;
                            told += open.swap_remove(position).aboard.len() as u64;
                        } else {
                            left += 1;
                            open[position].aboard.retain(|other| *other != number);
                            if alone {
                                cancelled += 1;
                                open.swap_remove(position);
                            }
                        }
                    }
                }
            }
            let counts = table.counts();
            prop_assert_eq!((counts.told, counts.left), (told, left));
            prop_assert_eq!((counts.completed, counts.cancelled), (completed, cancelled));
            prop_assert_eq!(counts.open(), open.len() as u64);
            prop_assert_eq!(counts.waiting(), open.iter().map(|flight| flight.aboard.len() as u64).sum::<u64>());
        }
        for waiter in waiters {
            table.own_call_ended(waiter, Ending::Completed);
        }
        prop_assert!(table.is_empty() && table.joinable.is_empty());
        prop_assert_eq!(table.counts().group_sum, table.counts().started + table.counts().joined);
    }
}
