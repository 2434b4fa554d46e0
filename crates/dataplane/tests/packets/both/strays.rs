//! What belongs to no flow: nothing a link brings reaches the LAN by it, nothing of the LAN leaves a link untranslated.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use etherparse::IpNumber;

use super::*;

const MARK: u32 = 7;

fn external(port: u16) -> SocketAddr {
    SocketAddr::new(EXTERNAL[0], port)
}

/// A packet of a protocol nobody translates.
fn of_protocol(protocol: IpNumber, src: IpAddr, dst: IpAddr) -> Ip {
    let (src, dst) = (SocketAddr::new(src, 1), SocketAddr::new(dst, 2));
    let mut ip = udp(src, dst, b"something");
    ip.header.protocol = protocol;
    ip
}

fn icmp_of_type(kind: u8, src: IpAddr, dst: IpAddr) -> Ip {
    icmp(src, dst, (kind, 0), [0; 4], &[0; 40])
}

#[test]
fn what_a_link_brings_for_a_lan_host_is_dropped_whatever_the_fallback() {
    let mut rig = Rig::new();
    for fallback_mark in [0, MARK] {
        rig.set(|s| s.fallback_mark = fallback_mark);
        for target in [CLIENT, SECOND_CLIENT] {
            let at = |port| SocketAddr::new(target, port);
            let frames = [
                tcp(second_server(9), at(80), "S", 1, 0).frame(),
                tcp(second_server(9), at(80), "A", 1, 1).frame(),
                udp(second_server(9), at(53), b"x").frame(),
                udp(second_server(9), at(53), &[0; 64])
                    .fragment(32, 64)
                    .frame(),
                echo(SECOND_SERVER, target, 1, b"x").frame(),
                echo_reply(SECOND_SERVER, target, 1, b"x").frame(),
                icmp_of_type(5, SECOND_SERVER, target).frame(),
                of_protocol(IpNumber::GRE, SECOND_SERVER, target).frame(),
                of_protocol(IpNumber::SCTP, SECOND_SERVER, target).frame(),
            ];
            for frame in frames {
                rig.link_brings(0, &frame).dropped("not-forwarded");
            }
        }
    }
    assert!(rig.flows().is_empty());
}

#[test]
fn a_source_of_the_host_itself_on_a_link_is_a_lie_in_every_protocol() {
    let mut rig = Rig::new();
    for liar in [EXTERNAL[0], EXTERNAL[1], GATEWAY_LAN, CLIENT] {
        let from = SocketAddr::new(liar, 4000);
        let frames = [
            udp(from, external(53), b"x").frame(),
            tcp(from, external(80), "S", 1, 0).frame(),
            echo(liar, EXTERNAL[0], 1, b"x").frame(),
            of_protocol(IpNumber::GRE, liar, EXTERNAL[0]).frame(),
        ];
        for frame in frames {
            rig.link_brings(0, &frame).dropped("spoofed-wan");
        }
    }
}

#[test]
fn a_connection_attempt_from_a_link_meets_a_listener_or_silence() {
    let mut rig = Rig::new();
    let syn = tcp(server(5000), external(22), "S", 1, 0).frame();
    for fallback_mark in [0, MARK] {
        rig.set(|s| s.fallback_mark = fallback_mark);
        rig.link_brings(0, &syn).dropped("stray-syn");
    }
    let _listener = TcpListener::bind((SITE.unspecified, 22)).unwrap();
    rig.link_brings(0, &syn).passed("no-flow-in");
}

#[test]
fn datagrams_and_segments_from_a_link_to_no_socket_are_left_to_the_rules_for_strays() {
    let mut rig = Rig::new();
    let frames = [
        udp(server(5000), external(53), b"x").frame(),
        tcp(server(5000), external(22), "A", 1, 1).frame(),
        tcp(server(5000), external(22), "SA", 1, 1).frame(),
        tcp(server(5000), external(22), "R", 1, 0).frame(),
    ];
    for frame in &frames {
        rig.link_brings(0, frame).passed("stray");
    }
    let _socket = UdpSocket::bind((SITE.unspecified, 53)).unwrap();
    rig.link_brings(0, &frames[0]).passed("no-flow-in");
}

