//! The addresses of the site under test, of both families: two LANs, a network behind a LAN router, three links, some of the
//! internet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_policy::abi;
use anyhow::{Context, bail};

/// Devices towards the LAN, and links.
pub const LANS: u8 = 2;
/// Of the gateway.
pub const LINKS: u16 = 3;
/// The link that is a layer-3 device: its packets have no Ethernet header.
pub const BARE_LINK: u16 = 2;

/// Network and length of a prefix.
pub type Prefix = (IpAddr, u8);

/// Who is where in one family.
#[derive(Debug)]
pub struct Addresses {
    /// The gateway's address on each link.
    pub external: [IpAddr; LINKS as usize],
    /// The next hop of each link.
    pub isp: [IpAddr; LINKS as usize],
    /// The gateway's address on each LAN device.
    pub gateway: [IpAddr; LANS as usize],
    /// A router on the first LAN.
    pub router: IpAddr,
    /// What is behind it.
    pub behind_router: Prefix,
    /// The LANs' prefixes, with the device that leads there.
    pub lan_prefixes: [(IpAddr, u8, u8); 3],
    /// LAN hosts, with the device they are on; the same of both families.
    pub hosts: [(IpAddr, u8); 6],
    /// Of the internet. `BPF_PROG_TEST_RUN` takes the kind of a packet from bytes 12 and 13, which on a layer-3 link are of the
    /// source: only 8.0.0.0/16 is IPv4 there, and what has 86dd as its third group IPv6.
    pub servers: [IpAddr; 4],
    /// What a packet may claim although nobody has it.
    pub strangers: [IpAddr; 9],
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// The first four groups and the last two.
const fn v6(network: [u16; 4], high: u16, low: u16) -> IpAddr {
    let [a, b, c, d] = network;
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, high, low))
}

const fn lan6(subnet: u16, host: u16) -> IpAddr {
    v6([0xfd00, 0, 0, subnet], 0, host)
}

/// Of the documentation's network (RFC 3849).
const fn net6(network: u16, host: u16) -> IpAddr {
    v6([0x2001, 0xdb8, network, 0], 0, host)
}

/// IPv4.
pub static IPV4: Addresses = Addresses {
    external: [v4(203, 0, 113, 2), v4(192, 0, 2, 2), v4(198, 18, 0, 2)],
    isp: [v4(203, 0, 113, 1), v4(192, 0, 2, 1), v4(198, 18, 0, 1)],
    gateway: [v4(10, 0, 0, 1), v4(10, 0, 1, 1)],
    router: v4(10, 0, 0, 254),
    behind_router: (v4(10, 9, 0, 0), 16),
    lan_prefixes: [
        (v4(10, 0, 0, 0), 24, 0),
        (v4(10, 0, 1, 0), 24, 1),
        (v4(10, 9, 0, 0), 16, 0),
    ],
    hosts: [
        (v4(10, 0, 0, 2), 0),
        (v4(10, 0, 0, 3), 0),
        (v4(10, 0, 0, 4), 0),
        (v4(10, 0, 1, 2), 1),
        (v4(10, 0, 1, 3), 1),
        (v4(10, 9, 3, 7), 0),
    ],
    servers: [
        v4(198, 51, 100, 10),
        v4(198, 51, 100, 11),
        v4(8, 0, 0, 10),
        v4(8, 0, 0, 11),
    ],
    strangers: [
        v4(192, 168, 7, 7),
        v4(127, 0, 0, 1),
        v4(0, 0, 0, 0),
        v4(255, 255, 255, 255),
        v4(224, 0, 0, 251),
        v4(169, 254, 1, 1),
        v4(10, 0, 0, 77),
        v4(10, 0, 0, 255),
        v4(10, 77, 0, 1),
    ],
};

/// IPv6. The first link's next hop has an address of the line alone.
pub static IPV6: Addresses = Addresses {
    external: [net6(0xa, 2), net6(0xb, 2), net6(0xc, 2)],
    isp: [v6([0xfe80, 0, 0, 0], 0, 1), net6(0xb, 1), net6(0xc, 1)],
    gateway: [lan6(0, 1), lan6(1, 1)],
    router: lan6(0, 254),
    behind_router: (lan6(0x10, 0), 60),
    lan_prefixes: [
        (lan6(0, 0), 64, 0),
        (lan6(1, 0), 64, 1),
        (lan6(0x10, 0), 60, 0),
    ],
    hosts: [
        (lan6(0, 2), 0),
        (lan6(0, 3), 0),
        (lan6(0, 4), 0),
        (lan6(1, 2), 1),
        (lan6(1, 3), 1),
        (lan6(0x13, 7), 0),
    ],
    servers: [net6(5, 10), net6(5, 11), net6(0x86dd, 10), net6(0x86dd, 11)],
    strangers: [
        v6([0xfd77, 0, 0, 0], 0, 7),
        v6([0; 4], 0, 1),
        v6([0; 4], 0, 0),
        v6([0xff02, 0, 0, 0], 0, 1),
        v6([0xff05, 0, 0, 0], 0, 2),
        v6([0xfe80, 0, 0, 0], 0, 9),
        lan6(0, 0x77),
        // Of an IPv4 host, mapped.
        IpAddr::V6(Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped()),
        lan6(0x77, 1),
    ],
};

/// Both families.
pub static FAMILIES: [&Addresses; 2] = [&IPV4, &IPV6];

/// Of an address's family.
pub fn family_of(address: IpAddr) -> &'static Addresses {
    FAMILIES[usize::from(address.is_ipv6())]
}

