//! What holds after every step of any history: random arrivals, departures, changes of bounds and abandonments.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// One step. Numbers pick among what there is, so that every step means something in every state.
#[derive(Clone, Debug)]
enum Step {
    Offer {
        class: WorkloadClass,
        age_ms: u64,
        left_ms: u64,
        useful_ms: u64,
        ask: Ask,
    },
    Release(usize),
    Check(usize),
    Abandon(usize),
    /// Time passes; what was decided meanwhile is not told yet.
    Pass(u64),
    Wake,
    Sweep,
    Reconfigure(usize),
}

/// In which way an arrival asks.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// It would wait.
    Offer,
    /// It would not.
    TryOffer,
    /// Only while there are plenty, before it is offered.
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop::sample::select(WorkloadClass::ALL.to_vec());
    // Half of the time there is no hurry, so that the queue grows.
    let left_ms = prop_oneof![0_u64..60, Just(100_000)];
    let ask = prop_oneof![10 => Just(Ask::Offer), 2 => Just(Ask::TryOffer), 2 => Just(Ask::Take)];
    prop_oneof![
        14 => (class, 0_u64..5, left_ms, 0_u64..15, ask)
            .prop_map(|(class, age_ms, left_ms, useful_ms, ask)| Step::Offer {
                class, age_ms, left_ms, useful_ms, ask
            }),
        7 => any::<usize>().prop_map(Step::Release),
        2 => any::<usize>().prop_map(Step::Check),
        2 => any::<usize>().prop_map(Step::Abandon),
        3 => (0_u64..12).prop_map(Step::Pass),
        3 => Just(Step::Wake),
        1 => Just(Step::Sweep),
        1 => any::<usize>().prop_map(Step::Reconfigure),
    ]
}

/// Any sound settings, small enough to be at their bounds all the time.
fn settings() -> impl Strategy<Value = Settings> {
    let waiting = prop_oneof![
        3 => (prop::array::uniform3(0_u32..5), 1_u64..40)
            .prop_map(|(count_max, age_ms)| Waiting::Bounded { count_max, age_max: ms(age_ms) }),
        1 => Just(Waiting::Unbounded),
    ];
    let bounds = prop::array::uniform3((0_u32..4, 0_u32..8));
    let choice = prop_oneof![Just(Choice::Share), Just(Choice::Oldest)];
    (bounds, 0_u32..5, waiting, choice).prop_map(|(bounds, shared, waiting, choice)| {
        let limit = (bounds.iter().map(|(floor, _)| floor).sum::<u32>() + shared).max(1);
        let partitions = bounds.map(|(floor, more)| permits(floor, (floor + more).clamp(1, limit)));
        Settings { limit, partitions, waiting, choice, retry_after: ms(10) }
    })
}

/// A waiter, as the test knows it.
struct Client {
    ticket: Ticket,
    class: WorkloadClass,
    turn: usize,
    arrived: Nanos,
    late_from: Nanos,
}

/// The gate beside what must be true of it.
struct Bench {
    gate: Gate,
    now: Nanos,
    permits: Vec<Permit>,
    waiting: BTreeMap<usize, Client>,
    /// Clients that were queued so far.
    turns: usize,
    /// The latest of them that was granted a permit, by class.
    last_granted: [Option<usize>; CLASSES],
}

impl Bench {
    fn new(settings: Settings) -> Self {
        Self {
            gate: gate(settings),
            now: ms(1_000),
            permits: Vec::new(),
            waiting: BTreeMap::new(),
            turns: 0,
            last_granted: [None; CLASSES],
        }
    }

    fn held(&self) -> [u32; CLASSES] {
        WorkloadClass::ALL.map(|class| self.gate.standing(class).held)
    }

    /// From first principles, not from the gate's own sums.
    fn could_take(&self, class: WorkloadClass) -> bool {
        let (config, held) = (self.gate.config(), self.held());
        let others: u32 = WorkloadClass::ALL
            .into_iter()
            .filter(|other| *other != class)
            .map(|other| held[other.index()].max(config.floor(other)))
            .sum();
        let own = held[class.index()];
        let free = held.iter().sum::<u32>() < config.limit();
        free && own < config.ceiling(class) && (own < config.floor(class) || own + others < config.limit())
    }

    fn is_granted(&self, id: usize) -> bool {
        matches!(self.gate.lines.get(id as u32).state, State::Granted(_))
    }

