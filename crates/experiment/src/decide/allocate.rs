//! Allocate: weighted rendezvous hashing, exact in integers.
//!
//! Every arm draws a number `u` between 0 and 1 from a keyed hash of tenant, subject, experiment and arm, and bids
//! `−ln(u) / weight`; the lowest bid wins. A bid is exponentially distributed with the arm's weight as its rate, and the
//! lowest of such bids is an arm's own with probability weight ÷ sum of weights (C. Schindelhauer and G. Schomaker,
//! *Weighted distributed hash tables*, SPAA 2005, the logarithmic method). No arm's bid depends on another's weight, so
//! changing one weight, adding or removing an arm moves subjects only to or from that arm, never between two others, and
//! no more than the change of shares demands.
//!
//! The base of the logarithm scales all bids alike, so the logarithm is taken to base 2, in fixed point by repeated
//! squaring, and bids are compared by cross-multiplication: no floating point and no division, hence the same winner
//! on every machine.

use base::mix::fold_bytes;

use super::{Experiment, Variant};

/// Sets this use of the hash apart from every other: the first bytes of "mercury.experiment.allocation".
const SALT: u64 = u64::from_be_bytes(*b"mercury.");

/// Fraction bits of a cost.
const FRACTION_BITS: u32 = 56;

/// The arm of a subject.
///
/// # Panics
/// When no arm has a weight; [`super::Definitions`] lets no such experiment through.
pub fn arm<'a>(tenant: &str, subject: &str, experiment: &'a Experiment) -> &'a Variant {
    let key =
        [tenant, subject, &experiment.id].iter().fold(SALT, |key, part| fold_bytes(key, part.as_bytes()));
    let bids = experiment
        .variants
        .iter()
        .filter(|variant| variant.weight > 0)
        .map(|variant| Bid { cost: cost(fold_bytes(key, variant.name.as_bytes())), variant });
    let lowest = bids.reduce(|best, bid| if bid.beats(&best) { bid } else { best });
    lowest.expect("checked definitions have an arm with a weight").variant
}

struct Bid<'a> {
    cost: u64,
    variant: &'a Variant,
}

impl Bid<'_> {
    /// `cost / weight` is lower; of equal bids that of the first arm by name, so that the order of arms in the definition
    /// never matters.
    fn beats(&self, other: &Self) -> bool {
        let own = u128::from(self.cost) * u128::from(other.variant.weight);
        let others = u128::from(other.cost) * u128::from(self.variant.weight);
        own.cmp(&others).then_with(|| self.variant.name.cmp(&other.variant.name)).is_lt()
    }
}

