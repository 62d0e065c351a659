//! Coalescing: a caller alone, and a group that shares one call, beside moka's `get_with`.
//!
//! moka is a cache and keeps what it has loaded; it is measured as it comes, and with the value thrown away, which is what
//! makes the two do the same.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use base::{
    Deadline, Nanos, World,
    clock::{MonotonicClock, SystemWallClock},
    ids::IdSource,
    tasks::{Spawn, Task},
};
use control::coalescing::Rules;
use futures_util::future::join_all;
use moka::future::Cache;
use stack::coalescing::Coalescer;
use tokio::task::yield_now;

use crate::{
    block_on,
    contest::{Contest, Lap, Side},
};

/// Those who join a flight, beside the one who leads it.
const FOLLOWERS: u32 = 8;

/// Beside moka.
const GOAL: Option<f64> = Some(1.0);

const RULES: Rules = Rules {
    freshness_window: Nanos::from_secs(60),
    useful_min: Nanos::from_millis(10),
    duration_max: Nanos::from_secs(60),
    flights_max: 1_024,
    waiters_max: 64,
};

/// The contests of coalescing.
pub(crate) fn contests() -> Vec<Contest> {
    vec![alone(), group()]
}

/// Starts tasks on the runtime of whoever asks.
struct Here;

impl Spawn for Here {
    #[expect(clippy::disallowed_methods, reason = "a bench has no drain; its tasks end with their lap")]
    fn spawn(&self, _name: &'static str, task: Task) {
        tokio::spawn(task);
    }
}

fn coalescer() -> Coalescer<u64, u64, ()> {
    Coalescer::new(World {
        clock: Arc::new(MonotonicClock),
        wall: Arc::new(SystemWallClock),
        ids: Arc::new(IdSource::new(7)),
        tasks: Arc::new(Here),
        points: base::inject::Points::default(),
    })
}

/// Room for as many values as flights could be open.
fn cache() -> Cache<u64, u64> {
    Cache::new(u64::from(RULES.flights_max))
}

/// Never the same key twice, so that every group has a call of its own.
#[derive(Default)]
struct Keys([AtomicU64; 2]);

impl Keys {
    fn next(&self, lap: Lap) -> u64 {
        self.0[lap.thread].fetch_add(1, Ordering::Relaxed) * 2 + lap.thread as u64
    }
}

/// The call, which has its answer when it is next asked.
async fn call(key: u64) -> u64 {
    yield_now().await;
    key
}

/// Nobody to share with.
fn alone() -> Contest {
    let (coalescer, keys) = (coalescer(), Keys::default());
    Contest {
        what: "lead, alone",
        count: 300,
        sides: vec![
            Side::ours(move |lap| {
                block_on(async {
                    for _ in 0..lap.count {
                        let key = keys.next(lap);
                        let joined =
                            coalescer.join(RULES, key, Deadline::at(Nanos::MAX), move |_| async move {
                                Ok(call(key).await)
                            });
                        black_box(joined.await).expect("an answer");
                    }
                });
            }),
            moka("moka get_with", 1, false),
            moka("  and invalidate", 1, true),
        ],
    }
}

/// One leads and the others join while its call is under way; an operation is one caller's.
fn group() -> Contest {
    let (coalescer, keys) = (coalescer(), Keys::default());
    Contest {
        what: "lead one, join eight; each",
        count: 50 * (FOLLOWERS + 1),
        sides: vec![
            Side::ours(move |lap| {
                block_on(async {
                    for _ in 0..lap.count / (FOLLOWERS + 1) {
                        let key = keys.next(lap);
                        let callers = (0..=FOLLOWERS).map(|_| {
                            coalescer.join(RULES, key, Deadline::at(Nanos::MAX), move |_| async move {
                                Ok(call(key).await)
                            })
                        });
                        for joined in join_all(callers).await {
                            assert_eq!(joined.expect("an answer").group, u64::from(FOLLOWERS) + 1);
                        }
                    }
                });
            }),
            moka("moka get_with", FOLLOWERS + 1, false),
            moka("  and invalidate", FOLLOWERS + 1, true),
        ],
    }
}

/// `get_with` by so many callers at a time, and away with the value or not.
fn moka(name: &'static str, callers: u32, invalidate: bool) -> Side {
    let (cache, keys) = (cache(), Keys::default());
    Side::peer(name, GOAL, move |lap| {
        block_on(async {
            for _ in 0..lap.count / callers {
                let key = keys.next(lap);
                if callers == 1 {
                    black_box(cache.get_with(key, call(key)).await);
                } else {
                    let callers = (0..callers).map(|_| cache.get_with(key, call(key)));
                    black_box(join_all(callers).await);
                }
                if invalidate {
                    cache.invalidate(&key).await;
                }
            }
        });
    })
}
