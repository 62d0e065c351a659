//! Scrape: figures from a process's `/metrics`, for what the generator cannot see. A series that is not there was not
//! measured, which is not the same as zero.

mod histogram;

use crate::report::{LateWork, ratio};

pub(crate) use histogram::Histogram;

/// Series of late operations and of the seconds that they went on.
const LATE_OPERATIONS: &str = "mercury_late_operations_total";
const LATE_SECONDS: &str = "mercury_late_seconds_total";
/// The admin port's own requests are nobody's home page.
pub(crate) const ADMIN: (&str, &str) = ("server", "admin");

/// The OpenMetrics text of one process at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrape(String);

/// A label and its value.
pub(crate) type Label<'a> = (&'a str, &'a str);

impl Scrape {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The sum of a series over all label sets that have every label of `with` and none of `without`; `None` when there
    /// is none.
    pub(crate) fn sum(&self, series: &str, with: &[Label<'_>], without: &[Label<'_>]) -> Option<f64> {
        let matching = self.samples(series).filter(|sample| sample.matches(with, without));
        matching.fold(None, |sum: Option<f64>, sample| Some(sum.unwrap_or(0.0) + sample.value))
    }

    /// A histogram, its label sets merged observation by observation; `None` when there is none, or when they do not
    /// have the same buckets.
    pub(crate) fn histogram(
        &self,
        series: &str,
        with: &[Label<'_>],
        without: &[Label<'_>],
    ) -> Option<Histogram> {
        let name = format!("{series}_bucket");
        let matching = self.samples(&name).filter(|sample| sample.matches(with, without));
        Histogram::collect(matching.filter_map(|sample| Some((sample.label("le")?, sample.value))))
    }

    /// All samples of a series. Values that are no numbers are left out.
    fn samples<'s>(&'s self, series: &'s str) -> impl Iterator<Item = Sample<'s>> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(series)?;
            let (labels, rest) = match rest.strip_prefix('{') {
                Some(rest) => rest.split_once('}')?,
                None => ("", rest.strip_prefix(' ')?),
            };
            let value = rest.split_ascii_whitespace().next()?.parse::<f64>().ok()?;
            value.is_finite().then_some(Sample { labels, value })
        })
    }
}

/// One line.
struct Sample<'s> {
    labels: &'s str,
    value: f64,
}

impl<'s> Sample<'s> {
    /// The labels. A value with a comma would be split too often here, and then never be taken for another.
    fn labels(&self) -> impl Iterator<Item = Label<'s>> {
        self.labels.split(',').filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key, value.strip_prefix('"')?.strip_suffix('"')?))
        })
    }

    fn label(&self, key: &str) -> Option<&'s str> {
        self.labels().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    fn matches(&self, with: &[Label<'_>], without: &[Label<'_>]) -> bool {
        with.iter().all(|(key, value)| self.label(key) == Some(value))
            && without.iter().all(|(key, value)| self.label(key) != Some(value))
    }
}

/// What a counter grew by; `None` when it is not known, or fell, since it was then restarted in between.
pub(crate) fn grown(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(after? - before?).filter(|grown| *grown >= 0.0)
}

/// Late work of one process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Late {
    operations: Option<f64>,
    seconds: Option<f64>,
}

impl Late {
    pub(crate) fn read(scrape: &Scrape) -> Self {
        Self {
            operations: scrape.sum(LATE_OPERATIONS, &[], &[ADMIN]),
            seconds: scrape.sum(LATE_SECONDS, &[], &[ADMIN]),
        }
    }

    /// Late operations so far.
    pub(crate) const fn operations(self) -> Option<f64> {
        self.operations
    }

    /// What was added since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            operations: grown(before.operations, self.operations),
            seconds: grown(before.seconds, self.seconds),
        }
    }

    /// Both together; what one of them does not know is not known.
    pub(crate) fn with(self, other: Self) -> Self {
        let add = |one: Option<f64>, two: Option<f64>| Some(one? + two?);
        Self { operations: add(self.operations, other.operations), seconds: add(self.seconds, other.seconds) }
    }

    /// The figures over `offered` operations and `wall_s` seconds, times divided by the slow motion.
    pub(crate) fn figures(self, offered: f64, wall_s: f64, dilate: f64) -> LateWork {
        let over = |part: Option<f64>, whole: f64| part.and_then(|part| ratio(part, whole));
        LateWork {
            ratio: over(self.operations, offered),
            mean_ms: over(self.seconds.map(|seconds| seconds * 1e3 / dilate), self.operations.unwrap_or(0.0)),
            concurrent: over(self.seconds, wall_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# TYPE mercury_late_operations counter
mercury_late_operations_total{server=\"home\"} 10
mercury_late_operations_total{server=\"admin\"} 99
mercury_late_seconds_total{server=\"home\"} 0.5 # {trace_id=\"x\"} 1
mercury_late_operations_total_more{server=\"home\"} 7
mercury_flights_open 3
mercury_held{gate=\"endpoint\",class=\"premium\"} 2
mercury_held{gate=\"endpoint\",class=\"standard\"} 5
mercury_held{gate=\"profile\",class=\"standard\"} NaN
# EOF
";

    #[test]
    fn labels_choose_and_what_is_not_there_is_not_zero() {
        let scrape = Scrape::new(TEXT);
        assert_eq!(scrape.sum("mercury_flights_open", &[], &[]), Some(3.0));
        assert_eq!(scrape.sum("mercury_held", &[("gate", "endpoint")], &[]), Some(7.0));
        assert_eq!(scrape.sum("mercury_held", &[("gate", "endpoint")], &[("class", "premium")]), Some(5.0));
        assert_eq!(scrape.sum("mercury_held", &[("gate", "profile")], &[]), None, "not a number");
        assert_eq!(scrape.sum("mercury_held", &[("gate", "other")], &[]), None);
        assert_eq!(scrape.sum("mercury_flights", &[], &[]), None, "a prefix is another name");
    }

    #[test]
    fn a_counter_that_fell_was_restarted() {
        assert_eq!(grown(Some(2.0), Some(5.0)), Some(3.0));
        assert_eq!(grown(Some(5.0), Some(2.0)), None);
        assert_eq!((grown(None, Some(2.0)), grown(Some(2.0), None)), (None, None));
    }

    #[test]
    fn late_work_is_what_was_added_in_the_window() {
        let late = Late::read(&Scrape::new(TEXT));
        assert_eq!(late, Late { operations: Some(10.0), seconds: Some(0.5) });
        let before = Late { operations: Some(6.0), seconds: Some(0.1) };
        let figures = late.since(before).figures(100.0, 4.0, 1.0);
        assert_eq!(figures, LateWork { ratio: Some(0.04), mean_ms: Some(100.0), concurrent: Some(0.1) });
        let slow_motion = late.since(before).figures(100.0, 4.0, 2.0);
        assert_eq!((slow_motion.mean_ms, slow_motion.concurrent), (Some(50.0), Some(0.1)));
        let quiet = before.since(before).figures(100.0, 4.0, 1.0);
        assert_eq!((quiet.ratio, quiet.mean_ms, quiet.concurrent), (Some(0.0), None, Some(0.0)));
        let unknown = late.since(Late::read(&Scrape::new("# EOF\n")));
        assert_eq!(unknown, Late::default());
        assert_eq!(unknown.figures(100.0, 1.0, 1.0), LateWork::default());
        assert_eq!(late.with(Late::default()), Late::default());
    }
}
