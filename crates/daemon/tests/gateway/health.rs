//! Links that work although something is filtered, and links that answer although they do not work.

use std::cell::{Cell, OnceCell};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anabranch_api::{LinkState, TargetStatus};
use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::{RData, Record};
use nix::sys::signal::Signal;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::TcpMaxSeg;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    a_way_of_asking_that_is_filtered_costs_a_link_nothing_and_is_told,
    a_link_behind_a_captive_portal_takes_no_flows_until_it_lets_pages_through,
    a_link_that_answers_dns_and_carries_nothing_is_captive_and_keeps_its_flows,
    targets_that_die_for_all_links_at_once_take_none_down,
    one_host_that_calls_one_dead_server_takes_no_link_down,
    a_host_that_can_send_no_probes_loses_no_link,
    a_path_that_carries_less_than_its_device_is_found_and_tcp_is_kept_so_short,
    a_full_connection_table_is_nothing_to_probes,
    beside_a_firewall_that_looks_at_connections_probes_are_tracked,
);

const PAGE_PORT: u16 = 8080;

fn with_targets(rig: &Rig, targets: &str) -> String {
    let text = rig.config_text();
    let begin = text.find("probe.targets").unwrap();
    format!("{}probe.targets = [{targets}]\n", &text[..begin])
}

fn a_way_of_asking_that_is_filtered_costs_a_link_nothing_and_is_told(family: Family) {
    const LONG: Duration = Duration::from_secs(6);
    let rig = Rig::of(family);
    let server = rig.plan().server;
    let targets = format!("\"tcp:{}\", \"icmp:{server}\"", rig.server());
    rig.write_config(&with_targets(&rig, &targets));
    let daemon = rig.start_up();
    until("both ways are answered", || {
        let targets = daemon.link("fiber").probe.targets;
        targets.iter().all(|target| target.answered > 0)
    });
    let table = words(family);
    let filter = format!(
        "table {table} filter {{ chain c {{ type filter hook prerouting priority raw; iifname wan0-far tcp dport 80 drop; }}; }}"
    );
    rig.internet.nft(&filter).unwrap();
    let begun = Instant::now();
    until("it is told", || {
        let link = daemon.link("fiber");
        assert_ne!(link.state, LinkState::Down, "{}", link.why);
        link.why == "answers; TCP is not answered over this link: filtered"
            && begun.elapsed() > LONG
    });
    let fiber = daemon.link("fiber");
    assert_eq!(fiber.probe.filtered, ["TCP"]);
    assert_eq!(fiber.paths[0].falls_last_hour, 0);
    assert!(daemon.link("lte").probe.filtered.is_empty());
    let status = daemon.status();
    assert!(status.problems.is_empty(), "{:?}", status.problems);
    rig.internet
        .exec("nft", &["delete", "table", table, "filter"])
        .unwrap();
    until("it is over", || daemon.link("fiber").why == "answers");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Serves an empty page, or sends whoever comes by the first link elsewhere.
fn serve_pages(rig: &Rig, portal: &Arc<AtomicBool>) {
    let at = SocketAddr::new(rig.plan().address(), PAGE_PORT);
    let listener = rig.internet.listen(at).unwrap();
    let captive: IpAddr = rig.external("wan0").parse().unwrap();
    let portal = Arc::clone(portal);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let is_captive = stream.peer_addr().is_ok_and(|peer| peer.ip() == captive);
            let answer = match is_captive && portal.load(Ordering::Relaxed) {
                true => "302 Found\r\nLocation: http://portal.example/",
                false => "204 No Content",
            };
            let _ = stream.read(&mut [0; 1024]);
            let _ = write!(stream, "HTTP/1.1 {answer}\r\n\r\n");
        }
    });
}

/// On the internet, once the address is there: the kernel is done with those of IPv6 a little after it was told.
fn bind<T: Send>(rig: &Rig, bind: impl Fn() -> std::io::Result<T> + Send + Sync) -> T {
    let bound = OnceCell::new();
    until("the address is there", || {
        let socket = rig.internet.run(&bind).unwrap();
        socket.is_ok_and(|socket| bound.set(socket).is_ok())
    });
    bound.into_inner().unwrap()
}

