//! A link without Ethernet, as PPPoE, WireGuard and tunnels are: two TUN devices, and a thread that is the wire.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use anabranch_core::LinkId;
use anabranch_dataplane::{LinkPath, Role};
use anabranch_testbed::netns::Namespace;
use nix::{
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, poll},
};

use super::{connections::pair, datagrams::*, *};

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
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| carry(ends, &ended));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| converse(&site)));
        ended.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(site.reason("error-in") > 0);
    assert!(site.reason("too-big-in") > 0);
    assert_eq!(checksum_errors(&site.internet), 0);
    assert_eq!(checksum_errors(&site.client), 0);
}

fn converse(site: &Site) {
    let listener = listen(&site.internet, (SERVER, 8080));
    let (mut client, mut server) = pair(site, &listener);
    assert_eq!(server.peer_addr().unwrap().ip(), external_end());
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

    let socket = udp_socket(&site.client, (CLIENT, 4000));
    let echo = udp_socket(&site.internet, (SERVER, 53));
    socket.send_to(&[7; 4000], (SERVER, 53)).unwrap();
    let (heard, from) = receive(&echo);
    assert_eq!(heard, [7; 4000]);
    repeats_until_heard(&socket, &heard, || {
        echo.send_to(&heard, from).ok();
    });
    let socket = udp_socket(&site.client, (CLIENT, 4002));
    socket.connect((SERVER, 9)).unwrap();
    ask_until_refused(&socket);

    let socket = udp_socket(&site.client, (CLIENT, 4001));
    learns_the_lan_mtu(site, &socket, 1380);
}
