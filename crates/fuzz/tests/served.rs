//! Mutated packets of services and members. `ANABRANCH_ROUNDS` asks for more rounds, `ANABRANCH_ROUNDS_SEED` for those of a seed.

use anabranch_fuzz::round::seed_of;
use anabranch_fuzz::served::Arena;
use anabranch_policy::Fate;
use rand::RngExt;

const ROUNDS: u64 = 20;
/// No server is out of use here or full, and rows of hashes stay; before Linux 6.3 alone a member receives packets again; SYN/ACKs are of
/// another program.
const UNREACHED: [&str; 5] = [
    "FORMER",
    "NO_SERVER_REFUSED",
    "FULL_REFUSED",
    "SENT_AGAIN",
    "SYN_ACK",
];

fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn mutated_packets_of_services_and_tunnels_leave_as_they_may() {
    let seed = asked("ANABRANCH_ROUNDS_SEED").unwrap_or_else(|| rand::rng().random());
    println!("ANABRANCH_ROUNDS_SEED={seed}");
    let mut arena = Arena::new().unwrap();
    for round in 0..asked("ANABRANCH_ROUNDS").unwrap_or(ROUNDS).max(ROUNDS) {
        if let Some(violation) = arena.round(seed_of(seed, round)).unwrap() {
            panic!("round {round}: {violation}");
        }
    }
    let services = anabranch_policy::service_reasons().iter().zip(&arena.tally);
    let members = anabranch_policy::member_reasons()
        .iter()
        .zip(arena.member_tally());
    // A fuzzer that reaches nothing finds nothing.
    for (reason, count) in services.chain(members) {
        let is_sent = matches!(reason.fate, Fate::Sent | Fate::Refused);
        assert!(
            !is_sent || UNREACHED.contains(&reason.name) || *count > 20,
            "{}: {count}",
            reason.words
        );
    }
}
