//! Two nodes, the cables between them, and the hosts behind them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anabranch_scenario::{Change, Direction, Event, Families, Family, Fault, Line, Tally, Tcp};

use super::access::{self, BURST_BYTES, Host};
use super::plan::{Plan, frame_limit_bytes, frame_rate_bps, sublink_of};
use crate::scenario::{Setup, retransmitted};
use crate::topology::{Anabranch, HttpServer, LabError, Result, io_error, settle, tcp};
use anabranch_testbed::emulator::{Emulator, End, Lateness, Link, LinkShape, MTU_MAX_BYTES};
use anabranch_testbed::netns::Namespace;

/// The trunk device of each node.
pub(super) const TRUNK: &str = "trunk0";
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 80, 1, 1);
const FIRST_SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const SERVER_PORT: u16 = 80;

/// A sublink's device, the same name at both nodes.
pub(super) fn sublink(index: usize) -> String {
    format!("sub{index}")
}

/// Everything that was built. Dropping it ends its processes, then removes its namespaces.
pub(super) struct Nodes {
    anabranch: Anabranch,
    _http: HttpServer,
    back: Link,
    /// Those that are emulated, by their numbers; none if they are cables.
    sublinks: Vec<Link>,
    /// The propagation that the line back has for all of them.
    least_delay: Duration,
    _emulator: Emulator,
    near: Namespace,
    far: Namespace,
    clients: Namespace,
    servers: Namespace,
    client_count: u32,
    server_addresses: Vec<SocketAddr>,
}

impl Nodes {
    /// Builds everything, starts the web server and the trunk, and waits for both.
    pub fn build(plan: &Plan, setup: &Setup) -> Result<Self> {
        let host = |label| -> Result<_> {
            let namespace = Namespace::create(label)?;
            settle(&namespace, plan.tcp, Families::V4)?;
            Ok(namespace)
        };
        let (servers, near) = (host("servers")?, host("near")?);
        let (far, clients) = (host("far")?, host("clients")?);
        tcp::check(plan.tcp, &servers)?;
        for node in [&near, &far] {
            node.set_sysctl("net/ipv4/ip_forward", "1")?;
        }
        let server_addresses = lay_servers(plan, &servers, &near)?;
        lay_clients(plan, &clients, &far)?;
        let emulator = Emulator::start(plan.seed)?;
        let lay = |(index, line)| lay_sublink(plan, index, line, &emulator, &near, &far);
        let sublinks = plan.lines.iter().copied().enumerate().map(lay);
        let sublinks = sublinks.collect::<Result<Vec<_>>>()?;
        lay_trunk(&near, &far)?;
        let back = lay_back(plan, &emulator, &near, &far)?;
        Ok(Self {
            _http: HttpServer::start(&servers, &server_addresses, &[])?,
            anabranch: Anabranch::start(&near, &setup.binary, &plan.configuration())?,
            back,
            sublinks: sublinks.into_iter().flatten().collect(),
            least_delay: plan.least_delay,
            _emulator: emulator,
            near,
            far,
            clients,
            servers,
            client_count: plan.trunk.clients,
            server_addresses,
        })
    }

    pub fn clients(&self) -> &Namespace {
        &self.clients
    }

    /// The trunk's `--instance`.
    pub fn instance(&self) -> &str {
        self.anabranch.instance()
    }

    pub fn servers(&self) -> &[SocketAddr] {
        &self.server_addresses
    }

    /// The address of each user.
    pub fn sources(&self, users: u32) -> Vec<IpAddr> {
        let client = |user| Ipv4Addr::from_bits(FIRST_CLIENT.to_bits() + user % self.client_count);
        (0..users).map(client).map(IpAddr::from).collect()
    }

    /// Data segments that the servers have sent again.
    pub fn retransmitted(&self) -> Result<u64> {
        retransmitted(&self.servers)
    }

    /// What has come out of an emulated sublink.
    pub fn delivered(&self, index: usize) -> Result<Option<Tally>> {
        let fates = |link: &Link| link.fates(Direction::Up);
        let fates = self.sublinks.get(index).map(fates).transpose()?;
        Ok(fates.map(|fates| fates.delivered))
    }

    /// Packets that the sublinks have lost behind their queues.
    pub fn lost(&self) -> Result<Tally> {
        let mut lost = Tally::default();
        for link in &self.sublinks {
            lost += link.fates(Direction::Up)?.lost;
        }
        Ok(lost)
    }

