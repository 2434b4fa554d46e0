//! What the kernel itself may forward, beside the data path.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anabranch_api::{Request, Response};
use anabranch_core::Family;
use anabranch_frames::{Ip, IpNumber, PacketSocket, tcp};
use anabranch_testbed::netns::{Exit, Namespace};
use aya::programs::{SchedClassifier, TcAttachType};
use nix::sys::signal::Signal;

use crate::rig::*;

/// GRE, ESP, SCTP, and one for experiments (RFC 3692).
const PROTOCOLS: [u8; 4] = [47, 50, 132, 253];
const NFT_WORKS: &str = "works";
const BRIEFLY: Duration = Duration::from_millis(500);

/// The first link has `prefix` routed to it.
fn with_prefix(prefix: &str, settings: &str) -> String {
    let device = "device = \"wan0\",";
    let routed = format!("{device} prefixes = [{prefix:?}],");
    format!("{CONFIG}[nat]\n{settings}\n").replace(device, &routed)
}

impl Rig {
    fn with_nat(&self, settings: &str) -> String {
        format!("{}[nat]\n{settings}\n", self.config_text())
    }

    /// The administrator's own rule by which the first link's address leads to a service of the LAN; where from.
    fn translates_to(&self, service: &str) -> String {
        let family = words(self.family());
        self.nft(&format!(
            "table {family} theirs {{ chain c {{ type nat hook prerouting priority dstnat; \
             iifname wan0 tcp dport 9090 dnat to {service}; }}; }}"
        ));
        self.at_first_link(9090).to_string()
    }

    /// The box's end there.
    fn at_first_link(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.external("wan0").parse().unwrap(), port)
    }

    /// Somebody on the first link's network sends there what is for the LAN host.
    fn route_lan_host_by_first_link(&self) {
        let (host, via) = (self.plan().lan[1], self.external("wan0"));
        let route = format!("route add {host} via {via}");
        self.internet.ip(&route).unwrap();
    }

    /// A service of the LAN host, for as long as the test's process lives; where it is.
    fn serve_in_lan(&self) -> String {
        let at = SocketAddr::new(self.plan().lan[1].parse().unwrap(), 8080);
        let listener = self.client.listen(at).unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        at.to_string()
    }

    /// A connection of somebody on the first link's network.
    fn connect_from_link(&self, to: &str) -> std::io::Result<TcpStream> {
        let to: SocketAddr = to.parse().unwrap();
        self.internet.connect(to, BRIEFLY)
    }

    /// One more host of the LAN, with a network card of its own.
    fn second_host(&self, number: u8) -> Namespace {
        let host = namespace("neighbour");
        let name = host.name();
        let card = format!("link add link eth0 name card netns {name} type macvlan mode bridge");
        self.client.ip(&card).unwrap();
        host.ip("link set card up").unwrap();
        let ([box_address, _], [length, _]) = (self.plan().lan, self.plan().lengths);
        address(&host, "card", &self.lan_host(number).to_string(), length);
        host.ip(&format!("route add default via {box_address}"))
            .unwrap();
        host
    }

    fn is_guarded(&self) -> bool {
        let rules = self.gateway.exec("nft", &["list", "ruleset"]).unwrap();
        rules.contains("kernel-foreign-source")
    }

    /// Puts a command before `nft` that fails until it works; returns the search path with it.
    fn with_nft_that_waits(&self) -> String {
        let folder = self.dir.path().join("bin");
        let works = folder.join(NFT_WORKS);
        std::fs::create_dir_all(&folder).unwrap();
        let _ = std::fs::remove_file(&works);
        let path = std::env::var("PATH").unwrap();
        let script = format!(
            "#!/bin/sh\n[ -e '{}' ] && PATH='{path}' exec nft \"$@\"\nexit 1\n",
            works.display()
        );
        let command = folder.join("nft");
        std::fs::write(&command, script).unwrap();
        std::fs::set_permissions(&command, Permissions::from_mode(0o755)).unwrap();
        format!("PATH={}:{path}", folder.display())
    }

    fn nft_works(&self) {
        std::fs::write(self.dir.path().join("bin").join(NFT_WORKS), "").unwrap();
    }

    /// Sets rules of nftables on the box.
    pub(super) fn nft(&self, script: &str) {
        self.gateway.nft(script).unwrap();
    }

    /// Sends `count` TCP segments of connections that do not exist, from all over the LAN.
    fn segments(&self, flags: &str, count: u16) {
        self.segments_of(100, flags, count);
    }

    /// The same, from so many hosts.
    fn segments_of(&self, hosts: u8, flags: &str, count: u16) {
        let to = (self.plan().address(), 443);
        let segment = |number: u16| {
            let host = 100 + (number % u16::from(hosts)) as u8;
            tcp((self.lan_host(host), 1024 + number), to, flags, 1, 0).ip()
        };
        self.send((0..count).map(segment));
    }

    /// Sends a packet of each of some protocols that are neither TCP, UDP nor ICMP.
    fn packets_of_host(&self, host: u8, protocols: &[u8]) {
        let (from, to) = (self.lan_host(host), self.plan().address());
        let packet = |protocol: &u8| Ip::new(IpNumber(*protocol), from, to, vec![0; 32]);
        self.send(protocols.iter().map(packet));
    }

    /// Into the LAN.
    fn send(&self, packets: impl Iterator<Item = Ip>) {
        let open = || PacketSocket::open(self.family()).unwrap();
        let socket = self.client.run(open).unwrap();
        for packet in packets {
            socket.send(&packet).unwrap();
        }
    }
}

