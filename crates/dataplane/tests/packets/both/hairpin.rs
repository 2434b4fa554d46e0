//! TCP between LAN hosts by their external endpoints (RFC 5382 REQ-8).

use std::net::SocketAddr;

use anabranch_core::{Choice, DataPlane};
use anabranch_dataplane::FlowState;

use super::*;
use crate::common::SECOND_NS;

pub const RENDEZVOUS: u16 = 3478;
const CALLER_ISN: u32 = 5_000_000;
const CALLED_ISN: u32 = 7_000_000;

pub fn neighbour(port: u16) -> SocketAddr {
    SocketAddr::new(SECOND_CLIENT, port)
}

/// Two hosts that use one port of their own, each connected to the rendezvous.
struct Pair {
    rig: Rig,
    hosts: [Connection; 2],
}

impl Pair {
    fn of(mut rig: Rig) -> Self {
        let hosts = [client(4000), neighbour(4000)];
        let hosts = hosts.map(|host| rig.connect(host, server(RENDEZVOUS)));
        Pair { rig, hosts }
    }

    fn new() -> Self {
        let rig = Rig::choosing(&round_robin(0b01));
        let pair = Self::of(rig);
        assert_ne!(pair.outer(0), pair.outer(1));
        pair
    }

    fn inner(&self, host: usize) -> SocketAddr {
        self.hosts[host].local
    }

    fn outer(&self, host: usize) -> SocketAddr {
        self.hosts[host].external
    }

    /// Host `from` sends a segment from its port to the other's external endpoint.
    fn segment(&self, from: usize, flags: &str, seq: u32, ack: u32) -> Segment {
        tcp(self.inner(from), self.outer(1 - from), flags, seq, ack)
    }

    /// It arrives, from outside and to the other host's own port, for `reason`.
    #[track_caller]
    fn passes(&mut self, from: usize, segment: &Segment, reason: &str) -> Seen {
        let seen = passes(&mut self.rig, segment, reason);
        assert_eq!(
            (seen.src(), seen.dst()),
            (self.outer(from), self.inner(1 - from))
        );
        seen
    }

    #[track_caller]
    fn says(&mut self, from: usize, flags: &str, seq: u32, ack: u32) {
        let segment = self.segment(from, flags, seq, ack);
        self.passes(from, &segment, "translated-in");
    }

    /// The first calls, the second answers, the first goes on.
    #[track_caller]
    fn shake_hands(&mut self) {
        let syn = self.segment(0, "S", CALLER_ISN, 0);
        self.passes(0, &syn, "hairpin-syn");
        self.says(1, "SA", CALLED_ISN, CALLER_ISN + 1);
        self.says(0, "A", CALLER_ISN + 1, CALLED_ISN + 1);
        self.says(1, "A", CALLED_ISN + 1, CALLER_ISN + 1);
    }

    /// States of the flows between the two.
    fn states(&mut self) -> Vec<FlowState> {
        let outer = [self.outer(0), self.outer(1)];
        let flows = self.rig.flows();
        let between = flows.iter().filter(|flow| outer.contains(&flow.remote));
        between.map(|flow| flow.state).collect()
    }
}

/// A LAN host's segment is translated, comes back, and leaves for `reason`.
#[track_caller]
fn passes(rig: &mut Rig, segment: &Segment, reason: &str) -> Seen {
    let out = rig.lan_sends(&segment.frame());
    out.sent("hairpin");
    rig.comes_back(&out.frame).sent(reason)
}

#[test]
fn connections_between_lan_hosts_tell_nothing_of_links() {
    let rig = Rig::choosing(&Choice {
        lifetime_ns: 60 * SECOND_NS,
        ..round_robin(0b01)
    });
    let mut pair = Pair::of(rig);
    pair.shake_hands();
    let known = pair.rig.plane().walker().prefixes().unwrap();
    assert_eq!(known.len(), 1, "of the rendezvous: {known:?}");
}

#[test]
fn a_listener_answers_a_lan_host_from_its_external_endpoint() {
    let mut pair = Pair::new();
    pair.shake_hands();
    assert_eq!(pair.states(), [FlowState::Established; 2]);
    let data = pair.segment(0, "PA", CALLER_ISN + 1, CALLED_ISN + 1);
    let seen = pair.passes(0, &data.payload(b"hello"), "translated-in");
    assert_eq!((seen.payload(), seen.ip.hop_limit), (&b"hello"[..], 62));

    pair.says(0, "FA", CALLER_ISN + 6, CALLED_ISN + 1);
    pair.says(1, "FA", CALLED_ISN + 1, CALLER_ISN + 7);
    pair.says(0, "A", CALLER_ISN + 7, CALLED_ISN + 2);
    assert_eq!(pair.states(), [FlowState::Closed; 2]);
    assert_eq!(pair.rig.live(), 2, "to the rendezvous");
}

