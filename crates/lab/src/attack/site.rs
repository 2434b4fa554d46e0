//! Where attacks happen.
//!
//! ```text
//!  attacker ──┐                        ┌ wan0 ── customer ▼ router ══ delay ══┐
//!  innocent ──┤ switch ── lan0 gateway ┼ wan1 ── customer ▼ router ══ delay ══┤ internet
//!  newcomer ──┘                        └ wan2 ── customer ▼ router ══ delay ══┘ 198.51.100.10 …
//! ```
//!
//! All cables up to the routers are plain virtual Ethernet, received through NAPI as a network card's driver would. At
//! `▼` a program counts what the attack sent and drops it, so that only the innocent's packets are delayed behind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anabranch_api::{GatewayStatus, LinkState};
use anabranch_scenario::{Families, Family, Hosts, Peer};

use super::Subject;
use super::scene::Scene;
use crate::daemon::Daemon;
use crate::topology::{
    Anabranch, CLIENTS, LAN_DEVICE, LabSpec, Result, SERVERS as HOSTS, address_wan, configuration,
    io_error, lan, lay_transit, peers, ready::within, settle, tcp, wan,
};
use anabranch_testbed::emulator::{Emulator, Link, LinkShape};
use anabranch_testbed::netns::{Counters, Namespace};

/// Who is who among [`CLIENTS`].
pub(super) const VICTIM: u32 = 0;
const NEWCOMER: u32 = 1;
pub(super) const ATTACKER: u32 = 0x0541;
/// The gateway's end of the cable to its container, and the container's.
pub(super) const CONTAINER: Hosts = Hosts {
    first: Ipv4Addr::new(172, 17, 0, 1),
    network: Ipv6Addr::new(0xfd00, 0x17, 0, 0, 0, 0, 0, 0),
};
/// A host's device, and the routers' towards the gateway.
pub(super) const HOST_DEVICE: &str = "lan";
pub(super) const ISP_DEVICE: &str = "customer";
const BRIDGE: &str = "br0";
const SERVERS: u32 = 8;
const ISPS: [&str; 3] = ["fiber", "cable", "lte"];
const RATE_BPS: u64 = 1_000_000_000;
/// By which links are further that are not the nearest.
const DETOUR: Duration = Duration::from_millis(100);
const READY: Duration = Duration::from_secs(20);

/// Where an attack comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A host on the LAN.
    Lan,
    /// Beyond the first ISP.
    Internet,
}

/// A running site. Dropping it ends its processes, then removes its namespaces: in the order of the fields.
pub(super) struct Site {
    under_test: Option<Anabranch>,
    delays: Vec<Link>,
    _emulator: Emulator,
    spec: LabSpec,
    family: Family,
    pub victim: Namespace,
    pub newcomer: Namespace,
    pub attacker: Namespace,
    switch: Namespace,
    pub gateway: Namespace,
    /// Of the gateway's machine, where there is one.
    pub container: Option<Namespace>,
    pub routers: Vec<Namespace>,
    pub internet: Namespace,
}

/// A cable, from the end where the attack enters it.
pub(super) struct Cable<'a> {
    pub near: &'a Namespace,
    pub device: &'static str,
    far: (&'a Namespace, &'static str),
}

impl Cable<'_> {
    /// Of the near end's device.
    pub fn index(&self) -> Result<u32> {
        let index = self
            .near
            .run(|| nix::net::if_::if_nametoindex(self.device))?;
        index.map_err(|errno| io_error(format!("looking for {}", self.device))(errno.into()))
    }

    /// Of the sender, and of whom the frames are for.
    pub fn macs(&self) -> Result<[[u8; 6]; 2]> {
        let (far, device) = self.far;
        Ok([self.near.mac(self.device)?, far.mac(device)?])
    }
}

impl Site {
    /// Builds everything and waits for the gateway under test. The round trip is that of the innocents' packets.
    pub fn build(
        subject: Subject,
        family: Family,
        binary: &Path,
        round_trip: Duration,
        scene: Scene,
    ) -> Result<Self> {
        let spec = spec(family, round_trip, scene);
        let hosts = ["innocent", "newcomer", "attacker"].map(Namespace::create);
        let [victim, newcomer, attacker] = hosts;
        let (victim, newcomer, attacker) = (victim?, newcomer?, attacker?);
        let switch = Namespace::create("switch")?;
        let gateway = Namespace::create("gateway")?;
        let internet = Namespace::create("internet")?;
        for namespace in [&victim, &newcomer, &attacker, &switch, &gateway, &internet] {
            settle(namespace, &spec.tcp, spec.families)?;
        }
        let emulator = Emulator::start(spec.seed)?;
        let mut site = Self {
            under_test: None,
            delays: Vec::new(),
            _emulator: emulator,
            spec,
            family,
            victim,
            newcomer,
            attacker,
            switch,
            gateway,
            container: None,
            routers: Vec::new(),
            internet,
        };
        site.lay_lan()?;
        site.lay_isps()?;
        if scene == Scene::Container {
            site.lay_container()?;
        }
        scene.prepare(&site)?;
        site.start(subject, binary, scene)?;
        Ok(site)
    }

