//! The seed of random tests: new for each run, printed with a failure, and taken from the environment (`SEED=123 cargo
//! test -p upstream`).

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// The proptest configuration of this crate.
pub(crate) fn config() -> Config {
    #[expect(clippy::disallowed_methods, reason = "the seed of a test, which is not a setting of the server")]
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    // The harness shows this only when the test fails.
    println!("SEED={seed}");
    Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() }
}
