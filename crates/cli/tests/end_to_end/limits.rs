//! Floods, full tables and quotas: new flows may suffer, live ones may not.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_core::Family;
use anabranch_frames::{Ip, PacketSocket, tcp, udp};
use anabranch_lab::topology::{LAN_PREFIX_LEN, Lab, LabSpec, SERVER};
use anabranch_testbed::netns::Namespace;

use crate::house::{DEADLINE, House, PAGE_BYTES, by_link, counted, link, status};
use crate::programs::{Conversation, ECHO_PORT, Fetched, Visitor, curl, seen, serve_echo};

const SYNS: u32 = 30_000;

#[test]
fn a_flood_of_syns_beside_two_hundred_live_connections_ends_none_of_them() {
    let house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let mut visitors = Visitor::many(lab, 200);
    let before = Visitor::ask_all(&mut visitors);
    let flooder = Flooder::new(lab);
    let syns = 0..SYNS;
    flooder.send(syns.map(|number| flooder.syn(number)));
    let after = Visitor::ask_all(&mut visitors);
    assert_eq!(after, before);
    assert_eq!(
        by_link(lab, seen(&curl(lab.clients(), &[], 100, 12))).len(),
        3,
        "others still connect"
    );
    let live: u64 = ["fiber", "cable", "lte"]
        .iter()
        .map(|name| link(gateway, name).flows.live)
        .sum();
    assert!(live >= 200, "{live}");
}

#[test]
fn over_its_quota_a_host_keeps_its_flows_and_gets_the_kernels_nat_or_a_refusal_for_new_ones() {
    for (fallback, words) in [
        ("kernel", "host over its quota: kernel NAT"),
        ("refuse", "host over its quota"),
    ] {
        let settings =
            format!("policy = \"RR\"\nlimits.flows_per_host = 10\nnat.fallback = \"{fallback}\"");
        let house = House::new(&settings);
        let House { lab, gateway, .. } = &house;
        let mut visitors = Visitor::many(lab, 10);
        let before = Visitor::ask_all(&mut visitors);
        let more = curl(
            lab.clients(),
            &["--interface", &lab.client_addresses()[0].to_string()],
            PAGE_BYTES,
            6,
        );
        judge(lab, fallback, &more);
        assert!(counted(gateway, words) > 0, "{:?}", status(gateway).reasons);
        let other = curl(
            lab.clients(),
            &["--interface", &lab.client_addresses()[1].to_string()],
            PAGE_BYTES,
            6,
        );
        // A host is its network card, whatever its addresses.
        judge(lab, fallback, &other);
        let neighbour = second_host(lab);
        let balanced = by_link(lab, seen(&curl(&neighbour, &[], PAGE_BYTES, 9)));
        assert_eq!(balanced.len(), 3, "{fallback}: {balanced:?}");
        let after = Visitor::ask_all(&mut visitors);
        assert_eq!(after, before);
    }
}

/// The host asks from twice as many ports as the one link has.
#[test]
fn beside_a_host_over_its_quota_another_gets_every_answer() {
    const QUERIES: u16 = 200;
    const PORTS_A_QUERY: u16 = 60;
    let one_link = LabSpec::of_lines(&[("fiber", 200_000_000, 100_000_000, 8)]);
    for fallback in ["kernel", "refuse"] {
        let settings = format!("nat.ports = [20000, 25999]\nnat.fallback = \"{fallback}\"");
        let house = House::of(&one_link, &settings);
        let House { lab, gateway, .. } = &house;
        serve_echo(lab);
        let (neighbour, flooder) = (second_host(lab), Flooder::new(lab));
        let ask = |number: u16| {
            let first = 10_000 + number * PORTS_A_QUERY;
            let ports = first..first + PORTS_A_QUERY;
            flooder.send(ports.clone().map(|port| flooder.question(port)));
            let answer = Conversation::new(&neighbour, SERVER.into(), DEADLINE).ask();
            // A second answer confirms a mapping.
            flooder.send(ports.map(|port| flooder.question(port)));
            answer.is_some()
        };
        assert!((0..QUERIES).all(&ask));
        let words = "host over its";
        let is_over = status(gateway)
            .reasons
            .iter()
            .any(|reason| reason.words.starts_with(words));
        assert!(is_over, "{:?}", status(gateway).reasons);
        let answered = (0..QUERIES).filter(|number| ask(*number));
        assert_eq!(answered.count(), usize::from(QUERIES), "{fallback}");
    }
}

#[test]
fn when_the_table_is_full_live_flows_go_on_and_new_ones_get_the_kernels_nat_or_a_refusal() {
    for (fallback, words) in [
        ("kernel", "flow table full: kernel NAT"),
        ("refuse", "flow table full"),
    ] {
        let settings = format!("policy = \"RR\"\nlimits.flows = 32\nnat.fallback = \"{fallback}\"");
        let house = House::new(&settings);
        let House { lab, gateway, .. } = &house;
        let mut visitors = Visitor::many(lab, 32);
        let before = Visitor::ask_all(&mut visitors);
        judge(lab, fallback, &curl(lab.clients(), &[], PAGE_BYTES, 6));
        assert!(counted(gateway, words) > 0, "{:?}", status(gateway).reasons);
        let after = Visitor::ask_all(&mut visitors);
        assert_eq!(after, before);
    }
}

/// Connectivity without balancing over the first link, or none.
fn judge(lab: &Lab, fallback: &str, fetched: &[Fetched]) {
    if fallback == "kernel" {
        assert_eq!(
            by_link(lab, seen(fetched)),
            [("fiber".to_owned(), fetched.len())].into()
        );
    } else {
        assert!(fetched.iter().all(|each| each.seen.is_err()), "{fetched:?}");
    }
}

/// A host on the LAN with a network card of its own.
fn second_host(lab: &Lab) -> Namespace {
    let host = Namespace::create("neighbour").unwrap();
    let card = format!(
        "link add link lan name card netns {} type macvlan mode bridge",
        host.name()
    );
    lab.clients().ip(&card).unwrap();
    host.add_address("card", [10, 80, 2, 1].into(), LAN_PREFIX_LEN)
        .unwrap();
    host.ip("link set card up").unwrap();
    host.ip("route add default via 10.80.0.1").unwrap();
    host
}

/// A LAN host that sends packets its own kernel knows nothing of.
struct Flooder {
    socket: PacketSocket,
    from: IpAddr,
}

impl Flooder {
    fn new(lab: &Lab) -> Self {
        let open = || PacketSocket::open(Family::V4).unwrap();
        Self {
            socket: lab.clients().run(open).unwrap(),
            from: lab.client_addresses()[1],
        }
    }

    /// Each number is another connection attempt, to an address of nobody: none is ever answered.
    fn syn(&self, number: u32) -> Ip {
        let (source, target) = (
            1024 + (number % 60_000) as u16,
            80 + (number / 60_000) as u16,
        );
        tcp((self.from, source), (NOBODY, target), "S", number, 0).ip()
    }

    /// A question to the echo server.
    fn question(&self, source: u16) -> Ip {
        udp((self.from, source), (SERVER, ECHO_PORT), b"?")
    }

    fn send(&self, packets: impl Iterator<Item = Ip>) {
        for packet in packets {
            // A full queue drops, as a flood's would.
            let _ = self.socket.send(&packet);
        }
    }
}

const NOBODY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);
