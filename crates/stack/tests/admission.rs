//! Admission's driver: permits that come back on every path, and waiters of whom none is forgotten. Time is the runtime's
//! own and paused, so nothing here waits for real.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use base::{Clock, Deadline, Nanos, WorkloadClass};
use control::admission::{
    Arrival, Bound, CLASSES, Choice, Config, Expiry, Partition, Reject, Settings, Waiting,
};
use stack::admission::{Acquire, Admission, Denied, OwnedPermit};
use tokio::{
    sync::{Barrier, oneshot},
    task::JoinHandle,
    time::Instant,
};

use WorkloadClass::{Enterprise, Premium, Standard};

const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// The runtime's paused time, and how often it was asked for.
struct TestClock {
    origin: Instant,
    reads: AtomicU64,
}

impl Clock for TestClock {
    fn now(&self) -> Nanos {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.origin.elapsed().into()
    }
}

/// One gate under test and its time.
struct Bench {
    admission: Admission,
    clock: Arc<TestClock>,
}

/// One pool for all, and a wait without end: the old design.
const fn legacy(limit: u32) -> Settings {
    Settings {
        limit,
        partitions: [Partition::OPEN; CLASSES],
        waiting: Waiting::Unbounded,
        choice: Choice::Oldest,
        retry_after: ms(10),
    }
}

const fn bounded(limit: u32, places: u32, age_max: Nanos) -> Settings {
    Settings { waiting: Waiting::Bounded { count_max: [places; CLASSES], age_max }, ..legacy(limit) }
}

fn config(settings: Settings) -> Config {
    settings.validate().expect("sound settings")
}

