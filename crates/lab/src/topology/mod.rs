//! A household behind several ISPs, and an internet with one web server.
//!
//! ```text
//!  clients ──────── gateway ── wan0 ══ emulator ══ router ──────── internet
//!  10.80.1.1 …   lan0       ── wan1 ══ emulator ══ router ────────   198.51.100.10
//!                           ── …                                    nginx
//! ```
//!
//! Clients, server and links have addresses of IPv4, of IPv6, or of both ([`LabSpec::families`]); a host's IPv6 address ends in
//! its IPv4 address. Nothing is learnt: addresses and routes are given, duplicates are not looked for. Each ISP's next hop is a router of its own, and the internet knows the way to the gateway's external addresses only:
//! a packet that leaves with a LAN address is never answered. Where ISPs know the LAN ([`IspSpec::routed`]), the internet sends to it
//! by the first of these whose lines are whole. The cable between router and internet is plain, or a
//! second emulated line for what happens beyond the last mile. The web server tells the address it saw in `X-Client`,
//! so a client learns which link carried it. Every namespace has the same, recorded TCP settings; forwarding is on in
//! the routers, and in the gateway it is the business of the [`Gateway`] under test.

mod gateway;
pub(crate) mod peers;
pub(crate) mod ready;
mod server;
pub mod tcp;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;
use std::{io, path::Path};

use anabranch_core::PerFamily;
use anabranch_core::rules::Prefix;
use anabranch_scenario::{
    Change, Declared, Direction, Families, Family, Fault, Hosts, NEAREST, Place, Tally, Tcp,
    hops_to,
};

use anabranch_testbed::emulator::{Emulator, EmulatorError, End, Link, LinkReport, LinkShape};
use anabranch_testbed::netns::{Counters, Namespace, NetnsError};

use gateway::Running;
pub use gateway::{Anabranch, Gateway, configuration};
pub use server::HttpServer;

/// The gateway's device towards the clients.
pub const LAN_DEVICE: &str = "lan0";
/// Of the clients' IPv4 network.
pub const LAN_PREFIX_LEN: u8 = 16;
/// Each client has the next address.
pub(crate) const CLIENTS: Hosts = Hosts {
    first: Ipv4Addr::new(10, 80, 1, 1),
    network: Ipv6Addr::new(0xfd00, 0x80, 0, 0, 0, 0, 0, 0),
};
const CLIENTS_MAX: u16 = 10_000;
const LINKS_MAX: usize = 16;
/// Path of a file that is longer than any that is asked for.
pub const ZEROS: &str = "/zeros";
/// The web server's IPv4 address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// Each address of the web server is the next.
pub(crate) const SERVERS: Hosts = Hosts {
    first: SERVER,
    network: Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0),
};
pub(crate) const SERVER_PORT: u16 = 80;

/// Why a laboratory cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum LabError {
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    #[error("{key} = {value}: {allowed}")]
    Spec {
        key: &'static str,
        value: String,
        allowed: String,
    },
    #[error("no link {name}; there are: {known}")]
    NoSuchLink { name: String, known: String },
    #[error("link {link} has no {family}: give it some in `access`")]
    NoSuchFamily { link: String, family: Family },
    #[error("link {link} has no second hop: give it one in `beyond`")]
    NoSecondHop { link: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{program} did not become ready in {seconds} s; its last words: {log}")]
    NotReady {
        program: String,
        seconds: u64,
        log: String,
    },
    #[error("{program} ended before it was ready ({exit:?}): {log}")]
    Ended {
        program: String,
        exit: anabranch_testbed::netns::Exit,
        log: String,
    },
    #[error("`{command}` failed: {stderr}")]
    Command { command: String, stderr: String },
    #[error("the gateway under test is not anabranch")]
    NotAnabranch,
    #[error("load: {0}")]
    Load(String),
    #[error("the gateway under test: {0}")]
    Gateway(String),
}

/// Of what is done in a laboratory.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

