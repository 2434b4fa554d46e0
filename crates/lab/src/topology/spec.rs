//! What to build: clients, ISPs, servers, and which addresses they have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_core::PerFamily;
use anabranch_core::catalogue::TargetKind;
use anabranch_scenario::{Declared, Families, Family, Hosts, NEAREST, Tcp, hops_to};
use anabranch_testbed::emulator::LinkShape;

use super::{LabError, Result};

/// The gateway's device towards the clients.
pub const LAN_DEVICE: &str = "lan0";
/// Of the clients' IPv4 network.
pub const LAN_PREFIX_LEN: u8 = 16;
/// Each client has the next address.
pub(crate) const CLIENTS: Hosts = Hosts {
    first: Ipv4Addr::new(10, 80, 1, 1),
    network: Ipv6Addr::new(0xfd00, 0x80, 0, 0, 0, 0, 0, 0),
};
pub(super) const CLIENTS_MAX: u16 = 10_000;
/// The web server's IPv4 address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// Each address of the web server is the next.
pub(crate) const SERVERS: Hosts = Hosts {
    first: SERVER,
    network: Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0),
};
pub(crate) const SERVER_PORT: u16 = 80;

/// One ISP.
#[derive(Debug, Clone, PartialEq)]
pub struct IspSpec {
    /// Of the link in the gateway's configuration.
    pub name: String,
    /// The last mile.
    pub shape: LinkShape,
    /// Between the ISP's router and the internet; a plain cable if absent.
    pub beyond: Option<LinkShape>,
    /// The name of the line beyond, if ISPs share it: all those that have the same name here.
    pub shares: Option<String>,
    /// What it gives the gateway of each address family, where it has that family.
    pub access: PerFamily<Option<Access>>,
    /// IP MTU between the ISP's router and the internet; smaller than the link's for path MTU discovery.
    pub path_mtu_bytes: u32,
    /// No NAT: the LAN's addresses are known to the ISP, and through it to the internet.
    pub routed: bool,
    /// What the gateway is told of the link besides its device and that.
    pub told: Told,
}

/// What DHCP, or a router's advertisement, would tell the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The gateway's external address.
    pub address: IpAddr,
    /// Of the network that `address` is in.
    pub prefix_len: u8,
    /// The ISP's router. Several ISPs may give theirs the same address.
    pub next_hop: IpAddr,
}

/// What a gateway's configuration says of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Its rates.
    pub rates: Declared,
    /// That it is metered.
    pub metered: bool,
    /// Its weight for weighted policies, if any is told.
    pub weight: Option<u32>,
}

impl Default for Told {
    /// The rates and nothing else.
    fn default() -> Self {
        Self {
            rates: Declared::Actual(true),
            metered: false,
            weight: None,
        }
    }
}

impl IspSpec {
    /// ISP `index` with networks of its own: 100.64.`index`.2, next hop 100.64.`index`.1, and 2001:db8:64:`index`::2, next hop
    /// 2001:db8:64:`index`::1.
    pub fn new(index: u8, name: &str, shape: LinkShape) -> Self {
        Self {
            name: name.into(),
            shape,
            beyond: None,
            shares: None,
            access: Self::accesses(index, 2),
            path_mtu_bytes: 1500,
            routed: false,
            told: Told::default(),
        }
    }

    /// ISP `index` in one network of each family with all ISPs made like this: 100.64.255.(`index` + 2), next hop 100.64.255.1, and
    /// likewise in 2001:db8:64:ff::/64.
    pub fn with_common_next_hop(index: u8, name: &str, shape: LinkShape) -> Self {
        Self {
            access: Self::accesses(255, index + 2),
            ..Self::new(index, name, shape)
        }
    }

    /// Of host `host` in network `network`, whose router is host 1.
    fn accesses(network: u8, host: u8) -> PerFamily<Option<Access>> {
        PerFamily::from_fn(|family| {
            let address = |host: u8| match family {
                Family::V4 => IpAddr::from([100, 64, network, host]),
                Family::V6 => {
                    let (network, host) = (network.into(), host.into());
                    IpAddr::from([0x2001, 0xdb8, 0x64, network, 0, 0, 0, host])
                }
            };
            Some(Access {
                address: address(host),
                prefix_len: match family {
                    Family::V4 => 24,
                    Family::V6 => 64,
                },
                next_hop: address(1),
            })
        })
    }

    /// What it gives of those of the families that it has.
    pub(super) fn accesses_of(&self, families: Families) -> impl Iterator<Item = (Family, Access)> {
        let accesses = families.list().iter();
        accesses.filter_map(|&family| Some((family, self.access[family]?)))
    }
}

