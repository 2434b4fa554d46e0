//! A client, the gateway, and two links to one server, in network namespaces; and the daemon as a process there.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_api::{FlowRow, GatewayStatus, LinkState, LinkStatus, Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::{Child, Namespace};

pub use crate::common::{DEADLINE, Daemon, INSTANCE, Node, until};

pub const SERVER: &str = "192.0.2.1:80";
pub const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Of the server that tells whom it sees.
const TELLS_PORT: u16 = 81;
/// Of IPv4; [`Rig::config_text`] has it for either family.
pub const CONFIG: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0", down = "100mbit", up = "100mbit" }
link.lte = { device = "wan1", down = "100mbit", up = "100mbit" }
probe.targets = ["tcp:192.0.2.1:80"]
"#;

/// The addresses of one family.
pub struct Plan {
    pub server: &'static str,
    /// Of the box and of its hosts.
    pub lan: [&'static str; 2],
    /// Of each link, the box's and the gateway's.
    pub links: [[&'static str; 2]; 2],
    pub lengths: [u8; 2],
}

impl Plan {
    /// The server's.
    pub fn address(&self) -> IpAddr {
        self.server.parse().unwrap()
    }
}

pub static PLANS: [Plan; 2] = [
    Plan {
        server: "192.0.2.1",
        lan: ["192.168.1.1", "192.168.1.20"],
        links: [
            ["203.0.113.2", "203.0.113.1"],
            ["198.51.100.2", "198.51.100.1"],
        ],
        lengths: [24, 32],
    },
    Plan {
        server: "2001:db8:ffff::1",
        lan: ["fd00:1::1", "fd00:1::20"],
        links: [
            ["2001:db8:a::2", "2001:db8:a::1"],
            ["2001:db8:b::2", "2001:db8:b::1"],
        ],
        lengths: [64, 128],
    },
];

/// A LAN host, the box, and the internet, which is also both links' gateway and the server.
pub struct Rig {
    /// The first is of the server that is asked.
    pub plans: Vec<&'static Plan>,
    pub client: Namespace,
    pub gateway: Node,
    pub internet: Namespace,
}

impl Deref for Rig {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.gateway
    }
}

impl Rig {
    pub fn new() -> Self {
        Self::of(Family::V4)
    }

    /// With one family alone.
    pub fn of(family: Family) -> Self {
        Self::with(&[family])
    }

    pub fn with(families: &[Family]) -> Self {
        let plans = families.iter().map(|family| &PLANS[family.index()]);
        let rig = Self::between(plans.collect());
        rig.write_config(&rig.config_text());
        rig.serve();
        rig
    }

    /// With these addresses, and nothing that runs.
    pub fn between(plans: Vec<&'static Plan>) -> Self {
        let rig = Self {
            plans,
            client: namespace("client"),
            gateway: Node::new(namespace("gw")),
            internet: namespace("inet"),
        };
        for plan in &rig.plans {
            let [_, host] = plan.lengths;
            let server = format!("addr add {}/{host} dev lo", plan.server);
            rig.internet.ip(&server).unwrap();
        }
        // The links first, so that both ends of each have one number: else the kernel takes the device for a layer above
        // the other, and tells of its carrier sooner than of a network card's (linux/net/core/link_watch.c).
        rig.link("wan0");
        rig.link("wan1");
        rig.lan();
        // Those of IPv6 in work of the kernel's own: whoever looks before it is done misses a route.
        until("all addresses are the box's", || rig.has_addresses());
        rig
    }

    fn has_addresses(&self) -> bool {
        let routes = ["-4", "-6"].map(|version| {
            let local = format!("{version} route show table local");
            self.gateway.ip(&local).unwrap()
        });
        let has = |address: &str| {
            let route = format!("local {address} ");
            routes.iter().any(|routes| routes.contains(&route))
        };
        let of_plan = |plan: &&Plan| [plan.lan[0], plan.links[0][0], plan.links[1][0]].map(has);
        self.plans.iter().flat_map(of_plan).all(|has| has)
    }

    /// Of the server that is asked.
    pub fn plan(&self) -> &'static Plan {
        self.plans[0]
    }

    pub fn family(&self) -> Family {
        self.plan().address().into()
    }

    pub fn families(&self) -> Vec<Family> {
        let families = self.plans.iter().map(|plan| plan.address().into());
        families.collect()
    }

    /// The server's address and port.
    pub fn server(&self) -> String {
        self.port(80)
    }

    /// Another port of it.
    pub fn port(&self, port: u16) -> String {
        self.at(port).to_string()
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.plan().address(), port)
    }

