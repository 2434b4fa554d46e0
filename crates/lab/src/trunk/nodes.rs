//! Two nodes, the cables between them, and the hosts behind them.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anabranch_scenario::{Change, Direction, Event, Families, Family, Fault, Hosts, Line, Tally};

use super::access::{self, BURST_BYTES, Host};
use super::order;
use super::plan::{Plan, TRUNK, frame_limit_bytes, frame_rate_bps, sublink, sublink_of};
use crate::setup::Setup;
use crate::topology::{
    Anabranch, CLIENTS, HttpServer, LabError, Result, SERVER_PORT, SERVERS, distance, io_error,
    lan_network, let_forward, server_network, settle, tcp,
};
use anabranch_testbed::emulator::{Emulator, End, Lateness, Link, LinkShape, MTU_MAX_BYTES};
use anabranch_testbed::netns::Namespace;
use anabranch_workload::client::Addresses;

/// A network of two nodes: of IPv4 10.`kind`.`number`.0/30.
#[derive(Debug, Clone, Copy)]
struct Pair {
    kind: u8,
    number: u8,
}

/// Between the servers, which have the second address, and the near node.
const SERVERS_PAIR: Pair = Pair::of(5, 0);
/// Between the clients, which have the second address, and the far node.
const CLIENTS_PAIR: Pair = Pair::of(6, 0);
/// Between the near node and the far node, which has the second address of this pair and the next.
const BACK_PAIR: Pair = Pair::of(7, 0);
const TRUNK_PAIR: Pair = Pair::of(8, 0);
/// Of sublinks; each has a number.
const SUBLINK_KIND: u8 = 9;

impl Pair {
    const fn of(kind: u8, number: u8) -> Self {
        Self { kind, number }
    }

    /// Both addresses.
    fn ends(self, family: Family) -> [IpAddr; 2] {
        let Self { kind, number } = self;
        [1, 2].map(|last| match family {
            Family::V4 => [10, kind, number, last].into(),
            Family::V6 => [0xfd00, kind.into(), number.into(), 0, 0, 0, 0, last.into()].into(),
        })
    }

    const fn prefix_len(family: Family) -> u8 {
        match family {
            Family::V4 => 30,
            Family::V6 => 126,
        }
    }

    /// Gives the devices of two nodes their addresses.
    fn address(
        self,
        families: Families,
        first: (&Namespace, &str),
        second: (&Namespace, &str),
    ) -> Result<()> {
        for &family in families.list() {
            let ends = self.ends(family).into_iter();
            for ((node, device), address) in [first, second].into_iter().zip(ends) {
                node.add_address(device, address, Self::prefix_len(family))?;
            }
        }
        Ok(())
    }
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
    /// What the hosts' devices had dropped while they were laid.
    dropped_before: u64,
    families: Families,
    client_count: u32,
    server_count: u32,
}

impl Nodes {
    /// Builds everything, starts the web server and the trunk, and waits for both.
    pub fn build(plan: &Plan, setup: &Setup) -> Result<Self> {
        let host = |label| -> Result<_> {
            let namespace = Namespace::create(label)?;
            settle(&namespace, plan.tcp, plan.families)?;
            Ok(namespace)
        };
        let (servers, near) = (host("servers")?, host("near")?);
        let (far, clients) = (host("far")?, host("clients")?);
        tcp::check(plan.tcp, &servers)?;
        for node in [&near, &far] {
            let_forward(node, plan.families)?;
        }
        if plan.families.has(Family::V6) {
            // A cable is pulled by a device that is down: it keeps its addresses.
            far.set_sysctl("net/ipv6/conf/all/keep_addr_on_down", "1")?;
        }
        lay_servers(plan, &servers, &near)?;
        lay_clients(plan, &clients, &far)?;
        let emulator = Emulator::start(plan.seed)?.with_distance(distance);
        let lay = |(index, line)| lay_sublink(plan, index, line, &emulator, &near, &far);
        let sublinks = plan.lines.iter().copied().enumerate().map(lay);
        let sublinks = sublinks.collect::<Result<Vec<_>>>()?;
        lay_trunk(plan, &near, &far)?;
        let back = lay_back(plan, &emulator, &near, &far)?;
        let listening = plan.families.list().iter();
        let listening = listening.flat_map(|&family| listening_at(family, plan.trunk.servers));
        let listening: Vec<SocketAddr> = listening.collect();
        Ok(Self {
            _http: HttpServer::start(&servers, &listening, &[])?,
            anabranch: Anabranch::start(&near, &setup.binary, &plan.configuration())?,
            back,
            sublinks: sublinks.into_iter().flatten().collect(),
            least_delay: plan.least_delay,
            _emulator: emulator,
            near,
            far,
            dropped_before: dropped([&clients, &servers])?,
            clients,
            servers,
            families: plan.families,
            client_count: plan.trunk.clients,
            server_count: plan.trunk.servers,
        })
    }

    pub fn clients(&self) -> &Namespace {
        &self.clients
    }

    /// The trunk's `--instance`.
    pub fn instance(&self) -> &str {
        self.anabranch.instance()
    }

    /// Of servers and so many users, in each family.
    pub fn addresses(&self, users: u32) -> Vec<Addresses> {
        let of = |&family: &Family| {
            let client = |user| CLIENTS.address(family, user % self.client_count);
            Addresses {
                servers: listening_at(family, self.server_count).collect(),
                sources: (0..users).map(client).collect(),
            }
        };
        self.families.list().iter().map(of).collect()
    }

