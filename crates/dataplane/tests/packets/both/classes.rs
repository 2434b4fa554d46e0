//! Classes: the rule that has a flow says whose choice it takes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anabranch_core::rules::{Class, Matches, Moment, Origin, Prefix, Rule, compile};
use anabranch_core::{Choice, ClassId, ClassSet, DataPlane, LinkId, Proto};
use anabranch_policy::abi::BePort;
use anabranch_policy::splitmix::SplitMix64;
use anabranch_policy::{Set, Traits, Without};

use super::*;

const WEB: ClassId = ClassId(1);
const VOICE: ClassId = ClassId(2);

fn rule(name: &str, ports: &[u16]) -> Rule {
    Rule {
        matches: Matches {
            ports: ports.iter().map(|port| *port..=*port).collect(),
            ..Matches::default()
        },
        class: Class {
            name: name.into(),
            ..Class::default()
        },
    }
}

/// A moment at which every rule without a schedule holds.
fn now() -> Moment {
    Moment::new(0, 0)
}

fn write_rules(rig: &mut Rig, rules: &[Rule]) {
    let compiled = compile(rules, now(), |_| None).unwrap();
    rig.plane().set_rules(&compiled).unwrap();
}

/// The default class on link 0, the web on link 1, voice by `voice`.
fn divided(voice: &Choice) -> Rig {
    let mut rig = Rig::new();
    divide(&mut rig, voice);
    rig
}

pub fn divide(rig: &mut Rig, voice: &Choice) {
    rig.install(&only(0));
    rig.plane().install(WEB, FAMILY, &only(1)).unwrap();
    rig.plane().install(VOICE, FAMILY, voice).unwrap();
    write_rules(rig, &[rule("web", &[80, 443]), rule("voice", &[5060])]);
}

/// One link takes new flows, though both work.
pub fn only(link: u16) -> Choice {
    Choice {
        working: Set::of_word(0b11),
        ..round_robin(1 << link)
    }
}

fn nothing(without: Without) -> Choice {
    Choice {
        working: Set::of_word(0b11),
        without: without.into(),
        ..round_robin(0)
    }
}

#[test]
fn a_flow_takes_the_links_of_its_class_and_counts_for_it() {
    let mut rig = divided(&only(0));
    for port in 0..4 {
        assert_eq!(rig.connect(client(4000 + port), server(443)).link, 1);
        assert_eq!(rig.connect(client(5000 + port), server(22)).link, 0);
    }
    assert_eq!(rig.flow(client(4000)).class, WEB.0);
    assert_eq!(rig.flow(client(5000)).class, 0);
    let counters = rig.plane().class_counters().unwrap();
    let opened: Vec<u64> = counters.iter().map(|class| class.counts.opened).collect();
    assert_eq!(opened, [4, 4, 0]);
    let packets = |class: ClassId, link: usize| counters[class.index()].traffic[link].tx_packets;
    // A SYN and an ACK each.
    assert_eq!([packets(WEB, 0), packets(WEB, 1)], [0, 8]);
    assert_eq!([packets(ClassId(0), 0), packets(ClassId(0), 1)], [8, 0]);
    let all = rig.plane().counters().unwrap();
    assert_eq!(
        [0, 1].map(|link: usize| all[link].carried().tx_packets),
        [8, 8]
    );
}

#[test]
fn a_class_counts_what_ends() {
    let mut rig = divided(&only(0));
    let web = rig.connect(client(4000), server(443));
    rig.lan_sends(&web.say("RA", LOCAL_ISN + 1, REMOTE_ISN + 1).frame());
    let counts = rig.plane().class_counters().unwrap()[WEB.index()].counts;
    assert_eq!((counts.opened, counts.closed), (1, 1));
}

