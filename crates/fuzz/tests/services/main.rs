//! The loaded programs of services and a model of them, given the same transcripts of both families: after every step the same
//! packet has left for the same reason between the same ends, the same connections are known in the same state at the same servers,
//! and the same has been counted.
//!
//! Both take their decisions from `bpf/policy`: which server, what a segment shows, when a connection is over. What each does around
//! them is written twice, in `bpf/lib/service` and in `model.rs`, and is what is compared here. The programs are built with clock and
//! random numbers of a map, and with a short ring of connections that may have to make room; their table is small enough to be full.
//!
//! Left to the tests of the data path: ways back, meters and evidence, fragments, ICMP errors, what fits the MTU, tunnels, forged
//! packets by other ways.

mod concurrency;
mod loaded;
mod model;
#[path = "../../../dataplane/tests/common/property.rs"]
mod property;
mod transcript;
mod worlds;

use std::cell::RefCell;

use proptest::test_runner::{TestCaseError, TestError};

use loaded::{ENTRIES, Loaded};
use transcript::transcript;
use worlds::Worlds;

/// `ANABRANCH_TRANSCRIPTS` asks for another number.
const CASES: u32 = 3000;
const SHRINKS: u32 = 2000;
/// So often at least, a fifth of what is usual: what is never reached is never compared.
const REACHED: [(&str, u32); 17] = [
    ("TO_SERVER", 5_000),
    ("TO_CLIENT", 2_400),
    ("HASHED", 300),
    ("FORMER", 40),
    ("ALIASED", 3_000),
    ("NOT_OURS", 500),
    ("NO_CONNECTION", 1_000),
    ("UNKNOWN", 300),
    ("TOO_MANY", 600),
    ("TABLE_FULL", 150),
    ("PORT_TAKEN", 130),
    ("NO_WAY", 150),
    ("NO_SERVER", 1_000),
    ("NO_SERVER_REFUSED", 200),
    ("NO_SERVER_DROPPED", 200),
    ("FULL", 5),
    ("FULL_REFUSED", 5),
];

#[test]
fn the_loaded_programs_and_the_model_do_the_same() {
    let loaded = RefCell::new(Loaded::new(ENTRIES as u32).expect("this needs root"));
    let asked = std::env::var("ANABRANCH_TRANSCRIPTS");
    let cases = asked.map_or(CASES, |text| text.parse().expect("a number"));
    let mut runner = property::runner(cases, SHRINKS);
    let outcome = runner.run(&transcript(), |(seed, policies, steps)| {
        let mut loaded = loaded.borrow_mut();
        let mut worlds = Worlds::new(&mut loaded, seed, &policies).unwrap();
        if steps.iter().all(|step| worlds.step(step).unwrap()) {
            return Ok(());
        }
        Err(TestCaseError::fail(worlds.story().to_owned()))
    });
    match outcome {
        Err(TestError::Fail(story, (seed, policies, _))) => {
            panic!("random numbers of {seed}, {policies:?}\n{story}")
        }
        Err(error) => panic!("{error}"),
        Ok(()) => {}
    }
    let reached = &loaded.borrow().reached;
    let is_whole = runner.config().cases >= CASES;
    for (reason, least) in REACHED.iter().filter(|_| is_whole) {
        assert!(reached.get(reason) >= Some(least), "{reason}: {reached:?}");
    }
}
