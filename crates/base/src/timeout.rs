//! Timeout: the one strict parser and encoder of `grpc-timeout` (DESIGN 3.1, the gRPC-over-HTTP/2 document).
//!
//! Grammar: 1 to 8 ASCII digits and one case-sensitive unit of `H M S m u n`. Nothing else is let through, because a
//! value that is shrugged off becomes an unlimited call.

use std::fmt;

use crate::Nanos;

/// Most digits that the protocol allows.
const DIGITS_MAX: usize = 8;
/// Largest value that fits the digits.
const VALUE_MAX: u64 = 99_999_999;
/// Units, finest first, with their length in nanoseconds.
const UNITS: [(u8, u64); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60_000_000_000),
    (b'H', 3_600_000_000_000),
];

/// The header does not follow the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedTimeout;

impl fmt::Display for MalformedTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("grpc-timeout must be 1 to 8 ASCII digits and one unit of H M S m u n, sent once")
    }
}

impl std::error::Error for MalformedTimeout {}

/// Reads a header value. Zero is a legal value and means that the deadline has passed already.
///
/// # Errors
/// [`MalformedTimeout`] for anything outside the grammar, a leading `+` and blanks included.
pub fn parse(value: &[u8]) -> Result<Nanos, MalformedTimeout> {
    let (unit, digits) = value.split_last().ok_or(MalformedTimeout)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return Err(MalformedTimeout);
    }
    let scale = UNITS.iter().find(|(name, _)| name == unit).ok_or(MalformedTimeout)?.1;
    let count = digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Ok(Nanos::new(count.saturating_mul(scale)))
}

/// Writes a span in the finest unit that fits, rounded down: a callee never gets more than there is.
/// `None` for zero, since a call without any time is not sent.
pub fn encode(span: Nanos) -> Option<String> {
    if span.is_zero() {
        return None;
    }
    let (unit, scale) = UNITS.iter().find(|(_, scale)| span.get() / scale <= VALUE_MAX).unwrap_or(&UNITS[5]);
    Some(format!("{}{}", (span.get() / scale).min(VALUE_MAX), char::from(*unit)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_grammar_is_strict() {
        let malformed: &[&[u8]] = &[
            b"",
            b"S",
            b"1.5S",
            b"123456789n",
            b"-5S",
            b"+5S",
            b"5s",
            b"5 S",
            b" 5S",
            b"5S ",
            b"5Sx",
            b"0x5S",
            b"5",
            "٥S".as_bytes(),
            b"5S,5S",
            b"1h",
            b"5\0S",
            b"\xff5S",
        ];
        for value in malformed {
            assert_eq!(parse(value), Err(MalformedTimeout), "{:?}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn legal_values_are_read_and_the_largest_one_saturates() {
        assert_eq!(parse(b"0m"), Ok(Nanos::ZERO));
        assert_eq!(parse(b"00000000n"), Ok(Nanos::ZERO));
        assert_eq!(parse(b"1n"), Ok(Nanos::new(1)));
        assert_eq!(parse(b"00000300m"), Ok(Nanos::from_millis(300)));
        assert_eq!(parse(b"2M"), Ok(Nanos::from_secs(120)));
        assert_eq!(parse(b"99999999H"), Ok(Nanos::MAX));
    }

    #[test]
    fn zero_is_never_written() {
        assert_eq!(encode(Nanos::ZERO), None);
        assert_eq!(encode(Nanos::new(1)).as_deref(), Some("1n"));
        assert_eq!(encode(Nanos::MAX).as_deref(), Some("5124095H"));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_no_more_and_hardly_less(nanos in 1_u64..) {
            let span = Nanos::new(nanos);
            let text = encode(span).expect("not zero");
            let read = parse(text.as_bytes()).expect("own output");
            prop_assert!(text.len() <= DIGITS_MAX + 1);
            prop_assert!(read <= span);
            // One unit is lost at most, and the unit is below one part in 10^5 of the span, or a minute in an hour.
            prop_assert!(span.saturating_sub(read).get() <= nanos / 60 + 1);
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = parse(&bytes);
        }
    }
}
