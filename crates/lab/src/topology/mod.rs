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

mod changes;
mod error;
mod gateway;
mod lay;
pub(crate) mod peers;
pub(crate) mod ready;
mod report;
mod server;
mod spec;
pub mod tcp;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use anabranch_scenario::{Family, Tally};
use anabranch_testbed::emulator::{Emulator, Link};
use anabranch_testbed::netns::Namespace;

use gateway::Running;
use lay::{lay_access, lay_lan};

pub(crate) use error::io_error;
pub use error::{LabError, Result};
pub use gateway::{Anabranch, Gateway, configuration};
pub(crate) use lay::{
    address_wan, host_bits, lan, lan_network, lay_transit, let_forward, route_lan, server_network,
    settle, transit, wan,
};
pub use report::LabReport;
pub use server::{HttpServer, ZEROS};
pub use spec::{Access, IspSpec, LAN_DEVICE, LAN_PREFIX_LEN, LabSpec, SERVER, Told};
pub(crate) use spec::{CLIENTS, SERVER_PORT, SERVERS, distance};

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
