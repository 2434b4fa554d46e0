//! A site with two links in namespaces, in one family, the real programs on its gateway, and an internet that has no way
//! back to the LAN's addresses: only what was translated is answered.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use anabranch_core::{ClassId, DataPlane, Ended, Family, LinkCounters, LinkId};
use anabranch_dataplane::{Build, Error, Gateway, LinkPath, Role, Route, Settings, Sizes, Verdict};
use anabranch_testbed::{netns::Namespace, pins::PinFolder};
use nix::net::if_::if_nametoindex;

use crate::{
    addresses::Site as Addresses,
    common::{round_robin, settings},
    former,
};

/// The namespaces and the gateway between them. The gateway's handle may be used from any thread; attaching and RSTs
/// need its namespace, which [`Site::in_gateway`] enters.
pub struct Site {
    pub addresses: &'static Addresses,
    pub client: Namespace,
    pub gateway: Namespace,
    pub internet: Namespace,
    pub plane: Option<Gateway>,
    pub pins: PinFolder,
}

impl Site {
    /// The topology alone.
    pub fn bare(addresses: &'static Addresses) -> Self {
        let client =
            Namespace::create("client").expect("these tests need root and network namespaces");
        let gateway = Namespace::create("gateway").unwrap();
        let internet = Namespace::create("internet").unwrap();
        for node in [&client, &gateway, &internet] {
            node.set_ipv6(true).unwrap();
            tell_every_error(node);
        }
        let (_, length) = addresses.lan;
        let (_, host) = addresses.host(addresses.server);

        client.veth("eth0", &gateway, "lan0").unwrap();
        for address in [addresses.client, addresses.second_client] {
            client.add_address("eth0", address, length).unwrap();
        }
        let gateway_lan = addresses.gateway_lan;
        gateway.add_address("lan0", gateway_lan, length).unwrap();
        client
            .ip(&format!("route add default via {gateway_lan}"))
            .unwrap();
        let links = addresses.external.into_iter().zip(addresses.isp);
        for (link, (external, isp)) in links.enumerate() {
            let device = format!("wan{link}");
            gateway
                .veth(&device, &internet, &format!("isp{link}"))
                .unwrap();
            gateway.add_address(&device, external, length).unwrap();
            internet
                .add_address(&format!("isp{link}"), isp, length)
                .unwrap();
        }
        for server in [addresses.server, addresses.second_server] {
            internet.add_address("lo", server, host).unwrap();
        }
        Site {
            addresses,
            client,
            gateway,
            internet,
            plane: None,
            pins: PinFolder::name("site"),
        }
    }

    /// With the gateway loaded, attached, and balancing round-robin over both links.
    pub fn new(addresses: &'static Addresses) -> Self {
        let mut site = Self::bare(addresses);
        site.start(Sizes {
            flows_max: 4096,
            unconfirmed_max: 1024,
            hosts_max: 64,
            prefixes_max: 64,
        });
        site
    }

    /// Opens the gateway and tells it everything. Whether it adopted an earlier one's flows.
    pub fn start(&mut self, sizes: Sizes) -> bool {
        let (plane, adopted) = self.open(sizes, &settings());
        self.plane = Some(plane);
        adopted
    }

    /// The same of a gateway that is not yet the site's.
    pub fn open(&self, sizes: Sizes, settings: &Settings) -> (Gateway, bool) {
        self.open_build(sizes, settings, Build::default())
    }

    /// The gateway of the former version, without a process.
    pub fn start_former(&self, sizes: Sizes, settings: &Settings) {
        drop(self.open_build(sizes, settings, former::build()));
        former::leave(&self.pins);
    }

    fn open_build(&self, sizes: Sizes, settings: &Settings, build: Build) -> (Gateway, bool) {
        let open = || -> Result<_, Error> {
            let (mut plane, adopted) = Gateway::open_build(&self.pins, sizes, build)?;
            plane.set_settings(settings)?;
            tell_links(&mut plane, self.addresses)?;
            plane.install(ClassId::DEFAULT, self.family(), &round_robin(0b11))?;
            Ok((plane, adopted))
        };
        self.gateway.run(open).unwrap().unwrap()
    }

    /// From here on the gateway is the site's, with the flows of an earlier one.
    pub fn adopt(&mut self, (plane, adopted): (Gateway, bool)) {
        assert!(adopted);
        self.plane = Some(plane);
    }

    /// A clean end of the gateway, where its devices are.
    pub fn stop(&mut self) -> Result<(), Error> {
        let plane = self.plane.take().expect("the gateway was started");
        self.gateway.run(|| plane.close()).unwrap()
    }

    fn family(&self) -> Family {
        self.addresses.family
    }

    pub fn plane(&mut self) -> &mut Gateway {
        self.plane.as_mut().expect("the gateway was started")
    }

    /// Runs `work` in the gateway's namespace.
    pub fn in_gateway<T: Send>(&mut self, work: impl FnOnce(&mut Gateway) -> T + Send) -> T {
        let plane = self.plane.as_mut().expect("the gateway was started");
        self.gateway.run(move || work(plane)).unwrap()
    }