    /// Data segments that the servers have sent again.
    pub fn retransmitted(&self) -> Result<u64> {
        tcp::retransmitted(&self.servers)
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
            Change::Loss(_)
            | Change::Delay(_)
            | Change::Jitter(_)
            | Change::Mtu(_)
            | Change::Passage(_) => self.change(index, fault.change)?,
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
        let dropped = dropped([&self.clients, &self.servers])? - self.dropped_before;
        if dropped > 0 {
            problems.push(format!(
                "{dropped} packets dropped by the kernel at the hosts: too much load for this machine"
            ));
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

/// Packets that the devices of these hosts have not sent or not received. A host that speaks before the other end of its
/// cable is up loses one, so that only what is dropped from then on tells of too much load.
fn dropped(hosts: [&Namespace; 2]) -> Result<u64> {
    let mut dropped = 0;
    for host in hosts {
        let counters = host.counters("lan")?;
        dropped += counters.rx_dropped + counters.tx_dropped;
    }
    Ok(dropped)
}

/// A cable on which every packet is finished by its sender.
fn cable(a: (&Namespace, &str), b: (&Namespace, &str)) -> Result<()> {
    a.0.veth(a.1, b.0, b.1)?;
    for (namespace, device) in [a, b] {
        namespace.set_offloads(device, false)?;
    }
    Ok(())
}

fn listening_at(family: Family, servers: u32) -> impl Iterator<Item = SocketAddr> {
    let server = move |number| SERVERS.address(family, number);
    (0..servers).map(move |number| SocketAddr::new(server(number), SERVER_PORT))
}

/// `near` routes to the servers; their own routes carry what TCP is told.
fn lay_servers(plan: &Plan, servers: &Namespace, near: &Namespace) -> Result<()> {
    cable((servers, "lan"), (near, "servers"))?;
    SERVERS_PAIR.address(plan.families, (near, "servers"), (servers, "lan"))?;
    let hosts = (SERVERS, plan.trunk.servers);
    lay_hosts(plan, servers, hosts, SERVERS_PAIR)?;
    for &family in plan.families.list() {
        let [_, servers_end] = SERVERS_PAIR.ends(family);
        let network = server_network(family);
        near.ip(&format!("route add {network} via {servers_end}"))?;
    }
    let line = &plan.trunk.server_access;
    access::lay(servers, "lan", Host::Source, hosts, plan.families, line)?;
    access::lay(
        near,
        "servers",
        Host::Destination,
        hosts,
        plan.families,
        line,
    )?;
    if plan.families.has(Family::V6) {
        order::number(servers, "lan")?;
    }
    Ok(())
}

fn lay_clients(plan: &Plan, clients: &Namespace, far: &Namespace) -> Result<()> {
    cable((clients, "lan"), (far, "clients"))?;
    CLIENTS_PAIR.address(plan.families, (far, "clients"), (clients, "lan"))?;
    let hosts = (CLIENTS, plan.trunk.clients);
    lay_hosts(plan, clients, hosts, CLIENTS_PAIR)?;
    for &family in plan.families.list() {
        let [_, clients_end] = CLIENTS_PAIR.ends(family);
        // One neighbour for all: a thousand of them would not fit the kernel's table (gc_thresh3).
        let network = lan_network(family);
        far.ip(&format!("route add {network} via {clients_end}"))?;
    }
    let line = &plan.trunk.access;
    access::lay(clients, "lan", Host::Source, hosts, plan.families, line)?;
    access::lay(
        far,
        "clients",
        Host::Destination,
        hosts,
        plan.families,
        line,
    )
}

/// The addresses of the hosts that a node stands for, and their way to the first of the pair.
fn lay_hosts(
    plan: &Plan,
    node: &Namespace,
    (hosts, count): (Hosts, u32),
    pair: Pair,
) -> Result<()> {
    let mut batch = String::new();
    for &family in plan.families.list() {
        for number in 0..count {
            let address = hosts.address(family, number);
            batch += &format!("address add {address} dev lo\n");
        }
        let [router, _] = pair.ends(family);
        let metrics = tcp::route_metrics(plan.tcp, family);
        batch += &format!("route add default via {router} {metrics}\n");
    }
    node.exec_with_input("ip", &["-batch", "-"], &batch)?;
    Ok(())
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
    let pair = Pair::of(SUBLINK_KIND, index as u8);
    pair.address(plan.families, (near, &device), (far, &device))?;
    if plan.families.has(Family::V6) {
        // Plugged in, `far` may be asked for its hardware address before it has joined the group that hears it. A second
        // until it is asked again would be a property of veth, not of the trunk.
        let key = format!("net/ipv6/neigh/{device}/retrans_time_ms");
        near.set_sysctl(&key, "50")?;
    }
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
fn lay_trunk(plan: &Plan, near: &Namespace, far: &Namespace) -> Result<()> {
    near.ip(&format!("link add {TRUNK} type veth peer name {TRUNK}-end"))?;
    near.ip(&format!("link set {TRUNK}-end up"))?;
    near.ip(&format!("link set {TRUNK} arp off up"))?;
    near.set_offloads(TRUNK, false)?;
    for &family in plan.families.list() {
        let [own, other] = TRUNK_PAIR.ends(family);
        near.add_address(TRUNK, own, Pair::prefix_len(family))?;
        near.ip(&format!("route add {} via {other}", lan_network(family)))?;
        far.ip(&format!("address add {other} dev lo"))?;
    }
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
    BACK_PAIR.address(plan.families, (near, "back"), (far, "back"))?;
    for &family in plan.families.list() {
        let [near_end, _] = BACK_PAIR.ends(family);
        far.ip(&format!("route add default via {near_end}"))?;
    }
    Ok(link)
}
