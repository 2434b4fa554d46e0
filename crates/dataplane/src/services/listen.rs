//! The virtual endpoints of services.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anabranch_policy::abi::{BePort, Virtual};
use serde::Deserialize;

/// The protocols that a service may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// The datagrams between a client's endpoint and a virtual one are a connection.
    Udp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Its number in IP headers.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }
}

/// Virtual endpoints: `203.0.113.10:80` of TCP, `udp:203.0.113.10:53` of UDP, `203.0.113.10:8000-8099` of many ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Listen {
    /// The address that clients call.
    pub address: IpAddr,
    /// The first and the last of the ports.
    pub ports: [u16; 2],
    /// By which they do.
    pub protocol: Protocol,
}

/// It is not written as virtual endpoints are.
#[derive(Debug, thiserror::Error)]
#[error("not virtual endpoints")]
pub struct BadListen;

impl Listen {
    /// At an endpoint of TCP.
    pub const fn tcp(endpoint: SocketAddr) -> Self {
        Self {
            address: endpoint.ip(),
            ports: [endpoint.port(); 2],
            protocol: Protocol::Tcp,
        }
    }

    /// Whether some endpoint is of both.
    pub fn overlaps(&self, other: &Self) -> bool {
        (self.address, self.protocol) == (other.address, other.protocol)
            && self.overlaps_ports(other.ports)
    }

    /// Whether one of the ports is among these, the first and the last of a range.
    pub const fn overlaps_ports(&self, [first, last]: [u16; 2]) -> bool {
        self.ports[0] <= last && first <= self.ports[1]
    }

    /// The prefixes that have these endpoints and no others.
    pub(super) fn keys(&self) -> impl Iterator<Item = (u32, Virtual)> {
        prefixes(self.ports).map(|(port, free)| {
            let key = Virtual {
                address: self.address.into(),
                port: BePort::new(port),
                proto: self.protocol.number(),
                ..Virtual::default()
            };
            (8 * size_of::<Virtual>() as u32 - free, key)
        })
    }
}

/// The longest blocks of ports that a range consists of: the first of each, and how many of its last bits are free.
fn prefixes([first, last]: [u16; 2]) -> impl Iterator<Item = (u16, u32)> {
    let mut next = Some(u32::from(first));
    let end = u32::from(last) + 1;
    std::iter::from_fn(move || {
        let port = next.filter(|port| *port < end)?;
        let free = port.trailing_zeros().min((end - port).ilog2()).min(16);
        next = Some(port + (1 << free));
        Some((port as u16, free))
    })
}

impl FromStr for Listen {
    type Err = BadListen;

    fn from_str(text: &str) -> Result<Self, BadListen> {
        let named = Protocol::ALL.into_iter().find_map(|protocol| {
            let rest = text.strip_prefix(protocol.word())?.strip_prefix(':')?;
            Some((protocol, rest))
        });
        let (protocol, called) = named.unwrap_or((Protocol::Tcp, text));
        let (first, last) = match called.rsplit_once('-') {
            Some((first, last)) => (first, Some(last)),
            None => (called, None),
        };
        let first: SocketAddr = first.parse().map_err(|_| BadListen)?;
        let last = last.map_or(Ok(first.port()), |last| last.parse().map_err(|_| BadListen))?;
        if last < first.port() {
            return Err(BadListen);
        }
        Ok(Self {
            address: first.ip(),
            ports: [first.port(), last],
            protocol,
        })
    }
}

impl TryFrom<String> for Listen {
    type Error = BadListen;

    fn try_from(text: String) -> Result<Self, BadListen> {
        text.parse()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.protocol != Protocol::Tcp {
            write!(f, "{}:", self.protocol.word())?;
        }
        let [first, last] = self.ports;
        write!(f, "{}", SocketAddr::new(self.address, first))?;
        match first == last {
            true => Ok(()),
            false => write!(f, "-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn endpoints_are_shown_as_they_are_written() {
        for text in [
            "203.0.113.10:80",
            "udp:203.0.113.10:53",
            "203.0.113.10:8000-8099",
            "udp:[2001:db8::10]:1-65535",
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!(listen.to_string(), text);
        }
        for text in [
            "203.0.113.10",
            "sctp:203.0.113.10:80",
            "203.0.113.10:80-79",
            "203.0.113.10:80-",
            "203.0.113.10:80-65536",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_range_is_some_blocks_that_have_each_of_its_ports_once(one: u16, other: u16) {
            let [first, last] = [one.min(other), one.max(other)];
            let mut next = u32::from(first);
            let mut blocks = 0;
            for (port, free) in prefixes([first, last]) {
                prop_assert_eq!(u32::from(port), next);
                prop_assert_eq!(u32::from(port) % (1 << free), 0);
                next += 1 << free;
                blocks += 1;
            }
            prop_assert_eq!(next, u32::from(last) + 1);
            prop_assert!(blocks <= 30);
        }
    }
}