    /// The box's address on a link.
    pub fn external(&self, device: &str) -> &'static str {
        self.plan().links[number(device)][0]
    }

    /// An address of the LAN.
    pub fn lan_host(&self, number: u8) -> IpAddr {
        match self.plan().lan[1].parse().unwrap() {
            IpAddr::V4(host) => {
                let [a, b, c, _] = host.octets();
                IpAddr::from([a, b, c, number])
            }
            IpAddr::V6(host) => {
                let mut segments = host.segments();
                segments[7] = number.into();
                IpAddr::from(segments)
            }
        }
    }

    /// [`CONFIG`] for the families that there are.
    pub fn config_text(&self) -> String {
        let servers = self
            .plans
            .iter()
            .map(|plan| format!("\"tcp:{}\"", SocketAddr::new(plan.address(), 80)));
        let servers: Vec<String> = servers.collect();
        let of_v4 = format!("[\"tcp:{SERVER}\"]");
        CONFIG.replace(&of_v4, &format!("[{}]", servers.join(", ")))
    }

    /// The cable of the LAN.
    pub fn lan(&self) {
        self.gateway.veth("lan0", &self.client, "eth0").unwrap();
        for plan in &self.plans {
            let ([near, far], [length, _]) = (plan.lan, plan.lengths);
            address(&self.gateway, "lan0", near, length);
            address(&self.client, "eth0", far, length);
            self.client
                .ip(&format!("route add default via {near}"))
                .unwrap();
        }
    }

    /// The cable of a link, `wan0` or `wan1`.
    pub fn link(&self, device: &str) {
        let far = format!("{device}-far");
        self.gateway.veth(device, &self.internet, &far).unwrap();
        // A router believes no advertisement, its own least of all, which it hears.
        let believes = format!("net/ipv6/conf/{far}/accept_ra");
        self.internet.set_sysctl(&believes, "0").unwrap();
        let number = number(device);
        for plan in &self.plans {
            let ([near, gateway], [length, _]) = (plan.links[number], plan.lengths);
            address(&self.gateway, device, near, length);
            address(&self.internet, &far, gateway, length);
            let metric = 100 * (number + 1);
            self.gateway
                .ip(&format!(
                    "route add default via {gateway} dev {device} metric {metric}"
                ))
                .unwrap();
        }
    }

    /// What a link brings to its far end is lost, of one family or of both.
    pub fn cut(&self, device: &str, families: &[Family]) {
        for family in families {
            let family = words(*family);
            let cut = format!(
                "table {family} cut {{ chain c {{ type filter hook prerouting priority raw; iifname {device}-far drop; }}; }}"
            );
            self.internet.nft(&cut).unwrap();
        }
    }

    /// The end of that.
    pub fn mend(&self, families: &[Family]) {
        for family in families {
            self.internet
                .exec("nft", &["delete", "table", words(*family), "cut"])
                .unwrap();
        }
    }

    /// An echo server, for as long as the test's process lives.
    pub fn serve(&self) {
        for plan in &self.plans {
            self.serve_at(SocketAddr::new(plan.address(), 80));
        }
    }

    fn serve_at(&self, server: SocketAddr) {
        echo_server(&self.internet, server);
        let bind = || UdpSocket::bind(server).unwrap();
        let socket = self.internet.run(bind).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
    }

    /// A UDP socket of the LAN host, connected to the server.
    pub fn udp(&self) -> UdpSocket {
        self.udp_from(&self.client)
    }

    /// The same of another host.
    pub fn udp_from(&self, host: &Namespace) -> UdpSocket {
        let socket = host.udp(self.unbound(), Duration::from_secs(2)).unwrap();
        socket.connect(self.server()).unwrap();
        socket
    }

    /// Of the family, no address and no port.
    pub fn unbound(&self) -> SocketAddr {
        let address = match self.family() {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(address, 0)
    }

    /// A connection of the LAN host to the server.
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        self.connect_in(self.family())
    }

    /// The same in one of the families.
    pub fn connect_in(&self, family: Family) -> std::io::Result<TcpStream> {
        let server = SocketAddr::new(PLANS[family.index()].address(), 80);
        self.client.connect(server, DEADLINE)
    }

    /// A connection of another host to the server.
    pub fn connect_from(&self, host: &Namespace) -> std::io::Result<TcpStream> {
        host.connect(self.at(80), DEADLINE)
    }

    /// Whom the server sees when a host connects.
    pub fn seen_from(&self, host: &Namespace) -> std::io::Result<IpAddr> {
        let mut seen = String::new();
        let mut stream = host.connect(self.at(TELLS_PORT), DEADLINE)?;
        stream.read_to_string(&mut seen)?;
        Ok(seen.parse().unwrap())
    }

    /// The server that tells it.
    pub fn tell_who_asks(&self) {
        let listener = self.internet.listen(self.at(TELLS_PORT)).unwrap();
        std::thread::spawn(move || {
            for (mut stream, from) in std::iter::from_fn(|| listener.accept().ok()) {
                let _ = stream.write_all(from.ip().to_string().as_bytes());
            }
        });
    }

    /// Starts it, and does not wait until it is ready.
    pub fn spawn(&self) -> Child {
        let command = self.command_under("env", &[], INSTANCE);
        self.gateway.spawn(command).unwrap()
    }

    /// Starts it, and waits until all links are up.
    pub fn start_up(&self) -> Daemon {
        let daemon = self.start();
        all_up(&daemon);
        daemon
    }

    /// Starts it with its log in a file.
    pub fn start_logging(&self) -> Daemon {
        let log = format!("exec \"$@\" 2>'{}'", self.log().display());
        self.start_under("sh", &["-c", &log, "sh"])
    }

    pub fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Everything of the host that the daemon may change.
    pub fn fingerprint(&self) -> String {
        let of = |program: &str, arguments: &[&str]| self.gateway.exec(program, arguments).unwrap();
        let sysctl = |key| self.gateway.sysctl(key).unwrap();
        let settings = [
            "net/ipv4/ip_forward",
            "net/ipv6/conf/all/forwarding",
            "net/ipv6/conf/wan0/accept_ra",
            "net/ipv6/conf/wan1/accept_ra",
        ];
        let pins = self.pins.join(INSTANCE).exists();
        [
            of("ip", &["rule"]),
            of("ip", &["-6", "rule"]),
            of("ip", &["-4", "route", "show", "table", "all"]),
            self.routes_v6(),
            of("nft", &["--stateless", "--terse", "list", "ruleset"]),
            settings.map(sysctl).join(" "),
            pins.to_string(),
        ]
        .join("\n")
    }
}

