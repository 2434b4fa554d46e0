//! Reads and changes the kernel's connection table: deletes connections that are translated to a dead link, and finds who speaks
//! UDP with whom.
//!
//! The kernel's NAT, for instance for containers, gives each connection an address of the link by which it leaves, for as long as
//! the connection is known. If the link is dead, the connection is deleted, so that its next packet is translated anew: the other
//! end of TCP answers that with a RST, and UDP continues.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anabranch_core::Family;
use anyhow::Context;
use rtnetlink::sys::protocols::NETLINK_NETFILTER;

use super::netlink::{Netlink, attribute, find, find_in, nested, number_of};

// linux/netfilter/nfnetlink.h, nfnetlink_conntrack.h and nf_conntrack_common.h
const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
const FAMILY_HEADER: usize = 4;
const TUPLE_ORIGINAL: u16 = 1;
const STATUS: u16 = 3;
const TIMEOUT: u16 = 7;
const MARK: u16 = 8;
const MARK_MASK: u16 = 21;
/// Since Linux 5.8: which fields of a tuple are compared.
const FILTER: u16 = 25;
const FILTER_ORIGINAL: u16 = 1;
const BY_PROTOCOL: u32 = 1 << 3;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const PROTOCOL_NUMBER: u16 = 1;
/// Source, destination.
const PORTS: [u16; 2] = [2, 3];
const ASSURED: u32 = 1 << 2;

/// UDP conversations: the first sender, the other end, and the least time since the last packet.
#[derive(Debug, Default)]
pub struct Conversations(BTreeMap<[SocketAddr; 2], Duration>);

/// One UDP conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversation {
    /// The host's end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Least time since the last packet; the longest time if the conversation is not in the table.
    pub idle: Duration,
    /// Who sent the first packet, if that is known.
    pub begun: Option<Begun>,
}

/// Who sent the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The host itself.
    Here,
    /// Another host.
    There,
}

/// How long the kernel keeps UDP entries after the last packet.
#[derive(Debug, Clone, Copy)]
struct Timeouts {
    /// While the conversation is younger than two seconds.
    young: Duration,
    assured: Duration,
}

/// Deletes all connections of a family with a mark.
pub fn forget(family: Family, mark: u32) -> anyhow::Result<()> {
    let mut body = family_header(family);
    for (kind, value) in [(MARK, mark), (MARK_MASK, u32::MAX)] {
        attribute(&mut body, kind, &value.to_be_bytes());
    }
    let netlink = Netlink::connect(NETLINK_NETFILTER).context("open a netlink socket")?;
    netlink.order(DELETE, &body).context("ask")
}

/// Number of connections that each host began. Takes about a microsecond for each entry.
pub fn by_source() -> anyhow::Result<BTreeMap<IpAddr, u64>> {
    let netlink = Netlink::connect(NETLINK_NETFILTER).context("open a netlink socket")?;
    let every_family = [libc::AF_UNSPEC as u8, 0, 0, 0];
    let mut sources = BTreeMap::new();
    let asked = netlink.dump(GET, &every_family, |_, body| {
        let attributes = body.get(FAMILY_HEADER..).unwrap_or_default();
        if let Some(source) = source(attributes) {
            *sources.entry(source).or_default() += 1;
        }
    });
    asked.context("list connections")?;
    Ok(sources)
}

fn source(attributes: &[u8]) -> Option<IpAddr> {
    let ip = find_in(attributes, &[TUPLE_ORIGINAL, TUPLE_IP])?;
    let mut kinds = Family::ALL.map(address_kinds).into_iter();
    address_of(kinds.find_map(|[source, _]| find(ip, source))?)
}

/// The UDP conversations of one family; none if no packets are tracked here.
pub fn udp(family: Family) -> anyhow::Result<Option<Conversations>> {
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    let is_on = count.is_ok_and(|count| count.trim() != "0");
    let Some(timeouts) = Timeouts::read().filter(|_| is_on) else {
        return Ok(None);
    };
    let netlink = Netlink::connect(NETLINK_NETFILTER).context("open a netlink socket")?;
    let mut found = Conversations::default();
    let asked = netlink.dump(GET, &udp_of(family), |_, body| {
        let attributes = body.get(FAMILY_HEADER..).unwrap_or_default();
        found.0.extend(conversation(attributes, timeouts));
    });
    asked.context("list connections")?;
    Ok(Some(found))
}

impl Conversations {
    /// The conversation between two ends.
    pub fn between(&self, local: SocketAddr, remote: SocketAddr) -> Conversation {
        let here = self
            .0
            .get(&[local, remote])
            .map(|idle| (Begun::Here, *idle));
        let there = || {
            self.0
                .get(&[remote, local])
                .map(|idle| (Begun::There, *idle))
        };
        let known = here.or_else(there);
        Conversation {
            local,
            remote,
            idle: known.map_or(Duration::MAX, |(_, idle)| idle),
            begun: known.map(|(begun, _)| begun),
        }
    }

    /// The latest conversation of a local port with a remote end, whatever the local address.
    pub fn latest(&self, port: u16, remote: SocketAddr) -> Option<Conversation> {
        let is_its = |local: &SocketAddr| local.port() == port;
        let locals = self.0.keys().filter_map(|[from, to]| match () {
            () if *to == remote && is_its(from) => Some(*from),
            () if *from == remote && is_its(to) => Some(*to),
            () => None,
        });
        let all = locals.map(|local| self.between(local, remote));
        all.min_by_key(|conversation| conversation.idle)
    }
}