#[test]
fn pings_errors_and_other_protocols_to_the_host_are_its_own() {
    let mut rig = Rig::new();
    rig.link_brings(0, &echo(SERVER, EXTERNAL[0], 1, b"").frame())
        .passed("no-flow-in");
    rig.link_brings(0, &icmp_of_type(13, SERVER, EXTERNAL[0]).frame())
        .passed("no-flow-in");
    let broadcast = SocketAddr::new(SITE.everybody, 9);
    rig.link_brings(0, &udp(server(9), broadcast, b"wake").frame())
        .passed("no-flow-in");
    rig.link_brings(0, &of_protocol(IpNumber::GRE, SERVER, EXTERNAL[0]).frame())
        .passed("other-protocol");
}

#[test]
fn what_a_link_brings_for_another_network_is_the_kernels_to_judge() {
    let mut rig = Rig::new();
    for target in [SERVER, SITE.stranger, ISP[0]] {
        let at = |port| SocketAddr::new(target, port);
        for frame in [
            tcp(second_server(9), at(80), "S", 1, 0).frame(),
            udp(second_server(9), at(53), b"x").frame(),
            echo(SECOND_SERVER, target, 1, b"x").frame(),
            of_protocol(IpNumber::GRE, SECOND_SERVER, target).frame(),
        ] {
            rig.set(|s| s.forwards_kernel = 0);
            rig.link_brings(0, &frame).passed("transit-in");
            rig.set(|s| s.forwards_kernel = 1);
            rig.link_brings(0, &frame).passed("forward-in");
        }
    }
}

/// Ports of a DHCP server and its client.
const LEASE: (u16, u16) = match FAMILY {
    Family::V4 => (67, 68),
    Family::V6 => (547, 546),
};

fn offer(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let (server, client) = LEASE;
    let ends = (SocketAddr::new(from, server), SocketAddr::new(to, client));
    udp(ends.0, ends.1, b"offer").frame()
}

#[test]
fn a_lease_reaches_a_client_of_the_host_whatever_address_its_server_has() {
    let mut rig = Rig::new();
    let unowned = nth(EXTERNAL[0], 40);
    for server in [ISP[0], SITE.stranger, CLIENT, EXTERNAL[0]] {
        for offered in [unowned, EXTERNAL[0], SITE.everybody] {
            rig.link_brings(0, &offer(server, offered)).passed("dhcp");
        }
    }
    // The LAN's hosts have no leases from a link, and nothing else is excused.
    rig.link_brings(0, &offer(ISP[0], CLIENT))
        .dropped("not-forwarded");
    rig.link_brings(0, &offer(CLIENT, SECOND_CLIENT))
        .dropped("spoofed-wan");
    let query = SocketAddr::new(CLIENT, LEASE.1);
    rig.link_brings(0, &udp(query, external(LEASE.0), b"x").frame())
        .dropped("spoofed-wan");

    for offered in [nth(GATEWAY_LAN, 40), nth(SITE.stranger, 40)] {
        rig.lan_sends(&offer(SITE.stranger, offered)).passed("dhcp");
    }
    rig.lan_sends(&udp(SocketAddr::new(SITE.stranger, LEASE.0), server(9), b"x").frame())
        .dropped("spoofed-lan");
}

#[test]
fn what_a_lan_device_hears_before_it_has_an_address_is_the_kernels() {
    let mut rig = Rig::new();
    let from = SocketAddr::new(SITE.stranger, 4000);
    let frames = [
        udp(from, server(53), b"x").frame(),
        tcp(from, server(80), "S", 1, 0).frame(),
        echo(SITE.stranger, SERVER, 1, b"x").frame(),
        icmp_of_type(3, SITE.stranger, SERVER).frame(),
    ];
    for frame in &frames {
        rig.lan_sends(frame).dropped("spoofed-lan");
    }
    rig.have_no_address();
    for frame in &frames {
        rig.lan_sends(frame).passed("no-lan-address");
    }
    assert!(rig.flows().is_empty());
}

