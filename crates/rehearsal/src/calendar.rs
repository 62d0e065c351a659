//! Calendar: times since the Unix epoch as people read them, in UTC.

/// The date and the minute of a time since the Unix epoch.
pub(crate) fn utc(unix_ms: i64) -> String {
    let (date, second) = (date(unix_ms), unix_ms.div_euclid(1_000).rem_euclid(86_400));
    format!("{date} {:02}:{:02} UTC", second / 3_600, second / 60 % 60)
}

/// The same to the second.
pub(crate) fn utc_seconds(unix_ms: i64) -> String {
    let (date, second) = (date(unix_ms), unix_ms.div_euclid(1_000).rem_euclid(86_400));
    format!("{date} {:02}:{:02}:{:02} UTC", second / 3_600, second / 60 % 60, second % 60)
}

fn date(unix_ms: i64) -> String {
    let days = unix_ms.div_euclid(86_400_000);
    // Days since 1 March of year 0, in eras of 400 years: leap days then come last.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_767_225_599_000, "2025-12-31 23:59:59 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc_seconds(unix_ms), text);
            assert_eq!(utc(unix_ms), format!("{} UTC", &text[..16]));
        }
    }
}
