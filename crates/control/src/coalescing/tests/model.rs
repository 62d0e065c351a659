//! Model: the rules once more, as slowly and plainly as they can be written, beside the machine over random
//! interleavings. Every waiter's value is unique, so being told twice, or not at all, shows.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Enter {
        key: u8,
        budget: u64,
    },
    /// Of any waiter or flight that there ever was, so mostly of ones that are gone.
    Leave(prop::sample::Index),
    End(prop::sample::Index, Ending),
    Expire(prop::sample::Index),
    Pass(u64),
    /// A reload: other figures from here on.
    Reload(Rules),
}

fn rules() -> impl Strategy<Value = Rules> {
    (0_u64..30, 0_u64..10, 1_u64..50, 0_u32..5, 0_u32..5).prop_map(
        |(window, useful, duration, flights_max, waiters_max)| Rules {
            freshness_window: Nanos::new(window),
            useful_min: Nanos::new(useful),
            duration_max: Nanos::new(duration),
            flights_max,
            waiters_max,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let ending = prop::sample::select(Ending::ALL.to_vec());
    prop_oneof![
        8 => (0_u8..3, 0_u64..60).prop_map(|(key, budget)| Step::Enter { key, budget }),
        4 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => (any::<prop::sample::Index>(), ending).prop_map(|(which, ending)| Step::End(which, ending)),
        1 => any::<prop::sample::Index>().prop_map(Step::Expire),
        4 => (0_u64..12).prop_map(Step::Pass),
        1 => rules().prop_map(Step::Reload),
    ]
}

#[derive(Debug)]
struct PlainFlight {
    id: FlightId,
    key: u8,
    started: u64,
    limit: u64,
    /// Own deadlines of all who ever entered.
    deadlines: Vec<u64>,
    /// Values of those who wait.
    waiting: BTreeSet<u32>,
    open: bool,
}

impl PlainFlight {
    fn deadline(&self) -> u64 {
        self.deadlines.iter().copied().max().unwrap_or(0).min(self.limit)
    }
}

#[derive(Default)]
struct Plain {
    now: u64,
    flights: Vec<PlainFlight>,
    /// The flight that each key's next caller would consider: the youngest, while it is open.
    youngest: BTreeMap<u8, usize>,
    /// Every waiter that there ever was, by value: its id and its flight's position.
    waiters: Vec<(WaiterId, usize)>,
    left: BTreeSet<u32>,
    told: BTreeSet<u32>,
    counts: Counts,
}

impl Plain {
    fn verdict(&self, rules: &Rules, flight: &PlainFlight, own: u64) -> Option<NoJoin> {
        let reach = flight.deadline().max(own).min(flight.limit);
        if flight.deadline() <= self.now {
            Some(NoJoin::Dying)
        } else if self.now - flight.started > rules.freshness_window.get() {
            Some(NoJoin::Stale)
        } else if reach.saturating_sub(self.now) < rules.useful_min.get() {
            Some(NoJoin::TooLittleLeft)
        } else if flight.waiting.len() >= rules.waiters_max as usize {
            Some(NoJoin::GroupFull)
        } else {
            None
        }
    }

    fn open(&self) -> usize {
        self.flights.iter().filter(|flight| flight.open).count()
    }

    fn enter(&mut self, table: &mut Flights<u8, u32>, rules: &Rules, key: u8, budget: u64) {
        let own = self.now + budget;
        let value = self.waiters.len() as u32;
        let answer = table.enter(rules, key, Nanos::new(self.now), Deadline::at(Nanos::new(own)), value);
        if budget == 0 {
            assert_eq!(answer, Err(Refused::Expired));
            self.counts.refused[Refused::Expired.index()] += 1;
            return;
        }
        let candidate = self.youngest.get(&key).copied().filter(|position| self.flights[*position].open);
        let verdict = candidate.map(|position| (position, self.verdict(rules, &self.flights[position], own)));
        if let Some((position, None)) = verdict {
            let entry = answer.expect("nothing forbids joining");
            let flight = &mut self.flights[position];
            let before = flight.deadline();
            flight.deadlines.push(own);
            flight.waiting.insert(value);
            assert_eq!(entry.waiter.flight(), flight.id);
            assert_eq!(entry.deadline.instant().get(), flight.deadline());
            assert_eq!(entry.role, Role::Follower { extended: flight.deadline() > before });
            self.counts.joined += 1;
            self.waiters.push((entry.waiter, position));
            return;
        }
        let instead_of = verdict.and_then(|(_, reason)| reason);
        if let Some(reason) = instead_of {
            self.counts.not_joined[reason.index()] += 1;
        }
        if self.open() >= rules.flights_max as usize {
            assert_eq!(answer, Err(Refused::FlightsFull));
            self.counts.refused[Refused::FlightsFull.index()] += 1;
            return;
        }
        let entry = answer.expect("nothing forbids starting");
        let limit = self.now + rules.duration_max.get();
        let id = entry.waiter.flight();
        assert!(self.flights.iter().all(|flight| flight.id != id), "an id was reused");
        assert_eq!(entry.role, Role::Leader { limit: Deadline::at(Nanos::new(limit)), instead_of });
        assert_eq!(entry.deadline.instant().get(), own.min(limit));
        self.counts.started += 1;
        self.youngest.insert(key, self.flights.len());
        self.waiters.push((entry.waiter, self.flights.len()));
        self.flights.push(PlainFlight {
            id,
            key,
            started: self.now,
            limit,
            deadlines: vec![own],
            waiting: BTreeSet::from([value]),
            open: true,
        });
    }

    fn leave(&mut self, table: &mut Flights<u8, u32>, value: u32) {
        let (waiter, position) = self.waiters[value as usize];
        let flight = &mut self.flights[position];
        let answer = table.leave(waiter);
        if !flight.waiting.remove(&value) {
            assert_eq!(answer, None);
            return;
        }
        let last = flight.waiting.is_empty();
        assert_eq!(answer, Some(Left { value, cancelled: last.then_some(flight.id) }));
        assert!(self.left.insert(value));
        self.counts.left += 1;
        if last {
            flight.open = false;
            self.counts.cancelled += 1;
            self.counts.group_sum += flight.deadlines.len() as u64;
        }
    }

    /// The flight ends and `told` is what the machine handed back.
    fn tell(&mut self, position: usize, told: Vec<u32>) {
        let flight = &mut self.flights[position];
        assert_eq!(told.len(), flight.waiting.len(), "somebody was told twice");
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), flight.waiting);
        assert!(!flight.waiting.is_empty(), "a flight without waiters was not cancelled");
        self.counts.told += flight.waiting.len() as u64;
        self.counts.group_sum += flight.deadlines.len() as u64;
        for value in std::mem::take(&mut flight.waiting) {
            assert!(self.told.insert(value) && !self.left.contains(&value));
        }
        flight.open = false;
    }

    fn end(&mut self, table: &mut Flights<u8, u32>, position: usize, ending: Ending) {
        let answer = table.end(self.flights[position].id, ending);
        assert_eq!(answer.is_some(), self.flights[position].open);
        if let Some(told) = answer {
            self.tell(position, told.to_vec());
            match ending {
                Ending::Completed => self.counts.completed += 1,
                Ending::Failed => self.counts.failed += 1,
                Ending::Panicked => self.counts.panicked += 1,
                Ending::Stopped => self.counts.stopped += 1,
            }
        }
    }

    fn expire(&mut self, table: &mut Flights<u8, u32>, position: usize) {
        let flight = &self.flights[position];
        match table.expire(flight.id, Nanos::new(self.now)) {
            None => assert!(!flight.open),
            Some(Expiry::Until(deadline)) => {
                assert!(flight.open && self.now < flight.deadline());
                assert_eq!(deadline.instant().get(), flight.deadline());
            }
            Some(Expiry::Ended(told)) => {
                assert!(flight.open && self.now >= flight.deadline());
                self.tell(position, told.to_vec());
                self.counts.expired += 1;
            }
        }
    }

    /// What holds after every step.
    fn check(&self, table: &Flights<u8, u32>) {
        assert_eq!(table.counts(), &self.counts);
        assert_eq!(table.len() as usize, self.open());
        assert_eq!(table.counts().open(), u64::from(table.len()));
        let ended_by: u64 = table.counts().ended_by().iter().map(|(_, count)| count).sum();
        assert_eq!(ended_by, table.counts().ended());
        let waiting: usize = self.flights.iter().map(|flight| flight.waiting.len()).sum();
        assert_eq!(table.counts().waiting(), waiting as u64);
        assert_eq!(self.waiters.len(), waiting + self.told.len() + self.left.len());
        for flight in &self.flights {
            assert_eq!(table.waiters(flight.id), flight.open.then_some(flight.waiting.len() as u32));
            assert!(!flight.open || !flight.waiting.is_empty());
        }
        for (key, id) in &table.joinable {
            let flight = table.flights.get(*id).expect("what can be joined is open");
            assert_eq!(flight.key, *key);
        }
        for (waiter, position) in &self.waiters {
            assert_eq!(waiter.flight(), self.flights[*position].id);
        }
        assert!(self.youngest.iter().all(|(key, position)| self.flights[*position].key == *key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_machine_is_what_the_rules_say(
        first in rules(), steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut rules = first;
        let mut table = Flights::new();
        let mut plain = Plain::default();
        for step in steps {
            match step {
                Step::Enter { key, budget } => plain.enter(&mut table, &rules, key, budget),
                Step::Pass(span) => plain.now += span,
                Step::Reload(other) => rules = other,
                Step::Leave(_) | Step::End(..) | Step::Expire(_) if plain.flights.is_empty() => {}
                Step::Leave(which) => plain.leave(&mut table, which.index(plain.waiters.len()) as u32),
                Step::End(which, ending) => {
                    let position = which.index(plain.flights.len());
                    plain.end(&mut table, position, ending);
                }
                Step::Expire(which) => {
                    let position = which.index(plain.flights.len());
                    plain.expire(&mut table, position);
                }
            }
            plain.check(&table);
        }
        // Everybody goes home: the last one out of each flight cancels it, and nothing stays behind.
        for value in 0..plain.waiters.len() as u32 {
            plain.leave(&mut table, value);
        }
        plain.check(&table);
        prop_assert!(table.is_empty() && table.joinable.is_empty());
        prop_assert_eq!(table.counts().started, table.counts().ended());
    }

    /// With every waiter gone at its own deadline, as the driver promises, no flight outlives its deadline, and so no
    /// work is late, without any timer of the flight's own but the one for its limit.
    #[test]
    fn waiters_that_leave_in_time_leave_no_late_flight(
        rules in rules(), steps in proptest::collection::vec((0_u8..3, 1_u64..60, 0_u64..6), 1..80),
    ) {
        let mut table = Flights::new();
        let mut waiting: Vec<(u64, WaiterId)> = Vec::new();
        let mut limits: Vec<(u64, FlightId)> = Vec::new();
        let mut now = 0;
        for (key, budget, pass) in steps {
            if let Ok(entry) = table.enter(&rules, key, Nanos::new(now), Deadline::at(Nanos::new(now + budget)), ()) {
                waiting.push((now + budget, entry.waiter));
                if let Role::Leader { limit, .. } = entry.role {
                    limits.push((limit.instant().get(), entry.waiter.flight()));
                }
            }
            now += pass;
            for (_, flight) in limits.extract_if(.., |(limit, _)| *limit <= now) {
                table.expire(flight, Nanos::new(now));
            }
            for (_, waiter) in waiting.extract_if(.., |(deadline, _)| *deadline <= now) {
                table.leave(waiter);
            }
            for (_, waiter) in &waiting {
                if let Some(deadline) = table.deadline(waiter.flight()) {
                    prop_assert!(!deadline.expired(Nanos::new(now)));
                }
            }
            let held = waiting.iter().map(|(_, waiter)| waiter.flight());
            let held: BTreeSet<_> = held.filter(|id| table.waiters(*id).is_some()).map(FlightId::index).collect();
            prop_assert_eq!(table.len() as usize, held.len(), "a flight without a waiter in time");
        }
    }
}
