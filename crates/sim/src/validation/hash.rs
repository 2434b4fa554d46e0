//! How evenly the flow hash spreads.

use std::net::Ipv4Addr;

use anabranch_policy::abi::Addr;
use anabranch_policy::{flow_hash, spread};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Check, Effort, Mutant, Observed, Tolerance, Topic};

/// How evenly the flow hash spreads.
pub const HASHES: &[Topic] = &[Topic::random("hash of equal flows", measure, judge)];

/// The highest and the lowest bit of the hash are always 0.
pub(super) const MUTANTS: &[Mutant] = &[Mutant {
    name: "lost-bits",
    topic: "hash of equal flows",
    measure: |seed, _| sets(seed, !(1 << 31 | 1)),
}];

const FLOWS: u64 = 10_000;
const SUBLINKS: u32 = 8;
/// Buckets of the hash itself, by its high bits.
const BUCKETS: usize = 256;

/// Sets of flows under one seed: what chance alone makes of one set says little.
const SETS: u64 = 50;

/// Flows between hosts and ports drawn at random.
fn flows(random: &mut ChaCha8Rng) -> impl Iterator<Item = u32> {
    (0..FLOWS).map(move |_| {
        let [client, server] = [(); 2].map(|()| Addr::from(Ipv4Addr::from(random.random::<u32>())));
        flow_hash(client, server, random.random(), random.random())
    })
}

/// The squared coefficient of variation over the sublinks, and chi-square over the buckets: means over the sets.
fn measure(seed: u64, _: Effort) -> Vec<f64> {
    sets(seed, u32::MAX)
}

/// Of the bits of the hash that `mask` has.
fn sets(seed: u64, mask: u32) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let sets: Vec<[f64; 2]> = (0..SETS).map(|_| measure_set(&mut random, mask)).collect();
    [0, 1]
        .map(|i| sets.iter().map(|set| set[i]).sum::<f64>() / SETS as f64)
        .to_vec()
}

fn measure_set(random: &mut ChaCha8Rng, mask: u32) -> [f64; 2] {
    let usable = (1 << SUBLINKS) - 1;
    let mut sublinks = vec![0u64; SUBLINKS as usize];
    let mut buckets = vec![0u64; BUCKETS];
    for hash in flows(random).map(|hash| hash & mask) {
        let sublink = spread::by_hash(hash, usable).expect("all sublinks are usable");
        sublinks[usize::from(sublink)] += 1;
        buckets[(hash >> 24) as usize] += 1;
    }
    let expected = FLOWS as f64 / SUBLINKS as f64;
    [
        chi_square(&sublinks) / expected / f64::from(SUBLINKS),
        chi_square(&buckets),
    ]
}

fn chi_square(counts: &[u64]) -> f64 {
    let expected = FLOWS as f64 / counts.len() as f64;
    let square = |count: &u64| (*count as f64 - expected).powi(2) / expected;
    counts.iter().map(square).sum()
}

fn judge(observed: &Observed, _: Effort) -> Vec<Check> {
    let variation = f64::from(SUBLINKS - 1) / FLOWS as f64;
    let freedom = (BUCKETS - 1) as f64;
    vec![
        Check::new(
            8,
            format!("{FLOWS} flows on {SUBLINKS} sublinks, squared coefficient of variation"),
            "",
            &observed.column(0),
            variation,
            Tolerance::Relative(0.1),
        ),
        Check::new(
            8,
            format!("{FLOWS} flows in {BUCKETS} buckets of the hash, chi-square"),
            "",
            &observed.column(1),
            freedom,
            Tolerance::Relative(0.02),
        ),
    ]
}
