//! Who is one host: it has as many addresses as it likes.

use std::net::{IpAddr, SocketAddr};

use super::SITE;
use super::both::*;
use crate::{frame::*, rig::*, site::nth};

/// A query of this address by a card that is the same for all.
fn query(from: IpAddr) -> Vec<u8> {
    let query = udp(SocketAddr::new(from, 4000), server(53), b"?");
    sent_by(FLOODER, query.frame())
}

#[test]
fn all_addresses_of_a_card_are_one_host() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = 2);
    let mut ask = |number: u32| rig.lan_sends(&query(lan_host(number))).reason;
    assert_eq!([2, 77_000].map(&mut ask), ["translated-out"; 2]);
    assert_eq!(ask(3), "refused-quota");
    assert_eq!(rig.held(), [2]);
}

#[test]
fn behind_a_lan_router_all_addresses_of_a_subnet_are_one_host() {
    let mut rig = Rig::new();
    rig.add_router(SITE.further_lan, SECOND_CLIENT);
    rig.set(|s| s.quota_per_host = 2);
    let mut ask = |subnet: u8, number: u32| {
        let from = nth(SITE.further_host(subnet), number);
        rig.lan_sends(&query(from)).reason
    };
    assert_eq!([0, 77_000].map(|host| ask(1, host)), ["translated-out"; 2]);
    assert_eq!(ask(1, 1), "refused-quota");
    assert_eq!(ask(2, 1), "translated-out");
}

/// An answer from no address is from nobody (RFC 4443 section 2.2).
#[test]
fn a_gateway_without_an_address_in_the_lan_answers_nothing() {
    let mut rig = Rig::new();
    rig.have_no_address();
    let late = udp(client(4000), server(53), b"x").ttl(1).frame();
    rig.lan_sends(&late).dropped("ttl-out");
    // A RST is from the remote end.
    let unknown = tcp(client(4000), server(80), "A", 1, 1).frame();
    rig.lan_sends(&unknown).answered("no-flow-out");
}
