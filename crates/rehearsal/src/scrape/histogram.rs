//! Histogram: cumulative buckets as a scrape gives them, merged and subtracted observation by observation.

/// Counts up to each bound, rising in both; the last bound is infinite.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram(Vec<(f64, f64)>);

impl Histogram {
    /// From the bounds (the `le` label) and counts of one or more label sets, whose counts are added bound by bound. `None`
    /// when there is none, when there is no infinite bound, or when a bound is missing from one of the sets: its
    /// observations would be lost.
    pub(super) fn collect<'s>(buckets: impl Iterator<Item = (&'s str, f64)>) -> Option<Self> {
        let mut merged: Vec<(f64, f64, u32)> = Vec::new();
        for (bound, count) in buckets {
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            match merged.iter_mut().find(|(found, _, _)| *found == bound) {
                Some((_, sum, sets)) => {
                    *sum += count;
                    *sets += 1;
                }
                None => merged.push((bound, count, 1)),
            }
        }
        merged.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (last, _, sets) = merged.last()?;
        let whole = last.is_infinite() && merged.iter().all(|(_, _, found)| found == sets);
        whole.then(|| Self(merged.into_iter().map(|(bound, count, _)| (bound, count)).collect()))
    }

    /// The observations since `before`; `None` when that has other buckets, or when a count fell: it was restarted.
    pub(crate) fn since(&self, before: &Self) -> Option<Self> {
        let pairs = self.zip(before)?;
        let grown = pairs.map(|(bound, now, then)| (now >= then).then_some((bound, now - then)));
        grown.collect::<Option<_>>().map(Self)
    }

    /// Takes in the observations of `other`; `None` when that has other buckets.
    pub(crate) fn with(&self, other: &Self) -> Option<Self> {
        Some(Self(self.zip(other)?.map(|(bound, one, two)| (bound, one + two)).collect()))
    }

    fn zip<'h>(&'h self, other: &'h Self) -> Option<impl Iterator<Item = (f64, f64, f64)> + 'h> {
        let same =
            self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(one, two)| one.0 == two.0);
        same.then(|| self.0.iter().zip(&other.0).map(|(one, two)| (one.0, one.1, two.1)))
    }

    /// Observations.
    pub(crate) fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, count)| *count)
    }

    /// The `q` quantile, in the unit of the bounds, on a straight line through its bucket: it is at most a bound exactly
    /// when the observations up to that bound say so. Beyond the last finite bound it is that bound. `None` when empty.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let rank = q * self.count();
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, count) in &self.0 {
            if *count >= rank && *count > below {
                if bound.is_infinite() {
                    return Some(lower);
                }
                return Some(lower + (bound - lower) * ((rank - below) / (count - below)).clamp(0.0, 1.0));
            }
            (lower, below) = (*bound, *count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scrape::Scrape;

    const TEXT: &str = "\
mercury_age_seconds_bucket{le=\"0.01\",gate=\"endpoint\",class=\"premium\"} 8
mercury_age_seconds_bucket{le=\"0.02\",gate=\"endpoint\",class=\"premium\"} 9 # {trace_id=\"x\"} 0.011
mercury_age_seconds_bucket{le=\"+Inf\",gate=\"endpoint\",class=\"premium\"} 10
mercury_age_seconds_bucket{le=\"0.01\",gate=\"endpoint\",class=\"standard\"} 80
mercury_age_seconds_bucket{le=\"0.02\",gate=\"endpoint\",class=\"standard\"} 85
mercury_age_seconds_bucket{le=\"+Inf\",gate=\"endpoint\",class=\"standard\"} 90
mercury_age_seconds_bucket{le=\"0.01\",gate=\"profile\",class=\"standard\"} 5
mercury_age_seconds_count{gate=\"endpoint\",class=\"premium\"} 10
";

    fn of(cumulative: &[(f64, f64)]) -> Histogram {
        Histogram(cumulative.to_vec())
    }

    #[test]
    fn label_sets_are_merged_and_half_a_histogram_is_none() {
        let scrape = Scrape::new(TEXT);
        let found = |with: &[(&str, &str)]| scrape.histogram("mercury_age_seconds", with, &[]);
        let endpoint = found(&[("gate", "endpoint")]).expect("whole");
        assert_eq!(endpoint, of(&[(0.01, 88.0), (0.02, 94.0), (f64::INFINITY, 100.0)]));
        assert_eq!(found(&[("gate", "profile")]), None, "no infinite bound");
        assert_eq!(found(&[("gate", "other")]), None);
        assert_eq!(found(&[]), None, "one set lacks a bound");
    }

    #[test]
    fn a_quantile_lies_on_a_line_through_its_bucket() {
        let histogram = of(&[(1.0, 50.0), (2.0, 50.0), (4.0, 98.0), (f64::INFINITY, 100.0)]);
        assert_eq!(histogram.quantile(0.25), Some(0.5));
        assert_eq!(histogram.quantile(0.5), Some(1.0));
        assert_eq!(histogram.quantile(0.74), Some(3.0));
        assert_eq!(histogram.quantile(0.99), Some(4.0), "beyond the last finite bound");
        assert_eq!(of(&[(1.0, 0.0), (f64::INFINITY, 0.0)]).quantile(0.99), None);
    }

    #[test]
    fn a_window_is_a_difference_and_a_restart_is_none() {
        let before = of(&[(1.0, 2.0), (f64::INFINITY, 5.0)]);
        let after = of(&[(1.0, 4.0), (f64::INFINITY, 9.0)]);
        assert_eq!(after.since(&before), Some(of(&[(1.0, 2.0), (f64::INFINITY, 4.0)])));
        assert_eq!(before.since(&after), None);
        assert_eq!(after.since(&of(&[(2.0, 1.0), (f64::INFINITY, 1.0)])), None, "other buckets");
        assert_eq!(before.with(&after), Some(of(&[(1.0, 6.0), (f64::INFINITY, 14.0)])));
    }

    proptest! {
        /// Why a gate may compare the quantile with a bound: they agree with the counts themselves.
        #[test]
        fn a_quantile_is_at_most_a_bound_exactly_when_the_counts_say_so(
            counts in proptest::collection::vec(0_u32..50, 6), q in 0.01_f64..0.999,
        ) {
            let mut sum = 0.0;
            let bounds = [1.0, 2.0, 3.0, 4.0, 5.0, f64::INFINITY];
            let cumulative: Vec<(f64, f64)> = bounds.iter().zip(&counts).map(|(bound, count)| {
                sum += f64::from(*count);
                (*bound, sum)
            }).collect();
            let histogram = Histogram(cumulative.clone());
            prop_assert_eq!(histogram.quantile(q).is_some(), sum > 0.0);
            if let Some(value) = histogram.quantile(q) {
                for (bound, count) in &cumulative[..5] {
                    let enough = *count >= q * sum;
                    // The last finite bound also stands for everything beyond it.
                    if *bound < 5.0 {
                        prop_assert_eq!(value <= *bound, enough, "{} {}", value, bound);
                    }
                }
            }
        }
    }
}
