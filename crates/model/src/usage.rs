//! What a turn cost.

use serde::{Deserialize, Serialize};

/// Tokens of one step, or the sum of a task's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens that the model read, cached ones included.
    pub input_tokens: u64,
    /// Of these, read from the provider's cache.
    pub cached_tokens: u64,
    /// Of these, written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Tokens that the model wrote, reasoning included.
    pub output_tokens: u64,
    /// Of these, reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Adds another step's tokens. Saturates: a provider's nonsense must not overflow us.
    pub fn add(&mut self, other: Self) {
        let sum = |a: u64, b: u64| a.saturating_add(b);
        *self = Self {
            input_tokens: sum(self.input_tokens, other.input_tokens),
            cached_tokens: sum(self.cached_tokens, other.cached_tokens),
            cache_write_tokens: sum(self.cache_write_tokens, other.cache_write_tokens),
            output_tokens: sum(self.output_tokens, other.output_tokens),
            reasoning_tokens: sum(self.reasoning_tokens, other.reasoning_tokens),
        };
    }
}
