//! Verdict: pass, fail or inconclusive, from what was observed and what is allowed. Nothing is averaged into a score, and
//! what was not observed never passes.

use serde::Serialize;

/// The three verdicts, and the mark of a gate that has nothing to judge yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Observed, and within its bound.
    Pass,
    /// Observed, and beyond its bound.
    Fail,
    /// Not observed, or observed in a run that cannot be relied on.
    #[default]
    Inconclusive,
    /// The mechanism that the gate judges does not exist in this policy. Takes no part in the verdict of a run.
    NotApplicable,
}

impl Verdict {
    /// The name used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
            Self::NotApplicable => "not_applicable",
        }
    }

    /// The exit code of a run that ends with it: 0, 99 or 98.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 99,
            Self::Inconclusive | Self::NotApplicable => 98,
        }
    }

    /// Whether `observed` is at most `bound`. `None`, NaN and infinities were not observed.
    pub fn at_most(observed: Option<f64>, bound: f64) -> Self {
        match observed {
            Some(observed) if !observed.is_finite() || !bound.is_finite() => Self::Inconclusive,
            Some(observed) if observed <= bound => Self::Pass,
            Some(_) => Self::Fail,
            None => Self::Inconclusive,
        }
    }

    /// Whether `observed` is at least `bound`. `None`, NaN and infinities were not observed.
    pub fn at_least(observed: Option<f64>, bound: f64) -> Self {
        Self::at_most(observed.map(|observed| -observed), -bound)
    }

    /// A failure that shows nothing about what was rehearsed, good or bad, is no failure.
    pub fn doubt(self) -> Self {
        if self == Self::Fail { Self::Inconclusive } else { self }
    }

    /// The verdict of all: any failure fails, else anything inconclusive is, else something must have passed.
    pub fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        let mut passed = false;
        let mut open = false;
        for verdict in verdicts {
            match verdict {
                Self::Fail => return Self::Fail,
                Self::Inconclusive => open = true,
                Self::Pass => passed = true,
                Self::NotApplicable => {}
            }
        }
        if passed && !open { Self::Pass } else { Self::Inconclusive }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Fail, Inconclusive, NotApplicable, Pass};

    #[test]
    fn what_was_not_observed_never_passes() {
        assert_eq!(Verdict::at_most(None, 3.0), Inconclusive);
        assert_eq!(Verdict::at_most(Some(f64::NAN), 3.0), Inconclusive);
        assert_eq!(Verdict::at_most(Some(f64::NEG_INFINITY), 3.0), Inconclusive);
        assert_eq!(Verdict::at_most(Some(1.0), f64::NAN), Inconclusive);
        assert_eq!(Verdict::at_most(Some(3.0), 3.0), Pass);
        assert_eq!(Verdict::at_most(Some(3.000_001), 3.0), Fail);
        assert_eq!(Verdict::at_least(None, 3.0), Inconclusive);
        assert_eq!(Verdict::at_least(Some(f64::NAN), 3.0), Inconclusive);
        assert_eq!(Verdict::at_least(Some(f64::INFINITY), 3.0), Inconclusive);
        assert_eq!(Verdict::at_least(Some(3.0), 3.0), Pass);
        assert_eq!(Verdict::at_least(Some(2.999), 3.0), Fail);
    }

    #[test]
    fn doubt_turns_a_failure_into_nothing_shown_and_leaves_the_rest() {
        assert_eq!(
            [Pass, Fail, Inconclusive, NotApplicable].map(Verdict::doubt),
            [Pass, Inconclusive, Inconclusive, NotApplicable]
        );
    }

    #[test]
    fn one_failure_fails_and_nothing_at_all_is_inconclusive() {
        assert_eq!(Verdict::of_all([Pass, Inconclusive, Fail]), Fail);
        assert_eq!(Verdict::of_all([Pass, Inconclusive]), Inconclusive);
        assert_eq!(Verdict::of_all([Pass, NotApplicable]), Pass);
        assert_eq!(Verdict::of_all([NotApplicable]), Inconclusive);
        assert_eq!(Verdict::of_all([]), Inconclusive);
    }

    #[test]
    fn exit_codes_are_those_of_the_command_line() {
        assert_eq!([Pass, Fail, Inconclusive].map(Verdict::exit_code), [0, 99, 98]);
    }
}
