//! A link, and a LAN device, without Ethernet, as PPPoE, WireGuard and tunnels are: two TUN devices, and a thread that is the wire.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use anabranch_core::LinkId;
use anabranch_dataplane::{LinkPath, Role, Route, Verdict};
use anabranch_testbed::netns::Namespace;
use nix::{
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, poll},
};

use super::{connections::pair, datagrams::*, *};
use crate::site::{echo_once, index_of};

/// In a network that has no other hosts.
const ISP_END: IpAddr = SITE.router;
const MTU: u32 = 1420;

fn external_end() -> IpAddr {
    nth(ISP_END, 1)
}

/// A TUN device that is up, with an address and a peer. Bare IP packets are read and written.
fn tun(namespace: &Namespace, name: &str, address: IpAddr, peer: IpAddr) -> File {
    let file = namespace.run(|| open_tun(name)).unwrap();
    let unasked = if address.is_ipv6() { " nodad" } else { "" };
    for line in [
        format!("link set {name} up mtu {MTU}"),
        format!("address add {address} peer {peer} dev {name}{unasked}"),
    ] {
        namespace.ip(&line).unwrap();
    }
    file
}

fn open_tun(name: &str) -> File {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .unwrap();
    // SAFETY: all bits of the request may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: TUNSETIFF reads and writes an ifreq, which lives through the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Carries packets both ways until `ended`.
fn carry(mut ends: [File; 2], ended: &AtomicBool) {
    let mut packet = [0; 2048];
    while !ended.load(Ordering::Relaxed) {
        let mut fds = ends
            .each_ref()
            .map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
        poll(&mut fds, 20u8).unwrap();
        let ready = fds.map(|fd| fd.any() == Some(true));
        for from in (0..2).filter(|end| ready[*end]) {
            let length = ends[from].read(&mut packet).unwrap();
            // A device that goes down refuses; so does a wire that is cut.
            ends[1 - from].write_all(&packet[..length]).ok();
        }
    }
}

#[test]
fn a_link_without_ethernet_carries_connections_datagrams_and_errors() {
    let mut site = site();
    let ends = [
        tun(&site.gateway, "tun0", external_end(), ISP_END),
        tun(&site.internet, "tun1", ISP_END, external_end()),
    ];
    site.in_gateway(|plane| {
        let ifindex = if_nametoindex("tun0").unwrap();
        let path = LinkPath {
            external: external_end(),
            gateway: None,
            prefix: None,
            inbound: false,
            ifindex,
            mtu: MTU,
            point_to_point: true,
            shares_segment: false,
        };
        plane.set_link(LinkId(0), FAMILY, Some(&path)).unwrap();
        plane
            .attach(ifindex, Role::Link(LinkId(0)), true, MTU)
            .unwrap();
    });
    site.install(0b01);
    site.set_lan_mtu(1300);
    beside_a_wire(ends, || {
        converse(&site, CLIENT, external_end());
        let socket = udp_socket(&site.client, (CLIENT, 4001));
        learns_the_lan_mtu(&site, &socket, 1380);
    });
    assert!(site.reason("error-in") > 0);
    assert!(site.reason("too-big-in") > 0);
    assert_eq!(checksum_errors(&site.internet), 0);
    assert_eq!(checksum_errors(&site.client), 0);
}

/// What is done while packets are carried between two devices.
fn beside_a_wire(ends: [File; 2], work: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| carry(ends, &ended));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        ended.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Of a host behind a LAN device without Ethernet, and of the gateway there.
fn tunnel_ends() -> [IpAddr; 2] {
    [2, 1].map(|number| nth(SITE.further_lan.0, number))
}

/// The client reaches the internet by a tunnel to the gateway, and the gateway is in its own LAN.
fn site_with_tunnel() -> (Site, [File; 2]) {
    let mut site = site();
    let [host, own] = tunnel_ends();
    let ends = [
        tun(&site.gateway, "tun0", own, host),
        tun(&site.client, "tun1", host, own),
    ];
    for server in [SERVER, SECOND_SERVER, EXTERNAL[0], EXTERNAL[1]] {
        let (server, length) = SITE.host(server);
        let route = format!("route add {server}/{length} dev tun1 src {host}");
        site.client.ip(&route).unwrap();
    }
    let lan = |ifindex| Verdict::Lan { ifindex, via: None };
    let routes = site
        .gateway
        .run(|| {
            [
                (SITE.further_lan, lan(index_of("tun0"))),
                (SITE.host(own), Verdict::Local),
            ]
        })
        .unwrap();
    let routes = routes.map(|(prefix, verdict)| Route { prefix, verdict });
    site.in_gateway(|plane| {
        let role = Role::lan([own]);
        plane.attach(index_of("tun0"), role, true, MTU).unwrap();
    });
    site.add_routes(&routes);
    (site, ends)
}

#[test]
fn a_host_behind_a_lan_device_without_ethernet_has_connections_datagrams_and_errors() {
    let (mut site, ends) = site_with_tunnel();
    let [host, own] = tunnel_ends();
    site.install(0b01);
    beside_a_wire(ends, || {
        converse(&site, host, EXTERNAL[0]);
        let pinged = site.client.exec("ping", &["-c1", "-W9", &own.to_string()]);
        pinged.expect("the gateway's own address answers");
        // The hop limit runs out at the gateway, and the packet is too long for the link.
        let server = SERVER.to_string();
        let expired = site.client.exec("ping", &["-c1", "-W1", "-t1", &server]);
        expired.expect_err("nobody answers");
    });
    assert!(site.reason("error-in") > 0);
    assert!(site.reason("ttl-out") > 0);
    assert_eq!(checksum_errors(&site.internet), 0);
    assert_eq!(checksum_errors(&site.client), 0);
}

#[test]
fn such_a_host_is_told_of_a_link_that_ends_and_takes_the_other() {
    let (mut site, ends) = site_with_tunnel();
    site.install(0b01);
    let listener = listen(&site.internet, (SERVER, 8080));
    beside_a_wire(ends, || {
        let (mut client, mut server) = pair(&site, &listener);
        echo_once(&mut client, &mut server, b"by the first");
        site.install(0b10);
        site.end_flows(LinkId(0));
        let error = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let (mut client, mut server) = pair(&site, &listener);
        assert_eq!(server.peer_addr().unwrap().ip(), EXTERNAL[1]);
        echo_once(&mut client, &mut server, b"by the second");
    });
}

#[test]
fn such_a_host_is_reached_by_its_external_endpoint_from_the_lan() {
    let (site, ends) = site_with_tunnel();
    let [host, _] = tunnel_ends();
    beside_a_wire(ends, || {
        let server = udp_socket(&site.internet, (SERVER, 3478));
        let meet = |socket: &UdpSocket| {
            socket.send_to(b"who am I?", (SERVER, 3478)).unwrap();
            receive(&server).1
        };
        let one = udp_socket(&site.client, (host, 4000));
        let of_one = meet(&one);
        assert!(EXTERNAL.contains(&of_one.ip()));
        // To its own external endpoint, through both programs and back.
        one.send_to(b"to myself", of_one).unwrap();
        let (heard, from) = receive(&one);
        assert_eq!((heard.as_slice(), from), (&b"to myself"[..], of_one));
    });
}

fn converse(site: &Site, host: IpAddr, external: IpAddr) {
    let listener = listen(&site.internet, (SERVER, 8080));
    let (mut client, mut server) = pair(site, &listener);
    assert_eq!(server.peer_addr().unwrap().ip(), external);
    let long = vec![7; 200_000];
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&long).unwrap());
        let mut heard = vec![0; long.len()];
        server.read_exact(&mut heard).unwrap();
        assert!(heard == long);
    });
    let mut heard = vec![0; long.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| server.write_all(&long).unwrap());
        client.read_exact(&mut heard).unwrap();
    });
    assert!(heard == long);

    let socket = udp_socket(&site.client, (host, 4000));
    let echo = udp_socket(&site.internet, (SERVER, 53));
    socket.send_to(&[7; 4000], (SERVER, 53)).unwrap();
    let (heard, from) = receive(&echo);
    assert_eq!(heard, [7; 4000]);
    repeats_until_heard(&socket, &heard, || {
        echo.send_to(&heard, from).ok();
    });
    let socket = udp_socket(&site.client, (host, 4002));
    socket.connect((SERVER, 9)).unwrap();
    ask_until_refused(&socket);
}
