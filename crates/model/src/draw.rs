//! Draw: the keyed draws behind every emulated call. A draw is a pure function of seed, scenario version, dependency,
//! operation, key, logical operation id, attempt and purpose: no shared generator, no dependence on arrival order, so
//! the same seed gives the same draws in any process and in any order.

use std::fmt;

use base::{Dependency, mix};

/// What a draw decides. Each purpose draws independently of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Position within the latency distribution.
    Latency,
    /// Whether the call falls into the slow mode.
    SlowMode,
    /// What varies in the answer from call to call.
    Payload,
    /// Whether a fault rule applies; the value identifies the rule by its content.
    Fault(u64),
}

impl Purpose {
    #[inline]
    const fn tag(self) -> u64 {
        match self {
            Self::Latency => 1,
            Self::SlowMode => 2,
            Self::Payload => 3,
            Self::Fault(rule) => mix::fold64(4, rule),
        }
    }
}

/// The draws of one seed and scenario version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    bases: [u64; 7],
}

impl Draws {
    /// For a seed and the version of a scenario.
    pub fn new(seed: u64, scenario_version: u32) -> Self {
        let root = mix::fold64(mix::fold64(seed, 0x6d65_7263_7572_7931), u64::from(scenario_version));
        Self {
            bases: Dependency::ALL.map(|dependency| mix::fold_bytes(root, dependency.as_str().as_bytes())),
        }
    }

    /// The draws of one call. `key` names what the call is about; see [`key`].
    pub fn call(
        &self,
        dependency: Dependency,
        operation: &str,
        key: u64,
        operation_id: &str,
        attempt: u32,
    ) -> CallDraw {
        let state = mix::fold_bytes(self.bases[dependency.index()], operation.as_bytes());
        let state = mix::fold_bytes(mix::fold64(state, key), operation_id.as_bytes());
        CallDraw(mix::fold64(state, u64::from(attempt)))
    }
}

impl Draws {
    /// Keys the draws of an operation that a simulation knows by its number alone; see [`Draws::of_operation`].
    #[inline]
    pub const fn operation(&self, number: u64) -> u64 {
        mix::fold64(self.bases[0], number)
    }

    /// The draws of a call for an operation: as independent as those of [`Draws::call`], at a tenth of the cost.
    #[inline]
    pub const fn of_operation(&self, dependency: Dependency, operation: u64, attempt: u32) -> CallDraw {
        // A turn by 64 is none: what lies above counts as well, or the second read of a hedge would be the first one again.
        let turn = attempt.wrapping_add(attempt >> 11);
        CallDraw(mix::mix64(operation ^ self.bases[dependency.index()].rotate_left(turn)))
    }
}

/// Folds the texts that a call is about into one key; order and boundaries count.
pub fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    parts.into_iter().fold(0, |state, part| mix::fold_bytes(state, part.as_bytes()))
}

/// The draws of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDraw(u64);

impl CallDraw {
    /// 64 uniform bits for a purpose.
    #[inline]
    pub const fn bits(self, purpose: Purpose) -> u64 {
        mix::fold64(self.0, purpose.tag())
    }
}

