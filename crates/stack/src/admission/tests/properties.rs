//! What the driver adds to the gate, after every step of any history: permits that are out are those that somebody has,
//! and whoever's turn has come has been woken.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    TryAdmit(WorkloadClass),
    /// Asks, and stays unless it is answered.
    Acquire(WorkloadClass),
    /// A waiter looks, woken or not.
    Poll(prop::sample::Index),
    /// A waiter goes away.
    Leave(prop::sample::Index),
    Release(prop::sample::Index),
    Reconfigure(Bounds),
}

/// Permits that are for anybody, and by class the floor and what the ceiling has above it.
type Bounds = (u32, [(u32, u32); CLASSES]);

fn bounds() -> impl Strategy<Value = Bounds> {
    (1_u32..4, prop::array::uniform3((0_u32..3, 0_u32..5)))
}

fn config((shared, bounds): Bounds) -> Config {
    let limit = bounds.iter().map(|(floor, _)| floor).sum::<u32>() + shared;
    let partitions = bounds.map(|(floor, more)| Partition {
        floor: Bound::Permits(floor),
        ceiling: Bound::Permits((floor + more).clamp(1, limit)),
    });
    // Without a bound on age no timer is needed, and so no runtime.
    let waiting = Waiting::Unbounded;
    let settings =
        Settings { limit, partitions, waiting, choice: Choice::Share, retry_after: Nanos::from_millis(10) };
    settings.validate().expect("sound settings")
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop::sample::select(WorkloadClass::ALL.to_vec());
    let index = any::<prop::sample::Index>;
    prop_oneof![
        3 => class.clone().prop_map(Step::TryAdmit),
        5 => class.prop_map(Step::Acquire),
        3 => index().prop_map(Step::Poll),
        2 => index().prop_map(Step::Leave),
        5 => index().prop_map(Step::Release),
        1 => bounds().prop_map(Step::Reconfigure),
    ]
}

struct Waiter {
    acquire: Acquire,
    wakes: Arc<Counter>,
    /// How often it had been woken when it last looked.
    seen: u32,
}

struct Bench {
    admission: Admission,
    permits: Vec<OwnedPermit>,
    waiters: Vec<Waiter>,
}

impl Bench {
    /// Polls a waiter; one that is answered is one no longer.
    fn poll(&mut self, mut waiter: Waiter) {
        waiter.seen = waiter.wakes.wakes.load(Ordering::SeqCst);
        match poll(&mut waiter.acquire, &Arc::clone(&waiter.wakes).into()) {
            None => self.waiters.push(waiter),
            Some(outcome) => self.permits.push(outcome.expect("without bounds on waiting nobody is refused")),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::TryAdmit(class) => {
                let before = self.admission.observe().classes[class.index()];
                let answer =
                    self.admission.try_admit(class, Nanos::ZERO, Deadline::at(Nanos::MAX), Nanos::ZERO);
                let after = self.admission.observe().classes[class.index()];
                prop_assert_eq!(after.books.missed - before.books.missed, u64::from(answer.is_err()));
                prop_assert!(answer.is_err() || before.waiting == 0, "overtook its own class");
                self.permits.extend(answer);
            }
            Step::Acquire(class) => {
                let acquire = acquire(&self.admission, class);
                self.poll(Waiter { acquire, wakes: Arc::default(), seen: 0 });
            }
            Step::Poll(which) if !self.waiters.is_empty() => {
                let waiter = self.waiters.swap_remove(which.index(self.waiters.len()));
                self.poll(waiter);
            }
            Step::Leave(which) if !self.waiters.is_empty() => {
                drop(self.waiters.swap_remove(which.index(self.waiters.len())));
            }
            Step::Release(which) if !self.permits.is_empty() => {
                drop(self.permits.swap_remove(which.index(self.permits.len())));
            }
            Step::Reconfigure(bounds) => self.admission.reconfigure(config(bounds)),
            Step::Poll(_) | Step::Leave(_) | Step::Release(_) => {}
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), TestCaseError> {
        let observed = self.admission.observe();
        let handed: u32 = observed.classes.iter().map(|standing| standing.handed).sum();
        prop_assert_eq!(observed.held, self.permits.len() as u32 + handed);
        prop_assert_eq!(observed.waiting + handed, self.waiters.len() as u32);
        for (class, standing) in WorkloadClass::ALL.into_iter().zip(observed.classes) {
            prop_assert!(standing.balances(), "{:?}", standing);
            let out = self.permits.iter().filter(|permit| permit.class() == class).count() as u32;
            prop_assert_eq!(standing.held, out + standing.handed);
        }
        // Everybody who has been given a permit has been woken since it last looked.
        let woken =
            self.waiters.iter().filter(|waiter| waiter.wakes.wakes.load(Ordering::SeqCst) > waiter.seen);
        prop_assert!(woken.count() as u32 >= handed, "somebody's turn came, and nobody told");
        prop_assert!(self.admission.shared.lock().gate.next_woken().is_none(), "a wake-up was left undone");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn permits_are_somebodys_and_turns_are_told(
        first in bounds(), steps in prop::collection::vec(step(), 0..150),
    ) {
        let admission = Admission::new(config(first), Arc::new(MonotonicClock));
        let mut bench = Bench { admission, permits: Vec::new(), waiters: Vec::new() };
        for step in steps {
            bench.step(step)?;
            bench.verify()?;
        }
        // Everybody goes home, in the order of arrival, looking once more: permits pass from one to the next.
        while !bench.permits.is_empty() || !bench.waiters.is_empty() {
            bench.permits.clear();
            for waiter in std::mem::take(&mut bench.waiters) {
                bench.poll(waiter);
            }
            bench.verify()?;
            prop_assert!(!bench.permits.is_empty() || bench.waiters.is_empty(), "they wait for nobody");
        }
        assert_empty(&bench.admission);
    }
}
