//! Beside what else routes on the box: VPNs with rules of their own, containers, forwards, networks of the internet's.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anabranch_core::Family;
use anabranch_testbed::netns::{Exit, Namespace};
use nix::sys::signal::Signal;

use crate::rig::*;

pub(super) const PUBLISHED_PORT: u16 = 8080;
const BRIEFLY: Duration = Duration::from_millis(500);
/// What wg-quick adds for a tunnel that takes everything, and how it takes that away again: until none is left.
const TUNNEL_RULES: [&str; 2] = [
    "not fwmark 51820 table 51820",
    "table main suppress_prefixlength 0",
];
const TUNNEL_DOWN: &str = r#"
for version in -4 -6; do
  while [ -n "$(ip $version rule show | grep 'lookup 51820')" ]; do ip $version rule delete table 51820; sleep 0.03; done
  while [ -n "$(ip $version rule show | grep 'from all lookup main suppress_prefixlength 0')" ]; do
    ip $version rule delete table main suppress_prefixlength 0; sleep 0.03
  done
done
"#;

impl Rig {
    fn version(&self) -> &'static str {
        match self.family() {
            Family::V4 => "-4",
            Family::V6 => "-6",
        }
    }

    fn rules(&self) -> String {
        self.gateway
            .ip(&format!("{} rule", self.version()))
            .unwrap()
    }

    /// The device the box would send by.
    fn device(&self, question: &str) -> String {
        let question = format!("{} route get {question}", self.version());
        let answer = self.gateway.ip(&question).unwrap();
        let mut words = answer.split_whitespace().skip_while(|word| *word != "dev");
        words.nth(1).unwrap().to_owned()
    }

    /// A tunnel's device, with a default route in a table of its own.
    pub(super) fn tunnel_device(&self) {
        self.gateway
            .veth("tun0", &self.internet, "tun0-far")
            .unwrap();
        let ([near, far], length) = tunnel_ends(self.family());
        address(&self.gateway, "tun0", near, length);
        address(&self.internet, "tun0-far", far, length);
        let default = format!("route add default via {far} dev tun0 table 51820");
        self.gateway.ip(&default).unwrap();
    }

    pub(super) fn tunnel_up(&self) {
        for rule in TUNNEL_RULES {
            let rule = format!("{} rule add {rule}", self.version());
            self.gateway.ip(&rule).unwrap();
        }
    }

    /// Providers let nothing pass that is not of their network.
    pub(super) fn providers_check_sources(&self) {
        let words = words(self.family());
        let [first, second] = ["wan0", "wan1"].map(|device| self.external(device));
        let length = self.plan().lengths[0];
        let filter = format!(
            "table {words} providers {{ chain c {{ type filter hook prerouting priority raw; \
             iifname wan0-far {words} saddr {second}/{length} drop; \
             iifname wan1-far {words} saddr {first}/{length} drop; }}; }}"
        );
        self.internet.nft(&filter).unwrap();
    }

    /// A connection of the server's, which is on no link's network.
    pub(super) fn call_from_afar(&self, to: SocketAddr) -> std::io::Result<()> {
        let server = SocketAddr::new(self.plan().address(), 0);
        let call = || {
            let domain = socket2::Domain::for_address(server);
            let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
            socket.bind(&server.into())?;
            socket.connect_timeout(&to.into(), Duration::from_secs(3))
        };
        self.internet.run(call).unwrap()
    }

    fn tunnel_down(&self) {
        self.gateway.exec("sh", &["-c", TUNNEL_DOWN]).unwrap();
    }

    /// A container on a bridge, which the box translates by itself, with a service that is published as [`PUBLISHED_PORT`]; nothing
    /// else may be forwarded.
    pub(super) fn container(&self) -> Namespace {
        let container = namespace("container");
        let bridge = "link add docker0 type bridge forward_delay 0";
        self.gateway.ip(bridge).unwrap();
        self.gateway.veth("veth0", &container, "eth0").unwrap();
        self.gateway.ip("link set veth0 master docker0").unwrap();
        self.gateway.ip("link set docker0 up").unwrap();
        let family = self.family().index();
        let [near, far] = [["172.17.0.1", "172.17.0.2"], ["fd00:17::1", "fd00:17::2"]][family];
        let length = [16, 64][family];
        address(&self.gateway, "docker0", near, length);
        address(&container, "eth0", far, length);
        container
            .ip(&format!("route add default via {near}"))
            .unwrap();
        let words = words(self.family());
        let service = SocketAddr::new(far.parse().unwrap(), 80);
        let rules = format!(
            "table {words} docker {{ chain d {{ type nat hook prerouting priority dstnat; \
             fib daddr type local tcp dport {PUBLISHED_PORT} dnat to {service}; }}; chain c {{ type nat hook postrouting priority srcnat; \
             iifname docker0 oifname != docker0 masquerade; }}; \
             chain f {{ type filter hook forward priority filter; policy drop; \
             ct state established,related accept; ct status dnat accept; iifname docker0 oifname != docker0 accept; }}; }}"
        );
        self.nft(&rules);
        container
    }
}