/// What to build.
#[derive(Debug, Clone, PartialEq)]
pub struct LabSpec {
    /// Of clients, links and servers.
    pub families: Families,
    /// Clients on the LAN, each with an address of each family.
    pub clients: u16,
    /// In the order of their links.
    pub isps: Vec<IspSpec>,
    /// Addresses of the web server, from [`SERVER`] on.
    pub servers: u8,
    /// Of clients and server, as far as the kernel lets itself be told: see [`tcp`](super::tcp).
    pub tcp: Tcp,
    /// Segmentation and checksum offload on the LAN cable.
    pub lan_offloads: bool,
    /// Files the web server has by name, as `/bytes/<size>`, for programs that ask for no ranges of [`ZEROS`](super::ZEROS).
    pub file_bytes: Vec<u64>,
    /// Decides which packets lossy links lose.
    pub seed: u64,
}

impl LabSpec {
    /// Addresses of the web server at most.
    pub const SERVERS_MAX: u8 = 200;

    /// IPv4, four clients, the kernel's TCP with CUBIC, offloads on, the 50 250-byte page object of Peng 2005 and a file of 1 MB.
    pub fn new(isps: Vec<IspSpec>) -> Self {
        Self {
            families: Families::V4,
            clients: 4,
            isps,
            servers: 1,
            tcp: Tcp::default(),
            lan_offloads: true,
            file_bytes: vec![50_250, 1_000_000],
            seed: 1,
        }
    }

    /// One ISP a line: its name, its rates down and up in bit/s, and its round trip in ms, half of it each way.
    pub fn of_lines(lines: &[(&str, u64, u64, u64)]) -> Self {
        let isp =
            |(index, (name, down_bps, up_bps, round_trip_ms)): (u8, &(&str, u64, u64, u64))| {
                let shape = LinkShape::new(*down_bps, *up_bps, round_trip_ms * 1000 / 2);
                IspSpec::new(index, name, shape)
            };
        Self::new((0..).zip(lines).map(isp).collect())
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |key, value: &dyn ToString, allowed: String| {
            Err(LabError::Spec {
                key,
                value: value.to_string(),
                allowed,
            })
        };
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return wrong("clients", &self.clients, format!("1 to {CLIENTS_MAX}"));
        }
        let links_max = TargetKind::Link.row().max;
        if !(1..=links_max).contains(&self.isps.len()) {
            return wrong("isps", &self.isps.len(), format!("1 to {links_max}"));
        }
        if !(1..=Self::SERVERS_MAX).contains(&self.servers) {
            return wrong(
                "servers",
                &self.servers,
                format!("1 to {}", Self::SERVERS_MAX),
            );
        }
        for (index, isp) in self.isps.iter().enumerate() {
            let others = &self.isps[..index];
            if others.iter().any(|other| other.name == isp.name) {
                return wrong("isps.name", &isp.name, "a name used once".into());
            }
            for (_, access) in isp.accesses_of(self.families) {
                let others = others.iter().flat_map(|other| other.access.values());
                let mut others = others.flatten();
                if others.any(|other| other.address == access.address) {
                    let allowed = "an address used once".into();
                    return wrong("isps.access.address", &access.address, allowed);
                }
            }
            if !(576..=1500).contains(&isp.path_mtu_bytes) {
                return wrong(
                    "isps.path_mtu_bytes",
                    &isp.path_mtu_bytes,
                    "576 to 1500".into(),
                );
            }
        }
        Ok(())
    }

    pub(super) fn clients_of(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        (0..self.clients).map(move |index| CLIENTS.address(family, index.into()))
    }

    /// The web server, by its first address.
    pub fn server(&self) -> SocketAddr {
        let address = SERVERS.address(self.families.list()[0], 0);
        SocketAddr::new(address, SERVER_PORT)
    }

    /// The first ISP that has the line beyond which this one has, if that is another.
    pub(super) fn shared_with(&self, index: usize) -> Option<usize> {
        let name = self.isps[index].shares.as_ref()?;
        let first = self
            .isps
            .iter()
            .position(|isp| isp.shares.as_ref() == Some(name));
        first.filter(|first| *first != index)
    }

    pub(super) fn servers_of(&self, family: Family) -> impl Iterator<Item = SocketAddr> {
        let address = move |index: u8| SERVERS.address(family, index.into());
        (0..self.servers).map(move |index| SocketAddr::new(address(index), SERVER_PORT))
    }
}

/// As in the simulator; who is no server is as near as the first.
pub(crate) fn distance(address: IpAddr) -> u16 {
    let number = SERVERS.number(address);
    let server = number.and_then(|number| u8::try_from(number).ok());
    server.map_or(NEAREST, |server| hops_to(server.into()))
}
