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

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_api::Paths;
use anabranch_api::{Client, LinkState, Request, Response, Status};
use anabranch_scenario::{Families, Family, Peer};

use super::Subject;
use crate::topology::{
    Anabranch, CLIENTS, LAN_DEVICE, LabError, LabSpec, Result, SERVERS as HOSTS, address_wan,
    configuration, io_error, lan, lay_transit, peers, settle, tcp, wan,
};
use anabranch_testbed::emulator::{Emulator, Link, LinkShape};
use anabranch_testbed::netns::{Counters, Namespace};

/// Who is who among [`CLIENTS`].
pub(super) const VICTIM: u32 = 0;
const NEWCOMER: u32 = 1;
pub(super) const ATTACKER: u32 = 0x0541;
/// A host's device, and the routers' towards the gateway.
pub(super) const HOST_DEVICE: &str = "lan";
pub(super) const ISP_DEVICE: &str = "customer";
const BRIDGE: &str = "br0";
const SERVERS: u32 = 8;
const ISPS: [&str; 3] = ["fiber", "cable", "lte"];
const RATE_BPS: u64 = 1_000_000_000;
const READY: Duration = Duration::from_secs(20);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

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
        Ok([mac(self.near, self.device)?, mac(far, device)?])
    }
}

impl Site {
    /// Builds everything and waits for the gateway under test. The round trip is that of the innocents' packets.
    pub fn build(
        subject: Subject,
        family: Family,
        binary: &Path,
        round_trip: Duration,
        beside_rules: bool,
    ) -> Result<Self> {
        let spec = spec(family, round_trip);
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
            routers: Vec::new(),
            internet,
        };
        site.lay_lan()?;
        site.lay_isps()?;
        if beside_rules {
            site.add_rule()?;
        }
        site.start(subject, binary)?;
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
        let known = mac(host, device)?.map(|byte| format!("{byte:02x}"));
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

    /// As a mesh VPN has it: a table of its own before the main table, for a network that nobody here asks.
    fn add_rule(&self) -> Result<()> {
        let (family, network) = match self.family {
            Family::V4 => ("-4", "10.99.0.0/16"),
            Family::V6 => ("-6", "fd7a:115c:a1e0::/48"),
        };
        for words in [
            format!("{family} route add unreachable {network} table 52"),
            format!("{family} rule add pref 5270 lookup 52"),
        ] {
            self.gateway.ip(&words)?;
        }
        Ok(())
    }

    fn start(&mut self, subject: Subject, binary: &Path) -> Result<()> {
        match subject {
            Subject::Nftables => peers::start(Peer::Nftables, &self.gateway, &self.spec).map(drop),
            Subject::Anabranch => {
                let settings = format!("probe.targets = [\"icmp:{}\"]\n", self.server());
                let text = configuration(&self.spec, &settings);
                let running = Anabranch::start(&self.gateway, binary, &text)?;
                self.under_test = Some(running);
                self.wait_for_links()
            }
        }
    }

    fn wait_for_links(&self) -> Result<()> {
        let deadline = Instant::now() + READY;
        loop {
            let links = self.status()?.map_or_else(Vec::new, |status| status.links);
            let answered = |link: &anabranch_api::LinkStatus| {
                link.state == LinkState::Up && link.probe.round_trip_ms.is_some()
            };
            if links.iter().all(answered) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seconds = READY.as_secs();
                let why = format!("not every link answered a probe within {seconds} s");
                return Err(LabError::Gateway(why));
            }
            thread::sleep(BETWEEN_TRIES);
        }
    }

    /// Of the gateway under test, if it is anabranch.
    pub fn status(&self) -> Result<Option<Status>> {
        let Some(running) = &self.under_test else {
            return Ok(None);
        };
        let failed = |error: &dyn std::fmt::Display| LabError::Gateway(error.to_string());
        let paths = Paths::new(running.instance()).map_err(|error| failed(&error))?;
        let mut client = Client::connect(&paths.socket()).map_err(|error| failed(&error))?;
        match client.call(&Request::Status) {
            Ok(Response::Status(status)) => Ok(Some(*status)),
            Ok(other) => Err(LabError::Gateway(format!("it answered {other:?}"))),
            Err(error) => Err(failed(&error)),
        }
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
        let access = self.spec.isps[0].access[self.family];
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
    pub fn refused(&self, from: super::From) -> Result<u64> {
        let cables: &[_] = match from {
            super::From::Lan => &[(&self.attacker, HOST_DEVICE), (&self.switch, "gateway")],
            super::From::Internet => &[(&self.routers[0], ISP_DEVICE)],
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

/// Receives through NAPI, in a ring, instead of the processor's one backlog for all devices.
fn polled(namespace: &Namespace, device: &str) -> Result<()> {
    namespace.exec("ethtool", &["-K", device, "gro", "on"])?;
    Ok(())
}

fn spec(family: Family, round_trip: Duration) -> LabSpec {
    let lines = ISPS.map(|name| (name, RATE_BPS, RATE_BPS, 0));
    let mut spec = LabSpec::of_lines(&lines);
    spec.families = match family {
        Family::V4 => Families::V4,
        Family::V6 => Families::V6,
    };
    if !round_trip.is_zero() {
        let one_way_us = round_trip.as_micros() as u64 / 2;
        for isp in &mut spec.isps {
            isp.beyond = Some(LinkShape::new(RATE_BPS, RATE_BPS, one_way_us));
        }
    }
    spec
}

fn mac(namespace: &Namespace, device: &str) -> Result<[u8; 6]> {
    let text = namespace.ip(&format!("-json link show dev {device}"))?;
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let bytes = report[0]["address"].as_str().unwrap_or_default().split(':');
    let bytes: Vec<_> = bytes
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes
        .try_into()
        .map_err(|_| LabError::Load(format!("{device} has no MAC in {text}")))
}
