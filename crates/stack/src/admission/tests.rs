//! Admission's driver, tested without a hold on time: what a caller is told, wakers that change or hold permits
//! themselves, and threads that wake each other.

mod properties;

use std::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicU32, Ordering},
    task::{Context, Poll, Wake, Waker},
};

use base::{Phase, Reason, Refusal, clock::MonotonicClock};
use control::admission::{Bound, Choice, Expiry, Partition, Reject, Settings, Waiting};

use super::*;

const MINUTE: Nanos = Nanos::from_secs(60);

/// One pool for all, and a wait without end.
fn admission(limit: u32) -> Admission {
    let settings = Settings {
        limit,
        partitions: [Partition::OPEN; CLASSES],
        waiting: Waiting::Unbounded,
        choice: Choice::Oldest,
        retry_after: Nanos::from_millis(10),
    };
    Admission::new(settings.validate().expect("sound settings"), Arc::new(MonotonicClock))
}

/// Work without an end needs no timer, and so no runtime.
fn acquire(admission: &Admission, class: WorkloadClass) -> Acquire {
    admission.acquire(class, MonotonicClock.now(), Deadline::at(Nanos::MAX), Nanos::ZERO)
}

fn poll(acquire: &mut Acquire, waker: &Waker) -> Option<Result<OwnedPermit, Denied>> {
    match Pin::new(acquire).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn admit(admission: &Admission) -> OwnedPermit {
    poll(&mut acquire(admission, WorkloadClass::Standard), Waker::noop()).expect("no wait").expect("a permit")
}

fn assert_empty(admission: &Admission) {
    let observed = admission.observe();
    assert_eq!((observed.held, observed.waiting), (0, 0));
    assert!(
        observed.classes.iter().all(|standing| standing.balances() && standing.handed == 0),
        "{observed:?}"
    );
    assert!(admission.shared.lock().wakers.iter().all(Option::is_none), "a waker was kept");
}

/// Counts its wakes, and may hold a permit as a task would.
#[derive(Default)]
struct Counter {
    wakes: AtomicU32,
    _permit: Option<OwnedPermit>,
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn permits_and_futures_cross_threads() {
    fn crosses<T: Send + 'static>() {}
    crosses::<OwnedPermit>();
    crosses::<Acquire>();
    crosses::<Admission>();
}

#[test]
fn the_waker_of_the_last_poll_is_woken_once() {
    let admission = admission(1);
    let held = admit(&admission);
    let [old, new] = [(); 2].map(|()| Arc::new(Counter::default()));
    let mut waiter = acquire(&admission, WorkloadClass::Premium);
    for counter in [&old, &new] {
        assert!(poll(&mut waiter, &Arc::clone(counter).into()).is_none());
    }
    assert_eq!(Arc::strong_count(&old), 1, "the first waker was let go");
    drop(held);
    assert_eq!([&old, &new].map(|counter| counter.wakes.load(Ordering::SeqCst)), [0, 1]);
    drop(poll(&mut waiter, Waker::noop()).expect("its turn has come").expect("a permit"));
    assert_empty(&admission);
}

/// The last waker of a task drops the task, and with it what it holds: under the lock that would be a deadlock.
#[test]
fn a_waker_may_hold_a_permit_of_the_same_gate() {
    let admission = admission(2);
    let holder = || {
        let counter = Counter { _permit: Some(admit(&admission)), ..Counter::default() };
        Waker::from(Arc::new(counter))
    };
    let (first, second) = (holder(), holder());
    let [mut waiter, mut other] = [(); 2].map(|()| acquire(&admission, WorkloadClass::Standard));
    assert!(poll(&mut waiter, &first).is_none());
    assert!(poll(&mut other, &second).is_none());
    drop((first, second));
    // Replaced by another waker, which gives its permit to the waiter itself; and left with.
    assert!(poll(&mut waiter, Waker::noop()).is_none());
    drop(other);
    drop(poll(&mut waiter, Waker::noop()).expect("its turn has come").expect("a permit"));
    assert_empty(&admission);
}

/// Others have room, so the caller's instant was taken for the present; it must not lengthen the wait.
#[test]
fn who_asks_late_at_a_full_class_does_not_wait_anew() {
    let admission = admission(2);
    let narrow = Partition { floor: Bound::Permits(0), ceiling: Bound::Permits(1) };
    let settings = Settings {
        limit: 2,
        partitions: [narrow; CLASSES],
        waiting: Waiting::Bounded { count_max: [9; CLASSES], age_max: Nanos::from_millis(50) },
        choice: Choice::Share,
        retry_after: Nanos::from_millis(10),
    };
    admission.reconfigure(settings.validate().expect("sound settings"));
    let held = admit(&admission);
    let arrived = MonotonicClock.now() - Nanos::from_millis(50);
    let mut late = admission.acquire(WorkloadClass::Standard, arrived, Deadline::at(Nanos::MAX), Nanos::ZERO);
    let outcome = poll(&mut late, Waker::noop()).expect("no timer is set, there is no runtime");
    assert!(matches!(outcome, Err(Denied::Dropped { reason: Expiry::TooOld, .. })), "{outcome:?}");
    drop(held);
    assert_empty(&admission);
}

#[test]
fn a_denial_says_what_the_caller_is_told() {
    let admission = admission(1);
    let held = admit(&admission);
    let now = MonotonicClock.now();
    let outcome = admission.try_admit(WorkloadClass::Premium, now, Deadline::after(now, MINUTE), Nanos::ZERO);
    let denied = outcome.expect_err("none is free");
    let Denied::Rejected { reason: Reject::QueueFull, retry_after } = denied else { panic!("{denied:?}") };
    assert!((10..20).contains(&retry_after.as_millis()), "{retry_after}");
    let refusal = denied.refusal(Phase::Admission);
    assert_eq!((refusal.reason(), refusal.retry_delay()), (Reason::Overload, Some(retry_after)));
    let dropped = |reason, age| Denied::Dropped { reason, age };
    for (age, hint) in [(Nanos::ZERO, Nanos::from_millis(1)), (MINUTE, MINUTE)] {
        let refusal = dropped(Expiry::TooOld, age).refusal(Phase::ProfileAcquire);
        assert_eq!((refusal.reason(), refusal.retry_delay()), (Reason::Overload, Some(hint)));
    }
    let late = Denied::Rejected { reason: Reject::CannotFinish, retry_after };
    for denied in [late, dropped(Expiry::CannotFinish, MINUTE)] {
        assert_eq!(denied.refusal(Phase::ProfileAcquire), Refusal::deadline(Phase::ProfileAcquire));
        assert_eq!(denied.reason(), "cannot_finish");
    }
    drop(held);
    assert_empty(&admission);
}

/// Who would not wait is booked apart from those that waited and left, and from those that found no place.
#[test]
fn who_would_not_wait_is_booked_apart() {
    let admission = admission(1);
    let ask = |class| admission.try_admit(class, MonotonicClock.now(), Deadline::at(Nanos::MAX), Nanos::ZERO);
    let held = ask(WorkloadClass::Standard).expect("one is free");
    assert_eq!((held.class(), held.waited()), (WorkloadClass::Standard, None));
    let mut waiter = acquire(&admission, WorkloadClass::Standard);
    assert!(poll(&mut waiter, Waker::noop()).is_none());
    let denied = ask(WorkloadClass::Standard).expect_err("none is free");
    assert!(matches!(denied, Denied::Rejected { reason: Reject::QueueFull, .. }), "{denied:?}");
    let books = admission.observe().classes[0].books;
    assert_eq!((books.offered, books.admitted, books.queued, books.missed), (3, 1, 1, 1));
    assert_eq!((books.rejected, books.abandoned), ([0; Reject::ALL.len()], 0));
    drop(held);
    let permit = poll(&mut waiter, Waker::noop()).expect("its turn has come").expect("a permit");
    assert!(permit.waited().is_some());
    drop(permit);
    assert_empty(&admission);
}

/// A permit for another class, while somebody waits who is at a bound of their own.
#[test]
fn who_would_not_wait_gets_what_is_free_beside_a_line() {
    let admission = admission(4);
    let narrow = Partition { floor: Bound::Permits(0), ceiling: Bound::Permits(1) };
    let settings = Settings {
        limit: 4,
        partitions: [narrow, Partition::OPEN, narrow],
        waiting: Waiting::Unbounded,
        choice: Choice::Share,
        retry_after: Nanos::from_millis(10),
    };
    admission.reconfigure(settings.validate().expect("sound settings"));
    let held = admit(&admission);
    let mut waiter = acquire(&admission, WorkloadClass::Standard);
    assert!(poll(&mut waiter, Waker::noop()).is_none());
    let now = MonotonicClock.now();
    let premium = admission.try_admit(WorkloadClass::Premium, now, Deadline::after(now, MINUTE), Nanos::ZERO);
    assert_eq!(premium.expect("three are free").class(), WorkloadClass::Premium);
    let also = poll(&mut acquire(&admission, WorkloadClass::Premium), Waker::noop());
    assert!(matches!(also, Some(Ok(_))), "nor does it wait");
    drop((also, held));
    drop(poll(&mut waiter, Waker::noop()).expect("its turn has come").expect("a permit"));
    assert_empty(&admission);
}

/// Threads that meet at the lock for real, without a runtime in between: it is handed on, and nothing is lost.
#[test]
fn threads_that_meet_at_the_lock_lose_nothing() {
    const TAKES: u64 = 20_000;
    let admission = admission(2);
    let meet = std::sync::Barrier::new(3);
    std::thread::scope(|threads| {
        for class in WorkloadClass::ALL {
            let (admission, meet) = (&admission, &meet);
            threads.spawn(move || {
                meet.wait();
                for _ in 0..TAKES {
                    drop(admission.try_admit(class, Nanos::ZERO, Deadline::at(Nanos::MAX), Nanos::ZERO));
                }
            });
        }
    });
    let observed = admission.observe();
    assert!((1..=2).contains(&observed.peak));
    for standing in observed.classes {
        assert_eq!(standing.books.offered, TAKES);
        assert_eq!(standing.books.admitted + standing.books.missed, TAKES, "{standing:?}");
    }
    assert_empty(&admission);
}

const THREADS: usize = 2;
const TASKS: usize = 20;
const ROUNDS: usize = 250;

/// Two threads, each with a runtime of its own as the processes have: wakes cross from one to the other.
#[test]
fn between_threads_nobody_is_forgotten_and_the_books_balance() {
    let admission = admission(3);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                runtime.expect("a runtime").block_on(all_churn(&admission));
            });
        }
    });
    assert!((1..=3).contains(&admission.observe().peak));
    let offered: u64 = admission.observe().classes.iter().map(|standing| standing.books.offered).sum();
    assert_eq!(offered, (THREADS * TASKS * ROUNDS) as u64);
    assert_empty(&admission);
}

#[expect(clippy::disallowed_methods, reason = "the callers of the gate are the test's own")]
async fn all_churn(admission: &Admission) {
    let tasks: Vec<_> = (0..TASKS).map(|at| tokio::spawn(churn(at, admission.clone()))).collect();
    for task in tasks {
        task.await.expect("every round ends");
    }
}

/// Takes permits, holds each over a yield, and now and then leaves the line.
async fn churn(at: usize, admission: Admission) {
    for round in 0..ROUNDS {
        let now = MonotonicClock.now();
        let class = WorkloadClass::ALL[at % CLASSES];
        let mut acquire = admission.acquire(class, now, Deadline::after(now, MINUTE), Nanos::ZERO);
        if round % 7 == 0 {
            let left = poll(&mut acquire, Waker::noop());
            tokio::task::yield_now().await;
            drop((acquire, left));
        } else {
            let _permit = acquire.await.expect("a minute is enough");
            tokio::task::yield_now().await;
        }
    }
}
