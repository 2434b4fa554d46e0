//! What the judge remembers of a round: what passed before a packet says what may pass after it.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use crate::build::End;
use crate::read::Ip;
use crate::site::Port;

/// A mapping: protocol, LAN endpoint, and when it began.
type Mapping = (u8, End, u64);

/// A fragmented datagram on one side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Datagram {
    link: Option<u8>,
    proto: u8,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    id: u16,
}

impl Datagram {
    fn of(port: Port, ip: &Ip) -> Self {
        Datagram {
            link: match port {
                Port::Lan(_) => None,
                Port::Link(link) => Some(link),
            },
            proto: ip.proto(),
            src: ip.src(),
            dst: ip.dst(),
            id: ip.id(),
        }
    }
}

/// Ports of the first fragments that came, and the id under which the last of them was sent.
#[derive(Clone, Debug, Default)]
struct Begun {
    ports: HashSet<(u16, u16)>,
    sent_as: Option<u16>,
}

#[derive(Debug, Default)]
pub struct Memory {
    /// Remote addresses that mappings spoke to.
    spoken: HashSet<(Mapping, Ipv4Addr)>,
    datagrams: HashMap<Datagram, Begun>,
}

impl Memory {
    /// The LAN host of a mapping sent something to `remote`.
    pub fn speak(&mut self, mapping: Mapping, remote: Ipv4Addr) {
        self.spoken.insert((mapping, remote));
    }

    /// Whether address-dependent filtering lets `remote` speak to a mapping (RFC 4787 REQ-8).
    pub fn hears(&self, mapping: Mapping, remote: Ipv4Addr) -> bool {
        self.spoken.contains(&(mapping, remote))
    }

    /// A packet came that may begin a fragmented datagram, and left like this if it was sent.
    pub fn begin(&mut self, port: Port, came: &Ip, left: Option<&Ip>) {
        let Some(ports) = came.ports() else { return };
        if !came.is_fragment() && !came.may_fragment() {
            return;
        }
        let begun = self.datagrams.entry(Datagram::of(port, came)).or_default();
        begun.ports.insert(ports);
        begun.sent_as = left.filter(|left| left.is_fragment()).map(Ip::id);
    }

    /// The ports that a later fragment may be of.
    pub fn ports_of(&self, port: Port, later: &Ip) -> impl Iterator<Item = (u16, u16)> {
        let begun = self.datagrams.get(&Datagram::of(port, later));
        begun
            .into_iter()
            .flat_map(|begun| begun.ports.iter().copied())
    }

    /// The id its first fragment was sent under.
    pub fn id_of(&self, port: Port, later: &Ip) -> Option<u16> {
        self.datagrams.get(&Datagram::of(port, later))?.sent_as
    }
}
