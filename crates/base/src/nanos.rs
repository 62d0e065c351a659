//! Nanos: nanoseconds as a plain integer, both for spans of time and for instants on a monotonic clock.
//!
//! `std::time::Instant` cannot be made by a simulator and cannot cross a process; this can.

use std::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

/// Nanoseconds. As an instant: since an origin that only its [`Clock`](crate::Clock) knows. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all, or the origin.
    pub const ZERO: Self = Self(0);
    /// The longest span, some 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds.
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From microseconds, saturating.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// From milliseconds, saturating.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From seconds, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Whole nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Milliseconds for display and for metrics.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds for display and for metrics.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// True for [`Nanos::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or [`Nanos::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This many times as long, or [`Nanos::MAX`].
    pub const fn times(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(factor as u64))
    }

    /// The difference, or [`Nanos::ZERO`].
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl fmt::Display for Nanos {
    /// Milliseconds with three decimals, the unit of every bound in this suite.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.as_millis_f64())
    }
}
