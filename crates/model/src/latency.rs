//! Latency: how long an emulated dependency takes. A mixture of a log-normal body and a slow mode, drawn from integer
//! quantile tables, so that a draw is the same on every machine and costs tens of nanoseconds.
//!
//! A table is log-linear in the distance `d` from the nearer end of the distribution: octave `o` holds `d` from
//! 2^-(o+1) down to 2^-(o+2) in 64 equal cells, for 32 octaves on either side. So the tail is as finely resolved as the
//! middle, down to one draw in 2^33; beyond that the outermost entry holds. Between entries the value is interpolated.
//! The entries are computed once with `libm`, whose results do not depend on the machine.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use base::{Nanos, WorkloadClass};

use crate::draw::{CallDraw, Purpose, Share};

/// Octaves on either side of the median.
const OCTAVES: usize = 32;
/// Cells of an octave.
const CELLS: usize = 64;
/// Entries of one side: the edges of its cells, median first.
const EDGES: usize = OCTAVES * CELLS + 1;
/// Bits of the position within a cell.
const FRACTION_BITS: u32 = 20;
/// A factor of one, in the millionths that class factors are kept in.
const FACTOR_ONE: u32 = 1_000_000;

/// Longest median that a table takes, so that every entry and every step of the interpolation fits 64 bits.
pub const MEDIAN_MAX: Nanos = Nanos::from_secs(10);
/// Widest body, as the deviation of the logarithm; see [`MEDIAN_MAX`].
pub const SIGMA_MAX: f64 = 1.0;

/// Deviates of the standard normal distribution at the table's edges, from the median outwards.
static DEVIATES: LazyLock<Box<[f64]>> = LazyLock::new(|| {
    let mut deviate = 0.0;
    (0..EDGES)
        .map(|edge| {
            deviate = upper_deviate(distance(edge), deviate);
            deviate
        })
        .collect()
});

/// Distance of an edge from the end of the distribution.
fn distance(edge: usize) -> f64 {
    let (octave, cell) = (edge / CELLS, edge % CELLS);
    let mantissa = 1.0 + (CELLS - cell) as f64 / CELLS as f64;
    // Exact: both factors are powers of two times a short mantissa.
    mantissa * libm::ldexp(1.0, -(octave as i32) - 2)
}

/// The deviate that a standard normal variable exceeds with probability `tail`, by Newton's method from a deviate that
/// is not above it: the survival function is convex there, so the steps never overshoot.
fn upper_deviate(tail: f64, from: f64) -> f64 {
    /// Quadratic convergence from the neighbouring edge needs four.
    const STEPS: usize = 8;
    let root_two_pi = libm::sqrt(2.0 * std::f64::consts::PI);
    (0..STEPS).fold(from, |deviate, _| {
        let survival = 0.5 * libm::erfc(deviate * std::f64::consts::FRAC_1_SQRT_2);
        let density = libm::exp(-0.5 * deviate * deviate) / root_two_pi;
        deviate + (survival - tail) / density
    })
}

/// An integer quantile table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantiles {
    /// Lower side, then upper side, each from the median outwards; nanoseconds.
    edges: Box<[u64]>,
    mean: Nanos,
}

impl Quantiles {
    /// A log-normal distribution; `median` and `sigma` are cut to [`MEDIAN_MAX`] and to 0 to [`SIGMA_MAX`].
    pub fn log_normal(median: Nanos, sigma: f64) -> Self {
        let median = median.min(MEDIAN_MAX).get() as f64;
        let sigma = if sigma > 0.0 { sigma.min(SIGMA_MAX) } else { 0.0 };
        let side = |sign: f64| {
            DEVIATES.iter().map(move |deviate| libm::round(median * libm::exp(sign * sigma * deviate)) as u64)
        };
        let edges: Box<[u64]> = side(-1.0).chain(side(1.0)).collect();
        let mean = mean(&edges);
        Self { edges, mean }
    }

    /// The value at 64 uniform bits, read as a fraction: 0 is the lower end, 2^63 the median.
    #[inline]
    pub fn at(&self, bits: u64) -> Nanos {
        let upper = bits >> 63 == 1;
        let side = if upper { &self.edges[EDGES..] } else { &self.edges[..EDGES] };
        // Distance from the nearer end, in units of 2^-64; below 2^63.
        let distance = if upper { !bits } else { bits };
        let octave = distance.leading_zeros() as usize - 1;
        if octave >= OCTAVES {
            return Nanos::new(side[EDGES - 1]);
        }
        // What follows the leading one: six bits of cell, then the position within it.
        let mantissa = distance << (octave + 2);
        let cell = (mantissa >> (u64::BITS - CELLS.ilog2())) as usize;
        let position = (mantissa << CELLS.ilog2()) >> (u64::BITS - FRACTION_BITS);
        let outer = side[octave * CELLS + CELLS - cell];
        let inner = side[octave * CELLS + CELLS - cell - 1];
        let step = (inner.abs_diff(outer) * position) >> FRACTION_BITS;
        Nanos::new(if upper { outer - step } else { outer + step })
    }

