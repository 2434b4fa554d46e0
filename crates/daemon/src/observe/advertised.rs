//! Records which routers have advertised which prefixes (RFC 4861 section 4.2). The kernel, or another program that processes
//! advertisements, makes addresses from the prefixes, but does not record which router they came from.
//!
//! A socket receives the advertisements as well. It is read at each inspection of the host: a new address causes an inspection, and
//! by then the advertisement is in the socket. Time is counted in advertisements, because only their order matters.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, Protocol, Socket, Type};

use super::Prefix;

/// Types of ICMPv6.
const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
/// Length of the fixed part of an advertisement; options follow.
const HEADER: usize = 16;
const PREFIX_INFORMATION: u8 = 3;
/// Maximum number of messages read in one inspection, so that a flood of advertisements does not delay it.
const READ_MAX: usize = 512;
/// After this many further advertisements, the address of a prefix has had time to appear.
const RECENT: u64 = 64;

/// linux/icmpv6.h
const ICMPV6_FILTER: libc::c_int = 1;

sockopt_impl!(
    /// Types of messages that are not received, a bit each.
    Filter,
    SetOnly,
    libc::IPPROTO_ICMPV6,
    ICMPV6_FILTER,
    [u32; 8]
);

/// A prefix that a router on the segment of a device advertises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// The router's address on the segment.
    pub router: IpAddr,
    /// The prefix, with a preferred lifetime that is not zero.
    pub prefix: Prefix,
    /// Number of the first advertisement with it, ...
    pub first: u64,
    /// ... and of the last.
    pub last: u64,
}

/// Receives the advertisements on all devices.
pub(super) struct Listener {
    socket: UdpSocket,
    heard: Heard,
    /// Devices on which a solicitation was sent.
    asked: BTreeSet<u32>,
}

/// The first and the last advertisement, by device, router and prefix.
#[derive(Debug, Default)]
struct Heard {
    prefixes: BTreeMap<(u32, Ipv6Addr, Prefix), (u64, u64)>,
    count: u64,
}

impl Listener {
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        let mut filter = [u32::MAX; 8];
        filter[usize::from(ADVERTISEMENT / 32)] &= !(1 << (ADVERTISEMENT % 32));
        setsockopt(&socket, Filter, &filter)?;
        socket.set_nonblocking(true)?;
        socket.set_multicast_hops_v6(255)?;
        Ok(Self {
            socket: socket.into(),
            heard: Heard::default(),
            asked: BTreeSet::new(),
        })
    }

    /// Reads the advertisements that have come since the last time.
    pub fn hear(&mut self) {
        let mut message = [0; 1500];
        for _ in 0..READ_MAX {
            let Ok((length, SocketAddr::V6(from))) = self.socket.recv_from(&mut message) else {
                return;
            };
            self.heard.take(from, &message[..length]);
        }
    }

    /// Sends one solicitation on a device, because most routers advertise only every few minutes (RFC 4861 section 6.2.1).
    pub fn ask(&mut self, ifindex: u32) {
        if self.asked.insert(ifindex) {
            let all_routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
            let to = SocketAddrV6::new(all_routers, 0, 0, ifindex);
            // Without an answer, the router's next advertisement will do.
            let _ = self
                .socket
                .send_to(&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0], to);
        }
    }

    /// The prefixes advertised on a device.
    pub fn of(&self, ifindex: u32) -> Vec<Advertised> {
        self.heard.of(ifindex)
    }

    /// Forgets prefixes of which the device has no address.
    pub fn keep(&mut self, is_used: impl Fn(u32, Prefix) -> bool) {
        self.heard.keep(is_used);
    }
}

impl Heard {
    fn take(&mut self, from: SocketAddrV6, message: &[u8]) {
        let is_router = from.ip().is_unicast_link_local();
        if !is_router || message.len() < HEADER || message[0] != ADVERTISEMENT {
            return;
        }
        self.count += 1;
        let now = self.count;
        for prefix in preferred_prefixes(&message[HEADER..]) {
            let key = (from.scope_id(), *from.ip(), prefix);
            self.prefixes.entry(key).or_insert((now, now)).1 = now;
        }
    }

