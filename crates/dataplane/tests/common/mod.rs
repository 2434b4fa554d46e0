//! A site with two links in namespaces, the real programs on its gateway, and an internet that has no way back to
//! the LAN's addresses: only what was translated is answered.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use anabranch_core::{Choice, DataPlane, LinkCounters, LinkId};
use anabranch_dataplane::{Error, Gateway, LinkPath, Role, Route, Settings, Sizes, Verdict};
use anabranch_lab::netns::Namespace;
use anabranch_policy::{Dispatch, Load, abi};
use nix::net::if_::if_nametoindex;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const SECOND_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
pub const GATEWAY_LAN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const EXTERNAL: [Ipv4Addr; 2] = [Ipv4Addr::new(203, 0, 113, 2), Ipv4Addr::new(192, 0, 2, 2)];
pub const ISP: [Ipv4Addr; 2] = [Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(192, 0, 2, 1)];
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub const SECOND_SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);

pub const SECOND_NS: u64 = 1_000_000_000;

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
        let pins = self.pins.clone();
        let (plane, adopted) = self
            .gateway
            .run(|| -> Result<_, Error> {
                let (mut plane, adopted) = Gateway::open(&pins, sizes)?;
                plane.set_settings(&settings())?;
                tell_links(&mut plane)?;
                plane.install(&round_robin(0b11))?;
                Ok((plane, adopted))
            })
            .unwrap()
            .unwrap();
        self.plane = Some(plane);
        adopted
    }

    pub fn plane(&mut self) -> &mut Gateway {
        self.plane.as_mut().expect("the gateway was started")
    }

    /// Runs `work` in the gateway's namespace.
    pub fn in_gateway<T: Send>(&mut self, work: impl FnOnce(&mut Gateway) -> T + Send) -> T {
        let plane = self.plane.as_mut().expect("the gateway was started");
        self.gateway.run(move || work(plane)).unwrap()
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
        if let Some(plane) = self.plane.take() {
            plane.close().ok();
        } else {
            std::fs::remove_dir_all(&self.pins).ok();
        }
    }
}

fn tell_links(plane: &mut Gateway) -> Result<(), Error> {
    let index = |device: &str| if_nametoindex(device).expect("the device was made");
    let lan = index("lan0");
    plane.attach(
        lan,
        Role::Lan {
            address: GATEWAY_LAN.into(),
        },
        false,
        1500,
    )?;
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
            verdict: Verdict::Kernel,
        },
    ];
    for (link, (external, isp)) in EXTERNAL.into_iter().zip(ISP).enumerate() {
        let ifindex = index(&format!("wan{link}"));
        let id = LinkId(link as u8);
        let path = LinkPath {
            external: external.into(),
            gateway: Some(isp.into()),
            ifindex,
            mtu: 1500,
            point_to_point: false,
        };
        plane.set_link(id, Some(&path))?;
        plane.attach(ifindex, Role::Link(id), false, 1500)?;
        routes.push(Route {
            prefix: (external.into(), 32),
            verdict: Verdict::Kernel,
        });
    }
    plane.set_routes(&routes)
}

/// The defaults of RFC 5382 and RFC 4787.
pub fn settings() -> Settings {
    Settings {
        tcp_established_ns: 7440 * SECOND_NS,
        tcp_transitory_ns: 240 * SECOND_NS,
        udp_ns: 300 * SECOND_NS,
        icmp_ns: 60 * SECOND_NS,
        embryo_ns: 240 * SECOND_NS,
        quota_per_host: 1000,
        flows_max: 4096,
        port_min: 1024,
        port_max: 65535,
        ephemeral_min: 32768,
        ephemeral_max: 60999,
        udp_filter_open: 0,
        fallback_mark: 0,
    }
}

/// Round-robin over the links in `usable`.
pub fn round_robin(usable: u32) -> Choice {
    let mut choice = Choice {
        dispatch: Dispatch::Weighted.into(),
        load: Load::Dispatched.into(),
        count: 2,
        usable,
        ..Choice::default()
    };
    choice.target = [abi::Target {
        weight: 1,
        dispatched_base: 0,
    }; abi::MAX_LINKS];
    choice
}
