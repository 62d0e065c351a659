//! Decide: summarises review counts as a mean and a 95 % confidence interval for it.
//!
//! Reviews are 1 to 5 stars, so the mean is that of a bounded variable, often from a handful of reviews. The textbook
//! interval (mean ± 1.96 standard errors) fails there: it has no width when all reviews agree, and it leaves the scale.
//! The interval here is E. B. Wilson's score interval (Journal of the American Statistical Association 22, 1927), used
//! beyond proportions by the inequality of Bhatia and Davis (American Mathematical Monthly 107, 2000): a variable on
//! 0 to 1 with mean `p` has at most the variance `p (1 − p)`, which is that of a yes-or-no variable. With stars brought
//! to `p = (mean − 1) / 4`, `n` reviews and `z = 1.96`,
//!
//! ```text
//! centre = (p + z²/2n) / (1 + z²/n)      half = z/(1 + z²/n) · √(p (1 − p)/n + z²/4n²)
//! ```
//!
//! and the ends are brought back to stars. It always lies on the scale, always contains the mean, and has a width even
//! for a single review. When reviews agree on something between the ends of the scale it is wider than it needs to be: it
//! assumes the least favourable spread instead of trusting the spread of a few.
//!
//! No review is no reputation: absent, not a score of zero.

use base::{Reason, Refusal};

/// Stars that a review can give.
pub const STARS: usize = 5;
/// The 97.5 % quantile of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// How a subject's reviews stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reputation {
    /// Mean stars, 1 to 5.
    pub score: f64,
    /// At least 1.
    pub review_count: u64,
    /// Lower end of the interval, from 1 to `score`.
    pub lower_bound: f64,
    /// Upper end of the interval, from `score` to 5.
    pub upper_bound: f64,
}

/// Summarises `star_counts`, one-star reviews first; `None` when there is no review.
///
/// # Errors
/// `DependencyBug` unless there are exactly five counts and their sum fits 64 bits.
pub fn summarise(star_counts: &[u64]) -> Result<Option<Reputation>, Refusal> {
    let counts: &[u64; STARS] =
        star_counts.try_into().map_err(|_| broken("expected five counts, one for each number of stars"))?;
    let total = counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
    let review_count = total.ok_or_else(|| broken("the counts add up to more than 64 bits"))?;
    if review_count == 0 {
        return Ok(None);
    }
    // Stars above one, so that the mean is on 0 to 4; at most 2^64 · 4, which 128 bits hold.
    let above_one: u128 = counts.iter().zip(0_u128..).map(|(count, stars)| u128::from(*count) * stars).sum();
    let share = above_one as f64 / (review_count as f64 * 4.0);
    let (lower, upper) = wilson(share.clamp(0.0, 1.0), review_count as f64);
    let score = stars(share);
    // Rounding may push an end past the mean by one unit in the last place.
    Ok(Some(Reputation {
        score,
        review_count,
        lower_bound: stars(lower).min(score),
        upper_bound: stars(upper).max(score),
    }))
}

/// From 0..1 to the scale of stars.
fn stars(share: f64) -> f64 {
    (1.0 + 4.0 * share).clamp(1.0, 5.0)
}

/// The score interval for a mean `share` of `n` observations on 0 to 1.
fn wilson(share: f64, n: f64) -> (f64, f64) {
    let z2_by_n = Z * Z / n;
    let centre = (share + z2_by_n / 2.0) / (1.0 + z2_by_n);
    let spread = (share * (1.0 - share) / n + z2_by_n / (4.0 * n)).sqrt();
    let half = Z * spread / (1.0 + z2_by_n);
    (centre - half, centre + half)
}

fn broken(fault: &str) -> Refusal {
    Refusal::new(Reason::DependencyBug, format!("review store broke its contract: {fault}"))
}

#[cfg(test)]
mod tests {
    use base::mix::{below, fold64};
    use proptest::prelude::*;

    use super::*;

    fn of(counts: [u64; 5]) -> Reputation {
        summarise(&counts).expect("sound").expect("there are reviews")
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 5e-5
    }

    #[test]
    fn no_review_is_no_reputation() {
        assert_eq!(summarise(&[0; 5]), Ok(None));
    }

