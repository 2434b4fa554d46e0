//! Floods, full tables and quotas: new flows may suffer, live ones may not.

use std::net::IpAddr;

use anabranch_lab::netns::Namespace;
use anabranch_lab::topology::Lab;
use etherparse::PacketBuilder;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::house::{House, PAGE_BYTES, by_link, counted, link, status};
use crate::programs::{Fetched, Visitor, curl, seen};

const SYNS: u32 = 30_000;

#[test]
fn a_flood_of_syns_beside_two_hundred_live_connections_ends_none_of_them() {
    let house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let mut visitors = Visitor::many(lab, 200);
    let before = Visitor::ask_all(&mut visitors);
    // Nobody is at this address: no SYN is ever answered.
    flood(lab.clients(), lab.client_addresses()[1], [203, 0, 113, 66]);
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
        let after = Visitor::ask_all(&mut visitors);
        assert_eq!(after, before);
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

/// SYNs of one LAN host from ever other ports.
fn flood(clients: &Namespace, from: IpAddr, to: [u8; 4]) {
    let IpAddr::V4(from) = from else {
        panic!("{from}")
    };
    let send = || {
        let socket =
            Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc_raw()))).unwrap();
        for number in 0..SYNS {
            let (source, target) = (
                1024 + (number % 60_000) as u16,
                80 + (number / 60_000) as u16,
            );
            let mut packet = Vec::new();
            let syn = PacketBuilder::ipv4(from.octets(), to, 64)
                .tcp(source, target, number, 65_535)
                .syn();
            syn.write(&mut packet, &[]).unwrap();
            // A full queue drops, as a flood's would.
            let _ = socket.send_to(
                &packet,
                &SockAddr::from(std::net::SocketAddr::from((to, 0))),
            );
        }
    };
    clients.run(send).unwrap();
}

/// IPPROTO_RAW: the IP header is ours.
fn libc_raw() -> i32 {
    255
}
