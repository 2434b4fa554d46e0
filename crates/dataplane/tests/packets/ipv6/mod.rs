//! IPv6.

use etherparse::IpNumber;

use crate::{frame::Ip, site::IPV6 as SITE};

#[path = "../both/mod.rs"]
mod both;
mod header;
mod hosts;
mod inbound;
mod neighbours;
mod prefixes;
mod trunk;

/// With as many headers as may stand before that of the transport.
fn with_more_headers(ip: Ip) -> Vec<Ip> {
    let hops = ip
        .clone()
        .extension(IpNumber::IPV6_HEADER_HOP_BY_HOP, &[0, 0, 1, 4, 0, 0, 0, 0]);
    let mut options = [0; 48];
    options[1] = 5;
    let long = hops
        .clone()
        .extension(IpNumber::IPV6_DESTINATION_OPTIONS, &options);
    vec![ip, hops, long]
}
