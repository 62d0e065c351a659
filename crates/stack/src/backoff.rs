//! Backoff: how long to leave an unreachable peer alone. Pure.

use base::Nanos;

/// Doubling is useless beyond this, and the shift stays in range.
const DOUBLINGS_MAX: u32 = 20;

/// The wait after `failures` failed attempts in a row (at least 1): `min` doubled each time up to `max`, then jittered
/// down by up to half with `random`, so that processes that lost the same peer do not come back in step.
pub(crate) fn wait(min: Nanos, max: Nanos, failures: u32, random: u64) -> Nanos {
    let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
    let full = min.get().saturating_mul(1 << doublings).min(max.get());
    let half = full / 2;
    // The high bits of a product spread evenly over 0..=half without a division.
    let jitter = (u128::from(random) * u128::from(half + 1)) >> 64;
    Nanos::new(full - half + u64::try_from(jitter).unwrap_or(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Nanos = Nanos::from_millis(10);
    const MAX: Nanos = Nanos::from_millis(500);

    #[test]
    fn it_doubles_to_its_maximum_and_stays_there() {
        let longest = |failures| wait(MIN, MAX, failures, u64::MAX).as_millis();
        assert_eq!([1, 2, 3, 6, 7, 99].map(longest), [10, 20, 40, 320, 500, 500]);
        assert_eq!(wait(MIN, MAX, u32::MAX, u64::MAX), MAX);
    }

    #[test]
    fn jitter_takes_at_most_half() {
        for failures in 1..40 {
            let longest = wait(MIN, MAX, failures, u64::MAX).get();
            let shortest = wait(MIN, MAX, failures, 0).get();
            assert_eq!(shortest, longest.div_ceil(2));
            assert!(shortest > 0);
        }
    }
}