/// Runs a task of the test. It ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "the callers of the gate are the test's own")]
fn start<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Polls once; the outcome, if there is one.
fn poll(acquire: &mut Acquire) -> Option<Result<OwnedPermit, Denied>> {
    match Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

impl Bench {
    fn new(settings: Settings) -> Self {
        let clock = Arc::new(TestClock { origin: Instant::now(), reads: AtomicU64::new(0) });
        Self { admission: Admission::new(config(settings), Arc::clone(&clock) as Arc<dyn Clock>), clock }
    }

    fn now(&self) -> Nanos {
        self.clock.origin.elapsed().into()
    }

    /// Work that arrives now, has a minute and needs nothing of it.
    fn acquire(&self, class: WorkloadClass) -> Acquire {
        let now = self.now();
        self.admission.acquire(class, now, Deadline::after(now, Nanos::from_secs(60)), Nanos::ZERO)
    }

    fn try_admit(&self, class: WorkloadClass) -> Result<OwnedPermit, Denied> {
        let now = self.now();
        self.admission.try_admit(class, now, Deadline::after(now, Nanos::from_secs(60)), Nanos::ZERO)
    }

    fn admit(&self, class: WorkloadClass) -> OwnedPermit {
        self.try_admit(class).expect("a permit is free")
    }

    /// One that is in line already.
    fn queue(&self, class: WorkloadClass) -> Acquire {
        let mut acquire = self.acquire(class);
        assert!(poll(&mut acquire).is_none(), "it was to wait");
        acquire
    }

    /// Lets the tasks run until so many are in line.
    async fn until_waiting(&self, waiting: u32) {
        for _ in 0..1_000 {
            if self.out().1 == waiting {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{waiting} were to be in line: {:?}", self.admission.observe());
    }

    /// Permits out, and waiters.
    fn out(&self) -> (u32, u32) {
        let observed = self.admission.observe();
        (observed.held, observed.waiting)
    }

    /// After everything was dropped: nothing is out, nobody waits, and every arrival is accounted for.
    fn assert_empty(&self) {
        let observed = self.admission.observe();
        assert_eq!((observed.held, observed.waiting, observed.oldest_age), (0, 0, None));
        for standing in observed.classes {
            assert!(standing.balances(), "{standing:?}");
            assert_eq!((standing.held, standing.waiting, standing.handed), (0, 0, 0));
        }
    }
}

fn dropped(outcome: Result<OwnedPermit, Denied>) -> (Expiry, Nanos) {
    match outcome {
        Err(Denied::Dropped { reason, age }) => (reason, age),
        other => panic!("it was to be dropped: {other:?}"),
    }
}

const fn permits(floor: u32, ceiling: u32) -> Partition {
    Partition { floor: Bound::Permits(floor), ceiling: Bound::Permits(ceiling) }
}

#[tokio::test(start_paused = true)]
async fn five_hundred_at_once_never_exceed_the_limit() {
    let percent = |share| Partition { floor: Bound::Percent(share), ceiling: Bound::Percent(share) };
    let partitions = [percent(50), percent(30), percent(20)];
    let bench = Bench::new(Settings { partitions, choice: Choice::Share, ..bounded(10, 500, ms(50_000)) });
    let barrier = Arc::new(Barrier::new(500));
    let running: Arc<[AtomicU32; CLASSES]> = Arc::default();
    let tasks: Vec<_> = (0..500)
        .map(|at| {
            let class = WorkloadClass::ALL[at % CLASSES];
            let (acquire, barrier, running) = (bench.acquire(class), barrier.clone(), running.clone());
            start(async move {
                barrier.wait().await;
                let _permit = acquire.await.expect("there is time for all");
                let now_running = running[class.index()].fetch_add(1, Ordering::SeqCst) + 1;
                assert!(now_running <= [5, 3, 2][class.index()], "{class}: {now_running}");
                tokio::task::yield_now().await;
                running[class.index()].fetch_sub(1, Ordering::SeqCst);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no bound was broken");
    }
    let observed = bench.admission.observe();
    assert_eq!(observed.peak, 10);
    assert_eq!(observed.classes.map(|standing| standing.peak), [5, 3, 2]);
    assert_eq!(observed.classes.map(|standing| standing.books.admitted), [167, 167, 166]);
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn within_a_class_the_first_in_line_goes_first() {
    let bench = Bench::new(bounded(1, 9, ms(1_000)));
    let held = bench.admit(Standard);
    let (sender, mut order) = tokio::sync::mpsc::channel(5);
    for at in 0..5 {
        let (mut acquire, sender) = (bench.queue(Standard), sender.clone());
        start(async move {
            let permit = (&mut acquire).await.expect("its turn comes");
            sender.send(at).await.expect("the test listens");
            drop(permit);
        });
    }
    drop((sender, held));
    let mut seen = Vec::new();
    while let Some(at) = order.recv().await {
        seen.push(at);
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_no_clock_is_read() {
    let bench = Bench::new(bounded(2, 1, ms(50)));
    let first = bench.acquire(Standard).await.expect("a permit is free");
    assert_eq!((first.class(), first.waited()), (Standard, None));
    drop((first, bench.admit(Premium)));
    assert_eq!(bench.clock.reads.load(Ordering::SeqCst), 0);
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_gives_its_permit_to_the_next() {
    let bench = Bench::new(legacy(1));
    let held = bench.admit(Standard);
    let (before, after) = (bench.queue(Standard), bench.queue(Standard));
    let last = start(bench.acquire(Standard));
    bench.until_waiting(3).await;
    // Before the grant: the place is gone.
    drop(before);
    assert_eq!(bench.out(), (1, 2));
    // After the grant, never having looked: the permit goes on, and the next one is woken.
    drop(held);
    assert_eq!(bench.out(), (1, 1));
    assert_eq!(bench.admission.observe().classes[0].handed, 1);
    drop(after);
    let permit = last.await.expect("it runs").expect("the permit went on");
    assert_eq!((bench.out(), permit.waited()), ((1, 0), Some(Nanos::ZERO)));
    assert_eq!(bench.now(), ms(0), "it was woken, and not by its timer");
    drop(permit);
    assert_eq!(bench.admission.observe().classes[0].books.abandoned, 2);
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn panic_and_abort_give_the_permit_back() {
    let bench = Bench::new(legacy(1));
    let (sender, holds) = oneshot::channel();
    let acquire = bench.acquire(Standard);
    let aborted = start(async move {
        let _permit = acquire.await.expect("a permit is free");
        sender.send(()).expect("the test listens");
        std::future::pending::<()>().await;
    });
    holds.await.expect("it holds");
    let acquire = bench.acquire(Standard);
    let panicked = start(async move {
        let permit = acquire.await.expect("the abort gives it back");
        if permit.class() == Standard {
            panic!("as planned");
        }
    });
    let waiting = start(bench.acquire(Standard));
    let never = start(bench.acquire(Standard));
    bench.until_waiting(3).await;
    never.abort();
    aborted.abort();
    assert!(panicked.await.expect_err("it panics").is_panic());
    drop(waiting.await.expect("it runs").expect("the panic gives it back"));
    assert!(never.await.expect_err("it left the line").is_cancelled());
    assert_eq!(bench.now(), ms(0), "each was woken, and none by its timer");
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn the_bound_on_age_ends_the_wait_promptly() {
    let bench = Bench::new(bounded(1, 9, ms(50)));
    let _held = bench.admit(Standard);
    tokio::time::advance(Duration::from_millis(7)).await;
    let arrived = bench.now();
    tokio::time::advance(Duration::from_millis(10)).await;
    // Age counts from header arrival, not from the offer.
    let deadline = Deadline::after(arrived, ms(500));
    let outcome = bench.admission.acquire(Standard, arrived, deadline, Nanos::ZERO).await;
    assert_eq!((dropped(outcome), bench.now()), ((Expiry::TooOld, ms(50)), arrived + ms(50)));
    // All of its time went by before it asked.
    let outcome = bench.admission.acquire(Standard, ms(0), deadline, Nanos::ZERO).await;
    assert!(matches!(outcome, Err(Denied::Rejected { reason: Reject::TooOld, .. })), "{outcome:?}");
    assert_eq!(bench.out(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_finish_gets_no_permit() {
    let bench = Bench::new(legacy(1));
    let held = bench.admit(Standard);
    let deadline = Deadline::at(ms(100));
    let outcome = bench.admission.acquire(Standard, ms(0), deadline, ms(30)).await;
    let (reason, age) = dropped(outcome);
    // Exactly the useful span would still do; the timer ticks in milliseconds.
    assert_eq!((reason, bench.now()), (Expiry::CannotFinish, ms(71)));
    assert_eq!(age, ms(71));

    // Granted in time, and looked at too late: the permit goes to one who can use it.
    let mut slow = bench.admission.acquire_at(
        Arrival { class: Standard, arrived: ms(71), deadline: Deadline::at(ms(200)), useful: ms(30) },
        ms(71),
    );
    assert!(poll(&mut slow).is_none());
    let next = start(bench.acquire(Standard));
    bench.until_waiting(2).await;
    drop(held);
    assert_eq!(bench.out(), (1, 1));
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(dropped(slow.await), (Expiry::CannotFinish, ms(100)));
    drop(next.await.expect("it runs").expect("the permit went on"));

    // At the offer, with a permit free.
    let late = Arrival { class: Standard, arrived: ms(0), deadline: Deadline::at(ms(171)), useful: ms(0) };
    let outcome = bench.admission.acquire_at(late, bench.now()).await;
    assert!(matches!(outcome, Err(Denied::Rejected { reason: Reject::CannotFinish, .. })), "{outcome:?}");
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn raising_the_limit_wakes_and_lowering_revokes_nothing() {
    let bench = Bench::new(legacy(2));
    let held = [bench.admit(Standard), bench.admit(Standard)];
    let waiters: Vec<_> = (0..100).map(|_| start(bench.acquire(Standard))).collect();
    bench.until_waiting(100).await;
    // More than one batch of wakers, all by this one call.
    bench.admission.reconfigure(config(legacy(102)));
    let mut permits = Vec::new();
    for waiter in waiters {
        permits.push(waiter.await.expect("it runs").expect("there is room"));
    }
    bench.admission.reconfigure(config(legacy(2)));
    assert_eq!((bench.out(), bench.admission.config().limit()), ((102, 0), 2));
    let mut waiter = bench.queue(Standard);
    drop(permits);
    assert!(poll(&mut waiter).is_none(), "two are out still");
    drop(held);
    drop(poll(&mut waiter).expect("its turn has come").expect("a permit"));
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn timers_follow_the_bound_on_age() {
    let bench = Bench::new(legacy(1));
    let _held = bench.admit(Standard);
    let waiter = start(bench.acquire(Standard));
    bench.until_waiting(1).await;
    bench.admission.reconfigure(config(bounded(1, 9, ms(40))));
    assert_eq!(dropped(waiter.await.expect("it runs")), (Expiry::TooOld, ms(40)));
    // And the other way.
    let since = bench.now();
    let waiter = start(bench.acquire(Standard));
    bench.until_waiting(1).await;
    tokio::time::advance(Duration::from_millis(39)).await;
    bench.admission.reconfigure(config(bounded(1, 9, ms(400))));
    assert_eq!(dropped(waiter.await.expect("it runs")), (Expiry::TooOld, ms(400)));
    assert_eq!(bench.now(), since + ms(400));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_class_leaves_the_others_their_floors() {
    let partitions = [permits(5, 9), permits(3, 6), permits(1, 2)];
    let bench = Bench::new(Settings { partitions, choice: Choice::Share, ..bounded(10, 4, ms(50)) });
    let mut flood: Vec<_> = (0..200).map(|_| bench.acquire(Enterprise)).collect();
    let outcomes: Vec<_> = flood.iter_mut().map(poll).collect();
    let count = |wanted: fn(&Option<Result<OwnedPermit, Denied>>) -> bool| {
        outcomes.iter().filter(|outcome| wanted(outcome)).count()
    };
    assert_eq!(count(|outcome| matches!(outcome, Some(Ok(_)))), 2);
    assert_eq!(count(Option::is_none), 4);
    assert_eq!(
        count(|outcome| matches!(outcome, Some(Err(Denied::Rejected { reason: Reject::QueueFull, .. })))),
        194
    );
    let others = [Standard; 5].into_iter().chain([Premium; 3]);
    let others: Vec<_> = others.map(|class| bench.admit(class)).collect();
    assert_eq!(bench.admission.observe().classes.map(|standing| standing.held), [5, 3, 2]);
    drop((outcomes, flood, others));
    bench.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn the_old_design_waits_without_end() {
    let bench = Bench::new(legacy(1));
    let held = bench.admit(Standard);
    let forever = Deadline::at(Nanos::MAX);
    let mut waiters: Vec<_> =
        (0..2_000).map(|_| bench.admission.acquire(Standard, ms(0), forever, Nanos::ZERO)).collect();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_none()));
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(bench.admission.observe().oldest_age, Some(Nanos::from_secs(3_600)));
    assert_eq!(bench.out(), (1, 2_000));
    drop(held);
    for mut waiter in waiters {
        let permit = poll(&mut waiter).expect("its turn has come").expect("a permit");
        assert_eq!(permit.waited(), Some(Nanos::from_secs(3_600)));
    }
    bench.assert_empty();
}