impl Rig {
    /// Without what the kernel itself has of each device and for a while, and whose order is by chance.
    fn routes_v6(&self) -> String {
        let all = self.gateway.ip("-6 route show table all").unwrap();
        let passing = ["expires", "fe80::", "ff00::"];
        let is_passing = |line: &&str| passing.iter().any(|word| line.contains(word));
        let mut lasting: Vec<&str> = all.lines().filter(|line| !is_passing(line)).collect();
        lasting.sort_unstable();
        lasting.join("\n")
    }
}

/// As nftables calls it.
pub fn words(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// In which addresses are known to be unique at once, and stay while a device is down, as those of IPv4 do.
pub fn namespace(label: &str) -> Namespace {
    let namespace = Namespace::create(label).unwrap();
    for scope in ["all", "default"] {
        for (key, value) in [("accept_dad", "0"), ("keep_addr_on_down", "1")] {
            let key = format!("net/ipv6/conf/{scope}/{key}");
            namespace.set_sysctl(&key, value).unwrap();
        }
    }
    namespace
}

/// Of a link, by its device.
fn number(device: &str) -> usize {
    usize::from(device == "wan1")
}

impl Daemon {
    pub fn status(&self) -> GatewayStatus {
        let status = self.instance_status();
        *status.gateway.expect("a gateway")
    }

    pub fn link(&self, name: &str) -> LinkStatus {
        self.status()
            .links
            .into_iter()
            .find(|link| link.name == name)
            .unwrap()
    }
}

/// Waits until all links are up.
pub fn all_up(daemon: &Daemon) {
    until("all links are up", || {
        let links = daemon.status().links;
        links.iter().all(|link| link.state == LinkState::Up)
    });
}

/// All that there are.
pub fn flows(daemon: &Daemon) -> Vec<FlowRow> {
    match daemon.call(&Request::Flows { limit: 100 }) {
        Response::Flows { flows, .. } => flows,
        other => panic!("{other:?}"),
    }
}

/// That left for a reason.
pub fn packets(daemon: &Daemon, reason: &str) -> u64 {
    let reasons = daemon.status().reasons;
    let known = reasons.iter().find(|known| known.name == reason);
    known.map_or(0, |known| known.packets)
}

/// Of IPv6 it is one's own at once, even while the cable has no carrier yet.
pub fn address(namespace: &Namespace, device: &str, address: &str, length: u8) {
    let nodad = if address.contains(':') { "nodad" } else { "" };
    namespace
        .ip(&format!("addr add {address}/{length} dev {device} {nodad}"))
        .unwrap();
}

/// Of TCP, for as long as the test's process lives.
pub fn echo_server(node: &Namespace, at: SocketAddr) {
    let listener = node.listen(at).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                std::io::copy(&mut stream.try_clone().unwrap(), &mut { stream })
            });
        }
    });
}

