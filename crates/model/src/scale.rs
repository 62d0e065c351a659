//! Scale: a system that is a fraction of one admission domain (DESIGN section 5).

use std::fmt;

/// A fraction above 0 and at most 1, kept exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    numerator: u32,
    denominator: u32,
}

/// A text that is not a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidScale;

impl fmt::Display for InvalidScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a fraction above 0 and at most 1, such as 1, 1/60 or 0.25")
    }
}

impl std::error::Error for InvalidScale {}

/// Most digits of either part.
const DIGITS_MAX: usize = 9;

impl Scale {
    /// One whole admission domain.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// Reads `1`, `1/60` or `0.25`: plain digits, no sign, no blank, no exponent.
    ///
    /// # Errors
    /// [`InvalidScale`] for anything else, and for a value of zero or above one.
    pub fn parse(text: &str) -> Result<Self, InvalidScale> {
        if let Some((numerator, denominator)) = text.split_once('/') {
            return Self::new(digits(numerator)?, digits(denominator)?);
        }
        let Some((whole, decimals)) = text.split_once('.') else {
            return Self::new(digits(text)?, 1);
        };
        let (whole, fraction) = (digits(whole)?, digits(decimals)?);
        let denominator = decimals.bytes().fold(1_u32, |power, _| power * 10);
        let numerator = whole.checked_mul(denominator).and_then(|value| value.checked_add(fraction));
        Self::new(numerator.ok_or(InvalidScale)?, denominator)
    }

    fn new(numerator: u32, denominator: u32) -> Result<Self, InvalidScale> {
        if numerator == 0 || numerator > denominator {
            return Err(InvalidScale);
        }
        let divisor = greatest_common_divisor(numerator, denominator);
        Ok(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// The fraction as a number.
    pub fn as_f64(self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }

    /// A count at this scale, rounded up: at least 1 unless the count is 0.
    pub fn of(self, count: u32) -> u32 {
        let scaled = (u64::from(count) * u64::from(self.numerator)).div_ceil(u64::from(self.denominator));
        u32::try_from(scaled).unwrap_or(u32::MAX)
    }

    /// The bound of a pool at this scale by square-root staffing: `A·s + (bound − A)·√s`, rounded up and at least 1,
    /// where `A` is the pool's declared offered concurrency at scale 1. A bound scaled in proportion would change the
    /// probability of waiting; this keeps it.
    pub fn staffing(self, offered: f64, bound: u32) -> u32 {
        let scale = self.as_f64();
        let scaled = offered * scale + (f64::from(bound) - offered) * scale.sqrt();
        // A float-to-integer cast saturates. The small slack keeps a value that is whole in arithmetic from being
        // rounded up by its representation.
        ((scaled - 1e-9).ceil() as u32).max(1)
    }
}

fn digits(text: &str) -> Result<u32, InvalidScale> {
    let plain =
        !text.is_empty() && text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().map_err(|_| InvalidScale) } else { Err(InvalidScale) }
}

const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl std::str::FromStr for Scale {
    type Err = InvalidScale;

    fn from_str(text: &str) -> Result<Self, InvalidScale> {
        Self::parse(text)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            denominator => write!(f, "{}/{denominator}", self.numerator),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_grammar_is_strict() {
        for (text, shown) in [
            ("1", "1"),
            ("1/60", "1/60"),
            ("0.25", "1/4"),
            ("2/4", "1/2"),
            ("1.0", "1"),
            ("0.000000001", "1/1000000000"),
        ] {
            assert_eq!(Scale::parse(text).map(|scale| scale.to_string()).as_deref(), Ok(shown), "{text}");
        }
        for text in [
            "",
            "0",
            "2",
            "1/0",
            "0/1",
            "3/2",
            "-1",
            "+1",
            "1/-2",
            " 1",
            "1 ",
            "1/ 2",
            ".5",
            "1.",
            "0.0",
            "1.1",
            "1e-1",
            "1/2/3",
            "0.1/2",
            "1000000000",
            "1/1000000000",
            "0.0000000001",
            "½",
            "nan",
            "inf",
        ] {
            assert_eq!(Scale::parse(text), Err(InvalidScale), "{text}");
        }
    }

    #[test]
    fn staffing_follows_the_square_root() {
        let quarter = Scale::parse("1/4").expect("valid");
        // 100·¼ + 40·½
        assert_eq!(quarter.staffing(100.0, 140), 45);
        assert_eq!(Scale::ONE.staffing(301.5, 400), 400);
        assert_eq!(Scale::parse("1/60").expect("valid").staffing(0.1, 1), 1);
        // Under-provisioned stays so and never turns negative.
        assert_eq!(quarter.staffing(100.0, 1), 1);
        assert_eq!(quarter.of(10_000), 2_500);
        assert_eq!(Scale::parse("1/60").expect("valid").of(1), 1);
        assert_eq!(quarter.of(0), 0);
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(numerator in 1_u32..1000, extra in 0_u32..100_000) {
            let scale = Scale::new(numerator, numerator + extra).expect("valid");
            prop_assert_eq!(Scale::parse(&scale.to_string()), Ok(scale));
        }

        #[test]
        fn staffing_never_exceeds_the_whole_nor_falls_below_the_load(
            load in 0.0_f64..500.0, spare in 1_u32..500, part in 1_u32..100,
        ) {
            let bound = load.ceil() as u32 + spare;
            let scale = Scale::new(1, part).expect("valid");
            let staffed = scale.staffing(load, bound);
            prop_assert!(staffed <= bound);
            prop_assert!(f64::from(staffed) >= load * scale.as_f64());
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = Scale::parse(&text);
        }
    }
}
