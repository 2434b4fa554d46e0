//! UDP and ICMP echo: endpoint-independent mappings, filtering, ports.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use anabranch_core::{ClassId, DataPlane, LinkId};
use anabranch_dataplane::FlowState;
use proptest::prelude::*;

use super::*;

#[test]
fn one_socket_is_one_external_endpoint_to_every_remote_end() {
    let mut rig = Rig::new();
    let first = rig.translates_out(&udp(client(4000), server(53), b"a").frame());
    for remote in [second_server(53), server(54), second_server(99)] {
        let next = rig.translates_out(&udp(client(4000), remote, b"b").frame());
        assert_eq!(next.src(), first.src(), "towards {remote}");
    }
    assert_eq!((rig.flows().len(), rig.live()), (1, 1));
}

#[test]
fn a_mapping_hears_from_any_port_of_an_address_it_spoke_to_and_from_no_other_address() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"a").frame());
    let link = link_of(sent.src());
    let other_port = udp(server(9999), sent.src(), b"b");
    let got = rig.translates_in(link, &other_port.frame());
    assert_eq!(got.dst(), client(4000));

    let stranger = udp(second_server(53), sent.src(), b"c").frame();
    rig.link_brings(link, &stranger).dropped("filtered-in");
    rig.translates_out(&udp(client(4000), second_server(1), b"d").frame());
    rig.translates_in(link, &stranger);
}

#[test]
fn with_open_filtering_a_mapping_hears_from_everyone_but_liars() {
    let mut rig = Rig::new();
    rig.set(|s| s.udp_filter_open = 1);
    let sent = rig.translates_out(&udp(client(4000), server(53), b"a").frame());
    let link = link_of(sent.src());
    rig.translates_in(link, &udp(second_server(53), sent.src(), b"b").frame());
    let liar = SocketAddr::new(SECOND_CLIENT, 53);
    rig.link_brings(link, &udp(liar, sent.src(), b"c").frame())
        .dropped("spoofed-wan");
}

#[test]
fn a_packet_to_the_mapping_of_another_link_is_not_its_mapping() {
    let mut rig = Rig::new();
    let sent = rig.translates_out(&udp(client(4000), server(53), b"a").frame());
    let other = 1 - link_of(sent.src());
    let elsewhere = SocketAddr::new(EXTERNAL[usize::from(other)], sent.src().port());
    rig.link_brings(other, &udp(server(53), elsewhere, b"b").frame())
        .passed("stray");
}

#[test]
fn a_mapping_leaves_what_the_kernel_routes_to_the_kernel() {
    let mut rig = Rig::new();
    rig.translates_out(&udp(client(4000), server(53), b"a").frame());
    for kernels in [GATEWAY_LAN, SECOND_CLIENT, SITE.multicast] {
        let remote = SocketAddr::new(kernels, 53);
        rig.lan_sends(&udp(client(4000), remote, b"b").frame())
            .passed("specific-route");
    }
    rig.translates_out(&echo(CLIENT, SERVER, 77, b"").frame());
    rig.lan_sends(&echo(CLIENT, GATEWAY_LAN, 77, b"").frame())
        .passed("specific-route");
}

#[test]
fn no_two_sockets_share_an_external_port() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let mut taken = BTreeSet::new();
    for host in 2..=60u8 {
        for port in [123, 5000, 40000] {
            let local = SocketAddr::new(lan_host(host), port);
            let sent = rig.translates_out(&udp(local, server(53), b"a").frame());
            assert!(taken.insert(sent.src()), "{} twice", sent.src());
        }
    }
}

#[test]
fn a_free_port_is_preserved_and_a_taken_one_replaced_within_its_class() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let mut external = |host: IpAddr, port| {
        let local = SocketAddr::new(host, port);
        rig.translates_out(&udp(local, server(53), b"a").frame())
            .src()
            .port()
    };
    assert_eq!(external(CLIENT, 5000), 5000);
    assert_ne!(external(SECOND_CLIENT, 5000), 5000);
    assert_eq!(external(CLIENT, 123), 123);
    let replaced = external(SECOND_CLIENT, 123);
    assert!(replaced < 1024 && replaced != 123, "{replaced}");
    let ephemeral = external(CLIENT, 40000);
    assert!(!(32768..=60999).contains(&ephemeral), "{ephemeral}");
}

