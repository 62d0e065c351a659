//! Tests of the timer: with a clock moved by hand, and once against the kernel.

use std::time::Duration;

use base::clock::MonotonicClock;
use tokio::sync::oneshot;

use super::*;
use crate::testing::{Bell, MS, ManualClock};

fn poll(sleep: &mut Sleep, bell: &Arc<Bell>) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(&Waker::from(Arc::clone(bell))))
}

#[test]
fn sleepers_wake_in_order_of_time_and_measure_their_lateness() {
    let clock = ManualClock::at(Nanos::from_secs(5));
    let alarms = Alarms::manual(clock.clone());
    let (early, late) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let start = clock.now();
    let (mut second, mut first) = (alarms.until(start + MS + MS), alarms.until(start + MS));
    assert!(poll(&mut second, &late).is_pending() && poll(&mut first, &early).is_pending());
    alarms.fire();
    assert_eq!((early.rang(), late.rang()), (0, 0), "nobody is due");
    clock.advance(MS);
    alarms.fire();
    assert_eq!((early.rang(), late.rang()), (1, 0), "due from the very instant on");
    assert!(poll(&mut first, &early).is_ready());
    assert_eq!(alarms.lateness_p99(), Some(Nanos::ZERO));
    clock.advance(Nanos::from_millis(4));
    alarms.fire();
    assert!(poll(&mut second, &late).is_ready());
    let p99 = alarms.lateness_p99().expect("two sleeps");
    assert!((2_980..3_020).contains(&p99.as_micros()), "{p99}");
    alarms.reset_lateness();
    assert_eq!(alarms.lateness_p99(), None);
    assert_eq!(alarms.waiting(), 0);
}

#[test]
fn a_dropped_sleep_leaves_nothing_behind_and_a_past_one_is_no_lateness() {
    let clock = ManualClock::at(Nanos::from_secs(5));
    let alarms = Alarms::manual(clock.clone());
    let bell = Arc::new(Bell::default());
    let mut sleep = alarms.until(clock.now() + MS);
    assert!(poll(&mut sleep, &bell).is_pending());
    assert_eq!(alarms.waiting(), 1);
    drop(sleep);
    assert_eq!(alarms.waiting(), 0);
    assert!(poll(&mut alarms.until(Nanos::ZERO), &bell).is_ready());
    assert_eq!(alarms.lateness_p99(), None);
}

#[test]
fn sleepers_of_the_same_time_are_all_woken_and_a_new_waker_replaces_the_old_one() {
    let clock = ManualClock::at(Nanos::ZERO);
    let alarms = Alarms::manual(clock.clone());
    let (old, new) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let mut sleeps: Vec<Sleep> = (0..3).map(|_| alarms.until(MS)).collect();
    for sleep in &mut sleeps {
        assert!(poll(sleep, &old).is_pending());
        assert!(poll(sleep, &new).is_pending());
    }
    assert_eq!(alarms.waiting(), 3);
    clock.advance(MS);
    alarms.fire();
    assert_eq!((old.rang(), new.rang()), (0, 3));
}

/// Hands tasks to the test's own runtime and tells when one ends.
struct Tasks(Mutex<Option<oneshot::Sender<()>>>);

impl Spawn for Tasks {
    fn spawn(&self, _name: &'static str, task: base::tasks::Task) {
        let ended = self.0.lock().expect("not poisoned").take();
        #[expect(
            clippy::disallowed_methods,
            reason = "the test is the supervisor and waits for the task's end"
        )]
        let _detached = tokio::spawn(async move {
            task.await;
            drop(ended);
        });
    }
}

#[tokio::test]
async fn the_kernel_wakes_in_time_and_the_task_ends_with_the_last_handle() {
    let (ended, end) = oneshot::channel();
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
    let alarms = Alarms::start(Arc::clone(&clock), &Tasks(Mutex::new(Some(ended)))).expect("a timer");
    for micros in [300, 1_700, 50] {
        let at = clock.now() + Nanos::from_micros(micros);
        // A later sleep beside it must not delay it.
        let later = alarms.until(at + Nanos::from_secs(60));
        tokio::select! {
            biased; // The order does not matter; one of them is a minute away.
            () = later => panic!("woke a minute early"),
            () = alarms.until(at) => assert!(clock.now() >= at),
        }
    }
    // The kernel is armed for the first; for the others when it wakes.
    let now = clock.now();
    let (first, second, third) =
        (alarms.until(now + MS), alarms.until(now + MS + MS), alarms.until(now + MS + MS));
    let all = async { tokio::join!(first, second, third) };
    tokio::select! {
        biased; // The bound first: at its end the sleepers would find by themselves that they are due.
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("a sleeper was forgotten"),
        _ = all => {}
    }
    assert!(alarms.lateness_p99().is_some());
    drop(alarms);
    // Closed when the task's future is gone.
    assert!(end.await.is_err());
}
