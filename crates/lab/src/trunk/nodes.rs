//! Two nodes, the cables between them, and the hosts behind them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use anabranch_scenario::{Change, Event, EventKind, Fault, Line, Tcp};

use super::plan::{Plan, frame_limit_bytes, frame_rate_bps, sublink_of};
use crate::emulator::{Emulator, End, Link, LinkShape, MTU_MAX_BYTES};
use crate::netns::Namespace;
use crate::scenario::{Setup, retransmitted};
use crate::topology::{Anabranch, HttpServer, LabError, Result, io_error, settle, tcp};

/// The trunk device of each node.
pub(super) const TRUNK: &str = "trunk0";
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 80, 1, 1);
const FIRST_SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const SERVER_PORT: u16 = 80;
/// What a token bucket lets go at once: a frame and the shaper's rounding.
const BURST_BYTES: u64 = 1600;

/// A sublink's device, the same name at both nodes.
pub(super) fn sublink(index: usize) -> String {
    format!("sub{index}")
}

/// Everything that was built. Dropping it ends its processes, then removes its namespaces.
pub(super) struct Nodes {
    anabranch: Anabranch,
    _http: HttpServer,
    back: Link,
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
            settle(&namespace, plan.tcp)?;
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
        for (index, line) in plan.lines.iter().enumerate() {
            lay_sublink(index, line, &near, &far)?;
        }
        lay_trunk(&near, &far)?;
        let emulator = Emulator::start(plan.seed)?;
        let back = lay_back(plan, &emulator, &near, &far)?;
        Ok(Self {
            _http: HttpServer::start(&servers, &server_addresses, &[])?,
            anabranch: Anabranch::start(&near, &setup.binary, &plan.configuration())?,
            back,
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

    /// Lets a fault happen, and tells when it took effect.
    pub fn apply(&self, fault: &Fault, epoch: Instant) -> Result<Event> {
        let device = sublink(sublink_of(fault).unwrap_or_default());
        let number = &fault.link;
        let (kind, text) = match fault.change {
            Change::Rate(rate_bps) => {
                shape(&self.near, "change", &device, rate_bps, None)?;
                let text = format!("sublink {number} has {rate_bps} bit/s");
                (EventKind::Note, text)
            }
            Change::Restore => {
                self.far.ip(&format!("link set {device} up"))?;
                let text = format!("sublink {number} has its carrier again");
                (EventKind::Restored, text)
            }
            _ => {
                self.far.ip(&format!("link set {device} down"))?;
                (EventKind::Cut, format!("sublink {number} lost its carrier"))
            }
        };
        Ok(Event {
            t_s: epoch.elapsed().as_secs_f64(),
            kind,
            link: Some(number.clone()),
            text,
        })
    }

    /// Why the figures cannot be trusted; empty if they can.
    pub fn problems(&self) -> Result<Vec<String>> {
        let mut problems = self.back.report()?.problems();
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
        let lateness = self.back.report()?.up.lateness;
        Ok(vec![
            ("kernel".to_owned(), kernel.trim_end().to_owned()),
            (
                "lateness of the line back".to_owned(),
                format!(
                    "p50 {:.0} µs, p99 {:.0} µs",
                    lateness.p50_us, lateness.p99_us
                ),
            ),
        ])
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
    let port = |address| SocketAddr::from((address, SERVER_PORT));
    Ok(addresses.map(port).collect())
}

fn lay_clients(plan: &Plan, clients: &Namespace, far: &Namespace) -> Result<()> {
    cable((clients, "lan"), (far, "clients"))?;
    far.ip("address add 10.80.0.1/16 dev clients")?;
    let mut batch = String::new();
    for index in 0..plan.trunk.clients {
        let address = Ipv4Addr::from_bits(FIRST_CLIENT.to_bits() + index);
        batch += &format!("address add {address}/16 dev lan\n");
    }
    clients.exec_with_input("ip", &["-batch", "-"], &batch)?;
    route_by_default(clients, "10.80.0.1", plan.tcp)
}

fn route_by_default(hosts: &Namespace, via: &str, tcp: &Tcp) -> Result<()> {
    let metrics = tcp::route_metrics(tcp);
    hosts
        .ip(&format!("route add default via {via} {metrics}"))
        .map(drop)
        .map_err(LabError::from)
}

fn lay_sublink(index: usize, line: &Line, near: &Namespace, far: &Namespace) -> Result<()> {
    let device = sublink(index);
    cable((near, &device), (far, &device))?;
    near.ip(&format!("address add 10.9.{index}.1/30 dev {device}"))?;
    far.ip(&format!("address add 10.9.{index}.2/30 dev {device}"))?;
    let limit_bytes = frame_limit_bytes(line.buffer);
    shape(near, "add", &device, line.rate_bps, Some(limit_bytes))
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
