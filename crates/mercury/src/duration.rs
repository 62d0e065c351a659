//! Duration: spans of time on the command line, `30s`, `250ms`, `2m`.

use base::Nanos;

/// A span given by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Nanos);

/// Reads a whole number and a unit of ms, s, m or h.
pub(crate) fn parse(text: &str) -> Result<Span, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let millis: u64 = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("expected a whole number and a unit of ms, s, m or h, for instance 30s".to_owned()),
    };
    let count: u64 =
        text[..digits].parse().map_err(|_| "expected a whole number before the unit".to_owned())?;
    let millis = count.checked_mul(millis).filter(|millis| *millis <= 7 * 24 * 3_600_000);
    millis.map(|millis| Span(Nanos::from_millis(millis))).ok_or_else(|| "expected at most 168h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit_and_a_bound() {
        assert_eq!(parse("250ms"), Ok(Span(Nanos::from_millis(250))));
        assert_eq!(parse("2m"), Ok(Span(Nanos::from_secs(120))));
        assert_eq!(parse("0s"), Ok(Span(Nanos::ZERO)));
        for bad in ["", "30", "s", "1.5s", "-1s", "+1s", "1 s", "169h", "99999999999999999999h", "5d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
