//! Scrape: figures from a process's `/metrics`, for what the generator cannot see. A series that is not there was not
//! measured, which is not the same as zero.

use crate::report::LateWork;

/// Series of late operations and of the seconds that they went on.
const LATE_OPERATIONS: &str = "mercury_late_operations_total";
const LATE_SECONDS: &str = "mercury_late_seconds_total";
/// The admin port's own requests are nobody's home page.
const NOT: (&str, &str) = ("server", "admin");

/// Late work of one process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Late {
    operations: Option<f64>,
    seconds: Option<f64>,
}

impl Late {
    /// Reads it from an OpenMetrics text.
    pub(crate) fn read(text: &str) -> Self {
        Self { operations: sum(text, LATE_OPERATIONS, NOT), seconds: sum(text, LATE_SECONDS, NOT) }
    }

    /// Late operations so far.
    pub(crate) const fn operations(self) -> Option<f64> {
        self.operations
    }

    /// What was added since `before`, over `offered` operations and `seconds` of model time. A counter that fell was
    /// restarted, so nothing is known.
    pub(crate) fn since(self, before: Self, offered: f64, seconds: f64) -> LateWork {
        let grew = |now: Option<f64>, then: Option<f64>| Some(now? - then?).filter(|grown| *grown >= 0.0);
        let operations = grew(self.operations, before.operations);
        let late_s = grew(self.seconds, before.seconds);
        let over = |part: Option<f64>, whole: f64| part.and_then(|part| crate::report::ratio(part, whole));
        LateWork {
            ratio: over(operations, offered),
            mean_ms: over(late_s.map(|late_s| late_s * 1e3), operations.unwrap_or(0.0)),
            concurrent: over(late_s, seconds),
        }
    }
}

/// The sum of a series over all label sets without a certain label; `None` when there is none.
fn sum(text: &str, series: &str, (key, value): (&str, &str)) -> Option<f64> {
    let unwanted = format!("{key}=\"{value}\"");
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(series)?;
        let (labels, rest) = rest.strip_prefix('{')?.split_once('}')?;
        // A label value with a comma would only be split too often here, never matched wrongly: it has no quotes.
        if labels.split(',').any(|label| label == unwanted) {
            return None;
        }
        rest.split_ascii_whitespace().next()?.parse::<f64>().ok().filter(|value| value.is_finite())
    });
    values.fold(None, |sum: Option<f64>, value| Some(sum.unwrap_or(0.0) + value))
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
# EOF
";

    #[test]
    fn a_series_that_is_not_there_is_not_zero() {
        let late = Late::read(TEXT);
        assert_eq!(late, Late { operations: Some(10.0), seconds: Some(0.5) });
        let none = Late::read("# EOF\n");
        assert_eq!(none, Late::default());
        let figures = late.since(none, 100.0, 1.0);
        assert_eq!((figures.ratio, figures.mean_ms, figures.concurrent), (None, None, None));
    }

    #[test]
    fn late_work_is_what_was_added_in_the_window() {
        let before = Late { operations: Some(6.0), seconds: Some(0.1) };
        let figures = Late::read(TEXT).since(before, 100.0, 4.0);
        assert_eq!(figures.ratio, Some(0.04));
        assert_eq!(figures.mean_ms, Some(100.0));
        assert_eq!(figures.concurrent, Some(0.1));
        let quiet = before.since(before, 100.0, 4.0);
        assert_eq!((quiet.ratio, quiet.mean_ms, quiet.concurrent), (Some(0.0), None, Some(0.0)));
        let restarted = before.since(Late::read(TEXT), 100.0, 4.0);
        assert_eq!(restarted.ratio, None);
    }
}
