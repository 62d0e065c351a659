//! Tests of the pool: bounds, order, change while it runs, and places that come back on every path.

use std::task::Waker;

use proptest::prelude::*;

use super::*;

fn pool(servers: u32, queue_max: u32) -> Arc<Pool> {
    Pool::new(Capacity { servers, queue_max })
}

fn served(pool: &Arc<Pool>) -> Permit {
    match pool.enter() {
        Entry::Served(permit) => permit,
        _ => panic!("expected a free server: {:?}", pool.load()),
    }
}

fn queued(pool: &Arc<Pool>) -> Waiting {
    match pool.enter() {
        Entry::Queued(waiting) => waiting,
        _ => panic!("expected a place in the queue: {:?}", pool.load()),
    }
}

fn granted(waiting: &mut Waiting) -> Option<Permit> {
    match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

fn now(pool: &Arc<Pool>) -> (u32, u32) {
    let load = pool.load();
    (load.in_service, load.queued)
}

#[test]
fn the_bounds_hold_at_the_limit_and_one_above() {
    let pool = pool(2, 1);
    let (_one, _two) = (served(&pool), served(&pool));
    let waiting = queued(&pool);
    assert!(matches!(pool.enter(), Entry::Refused));
    assert_eq!(now(&pool), (2, 1));
    drop(waiting);
    assert_eq!(now(&pool), (2, 0));
}

#[test]
fn without_a_queue_a_busy_pool_refuses_at_once() {
    let pool = pool(1, 0);
    let held = served(&pool);
    assert!(matches!(pool.enter(), Entry::Refused));
    drop(held);
    drop(served(&pool));
    assert_eq!(now(&pool), (0, 0));
}

#[test]
fn waiters_are_served_in_order_of_arrival() {
    let pool = pool(1, 9);
    let held = served(&pool);
    let mut waiting: Vec<Waiting> = (0..3).map(|_| queued(&pool)).collect();
    drop(held);
    for at in 0..3 {
        assert!(waiting[at + 1..].iter_mut().all(|later| granted(later).is_none()));
        let permit = granted(&mut waiting[at]).expect("its turn");
        assert_eq!(now(&pool), (1, 2 - at as u32));
        drop(permit);
    }
    assert_eq!(now(&pool), (0, 0));
}

#[test]
fn a_newcomer_does_not_overtake_the_queue() {
    let pool = pool(1, 2);
    let held = served(&pool);
    let mut first = queued(&pool);
    drop(held);
    // The server is granted to the first, whether or not it has looked yet.
    let mut second = queued(&pool);
    assert!(granted(&mut second).is_none());
    drop(granted(&mut first).expect("its turn"));
    assert!(granted(&mut second).is_some());
}

#[test]
fn a_waiter_that_leaves_frees_its_place_and_one_that_leaves_with_a_grant_passes_it_on() {
    let pool = pool(1, 2);
    let held = served(&pool);
    let (leaver, next) = (queued(&pool), queued(&pool));
    assert!(matches!(pool.enter(), Entry::Refused));
    drop(leaver);
    let mut third = queued(&pool);
    drop(held);
    // Granted to `next`, which goes before it looks: the grant passes to the third.
    assert_eq!(now(&pool), (1, 1));
    assert!(granted(&mut third).is_none());
    drop(next);
    assert!(granted(&mut third).is_some());
}

#[test]
fn lowering_revokes_nothing_and_raising_serves_at_once() {
    let pool = pool(3, 4);
    let mut held: Vec<Permit> = (0..3).map(|_| served(&pool)).collect();
    pool.set_capacity(Capacity { servers: 1, queue_max: 4 });
    assert_eq!(now(&pool), (3, 0), "nobody is thrown out");
    let mut waiting = queued(&pool);
    held.pop();
    held.pop();
    assert!(granted(&mut waiting).is_none(), "one is still in service");
    held.pop();
    let permit = granted(&mut waiting).expect("below the bound again");
    let mut more: Vec<Waiting> = (0..3).map(|_| queued(&pool)).collect();
    pool.set_capacity(Capacity { servers: 3, queue_max: 0 });
    assert_eq!(now(&pool), (3, 1), "two more at once, and nobody is sent away");
    // Kept, since a permit that is dropped at once would serve the last one.
    let two_more: Vec<Permit> = more[..2].iter_mut().filter_map(granted).collect();
    assert!(two_more.len() == 2 && granted(&mut more[2]).is_none());
    drop((permit, two_more, more));
    assert_eq!(now(&pool), (0, 0));
    assert_eq!(pool.load().peak_in_service, 3);
    pool.reset_peak();
    assert_eq!(pool.load().peak_in_service, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive,
    Leave(usize),
    Look(usize),
    Finish(usize),
    Resize(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Arrive),
        1 => any::<usize>().prop_map(Step::Leave),
        2 => any::<usize>().prop_map(Step::Look),
        2 => any::<usize>().prop_map(Step::Finish),
        1 => (1_u32..5, 0_u32..5).prop_map(|(servers, queue_max)| Step::Resize(servers, queue_max)),
    ]
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_the_books(steps in proptest::collection::vec(step(), 0..200)) {
        let pool = pool(2, 3);
        let (mut capacity, mut waiting, mut permits) = (Capacity { servers: 2, queue_max: 3 }, Vec::new(), Vec::new());
        for step in steps {
            let before = pool.load();
            match step {
                Step::Arrive => match pool.enter() {
                    Entry::Served(permit) => {
                        prop_assert!(before.in_service < capacity.servers && before.queued == 0);
                        permits.push(permit);
                    }
                    Entry::Queued(place) => {
                        prop_assert!(before.queued < capacity.queue_max);
                        waiting.push(place);
                    }
                    Entry::Refused => prop_assert!(before.queued >= capacity.queue_max),
                },
                Step::Leave(which) if !waiting.is_empty() => drop(waiting.remove(which % waiting.len())),
                Step::Look(which) if !waiting.is_empty() => {
                    let which = which % waiting.len();
                    if let Some(permit) = granted(&mut waiting[which]) {
                        permits.push(permit);
                        drop(waiting.remove(which));
                    }
                }
                Step::Finish(which) if !permits.is_empty() => drop(permits.remove(which % permits.len())),
                Step::Resize(servers, queue_max) => {
                    capacity = Capacity { servers, queue_max };
                    pool.set_capacity(capacity);
                }
                Step::Leave(_) | Step::Look(_) | Step::Finish(_) => {}
            }
            let load = pool.load();
            prop_assert!(load.in_service <= capacity.servers.max(before.in_service), "grows only up to the bound");
            prop_assert!(load.queued == 0 || load.in_service >= capacity.servers, "nobody waits beside a free server");
            prop_assert_eq!(load.in_service as usize + load.queued as usize, permits.len() + waiting.len());
        }
        drop((waiting, permits));
        prop_assert_eq!(now(&pool), (0, 0));
    }
}
