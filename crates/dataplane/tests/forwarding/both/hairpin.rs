//! Two hosts on two LAN devices find each other at a server outside, and connect by their external endpoints from the
//! ports they used there (RFC 5382 REQ-8).

use std::io::{Read, Write};

use anabranch_dataplane::{Role, Route, Verdict};
use nix::net::if_::if_nametoindex;
use socket2::{Socket, Type};

use super::{datagrams::may_fragment, *};

/// Both programs use it, as copies of one program do.
const PORT: u16 = 4000;
const RENDEZVOUS: (IpAddr, u16) = (SERVER, 3478);

/// Of the gateway in the second LAN.
fn gateway_neighbour() -> IpAddr {
    nth(SITE.further_lan.0, 1)
}

fn neighbour_address() -> IpAddr {
    nth(SITE.further_lan.0, 2)
}

/// A site with a second LAN device, and a host behind it.
struct Place {
    neighbour: Namespace,
    site: Site,
}

impl Place {
    fn new() -> Self {
        let mut site = site();
        let neighbour = Namespace::create("neighbour").unwrap();
        neighbour.set_ipv6(true).unwrap();
        neighbour.veth("eth0", &site.gateway, "lan1").unwrap();
        let ((_, length), gateway) = (SITE.further_lan, gateway_neighbour());
        neighbour
            .add_address("eth0", neighbour_address(), length)
            .unwrap();
        site.gateway.add_address("lan1", gateway, length).unwrap();
        neighbour
            .ip(&format!("route add default via {gateway}"))
            .unwrap();
        attach_second_lan(&mut site, 1500);
        site.in_gateway(|plane| {
            let lan = |device| Verdict::Lan {
                ifindex: if_nametoindex(device).unwrap(),
                via: None,
            };
            let own = [GATEWAY_LAN, gateway_neighbour(), EXTERNAL[0], EXTERNAL[1]];
            let mut routes: Vec<_> = own
                .map(|address| Route {
                    prefix: SITE.host(address),
                    verdict: Verdict::Local,
                })
                .into();
            for (prefix, device) in [(SITE.lan, "lan0"), (SITE.further_lan, "lan1")] {
                routes.push(Route {
                    prefix,
                    verdict: lan(device),
                });
            }
            plane.set_routes(&routes).unwrap();
        });
        Place { neighbour, site }
    }

    fn hosts(&self) -> [(&Namespace, IpAddr); 2] {
        [
            (&self.site.client, CLIENT),
            (&self.neighbour, neighbour_address()),
        ]
    }

    /// The neighbour's device takes packets of `mtu` bytes, and senders leave no checksum to theirs.
    fn narrow(&mut self, mtu: u32) {
        self.neighbour.set_mtu("eth0", mtu).unwrap();
        self.site.gateway.set_mtu("lan1", mtu).unwrap();
        self.site.set_offloads(false);
        self.neighbour.set_offloads("eth0", false).unwrap();
        self.site.gateway.set_offloads("lan1", false).unwrap();
        attach_second_lan(&mut self.site, mtu);
    }

    /// Each host's connection to the rendezvous, and the endpoint it is seen at there.
    fn meet(&self) -> [(TcpStream, SocketAddr); 2] {
        let listener = listen(&self.site.internet, RENDEZVOUS);
        self.hosts().map(|(host, address)| {
            let stream = host
                .run(|| call(bound(address), RENDEZVOUS.into()).unwrap())
                .unwrap();
            let seen = listener.accept().unwrap().1;
            (stream, seen)
        })
    }
}

fn attach_second_lan(site: &mut Site, mtu: u32) {
    site.in_gateway(|plane| {
        let address = gateway_neighbour();
        let second = if_nametoindex("lan1").unwrap();
        plane
            .attach(second, Role::lan([address]), false, mtu)
            .unwrap();
    });
}

