//! Sockets of the host itself.
//!
//! A connected UDP socket keeps its source address, and thereby its link, for as long as it is open. A client of a
//! resolver or time server would send over a dead link forever. So such sockets are aborted (sock_diag(7),
//! SOCK_DESTROY of Linux 4.9): the owner gets ECONNABORTED, and connects again over a link that works. A socket that is
//! bound to a device wants that device, and is left alone. TCP has timers of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rtnetlink::sys::protocols::NETLINK_SOCK_DIAG;

use super::netlink::{Netlink, find};

/// linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// States of TCP (net/tcp_states.h). UDP sockets have that of a connection if they are connected, else that of a closed one.
const ESTABLISHED: u32 = 1;
const CLOSE: u32 = 7;
const LISTEN: u32 = 10;
/// Offset of the id in `struct inet_diag_msg` of linux/inet_diag.h.
const ID_AT: usize = 4;
const FOUND: usize = ID_AT + ID + 20;
/// The attribute with the mark.
const MARK: u16 = 15;
/// Length of `struct inet_diag_sockid`: ports, addresses of sixteen bytes (IPv4 uses the first four), device and cookie.
const ID: usize = 48;
const ADDRESSES_AT: [usize; 2] = [4, 20];
const DEVICE: std::ops::Range<usize> = 36..40;
const COOKIE_AT: usize = 40;

/// A connected socket that is bound to no device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Mark of its packets, for routing rules.
    pub mark: u32,
    /// Family of the socket: an IPv6 socket may carry IPv4.
    family: u8,
    id: [u8; ID],
}

/// All sockets that are connected from an address.
pub fn connected_from(source: IpAddr) -> io::Result<Vec<Connected>> {
    let mut found = Vec::new();
    each(libc::IPPROTO_UDP, ESTABLISHED, |socket| {
        found.extend((socket.local.ip() == source).then_some(socket));
    })?;
    Ok(found)
}

/// Where programs wait for connections or datagrams.
pub fn listening() -> io::Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for (protocol, state) in [(libc::IPPROTO_TCP, LISTEN), (libc::IPPROTO_UDP, CLOSE)] {
        each(protocol, state, |socket| found.push(socket.local))?;
    }
    Ok(found)
}

/// How many connections of TCP to these addresses are established.
pub fn connections_to(addresses: &[IpAddr]) -> io::Result<u64> {
    let mut count = 0;
    each(libc::IPPROTO_TCP, ESTABLISHED, |socket| {
        count += u64::from(addresses.contains(&socket.local.ip()));
    })?;
    Ok(count)
}

/// Passes each socket of a protocol and state that is bound to no device.
fn each(protocol: i32, state: u32, mut take: impl FnMut(Connected)) -> io::Result<()> {
    let netlink = Netlink::connect(NETLINK_SOCK_DIAG)?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        let asked = request(family as u8, protocol, state, &[0; ID]);
        netlink.dump(SOCK_DIAG_BY_FAMILY, &asked, |_, body| {
            read(body).into_iter().for_each(&mut take);
        })?;
    }
    Ok(())
}

impl Connected {
    /// Aborts it. Returns whether it still existed.
    pub fn abort(&self) -> io::Result<bool> {
        let netlink = Netlink::connect(NETLINK_SOCK_DIAG)?;
        let which = request(self.family, libc::IPPROTO_UDP, ESTABLISHED, &self.id);
        match netlink.order(SOCK_DESTROY, &which) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            told => told.map(|()| true),
        }
    }

    /// A number that the kernel never gives to another socket.
    pub fn cookie(&self) -> [u8; 8] {
        std::array::from_fn(|place| self.id[COOKIE_AT + place])
    }
}

/// Builds a `struct inet_diag_req_v2`.
fn request(family: u8, protocol: i32, state: u32, id: &[u8; ID]) -> Vec<u8> {
    let states: u32 = 1 << state;
    let mut request = vec![family, protocol as u8, 0, 0];
    request.extend(states.to_ne_bytes());
    request.extend(id);
    request
}

fn read(body: &[u8]) -> Option<Connected> {
    let family = *body.first()?;
    let id: [u8; ID] = body.get(ID_AT..ID_AT + ID)?.try_into().ok()?;
    if id[DEVICE] != [0; 4] {
        return None;
    }
    let end = |place: usize| {
        let port = u16::from_be_bytes(*id[place * 2..].first_chunk()?);
        let octets = &id[ADDRESSES_AT[place]..];
        let address = match i32::from(family) {
            libc::AF_INET => Ipv4Addr::from(*octets.first_chunk::<4>()?).into(),
            _ => Ipv6Addr::from(*octets.first_chunk::<16>()?).to_canonical(),
        };
        Some(SocketAddr::new(address, port))
    };
    let mark = find(body.get(FOUND..)?, MARK);
    let mark = mark.and_then(|mark| Some(u32::from_ne_bytes(mark.try_into().ok()?)));
    Some(Connected {
        local: end(0)?,
        remote: end(1)?,
        mark: mark.unwrap_or_default(),
        family,
        id,
    })
}
