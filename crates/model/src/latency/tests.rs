//! Tests of the quantile tables: pinned values, closed forms of the log-normal distribution, and the fine tail.

use base::Dependency;
use proptest::prelude::*;

use super::*;
use crate::draw::{Draws, key};

fn table() -> Quantiles {
    Quantiles::log_normal(Nanos::from_millis(40), 0.25)
}

/// Relative difference.
fn off(observed: f64, expected: f64) -> f64 {
    (observed / expected - 1.0).abs()
}

#[test]
fn values_are_pinned() {
    let table = table();
    // The median, but for the rounding of the interpolation.
    assert_eq!(table.at(1 << 63), Nanos::new(40_000_001));
    assert_eq!(table.at((1 << 63) - 1), Nanos::new(39_999_999));
    let pinned: Vec<u64> = [0, 1 << 40, 1 << 62, 3 << 62, 0xfd70_a3d7_0a3d_70a3, u64::MAX]
        .map(|bits| table.at(bits).get())
        .into();
    assert_eq!(pinned, [8_202_098, 10_646_204, 33_793_113, 47_346_927, 71_555_039, 195_072_033]);
}

#[test]
fn deviates_match_published_ones() {
    // Standard normal quantiles as any table prints them.
    for (tail, expected) in [
        (0.5, 0.0),
        (0.25, 0.674_489_750_196_082),
        (0.01, 2.326_347_874_040_841),
        (1e-9, 5.997_807_015_007_687),
    ] {
        assert!((upper_deviate(tail, 0.0_f64.max(expected - 0.1)) - expected).abs() < 1e-12, "{tail}");
    }
    assert!(DEVIATES.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(distance(0), 0.5);
    assert_eq!(distance(EDGES - 1), libm::ldexp(1.0, -33));
}

#[test]
fn quantiles_and_mean_follow_the_closed_form() {
    let table = table();
    for (tail, deviate) in
        [(0.25, 0.674_489_750_196_082), (0.01, 2.326_347_874_040_841), (1e-6, 4.753_424_308_822_899)]
    {
        let bits = (tail * libm::ldexp(1.0, 64)) as u64;
        let spread = libm::exp(0.25 * deviate);
        assert!(off(table.at(!bits).as_millis_f64(), 40.0 * spread) < 1e-5, "upper {tail}");
        assert!(off(table.at(bits).as_millis_f64(), 40.0 / spread) < 1e-5, "lower {tail}");
    }
    // Mean of a log-normal: median · exp(σ²/2).
    assert!(off(table.mean().as_millis_f64(), 40.0 * libm::exp(0.031_25)) < 1e-5, "{}", table.mean());
}

#[test]
fn cells_are_the_whole_distribution() {
    let table = table();
    let weight: u64 = table.cells().map(|(_, weight)| weight).sum();
    assert_eq!(weight, 1 << 40);
    let mean: f64 = table.cells().map(|(value, weight)| value.as_millis_f64() * weight as f64).sum::<f64>()
        / weight as f64;
    assert!(off(mean, table.mean().as_millis_f64()) < 1e-6);
}

#[test]
fn the_mixture_draws_what_it_declares() {
    let slow = Arc::new(Quantiles::log_normal(Nanos::from_millis(400), 0.2));
    let mixture = Mixture::new(Arc::new(table()), slow, Share::from_ratio(0.04), [1.0, 1.05, 1.5]);
    let draws = Draws::new(11, 1);
    let calls = 200_000_u32;
    let call =
        |number: u32| draws.call(Dependency::Profile, "FetchProfile", key(["t"]), &number.to_string(), 1);
    let slow = (0..calls).filter(|number| mixture.is_slow(call(*number))).count();
    // Binomial: 8,000 expected, deviation 88.
    assert!((7_500..8_500).contains(&slow), "{slow}");
    for class in WorkloadClass::ALL {
        let sum: f64 = (0..calls).map(|number| mixture.draw(call(number), class).as_millis_f64()).sum();
        assert!(off(sum / f64::from(calls), mixture.mean(class).as_millis_f64()) < 0.02, "{class}");
    }
    assert_eq!(mixture.for_class(Nanos::new(1_000), WorkloadClass::Enterprise), Nanos::new(1_500));
}

#[test]
fn equal_distributions_share_a_table() {
    let mut tables = Tables::default();
    let one = tables.log_normal(Nanos::from_millis(3), 0.5);
    assert!(Arc::ptr_eq(&one, &tables.log_normal(Nanos::from_millis(3), 0.5)));
    assert!(!Arc::ptr_eq(&one, &tables.log_normal(Nanos::from_millis(3), 0.4)));
}

proptest! {
    #[test]
    fn a_table_is_monotonic(median_us in 1_u64..10_000_000, sigma in 0.0_f64..1.0, one: u64, two: u64) {
        let table = Quantiles::log_normal(Nanos::from_micros(median_us), sigma);
        let (low, high) = (one.min(two), one.max(two));
        prop_assert!(table.at(low) <= table.at(high));
        prop_assert!(table.at(0) <= table.at(low) && table.at(high) <= table.at(u64::MAX));
    }

    #[test]
    fn extremes_do_not_overflow(bits: u64) {
        let table = Quantiles::log_normal(Nanos::MAX, 9.0);
        prop_assert!(table.at(bits) <= table.at(u64::MAX));
        prop_assert_eq!(Quantiles::log_normal(Nanos::from_millis(7), 0.0).at(bits), Nanos::from_millis(7));
    }
}