#[test]
fn both_hosts_call_and_their_connection_is_one() {
    let mut pair = Pair::new();
    let syn = pair.segment(0, "S", CALLER_ISN, 0);
    pair.passes(0, &syn, "hairpin-syn");
    // The other's program has not called yet, so its kernel knows no such connection.
    let reset = pair.segment(1, "RA", 0, CALLER_ISN + 1);
    pair.rig.lan_sends(&reset.frame()).dropped("hairpin-rst");
    pair.says(1, "S", CALLED_ISN, 0);
    pair.passes(0, &syn, "translated-in");
    pair.says(0, "SA", CALLER_ISN, CALLED_ISN + 1);
    pair.says(1, "SA", CALLED_ISN, CALLER_ISN + 1);
    pair.says(0, "A", CALLER_ISN + 1, CALLED_ISN + 1);
    assert_eq!(pair.states(), [FlowState::Established; 2]);
}

#[test]
fn hosts_meet_across_links_and_neither_link_is_said_to_work() {
    let rig = Rig::choosing(&round_robin(0b11));
    let mut pair = Pair::of(rig);
    assert_ne!(pair.hosts[0].link, pair.hosts[1].link);
    let traffic = |pair: &mut Pair| {
        let counters = pair.rig.plane().counters().unwrap();
        counters
            .iter()
            .map(|link| link.carried())
            .collect::<Vec<_>>()
    };
    let before = traffic(&mut pair);
    pair.shake_hands();
    assert_eq!(pair.states(), [FlowState::Established; 2]);
    assert_eq!(traffic(&mut pair), before, "nothing left by a link");
}

#[test]
fn a_caller_of_no_endpoint_is_given_one_beside_that_it_calls() {
    let mut pair = Pair::new();
    let called = pair.outer(1);
    // By its port alone it would be who it calls.
    let caller = client(called.port());
    let seen = passes(
        &mut pair.rig,
        &tcp(caller, called, "S", CALLER_ISN, 0),
        "hairpin-syn",
    );
    assert_eq!((seen.src().ip(), seen.dst()), (called.ip(), pair.inner(1)));
    assert_ne!(seen.src(), called);
    let answer = tcp(pair.inner(1), seen.src(), "SA", CALLED_ISN, CALLER_ISN + 1);
    let seen = passes(&mut pair.rig, &answer, "translated-in");
    assert_eq!((seen.src(), seen.dst()), (called, caller));
}

#[test]
fn a_host_meets_itself() {
    let mut pair = Pair::new();
    let (inner, outer) = (pair.inner(0), pair.outer(0));
    let caller = client(6000);
    let syn = tcp(caller, outer, "S", CALLER_ISN, 0);
    let seen = passes(&mut pair.rig, &syn, "hairpin-syn");
    let answer = tcp(inner, seen.src(), "SA", CALLED_ISN, CALLER_ISN + 1);
    let seen = passes(&mut pair.rig, &answer, "translated-in");
    assert_eq!((seen.src(), seen.dst()), (outer, caller));
}

#[test]
fn an_endpoint_is_kept_towards_everybody_but_for_independent_ports() {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    choice.stick = 1;
    choice.except[0] = anabranch_policy::abi::BePort::new(80);
    rig.install(&choice);
    // The port of its own is another's towards the rendezvous.
    rig.connect(neighbour(4000), server(RENDEZVOUS));
    rig.connect(neighbour(4001), server(80));
    let first = rig.connect(client(4000), server(RENDEZVOUS));
    for remote in [second_server(5000), second_server(5001), server(5002)] {
        let again = rig.connect(client(4000), remote);
        assert_eq!(again.external, first.external, "{remote}");
    }
    let links: Vec<_> = (1..12)
        .map(|last| SocketAddr::new(internet_host(last), 80))
        .map(|web| rig.connect(client(4000), web).link)
        .collect();
    assert!(links.contains(&0) && links.contains(&1), "{links:?}");
}