/// Whose links are two ports of one modem.
#[test]
fn on_a_segment_that_links_share_either_device_brings_what_is_for_both() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let other = 1 - connection.link;
    let sent = rig.lan_sends(&udp(client(4000), server(53), b"q").frame());
    let sent = sent.sent("translated-out").src();
    let data = connection.answer("A", REMOTE_ISN + 1, LOCAL_ISN + 1);
    let answer = udp(server(53), sent, b"a").frame();
    let quoted = udp(sent, server(53), b"q").packet();
    let error = icmp(ISP[0], sent.ip(), SITE.too_big, [0, 0, 5, 0], &quoted).frame();
    rig.link_brings(other, &data.frame()).passed("stray");
    rig.share_segment();
    let own = usize::from(connection.link);
    let received = |rig: &mut Rig| {
        let counters = anabranch_core::DataPlane::counters(rig.plane()).unwrap();
        [own, 1 - own].map(|link| counters[link].carried().rx_packets)
    };
    let before = received(&mut rig);
    rig.translates_in(other, &data.frame());
    assert_eq!(received(&mut rig), [before[0] + 1, before[1]]);
    rig.translates_in(1 - link_of(sent), &answer);
    rig.link_brings(1 - link_of(sent), &error).sent("error-in");
    // A connection over either.
    let (local, remote) = (client(4001), server(80));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
    let external = rig.translates_out(&syn.frame()).src();
    let answer = tcp(remote, external, "SA", REMOTE_ISN, LOCAL_ISN + 1);
    rig.translates_in(1 - link_of(external), &answer.frame());
    // What is of no flow is a stray as ever, and nobody passes for the LAN.
    rig.link_brings(
        other,
        &udp(server(53), SocketAddr::new(sent.ip(), 9), b"x").frame(),
    )
    .passed("stray");
    let lie = udp(client(53), sent, b"x").frame();
    rig.link_brings(other, &lie).dropped("spoofed-wan");
}

/// The link that a mark bids the kernel's NAT use.
fn bidden(mark: u32) -> Option<u32> {
    ((mark >> 8) & 0xff).checked_sub(1)
}

#[test]
fn what_has_no_ports_takes_the_link_of_its_hosts_control_connection() {
    const KERNEL: u32 = 0xab00_0007;
    let mut rig = Rig::new();
    rig.set(|s| s.fallback_mark = KERNEL);
    let esp = |from: IpAddr, to: IpAddr| {
        of_protocol(IpNumber::ENCAPSULATING_SECURITY_PAYLOAD, from, to).frame()
    };
    let mark = rig
        .lan_sends(&esp(CLIENT, SERVER))
        .marked("fallback-protocol");
    assert_eq!(mark, KERNEL);
    let mut links = BTreeSet::new();
    for (number, port) in (0..).zip([500, 4500, 1701, 500]) {
        let (host, remote) = (lan_host(20 + number), internet_host(number));
        let ends = (SocketAddr::new(host, 500), SocketAddr::new(remote, port));
        let sent = rig.lan_sends(&udp(ends.0, ends.1, b"ike").frame());
        let link = link_of(sent.sent("translated-out").src());
        let mark = rig
            .lan_sends(&esp(host, remote))
            .marked("fallback-protocol");
        assert_eq!(bidden(mark), Some(link.into()));
        assert_eq!(mark & 0xffff_00ff, KERNEL);
        // The same mapping speaks to a second remote end.
        let second = internet_host(100 + number);
        let ike = udp(ends.0, SocketAddr::new(second, port), b"ike").frame();
        rig.translates_out(&ike);
        let mark = rig
            .lan_sends(&esp(host, second))
            .marked("fallback-protocol");
        assert_eq!(bidden(mark), Some(link.into()));
        // Others are free.
        let mark = rig
            .lan_sends(&esp(host, SERVER))
            .marked("fallback-protocol");
        assert_eq!(bidden(mark), None);
        links.insert(link);
    }
    assert_eq!(links.len(), 2, "they take turns");
}

