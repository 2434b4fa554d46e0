//! What a trunk does with headers that IPv6 alone has.

use anabranch_policy::{abi::Spread, flow_hash, spread::bin};
use etherparse::IpNumber;

use super::{both::*, with_more_headers};
use crate::{
    frame::*,
    trunk::{Rig, *},
};

/// What stays on its line, as ARP does.
#[test]
fn neighbour_discovery_is_the_trunk_devices() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let message = |kind| icmp(CLIENT, SERVER, (kind, 0), [0; 4], &[0; 24]);
    for kind in 133..=137 {
        for message in with_more_headers(message(kind).ttl(255)) {
            rig.send(&message.frame()).left(TC_ACT_UNSPEC, "not-ip");
        }
        // From afar it is none.
        rig.send(&message(kind).ttl(254).frame()).sublink();
    }
    rig.send(&message(143).ttl(255).frame()).sublink();
}

#[test]
fn behind_headers_that_nobody_can_walk_the_addresses_tell() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let hosts = bin(flow_hash(CLIENT.into(), SERVER.into(), 0, 0));
    let datagram = udp(client(4000), server(53), b"data");
    let beyond_its_end = datagram
        .clone()
        .extension(IpNumber::IPV6_HEADER_HOP_BY_HOP, &[0, 9, 1, 4, 0, 0, 0, 0]);
    let source_routed = datagram
        .clone()
        .extension(IpNumber::IPV6_ROUTE_HEADER, &[0; 8]);
    let mut many = datagram.clone();
    for _ in 0..7 {
        many = many.extension(
            IpNumber::IPV6_DESTINATION_OPTIONS,
            &[0, 0, 1, 4, 0, 0, 0, 0],
        );
    }
    for ip in [beyond_its_end, source_routed, many] {
        let outcome = rig.send(&ip.frame());
        assert_eq!(outcome.bin(), hosts, "{:?}", ip.header);
    }
    let routed = datagram.extension(IpNumber::IPV6_ROUTE_HEADER, &[0, 0, 4, 0, 0, 0, 0, 0]);
    let flow = flow_hash(CLIENT.into(), SERVER.into(), 4000, 53);
    assert_eq!(rig.send(&routed.frame()).bin(), bin(flow));
}