    /// The mean of [`Quantiles::at`] over all bits, rounded down.
    pub const fn mean(&self) -> Nanos {
        self.mean
    }

    /// The distribution as weighted points, one a cell: value and weight in units of 2^-40. The weights add up to 2^40.
    /// For checks that add distributions up instead of drawing from them.
    pub fn cells(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        self.edges.chunks(EDGES).flat_map(|side| {
            let inner = side.windows(2).enumerate().map(|(cell, edges)| {
                let value = edges[0] / 2 + edges[1] / 2;
                (Nanos::new(value), 1 << (OCTAVES - cell / CELLS))
            });
            inner.chain([(Nanos::new(side[EDGES - 1]), 1 << 7)])
        })
    }
}

/// Weights as in [`Quantiles::cells`], values as the mean of a cell's edges, in halves so that nothing is lost.
fn mean(edges: &[u64]) -> Nanos {
    let mut halves = 0_u128;
    for side in edges.chunks(EDGES) {
        for (cell, edges) in side.windows(2).enumerate() {
            halves += (u128::from(edges[0]) + u128::from(edges[1])) << (OCTAVES - cell / CELLS);
        }
        halves += u128::from(side[EDGES - 1]) << 8;
    }
    Nanos::new((halves >> 41) as u64)
}

/// Tables that were built already: phases that share a distribution share its table.
#[derive(Debug, Default)]
pub struct Tables(HashMap<(u64, u64), Arc<Quantiles>>);

impl Tables {
    /// The log-normal table of these parameters.
    pub fn log_normal(&mut self, median: Nanos, sigma: f64) -> Arc<Quantiles> {
        let entry = self.0.entry((median.get(), sigma.to_bits()));
        Arc::clone(entry.or_insert_with(|| Arc::new(Quantiles::log_normal(median, sigma))))
    }
}

/// The latency of one dependency in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    body: Arc<Quantiles>,
    slow: Arc<Quantiles>,
    slow_share: Share,
    factors: [u64; 3],
}

impl Mixture {
    /// A body, a slow mode with its probability, and a factor a class.
    pub fn new(
        body: Arc<Quantiles>,
        slow: Arc<Quantiles>,
        slow_share: Share,
        class_factors: [f64; 3],
    ) -> Self {
        let factors = class_factors.map(|factor| libm::round(factor * f64::from(FACTOR_ONE)) as u64);
        Self { body, slow, slow_share, factors }
    }

    /// The same in slow motion: every service time is `factor` times as long.
    pub fn dilated(&self, factor: u32) -> Self {
        let factors = self.factors.map(|of_class| of_class.saturating_mul(factor.into()));
        Self { factors, ..self.clone() }
    }

    /// The service time of a call.
    #[inline]
    pub fn draw(&self, call: CallDraw, class: WorkloadClass) -> Nanos {
        let mode = if self.is_slow(call) { &self.slow } else { &self.body };
        self.for_class(mode.at(call.bits(Purpose::Latency)), class)
    }

    /// Whether a call falls into the slow mode.
    #[inline]
    pub fn is_slow(&self, call: CallDraw) -> bool {
        self.slow_share.takes(call.bits(Purpose::SlowMode))
    }

    /// The mean service time of a class.
    pub fn mean(&self, class: WorkloadClass) -> Nanos {
        let slow = u128::from(self.slow_share.ppb());
        let body = u128::from(Share::ALL.ppb()) - slow;
        let sum = u128::from(self.body.mean().get()) * body + u128::from(self.slow.mean().get()) * slow;
        self.for_class(Nanos::new((sum / u128::from(Share::ALL.ppb())) as u64), class)
    }

    /// The probability of the slow mode.
    pub const fn slow_share(&self) -> Share {
        self.slow_share
    }

    /// The body, before the factor of a class.
    pub fn body(&self) -> &Quantiles {
        &self.body
    }

    /// The slow mode, before the factor of a class.
    pub fn slow(&self) -> &Quantiles {
        &self.slow
    }

    /// A value of either mode for a class.
    #[inline]
    pub fn for_class(&self, value: Nanos, class: WorkloadClass) -> Nanos {
        let (value, factor) = (value.get(), self.factors[class.index()]);
        // All but the wildest fit 64 bits, whose division is a multiplication.
        if let Some(product) = value.checked_mul(factor) {
            return Nanos::new(product / u64::from(FACTOR_ONE));
        }
        let scaled = u128::from(value) * u128::from(factor) / u128::from(FACTOR_ONE);
        Nanos::new(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
