//! Schedule: the open loop. A thread of its own follows the arrivals whatever the suite does.
//!
//! It computes the next arrival, sleeps until its instant and hands it over through a bounded channel. When that is
//! full, the arrival is counted as unsent: a schedule that waited for its consumer would be a closed loop.

use base::{Clock, Identity, Nanos, WorkloadClass, clock::MonotonicClock};
use tokio::sync::mpsc;

use crate::{
    clock::{Priority, raise_priority, sleep_until},
    latency::Latencies,
    stop::Stop,
    tally::Place,
};

/// Most arrivals that the sending thread may be behind; further ones are unsent.
pub const BEHIND_MAX: usize = 1_024;
/// Longest single sleep, so that a run can be ended.
const NAP: Nanos = Nanos::from_millis(100);

/// One logical operation of the schedule, in model time.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Offset from the start of the schedule.
    pub(crate) at: Nanos,
    /// Number within the run; names the operation.
    pub(crate) number: u64,
    pub(crate) identity: Identity,
    /// How long its caller waits, counted from `at`; `None` for one that stays.
    pub(crate) patience: Option<Nanos>,
}

/// An operation whose instant has come.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) operation: Operation,
    pub(crate) place: Place,
    /// When it was meant to start, on the monotonic clock.
    pub(crate) intended: Nanos,
}

/// What the schedule's thread counted.
pub(crate) struct Followed {
    /// Scheduled and unsent, by stage and class.
    pub(crate) counts: Vec<[Counts; WorkloadClass::ALL.len()]>,
    /// Scheduled, by second of model time.
    pub(crate) offered: Vec<u64>,
    /// Wake-up minus intended start, wall time.
    pub(crate) error: Latencies,
    pub(crate) priority: Priority,
}

/// Counts of one class in one stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) scheduled: u64,
    pub(crate) behind: u64,
}

/// When the stages end, and how model time maps to the wall.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Instant of model time zero.
    pub(crate) start: Nanos,
    /// Wall time over model time.
    pub(crate) dilate: u32,
    /// Ends of the stages in model time, rising.
    pub(crate) ends: Vec<Nanos>,
}

impl Course {
    /// The wall instant of an offset in model time.
    pub(crate) fn instant(&self, at: Nanos) -> Nanos {
        self.start + self.wall(at)
    }

    /// A span of model time on the wall.
    pub(crate) fn wall(&self, span: Nanos) -> Nanos {
        Nanos::new(span.get().saturating_mul(u64::from(self.dilate)))
    }

    /// A span of wall time in the model.
    pub(crate) fn model(&self, span: Nanos) -> Nanos {
        Nanos::new(span.get() / u64::from(self.dilate))
    }

    /// The stage of an offset; `None` from the end of the last one on.
    pub(crate) fn stage(&self, at: Nanos) -> Option<usize> {
        let stage = self.ends.partition_point(|end| *end <= at);
        (stage < self.ends.len()).then_some(stage)
    }
}

/// Follows `arrivals`, which rise in time, to the end of the course or until `stop`.
pub(crate) fn follow(
    arrivals: impl Iterator<Item = Operation>,
    course: &Course,
    feed: mpsc::Sender<Due>,
    stop: &Stop,
) -> Followed {
    let mut followed = Followed {
        counts: vec![Default::default(); course.ends.len()],
        offered: Vec::new(),
        error: Latencies::default(),
        priority: raise_priority(),
    };
    for operation in arrivals {
        let Some(stage) = course.stage(operation.at) else { break };
        let intended = course.instant(operation.at);
        if !wait(intended, stop) {
            break;
        }
        followed.error.record(MonotonicClock.now() - intended);
        let place = Place { stage, class: operation.identity.class, second: second(operation.at) };
        followed.count(place);
        let due = Due { operation, place, intended };
        match feed.try_send(due) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                followed.counts[stage][place.class.index()].behind += 1
            }
            // The sending thread died; it says why.
            Err(mpsc::error::TrySendError::Closed(_)) => break,
        }
    }
    followed
}