#[test]
fn pptp_is_the_kernels_over_one_link_for_both_of_its_connections() {
    const KERNEL: u32 = 0xab00_0007;
    let mut rig = Rig::new();
    let syn = |host: u32| {
        tcp(
            SocketAddr::new(lan_host(host), 4000),
            server(1723),
            "S",
            1,
            0,
        )
    };
    // Without the kernel's NAT it is a connection as any.
    rig.translates_out(&syn(9).frame());
    rig.set(|s| s.fallback_mark = KERNEL);
    let mut links = BTreeSet::new();
    for host in 20..24 {
        let mark = rig.lan_sends(&syn(host).frame()).marked("fallback-helper");
        let link = bidden(mark).expect("one was chosen");
        let segment = tcp(
            SocketAddr::new(lan_host(host), 4000),
            server(1723),
            "A",
            2,
            1,
        );
        let mark = rig.lan_sends(&segment.frame()).marked("fallback-helper");
        assert_eq!(bidden(mark), Some(link));
        let gre = of_protocol(IpNumber::GRE, lan_host(host), SERVER).frame();
        let mark = rig.lan_sends(&gre).marked("fallback-protocol");
        assert_eq!(bidden(mark), Some(link));
        links.insert(link);
    }
    assert_eq!(links.len(), 2, "they take turns");
}

const TCP: u8 = 6;
const UDP: u8 = 17;

#[test]
fn the_kernels_own_forwards_and_the_answers_to_them_are_the_kernels() {
    let mut rig = Rig::new();
    rig.set(|s| s.forwards_kernel = 1);
    let routed = SocketAddr::new(CLIENT, 80);
    for to in [external(8080), routed] {
        rig.link_brings(0, &tcp(server(5000), to, "S", 1, 0).frame())
            .passed("forward-in");
        rig.link_brings(0, &udp(server(5001), to, b"x").frame())
            .passed("forward-in");
    }
    rig.kernel_forwards(TCP, client(80), server(5000));
    rig.kernel_forwards(UDP, client(53), server(5001));
    let answer = tcp(client(80), server(5000), "SA", 1, 2);
    rig.lan_sends(&answer.frame()).passed("forward-out");
    let answer = udp(client(53), server(5001), &[7; 2000]);
    rig.lan_sends(&answer.fragment(0, 1440).frame())
        .passed("forward-out");
    rig.lan_sends(&answer.fragment(1440, 2008).frame())
        .passed("forward-out");
    rig.lan_sends(&tcp(client(9), server(9), "A", 1, 2).frame())
        .passed("forward-out");

    rig.translates_out(&tcp(client(81), server(5000), "S", 1, 0).frame());
    rig.translates_out(&udp(client(54), server(53), b"q").frame());
    let _listener = TcpListener::bind((SITE.unspecified, 8080)).unwrap();
    rig.link_brings(0, &tcp(server(5000), external(8080), "S", 1, 0).frame())
        .passed("no-flow-in");
}

/// Beside ever new remote ends.
#[test]
fn a_forward_in_use_outlives_any_number_of_others() {
    let mut rig = Rig::new();
    rig.set(|s| s.forwards_kernel = 1);
    rig.kernel_forwards(UDP, client(53), server(5001));
    let answer = udp(client(53), server(5001), b"a").frame();
    for round in 0..50u32 {
        for i in 0..1000 {
            let stranger = SocketAddr::new(internet_host(round * 1000 + i), 7);
            rig.kernel_forwards(UDP, client(53), stranger);
        }
        rig.lan_sends(&answer).passed("forward-out");
    }
}

#[test]
fn a_forward_of_which_nothing_was_heard_for_long_is_none() {
    let mut rig = Rig::new();
    rig.set(|s| (s.forwards_kernel, s.udp_ns) = (1, 0));
    rig.kernel_forwards(UDP, client(53), server(5001));
    let answer = udp(client(53), server(5001), b"a").frame();
    let deadline = Instant::now() + Duration::from_secs(2);
    while rig.lan_sends(&answer).reason == "forward-out" {
        assert!(Instant::now() < deadline);
    }
    rig.translates_out(&answer);
}