    /// Does one step; returns how many permits came back in it, by class.
    fn step(&mut self, step: Step, all: &[Settings]) -> Result<[u32; CLASSES], TestCaseError> {
        let mut returned = [0; CLASSES];
        match step {
            Step::Offer { class, age_ms, left_ms, useful_ms, ask } => {
                let arrival = Arrival {
                    class,
                    arrived: self.now - ms(age_ms),
                    deadline: Deadline::after(self.now, ms(left_ms)),
                    useful: ms(useful_ms),
                };
                let can_finish = left_ms > 0 && useful_ms <= left_ms;
                match ask {
                    Ask::Offer => self.offer(arrival, can_finish)?,
                    Ask::TryOffer => self.try_offer(arrival, can_finish)?,
                    Ask::Take => self.take(arrival, can_finish)?,
                }
            }
            Step::Release(pick) if !self.permits.is_empty() => {
                let permit = self.permits.swap_remove(pick % self.permits.len());
                returned[permit.class().index()] += 1;
                self.gate.release(permit, || self.now);
            }
            Step::Check(pick) if !self.waiting.is_empty() => {
                let id = *self.waiting.keys().nth(pick % self.waiting.len()).expect("in range");
                returned = self.check(id)?;
            }
            Step::Abandon(pick) if !self.waiting.is_empty() => {
                let id = *self.waiting.keys().nth(pick % self.waiting.len()).expect("in range");
                let granted = self.is_granted(id);
                let Client { ticket, class, .. } = self.waiting.remove(&id).expect("it waits");
                returned[class.index()] += u32::from(granted);
                self.gate.abandon(ticket, || self.now);
            }
            Step::Wake => {
                if let Some(id) = self.gate.next_woken() {
                    prop_assert!(self.waiting.contains_key(&id.index()), "woke one who has gone");
                    returned = self.check(id.index())?;
                }
            }
            Step::Pass(millis) => self.now = self.now + ms(millis),
            Step::Sweep => {
                self.gate.sweep(self.now);
                for waiter in self.waiting.values() {
                    let state = self.gate.lines.get(waiter.ticket.id().0).state;
                    prop_assert!(!matches!(state, State::Queued) || self.now < self.give_up_at(waiter));
                }
            }
            Step::Reconfigure(pick) => {
                let config = all[pick % all.len()].validate().expect("sound settings");
                self.gate.reconfigure(config, self.now);
            }
            Step::Release(_) | Step::Check(_) | Step::Abandon(_) => {}
        }
        Ok(returned)
    }

    fn give_up_at(&self, waiter: &Client) -> Nanos {
        match self.gate.config().waiting() {
            Waiting::Bounded { age_max, .. } => waiter.late_from.min(waiter.arrived + age_max),
            Waiting::Unbounded => waiter.late_from,
        }
    }

    /// Without a wait: a permit exactly when it is entitled to one, and otherwise nothing but an entry in the books.
    fn try_offer(&mut self, arrival: Arrival, can_finish: bool) -> Result<(), TestCaseError> {
        let class = arrival.class;
        let entitled = can_finish && self.could_take(class);
        let before = self.gate.standing(class);
        let outcome = self.gate.try_offer(arrival, self.now);
        let mut expected = before;
        expected.books.offered += 1;
        match outcome {
            Ok(permit) => {
                prop_assert!(entitled);
                prop_assert_eq!((permit.class(), permit.age()), (class, None));
                self.permits.push(permit);
                expected.books.admitted += 1;
                expected.held += 1;
                expected.peak = expected.peak.max(expected.held);
            }
            Err(Rejection { reason, retry_after }) => {
                prop_assert!(!entitled && !retry_after.is_zero());
                if can_finish {
                    prop_assert_eq!(reason, Reject::QueueFull);
                    expected.books.missed += 1;
                } else {
                    prop_assert_eq!(reason, Reject::CannotFinish);
                    expected.books.rejected[Reject::CannotFinish as usize] += 1;
                }
            }
        }
        prop_assert_eq!(self.gate.standing(class), expected);
        Ok(())
    }

