//! Ids: the one source of unique ids in a process, seeded by the composition root.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::mix::{fold64, mix64};

/// Makes 128-bit ids from a seed and a counter: unique within the process, and across processes as far as their
/// 128-bit seeds are.
#[derive(Debug)]
pub struct IdSource {
    key: [u64; 2],
    counter: AtomicU64,
}

impl IdSource {
    /// A source; give every process another seed, from the operating system's entropy, or a fixed one in a test.
    pub const fn new(seed: u128) -> Self {
        Self { key: [(seed >> 64) as u64, seed as u64], counter: AtomicU64::new(1) }
    }

    /// The next id; never zero.
    pub fn next_u128(&self) -> u128 {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let high = fold64(self.key[0], count);
        let low = fold64(self.key[1], count);
        (u128::from(high) << 64 | u128::from(low)).max(1)
    }

    /// The next id of 64 bits; never zero.
    pub fn next_u64(&self) -> u64 {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        mix64(fold64(self.key[0] ^ self.key[1], count)).max(1)
    }
}
