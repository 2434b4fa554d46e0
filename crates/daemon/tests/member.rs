//! A member, with a client and a balancer, in network namespaces. The balancer is mostly of this test: it puts what the client sends
//! into tunnels, and routes the answers.

#[expect(dead_code, reason = "other tests need more of it")]
mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, UdpSocket};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch_api::{MemberAddress, MemberStatus, Request, Response, ServiceStatus};
use anabranch_core::polled::{LEN, answer, question, read_question};
use anabranch_core::{Family, Proto};
use anabranch_daemon::member::examine;
use anabranch_frames::{Ip, frame, frame_socket, udp_without_checksum};
use anabranch_testbed::netns::{Exit, Namespace};
use common::{DEADLINE, Daemon, Node, until};
use etherparse::IpNumber;
use nix::sys::signal::Signal;
use socket2::{Domain, Protocol, Socket, Type};

anabranch_testbed::in_both_families!(
    Family:
    a_client_is_answered_by_the_server_at_the_virtual_address_whatever_its_packets_come_in,
    superpackets_come_whole_from_a_balancer_of_this_program,
    nobody_is_told_where_the_virtual_address_is,
    a_clean_stop_leaves_the_host_as_it_was_and_a_killed_daemon_leaves_it_answering,
    a_balancer_goes_by_the_connections_that_servers_say_they_have,
);

const MTU: usize = 1500;
const ETHERNET: usize = 14;
const GUE_PORT: u16 = 6080;
/// More than fits one segment, so that each of them has to fit the tunnel.
const UPLOAD: usize = 200_000;

/// How a balancer sends on what clients send.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Direct,
    Ipip(Family),
    Gue(Family),
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Direct,
        Self::Ipip(Family::V4),
        Self::Ipip(Family::V6),
        Self::Gue(Family::V4),
        Self::Gue(Family::V6),
    ];

    fn outer_bytes(self) -> u32 {
        let ip = |family| if family == Family::V4 { 20 } else { 40 };
        match self {
            Self::Direct => 0,
            Self::Ipip(family) => ip(family),
            Self::Gue(family) => ip(family) + 12,
        }
    }

    /// The packet as the balancer sends it, and its family.
    fn wrap(self, inner: Family, packet: &[u8]) -> (Family, Vec<u8>) {
        let protocol = if inner == Family::V4 { 4 } else { 41 };
        let ends = |family| (balancer(family), server(family));
        match self {
            Self::Direct => (inner, packet.to_vec()),
            Self::Ipip(family) => {
                let (from, to) = ends(family);
                let outer = Ip::new(IpNumber(protocol), from, to, packet.to_vec());
                (family, outer.packet())
            }
            Self::Gue(family) => {
                let (from, to) = ends(family);
                let payload = [&[0, protocol, 0, 0], packet].concat();
                let outer = udp_without_checksum((from, 50_000), (to, GUE_PORT), &payload);
                (family, outer.packet())
            }
        }
    }
}

fn of(family: Family, v4: &str, v6: &str) -> IpAddr {
    let text = if family == Family::V4 { v4 } else { v6 };
    text.parse().unwrap()
}

fn vip(family: Family) -> SocketAddr {
    SocketAddr::new(of(family, "203.0.113.10", "2001:db8:a::10"), 80)
}

fn client(family: Family, node: u8) -> IpAddr {
    match family {
        Family::V4 => [198, 51, 100, node].into(),
        Family::V6 => [0x2001, 0xdb8, 7, 0, 0, 0, 0, node.into()].into(),
    }
}

fn balancer(family: Family) -> IpAddr {
    of(family, "10.0.0.1", "fd00::1")
}

fn server(family: Family) -> IpAddr {
    of(family, "10.0.0.11", "fd00::11")
}

struct Rig {
    family: Family,
    client: Namespace,
    balancer: Node,
    server: Node,
}

impl Deref for Rig {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.server
    }
}