/// A socket at the one port, which others of the program have as well.
fn bound(address: IpAddr) -> Socket {
    let socket = Socket::new(domain(), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    let at = SocketAddr::from((address, PORT));
    socket.bind(&at.into()).unwrap();
    socket
}

fn call(socket: Socket, to: SocketAddr) -> std::io::Result<TcpStream> {
    socket.connect_timeout(&to.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    patient(&stream);
    Ok(stream)
}

#[test]
fn two_hosts_that_call_each_other_from_their_ports_are_connected() {
    for links in [0b01, 0b11] {
        let mut place = Place::new();
        place.site.install(links);
        let met = place.meet();
        let seen = met.each_ref().map(|(_, seen)| *seen);
        let calls = place.hosts();
        let mut streams = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let (host, address) = calls[0];
                host.run(|| call(bound(address), seen[1]).unwrap()).unwrap()
            });
            let second = scope.spawn(|| {
                let (host, address) = calls[1];
                host.run(|| call(bound(address), seen[0]).unwrap()).unwrap()
            });
            [first, second].map(|call| call.join().unwrap())
        });
        for host in [0, 1] {
            assert_eq!(streams[host].peer_addr().unwrap(), seen[1 - host]);
        }
        let [first, second] = &mut streams;
        echo_once(first, second, b"from port to port");
        drop(streams);
        drop(met);
        eventually("every flow is closed", || place.site.live() == 0);
    }
}

#[test]
fn a_host_that_listens_at_its_port_is_called_by_any_host_and_large_transfers_pass() {
    let mut place = Place::new();
    place.site.install(0b01);
    let met = place.meet();
    let (host, address) = (&place.neighbour, neighbour_address());
    let listener = host
        .run(|| {
            let socket = bound(address);
            socket.listen(1).unwrap();
            TcpListener::from(socket)
        })
        .unwrap();
    for offloads in [true, false] {
        place.site.set_offloads(offloads);
        place.neighbour.set_offloads("eth0", offloads).unwrap();
        place.site.gateway.set_offloads("lan1", offloads).unwrap();
        let mut caller = connect(&place.site.client, met[1].1);
        let (mut called, from) = listener.accept().unwrap();
        patient(&called);
        assert_eq!(from.ip(), EXTERNAL[0]);
        let sent: Vec<u8> = (0..4 << 20).map(|i: u32| (i / 11) as u8).collect();
        let mut heard = vec![0; sent.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| caller.write_all(&sent).unwrap());
            called.read_exact(&mut heard).unwrap();
        });
        assert!(heard == sent, "offloads {offloads}");
        echo_once(&mut called, &mut caller, b"and back");
    }
    for namespace in [&place.site.client, &place.neighbour] {
        assert_eq!(checksum_errors(namespace), 0);
    }
    let internet = &place.site.internet;
    let stranger = internet.connect(met[1].1, Duration::from_millis(500));
    assert!(stranger.is_err(), "a stranger is not let in");
    assert!(place.site.reason("stray-syn") > 0);
}

#[test]
fn datagrams_too_long_for_the_other_hosts_device_are_cut_or_answered() {
    for links in [0b01, 0b11] {
        let mut place = Place::new();
        place.site.install(links);
        place.narrow(1300);
        let rendezvous = udp_socket(&place.site.internet, RENDEZVOUS);
        let sockets = place.hosts().map(|(host, address)| {
            let socket = udp_socket(host, (address, PORT));
            socket.send_to(b"stun", RENDEZVOUS).unwrap();
            (socket, receive(&rendezvous).1)
        });
        let [(caller, from), (called, to)] = &sockets;
        // A router cuts no packet of IPv6 (RFC 8200 section 4.5).
        let cut: &[usize] = match FAMILY {
            Family::V4 => &[1272, 1273, 1472, 4000],
            Family::V6 => &[],
        };
        may_fragment(caller);
        for length in cut {
            let payload: Vec<u8> = (0..*length).map(|i| (i / 7) as u8).collect();
            caller.send_to(&payload, to).unwrap();
            assert!(receive(called) == (payload, *from), "{length} bytes");
        }
        assert_eq!(checksum_errors(&place.neighbour), 0);

        let must_not_fragment = udp_socket(&place.site.client, (CLIENT, PORT + 1));
        must_not_fragment.connect(to).unwrap();
        eventually("the caller learns the MTU", || {
            // The error of one datagram is reported by the next, or fragments it.
            must_not_fragment.send(&[7; 1452]).ok();
            let route = ["route", "get", &to.ip().to_string()];
            let said = place.site.client.exec("ip", &route).unwrap();
            said.contains("mtu 1300")
        });
        assert!(place.site.reason("too-big-in") > 0);
        assert!(place.site.reason("error-in") > 0);
    }
}
