//! ICMP errors about flows, both ways, and those the gateway answers with itself.

use std::net::{IpAddr, SocketAddr};

use super::*;

const PORT_UNREACHABLE: (u8, u8) = SITE.port_unreachable;
const TOO_BIG: (u8, u8) = SITE.too_big;
const EXCEEDED: (u8, u8) = SITE.hop_limit_exceeded;
/// A router of the internet that no flow knows.
const ROUTER: IpAddr = SITE.router;

#[test]
fn an_error_about_a_flow_reaches_its_host_as_if_there_were_no_gateway() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    // A taken port, so that ports change too.
    let other = SocketAddr::new(SECOND_CLIENT, 4000);
    rig.lan_sends(&udp(other, server(53), b"x").frame());
    for ip in with_more_headers(udp(client(4000), server(53), b"payload")) {
        let more = ip.packet().len() - IP_HEADER - ip.body.len();
        let out = rig.lan_sends(&ip.frame());
        let sent = out.sent("translated-out");
        assert_ne!(sent.src().port(), 4000);
        for quoted_length in [IP_HEADER + more + 8, out.frame.len() - ETHERNET] {
            let quoted = &out.frame[ETHERNET..][..quoted_length];
            let error = icmp(ROUTER, EXTERNAL[0], PORT_UNREACHABLE, [0; 4], quoted);
            let got = rig.link_brings(0, &error.frame()).sent("error-in");
            assert_eq!(got.src().ip(), ROUTER);
            assert_eq!(got.dst().ip(), CLIENT);
            let inner = quote(&got);
            assert_eq!((inner.src(), inner.dst()), (client(4000), server(53)));
            assert_eq!(inner.ip.options, ip.header.options);
            assert_eq!(inner.ip.extensions, sent.ip.extensions);
            let check = ip.body[6..8].to_vec();
            assert_eq!(got.payload()[IP_HEADER + more + 6..][..2], check);
        }
    }
}

#[test]
fn an_error_about_a_connection_carries_the_mtu_through() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(40000), server(80));
    let data = connection
        .say("A", LOCAL_ISN + 1, REMOTE_ISN + 1)
        .payload(&[7; 1400]);
    let out = rig.lan_sends(&data.frame());
    out.sent("translated-out");
    let mtu = [0, 0, 0x05, 0x14];
    let quoted = &out.frame[ETHERNET..][..IP_HEADER + 8];
    let external = connection.external.ip();
    let error = icmp(ROUTER, external, TOO_BIG, mtu, quoted);
    let got = rig
        .link_brings(connection.link, &error.frame())
        .sent("error-in");
    assert_eq!(got.icmp(), (TOO_BIG, mtu));
}

#[test]
fn an_error_about_an_echo_finds_its_host_by_the_id() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    rig.lan_sends(&echo(SECOND_CLIENT, SERVER, 9, b"").frame());
    let out = rig.lan_sends(&echo(CLIENT, SERVER, 9, b"").frame());
    let sent = out.sent("translated-out");
    assert_ne!(sent.src().port(), 9);
    let error = icmp(
        ROUTER,
        EXTERNAL[0],
        EXCEEDED,
        [0; 4],
        &out.frame[ETHERNET..],
    );
    let got = rig.link_brings(0, &error.frame()).sent("error-in");
    assert_eq!(got.dst().ip(), CLIENT);
    assert_eq!(quote(&got).src().port(), 9);
}

/// The second word of other messages is no id.
#[test]
fn an_error_about_an_icmp_message_that_is_no_query_finds_no_flow() {
    let mut rig = Rig::new();
    let out = rig.lan_sends(&echo(CLIENT, SERVER, 7, b"x").frame());
    let external = out.sent("translated-out").src();
    let about = |src, dst| {
        let mut quoted = echo(dst, src, external.port(), b"x").packet();
        quoted[IP_HEADER] = 135;
        icmp(src, dst, PORT_UNREACHABLE, [0; 4], &quoted).frame()
    };
    let inward = about(SERVER, external.ip());
    rig.link_brings(link_of(external), &inward)
        .passed("no-flow-in");
    rig.lan_sends(&about(CLIENT, SERVER))
        .dropped("foreign-error");
}

