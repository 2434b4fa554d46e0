//! What holds for IPv4 and IPv6 alike: these files are compiled once for each, with the addresses of the family whose module
//! they are in.

use std::net::{IpAddr, SocketAddr};

use anabranch_core::Family;

use super::{SITE, with_more_headers};
use crate::common::{round_robin, settings};
use crate::{frame, frame::*, rig::*, site::*};

mod addressee;
mod admission;
pub mod bad_input;
mod classes;
mod concurrency;
mod devices;
mod errors;
mod evictions;
mod forgery;
mod fragments;
pub mod hairpin;
mod limits;
mod mappings;
mod marks;
mod paths;
mod policies;
mod probe;
mod program;
mod race;
mod routed;
mod strays;
mod survey;
mod sweeps;
mod tcp;
mod translation;
mod trunk;
mod upgrade;
mod ways;

pub const FAMILY: Family = SITE.family;
pub const CLIENT: IpAddr = SITE.client;
pub const SECOND_CLIENT: IpAddr = SITE.second_client;
pub const GATEWAY_LAN: IpAddr = SITE.gateway_lan;
pub const EXTERNAL: [IpAddr; 2] = SITE.external;
pub const ISP: [IpAddr; 2] = SITE.isp;
pub const SERVER: IpAddr = SITE.server;
pub const SECOND_SERVER: IpAddr = SITE.second_server;
pub const IP_HEADER: usize = SITE.ip_header;

/// Where its transport header stands in a frame.
pub const L4: usize = ETHERNET + IP_HEADER;

pub fn client(port: u16) -> SocketAddr {
    SocketAddr::new(CLIENT, port)
}

pub fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER, port)
}

pub fn second_server(port: u16) -> SocketAddr {
    SocketAddr::new(SECOND_SERVER, port)
}

/// The answer to a SYN from the LAN to port 80, as it arrives at an external endpoint.
pub fn syn_ack(external: SocketAddr) -> Vec<u8> {
    tcp(server(80), external, "SA", REMOTE_ISN, LOCAL_ISN + 1).frame()
}

/// A host of the LAN; the client is the second.
pub fn lan_host(number: impl Into<u32>) -> IpAddr {
    nth(SITE.lan.0, number.into())
}

/// A host that no route names.
pub fn internet_host(number: u32) -> IpAddr {
    nth(SITE.internet, number)
}