/// The link that translates the prefix of IPv6 alone, where a round says so, and what is routed to it then.
pub const PREFIXED_LINK: u16 = 1;
/// As long as the prefix that is told at most.
pub const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb00, 0x7700, 0, 0, 0, 0);
/// Of all that a round may tell.
const PREFIX_MIN: u8 = 48;

/// External ports, and those of them that are the host's own, both ends included.
pub const PORTS: (u16, u16) = (1024, 65535);
/// Those of [`PORTS`] that sockets of the host use.
pub const EPHEMERAL: (u16, u16) = (32768, 60999);

/// LAN hosts that are counted.
pub const HOSTS_MAX: u32 = 1024;
/// Flows in the main table, unless a round is told less. More than a round has packets: a look walks all their places.
pub const FLOWS_MAX: u32 = 16_384;

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

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// Whether an address is of a prefix.
pub fn is_within(address: IpAddr, (network, length): Prefix) -> bool {
    let ((address, size), (network, network_size)) = (bits(address), bits(network));
    size == network_size && (address ^ network) >> (size - length) == 0
}

/// The LAN device that leads to an address, if it is of the LAN.
pub fn lan_of(address: IpAddr) -> Option<u8> {
    let mut prefixes = family_of(address).lan_prefixes.iter();
    let found = prefixes.find(|&&(network, length, _)| is_within(address, (network, length)));
    found.map(|&(_, _, lan)| lan)
}

/// The link that has this external address, or may have its prefix.
pub fn link_of(external: IpAddr) -> Option<u16> {
    let mut links = (0..).zip(&family_of(external).external);
    let found = links.find(|&(_, &address)| address == external);
    let is_prefixed = is_within(external, (PREFIX.into(), PREFIX_MIN));
    found
        .map(|(link, _)| link)
        .or(is_prefixed.then_some(PREFIXED_LINK))
}

/// No router forwards what is for such an address.
pub fn is_never_forwarded(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            first == 0 || first == 127 || first >= 224 || (first, second) == (169, 254)
        }
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            first == 0 || first & 0xffc0 == 0xfe80 || first >> 8 == 0xff
        }
    }
}

/// Never the internet's, or known to the kernel better than to the gateway: routed by the kernel.
pub fn is_kernels(address: IpAddr) -> bool {
    is_never_forwarded(address) || lan_of(address).is_some() || link_of(address).is_some()
}

/// What one round tells the gateway, with what each is by default: drawn from the round's seed, and written as `KEY=VALUE`, but for the
/// links' sizes.
macro_rules! told {
    ($($(#[$doc:meta])* $key:ident: $kind:ty = $default:expr;)+) => {
        /// What one round tells the gateway, drawn from the round's seed.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Told {
            $($(#[$doc])* pub $key: $kind,)+
            /// Of each link, in bytes of IP packet.
            pub mtu: [u32; LINKS as usize],
        }

        impl Default for Told {
            fn default() -> Self {
                Told {
                    $($key: $default,)+
                    mtu: [1500; LINKS as usize],
                }
            }
        }

        impl fmt::Display for Told {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, "{}={} ", stringify!($key), self.$key)?;)+
                write!(f, "mtu={}", self.mtu.map(|size| size.to_string()).join(","))
            }
        }

        impl std::str::FromStr for Told {
            type Err = anyhow::Error;

            fn from_str(words: &str) -> anyhow::Result<Self> {
                let mut told = Told::default();
                for word in words.split_whitespace() {
                    let (key, value) = word.split_once('=').context("expected key=value")?;
                    match key {
                        $(stringify!($key) => told.$key = value.parse()?,)+
                        "mtu" => told.mtu = mtus(value)?,
                        _ => bail!("{key}: no such key of a round"),
                    }
                }
                Ok(told)
            }
        }
    };
}

fn mtus(value: &str) -> anyhow::Result<[u32; LINKS as usize]> {
    let sizes: Vec<u32> = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let sizes = sizes.try_into().ok();
    sizes.context("mtu: one for each of three links")
}

told! {
    /// What finds no room is the kernel's NAT's.
    fallback: bool = false;
    /// Mappings hear every remote address.
    udp_open: bool = false;
    /// Sessions stay on their link.
    sessions: bool = false;
    /// A retransmitted SYN tries another link.
    syn_retry: bool = false;
    /// SYNs a second that race over all links; 0: none.
    races: u32 = 0;
    /// What races is a probe each, and the SYN waits.
    holds: bool = false;
    /// The administrator has forwards in the kernel.
    forwards: bool = false;
    /// LAN sources may come by the other LAN device.
    loose: bool = false;
    /// The first of the ports that are never given away; 0: there are none.
    reserved: u16 = 0;
    /// A LAN device has so many flows at most, half of them unanswered; 0: as many as its hosts.
    device: u32 = 0;
    /// Flows of one LAN host.
    quota: u32 = 2000;
    /// External ports, from the first on; 0: all.
    ports: u16 = 0;
    /// Flows in the main table.
    full: u32 = FLOWS_MAX;
    /// Bit i: link i takes new flows.
    usable: u64 = (1 << LINKS) - 1;
    /// Bits of the prefix of IPv6 that the second link translates alone; 0: it has none.
    prefix: u8 = 0;
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

    /// What a link translates the prefix of IPv6 to, if it does no more than that.
    pub fn prefix_of(&self, link: u16) -> Option<(Ipv6Addr, u8)> {
        (link == PREFIXED_LINK && self.prefix > 0).then_some((PREFIX, self.prefix))
    }

    /// Ports that are never given away.
    pub fn reserved(&self) -> [u16; abi::RESERVED_MAX] {
        match self.reserved {
            0 => [0; abi::RESERVED_MAX],
            first => std::array::from_fn(|nth| first + nth as u16),
        }
    }
}