#[test]
fn an_endpoint_that_nobody_stands_for_is_the_kernels() {
    let mut pair = Pair::new();
    let (caller, nobody) = (client(6000), SocketAddr::new(EXTERNAL[0], 6001));
    for flags in ["S", "SA", "RA", "A"] {
        let segment = tcp(caller, nobody, flags, CALLER_ISN, 7);
        pair.rig
            .lan_sends(&segment.frame())
            .passed("specific-route");
    }
    // Nobody called, so nobody is answered.
    for flags in ["SA", "RA"] {
        let segment = pair.segment(1, flags, CALLED_ISN, 7);
        pair.rig
            .lan_sends(&segment.frame())
            .passed("specific-route");
    }
    let end = pair.hosts[1].say("R", LOCAL_ISN + 1, 0);
    pair.rig.translates_out(&end.frame());
    let syn = pair.segment(0, "S", CALLER_ISN, 0);
    pair.rig.lan_sends(&syn.frame()).passed("specific-route");
}

/// Hosts that call each other crosswise have the one port taken that an answer must come from.
#[test]
fn an_answer_without_its_port_makes_no_link_full_for_others() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let hosts = [client(4000), neighbour(4001)].map(|host| rig.connect(host, server(RENDEZVOUS)));
    let [first, second] = [hosts[0].external, hosts[1].external];
    let third = SocketAddr::new(lan_host(4u32), first.port());
    let syn = tcp(third, second, "S", CALLER_ISN, 0).frame();
    rig.lan_sends(&syn).sent("hairpin");
    let syn = tcp(hosts[1].local, first, "S", CALLER_ISN, 0).frame();
    rig.lan_sends(&syn).sent("hairpin");
    let answer = tcp(hosts[0].local, second, "SA", CALLED_ISN, CALLER_ISN + 1).frame();
    assert_eq!(rig.lan_sends(&answer).reason, "refused-ports");
    for number in 0..1000u16 {
        let remote = SocketAddr::new(internet_host(number.into()), 443 + number);
        let syn = tcp(client(5000), remote, "S", LOCAL_ISN, 0).frame();
        rig.translates_out(&syn);
    }
}

/// Who ended is forgotten for those alone who can take what it had.
#[test]
fn an_answer_without_its_port_takes_no_other_port_from_who_has_ended() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    rig.set(|s| (s.port_min, s.port_max) = (4000, 4007));
    let hosts = [client(4000), neighbour(4001)].map(|host| rig.connect(host, server(RENDEZVOUS)));
    let [first, second] = [hosts[0].external, hosts[1].external];
    let call = |last: u32, port| {
        let host = SocketAddr::new(lan_host(last), port);
        tcp(host, second, "S", CALLER_ISN, 0)
    };
    let ended = call(4, 4005);
    let outer = passes(&mut rig, &ended, "hairpin-syn").src();
    let answer = tcp(hosts[1].local, outer, "SA", CALLED_ISN, CALLER_ISN + 1);
    passes(&mut rig, &answer, "translated-in");
    for (flags, reason) in [("A", "translated-in"), ("R", "translated-in")] {
        let segment = tcp(ended.src, second, flags, CALLER_ISN + 1, CALLED_ISN + 1);
        passes(&mut rig, &segment, reason);
    }
    rig.lan_sends(&call(5, first.port()).frame())
        .sent("hairpin");
    let syn = tcp(hosts[1].local, first, "S", CALLER_ISN, 0);
    rig.lan_sends(&syn.frame()).sent("hairpin");
    let before = rig.flows().len();
    let answer = tcp(hosts[0].local, second, "SA", CALLED_ISN, CALLER_ISN + 1);
    assert_eq!(rig.lan_sends(&answer.frame()).reason, "refused-ports");
    assert_eq!(rig.flows().len(), before);
}

const NARROW_DEVICE: u32 = 300;
const NARROW_MTU: u16 = 1300;

/// The neighbour is behind a device that takes shorter packets than the links do.
pub fn narrow(links: u64) -> Rig {
    let mut rig = Rig::new();
    rig.set(|s| s.lan_sources_loose = 1);
    rig.install(&round_robin(links));
    rig.add_lan((SECOND_CLIENT, 32), NARROW_DEVICE, NARROW_MTU.into());
    rig
}

