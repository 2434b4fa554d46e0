//! Floods, full tables and quotas: new flows may suffer, live ones may not.

use std::net::IpAddr;

use anabranch_lab::netns::Namespace;
use etherparse::PacketBuilder;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::house::{House, by_link, link};
use crate::programs::{Visitor, curl, seen};

const SYNS: u32 = 30_000;

#[test]
fn a_flood_of_syns_beside_two_hundred_live_connections_ends_none_of_them() {
    let house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let mut visitors: Vec<_> = (0..200).map(|_| Visitor::new(lab).unwrap()).collect();
    let before: Vec<_> = visitors
        .iter_mut()
        .map(|visitor| visitor.ask().unwrap())
        .collect();
    // Nobody is at this address: no SYN is ever answered.
    flood(lab.clients(), lab.client_addresses()[1], [203, 0, 113, 66]);
    let after: Vec<_> = visitors
        .iter_mut()
        .map(|visitor| visitor.ask().unwrap())
        .collect();
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