    fn lay_lan(&self) -> Result<()> {
        self.switch
            .ip(&format!("link add {BRIDGE} type bridge mcast_snooping 0"))?;
        self.switch.ip(&format!("link set {BRIDGE} up"))?;
        self.plug(&self.gateway, LAN_DEVICE, "gateway")?;
        polled(&self.gateway, LAN_DEVICE)?;
        let (router, length) = lan(self.family);
        self.gateway.add_address(LAN_DEVICE, router, length)?;
        // As systemd has it everywhere. Another socket of ping's would hear every ICMP error of a flood, and lose answers.
        self.gateway
            .set_sysctl("net/ipv4/ping_group_range", "0 2147483647")?;
        let metrics = tcp::route_metrics(&self.spec.tcp, self.family);
        for (host, port, number) in [
            (&self.victim, "innocent", VICTIM),
            (&self.newcomer, "newcomer", NEWCOMER),
            (&self.attacker, "attacker", ATTACKER),
        ] {
            self.plug(host, HOST_DEVICE, port)?;
            let address = CLIENTS.address(self.family, number);
            host.add_address(HOST_DEVICE, address, length)?;
        }
        // The attacker has no route: its kernel resets nothing and answers nothing.
        for host in [&self.victim, &self.newcomer] {
            host.ip(&format!("route add default via {router} {metrics}"))?;
        }
        Ok(())
    }

    /// A port that knows its host and learns nothing: the switch's own table is not what is attacked here.
    fn plug(&self, host: &Namespace, device: &str, port: &str) -> Result<()> {
        host.veth(device, &self.switch, port)?;
        self.switch
            .ip(&format!("link set {port} master {BRIDGE}"))?;
        polled(&self.switch, port)?;
        let known = host.mac(device)?.map(|byte| format!("{byte:02x}"));
        for words in [
            format!("link set dev {port} learning off flood off"),
            format!("fdb replace {} dev {port} master static", known.join(":")),
        ] {
            let words: Vec<_> = words.split(' ').collect();
            self.switch.exec("bridge", &words)?;
        }
        Ok(())
    }

    fn lay_isps(&mut self) -> Result<()> {
        for server in self.servers(0) {
            let length = if server.is_ipv6() { 128 } else { 32 };
            self.internet.add_address("lo", server.ip(), length)?;
        }
        self.internet.set_sysctl("net/core/somaxconn", "4096")?;
        for (index, isp) in self.spec.isps.iter().enumerate() {
            let router = Namespace::create(&isp.name)?;
            settle(&router, &self.spec.tcp, self.spec.families)?;
            let device = wan(index);
            self.gateway.veth(&device, &router, ISP_DEVICE)?;
            polled(&self.gateway, &device)?;
            polled(&router, ISP_DEVICE)?;
            if let Some(access) = isp.access[self.family] {
                router.add_address(ISP_DEVICE, access.next_hop, access.prefix_len)?;
            }
            address_wan(index, &self.spec, &self.gateway)?;
            let delay = lay_transit(
                index,
                &self.spec,
                &self._emulator,
                [&router, &self.internet],
                None,
            )?;
            self.delays.extend(delay);
            self.routers.push(router);
        }
        Ok(())
    }

    /// Known to the tables of links as well, which marks of connections choose at nftables' gateway.
    fn lay_container(&mut self) -> Result<()> {
        let container = Namespace::create("container")?;
        settle(&container, &self.spec.tcp, self.spec.families)?;
        self.gateway.veth(BRIDGE, &container, HOST_DEVICE)?;
        let [router, server] = [0, 1].map(|number| CONTAINER.address(self.family, number));
        let length = if server.is_ipv6() { 64 } else { 24 };
        self.gateway.add_address(BRIDGE, router, length)?;
        container.add_address(HOST_DEVICE, server, length)?;
        for table in peers::tables(&self.spec) {
            let whole = if server.is_ipv6() { 128 } else { 32 };
            self.gateway.ip(&format!(
                "route add {server}/{whole} dev {BRIDGE} table {table}"
            ))?;
        }
        self.container = Some(container);
        Ok(())
    }

    fn start(&mut self, subject: Subject, binary: &Path, scene: Scene) -> Result<()> {
        match subject {
            Subject::Nftables => peers::start(Peer::Nftables, &self.gateway, &self.spec).map(drop),
            Subject::Anabranch => {
                let probes = format!("probe.targets = [\"icmp:{}\"]\n", self.server());
                let text = configuration(&self.spec, &(probes + scene.settings()));
                let running = Anabranch::start(&self.gateway, binary, &text)?;
                self.under_test = Some(running);
                self.wait_for_links()
            }
        }
    }

    fn wait_for_links(&self) -> Result<()> {
        within(READY, "every link has answered a probe", || {
            let links = self.status()?.map_or_else(Vec::new, |status| status.links);
            let answered = |link: &anabranch_api::LinkStatus| {
                link.state == LinkState::Up && link.probe.round_trip_ms.is_some()
            };
            Ok(links.iter().all(answered))
        })
    }