#[test]
fn a_class_without_a_link_drops_or_refuses_or_leaves_it_to_the_kernel() {
    let syn = tcp(client(4000), server(5060), "S", LOCAL_ISN, 0).frame();
    let mut drops = divided(&nothing(Without::Drop));
    drops.lan_sends(&syn).dropped("class-dropped");
    let mut refuses = divided(&nothing(Without::Refuse));
    refuses.lan_sends(&syn).answered("no-link");
    let mut leaves = divided(&nothing(Without::Kernel));
    leaves.set(|s| s.fallback_mark = 0xab);
    leaves.lan_sends(&syn).passed("fallback-class");
}

#[test]
fn an_attempt_that_all_of_its_tier_has_failed_goes_on_in_the_next() {
    let mut rig = divided(&Choice {
        syn_retry: 1,
        spares: 1,
        spare: [Set::of_word(0b10), Set::EMPTY, Set::EMPTY],
        ..only(0)
    });
    let syn = tcp(client(4000), server(5060), "S", LOCAL_ISN, 0).frame();
    let link = |rig: &mut Rig| link_of(rig.translates_out(&syn).src());
    assert_eq!([link(&mut rig), link(&mut rig)], [0, 1]);
    // All have failed it: that is forgotten, and its tier is tried again.
    assert_eq!(link(&mut rig), 0);
}

#[test]
fn other_rules_have_the_next_syn_of_an_attempt_and_no_confirmed_flow() {
    let mut rig = divided(&only(0));
    let open = rig.open(client(4000), server(443));
    let confirmed = rig.connect(client(4001), server(443));
    assert_eq!((open.link, confirmed.link), (1, 1));
    write_rules(&mut rig, &[]);
    let syn = tcp(client(4000), server(443), "S", LOCAL_ISN, 0).frame();
    assert_eq!(link_of(rig.translates_out(&syn).src()), 0);
    let data = confirmed.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1).frame();
    assert_eq!(link_of(rig.translates_out(&data).src()), 1);
    assert_eq!(rig.flow(client(4001)).class, WEB.0);
}

#[test]
fn a_session_is_of_one_class() {
    let mut sticky = round_robin(0b11);
    sticky.stick = 1;
    let mut rig = Rig::choosing(&sticky);
    rig.plane().install(WEB, FAMILY, &only(1)).unwrap();
    write_rules(&mut rig, &[rule("web", &[443])]);
    let first = rig.connect(client(4000), server(21));
    rig.connect(client(4001), server(443));
    for port in 2..6 {
        assert_eq!(
            rig.connect(client(4000 + port), server(21)).link,
            first.link
        );
    }
}

#[test]
fn the_end_of_a_link_ends_the_flows_of_the_classes_that_are_told() {
    let mut rig = divided(&only(1));
    rig.connect(client(4000), server(443));
    rig.connect(client(4001), server(5060));
    rig.plane().end_flows(WEB, FAMILY, LinkId(1)).unwrap();
    assert_eq!(rig.flows().len(), 1);
    assert_eq!(rig.flow(client(4001)).class, VOICE.0);
    let walker = rig.plane().walker();
    let all = anabranch_dataplane::Which::All;
    walker
        .end_flows(LinkId(1), FAMILY, ClassSet::ALL, all, walker.now())
        .unwrap();
    assert_eq!(rig.live(), 0);
}

#[test]
fn explain_names_the_class() {
    let mut rig = divided(&nothing(Without::Drop));
    let asked = |rig: &mut Rig, port| {
        let (from, to): (SocketAddr, SocketAddr) = (client(4000), server(port));
        let proto = Proto::Tcp;
        let told = rig.plane().explain(from, to, proto).unwrap();
        (told.class, told.link)
    };
    assert_eq!(asked(&mut rig, 443), (WEB.0, Some(1)));
    assert_eq!(asked(&mut rig, 22), (0, Some(0)));
    assert_eq!(asked(&mut rig, 5060), (VOICE.0, None));
}

/// Datagrams of one socket.
struct Socket(SocketAddr);

impl Socket {
    fn asks(&self, rig: &mut Rig, remote: SocketAddr) -> Outcome {
        rig.lan_sends(&udp(self.0, remote, b"q").frame())
    }

