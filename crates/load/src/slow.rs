//! Slow: where the slowest answers spent their time, by the `server-timing` that came with them.
//!
//! Only answers slower than a threshold are looked at, and only the slowest of those are kept, so that a run pays for its
//! tail and not for its size.

use std::{cmp::Reverse, collections::BinaryHeap};

use base::{Dependency, Nanos};
use http::HeaderValue;
use serde::Serialize;

/// Most answers of a class and stage that are kept. Of more than a hundred times as many, the slowest hundredth is not
/// whole; the count beside the means says so.
pub(crate) const KEPT_MAX: usize = 4_096;
/// The share of the answers that counts as slow.
const SLOW_PER: u64 = 100;
/// The entry of the wait for a slot of the endpoint.
const ADMISSION: &str = "admission";

/// Means over the slowest hundredth of the correct answers, in model time; null when there is none with its timing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SlowMs {
    /// Answers that were looked at.
    pub n: u64,
    /// Latency as the caller saw it.
    pub latency: Option<f64>,
    /// Waiting for a slot of the endpoint.
    pub executor_wait: Option<f64>,
    /// Waiting for a slot of the profile client.
    pub pool_wait: Option<f64>,
    /// Profile and entitlement at work.
    pub service_before_fanout: Option<f64>,
    /// The longest of the parallel branches, its wait included.
    pub fanout: Option<f64>,
}

/// One answer's time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Split {
    executor_wait: f64,
    pool_wait: f64,
    service_before_fanout: f64,
    fanout: f64,
}

#[derive(Clone, Copy, Debug)]
struct Timed {
    micros: u64,
    split: Option<Split>,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.micros == other.micros
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.micros.cmp(&other.micros)
    }
}

/// The slowest answers so far, at most `KEPT_MAX`.
#[derive(Clone, Debug, Default)]
pub struct Slowest(BinaryHeap<Reverse<Timed>>);

impl Slowest {
    /// An answer that took `latency` of model time, with what it said about itself in wall time.
    pub(crate) fn offer(&mut self, latency: Nanos, timing: Option<&HeaderValue>, dilate: u32) {
        let micros = latency.as_micros();
        if self.is_too_fast(micros) {
            return;
        }
        let split = timing.and_then(|timing| split(timing.to_str().ok()?));
        let split = split.map(|split| split.over(f64::from(dilate.max(1))));
        self.keep(Timed { micros, split });
    }

    /// Takes over the answers of `other`.
    pub fn merge(&mut self, other: &Self) {
        for Reverse(timed) in &other.0 {
            if !self.is_too_fast(timed.micros) {
                self.keep(*timed);
            }
        }
    }

    fn is_too_fast(&self, micros: u64) -> bool {
        self.0.len() >= KEPT_MAX && self.0.peek().is_some_and(|Reverse(least)| micros <= least.micros)
    }

    fn keep(&mut self, timed: Timed) {
        if self.0.len() >= KEPT_MAX {
            self.0.pop();
        }
        self.0.push(Reverse(timed));
    }

    /// Means over the slowest hundredth of `answers` correct answers.
    pub fn means(&self, answers: u64) -> SlowMs {
        let wanted = usize::try_from(answers.div_ceil(SLOW_PER)).unwrap_or(usize::MAX);
        let mut all: Vec<Timed> = self.0.iter().map(|Reverse(timed)| *timed).collect();
        all.sort_unstable_by_key(|timed| Reverse(timed.micros));
        let slow: Vec<(u64, Split)> =
            all.iter().take(wanted).filter_map(|timed| Some((timed.micros, timed.split?))).collect();
        let mean = |value: &dyn Fn(&(u64, Split)) -> f64| {
            (!slow.is_empty()).then(|| slow.iter().map(value).sum::<f64>() / slow.len() as f64)
        };
        SlowMs {
            n: slow.len() as u64,
            latency: mean(&|(micros, _)| *micros as f64 / 1e3),
            executor_wait: mean(&|(_, split)| split.executor_wait),
            pool_wait: mean(&|(_, split)| split.pool_wait),
            service_before_fanout: mean(&|(_, split)| split.service_before_fanout),
            fanout: mean(&|(_, split)| split.fanout),
        }
    }
}

impl Split {
    fn over(self, dilate: f64) -> Self {
        Self {
            executor_wait: self.executor_wait / dilate,
            pool_wait: self.pool_wait / dilate,
            service_before_fanout: self.service_before_fanout / dilate,
            fanout: self.fanout / dilate,
        }
    }
}