#[test]
fn an_error_of_a_lan_host_speaks_with_the_external_address() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let other = SocketAddr::new(SECOND_CLIENT, 4000);
    rig.lan_sends(&udp(other, server(53), b"x").frame());
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    let answer = rig.link_brings(0, &udp(server(53), sent.src(), b"y").frame());
    answer.sent("translated-in");
    let quoted = &answer.frame[ETHERNET..];
    let error = icmp(CLIENT, SERVER, PORT_UNREACHABLE, [0; 4], quoted);
    let out = rig.lan_sends(&error.frame()).sent("error-out");
    assert_eq!(out.src().ip(), EXTERNAL[0]);
    let inner = quote(&out);
    assert_eq!((inner.src(), inner.dst()), (server(53), sent.src()));
}

/// RFC 5508, section 4.2: the quote is as its sender wrote it, also where the endpoint was translated.
#[test]
fn a_quoted_datagram_bears_the_id_and_the_checksum_of_its_sender_both_ways() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let other = SocketAddr::new(SECOND_CLIENT, 4000);
    rig.lan_sends(&udp(other, server(53), b"x").frame());
    let query = udp(client(4000), server(53), b"query").id(4711);
    let out = rig.lan_sends(&query.frame());
    let external = out.sent("translated-out").src();
    let error = |src, dst, frame: &[u8]| {
        let quoted = &frame[ETHERNET..];
        icmp(src, dst, PORT_UNREACHABLE, [0; 4], quoted).frame()
    };
    let inward = error(ROUTER, external.ip(), &out.frame);
    let told = rig.link_brings(0, &inward).sent("error-in");

    let answer = udp(server(53), external, b"answer").id(4712);
    let got = rig.link_brings(0, &answer.frame());
    got.sent("translated-in");
    let outward = error(CLIENT, SERVER, &got.frame);
    let said = rig.lan_sends(&outward).sent("error-out");
    for (error, written) in [(told, query), (said, answer)] {
        let (is, was) = (quote(&error), read(&written.frame()));
        assert_eq!(is.ip.identification, was.ip.identification);
        assert_eq!(header_of(&is), header_of(&was));
    }
}

fn header_of(seen: &Seen) -> &etherparse::UdpHeader {
    match &seen.inside {
        Inside::Udp(header, _) => header,
        other => panic!("no datagram: {other:?}"),
    }
}

#[test]
fn nobody_speaks_of_a_flow_from_another_device_or_for_the_gateway() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let out = rig.lan_sends(&udp(client(4000), server(53), b"x").frame());
    let external = out.sent("translated-out").src();
    let mut answer = || rig.link_brings(0, &udp(server(53), external, b"y").frame());
    answer();
    let quoted = &answer().frame[ETHERNET..];
    let error = icmp(CLIENT, SERVER, PORT_UNREACHABLE, [0; 4], quoted);
    rig.alter(client(4000), Half::Lan, |flow| flow.lan_ifindex = 7);
    rig.lan_sends(&error.frame()).dropped("spoofed-device");
    rig.set(|s| s.lan_sources_loose = 1);
    rig.lan_sends(&error.frame()).sent("error-out");

    let quoted = &out.frame[ETHERNET..];
    let error = icmp(GATEWAY_LAN, EXTERNAL[0], PORT_UNREACHABLE, [0; 4], quoted);
    let got = rig.link_brings(0, &error.frame()).sent("error-in");
    assert_eq!(got.src(), SocketAddr::new(EXTERNAL[0], got.src().port()));
}