    /// Of the gateway under test, if it is anabranch.
    pub fn status(&self) -> Result<Option<GatewayStatus>> {
        let mut daemon = self.daemon()?;
        daemon.as_mut().map(Daemon::gateway_status).transpose()
    }

    /// The gateway under test, if it is anabranch.
    pub fn daemon(&self) -> Result<Option<Daemon>> {
        let running = self.under_test.as_ref();
        running
            .map(|running| Daemon::connect(running.instance()))
            .transpose()
    }

    /// Of everything here.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The first of the internet's hosts.
    pub fn server(&self) -> IpAddr {
        HOSTS.address(self.family, 0)
    }

    /// The internet's hosts, at a port.
    pub fn servers(&self, port: u16) -> Vec<SocketAddr> {
        let address = |number| HOSTS.address(self.family, number);
        (0..SERVERS)
            .map(|number| (address(number), port).into())
            .collect()
    }

    /// Of the first link.
    pub fn external(&self) -> IpAddr {
        self.external_of(0)
    }

    /// Of a link.
    pub fn external_of(&self, index: usize) -> IpAddr {
        let access = self.spec.isps[index].access[self.family];
        access.expect("every link of this site").address
    }

    pub fn lan_cable(&self) -> Cable<'_> {
        Cable {
            near: &self.attacker,
            device: HOST_DEVICE,
            far: (&self.gateway, LAN_DEVICE),
        }
    }

    pub fn internet_cable(&self) -> Cable<'_> {
        Cable {
            near: &self.routers[0],
            device: ISP_DEVICE,
            far: (&self.gateway, "wan0"),
        }
    }

    /// Packets that the cables from the attack's end to the gateway had no room for. Of the attack, but for an
    /// innocent's now and then.
    pub fn refused(&self, from: From) -> Result<u64> {
        let cables: &[_] = match from {
            From::Lan => &[(&self.attacker, HOST_DEVICE), (&self.switch, "gateway")],
            From::Internet => &[(&self.routers[0], ISP_DEVICE)],
        };
        let mut refused = 0;
        for (namespace, device) in cables {
            refused += namespace.counters(device)?.tx_dropped;
        }
        Ok(refused)
    }

    /// Packets that devices on the innocents' way have dropped. What the attacker's own cable refuses is not on it.
    pub fn device_drops(&self) -> Result<u64> {
        let mut devices: Vec<(&Namespace, String)> = vec![
            (&self.victim, HOST_DEVICE.into()),
            (&self.newcomer, HOST_DEVICE.into()),
            (&self.switch, "innocent".into()),
            (&self.switch, "newcomer".into()),
            (&self.switch, "gateway".into()),
            (&self.gateway, LAN_DEVICE.into()),
        ];
        for (index, router) in self.routers.iter().enumerate() {
            devices.push((&self.gateway, wan(index)));
            devices.push((router, ISP_DEVICE.into()));
            devices.push((router, "upstream".into()));
            devices.push((&self.internet, format!("isp{index}")));
        }
        let mut drops = 0;
        for (namespace, device) in devices {
            let Counters {
                rx_dropped,
                tx_dropped,
                ..
            } = namespace.counters(&device)?;
            drops += rx_dropped + tx_dropped;
        }
        for delay in &self.delays {
            let report = delay.report()?;
            let faults = [report.up.faults, report.down.faults];
            let unread: u64 = faults.iter().map(|fault| fault.unread + fault.device).sum();
            drops += report.device_drops + unread;
        }
        Ok(drops)
    }
}

/// What the attack sends goes to these addresses, or comes from them: set apart for benchmarks (RFC 2544, RFC 5180), and nobody
/// else's here. The ISPs' devices count and drop what goes there.
pub(super) fn foreign(family: Family) -> (IpAddr, u32) {
    match family {
        Family::V4 => (Ipv4Addr::new(198, 18, 0, 0).into(), 15),
        Family::V6 => (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).into(), 48),
    }
}

/// Receives through NAPI, in a ring, instead of the processor's one backlog for all devices.
fn polled(namespace: &Namespace, device: &str) -> Result<()> {
    namespace.exec("ethtool", &["-K", device, "gro", "on"])?;
    Ok(())
}

fn spec(family: Family, round_trip: Duration, scene: Scene) -> LabSpec {
    let lines = ISPS.map(|name| (name, RATE_BPS, RATE_BPS, 0));
    let mut spec = LabSpec::of_lines(&lines);
    spec.families = match family {
        Family::V4 => Families::V4,
        Family::V6 => Families::V6,
    };
    for (index, isp) in spec.isps.iter_mut().enumerate() {
        let is_far = scene.has_nearest_link() && index > 0;
        let round_trip = round_trip + if is_far { DETOUR } else { Duration::ZERO };
        let one_way_us = round_trip.as_micros() as u64 / 2;
        if one_way_us > 0 {
            isp.beyond = Some(LinkShape::new(RATE_BPS, RATE_BPS, one_way_us));
        }
    }
    spec
}