#[test]
fn replaced_ports_follow_no_order() {
    // In order by chance once in 20!/2 runs.
    const HOSTS: u8 = 20;
    let mut rig = Rig::choosing(&round_robin(0b01));
    let mut port_of = |number: u8| {
        let local = SocketAddr::new(lan_host(10 + number), 4000);
        let sent = rig.lan_sends(&udp(local, server(53), b"a").frame());
        sent.sent("translated-out").src().port()
    };
    assert_eq!(port_of(0), 4000);
    let replaced: Vec<u16> = (1..=HOSTS).map(port_of).collect();
    assert!(!replaced.is_sorted(), "{replaced:?}");
    assert!(!replaced.is_sorted_by(|a, b| a >= b), "{replaced:?}");
}

#[test]
fn replaced_ports_keep_to_the_configured_range_less_the_hosts_own() {
    let mut rig = Rig::new();
    let port = || 1024..=65535u16;
    let ranges = (port(), port(), port(), port());
    rig.for_all(200, (ranges, port()), |rig, ((a, b, c, d), port)| {
        let (allowed, hosts) = (a.min(b)..=a.max(b), c.min(d)..=c.max(d));
        // Where there is no port the link is left alone for a second, and no case after that one would see any.
        prop_assume!(!allowed.clone().all(|port| hosts.contains(&port)));
        rig.set(|s| {
            (s.port_min, s.port_max) = (*allowed.start(), *allowed.end());
            (s.ephemeral_min, s.ephemeral_max) = (*hosts.start(), *hosts.end());
        });
        let outcome = rig.lan_sends(&udp(client(port), server(53), b"a").frame());
        let external = outcome.sent("translated-out").src().port();
        prop_assert!(allowed.contains(&external), "{external}");
        prop_assert!(!hosts.contains(&external), "{external}");
        rig.set(|s| s.udp_ns = 0);
        rig.sweep_until(|rig, _| rig.flows().is_empty());
        Ok(())
    });
}

#[test]
fn echo_keeps_one_id_to_every_remote_end_and_shares_none_with_another_host() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let first = rig.translates_out(&echo(CLIENT, SERVER, 77, b"x").frame());
    let second = rig.translates_out(&echo(CLIENT, SECOND_SERVER, 77, b"x").frame());
    assert_eq!((first.src(), first.src().port()), (second.src(), 77));
    let other = rig.translates_out(&echo(SECOND_CLIENT, SERVER, 77, b"x").frame());
    assert_ne!(other.src(), first.src());
    let reply = echo_reply(SERVER, EXTERNAL[0], other.src().port(), b"x");
    let got = rig.translates_in(0, &reply.frame());
    assert_eq!(got.dst(), SocketAddr::new(SECOND_CLIENT, 77));
}

#[test]
fn the_ids_of_the_gateways_own_probes_are_left_to_it() {
    let mut rig = Rig::new();
    for id in 0xab00..=0xabffu16 {
        let sent = rig.translates_out(&echo(CLIENT, SERVER, id, b"").frame());
        assert_ne!(sent.src().port() >> 8, 0xab);
    }
    let reply = echo_reply(SERVER, EXTERNAL[0], 0xab01, b"");
    rig.link_brings(0, &reply.frame()).passed("no-flow-in");
}

/// The gateway's own ping may have the id of a LAN host's.
#[test]
fn an_echo_reply_of_a_remote_that_the_mapping_never_asked_is_the_gateways_own() {
    let mut rig = Rig::new();
    for udp_filter_open in [0, 1] {
        rig.set(|s| s.udp_filter_open = udp_filter_open);
        let asked = echo(CLIENT, SERVER, 7, b"LAN").frame();
        let sent = rig.translates_out(&asked).src();
        let reply = |from| echo_reply(from, sent.ip(), sent.port(), b"").frame();
        let link = link_of(sent);
        rig.link_brings(link, &reply(SECOND_SERVER))
            .passed("no-flow-in");
        rig.translates_in(link, &reply(SERVER));
        let asked = echo(CLIENT, SECOND_SERVER, 7, b"LAN").frame();
        rig.translates_out(&asked);
        rig.translates_in(link, &reply(SECOND_SERVER));
        rig.plane()
            .end_flows(ClassId::DEFAULT, FAMILY, LinkId(link))
            .unwrap();
    }
}