/// A provider that numbers its routers as the LAN is numbered.
#[test]
fn an_error_that_fits_a_flow_is_delivered_for_no_host_of_the_lan() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let out = connection.say("A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let out = rig.lan_sends(&out.payload(&[7; 1400]).frame());
    out.sent("translated-out");
    let datagram = rig.lan_sends(&udp(client(4000), server(53), b"x").frame());
    let ping = rig.lan_sends(&echo(CLIENT, SERVER, 9, b"x").frame());
    for sent in [&out, &datagram, &ping] {
        let external = sent.sent("translated-out").src();
        let quoted = &sent.frame[ETHERNET..];
        for router in [SECOND_CLIENT, GATEWAY_LAN, lan_host(200u32)] {
            let error = icmp(router, external.ip(), SITE.too_big, [0, 0, 5, 0], quoted);
            let got = rig.link_brings(link_of(external), &error.frame());
            let got = got.sent("error-in");
            assert_eq!((got.src().ip(), got.dst().ip()), (external.ip(), CLIENT));
            assert_eq!(quote(&got).src().ip(), CLIENT);
        }
    }
    let external = connection.external;
    for quoted in [
        tcp(external, server(80), "A", LOCAL_ISN ^ 1 << 31, 0)
            .ip()
            .packet(),
        tcp(external, server(81), "A", LOCAL_ISN + 1, 0)
            .ip()
            .packet(),
        udp(SocketAddr::new(external.ip(), 9), server(53), b"x").packet(),
        echo(external.ip(), SERVER, 77, b"x").packet(),
    ] {
        let lie = icmp(
            SECOND_CLIENT,
            external.ip(),
            SITE.too_big,
            [0, 0, 5, 0],
            &quoted,
        );
        rig.link_brings(connection.link, &lie.frame())
            .dropped("spoofed-wan");
    }
}

#[test]
fn a_quote_with_extensions_keeps_them() {
    let mut rig = Rig::new();
    let out = rig.lan_sends(&udp(client(4000), server(53), &[7; 100]).frame());
    let sent = out.sent("translated-out");
    // RFC 4884: 128 bytes quoted, their number in words (IPv6: of 8 bytes) in the header, then an extension.
    let word = match FAMILY {
        Family::V4 => [0, 32, 0, 0],
        Family::V6 => [16, 0, 0, 0],
    };
    let extension = [0x20, 0, 0xab, 0xcd, 0, 8, 1, 1, 0, 1, 0x41, 1];
    let quoted = [&out.frame[ETHERNET..][..128], &extension].concat();
    let error = icmp(ROUTER, sent.src().ip(), EXCEEDED, word, &quoted);
    let got = rig.link_brings(link_of(sent.src()), &error.frame());
    let got = got.sent("error-in");
    assert_eq!(got.icmp(), (EXCEEDED, word));
    assert_eq!(got.payload()[128..], extension);
    assert_eq!(quote(&got).src(), client(4000));
}

#[test]
fn an_error_about_a_segment_that_is_not_in_flight_is_dropped() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&data.payload(&[7; 1000]).frame());
    let about = |seq: u32| {
        let segment = tcp(connection.external, connection.remote, "A", seq, 0);
        let external = connection.external.ip();
        icmp(
            ROUTER,
            external,
            PORT_UNREACHABLE,
            [0; 4],
            &segment.ip().packet(),
        )
    };
    for seq in [LOCAL_ISN, LOCAL_ISN + 1, LOCAL_ISN + 1001] {
        rig.link_brings(connection.link, &about(seq).frame())
            .sent("error-in");
    }
    for seq in [0, LOCAL_ISN - 1, LOCAL_ISN + 1002, LOCAL_ISN ^ 0x8000_0000] {
        rig.link_brings(connection.link, &about(seq).frame())
            .dropped("bad-quote");
    }
}

#[test]
fn a_quote_ends_where_its_packet_ends() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    let quoted = udp(sent.src(), server(53), b"x").packet();
    for length in IP_HEADER..IP_HEADER + 8 {
        let error = icmp(
            ROUTER,
            sent.src().ip(),
            PORT_UNREACHABLE,
            [0; 4],
            &quoted[..length],
        );
        let mut padded = error.frame();
        padded.extend_from_slice(&quoted[length..]);
        padded.resize(100, 0);
        rig.link_brings(link_of(sent.src()), &padded)
            .dropped("malformed");
    }
}

#[test]
fn one_hosts_errors_cost_no_other_host_and_no_path_mtu() {
    let mut rig = Rig::new();
    rig.tell_links(EXTERNAL, [1400; 2]);
    let expiring = udp(client(4000), server(53), b"x").ttl(1).frame();
    let begun = std::time::Instant::now();
    let answered = (0..1000).filter(|_| rig.lan_sends(&expiring).was_answered());
    // 100 at once, and 100 a second.
    let (answered, allowed) = (answered.count(), 101 + begun.elapsed().as_millis() / 10);
    assert!(
        (100..=allowed as usize).contains(&answered),
        "{answered} of {allowed}"
    );
    for host in [CLIENT, SECOND_CLIENT] {
        let longer = udp(SocketAddr::new(host, 4001), server(53), &[7; 1450]);
        for _ in 0..50 {
            rig.lan_sends(&longer.frame()).answered("too-big-out");
        }
    }
}