impl Rig {
    fn new(family: Family) -> Self {
        let rig = Self {
            family,
            client: Namespace::create("client").unwrap(),
            balancer: Node::new(Namespace::create("balancer").unwrap()),
            server: Node::new(Namespace::create("server").unwrap()),
        };
        // Neighbours of IPv6 are asked from link-local addresses, which are otherwise no addresses for a second.
        for node in [&rig.client, &*rig.balancer, &rig.server] {
            let key = "net/ipv6/conf/default/accept_dad";
            node.set_sysctl(key, "0").unwrap();
        }
        rig.balancer.veth("c0", &rig.client, "eth0").unwrap();
        rig.balancer.veth("s0", &rig.server, "eth0").unwrap();
        // The balancer of this test reads whole frames with whole checksums.
        rig.client.set_offloads("eth0", false).unwrap();
        for family in Family::ALL {
            rig.address(&rig.client, "eth0", client(family, 7));
            rig.address(&rig.balancer, "c0", client(family, 1));
            rig.address(&rig.balancer, "s0", balancer(family));
            rig.address(&rig.server, "eth0", server(family));
            let [to_client, to_server] = [client(family, 1), balancer(family)];
            for (node, via) in [(&rig.client, to_client), (&*rig.server, to_server)] {
                node.ip(&format!("route add default via {via}")).unwrap();
            }
            let vip = vip(family).ip();
            rig.balancer
                .ip(&format!("route add blackhole {vip}"))
                .unwrap();
        }
        for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            rig.balancer.set_sysctl(key, "1").unwrap();
        }
        let strict = ("net/ipv4/conf/all/rp_filter", "1");
        rig.server.set_sysctl(strict.0, strict.1).unwrap();
        rig.write(&[vip(family).ip()]);
        rig
    }

    fn address(&self, node: &Namespace, device: &str, address: IpAddr) {
        let length = match address {
            IpAddr::V4(_) => "24",
            IpAddr::V6(_) => "64",
        };
        let nodad = if address.is_ipv6() { "nodad" } else { "" };
        node.ip(&format!(
            "address add {address}/{length} dev {device} {nodad}"
        ))
        .unwrap();
    }

    fn vip(&self) -> SocketAddr {
        vip(self.family)
    }

    fn write(&self, addresses: &[IpAddr]) {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        self.write_config(&format!(
            "[member]\naddresses = {addresses:?}\ndevices = [\"eth0\"]\n"
        ));
    }

    /// Everything of the host that the daemon may change.
    fn fingerprint(&self) -> String {
        let of_devices = |key: &str| {
            let of = |device| {
                self.sysctl(&format!("net/ipv4/conf/{device}/{key}"))
                    .unwrap()
            };
            ["all", "eth0", "lo"].map(of).join(" ")
        };
        let settings = ["arp_ignore", "arp_announce", "rp_filter"].map(of_devices);
        let addresses = self.ip("-brief address").unwrap();
        format!("{addresses}{}", settings.join("\n"))
    }

    /// Takes connections at the virtual address, and tells of each how many bytes it has had.
    fn serve(&self) {
        let listener = self.listen(self.vip()).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut sent = Vec::new();
                if stream.read_to_end(&mut sent).is_ok() {
                    let _ = write!(stream, "{}", sent.len());
                }
            }
        });
    }

    /// What the server says of a client that sends so many bytes.
    fn upload(&self, bytes: usize) -> std::io::Result<String> {
        let mut stream = self.client.connect(self.vip(), Duration::from_secs(2))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.write_all(&vec![7; bytes])?;
        stream.shutdown(Shutdown::Write)?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }
}

/// The balancer's half that sends on; it ends with this value.
struct Balancer {
    ends: Arc<AtomicBool>,
    longest: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Balancer {
    fn begin(rig: &Rig, way: Way) -> Self {
        let (ends, longest) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let macs = [rig.server.mac("eth0"), rig.balancer.mac("s0")].map(Result::unwrap);
        let called = rig.balancer.mac("c0").unwrap();
        let (from, to) = rig
            .balancer
            .run(|| (receiver(), frame_socket("s0").unwrap()))
            .unwrap();
        let (family, is_over, length) = (rig.family, Arc::clone(&ends), Arc::clone(&longest));
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !is_over.load(Ordering::Relaxed) {
                let Ok(read) = (&from).read(&mut buffer) else {
                    continue;
                };
                let Some(packet) = packet_for(called, vip(family).ip(), &buffer[..read]) else {
                    continue;
                };
                let (outer, wrapped) = way.wrap(family, packet);
                length.fetch_max(wrapped.len(), Ordering::Relaxed);
                let mut sent = frame(outer, &wrapped);
                sent[..12].copy_from_slice(macs.as_flattened());
                let _ = (&to).write(&sent);
            }
        });
        Self {
            ends,
            longest,
            thread: Some(thread),
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A socket that receives the frames of all devices.
fn receiver() -> Socket {
    let every = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every)).unwrap();
    let brief = Duration::from_millis(50);
    socket.set_read_timeout(Some(brief)).unwrap();
    socket
}

