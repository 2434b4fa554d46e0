//! Links without NAT: the hosts of the LAN are known beyond them by their own addresses.

use std::collections::BTreeSet;

use anabranch_core::{Choice, ClassId, DataPlane, LinkId};
use anabranch_policy::{Dispatch, Granularity};

use super::*;

fn per_packet() -> Choice {
    Choice {
        granularity: Granularity::Packet.into(),
        dispatch: Dispatch::Turns.into(),
        ..round_robin(0b11)
    }
}

#[test]
fn a_flow_keeps_its_endpoint_and_whoever_answers_does_so_by_either_link() {
    let mut rig = Rig::routed(0b11, 0b01);
    let (local, remote) = (client(4000), server(443));
    let syn = rig.lan_sends(&tcp(local, remote, "S", LOCAL_ISN, 0).frame());
    let syn = syn.sent("translated-out");
    assert_eq!((syn.src(), syn.dst()), (local, remote));
    let answer = tcp(remote, local, "SA", REMOTE_ISN, LOCAL_ISN + 1).frame();
    let answer = rig.translates_in(1, &answer);
    assert_eq!((answer.src(), answer.dst()), (remote, local));
    rig.translates_out(&tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1).frame());
    let flow = rig.flow(local);
    assert_eq!((flow.link, flow.external), (0, local));
    assert_eq!((flow.packets_out, flow.packets_in), (2, 1));
    assert_eq!(rig.unconfirmed(), 0, "the answer has confirmed it");
    // What came by another link says nothing of the way out.
    assert_eq!(rig.brought_by(), [(0, 0), (1, 0)]);
    rig.translates_in(
        0,
        &tcp(remote, local, "A", REMOTE_ISN + 1, LOCAL_ISN + 2).frame(),
    );
    assert_eq!(rig.brought_by(), [(1, 1), (1, 0)]);
}

#[test]
fn what_comes_first_from_outside_is_the_kernels_and_its_answers_join() {
    let mut rig = Rig::routed(0b11, 0b10);
    let (local, remote) = (client(80), server(5000));
    let call = tcp(remote, local, "S", REMOTE_ISN, 0).frame();
    rig.link_brings(0, &call).passed("routed-in");
    let answer = tcp(local, remote, "SA", LOCAL_ISN, REMOTE_ISN + 1).frame();
    let answer = rig.translates_out(&answer);
    assert_eq!((answer.src(), answer.dst()), (local, remote));
    assert_eq!(rig.flow(local).link, 1);
    for (flags, seq, ack) in [("A", 1, 1), ("PA", 1, 1), ("R", 7_000_000, 0)] {
        let segment = tcp(remote, local, flags, REMOTE_ISN + seq, LOCAL_ISN + ack);
        rig.translates_in(0, &segment.frame());
    }
    // A datagram, too.
    rig.link_brings(0, &udp(server(53), client(99), b"?").frame())
        .passed("routed-in");
}

#[test]
fn nothing_from_outside_reaches_the_lan_by_a_link_with_nat() {
    let mut rig = Rig::routed(0b01, 0b11);
    let call = tcp(server(5000), client(80), "S", REMOTE_ISN, 0).frame();
    rig.link_brings(1, &call).dropped("not-forwarded");
    rig.link_brings(0, &call).passed("routed-in");
    // To the host it is as ever, by either.
    let own = SocketAddr::new(EXTERNAL[0], 80);
    let call = tcp(server(5000), own, "S", REMOTE_ISN, 0).frame();
    rig.link_brings(0, &call).dropped("stray-syn");
    // Nobody outside is in the LAN.
    let spoofed = tcp(client(1), client(80), "S", REMOTE_ISN, 0).frame();
    rig.link_brings(0, &spoofed).dropped("spoofed-wan");
}

