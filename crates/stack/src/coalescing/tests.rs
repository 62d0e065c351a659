//! Flights across threads. What one thread can show is shown from outside, in this crate's own tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use base::{
    Deadline, Nanos, World,
    clock::{MonotonicClock, SystemWallClock},
    ids::IdSource,
    tasks::{Spawn, Task},
};
use control::coalescing::Rules;
use tokio::{sync::Barrier, task::yield_now};

use super::Coalescer;

const THREADS: u64 = 4;
const ROUNDS: u64 = 300;

/// Starts tasks on the runtime of whoever asks.
struct Here;

impl Spawn for Here {
    #[expect(clippy::disallowed_methods, reason = "the test's stand-in for the supervisor")]
    fn spawn(&self, _name: &'static str, task: Task) {
        tokio::spawn(task);
    }
}

/// Asks twice a round, for the same: once to stay and once to go away, sometimes before its first step.
async fn rounds(coalescer: &Coalescer<u64, u64, ()>, calls: &Arc<AtomicU64>, thread: u64) {
    let rules = Rules {
        freshness_window: Nanos::MAX,
        useful_min: Nanos::ZERO,
        duration_max: Nanos::from_secs(60),
        flights_max: 64,
        waiters_max: 5,
    };
    let deadline = Deadline::at(Nanos::MAX);
    for round in 0..ROUNDS {
        let key = round % 3;
        let ask = || {
            let calls = Arc::clone(calls);
            coalescer.join(rules, key, deadline, move |_| async move {
                calls.fetch_add(1, SeqCst);
                yield_now().await;
                Ok(key)
            })
        };
        let stays = ask();
        let mut goes = Box::pin(ask());
        if (round + thread).is_multiple_of(2) {
            tokio::select! {
                biased; // It enters, so that what follows is a departure.
                early = &mut goes => assert_eq!(early.map(|joined| joined.value), Ok(key)),
                () = std::future::ready(()) => {}
            }
        }
        drop(goes);
        assert_eq!(stays.await.map(|joined| joined.value), Ok(key));
    }
}

/// Every thread is a runtime of its own, so that leaders, followers and those who leave meet at the lock for real.
#[test]
fn threads_that_meet_lose_nobody() {
    let coalescer = Coalescer::new(World {
        clock: Arc::new(MonotonicClock),
        wall: Arc::new(SystemWallClock),
        ids: Arc::new(IdSource::new(7)),
        tasks: Arc::new(Here),
        points: base::inject::Points::default(),
    });
    let calls = Arc::new(AtomicU64::new(0));
    let meet = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (coalescer, calls, meet) = (&coalescer, &calls, &meet);
            scope.spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
                runtime.block_on(async {
                    meet.wait().await;
                    rounds(coalescer, calls, thread).await;
                    // A runtime that ends takes its tasks with it: not before everybody has been answered.
                    meet.wait().await;
                });
            });
        }
    });
    let counts = coalescer.counts();
    assert_eq!((coalescer.flights(), coalescer.waiters()), (0, 0));
    assert_eq!(counts.group_sum, counts.told + counts.left);
    assert!(counts.told >= THREADS * ROUNDS, "everybody who stays is told: {counts:?}");
    assert_eq!(counts.completed + counts.cancelled, counts.started, "nothing else happened: {counts:?}");
    assert!(
        (counts.completed..=counts.started).contains(&calls.load(SeqCst)),
        "one call a flight: {counts:?}"
    );
    assert_eq!(Arc::strong_count(&coalescer.shared), 1, "no task and no waiter is left");
}