    /// The external endpoint by which it asks.
    #[track_caller]
    fn external(&self, rig: &mut Rig, remote: SocketAddr) -> SocketAddr {
        self.asks(rig, remote).sent("translated-out").src()
    }
}

#[test]
fn a_mapping_is_independent_of_the_remote_end_within_its_class() {
    let mut rig = divided(&only(0));
    let socket = Socket(client(4000));
    let plain = socket.external(&mut rig, server(53));
    assert_eq!(link_of(plain), 0);
    let web = socket.external(&mut rig, server(443));
    assert_eq!(link_of(web), 1);
    let others = [second_server(53), second_server(99), server(53)];
    assert_eq!(
        others.map(|remote| socket.external(&mut rig, remote)),
        [plain; 3]
    );
    assert_eq!(socket.external(&mut rig, server(443)), web);
    assert_eq!(rig.flows().len(), 2);
}

#[test]
fn each_mapping_of_a_socket_hears_whom_it_has_asked() {
    let mut rig = divided(&only(0));
    let socket = Socket(client(4000));
    let plain = socket.external(&mut rig, server(53));
    let web = socket.external(&mut rig, second_server(443));
    let answers =
        |rig: &mut Rig, link, from, to| rig.link_brings(link, &udp(from, to, b"a").frame());
    for _ in 0..3 {
        answers(&mut rig, 0, server(53), plain).sent("translated-in");
        answers(&mut rig, 1, second_server(443), web).sent("translated-in");
        assert_eq!(socket.external(&mut rig, server(53)), plain);
        assert_eq!(socket.external(&mut rig, second_server(443)), web);
    }
    answers(&mut rig, 0, second_server(443), plain).dropped("filtered-in");
    answers(&mut rig, 1, server(53), web).dropped("filtered-in");
    assert!(rig.flows().iter().all(|flow| flow.local == client(4000)));
}

#[test]
fn a_socket_that_asks_for_what_is_dropped_goes_on_with_the_rest() {
    let mut rig = divided(&nothing(Without::Drop));
    let socket = Socket(client(4000));
    let plain = socket.external(&mut rig, server(53));
    for _ in 0..3 {
        socket
            .asks(&mut rig, second_server(5060))
            .dropped("class-dropped");
        assert_eq!(socket.external(&mut rig, server(53)), plain);
    }
    // As the socket's first remote end, too.
    let other = Socket(client(4001));
    other.asks(&mut rig, server(5060)).dropped("class-dropped");
    other.external(&mut rig, server(53));
    let dropped = rig.plane().class_counters().unwrap()[VOICE.index()]
        .counts
        .dropped;
    assert_eq!(dropped, 4);
}

#[test]
fn a_socket_hears_whom_it_asks_when_the_rules_are_gone() {
    let mut rig = divided(&only(0));
    let socket = Socket(client(4000));
    let plain = socket.external(&mut rig, server(53));
    socket.external(&mut rig, second_server(443));
    write_rules(&mut rig, &[]);
    assert_eq!(socket.external(&mut rig, second_server(443)), plain);
    rig.translates_in(0, &udp(second_server(443), plain, b"a").frame());
}

#[test]
fn two_mappings_of_a_socket_end_apart_and_the_books_balance() {
    let mut rig = divided(&only(0));
    let socket = Socket(client(4000));
    socket.external(&mut rig, server(53));
    socket.external(&mut rig, server(443));
    rig.plane().end_flows(WEB, FAMILY, LinkId(1)).unwrap();
    assert_eq!((rig.flows().len(), rig.live()), (1, 1));
    assert_eq!(link_of(socket.external(&mut rig, server(443))), 1);
    rig.set(|s| s.udp_ns = 0);
    rig.sweep_until(|rig, _| rig.flows().is_empty());
    assert_eq!(rig.live(), 0);
    let counters = rig.plane().class_counters().unwrap();
    assert!(
        counters
            .iter()
            .all(|class| class.counts.opened == class.counts.closed)
    );
}

