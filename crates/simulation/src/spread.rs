//! Spread: a distribution of spans of time, merged observation by observation, never averaged.

use base::Nanos;
use hdrhistogram::Histogram;

/// The scheme, as reports state it.
pub const SCHEME: &str = "HDR, 3 significant digits, 1 us to 60 s, saturating";
/// Largest value that is told apart.
const MICROS_MAX: u64 = 60_000_000;

/// Observed spans. A span below a microsecond is one of no time, and costs no more than a count.
#[derive(Clone, Debug)]
pub struct Spread {
    none: u64,
    histogram: Histogram<u64>,
}

impl Default for Spread {
    fn default() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, MICROS_MAX, 3).expect("constant bounds that the scheme allows");
        Self { none: 0, histogram }
    }
}

impl Spread {
    /// One that tells 1 % apart and is quickly emptied, for what is read every second.
    pub(crate) fn coarse() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, MICROS_MAX, 2).expect("constant bounds that the scheme allows");
        Self { none: 0, histogram }
    }

    /// Records a span; those above 60 s count as 60 s.
    #[inline]
    pub fn record(&mut self, span: Nanos) {
        let micros = span.as_micros();
        if micros == 0 {
            self.none += 1;
        } else {
            self.histogram.saturating_record(micros);
        }
    }

    /// Takes over the observations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.none += other.none;
        if !other.histogram.is_empty() {
            self.histogram.add(&other.histogram).expect("both have the same bounds");
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.none = 0;
        if !self.histogram.is_empty() {
            self.histogram.reset();
        }
    }

    /// How many spans there are.
    pub fn len(&self) -> u64 {
        self.none + self.histogram.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The span that a share `q` of all does not exceed, in milliseconds, by nearest rank; `None` without any.
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let len = self.len();
        let rank = ((q * len as f64).ceil() as u64).clamp(1, len.max(1));
        if len == 0 {
            return None;
        }
        if rank <= self.none {
            return Some(0.0);
        }
        // By counting: a share that went through a float could be one rank off.
        let mut below = self.none;
        let value = self.histogram.iter_recorded().find(|value| {
            below += value.count_since_last_iteration();
            below >= rank
        });
        value.map(|value| value.value_iterated_to() as f64 / 1e3)
    }

    /// How many spans lie above `bound`, to the resolution of the scheme.
    pub fn above(&self, bound: Nanos) -> u64 {
        self.histogram.len() - self.histogram.count_between(0, bound.as_micros())
    }

    /// How many spans lie in each bucket of rising upper bounds, in microseconds; those above the last are in the last.
    pub fn buckets(&self, bounds_us: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds_us.len()];
        let Some(last) = counts.len().checked_sub(1) else { return counts };
        counts[0] = self.none;
        for step in self.histogram.iter_recorded() {
            let at = bounds_us.partition_point(|bound| *bound < step.value_iterated_to());
            counts[at.min(last)] += step.count_since_last_iteration();
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_spans(
            mut micros in proptest::collection::vec(prop_oneof![Just(0_u64), 0_u64..400_000], 1..200),
            q in 0.0_f64..=1.0, split in any::<prop::sample::Index>(),
        ) {
            let (mut one, mut two) = (Spread::default(), Spread::default());
            let split = split.index(micros.len());
            for (at, span) in micros.iter().enumerate() {
                if at < split { &mut one } else { &mut two }.record(Nanos::from_micros(*span));
            }
            one.merge(&two);
            micros.sort_unstable();
            let rank = ((q * micros.len() as f64).ceil() as usize).clamp(1, micros.len());
            let exact = micros[rank - 1] as f64 / 1e3;
            let told = one.quantile_ms(q).expect("not empty");
            prop_assert!((told - exact).abs() <= exact * 0.002 + 1e-9, "{} {}", told, exact);
            one.clear();
            prop_assert_eq!(one.quantile_ms(q), None);
        }
    }
}