    /// Tells the gateway of a link, whose path takes packets of `mtu` bytes.
    pub fn set_link_mtu(&mut self, link: u16, mtu: u32) {
        let addresses = self.addresses;
        self.in_gateway(|plane| {
            let path = link_path(addresses, link, mtu);
            plane
                .set_link(LinkId(link), addresses.family, Some(&path))
                .unwrap();
        });
    }

    /// The LAN, and the gateway's device in it, take packets of `mtu` bytes.
    pub fn set_lan_mtu(&mut self, mtu: u32) {
        self.client.set_mtu("eth0", mtu).unwrap();
        self.gateway.set_mtu("lan0", mtu).unwrap();
        let role = Role::lan([self.addresses.gateway_lan]);
        self.in_gateway(|plane| plane.attach(index_of("lan0"), role, false, mtu).unwrap());
    }

    /// Tells the gateway of these routes beside those it begins with.
    pub fn add_routes(&mut self, more: &[Route]) {
        let addresses = self.addresses;
        self.in_gateway(|plane| {
            let mut all = routes(addresses);
            all.extend_from_slice(more);
            plane.set_routes(&all).unwrap();
        });
    }

    /// New flows take the links in `usable`.
    pub fn install(&mut self, usable: u64) {
        let family = self.family();
        self.plane()
            .install(ClassId::DEFAULT, family, &round_robin(usable))
            .unwrap();
    }

    /// The flows of a link end.
    pub fn end_flows(&mut self, link: LinkId) -> Ended {
        let family = self.family();
        self.in_gateway(|plane| plane.end_flows(ClassId::DEFAULT, family, link).unwrap())
    }

    /// Every device of the site finishes its packets itself, or leaves it to the next.
    pub fn set_offloads(&self, on: bool) {
        self.client.set_offloads("eth0", on).unwrap();
        for device in ["lan0", "wan0", "wan1"] {
            self.gateway.set_offloads(device, on).unwrap();
        }
        for device in ["isp0", "isp1"] {
            self.internet.set_offloads(device, on).unwrap();
        }
    }

    pub fn counters(&mut self) -> Vec<LinkCounters> {
        self.plane().counters().unwrap()
    }

    /// How often packets left for a reason, by its name as `anabranch status` prints it.
    pub fn reason(&mut self, name: &str) -> u64 {
        let reasons = self.plane().reasons().unwrap();
        reasons
            .iter()
            .find(|reason| reason.name == name)
            .unwrap_or_else(|| panic!("no reason {name}"))
            .packets
    }

    /// Flows that are open and not closed.
    pub fn live(&mut self) -> u64 {
        self.counters()
            .iter()
            .map(|link| link.flows.opened - link.flows.closed)
            .sum()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.plane.is_some() {
            self.stop().ok();
        }
    }
}

/// Lifts the kernel's limits on ICMP errors (icmp(7)): a test may provoke more of them than a host would send.
fn tell_every_error(node: &Namespace) {
    for limit in ["net/ipv4/icmp_ratelimit", "net/ipv6/icmp/ratelimit"] {
        node.set_sysctl(limit, "0").unwrap();
    }
    for limit in ["icmp_msgs_per_sec", "icmp_msgs_burst"] {
        // Before Linux 6.12 the limits on all errors together are the host's, and of no namespace.
        node.set_sysctl(&format!("net/ipv4/{limit}"), "1000000")
            .ok();
    }
}

fn tell_links(plane: &mut Gateway, addresses: &Addresses) -> Result<(), Error> {
    let lan = index_of("lan0");
    plane.attach(lan, Role::lan([addresses.gateway_lan]), false, 1500)?;
    for link in 0..addresses.external.len() {
        let id = LinkId(link as u16);
        let path = link_path(addresses, id.0, 1500);
        plane.set_link(id, addresses.family, Some(&path))?;
        plane.attach(path.ifindex, Role::Link(id), false, 1500)?;
    }
    plane.set_routes(&routes(addresses))
}

/// What is known better than the internet, in the gateway's namespace.
fn routes(addresses: &Addresses) -> Vec<Route> {
    let lan = index_of("lan0");
    let mut routes = vec![
        Route {
            prefix: addresses.lan,
            verdict: Verdict::Lan {
                ifindex: lan,
                via: None,
            },
        },
        Route {
            prefix: addresses.host(addresses.gateway_lan),
            verdict: Verdict::Local,
        },
    ];
    routes.extend(addresses.external.map(|external| Route {
        prefix: addresses.host(external),
        verdict: Verdict::Local,
    }));
    routes
}

/// In the gateway's namespace.
pub fn link_path(addresses: &Addresses, link: u16, mtu: u32) -> LinkPath {
    LinkPath {
        external: addresses.external[usize::from(link)],
        gateway: Some(addresses.isp[usize::from(link)]),
        prefix: None,
        inbound: false,
        ifindex: index_of(&format!("wan{link}")),
        mtu,
        point_to_point: false,
        shares_segment: false,
    }
}

pub fn index_of(device: &str) -> u32 {
    if_nametoindex(device).expect("the device was made")
}

/// There and back.
#[track_caller]
pub fn echo_once(client: &mut TcpStream, server: &mut TcpStream, word: &[u8]) {
    let mut heard = vec![0; word.len()];
    client.write_all(word).unwrap();
    server.read_exact(&mut heard).unwrap();
    server.write_all(&heard).unwrap();
    client.read_exact(&mut heard).unwrap();
    assert_eq!(heard, word);
}
