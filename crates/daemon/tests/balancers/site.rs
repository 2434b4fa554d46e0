//! Clients with a router, two balancers behind it, and four servers behind both.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use anabranch_api::{Proto, Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::{Child, Namespace};
use socket2::{Domain, Socket, Type};

use crate::common::{DEADLINE, Daemon, Node, until};
use crate::load::pages;
use crate::serving::{servers, web_server};

pub const SERVERS: usize = 4;
/// Of the service whose connections last.
const HELD: u16 = 7;
const WEB: u16 = 80;
/// Of the last number of addresses at the servers' network.
const BALANCER: u16 = 1;
const FRONT: u16 = 3;
const SERVER: u16 = 11;

/// How packets reach the servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Nat,
    Direct,
    Tunnel,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Self::Nat => "nat",
            Self::Direct => "direct",
            Self::Tunnel => "tunnel",
        }
    }
}

/// The balancers hold the first two networks to the router, the others the one to the servers.
pub struct Site {
    family: Family,
    way: Way,
    /// Where the clients are; its routes say which balancer they use.
    pub front: Namespace,
    pub balancers: [Node; 2],
    pub servers: Vec<Server>,
    _switch: Namespace,
}

/// A web server. It tells its number, too, as often as it is asked over one connection.
pub struct Server {
    pub node: Node,
    pub web: Child,
    /// It sets up what servers need that answer themselves.
    _member: Option<Daemon>,
}

impl Site {
    pub fn new(family: Family, way: Way) -> Self {
        let mut site = Self {
            family,
            way,
            front: namespace("front"),
            balancers: ["one", "other"].map(|name| Node::new(namespace(name))),
            servers: Vec::new(),
            _switch: namespace("switch"),
        };
        site._switch.ip("link add br0 type bridge").unwrap();
        site._switch.ip("link set br0 up").unwrap();
        site.plug(&site.front, "in", FRONT);
        site.own(&site.front, "lo", site.client(), true);
        for number in 0..2 {
            site.lay_balancer(number);
        }
        for number in 0..SERVERS {
            let server = site.server_of(number);
            site.servers.push(server);
        }
        site.use_balancer(0);
        site.write(SERVERS);
        site
    }

