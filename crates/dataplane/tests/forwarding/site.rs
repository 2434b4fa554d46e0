//! A site with two links in namespaces, the real programs on its gateway, and an internet that has no way back to
//! the LAN's addresses: only what was translated is answered.

use std::{
    io::{Read, Write},
    net::TcpStream,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use anabranch_core::{ClassId, DataPlane, Family, LinkCounters, LinkId};
use anabranch_dataplane::{Error, Gateway, LinkPath, Role, Route, Settings, Sizes, Verdict};
use anabranch_testbed::netns::Namespace;
use nix::net::if_::if_nametoindex;

use crate::common::*;

/// The namespaces and the gateway between them. The gateway's handle may be used from any thread; attaching and RSTs
/// need its namespace, which [`Site::in_gateway`] enters.
pub struct Site {
    pub client: Namespace,
    pub gateway: Namespace,
    pub internet: Namespace,
    pub plane: Option<Gateway>,
    pub pins: PathBuf,
}

impl Site {
    /// The topology alone.
    pub fn bare() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let client =
            Namespace::create("client").expect("these tests need root and network namespaces");
        let gateway = Namespace::create("gateway").unwrap();
        let internet = Namespace::create("internet").unwrap();
        for node in [&client, &gateway, &internet] {
            tell_every_error(node);
        }

        client.veth("eth0", &gateway, "lan0").unwrap();
        for address in [CLIENT, SECOND_CLIENT] {
            client.add_address("eth0", address.into(), 24).unwrap();
        }
        gateway.add_address("lan0", GATEWAY_LAN.into(), 24).unwrap();
        client
            .ip(&format!("route add default via {GATEWAY_LAN}"))
            .unwrap();
        for (link, (external, isp)) in EXTERNAL.iter().zip(ISP).enumerate() {
            let device = format!("wan{link}");
            gateway
                .veth(&device, &internet, &format!("isp{link}"))
                .unwrap();
            gateway
                .add_address(&device, IpAddr::V4(*external), 24)
                .unwrap();
            internet
                .add_address(&format!("isp{link}"), isp.into(), 24)
                .unwrap();
        }
        for server in [SERVER, SECOND_SERVER] {
            internet.add_address("lo", server.into(), 32).unwrap();
        }
        let pins = PathBuf::from(format!("/sys/fs/bpf/anabranch-{unique}"));
        Site {
            client,
            gateway,
            internet,
            plane: None,
            pins,
        }
    }

    /// With the gateway loaded, attached, and balancing round-robin over both links.
    pub fn new() -> Self {
        let mut site = Self::bare();
        site.start(Sizes {
            flows_max: 4096,
            embryos_max: 1024,
            hosts_max: 64,
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
        let open = || -> Result<_, Error> {
            let (mut plane, adopted) = Gateway::open(&self.pins, sizes)?;
            plane.set_settings(settings)?;
            tell_links(&mut plane)?;
            plane.install(ClassId::DEFAULT, Family::V4, &round_robin(0b11))?;
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
        self.in_gateway(|plane| {
            let path = link_path(link, mtu);
            plane
                .set_link(LinkId(link), Family::V4, Some(&path))
                .unwrap();
        });
    }

    /// The LAN, and the gateway's device in it, take packets of `mtu` bytes.
    pub fn set_lan_mtu(&mut self, mtu: u32) {
        self.client.set_mtu("eth0", mtu).unwrap();
        self.gateway.set_mtu("lan0", mtu).unwrap();
        let role = Role::lan([GATEWAY_LAN.into()]);
        self.in_gateway(|plane| plane.attach(index_of("lan0"), role, false, mtu).unwrap());
    }

    /// New flows take the links in `usable`.
    pub fn install(&mut self, usable: u64) {
        self.plane()
            .install(ClassId::DEFAULT, Family::V4, &round_robin(usable))
            .unwrap();
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
        } else {
            std::fs::remove_dir_all(&self.pins).ok();
        }
    }
}

/// Lifts the kernel's limits on ICMP errors (icmp(7)): a test may provoke more of them than a host would send.
fn tell_every_error(node: &Namespace) {
    for (limit, value) in [
        ("icmp_ratelimit", "0"),
        ("icmp_msgs_per_sec", "1000000"),
        ("icmp_msgs_burst", "1000000"),
    ] {
        let key = format!("net/ipv4/{limit}");
        // Before Linux 6.12 the limits on all errors together are the host's, and of no namespace.
        match node.set_sysctl(&key, value) {
            Err(_) if limit != "icmp_ratelimit" => {}
            result => result.unwrap(),
        }
    }
}

fn tell_links(plane: &mut Gateway) -> Result<(), Error> {
    let lan = index_of("lan0");
    plane.attach(lan, Role::lan([GATEWAY_LAN.into()]), false, 1500)?;
    let mut routes = vec![
        Route {
            prefix: (Ipv4Addr::new(10, 0, 0, 0).into(), 24),
            verdict: Verdict::Lan {
                ifindex: lan,
                via: None,
            },
        },
        Route {
            prefix: (GATEWAY_LAN.into(), 32),
            verdict: Verdict::Local,
        },
    ];
    for (link, external) in EXTERNAL.into_iter().enumerate() {
        let id = LinkId(link as u16);
        let path = link_path(id.0, 1500);
        plane.set_link(id, Family::V4, Some(&path))?;
        plane.attach(path.ifindex, Role::Link(id), false, 1500)?;
        routes.push(Route {
            prefix: (external.into(), 32),
            verdict: Verdict::Local,
        });
    }
    plane.set_routes(&routes)
}

/// In the gateway's namespace.
fn link_path(link: u16, mtu: u32) -> LinkPath {
    LinkPath {
        external: EXTERNAL[usize::from(link)].into(),
        gateway: Some(ISP[usize::from(link)].into()),
        prefix: None,
        ifindex: index_of(&format!("wan{link}")),
        mtu,
        point_to_point: false,
    }
}

fn index_of(device: &str) -> u32 {
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