#[test]
fn an_answer_to_a_forward_does_not_take_the_mapping_of_its_port() {
    let mut rig = Rig::new();
    rig.set(|s| s.forwards_kernel = 1);
    rig.translates_out(&udp(client(53), server(53), b"recursion").frame());
    rig.kernel_forwards(UDP, client(53), second_server(7));
    rig.lan_sends(&udp(client(53), second_server(7), b"a").frame())
        .passed("forward-out");
}

/// A late answer, what somebody sends in a resolver's name, or a forward to another.
#[test]
fn what_is_forwarded_to_nobody_or_another_makes_no_forward() {
    let mut rig = Rig::new();
    rig.set(|s| s.forwards_kernel = 1);
    for port in [8080, 8081] {
        rig.link_brings(0, &udp(server(53), external(port), b"late").frame())
            .passed("forward-in");
    }
    rig.kernel_forwards(UDP, SocketAddr::new(SECOND_CLIENT, 54), server(53));
    for port in [54, 55] {
        rig.translates_out(&udp(client(port), server(53), b"q").frame());
    }
    rig.lan_sends(&udp(SocketAddr::new(SECOND_CLIENT, 54), server(53), b"a").frame())
        .passed("forward-out");
}

#[test]
fn of_a_lan_nothing_leaves_by_the_kernel_but_what_its_nat_carries() {
    let mut rig = Rig::new();
    let ours = [
        of_protocol(IpNumber::GRE, CLIENT, SERVER),
        of_protocol(IpNumber::SCTP, CLIENT, SERVER),
        of_protocol(IpNumber::ENCAPSULATING_SECURITY_PAYLOAD, CLIENT, SERVER),
    ];
    let answer = rig.lan_sends(&ours[0].frame());
    let answer = answer.answered("refused-protocol");
    assert_eq!(answer.icmp().0, SITE.prohibited);
    for ip in &ours {
        assert_eq!(rig.lan_sends(&ip.frame()).reason, "refused-protocol");
    }
    rig.set(|s| s.fallback_mark = MARK);
    for ip in &ours {
        rig.lan_sends(&ip.frame()).passed("fallback-protocol");
        let later = ip.fragment(8, 16);
        rig.lan_sends(&later.frame()).passed("fallback-protocol");
    }
    // Echo replies, redirects, timestamps, and of IPv6 what comes from afar.
    let others = match FAMILY {
        Family::V4 => [0, 5, 9, 10, 13, 14, 17, 18, 40],
        Family::V6 => [129, 0, 5, 130, 133, 135, 137, 139, 200],
    };
    for kind in others {
        rig.lan_sends(&icmp_of_type(kind, CLIENT, SERVER).frame())
            .dropped("icmp-other");
    }
}

/// Else the kernel's answer would leave by a link, with the gateway's LAN address for a source.
#[test]
fn a_source_that_lies_does_not_reach_the_kernel_either() {
    let mut rig = Rig::new();
    let liar = ISP[0];
    for ip in [
        udp(
            SocketAddr::new(liar, 4000),
            SocketAddr::new(GATEWAY_LAN, 9),
            b"x",
        ),
        tcp(
            SocketAddr::new(liar, 4000),
            SocketAddr::new(GATEWAY_LAN, 9),
            "S",
            1,
            0,
        )
        .ip(),
        echo(liar, GATEWAY_LAN, 1, b"x"),
        of_protocol(IpNumber::IPV4, liar, GATEWAY_LAN),
    ] {
        rig.lan_sends(&ip.frame()).dropped("spoofed-lan");
    }
    let unaddressed = SocketAddr::new(SITE.unspecified, 68);
    let everybody = SocketAddr::new(SITE.everybody, 67);
    rig.lan_sends(&udp(unaddressed, everybody, b"discover").frame())
        .passed("specific-route");
    rig.lan_sends(&echo(CLIENT, GATEWAY_LAN, 1, b"x").frame())
        .passed("specific-route");
}

