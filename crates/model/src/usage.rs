//! Tokens and what they cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens of one step, or the total of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Usage {
    /// Tokens that the model read, cached ones included.
    pub input_tokens: u64,
    /// The part of `input_tokens` read from the provider's cache.
    pub cached_tokens: u64,
    /// The part of `input_tokens` written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Tokens that the model wrote, reasoning included.
    pub output_tokens: u64,
    /// The part of `output_tokens` spent on reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Adds another step's tokens. Saturates, because providers report the numbers.
    pub fn add(&mut self, other: Self) {
        *self = self.combine(other, u64::saturating_add);
    }

    /// The tokens that are left after `other`, at least zero each.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }

    fn combine(self, other: Self, op: fn(u64, u64) -> u64) -> Self {
        Self {
            input_tokens: op(self.input_tokens, other.input_tokens),
            cached_tokens: op(self.cached_tokens, other.cached_tokens),
            cache_write_tokens: op(self.cache_write_tokens, other.cache_write_tokens),
            output_tokens: op(self.output_tokens, other.output_tokens),
            reasoning_tokens: op(self.reasoning_tokens, other.reasoning_tokens),
        }
    }
}

/// Cost in millionths of the currency of the configured prices. An integer, because limits must be exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CostMicros(pub u64);

impl CostMicros {
    /// The sum; saturates.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
