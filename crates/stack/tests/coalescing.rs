//! Coalescing as a process sees it: requests that are tasks, callers that go away, calls that fail, panic or never end,
//! supervisors that refuse. Time is paused; what must have happened is waited for by what it does.

use std::{
    future::{Future, Ready, pending},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use base::{
    Clock, Deadline, Nanos, World,
    clock::SystemWallClock,
    ids::IdSource,
    tasks::{Spawn, Task},
};
use control::coalescing::{NoJoin, Rules};
use stack::coalescing::{Coalescer, FlightBudget, Joined, Missed, Role, TASK_NAME};
use tokio::{
    sync::watch,
    task::{JoinHandle, yield_now},
    time::{Instant, advance, sleep, timeout},
};

const RULES: Rules = Rules {
    freshness_window: Nanos::from_millis(500),
    useful_min: Nanos::from_millis(5),
    duration_max: Nanos::from_secs(1),
    flights_max: 64,
    waiters_max: 256,
};

type Answer = Result<Joined<u64>, Missed<&'static str>>;

struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Nanos {
        Nanos::from(self.0.elapsed())
    }
}

/// A task of the test's runtime, standing for a request that arrived from outside.
#[expect(clippy::disallowed_methods, reason = "requests of the test stand outside the process under test")]
fn request<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

#[derive(Default)]
struct Supervisor {
    /// Held by every task that has not been dropped.
    live: Arc<()>,
    refuses: AtomicBool,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Spawn for Supervisor {
    fn spawn(&self, name: &'static str, task: Task) {
        assert_eq!(name, TASK_NAME);
        if self.refuses.load(SeqCst) {
            return;
        }
        let held = Arc::clone(&self.live);
        let handle = request(async move {
            let _held = held;
            task.await;
        });
        self.handles.lock().expect("handles").push(handle);
    }
}

/// A process with one coalescer, and the calls that it makes.
struct Process {
    coalescer: Coalescer<u64, u64, &'static str>,
    clock: Arc<dyn Clock>,
    tasks: Arc<Supervisor>,
    /// How many were ever made.
    calls: Arc<AtomicUsize>,
    /// Held by every call whose future has not been dropped.
    calling: Arc<()>,
    /// What calls wait for, and answer with.
    release: watch::Sender<Option<Result<u64, &'static str>>>,
}

impl Process {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(Instant::now()));
        let tasks: Arc<Supervisor> = Arc::default();
        let world = World {
            clock: Arc::clone(&clock),
            wall: Arc::new(SystemWallClock),
            ids: Arc::new(IdSource::new(7)),
            tasks: Arc::<Supervisor>::clone(&tasks),
            points: base::inject::Points::default(),
        };
        Self {
            coalescer: Coalescer::new(world),
            clock,
            tasks,
            calls: Arc::default(),
            calling: Arc::default(),
            release: watch::channel(None).0,
        }
    }

    fn within(&self, ms: u64) -> Deadline {
        Deadline::after(self.clock.now(), Nanos::from_millis(ms))
    }

    /// A request that would make `call`.
    fn asks<C, F>(&self, rules: Rules, key: u64, ms: u64, call: C) -> JoinHandle<Answer>
    where
        C: FnOnce(FlightBudget) -> F + Send + 'static,
        F: Future<Output = Result<u64, &'static str>> + Send + 'static,
    {
        let (calls, calling) = (Arc::clone(&self.calls), Arc::downgrade(&self.calling));
        request(self.coalescer.join(rules, key, self.within(ms), move |budget| {
            calls.fetch_add(1, SeqCst);
            let (held, call) = (calling.upgrade(), call(budget));
            async move {
                let _held = held;
                call.await
            }
        }))
    }

    /// A request whose call ends when the test says so.
    fn waits(&self, rules: Rules, key: u64, ms: u64) -> JoinHandle<Answer> {
        let mut released = self.release.subscribe();
        self.asks(rules, key, ms, move |_| async move {
            let result = released.wait_for(Option::is_some).await.expect("the test is there");
            result.expect("just checked")
        })
    }

    /// Lets every task run until `what` holds, without letting time pass.
    async fn until(&self, what: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if what(self) {
                return;
            }
            yield_now().await;
        }
        panic!("never came true: {:?}", self.coalescer.counts());
    }

    async fn settles(&self, waiters: u64, calls: usize) {
        self.until(|process| process.coalescer.waiters() == waiters && process.under_way() == calls).await;
    }

    fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    fn under_way(&self) -> usize {
        Arc::strong_count(&self.calling) - 1
    }

    /// Nothing is left, and the sums hold.
    async fn is_empty(&self) {
        self.until(|process| Arc::strong_count(&process.tasks.live) == 1).await;
        assert_eq!((self.coalescer.flights(), self.coalescer.waiters(), self.under_way()), (0, 0, 0));
        let counts = self.coalescer.counts();
        assert_eq!((counts.open(), counts.group_sum), (0, counts.started + counts.joined));
    }
}

