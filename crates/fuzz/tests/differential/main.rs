//! The loaded programs and the simulator's gateway, given the same transcripts, of flows of either family or of both: after every
//! step the same packets have left by the same links, every flow is bound to the same link in the same state, and the same has
//! been counted.
//!
//! Both take their decisions from `bpf/policy`. What each does around them is written twice, in `bpf/lib` and in
//! `crates/sim/src/gateway`, and is what is compared here. The programs are built with clock and random numbers of a map.
//!
//! What the simulator has no notion of is left out: routes by one link, excepted ports, shares by table; links that translate a
//! prefix alone, where an attempt begins anew; addresses and ports that change or run out, tables that are full, sequence numbers
//! that are wrong, UDP, ICMP, fragments, packets between LAN hosts, several flows of one LAN endpoint, another connection between
//! the ends of one that has not ended, and hosts that remember a flow for longer than the gateway does.

mod loaded;
#[path = "../../../dataplane/tests/common/property.rs"]
mod property;
mod transcript;
mod worlds;

use std::cell::RefCell;

use anabranch_core::LinkId;
use anabranch_policy::{Tried, abi};
use anabranch_sim::gateway::replay::Bound;
use anabranch_sim::tcp::Kind;
use proptest::test_runner::{TestCaseError, TestError};

use loaded::Loaded;
use transcript::{Policy, SLOTS, Site, Step, Way, transcript};
use worlds::Worlds;

const CASES: u32 = 1500;
const SHRINKS: u32 = 2000;
/// So often at least, a fifth of what is usual: what is never reached is never compared.
const REACHED: [(&str, u32); 11] = [
    ("TRANSLATED_OUT", 6_000),
    ("TRANSLATED_IN", 2_400),
    ("NO_LINK", 30),
    ("CLASS_DROPPED", 30),
    ("REFUSED_CLASS", 150),
    ("NO_FLOW_OUT", 700),
    ("BAD_HANDSHAKE", 200),
    ("LATE_ANSWER", 20),
    ("CHALLENGE", 50),
    ("ROUTED_OUT", 700),
    ("ROUTED_IN", 100),
];

#[test]
fn the_loaded_programs_and_the_simulator_do_the_same() {
    let loaded = RefCell::new(Loaded::new().expect("this needs root"));
    let mut runner = property::runner(CASES, SHRINKS);
    let outcome = runner.run(&transcript(), |(seed, site, policy, steps)| {
        let mut loaded = loaded.borrow_mut();
        let mut worlds = Worlds::new(&mut loaded, seed, site, &policy).unwrap();
        if steps.iter().all(|step| worlds.step(step).unwrap()) {
            return Ok(());
        }
        Err(TestCaseError::fail(worlds.story().to_owned()))
    });
    match outcome {
        Err(TestError::Fail(story, (seed, site, _, _))) => {
            panic!("random numbers of {seed}, {site:?}\n{story}")
        }
        Err(error) => panic!("{error}"),
        Ok(()) => {}
    }
    let reached = &loaded.borrow().reached;
    let is_whole = runner.config().cases == CASES;
    for (reason, least) in REACHED.iter().filter(|_| is_whole) {
        assert!(reached.get(reason) >= Some(least), "{reason}: {reached:?}");
    }
}

/// What both worlds know of the first flow after these steps.
#[track_caller]
fn play(policy: Policy, steps: &[Step]) -> Option<Bound> {
    play_over(0, policy, steps)
}

/// The same where the links of `routed`, as bits, have no NAT: of either family.
#[track_caller]
fn play_over(routed: u64, policy: Policy, steps: &[Step]) -> Option<Bound> {
    let mut loaded = Loaded::new().expect("this needs root");
    let known = [0, (1 << SLOTS) - 1].map(|ipv6| {
        let site = Site { routed, ipv6 };
        let mut worlds = Worlds::new(&mut loaded, 1, site, &policy).unwrap();
        for step in steps {
            assert!(worlds.step(step).unwrap(), "{site:?}\n{}", worlds.story());
        }
        worlds.bound(0)
    });
    assert_eq!(known[0], known[1]);
    known[0]
}

/// The first flow's host sends.
fn lan(kind: Kind) -> Step {
    Step::Lan(0, kind)
}

/// The server of its n-th try does.
fn server(number: usize, kind: Kind) -> Step {
    Step::Server {
        slot: 0,
        way: Way::Sent(number),
        kind,
        news: true,
    }
}

fn pass(seconds: u64) -> Step {
    Step::Pass { ms: 1000 * seconds }
}

#[test]
fn what_comes_before_the_answer_is_no_traffic() {
    let steps = [lan(Kind::Syn), server(0, Kind::Data), server(0, Kind::Fin)];
    let flow = play(Policy::turns(), &steps).unwrap();
    assert_eq!((flow.link, flow.state), (LinkId(0), 0));
}

