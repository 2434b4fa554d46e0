//! Properties of drawn values whose seed is printed, so that a failure can be had again.

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A property's runner. Its seed is printed, and taken from `ANABRANCH_SEED` (64 hexadecimal digits) if that is set.
/// `PROPTEST_CASES` are the most that are drawn; `shrinks` the most that a failure is tried to be made simpler by.
pub fn runner(cases: u32, shrinks: u32) -> TestRunner {
    let most = std::env::var("PROPTEST_CASES").map(|text| text.parse().expect("a number"));
    let cases = most.map_or(cases, |most| cases.min(most));
    let seed = match std::env::var("ANABRANCH_SEED") {
        Ok(text) => parse_seed(&text).expect("ANABRANCH_SEED: 64 hexadecimal digits"),
        Err(_) => fresh_seed(),
    };
    let digits: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("ANABRANCH_SEED={digits}");
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: shrinks,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

fn parse_seed(text: &str) -> Option<[u8; 32]> {
    let bytes = (0..32).map(|i| u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok());
    bytes.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn fresh_seed() -> [u8; 32] {
    use std::hash::{BuildHasher, RandomState};
    let mut seed = [0; 32];
    for chunk in seed.chunks_mut(8) {
        chunk.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
    }
    seed
}
