//! Servers that answer clients themselves: packets as they are, and in tunnels.

use super::*;

#[test]
fn a_server_that_answers_itself_gets_packets_as_they_are() {
    let mut rig = Rig::new();
    rig.listen(&[Protocol::Tcp, Protocol::Udp]);
    for family in Family::ALL {
        for number in 0..SERVERS {
            rig.change_server(family, number, |server| {
                server.forwarding = Forwarding::Direct;
            });
        }
        let (from, to) = (client(family, 4000), web(family));
        let before = rig.entries();
        for (flags, number) in [("S", 1), ("A", 2), ("A", 2)] {
            let segment = tcp(from, to, flags, number, 0).frame();
            let (ran, reason) = rig.send(&segment);
            assert_eq!(
                (ran.action, reason.as_str()),
                (TC_ACT_REDIRECT, "to-server")
            );
            assert_eq!(ran.packet[14..], segment[14..]);
        }
        assert_eq!(rig.entries(), before + 1, "one entry");
        for number in [0x0010_0000, 1 << 31] {
            rig.client_sends(&tcp(from, to, "R", number, 0));
            assert_eq!(rig.live(family, 0), 1, "a forged reset");
        }
        let data = tcp(to, from, "A", 101, 2).ip().packet();
        let error = icmp(
            router(family),
            to.ip(),
            too_big(family),
            [0, 0, 5, 20],
            &data,
        );
        let (ran, reason) = rig.send(&error.frame());
        assert_eq!(reason, "error-to-server");
        assert_eq!(ran.packet[14..], error.packet());
        rig.client_sends(&tcp(from, to, "FA", 2, 101));
        assert_eq!(rig.live(family, 0), 0);
        rig.client_sends(&tcp(from, to, "S", 9000, 0));
        assert_eq!((rig.live(family, 0), rig.live(family, 1)), (0, 1));
        let query = udp(from, to, b"query").frame();
        assert_eq!(rig.send(&query).0.packet[14..], query[14..]);
        assert_eq!(rig.live(family, 2), 1);
    }
    rig.has_been_idle(Duration::from_secs(61));
    rig.services()
        .sweeper()
        .unwrap()
        .sweep(&BTreeSet::new())
        .unwrap();
    assert_eq!(rig.entries(), 0);
}

#[test]
fn the_end_of_a_direct_connection_leaves_that_of_the_same_port_to_the_same_server() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        let (from, to) = (client(family, 4000), web(family));
        let other = SocketAddr::new(to.ip(), 81);
        let endpoints = [to, other].map(|at| (Listen::tcp(at), WEB)).into();
        rig.services().set_virtuals(&endpoints).unwrap();
        rig.choose_among(family, &[0]);
        let server = rig.establish(from, to);
        rig.change_server(family, 0, |server| server.forwarding = Forwarding::Direct);
        rig.send(&tcp(from, other, "S", 1, 0).frame());
        rig.send(&tcp(from, other, "R", 2, 0).frame());
        rig.send(&tcp(from, other, "S", 9, 0).frame());
        let (seen, _) = rig.server_sends(&tcp(server, from, "A", 101, 2));
        assert_eq!((seen.src(), seen.dst()), (to, from));
    }
}

/// Its RST to the client was not seen here, so the connection is still known.
#[test]
fn a_port_that_is_used_again_leaves_a_server_that_has_failed() {
    let mut rig = Rig::new();
    for family in Family::ALL {
        for number in 0..SERVERS {
            rig.change_server(family, number, |server| {
                server.forwarding = Forwarding::Direct;
            });
        }
        let (from, to) = (client(family, 4000), web(family));
        rig.choose_among(family, &[0]);
        rig.client_sends(&tcp(from, to, "S", 1, 0));
        rig.client_sends(&tcp(from, to, "A", 2, 101));
        rig.choose_among(family, &[1]);
        for (has_failed, live) in [(false, (1, 0)), (true, (0, 1))] {
            rig.change_server(family, 0, |server| server.has_failed = has_failed);
            rig.client_sends(&tcp(from, to, "S", 9000, 0));
            let there = (rig.live(family, 0), rig.live(family, 1));
            assert_eq!(there, live, "failed: {has_failed}");
        }
    }
}