    /// A permit exactly when it is entitled to one, and otherwise nothing at all.
    fn take(&mut self, arrival: Arrival, can_finish: bool) -> Result<(), TestCaseError> {
        let entitled = can_finish && self.could_take(arrival.class);
        let before = self.gate.standing(arrival.class);
        match self.gate.take(&arrival, self.now) {
            Some(permit) => {
                prop_assert!(entitled);
                self.permits.push(permit);
            }
            None => {
                prop_assert!(!entitled);
                prop_assert_eq!(self.gate.standing(arrival.class), before);
            }
        }
        Ok(())
    }

    fn offer(&mut self, arrival: Arrival, can_finish: bool) -> Result<(), TestCaseError> {
        let (now, class) = (self.now, arrival.class);
        let entitled = can_finish && self.could_take(class);
        match self.gate.offer(arrival, now) {
            Offer::Admitted(permit) => {
                prop_assert!(entitled);
                self.permits.push(permit);
            }
            Offer::Queued { ticket, give_up_at } => {
                prop_assert!(can_finish && !entitled && now < give_up_at);
                if let Waiting::Bounded { count_max, .. } = self.gate.config().waiting() {
                    prop_assert!(self.gate.standing(class).waiting <= count_max[class.index()]);
                }
                let late_from = arrival.late_from();
                let waiter = Client { class, turn: self.turns, arrived: arrival.arrived, late_from, ticket };
                self.turns += 1;
                let taken = self.waiting.insert(waiter.ticket.id().index(), waiter);
                prop_assert!(taken.is_none(), "two waiters of one name");
            }
            Offer::Rejected(Rejection { reason, retry_after }) => {
                prop_assert!(!entitled, "refused with a permit free for it");
                prop_assert_eq!(reason == Reject::CannotFinish, !can_finish);
                prop_assert!(!retry_after.is_zero());
            }
        }
        Ok(())
    }

    fn check(&mut self, id: usize) -> Result<[u32; CLASSES], TestCaseError> {
        let granted = self.is_granted(id);
        let Client { ticket, class, turn, arrived, late_from } = self.waiting.remove(&id).expect("it waits");
        let mut returned = [0; CLASSES];
        match self.gate.check(ticket, self.now) {
            Verdict::Waiting { ticket, give_up_at } => {
                prop_assert!(!granted && self.now < give_up_at);
                self.waiting.insert(id, Client { ticket, class, turn, arrived, late_from });
            }
            Verdict::Granted { permit, age } => {
                prop_assert!(granted && self.now < late_from && arrived + age < late_from);
                prop_assert_eq!((permit.class(), permit.age()), (class, Some(age)));
                self.permits.push(permit);
            }
            Verdict::Dropped { reason, age } => {
                returned[class.index()] += u32::from(granted);
                prop_assert!(!granted || (reason == Expiry::CannotFinish && self.now >= late_from));
                prop_assert!(reason != Expiry::CannotFinish || arrived + age >= late_from);
            }
        }
        Ok(returned)
    }

    /// Everything that the module promises, after a step that began with `before` and gave `returned` back.
    fn verify(&mut self, before: [u32; CLASSES], returned: [u32; CLASSES]) -> Result<(), TestCaseError> {
        let config = *self.gate.config();
        let held = self.held();
        let total: u32 = held.iter().sum();
        prop_assert_eq!(self.gate.held(), total);
        let committed: u32 =
            WorkloadClass::ALL.into_iter().map(|class| held[class.index()].max(config.floor(class))).sum();
        prop_assert_eq!(self.gate.committed, committed);
        for class in WorkloadClass::ALL {
            let at = class.index();
            // What is out now was out before, or was handed out in this step.
            let handed_out = held[at] + returned[at] - before[at];
            if handed_out > 0 {
                prop_assert!(total <= config.limit(), "above the limit");
                prop_assert!(held[at] <= config.ceiling(class), "above the ceiling");
                prop_assert!(held[at] <= config.floor(class) || committed <= config.limit(), "took a floor");
            }
            let standing = self.gate.standing(class);
            prop_assert!(standing.balances(), "{:?}", standing);
            prop_assert!(standing.waiting == 0 || !self.could_take(class), "{} waits beside a permit", class);
            let out = self.permits.iter().filter(|permit| permit.class() == class).count() as u32;
            prop_assert_eq!(standing.held, out + standing.handed);
        }
        prop_assert_eq!(
            WorkloadClass::ALL.map(|class| self.gate.standing(class).waiting).iter().sum::<u32>(),
            self.gate.waiting()
        );
        prop_assert_eq!(self.gate.has_room(), total < config.limit());
        if self.gate.idle() {
            prop_assert_eq!((self.gate.waiting(), self.gate.next_woken()), (0, None));
        }
        self.verify_order()
    }

