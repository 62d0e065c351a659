//! Mix: keyed 64-bit mixing, exact on every machine. Not for secrets.

/// Scrambles 64 bits; a bijection (the finalizer of SplitMix64, Steele, Lea and Flood, 2014).
pub const fn mix64(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Folds `value` into `state`, order-dependent.
pub const fn fold64(state: u64, value: u64) -> u64 {
    mix64(state.rotate_left(5) ^ mix64(value))
}

/// Folds bytes into `state`; the length takes part, so `"ab", "c"` and `"a", "bc"` differ.
pub fn fold_bytes(state: u64, bytes: &[u8]) -> u64 {
    let mut state = fold64(state, bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0_u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = fold64(state, u64::from_le_bytes(word));
    }
    state
}

/// A number below `bound` from 64 mixed bits, without a division (Lemire's multiply-shift; bias below 2^-32 for the
/// bounds used here). `bound` 0 gives 0.
pub const fn below(bits: u64, bound: u64) -> u64 {
    ((bits as u128 * bound as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_pinned() {
        // The published first output of SplitMix64 with seed 0; the rest pins our own folding.
        assert_eq!(mix64(0), 0xe220_a839_7b1d_cdaf);
        assert_ne!(fold_bytes(fold_bytes(0, b"ab"), b"c"), fold_bytes(fold_bytes(0, b"a"), b"bc"));
        assert_ne!(fold64(fold64(0, 1), 2), fold64(fold64(0, 2), 1));
    }

    #[test]
    fn below_stays_below() {
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(0, 10), 0);
        assert_eq!(below(u64::MAX, 0), 0);
    }
}
