//! The addresses of the site under test: two LANs, a network behind a LAN router, three links, some of the internet.

use std::fmt;
use std::net::Ipv4Addr;

use anabranch_policy::abi;
use anyhow::{Context, bail};

/// Devices towards the LAN, and links.
pub const LANS: u8 = 2;
/// Of the gateway.
pub const LINKS: u16 = 3;
/// The link that is a layer-3 device: its packets have no Ethernet header.
pub const BARE_LINK: u16 = 2;

/// The gateway's address on each link.
pub const EXTERNAL: [Ipv4Addr; LINKS as usize] = [
    Ipv4Addr::new(203, 0, 113, 2),
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv4Addr::new(198, 18, 0, 2),
];
/// The next hop of each link.
pub const ISP: [Ipv4Addr; LINKS as usize] = [
    Ipv4Addr::new(203, 0, 113, 1),
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(198, 18, 0, 1),
];
/// The gateway's address on each LAN device.
pub const GATEWAY: [Ipv4Addr; LANS as usize] =
    [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1)];
/// A router on the first LAN, and what is behind it.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
/// Network and length of its prefix.
pub const BEHIND_ROUTER: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 9, 0, 0), 16);

/// The LANs' prefixes, with the device that leads there.
pub const LAN_PREFIXES: [(Ipv4Addr, u8, u8); 3] = [
    (Ipv4Addr::new(10, 0, 0, 0), 24, 0),
    (Ipv4Addr::new(10, 0, 1, 0), 24, 1),
    (BEHIND_ROUTER.0, BEHIND_ROUTER.1, 0),
];

/// LAN hosts, with the device they are on.
pub const HOSTS: [(Ipv4Addr, u8); 6] = [
    (Ipv4Addr::new(10, 0, 0, 2), 0),
    (Ipv4Addr::new(10, 0, 0, 3), 0),
    (Ipv4Addr::new(10, 0, 0, 4), 0),
    (Ipv4Addr::new(10, 0, 1, 2), 1),
    (Ipv4Addr::new(10, 0, 1, 3), 1),
    (Ipv4Addr::new(10, 9, 3, 7), 0),
];

/// Of the internet. `BPF_PROG_TEST_RUN` takes the kind of a packet from bytes 12 and 13, which on a layer-3 link are half
/// of the source: only 8.0.0.0/16 is IPv4 there.
pub const SERVERS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(198, 51, 100, 10),
    Ipv4Addr::new(198, 51, 100, 11),
    Ipv4Addr::new(8, 0, 0, 10),
    Ipv4Addr::new(8, 0, 0, 11),
];

/// External ports, and those of them that are the host's own, both ends included.
pub const PORTS: (u16, u16) = (1024, 65535);
/// Those of [`PORTS`] that sockets of the host use.
pub const EPHEMERAL: (u16, u16) = (32768, 60999);

/// LAN hosts that are counted.
pub const HOSTS_MAX: u32 = 1024;
/// Flows in the main table, unless a round is told less. More than a round has packets: a look walks all their places.
pub const FLOWS_MAX: u32 = 16_384;

/// What a packet may claim although nobody has it.
pub const STRANGERS: [Ipv4Addr; 9] = [
    Ipv4Addr::new(192, 168, 7, 7),
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(224, 0, 0, 251),
    Ipv4Addr::new(169, 254, 1, 1),
    Ipv4Addr::new(10, 0, 0, 77),
    Ipv4Addr::new(10, 0, 0, 255),
    Ipv4Addr::new(10, 77, 0, 1),
];

/// Where a packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// A device of a LAN, from 0.
    Lan(u8),
    /// A link, from 0.
    Link(u16),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Port::Lan(index) => write!(f, "lan{index}"),
            Port::Link(index) => write!(f, "wan{index}"),
        }
    }
}

impl std::str::FromStr for Port {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> anyhow::Result<Self> {
        let all = Port::all();
        let named = |port: &Port| port.to_string() == word;
        let found = all.into_iter().find(named);
        found.with_context(|| format!("{word}: allowed are lan0, lan1, wan0, wan1, wan2"))
    }
}

impl Port {
    /// LAN devices first.
    pub fn all() -> Vec<Port> {
        let lans = (0..LANS).map(Port::Lan);
        lans.chain((0..LINKS).map(Port::Link)).collect()
    }

    /// Bytes before the IP header of what arrives here.
    pub fn header(self) -> usize {
        match self {
            Port::Link(BARE_LINK) => 0,
            _ => crate::read::ETHERNET,
        }
    }
}

/// Whether an address is of a prefix.
pub fn is_within(address: Ipv4Addr, (network, length): (Ipv4Addr, u8)) -> bool {
    (address.to_bits() ^ network.to_bits()) >> (32 - length) == 0
}