/// What is inside a packet of a tunnel, which is as it is to be.
fn inside(packet: &[u8], server: SocketAddr, gue_port: Option<u16>, inner: Family) -> &[u8] {
    let (outer, rest, length) = Header::read(packet);
    let source = router(server.ip().into());
    assert_eq!((outer.source, outer.destination), (source, server.ip()));
    assert!(outer.dont_fragment);
    assert_eq!((outer.hop_limit, outer.traffic_class), (64, MARKED));
    let (body, proto) = (&rest[..length], ip_in_ip(inner));
    let Some(port) = gue_port else {
        assert_eq!(outer.protocol, IpNumber(proto));
        return body;
    };
    assert_eq!(outer.protocol, IpNumber::UDP);
    assert_eq!(body[2..4], port.to_be_bytes());
    assert_eq!(body[4..6], (length as u16).to_be_bytes());
    assert_eq!(body[6..12], [0, 0, 0, proto, 0, 0], "no sum, no flags");
    &body[12..]
}

const fn ip_in_ip(inner: Family) -> u8 {
    match inner {
        Family::V4 => 4,
        Family::V6 => 41,
    }
}

/// DSCP EF, and ECT(0).
const MARKED: u8 = 46 << 2 | 2;

fn marked(segment: &Segment) -> Ip {
    let mut ip = segment.ip();
    ip.header.traffic_class = MARKED;
    ip
}

#[test]
fn a_tunnel_carries_packets_of_each_family_in_each_as_they_are() {
    let mut rig = Rig::new();
    rig._namespace.ip("link set lo mtu 1500").unwrap();
    let mut port = 4000;
    for outer in Family::ALL {
        for gue_port in [None, Some(6080)] {
            let known = rig.services().servers(WEB).unwrap();
            let known = known[usize::from(place(outer, 0))].unwrap();
            let far = Server {
                forwarding: Forwarding::Tunnel { gue_port },
                ..known
            };
            let room = match outer {
                Family::V4 => 20,
                Family::V6 => 40,
            } + gue_port.map_or(0, |_| 12);
            for inner in Family::ALL {
                port += 1;
                let place = ServerId(place(inner, 1));
                rig.services().set_server(WEB, place, Some(far)).unwrap();
                rig.choose_among(inner, &[1]);
                let (from, to) = (client(inner, port), web(inner));
                let mut carried = |segment: &Segment| {
                    let sent = marked(segment);
                    let (ran, reason) = rig.send(&sent.frame());
                    assert_eq!(
                        (ran.action, reason.as_str()),
                        (TC_ACT_REDIRECT, "to-server")
                    );
                    assert_eq!(ran.packet[12..14], ether_type(outer));
                    let seen = inside(&ran.packet[14..], far.endpoint, gue_port, inner);
                    assert_eq!(seen, sent.packet());
                };
                carried(&tcp(from, to, "S", 1, 0).options(&mss_option(1460)));
                carried(&tcp(from, to, "A", 2, 1));
                let headers = if inner == Family::V4 { 40 } else { 60 };
                let fits = tcp(from, to, "A", 2, 1).payload(&vec![7; 1500 - room - headers]);
                carried(&fits);
                let long = tcp(from, to, "A", 2, 1).payload(&vec![7; 1501 - room - headers]);
                let (ran, reason) = rig.send(&long.frame());
                assert_eq!(reason, "too-big");
                let [high, low] = (1500 - room as u16).to_be_bytes();
                let told = read(&ran.packet);
                assert_eq!(told.icmp(), (too_big(inner), [0, 0, high, low]));
            }
        }
    }
}

const fn ether_type(family: Family) -> [u8; 2] {
    match family {
        Family::V4 => [0x08, 0x00],
        Family::V6 => [0x86, 0xdd],
    }
}