    fn of(&self, ifindex: u32) -> Vec<Advertised> {
        let all = self.prefixes.iter();
        all.filter(|((device, ..), _)| *device == ifindex)
            .map(|(&(_, router, prefix), &(first, last))| Advertised {
                router: router.into(),
                prefix,
                first,
                last,
            })
            .collect()
    }

    fn keep(&mut self, is_used: impl Fn(u32, Prefix) -> bool) {
        let recent = self.count.saturating_sub(RECENT);
        self.prefixes
            .retain(|(ifindex, _, prefix), (_, last)| *last > recent || is_used(*ifindex, *prefix));
    }
}

/// The prefixes in the options of an advertisement (RFC 4861 section 4.6.2).
fn preferred_prefixes(mut options: &[u8]) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    while let [kind, eights, ..] = *options {
        let length = usize::from(eights) * 8;
        let Some(option) = options.get(..length).filter(|option| !option.is_empty()) else {
            break;
        };
        options = &options[length..];
        if kind != PREFIX_INFORMATION || length != 32 {
            continue;
        }
        let address: [u8; 16] = option[16..].try_into().unwrap_or_default();
        let is_preferred = option[8..12] != [0; 4];
        if is_preferred {
            prefixes.push(Prefix::new(IpAddr::from(address), option[2].min(128)).network());
        }
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::super::tests::prefix;
    use super::*;

    const DEVICE: u32 = 3;

    fn message(prefixes: &[(&str, u32)]) -> Vec<u8> {
        let mut message = vec![ADVERTISEMENT];
        message.resize(HEADER, 0);
        // The router's hardware address (RFC 4861 section 4.6.1).
        message.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        for (text, preferred_s) in prefixes {
            let Prefix { address, length } = prefix(text);
            let IpAddr::V6(address) = address else {
                panic!("{text}")
            };
            message.extend([PREFIX_INFORMATION, 4, length, 0xC0]);
            message.extend(7200_u32.to_be_bytes());
            message.extend(preferred_s.to_be_bytes());
            message.extend([0; 4]);
            message.extend(address.octets());
        }
        message
    }

    fn from(router: &str) -> SocketAddrV6 {
        SocketAddrV6::new(router.parse().unwrap(), 0, 0, DEVICE)
    }

    fn told(heard: &Heard) -> Vec<(String, String, u64, u64)> {
        let all = heard.of(DEVICE).into_iter();
        all.map(|one| {
            let (router, prefix) = (one.router.to_string(), one.prefix.to_string());
            (router, prefix, one.first, one.last)
        })
        .collect()
    }

    #[test]
    fn it_is_known_which_router_has_advertised_a_prefix_and_when() {
        const A: &str = "2001:db8:a::/64";
        const B: &str = "2001:db8:b::/64";
        let mut heard = Heard::default();
        heard.take(from("fe80::1"), &message(&[(A, 1800)]));
        heard.take(from("fe80::2"), &message(&[(A, 1800), (B, 1800)]));
        heard.take(from("fe80::1"), &message(&[(A, 1800), (B, 0)]));
        let entry = |router: &str, prefix: &str, first, last| {
            (router.to_owned(), prefix.to_owned(), first, last)
        };
        let expected = [
            entry("fe80::1", A, 1, 3),
            entry("fe80::2", A, 2, 2),
            entry("fe80::2", B, 2, 2),
        ];
        assert_eq!(told(&heard), expected);
        assert!(heard.of(DEVICE + 1).is_empty());
        for _ in 0..RECENT {
            heard.take(from("fe80::3"), &message(&[]));
        }
        heard.keep(|_, used| used == prefix(A));
        assert_eq!(told(&heard), expected[..2]);
    }

    #[test]
    fn what_is_cut_short_or_comes_from_afar_tells_nothing() {
        let mut heard = Heard::default();
        let whole = message(&[("2001:db8:a::/64", 1800)]);
        for length in 0..whole.len() {
            heard.take(from("fe80::1"), &whole[..length]);
        }
        heard.take(from("2001:db8::1"), &whole);
        assert!(told(&heard).is_empty());
    }
}
