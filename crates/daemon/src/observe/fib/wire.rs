//! Parses rtnetlink messages about routes in place, because a full table has a million of them and little in each is needed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_core::Family;

use super::store::{Added, Path};
use crate::host::{ids, number_of};
use crate::observe::{Hop, Prefix, RouteKind};

/// linux/netlink.h: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// linux/rtnetlink.h: struct rtmsg.
const ROUTE_HEADER: usize = 12;
/// struct ifinfomsg, with flags behind the index.
const LINK_HEADER: usize = 16;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
/// The flag of an entry learned for one destination (RFC 8201), which is not a route.
const RTM_F_CLONED: u32 = 0x200;
/// linux/rtnetlink.h: who made a route.
const RTPROT_RA: u8 = 9;
const RTPROT_DHCP: u8 = 16;
/// OpenWrt's metric of delegated prefixes.
const LARGEST_METRIC: u32 = i32::MAX as u32;

/// What one message says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// A route that is there.
    Route(Route<'a>, Added),
    /// One that is gone.
    Gone(Route<'a>),
    /// A device is up or down, or no longer there.
    Device {
        ifindex: u32,
        is_up: bool,
        is_there: bool,
    },
    /// The end of a walk.
    Done,
    /// A request was refused.
    Refused(i32),
    /// Of no interest here.
    Other,
}

/// A route where it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Route<'a> {
    pub table: u32,
    pub prefix: Prefix,
    pub path: Path,
    /// It bears our protocol number.
    pub is_ours: bool,
    /// It leads on to the next table.
    pub is_throw: bool,
    /// The message behind its header.
    pub payload: &'a [u8],
}

/// The messages of what one read brought. What is cut short ends it.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Said<'_>> {
    std::iter::from_fn(move || {
        let length = number(bytes, 0)? as usize;
        let message = bytes.get(..length).filter(|_| length >= HEADER)?;
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some(said(message))
    })
}

/// Asks for all routes of a family.
pub fn question(family: Family) -> [u8; HEADER + ROUTE_HEADER] {
    let mut message = [0; HEADER + ROUTE_HEADER];
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[HEADER] = number_of(family);
    message
}

fn said(message: &[u8]) -> Said<'_> {
    let kind = half(message, 4).unwrap_or(0);
    let flags = i32::from(half(message, 6).unwrap_or(0));
    let payload = &message[HEADER..];
    match kind {
        libc::RTM_NEWROUTE => {
            let mode = match flags & libc::NLM_F_REPLACE {
                0 => Added::Beside,
                _ => Added::Replaces,
            };
            route(payload).map_or(Said::Other, |route| Said::Route(route, mode))
        }
        libc::RTM_DELROUTE => route(payload).map_or(Said::Other, Said::Gone),
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            device(payload, kind == libc::RTM_NEWLINK).unwrap_or(Said::Other)
        }
        _ if i32::from(kind) == libc::NLMSG_DONE => Said::Done,
        _ if i32::from(kind) == libc::NLMSG_ERROR => {
            let error = number(payload, 0).unwrap_or(0) as i32;
            Said::Refused(-error)
        }
        _ => Said::Other,
    }
}

/// Ports of a bridge tell of themselves under the family of bridges, too.
fn device(payload: &[u8], is_there: bool) -> Option<Said<'_>> {
    let header = payload.get(..LINK_HEADER)?;
    let flags = number(header, 8)? as i32;
    (i32::from(header[0]) == libc::AF_UNSPEC).then_some(Said::Device {
        ifindex: number(header, 4)?,
        is_up: flags & libc::IFF_UP != 0,
        is_there,
    })
}

fn route(payload: &[u8]) -> Option<Route<'_>> {
    let header = payload.get(..ROUTE_HEADER)?;
    let family = match i32::from(header[0]) {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return None,
    };
    let (length, protocol) = (header[1], header[5]);
    let kind = match header[7] {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_UNREACHABLE | libc::RTN_BLACKHOLE => RouteKind::Nowhere,
        _ => RouteKind::Kernel,
    };
    if number(header, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = Route {
        table: header[4].into(),
        prefix: Prefix::new(Prefix::everything(family).address, length),
        path: Path {
            kind,
            metric: 0,
            source: None,
            hops: Vec::new(),
            of_lease: false,
        },
        is_ours: protocol == ids::PROTOCOL,
        is_throw: header[7] == libc::RTN_THROW,
        payload,
    };
    let path = &mut route.path;
    let mut single = Hop {
        ifindex: 0,
        via: None,
    };
    for (kind, value) in attributes(&payload[ROUTE_HEADER..]) {
        match kind {
            RTA_DST => route.prefix.address = address(value)?,
            RTA_TABLE => route.table = number(value, 0)?,
            RTA_PRIORITY => path.metric = number(value, 0)?,
            RTA_PREFSRC => path.source = address(value),
            RTA_OIF => single.ifindex = number(value, 0)?,
            RTA_GATEWAY => single.via = address(value),
            RTA_MULTIPATH => path.hops = hops(value),
            _ => {}
        }
    }
    path.of_lease = is_of_lease(protocol, path.metric);
    if family == Family::V6 {
        // They are told in one order, and listed in another.
        path.hops.sort_by_key(|hop| (hop.ifindex, hop.via));
    }
    if path.hops.is_empty() {
        path.hops.push(single);
    }
    Some(route)
}

/// systemd-networkd and dhcpcd mark what they make of a lease as DHCP's, or as a router's advertisement's. OpenWrt's netifd marks
/// nothing, but keeps delegated prefixes unreachable by the largest metric, which nobody chooses by hand.
fn is_of_lease(protocol: u8, metric: u32) -> bool {
    match protocol {
        RTPROT_DHCP | RTPROT_RA => true,
        libc::RTPROT_STATIC => metric == LARGEST_METRIC,
        _ => false,
    }
}

/// struct rtnexthop: length, flags, hops, index of the device; then its attributes.
fn hops(mut bytes: &[u8]) -> Vec<Hop> {
    const NEXT_HOP: usize = 8;
    let mut all = Vec::new();
    while let Some(length) = half(bytes, 0).map(usize::from) {
        let Some(hop) = bytes.get(..length).filter(|_| length >= NEXT_HOP) else {
            break;
        };
        let via = attributes(&hop[NEXT_HOP..]).find(|(kind, _)| *kind == RTA_GATEWAY);
        all.push(Hop {
            ifindex: number(hop, 4).unwrap_or(0),
            via: via.and_then(|(_, value)| address(value)),
        });
        bytes = bytes.get(padded(length)..).unwrap_or_default();
    }
    all
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const ATTRIBUTE: usize = 4;
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes, 0)?);
        // The upper bits tell of nesting and byte order.
        let kind = half(bytes, 2)? & 0x3fff;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(v4).into());
    }
    let v6 = <[u8; 16]>::try_from(value).ok()?;
    Some(Ipv6Addr::from(v6).into())
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(word.try_into().ok()?))
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}