    /// Of a node on a network: 0 the servers', 1 and 2 the balancers' to the router, 7 the clients'.
    fn address(&self, network: u16, node: u16) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::new(10, 9, network as u8, node as u8).into(),
            Family::V6 => Ipv6Addr::new(0xfd09, network, 0, 0, 0, 0, 0, node).into(),
        }
    }

    pub fn client(&self) -> IpAddr {
        self.address(7, 7)
    }

    pub fn web(&self) -> SocketAddr {
        SocketAddr::new(self.address(8, 8), WEB)
    }

    fn held(&self) -> SocketAddr {
        SocketAddr::new(self.web().ip(), HELD)
    }

    pub fn server(&self, number: usize) -> IpAddr {
        self.address(0, SERVER + number as u16)
    }

    /// With the whole length of an address, or that of a network.
    fn own(&self, node: &Namespace, device: &str, address: IpAddr, alone: bool) {
        let length = match (self.family, alone) {
            (Family::V4, true) => 32,
            (Family::V6, true) => 128,
            (Family::V4, false) => 24,
            (Family::V6, false) => 64,
        };
        let nodad = if address.is_ipv6() { "nodad" } else { "" };
        let line = format!("address add {address}/{length} dev {device} {nodad}");
        node.ip(&line).unwrap();
    }

    /// A cable from a node to the servers' network.
    fn plug(&self, node: &Namespace, device: &str, address: u16) {
        let port = format!("port{address}");
        self._switch.veth(&port, node, device).unwrap();
        self._switch
            .ip(&format!("link set {port} master br0"))
            .unwrap();
        self.own(node, device, self.address(0, address), false);
    }

    fn lay_balancer(&self, number: usize) {
        let (balancer, network) = (&self.balancers[number], 1 + number as u16);
        let far = format!("to{number}");
        balancer.veth("out", &self.front, &far).unwrap();
        self.own(balancer, "out", self.address(network, 2), false);
        self.own(&self.front, &far, self.address(network, 1), false);
        self.plug(balancer, "in", BALANCER + number as u16);
        let back = format!("route add default via {}", self.address(network, 1));
        balancer.ip(&back).unwrap();
        for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            balancer.set_sysctl(key, "1").unwrap();
        }
    }

    fn server_of(&self, number: usize) -> Server {
        let node = Node::new(namespace("server"));
        self.plug(&node, "eth0", SERVER + number as u16);
        let gateway = format!("route add default via {}", self.address(0, FRONT));
        node.ip(&gateway).unwrap();
        let answers_itself = self.way != Way::Nat;
        let member = answers_itself.then(|| {
            let vip = self.web().ip();
            node.write_config(&format!(
                "[member]\naddresses = [\"{vip}\"]\ndevices = [\"eth0\"]\n"
            ));
            node.start()
        });
        let any: IpAddr = match self.family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listener = node.listen((any, HELD)).unwrap();
        std::thread::spawn(move || tell(listener, number as u8));
        let pages = pages(self.server(number));
        let at = SocketAddr::new(any, WEB);
        Server {
            web: web_server(&node, node.dir.path(), at, &pages),
            node,
            _member: member,
        }
    }

    /// Routes the service, and with NAT what its servers answer, to a balancer.
    pub fn use_balancer(&self, number: usize) {
        let [network, own] = [1, BALANCER].map(|first| first + number as u16);
        let (vip, via) = (self.web().ip(), self.address(network, 2));
        let to_service = format!("route replace {vip} via {via}");
        self.front.ip(&to_service).unwrap();
        if self.way == Way::Nat {
            for server in &self.servers {
                let back = format!("route replace default via {}", self.address(0, own));
                server.node.ip(&back).unwrap();
            }
        }
    }

    /// The services of both balancers have so many servers.
    pub fn write(&self, servers: usize) {
        let service = |name: &str, at: SocketAddr| {
            let port = at.port();
            let servers = (0..servers).map(|number| match self.way {
                Way::Nat => SocketAddr::new(self.server(number), port).to_string(),
                Way::Direct | Way::Tunnel => self.server(number).to_string(),
            });
            let servers: Vec<String> = servers.collect();
            format!(
                "[service.{name}]\nlisten = \"{at}\"\nservers = {servers:?}\nforwarding = \"{}\"\n\
                 policy = \"Maglev\"\nsecret = \"{}\"\nunknown = \"peer\"\ndevices = [\"out\", \"in\"]\n",
                self.way.word(),
                "0123456789abcdef".repeat(2)
            )
        };
        let text = service("web", self.web()) + &service("held", self.held());
        for balancer in &self.balancers {
            balancer.write_config(&text);
        }
    }

    /// Starts a balancer, and waits until all servers have passed their checks.
    pub fn start(&self, number: usize) -> Daemon {
        let daemon = self.balancers[number].start();
        for service in ["web", "held"] {
            until("the checks pass", || {
                let mut servers = servers(&daemon, service).into_iter();
                servers.all(|server| server.check.is_some_and(|check| check.state == "up"))
            });
        }
        daemon
    }

    /// A balancer is gone, with its programs and all that it knew.
    pub fn end_balancer(&self, number: usize) {
        for device in ["out", "in"] {
            let down = format!("link set {device} down");
            self.balancers[number].ip(&down).unwrap();
        }
    }

    /// Which server a client gets by a port of its own, of all that are asked.
    pub fn choices(&self, daemon: &Daemon, ports: impl Iterator<Item = u16>) -> Vec<u8> {
        let server = |port| {
            let explain = Request::ExplainService {
                service: "held".to_owned(),
                client: SocketAddr::new(self.client(), port),
                called: None,
                proto: Proto::Tcp,
            };
            let Response::Served(served) = daemon.call(&explain) else {
                panic!("nothing is explained")
            };
            let server = served.server.unwrap().ip();
            let number = (0..SERVERS).position(|number| self.server(number) == server);
            number.unwrap() as u8
        };
        ports.map(server).collect()
    }

    /// Connections that last, from these ports of the client.
    pub fn hold(&self, ports: impl Iterator<Item = u16>) -> Vec<Held> {
        let held = ports.map(|port| {
            let from = SocketAddr::new(self.client(), port);
            let connect = || {
                let socket = Socket::new(Domain::for_address(from), Type::STREAM, None)?;
                socket.set_reuse_address(true)?;
                socket.bind(&from.into())?;
                socket.set_read_timeout(Some(DEADLINE))?;
                socket.connect_timeout(&self.held().into(), DEADLINE)?;
                std::io::Result::Ok(TcpStream::from(socket))
            };
            let stream = self.front.run(connect).unwrap().unwrap();
            let server = who(&stream).unwrap();
            Held { stream, server }
        });
        held.collect()
    }
}

/// A connection, and the number of its server.
pub struct Held {
    stream: TcpStream,
    pub server: u8,
}

impl Held {
    /// Whether data and its answer come through, and from the same server.
    pub fn goes_on(&self) -> bool {
        who(&self.stream).is_ok_and(|server| server == self.server)
    }
}

fn who(mut stream: &TcpStream) -> std::io::Result<u8> {
    stream.write_all(b"?")?;
    let mut number = [0];
    stream.read_exact(&mut number)?;
    Ok(number[0])
}

/// Tells a number for each byte that comes.
fn tell(listener: TcpListener, number: u8) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            while stream.read_exact(&mut [0]).is_ok() {
                stream.write_all(&[number])?;
            }
            std::io::Result::Ok(())
        });
    }
}

/// Its addresses hold at once, and it takes packets by whatever device they come.
fn namespace(label: &str) -> Namespace {
    let namespace = Namespace::create(label).unwrap();
    for scope in ["all", "default"] {
        for (key, value) in [
            ("ipv6/conf/SCOPE/accept_dad", "0"),
            ("ipv4/conf/SCOPE/rp_filter", "0"),
        ] {
            let key = format!("net/{}", key.replace("SCOPE", scope));
            namespace.set_sysctl(&key, value).unwrap();
        }
    }
    namespace
}
