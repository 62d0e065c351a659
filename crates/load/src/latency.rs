//! Latency: the histogram scheme of every quantile that this crate reports, and what can be said of a sample.
//!
//! Scheme: HDR, 3 significant digits, 1 us to 60 s, saturating. Quantiles are taken from merged observations; nothing
//! averages percentiles. A recorded value is exact to 0.1 %.

use base::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;

/// The scheme, as reports state it.
pub const SCHEME: &str = "HDR, 3 significant digits, 1 us to 60 s, saturating";
/// A bound of a bucket: the objective of the case study.
const BUCKET_ORIGIN_US: u64 = 300_000;
/// Largest value that is told apart.
const MICROS_MAX: u64 = 60_000_000;

/// Observed spans of time.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u32>,
    saturated: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, MICROS_MAX, 3).expect("constant bounds that the scheme allows");
        Self { histogram, saturated: 0 }
    }
}

impl Latencies {
    /// Records one span; longer ones than 60 s count as 60 s, and are counted as such.
    pub fn record(&mut self, span: Nanos) {
        let micros = span.as_micros();
        if micros > MICROS_MAX {
            self.saturated += 1;
        }
        self.histogram.saturating_record(micros.clamp(1, MICROS_MAX));
    }

    /// Takes over the observations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        self.saturated += other.saturated;
    }

    /// Number of observations.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// True when nothing was observed.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The figures of the sample, in milliseconds.
    pub fn summary(&self) -> LatencyMs {
        let quantile = |q: f64| self.at(self.histogram.value_at_quantile(q));
        LatencyMs {
            n: self.len(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.at(self.histogram.max()),
            saturated: self.saturated,
        }
    }

    /// Observations by bucket: upper bound in milliseconds and count in this bucket alone, in rising order, without empty
    /// ones at the ends. The bounds are a tenth apart, and one of them is 300 ms. The counts add up to [`Latencies::len`].
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = bucket_bounds_us();
        let mut counts = vec![0_u64; bounds.len()];
        for step in self.histogram.iter_recorded() {
            let at = bounds.partition_point(|bound| *bound < step.value_iterated_to());
            counts[at.min(bounds.len() - 1)] += step.count_since_last_iteration();
        }
        let filled = |count: &u64| *count > 0;
        let Some((first, last)) = counts.iter().position(filled).zip(counts.iter().rposition(filled)) else {
            return Vec::new();
        };
        let bucket = |(bound, count): (&u64, &u64)| (*bound as f64 / 1e3, *count);
        bounds.iter().zip(&counts).map(bucket).take(last + 1).skip(first).collect()
    }

    fn at(&self, micros: u64) -> Option<f64> {
        (!self.is_empty()).then(|| micros as f64 / 1e3)
    }
}

/// Figures of a sample, in milliseconds; null when the sample is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyMs {
    /// Number of observations.
    pub n: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Longest.
    pub max: Option<f64>,
    /// How many were longer than 60 s and count as 60 s.
    pub saturated: u64,
}

/// Upper bounds of [`Latencies::buckets`] in microseconds, from about 1 ms to beyond the range; integers, so that they are
/// the same everywhere.
pub fn bucket_bounds_us() -> Vec<u64> {
    let up = std::iter::successors(Some(BUCKET_ORIGIN_US), |bound| Some(bound * 11 / 10));
    let down = std::iter::successors(Some(BUCKET_ORIGIN_US), |bound| Some(bound * 10 / 11)).skip(1);
    let mut bounds: Vec<u64> = down.take_while(|bound| *bound > 1_000).collect();
    bounds.reverse();
    bounds.extend(up.take_while(|bound| *bound < 2 * MICROS_MAX));
    bounds
}

/// The `q` quantile of plain observations (nearest rank), in milliseconds. Reorders them.
pub(crate) fn quantile_ms(micros: &mut [u32], q: f64) -> Option<f64> {
    let rank = (q * micros.len() as f64).ceil() as usize;
    let at = rank.clamp(1, micros.len().max(1)) - 1;
    (!micros.is_empty()).then(|| f64::from(*micros.select_nth_unstable(at).1) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_sample_has_no_figures() {
        let summary = Latencies::default().summary();
        assert_eq!((summary.n, summary.p50, summary.p99, summary.max), (0, None, None, None));
        assert_eq!(quantile_ms(&mut [], 0.99), None);
    }

    #[test]
    fn a_span_beyond_the_range_saturates_and_is_counted() {
        let mut latencies = Latencies::default();
        latencies.record(Nanos::from_secs(90));
        latencies.record(Nanos::ZERO);
        let summary = latencies.summary();
        assert_eq!((summary.n, summary.saturated), (2, 1));
        let max = summary.max.expect("not empty");
        assert!((60_000.0..60_060.0).contains(&max), "{max}");
    }

    #[test]
    fn merging_is_observing_together() {
        let (mut left, mut right, mut both) =
            (Latencies::default(), Latencies::default(), Latencies::default());
        for millis in 1..=1_000 {
            let side = if millis % 3 == 0 { &mut left } else { &mut right };
            side.record(Nanos::from_millis(millis));
            both.record(Nanos::from_millis(millis));
        }
        left.merge(&right);
        assert_eq!(left.summary(), both.summary());
        let p99 = both.summary().p99.expect("not empty");
        assert!((989.0..=992.0).contains(&p99), "{p99}");
    }

    #[test]
    fn buckets_add_up_and_the_objective_is_a_bound() {
        assert_eq!(Latencies::default().buckets(), []);
        let mut latencies = Latencies::default();
        for span in [0, 1, 250, 299, 300, 301, 500, 70_000] {
            latencies.record(Nanos::from_millis(span));
        }
        let buckets = latencies.buckets();
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), latencies.len());
        assert!(buckets.is_sorted_by(|one, next| one.0 < next.0), "{buckets:?}");
        // 300 ms is recorded as up to 0.1 % more, like every value.
        let until = |bound: f64| buckets.iter().filter(|one| one.0 <= bound).map(|one| one.1).sum::<u64>();
        assert_eq!(until(300.0), 4, "{buckets:?}");
        assert_eq!(until(330.0), 6, "{buckets:?}");
        let ends = [buckets.first(), buckets.last()].map(|end| end.expect("filled").1);
        assert_eq!(ends, [2, 1], "none is empty at either end");
    }

    #[test]
    fn plain_quantiles_are_nearest_rank() {
        let mut micros: Vec<u32> = (1..=100).rev().map(|n| n * 1_000).collect();
        assert_eq!(quantile_ms(&mut micros, 0.5), Some(50.0));
        assert_eq!(quantile_ms(&mut micros, 0.99), Some(99.0));
        assert_eq!(quantile_ms(&mut micros, 1.0), Some(100.0));
        assert_eq!(quantile_ms(&mut [7_000], 0.99), Some(7.0));
    }
}
