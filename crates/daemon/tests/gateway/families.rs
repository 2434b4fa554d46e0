//! Links with both families, with one, and with one that fails; and what IPv6 alone has.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};

use anabranch_api::{LinkStatus, PathStatus};
use anabranch_frames::router_advertisement;
use anabranch_testbed::netns::Namespace;
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

use super::*;

/// Of those whose connections are each by itself.
const WEB_PORT: u16 = 443;
const BOTH: [Family; 2] = [Family::V4, Family::V6];

impl Rig {
    /// A web server for both families, which says who asks.
    fn serve_web(&self) {
        for plan in &self.plans {
            let at = SocketAddr::new(plan.address(), WEB_PORT);
            let listener = self.internet.listen(at).unwrap();
            std::thread::spawn(move || {
                for (mut stream, from) in std::iter::from_fn(|| listener.accept().ok()) {
                    let _ = stream.read(&mut [0; 1024]);
                    let from = from.ip().to_string();
                    let length = from.len();
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{from}"
                    );
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    }

    /// curl on the LAN host, for a name that has addresses of both families; whom the server saw.
    fn curl(&self, options: &[&str]) -> Option<IpAddr> {
        let addresses = BOTH.map(|family| PLANS[family.index()].server);
        let name = format!("web:{WEB_PORT}:[{}],{}", addresses[1], addresses[0]);
        let url = format!("http://web:{WEB_PORT}/");
        let always = ["--silent", "--max-time", "5", "--resolve", &name, &url];
        let said = self
            .client
            .exec("curl", &[options, &always].concat())
            .ok()?;
        said.parse().ok()
    }

    /// Requests until each of these was seen, and nobody else. A link that flows of one family alone have used is owed those of
    /// the other: its load is of both.
    fn sees(&self, options: &[&str], wanted: &[IpAddr]) {
        const REQUESTS: usize = 4;
        let mut seen = BTreeSet::new();
        for request in 0.. {
            seen.insert(self.curl(options).expect("answered"));
            let are_all = wanted.iter().all(|address| seen.contains(address));
            if request >= REQUESTS && are_all {
                break;
            }
            assert!(request < 100, "{seen:?}, not {wanted:?}");
        }
        assert_eq!(seen.len(), wanted.len(), "{seen:?}, not {wanted:?}");
    }

    /// Who is seen in some requests, each once.
    fn seen(&self) -> BTreeSet<IpAddr> {
        const REQUESTS: usize = 6;
        let seen = |_| self.curl(&["-6"]).expect("answered");
        (0..REQUESTS).map(seen).collect()
    }

    fn lose_v6(&self, device: &str) {
        let flush = format!("-6 addr flush dev {device} scope global");
        self.gateway.ip(&flush).unwrap();
        let default = format!("-6 route del default dev {device}");
        // The kernel may have been there before.
        let _ = self.gateway.ip(&default);
    }

    /// What the router on the far end of a link tells of itself and a prefix.
    fn advertise(&self, device: &str, prefix: Ipv6Addr, preferred_s: u32) {
        self.advertise_by(
            Ipv6Addr::UNSPECIFIED,
            device,
            &router_advertisement(prefix, preferred_s),
        );
    }

    /// From one of the addresses at the far end of a link.
    fn advertise_by(&self, router: Ipv6Addr, device: &str, message: &[u8]) {
        let far = format!("{device}-far");
        self.internet
            .run(|| {
                let index = if_nametoindex(far.as_str()).unwrap();
                let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
                socket.set_multicast_hops_v6(255).unwrap();
                if !router.is_unspecified() {
                    let from = SocketAddrV6::new(router, 0, 0, index);
                    socket.bind(&from.into()).unwrap();
                }
                let all_nodes = "ff02::1".parse().unwrap();
                let to = SocketAddrV6::new(all_nodes, 0, 0, index);
                socket.send_to(message, &to.into()).unwrap();
            })
            .unwrap();
    }
}

fn path(link: &LinkStatus, family: Family) -> Option<PathStatus> {
    let mut paths = link.paths.iter();
    paths
        .find(|path| path.family == family.to_string())
        .cloned()
}

fn is(daemon: &Daemon, link: &str, family: Family, state: LinkState) -> bool {
    path(&daemon.link(link), family).is_some_and(|path| path.state == state)
}

fn externals(family: Family) -> [IpAddr; 2] {
    let links = PLANS[family.index()].links;
    links.map(|[near, _]| near.parse().unwrap())
}

#[test]
fn a_link_whose_ipv6_is_dead_goes_on_with_ipv4() {
    let rig = Rig::with(&BOTH);
    rig.serve_web();
    let daemon = rig.start();
    for link in ["fiber", "lte"] {
        for family in BOTH {
            until("it is up", || is(&daemon, link, family, LinkState::Up));
        }
    }
    for (option, family) in [("-4", Family::V4), ("-6", Family::V6)] {
        rig.sees(&[option], &externals(family));
    }

    rig.cut("wan0", &[Family::V6]);
    until("fiber's IPv6 is down", || {
        // Something has to be silent while packets are sent.
        let _ = rig.curl(&["-6"]);
        is(&daemon, "fiber", Family::V6, LinkState::Down)
    });
    assert!(is(&daemon, "fiber", Family::V4, LinkState::Up));
    rig.sees(&["-6"], &[externals(Family::V6)[1]]);
    rig.sees(&["-4"], &externals(Family::V4));

    rig.cut("wan1", &[Family::V6]);
    until("lte's IPv6 is down", || {
        is(&daemon, "lte", Family::V6, LinkState::Down)
    });
    let begun = Instant::now();
    let seen = rig.curl(&[]).expect("answered");
    println!("answered after {:?}", begun.elapsed());
    assert!(externals(Family::V4).contains(&seen), "{seen}");

    rig.mend(&[Family::V6]);
    for link in ["fiber", "lte"] {
        until("it is up again", || {
            is(&daemon, link, Family::V6, LinkState::Up)
        });
    }
    rig.sees(&["-6"], &externals(Family::V6));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn flows_of_a_family_use_the_links_that_have_it() {
    let rig = Rig::with(&BOTH);
    rig.serve_web();
    let impatient = "availability.grace = \"100ms\"";
    rig.write_config(&format!("{}{impatient}\n", rig.config_text()));
    rig.lose_v6("wan0");
    let daemon = rig.start();
    until("lte has IPv6", || {
        is(&daemon, "lte", Family::V6, LinkState::Up)
    });
    let fiber = daemon.link("fiber");
    assert_eq!(path(&fiber, Family::V6), None, "it never had it");
    assert_eq!(fiber.state, LinkState::Up);
    rig.sees(&["-6"], &[externals(Family::V6)[1]]);
    rig.sees(&["-4"], &externals(Family::V4));

    rig.lose_v6("wan1");
    until("what it had is missed", || {
        is(&daemon, "lte", Family::V6, LinkState::Absent)
    });
    assert_eq!(daemon.link("lte").state, LinkState::Up);
    rig.sees(&[], &externals(Family::V4));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// The trouble of RFC 8978: a router that comes back with another prefix, and says nothing of the one before.
#[test]
fn an_advertised_link_is_followed_to_another_prefix_at_once() {
    const FOLLOWS: Duration = Duration::from_secs(1);
    // A busy machine keeps the link from being followed in time, but not always.
    const CHANGES: u16 = 5;
    let prefix = |number: u16| Ipv6Addr::new(0x2001, 0xdb8, 0xa, number, 0, 0, 0, 0);
    let rig = Rig::of(Family::V6);
    let settings = |rig: &Rig| rig.fingerprint().lines().rev().nth(1).map(str::to_owned);
    let before = settings(&rig);
    rig.lose_v6("wan0");
    rig.lose_v6("wan1");
    for number in 1..=CHANGES + 1 {
        let on_link = format!("addr add {}1/64 dev wan0-far nodad", prefix(number));
        rig.internet.ip(&on_link).unwrap();
    }
    let daemon = rig.start();
    let external = || {
        let path = path(&daemon.link("fiber"), Family::V6)?;
        match (path.state, path.address) {
            (LinkState::Up, Some(IpAddr::V6(address))) => Some(address),
            _ => None,
        }
    };
    let is_in = |prefix: Ipv6Addr| {
        external().is_some_and(|address| address.octets()[..8] == prefix.octets()[..8])
    };
    until("the link has an address of the first prefix", || {
        rig.advertise("wan0", prefix(1), 3600);
        is_in(prefix(1))
    });
    let gateway = path(&daemon.link("fiber"), Family::V6).unwrap().gateway;
    let is_of_line =
        |gateway| matches!(gateway, Some(IpAddr::V6(v6)) if v6.is_unicast_link_local());
    assert!(is_of_line(gateway), "{gateway:?}");

    let followed = |number: u16| {
        let mut stream = rig.connect().unwrap();
        echo(&mut stream).unwrap();
        rig.advertise("wan0", prefix(number), 3600);
        let followed = until("new flows have an address of the next", || {
            is_in(prefix(number)) && echo(&mut rig.connect().unwrap()).is_ok()
        });
        echo(&mut stream).expect("the flow of before has an address that is still there");
        println!("followed after {followed:?}");
        followed < FOLLOWS
    };
    let last = (2..=CHANGES + 1).find(|number| followed(*number));
    let last = last.unwrap_or_else(|| panic!("not once within {FOLLOWS:?}"));
    let heeded = rig.gateway.sysctl("net/ipv6/conf/wan0/accept_ra");
    assert_eq!(heeded.unwrap(), "2");

    rig.advertise("wan0", prefix(last), 0);
    until("an address that is deprecated is left", || {
        !is_in(prefix(last))
    });
    echo(&mut rig.connect().unwrap()).unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(settings(&rig), before);
}

/// A host on the segment of a link that advertises itself as a router, with the highest preference (RFC 4191), a hop limit that
/// reaches nobody, and a prefix that nobody routes.
struct Rogue {
    router: Ipv6Addr,
    prefix: Ipv6Addr,
}

impl Rogue {
    fn on(rig: &Rig) -> Self {
        let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);
        // What somebody else's messages have as their source is chosen as before.
        let add = format!("addr add {router}/64 dev wan0-far nodad preferred_lft 0");
        rig.internet.ip(&add).unwrap();
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 0);
        Self { router, prefix }
    }

    fn advertises(&self, rig: &Rig, prefix: Ipv6Addr) {
        const PREFERENCE_HIGH: u8 = 0b01 << 3;
        let mut message = router_advertisement(prefix, 3600);
        (message[4], message[5]) = (1, PREFERENCE_HIGH);
        rig.advertise_by(self.router, "wan0", &message);
    }

    /// The gateway has an address of the prefix and a default route by the rogue.
    fn is_heard(&self, rig: &Rig, prefix: Ipv6Addr) -> bool {
        let said = |line: &str| rig.gateway.ip(line).unwrap();
        let network = prefix.to_string();
        let own = said("-6 addr show dev wan0 scope global -tentative");
        let routes = said("-6 route show default dev wan0");
        own.contains(network.trim_end_matches(':')) && routes.contains(&self.router.to_string())
    }
}

fn v6_address(daemon: &Daemon) -> Option<Ipv6Addr> {
    match path(&daemon.link("fiber"), Family::V6)?.address? {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

fn is_in(address: Option<Ipv6Addr>, prefix: Ipv6Addr) -> bool {
    address.is_some_and(|address| address.octets()[..8] == prefix.octets()[..8])
}

/// A line with a prefix by advertisements alone, which its router routes.
fn advertised_rig(prefix: Ipv6Addr) -> Rig {
    let rig = Rig::of(Family::V6);
    rig.lose_v6("wan0");
    rig.lose_v6("wan1");
    let on_link = format!("addr add {prefix}1/64 dev wan0-far nodad");
    rig.internet.ip(&on_link).unwrap();
    rig
}

const OUR_PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 1, 0, 0, 0, 0);

#[test]
fn a_rogue_advertisement_changes_nothing_of_a_link_that_works() {
    let rig = advertised_rig(OUR_PREFIX);
    let daemon = rig.start();
    until("the link works", || {
        rig.advertise("wan0", OUR_PREFIX, 3600);
        is(&daemon, "fiber", Family::V6, LinkState::Up) && is_in(v6_address(&daemon), OUR_PREFIX)
    });
    let before = path(&daemon.link("fiber"), Family::V6).unwrap();
    let stream = rig.connect().unwrap();
    let goes_on = || echo(&mut &stream);
    goes_on().unwrap();

    let rogue = Rogue::on(&rig);
    let lan = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0);
    for prefix in [rogue.prefix, lan] {
        rogue.advertises(&rig, prefix);
        until("the host has heard it", || rogue.is_heard(&rig, prefix));
        let asked = daemon.instance_status().uptime_s;
        until("it was judged since", || {
            goes_on().unwrap();
            echo(&mut rig.connect().unwrap()).unwrap();
            let now = path(&daemon.link("fiber"), Family::V6).unwrap();
            assert_eq!(now.state, LinkState::Up);
            assert_eq!((now.address, now.gateway), (before.address, before.gateway));
            daemon.instance_status().uptime_s > asked + 4.0
        });
    }

    let reachable = format!("addr add {}1/64 dev wan0-far nodad", rogue.prefix);
    rig.internet.ip(&reachable).unwrap();
    rig.advertise("wan0", OUR_PREFIX, 0);
    until("a deprecated address is left", || {
        is_in(v6_address(&daemon), rogue.prefix)
    });
    goes_on().expect("its flows linger");
    echo(&mut rig.connect().unwrap()).unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn a_rogue_that_was_there_first_is_left_for_the_router_that_works() {
    let rig = advertised_rig(OUR_PREFIX);
    let daemon = rig.start();
    let rogue = Rogue::on(&rig);
    until("the host has heard the rogue", || {
        rogue.advertises(&rig, rogue.prefix);
        is_in(v6_address(&daemon), rogue.prefix)
    });
    until("the link works", || {
        rig.advertise("wan0", OUR_PREFIX, 3600);
        is(&daemon, "fiber", Family::V6, LinkState::Up) && is_in(v6_address(&daemon), OUR_PREFIX)
    });
    echo(&mut rig.connect().unwrap()).unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn hosts_keep_their_part_of_the_address_where_a_prefix_is_routed_to_the_link() {
    let rig = Rig::of(Family::V6);
    rig.serve_web();
    let via = rig.external("wan0");
    rig.internet
        .ip(&format!("route add 2001:db8:a:100::/56 via {via}"))
        .unwrap();
    let routed = rig
        .config_text()
        .replace("\"wan0\",", "\"wan0\", prefix6 = \"2001:db8:a:100::/56\",");
    rig.write_config(&routed);
    let daemon = rig.start();
    until("fiber is up", || {
        is(&daemon, "fiber", Family::V6, LinkState::Up)
    });
    until("lte is up", || {
        is(&daemon, "lte", Family::V6, LinkState::Up)
    });
    let seen = rig.seen();
    let [lte] = seen
        .iter()
        .filter(|address| **address == externals(Family::V6)[1])
        .collect::<Vec<_>>()[..]
    else {
        panic!("{seen:?}")
    };
    let [IpAddr::V6(translated)] = seen
        .iter()
        .filter(|address| *address != lte)
        .collect::<Vec<_>>()[..]
    else {
        panic!("{seen:?}")
    };
    let [a, b, c, d, ..] = translated.segments();
    assert_eq!(
        [a, b, c, d & 0xff00],
        [0x2001, 0xdb8, 0xa, 0x100],
        "{translated}"
    );
    ask(&rig.udp()).unwrap();
    let host = PLANS[1].server;
    rig.client
        .exec("ping", &["-6", "-c", "2", "-i", "0.2", "-W", "2", host])
        .unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn who_is_outside_reaches_a_host_by_its_address_beyond_a_link_that_allows_it() {
    const PREFIX: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0x100, 0, 0, 0, 0), 56);
    let rig = Rig::of(Family::V6);
    let via = rig.external("wan0");
    rig.internet
        .ip(&format!("route add 2001:db8:a:100::/56 via {via}"))
        .unwrap();
    let with = |keys: &str| {
        let prefixed = format!("\"wan0\", prefix6 = \"2001:db8:a:100::/56\"{keys},");
        rig.config_text().replace("\"wan0\",", &prefixed)
    };
    rig.write_config(&with(""));
    let daemon = rig.start();
    until("fiber is up", || {
        is(&daemon, "fiber", Family::V6, LinkState::Up)
    });
    let [gateway, host] = PLANS[1].lan.map(|address| {
        let address: Ipv6Addr = address.parse().unwrap();
        let beyond = anabranch_policy::translate_prefix(address, PREFIX.0, PREFIX.1);
        SocketAddr::new(beyond.unwrap().into(), 8080)
    });
    let listen = |namespace: &Namespace| {
        let listener = namespace.listen("[::]:8080").unwrap();
        std::thread::spawn(move || {
            for (mut stream, _) in std::iter::from_fn(|| listener.accept().ok()) {
                let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
            }
        });
    };
    listen(&rig.client);
    listen(&rig.gateway);
    let call = |namespace: &Namespace, at: SocketAddr| {
        let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(1));
        let mut stream = namespace.run(connect).unwrap()?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        echo(&mut stream)
    };
    assert!(call(&rig.internet, host).is_err(), "it is not allowed");

    rig.write_config(&with(", inbound = \"allow\""));
    assert!(matches!(daemon.call(&Request::Reload), Response::Done));
    call(&rig.internet, host).unwrap();
    assert!(call(&rig.internet, gateway).is_err(), "the gateway's own");
    call(&rig.client, host).unwrap();
    let host = host.ip().to_string();
    rig.internet
        .exec("ping", &["-6", "-c", "2", "-i", "0.2", "-W", "2", &host])
        .unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Whoever took the delegation left a route of all of it that leads nowhere.
#[test]
fn a_delegated_prefix_is_found() {
    let rig = Rig::of(Family::V6);
    rig.serve_web();
    let via = rig.external("wan0");
    rig.internet
        .ip(&format!("route add 2001:db8:a:100::/56 via {via}"))
        .unwrap();
    rig.lose_v6("wan1");
    let daemon = rig.start();
    until("fiber is up", || {
        is(&daemon, "fiber", Family::V6, LinkState::Up)
    });
    rig.sees(&["-6"], &[externals(Family::V6)[0]]);
    rig.gateway
        .ip("route add unreachable 2001:db8:a:100::/56 proto dhcp")
        .unwrap();
    let prefix = || path(&daemon.link("fiber"), Family::V6)?.prefix;
    until("it is the link's", || {
        prefix().as_deref() == Some("2001:db8:a:100::/56")
    });
    let seen = rig.seen();
    assert!(!seen.contains(&externals(Family::V6)[0]), "{seen:?}");
    rig.gateway
        .ip("-6 route del unreachable 2001:db8:a:100::/56")
        .unwrap();
    until("it is withdrawn", || prefix().is_none());
    rig.sees(&["-6"], &[externals(Family::V6)[0]]);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
