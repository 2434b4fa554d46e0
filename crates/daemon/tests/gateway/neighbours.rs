//! What else a box has: virtual routers, networks of its own beside the LAN, and multicast.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};

use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    hosts_whose_gateway_is_a_virtual_router_on_the_lan_are_balanced,
    answers_to_a_network_that_the_kernel_translates_arrive_without_a_fallback,
);

/// Such as keepalived's: a device above that of the LAN, with a hardware address of its own.
fn hosts_whose_gateway_is_a_virtual_router_on_the_lan_are_balanced(family: Family) {
    let rig = Rig::of(family);
    let daemon = rig.start();
    let virtual_router = rig.lan_host(51).to_string();
    let ip = |line: &str| rig.gateway.ip(line).unwrap();
    ip("link add vrrp link lan0 type macvlan mode private");
    ip("link set vrrp address 00:00:5e:00:01:33 addrgenmode none");
    ip("link set vrrp up");
    rig.client
        .ip(&format!("route replace default via {virtual_router}"))
        .unwrap();
    let neighbour = format!("neigh replace {virtual_router} lladdr 00:00:5e:00:01:33 dev eth0");
    rig.client.ip(&neighbour).unwrap();
    // It is not the master yet, which has the address.
    let patience = std::time::Duration::from_millis(300);
    let server: SocketAddr = rig.server().parse().unwrap();
    let connect = || rig.client.connect(server, patience);
    connect().expect_err("the master would answer");
    assert!(packets(&daemon, "other-host") > 0);

    address(&rig.gateway, "vrrp", &virtual_router, rig.plan().lengths[1]);
    until("it is the master", || connect().is_ok());
    let opened = || ["fiber", "lte"].map(|link| daemon.link(link).flows.opened);
    let before = opened();
    (0..4).for_each(|_| echo(&mut rig.connect().unwrap()).unwrap());
    until("both links have flows", || {
        let after = opened();
        after[0] > before[0] && after[1] > before[1]
    });
}

/// Containers, or clients of a VPN: a network that is in no `lan`.
fn answers_to_a_network_that_the_kernel_translates_arrive_without_a_fallback(family: Family) {
    let rig = Rig::of(family);
    let container = namespace("container");
    rig.gateway.veth("apps", &container, "eth0").unwrap();
    let (ends, length) = match family {
        Family::V4 => (["172.17.0.1", "172.17.0.2"], 24),
        Family::V6 => (["fd00:17::1", "fd00:17::2"], 64),
    };
    address(&rig.gateway, "apps", ends[0], length);
    address(&container, "eth0", ends[1], length);
    let default = format!("route add default via {}", ends[0]);
    container.ip(&default).unwrap();
    let masquerade = "table inet theirs { chain c { type nat hook postrouting priority srcnat; \
                      iifname apps masquerade; }; }";
    rig.gateway.nft(masquerade).unwrap();
    for fallback in ["refuse", "kernel"] {
        rig.write_config(&format!(
            "{}[nat]\nfallback = \"{fallback}\"\n",
            rig.config_text()
        ));
        let _daemon = rig.start();
        let asks = || {
            let socket = UdpSocket::bind(rig.unbound()).unwrap();
            socket.connect(rig.server()).unwrap();
            ask(&socket).is_ok()
        };
        until("a datagram is answered", || container.run(asks).unwrap());
        let connect = || {
            let mut stream = TcpStream::connect(rig.server()).unwrap();
            echo(&mut stream).unwrap();
        };
        container.run(connect).unwrap();
    }
}

/// What the box says by multicast its own listeners hear, too (RFC 1112 section 6.1).
#[test]
fn multicast_of_the_box_on_a_lan_device_is_looped_back() {
    let rig = Rig::new();
    let daemon = rig.start();
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let own: Ipv4Addr = rig.plan().lan[0].parse().unwrap();
    rig.gateway.ip("route add 239.1.2.3 dev lan0").unwrap();
    let heard = rig.gateway.run(|| {
        let listener = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5353)).unwrap();
        listener.join_multicast_v4(&group, &own).unwrap();
        listener.set_read_timeout(Some(DEADLINE)).unwrap();
        let speaker = UdpSocket::bind(SocketAddr::new(own.into(), 0)).unwrap();
        speaker.send_to(b"here", (group, 5353)).unwrap();
        let mut heard = [0; 16];
        listener
            .recv(&mut heard)
            .map(|length| heard[..length].to_vec())
    });
    assert_eq!(heard.unwrap().unwrap(), b"here");
    until("it is counted", || packets(&daemon, "looped-back") > 0);
    assert_eq!(packets(&daemon, "malformed"), 0);
}

/// Before the gateway is there, a neighbour may learn the wrong card.
#[test]
fn two_links_on_one_segment_are_found_by_their_own_cards() {
    const ROUNDS: usize = 5;
    const BOTH: [(&str, &str); 2] = [("wan0", "203.0.113.2"), ("wan1", "203.0.113.3")];
    let rig = Rig::new();
    let far = |line: &str| rig.internet.ip(line).unwrap();
    far("link add line type bridge forward_delay 0");
    far("link set line up");
    for (device, own) in BOTH {
        far(&format!("addr flush dev {device}-far"));
        far(&format!("link set {device}-far master line"));
        let anew = format!("addr flush dev {device}");
        rig.gateway.ip(&anew).unwrap();
        address(&rig.gateway, device, own, 24);
        let default = "route add default via 203.0.113.1 dev";
        let metric = 100 + u32::from(device == "wan1");
        rig.gateway
            .ip(&format!("{default} {device} metric {metric}"))
            .unwrap();
    }
    address(&rig.internet, "line", "203.0.113.1", 24);
    let card = |device: &str| {
        let brief = rig.gateway.ip(&format!("-br link show dev {device}"));
        let card = brief.unwrap().split_whitespace().nth(2).map(str::to_owned);
        card.unwrap()
    };
    let wrong = format!(
        "neigh replace 203.0.113.3 lladdr {} dev line nud reachable",
        card("wan0")
    );
    far(&wrong);
    let is_known = |(device, own): (&str, &str)| {
        let known = far(&format!("neigh show {own} dev line"));
        known.contains(&format!("lladdr {} ", card(device)))
    };
    let daemon = rig.start_up();
    until("the neighbour is told the right card", || is_known(BOTH[1]));
    let held = Held::new(&rig, &daemon);
    for _ in 0..ROUNDS {
        far("neigh flush dev line");
        for link in BOTH {
            let ping = ["-c", "1", "-W", "2", link.1];
            rig.internet.exec("ping", &ping).unwrap();
            assert!(is_known(link), "{}", far("neigh show"));
        }
        held.go_on(&daemon);
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
