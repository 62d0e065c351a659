//! Sampler: home-api and the emulator once a second of model time, and the memory of home-api once a second.

use std::cell::RefCell;

use base::{Clock, Nanos, clock::MonotonicClock};

use super::{reading::Reading, snapshot::scrape};
use crate::{control::Control, usage};

/// What is read in one second.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The middle of the reading, on the monotonic clock.
    pub(super) at: Nanos,
    pub(super) home: Reading,
    /// Profile reads that reached the emulated store so far.
    pub(super) profile_calls: Option<u64>,
}

/// All that was read in a run.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// By second of model time; a second in which there was no answer in time is missing.
    pub(super) seconds: Vec<Option<Sample>>,
    /// Resident memory of home-api in bytes, with the instant.
    pub(super) resident: Vec<(Nanos, u64)>,
}

impl Samples {
    /// The reading at the beginning of a second of model time.
    pub(super) fn at(&self, second: usize) -> Option<&Sample> {
        self.seconds.get(second)?.as_ref()
    }

    /// Most memory between two instants.
    pub(super) fn resident_peak(&self, from: Nanos, to: Nanos) -> Option<u64> {
        let within = self.resident.iter().filter(|(at, _)| (from..=to).contains(at));
        within.map(|(_, bytes)| *bytes).max()
    }

    fn put(&mut self, second: usize, sample: Option<Sample>) {
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, None);
        }
        self.seconds[second] = sample;
    }
}

/// Whom to ask, and since when.
pub(crate) struct Sampler {
    pub(super) admin: String,
    pub(super) pid: u32,
    pub(super) control: Control,
    /// The instant of model time zero.
    pub(super) began: Nanos,
    pub(super) dilate: u32,
    /// More resident memory than this ends the sampling.
    pub(super) memory_max_bytes: u64,
}

impl Sampler {
    /// Samples until home-api has more memory than it may, and says how much; for ever when it never has. Dropping it is
    /// fine at any time: a sample is put down whole.
    pub(super) async fn run(mut self, into: &RefCell<Samples>) -> u64 {
        let mut tick: u64 = 0;
        loop {
            let due = self.began + Nanos::from_secs(tick);
            tokio::time::sleep((due - MonotonicClock.now()).into()).await;
            if let Ok(usage) = usage::read(self.pid) {
                into.borrow_mut().resident.push((MonotonicClock.now(), usage.rss_bytes));
                if usage.rss_bytes > self.memory_max_bytes {
                    return usage.rss_bytes;
                }
            }
            let dilate = u64::from(self.dilate.max(1));
            if tick.is_multiple_of(dilate) {
                let sample = self.sample().await;
                into.borrow_mut().put(usize::try_from(tick / dilate).unwrap_or(usize::MAX), sample);
            }
            // A second whose beginning has passed is missed, and not made up for: its reading would be another second's.
            let since = MonotonicClock.now() - self.began;
            tick = (tick + 1).max((since + Nanos::from_millis(900)).get() / 1_000_000_000);
        }
    }

    async fn sample(&mut self) -> Option<Sample> {
        let asked = MonotonicClock.now();
        let (home, stats) = tokio::join!(scrape(&self.admin), self.control.stats());
        let took = MonotonicClock.now() - asked;
        // A reading that took longer than a quarter of its second says too little about when it was.
        if took > Nanos::from_millis(250).times(self.dilate.max(1)) {
            return None;
        }
        Some(Sample {
            at: asked + Nanos::new(took.get() / 2),
            home: Reading::of(&home?),
            profile_calls: stats.ok().and_then(|stats| stats.calls.get("profile").copied()),
        })
    }
}
