//! Ports that the kernel forwards to the LAN by itself, beside what the programs balance: its answers are its own, and nobody else's
//! packets are, whoever spoke to whom before.

use anabranch_dataplane::{Sizes, programs_at};
use aya::programs::TcAttachType;
use nix::net::if_::if_nametoindex;

use super::*;

/// Of the first link's address; those of the LAN host they lead to.
const PUBLISHED: [u16; 2] = [8053, 8080];
const SERVED: [u16; 2] = [53, 80];
/// From which the internet calls.
const CALLER: u16 = 5001;

/// A gateway whose kernel has published ports on the first link, and answers by that.
fn site_with_ports() -> Site {
    let mut site = site();
    forwards(&site.gateway);
    for device in ["all", "wan0", "wan1", "lan0"] {
        let key = format!("net/ipv4/conf/{device}/rp_filter");
        site.gateway.set_sysctl(&key, "0").unwrap();
    }
    let isp = ISP[0];
    let by_first_link = format!("route add default via {isp} dev wan0");
    site.gateway.ip(&by_first_link).unwrap();
    let [datagrams, connections] = PUBLISHED;
    let [to_datagrams, to_connections] = SERVED;
    let to = |port| SocketAddr::new(CLIENT, port);
    let rules = format!(
        "table {NFT} published {{
            chain pre {{
                type nat hook prerouting priority -100
                iifname wan0 udp dport {datagrams} dnat to {}
                iifname wan0 tcp dport {connections} dnat to {}
            }}
        }}",
        to(to_datagrams),
        to(to_connections),
    );
    site.gateway.nft(&rules).unwrap();
    forward_by_kernel(&mut site, true);
    site
}

fn forward_by_kernel(site: &mut Site, forwards: bool) {
    let mut settings = settings();
    settings.forwards_kernel = forwards.into();
    site.in_gateway(|plane| plane.set_settings(&settings).unwrap());
}

fn published(port: usize) -> SocketAddr {
    SocketAddr::new(EXTERNAL[0], PUBLISHED[port])
}

/// Calls the published port from `caller`, and is answered from there, be it in pieces.
fn is_answered(caller: &UdpSocket, service: &UdpSocket) {
    caller.send_to(b"q", published(0)).unwrap();
    let (heard, from) = receive(service);
    assert_eq!(heard, b"q");
    for length in [1, 4000] {
        let answer = vec![7; length];
        service.send_to(&answer, from).unwrap();
        assert!(receive(caller) == (answer, published(0)), "{length} bytes");
    }
}

/// What a LAN host sends to the caller from a port of its own is balanced.
fn is_balanced(from: IpAddr, caller: &UdpSocket, site: &Site) {
    let socket = udp_socket(&site.client, (from, 0));
    socket.send_to(b"x", (SERVER, CALLER)).unwrap();
    let (_, external) = receive(caller);
    assert_ne!(external, published(0));
    caller.send_to(b"y", external).unwrap();
    assert_eq!(receive(&socket).0, b"y");
}

#[test]
fn a_published_port_answers_whoever_spoke_to_the_caller_before() {
    for spoke_before in [None, Some(CLIENT), Some(SECOND_CLIENT)] {
        let mut site = site_with_ports();
        let caller = udp_socket(&site.internet, (SERVER, CALLER));
        let service = udp_socket(&site.client, (CLIENT, SERVED[0]));
        if let Some(host) = spoke_before {
            is_balanced(host, &caller, &site);
        }
        is_answered(&caller, &service);
        for host in [CLIENT, SECOND_CLIENT] {
            is_balanced(host, &caller, &site);
        }
        is_answered(&caller, &service);
        assert!(site.reason("forward-out") > 0);
    }
}

#[test]
fn a_published_port_takes_connections() {
    let site = site_with_ports();
    let listener = listen(&site.client, (CLIENT, SERVED[1]));
    let mut caller = connect(&site.internet, published(1));
    let (mut called, _) = listener.accept().unwrap();
    echo_once(&mut caller, &mut called, b"published");
}

#[test]
fn what_the_kernel_forwards_to_nobody_takes_no_datagram_of_the_lan() {
    let mut site = site_with_ports();
    let caller = udp_socket(&site.internet, (SERVER, CALLER));
    for link in EXTERNAL {
        caller.send_to(b"stray", (link, 9999)).unwrap();
    }
    eventually("both have come", || site.reason("forward-in") == 2);
    for host in [CLIENT, SECOND_CLIENT] {
        is_balanced(host, &caller, &site);
    }
    assert_eq!(site.reason("forward-out"), 0);
}

#[test]
fn the_program_that_hears_forwards_is_there_only_where_they_are() {
    let mut site = site();
    let heard = |site: &Site, device: &str| {
        let programs = || programs_at(if_nametoindex(device).unwrap(), TcAttachType::Egress);
        site.gateway.run(programs).unwrap().unwrap().len()
    };
    for (forwards, count) in [(false, 0), (true, 1), (false, 0), (true, 1)] {
        forward_by_kernel(&mut site, forwards);
        eventually("as the settings say", || heard(&site, "lan0") == count);
        assert_eq!(heard(&site, "wan0"), 0);
    }
    drop(site.plane.take());
    assert_eq!(heard(&site, "lan0"), 1, "it outlives the process");
    site.start(Sizes::default());
    let gone = "the next one's kernel forwards nothing";
    eventually(gone, || heard(&site, "lan0") == 0);
    forward_by_kernel(&mut site, true);
    site.stop().unwrap();
    eventually("it goes with the gateway", || heard(&site, "lan0") == 0);
}
