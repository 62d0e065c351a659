//! Tokens: the retry budget of one dependency, shared by all calls to it. Failures take, successes give back a little;
//! at or below half, nobody retries. So retries stop when most calls fail, and a single failure among many is retried.
//!
//! Counted in integer thousandths: sums of 0.1 in floating point would drift past the bounds.

use std::fmt;

/// Most tokens that a budget may have.
pub const TOKENS_MAX: u32 = 1_000;

/// One token, in thousandths.
const TOKEN: u32 = 1_000;

/// Checked figures of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRules {
    max: u32,
    per_success: u32,
}

/// One thing that is wrong with the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// The number of tokens is outside 1 to [`TOKENS_MAX`].
    MaxOutOfRange(u32),
    /// A success gives nothing back: after enough failures, nothing would ever be retried again.
    RatioZero,
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxOutOfRange(max) => write!(f, "tokens_max: {max} is not from 1 to {TOKENS_MAX}"),
            Self::RatioZero => f.write_str("token_ratio: zero, the budget would never refill"),
        }
    }
}

impl TokenRules {
    /// So many tokens at most, and so many thousandths of one for each success. A ratio above the whole budget is as good
    /// as the whole budget.
    ///
    /// # Errors
    /// All faults at once.
    pub fn new(tokens_max: u32, ratio_thousandths: u32) -> Result<Self, Vec<TokenFault>> {
        let faults: Vec<_> = [
            (!(1..=TOKENS_MAX).contains(&tokens_max)).then_some(TokenFault::MaxOutOfRange(tokens_max)),
            (ratio_thousandths == 0).then_some(TokenFault::RatioZero),
        ]
        .into_iter()
        .flatten()
        .collect();
        if faults.is_empty() {
            Ok(Self { max: tokens_max * TOKEN, per_success: ratio_thousandths })
        } else {
            Err(faults)
        }
    }
}

/// The tokens of one dependency. Never outside zero to the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    rules: TokenRules,
    level: u32,
}

impl Tokens {
    /// A full budget.
    pub const fn full(rules: TokenRules) -> Self {
        Self { rules, level: rules.max }
    }

    /// A call succeeded. An attempt that failed in a way that does not count is neither this nor [`Tokens::failure`].
    pub fn success(&mut self) {
        self.level = self.level.saturating_add(self.rules.per_success).min(self.rules.max);
    }

    /// An attempt failed in a way that counts.
    pub fn failure(&mut self) {
        self.level = self.level.saturating_sub(TOKEN);
    }

    /// Whether a retry may be sent: above half.
    pub const fn allow(&self) -> bool {
        // Both in thousandths of whole tokens, so the half is exact.
        self.level > self.rules.max / 2
    }

    /// Tokens left, in thousandths.
    pub const fn level_thousandths(&self) -> u32 {
        self.level
    }

    /// Most tokens, in thousandths.
    pub const fn max_thousandths(&self) -> u32 {
        self.rules.max
    }

    /// Changes the figures while the budget is in use. What was left stays the same share of the whole, rounded down, so
    /// that a reload neither forgives a failing dependency nor condemns a healthy one.
    pub fn reconfigure(&mut self, rules: TokenRules) {
        let level = u64::from(self.level) * u64::from(rules.max) / u64::from(self.rules.max);
        // The level is at most the old maximum, so the product is at most the new one.
        *self = Self { rules, level: u32::try_from(level).unwrap_or(rules.max) };
    }
}
