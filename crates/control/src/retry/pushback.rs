//! Pushback: what a server says about another attempt, in `grpc-retry-pushback-ms`.

use base::Nanos;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// There is none: the caller's own backoff applies.
    Absent,
    /// The next attempt comes after exactly this span; zero means at once.
    After(Nanos),
    /// There is to be no other attempt.
    Never,
}

impl Pushback {
    /// Reads the header's value: an optional minus and ASCII digits, a signed 32-bit integer of milliseconds. Negative
    /// means no more attempts, and so does whatever cannot be read, two values joined by a comma among them: a server
    /// that says something about retries and is not understood is not to be retried.
    pub fn parse(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::Absent };
        let digits = value.strip_prefix(b"-").unwrap_or(value);
        // The integer parser below would take a plus sign.
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Self::Never;
        }
        let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i32>().ok());
        match parsed.map(u64::try_from) {
            // "-0" is zero, not negative.
            Some(Ok(millis)) => Self::After(Nanos::from_millis(millis)),
            Some(Err(_)) | None => Self::Never,
        }
    }
}
