//! Known faults of other gates, in virtual time: A25 (partitions and limits that change), A27 (overload and what follows).

use std::collections::{BTreeMap, BTreeSet};

use base::mix::{below, fold64};

use super::*;

/// A25: 500 at once over three partitions; the peak stays at the limit, each class keeps its floor, nobody is lost.
#[test]
fn five_hundred_at_once_pass_ten_at_a_time() {
    let waiting = Waiting::Bounded { count_max: [500; CLASSES], age_max: ms(10_000) };
    let partitions = [(5, 10), (3, 10), (2, 10)].map(|(floor, ceiling)| permits(floor, ceiling));
    for seed in 0..20 {
        let mut gate = gate(Settings { partitions, waiting, ..SETTINGS });
        let mut running = Vec::new();
        let mut tickets = BTreeMap::new();
        let unhurried = |class, now| Arrival { deadline: Deadline::at(Nanos::MAX), ..arrival(class, now) };
        for task in 0..500_usize {
            let class = WorkloadClass::ALL[task % CLASSES];
            match gate.offer(unhurried(class, ms(0)), ms(0)) {
                Offer::Admitted(permit) => running.push(permit),
                Offer::Queued { ticket, .. } => {
                    assert!(tickets.insert(ticket.id().index(), ticket).is_none())
                }
                Offer::Rejected(rejection) => panic!("{rejection:?}"),
            }
        }
        let mut finished = 0;
        while !running.is_empty() {
            for (class, floor) in WorkloadClass::ALL.into_iter().zip([5, 3, 2]) {
                let Standing { held, waiting, .. } = gate.standing(class);
                assert!(
                    held >= floor || waiting == 0,
                    "{class} waits with {held} of its {floor}, seed {seed}"
                );
            }
            finished += 1;
            let next = below(fold64(seed, finished), running.len() as u64) as usize;
            gate.release(running.swap_remove(next), || ms(finished));
            while let Some(id) = gate.next_woken() {
                let ticket = tickets.remove(&id.index()).expect("named once");
                running.push(fetch(&mut gate, ticket, ms(finished)).0);
            }
            assert!(running.len() <= 10);
        }
        assert_eq!((finished, gate.peak(), gate.held(), tickets.len()), (500, 10, 0, 0), "seed {seed}");
        assert_balanced(&gate);
    }
}

/// A25: lowered from ten to two while ten run: nothing is revoked, nothing goes negative, new work waits until below.
#[test]
fn a_lowered_limit_drains() {
    let mut gate = gate(LEGACY);
    let mut held: Vec<_> = (0..10).map(|_| admit(&mut gate, Standard, ms(0))).collect();
    gate.reconfigure(Settings { limit: 2, ..LEGACY }.validate().expect("sound settings"), ms(1));
    assert_eq!((gate.held(), gate.config().limit()), (10, 2));
    let ticket = queue(&mut gate, Standard, ms(1));
    for left in (2..10).rev() {
        gate.release(held.pop().expect("ten"), || ms(2));
        assert_eq!((gate.held(), gate.next_woken()), (left, None), "two are the limit");
    }
    gate.release(held.pop().expect("two"), || ms(3));
    assert_eq!(gate.next_woken(), Some(ticket.id()));
    held.push(fetch(&mut gate, ticket, ms(3)).0);
    held.into_iter().for_each(|permit| gate.release(permit, no_clock));
    assert_eq!(gate.held(), 0);
    assert_balanced(&gate);
}

/// What a run came to, by tenths of a second.
struct Outcome {
    /// Answers before their deadline.
    good: Vec<u32>,
    /// Work started for a caller who had gone, or could not be answered any more.
    wasted: u32,
    longest_queue: u32,
    gate: Gate,
}

/// What happens next; at one instant, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Finish(u32),
    Wake(usize),
    Leave(u32),
    Arrive(u32),
}