/// The answer of a request. One that never comes is a failure and not a hang.
async fn answer(request: JoinHandle<Answer>) -> Answer {
    timeout(Duration::from_secs(3_600), request).await.expect("an answer").expect("no panic in the request")
}

async fn abort(request: JoinHandle<Answer>) {
    request.abort();
    assert!(request.await.expect_err("aborted").is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn identical_reads_make_one_call() {
    let process = Process::new();
    let requests: Vec<_> = (0..200).map(|_| process.waits(RULES, 1, 900)).collect();
    process.settles(200, 1).await;
    assert_eq!((process.coalescer.flights(), process.calls()), (1, 1));
    process.release.send_replace(Some(Ok(42)));
    let mut leaders = 0;
    for request in requests {
        let joined = answer(request).await.expect("an answer");
        assert_eq!((joined.value, joined.group), (42, 200));
        leaders += usize::from(joined.role == Role::Leader);
    }
    assert_eq!((leaders, process.calls()), (1, 1));
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn different_keys_never_share() {
    let process = Process::new();
    let ask = |key| {
        process.asks(RULES, key, 900, move |_| async move {
            sleep(Duration::from_millis(200)).await;
            Ok(key * 10)
        })
    };
    let requests: Vec<_> = (0..40).map(|index| (index % 20, ask(index % 20))).collect();
    for (key, request) in requests {
        assert_eq!(answer(request).await.map(|joined| (joined.value, joined.group)), Ok((key * 10, 2)));
    }
    assert_eq!(process.calls(), 20);
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cancelled_fails_nobody() {
    let process = Process::new();
    let leader = process.waits(RULES, 1, 900);
    process.settles(1, 1).await;
    let followers: Vec<_> = (0..20).map(|_| process.waits(RULES, 1, 900)).collect();
    process.settles(21, 1).await;
    abort(leader).await;
    assert_eq!((process.coalescer.waiters(), process.under_way()), (20, 1));
    process.release.send_replace(Some(Ok(7)));
    for follower in followers {
        assert_eq!(answer(follower).await, Ok(Joined { value: 7, role: Role::Follower, group: 21 }));
    }
    assert_eq!(process.calls(), 1);
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_to_leave_cancels_the_call() {
    let process = Process::new();
    let [first, second] = [(); 2].map(|()| process.waits(RULES, 1, 900));
    process.settles(2, 1).await;
    abort(first).await;
    advance(Duration::from_millis(100)).await;
    assert_eq!((process.coalescer.waiters(), process.under_way()), (1, 1));
    abort(second).await;
    assert_eq!(process.coalescer.flights(), 0, "the key is free at once");
    process.settles(0, 0).await;
    assert_eq!(process.coalescer.counts().cancelled, 1);
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn leaders_aborted_one_after_the_other_leave_nothing() {
    let process = Process::new();
    for turn in 1..=250 {
        let leader = process.waits(RULES, 1, 900);
        process.until(|process| process.calls() == turn).await;
        abort(leader).await;
    }
    process.settles(0, 0).await;
    // With somebody always aboard, the leaders that go are many and the call is one.
    let stays = process.waits(RULES, 1, 900);
    process.settles(1, 1).await;
    for _ in 0..250 {
        let passes = process.waits(RULES, 1, 900);
        process.settles(2, 1).await;
        abort(passes).await;
    }
    process.release.send_replace(Some(Ok(3)));
    assert_eq!(answer(stays).await, Ok(Joined { value: 3, role: Role::Leader, group: 251 }));
    assert_eq!(process.calls(), 251);
    assert_eq!(process.coalescer.counts().cancelled, 250);
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn each_waiter_keeps_its_own_deadline() {
    let process = Process::new();
    let seen = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&seen);
    let leader = process.asks(RULES, 1, 50, move |budget| async move {
        *tell.lock().expect("seen") = Some(budget.limit);
        sleep(Duration::from_millis(300)).await;
        Ok(9)
    });
    process.settles(1, 1).await;
    let [follower, hurried] = [2_000, 20].map(|ms| process.waits(RULES, 1, ms));
    process.settles(3, 1).await;
    let limit = Some(process.within(1_000));
    assert_eq!(*seen.lock().expect("seen"), limit, "not the leader's own deadline");
    assert_eq!(answer(hurried).await, Err(Missed::Deadline));
    assert_eq!(process.clock.now().as_millis() / 5, 4, "the hurried follower ends at 20 ms, and alone");
    assert_eq!((process.coalescer.waiters(), process.under_way()), (2, 1));
    assert_eq!(answer(leader).await, Err(Missed::Deadline));
    assert_eq!(process.clock.now().as_millis() / 5, 10, "the leader ends at 50 ms");
    assert_eq!(answer(follower).await, Ok(Joined { value: 9, role: Role::Follower, group: 3 }));
    assert_eq!(process.clock.now().as_millis() / 5, 60, "the follower is answered at 300 ms");
    assert_eq!(process.calls(), 1);
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ignores_its_limit_ends_there() {
    let process = Process::new();
    let [first, second] = [5_000, 9_000].map(|ms| process.asks(RULES, 1, ms, |_| pending()));
    assert_eq!((answer(first).await, answer(second).await), (Err(Missed::Limit), Err(Missed::Limit)));
    assert_eq!(process.clock.now().as_millis() / 5, 200, "both end at 1 s");
    assert_eq!((process.calls(), process.coalescer.counts().expired), (1, 1));
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_once_to_each_and_to_nobody_later() {
    let process = Process::new();
    let requests: Vec<_> = (0..50).map(|_| process.waits(RULES, 1, 900)).collect();
    process.settles(50, 1).await;
    process.release.send_replace(Some(Err("broken")));
    for request in requests {
        assert_eq!(answer(request).await, Err(Missed::Failed("broken")));
    }
    assert_eq!(process.calls(), 1, "nobody is run again");
    process.release.send_replace(Some(Ok(1)));
    assert_eq!(
        answer(process.waits(RULES, 1, 900)).await,
        Ok(Joined { value: 1, role: Role::Leader, group: 1 })
    );
    assert_eq!((process.calls(), process.coalescer.counts().failed), (2, 1));
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_those_who_wait_and_frees_the_key() {
    async fn panics() -> Result<u64, &'static str> {
        yield_now().await;
        panic!("expected by the test")
    }
    let process = Process::new();
    let later = [(); 2].map(|()| process.asks(RULES, 1, 900, |_| panics()));
    let before_its_future = |_| -> Ready<Result<u64, &'static str>> { panic!("expected by the test") };
    let at_once = [(); 2].map(|()| process.asks(RULES, 2, 900, before_its_future));
    for request in later.into_iter().chain(at_once) {
        assert_eq!(answer(request).await, Err(Missed::Panicked));
    }
    let counts = process.coalescer.counts();
    assert_eq!((process.clock.now(), counts.panicked, counts.stopped), (Nanos::ZERO, 2, 0));
    process.release.send_replace(Some(Ok(1)));
    for key in [1, 2] {
        assert!(answer(process.waits(RULES, key, 900)).await.is_ok());
    }
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_refused_or_aborted_fails_those_who_wait() {
    let process = Process::new();
    process.tasks.refuses.store(true, SeqCst);
    assert_eq!(answer(process.waits(RULES, 1, 900)).await, Err(Missed::Stopped));
    assert_eq!(process.calls(), 0);
    process.tasks.refuses.store(false, SeqCst);
    let requests = [(); 2].map(|()| process.waits(RULES, 1, 900));
    process.settles(2, 1).await;
    process.tasks.handles.lock().expect("handles").drain(..).for_each(|handle| handle.abort());
    for request in requests {
        assert_eq!(answer(request).await, Err(Missed::Stopped));
    }
    assert_eq!(process.clock.now(), Nanos::ZERO);
    let counts = process.coalescer.counts();
    assert_eq!((counts.stopped, counts.panicked, counts.failed), (2, 0, 0));
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn bounds_hold_at_the_limit_and_one_above() {
    let process = Process::new();
    let rules = Rules { flights_max: 2, waiters_max: 3, ..RULES };
    let mut requests: Vec<_> = (0..3).map(|_| process.waits(rules, 1, 900)).collect();
    process.settles(3, 1).await;
    requests.push(process.waits(rules, 1, 900));
    process.settles(4, 2).await;
    assert_eq!(process.coalescer.flights(), 2, "a full group: another flight");
    assert_eq!(answer(process.waits(rules, 2, 900)).await, Err(Missed::Overload));
    assert_eq!(answer(process.waits(rules, 1, 0)).await, Err(Missed::Deadline), "no time left on arrival");
    process.release.send_replace(Some(Ok(5)));
    for (request, group) in requests.into_iter().zip([3, 3, 3, 1]) {
        assert_eq!(answer(request).await.map(|joined| joined.group), Ok(group));
    }
    assert_eq!(process.calls(), 2);
    assert!(answer(process.waits(rules, 2, 900)).await.is_ok(), "the table has room again");
    process.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_flight_older_than_the_freshness_window_is_not_joined() {
    let process = Process::new();
    let mut requests = vec![process.waits(RULES, 1, 990)];
    process.settles(1, 1).await;
    advance(Duration::from_millis(500)).await;
    requests.push(process.waits(RULES, 1, 990));
    process.settles(2, 1).await; // At the window it is joined.
    advance(Duration::from_nanos(1)).await;
    requests.extend([(); 2].map(|()| process.waits(RULES, 1, 990)));
    process.settles(4, 2).await; // Past it, the younger one is.
    assert_eq!(process.coalescer.counts().not_joined[NoJoin::Stale.index()], 1);
    process.release.send_replace(Some(Ok(5)));
    for request in requests {
        assert_eq!(answer(request).await.map(|joined| joined.group), Ok(2));
    }
    process.is_empty().await;
}