/// The packet of a frame to `mac` if it is for `address`.
fn packet_for(mac: [u8; 6], address: IpAddr, frame: &[u8]) -> Option<&[u8]> {
    let packet = &frame[ETHERNET..];
    let (kind, octets) = match address {
        IpAddr::V4(v4) => ([8, 0], v4.octets().to_vec()),
        IpAddr::V6(v6) => ([0x86, 0xdd], v6.octets().to_vec()),
    };
    let at = if address.is_ipv4() { 16 } else { 24 };
    let is_for =
        frame[..6] == mac && frame[12..14] == kind && packet.get(at..at + octets.len())? == octets;
    is_for.then_some(packet)
}

fn status(daemon: &Daemon) -> MemberStatus {
    match daemon.call(&Request::Status) {
        Response::Status(status) => *status.member.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn reload(daemon: &Daemon) {
    let answer = daemon.call(&Request::Reload);
    assert!(matches!(answer, Response::Done), "{answer:?}");
}

fn packets(daemon: &Daemon, reason: &str) -> u64 {
    let reasons = status(daemon).reasons;
    let found = reasons.iter().find(|one| one.name == reason);
    found.map_or(0, |one| one.packets)
}

fn a_client_is_answered_by_the_server_at_the_virtual_address_whatever_its_packets_come_in(
    family: Family,
) {
    for way in Way::ALL {
        let rig = Rig::new(family);
        let daemon = rig.start();
        rig.serve();
        let balancer = Balancer::begin(&rig, way);
        let told = rig.upload(UPLOAD);
        assert!(
            told.as_ref().is_ok_and(|told| *told == UPLOAD.to_string()),
            "{way:?}: {told:?}"
        );
        let longest = balancer.longest.load(Ordering::Relaxed);
        assert!((MTU - 12..=MTU).contains(&longest), "{way:?}: {longest}");
        let status = status(&daemon);
        assert_eq!(status.addresses[0].outer_bytes, way.outer_bytes());
        assert_eq!(status.troubles, [""; 0]);
        let taken = packets(&daemon, "ipip") + packets(&daemon, "gue");
        assert_eq!(taken > 0, way != Way::Direct, "{way:?}");
        assert_eq!(packets(&daemon, "syn-ack") > 0, way != Way::Direct);
        drop(balancer);
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

/// The kernel sends them between namespaces where it may leave segments and checksums to the other end.
fn superpackets_come_whole_from_a_balancer_of_this_program(family: Family) {
    const LONG: usize = 20_000_000;
    for way in Way::ALL {
        let (kind, to) = match way {
            Way::Direct => ("direct\"", family),
            Way::Ipip(to) => ("tunnel\"", to),
            Way::Gue(to) => ("tunnel\"\ngue_port = 6080", to),
        };
        let rig = Rig::new(family);
        rig.client.set_offloads("eth0", true).unwrap();
        rig.balancer.write_config(&format!(
            "[service.web]\nlisten = \"{}\"\nservers = [\"{}\"]\ndevices = [\"c0\", \"s0\"]\ncheck = \"icmp\"\nforwarding = \"{kind}\n",
            rig.vip(),
            server(to)
        ));
        let (member, balancer) = (rig.start(), rig.balancer.start());
        rig.serve();
        let told = rig.upload(LONG);
        assert!(
            told.as_ref().is_ok_and(|told| *told == LONG.to_string()),
            "{way:?}: {told:?}"
        );
        let taken = packets(&member, "ipip") + packets(&member, "gue");
        assert_eq!(taken > 0, way != Way::Direct, "{way:?}");
        let segments = (LONG / MTU) as u64;
        assert!(
            taken < segments / 4,
            "{way:?}: {taken} of {segments} segments one by one"
        );
        for daemon in [member, balancer] {
            assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
        }
    }
}

/// Address of a server that only says how many connections it has, on a cable of its own.
fn other(family: Family, node: u8) -> IpAddr {
    match family {
        Family::V4 => [10, 0, 1, node].into(),
        Family::V6 => [0xfd01, 0, 0, 0, 0, 0, 0, node.into()].into(),
    }
}

/// A server of this test: it says what `says` has, and something else than a load if that is the greatest number.
fn say_load(server: &Namespace, at: SocketAddr, says: &Arc<AtomicU64>) {
    let socket = server.run(move || UdpSocket::bind(at).unwrap()).unwrap();
    let says = Arc::clone(says);
    std::thread::spawn(move || {
        let mut bytes = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let number = read_question(&bytes[..length]).unwrap();
            let said = match says.load(Ordering::Relaxed) {
                u64::MAX => b"busy".to_vec(),
                connections => answer(number, connections).to_vec(),
            };
            socket.send_to(&said, from).unwrap();
        }
    });
}

/// What a balancer knows of its only service, and its troubles.
fn service(daemon: &Daemon) -> (ServiceStatus, String) {
    let Response::Status(status) = daemon.call(&Request::Status) else {
        panic!("no status")
    };
    let mut services = status.services.unwrap();
    (services.services.remove(0), services.troubles.join("\n"))
}

fn a_balancer_goes_by_the_connections_that_servers_say_they_have(family: Family) {
    const PORT: u16 = 6090;
    let rig = Rig::new(family);
    let second = Namespace::create("second").unwrap();
    rig.balancer.veth("s1", &second, "eth0").unwrap();
    rig.address(&rig.balancer, "s1", other(family, 1));
    rig.address(&second, "eth0", other(family, 12));
    let says = Arc::new(AtomicU64::new(1000));
    say_load(&second, SocketAddr::new(other(family, 12), PORT), &says);
    rig.write_config(&format!(
        "[member]\naddresses = [\"{}\"]\ndevices = [\"eth0\"]\nfrom = [\"{}\"]\nload_port = {PORT}\n",
        rig.vip().ip(),
        balancer(family)
    ));
    rig.balancer.write_config(&format!(
        "[service.web]\nlisten = \"{}\"\nservers = [\"{}\", \"{}\"]\ndevices = [\"c0\", \"s0\", \"s1\"]\ncheck = \"icmp\"\nforwarding = \"direct\"\npolicy = \"CONN\"\nties = \"first\"\npoll = \"100ms\"\n",
        rig.vip(),
        server(family),
        other(family, 12)
    ));
    let (member, daemon) = (rig.start(), rig.balancer.start());
    rig.serve();
    let loads = || service(&daemon).0.servers.into_iter().map(|one| one.load);
    let are = |expected: [Option<u64>; 2]| {
        until("loads are known", || loads().eq(expected));
    };
    let goes_to = |wanted: IpAddr| {
        until("the choice follows", || {
            let asked = daemon.call(&Request::ExplainService {
                service: "web".to_owned(),
                client: SocketAddr::new(client(family, 7), 4000),
                called: None,
                proto: Proto::Tcp,
            });
            let Response::Served(would) = asked else {
                panic!("{asked:?}")
            };
            would.server == Some(SocketAddr::new(wanted, 0))
        });
    };
    are([Some(0), Some(1000)]);
    goes_to(server(family));
    let _held = [(); 2].map(|()| rig.client.connect(rig.vip(), DEADLINE).unwrap());
    are([Some(2), Some(1000)]);
    says.store(1, Ordering::Relaxed);
    goes_to(other(family, 12));
    says.store(3, Ordering::Relaxed);
    goes_to(server(family));
    assert_eq!(service(&daemon).1, "");

    let stranger = rig
        .client
        .run(|| UdpSocket::bind((any(family), 0)).unwrap());
    let asked_at = SocketAddr::new(server(family), PORT);
    stranger.unwrap().send_to(&question(7), asked_at).unwrap();
    let told = || status(&member).load.unwrap();
    until("a stranger is ignored", || told().ignored == 1);
    assert_eq!(told().connections, 2);
    let polled = service(&daemon).0.polled.unwrap();
    let header = if family == Family::V4 { 20 } else { 40 };
    let bytes = (polled.questions + polled.answers) * (header + 8 + LEN as u64);
    assert_eq!(polled.bytes, bytes);
    assert!(polled.answers > 0, "{polled:?}");

    says.store(u64::MAX, Ordering::Relaxed);
    are([Some(2), None]);
    let (_, troubles) = service(&daemon);
    assert!(
        troubles.contains("what it answers is no load"),
        "{troubles}"
    );
    assert_eq!(member.end(Signal::SIGTERM), Exit::Code(0));
    are([None, None]);
    let (_, troubles) = service(&daemon);
    assert!(troubles.contains("Connection refused"), "{troubles}");
    goes_to(other(family, 12));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn any(family: Family) -> IpAddr {
    of(family, "0.0.0.0", "::")
}

/// Whether a host on the server's network finds out who has the virtual address.
fn is_found(rig: &Rig) -> bool {
    let vip = rig.vip().ip();
    let balancer = &rig.balancer;
    balancer.ip(&format!("route replace {vip} dev s0")).unwrap();
    let family = if vip.is_ipv4() { "-4" } else { "-6" };
    let socket = balancer
        .udp((self::balancer(rig.family), 0), DEADLINE)
        .unwrap();
    socket.send_to(b"?", (vip, 9)).unwrap();
    let mut found = None;
    until("the neighbour is found or not", || {
        let told = balancer
            .ip(&format!("{family} neighbour show {vip}"))
            .unwrap();
        found = match told {
            _ if told.contains("lladdr") => Some(true),
            _ if told.contains("FAILED") => Some(false),
            _ => None,
        };
        found.is_some()
    });
    balancer
        .ip(&format!("{family} neighbour flush dev s0"))
        .unwrap();
    found.unwrap()
}

fn nobody_is_told_where_the_virtual_address_is(family: Family) {
    let rig = Rig::new(family);
    let vip = rig.vip().ip();
    // Of IPv4 a host answers for whatever address it has anywhere.
    rig.ip(&format!("address add {vip} dev lo")).unwrap();
    assert_eq!(is_found(&rig), family == Family::V4);
    rig.ip(&format!("address del {vip} dev lo")).unwrap();
    let daemon = rig.start();
    assert!(!is_found(&rig));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_clean_stop_leaves_the_host_as_it_was_and_a_killed_daemon_leaves_it_answering(family: Family) {
    let rig = Rig::new(family);
    let (given, own) = (rig.vip().ip(), of(family, "203.0.113.11", "2001:db8:a::11"));
    rig.ip(&format!("address add {own} dev lo")).unwrap();
    let before = rig.fingerprint();
    rig.write(&[given, own]);
    let daemon = rig.start();
    assert_ne!(rig.fingerprint(), before);
    rig.serve();
    let balancer = Balancer::begin(&rig, Way::Ipip(Family::V4));
    assert_eq!(rig.upload(1).unwrap(), "1");
    daemon.end(Signal::SIGKILL);
    assert_eq!(rig.upload(2).unwrap(), "2");
    let daemon = rig.start();
    assert!(status(&daemon).adopted);
    assert_eq!(rig.upload(3).unwrap(), "3");
    // Somebody takes the address away: it comes back.
    let device = "dev lo";
    let address = match given {
        IpAddr::V4(_) => format!("{given}/32"),
        IpAddr::V6(_) => format!("{given}/128"),
    };
    rig.ip(&format!("address del {address} {device}")).unwrap();
    until("the address is there again", || {
        rig.ip("address show dev lo").unwrap().contains(&address)
    });
    // It leaves the file.
    rig.write(&[own]);
    reload(&daemon);
    let told = rig.ip("address show dev lo").unwrap();
    assert!(!told.contains(&address), "{told}");
    assert!(rig.upload(4).is_err());
    rig.write(&[given, own]);
    reload(&daemon);
    assert_eq!(rig.upload(5).unwrap(), "5");
    drop(balancer);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

#[test]
fn what_the_host_cannot_be_is_refused_with_one_line() {
    let rig = Rig::new(Family::V4);
    let vip = rig.vip();
    rig.write_config(&format!(
        "[member]\naddresses = [\"{}\"]\ndevices = [\"eth9\"]\n",
        vip.ip()
    ));
    let says =
        "DIR/anabranch.toml: member.devices[0] = \"eth9\": no such device; there are eth0, lo";
    assert_eq!(rig.refused(), says);
    rig.write_config(&format!(
        "[member]\naddresses = [\"{}\"]\ndevices = [\"eth0\"]\n[service.web]\nlisten = \"{vip}\"\nservers = [\"10.0.0.12:80\"]\ndevices = [\"lo\"]\n",
        vip.ip()
    ));
    let says = "service.web of this file listens there: a server is another host than its balancer";
    assert!(rig.refused().ends_with(says), "{}", rig.refused());
}

/// The names of what is found wrong with the server.
fn doctor(rig: &Rig, status: Option<MemberStatus>) -> Vec<String> {
    let examined = rig.run(|| examine(&rig.config(), &rig.paths(), status));
    let found = examined.unwrap().unwrap();
    found.into_iter().map(|finding| finding.name).collect()
}

#[test]
fn a_server_that_the_daemon_has_set_up_lacks_nothing() {
    for family in Family::ALL {
        let rig = Rig::new(family);
        let mut lacks = vec!["address-missing", "not-listening", "not-running"];
        if family == Family::V4 {
            lacks.extend(["arp-announced", "arp-answered"]);
        }
        let mut found = doctor(&rig, None);
        found.sort_unstable();
        lacks.sort_unstable();
        assert_eq!(found, lacks);
        let daemon = rig.start();
        rig.serve();
        assert_eq!(doctor(&rig, Some(status(&daemon))), [""; 0]);
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

#[test]
fn each_fault_of_a_server_is_found_and_no_other() {
    let rig = Rig::new(Family::V4);
    let vip = rig.vip().ip();
    let set = |key: &str, value| {
        let key = format!("net/ipv4/conf/eth0/{key}");
        rig.set_sysctl(&key, value).unwrap();
    };
    let run = |lines: &[String]| lines.iter().for_each(|line| drop(rig.ip(line).unwrap()));
    run(&[format!("address add {vip} dev lo")]);
    set("arp_ignore", "1");
    set("arp_announce", "2");
    let good = MemberStatus {
        adopted: false,
        troubles: Vec::new(),
        devices: vec!["eth0".into()],
        addresses: vec![MemberAddress {
            address: vip,
            outer_bytes: 20,
        }],
        load: None,
        reasons: Vec::new(),
    };
    let found = |faults: &[&str]| assert_eq!(doctor(&rig, Some(good.clone())), faults);
    found(&["not-listening"]);
    rig.serve();
    found(&[]);
    for (fault, broken, mended) in [
        (
            "address-missing",
            format!("address del {vip}/32 dev lo"),
            format!("address add {vip} dev lo"),
        ),
        (
            "address-announced",
            format!("address add {vip} dev eth0"),
            format!("address del {vip}/32 dev eth0"),
        ),
        (
            "short-mtu",
            "link set eth0 mtu 1300".into(),
            "link set eth0 mtu 1500".into(),
        ),
        (
            "no-route",
            "route del default".into(),
            "route add default via 10.0.0.1".into(),
        ),
    ] {
        run(&[broken]);
        found(&[fault]);
        run(&[mended]);
    }
    for (fault, key, broken, mended) in [
        ("arp-answered", "arp_ignore", "0", "1"),
        ("arp-announced", "arp_announce", "1", "2"),
    ] {
        set(key, broken);
        found(&[fault]);
        set(key, mended);
    }
    let other = [
        "link add other type veth peer name end",
        "link set other up",
        "route replace default dev other",
    ];
    run(&other.map(str::to_owned));
    found(&["long-segments", "strict-filter"]);
    set("rp_filter", "2");
    found(&["long-segments"]);
    run(&["route replace default via 10.0.0.1".into()]);
    let chain = "{ type filter hook input priority 0; policy drop; }";
    let table = format!("table ip f {{\n chain input {chain}\n}}");
    rig.nft(&table).unwrap();
    found(&["input-filter"]);
    rig.nft("delete table ip f").unwrap();
    let ill = MemberStatus {
        troubles: vec!["eth0: no room".into()],
        ..good.clone()
    };
    assert_eq!(doctor(&rig, Some(ill)), ["trouble"]);
    let text = |devices: &str, from: IpAddr| {
        rig.write_config(&format!(
            "[member]\naddresses = [\"{vip}\"]\ndevices = [{devices}]\nfrom = [\"{from}\"]\n"
        ));
    };
    text("\"eth0\"", server(Family::V4));
    found(&["martian-source"]);
    text("\"eth0\", \"eth9\"", balancer(Family::V4));
    found(&["device-missing", "not-reloaded"]);
}