/// One process in virtual time: ten slots of 20 ms each, so 500 requests a second; each caller leaves after 200 ms.
/// During `stall` nothing finishes and nobody is woken, though requests keep arriving.
fn run(settings: Settings, arrivals: &[Nanos], stall: std::ops::Range<Nanos>) -> Outcome {
    const SERVICE: Nanos = ms(20);
    const PATIENCE: Nanos = ms(200);
    let mut gate = gate(settings);
    let mut events: BTreeSet<(Nanos, Event)> =
        (0..).zip(arrivals).map(|(id, at)| (*at, Event::Arrive(id))).collect();
    let mut tickets = BTreeMap::<usize, (u32, Ticket)>::new();
    let mut waiting_as = BTreeMap::<u32, usize>::new();
    let mut running = BTreeMap::<u32, Permit>::new();
    let (mut good, mut wasted, mut longest_queue) = (vec![0; 400], 0, 0);
    let awake = |at: Nanos| if stall.contains(&at) { stall.end } else { at };
    while let Some((now, event)) = events.pop_first() {
        let mut start = |id: u32, permit, events: &mut BTreeSet<_>, running: &mut BTreeMap<_, _>| {
            let deadline = arrivals[id as usize] + PATIENCE;
            wasted += u32::from(now + SERVICE > deadline);
            running.insert(id, permit);
            events.insert((awake(now + SERVICE), Event::Finish(id)));
        };
        match event {
            Event::Arrive(id) => {
                let class = WorkloadClass::ALL[id as usize % CLASSES];
                let deadline = Deadline::after(now, PATIENCE);
                // The old design knows no deadline.
                let (deadline, useful) = match settings.waiting {
                    Waiting::Bounded { .. } => (deadline, SERVICE),
                    Waiting::Unbounded => (Deadline::at(Nanos::MAX), Nanos::ZERO),
                };
                match gate.offer(Arrival { class, arrived: now, deadline, useful }, now) {
                    Offer::Admitted(permit) => start(id, permit, &mut events, &mut running),
                    Offer::Queued { ticket, give_up_at } => {
                        let place = ticket.id().index();
                        if give_up_at < Nanos::MAX {
                            events.insert((awake(give_up_at), Event::Leave(id)));
                        }
                        waiting_as.insert(id, place);
                        tickets.insert(place, (id, ticket));
                    }
                    Offer::Rejected(_) => {}
                }
            }
            Event::Finish(id) => {
                let in_time = now <= arrivals[id as usize] + PATIENCE;
                good[now.as_millis() as usize / 100] += u32::from(in_time);
                gate.release(running.remove(&id).expect("it ran"), || now);
            }
            // Its timer: the waiter asks by itself.
            Event::Leave(id) => {
                if let Some(place) = waiting_as.get(&id) {
                    events.insert((now, Event::Wake(*place)));
                }
            }
            Event::Wake(place) => {
                if let Some((id, ticket)) = tickets.remove(&place) {
                    match gate.check(ticket, now) {
                        Verdict::Waiting { ticket, .. } => {
                            tickets.insert(place, (id, ticket));
                        }
                        Verdict::Granted { permit, .. } => {
                            waiting_as.remove(&id);
                            start(id, permit, &mut events, &mut running);
                        }
                        Verdict::Dropped { .. } => {
                            waiting_as.remove(&id);
                        }
                    }
                }
            }
        }
        while let Some(id) = gate.next_woken() {
            events.insert((awake(now), Event::Wake(id.index())));
        }
        longest_queue = longest_queue.max(gate.waiting());
        assert!(gate.held() <= 10);
    }
    assert_eq!((gate.held(), gate.waiting(), tickets.len()), (0, 0, 0));
    assert_balanced(&gate);
    Outcome { good, wasted, longest_queue, gate }
}

/// Evenly spaced arrivals, so many a second in each part.
fn arrivals(parts: &[(u64, Nanos)]) -> Vec<Nanos> {
    let mut begin = Nanos::ZERO;
    let mut all = Vec::new();
    for (rate, span) in parts {
        let count = rate * span.as_millis() / 1_000;
        all.extend((0..count).map(|at| begin + Nanos::new(at * 1_000_000_000 / rate)));
        begin = begin + *span;
    }
    all
}

/// The gate of the repaired design, for ten slots: no wait longer than 50 ms.
const REPAIRED: Settings = Settings {
    partitions: [permits(3, 10), permits(2, 10), permits(1, 5)],
    waiting: Waiting::Bounded { count_max: [8; CLASSES], age_max: ms(50) },
    ..SETTINGS
};

/// A27: three times the capacity for 10 s, then half of it. Goodput holds during the overload, and is back within a second.
#[test]
fn overload_costs_no_goodput_and_leaves_nothing_behind() {
    let arrivals = arrivals(&[(1_500, ms(10_000)), (250, ms(5_000))]);
    let repaired = run(REPAIRED, &arrivals, Nanos::ZERO..Nanos::ZERO);
    // 500 a second are the capacity; 50 in a tenth.
    for (tenth, good) in repaired.good[..100].iter().enumerate().skip(1) {
        assert!(*good >= 45, "{good} of 50 in tenth {tenth}");
    }
    // Within the first second after the load fell, all that is offered succeeds.
    for (tenth, good) in repaired.good[110..150].iter().enumerate() {
        assert!((24..=26).contains(good), "{good} of 25 in tenth {} after", tenth + 10);
    }
    assert_eq!(repaired.wasted, 0, "no work was started that could not finish");
    assert!(repaired.longest_queue <= 24);
    let books = WorkloadClass::ALL.map(|class| repaired.gate.standing(class).books);
    assert_eq!(books.iter().map(|books| books.offered).sum::<u64>(), arrivals.len() as u64);

    // The same load through the old gate is what this protects from: it works for callers who have gone.
    let legacy = run(LEGACY, &arrivals, Nanos::ZERO..Nanos::ZERO);
    assert_eq!(legacy.good[20..150].iter().sum::<u32>(), 0);
    assert!(legacy.wasted > 10_000 && legacy.longest_queue > 9_000);
}

/// A27: after a stall of 3 s under normal load, nobody works through dead requests.
#[test]
fn a_stall_is_over_when_it_is_over() {
    let arrivals = arrivals(&[(400, ms(10_000))]);
    let repaired = run(REPAIRED, &arrivals, ms(2_000)..ms(5_000));
    assert_eq!(repaired.good[21..50].iter().sum::<u32>(), 0, "it did stand still");
    for (tenth, good) in repaired.good[52..100].iter().enumerate() {
        assert!((38..=42).contains(good), "{good} of 40 in tenth {} after", tenth + 2);
    }
    assert_eq!(repaired.wasted, 0);

    let legacy = run(LEGACY, &arrivals, ms(2_000)..ms(5_000));
    assert_eq!(legacy.good[52..100].iter().sum::<u32>(), 0, "it still serves those of the stall");
}