pub(crate) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Io { what, source }
}

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
    fn accesses_of(&self, families: Families) -> impl Iterator<Item = (Family, Access)> {
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
    /// Of clients and server, as far as the kernel lets itself be told: see [`tcp`].
    pub tcp: Tcp,
    /// Segmentation and checksum offload on the LAN cable.
    pub lan_offloads: bool,
    /// Files the web server has by name, as `/bytes/<size>`, for programs that ask for no ranges of [`ZEROS`].
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

    fn check(&self) -> Result<()> {
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
        if !(1..=LINKS_MAX).contains(&self.isps.len()) {
            return wrong("isps", &self.isps.len(), format!("1 to {LINKS_MAX}"));
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

    fn clients_of(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        (0..self.clients).map(move |index| CLIENTS.address(family, index.into()))
    }

    /// The web server, by its first address.
    pub fn server(&self) -> SocketAddr {
        let address = SERVERS.address(self.families.list()[0], 0);
        SocketAddr::new(address, SERVER_PORT)
    }

    /// The first ISP that has the line beyond which this one has, if that is another.
    fn shared_with(&self, index: usize) -> Option<usize> {
        let name = self.isps[index].shares.as_ref()?;
        let first = self
            .isps
            .iter()
            .position(|isp| isp.shares.as_ref() == Some(name));
        first.filter(|first| *first != index)
    }

    fn servers_of(&self, family: Family) -> impl Iterator<Item = SocketAddr> {
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

/// A running lab. Dropping it ends its processes, then removes its namespaces: in the order of the fields.
#[derive(Debug)]
pub struct Lab {
    spec: LabSpec,
    under_test: Running,
    server: HttpServer,
    links: Vec<Link>,
    /// The second hops, each once.
    beyond: Vec<Link>,
    /// Which of those a link has.
    beyond_of: Vec<Option<usize>>,
    emulator: Emulator,
    clients: Namespace,
    gateway: Namespace,
    routers: Vec<Namespace>,
    internet: Namespace,
}

impl Lab {
    /// Builds everything, starts the web server and the gateway under test, and waits for both.
    pub fn build(spec: &LabSpec, gateway: &Gateway) -> Result<Self> {
        spec.check()?;
        let clients = Namespace::create("clients")?;
        let inside = Namespace::create("gateway")?;
        let internet = Namespace::create("internet")?;
        for namespace in [&clients, &inside, &internet] {
            settle(namespace, &spec.tcp, spec.families)?;
        }
        tcp::check(&spec.tcp, &clients)?;
        lay_lan(spec, &clients, &inside)?;
        let families = spec.families.list().iter();
        let servers: Vec<_> = families
            .flat_map(|&family| spec.servers_of(family))
            .collect();
        for server in &servers {
            internet.add_address("lo", server.ip(), host_bits(server.ip()))?;
        }
        let emulator = Emulator::start(spec.seed)?.with_distance(distance);
        let (mut links, mut routers) = (Vec::new(), Vec::new());
        let (mut beyond, mut beyond_of) = (Vec::new(), Vec::new());
        for (index, isp) in spec.isps.iter().enumerate() {
            let router = Namespace::create(&isp.name)?;
            settle(&router, &spec.tcp, spec.families)?;
            links.push(lay_access(index, spec, &emulator, &inside, &router)?);
            let shared = spec.shared_with(index).and_then(|other| beyond_of[other]);
            let line = shared.map(|line: usize| &mut beyond[line]);
            let laid = lay_transit(index, spec, &emulator, [&router, &internet], line)?;
            beyond_of.push(shared.or(laid.is_some().then_some(beyond.len())));
            beyond.extend(laid);
            routers.push(router);
        }
        let start = match gateway.is_multipath() {
            true => HttpServer::start_multipath,
            false => HttpServer::start,
        };
        let server = start(&internet, &servers, &spec.file_bytes)?;
        let mut lab = Self {
            spec: spec.clone(),
            under_test: Running::Kernel,
            server,
            links,
            beyond,
            beyond_of,
            emulator,
            clients,
            gateway: inside,
            routers,
            internet,
        };
        lab.announce()?;
        lab.under_test = gateway.start(&lab)?;
        Ok(lab)
    }

    /// What was built.
    pub fn spec(&self) -> &LabSpec {
        &self.spec
    }

    /// The namespace of all clients.
    pub fn clients(&self) -> &Namespace {
        &self.clients
    }

    /// The namespace of the gateway under test.
    pub fn gateway(&self) -> &Namespace {
        &self.gateway
    }

    /// The namespace of the web server.
    pub fn internet(&self) -> &Namespace {
        &self.internet
    }

    /// The namespace of an ISP's router; its devices are `customer` and `upstream`.
    pub fn router(&self, link: &str) -> Result<&Namespace> {
        Ok(&self.routers[self.index(link)?])
    }

    /// The emulated access line of an ISP.
    pub fn link(&self, name: &str) -> Result<&Link> {
        Ok(&self.links[self.index(name)?])
    }

    /// The emulated access lines, in the order of the ISPs.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// All emulated lines: the last miles, then the second hops.
    pub(crate) fn hops(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().chain(&self.beyond)
    }

    fn second_hop(&self, index: usize) -> Option<&Link> {
        self.beyond_of[index].map(|line| &self.beyond[line])
    }

    /// The traces of all lines begin at `epoch`.
    pub(crate) fn restart_traces(&self, epoch: Instant) -> Result<()> {
        Ok(self.emulator.restart_traces(epoch)?)
    }

    /// The emulated second hop of an ISP.
    pub fn beyond(&self, link: &str) -> Result<&Link> {
        let hop = self.second_hop(self.index(link)?);
        hop.ok_or_else(|| LabError::NoSecondHop { link: link.into() })
    }

    /// The process under test, if it is anabranch.
    pub fn anabranch(&mut self) -> Result<&mut Anabranch> {
        match &mut self.under_test {
            Running::Anabranch(anabranch) => Ok(anabranch),
            _ => Err(LabError::NotAnabranch),
        }
    }

    /// Whether hosts speak MPTCP.
    pub(crate) fn is_multipath(&self) -> bool {
        matches!(self.under_test, Running::Endpoints)
    }

    /// What a peer under test has asked to learn of its links.
    pub(crate) fn asked(&self) -> Tally {
        match &self.under_test {
            Running::Steward(steward) => steward.asked(),
            _ => Tally::default(),
        }
    }

    /// The web server, by its first address.
    pub fn server(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// The web server's addresses of a family, in order.
    pub fn servers(&self, family: Family) -> Vec<SocketAddr> {
        let has = self.spec.families.has(family);
        self.spec.servers_of(family).filter(|_| has).collect()
    }

    /// The clients' addresses of the first family there is, in order.
    pub fn client_addresses(&self) -> Vec<IpAddr> {
        self.clients_of(self.spec.families.list()[0])
    }

    /// The clients' addresses of a family, in order.
    pub fn clients_of(&self, family: Family) -> Vec<IpAddr> {
        let has = self.spec.families.has(family);
        self.spec.clients_of(family).filter(|_| has).collect()
    }

    /// Which link an external address belongs to.
    pub fn external_addresses(&self) -> BTreeMap<IpAddr, String> {
        let of = |isp: &IspSpec| {
            let accesses = isp.accesses_of(self.spec.families);
            let addresses = accesses.map(|(_, access)| (access.address, isp.name.clone()));
            addresses.collect::<Vec<_>>()
        };
        self.spec.isps.iter().flat_map(of).collect()
    }

    /// The gateway's device of a link.
    pub fn device(&self, link: &str) -> Result<String> {
        Ok(wan(self.index(link)?))
    }

    /// Makes a link's last mile a blackhole. Returns when it took effect.
    pub fn cut(&self, link: &str) -> Result<Instant> {
        self.change(self.link(link)?, None, Change::Cut)
    }

    /// Makes a link's last mile whole again. Returns when it took effect.
    pub fn restore(&self, link: &str) -> Result<Instant> {
        self.change(self.link(link)?, None, Change::Restore)
    }

    /// Lets a fault happen at once, whatever its time. Returns when it took effect.
    pub fn apply(&self, fault: &Fault) -> Result<Instant> {
        self.change(self.hop(fault)?, fault.direction, fault.change)
    }

    fn change(&self, line: &Link, direction: Option<Direction>, change: Change) -> Result<Instant> {
        let at = line.apply(direction, change)?;
        let is_told = !matches!(self.under_test, Running::Speakers(_));
        if is_told && matches!(change, Change::Cut | Change::Restore) {
            self.announce()?;
        }
        Ok(at)
    }

    /// Has the internet send to the LAN by the first of the ISPs that know it and whose lines are whole; by the first of all if
    /// there is none. In the field BGP does this, in its own time; so does a peer that speaks it.
    fn announce(&self) -> Result<()> {
        let knows = |index: &usize| self.spec.isps[*index].routed;
        let all: Vec<usize> = (0..self.spec.isps.len()).filter(knows).collect();
        let mut chosen = all.first().copied();
        for index in all.into_iter().rev() {
            if self.is_whole(index)? {
                chosen = Some(index);
            }
        }
        let Some(index) = chosen else { return Ok(()) };
        let mut families = self.spec.isps[index].accesses_of(self.spec.families);
        families.try_for_each(|(family, _)| route_lan(index, family, &self.spec, &self.internet))
    }

    fn is_whole(&self, index: usize) -> Result<bool> {
        let mut lines = [Some(&self.links[index]), self.second_hop(index)]
            .into_iter()
            .flatten();
        lines.try_fold(true, |whole, line| Ok(whole && !line.is_cut()?))
    }

    /// The emulated line that a fault concerns.
    pub(crate) fn hop(&self, fault: &Fault) -> Result<&Link> {
        match fault.place {
            Place::LastMile => self.link(&fault.link),
            Place::Beyond => self.beyond(&fault.link),
        }
    }

    /// Deletes the gateway's device of a link.
    pub fn unplug(&self, link: &str) -> Result<()> {
        let device = self.device(link)?;
        self.gateway.ip(&format!("link delete {device}"))?;
        Ok(())
    }

    /// Makes the device that [`Lab::unplug`] deleted again, with its address and route.
    pub fn replug(&self, link: &str) -> Result<()> {
        let index = self.index(link)?;
        let device = wan(index);
        let near = End {
            namespace: &self.gateway,
            device: &device,
        };
        self.links[index].replug(near)?;
        self.routers[index].ip("neigh flush dev customer")?;
        address_wan(index, &self.spec, &self.gateway)
    }

    /// Gives the gateway another external address on a link, in the same network: what a DHCP server does.
    pub fn readdress(&mut self, link: &str, address: impl Into<IpAddr>) -> Result<()> {
        let (index, address) = (self.index(link)?, address.into());
        let family = Family::from(address);
        let isp = &mut self.spec.isps[index];
        let Some(access) = &mut isp.access[family] else {
            return Err(LabError::NoSuchFamily {
                link: link.into(),
                family,
            });
        };
        let old = std::mem::replace(&mut access.address, address);
        let (access, device) = (*access, wan(index));
        self.internet.ip(&format!("route delete {}", host(old)))?;
        route_back(index, access, &self.spec, &self.internet)?;
        if self.spec.isps[index].routed {
            lead_lan(access, &self.routers[index])?;
        }
        let prefix_len = access.prefix_len;
        self.gateway
            .ip(&format!("address delete {old}/{prefix_len} dev {device}"))?;
        address_family(index, access, &self.gateway)
    }

    /// What links and kernel did so far, and whether it can be trusted.
    pub fn report(&self) -> Result<LabReport> {
        let links = self.links.iter().map(Link::report);
        let links = links.collect::<Result<Vec<_>, _>>()?;
        let beyond = self.beyond.iter().map(Link::report);
        let beyond = beyond.collect::<Result<Vec<_>, _>>()?;
        Ok(LabReport {
            kernel: read("/proc/sys/kernel/osrelease")?,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            congestion_control: self.congestion_control()?,
            settings: self.settings()?,
            devices: self.devices()?,
            problems: links
                .iter()
                .chain(&beyond)
                .flat_map(LinkReport::problems)
                .chain(self.under_test.failure())
                .collect(),
            links,
            beyond,
            spec: self.spec.clone(),
        })
    }

    /// What a TCP connection of each namespace gets: the routes', or else the namespace's.
    fn congestion_control(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for (name, namespace) in self.namespaces() {
            let [routes, routes6] =
                ["-4", "-6"].map(|flag| namespace.ip(&format!("{flag} route show")));
            let routes = routes? + &routes6?;
            let mut words = routes.split_whitespace();
            let of_routes = words
                .find(|word| *word == "congctl")
                .and_then(|_| words.next());
            let algorithm = match of_routes {
                Some(algorithm) => algorithm.to_owned(),
                None => namespace.sysctl("net/ipv4/tcp_congestion_control")?,
            };
            found.insert(name, algorithm);
        }
        Ok(found)
    }

    fn settings(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        let mut settings = BTreeMap::new();
        for (name, namespace) in self.namespaces() {
            let read = |key: &&str| Ok((key.to_string(), namespace.sysctl(key)?));
            let read = tcp::SETTINGS.iter().map(read);
            settings.insert(name, read.collect::<Result<_>>()?);
        }
        Ok(settings)
    }

    fn devices(&self) -> Result<BTreeMap<String, Counters>> {
        let mut devices = BTreeMap::new();
        let mut read = |namespace: &Namespace, place: &str, device: &str| {
            // An unplugged device has no counters.
            if let Ok(counters) = namespace.counters(device) {
                devices.insert(format!("{place}/{device}"), counters);
            }
        };
        read(&self.clients, "clients", "lan");
        read(&self.gateway, "gateway", LAN_DEVICE);
        for (index, (isp, router)) in self.spec.isps.iter().zip(&self.routers).enumerate() {
            read(&self.gateway, "gateway", &wan(index));
            read(router, &isp.name, "customer");
            read(router, &isp.name, "upstream");
            read(&self.internet, "internet", &format!("isp{index}"));
        }
        Ok(devices)
    }

    fn namespaces(&self) -> impl Iterator<Item = (String, &Namespace)> {
        let places = [
            ("clients", &self.clients),
            ("gateway", &self.gateway),
            ("internet", &self.internet),
        ];
        let places = places.map(|(name, namespace)| (name.to_owned(), namespace));
        let isps = self.spec.isps.iter().map(|isp| isp.name.clone());
        places.into_iter().chain(isps.zip(&self.routers))
    }

    fn index(&self, link: &str) -> Result<usize> {
        let names = || self.spec.isps.iter().map(|isp| isp.name.as_str());
        names()
            .position(|name| name == link)
            .ok_or_else(|| LabError::NoSuchLink {
                name: link.into(),
                known: names().collect::<Vec<_>>().join(", "),
            })
    }
}

/// What a run needs to be believed, or not.
#[derive(Debug, Clone)]
pub struct LabReport {
    /// Its release.
    pub kernel: String,
    /// Processors this process may use.
    pub cores: usize,
    /// What was built.
    pub spec: LabSpec,
    /// By namespace.
    pub congestion_control: BTreeMap<String, String>,
    /// Sysctls by namespace.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// The kernel's counters by namespace and device.
    pub devices: BTreeMap<String, Counters>,
    /// The last miles.
    pub links: Vec<LinkReport>,
    /// The second hops, each once.
    pub beyond: Vec<LinkReport>,
    /// Why the figures cannot be trusted; empty if they can.
    pub problems: Vec<String>,
}

pub(crate) fn settle(namespace: &Namespace, tcp: &Tcp, families: Families) -> Result<()> {
    for (key, value) in tcp::settings(tcp) {
        namespace.set_sysctl(key, &value)?;
    }
    namespace.set_ipv6(families.has(Family::V6))?;
    for scope in ["all", "default"] {
        namespace.set_sysctl(&format!("net/ipv4/conf/{scope}/rp_filter"), "0")?;
    }
    Ok(())
}

pub(crate) fn wan(index: usize) -> String {
    format!("wan{index}")
}

/// Lets the kernel pass on what is not for itself.
pub(crate) fn let_forward(namespace: &Namespace, families: Families) -> Result<()> {
    for family in families.list() {
        let key = match family {
            Family::V4 => "net/ipv4/ip_forward",
            Family::V6 => "net/ipv6/conf/all/forwarding",
        };
        namespace.set_sysctl(key, "1")?;
    }
    Ok(())
}

/// Bits of an address.
pub(crate) fn host_bits(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

/// The network that is one address.
fn host(address: IpAddr) -> String {
    format!("{address}/{}", host_bits(address))
}

/// The gateway's address on the LAN, and the length of its network.
pub(crate) fn lan(family: Family) -> (IpAddr, u8) {
    match family {
        Family::V4 => ([10, 80, 0, 1].into(), LAN_PREFIX_LEN),
        Family::V6 => ([0xfd00, 0x80, 0, 0, 0, 0, 0, 1].into(), 64),
    }
}

pub(crate) fn lan_network(family: Family) -> String {
    let (address, length) = lan(family);
    Prefix::new(address, length).to_string()
}

/// The network of the web server's addresses.
pub(crate) fn server_network(family: Family) -> String {
    let length = match family {
        Family::V4 => 24,
        Family::V6 => 64,
    };
    Prefix::new(SERVERS.address(family, 0), length).to_string()
}

fn lay_lan(spec: &LabSpec, clients: &Namespace, gateway: &Namespace) -> Result<()> {
    clients.veth("lan", gateway, LAN_DEVICE)?;
    clients.set_offloads("lan", spec.lan_offloads)?;
    gateway.set_offloads(LAN_DEVICE, spec.lan_offloads)?;
    let mut batch = String::new();
    for &family in spec.families.list() {
        let (router, length) = lan(family);
        gateway.add_address(LAN_DEVICE, router, length)?;
        let unasked = match family {
            Family::V4 => "",
            Family::V6 => "nodad",
        };
        for address in spec.clients_of(family) {
            batch += &format!("address add {address}/{length} dev lan {unasked}\n");
        }
        let metrics = tcp::route_metrics(&spec.tcp, family);
        batch += &format!("route add default via {router} {metrics}\n");
    }
    clients.exec_with_input("ip", &["-batch", "-"], &batch)?;
    Ok(())
}

fn lay_access(
    index: usize,
    spec: &LabSpec,
    emulator: &Emulator,
    gateway: &Namespace,
    router: &Namespace,
) -> Result<Link> {
    let (device, isp) = (wan(index), &spec.isps[index]);
    let near = End {
        namespace: gateway,
        device: &device,
    };
    let far = End {
        namespace: router,
        device: "customer",
    };
    let link = emulator.connect(&isp.name, near, far, isp.shape.clone())?;
    for (_, access) in isp.accesses_of(spec.families) {
        router.add_address("customer", access.next_hop, access.prefix_len)?;
    }
    address_wan(index, spec, gateway)?;
    Ok(link)
}

/// What DHCP and advertisements would do: an address and a default route of each family, the first ISP's preferred.
pub(crate) fn address_wan(index: usize, spec: &LabSpec, gateway: &Namespace) -> Result<()> {
    let mut accesses = spec.isps[index].accesses_of(spec.families);
    accesses.try_for_each(|(_, access)| address_family(index, access, gateway))
}

fn address_family(index: usize, access: Access, gateway: &Namespace) -> Result<()> {
    let (device, metric) = (wan(index), 100 + index);
    gateway.add_address(&device, access.address, access.prefix_len)?;
    let next_hop = access.next_hop;
    gateway.ip(&format!(
        "route replace default via {next_hop} dev {device} metric {metric}"
    ))?;
    Ok(())
}

/// The ends of the cable between an ISP's router and the internet, and the length of their network: 192.0.2.0/30 and the
/// following, 2001:db8:2::/64 and the following.
pub(crate) fn transit(index: usize, family: Family) -> ([IpAddr; 2], u8) {
    match family {
        Family::V4 => {
            let first = 4 * index as u8;
            let ends = [first + 1, first + 2].map(|last| [192, 0, 2, last].into());
            (ends, 30)
        }
        Family::V6 => {
            let end = |last| [0x2001, 0xdb8, 2, index as u16, 0, 0, 0, last].into();
            ([end(1), end(2)], 64)
        }
    }
}

/// The line beyond, if it is a new one; `shared` is one that there is.
pub(crate) fn lay_transit(
    index: usize,
    spec: &LabSpec,
    emulator: &Emulator,
    [router, internet]: [&Namespace; 2],
    shared: Option<&mut Link>,
) -> Result<Option<Link>> {
    let device = format!("isp{index}");
    let isp = &spec.isps[index];
    let [near, far] = [(router, "upstream"), (internet, device.as_str())]
        .map(|(namespace, device)| End { namespace, device });
    let hop = match (&isp.beyond, shared) {
        (None, _) => router.veth("upstream", internet, &device).map(|()| None)?,
        (Some(_), Some(line)) => emulator.join(line, near, far).map(|()| None)?,
        (Some(shape), None) => {
            let name = match &isp.shares {
                Some(shared) => format!("{shared}, which is shared"),
                None => format!("{} beyond", isp.name),
            };
            Some(emulator.connect(&name, near, far, shape.clone())?)
        }
    };
    router.set_mtu("upstream", isp.path_mtu_bytes)?;
    internet.set_mtu(&device, isp.path_mtu_bytes)?;
    let_forward(router, spec.families)?;
    for (family, access) in isp.accesses_of(spec.families) {
        let ([router_end, internet_end], length) = transit(index, family);
        router.add_address("upstream", router_end, length)?;
        internet.add_address(&device, internet_end, length)?;
        router.ip(&format!("route add default via {internet_end}"))?;
        route_back(index, access, spec, internet)?;
        if isp.routed {
            lead_lan(access, router)?;
        }
    }
    Ok(hop)
}

/// The router sends to the LAN by the gateway.
fn lead_lan(access: Access, router: &Namespace) -> Result<()> {
    let address = access.address;
    let network = lan_network(address.into());
    router.ip(&format!("route replace {network} via {address}"))?;
    Ok(())
}

/// The internet sends to the LAN by this ISP.
fn route_lan(index: usize, family: Family, spec: &LabSpec, internet: &Namespace) -> Result<()> {
    let route = route_to_lan(index, family, spec);
    internet.ip(&format!("route replace {route}"))?;
    Ok(())
}

/// The internet's route to the LAN by an ISP, in the words of `ip route`.
fn route_to_lan(index: usize, family: Family, spec: &LabSpec) -> String {
    let ([router_end, _], _) = transit(index, family);
    let (network, metrics) = (lan_network(family), tcp::route_metrics(&spec.tcp, family));
    format!("{network} via {router_end} {metrics}")
}

/// The server announces its segments even over a smaller path MTU, so that clients have to discover it.
fn route_back(index: usize, access: Access, spec: &LabSpec, internet: &Namespace) -> Result<()> {
    let family = access.address.into();
    let ([router_end, _], _) = transit(index, family);
    let (address, metrics) = (host(access.address), tcp::route_metrics(&spec.tcp, family));
    internet.ip(&format!("route add {address} via {router_end} {metrics}"))?;
    Ok(())
}

fn read(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(io_error(format!("reading {path}")))?;
    Ok(text.trim_end().to_owned())
}

/// The last lines a process wrote, for an error of one line.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().rev().take(5).collect::<Vec<_>>();
    let mut words = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
    if words.is_empty() {
        words = "(nothing)".into();
    }
    words
}