fn udp_of(family: Family) -> Vec<u8> {
    let (mut protocol, mut tuple, mut filter) = (vec![], vec![], vec![]);
    attribute(&mut protocol, PROTOCOL_NUMBER, &[libc::IPPROTO_UDP as u8]);
    nested(&mut tuple, TUPLE_PROTOCOL, &protocol);
    attribute(&mut filter, FILTER_ORIGINAL, &BY_PROTOCOL.to_ne_bytes());
    let mut body = family_header(family);
    nested(&mut body, TUPLE_ORIGINAL, &tuple);
    nested(&mut body, FILTER, &filter);
    body
}

fn conversation(attributes: &[u8], timeouts: Timeouts) -> Option<([SocketAddr; 2], Duration)> {
    let ends = endpoints(find(attributes, TUPLE_ORIGINAL)?)?;
    let number = |kind| Some(u32::from_be_bytes(find(attributes, kind)?.try_into().ok()?));
    let is_assured = number(STATUS)? & ASSURED != 0;
    let left = Duration::from_secs(number(TIMEOUT)?.into());
    Some((ends, timeouts.idle(is_assured, left)))
}

fn endpoints(tuple: &[u8]) -> Option<[SocketAddr; 2]> {
    let ip = find(tuple, TUPLE_IP)?;
    let kinds = Family::ALL.map(address_kinds);
    let of = |end: usize| {
        let address = kinds.iter().find_map(|kinds| find(ip, kinds[end]))?;
        let port = find_in(tuple, &[TUPLE_PROTOCOL, PORTS[end]])?;
        let port = u16::from_be_bytes(port.try_into().ok()?);
        Some(SocketAddr::new(address_of(address)?, port))
    };
    Some([of(0)?, of(1)?])
}

impl Timeouts {
    fn read() -> Option<Self> {
        let of = |name: &str| {
            let path = format!("/proc/sys/net/netfilter/nf_conntrack_udp_timeout{name}");
            let seconds = fs::read_to_string(path).ok()?.trim().parse().ok()?;
            Some(Duration::from_secs(seconds))
        };
        Some(Self {
            young: of("")?,
            assured: of("_stream")?,
        })
    }

    /// Computed from the rest of the timeout, which the kernel reports in whole seconds. If the rest is longer than the timeout
    /// should be, the conversation counts as busy.
    fn idle(self, is_assured: bool, left: Duration) -> Duration {
        const ROUNDED: Duration = Duration::from_secs(1);
        let whole = if is_assured { self.assured } else { self.young };
        whole.saturating_sub(left).saturating_sub(ROUNDED)
    }
}

fn family_header(family: Family) -> Vec<u8> {
    vec![number_of(family), 0, 0, 0]
}

/// The attributes for source and destination.
fn address_kinds(family: Family) -> [u16; 2] {
    match family {
        Family::V4 => [1, 2],
        Family::V6 => [3, 4],
    }
}

fn address_of(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(|octets| Ipv4Addr::from(octets).into());
    let v6 = <[u8; 16]>::try_from(octets).map(|octets| Ipv6Addr::from(octets).into());
    v4.or(v6).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::UdpSocket;

    use anabranch_testbed::netns::Namespace;

    use super::*;

    /// Who began, with whom, and for how many seconds there has been no packet.
    pub fn conversations(all: &[(&str, &str, u64)]) -> Conversations {
        let all = all.iter().map(|(from, to, idle)| {
            let ends = [from, to].map(|end| end.parse().unwrap());
            (ends, Duration::from_secs(*idle))
        });
        Conversations(all.collect())
    }

    #[test]
    fn a_conversation_is_idle_for_what_its_timeout_has_run_at_least() {
        let seconds = Duration::from_secs;
        let timeouts = Timeouts {
            young: seconds(30),
            assured: seconds(120),
        };
        for (is_assured, left, idle) in [
            (true, 120, 0),
            (true, 119, 0),
            (true, 118, 1),
            (true, 20, 99),
            (false, 30, 0),
            (false, 27, 2),
            // Of a timeout that somebody set for it alone.
            (true, 600, 0),
        ] {
            let told = timeouts.idle(is_assured, seconds(left));
            assert_eq!(told, seconds(idle), "{left} s of {is_assured}");
        }
    }

    #[test]
    fn connections_are_counted_by_who_began_them() {
        let host = Namespace::create("counted").unwrap();
        host.ip("link set lo up").unwrap();
        let tracks =
            "table ip t { chain c { type filter hook output priority 0; ct state new counter; }; }";
        host.nft(tracks).unwrap();
        let counted = host.run(|| {
            // Kept until they are counted: the port of one that is closed may be given to the next.
            let sockets = [(2, 40), (3, 7)].map(|(number, connections)| {
                let own = IpAddr::from([127, 0, 0, number]);
                let socket = |_| UdpSocket::bind((own, 0)).unwrap();
                (0..connections).map(socket).collect::<Vec<_>>()
            });
            for socket in sockets.iter().flatten() {
                socket.send_to(b"?", "127.0.0.1:53").unwrap();
            }
            by_source().unwrap()
        });
        let counted = counted.unwrap();
        let of = |number| counted.get(&IpAddr::from([127, 0, 0, number]));
        assert_eq!((of(2), of(3)), (Some(&40), Some(&7)), "{counted:?}");
    }
}