/// The LAN device that leads to an address, if it is of the LAN.
pub fn lan_of(address: Ipv4Addr) -> Option<u8> {
    let mut prefixes = LAN_PREFIXES.iter();
    let found = prefixes.find(|&&(network, length, _)| is_within(address, (network, length)));
    found.map(|&(_, _, lan)| lan)
}

/// The link that has this external address.
pub fn link_of(external: Ipv4Addr) -> Option<u16> {
    let found = EXTERNAL.iter().position(|&address| address == external);
    found.map(|index| index as u16)
}

/// No router forwards what is for such an address.
pub fn is_never_forwarded(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 0 || first == 127 || first >= 224 || (first, second) == (169, 254)
}

/// Never the internet's, or known to the kernel better than to the gateway: routed by the kernel.
pub fn is_kernels(address: Ipv4Addr) -> bool {
    is_never_forwarded(address) || lan_of(address).is_some() || link_of(address).is_some()
}

/// What one round tells the gateway, drawn from the round's seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What finds no room is the kernel's NAT's.
    pub fallback: bool,
    /// Mappings hear every remote address.
    pub udp_open: bool,
    /// Sessions stay on their link.
    pub sessions: bool,
    /// A retransmitted SYN tries another link.
    pub syn_retry: bool,
    /// The administrator has forwards in the kernel.
    pub forwards: bool,
    /// LAN sources may come by the other LAN device.
    pub loose: bool,
    /// The first of the ports that are never given away; 0: there are none.
    pub reserved: u16,
    /// A LAN device has so many flows at most, half of them unanswered; 0: as many as its hosts.
    pub device: u32,
    /// Flows of one LAN host.
    pub quota: u32,
    /// External ports, from the first on; 0: all.
    pub ports: u16,
    /// Flows in the main table.
    pub full: u32,
    /// Bit i: link i takes new flows.
    pub usable: u64,
    /// Of each link, in bytes of IP packet.
    pub mtu: [u32; LINKS as usize],
}

impl Default for Told {
    fn default() -> Self {
        Told {
            fallback: false,
            udp_open: false,
            sessions: false,
            syn_retry: false,
            forwards: false,
            loose: false,
            reserved: 0,
            device: 0,
            quota: 2000,
            ports: 0,
            full: FLOWS_MAX,
            usable: (1 << LINKS) - 1,
            mtu: [1500; LINKS as usize],
        }
    }
}

impl Told {
    /// External ports, both ends included.
    pub fn port_range(&self) -> (u16, u16) {
        match self.ports {
            0 => PORTS,
            count => (PORTS.0, PORTS.0 + count - 1),
        }
    }

    /// UDP and ICMP mappings of a host: a quarter of the ports that are not the host's own.
    pub fn mappings_per_host(&self) -> u32 {
        let (first, last) = self.port_range();
        let is_given = |port: &u16| !(EPHEMERAL.0..=EPHEMERAL.1).contains(port);
        let ports = (first..=last).filter(is_given).count() as u32;
        (ports / 4).max(1)
    }

    /// Ports that are never given away.
    pub fn reserved(&self) -> [u16; abi::RESERVED_MAX] {
        match self.reserved {
            0 => [0; abi::RESERVED_MAX],
            first => std::array::from_fn(|nth| first + nth as u16),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third] = self.mtu;
        write!(
            f,
            "fallback={} udp_open={} sessions={} syn_retry={} ",
            self.fallback, self.udp_open, self.sessions, self.syn_retry
        )?;
        write!(
            f,
            "forwards={} loose={} reserved={} device={} ",
            self.forwards, self.loose, self.reserved, self.device
        )?;
        write!(
            f,
            "quota={} ports={} full={} usable={} ",
            self.quota, self.ports, self.full, self.usable
        )?;
        write!(f, "mtu={first},{second},{third}")
    }
}

impl std::str::FromStr for Told {
    type Err = anyhow::Error;

    fn from_str(words: &str) -> anyhow::Result<Self> {
        let mut told = Told::default();
        for word in words.split_whitespace() {
            let (key, value) = word.split_once('=').context("expected key=value")?;
            match key {
                "fallback" => told.fallback = value.parse()?,
                "udp_open" => told.udp_open = value.parse()?,
                "sessions" => told.sessions = value.parse()?,
                "syn_retry" => told.syn_retry = value.parse()?,
                "forwards" => told.forwards = value.parse()?,
                "loose" => told.loose = value.parse()?,
                "reserved" => told.reserved = value.parse()?,
                "device" => told.device = value.parse()?,
                "quota" => told.quota = value.parse()?,
                "ports" => told.ports = value.parse()?,
                "full" => told.full = value.parse()?,
                "usable" => told.usable = value.parse()?,
                "mtu" => {
                    let sizes: Vec<u32> =
                        value.split(',').map(str::parse).collect::<Result<_, _>>()?;
                    told.mtu = sizes
                        .try_into()
                        .ok()
                        .context("mtu: one for each of three links")?;
                }
                _ => bail!("{key}: no such key of a round"),
            }
        }
        Ok(told)
    }
}