/// The packet comes back too long, and its host is told of what it sent.
#[track_caller]
fn is_told(rig: &mut Rig, frame: &[u8], called: SocketAddr) {
    let out = rig.lan_sends(frame);
    let sent = out.sent("hairpin");
    let answer = rig.comes_back(&out.frame);
    let seen = answer.answered("too-big-in");
    assert_eq!(
        (seen.src().ip(), seen.dst().ip()),
        (called.ip(), sent.src().ip())
    );
    let told = rig.comes_back(&answer.frame).sent("error-in");
    assert_eq!((told.src().ip(), told.dst().ip()), (called.ip(), CLIENT));
    let mtu = u32::from(NARROW_MTU).to_be_bytes();
    assert_eq!(told.icmp(), (SITE.too_big, mtu));
    let (was, is) = (read(frame), quote(&told));
    assert_eq!((was.src(), was.dst()), (is.src(), is.dst()));
    assert_eq!(was.ip.identification, is.ip.identification);
}

#[test]
fn a_packet_too_long_for_the_other_hosts_device_is_answered_to_who_sent_it() {
    for links in [0b01, 0b11] {
        let mut rig = narrow(links);
        let asked = udp(neighbour(5000), server(RENDEZVOUS), b"stun");
        let called = rig.translates_out(&asked.frame()).src();
        let fits = usize::from(NARROW_MTU) - IP_HEADER - 8;
        let datagram = |length| udp(client(5000), called, &vec![7; length]).id(77).frame();
        let out = rig.lan_sends(&datagram(fits));
        out.sent("hairpin");
        rig.comes_back(&out.frame).sent("translated-in");
        is_told(&mut rig, &datagram(fits + 1), called);

        let mut pair = Pair::of(rig);
        pair.shake_hands();
        let data = pair.segment(0, "PA", CALLER_ISN + 1, CALLED_ISN + 1);
        let data = data.payload(&[7; 1400]).ip().id(78).frame();
        let called = pair.outer(1);
        is_told(&mut pair.rig, &data, called);
    }
}

#[test]
fn a_flow_that_ends_leaves_the_places_of_others_alone() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let [first, second] = [80, 81].map(|port| rig.connect(client(4000), server(port)));
    let other = rig.connect(neighbour(4001), server(80));
    assert_eq!(rig.places(), 4);
    for (ends, left) in [(second, 4), (first, 2), (other, 0)] {
        let end = ends.say("R", LOCAL_ISN + 1, 0);
        rig.translates_out(&end.frame());
        assert_eq!(rig.places(), left, "{}", ends.remote);
    }
}

#[test]
fn a_third_host_answers_for_nobody() {
    let mut pair = Pair::new();
    let syn = pair.segment(0, "S", CALLER_ISN, 0);
    pair.passes(0, &syn, "hairpin-syn");
    let third = SocketAddr::new(lan_host(4u32), 4000);
    pair.rig.connect(third, second_server(80));
    for flags in ["SA", "RA"] {
        let segment = tcp(third, pair.outer(0), flags, CALLED_ISN, CALLER_ISN + 1);
        pair.rig
            .lan_sends(&segment.frame())
            .passed("specific-route");
    }
}

#[test]
fn a_stranger_reaches_neither_endpoint_under_whichever_name() {
    let mut pair = Pair::new();
    let called = pair.outer(1);
    let stranger = tcp(second_server(5000), called, "S", 1, 0);
    pair.rig
        .link_brings(0, &stranger.frame())
        .dropped("stray-syn");
    let spoofed = tcp(pair.outer(0), called, "S", 1, 0);
    pair.rig
        .link_brings(0, &spoofed.frame())
        .dropped("spoofed-wan");
    pair.shake_hands();
    for flags in ["S", "A", "PA", "R", "FA"] {
        let spoofed = tcp(pair.outer(0), called, flags, CALLER_ISN + 1, CALLED_ISN + 1);
        pair.rig
            .link_brings(0, &spoofed.frame())
            .dropped("spoofed-wan");
    }
    assert_eq!(pair.states(), [FlowState::Established; 2]);
}

#[test]
fn each_host_pays_for_its_own_flow() {
    let mut pair = Pair::new();
    let held = |rig: &Rig| {
        let mut held = rig.held();
        held.sort_unstable();
        held
    };
    assert_eq!(held(&pair.rig), [1, 1]);
    let syn = pair.segment(0, "S", CALLER_ISN, 0);
    for _ in 0..3 {
        pair.passes(0, &syn, "hairpin-syn");
    }
    assert_eq!(held(&pair.rig), [1, 2], "calls cost who is called nothing");
    pair.rig.set(|s| {
        s.quota_per_host = 1;
        s.fallback_mark = 7;
    });
    let answer = pair.segment(1, "SA", CALLED_ISN, CALLER_ISN + 1);
    pair.rig
        .lan_sends(&answer.frame())
        .answered("refused-quota");
    pair.rig.set(|s| s.quota_per_host = 2);
    pair.passes(1, &answer, "translated-in");
    assert_eq!(held(&pair.rig), [2, 2]);
}

