//! Text: how figures are written: as many digits as one can use, units that people read, and words for what is missing.

use load::table::count;
use maud::{Markup, html};

use crate::{report::State, verdict::Verdict};

/// What stands for a figure that was not measured.
pub(super) const NOT_MEASURED: &str = "not measured";

/// Most bytes of one text, escaped.
const TEXT_BYTES_MAX: usize = 500;
/// Most bytes of one name, escaped.
const NAME_BYTES_MAX: usize = 100;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Milliseconds.
    Ms,
    /// Seconds, or minutes when there are many.
    Seconds,
    /// A ratio, written in per cent.
    Ratio,
    /// Anything that is only counted, per something or not.
    Number,
    /// Mebibytes.
    Mib,
}

impl Unit {
    /// The unit by its name in `report.json`.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "ms" => Self::Ms,
            "s" => Self::Seconds,
            "ratio" => Self::Ratio,
            "MiB" => Self::Mib,
            _ => Self::Number,
        }
    }

    /// The value with its unit; `None` when there is nothing to write.
    pub(super) fn write(self, value: Option<f64>) -> Option<String> {
        let value = value?;
        let (value, name) = match self {
            Self::Ms => (value, "ms"),
            Self::Seconds if value >= 120.0 => (value / 60.0, "min"),
            Self::Seconds => (value, "s"),
            Self::Ratio => (value * 100.0, "%"),
            Self::Number => (value, ""),
            Self::Mib => (value, "MiB"),
        };
        // A unit stays on the line of its number.
        let space = if name.is_empty() { "" } else { "\u{a0}" };
        value.is_finite().then(|| format!("{}{space}{name}", number(value)))
    }

    /// As [`Unit::write`], with words for what is missing.
    pub(super) fn show(self, value: Option<f64>) -> Markup {
        html! { @match self.write(value) { Some(text) => (text), None => span.none { (NOT_MEASURED) } } }
    }

    /// As [`Unit::write`], with words for what is missing, in a plot.
    pub(super) fn words(self, value: Option<f64>) -> String {
        self.write(value).unwrap_or_else(|| NOT_MEASURED.to_owned())
    }
}

/// Three digits that count, no more decimals than four, thousands apart.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if !value.is_finite() => return NOT_MEASURED.to_owned(),
        _ if value == 0.0 => "0".to_owned(),
        _ if size >= 1e15 => format!("{value:.2e}"),
        _ if size >= 99.95 => count(size.round() as u64),
        _ if size >= 9.995 => format!("{size:.1}"),
        _ if size >= 0.9995 => format!("{size:.2}"),
        _ if size >= 0.09995 => format!("{size:.3}"),
        _ if size >= 0.000_05 => format!("{size:.4}"),
        _ => "<0.0001".to_owned(),
    };
    let text = if text.contains('.') && !text.contains(['<', 'e']) {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    if value < 0.0 && size < 1e15 { format!("−{text}") } else { text }
}

/// How long it took to recover; a run that ended first knows only how long it was not.
pub(super) fn recovery(state: &State) -> Option<String> {
    Unit::Seconds.write(state.recovery_s).or_else(|| {
        let at_least = Unit::Seconds.write(state.recovery_at_least_s)?;
        Some(format!(">{at_least}"))
    })
}

/// `late_work` as people write it.
pub(super) fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// Text of any length, cut to what a page can hold.
pub(super) fn clip(text: &str) -> String {
    cut(text, TEXT_BYTES_MAX)
}

/// A name, a version or a digest of any length, cut to what a line can hold.
pub(super) fn name(text: &str) -> String {
    cut(text, NAME_BYTES_MAX)
}

/// `text` up to so many bytes of a page, on which some characters take more room; what is missing is shown as missing.
pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    let mut left = bytes_max;
    for (at, c) in text.char_indices() {
        let taken = match c {
            '"' => "&quot;".len(),
            '&' => "&amp;".len(),
            '<' | '>' => "&lt;".len(),
            other => other.len_utf8(),
        };
        match left.checked_sub(taken) {
            Some(rest) => left = rest,
            None => return format!("{}…", &text[..at]),
        }
    }
    text.to_owned()
}

/// What to say of so many that are not on the page.
pub(super) fn more(left_out: usize, what: &str) -> Markup {
    html! { @if left_out > 0 { p.note { (left_out) " more " (what) " in report.json." } } }
}

/// The mark of a verdict, so that colour is never alone.
pub(super) const fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "✓",
        Verdict::Fail => "✕",
        Verdict::Inconclusive => "?",
        Verdict::NotApplicable => "–",
    }
}

/// A verdict as a badge: mark, word and colour.
pub(super) fn badge(verdict: Verdict) -> Markup {
    let word = spaced(verdict.as_str());
    html! { span class=(format!("badge {}", verdict.as_str())) { span aria-hidden="true" { (mark(verdict)) } " " (word) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_one_can_use() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.000_01, "<0.0001"),
            (0.000_123, "0.0001"),
            (0.034, "0.034"),
            (0.5, "0.5"),
            (0.9999, "1"),
            (4.137, "4.14"),
            (9.996, "10"),
            (82.04, "82"),
            (99.96, "100"),
            (312.8, "313"),
            (18_400.0, "18,400"),
            (-45.1, "−45.1"),
            (1e300, "1.00e300"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn text_is_cut_by_the_room_that_it_takes() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcdef…");
        assert_eq!(cut("ééé", 5), "éé…");
        assert_eq!(cut("\"\"", 6), "\"…");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn units_are_those_that_people_read() {
        let words = |unit: Unit, value| unit.words(Some(value)).replace('\u{a0}', " ");
        assert_eq!(words(Unit::Ratio, 0.034), "3.4 %");
        assert_eq!(words(Unit::Seconds, 119.0), "119 s");
        assert_eq!(words(Unit::Seconds, 270.0), "4.5 min");
        assert_eq!(words(Unit::named("answers"), 12_000.0), "12,000");
        assert_eq!(words(Unit::named("MiB"), 96.42), "96.4 MiB");
    }

    #[test]
    fn what_was_not_measured_is_said_and_is_never_a_number() {
        assert_eq!(Unit::Ratio.words(Some(f64::MAX)), NOT_MEASURED, "too large to be written in per cent");
        for value in [None, Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(Unit::Ms.words(value), NOT_MEASURED);
            assert!(Unit::Ms.show(value).into_string().contains(NOT_MEASURED));
        }
        let open = State { recovery_at_least_s: Some(840.0), ..State::default() };
        assert_eq!(recovery(&open).as_deref(), Some(">14\u{a0}min"));
        assert_eq!(recovery(&State::default()), None);
    }
}