pub fn echo(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    stream.write_all(b"hello")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"hello");
    Ok(())
}

pub fn ask(socket: &UdpSocket) -> std::io::Result<()> {
    socket.send(b"hello")?;
    let mut answer = [0; 16];
    let length = socket.recv(&mut answer)?;
    assert_eq!(&answer[..length], b"hello");
    Ok(())
}

/// Flows of the LAN host that somebody keeps, each with its link's number.
pub struct Held {
    streams: Vec<(u16, TcpStream)>,
    sockets: Vec<(u16, UdpSocket)>,
}

impl Held {
    /// Some over each link.
    pub fn new(rig: &Rig, daemon: &Daemon) -> Self {
        Self::of(&rig.client, rig, daemon)
    }

    /// Another host's.
    pub fn of(host: &Namespace, rig: &Rig, daemon: &Daemon) -> Self {
        let mut held = Self {
            streams: Vec::new(),
            sockets: Vec::new(),
        };
        held.open(host, rig, daemon);
        held
    }

    /// Opens more until some of each protocol go over each link: whichever had fewer for a while is owed the next ones.
    pub fn open(&mut self, host: &Namespace, rig: &Rig, daemon: &Daemon) {
        const MOST: usize = 50;
        let slots = ["fiber", "lte"].map(|name| daemon.link(name).slot);
        let are_all = |seen: &[u16]| slots.iter().all(|slot| seen.contains(slot));
        let link = |proto: &str, local: std::io::Result<SocketAddr>| {
            let local = local.unwrap();
            let flows = flows(daemon);
            let mut own = flows.iter();
            let own = own.find(|flow| flow.proto == proto && flow.local == local);
            own.unwrap_or_else(|| panic!("{local}: {flows:?}")).link
        };
        let mut seen = Vec::new();
        while !are_all(&seen) {
            assert!(seen.len() < MOST, "connections take {seen:?}");
            let mut stream = rig.connect_from(host).unwrap();
            echo(&mut stream).unwrap();
            seen.push(link("tcp", stream.local_addr()));
            self.streams.push((*seen.last().unwrap(), stream));
        }
        let mut seen = Vec::new();
        while !are_all(&seen) {
            assert!(seen.len() < MOST, "datagrams take {seen:?}");
            let socket = rig.udp_from(host);
            ask(&socket).unwrap();
            seen.push(link("udp", socket.local_addr()));
            self.sockets.push((*seen.last().unwrap(), socket));
        }
    }

    /// All of them do, on the links where they are.
    pub fn go_on(&self, daemon: &Daemon) {
        self.those_go_on(daemon, |_| true);
    }

    /// Those of a link do.
    pub fn those_go_on(&self, daemon: &Daemon, of: impl Fn(u16) -> bool) {
        let flows = flows(daemon);
        for (link, stream) in self.streams.iter().filter(|(link, _)| of(*link)) {
            let local = stream.local_addr().unwrap();
            echo(&mut { stream }).unwrap_or_else(|error| panic!("{local} of link {link}: {error}"));
            let mut own = flows.iter();
            assert!(own.any(|flow| flow.local == local && flow.link == *link));
        }
        for (link, socket) in self.sockets.iter().filter(|(link, _)| of(*link)) {
            ask(socket).unwrap_or_else(|error| panic!("{socket:?} of link {link}: {error}"));
        }
    }

    /// Connections of a link end.
    pub fn those_end(&self, link: u16) {
        for (_, stream) in self.streams.iter().filter(|(own, _)| *own == link) {
            let ended = (&mut { stream }).read(&mut [0]);
            let kind = ended.map_err(|error| error.kind());
            assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
        }
    }
}
