//! Every mutant.

use super::{Mutant, hash, queues, recovery, red, signals, tcp};

/// All of them.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    let all = [
        queues::MUTANTS,
        hash::MUTANTS,
        red::MUTANTS,
        recovery::MUTANTS,
        signals::MUTANTS,
        tcp::MUTANTS,
    ];
    all.into_iter().flatten()
}