#[test]
fn a_connection_goes_on_over_another_link_without_nat_when_its_own_ends() {
    let mut rig = Rig::routed(0b11, 0b01);
    let (local, remote) = (client(4000), server(443));
    let say = |flags, seq, ack| tcp(local, remote, flags, LOCAL_ISN + seq, ack).frame();
    rig.translates_out(&say("S", 0, 0));
    let answer = tcp(remote, local, "SA", REMOTE_ISN, LOCAL_ISN + 1).frame();
    rig.translates_in(0, &answer);
    rig.translates_out(&say("A", 1, REMOTE_ISN + 1));
    rig.install(&round_robin(0b10));
    let ended = rig
        .plane()
        .end_flows(ClassId::DEFAULT, FAMILY, LinkId(0))
        .unwrap();
    assert_eq!(ended.tcp, 0, "nobody is told of an end that is none");
    assert_eq!(rig.live(), 0);
    let data = rig.lan_sends(&say("PA", 1, REMOTE_ISN + 1));
    assert_eq!(data.sent("translated-out").src(), local);
    assert_eq!(rig.flow(local).link, 1);
    let ack = tcp(remote, local, "A", REMOTE_ISN + 1, LOCAL_ISN + 9).frame();
    rig.translates_in(1, &ack);
    rig.translates_out(&say("PA", 9, REMOTE_ISN + 1));
    assert_eq!(rig.unconfirmed(), 0, "it is confirmed once more");
    assert_eq!(rig.live(), 1);
}

#[test]
fn a_segment_of_no_flow_joins_no_link_with_nat() {
    let mut rig = Rig::routed(0b01, 0b10);
    let data = tcp(client(4000), server(443), "PA", LOCAL_ISN, REMOTE_ISN).frame();
    rig.lan_sends(&data).answered("no-flow-out");
    rig.install(&round_robin(0b11));
    for port in 4001..4005 {
        let data = tcp(client(port), server(443), "PA", LOCAL_ISN, REMOTE_ISN).frame();
        rig.translates_out(&data);
        assert_eq!(rig.flow(client(port)).link, 0);
    }
    // A RST begins nothing.
    let rst = tcp(client(5000), server(443), "R", LOCAL_ISN, 0).frame();
    assert!(!rig.lan_sends(&rst).was_answered());
}

#[test]
fn an_attempt_that_goes_on_without_nat_is_the_same_connection() {
    let mut rig = Rig::routed(0b11, 0b11);
    rig.install(&Choice {
        syn_retry: 1,
        ..round_robin(0b11)
    });
    let (local, remote) = (client(4000), server(443));
    let syn = tcp(local, remote, "S", LOCAL_ISN, 0).frame();
    let mut links = Vec::new();
    for _ in 0..2 {
        assert_eq!(rig.translates_out(&syn).src(), local);
        links.push(rig.flow(local).link);
    }
    links.sort_unstable();
    assert_eq!(links, [0, 1]);
    assert_eq!(rig.live(), 1);
    // Also what answers the first of the two.
    let answer = tcp(remote, local, "SA", REMOTE_ISN, LOCAL_ISN + 1).frame();
    rig.translates_in(0, &answer);
    rig.translates_out(&tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 1).frame());
    assert_eq!((rig.unconfirmed(), rig.live()), (0, 1));
}

#[test]
fn an_attempt_changes_between_links_with_and_without_nat_as_a_new_flow() {
    for routed in [0b01, 0b10] {
        let mut rig = Rig::routed(routed, 0b11);
        rig.install(&Choice {
            syn_retry: 1,
            ..round_robin(0b11)
        });
        let syn = tcp(client(4000), server(443), "S", LOCAL_ISN, 0).frame();
        let source = |_| rig.translates_out(&syn).src().ip();
        let sources = BTreeSet::from([0, 1].map(source));
        let external = EXTERNAL[if routed == 0b01 { 1 } else { 0 }];
        assert_eq!(sources, BTreeSet::from([CLIENT, external]));
        assert_eq!(rig.live(), 1);
    }
}

#[test]
fn a_mapping_is_heard_by_everybody_and_errors_about_it_come_through() {
    let mut rig = Rig::routed(0b11, 0b01);
    let local = client(5000);
    rig.translates_out(&udp(local, server(53), b"?").frame());
    rig.translates_in(1, &udp(server(53), local, b"!").frame());
    // No filter stands between others and the host, but the kernel's.
    rig.link_brings(1, &udp(second_server(9), local, b"!").frame())
        .passed("routed-in");
    let quoted = udp(local, server(53), b"?").packet();
    let error = icmp(ISP[1], CLIENT, SITE.port_unreachable, [0; 4], &quoted).frame();
    let error = rig.link_brings(1, &error).sent("error-in");
    assert_eq!(frame::quote(&error).src(), local);
    // About what nobody here knows it is the host's to say.
    let quoted = udp(client(5999), server(53), b"?").packet();
    let error = icmp(ISP[1], CLIENT, SITE.port_unreachable, [0; 4], &quoted).frame();
    rig.link_brings(1, &error).passed("routed-in");
}