    /// Lets a fault happen, and tells when it took effect.
    pub fn apply(&self, fault: &Fault, epoch: Instant) -> Result<Event> {
        let index = sublink_of(fault).unwrap_or_default();
        match fault.change {
            Change::Rate(rate_bps) => {
                shape(&self.near, "change", &sublink(index), rate_bps, None)?;
            }
            Change::Restore => self.set_carrier(index, true)?,
            Change::Cut => self.set_carrier(index, false)?,
            Change::Loss(_) | Change::Delay(_) => self.change(index, fault.change)?,
        }
        Ok(Event {
            t_s: epoch.elapsed().as_secs_f64(),
            ..Event::of_sublink(fault)
        })
    }

    /// What the near node sees of a cable that is pulled, or plugged in again.
    fn set_carrier(&self, index: usize, on: bool) -> Result<()> {
        match self.sublinks.get(index) {
            Some(link) => link.set_carrier(on)?,
            None => {
                let state = if on { "up" } else { "down" };
                let line = format!("link set {} {state}", sublink(index));
                self.far.ip(&line)?;
            }
        }
        Ok(())
    }

    /// Of an emulated sublink; the plan has seen to it that it is one.
    fn change(&self, index: usize, change: Change) -> Result<()> {
        let rest = match change {
            Change::Delay(delay) => Change::Delay(delay - self.least_delay),
            other => other,
        };
        if let Some(link) = self.sublinks.get(index) {
            link.apply(Some(Direction::Up), rest)?;
        }
        Ok(())
    }

    /// Why the figures cannot be trusted; empty if they can.
    pub fn problems(&self) -> Result<Vec<String>> {
        let mut problems = self.back.report()?.problems();
        for link in &self.sublinks {
            problems.extend(link.report()?.problems());
        }
        for (namespace, device) in [(&self.clients, "lan"), (&self.servers, "lan")] {
            let counters = namespace.counters(device)?;
            let dropped = counters.rx_dropped + counters.tx_dropped;
            if dropped > 0 {
                problems.push(format!(
                    "{dropped} packets dropped by the kernel at {}/{device}",
                    namespace.name()
                ));
            }
        }
        Ok(problems)
    }

    pub fn conditions(&self) -> Result<Vec<(String, String)>> {
        let path = "/proc/sys/kernel/osrelease";
        let kernel = std::fs::read_to_string(path).map_err(io_error(format!("reading {path}")))?;
        let mut words = vec![("kernel".to_owned(), kernel.trim_end().to_owned())];
        for (link, name) in std::iter::once(&self.back)
            .map(|back| (back, "the line back".to_owned()))
            .chain(
                self.sublinks
                    .iter()
                    .map(|link| (link, link.name().to_owned())),
            )
        {
            let Lateness { p50_us, p99_us, .. } = link.report()?.up.lateness;
            let late = format!("p50 {p50_us:.0} µs, p99 {p99_us:.0} µs");
            words.push((format!("lateness of {name}"), late));
        }
        Ok(words)
    }

    /// Ends the trunk and waits for it.
    pub fn stop(&mut self) -> Result<()> {
        self.anabranch.stop().map(drop)
    }
}

/// A cable on which every packet is finished by its sender.
fn cable(a: (&Namespace, &str), b: (&Namespace, &str)) -> Result<()> {
    a.0.veth(a.1, b.0, b.1)?;
    for (namespace, device) in [a, b] {
        namespace.set_offloads(device, false)?;
    }
    Ok(())
}

/// `near` routes to the servers; their own routes carry what TCP is told.
fn lay_servers(plan: &Plan, servers: &Namespace, near: &Namespace) -> Result<Vec<SocketAddr>> {
    cable((servers, "lan"), (near, "servers"))?;
    servers.ip("address add 192.0.2.2/30 dev lan")?;
    near.ip("address add 192.0.2.1/30 dev servers")?;
    let addresses =
        (0..plan.trunk.servers).map(|index| Ipv4Addr::from_bits(FIRST_SERVER.to_bits() + index));
    let mut batch = String::new();
    for address in addresses.clone() {
        batch += &format!("address add {address}/32 dev lo\n");
    }
    servers.exec_with_input("ip", &["-batch", "-"], &batch)?;
    route_by_default(servers, "192.0.2.1", plan.tcp)?;
    near.ip("route add 198.51.100.0/24 via 192.0.2.2")?;
    let line = &plan.trunk.server_access;
    access::lay(servers, "lan", Host::Source, addresses.clone(), line)?;
    access::lay(near, "servers", Host::Destination, addresses.clone(), line)?;
    let port = |address| SocketAddr::from((address, SERVER_PORT));
    Ok(addresses.map(port).collect())
}

