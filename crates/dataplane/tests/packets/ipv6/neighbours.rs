//! What IPv6 needs on each link is the kernel's: neighbour discovery, multicast listeners, DHCPv6.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::SITE;
use super::both::*;
use crate::{frame::*, rig::*};

const SOLICITATION: u8 = 135;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link_local(last: u16) -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last).into()
}

/// A message of neighbour discovery, as only a neighbour can send it.
fn discovery(kind: u8, src: IpAddr, dst: IpAddr) -> Ip {
    icmp(src, dst, (kind, 0), [0; 4], &[0; 24]).ttl(255)
}

#[test]
fn neighbour_discovery_is_the_kernels_from_either_side_and_to_its_own_addresses() {
    let mut rig = Rig::new();
    for kind in 133..=137 {
        for src in [link_local(2), CLIENT, SITE.unspecified] {
            for dst in [SITE.everybody, link_local(1), GATEWAY_LAN] {
                let message = discovery(kind, src, dst).frame();
                rig.lan_sends(&message).passed("specific-route");
            }
        }
        for src in [link_local(2), ISP[0], SITE.unspecified] {
            for dst in [SITE.everybody, link_local(1), EXTERNAL[0]] {
                let message = discovery(kind, src, dst).frame();
                rig.link_brings(0, &message).passed("no-flow-in");
            }
        }
    }
    assert!(rig.flows().is_empty());
}

/// The kernel would forward them, with the source they have.
#[test]
fn what_passes_for_neighbour_discovery_goes_no_further_than_its_link() {
    let mut rig = Rig::new();
    for src in [link_local(2), CLIENT] {
        let lie = discovery(SOLICITATION, src, SERVER).frame();
        rig.lan_sends(&lie).dropped("icmp-other");
    }
    // From afar it is none.
    let far = discovery(SOLICITATION, link_local(2), GATEWAY_LAN).ttl(254);
    rig.lan_sends(&far.frame()).dropped("spoofed-lan");
    // The kernel would answer what it cannot read, out of a link.
    for dst in [GATEWAY_LAN, SECOND_CLIENT, EXTERNAL[0]] {
        let foreign = discovery(SOLICITATION, SERVER, dst).frame();
        rig.lan_sends(&foreign).dropped("spoofed-lan");
    }
    for dst in [SITE.everybody, link_local(1)] {
        let foreign = discovery(SOLICITATION, SERVER, dst).frame();
        rig.lan_sends(&foreign).passed("specific-route");
    }
    let inward = discovery(SOLICITATION, ISP[0], CLIENT).frame();
    rig.link_brings(0, &inward).dropped("not-forwarded");
    rig.set(|s| s.routed = 0b11 << anabranch_policy::abi::MAX_LINKS);
    let lie = discovery(SOLICITATION, link_local(2), SERVER).frame();
    rig.lan_sends(&lie).dropped("icmp-other");
}

#[test]
fn multicast_link_local_addresses_and_dhcp_are_the_kernels() {
    let mut rig = Rig::new();
    let end = |ip, port| SocketAddr::new(ip, port);
    // Listener reports (RFC 3810) may come before there is an address.
    let report = |src| {
        icmp(src, address("ff02::16"), (143, 0), [0, 0, 0, 1], &[0; 20])
            .ttl(1)
            .extension(
                etherparse::IpNumber::IPV6_HEADER_HOP_BY_HOP,
                &[0, 0, 5, 2, 0, 0, 1, 0],
            )
    };
    let both_sides = [
        report(link_local(2)),
        report(SITE.unspecified),
        udp(
            end(link_local(2), 546),
            end(address("ff02::1:2"), 547),
            b"solicit",
        ),
        udp(end(link_local(2), 5353), end(SITE.multicast, 5353), b"who"),
        echo(link_local(2), link_local(1), 1, b"x"),
        tcp(end(link_local(2), 9), end(link_local(1), 22), "S", 1, 0).ip(),
    ];
    for ip in both_sides {
        rig.lan_sends(&ip.frame()).passed("specific-route");
        rig.link_brings(0, &ip.frame()).passed("no-flow-in");
    }
    let advertise = udp(
        end(link_local(2), 547),
        end(link_local(1), 546),
        b"advertise",
    );
    rig.lan_sends(&advertise.frame()).passed("dhcp");
    rig.link_brings(0, &advertise.frame()).passed("dhcp");
    // A lease is renewed with a server by its own address.
    let renew = udp(end(CLIENT, 546), end(GATEWAY_LAN, 547), b"renew");
    rig.lan_sends(&renew.frame()).passed("specific-route");
    assert!(rig.flows().is_empty());
}

#[test]
fn nobody_leaves_a_link_with_an_address_of_its_own_link_alone() {
    let mut rig = Rig::new();
    let from = SocketAddr::new(link_local(2), 4000);
    for ip in [
        udp(from, server(53), b"x"),
        tcp(from, server(80), "S", 1, 0).ip(),
        echo(from.ip(), SERVER, 7, b"x"),
    ] {
        rig.lan_sends(&ip.frame()).dropped("spoofed-lan");
    }
}
