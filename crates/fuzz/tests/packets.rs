//! As `make fuzz`, in the time a test may take.

use std::path::Path;

use anabranch_fuzz::round::{Arena, PACKETS, Violation, seed_of};
use anabranch_policy::Fate;
use rand::RngExt;

const KEPT: &str = env!("CARGO_TARGET_TMPDIR");
const ROUNDS: u64 = 10;
const REACHED: [&str; 7] = [
    "PROBE_OUT",
    "PROBE_ANSWERED",
    "STRAY",
    "STRAY_SYN",
    "FORWARD_IN",
    "FORWARD_OUT",
    "SPOOFED_DEVICE",
];

/// All links of the rig have NAT, and nobody outside may begin: links without it are reached in `differential`, prefixes that let
/// the outside begin in the data path's own tests; few rounds have SYNs that wait, which the corpus has.
const UNREACHED: [&str; 3] = ["ROUTED_OUT", "PREFIX_OUT", "PROBE_OUT"];

fn refuse(violation: Option<Violation>) {
    if let Some(violation) = violation {
        let path = violation.keep(Path::new(KEPT)).unwrap();
        let words = violation.words;
        panic!("{words}\nagain: anabranch-fuzz --replay {}", path.display());
    }
}

#[test]
fn the_corpus_holds_no_violation() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut arena = Arena::new().unwrap();
    refuse(arena.corpus(&corpus).unwrap());
    // What few rounds have: settings, and what a link brings for nobody to the gateway's own addresses.
    for (reason, count) in anabranch_policy::reasons().iter().zip(&arena.tally.0) {
        assert!(
            !REACHED.contains(&reason.name) || *count > 0,
            "{}: never",
            reason.words
        );
    }
}

#[test]
fn a_hundred_thousand_mutated_packets_leave_as_they_may() {
    let seed: u64 = rand::rng().random();
    println!(
        "again: anabranch-fuzz --seed {seed} --packets {}",
        ROUNDS * PACKETS
    );
    let mut arena = Arena::new().unwrap();
    for round in 0..ROUNDS {
        let violation = arena
            .round(seed_of(seed, round), PACKETS, |_, _| {})
            .unwrap();
        // The programs draw ports at random. What no replay repeats `make fuzz` refuses, too.
        match violation {
            Some(violation) if !arena.repeats(&violation).unwrap() => {
                let path = violation.keep(Path::new(KEPT)).unwrap();
                println!(
                    "once, and not again: {}, {}",
                    violation.words,
                    path.display()
                );
            }
            violation => refuse(violation.map(|violation| arena.shrink(violation).unwrap())),
        }
    }
    // A fuzzer that reaches nothing finds nothing.
    for (reason, count) in anabranch_policy::reasons().iter().zip(&arena.tally.0) {
        assert!(
            reason.fate != Fate::Sent || UNREACHED.contains(&reason.name) || *count > 20,
            "{}: {count}",
            reason.words
        );
    }
}