/// Reads `server-timing`. `None` unless both ends of the path are in it: an answer that does not say what it waited for
/// has not waited for nothing.
fn split(text: &str) -> Option<Split> {
    let (mut read, mut admitted, mut profiled) = (Split::default(), false, false);
    for entry in text.split(',') {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next()?;
        let (mut service, mut wait) = (0.0, 0.0);
        for part in parts {
            match part.split_once('=') {
                Some(("dur", value)) => service = millis(value)?,
                Some(("wait", value)) => wait = millis(value)?,
                _ => {}
            }
        }
        match (name, Dependency::parse(name)) {
            (ADMISSION, _) => {
                read.executor_wait = wait;
                admitted = true;
            }
            (_, Some(Dependency::Profile)) => {
                read.pool_wait = wait;
                read.service_before_fanout += service;
                profiled = true;
            }
            (_, Some(Dependency::Entitlement)) => read.service_before_fanout += service + wait,
            (_, Some(_)) => read.fanout = read.fanout.max(service + wait),
            // An entry of a newer server.
            (_, None) => {}
        }
    }
    (admitted && profiled).then_some(read)
}

fn millis(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMING: &str = "admission;dur=0;wait=12.5, profile;dur=50;wait=4, entitlement;dur=8;wait=1, \
                          pricing;dur=14;wait=0, recommendation;dur=330;wait=2, reputation;dur=9;wait=0";

    fn header(text: &'static str) -> HeaderValue {
        HeaderValue::from_static(text)
    }

    #[test]
    fn waits_and_work_are_told_apart_and_slow_motion_is_divided_back() {
        let mut slowest = Slowest::default();
        slowest.offer(Nanos::from_millis(420), Some(&header(TIMING)), 2);
        let means = slowest.means(10);
        assert_eq!(means.n, 1);
        assert_eq!(means.latency, Some(420.0), "already model time");
        assert_eq!((means.executor_wait, means.pool_wait), (Some(6.25), Some(2.0)));
        assert_eq!((means.service_before_fanout, means.fanout), (Some(29.5), Some(166.0)));
    }

    #[test]
    fn only_the_slowest_hundredth_counts() {
        let mut slowest = Slowest::default();
        for millis in 1..=1_000 {
            slowest.offer(Nanos::from_millis(millis), Some(&header(TIMING)), 1);
        }
        let means = slowest.means(1_000);
        assert_eq!((means.n, means.latency), (10, Some(995.5)));
        assert_eq!(Slowest::default().means(1_000), SlowMs::default());
    }

    #[test]
    fn an_answer_without_its_timing_is_not_one_that_did_not_wait() {
        let mut slowest = Slowest::default();
        slowest.offer(Nanos::from_millis(900), None, 1);
        slowest.offer(Nanos::from_millis(800), Some(&header("profile;dur=50;wait=1")), 1);
        slowest.offer(Nanos::from_millis(700), Some(&header("admission;wait=x, profile;dur=1")), 1);
        slowest.offer(Nanos::from_millis(600), Some(&header("admission;wait=NaN, profile;dur=1")), 1);
        assert_eq!(slowest.means(100_000), SlowMs::default());
    }

    #[test]
    fn what_is_kept_is_bounded_and_is_the_slowest() {
        let mut slowest = Slowest::default();
        let total = KEPT_MAX as u64 + 500;
        // Rising and falling by turns, so that neither the first nor the last are the ones to keep.
        for number in 0..total {
            let millis = if number % 2 == 0 { number } else { total - number };
            slowest.offer(Nanos::from_millis(millis + 1), Some(&header(TIMING)), 1);
        }
        assert_eq!(slowest.0.len(), KEPT_MAX);
        let mut merged = Slowest::default();
        merged.merge(&slowest);
        merged.merge(&slowest);
        assert_eq!(merged.0.len(), KEPT_MAX);
        let (one, two) = (slowest.means(100), merged.means(200));
        assert_eq!((one.n, two.n), (1, 2));
        assert_eq!(one.latency, two.latency, "the slowest one, twice");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = split(&text);
        }

        #[test]
        fn merging_is_observing_together(all in proptest::collection::vec(1_u64..5_000, 1..200), at in 0_usize..200) {
            let timing = header(TIMING);
            let observe = |spans: &[u64]| {
                let mut slowest = Slowest::default();
                spans.iter().for_each(|span| slowest.offer(Nanos::from_millis(*span), Some(&timing), 1));
                slowest
            };
            let (left, right) = all.split_at(at.min(all.len()));
            let mut merged = observe(left);
            merged.merge(&observe(right));
            let n = all.len() as u64;
            prop_assert_eq!(merged.means(n), observe(&all).means(n));
        }
    }
}
