//! Latency: the histogram scheme of every quantile that this crate reports, and what can be said of a sample.
//!
//! Scheme: HDR, 3 significant digits, 1 us to 60 s, saturating. Quantiles are taken from merged observations; nothing
//! averages percentiles. A recorded value is exact to 0.1 %.

use base::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;

/// The scheme, as reports state it.
pub const SCHEME: &str = "HDR, 3 significant digits, 1 us to 60 s, saturating";
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
    fn plain_quantiles_are_nearest_rank() {
        let mut micros: Vec<u32> = (1..=100).rev().map(|n| n * 1_000).collect();
        assert_eq!(quantile_ms(&mut micros, 0.5), Some(50.0));
        assert_eq!(quantile_ms(&mut micros, 0.99), Some(99.0));
        assert_eq!(quantile_ms(&mut micros, 1.0), Some(100.0));
        assert_eq!(quantile_ms(&mut [7_000], 0.99), Some(7.0));
    }
}