/// A public resolver that knows one address for every name.
fn serve_names(rig: &Rig) {
    let (resolver, length) = match rig.family() {
        Family::V4 => ("1.1.1.1", 32),
        Family::V6 => ("2606:4700:4700::1111", 128),
    };
    let server = rig.plan().address();
    rig.internet
        .ip(&format!("addr add {resolver}/{length} dev lo"))
        .unwrap();
    let at = SocketAddr::new(resolver.parse().unwrap(), 53);
    let socket = bind(rig, || UdpSocket::bind(at));
    std::thread::spawn(move || {
        let mut datagram = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut datagram) {
            let mut message = Message::from_vec(&datagram[..length]).unwrap();
            let name = message.queries()[0].name().clone();
            let data = match server {
                IpAddr::V4(address) => RData::A(address.into()),
                IpAddr::V6(address) => RData::AAAA(address.into()),
            };
            message.set_message_type(MessageType::Response);
            message.add_answer(Record::from_rdata(name, 60, data));
            let _ = socket.send_to(&message.to_vec().unwrap(), client);
        }
    });
}

fn a_link_behind_a_captive_portal_takes_no_flows_until_it_lets_pages_through(family: Family) {
    let rig = Rig::of(family);
    let portal = Arc::new(AtomicBool::new(true));
    serve_pages(&rig, &portal);
    serve_names(&rig);
    let page = format!("http:check.example:{PAGE_PORT}/generate_204 = 204");
    let targets = format!("\"tcp:{}\", \"{page}\"", rig.server());
    rig.write_config(&with_targets(&rig, &targets));
    let daemon = rig.start();
    until("the portal is noticed", || {
        daemon.link("fiber").state == LinkState::Down
    });
    let fiber = daemon.link("fiber");
    let wanted = format!(
        "captive portal: http:check.example:{PAGE_PORT}/generate_204 answered 302, wanted 204"
    );
    assert_eq!(fiber.why, wanted);
    let problems = daemon.status().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(
        (problems[0].kind.as_str(), problems[0].fails),
        ("captive", true)
    );
    assert!(
        problems[0]
            .to_string()
            .starts_with("fiber: down for 0 s: captive portal: ")
    );
    let opened = fiber.flows.opened;
    for _ in 0..4 {
        echo(&mut rig.connect().unwrap()).unwrap();
    }
    assert_eq!(daemon.link("fiber").flows.opened, opened);
    portal.store(false, Ordering::Relaxed);
    until("the link is in use again", || {
        daemon.link("fiber").state == LinkState::Up
    });
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Further ends on the internet, that accept connections.
fn serve_others(rig: &Rig) -> Vec<SocketAddr> {
    let (addresses, length) = match rig.family() {
        Family::V4 => (["192.0.2.11", "192.0.2.12", "192.0.2.13"], 32),
        Family::V6 => (
            [
                "2001:db8:ffff::11",
                "2001:db8:ffff::12",
                "2001:db8:ffff::13",
            ],
            128,
        ),
    };
    let serve = |address: &str| {
        rig.internet
            .ip(&format!("addr add {address}/{length} dev lo"))
            .unwrap();
        let at = SocketAddr::new(address.parse().unwrap(), 80);
        let listener = bind(rig, || TcpListener::bind(at));
        std::thread::spawn(move || listener.incoming().for_each(drop));
        at
    };
    addresses.map(serve).into()
}

/// Connects to each of these ends again and again while the guard lives, as users do.
fn keep_connecting(rig: &Rig, ends: &[SocketAddr]) -> Arc<()> {
    let guard = Arc::new(());
    for (end, _) in ends
        .iter()
        .flat_map(|end| (0..4).map(move |turn| (*end, turn)))
    {
        let alive = Arc::downgrade(&guard);
        rig.client
            .run(|| {
                std::thread::spawn(move || {
                    while alive.upgrade().is_some() {
                        let connected = TcpStream::connect_timeout(&end, Duration::from_secs(3));
                        drop(connected);
                        std::thread::park_timeout(Duration::from_millis(50));
                    }
                })
            })
            .unwrap();
    }
    guard
}

fn a_link_that_answers_dns_and_carries_nothing_is_captive_and_keeps_its_flows(family: Family) {
    let rig = Rig::of(family);
    serve_names(&rig);
    let ends = serve_others(&rig);
    let resolver = match family {
        Family::V4 => "1.1.1.1",
        Family::V6 => "2606:4700:4700::1111",
    };
    let server = rig.plan().server;
    let targets = format!(
        "\"dns:{resolver}\", \"tcp:{}\", \"icmp:{server}\"",
        rig.server()
    );
    rig.write_config(&with_targets(&rig, &targets));
    let daemon = rig.start_up();
    let flows: Vec<UdpSocket> = (0..4).map(|_| rig.udp()).collect();
    flows.iter().for_each(|flow| ask(flow).unwrap());
    assert!(daemon.link("fiber").flows.live > 0);
    let (table, discovery) = (words(family), "icmpv6 type >= 133");
    let filter = format!(
        "table {table} captive {{ chain c {{ type filter hook prerouting priority raw; {} iifname wan0-far udp dport != 53 drop; iifname wan0-far meta l4proto != udp drop; }}; }}",
        match family {
            Family::V4 => String::new(),
            Family::V6 => format!("{discovery} accept;"),
        }
    );
    rig.internet.nft(&filter).unwrap();
    let users = keep_connecting(&rig, &ends);
    until("the link is captive", || {
        let fiber = daemon.link("fiber");
        assert_ne!(fiber.state, LinkState::Down, "{}", fiber.why);
        fiber.state == LinkState::Captive
    });
    let status = daemon.status();
    let problem = status
        .problems
        .iter()
        .find(|problem| problem.kind == "captive");
    assert!(
        problem.is_some_and(|problem| problem.fails),
        "{:?}",
        status.problems
    );
    let fiber = daemon.link("fiber");
    assert!(fiber.flows.live > 0 && !fiber.paths[0].usable, "{fiber:?}");
    assert_eq!(daemon.link("lte").state, LinkState::Up);
    let begun = Instant::now();
    for end in ends.iter().cycle().take(9) {
        let connected = rig.client.run(|| TcpStream::connect(end)).unwrap();
        connected.unwrap();
    }
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    drop(users);
    rig.internet
        .exec("nft", &["delete", "table", table, "captive"])
        .unwrap();
    until("it carries again", || {
        daemon.link("fiber").state == LinkState::Up
    });
    flows
        .iter()
        .for_each(|flow| ask(flow).expect("no flow has ended"));
}

/// As when the kernel's connection table is full, or its firewall lets nothing out.
fn a_host_that_can_send_no_probes_loses_no_link(family: Family) {
    let rig = Rig::of(family);
    let server = rig.plan().server;
    let [tcp, icmp] = [format!("tcp:{}", rig.server()), format!("icmp:{server}")];
    let targets = format!("\"{tcp}\", \"{icmp}\"");
    rig.write_config(&with_targets(&rig, &targets));
    let daemon = rig.start_up();
    let table = words(family);
    let refuse = format!(
        "table {table} refuse {{ chain c {{ type filter hook output priority 0; oifname {{ wan0, wan1 }} drop; }}; }}"
    );
    rig.gateway.nft(&refuse).unwrap();
    until("many were not sent", || {
        let links = daemon.status().links;
        links.iter().all(|link| link.probe.not_sent > 6)
    });
    for link in daemon.status().links {
        assert_ne!(link.state, LinkState::Down, "{}: {}", link.name, link.why);
        assert_eq!(link.paths[0].falls_last_hour, 0);
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Names, connections and echoes are asked for.
fn with_every_way(rig: &Rig) -> String {
    let address = rig.plan().address();
    let [resolver, ..] = RESOLVERS[rig.family().index()];
    let targets = format!(
        "\"tcp:{}\", \"icmp:{address}\", \"dns:{resolver}\"",
        rig.server()
    );
    with_targets(rig, &targets)
}

fn answered(daemon: &Daemon) -> Vec<u64> {
    let links = daemon.status().links.into_iter();
    let targets = links.flat_map(|link| link.probe.targets);
    targets.map(|target| target.answered).collect()
}

/// Every target of every link answers once more.
fn all_answer_again(daemon: &Daemon) {
    let before = answered(daemon);
    assert!(before.len() == 6, "{before:?}");
    until("every target has answered once more", || {
        let mut pairs = before.iter().zip(answered(daemon));
        pairs.all(|(before, now)| now > *before)
    });
}

fn tracked(rig: &Rig) -> u64 {
    let count = rig.gateway.sysctl("net/netfilter/nf_conntrack_count");
    count.unwrap().trim().parse().unwrap()
}

/// All of them leave nothing in the connection table.
fn no_probe_is_tracked(rig: &Rig, daemon: &Daemon) {
    until("no probe is tracked", || {
        rig.gateway.exec("conntrack", &["-F"]).unwrap();
        all_answer_again(daemon);
        tracked(rig) == 0
    });
}

/// Whatever asks the box fills its connection table with connections that the kernel does not let go.
fn fill_connection_table(rig: &Rig) {
    use std::fmt::Write;
    const PORTS: u64 = 60_000;
    let places = rig.gateway.sysctl("net/netfilter/nf_conntrack_max");
    let places: u64 = places.unwrap().trim().parse().unwrap();
    let to = rig.plan().lan[0];
    let mut connections = String::new();
    for number in 0..=places {
        let (from, port) = (rig.lan_host((number / PORTS) as u8), number % PORTS + 1024);
        writeln!(
            connections,
            "-I -p udp -s {from} -d {to} --sport {port} --dport 53 -t 600 -u SEEN_REPLY,ASSURED"
        )
        .unwrap();
    }
    let load = rig
        .gateway
        .exec_with_input("conntrack", &["-R", "-"], &connections);
    if let Err(error) = load {
        println!("{error:#}");
    }
    assert!(tracked(rig) >= places, "{} of {places}", tracked(rig));
}

fn a_full_connection_table_is_nothing_to_probes(family: Family) {
    let rig = Rig::of(family);
    serve_names(&rig);
    rig.write_config(&with_every_way(&rig));
    let daemon = rig.start_up();
    no_probe_is_tracked(&rig, &daemon);
    let not_sent = || -> u64 {
        let links = daemon.status().links.into_iter();
        links.map(|link| link.probe.not_sent).sum()
    };
    let before = not_sent();
    fill_connection_table(&rig);
    all_answer_again(&daemon);
    let links = daemon.status().links;
    assert!(
        links.iter().all(|link| link.probe.not_sent == 0),
        "{links:?}"
    );
    assert_eq!(not_sent(), before, "every probe could be sent");
    let finding = || {
        daemon
            .status()
            .findings
            .into_iter()
            .find(|one| one.name == "conntrack-full")
    };
    until("it is told who fills it", || {
        finding().is_some_and(|finding| finding.meaning.contains(&rig.lan_host(0).to_string()))
    });
    rig.cut("wan0", &[family]);
    until("a dead link is found dead", || {
        daemon.link("fiber").state == LinkState::Down
    });
    assert_eq!(daemon.link("lte").state, LinkState::Up);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn beside_a_firewall_that_looks_at_connections_probes_are_tracked(family: Family) {
    let rig = Rig::of(family);
    serve_names(&rig);
    rig.write_config(&with_every_way(&rig));
    let daemon = rig.start_up();
    no_probe_is_tracked(&rig, &daemon);
    let firewall = "table inet fw { chain input { type filter hook input priority filter; policy drop; \
                    ct state { established, related } accept; iifname lo accept; \
                    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept; }; }";
    rig.gateway.nft(firewall).unwrap();
    none_is_down(&daemon, Duration::from_secs(4));
    all_answer_again(&daemon);
    assert!(tracked(&rig) > 0);
    for link in daemon.status().links {
        assert_eq!(link.paths[0].falls_last_hour, 0, "{}", link.name);
    }
    fill_connection_table(&rig);
    none_is_down(&daemon, Duration::from_secs(4));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// The internet no longer answers these, over any link.
fn silence(rig: &Rig, what: &str) {
    let table = words(rig.family());
    let filter = format!(
        "table {table} silence {{ chain c {{ type filter hook prerouting priority raw; {what} drop; }}; }}"
    );
    rig.internet.nft(&filter).unwrap();
}

/// Looks at the links for so long; none may be down.
fn none_is_down(daemon: &Daemon, time: Duration) {
    let begun = Instant::now();
    until("the time is over", || {
        for link in daemon.status().links {
            assert_ne!(link.state, LinkState::Down, "{}: {}", link.name, link.why);
        }
        begun.elapsed() > time
    });
}

/// What links are asked by default, with their gateways.
fn with_default_targets(rig: &Rig) -> String {
    let text = rig.config_text();
    let begin = text.find("probe.targets").unwrap();
    text[..begin].to_owned()
}

const RESOLVERS: [[&str; 4]; 2] = [
    ["1.1.1.1", "8.8.8.8", "9.9.9.9", "208.67.222.222"],
    [
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "2620:fe::fe",
        "2620:119:35::35",
    ],
];

fn targets_that_die_for_all_links_at_once_take_none_down(family: Family) {
    let rig = Rig::of(family);
    let resolvers = RESOLVERS[family.index()];
    for resolver in resolvers {
        let [_, length] = rig.plan().lengths;
        let address = format!("addr add {resolver}/{length} dev lo");
        rig.internet.ip(&address).unwrap();
    }
    rig.write_config(&with_default_targets(&rig));
    let daemon = rig.start_up();
    until("far targets answer both", || {
        let links = daemon.status().links.into_iter();
        let is_far = |target: &TargetStatus| !target.near && target.answered > 0;
        links
            .map(|link| link.probe.targets)
            .all(|targets| targets.iter().any(is_far))
    });
    let flows: Vec<UdpSocket> = (0..4).map(|_| rig.udp()).collect();
    flows.iter().for_each(|flow| ask(flow).unwrap());
    let opened = || -> u64 {
        let links = daemon.status().links.into_iter();
        links.map(|link| link.flows.opened).sum()
    };
    let before = opened();
    let version = if family == Family::V4 { "ip" } else { "ip6" };
    silence(
        &rig,
        &format!("{version} daddr {{ {} }}", resolvers.join(", ")),
    );
    none_is_down(&daemon, Duration::from_secs(8));
    let why = daemon.link("fiber").why;
    assert_eq!(why, "its gateway answers, and no target beyond it");
    flows.iter().for_each(|flow| ask(flow).unwrap());
    assert_eq!(opened(), before, "no flow has ended");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn one_host_that_calls_one_dead_server_takes_no_link_down(family: Family) {
    let rig = Rig::of(family);
    // As where public resolvers are filtered: nothing beyond the gateways answers.
    rig.write_config(&with_default_targets(&rig));
    silence(&rig, "tcp dport 80");
    let daemon = rig.start_up();
    let dead: SocketAddr = rig.server().parse().unwrap();
    let caller = keep_connecting(&rig, &[dead, dead]);
    until("SYNs are repeated over both links", || {
        let links = daemon.status().links.into_iter();
        links
            .map(|link| link.recent_flows.syn_retries)
            .all(|syns| syns > 6)
    });
    none_is_down(&daemon, Duration::from_secs(5));
    let states = daemon.status().links.into_iter().map(|link| link.state);
    assert!(states.into_iter().all(|state| state != LinkState::Captive));
    drop(caller);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// What a connection from the LAN may send at once, by each link, as its server knows.
fn segment_of(rig: &Rig, listener: &TcpListener, device: &str) -> u32 {
    let server = listener.local_addr().unwrap();
    let external: IpAddr = rig.external(device).parse().unwrap();
    let found = Cell::new(None);
    until("a connection takes the link", || {
        let client = rig.client.run(|| TcpStream::connect(server));
        let client = client.unwrap().unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        drop(client);
        let is_its = peer.ip() == external;
        found.set(is_its.then(|| getsockopt(&accepted, TcpMaxSeg).unwrap()));
        is_its
    });
    found.get().unwrap()
}

/// Longer packets vanish without a word.
fn a_path_that_carries_less_than_its_device_is_found_and_tcp_is_kept_so_short(family: Family) {
    const CARRIES: u32 = 1440;
    let rig = Rig::of(family);
    let filter = format!(
        "table inet hole {{ chain c {{ type filter hook prerouting priority raw; iifname wan0-far meta length > {CARRIES} drop; }}; }}"
    );
    rig.internet.nft(&filter).unwrap();
    let at = SocketAddr::new(rig.plan().address(), PAGE_PORT);
    let listener = bind(&rig, || TcpListener::bind(at));
    // Else one host takes one link to one server.
    let each_for_itself = "policy = \"rr\"\ndefault.stick = false";
    rig.write_config(
        &rig.config_text()
            .replace("policy = \"rr\"", each_for_itself),
    );
    let daemon = rig.start_up();
    until("it is found", || {
        daemon.link("fiber").paths[0].path_mtu == Some(CARRIES)
    });
    let fiber = daemon.link("fiber");
    assert_eq!(fiber.state, LinkState::Up);
    assert!(fiber.why.contains("at most 1440 bytes"), "{}", fiber.why);
    assert_eq!(daemon.link("lte").paths[0].path_mtu, None);
    let headers = match family {
        Family::V4 => 40,
        Family::V6 => 60,
    };
    until("TCP is kept so short", || {
        segment_of(&rig, &listener, "wan0") <= CARRIES - headers
    });
    assert!(segment_of(&rig, &listener, "wan1") > CARRIES - headers);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