#[test]
fn what_a_link_brings_for_the_gateway_in_its_lan_is_dropped_whoever_listens_there() {
    let mut rig = Rig::new();
    let end = |port| SocketAddr::new(GATEWAY_LAN, port);
    let strays = [
        tcp(server(80), end(22), "S", 1, 0).ip(),
        udp(server(53), end(53), b"x"),
        echo(SERVER, GATEWAY_LAN, 1, b"x"),
        of_protocol(IpNumber::GRE, SERVER, GATEWAY_LAN),
        udp(server(53), end(53), &[0; 64]).fragment(8, 16),
    ];
    for ip in &strays {
        rig.link_brings(0, &ip.frame()).dropped("not-forwarded");
    }
    rig.set(|s| s.forwards_kernel = 1);
    for ip in &strays {
        rig.link_brings(0, &ip.frame()).passed("forward-in");
    }
}

/// Whoever else routes it: nothing but the kernel's NAT may take it on, and that alone where it is there.
#[test]
fn no_protocol_but_those_that_are_translated_leaves_a_link() {
    let mut rig = Rig::new();
    let translated = [icmp_of(FAMILY), IpNumber::TCP, IpNumber::UDP];
    let is_extension = |number: &IpNumber| FAMILY == Family::V6 && EXTENSIONS.contains(number);
    let others = (0..=255)
        .map(IpNumber)
        .filter(|number| !translated.contains(number) && !is_extension(number));
    for protocol in others {
        let ip = of_protocol(protocol, CLIENT, SERVER);
        rig.set(|s| s.fallback_mark = 0);
        for frame in [ip.frame(), ip.fragment(8, 16).frame()] {
            let refused = rig.lan_sends(&frame);
            if !refused.was_answered() {
                refused.dropped("refused-protocol");
                continue;
            }
            let answer = refused.answered("refused-protocol");
            assert_eq!(answer.dst().ip(), CLIENT, "{protocol:?}");
        }
        rig.set(|s| s.fallback_mark = MARK);
        rig.lan_sends(&ip.frame()).passed("fallback-protocol");
    }
    assert!(rig.flows().is_empty());
}

#[test]
fn a_source_that_is_not_the_lans_is_dropped_in_every_protocol() {
    let mut rig = Rig::new();
    rig.set(|s| (s.fallback_mark, s.forwards_kernel) = (MARK, 1));
    for stranger in [SITE.stranger, SECOND_SERVER, EXTERNAL[0]] {
        let mut frames = vec![
            of_protocol(IpNumber::GRE, stranger, SERVER).frame(),
            echo(stranger, SERVER, 1, b"x").frame(),
            udp(SocketAddr::new(stranger, 1), server(1), &[0; 64])
                .fragment(32, 64)
                .frame(),
        ];
        frames.extend([0, 3, 5, 11, 13].map(|kind| icmp_of_type(kind, stranger, SERVER).frame()));
        frames.extend(
            ["S", "A", "SA", "R", "FA"]
                .map(|flags| tcp(SocketAddr::new(stranger, 1), server(80), flags, 1, 1).frame()),
        );
        for frame in frames {
            rig.lan_sends(&frame).dropped("spoofed-lan");
        }
    }
}

#[test]
fn flags_that_no_segment_has_are_dropped_from_either_side() {
    let mut rig = Rig::new();
    rig.set(|s| (s.fallback_mark, s.forwards_kernel) = (MARK, 1));
    let connection = rig.connect(client(4000), server(80));
    for flags in ["", "P", "F", "FP", "SF", "SR", "SFA", "SRA", "RF", "SFRPA"] {
        for port in [4000, 4001] {
            let lie = tcp(client(port), server(80), flags, LOCAL_ISN + 1, 0);
            rig.lan_sends(&lie.frame()).dropped("tcp-flags");
        }
        let lie = connection.answer(flags, REMOTE_ISN + 1, LOCAL_ISN + 1);
        rig.link_brings(connection.link, &lie.frame())
            .dropped("tcp-flags");
    }
    assert_eq!(rig.live(), 1);
}
