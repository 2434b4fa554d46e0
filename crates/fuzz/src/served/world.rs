//! Who is where: the virtual endpoints, the servers and the clients, of both families.

use std::net::{IpAddr, SocketAddr};

use anabranch_core::Family;
use anabranch_dataplane::services::{Forwarding, ServiceId};
use anabranch_policy::abi::Unknown;

use crate::read::{TCP, UDP};
use crate::site::{FAMILIES, family_of};

/// How packets of a service reach its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Nat,
    /// By the hash, without entries, beyond a rate.
    Hash,
    Tunnel,
}

/// In the order of their numbers.
pub const WAYS: [Way; 3] = [Way::Nat, Way::Hash, Way::Tunnel];
/// Of each service and family.
pub const SERVERS: usize = 2;
pub const GUE_PORT: u16 = 6080;
/// Of the loopback device, beyond which all are.
pub const MTU: usize = 1500;

impl Way {
    pub fn service(self) -> ServiceId {
        ServiceId(self as u16 + 1)
    }

    pub fn forwarding(self, number: usize) -> Forwarding {
        let gue_port = (number == 0).then_some(GUE_PORT);
        match self {
            Way::Tunnel => Forwarding::Tunnel { gue_port },
            _ => Forwarding::Nat,
        }
    }

    pub fn unknown(self) -> Unknown {
        match self {
            Way::Nat => Unknown::Host,
            Way::Hash => Unknown::Hash,
            Way::Tunnel => Unknown::Drop,
        }
    }

    /// Connections a second.
    pub fn insert_limit(self) -> u32 {
        if self == Way::Hash { 20 } else { 0 }
    }

    pub fn endpoint(self, family: Family) -> SocketAddr {
        let site = FAMILIES[family.index()];
        SocketAddr::new(site.external[self as usize], 80)
    }

    /// Servers of tunnels are called at the port of the service.
    pub fn server(self, family: Family, number: usize) -> SocketAddr {
        let (address, _) = FAMILIES[family.index()].hosts[SERVERS * self as usize + number];
        let port = if self == Way::Tunnel { 0 } else { 8080 };
        SocketAddr::new(address, port)
    }

    pub fn servers(self, family: Family) -> impl Iterator<Item = SocketAddr> {
        (0..SERVERS).map(move |number| self.server(family, number))
    }
}

/// The service that is called at this endpoint. `port`: none of a later fragment.
pub fn called(proto: u8, address: IpAddr, port: Option<u16>) -> Option<Way> {
    let is_called = |way: &Way| {
        let endpoint = way.endpoint(address.into());
        endpoint.ip() == address && port.is_none_or(|port| port == endpoint.port())
    };
    let mut ways = WAYS.into_iter();
    let carries = proto == TCP || proto == UDP;
    ways.find(is_called).filter(|_| carries)
}

/// The service whose server has this endpoint and answers through this host.
pub fn answering(address: IpAddr, port: Option<u16>) -> Option<Way> {
    let is_of = |way: &Way| {
        let mut servers = way.servers(address.into());
        servers
            .any(|server| server.ip() == address && port.is_none_or(|port| port == server.port()))
    };
    let mut ways = WAYS.into_iter().filter(|way| *way != Way::Tunnel);
    ways.find(is_of)
}

/// The last ones arrive without Ethernet.
pub fn clients(family: Family) -> &'static [IpAddr; 4] {
    &FAMILIES[family.index()].servers
}

/// Whether `BPF_PROG_TEST_RUN` takes a packet from there for one of its family, if it has no Ethernet header.
pub fn is_beyond_layer3(address: IpAddr) -> bool {
    family_of(address).servers[2..].contains(&address)
}