    #[test]
    fn the_interval_agrees_with_published_values_of_wilsons() {
        // Only one-star and five-star reviews: a proportion. 81 of 263 (Newcombe, Statistics in Medicine 17, 1998,
        // table I) gives 0.2553 to 0.3662, 15 of 148 gives 0.0624 to 0.1605, 0 of 20 gives 0 to 0.1611,
        // 1 of 29 gives 0.0061 to 0.1718.
        for (yes, n, lower, upper) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let seen = of([n - yes, 0, 0, 0, yes]);
            let (low, high) = ((seen.lower_bound - 1.0) / 4.0, (seen.upper_bound - 1.0) / 4.0);
            assert!(near(low, lower) && near(high, upper), "{yes} of {n}: {low} to {high}");
        }
    }

    #[test]
    fn means_are_plain() {
        assert!(near(of([1, 1, 1, 1, 1]).score, 3.0));
        assert!(near(of([0, 0, 0, 3, 1]).score, 4.25));
        assert_eq!(of([7, 0, 0, 0, 0]).score, 1.0);
        assert_eq!(of([0, 0, 0, 0, 7]).score, 5.0);
        assert_eq!(of([0, 1, 0, 2, 0]).review_count, 3);
    }

    #[test]
    fn one_review_says_little() {
        let seen = of([0, 0, 0, 0, 1]);
        assert_eq!((seen.score, seen.upper_bound), (5.0, 5.0));
        // 1 / (1 + z²) of the scale.
        assert!(near(seen.lower_bound, 1.0 + 4.0 * 0.206_55));
    }

    #[test]
    fn the_wrong_number_of_counts_or_an_overflow_is_a_fault_of_the_store() {
        for counts in [&[][..], &[1; 4], &[1; 6]] {
            let refusal = summarise(counts).expect_err("not five");
            assert_eq!(refusal.reason(), Reason::DependencyBug);
        }
        assert!(summarise(&[u64::MAX, 0, 0, 0, 1]).is_err());
        let full = of([u64::MAX / 2, 0, 0, 0, u64::MAX / 2 + 1]);
        assert!(near(full.score, 3.0) && near(full.lower_bound, 3.0) && near(full.upper_bound, 3.0));
    }

    /// The share of 4,000 samples of `n` reviews whose interval contains the true mean.
    fn coverage(weights: [u64; 5], n: u64) -> f64 {
        let whole: u64 = weights.iter().sum();
        let mean = weights.iter().zip(1_u64..).map(|(weight, stars)| weight * stars).sum::<u64>() as f64
            / whole as f64;
        let samples = 4_000_u64;
        let covered = (0..samples).filter(|sample| {
            let mut counts = [0; 5];
            for review in 0..n {
                let mut left = below(fold64(fold64(n, *sample), review), whole);
                let star = weights.iter().position(|weight| {
                    let here = left < *weight;
                    left = left.saturating_sub(*weight);
                    here
                });
                counts[star.expect("the draw is below the sum of weights")] += 1;
            }
            let seen = of(counts);
            (seen.lower_bound..=seen.upper_bound).contains(&mean)
        });
        covered.count() as f64 / samples as f64
    }

    #[test]
    fn the_interval_covers_the_true_mean_as_often_as_it_says() {
        // Polarised reviews are the least favourable spread, where the interval is Wilson's own, whose coverage swings
        // around 95 % with n and p; every other shape is covered more often. The draws are keyed, so the figures repeat.
        for n in [2, 5, 20, 100] {
            for weights in [[1, 1, 1, 1, 1], [1, 2, 4, 8, 16], [0, 1, 6, 3, 0], [2, 1, 0, 1, 6]] {
                let share = coverage(weights, n);
                assert!(share >= 0.95, "{weights:?}, {n} reviews: {share}");
            }
            for weights in [[1, 0, 0, 0, 1], [3, 0, 0, 0, 7]] {
                let share = coverage(weights, n);
                assert!(share >= 0.83, "{weights:?}, {n} reviews: {share}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_interval_is_on_the_scale_and_holds_the_mean(counts in proptest::array::uniform5(0_u64..u64::MAX / 5)) {
            if let Some(seen) = summarise(&counts).expect("five counts that fit") {
                prop_assert!(1.0 <= seen.lower_bound && seen.lower_bound <= seen.score);
                prop_assert!(seen.score <= seen.upper_bound && seen.upper_bound <= 5.0);
                prop_assert!(seen.review_count == counts.iter().sum::<u64>());
            }
        }

        #[test]
        fn more_of_the_same_reviews_narrow_the_interval(counts in proptest::array::uniform5(0_u64..1_000), times in 2_u64..1_000) {
            prop_assume!(counts.iter().sum::<u64>() > 0);
            let (few, many) = (of(counts), of(counts.map(|count| count * times)));
            prop_assert!((few.score - many.score).abs() < 1e-9);
            prop_assert!(many.upper_bound - many.lower_bound < few.upper_bound - few.lower_bound);
        }

        #[test]
        fn turning_the_scale_around_turns_the_interval_around(counts in proptest::array::uniform5(0_u64..1_000_000)) {
            prop_assume!(counts.iter().sum::<u64>() > 0);
            let mut turned = counts;
            turned.reverse();
            let (seen, mirrored) = (of(counts), of(turned));
            prop_assert!((seen.score + mirrored.score - 6.0).abs() < 1e-9);
            prop_assert!((seen.lower_bound + mirrored.upper_bound - 6.0).abs() < 1e-9);
        }
    }
}