#[test]
fn a_class_per_packet_sends_each_by_itself_and_remembers_nothing() {
    let mut rig = Rig::routed(0b11, 0b11);
    rig.install(&per_packet());
    let (local, remote) = (client(4000), server(443));
    for (flags, ttl) in [("S", 64), ("A", 9), ("PA", 2), ("RA", 64)] {
        let packet = tcp(local, remote, flags, LOCAL_ISN, 0).ip().ttl(ttl);
        let sent = rig.lan_sends(&packet.frame()).sent("routed-out");
        assert_eq!((sent.src(), sent.dst()), (local, remote));
        assert_eq!(sent.ip.hop_limit, ttl - 1);
    }
    assert_eq!(rig.sent_over(), [2, 2]);
    assert_eq!(
        (rig.flows().len(), rig.live(), rig.unconfirmed()),
        (0, 0, 0)
    );
    let answer = tcp(remote, local, "SA", REMOTE_ISN, LOCAL_ISN + 1).frame();
    rig.link_brings(0, &answer).passed("routed-in");
    let late = tcp(local, remote, "A", LOCAL_ISN, 0).ip().ttl(1);
    rig.lan_sends(&late.frame()).answered("ttl-out");
    let long = udp(local, remote, &[0; 1600]).frame();
    rig.lan_sends(&long).answered("too-big-out");
    // With NAT nothing goes by itself.
    rig.set(|s| s.routed = of_both(0b01));
    let before = rig.sent_over();
    for port in 0..4 {
        rig.lan_sends(&udp(client(6000 + port), remote, b"?").frame())
            .sent("routed-out");
    }
    assert_eq!(rig.sent_over(), [before[0] + 4, before[1]]);
    rig.set(|s| s.routed = 0);
    rig.lan_sends(&udp(client(7000), remote, b"?").frame())
        .answered("no-link");
}

#[test]
fn what_has_no_flows_goes_by_a_link_without_nat_and_stays_there() {
    let mut rig = Rig::routed(0b11, 0b11);
    let mut esp = udp(client(0), server(0), &[7; 64]);
    esp.header.protocol = etherparse::IpNumber::ENCAPSULATING_SECURITY_PAYLOAD;
    let left = rig.lan_pours((0..4).map(|_| esp.frame()));
    assert_eq!(left["routed-out"], 4);
    let sent = rig.sent_over();
    assert!(sent == [4, 0] || sent == [0, 4], "of one session: {sent:?}");
    rig.lan_sends(&echo_reply(CLIENT, SERVER, 7, b"!").frame())
        .sent("routed-out");
    let quoted = udp(server(53), client(5999), b"?").packet();
    let error = icmp(CLIENT, SERVER, SITE.port_unreachable, [0; 4], &quoted).frame();
    rig.lan_sends(&error).sent("routed-out");
    // Where there is NAT it is as ever.
    let mut nat = Rig::new();
    nat.lan_sends(&esp.frame()).answered("refused-protocol");
    nat.lan_sends(&error).dropped("foreign-error");
}

#[test]
fn an_echo_keeps_its_id_whatever_the_gateways_own_are() {
    let mut rig = Rig::routed(0b11, 0b01);
    let ask = echo(CLIENT, SERVER, 0xab01, b"?").frame();
    rig.translates_out(&ask);
    let answer = echo_reply(SERVER, CLIENT, 0xab01, b"?").frame();
    rig.translates_in(1, &answer);
}

#[test]
fn connections_to_one_endpoint_of_the_lan_are_answered_over_all_links() {
    let mut rig = Rig::routed(0b11, 0b11);
    let mut links = Vec::new();
    for port in 5000..5004 {
        let (local, remote) = (client(80), server(port));
        let call = tcp(remote, local, "S", REMOTE_ISN, 0).frame();
        rig.link_brings(0, &call).passed("routed-in");
        let before = rig.sent_over();
        let answer = tcp(local, remote, "SA", LOCAL_ISN, REMOTE_ISN + 1);
        rig.translates_out(&answer.frame());
        let after = rig.sent_over();
        links.push(usize::from(after[1] > before[1]));
        for (flags, seq) in [("A", 1), ("PA", 1)] {
            let segment = tcp(remote, local, flags, REMOTE_ISN + seq, LOCAL_ISN + 1);
            rig.translates_in(0, &segment.frame());
            let ack = tcp(local, remote, "A", LOCAL_ISN + 1, REMOTE_ISN + 2);
            rig.translates_out(&ack.frame());
        }
    }
    assert_eq!(links.iter().sum::<usize>(), 2, "{links:?}");
}