/// A share from 0 to 1, kept in parts per billion so that it compares exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000_000;
    /// Nobody.
    pub const NONE: Self = Self(0);
    /// Everybody.
    pub const ALL: Self = Self(Self::WHOLE);

    /// From a ratio, rounded to the nearest billionth; outside 0 to 1, the nearer end.
    pub fn from_ratio(ratio: f64) -> Self {
        // A float-to-integer cast saturates and takes NaN to 0.
        Self(((ratio * f64::from(Self::WHOLE)).round() as u32).min(Self::WHOLE))
    }

    /// From parts per million; above a million, everybody.
    pub const fn from_ppm(ppm: u32) -> Self {
        if ppm >= 1_000_000 { Self::ALL } else { Self(ppm * 1_000) }
    }

    /// Parts per billion.
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// Parts per million, rounded down.
    pub const fn ppm(self) -> u32 {
        self.0 / 1_000
    }

    /// As a ratio.
    pub fn as_ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// Whether uniform bits fall into this share. Whoever falls into a share falls into every larger one.
    #[inline]
    pub const fn takes(self, bits: u64) -> bool {
        mix::below(bits, Self::WHOLE as u64) < self.0 as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_ratio())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(draws: &Draws, id: &str, attempt: u32, purpose: Purpose) -> u64 {
        draws.call(Dependency::Profile, "FetchProfile", key(["t", "s"]), id, attempt).bits(purpose)
    }

    #[test]
    fn draws_are_pinned() {
        // The same on every machine and in every process: a change here changes every recorded run.
        let draws = Draws::new(42, 1);
        assert_eq!(bits(&draws, "op-1", 1, Purpose::Latency), 2_773_971_267_674_889_873);
        assert_eq!(bits(&draws, "op-1", 1, Purpose::Fault(9)), 16_814_384_867_783_621_509);
    }

    #[test]
    fn every_ingredient_counts() {
        let draws = Draws::new(1, 1);
        let call = |dependency, operation, key, id, attempt, purpose| {
            draws.call(dependency, operation, key, id, attempt).bits(purpose)
        };
        let reference = call(Dependency::Profile, "a", 1, "x", 1, Purpose::Latency);
        let others = [
            call(Dependency::Pricing, "a", 1, "x", 1, Purpose::Latency),
            call(Dependency::Profile, "b", 1, "x", 1, Purpose::Latency),
            call(Dependency::Profile, "a", 2, "x", 1, Purpose::Latency),
            call(Dependency::Profile, "a", 1, "y", 1, Purpose::Latency),
            call(Dependency::Profile, "a", 1, "x", 2, Purpose::Latency),
            call(Dependency::Profile, "a", 1, "x", 1, Purpose::SlowMode),
            call(Dependency::Profile, "a", 1, "x", 1, Purpose::Payload),
            call(Dependency::Profile, "a", 1, "x", 1, Purpose::Fault(0)),
            Draws::new(2, 1).call(Dependency::Profile, "a", 1, "x", 1).bits(Purpose::Latency),
            Draws::new(1, 2).call(Dependency::Profile, "a", 1, "x", 1).bits(Purpose::Latency),
        ];
        assert!(!others.contains(&reference));
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
    }

    #[test]
    fn purposes_are_independent_and_uniform() {
        // Chi-square over a 16 by 16 grid of two purposes: 255 degrees of freedom, mean 255, deviation 22.6.
        let draws = Draws::new(7, 1);
        let mut grid = [0_u32; 256];
        let calls = 64_000_u32;
        for number in 0..calls {
            let call = draws.call(Dependency::Pricing, "FetchPrices", u64::from(number), "op", 1);
            let (one, two) = (call.bits(Purpose::Latency) >> 60, call.bits(Purpose::SlowMode) >> 60);
            grid[(one * 16 + two) as usize] += 1;
        }
        let expected = f64::from(calls) / 256.0;
        let chi: f64 = grid.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert!((150.0..360.0).contains(&chi), "{chi}");
    }

    #[test]
    fn shares_are_exact_at_their_ends() {
        assert!(!Share::NONE.takes(0));
        assert!(Share::ALL.takes(u64::MAX));
        assert_eq!(Share::from_ratio(0.015).ppb(), 15_000_000);
        assert_eq!(Share::from_ratio(f64::NAN), Share::NONE);
        assert_eq!(Share::from_ratio(7.0), Share::ALL);
        assert_eq!(Share::from_ppm(2_000_000), Share::ALL);
        assert_eq!(Share::from_ppm(40_000), Share::from_ratio(0.04));
    }

    proptest! {
        #[test]
        fn a_larger_share_takes_whom_a_smaller_one_takes(bits: u64, small in 0_u32..1_000_000, more in 0_u32..1_000_000) {
            if Share::from_ppm(small).takes(bits) {
                prop_assert!(Share::from_ppm(small + more).takes(bits));
            }
        }
    }

    #[test]
    fn a_second_read_beside_a_first_is_drawn_anew() {
        let draws = Draws::new(1, 2);
        let hedge = 1 << 16;
        for attempt in 1..5 {
            let of = |operation, attempt| draws.of_operation(Dependency::Profile, operation, attempt);
            let same = (0..1_000).filter(|number| {
                let operation = draws.operation(*number);
                of(operation, attempt).bits(Purpose::Latency)
                    == of(operation, attempt + hedge).bits(Purpose::Latency)
            });
            assert_eq!(same.count(), 0, "attempt {attempt}");
        }
    }
}