/// `−log2(u)` for `u = (draw | 1) / 2^64`, in units of 2^−56; from 1 to 2^62.
///
/// The lowest bit is set so that `u` is never 0, and 1 is never reached. The fraction of the logarithm comes bit by bit:
/// squaring a mantissa doubles its logarithm, and what overflows 2 is the next bit.
const fn cost(draw: u64) -> u64 {
    let value = draw | 1;
    let mut log = value.ilog2() as u64;
    let mut mantissa = value << value.leading_zeros(); // 1 to 2, with 63 fraction bits.
    let mut bits = 0;
    while bits < FRACTION_BITS {
        let square = (mantissa as u128 * mantissa as u128) >> 63; // 1 to 4.
        let carry = (square >> 64) as u64;
        mantissa = (square >> carry) as u64;
        log = log << 1 | carry;
        bits += 1;
    }
    (64 << FRACTION_BITS) - log
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SUBJECTS: u32 = 10_000;

    fn experiment(id: &str, arms: &[(&str, u32)]) -> Experiment {
        let variants = arms.iter().map(|&(name, weight)| Variant { name: name.into(), weight }).collect();
        Experiment { id: id.into(), version: 1, variants }
    }

    fn counts(experiment: &Experiment) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for at in 0..SUBJECTS {
            let chosen = arm("tenant-000", &format!("user-{at:05}"), experiment);
            *counts.entry(chosen.name.clone()).or_insert(0) += 1;
        }
        counts
    }

    #[test]
    fn the_logarithm_is_exact_to_its_last_bits() {
        assert_eq!(cost(0), 64 << FRACTION_BITS);
        assert_eq!(cost(u64::MAX), 1);
        for draw in [1, 3, 0x1234_5678_9abc_def0, 1 << 63, u64::MAX / 3, u64::MAX - 1_000_000_000] {
            let exact = 64.0 - ((draw | 1) as f64).log2();
            let seen = cost(draw) as f64 / (1_u64 << FRACTION_BITS) as f64;
            assert!((exact - seen).abs() <= exact * 1e-9 + 1e-13, "{draw:#x}: {seen} for {exact}");
        }
    }

    #[test]
    fn allocations_are_pinned() {
        // Computed by an independent program with a decimal logarithm. A change here moves subjects between the arms of
        // running experiments.
        let experiment = experiment("home-layout", &[("control", 50), ("compact", 30), ("wide", 20)]);
        let arms: Vec<_> = (0..12)
            .map(|at| arm("tenant-000", &format!("user-{at:05}"), &experiment).name.as_str())
            .collect();
        let expected =
            "compact wide control control compact compact wide compact control wide control compact";
        assert_eq!(arms.join(" "), expected);
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        let cases: [&[(&str, u32)]; 6] = [
            &[("a", 1), ("b", 1)],
            &[("control", 50), ("compact", 30), ("wide", 20)],
            &[("a", 9), ("b", 1)],
            &[("a", 999), ("b", 1)],
            &[("a", u32::MAX), ("b", u32::MAX), ("c", u32::MAX)],
            &[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 6)],
        ];
        for arms in cases {
            let counts = counts(&experiment("shares", arms));
            let whole: f64 = arms.iter().map(|(_, weight)| f64::from(*weight)).sum();
            for (name, weight) in arms {
                let share = f64::from(*weight) / whole;
                let expected = share * f64::from(SUBJECTS);
                let four_sigma = 4.0 * (expected * (1.0 - share)).sqrt();
                let seen = f64::from(counts.get(*name).copied().unwrap_or(0));
                assert!((seen - expected).abs() <= four_sigma, "{name} of {arms:?}: {seen} for {expected}");
            }
        }
    }

    #[test]
    fn a_weight_of_zero_takes_nobody() {
        let counts = counts(&experiment("zero", &[("a", 0), ("b", 1), ("c", 0)]));
        assert_eq!(counts, BTreeMap::from([("b".to_owned(), SUBJECTS)]));
    }

    #[test]
    fn no_more_subjects_move_than_the_shares_demand() {
        // 50:50 to 60:40 demands a tenth of all subjects.
        let (before, after) =
            (experiment("move", &[("a", 50), ("b", 50)]), experiment("move", &[("a", 60), ("b", 40)]));
        let moved = (0..SUBJECTS).filter(|at| {
            let subject = format!("user-{at:05}");
            arm("tenant-000", &subject, &before).name != arm("tenant-000", &subject, &after).name
        });
        let moved = moved.count();
        assert!((880..=1_120).contains(&moved), "{moved}");
    }

    #[test]
    fn experiments_and_tenants_are_independent() {
        // Of subjects in arm a of one experiment, half are in arm a of another, and of the same one at another tenant.
        let arms: &[(&str, u32)] = &[("a", 1), ("b", 1)];
        let (one, other) = (experiment("one", arms), experiment("other", arms));
        let in_a =
            |tenant, at: u32, experiment| arm(tenant, &format!("user-{at:05}"), experiment).name == "a";
        let both = (0..SUBJECTS).filter(|at| in_a("t", *at, &one) && in_a("t", *at, &other)).count();
        let tenants = (0..SUBJECTS).filter(|at| in_a("t", *at, &one) && in_a("u", *at, &one)).count();
        assert!((2_300..=2_700).contains(&both), "{both}");
        assert!((2_300..=2_700).contains(&tenants), "{tenants}");
    }

    proptest! {
        #[test]
        fn a_changed_weight_moves_nobody_between_other_arms(
            weights in proptest::collection::vec(0_u32..100, 2..6),
            changed in any::<proptest::sample::Index>(),
            weight in 0_u32..100,
            subject in "[a-z0-9]{1,12}",
        ) {
            let changed = changed.index(weights.len());
            let names = ["a", "b", "c", "d", "e", "f"];
            let arms: Vec<_> = names.into_iter().zip(weights.iter().copied()).collect();
            let mut new_arms = arms.clone();
            new_arms[changed].1 = weight;
            prop_assume!(arms.iter().any(|arm| arm.1 > 0) && new_arms.iter().any(|arm| arm.1 > 0));
            let (before, after) = (experiment("e", &arms), experiment("e", &new_arms));
            let (from, to) = (arm("t", &subject, &before), arm("t", &subject, &after));
            if from.name != to.name {
                let left = from.name == names[changed] && weight < arms[changed].1;
                let joined = to.name == names[changed] && weight > arms[changed].1;
                prop_assert!(left || joined, "{} to {}", from.name, to.name);
            }
        }

        #[test]
        fn the_order_of_arms_does_not_matter(
            weights in proptest::collection::vec(1_u32.., 2..6),
            subject in "[a-z0-9]{1,12}",
        ) {
            let arms: Vec<_> = ["a", "b", "c", "d", "e", "f"].into_iter().zip(weights).collect();
            let reversed: Vec<_> = arms.iter().rev().copied().collect();
            let (one, other) = (experiment("e", &arms), experiment("e", &reversed));
            prop_assert_eq!(&arm("t", &subject, &one).name, &arm("t", &subject, &other).name);
        }

        #[test]
        fn a_larger_draw_never_costs_more(draw in 0_u64..u64::MAX, step in 1_u64..1_000) {
            prop_assert!(cost(draw) >= cost(draw.saturating_add(step)));
        }
    }
}
