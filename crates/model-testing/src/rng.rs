//! Reproducible randomness: the same seed gives the same choices, on every machine and in every version.

/// A splitmix64 generator, for tests only.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero for a bound of zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next_u64() % bound).unwrap_or_default()
    }

    /// Both bounds are inclusive.
    pub fn between(&mut self, min: u32, max: u32) -> u32 {
        let more = self.next_u64() % u64::from(max.saturating_sub(min)).saturating_add(1);
        min.saturating_add(u32::try_from(more).unwrap_or_default())
    }

    /// True with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.between(1, 100) <= percent
    }

    /// One of `others` or `first`.
    pub fn choose<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let index = self.below(others.len().saturating_add(1));
        others.get(index).copied().unwrap_or(first)
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}