#[test]
fn a_repeated_call_stays_where_it_is_under_any_policy() {
    let mut pair = Pair::new();
    let syn = pair.segment(0, "S", CALLER_ISN, 0);
    pair.passes(0, &syn, "hairpin-syn");
    let mut choice = round_robin(0b10);
    choice.syn_retry = 1;
    pair.rig.install(&choice);
    pair.passes(0, &syn, "hairpin-syn");
    let counters = pair.rig.plane().counters().unwrap();
    assert!(counters.iter().all(|link| link.carried().syn_retries == 0));
}

#[test]
fn who_speaks_to_a_flow_that_is_gone_is_told() {
    let mut pair = Pair::new();
    pair.shake_hands();
    let (local, remote) = (pair.inner(1), pair.outer(0));
    pair.rig.forget(local, remote);
    let data = pair.segment(0, "PA", CALLER_ISN + 1, CALLED_ISN + 1);
    let outcome = pair.rig.lan_sends(&data.payload(b"lost").frame());
    let reset = outcome.answered("no-flow-out");
    assert_eq!((reset.src(), reset.dst()), (pair.outer(1), pair.inner(0)));
    assert!(reset.tcp().rst);
    assert_eq!(pair.states(), [FlowState::Closed]);
}

#[test]
fn a_reset_ends_both_flows() {
    let mut pair = Pair::new();
    pair.shake_hands();
    pair.says(1, "R", CALLED_ISN + 1, 0);
    assert_eq!(pair.states(), [FlowState::Closed; 2]);
    assert_eq!(pair.rig.live(), 2);
}

#[test]
fn flows_between_hosts_end_in_the_sweep_and_leave_no_debt() {
    let mut pair = Pair::new();
    pair.shake_hands();
    pair.rig.set(|s| s.tcp_established_ns = 0);
    pair.rig.sweep_until(|rig, _| rig.flows().is_empty());
    assert_eq!(pair.rig.live(), 0);
    assert!(pair.rig.held().iter().all(|live| *live == 0));
    let syn = pair.segment(0, "S", CALLER_ISN, 0);
    pair.rig.lan_sends(&syn.frame()).passed("specific-route");
}

#[test]
fn a_daemon_that_takes_over_finds_calls_and_endpoints() {
    let mut pair = Pair::new();
    let syn = pair.segment(0, "S", CALLER_ISN, 0);
    pair.passes(0, &syn, "hairpin-syn");
    pair.rig.restart();
    pair.says(1, "SA", CALLED_ISN, CALLER_ISN + 1);
    pair.says(0, "A", CALLER_ISN + 1, CALLED_ISN + 1);
    pair.rig.restart();
    pair.says(1, "A", CALLED_ISN + 1, CALLER_ISN + 1);
    assert_eq!(pair.states(), [FlowState::Established; 2]);
    let syn = tcp(client(6000), pair.outer(1), "S", CALLER_ISN, 0);
    passes(&mut pair.rig, &syn, "hairpin-syn");
}

#[test]
fn a_port_that_two_hosts_share_stays_his_who_was_first() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let first = rig.connect(neighbour(4000), server(RENDEZVOUS));
    let second = rig.connect(client(4000), second_server(80));
    assert_eq!(first.external, second.external);
    let syn = tcp(client(6000), first.external, "S", CALLER_ISN, 0);
    let seen = passes(&mut rig, &syn, "hairpin-syn");
    assert_eq!(seen.dst(), first.local);
    let end = first.say("R", LOCAL_ISN + 1, 0);
    rig.translates_out(&end.frame());
    let syn = tcp(client(6001), first.external, "S", CALLER_ISN, 0);
    rig.lan_sends(&syn.frame()).passed("specific-route");
    rig.connect(client(4000), second_server(81));
    let syn = tcp(client(6002), first.external, "S", CALLER_ISN, 0);
    assert_eq!(passes(&mut rig, &syn, "hairpin-syn").dst(), second.local);
}
