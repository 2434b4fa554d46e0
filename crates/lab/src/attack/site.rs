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

use anabranch_api::{LinkState, ReasonCount, Status};
use anabranch_scenario::{Families, Family, Hosts, Peer};

use super::Subject;
use super::innocent::TCP_PORT;
use super::scene::Scene;
use super::service::{self, Proxy, virtual_address};
use crate::daemon::Daemon;
use crate::topology::{
    Anabranch, CLIENTS, LAN_DEVICE, LabSpec, Result, SERVERS as HOSTS, address_wan, configuration,
    io_error, lan, lay_transit, let_forward, peers, ready::within, route_lan, settle, tcp, wan,
};
use anabranch_testbed::emulator::{Emulator, End, Link, LinkShape};
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
    _proxy: Option<Proxy>,
    delays: Vec<Link>,
    _emulator: Emulator,
    spec: LabSpec,
    scene: Scene,
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
            _proxy: None,
            delays: Vec::new(),
            _emulator: emulator,
            spec,
            scene,
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
        site.lay_lan(round_trip)?;
        site.lay_isps()?;
        if scene == Scene::Container {
            site.lay_container()?;
        }
        scene.prepare(&site)?;
        site.start(subject, binary)?;
        Ok(site)
    }

    fn lay_lan(&mut self, round_trip: Duration) -> Result<()> {
        self.switch
            .ip(&format!("link add {BRIDGE} type bridge mcast_snooping 0"))?;
        self.switch.ip(&format!("link set {BRIDGE} up"))?;
        self.plug(&self.gateway, LAN_DEVICE, "gateway", None)?;
        polled(&self.gateway, LAN_DEVICE)?;
        let (router, length) = lan(self.family);
        self.gateway.add_address(LAN_DEVICE, router, length)?;
        // As systemd has it everywhere. Another socket of ping's would hear every ICMP error of a flood, and lose answers.
        self.gateway
            .set_sysctl("net/ipv4/ping_group_range", "0 2147483647")?;
        let metrics = tcp::route_metrics(&self.spec.tcp, self.family);
        let mut delays = Vec::new();
        for (host, port, number) in [
            (&self.victim, "innocent", VICTIM),
            (&self.newcomer, "newcomer", NEWCOMER),
            (&self.attacker, "attacker", ATTACKER),
        ] {
            let is_far = self.scene == Scene::Service && number != ATTACKER;
            let far = line(round_trip).filter(|_| is_far);
            delays.extend(self.plug(host, HOST_DEVICE, port, far)?);
            let address = CLIENTS.address(self.family, number);
            host.add_address(HOST_DEVICE, address, length)?;
        }
        // The attacker has no route: its kernel resets nothing and answers nothing.
        for host in [&self.victim, &self.newcomer] {
            host.ip(&format!("route add default via {router} {metrics}"))?;
        }
        self.delays = delays;
        Ok(())
    }

    /// A port that knows its host and learns nothing: the switch's own table is not what is attacked here. The cable may be as long
    /// as a line.
    fn plug(
        &self,
        host: &Namespace,
        device: &str,
        port: &str,
        line: Option<LinkShape>,
    ) -> Result<Option<Link>> {
        let ends = [(host, device), (&self.switch, port)];
        let [near, far] = ends.map(|(namespace, device)| End { namespace, device });
        let line = line.map(|shape| self._emulator.connect(port, near, far, shape));
        let line = line.transpose()?;
        if line.is_none() {
            host.veth(device, &self.switch, port)?;
        }
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
        Ok(line)
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
            if isp.routed {
                route_lan(index, self.family, &self.spec, &self.internet)?;
            }
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

    fn start(&mut self, subject: Subject, binary: &Path) -> Result<()> {
        match subject {
            Subject::Nftables if self.scene == Scene::Service => {
                let_forward(&self.gateway, self.spec.families)?;
                service::load_nftables(&self.gateway, self.family)
            }
            Subject::Nftables => peers::start(Peer::Nftables, &self.gateway, &self.spec).map(drop),
            Subject::Haproxy => {
                self._proxy = Some(Proxy::start(&self.gateway, self.family)?);
                Ok(())
            }
            Subject::Anabranch => {
                let running = Anabranch::start(&self.gateway, binary, &self.configuration())?;
                self.under_test = Some(running);
                within(READY, "every link has answered a probe", || {
                    Ok(self.status()?.is_some_and(|status| are_probed(&status)))
                })
            }
        }
    }

    fn configuration(&self) -> String {
        if self.scene == Scene::Service {
            return service::configuration(self.family);
        }
        let probes = format!("probe.targets = [\"icmp:{}\"]\n", self.server());
        configuration(&self.spec, &(probes + self.scene.settings()))
    }

    /// Until the innocents may call: the internet's servers answer.
    pub fn wait_for_service(&self) -> Result<()> {
        let called = self.called(TCP_PORT)[0];
        within(READY, "a connection reaches a server", || {
            let is_up = |state: &LinkState| *state == LinkState::Up;
            let said = self.status()?.map(|status| Said::of(&status));
            let all_up = said.is_none_or(|said| said.states.iter().all(is_up));
            Ok(all_up && self.victim.connect(called, READY).is_ok())
        })
    }

    /// Of what is under test, if it is anabranch.
    pub fn status(&self) -> Result<Option<Status>> {
        let mut daemon = self.daemon()?;
        daemon.as_mut().map(Daemon::status).transpose()
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

    /// Where the innocents call: the internet's hosts, or the service of some of them.
    pub fn called(&self, port: u16) -> Vec<SocketAddr> {
        match self.scene {
            Scene::Service => vec![(virtual_address(self.family), port).into()],
            _ => self.servers(port),
        }
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

    /// Of the first link.
    pub fn next_hop(&self) -> IpAddr {
        let access = self.spec.isps[0].access[self.family];
        access.expect("every link of this site").next_hop
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

/// What a gateway says of its links, or a balancer of its servers.
pub(super) struct Said {
    pub states: Vec<LinkState>,
    pub reasons: Vec<ReasonCount>,
}

impl Said {
    pub fn of(status: &Status) -> Self {
        let (mut states, mut reasons) = (Vec::new(), Vec::new());
        if let Some(gateway) = &status.gateway {
            states.extend(gateway.links.iter().map(|link| link.state));
            reasons.extend_from_slice(&gateway.reasons);
        }
        if let Some(all) = &status.services {
            let servers = all.services.iter().flat_map(|service| &service.servers);
            states.extend(servers.map(|server| match server.usable {
                true => LinkState::Up,
                false => LinkState::Down,
            }));
            reasons.extend_from_slice(&all.reasons);
        }
        Self { states, reasons }
    }
}

fn are_probed(status: &Status) -> bool {
    let links = status.gateway.iter().flat_map(|gateway| &gateway.links);
    links
        .into_iter()
        .all(|link| link.state == LinkState::Up && link.probe.round_trip_ms.is_some())
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
    if scene == Scene::Service {
        // To servers there is one way, and they know where the clients are.
        spec.isps.truncate(1);
        spec.isps[0].routed = true;
        return spec;
    }
    for (index, isp) in spec.isps.iter_mut().enumerate() {
        let is_far = scene.has_nearest_link() && index > 0;
        isp.beyond = line(round_trip + if is_far { DETOUR } else { Duration::ZERO });
    }
    spec
}

/// One that makes this round trip, if it takes any time.
fn line(round_trip: Duration) -> Option<LinkShape> {
    let one_way_us = round_trip.as_micros() as u64 / 2;
    (one_way_us > 0).then(|| LinkShape::new(RATE_BPS, RATE_BPS, one_way_us))
}