fn lay_clients(plan: &Plan, clients: &Namespace, far: &Namespace) -> Result<()> {
    cable((clients, "lan"), (far, "clients"))?;
    clients.ip("address add 10.6.0.2/30 dev lan")?;
    far.ip("address add 10.6.0.1/30 dev clients")?;
    // One neighbour for all: a thousand of them would not fit the kernel's table (gc_thresh3).
    far.ip("route add 10.80.0.0/16 via 10.6.0.2")?;
    let mut batch = String::new();
    let addresses =
        (0..plan.trunk.clients).map(|index| Ipv4Addr::from_bits(FIRST_CLIENT.to_bits() + index));
    for address in addresses.clone() {
        batch += &format!("address add {address}/32 dev lo\n");
    }
    clients.exec_with_input("ip", &["-batch", "-"], &batch)?;
    let line = &plan.trunk.access;
    access::lay(clients, "lan", Host::Source, addresses.clone(), line)?;
    access::lay(far, "clients", Host::Destination, addresses, line)?;
    route_by_default(clients, "10.6.0.1", plan.tcp)
}

fn route_by_default(hosts: &Namespace, via: &str, tcp: &Tcp) -> Result<()> {
    let metrics = tcp::route_metrics(tcp, Family::V4);
    hosts
        .ip(&format!("route add default via {via} {metrics}"))
        .map(drop)
        .map_err(LabError::from)
}

/// A cable, or a line of the emulator; its shaper stands at the near node.
fn lay_sublink(
    plan: &Plan,
    index: usize,
    line: &Line,
    emulator: &Emulator,
    near: &Namespace,
    far: &Namespace,
) -> Result<Option<Link>> {
    let device = sublink(index);
    let link = match plan.emulated {
        false => {
            cable((near, &device), (far, &device))?;
            None
        }
        true => {
            let [from, to] = [near, far].map(|namespace| End {
                namespace,
                device: &device,
            });
            let shape = LinkShape {
                up: plan.after_shaper(line),
                ..LinkShape::new(line.rate_bps, line.rate_bps, 0)
            };
            Some(emulator.connect(&format!("sublink {index}"), from, to, shape)?)
        }
    };
    near.ip(&format!("address add 10.9.{index}.1/30 dev {device}"))?;
    far.ip(&format!("address add 10.9.{index}.2/30 dev {device}"))?;
    let limit_bytes = frame_limit_bytes(line.buffer);
    shape(near, "add", &device, line.rate_bps, Some(limit_bytes))?;
    Ok(link)
}

/// A token bucket of `rate_bps` of IP packets.
fn shape(
    node: &Namespace,
    verb: &str,
    device: &str,
    rate_bps: u64,
    limit_bytes: Option<u64>,
) -> Result<()> {
    let rate = format!("{}bit", frame_rate_bps(rate_bps));
    let burst = BURST_BYTES.to_string();
    let limit = match limit_bytes {
        Some(bytes) => bytes.to_string(),
        None => limit_of(node, device)?,
    };
    let words = ["qdisc", verb, "dev", device, "root", "tbf", "rate", &rate];
    node.exec(
        "tc",
        &[&words[..], &["burst", &burst, "limit", &limit]].concat(),
    )?;
    Ok(())
}

/// The limit a shaper has, in the words it is told.
fn limit_of(node: &Namespace, device: &str) -> Result<String> {
    let report = node.exec("tc", &["-j", "qdisc", "show", "dev", device, "root"])?;
    let limit = serde_json::from_str::<serde_json::Value>(&report)
        .ok()
        .and_then(|report| report[0]["options"]["limit"].as_u64());
    limit
        .map(|bytes| bytes.to_string())
        .ok_or(LabError::Command {
            command: format!("tc -j qdisc show dev {device} root"),
            stderr: format!("no limit in {report:?}"),
        })
}

/// A device that leads nowhere by itself, and the clients behind it.
fn lay_trunk(near: &Namespace, far: &Namespace) -> Result<()> {
    near.ip(&format!("link add {TRUNK} type veth peer name {TRUNK}-end"))?;
    near.ip(&format!("link set {TRUNK}-end up"))?;
    near.ip(&format!("link set {TRUNK} arp off up"))?;
    near.set_offloads(TRUNK, false)?;
    near.ip(&format!("address add 10.8.0.1/30 dev {TRUNK}"))?;
    near.ip("route add 10.80.0.0/16 via 10.8.0.2")?;
    far.ip("address add 10.8.0.2/32 dev lo")?;
    Ok(())
}

/// What the clients send goes up this line.
fn lay_back(plan: &Plan, emulator: &Emulator, near: &Namespace, far: &Namespace) -> Result<Link> {
    let [from, to] = [far, near].map(|namespace| End {
        namespace,
        device: "back",
    });
    let shape = LinkShape {
        up: plan.back.clone(),
        down: plan.back.clone(),
        mtu_bytes: MTU_MAX_BYTES,
    };
    let link = emulator.connect("back", from, to, shape)?;
    far.ip("address add 10.7.0.2/30 dev back")?;
    near.ip("address add 10.7.0.1/30 dev back")?;
    far.ip("route add default via 10.7.0.1")?;
    Ok(link)
}