/// Makes the programs that stand before the kernel's own filter look away: every packet is the kernel's. The kernel lets go
/// of an unpinned program when it gets round to it; until then the ping is counted.
fn detach_programs(rig: &Rig) {
    let pins = rig.pins.join(INSTANCE);
    let folder = std::fs::read_dir(pins).unwrap().next().unwrap();
    for pin in std::fs::read_dir(folder.unwrap().path()).unwrap() {
        let path = pin.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("attach-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    // The kernel lets go of programs in work of its own.
    until("no program is left", || {
        let attached = |device| {
            let found = SchedClassifier::query_tcx(device, TcAttachType::Ingress);
            found.is_ok_and(|(_, programs)| !programs.is_empty())
        };
        let anywhere = || ["lan0", "wan0", "wan1"].into_iter().any(attached);
        !rig.gateway.run(anywhere).unwrap()
    });
}

anabranch_testbed::in_both_families!(
    Family:
    nobody_on_a_link_reaches_the_lan_but_by_an_administrators_forward,
    past_the_programs_a_host_is_translated_or_leaves_by_no_link,
    an_administrators_own_translation_works_past_the_programs,
    what_must_take_a_link_past_the_programs_takes_it,
    an_administrators_own_translation_works_beside_the_programs_by_the_key,
    what_a_link_brings_for_nobody_meets_silence_and_fills_no_table,
    nothing_leaves_a_link_with_a_source_that_is_not_the_links,
    a_flood_from_the_lan_leaves_the_kernels_connection_table_to_the_box,
    one_hosts_flood_does_not_use_up_what_the_kernel_carries_for_others,
    the_guard_comes_back_when_somebody_flushes_nftables_and_counts_on,
    connections_are_tracked_where_somebody_needs_it,
);

fn nobody_on_a_link_reaches_the_lan_but_by_an_administrators_forward(family: Family) {
    let rig = Rig::of(family);
    let service = rig.serve_in_lan();
    rig.route_lan_host_by_first_link();
    for fallback in ["kernel", "refuse"] {
        rig.write_config(&rig.with_nat(&format!("fallback = \"{fallback}\"")));
        let daemon = rig.start();
        let refused = rig.connect_from_link(&service).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{fallback}");
        detach_programs(&rig);
        let refused = rig.connect_from_link(&service).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{fallback}");
        assert!(
            packets(&daemon, "kernel-forward-in") > 0,
            "{fallback}: {:?}",
            daemon.status().reasons
        );
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

fn past_the_programs_a_host_is_translated_or_leaves_by_no_link(family: Family) {
    let rig = Rig::of(family);
    for fallback in ["kernel", "refuse"] {
        rig.write_config(&rig.with_nat(&format!("fallback = \"{fallback}\"")));
        let daemon = rig.start();
        detach_programs(&rig);
        if fallback == "kernel" {
            echo(&mut rig.connect().unwrap()).expect("the kernel's NAT carries it");
        } else {
            let server: SocketAddr = rig.server().parse().unwrap();
            let refused = rig.client.connect(server, BRIEFLY).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TimedOut);
            assert!(packets(&daemon, "kernel-foreign-source") > 0);
        }
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

fn an_administrators_own_translation_works_past_the_programs(family: Family) {
    let rig = Rig::of(family);
    let service = rig.serve_in_lan();
    let daemon = rig.start();
    let at = rig.translates_to(&service);
    detach_programs(&rig);
    rig.connect_from_link(&at)
        .expect("translated by the administrator");
    rig.route_lan_host_by_first_link();
    rig.connect_from_link(&service).expect_err("routed");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// `prefixes` are of IPv4: where a prefix of IPv6 is routed to a link, hosts have addresses of it (`prefix6`).
/// IPsec without UDP goes where its key exchange went, with that link's address.
fn what_must_take_a_link_past_the_programs_takes_it(family: Family) {
    const HOSTS: Range<u8> = 40..50;
    const KEY_EXCHANGE: u16 = 500;
    /// GRE and ESP.
    const WITHOUT_PORTS: [u8; 2] = [47, 50];
    let rig = Rig::of(family);
    let words = words(family);
    let of_link = |device: &str| {
        let own = rig.external(device);
        format!(
            "counter {device} {{ }}; chain {device} {{ type filter hook prerouting priority raw; iifname {device}-far \
             {words} saddr {own} meta l4proto {{ 47, 50 }} counter name {device}; }}; "
        )
    };
    let counters = ["wan0", "wan1"].map(of_link).concat();
    let table = format!("table {words} sight {{ {counters} }}");
    rig.internet.nft(&table).unwrap();
    let arrived = |device: &str| {
        let arguments = ["list", "counter", words, "sight", device];
        let said = rig.internet.exec("nft", &arguments).unwrap();
        let packets = said.split("packets ").nth(1).unwrap();
        packets.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let daemon = rig.start_up();
    let links = daemon.status().links;
    let mut taken = BTreeSet::new();
    for host in HOSTS {
        let own = rig.lan_host(host);
        address(&rig.client, "eth0", &own.to_string(), rig.plan().lengths[0]);
        let bind = || rig.client.run(|| UdpSocket::bind(SocketAddr::new(own, 0)));
        until("it is the host's", || bind().unwrap().is_ok());
        let socket = bind().unwrap().unwrap();
        socket.connect(rig.port(KEY_EXCHANGE)).unwrap();
        socket.send(b"proposal").unwrap();
        let local = socket.local_addr().unwrap();
        let link = || {
            let flows = flows(&daemon);
            let flow = flows.iter().find(|flow| flow.local == local)?;
            links.iter().find(|link| link.slot == flow.link)
        };
        until("the key exchange has a link", || link().is_some());
        let device = &link().unwrap().device;
        let before = arrived(device);
        rig.packets_of_host(host, &WITHOUT_PORTS);
        until("the rest leaves by it", || arrived(device) == before + 2);
        taken.insert(device);
        if taken.len() == links.len() {
            break;
        }
    }
    assert_eq!(taken.len(), links.len(), "more than the first usable link");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn an_administrators_own_forwards_work_by_the_key() {
    let rig = Rig::new();
    let service = rig.serve_in_lan();
    rig.write_config(&with_prefix("192.168.1.0/24", "forwards = \"kernel\""));
    let daemon = rig.start();
    detach_programs(&rig);
    rig.route_lan_host_by_first_link();
    let routed = rig.connect_from_link(&service);
    routed.expect("routed, and the key says that the kernel forwards");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn an_administrators_own_translation_works_beside_the_programs_by_the_key(family: Family) {
    let rig = Rig::of(family);
    let service = rig.serve_in_lan();
    rig.write_config(&rig.with_nat("forwards = \"kernel\""));
    let daemon = rig.start();
    rig.connect_from_link(&rig.translates_to(&service))
        .expect("translated by the administrator");
    assert!(packets(&daemon, "forward-in") > 0);
    assert!(packets(&daemon, "forward-out") > 0);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn what_a_link_brings_for_nobody_meets_silence_and_fills_no_table(family: Family) {
    const DATAGRAMS: u64 = 200;
    let rig = Rig::of(family);
    let daemon = rig.start();
    let nobody = rig.at_first_link(9);
    let silence = rig.connect_from_link(&nobody.to_string()).unwrap_err();
    assert_eq!(silence.kind(), ErrorKind::TimedOut);
    assert!(packets(&daemon, "stray-syn") > 0);
    let at = rig.at_first_link(22);
    let listener = rig.gateway.listen(at).unwrap();
    rig.connect_from_link(&at.to_string())
        .expect("the box's own listener");
    drop(listener);

    let tracked = || -> u64 {
        let count = rig.gateway.sysctl("net/netfilter/nf_conntrack_count");
        count.unwrap().trim().parse().unwrap()
    };
    let before = tracked();
    let [_, gateway] = rig.plan().links[0];
    let send = || {
        for _ in 0..DATAGRAMS {
            let socket = UdpSocket::bind((gateway, 0)).unwrap();
            socket.send_to(b"anybody?", nobody).unwrap();
        }
    };
    rig.internet.run(send).unwrap();
    until("all are dropped in nftables", || {
        packets(&daemon, "kernel-stray") == DATAGRAMS
    });
    assert_eq!(packets(&daemon, "stray"), DATAGRAMS);
    assert!(
        tracked() < before + DATAGRAMS / 2,
        "{before} to {}",
        tracked()
    );
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn nothing_leaves_a_link_with_a_source_that_is_not_the_links(family: Family) {
    let rig = Rig::of(family);
    let (nft, [host, server]) = (words(family), [rig.plan().lan[1], rig.plan().server]);
    let (lan, behind, network) = match family {
        Family::V4 => ("192.168.1.0/24", "10.9.0.1", "10.9.0.0/16"),
        Family::V6 => ("fd00:1::/64", "fd00:9::1", "fd00:9::/32"),
    };
    let seen = format!(
        "table {nft} seen {{ counter foreign {{ }}; chain c {{ type filter hook prerouting priority raw; \
         iifname {{ wan0-far, wan1-far }} {nft} saddr {{ {lan}, {network} }} counter name foreign; }}; }}"
    );
    rig.internet.nft(&seen).unwrap();
    let foreign = || rig.internet.exec("nft", &["list", "counters"]).unwrap();
    rig.client.ip(&format!("addr add {behind} dev lo")).unwrap();
    rig.gateway
        .ip(&format!("route add {network} via {host}"))
        .unwrap();
    for fallback in ["kernel", "refuse"] {
        rig.write_config(&rig.with_nat(&format!("fallback = \"{fallback}\"")));
        let daemon = rig.start();
        detach_programs(&rig);
        for flags in ["SA", "R", "FPU", ""] {
            rig.segments(flags, 4);
        }
        let untranslated = || {
            // SCTP that begins no association is invalid to the kernel.
            packets(&daemon, "kernel-foreign-source") + packets(&daemon, "kernel-invalid")
        };
        let before = untranslated();
        rig.packets_of_host(20, &PROTOCOLS);
        if fallback == "refuse" {
            until("nothing translates them, so none leaves", || {
                untranslated() == before + PROTOCOLS.len() as u64
            });
        }
        let ping = ["-c", "2", "-W", "1", "-I", behind, server];
        let _ = rig.client.exec("ping", &ping);
        assert!(
            foreign().contains("packets 0 "),
            "{fallback}: {}",
            foreign()
        );
        let counted: u64 = [
            "kernel-foreign-source",
            "kernel-invalid",
            "kernel-unknown",
            "kernel-unknown-reset",
        ]
        .iter()
        .map(|name| packets(&daemon, name))
        .sum();
        let reasons = daemon.status().reasons;
        assert!(counted >= 8, "{fallback}: {reasons:?}");
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

/// `prefixes` are of IPv4.
#[test]
fn a_network_that_is_routed_to_a_link_may_leave_by_it() {
    let rig = Rig::new();
    let settings = "forwards = \"kernel\"\nfallback = \"refuse\"";
    rig.write_config(&with_prefix("10.9.0.0/16", settings));
    rig.client.ip("addr add 10.9.0.1/32 dev lo").unwrap();
    rig.gateway
        .ip("route add 10.9.0.0/16 via 192.168.1.20")
        .unwrap();
    rig.internet
        .ip("route add 10.9.0.0/16 via 203.0.113.2")
        .unwrap();
    let daemon = rig.start();
    detach_programs(&rig);
    let ping = ["-c", "1", "-W", "5", "-I", "10.9.0.1", "192.0.2.1"];
    rig.client.exec("ping", &ping).unwrap();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_flood_from_the_lan_leaves_the_kernels_connection_table_to_the_box(family: Family) {
    const FLOOD: u16 = 60_000;
    /// `IN_SUM_MAX` of the guard, and what the box and its probes have.
    const FILLED_MAX: u64 = 8192 + 200;
    let rig = Rig::of(family);
    let daemon = rig.start();
    let filled = || -> u64 {
        let text = rig.gateway.sysctl("net/netfilter/nf_conntrack_count");
        text.unwrap().parse().unwrap()
    };
    let survives_flood = |what: &str| {
        for flags in ["S", "A", "SA"] {
            rig.segments(flags, FLOOD);
        }
        let filled = filled();
        println!("{what}: {filled} connections in the kernel's table");
        assert!(filled < FILLED_MAX, "{what}: {filled}");
        let ping = ["-c", "5", "-i", "0.2", "-W", "2", rig.plan().server];
        let said = rig.gateway.exec("ping", &ping).unwrap();
        assert!(said.contains(" 5 received"), "{what}: {said}");
    };
    survives_flood("with the programs");
    detach_programs(&rig);
    survives_flood("with nothing but nftables");
    let reasons = daemon.status().reasons;
    println!("{reasons:?}");
    // All of its addresses of IPv6 are one card's, which is bounded before they are in sum.
    let bound = match family {
        Family::V4 => "kernel-sum",
        Family::V6 => "kernel-source-rate",
    };
    for name in [bound, "kernel-unknown", "kernel-unknown-reset"] {
        assert!(packets(&daemon, name) > 0, "{name}: {reasons:?}");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn one_hosts_flood_does_not_use_up_what_the_kernel_carries_for_others(family: Family) {
    let rig = Rig::of(family);
    let daemon = rig.start();
    detach_programs(&rig);
    let neighbour = rig.second_host(30);
    rig.segments_of(1, "S", 20_000);
    let ping = ["-c", "1", "-W", "5", rig.plan().server];
    neighbour.exec("ping", &ping).unwrap();
    assert!(packets(&daemon, "kernel-source-rate") > 15_000);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn the_guard_comes_back_when_somebody_flushes_nftables_and_counts_on(family: Family) {
    let rig = Rig::of(family);
    let daemon = rig.start();
    detach_programs(&rig);
    rig.segments("A", 300);
    let before = packets(&daemon, "kernel-unknown");
    assert!(before > 0);
    rig.write_config(&rig.with_nat("forwards = \"kernel\""));
    assert!(matches!(daemon.call(&Request::Reload), Response::Done));
    assert!(packets(&daemon, "kernel-unknown") >= before);
    rig.gateway.exec("nft", &["flush", "ruleset"]).unwrap();
    let took = until("the table is back", || rig.is_guarded());
    println!("back after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn connections_are_tracked_where_somebody_needs_it(family: Family) {
    let rig = Rig::of(family);
    let service = rig.serve_in_lan();
    rig.route_lan_host_by_first_link();
    rig.write_config(&rig.with_nat("fallback = \"refuse\""));
    let daemon = rig.start();
    let asks = || {
        let rules = rig.gateway.exec("nft", &["list", "ruleset"]).unwrap();
        let ours = rules
            .split("table ")
            .find(|table| table.starts_with("inet anabranch"));
        ours.expect("we have one").contains("ct ")
    };
    until("nothing asks for connections", || !asks());
    let tracked = || {
        rig.gateway
            .sysctl("net/netfilter/nf_conntrack_count")
            .unwrap()
    };
    let before = tracked();
    let server: SocketAddr = rig.server().parse().unwrap();
    echo(&mut rig.gateway.connect(server, DEADLINE).unwrap()).unwrap();
    assert_eq!(tracked(), before, "a connection of the box's own");
    detach_programs(&rig);
    let refused = rig.connect_from_link(&service).unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::TimedOut,
        "it is guarded all the same"
    );
    assert!(packets(&daemon, "kernel-forward-in") > 0);

    rig.nft("table inet fw { chain input { type filter hook input priority filter; ct state invalid drop; }; }");
    until("a firewall of others looks at connections", asks);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Of no family: the table has the rules of both.
#[test]
fn an_nft_that_fails_at_first_is_asked_again() {
    let rig = Rig::new();
    let path = rig.with_nft_that_waits();
    assert_eq!(rig.start().end(Signal::SIGKILL), Exit::Signal(9));
    assert!(rig.is_guarded());
    let daemon = rig.start_under("env", &[&path]);
    rig.nft_works();
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert!(!rig.is_guarded(), "the table of the earlier run is gone");

    let path = rig.with_nft_that_waits();
    let daemon = rig.start_under("env", &[&path]);
    assert!(!rig.is_guarded());
    rig.nft_works();
    // A change that the daemon looks at.
    rig.gateway.ip("addr add 192.168.1.99/24 dev lan0").unwrap();
    until("the table is there", || rig.is_guarded());
    until("the kernel's own NAT has its route", || {
        let rules = rig.gateway.ip("rule list").unwrap();
        rules.contains("fwmark")
    });
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
