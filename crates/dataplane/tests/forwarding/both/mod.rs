//! What holds for IPv4 and IPv6 alike: these files are compiled once for each, with the addresses of the family whose module
//! they are in.

use std::net::IpAddr;

use anabranch_core::Family;
use anabranch_frames::{Ip, PacketSocket};
use socket2::Domain;

use super::SITE;
use crate::{addresses::nth, common::*, site::Site, *};

pub mod connections;
pub mod datagrams;
pub mod flood;
mod forwards;
mod fragments;
mod hairpin;
mod layer3;
mod leftovers;
mod life;
mod next_hops;
mod paths;
mod upgrade;

pub const FAMILY: Family = SITE.family;
pub const CLIENT: IpAddr = SITE.client;
pub const SECOND_CLIENT: IpAddr = SITE.second_client;
pub const GATEWAY_LAN: IpAddr = SITE.gateway_lan;
pub const EXTERNAL: [IpAddr; 2] = SITE.external;
pub const ISP: [IpAddr; 2] = SITE.isp;
pub const SERVER: IpAddr = SITE.server;
pub const SECOND_SERVER: IpAddr = SITE.second_server;

/// As `nft` and its tables call the family.
pub const NFT: &str = match FAMILY {
    Family::V4 => "ip",
    Family::V6 => "ip6",
};

/// A site of the family.
pub fn site() -> Site {
    Site::new(&SITE)
}

/// Of sockets of the family.
pub fn domain() -> Domain {
    match FAMILY {
        Family::V4 => Domain::IPV4,
        Family::V6 => Domain::IPV6,
    }
}

/// A socket of the node that sends packets as they are written.
pub fn packet_socket(node: &Namespace) -> PacketSocket {
    node.run(|| PacketSocket::open(FAMILY).unwrap()).unwrap()
}

/// Sends all.
pub fn send(socket: &PacketSocket, packets: &[Ip]) {
    for packet in packets {
        socket.send(packet).unwrap();
    }
}

/// The node's kernel forwards.
pub fn forwards(node: &Namespace) {
    let key = match FAMILY {
        Family::V4 => "net/ipv4/ip_forward",
        Family::V6 => "net/ipv6/conf/all/forwarding",
    };
    node.set_sysctl(key, "1").unwrap();
}