#[test]
fn errors_neither_refresh_nor_end_a_flow() {
    let mut rig = Rig::new();
    let connection = rig.connect(client(4000), server(80));
    let before = rig.flow(client(4000));
    let syn = tcp(connection.external, connection.remote, "S", LOCAL_ISN, 0);
    let quoted = syn.ip().packet();
    let external = connection.external.ip();
    let error = icmp(ROUTER, external, PORT_UNREACHABLE, [0; 4], &quoted);
    rig.link_brings(connection.link, &error.frame())
        .sent("error-in");
    let after = rig.flow(client(4000));
    assert_eq!(
        (after.packets_in, after.state, rig.live()),
        (before.packets_in, before.state, 1)
    );
}

#[test]
fn errors_about_nothing_of_ours_with_bad_checksums_or_cut_short_change_nothing() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    let (link, external) = (link_of(sent.src()), sent.src());
    let about = |src: SocketAddr| udp(src, server(53), b"x").packet();
    let error = |quoted: &[u8]| icmp(ROUTER, external.ip(), PORT_UNREACHABLE, [0; 4], quoted);

    let unknown = SocketAddr::new(external.ip(), external.port() ^ 1);
    rig.link_brings(link, &error(&about(unknown)).frame())
        .passed("no-flow-in");
    let mut bad = error(&about(external));
    bad.body[9] ^= 1;
    rig.link_brings(link, &bad.frame()).dropped("bad-checksum");
    for length in 0..IP_HEADER + 8 {
        rig.link_brings(link, &error(&about(external)[..length]).frame())
            .dropped("malformed");
    }
    let later = udp(external, server(53), &[0; 64])
        .fragment(32, 64)
        .packet();
    let outcome = rig.link_brings(link, &error(&later).frame());
    assert_ne!(outcome.reason, "error-in", "a later fragment has no ports");

    let foreign = icmp(CLIENT, SERVER, PORT_UNREACHABLE, [0; 4], &about(server(1)));
    rig.lan_sends(&foreign.frame()).dropped("foreign-error");
}

#[test]
fn errors_with_a_source_that_lies_are_dropped() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    let (link, external) = (link_of(sent.src()), sent.src());
    let quoted = udp(SocketAddr::new(external.ip(), 9), server(53), b"x").packet();
    let lie = icmp(
        SECOND_CLIENT,
        external.ip(),
        PORT_UNREACHABLE,
        [0; 4],
        &quoted,
    );
    rig.link_brings(link, &lie.frame()).dropped("spoofed-wan");
    let quoted = udp(server(53), client(4000), b"x").packet();
    let lie = icmp(ROUTER, SERVER, PORT_UNREACHABLE, [0; 4], &quoted);
    rig.lan_sends(&lie.frame()).dropped("spoofed-lan");
}

#[test]
fn a_packet_at_its_last_hop_is_answered_with_time_exceeded() {
    let mut rig = Rig::new();
    for ttl in [0, 1] {
        let probe = udp(client(4000), server(33434), b"traceroute").ttl(ttl);
        let answer = answered_in_time(&mut rig, &probe.frame(), "ttl-out");
        assert_eq!(answer.src().ip(), GATEWAY_LAN);
        assert_eq!(answer.dst().ip(), CLIENT);
        assert_eq!(answer.icmp(), (EXCEEDED, [0; 4]));
        let inner = quote(&answer);
        assert_eq!((inner.src(), inner.dst()), (client(4000), server(33434)));
    }
}

#[test]
fn a_packet_at_its_last_hop_is_not_carried_into_the_lan() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    let answer = udp(server(53), sent.src(), b"y").ttl(1);
    rig.link_brings(link_of(sent.src()), &answer.frame())
        .dropped("ttl-in");
}

#[test]
fn an_error_at_its_last_hop_is_dropped_and_never_answered_with_an_error() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"x").frame());
    let (link, external) = (link_of(sent.src()), sent.src());
    for ttl in [0, 1] {
        let quoted = udp(external, server(53), b"x").packet();
        let error = icmp(ROUTER, external.ip(), PORT_UNREACHABLE, [0; 4], &quoted);
        rig.link_brings(link, &error.ttl(ttl).frame())
            .dropped("ttl-in");
        let quoted = udp(server(53), client(4000), b"x").packet();
        let error = icmp(CLIENT, SERVER, PORT_UNREACHABLE, [0; 4], &quoted);
        rig.lan_sends(&error.ttl(ttl).frame()).dropped("ttl-out");
    }
}

