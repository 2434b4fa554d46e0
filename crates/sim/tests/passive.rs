//! Links by what flows tell of the way to their destinations (passive measurement: Akella et al. in Peng 2005, section 2.3).

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_core::{Algorithm, ClassId, DataPlane, Family, Learning, LinkId, Time};
use anabranch_policy::Choice;
use anabranch_scenario::{Change, Load, Place, Policy, Scenario};
use anabranch_sim::gateway::Pair;
use anabranch_sim::gateway::replay::Replay;
use anabranch_sim::tcp::{Kind, Segment};
use common::*;

const SYN_BYTES: u32 = 60;

/// A gateway of two links that learns for a minute, and servers that one of them reaches sooner.
struct Destinations {
    gateway: Replay,
    now: Duration,
    flows: u16,
}

impl Destinations {
    fn new() -> Self {
        let mut gateway = Replay::new(2, 0, 1);
        let choice = Choice {
            lifetime_ns: ms(60_000).as_nanos() as u64,
            ..Choice::round_robin(2, 0b11)
        };
        let Ok(()) = gateway
            .data_plane()
            .install(ClassId::DEFAULT, Family::V4, &choice);
        Destinations {
            gateway,
            now: ms(1_000),
            flows: 0,
        }
    }

    /// The link of a connection to `server`, which is answered over each after so long; then a second passes.
    fn connect(&mut self, server: &str, answers: [Duration; 2]) -> usize {
        let local = SocketAddr::from(([10, 0, 0, 2], 4000 + self.flows));
        let pair = Pair::default();
        self.flows += 1;
        self.gateway.set_time(Time::ZERO + self.now);
        let flow = self.gateway.begin(pair, (local, server.parse().unwrap()));
        let syn = Segment::bare(Kind::Syn);
        let sent = self.gateway.lan_sends(flow, syn, SYN_BYTES);
        let (LinkId(link), peer) = sent.expect("both links take new flows");
        let answered = self.now + answers[usize::from(link)];
        self.gateway.set_time(Time::ZERO + answered);
        let answer = Segment::bare(Kind::SynAck);
        let arrived = self
            .gateway
            .link_brings(LinkId(link), (peer, flow), answer, SYN_BYTES);
        assert!(arrived);
        self.now = answered + ms(1_000);
        link.into()
    }
}

#[test]
fn each_destination_has_the_link_that_it_answers_sooner_by() {
    let mut site = Destinations::new();
    let near = ["198.51.100.7:443", "203.0.113.7:443"];
    let far = ["198.51.100.8:443", "203.0.113.8:443"];
    let answers = [[ms(10), ms(90)], [ms(90), ms(10)]];
    for (place, server) in near.into_iter().enumerate() {
        let asked = [(); 2].map(|()| site.connect(server, answers[place]));
        assert_eq!(asked[0] + asked[1], 1, "each link once: {asked:?}");
    }
    // Others of the same prefixes need to ask nobody.
    for _ in 0..10 {
        for (place, server) in far.into_iter().enumerate() {
            assert_eq!(site.connect(server, answers[place]), place);
        }
    }
}

fn told(load: Load) -> Scenario {
    scenario(three_links(), load, ms(90_000))
}

/// Small downloads at 10/s for 19 s.
fn steady() -> Load {
    downloads(10, 20_000, ms(100), ms(1_000), ms(20_000))
}

fn forgetting_after(seconds: u64) -> Policy {
    let passive: Algorithm = "passive".parse().expect("a policy of the table");
    Policy::gateway(Algorithm {
        learning: Learning::Passive {
            lifetime: Duration::from_secs(seconds),
            by_loss: false,
        },
        ..passive
    })
}

#[test]
fn each_other_link_costs_one_connection_in_a_lifetime() {
    for (seconds, lifetimes) in [(60, 1), (5, 4)] {
        let record = play(&told(steady()), forgetting_after(seconds), 1);
        assert_all_ok(&record);
        let [a, b, c] = carried(&record, &NAMES)[..] else {
            panic!("three links")
        };
        // Before the first answer they take turns.
        for others in [a, c] {
            assert!((1..=lifetimes + 1).contains(&others), "{a} {b} {c}");
        }
        assert_eq!(a + b + c, record.transfers.len());
    }
}

#[test]
fn the_next_best_link_is_taken_when_a_path_grows_longer() {
    let mut scenario = told(steady());
    let mut change = fault(ms(10_000), "b", Change::Delay(ms(100)));
    change.place = Place::Beyond;
    scenario.faults.push(change);
    let record = play(&scenario, gateway("passive"), 1);
    assert_all_ok(&record);
    let transfers = record.transfers.iter().filter(|t| t.start_s > 2.);
    for transfer in transfers {
        let expected = if transfer.start_s < 10. { "b" } else { "a" };
        // A few answers have to tell.
        if !(10. ..11.).contains(&transfer.start_s) {
            assert_eq!(transfer.link.as_deref(), Some(expected), "{transfer:?}");
        }
    }
}

#[test]
fn a_link_that_answers_no_more_is_left_once_a_syn_has_been_repeated() {
    let mut scenario = told(steady());
    let mut cut = fault(ms(5_000), "b", Change::Cut);
    cut.place = Place::Beyond;
    scenario.faults.push(cut);
    let record = play(&scenario, gateway("passive"), 1);
    let after = |from_s: f64| {
        let all = record.transfers.iter();
        let met = all.filter(move |transfer| transfer.start_s > from_s);
        met.map(|transfer| transfer.link.as_deref())
    };
    assert!(after(5.).next().is_some());
    for link in after(6.2) {
        assert_eq!(link, Some("a"));
    }
}