#[test]
fn a_host_has_no_more_flows_of_a_class_than_its_quota() {
    let quota = Choice {
        flows_per_host: 2,
        ..only(0)
    };
    let mut rig = divided(&quota);
    rig.set(|s| s.fallback_mark = 0xab);
    let calls = [4000, 4001].map(|port| rig.connect(client(port), server(5060)));
    let syn = |port| tcp(client(port), server(5060), "S", LOCAL_ISN, 0).frame();
    rig.lan_sends(&syn(4002)).answered("refused-class");
    rig.connect(client(4003), server(22));
    rig.lan_sends(&calls[0].say("RA", LOCAL_ISN + 1, REMOTE_ISN + 1).frame());
    rig.translates_out(&syn(4002));
    rig.lan_sends(&syn(4004)).answered("refused-class");
    assert_eq!(
        rig.plane().class_counters().unwrap()[VOICE.index()]
            .counts
            .refused,
        2
    );
}

/// The length of an address.
const HOST_BITS: u8 = SITE.host(CLIENT).1;

/// Rules over few values, so that most flows meet several of them.
fn drawn_rules(draw: &mut SplitMix64) -> Vec<Rule> {
    let below = |draw: &mut SplitMix64, end: u64| draw.draw() % end;
    let maybe = |draw: &mut SplitMix64| draw.draw().is_multiple_of(2);
    let count = 1 + below(draw, 63);
    let rules = (0..count).map(|_| {
        let mut matches = Matches::default();
        if maybe(draw) {
            let host = lan_host(below(draw, 256) as u32);
            let prefix = Prefix::new(host, HOST_BITS - below(draw, 9) as u8);
            matches.from.push(Origin::Prefix(prefix));
        }
        if maybe(draw) {
            let host = internet_host(below(draw, 512) as u32);
            matches
                .to
                .push(Prefix::new(host, HOST_BITS - below(draw, 17) as u8));
        }
        if maybe(draw) {
            matches.protocols.push([6, 17][below(draw, 2) as usize]);
        }
        if maybe(draw) {
            let first = below(draw, 65_000) as u16;
            matches.ports.push(first..=first + below(draw, 500) as u16);
        }
        Rule {
            matches,
            class: Class::default(),
        }
    });
    rules.collect()
}

/// 12 000 flows. The native build is held to what rules mean by `crates/core/tests/rules`.
#[test]
fn the_loaded_program_finds_the_class_that_the_native_build_finds() {
    let seed = std::env::var("ANABRANCH_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut draw = SplitMix64(seed);
    let mut rig = Rig::new();
    let mut found = BTreeSet::new();
    for list in 0..300 {
        let rules = drawn_rules(&mut draw);
        let compiled = compile(&rules, now(), |_| None).unwrap();
        rig.plane().set_rules(&compiled).unwrap();
        for _ in 0..40 {
            let random = draw.draw();
            let from = lan_host(2 + (random % 250) as u32);
            let to = internet_host((random >> 8) as u32 % 512);
            let (sport, dport) = ((random >> 24) as u16 | 1, (random >> 40) as u16 | 1);
            let proto = [Proto::Tcp, Proto::Udp][(random >> 63) as usize];
            let traits = Traits {
                src: from.into(),
                dst: to.into(),
                sport: BePort::new(sport),
                dport: BePort::new(dport),
                proto: proto.number(),
                ifindex: 1,
                ..Traits::default()
            };
            let (from, to) = ((from, sport).into(), (to, dport).into());
            let told = rig.plane().explain(from, to, proto).unwrap().class;
            let native = compiled.class_of(&traits);
            assert_eq!(
                u16::from(told),
                native,
                "seed {seed}, list {list}: {traits:?} {rules:?}"
            );
            found.insert(told);
        }
    }
    assert!(found.len() > 20, "{found:?}");
}