    /// Within a class, whoever still waits came after everybody who was granted.
    fn verify_order(&mut self) -> Result<(), TestCaseError> {
        for waiter in self.waiting.values() {
            if self.is_granted(waiter.ticket.id().index()) {
                let last = &mut self.last_granted[waiter.class.index()];
                *last = (*last).max(Some(waiter.turn));
            }
        }
        for waiter in self.waiting.values() {
            if matches!(self.gate.lines.get(waiter.ticket.id().0).state, State::Queued) {
                prop_assert!(self.last_granted[waiter.class.index()] < Some(waiter.turn), "overtaken");
            }
        }
        Ok(())
    }

    /// Ends everything, in the order of the gate.
    fn finish(mut self) -> Result<(), TestCaseError> {
        while let Some((_, waiter)) = self.waiting.pop_first() {
            self.gate.abandon(waiter.ticket, || self.now);
        }
        for permit in self.permits.drain(..) {
            self.gate.release(permit, no_clock);
        }
        prop_assert_eq!((self.gate.held(), self.gate.waiting()), (0, 0));
        prop_assert_eq!(self.gate.next_woken(), None);
        prop_assert!(self.gate.idle());
        for class in WorkloadClass::ALL {
            let Standing { books, held, waiting, handed, .. } = self.gate.standing(class);
            prop_assert_eq!((held, waiting, handed), (0, 0, 0));
            prop_assert_eq!(books.admitted, books.released);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Limit, floors, ceilings, order, books and wake-ups, whatever happens.
    #[test]
    fn every_promise_holds_after_every_step(
        all in prop::collection::vec(settings(), 1..4),
        steps in prop::collection::vec(step(), 0..250),
    ) {
        let mut bench = Bench::new(all[0]);
        for step in steps {
            let before = bench.held();
            let returned = bench.step(step, &all)?;
            bench.verify(before, returned)?;
        }
        bench.finish()?;
    }

    /// With bounds that stay, the peak never passes the limit nor a class what it can reach.
    #[test]
    fn peaks_stay_within_constant_bounds(
        settings in settings(),
        steps in prop::collection::vec(step(), 0..250),
    ) {
        let mut bench = Bench::new(settings);
        for step in steps {
            bench.step(step, &[settings])?;
        }
        let config = *bench.gate.config();
        prop_assert!(bench.gate.peak() <= config.limit());
        for class in WorkloadClass::ALL {
            prop_assert!(bench.gate.standing(class).peak <= config.reach(class));
        }
        bench.finish()?;
    }

    /// Settings are sound or all their faults are told; nothing panics, and what is sound keeps its promises.
    #[test]
    fn any_settings_are_judged(
        limit in prop_oneof![0_u32..20, any::<u32>()],
        bounds in prop::array::uniform3((any::<bool>(), 0_u32..120, any::<bool>(), 0_u32..120)),
        count_max in prop::array::uniform3(prop_oneof![0_u32..10, any::<u32>()]),
        age in 0_u64..3,
    ) {
        let bound = |share, figure| if share { Bound::Percent(figure) } else { Bound::Permits(figure) };
        let partitions = bounds.map(|(floor_share, floor, ceiling_share, ceiling)| Partition {
            floor: bound(floor_share, floor),
            ceiling: bound(ceiling_share, ceiling),
        });
        let waiting = Waiting::Bounded { count_max, age_max: Nanos::new(age) };
        match (Settings { limit, partitions, waiting, ..SETTINGS }).validate() {
            Err(faults) => prop_assert!(faults.iter().count() > 0),
            Ok(config) => {
                let floors: u32 = WorkloadClass::ALL.into_iter().map(|class| config.floor(class)).sum();
                prop_assert!(limit > 0 && floors <= limit);
                for class in WorkloadClass::ALL {
                    prop_assert!(config.ceiling(class) > 0);
                    prop_assert!((config.floor(class)..=limit).contains(&config.ceiling(class)));
                    prop_assert!((config.floor(class)..=config.ceiling(class)).contains(&config.reach(class)));
                }
            }
        }
    }
}
