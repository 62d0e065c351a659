//! Admission: a permit and back, while there are plenty and while there is none.

use std::{convert::Infallible, future::Ready, hint::black_box, sync::Arc};

use base::{Clock, Deadline, Nanos, WorkloadClass, clock::MonotonicClock};
use control::admission::{Bound, Choice, Partition, Settings, Waiting};
use stack::admission::Admission;
use tokio::sync::Semaphore;
use tower::{Layer as _, Service as _, service_fn, util::ServiceFn};
use tower_resilience_bulkhead::{Bulkhead, BulkheadConfigBuilder, BulkheadLayer};

use crate::{
    block_on,
    contest::{Contest, Lap, Side},
};

/// The endpoint's bound in the shipped policy.
const LIMIT: u32 = 520;

/// Beside the semaphore, which knows no classes, no deadlines and keeps no books.
const GOAL_SEMAPHORE: Option<f64> = Some(1.5);
/// Beside the bulkhead.
const GOAL_BULKHEAD: Option<f64> = Some(1.0);

/// The contests of admission.
pub(crate) fn contests() -> Vec<Contest> {
    vec![at_once(), acquired(), refused()]
}

/// The endpoint's gate of the shipped policy.
fn gate() -> Admission {
    let percent =
        |floor, ceiling| Partition { floor: Bound::Percent(floor), ceiling: Bound::Percent(ceiling) };
    let settings = Settings {
        limit: LIMIT,
        partitions: [percent(30, 90), percent(10, 60), percent(6, 30)],
        waiting: Waiting::Bounded { count_max: [64, 24, 12], age_max: Nanos::from_millis(12) },
        choice: Choice::Share,
        retry_after: Nanos::from_millis(50),
    };
    Admission::new(settings.validate().expect("sound settings"), Arc::new(MonotonicClock))
}

/// What a request brings along: when it arrived, when it must be over, and what it needs.
fn request() -> (Nanos, Deadline, Nanos) {
    let arrived = MonotonicClock.now();
    (arrived, Deadline::after(arrived, Nanos::from_secs(3_600)), Nanos::from_millis(20))
}

/// Calls that answer at once, through a bulkhead.
type Bulkheaded = Bulkhead<ServiceFn<fn(()) -> Ready<Result<(), Infallible>>>>;

fn bulkhead(builder: BulkheadConfigBuilder) -> Bulkheaded {
    let layer = builder.max_concurrent_calls(LIMIT as usize).build().expect("sound settings");
    layer.layer(service_fn(|()| std::future::ready(Ok(()))))
}

fn calls(bulkhead: &Bulkheaded, lap: Lap) {
    block_on(async {
        let mut bulkhead = bulkhead.clone();
        for _ in 0..lap.count {
            black_box(bulkhead.call(()).await).expect("there are plenty");
        }
    });
}

/// Admit if a permit is free, and release.
fn at_once() -> Contest {
    let (gate, semaphore) = (gate(), semaphore());
    let rejecting = bulkhead(BulkheadLayer::builder().reject_when_full());
    let (arrived, deadline, useful) = request();
    Contest {
        what: "admit and release",
        count: 5_000,
        sides: vec![
            Side::ours(move |lap| {
                for _ in 0..lap.count {
                    let permit = gate.try_admit(WorkloadClass::Standard, arrived, deadline, useful);
                    drop(black_box(permit.expect("there are plenty")));
                }
            }),
            Side::peer("tokio semaphore", GOAL_SEMAPHORE, move |lap| {
                for _ in 0..lap.count {
                    let permit = Arc::clone(&semaphore).try_acquire_owned();
                    drop(black_box(permit.expect("there are plenty")));
                }
            }),
            // It has no permits to take: what it admits is a call, and it refuses by a timeout of zero.
            Side::peer("bulkhead", GOAL_BULKHEAD, move |lap| calls(&rejecting, lap)),
        ],
    }
}

/// Acquire, which would wait and need not, and release.
fn acquired() -> Contest {
    let (gate, semaphore) = (gate(), semaphore());
    let waiting = bulkhead(BulkheadLayer::builder());
    let (arrived, deadline, useful) = request();
    Contest {
        what: "acquire and release",
        count: 5_000,
        sides: vec![
            Side::ours(move |lap| {
                block_on(async {
                    for _ in 0..lap.count {
                        let permit = gate.acquire(WorkloadClass::Standard, arrived, deadline, useful).await;
                        drop(black_box(permit.expect("there are plenty")));
                    }
                });
            }),
            Side::peer("tokio semaphore", GOAL_SEMAPHORE, move |lap| {
                block_on(async {
                    for _ in 0..lap.count {
                        let permit = Arc::clone(&semaphore).acquire_owned().await;
                        drop(black_box(permit.expect("there are plenty")));
                    }
                });
            }),
            Side::peer("bulkhead", GOAL_BULKHEAD, move |lap| calls(&waiting, lap)),
        ],
    }
}

/// Ask in vain. The gate's answer comes with a hint and an entry in the books, the semaphore's is a constant.
fn refused() -> Contest {
    let (gate, semaphore) = (gate(), semaphore());
    let (arrived, deadline, useful) = request();
    let ask = move |gate: &Admission| gate.try_admit(WorkloadClass::Standard, arrived, deadline, useful);
    let held: Vec<_> = std::iter::from_fn(|| ask(&gate).ok()).collect();
    let also_held = Arc::clone(&semaphore).try_acquire_many_owned(LIMIT).expect("all are free");
    Contest {
        what: "turned away",
        count: 5_000,
        sides: vec![
            Side::ours(move |lap| {
                let _held = &held;
                for _ in 0..lap.count {
                    black_box(ask(&gate)).expect_err("there is none");
                }
            }),
            Side::peer("tokio semaphore", None, move |lap| {
                let _held = &also_held;
                for _ in 0..lap.count {
                    black_box(Arc::clone(&semaphore).try_acquire_owned()).expect_err("there is none");
                }
            }),
        ],
    }
}

fn semaphore() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LIMIT as usize))
}