#[test]
fn a_fin_right_behind_the_answer_counts() {
    let steps = [
        lan(Kind::Syn),
        server(0, Kind::SynAck),
        server(0, Kind::Fin),
        lan(Kind::Ack),
        lan(Kind::Fin),
    ];
    let flow = play(Policy::turns(), &steps).unwrap();
    assert_ne!(flow.state & abi::STATE_CLOSED, 0);
}

#[test]
fn a_refusal_of_any_try_ends_the_attempt() {
    let steps = [lan(Kind::Syn), lan(Kind::Syn), server(0, Kind::Rst)];
    let flow = play(Policy::turns(), &steps).unwrap();
    assert_eq!((flow.link, flow.state), (LinkId(2), abi::STATE_CLOSED));
}

#[test]
fn nobody_wins_an_attempt_that_was_given_up() {
    for number in [0, 1] {
        let steps = [
            lan(Kind::Syn),
            lan(Kind::Syn),
            lan(Kind::Rst),
            server(number, Kind::SynAck),
        ];
        let flow = play(Policy::turns(), &steps).unwrap();
        assert_eq!((flow.link, flow.state), (LinkId(2), abi::STATE_CLOSED));
    }
}

#[test]
fn the_first_try_can_answer_for_as_long_as_the_attempt_lasts() {
    let steps = [
        lan(Kind::Syn),
        pass(1),
        lan(Kind::Syn),
        pass(120),
        lan(Kind::Syn),
        pass(121),
        server(0, Kind::SynAck),
    ];
    let flow = play(Policy::turns(), &steps).unwrap();
    assert_eq!((flow.link, flow.state), (LinkId(0), abi::STATE_REPLIED));
}

#[test]
fn an_answer_that_comes_too_late_tells_nothing_of_a_prefix_that_nobody_knows() {
    let steps = [
        lan(Kind::Syn),
        Step::Install(0, Policy::racing(0b1).learning()),
        lan(Kind::Syn),
        server(1, Kind::SynAck),
        server(0, Kind::SynAck),
    ];
    let flow = play(Policy::racing(0b10100), &steps).unwrap();
    assert_eq!(flow.state, abi::STATE_REPLIED);
}

#[test]
fn connections_of_silent_hosts_end_by_their_timer_or_with_their_link() {
    let open = [lan(Kind::Syn), server(0, Kind::SynAck), lan(Kind::Ack)];
    for end in [Step::End(0, 0), pass(7441)] {
        let steps = [&open[..], &[Step::Leave(0), pass(241), end]].concat();
        assert_eq!(play(Policy::turns(), &steps), None);
    }
}

#[test]
fn a_repeated_syn_moves_between_links_without_nat_and_begins_anew_beside_one_with_nat() {
    // What begins anew takes one more turn.
    let without = abi::STATE_ROUTED;
    for (routed, link, state) in [(0b101, 2, without), (0b1, 3, 0), (0b1100, 3, without)] {
        let steps = [lan(Kind::Syn), lan(Kind::Syn)];
        let flow = play_over(routed, Policy::turns(), &steps).unwrap();
        assert_eq!(
            (flow.link, flow.state),
            (LinkId(link), state),
            "{routed:#b}"
        );
        assert_eq!(flow.tried, Tried(1));
    }
}

#[test]
fn a_connection_without_nat_joins_another_such_link_after_the_end_of_its_own() {
    let open = [lan(Kind::Syn), server(0, Kind::SynAck), lan(Kind::Ack)];
    let joins = [&open[..], &[Step::End(0, 0), lan(Kind::Data)]].concat();
    let flow = play_over(0b11, Policy::turns(), &joins).unwrap();
    assert_eq!((flow.link, flow.state), (LinkId(1), abi::STATE_ROUTED));
    // A RST begins nothing.
    let resets = [&open[..], &[Step::End(0, 0), lan(Kind::Rst)]].concat();
    assert_eq!(play_over(0b11, Policy::turns(), &resets), None);
}

#[test]
fn an_attempt_without_nat_ends_with_its_link_too() {
    for answer in [None, Some(server(0, Kind::SynAck))] {
        let steps: Vec<Step> = [Some(lan(Kind::Syn)), answer, Some(Step::End(0, 0))]
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(play_over(0b11, Policy::turns(), &steps), None);
    }
}

#[test]
fn what_is_heard_by_any_link_without_nat_answers_its_flow() {
    let by_another = Step::Server {
        slot: 0,
        way: Way::Sent(1),
        kind: Kind::Data,
        news: true,
    };
    let steps = [lan(Kind::Syn), lan(Kind::Syn), by_another, lan(Kind::Ack)];
    let flow = play_over(0b111, Policy::turns(), &steps).unwrap();
    let state = abi::STATE_ROUTED | abi::STATE_REPLIED | abi::STATE_CONFIRMED;
    assert_eq!((flow.link, flow.state), (LinkId(2), state));
}