/// The box's end of a tunnel and the other.
pub(super) fn tunnel_ends(family: Family) -> ([&'static str; 2], u8) {
    match family {
        Family::V4 => (["10.2.0.2", "10.2.0.1"], 24),
        Family::V6 => (["fd00:2::2", "fd00:2::1"], 64),
    }
}

fn connect(from: &Namespace, to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    let stream = from.connect(to, BRIEFLY)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    Ok(stream)
}

anabranch_testbed::in_both_families!(
    Family:
    a_tunnel_takes_what_the_box_sends_whichever_started_first,
    rules_of_others_are_followed_with_all_that_they_ask_for,
    containers_leave_a_dead_link_and_stay_where_they_are_when_it_returns,
    a_forward_is_answered_by_the_link_it_came_by,
    questions_of_the_lan_can_be_forced_to_the_boxs_resolver,
);

fn a_tunnel_takes_what_the_box_sends_whichever_started_first(family: Family) {
    let rig = Rig::of(family);
    rig.tunnel_device();
    let before = rig.fingerprint();
    let (server, second) = (rig.plan().server, rig.external("wan1"));
    let is_inside = || {
        let answers = rig.device(&format!("{server} from {second}"));
        assert_eq!(answers, "wan1", "what came by a link is answered there");
        rig.device(server) == "tun0" && rig.device(&format!("{server} mark 51820")) == "wan0"
    };
    rig.tunnel_up();
    let daemon = rig.start_up();
    until("the tunnel that was first takes all", is_inside);

    rig.tunnel_down();
    until("the links are back", || rig.device(server) == "wan0");
    assert!(!rig.rules().contains("51820"), "{}", rig.rules());
    until("all of ours are back", || {
        let rules = rig.rules();
        ["wan0", "wan1"].iter().all(|device| {
            let specific = format!("from {} lookup main suppress", rig.external(device));
            rules.contains(&specific)
        })
    });

    rig.tunnel_up();
    until("the tunnel that is second takes all", || {
        let second = rig.device(&format!("{server} from {second}"));
        rig.device(server) == "tun0" && second == "wan1"
    });
    until("and answers stay", is_inside);
    rig.tunnel_down();
    until("the links are back", || rig.device(server) == "wan0");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

fn rules_of_others_are_followed_with_all_that_they_ask_for(family: Family) {
    let rig = Rig::of(family);
    rig.tunnel_device();
    let daemon = rig.start_up();
    let (version, server) = (rig.version(), rig.plan().server);
    let add = |rule: &str| {
        rig.gateway
            .ip(&format!("{version} rule add {rule}"))
            .unwrap()
    };
    let of = |what: &str| rig.device(&format!("{server} {what}"));
    until("the first link leads", || of("") == "wan0");

    add("uidrange 1000-1000 pref 32700 table 51820");
    until("one user's go there", || of("uid 1000") == "tun0");
    assert_eq!((of("uid 1001"), of("")), ("wan0".into(), "wan0".into()));
    add("fwmark 0x10/0xf0 ipproto tcp dport 443 pref 32701 table 51820");
    let tcp = |port| of(&format!("mark 0x1f ipproto tcp dport {port}"));
    until("what is asked for goes there", || tcp(443) == "tun0");
    assert_eq!(tcp(80), "wan0");
    add(&format!("to {server} pref 32699 prohibit"));
    until("what is forbidden is", || {
        rig.gateway.ip(&format!("route get {server}")).is_err()
    });
    for pref in [32_699, 32_700, 32_701] {
        let rule = format!("{version} rule del pref {pref}");
        rig.gateway.ip(&rule).unwrap();
    }
    until("they are gone, and their copies", || {
        let rules = rig.rules();
        ["prohibit", "uidrange", "0x10/0xf0"]
            .iter()
            .all(|word| !rules.contains(word))
    });
    assert_eq!(of("uid 1000"), "wan0");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn containers_leave_a_dead_link_and_stay_where_they_are_when_it_returns(family: Family) {
    let rig = Rig::of(family);
    let container = rig.container();
    let before = rig.fingerprint();
    let daemon = rig.start_up();
    let reaches = || connect(&container, &rig.server()).is_ok_and(|mut s| echo(&mut s).is_ok());
    until("by the first link", reaches);
    let mut lost = connect(&container, &rig.server()).unwrap();
    echo(&mut lost).unwrap();
    rig.cut("wan0", &rig.families());
    until("by the second", reaches);
    until("what the first link had ends", || {
        let mut lost = &lost;
        let _ = lost.write_all(b"x");
        lost.set_read_timeout(Some(LOOK_AGAIN)).unwrap();
        let end = lost.read(&mut [0]);
        end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    });
    let mut stream = connect(&container, &rig.server()).unwrap();
    echo(&mut stream).unwrap();
    rig.mend(&rig.families());
    all_up(&daemon);
    until("the first link leads again", || {
        rig.device(rig.plan().server) == "wan0"
    });
    echo(&mut stream).expect("a connection stays on a link that works");
    echo(&mut connect(&container, &rig.server()).unwrap()).unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

fn a_forward_is_answered_by_the_link_it_came_by(family: Family) {
    let rig = Rig::of(family);
    let service = SocketAddr::new(rig.plan().lan[1].parse().unwrap(), 8080);
    let listener = rig.client.listen(service).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let family_words = words(family);
    rig.nft(&format!(
        "table {family_words} theirs {{ chain c {{ type nat hook prerouting priority dstnat; \
         iifname {{ wan0, wan1 }} tcp dport 9090 dnat to {service}; }}; }}"
    ));
    rig.providers_check_sources();
    rig.write_config(&format!(
        "{}[nat]\nforwards = \"kernel\"\n",
        rig.config_text()
    ));
    let daemon = rig.start_up();
    for device in ["wan0", "wan1"] {
        let to = SocketAddr::new(rig.external(device).parse().unwrap(), 9090);
        rig.call_from_afar(to).expect("it is answered");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn questions_of_the_lan_can_be_forced_to_the_boxs_resolver(family: Family) {
    const RULE: &str = r#"
[[rule]]
name = "dns"
protocol = "udp"
ports = 53
links = []
none = "kernel"
"#;
    let rig = Rig::of(family);
    rig.nft(&format!(
        "table {} theirs {{ chain c {{ type nat hook prerouting priority dstnat; \
         iifname lan0 udp dport 53 redirect to :5353; }}; }}",
        words(family)
    ));
    let at = SocketAddr::new(rig.unbound().ip(), 5353);
    let resolver = rig.gateway.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = resolver.recv_from(&mut question) {
            let _ = resolver.send_to(&question[..length], from);
        }
    });
    rig.write_config(&format!("{}{RULE}", rig.config_text()));
    let daemon = rig.start_up();
    let socket = rig.udp();
    socket.connect(rig.port(53)).unwrap();
    ask(&socket).expect("nobody but the box's resolver is there");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Of IPv6: networks of IPv4 that are routed are rarer, and treated alike.
#[test]
fn a_network_that_is_routed_here_beside_the_lan_leaves_as_it_is() {
    let rig = Rig::of(Family::V6);
    let host = namespace("dmz");
    rig.gateway.veth("dmz0", &host, "eth0").unwrap();
    address(&rig.gateway, "dmz0", "2001:db8:a:101::1", 64);
    address(&host, "eth0", "2001:db8:a:101::5", 64);
    host.ip("route add default via 2001:db8:a:101::1").unwrap();
    rig.internet
        .ip("route add 2001:db8:a:100::/56 via 2001:db8:a::2")
        .unwrap();
    let settings = "[nat]\nforwards = \"kernel\"\n";
    let plain = format!("{}{settings}", rig.config_text());
    let device = "device = \"wan0\",";
    let written = format!("{device} prefixes = [\"2001:db8:a:100::/56\"],");
    for text in [plain.clone(), plain.replace(device, &written)] {
        rig.write_config(&text);
        let daemon = rig.start_up();
        let mut stream = connect(&host, &rig.server()).unwrap();
        echo(&mut stream).unwrap();
        assert_eq!(packets(&daemon, "kernel-foreign-source"), 0);
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}