#[test]
fn an_echo_request_from_a_link_is_for_the_gateway_itself() {
    let mut rig = Rig::new();
    let ping = echo(SERVER, EXTERNAL[0], 1, b"");
    rig.link_brings(0, &ping.frame()).passed("no-flow-in");
}

#[test]
fn a_query_and_its_answer_stay_unconfirmed_and_a_conversation_is_confirmed() {
    let mut rig = Rig::new();
    let query = udp(client(4000), server(53), b"q").frame();
    let sent = rig.translates_out(&query);
    let link = link_of(sent.src());
    let answer = udp(server(53), sent.src(), b"a").frame();
    rig.translates_in(link, &answer);
    assert_eq!(rig.flow(client(4000)).state, FlowState::Unconfirmed);
    rig.translates_in(link, &answer);
    assert_eq!(rig.flow(client(4000)).state, FlowState::Established);
    rig.translates_out(&query);
    let flow = rig.flow(client(4000));
    assert_eq!((flow.packets_out, flow.packets_in), (2, 2));
    assert_eq!(rig.plane().confirmed().unwrap(), 1);
}

#[test]
fn a_host_that_goes_on_after_an_answer_is_confirmed() {
    let mut rig = Rig::new();
    let query = udp(client(4000), server(53), b"q").frame();
    let sent = rig.translates_out(&query);
    let answer = udp(server(53), sent.src(), b"a").frame();
    rig.translates_in(link_of(sent.src()), &answer);
    rig.translates_out(&query);
    assert_eq!(rig.flow(client(4000)).state, FlowState::Established);
}

#[test]
fn a_stream_that_nobody_answers_is_confirmed_after_a_second() {
    let mut rig = Rig::new();
    let packet = udp(client(4000), server(5004), b"rtp").frame();
    let begin = std::time::Instant::now();
    while rig.plane().confirmed().unwrap() == 0 {
        rig.translates_out(&packet);
        assert!(begin.elapsed().as_secs() < 5, "not in 5 s");
    }
    assert!(begin.elapsed().as_millis() >= 990, "a burst is no stream");
}

#[test]
fn two_lan_hosts_meet_at_their_external_endpoints_and_see_no_inside_address() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let (a, b) = (client(4000), SocketAddr::new(SECOND_CLIENT, 5000));
    let mut external = |local| {
        rig.translates_out(&udp(local, server(3478), b"stun").frame())
            .src()
    };
    let (outer_a, outer_b) = (external(a), external(b));
    for (from, to, outer_from, outer_to) in [(a, b, outer_a, outer_b), (b, a, outer_b, outer_a)] {
        let there = rig.lan_sends(&udp(from, outer_to, b"hello").frame());
        let there = there.sent("hairpin");
        assert_eq!((there.src(), there.dst()), (outer_from, outer_to), "{to}");
        // Only this host can put it on a link's way in.
        rig.link_brings(0, &udp(outer_from, outer_to, b"hello").frame())
            .dropped("spoofed-wan");
    }
}

#[test]
fn a_mapping_that_began_towards_a_neighbour_hears_nobody_on_a_link_in_its_name() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let neighbour = SocketAddr::new(SECOND_CLIENT, 4000);
    let query = udp(neighbour, server(53), b"query").frame();
    let called = rig.translates_out(&query).src();
    let hello = udp(client(5000), called, b"hello").frame();
    let caller = rig.lan_sends(&hello).sent("hairpin").src();
    let answer = udp(called, caller, b"hello").frame();
    rig.link_brings(0, &answer).dropped("spoofed-wan");
    let seen = rig.comes_back(&answer).sent("translated-in");
    assert_eq!(seen.dst(), client(5000));
}

#[test]
fn a_datagram_from_port_zero_costs_nobody_a_mapping() {
    let mut rig = Rig::new();
    let nowhere_back = udp(client(0), server(53), b"no reply");
    let sent = rig.translates_out(&nowhere_back.frame());
    assert_ne!(sent.src().port(), 0);
    rig.translates_out(&udp(client(4000), server(53), b"query").frame());
}