impl Followed {
    fn count(&mut self, place: Place) {
        self.counts[place.stage][place.class.index()].scheduled += 1;
        if self.offered.len() <= place.second {
            self.offered.resize(place.second + 1, 0);
        }
        self.offered[place.second] += 1;
    }
}

/// Waits for `instant`; false when the run was stopped before it.
fn wait(instant: Nanos, stop: &Stop) -> bool {
    loop {
        if stop.is_set() {
            return false;
        }
        let now = MonotonicClock.now();
        if now >= instant {
            return true;
        }
        sleep_until(instant.min(now + NAP));
    }
}

fn second(at: Nanos) -> usize {
    usize::try_from(at.get() / 1_000_000_000).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use base::{Region, Subject, Tenant};

    use super::*;

    fn operation(number: u64, at: Nanos) -> Operation {
        let identity = Identity {
            tenant: Tenant::parse("tenant-000").expect("a name"),
            subject: Subject::parse("user-00000").expect("a name"),
            class: WorkloadClass::Standard,
            region: Region::parse("eu-west").expect("a name"),
        };
        Operation { at, number, identity, patience: None }
    }

    fn course(ends_ms: &[u64], dilate: u32) -> Course {
        let ends = ends_ms.iter().map(|end| Nanos::from_millis(*end)).collect();
        Course { start: MonotonicClock.now(), dilate, ends }
    }

    #[test]
    fn a_consumer_that_does_not_read_does_not_slow_the_schedule() {
        let (feed, mut due) = mpsc::channel(4);
        let course = course(&[5, 20], 1);
        let arrivals = (0..20).map(|n| operation(n, Nanos::from_millis(n)));
        let followed = follow(arrivals, &course, feed, &Stop::default());
        let standard = |stage: usize| followed.counts[stage][WorkloadClass::Standard.index()];
        assert_eq!((standard(0).scheduled, standard(1).scheduled), (5, 15));
        assert_eq!(standard(0).behind + standard(1).behind, 16, "all but what the channel holds");
        let held = std::iter::from_fn(|| due.try_recv().ok()).count();
        assert_eq!(held, 4);
        assert_eq!(followed.offered, [20]);
        assert_eq!(followed.error.len(), 20);
    }

    #[test]
    fn no_arrival_is_handed_over_before_its_instant_and_the_last_stage_ends_the_run() {
        let (feed, mut due) = mpsc::channel(64);
        let course = course(&[10], 2);
        let arrivals = (0..64).map(|n| operation(n, Nanos::from_millis(n)));
        let handed_over = std::thread::spawn({
            let course = course.clone();
            move || follow(arrivals, &course, feed, &Stop::default())
        });
        let mut seen = 0;
        while let Some(due) = due.blocking_recv() {
            assert!(MonotonicClock.now() >= due.intended);
            assert_eq!(due.intended, course.start + Nanos::from_millis(2 * seen));
            seen += 1;
        }
        assert_eq!(seen, 10);
        handed_over.join().expect("the thread ends");
    }

    #[test]
    fn a_stop_ends_a_long_wait() {
        let (feed, _due) = mpsc::channel(1);
        let stop = Stop::default();
        let waiting = std::thread::spawn({
            let (stop, course) = (stop.clone(), course(&[3_600_000], 1));
            move || {
                let arrivals = std::iter::once(operation(0, Nanos::from_secs(1_800)));
                follow(arrivals, &course, feed, &stop)
            }
        });
        stop.set();
        let followed = waiting.join().expect("the thread ends");
        assert_eq!(followed.offered.len(), 0);
    }

    #[test]
    fn stages_are_half_open() {
        let course = course(&[5, 20], 1);
        let stage = |millis: u64| course.stage(Nanos::from_millis(millis));
        assert_eq!(
            (stage(0), stage(4), stage(5), stage(19), stage(20)),
            (Some(0), Some(0), Some(1), Some(1), None)
        );
    }
}