#[test]
fn a_packet_longer_than_the_link_that_must_not_be_fragmented_is_answered_with_the_mtu() {
    let mut rig = Rig::new();
    rig.tell_links(EXTERNAL, [1400; 2]);
    let fits = udp(client(4000), server(53), &[7; 1400 - IP_HEADER - 8]);
    rig.translates_out(&fits.frame());
    let longer = udp(client(4000), server(53), &[7; 1401 - IP_HEADER - 8]);
    let answer = answered_in_time(&mut rig, &longer.frame(), "too-big-out");
    assert_eq!(answer.icmp(), (TOO_BIG, 1400u32.to_be_bytes()));
    assert_eq!(quote(&answer).src(), client(4000));
}

#[test]
fn without_a_usable_link_a_host_is_told_that_the_network_is_unreachable() {
    let mut rig = Rig::choosing(&round_robin(0));
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    let answer = answered_in_time(&mut rig, &syn.frame(), "no-link");
    assert_eq!(answer.icmp(), (SITE.no_route, [0; 4]));
    let inner = quote(&answer);
    assert_eq!(inner.tcp().sequence_number, LOCAL_ISN);
    assert!(rig.flows().is_empty());
}

#[test]
fn answers_are_given_to_first_fragments_and_never_to_later_ones() {
    let mut rig = Rig::new();
    let datagram = udp(client(4000), server(53), &[7; 2000]).id(5).ttl(1);
    answered_in_time(&mut rig, &datagram.fragment(0, 1024).frame(), "ttl-out");
    rig.lan_sends(&datagram.fragment(1024, 2048).frame())
        .dropped("fragment-held");
}

/// The answer to a packet; the gateway answers once in a millisecond and CPU.
#[track_caller]
fn answered_in_time(rig: &mut Rig, frame: &[u8], reason: &str) -> Seen {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(1);
    loop {
        let outcome = rig.lan_sends(frame);
        assert_eq!(outcome.reason, reason);
        if outcome.was_answered() {
            return outcome.answered(reason);
        }
        assert!(std::time::Instant::now() < deadline, "no answer in 1 s");
    }
}

/// RFC 4291 section 2.5.6, RFC 3927 section 2.7.
#[test]
fn an_error_of_a_router_known_on_its_line_alone_comes_from_the_links_address() {
    let mut rig = Rig::new();
    let out = rig.lan_sends(&udp(client(4000), server(53), &[1; 1000]).frame());
    let external = out.sent("translated-out").src();
    let quoted = &out.frame[ETHERNET..];
    let told = |rig: &mut Rig, router: IpAddr| {
        let error = icmp(router, external.ip(), SITE.too_big, [0, 0, 5, 0], quoted);
        rig.link_brings(link_of(external), &error.frame())
    };
    let got = told(&mut rig, SITE.on_line).sent("error-in");
    assert_eq!((got.src().ip(), got.dst().ip()), (external.ip(), CLIENT));
    assert_eq!(quote(&got).src(), client(4000));
    for nobody in [SITE.multicast, SITE.unspecified] {
        told(&mut rig, nobody).dropped("bad-source");
    }
    let got = told(&mut rig, SITE.router).sent("error-in");
    assert_eq!(got.src().ip(), SITE.router);
}

#[test]
fn an_open_filter_lets_nobody_speak_from_an_address_that_is_known_on_one_line_alone() {
    let mut rig = Rig::new();
    rig.set(|s| s.udp_filter_open = 1);
    let sent = rig.lan_sends(&udp(client(4000), server(53), b"?").frame());
    let external = sent.sent("translated-out").src();
    for source in [SITE.on_line, SITE.multicast, SITE.unspecified] {
        let datagram = udp(SocketAddr::new(source, 53), external, b"!").frame();
        rig.link_brings(link_of(external), &datagram)
            .dropped("bad-source");
    }
    let datagram = udp(second_server(53), external, b"!").frame();
    rig.translates_in(link_of(external), &datagram);
}
